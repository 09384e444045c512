/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA devices of a build without CUDA.
 */
#include "config.h"
#include "profiler/device.h"
#include <stdio.h>

static const char text[] =
    "this hcp-profile was built without CUDA; configure with --with-cuda=DIR";

static int none_open(const struct hcp_device_config *config, hcp_device **out,
                     struct hcp_err *err)
{
    (void)config, (void)out;
    return hcp_fail(err, HCP_FAILED, "%s", text);
}

int hcp_cuda_list(struct hcp_device_info **infos, size_t *n, char *reason,
                  size_t reason_size)
{
    *infos = NULL;
    *n = 0;
    snprintf(reason, reason_size, "%s", text);
    return HCP_OK;
}

const struct hcp_device_ops hcp_device_cuda_ops = {
    .kind = "cuda",
    .in_worker = 1,
    .open = none_open,
};
