/* SPDX-License-Identifier: Apache-2.0
 *
 * The summary of hcp-profile show: cells grouped by key.
 */
#ifndef HCP_SHOW_GROUPS_H
#define HCP_SHOW_GROUPS_H
#include "db/db.h"

struct show_model {
    int there, stale, cells; /* stale: its samples have changed since */
    double median, p90;      /* held-out relative error */
};

struct show_group {
    struct hcp_key key;
    size_t ok, failed;
    int64_t q_min, q_max, kv_min, kv_max; /* of ok cells; min > max if there are none */
    int32_t sms;          /* seen under the limit; -1 unknown or different */
    double copy_gb_per_s; /* of the largest copy under this limit; NaN if none */
    /* Keys and values that a decode step reads over its time, of the fastest cell; NaN
     * for prefill. */
    double decode_gb_per_s;
    char origin[12]; /* "mixed" when cells differ */
    struct show_model lut, poly;
    double *tflops; /* of the ok cells, ascending */
};

/* Groups in order of device, kernel, shape, then limit by its number. *n may be 0.
 * Free with show_free. */
int show_collect(hcp_db *db, const struct hcp_filter *filter, struct show_group **groups,
                 size_t *n, struct hcp_err *err);
void show_free(struct show_group *groups, size_t n);
/* NaN for a group without ok cells. */
double show_median_tflops(const struct show_group *g);
double show_max_tflops(const struct show_group *g);

#endif
