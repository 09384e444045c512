/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of the decode phase: one new token of each sequence against keys that stay where
 * they are, and a merge of the ranks' partial results. The time of a step is
 *
 *   max over ranks with tokens of t_r(tokens) + merge(their number)
 *
 * t_r being the model's block of one query, and the store pass of a kernel that cannot
 * accumulate. decode.c has questions and answers, decode-solve.c the shares, merge.c the
 * schedules.
 */
#ifndef HCP_PLAN_DECODE_H
#define HCP_PLAN_DECODE_H
#include "planner/plan.h"

enum { MERGES = 3 }; /* schedules: hcp_merge 1 .. MERGES */

/* Above so many ranks only some numbers of them are tried. */
enum { DECODE_EACH_COUNT = 64 };

struct decode {
    const hcp_ring *ring;
    size_t n;
    hcp_model_kind kind;
    int64_t seq_len, tile, tiles, rest;
    int extrapolate;
    hcp_merge only; /* AUTO: any */
    double alpha_ms, byte_ms;
    int64_t rows, row_bytes, state_bytes; /* of a partial result */
    int64_t unit;                         /* bytes a token takes on its rank */
    struct problem p;                     /* for round.c */
    struct scratch *s;
};

/* A split's time; tokens are the caller's. */
struct decode_score {
    int none; /* nothing fits */
    double ms, attend_ms, merge_ms;
    hcp_merge merge;
    int32_t m; /* ranks with tokens */
};

/* merge.c: a schedule among m ranks. */
double merge_time(hcp_merge merge, int32_t m, int64_t rows, int64_t row_bytes,
                  double alpha_ms, double byte_ms);
/* Partial results that a rank holds during it, its own included. */
int64_t merge_states(hcp_merge merge, int32_t m);
/* The schedules in the order in which equally fast ones are preferred. */
extern const hcp_merge merge_order[MERGES];

/* decode-solve.c */
double decode_rank_ms(const struct decode *d, size_t r, int64_t tokens);
/* Tokens that rank r can hold beside `states` partial results; < 0: not even these. */
int64_t decode_cap(const struct decode *d, size_t r, int64_t states);
/* The time of a split with the fastest merge that the question and the caps allow. */
struct decode_score decode_eval(const struct decode *d, const int64_t *tokens);
/* The fastest split into whole tiles and one rest in which least .. most ranks have
 * tokens (every number of them up to DECODE_EACH_COUNT ranks) if it is below limit_ms,
 * into tokens; else none. Uses s->value, s->order, s->cap, TOK_CAND and TOK_CUR. */
struct decode_score decode_solve(const struct decode *d, size_t most, size_t least,
                                 double limit_ms, int64_t *tokens);

/* The next number of ranks to try below m: every one, or of many the powers of two. */
size_t decode_fewer(const struct decode *d, size_t m);

/* decode.c: hcp_plan_split() and hcp_plan_evaluate() (tokens) of a ring of decode. */
hcp_status decode_plan(const hcp_ring *ring, const hcp_question *question,
                       const int64_t *tokens, void *workspace, size_t workspace_bytes,
                       char *text, size_t text_size, hcp_plan *plan);
/* hcp_plan_memory() of a plan of decode. */
hcp_status decode_memory(hcp_plan *plan, char *text, size_t text_size);
/* The numbers of a decode: what the ring, length, layers and link say. */
void decode_set(struct decode *d, const hcp_ring *ring, struct scratch *s,
                int64_t seq_len, int32_t layers, int64_t activation_bytes,
                double alpha_us, double gbps, hcp_merge only);
/* HCP_STATUS_OUTSIDE and which lengths, where these shares need such and must not. */
hcp_status decode_check_source(const struct decode *d, const int64_t *tokens, char *text,
                               size_t text_size);
int plan_is_decode(const hcp_plan *plan);
/* Whether such a plan is none that could be made. */
int decode_bad(const hcp_plan *plan);

#endif
