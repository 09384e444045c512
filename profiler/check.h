/* SPDX-License-Identifier: Apache-2.0
 *
 * Conformance of a kernel before it is timed.
 */
#ifndef HCP_CHECK_H
#define HCP_CHECK_H
#include "kernels/registry.h"

/* Runs the quick conformance set and the shape's own class (its heads, head dim and
 * type) on device. 0 and a summary in result[64]; -1 and the reason in why when the
 * kernel must not be timed. shape's lengths are not looked at. */
int hcp_check_kernel(const hcp_provider *provider, const hcp_runtime *runtime,
                     const hcp_device_ref *device, const hcp_attn_problem *shape,
                     char result[64], char *why, size_t why_size);

#endif
