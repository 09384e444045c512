/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two sides of the socket say. Both are the same program, so structs
 * travel as they are.
 */
#ifndef HCP_WORKER_INTERNAL_H
#define HCP_WORKER_INTERNAL_H
#include "profiler/device.h"

enum hcp_worker_op {
    HCP_WORKER_LIST,
    HCP_WORKER_KERNELS,
    HCP_WORKER_OPEN,
    HCP_WORKER_CHECK,
    HCP_WORKER_CELL
};

struct hcp_worker_request {
    int32_t op;
    union {
        struct hcp_device_config config; /* OPEN */
        struct hcp_cell_request cell;    /* CELL */
    } u;
};

struct hcp_worker_reply {
    int32_t rc, lost;
    char text[1024]; /* error; LIST: why there is none */
    int32_t n; /* doubles (CELL), device or kernel infos (LIST, KERNELS) that follow */
    union {
        struct hcp_device_info info;
        struct hcp_cell_facts facts;
        char result[64];
    } u;
};

#endif
