/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel times as CUPTI's activity records have them: the cross-check of CUDA
 * events. The library is loaded at run time; records can be lost, so they are
 * counted.
 */
#ifndef HCP_CUPTI_H
#define HCP_CUPTI_H
#include <stddef.h>

/* 0, or -1 and one line in why. Once a process. */
int hcp_cupti_open(char *why, size_t why_size);
/* Records kernels from here to hcp_cupti_end, which the caller calls after the
 * device is idle: number of kernels and the sum of their times. -1 on failure. */
int hcp_cupti_begin(void);
int hcp_cupti_end(int *kernels, double *total_ms, int *dropped);

#endif
