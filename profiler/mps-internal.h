/* SPDX-License-Identifier: Apache-2.0
 *
 * Between limiter-mps.c and mps-guard.c only.
 */
#ifndef HCP_MPS_INTERNAL_H
#define HCP_MPS_INTERNAL_H
#include <stddef.h>

/* Runs in a forked child and never returns: starts the daemon, writes "ok PCT\n" or
 * "error TEXT\n" to fd, waits until fd ends, stops the daemon, removes the
 * directories. */
_Noreturn void hcp_mps_guard(const char *control, const char *pipe_dir,
                             const char *log_dir, const char *base_dir, int fd);

/* Runs the control program with argument (NULL: none) and command on its standard
 * input, of the daemon in pipe_dir (NULL: as the environment says); output gets what it
 * printed, trimmed, lines as words. Exit status, or -1 when it could not run or did not
 * end within timeout_s. */
int hcp_mps_control(const char *control, const char *argument, const char *command,
                    const char *pipe_dir, const char *log_dir, char *output, size_t size,
                    double timeout_s);

/* Removes the three directories with the files in them. */
void hcp_mps_remove_dirs(const char *pipe_dir, const char *log_dir, const char *base_dir);

/* One line about an MPS daemon or server of another user on this machine: 1 and
 * text when there is one. */
int hcp_mps_foreign(char *text, size_t size);

#endif
