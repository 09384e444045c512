/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: several documents in one step (hcpplan.h, "several documents").
 *
 *   documents.c         questions, answers, workspace   documents-eval.c    their times
 *   documents-search.c  plans for any number            documents-exact.c   ... for few
 *   documents-fill.c    ... with cuts
 *   documents-report.c  numbers beside a plan
 *   documents-write.c, documents-read.c                 JSON
 *
 * Documents are looked at longest first; an item is a document by its place in that
 * order. A place is a rank by its number among those in play.
 */
#ifndef HCP_DOCUMENTS_H
#define HCP_DOCUMENTS_H
#include "planner/plan.h"

/* Who has what. Whole documents anywhere; of a cut one the first part is at place[], and
 * it crosses from there to the next places, as long as cut[] names it. */
struct packing {
    int32_t m;      /* ranks in play */
    int32_t *rank;  /* [m] which, ascending */
    int32_t *place; /* [count] by item */
    int32_t *cut;   /* [m] item that crosses from this place to the next; -1: none */
    int64_t *at;    /* [m] its tokens up to there */
    double ms;      /* HUGE_MS: over a cap, or outside the measured lengths */
};

/* What a packing costs, by place. */
struct packing_load {
    double *whole; /* attention of whole documents, ms */
    double *own;   /* of own blocks of parts */
    double *calls; /* [n * n] of block h + 1 before its part */
    double *sends; /* [n] transfer of the part that it shares */
    int64_t *tokens, *received, *area;
    int64_t *in_len, *out_len; /* of the document that comes from the place before; of
                                  the one that begins here and goes on */
    int32_t *hops;             /* earlier parts of the former */
    double *arrive, *came;     /* of blocks, by hop */
    double *fin, *busy;
};

struct docs {
    struct problem p;
    size_t n, count;
    int whole; /* nothing is to be cut */
    double cut_gain;
    double enough_ms;  /* improving stops here */
    double area;       /* of all documents */
    int32_t *order;    /* [count] document of each item */
    int64_t *len;      /* [count] by item, descending */
    int32_t *class_of; /* [count] items of one length are one class */
    int32_t n_classes, n_kinds;
    int32_t *kind_of;   /* [n] ranks that cost the same */
    int32_t *kind_rank; /* [n_kinds] one of them */
    double *whole_ms;   /* [n_kinds][n_classes] of a whole document, attention alone */
    uint8_t *source;    /* the same: hcp_source */
    double *work_ms;    /* the same with linear work, but for what is fixed */
    double *pack_ms;    /* [n_kinds] the whole pack, attention alone */
    double *peak;       /* [n_kinds] most area a ms */
    struct packing best, trial, here, found, few;
    struct packing_load load;
    int64_t *part_len;   /* [n] fill: parts of the document under way */
    double *part_ms;     /* [n] */
    int32_t *next;       /* [count + 1] fill: the next item that is left */
    double *rank_value;  /* [n] */
    int32_t *rank_order; /* [n] */
    int32_t *option;     /* [count] exact: the choice of each item */
    double *sort_value;  /* [count] */
};

static inline size_t docs_kind(const struct docs *d, const struct packing *s, int32_t i)
{
    return (size_t)d->kind_of[s->rank[i]];
}

static inline double docs_work(const struct docs *d, size_t kind, size_t item)
{
    return d->work_ms[kind * (size_t)d->n_classes + (size_t)d->class_of[item]];
}

static inline int docs_is_cut(const struct packing *s, size_t item)
{
    return s->place[item] + 1 < s->m && s->cut[s->place[item]] == (int32_t)item;
}

/* documents-eval.c: one call on a rank, finish pass included; HUGE_MS outside the
 * measured lengths, unless these do not matter. */
double docs_own_ms(const struct docs *d, size_t rank, int64_t len);
double docs_call_ms(const struct docs *d, size_t rank, int64_t q_len, int64_t kv_len);
/* ms a token and fixed ms of a rank's linear work. */
double docs_slope(const struct docs *d, size_t rank);
double docs_fixed(const struct docs *d, size_t rank);
/* May a rank hold so many tokens and receive so many? */
int docs_fits(const struct docs *d, size_t rank, int64_t tokens, int64_t received);
/* Makespan into s->ms, everything into d->load. */
double docs_eval(struct docs *d, struct packing *s);
/* The same when only whole documents have moved, and whole[] and tokens[] of the load say
 * so already. */
double docs_times(struct docs *d, const struct packing *s);
/* Length and number (0: its first) of the part of a cut document at a place. */
int64_t docs_part(const struct docs *d, const struct packing *s, int32_t place,
                  int64_t *from);
void docs_copy(const struct docs *d, struct packing *to, const struct packing *from);
/* All ranks in play, nothing placed. */
void docs_clear(const struct docs *d, struct packing *s);

/* documents-search.c: whole documents, longest first, each where it is done first, then
 * moved while that helps, into s. */
void docs_whole(struct docs *d, struct packing *s);
/* Even tokens, the documents as they were given. */
void docs_even(struct docs *d, const int64_t *lengths, struct packing *s);
/* Of the plans seen, slower than s by no more than cut_gain, the one with fewest cuts,
 * less those that may be left out at this price. */
void docs_fewer_cuts(struct docs *d, struct packing *s);
int docs_cuts(const struct packing *s);
/* Moves documents and cuts while that makes s faster. */
void docs_improve(struct docs *d, struct packing *s);

/* documents-fill.c: plans with cuts, better than s, into s. ideal_ms: none is much
 * faster. Leaves in d->few what docs_fewer_cuts() wants. */
void docs_cut(struct docs *d, double ideal_ms, struct packing *s);

/* documents-exact.c: are there few enough, with cuts or without? The best plan faster
 * than s, into s; cuts 0: of those without. Returns whether all were looked at. */
int docs_few(const struct docs *d, int with_cuts);
int docs_exact(struct docs *d, int cuts, struct packing *s);

/* documents-report.c: the time of all work on ranks that are busy without a pause. s: a
 * plan, in the load with its areas, whose speeds count, too; NULL: none. */
double docs_bound(struct docs *d, const struct packing *s);
/* Area of len tokens after `from` of a document; under a full mask of a whole one. */
int64_t docs_area(const struct docs *d, int64_t from, int64_t len, int64_t whole);
/* Attention area by place, into the load. */
void docs_areas(struct docs *d, const struct packing *s);
/* The plan of d->best, which is d->load's. */
hcp_status docs_report(struct docs *d, const hcp_documents *question, double even_ms,
                       double whole_ms, int by_gain, char *text, size_t text_size,
                       hcp_documents_plan *plan);
/* HCP_STATUS_OUTSIDE and which length. */
hcp_status docs_outside(const struct docs *d, char *text, size_t text_size);

/* documents-read.c: whether parts[n] of a rank may follow those of the rank with parts
 * before it (n_before 0: there is none), lengths[n_documents] being what there has been
 * of each document, and becoming what there is then; NULL, or what is wrong. */
const char *documents_bad_rank(const hcp_document_part *parts, int64_t n,
                               const hcp_document_part *before, int64_t n_before,
                               int64_t *lengths, size_t n_documents);
#endif
