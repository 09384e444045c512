/* SPDX-License-Identifier: Apache-2.0
 *
 * Conformance of a kernel before it is timed.
 */
#ifndef HCP_CHECK_H
#define HCP_CHECK_H
#include "kernels/registry.h"

/* Runs the quick conformance set and the shape's own class (its heads, head dim and
 * type) on device. 0 and a summary in result[64]; -1 and the reason in why when the
 * kernel must not be timed. Of shape's lengths it matters whether q_len is one of decode
 * (hcp_is_decode of preference.h): then so are the class's. */
int hcp_check_kernel(const hcp_provider *provider, const hcp_runtime *runtime,
                     const hcp_device_ref *device, const hcp_attn_problem *shape,
                     char result[64], char *why, size_t why_size);

/* The class alone. *o_error: the worse error of O, as in conformance.h. */
int hcp_check_class(const hcp_provider *provider, const hcp_runtime *runtime,
                    const hcp_device_ref *device, const hcp_attn_problem *shape,
                    double *o_error, char *why, size_t why_size);

#endif
