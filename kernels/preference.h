/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernel comes first for a shape, where that was measured. One answer holds for
 * every block of a ring: rows of a profile and plans name one kernel for a device, so
 * neither lengths nor mask have a say, only what all blocks of a sequence share.
 */
#ifndef HCP_PREFERENCE_H
#define HCP_PREFERENCE_H
#include "kernels/provider.h"

/* Few queries against many keys: another kernel than prefill's. */
enum { HCP_DECODE_MAX_Q = 16 };
int hcp_is_decode(const hcp_attn_problem *problem);

/* Names of providers, best first, ended by NULL; those not named come after them, in the
 * registry's order. An empty list where nothing was measured: the registry's order. By
 * the device's compute capability and the problem's dtype, head_dim and hcp_is_decode().
 */
const char *const *hcp_preference(const hcp_device_ref *device,
                                  const hcp_attn_problem *problem);

#endif
