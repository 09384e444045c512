/* SPDX-License-Identifier: Apache-2.0
 *
 * What fits of decode say beside the models: how well a batch is answered from its
 * neighbours, and what is left of the memory's bandwidth.
 */
#ifndef HCP_FIT_DECODE_H
#define HCP_FIT_DECODE_H
#include "db/cli.h"

/* A batch left out and answered from the nearest measured ones below and above. */
struct fit_batch {
    struct hcp_key key; /* of the batch left out */
    int32_t low, high;
    int64_t kv_min, kv_max;
    int cells;                             /* lengths compared; 0: none in common */
    double median, p90, shortest, longest; /* relative; the last two at kv_min, kv_max */
};
/* Of all lookup tables of decode in db that pass the filter; *out malloc'ed. */
int fit_batches(hcp_db *db, const struct hcp_filter *asked, struct fit_batch **out,
                size_t *n, struct hcp_err *err);
/* Each as "batch_holdout" of its key's object in an array of 'hcp-plan fit --json'. */
void fit_batch_add(const struct fit_batch *list, size_t n, json_t *array);
/* Non-zero if printing failed. */
int fit_batch_print(const struct fit_batch *list, size_t n);
/* 1: o, of 'hcp-plan fit --json', is that of key. */
int fit_is_key(json_t *o, const struct hcp_key *key);

/* ---- decode-bandwidth.c --------------------------------------------------- */

/* Decode of all batches under one limit: time = alpha + KV bytes / bandwidth. */
struct fit_bandwidth {
    struct hcp_key key; /* but for the batch */
    struct hcp_link_fit line;
    double copy_gb_per_s; /* of the largest copy under that limit; NaN: none measured */
};
/* Of the cells of decode that pass the filter, one query a sequence; *out malloc'ed. */
int fit_bandwidths(hcp_db *db, const struct hcp_filter *asked, struct fit_bandwidth **out,
                   size_t *n, struct hcp_err *err);
/* Each as "bandwidth" of the objects of its keys. */
void fit_bandwidth_add(const struct fit_bandwidth *list, size_t n, json_t *array);
int fit_bandwidth_print(const struct fit_bandwidth *list, size_t n);

#endif
