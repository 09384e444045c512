/* SPDX-License-Identifier: Apache-2.0
 *
 * The decode phase written a second time, as plainly as hcp-plan(1) states it: all splits
 * looked at one by one, schedules by the clocks of the ranks, pairings by all tables of
 * whole tokens. Only block times come from the models. And the synthetic models for it.
 */
#ifndef DECODE_REFERENCE_H
#define DECODE_REFERENCE_H
#include "tests/plan-fixture.h"

enum { REFERENCE_MOST = 16 };

/* A kind of rank: a decode step takes fixed_ms and ms_per_token a token, with kinks of up
 * to 40 % where bumps is not 0; finish_ms more for a kernel that cannot accumulate. */
struct decode_kind {
    double fixed_ms, ms_per_token, finish_ms, error;
    uint64_t bumps;
    int64_t tile;
};

/* Models "nvidia-h200" mps:1, mps:2, ... of these kinds, of phase decode and this shape
 * (batch, heads, KV heads 8 or heads, head dim 128); lut from 64 to 64K tokens. */
hcp_models *decode_models(const struct decode_kind *kinds, size_t n,
                          const hcp_shape *shape);
/* These and models of prefill, of ranks with such names, together. */
hcp_models *both_models(const struct fixture *prefill, const struct decode_kind *decode,
                        size_t n, const hcp_shape *shape);
/* A ring of one rank a kind, with caps (NULL: none). */
hcp_ring *decode_ring(const hcp_models *models, const hcp_shape *shape,
                      const int64_t *max_tokens, const int64_t *max_bytes,
                      const int64_t *weight_bytes, size_t n);

/* Time of a schedule among m ranks, by their clocks. */
double reference_merge_ms(hcp_merge merge, int m, const hcp_shape *shape,
                          const hcp_question *q);
/* Time of a split with the fastest schedule that the question and memory allow, *merge;
 * -1: over a cap. */
double reference_decode_ms(const hcp_ring *ring, const hcp_question *q,
                           const int64_t *tokens, hcp_merge *merge);
/* The best of all splits into whole tiles and one rest; -1: none. most: ranks that may
 * have tokens. */
double reference_decode_best(const hcp_ring *ring, const hcp_question *q, int64_t tile,
                             int most, int64_t *tokens);
/* Bytes of a rank with tokens (> 0) among m. */
int64_t reference_decode_bytes(const hcp_shape *shape, const hcp_question *q,
                               hcp_merge merge, int m, int64_t weights, int64_t tokens);

/* The least time of all pairings: from[n] to[n] tokens of n ranks. */
double reference_moves_ms(size_t n, const int64_t *from, const int64_t *to,
                          double token_bytes, double alpha_us, double gbps);

#endif
