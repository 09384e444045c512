/* SPDX-License-Identifier: Apache-2.0
 *
 * TAP with printf: the GPU test programs run on hosts without cmocka.
 */
#ifndef GPU_TAP_H
#define GPU_TAP_H
#include <stdarg.h>
#include <stdio.h>

static int tap_count, tap_failed;

/* One test point; returns pass. */
__attribute__((format(printf, 2, 3))) static int ok(int pass, const char *format, ...)
{
    va_list args;
    printf("%sok %d - ", pass ? "" : "not ", ++tap_count);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    tap_failed += !pass;
    return pass;
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list args;
    printf("# ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

/* Prints the plan; the program's exit status. */
static int tap_done(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed != 0;
}

#endif
