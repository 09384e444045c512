/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill and decode on groups of ranks. A group is a number of ranks of each class: the
 * first of them in the caller's order make its rings, and of equal ranks others can have
 * its plan. disagg.c binds groups, disagg-groups.c has their times, disagg-search.c the
 * best two, disagg-answer.c everything beside that.
 */
#ifndef HCP_DISAGG_H
#define HCP_DISAGG_H
#include "planner/decode.h"
#include "planner/moves.h"

enum { PREFILL, DECODE, PHASES };
enum { COLOCATED, SEPARATE, KINDS_OF_ADVICE };

struct disagg_group {
    hcp_ring *ring[PHASES]; /* NULL: its ranks have no common kernel */
    int32_t n;              /* ranks */
    int32_t *count;         /* [n_classes] */
    int16_t *place;         /* [n] in the rings, by rank of all; -1: not in it */
};

struct hcp_disagg {
    const hcp_models *models;
    size_t n;
    hcp_rank *ranks; /* [n] */
    int32_t n_classes;
    int32_t *class_of;  /* [n] */
    int32_t *number_of; /* [n] among those of its class */
    int32_t *class_n;   /* [n_classes] */
    int32_t *member;    /* [n] ranks by class, then number; class c from first[c] on */
    int32_t *first;     /* [n_classes] */
    hcp_shape shape[PHASES];
    struct disagg_group *groups;
    size_t n_groups, all; /* all: number of that of all ranks */
    int every;            /* all groups there are */
    int memory;           /* a rank has a cap in bytes */
};

/* What a group takes in a phase: prefill the whole batch, decode a step. */
struct disagg_time {
    hcp_status status;
    double ms, lo_ms, hi_ms;
    int64_t *tokens; /* [n] by place */
};

/* In a workspace: what is asked, and of every group how long it takes. */
struct disagg_work {
    const hcp_disagg *d;
    const hcp_disagg_question *q;
    hcp_question ask[PHASES];
    int32_t layers, runs;
    double token_bytes; /* of K and V, all layers and sequences */
    /* [n_groups], with KV of one batch and (streams apart) of two; decode where prefill
     * leaves KV. */
    struct disagg_time *time[PHASES][2], *stay;
    int32_t *order[PHASES][2];    /* [n_groups] shortest first */
    double *value;                /* [n_groups] */
    int64_t *give, *take, *given; /* [n] */
    double *sums;                 /* [2 n] */
    hcp_move *move;               /* [n] */
    int32_t *places;              /* [n] */
    hcp_plan_rank *plan_ranks;
    hcp_segment *plan_segments;
    size_t segments_room;
    void *scratch; /* of hcp_plan_split() */
    size_t scratch_room;
};

/* The speed of transfers and number of steps that a search is about. */
struct disagg_at {
    double byte_ms;
    int64_t steps;
};

struct disagg_best {
    int exists, stays;
    int32_t prefill, decode; /* groups */
    double score, ttft_ms, move_ms, exposed_ms, step_ms, latency_ms, period_ms;
};

/* disagg-groups.c */
void disagg_times(struct disagg_work *w);
/* Set of a kind's times: 1 where ranks apart work on two batches. */
int disagg_set(const struct disagg_work *w, int kind);
/* The status that explains why no group has a phase (in any set), with its text. */
hcp_status disagg_explain(struct disagg_work *w, int phase, char *text, size_t size);
/* Bytes that a plan of a phase does not count of a token: KV of other runs, and (set 1)
 * of the other batch. */
int64_t disagg_beside(const struct disagg_work *w, int phase, int set);
/* Plan of a group as disagg_times() has had it made. */
hcp_status disagg_split(const struct disagg_work *w, int32_t group, int phase, int set,
                        char *text, size_t size, hcp_plan *plan);
/* Largest decode_linear_us of the ranks with tokens, in ms. */
double disagg_linear_ms(const hcp_disagg *d, int32_t group, const int64_t *tokens);

/* disagg-search.c: whether a rank of all has a part in a phase of a pair of groups, and
 * its place in the rings there (-1: none). Colocated, as many ranks as can be do both. */
int32_t disagg_place(const hcp_disagg *d, int kind, int32_t prefill, int32_t decode,
                     int phase, size_t rank);
/* The times of a pair of groups, and of the question's objective. */
void disagg_set_times(const struct disagg_work *w, const struct disagg_at *at, int kind,
                      double ttft, double move, double step, struct disagg_best *b);
/* How transfers are paired: not at all, every rank with one message; in the order of the
 * ranks; the fastest. Times of the first are a lower bound, of the second an upper one.
 */
enum disagg_pairings { PAIR_LEAST, PAIR_IN_ORDER, PAIR_FASTEST };
/* The best of each kind; *beyond: the least score of those whose pairing of transfers
 * need not be the fastest, had they the fastest. */
void disagg_search(const struct disagg_work *w, const struct disagg_at *at,
                   enum disagg_pairings pairings,
                   struct disagg_best best[KINDS_OF_ADVICE],
                   double beyond[KINDS_OF_ADVICE]);
/* Tokens that ranks of all give and take between two groups, into w; their sum. */
int64_t disagg_pairs(const struct disagg_work *w, int kind, int32_t prefill,
                     int32_t decode);
/* What hcp_move_question and pairing the transfers of a search are. */
void disagg_pairing(const struct disagg_work *w, const struct disagg_at *at,
                    hcp_move_question *q, struct pairing *p);
/* The kind that is advised, or -1 if none exists. */
int disagg_decide(const struct disagg_best best[KINDS_OF_ADVICE]);
/* Nearest turning points. */
void disagg_turns(const struct disagg_work *w, const struct disagg_at *at, int decision,
                  hcp_disagg_advice *out);

/* disagg-answer.c */
hcp_status disagg_answer(struct disagg_work *w, const struct disagg_at *at,
                         const struct disagg_best best[KINDS_OF_ADVICE],
                         const double beyond[KINDS_OF_ADVICE], int decision, char *text,
                         size_t size, hcp_disagg_advice *out);

#endif
