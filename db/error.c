/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/error.h"
#include <stdarg.h>
#include <stdio.h>

/* The first failure is the cause: callers return at once, so err is written once.
 * Quoted input must not break the line or drive the terminal. */
int hcp_fail(struct hcp_err *err, int code, const char *format, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(err->text, sizeof err->text, format, ap);
        va_end(ap);
        for (char *p = err->text; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                *p = '?';
        err->code = code;
    }
    return code;
}
