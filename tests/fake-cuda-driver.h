/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests/fake-cuda-driver.c, loaded in the CUDA driver's place, tells tests.
 */
#ifndef FAKE_CUDA_DRIVER_H
#define FAKE_CUDA_DRIVER_H

/* A stream of a context: its SMs (0: of the primary context), flags and priority. */
struct fake_cuda_stream {
    unsigned sms, flags;
    int priority;
};

struct fake_cuda_driver {
    int contexts; /* green ones that are alive */
    int depth;    /* contexts pushed and not popped */
};

/* Its symbol: fake_cuda_driver_state. */
typedef const struct fake_cuda_driver *(*fake_cuda_driver_state_fn)(void);

#endif
