/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: one prompt in chunks (hcpplan.h, "one prompt in chunks").
 *
 *   chunks.c         questions, answers, workspace    chunks-eval.c   time of a step
 *   chunks-solve.c   split and length of a chunk      chunks-run.c    all chunks
 *   chunks-exact.c   ... of few tiles                 chunks-report.c numbers beside them
 *   chunks-write.c, chunks-read.c                     JSON
 */
#ifndef HCP_CHUNKS_H
#define HCP_CHUNKS_H
#include "planner/plan.h"

/* Times from here on are no times: a cap is exceeded, by so many bytes or tokens times
 * this; HUGE_MS: outside the measured lengths. */
#define OVER_MS 1e200

/* Calls of one rank's queries on the block of another, seen last. */
struct chunk_pair {
    int64_t q, k, resident;
    double ms;
};

/* Chunks, one after another. */
struct chunk_list {
    size_t count;
    int64_t *q;         /* [max_chunks][n] tokens */
    hcp_layout *layout; /* [max_chunks] */
    double total_ms;    /* of steps; HUGE_MS: it does not reach the end */
    int64_t reached;    /* tokens */
};

struct chunks {
    struct problem p;
    const hcp_chunks *question;
    size_t n, max_chunks;
    hcp_layout layouts[2]; /* those allowed */
    int n_layouts;
    double layer_budget_ms; /* HUGE_MS: none. No layer above it meets the budget */
    uint8_t *allowed;       /* [n] may have tokens at all */
    int64_t *join, *leave;  /* [n] resident tokens of all from which, and up to which, it
                               may; a chunk ends where one joins late */
    int64_t first_most;     /* tokens of the first chunk at most; 0: no limit */
    uint8_t *best_allowed;  /* [n] those of c->best */
    int64_t *best_join, *best_leave;
    int32_t *slow_order;        /* [n] slowest first */
    double *peak;               /* [n] area a ms at most, about */
    double *speed;              /* [n] */
    struct chunk_pair *pair[2]; /* [n][n], ZIGZAG and others */
    /* Of the step evaluated last, by rank: */
    double *fin, *busy;
    int64_t *bytes;
    int reporting; /* bytes are asked for where there are no caps, too */
    int32_t last;  /* finishes last, or is furthest above its cap */
    /* Scratch of that, by place in the ring: */
    int32_t *rank, *hops, *came, *buffer;
    double *end, *arrival, *free_ms, *send_ms, *ms, *freed; /* ms [n][n], freed [16][n] */
    int64_t *resident, *trial, *found, *other, *start, *row; /* [n] */
    double *later;                                           /* [n] */
    int32_t *by_end;                                         /* [n] */
    struct chunk_list best, here;
    double *value; /* exact: [EXACT_STATES] */
    int32_t *next, *choice;
    void *whole_workspace; /* of hcp_plan_split() */
    size_t whole_bytes;
    hcp_plan_rank *whole_ranks;
    hcp_segment *whole_segments;
    size_t whole_n_segments;
};

enum { EXACT_STATES = 20000, EXACT_STEPS = 6000 };

/* chunks-eval.c: a step of all layers. */
static inline double chunks_step_ms(const struct chunks *c, double layer_ms)
{
    return c->question->step_fixed_ms + (double)c->p.layers * layer_ms;
}

static inline int chunks_meets(const struct chunks *c, double layer_ms)
{
    return layer_ms < OVER_MS &&
           (c->question->step_budget_ms == 0 ||
            chunks_step_ms(c, layer_ms) <= c->question->step_budget_ms);
}

/* Time of a layer of the step in which each rank has q tokens, with so many resident, in
 * c->p.layout; leaves c->fin, c->busy, c->bytes and c->last. At least OVER_MS: see there.
 */
double chunks_eval(struct chunks *c, const int64_t *resident, const int64_t *q);
/* The same, but at least limit_ms, and nothing left, where a rank computes for that long.
 */
double chunks_eval_below(struct chunks *c, const int64_t *resident, const int64_t *q,
                         double limit_ms);
/* Computing of rank i alone, with q tokens instead of its own. */
double chunks_row_ms(struct chunks *c, const int64_t *resident, const int64_t *tokens,
                     size_t i, int64_t q);
/* The least it computes with q tokens, whatever others have. */
double chunks_row_least_ms(const struct chunks *c, const int64_t *resident, size_t i,
                           int64_t q);
/* Each call that a rank makes on the block of another (or its own, but for the square).
 */
void chunks_calls(const struct chunks *c, size_t i, size_t j, int64_t q, int64_t k,
                  int64_t resident,
                  void (*visit)(void *ctx, int64_t q_len, int64_t kv_len), void *ctx);

/* chunks-solve.c: the split of so many tokens that ends first, in any layout allowed,
 * into q, from what is in it on (all 0: from the ranks' speeds on). Sets c->p.layout. */
double chunks_split_step(struct chunks *c, const int64_t *resident, int64_t tokens,
                         int64_t *q);
/* As many tokens as the budget lets a chunk have, `most` at most, into q, from what is in
 * it on; the time. None: q is all 0, and the time that of the smallest. */
double chunks_longest_step(struct chunks *c, const int64_t *resident, int64_t left,
                           int64_t most, int64_t *q);
/* The step of `tokens` on one rank, in any layout; all ranks are allowed. */
double chunks_alone_ms(struct chunks *c, const int64_t *resident, size_t rank,
                       int64_t tokens);
/* Even tokens, whole tiles; in the fastest layout. */
double chunks_even_step(struct chunks *c, const int64_t *resident, int64_t tokens,
                        int64_t *q);

/* chunks-run.c: the best chunks into c->best; c->here: those that got furthest where
 * there are none. */
void chunks_search(struct chunks *c);
/* All ranks from the beginning to the end. */
void chunks_allow_all(struct chunks *c);
/* Tokens that rank r can hold at the end, by its own caps. */
int64_t chunks_most_held(const struct chunks *c, size_t r);
/* Time of chunks of one length (0: those of c->best), evenly split; HUGE_MS: over a cap,
 * the budget, or outside the measured lengths. */
double chunks_even_ms(struct chunks *c, int64_t len);
/* Those of this length into c->best, if they take less. */
void chunks_even(struct chunks *c, int64_t len);
/* Largest length of these that meets the budget; 0: none. */
int64_t chunks_even_len(struct chunks *c, double *ms);

/* chunks-exact.c: looks at all plans, of few tiles: 0 if they are not few. */
int chunks_exact(struct chunks *c);

/* chunks-report.c: the plan of c->best. */
hcp_status chunks_report(struct chunks *c, int64_t even_len, double even_ms, char *text,
                         size_t text_size, hcp_chunks_plan *plan);

#endif
