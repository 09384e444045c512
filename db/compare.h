/* SPDX-License-Identifier: Apache-2.0
 *
 * What changed between two profiles: `hcp-profile diff`. Part of libhcpaudit.la.
 *
 * Rows of one identity (key, mask, lengths; of a finish pass kind and rows; of a transfer
 * both ends, transport, channels, ways and bytes; of a block beside a transfer all of
 * these; of a GEMM library, dtype and sizes) are one row a file: the median of its runs,
 * with the widest of their intervals. An interval is that of the median; where it is not
 * stored, the quartiles; where they are not, 2 % to both sides.
 */
#ifndef HCP_COMPARE_H
#define HCP_COMPARE_H
#include "db/db.h"

enum hcp_what {
    HCP_WHAT_CELL,
    HCP_WHAT_FINISH,
    HCP_WHAT_LINK,
    HCP_WHAT_BESIDE,    /* a block beside a transfer: beside_ms */
    HCP_WHAT_DISTURBED, /* the transfer beside it: transfer_beside_ms */
    HCP_WHAT_LINEAR,
    HCP_WHAT_ONE_WAY /* a transfer from device to peer_device, nothing comes back */
};
/* Whether it is a transfer on its own, whose bytes are where lengths of a cell are. */
static inline int hcp_what_is_link(enum hcp_what what)
{
    return what == HCP_WHAT_LINK || what == HCP_WHAT_ONE_WAY;
}

/* What a group of rows has in common. */
struct hcp_change_key {
    enum hcp_what what;
    struct hcp_key key; /* of a transfer device and limit only; of a GEMM provider is the
                           library */
    char mask[8];       /* of a finish pass: kind */
    char peer_device[64], peer_limit[32], transport[8];
    int32_t channels;    /* of NCCL, as set; 0: its own choice */
    int64_t n_in, n_out; /* of a GEMM */
};
/* A row that changed beyond noise. */
struct hcp_change {
    struct hcp_change_key key;
    int64_t q_len, kv_len;    /* of a transfer: bytes, 0; of a GEMM: tokens, 0 */
    int64_t bytes;            /* of the transfer beside a block */
    double a_ms, b_ms, ratio; /* ratio = b / a: above 1, B is slower */
    double a_lo_ms, a_hi_ms, b_lo_ms, b_hi_ms;
};
struct hcp_change_group {
    struct hcp_change_key key;
    size_t both, only_a, only_b, beyond;
    double median, p10, p90, largest; /* of b / a; largest: farthest from 1. NaN: none */
    double a_mhz, b_mhz, a_w, b_w;    /* means over rows where both are known, else NaN */
};
/* A fact of a device that is not the same in both. */
struct hcp_change_fact {
    char device[64], name[96]; /* name: "driver", "cudnn version" */
    char a[160], b[160];       /* what there is, separated by commas; "" = not known */
};

struct hcp_diff {
    struct hcp_change_group *groups;
    size_t n_groups;
    struct hcp_change *changes; /* the largest first */
    size_t n_changes;
    struct hcp_change_fact *facts;
    size_t n_facts;
    size_t both, only_a, only_b;
};

/* Statistics of n ratios, which are sorted: quantiles as hcp-profile has them, linear
 * between order statistics at (n - 1) p. */
void hcp_ratio_summary(double *ratios, size_t n, struct hcp_change_group *out);
/* Beyond noise: the intervals have no point in common, and the medians differ by more
 * than tolerance (0.01 = 1 %). */
int hcp_beyond_noise(const struct hcp_change *c, double tolerance);

/* b is attached to the connection of a for the time of the call. HCP_NO_ANSWER: no row in
 * common. Free with hcp_diff_free, also after a failure. */
int hcp_diff_files(hcp_db *a, hcp_db *b, double tolerance, struct hcp_diff *out,
                   struct hcp_err *err);
void hcp_diff_free(struct hcp_diff *diff);

#endif
