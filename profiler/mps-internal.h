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

/* Removes the three directories with the files in them. */
void hcp_mps_remove_dirs(const char *pipe_dir, const char *log_dir, const char *base_dir);

/* One line about an MPS daemon or server of another user on this machine: 1 and
 * text when there is one. */
int hcp_mps_foreign(char *text, size_t size);

#endif
