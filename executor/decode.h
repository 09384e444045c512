/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of decode in place of passes of a ring: inside the ring, nobody else includes it.
 */
#ifndef HCP_RING_DECODE_H
#define HCP_RING_DECODE_H
#include "executor/ring-internal.h"

/* Merges a partial result of some rows into the rows of another. */
struct ring_decode_merge {
    float *o, *lse;
    const float *o_part, *lse_part;
    int64_t rows;
};

/* What this rank does in a round of the plan's messages: they, then merging. */
struct ring_decode_round {
    size_t parcel, merge, n_merges;
    int32_t n_parcels;
    int32_t from; /* plan rank that it receives from (one of them); -1: it does not */
};

struct ring_decode {
    int64_t rows, pitch; /* of partial results; floats from one to the next */
    float *states;       /* [n_states][pitch]; the own one is made in the first */
    int n_states, copies, n_rounds;
    int result; /* state in which the result is */
    struct ring_decode_round *rounds;
    struct hcp_parcel *parcels;
    struct ring_decode_merge *merges;
    size_t n_parcels, n_merges;
    void **events; /* [2 + 2 n_rounds] */
};

/* As ring_schedule_make(), ring_memory_open() and _close(), ring_pass() do for prefill.
 * compute_ms is that of the partial result, transfer_ms that of messages, waiting for
 * their senders included; wait_ms is all after the partial result. */
int ring_decode_schedule(const hcp_plan *plan, int32_t rank, struct ring_schedule *out,
                         struct hcp_err *err);
int ring_decode_open(ring *r, struct hcp_err *err);
void ring_decode_close(ring *r);
int ring_decode_pass(ring *r, struct ring_times *out, struct hcp_err *err);
/* Where a pass leaves the result. */
void ring_decode_result(const ring *r, const float **o, const float **lse);

#endif
