/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-profile link --beside: what a block of attention and a transfer cost each other
 * when a rank of a ring does both at once. hcp-link is told the blocks in its last
 * argument, one JSON object, and says after the ends, instead of sizes:
 *
 *   {"beside":{"side":0,"block":0,"alone_ms":[...],"beside_ms":[...],"wait_ms":[...],
 *    "transfer_alone_ms":[...],"transfer_beside_ms":[...]},
 *    "provider":...,"provider_version":...}       for each side and block that was done
 */
#ifndef HCP_LINK_BESIDE_H
#define HCP_LINK_BESIDE_H
#include <jansson.h>
#include "profiler/link.h"

/* hcp_bench keeps so many plans. */
enum { HCP_BESIDE_BLOCKS = 16 };

/* A rank's own block, and what it receives and sends meanwhile. */
struct hcp_beside_block {
    char mask[8]; /* "full" "causal" */
    int64_t q_len, kv_len, bytes;
};

struct hcp_beside_job {
    char provider[32], plugin[1024]; /* "" the preferred one; none */
    char dtype[8];
    int32_t heads, kv_heads, head_dim;
    struct hcp_beside_block blocks[HCP_BESIDE_BLOCKS];
    size_t n; /* 0: sizes are measured, not this */
};

/* K and V of kv_len tokens: what a ring moves for that block. 0: dtype not known. */
int64_t hcp_beside_bytes(const struct hcp_beside_job *job, int64_t kv_len);

/* The argument: malloc'ed text, NULL without memory; and back. */
char *hcp_beside_print(const struct hcp_beside_job *job);
int hcp_beside_parse(const char *text, struct hcp_beside_job *out, struct hcp_err *err);

/* What is measured of one block, a sample each round. */
enum hcp_beside_time {
    HCP_BESIDE_ALONE,          /* the block, nothing beside it */
    HCP_BESIDE_COMPUTE,        /* the block, with its transfer beside it */
    HCP_BESIDE_WAIT,           /* what such a step takes beyond its computing */
    HCP_BESIDE_TRANSFER_ALONE, /* until the other's block is here */
    HCP_BESIDE_TRANSFER,       /* the same, beside the block */
    HCP_BESIDE_TIMES
};
extern const char *const hcp_beside_time_names[HCP_BESIDE_TIMES];

#endif
