/* SPDX-License-Identifier: Apache-2.0
 *
 * A device in a process of its own: that is how limits are set (an MPS percentage
 * belongs to a process, a duty cycle stops one), and how a crash in a kernel costs
 * one cell and not the sweep. The worker is this program again, talking over a
 * socket on descriptor 3; it holds no database.
 */
#ifndef HCP_WORKER_H
#define HCP_WORKER_H
#include "profiler/device.h"

/* Opens the config's device in a new worker, under its limit. The result answers
 * like any device; info comes from the worker. After a failure with lost set the
 * worker is gone. Interrupted (*hcp_worker_stop != 0): "stopped". */
extern const struct hcp_device_ops hcp_device_worker_ops;

/* Set by the program's signal handler: waits for a worker end at once. */
extern volatile sig_atomic_t hcp_worker_stop;
/* SIGINT, SIGTERM and SIGHUP set it, each once: a second one ends the program, which
 * workers and the MPS guard notice. Writing to a closed pipe is an error, not a signal.
 */
void hcp_worker_catch_signals(void);

/* GPUs as a worker without limit sees them (so that this process makes no CUDA
 * call); *infos malloc'ed. reason[512] says why there is none. */
int hcp_worker_list(struct hcp_device_info **infos, size_t *n, char reason[512],
                    struct hcp_err *err);

/* A kernel on a device: number gpu of hcp_worker_list's order, -1 the CPU. */
struct hcp_kernel_info {
    int32_t gpu;
    int32_t usable; /* for 32/8 heads, head dim 128, bf16 */
    char name[32], version[48], reason[160];
};
/* Kernels that the registry knows for each device here; *kernels malloc'ed. */
int hcp_worker_kernels(struct hcp_kernel_info **kernels, size_t *n, struct hcp_err *err);

/* The worker's side: serves descriptor 3 until it ends. Exit code. */
int hcp_worker_main(void);
#define HCP_WORKER_COMMAND "--worker" /* argv[1] that starts it */

#endif
