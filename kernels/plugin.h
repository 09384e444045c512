/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading a user's attention provider from a shared object.
 */
#ifndef HCP_PLUGIN_H
#define HCP_PLUGIN_H
#include "kernels/provider.h"

/* Loads path and checks what it exports: ABI, struct size, every function. On
 * success *handle goes to hcp_plugin_close() when *provider is no longer used.
 * HCP_RC_MISSING (no such file) or HCP_RC_INVALID, and one line in err. */
int hcp_plugin_open(const char *path, void **handle, const hcp_provider **provider,
                    char *err, size_t err_size);
void hcp_plugin_close(void *handle); /* accepts NULL */

#endif
