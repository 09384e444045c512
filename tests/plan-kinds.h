/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of ranks for tests of the library: a fast and a slow one of one kernel, and what
 * another kernel covers.
 */
#ifndef PLAN_KINDS_H
#define PLAN_KINDS_H
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "tests/plan-fixture.h"

static const struct fixture kinds[] = {
    {.device = "nvidia-h200",
     .limit = "mps:100",
     .a = 2e-8,
     .b = 1e-5,
     .f = 0.01,
     .tile = 128,
     .lut = 1,
     .poly = 1,
     .error = 0.02},
    {.device = "nvidia-h200",
     .limit = "mps:10",
     .a = 2e-7,
     .b = 1e-4,
     .f = 0.02,
     .tile = 64,
     .lut = 1,
     .error = 0.02},
    {.device = "nvidia-h200",
     .limit = "mps:10",
     .provider = "flash",
     .a = 3e-7,
     .f = 0.02,
     .tile = 64,
     .lut = 1,
     .error = 0.02},
    {.device = "nvidia-a100",
     .provider = "flash",
     .a = 5e-8,
     .f = 0.02,
     .tile = 64,
     .lut = 1,
     .error = 0.02},
    {.device = "nvidia-l4",
     .provider = "reference",
     .a = 5e-7,
     .f = 0.02,
     .tile = 64,
     .lut = 1,
     .error = 0.02},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static inline void has(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        print_error("'%s' lacks '%s'\n", text, part);
        fail();
    }
}

#endif
