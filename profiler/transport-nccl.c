/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/transport-internal.h"
const struct transport_ops hcp_transport_nccl_ops = {.name = "nccl"};
