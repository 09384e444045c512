/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: times of blocks, and linear work around a ring (cost.c,
 * layer-cost.c).
 */
#ifndef HCP_PLAN_COST_H
#define HCP_PLAN_COST_H
#include <stddef.h>
#include "fit/model.h"
#include "planner/hcpplan.h"

#define MAX_SUB_BLOCKS 64

struct problem;

/* cost.c: times in ms, lengths in tokens. *source is raised to the hcp_source of the
 * answer if that is weaker; NULL costs less. All are non-decreasing in every length. */
double cost_own(const struct problem *p, const hcp_model *model, int64_t len,
                uint8_t *source);
/* Block of own_len tokens' queries against the KV of a rank with kv_len tokens that
 * comes earlier (1) or later (0) in the ring. 0 if nothing is visible. */
double cost_remote(const struct problem *p, const hcp_model *model, int64_t own_len,
                   int64_t kv_len, int earlier, uint8_t *source);
/* The same for n <= MEMO_CLASSES such ranks with kv_len[n] tokens, into ms[n]; keys: room
 * for n. */
void cost_remotes(const struct problem *p, const hcp_model *model, int64_t own_len,
                  int32_t n, const int64_t *kv_len, int earlier, int64_t *keys,
                  double *ms);
/* One FULL call, the merging of its result included. */
double cost_call(const struct problem *p, const hcp_model *model, int64_t q_len,
                 int64_t kv_len, uint8_t *source);
/* The pieces in which the KV of a rank with len tokens travels: their number, and the
 * ends of them. */
int32_t cost_cuts(const struct problem *p, int64_t len, int64_t ends[MAX_SUB_BLOCKS]);
/* Its transfer, all pieces. */
double cost_send(const struct problem *p, int64_t len);
/* The (q_len, kv_len) calls that keys from .. to - 1 of such a block consist of, all
 * FULL: visit each; rows that see equally much are one call. */
void cost_piece_calls(const struct problem *p, int64_t own_len, int64_t kv_len,
                      int earlier, int64_t from, int64_t to,
                      void (*visit)(void *ctx, int64_t q_len, int64_t kv_len), void *ctx);
/* The calls of all its pieces. */
void cost_each_call(const struct problem *p, int64_t own_len, int64_t kv_len, int earlier,
                    void (*visit)(void *ctx, int64_t q_len, int64_t kv_len), void *ctx);
/* Attention area (query, key pairs) of each rank; sums to S (S + 1) / 2 or S^2. */
void cost_areas(const struct problem *p, const int64_t *tokens, int64_t *areas);
/* Has a rank with len tokens work on KV from later ranks? */
int cost_sees_later(const struct problem *p, int64_t len);
/* How far each active rank's KV travels (len[m] > 0, in ring order). */
void cost_hops(const struct problem *p, int32_t m, const int64_t *len, int32_t *hops);
/* Segments of all ranks in rank order; counts[r] of rank r. Returns their number; out
 * NULL: only counts. Empty ones are left out. */
size_t cost_segments(hcp_layout layout, int32_t stripes, size_t n, const int64_t *tokens,
                     int64_t seq_len, hcp_segment *out, int64_t *counts);

/* layer-cost.c: is a rank's linear work in its ranges; has it any? */
int layer_valid(const hcp_rank *rank);
int layer_given(const hcp_rank *rank);
/* Do two ranks have the same? */
int layer_alike(const hcp_rank *a, const hcp_rank *b);
/* Linear work of a rank with len tokens in ms, before its ring, after it, and
 * both; 0 without tokens. Non-decreasing in len. */
double layer_before_ms(const struct problem *p, size_t r, int64_t len);
double layer_after_ms(const struct problem *p, size_t r, int64_t len);
double layer_ms(const struct problem *p, size_t r, int64_t len);
/* The shares in tokens, not rounded, with which all ranks of speed > 0 (attention area a
 * ms) are busy equally long where nobody waits, in p->layout; ranks whose fixed work
 * alone takes longer get none. Returns that time: no split of these ranks at these speeds
 * is faster. */
double layer_shares(const struct problem *p, const double *speed, double *share);
/* Area that a rank would do in a ms if it had the whole sequence, linear work and all. */
double layer_speed(const struct problem *p, size_t r, double speed);

#endif
