/* SPDX-License-Identifier: Apache-2.0
 *
 * How internal functions report failure: they return a code and put one line,
 * cause and next step, into the caller's struct. Nothing here prints.
 */
#ifndef HCP_ERROR_H
#define HCP_ERROR_H

/* Also the exit codes of the programs. */
enum { HCP_OK = 0, HCP_FAILED = 1, HCP_USAGE = 2, HCP_NO_ANSWER = 3 };

struct hcp_err {
    int code;
    char text[1024];
};

/* Fills err (NULL allowed) and returns code. */
int hcp_fail(struct hcp_err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
