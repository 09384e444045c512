/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: what bind.c shares with bind-missing.c.
 */
#ifndef HCP_BIND_H
#define HCP_BIND_H
#include <string.h>
#include "planner/plan.h"

/* But for the batch. */
static inline int same_family(const struct hcp_key *key, const hcp_shape *shape)
{
    return strcmp(key->dtype, shape->dtype) == 0 &&
           strcmp(key->phase, shape->phase) == 0 && key->heads == shape->heads &&
           key->kv_heads == shape->kv_heads && key->head_dim == shape->head_dim;
}

static inline int same_shape(const struct hcp_key *key, const hcp_shape *shape)
{
    return same_family(key, shape) && key->batch == shape->batch;
}

static inline int same_rank(const struct hcp_key *key, const hcp_rank *rank)
{
    return strcmp(key->device, rank->device) == 0 && strcmp(key->limit, rank->limit) == 0;
}

/* Why rank r has no model of that shape and kernel (NULL: any), as a status: there is no
 * profile, it is not fitted, or (stale) samples have changed since. */
hcp_status bind_missing(const hcp_models *models, const hcp_shape *shape,
                        const hcp_rank *rank, size_t r, const char *provider, int stale,
                        char *text, size_t text_size);

#endif
