/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan. Folder of the decision, in the order things happen:
 *
 *   models.c      database -> hcp_models            bind.c    ranks -> hcp_ring
 *   api.c         hcp_plan_split and friends        answer.c  numbers beside a split
 *   strategies.c  the six strategies                round.c   shares -> whole tiles
 *   solve-search.c, solve-exact.c                   shares that finish first
 *   reach.c       what cannot be faster
 *   order.c       the order of the ranks            links.c   links between them
 *   eval.c        a split's predicted time          ring.c    the recurrence
 *   few.c         ... of few ranks                  tally.c   busy times of many
 *   eval-pieces.c the times of pieces of blocks     ring-pieces.c  ... with pieces
 *   ring-wide.c   ... for many ranks at a time      plan-write.c, plan-read*.c, json*.c,
 *   late.c        KV that comes late travels late   ring-late.c   ... in that order
 *   cost.c        block times, areas, segments      plan-check.c
 *   layer-cost.c  linear work around the ring       memory*.c  caps in bytes
 *   joint*.c      queries and KV split apart (joint.h)
 *   rings.c       nodes, and rings of rings
 *   decode.c, decode-solve.c, merge.c       the decode phase (decode.h)
 *   moves.c       from one plan to another          rescale.c  factors on times
 *   documents*.c  several documents in one step (documents.h)
 *   rebalance*.c  another plan while one runs (rebalance.h)
 *   specs.c, estimate*.c    GPUs that nobody has profiled (specs.h)
 *   disagg*.c     prefill and decode on groups of ranks (disagg.h)
 *   chunks*.c     one prompt in chunks (chunks.h)
 *
 * Nothing from hcp_plan_split downwards allocates: all arrays come from the caller's
 * workspace through struct scratch. Only + - * / sqrt and comparisons decide.
 */
#ifndef HCP_PLAN_H
#define HCP_PLAN_H
#include "db/db.h"
#include "db/interference.h"
#include "fit/model-rows.h"
#include "fit/model.h"
#include "planner/hcpplan.h"

#define MAX_BUFFERS 16
#define MAX_STRIPES 1024
#define MAX_SUB_BLOCKS 64
#define MEMO_CLASSES 512 /* at most, a multiple of 64 */
#define MEMO_WORDS (MEMO_CLASSES / 64)
#define JOINT_MAX_RANKS 256
#define LATE_RANKS 64
#define FEW_RANKS 16
#define FEW_AXES 4
#define FEW_PLACES 64
#define TALLY_RANKS 257 /* of so many the search looks at busy times alone */
#define MAX_LAYERS 65536
#define MAX_TOKEN_BYTES ((int64_t)1 << 32)

struct stored_model {
    hcp_model *model;
    uint64_t hash; /* of kind, key-independent arrays, bit for bit */
    int stale;     /* samples changed since the fit */
};

/* What a device has under a limit, by its data sheet. */
struct resources {
    int32_t sms;
    double flops; /* a ms, of the dtype, dense */
    double bytes; /* a ms */
    double part;  /* of its SMs */
};

/* What a stored model was made of, and on what. */
struct stored_arrays {
    struct hcp_named_array *array;
    size_t n;
    const hcp_spec *spec; /* NULL: its device has no data sheet, or a larger one */
    struct resources have;
};

struct hcp_models {
    char path[512];
    struct stored_model *stored;
    struct stored_arrays *arrays; /* [n_stored]; NULL without specs */
    size_t n_stored;
    struct hcp_key *measured; /* keys with samples */
    int32_t *sm_count;        /* of the device of each, -1 unknown */
    size_t n_measured;
    hcp_specs *specs; /* data sheets; NULL none */
};

struct bound_rank {
    hcp_rank spec;
    /* by hcp_model_kind; [HCP_MODEL_BEST] is one of the others; NULL: no such model */
    const hcp_model *model[3];
    int32_t id[3]; /* number of that model and linear work among the ring's distinct ones */
    int32_t axis[3]; /* where tables: number of its axis of keys */
    uint64_t hash[3];
    double nominal; /* advertised part of the device, in percent */
    double scale;   /* of all its times, see rescale.c; 1: as its models say */
    const hcp_model *plain[3]; /* where scaled: the database's, */
    hcp_model *scaled[3];      /* and those by scale */
    int left_out;              /* gets no tokens */
    int32_t estimate; /* number of it among the ring's; -1: measured */
};

/* Models of a GPU that nobody has profiled. */
struct estimate {
    hcp_rank_estimate said;
    hcp_model *own[2 * 5]; /* of each kind: of its batch, or of the next ones and a blend */
    size_t n_own;
};

struct hcp_ring {
    const hcp_models *models;
    size_t n, scratch_bytes;
    hcp_shape shape;
    char provider[32];
    int has[3]; /* every rank has a model of this kind */
    /* few.c, by kind: all models are tables, with these axes of keys between them; and
     * there are few ranks */
    int tables[3], few[3];
    int32_t n_axes[3];
    const hcp_model *axis[3][FEW_AXES];
    int32_t n_ids;
    int linear;         /* a rank has linear work */
    int memory;         /* a rank has a cap in bytes */
    double token_bytes; /* K and V of one token, all batches */
    hcp_model **own;    /* [4 n] of batches between measured ones, by a factor; or NULL */
    size_t n_own;
    struct bound_rank *ranks;
    struct estimate *estimates; /* [n_estimates], by data sheet and limit; NULL none */
    size_t n_estimates;
    int copy; /* estimates are those of the ring it was copied from */
};

/* Where plans of a ring have their times from at best. */
static inline hcp_source ring_source(const struct hcp_ring *of, hcp_source source)
{
    return of->n_estimates > 0 ? HCP_FROM_ESTIMATED : source;
}

struct memory_forward;

/* One question about one layout with one set of models. */
/* Nodes of so many ranks in a row; 0: none. */
struct nodes {
    int32_t ranks;
    double alpha_ms, gbps, shared_gbps; /* between them */
};

struct problem {
    const hcp_ring *ring;
    size_t n;
    hcp_model_kind kind;
    int64_t seq_len, tile;
    int64_t tiles, rest; /* seq_len = tiles * tile + rest */
    int64_t kernel_tile; /* what tile is a multiple of; 0: the question gives tile */
    int causal;
    hcp_layout layout;
    int32_t stripes;
    int buffers, barrier, extrapolate;
    int32_t sub_blocks;        /* pieces a block is sent and computed in */
    int kernel_only;           /* leave finish passes out: for bounds */
    int linear;                /* a rank has linear work: add it */
    double alpha_ms, token_ms; /* transfer of a token's K and V */
    const int64_t *cap;        /* [n] tokens a rank may hold */
    const int32_t *order;      /* [n] the question's index of each rank; NULL: the same */
    const struct links *links; /* NULL: all of alpha_ms and token_ms */
    int any_subset;            /* try leaving out ranks that are not the slowest */
    int thorough; /* small groups: look at moves between all pairs of ranks */
    int comparing; /* orders: what is known beside a split is not asked for */
    int joint;    /* split queries and KV apart */
    const int32_t *slots; /* [n] by which each rank's KV is late; NULL: all in turn */
    double *late_bound;   /* where eval_split() is to leave ring_late_bound(); or NULL */
    int memory;                /* caps in bytes: not every split under cap fits */
    int64_t layers, kv_bytes;  /* kv_bytes: of a token in one layer */
    int64_t activation_bytes;
    int64_t *box; /* [n] scratch of memory_shortfall() where there is a cap in bytes */
    struct memory_forward *forward; /* the same, of few ranks */
    size_t raised; /* rank whose cap in bytes is to be taken as that much higher */
    int64_t raised_by;
    struct nodes nodes;
    int two_level; /* rings of rings: splits for which there are none have no score */
};

/* Links between ranks: the question's, or (places) those of a plan. */
struct links {
    const hcp_link *link;
    size_t n_links;
    const double *shared_gbps;
    size_t n_shared;
    const hcp_place *places; /* by rank; instead of the above */
    hcp_link other;          /* of pairs without a link of their own */
};

/* A link as the recurrence needs it. */
struct link_into {
    double alpha_ms, token_ms;
    struct hcp_interference beside;
    int disturbs; /* beside is not 1, 1, 0 */
};

static inline const hcp_model *problem_model(const struct problem *p, size_t r)
{
    return p->ring->ranks[r].model[p->kind];
}

/* Predicted makespan of a split; none: the caps leave no split. Whether a block is
 * outside the measured lengths does not count here: the fastest split is refused when it
 * is, instead of a slower one being passed off as the fastest. */
struct score {
    int none;
    int gave_up;    /* ms is only a limit that is out of reach */
    uint8_t source; /* hcp_source, where it has been asked for */
    double ms;
};

struct answer;
struct scratch;

#define HUGE_MS 1e300

static inline int score_less(struct score a, struct score b)
{
    return a.none != b.none ? a.none < b.none : a.ms < b.ms;
}

/* Times of blocks seen so far, by (model, share) classes: ranks with the same model and
 * share cost the same, so a split of many equal ranks needs few model calls. */
struct memo {
    int32_t n, cap, hash_size;
    int32_t *hash;
    int32_t *id;
    int64_t *len;
    double *own;
    double *early, *late; /* [cap][cap]: KV from before / after, of those known: */
    uint64_t *early_known, *late_known; /* [cap][words], a bit a class */
    int32_t words;
    struct hcp_model_keys_at *keys; /* [FEW_AXES][cap], of KV, where tables */
    /* The split that s->act is of; HOLDS_BUSY: and s->busy, by rank, the largest most. */
    enum { HOLDS_NOTHING, HOLDS_CLASSES, HOLDS_BUSY } holds;
    int64_t *held; /* [n] tokens */
    hcp_model_kind held_kind;
    double most;
    int few;        /* splits are few.c's; the rest is not used */
    int tables;     /* of tally_possible(): rows are looked up once */
    uint64_t places; /* of few.c's, a bit each: those in use */
};

/* A split cut down to its ranks with tokens, ready for the recurrence. */
struct active {
    int32_t m;
    int32_t *rank; /* [m] index into the problem's ranks */
    int64_t *len;
    int32_t *cls;     /* [m] class in the memo */
    int32_t *guess;   /* [n] class that a rank, with tokens or not, last had */
    int32_t *present; /* classes of this split in order of first appearance */
    int32_t n_present;
    int32_t *first, *last, *before, *total; /* by class; first and last: eval_source */
    int32_t *at;                            /* by class: its place in present */
    int32_t *asked, *head_to;               /* by class, see sum_blocks() */
    double *head_ms;
    uint32_t *seen, split; /* by class: number of the last split that had it, of this one */
    int32_t *ask; /* classes, with lengths and times: blocks asked for together */
    int64_t *ask_len, *ask_keys;
    double *ask_ms;
    int direct; /* more classes than the memo holds: block times are asked one by one */
};

/* What the recurrence needs. Tables are [stride][stride] indexed by class. */
struct ring_input {
    int32_t m;
    const int32_t *cls;
    int32_t stride;
    const double *own, *early, *late;
    double (*ask)(const void *ctx, int32_t i, int32_t j); /* instead of early and late */
    const void *ask_ctx;
    const int32_t *hops; /* [m] ranks the KV of each travels on: up to its last reader */
    const double *send_ms; /* [m] transfer of each rank's KV, start-ups included */
    const double *before, *after; /* [m] work around the ring; NULL: none */
    /* Blocks in pieces (no barrier): their number, times of computing and of transfer of
     * the KV of rank j on rank i, valid until the next call. NULL: whole blocks. */
    int32_t (*pieces)(void *ctx, int32_t i, int32_t j, const double **ms,
                      const double **send_ms);
    void *pieces_ctx;
    int buffers, barrier;
    const int32_t *run_end; /* [m] end of the run of equal classes each rank is in */
    int32_t runs;           /* their number; 0: not counted */
    /* Links that differ: [m] that into each rank, transfers its KV is sent in, tokens.
     * NULL: send_ms. busy [m] then receives what is computed. */
    const struct link_into *into;
    const int32_t *starts;
    const int64_t *len;
    /* Where links do not disturb (busy NULL): into and len as arrays of numbers. */
    const double *link_alpha, *link_token, *sent;
    double *busy; /* (the ring's part of it) */
    const int32_t *slots; /* [m] by which each rank's KV is late: for ring_run_late() */
};

/* What ring_run_late() needs, for up to LATE_RANKS ranks. */
struct late_arrays {
    int32_t *turn, *step;  /* [m][m] */
    int32_t *count, *next; /* [m] */
    double *ready, *fin;   /* [m][m] */
};

/* few.c: ranks of one model and share. */
struct few_class {
    int64_t len;
    int32_t id, number; /* number: among those of the split */
    double own, linear;
    struct hcp_model_row_at early, late; /* queries, on KV from before and after */
    struct hcp_model_keys_at early_keys[FEW_AXES], late_keys[FEW_AXES]; /* KV */
};

struct few {
    struct few_class *of; /* [FEW_PLACES] */
    /* Of the classes of the split in s->act: */
    const struct few_class *class[FEW_RANKS];
    int64_t len[FEW_RANKS];
    int32_t id[FEW_RANKS], axis[FEW_RANKS], total[FEW_RANKS];
    double own[FEW_RANKS];
    double early[FEW_RANKS * FEW_RANKS], half[FEW_RANKS * FEW_RANKS];
    const double *late; /* early (no mask), half of the queries (zigzag), or nothing */
};

enum { RING_TILE = 960, RING_ROWS = MAX_BUFFERS / 2 }; /* ring-wide.c */

/* Doubles from one row of m ranks to the next, of which rank 0 is number RING_LEAD: each
 * begins a line of the cache, there is room for one more rank on either side, and rows do
 * not lie a multiple of a page apart, where loads can wait for stores to another row. */
enum { RING_LEAD = 8 };

static inline size_t ring_pitch(int32_t m)
{
    size_t lines = ((size_t)m + 1 + 7) / 8 + 1;

    return 8 * (m < 256 ? lines : (lines + 63 - 13) / 64 * 64 + 13);
}

enum { RINGS_ROWS = 12 }; /* rings.c */

struct ring_arrays {
    double *ready;   /* [MAX_BUFFERS][ring_pitch(m)] */
    double *history; /* [MAX_BUFFERS + 1][ring_pitch(m)] */
    double *step_ms, *step_send; /* [m] */
    double *arrival; /* [m][MAX_SUB_BLOCKS], for pieces alone */
    double *tile;    /* [2 RING_ROWS][ring_pitch(RING_TILE)], for more ranks than that */
    int32_t *came, *buffer; /* [m], for joint splits alone */
    double *outer;          /* [RINGS_ROWS][m], for two levels alone */
    int32_t *turned;        /* [2][m] */
};

/* Times of FULL calls asked for lately, finish pass included: a direct-mapped table. */
struct cached_call {
    int64_t q_len, kv_len;
    int32_t id; /* of the model; -1 nothing */
    double ms;
};

enum {              /* who uses which of the tokens arrays */
       TOK_START,   /* search: iteration */
       TOK_CAND,    /* search: move under trial */
       TOK_CUR,     /* strategies: the solver's result */
       TOK_OTHER,   /* strategies: a split by rule, a drop set under trial */
       TOK_DROP,    /* strategies: best drop set */
       TOK_PLAN,    /* strategies: the answer */
       TOK_KEPT,    /* strategies: the answer of the layouts before */
       TOK_UNKNOWN, /* strategies: best of those that need unmeasured lengths */
       TOK_JOINT_Q, /* joint: queries of the split under trial, */
       TOK_JOINT_KV,
       TOK_JOINT_HERE_Q, /* of the best of a layout, */
       TOK_JOINT_HERE_KV,
       TOK_JOINT_PLAN_Q, /* of the answer */
       TOK_JOINT_PLAN_KV,
       TOK_BOX,     /* search: a start in memory */
       TOK_RINGS, /* rings: the best with two levels */
       TOK_COUNT
};

/* Joint splits (joint.h): runs of tokens of all ranks, by rank first[] and counts[]. */
struct joint_scratch {
    hcp_segment *q_runs, *kv_runs; /* [joint_runs_room(n)] */
    int64_t *q_first, *q_counts, *kv_first, *kv_counts; /* [n] */
    int64_t *room, *q_kept, *kv_kept, *q_free, *kv_tied;          /* [n] */
};

struct scratch {
    struct memo memo;
    struct few few;
    struct cached_call *calls; /* [n_calls], a power of two */
    int32_t n_calls;
    int calls_ready;
    struct active act;
    struct ring_arrays ring;
    int32_t *hops, *run_end;
    double *send_ms;
    double *before, *after; /* [m] linear work of the active ranks */
    int64_t *largest;       /* [n] largest block each receives */
    int64_t *box;           /* [n] caps of splits that fit into memory */
    struct memory_forward *forward; /* of few ranks */
    int full; /* a search has met caps in bytes */
    double estimate_ms; /* of the group searched last */
    double *fin, *busy;           /* [n] of the last evaluated split, by rank */
    double *plan_fin, *plan_busy; /* [n] of the split in TOK_PLAN */
    double *whole, *peak;         /* [n] throughput on the whole sequence, and at most */
    double *speed, *weight, *ideal, *value, *value2; /* [n] */
    double *probe; /* [4 n] by model id, of which there are at most 2 n */
    int64_t *cap, *areas;
    int32_t *order, *slow_order; /* [n]; slow_order: slowest rank first */
    uint8_t *allowed;
    int64_t *tokens[TOK_COUNT]; /* [n] each */
    struct link_into *into;     /* [n] */
    int32_t *starts;            /* [n] */
    double *link_alpha, *link_token, *sent; /* [n] */
    int32_t *sharers;           /* [4 n] links over each shared thing; else 0 */
    int sharers_clear;
    struct hcp_ring view; /* the ring in another order, its ranks in bound [n] */
    struct bound_rank *bound;
    int32_t *place, *place_best, *place_here, *place_trial, *kind_of; /* [n] */
    int32_t *place_kept; /* [n] */
    struct joint_scratch joint;
    struct late_arrays late;
    int32_t *slots; /* [m] of the active ranks */
    int32_t *slots_best, *slots_here, *slots_trial, *slots_plan; /* [n] */
};

/* api.c: text helper; returns status. */
hcp_status plan_fail(char *text, size_t size, hcp_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* api.c: hcp_plan_split; exhaustive as of order_decide. */
hcp_status plan_split(const hcp_ring *ring, const hcp_question *question, int exhaustive,
                      void *workspace, size_t workspace_bytes, char *text,
                      size_t text_size, hcp_plan *plan);

/* scratch.c; joint.c: runs of joint splits of n ranks, 0 beyond JOINT_MAX_RANKS. */
size_t joint_runs_room(size_t n);
size_t scratch_bytes(size_t n);
void scratch_carve(struct scratch *s, void *workspace, size_t n);

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

/* bind.c: numbers of the ring's distinct models, and what few.c keeps of them; again after
 * models have changed. */
void bind_number(struct hcp_ring *ring);

/* rescale.c: models by their factor for the ranks that have one. */
hcp_status rescale_bind(hcp_ring *ring, char *text, size_t text_size);
/* A ring whose factors and ranks that are left out can be set (not while others read it);
 * from's models must outlive it, and a ring with blends itself. NULL: out of memory. */
hcp_ring *rescale_copy(const hcp_ring *from);
void rescale_set(hcp_ring *ring, const double *scale, const uint8_t *left_out);

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
 * ms) are busy equally long where nobody waits, in p->layout; ranks whose fixed work alone
 * takes longer get none. Returns that time: no split of these ranks at these speeds is
 * faster. */
double layer_shares(const struct problem *p, const double *speed, double *share);
/* Area that a rank would do in a ms if it had the whole sequence, linear work and all. */
double layer_speed(const struct problem *p, size_t r, double speed);

/* memory.c: a rank's cap in bytes; more than anything where there is none. */
int64_t memory_cap(const struct problem *p, size_t r);
/* Product and sum; they stop at more than any cap. */
int64_t memory_times(int64_t a, int64_t b);
int64_t memory_plus(int64_t a, int64_t b);
/* Bytes left beside the weights of a rank. */
int64_t memory_room(const struct problem *p, size_t r);
/* Bytes a token takes on its rank of `len` tokens, whose block is sent or is not. */
int64_t memory_unit(const struct problem *p, int64_t len, int sends);
/* Receive buffers of a rank in a ring of m. */
int32_t memory_buffers(const struct problem *p, int32_t m);
/* Bytes that len tokens take on a rank beside its weights, in a ring of m, the largest
 * block that it receives being `largest`. */
int64_t memory_bytes(const struct problem *p, int64_t len, int64_t largest, int sends,
                     int32_t m);
/* The largest block that each of n ranks receives, those without tokens left out. Returns
 * the number of the others; *last_sends: whether the last one sends (all others do). */
int32_t memory_largest(const struct problem *p, size_t n, const int64_t *len,
                       int64_t *largest, int *last_sends);
/* Does a split fit? Of the ranks rank[n], or (NULL) of all. largest [n] is filled. */
int memory_fits(const struct problem *p, size_t n, const int32_t *rank,
                const int64_t *len, int64_t *largest);
/* HCP_STATUS_INFEASIBLE if a split does not: which rank lacks how much. */
hcp_status memory_check(const struct problem *p, struct scratch *s, const int64_t *tokens,
                        char *text, size_t text_size);
/* Is it certain that no split fits? (Not of up to three ranks.) */
int memory_hopeless(const struct problem *p, struct scratch *s,
                    const hcp_question *question);
/* Why no split fits in a layout, or in any (AUTO): by how many tokens, and the rank where
 * the fewest bytes more would do. */
hcp_status memory_explain(const struct problem *p, struct scratch *s, hcp_layout layout,
                          char *text, size_t text_size);
/* Tokens that a rank could hold if it received none. */
int64_t memory_tokens_alone(const struct problem *p, size_t r);

/* memory-room.c: tokens that fit into so many bytes on a rank whose block is sent, or is not. */
int64_t memory_tokens_in(const struct problem *p, int64_t bytes, int sends);
/* Do blocks reach the ranks after them only? */
int memory_forward(const struct problem *p);
/* Caps under which every split into at most m ranks fits, rank h having `most`, which
 * nobody exceeds; inner: nor those before h that (only where blocks go forward). -1: h
 * cannot. */
struct memory_shape {
    size_t h;
    int64_t most, inner;
    int32_t m;
};
int memory_box(const struct problem *p, const uint8_t *allowed,
               const struct memory_shape *b, int64_t *cap);
/* Tokens by which memory falls short of the sequence; 0: cap is a box of splits with room
 * for it. Right, of up to 64 ranks that send whole blocks, but for two things: of more than
 * FORWARD_STEPS tiles where blocks go forward, only steps are looked at; and rings of fewer
 * ranks, which need fewer buffers, in groups of up to 16 (8 where blocks go forward) alone.
 * Otherwise some shares are looked at, and 0 is right. */
int64_t memory_shortfall(const struct problem *p, const uint8_t *allowed, int64_t *cap);
/* One box after the other that has room for the sequence; 0: no more. Begin with zeros. */
enum { ALL_HOLDERS = 64 }; /* ranks up to which every one is tried as holder */
struct memory_boxes {
    size_t holder[ALL_HOLDERS];
    int n, h;
    int64_t k;
    int32_t m;
    struct memory_shape shape; /* of this one */
};
int memory_next_box(const struct problem *p, const uint8_t *allowed,
                    struct memory_boxes *at, int64_t *cap);
/* Of these the ones in which shares by weight under the caps take least time; how many. */
enum { MEMORY_BOXES = 4 };
int memory_best_boxes(const struct problem *p, const uint8_t *allowed,
                      const double *weight, struct memory_shape out[MEMORY_BOXES],
                      int64_t *cap);

/* memory-forward.c: as memory_shortfall(), where blocks go forward, in p->forward. */
enum { FORWARD_RANKS = 64, FORWARD_STEPS = 256, FORWARD_POINTS = 2 * FORWARD_STEPS + 2 };
struct memory_forward {
    const struct problem *p;
    int64_t received;          /* bytes a token of the largest block received */
    int32_t n_points;          /* of M */
    int64_t m[FORWARD_POINTS]; /* ascending */
    int64_t room[FORWARD_POINTS];
    /* Tiles, without and with the remainder, in two generations; by rank how they are
     * reached: M0, and the remainder. */
    int64_t most[2][2][FORWARD_POINTS];
    int16_t (*from)[2][FORWARD_POINTS];
    int8_t (*took)[2][FORWARD_POINTS];
};
int64_t memory_forward_shortfall(const struct problem *p, const uint8_t *allowed,
                                 int64_t *cap);

/* ring.c: makespan in ms; fin [m]; steps NULL or [m * m], whose ranks are active
 * indices. */
double ring_run(const struct ring_input *in, struct ring_arrays *a, double *fin,
                hcp_step *steps);
/* ring-pieces.c: the same for in->pieces. */
double ring_run_pieces(const struct ring_input *in, struct ring_arrays *a, double *fin,
                       hcp_step *steps);
/* ring-wide.c: loops over many ranks, for the vector registers there are here. What they
 * do is written in ring-lanes.h. */
struct ring_lanes {
    void (*equal)(int32_t n, const double *ready, const double *freed,
                  const double *passed, const double *before, double send, double ms,
                  double *ready_next, double *fin);
    void (*any)(int32_t n, const double *ready, const double *freed, const double *passed,
                const double *before, const double *send, const double *ms,
                double *ready_next, double *fin);
    void (*equal_linked)(int32_t n, const double *ready, const double *freed,
                         const double *passed, const double *before, const double *alpha,
                         const double *token, double len, double ms, double *ready_next,
                         double *fin);
    void (*link)(int32_t n, const double *alpha, const double *token, const double *len,
                 double *send);
    void (*inner)(int32_t n, const double *there, const double *link, const double *freed,
                  const double *passed, const double *before, double send, double ms,
                  double *now, double *fin);
    void (*inner_any)(int32_t n, const double *there, const double *link,
                      const double *freed, const double *passed, const double *before,
                      const double *send, const double *ms, double *now, double *fin);
    void (*look_up)(int32_t n, const double *table, int32_t stride, const int32_t *mine,
                    const int32_t *theirs, double *ms);
    void (*classed)(int32_t n, const double *ready, const double *freed,
                    const double *passed, const double *before, const double *send,
                    const double *table, int32_t stride, const int32_t *mine,
                    const int32_t *theirs, double *ready_next, double *fin);
};
const struct ring_lanes *ring_lanes_here(void);
/* The same recurrence, fast, for inputs that ring_is_wide() says it is for. */
int ring_is_wide(const struct ring_input *in, int *falling);
double ring_run_wide(const struct ring_input *in, struct ring_arrays *a, int falling,
                     double *fin);
/* By how much computing and transfer beside each other stretch block k of rank i, all its
 * pieces alike; alone_of: what a rank computes in a step, alone. */
struct ring_stretch {
    double compute, transfer, overhead_ms;
};
struct ring_stretch ring_stretch_of(const struct ring_input *in, int32_t i, int32_t k,
                                    double (*alone_of)(const struct ring_input *, int32_t,
                                                       int32_t));

/* Where links differ: alone, KV of rank j into rank i; beside what is computed, block k
 * into rank i; block k on rank i, own_ms and peer_ms being what its block k (or k - 1)
 * and that of the rank before take alone. */
double ring_transfer_ms(const struct ring_input *in, int32_t i, int32_t k, double own_ms,
                        double peer_ms);
double ring_compute_ms(const struct ring_input *in, int32_t i, int32_t k, double own_ms,
                       double peer_ms);
/* ring-late.c: the same for in->slots; HUGE_MS: with these buffers it stops. */
double ring_run_late(const struct ring_input *in, const struct late_arrays *a,
                     double *fin, hcp_step *steps);
/* What no order of the blocks can beat, whole blocks: every rank computes what it sees
 * as soon as it can be there with nothing else under way, and the link into it carries
 * all of that. Interference factors are left out. */
double ring_late_bound(const struct ring_input *in, const struct late_arrays *a);
/* Shared by both: the rows of step k, and a step of the report. */
double *ring_ready(const struct ring_input *in, const struct ring_arrays *a, int32_t k);
double *ring_fin(const struct ring_input *in, const struct ring_arrays *a, int32_t k);
void ring_put_step(const struct ring_input *in, hcp_step *steps, int32_t i, int32_t k,
                   double ready, double start, double busy, double fin, double wait);

/* few.c: what is to be known of a ring's models. */
void few_bind(struct hcp_ring *ring);
/* Whether splits are evaluated there: of few ranks and tables, in whole blocks of one call.
 */
int few_possible(const struct problem *p);
/* find_classes() and sum_blocks(): the split into s->act, its tables into s->few. */
void few_classes(const struct problem *p, struct scratch *s, const int64_t *tokens);
double few_sum(const struct problem *p, struct scratch *s, double limit_ms, double *busy);
/* eval_source() of that split. */
uint8_t few_source(const struct problem *p, const struct scratch *s);

/* tally.c: where it is for; busy times [n] by rank, but for the last bits those that
 * eval_split() finds, and the largest. */
int tally_possible(const struct problem *p);
double tally_busy(const struct problem *p, const int64_t *tokens, double *busy);

/* eval.c */
void memo_reset(struct memo *memo);
/* Predicted makespan; leaves s->fin and s->busy by rank (0 for ranks without tokens).
 * Gives up, and leaves nothing there, when a rank's blocks alone take limit_ms. */
struct score eval_split(const struct problem *p, struct scratch *s, const int64_t *tokens,
                        double limit_ms, hcp_step *steps);
/* Weakest hcp_source of a split's blocks; stops at EXTRAPOLATED. */
uint8_t eval_source(const struct problem *p, struct scratch *s, const int64_t *tokens);
/* Busy times alone (into s->busy) and their maximum, a lower bound of the makespan but
 * for rounding; *rough = 1 when they were estimated, because every rank is a class of its
 * own. */
double eval_busy(const struct problem *p, struct scratch *s, const int64_t *tokens,
                 int *rough);
/* The same where the last bits do not matter. */
double eval_busy_about(const struct problem *p, struct scratch *s, const int64_t *tokens,
                       int *rough);
/* Kernel times alone of a split, without finish passes, into s->busy by rank. Uses the
 * memo for other times than it holds: it is empty afterwards. */
void eval_kernels(const struct problem *p, struct scratch *s, const int64_t *tokens);
/* eval-pieces.c: in->pieces for a split that is in s->act. Keeps the block asked for
 * last, which is that of neighbours in a run of equal ranks, too. */
struct eval_pieces {
    const struct problem *p;
    struct scratch *s;
    int32_t n, mine, theirs; /* classes of the block below; n 0: none yet */
    int earlier;
    double ms[MAX_SUB_BLOCKS], send_ms[MAX_SUB_BLOCKS];
    const struct link_into *into; /* NULL: the problem's link */
};
int32_t eval_block_pieces(void *eval_pieces, int32_t i, int32_t j, const double **ms,
                          const double **send_ms);
/* The calls of pieces asked for lately: forgets them unless s->calls_ready; the place of
 * one, which may be another's. */
void eval_ready_calls(struct scratch *s);
struct cached_call *eval_find_call(struct scratch *s, int32_t id, int64_t q_len,
                                   int64_t kv_len);
/* Up to four ranks with whole blocks, without the memo. Gives up when a rank's blocks alone
 * take limit_ms. */
struct score eval_small(const struct problem *p, int m, const int32_t *rank,
                        const int64_t *len, double limit_ms);

/* links.c: HCP_STATUS_INVALID and why. */
hcp_status links_check(const hcp_question *q, size_t n, char *text, size_t text_size);
/* Whether a speed, a time or a slowdown is out of range. */
int links_bad_numbers(const hcp_link *link);
/* Whether a plan's places are no permutation, or a link in them is none. */
int links_bad_places(const hcp_plan *plan);
/* The link from one rank to another, by position, alone. */
hcp_link links_between(const struct problem *p, size_t from, size_t to);
/* Links into the ranks of s->act, whose KV travels s->hops, into s->into, and s->starts.
 */
void links_into(const struct problem *p, struct scratch *s);
/* The same for up to four ranks, into[4]. */
void links_into_small(const struct problem *p, int m, const int32_t *rank,
                      const int32_t *hops, struct link_into *into);
/* The places of a plan: rank, and link to the next rank with tokens (kv: or with KV; NULL
 * where KV goes with the tokens). */
void links_places(const struct problem *p, struct scratch *s, const int64_t *tokens,
                  const int64_t *kv, hcp_place *places);

/* rings.c: HCP_STATUS_INVALID and why; whether a number is out of range; into a problem.
 */
hcp_status nodes_check(const hcp_question *q, char *text, size_t text_size);
int nodes_bad_numbers(int32_t ranks, double alpha_us, double gbps, double shared_gbps);
void nodes_set(struct problem *p, int32_t ranks, double alpha_us, double gbps,
               double shared_gbps);
/* The link into each of m ranks in one ring of p->nodes. */
void nodes_into(const struct problem *p, int32_t m, const int32_t *rank,
                struct link_into *into);
/* Ranks of each inner ring of the ranks with tokens; 0: they have no two levels. */
int32_t rings_inner(const struct problem *p, int32_t m, const int32_t *rank,
                    const int32_t *hops);
/* ring_run with two levels; inner > 0 as above. */
double rings_run(const struct problem *p, const struct ring_input *in,
                 struct ring_arrays *a, int32_t inner, double *fin, hcp_step *steps);
/* order_decide, in one ring or with two levels; sets inner, one_ring_ms, two_level_ms. */
hcp_status rings_decide(struct problem *p, struct scratch *s,
                        const hcp_question *question, int exhaustive, char *text,
                        size_t text_size, struct answer *out);
/* The faster of both for the split of strategy_given(). */
void rings_given(struct problem *p, struct scratch *s, const hcp_question *question,
                 struct answer *out);

/* order.c: s->view, caps and speeds for the ranks of `ring` in this order (position ->
 * index), which is copied to s->place; p then asks about that. */
void order_set(struct problem *p, struct scratch *s, const hcp_ring *ring,
               const int32_t *order);
/* strategy_decide, and late_decide where the question asks for it, in the order, or over
 * the orders, that it says. Sets given_order_ms and any_order_ms. exhaustive: -1 as many
 * orders as are few, 0 never, 1 always. */
hcp_status order_decide(struct problem *p, struct scratch *s,
                        const hcp_question *question, int exhaustive, char *text,
                        size_t text_size, struct answer *out);

/* late.c: an answer with each rank's KV as late as is best, into p->slots; free: the tokens
 * may change, too. Sets in_turn_ms and late_bound_ms. */
void late_decide(struct problem *p, struct scratch *s, const hcp_question *question,
                 int free_tokens, struct answer *out);

/* To compare orders: the time of a split, or of those found from it on (free), in p's
 * layout with each rank's KV as late as is best; HUGE_MS: outside the measured lengths. */
double late_glance(struct problem *p, struct scratch *s, const int64_t *tokens,
                   int free_tokens);
/* HCP_STATUS_INVALID and why: ways to run a ring in which KV cannot be late. */
hcp_status late_check(int32_t sub_blocks, int32_t barrier, char *text, size_t text_size);
/* Whether a plan with late KV is none that could be made. */
int late_bad(const hcp_plan *plan);

/* round.c: tiles a rank may hold beside the rest (1) or not (0). */
int64_t round_room(const struct problem *p, size_t r, int with_rest);
/* Tokens by weight (>= 0; 0 = none unless caps force it), whole tiles and one rest,
 * under caps. 0, or -1 if the ranks with weight > 0 cannot hold the sequence. */
int round_shares(const struct problem *p, struct scratch *s, const double *weight,
                 int64_t *tokens);
/* Tokens by which caps fall short of the sequence; 0 = feasible. allowed NULL = all. */
int64_t round_shortfall(const struct problem *p, const uint8_t *allowed);

/* sort.c: sorts order[n] by value[order[]], largest first, lower index first when equal.
 */
void sort_descending(const double *value, int32_t *order, size_t n);

/* solve-search.c: good split of the allowed ranks into out. Gives up early (returns
 * with its start) when it cannot get below limit_ms; otherwise s->fin and s->busy are
 * those of out. */
struct score solve_search(const struct problem *p, struct scratch *s,
                          const uint8_t *allowed, double limit_ms, int64_t *out);
/* About what solve_search() will come to where nobody waits; to compare layouts by. */
double solve_estimate(const struct problem *p, struct scratch *s, const uint8_t *allowed);
/* The best split found from one on, into it: of four allowed ranks with contiguous shares
 * under a causal mask. Others: gave_up. s->fin and s->busy are of another split. */
struct score solve_from(const struct problem *p, struct scratch *s,
                        const uint8_t *allowed, int64_t *split);
/* reach.c: what these ranks would need at their peak speeds, linear work left out; 0: they
 * are not to be given up, or there is no limit. */
double reach_bound(const struct problem *p, const struct scratch *s,
                   const uint8_t *allowed, double limit_ms);
/* Is a time out of reach of a group that would take estimate_ms if its blocks were spread
 * evenly at the speeds they have? The search gains a small part of what is between that
 * and the bound, where they are near each other; where fixed costs count for much, it can
 * gain more by leaving ranks out. Stripes make many small calls, whose times jump. */
int reach_beyond(const struct problem *p, double bound_ms, double estimate_ms,
                 double limit_ms);
/* The same for these ranks, of which some more may be left out; estimate_ms: of them, or of
 * more ranks (0: not known). */
int reach_hopeless(const struct problem *p, const struct scratch *s,
                   const uint8_t *allowed, double estimate_ms, double limit_ms);
/* Can these ranks be faster than that? tokens: a split of some more ranks, which are busy
 * for s->busy; of these alone none is known. */
int reach_without(const struct problem *p, struct scratch *s, const int64_t *tokens,
                  const uint8_t *allowed, double limit_ms);
/* solve-exact.c: the best tile split over all non-empty subsets of at most three
 * allowed ranks that beats start (whose split is in best already), else start.
 * *exact = 0 if it ran out of nodes. */
struct score solve_exact(const struct problem *p, const uint8_t *allowed,
                         struct score start, int64_t *best, int *exact);
/* The same over all ranks of four, but for what is less than 1 % faster than the answer;
 * ends after a few thousand boxes. Not exact. */
struct score solve_four(const struct problem *p, struct score start, int64_t *best);
/* Either, by the number of allowed ranks; never exact for blocks in pieces, whose cuts
 * move with the shares so that times do not only grow. A score not below limit_ms is no
 * answer: out need not be its split. */
struct score solve(const struct problem *p, struct scratch *s, const uint8_t *allowed,
                   double limit_ms, int64_t *out, int *exact);

/* round.c: takes a layout, and the tile for it unless the question gives one; wants the
 * caps and stripes. Under a causal mask other ranks compute with halves (zigzag) or
 * stripes of a share, and a kernel takes longer on keys off its tile (cuDNN by a sixth,
 * measured; the models do not see it), so the tile is then two, or as many as there are
 * stripes, kernel tiles: where the sequence has at least four of those a rank and the
 * caps leave a split into them. What that costs in balance, by the models of the recorded
 * H200 on 2 to 8 ranks with 4K to 32K tokens each: 0.3 % on average, 2.7 % at most. */
void problem_set_layout(struct problem *p, hcp_layout layout);

/* api.c: the caps of the ranks of p->ring into s->cap. */
void problem_set_caps(struct problem *p, struct scratch *s);

/* strategies.c */
struct answer {
    hcp_layout layout;
    const int64_t *tokens; /* its times are in s->plan_fin and s->plan_busy */
    struct score score;
    struct score even, drop; /* fastest even split and drop set in the layouts allowed */
    int exact;
    double given_order_ms, any_order_ms; /* order_decide */
    const int64_t *kv; /* tokens whose KV each rank keeps; NULL: with the queries */
    struct score tied; /* with kv: that of the answer where KV goes with the queries */
    double in_turn_ms, late_bound_ms;    /* late_decide */
    int32_t inner;     /* rings_decide: ranks of an inner ring, 0: one ring */
    double one_ring_ms, two_level_ms;
};
/* Throughputs (area per ms) by which ranks are ordered, weighed and bounded, into
 * s->whole, s->peak and s->slow_order; once a question. */
void strategy_speeds(const struct problem *p, struct scratch *s);
/* The layouts a question allows under p's mask, in the order they are tried. */
int strategy_layouts(const struct problem *p, hcp_layout layout, hcp_layout out[3]);
/* The best split found that leaves out ranks which need not be the slowest: any subset of
 * up to six ranks; beyond, one after the other as long as that helps. out: its split. */
struct score strategy_subset(const struct problem *p, struct scratch *s, double limit_ms,
                             int64_t *out);
/* Decides; p is a template whose layout and kind become those of the answer. */
hcp_status strategy_decide(struct problem *p, struct scratch *s,
                           const hcp_question *question, char *text, size_t text_size,
                           struct answer *out);
/* Are the best models those of a kind? */
int strategy_same_models(const struct hcp_ring *ring, hcp_model_kind kind);
/* The split of a strategy but BEST in p's layout, whatever it takes; -1: none. */
int strategy_tokens(const struct problem *p, struct scratch *s, hcp_strategy strategy,
                    int64_t *tokens);
/* The same for the caller's own split, in p->layout. */
void strategy_given(const struct problem *p, struct scratch *s, const int64_t *tokens,
                    struct answer *out);
/* An even split under caps; none, too, when a rank's blocks alone take limit_ms. */
struct score strategy_even(const struct problem *p, struct scratch *s, double limit_ms,
                           int64_t *tokens);
/* The next number of slowest ranks to leave out after k: every number up to 64 ranks;
 * above that those that leave out whole kinds of ranks, and the powers of two from a
 * sixteenth of the ranks. */
size_t strategy_next_drop(const struct problem *p, const struct scratch *s, size_t k);
/* Best split that leaves out the k slowest ranks, k = 1 .. n - 1 as above; none, too, when
 * it is not below limit_ms. */
struct score strategy_drop(const struct problem *p, struct scratch *s, double limit_ms,
                           int64_t *tokens);

/* bind.c: the options of hcp-profile run that measure a limit, shape and kernel (NULL:
 * the one it chooses), each after a space and only where not the default. Returns out. */
const char *bind_run_options(const char *limit, const hcp_shape *shape,
                             const char *provider, char out[224]);
/* The model of a kind for a rank, or NULL; *stale = 1 if there is one that must not be
 * used any more. Models of decode for the batches next to the shape's. */
const struct stored_model *bind_find_model(const hcp_models *models,
                                           const hcp_shape *shape, const hcp_rank *rank,
                                           const char *provider, const char *kind,
                                           int *stale);
void bind_find_batches(const hcp_models *models, const hcp_shape *shape,
                       const hcp_rank *rank, const char *provider, const char *kind,
                       struct hcp_blend_from *from);
/* "bf16, 32/8 heads, head dim 128, batch 1" */
void bind_describe(const hcp_shape *shape, char *out, size_t size);

/* answer.c: the options of hcp-profile run that fill a gap: longer lengths up to these,
 * or (shorter than what is measured) these very ones. Returns out. */
const char *answer_lengths(int causal, int64_t q_len, int64_t kv_len, int longer,
                           char out[64]);
/* HCP_STATUS_OUTSIDE and which lengths are missing; kv: of a joint split,
 * else NULL. */
hcp_status answer_outside(const struct problem *p, struct scratch *s,
                          const int64_t *tokens, const int64_t *kv, char *text,
                          size_t text_size);
/* Everything beside the split. Nothing is written where it fails. */
hcp_status answer_fill(const struct problem *p, struct scratch *s, const struct answer *a,
                       const hcp_question *question, char *text, size_t text_size,
                       hcp_plan *plan);

/* answer.c: of the models of this kind of all ranks. */
uint64_t answer_models_hash(const struct hcp_ring *ring, hcp_model_kind kind);

/* plan-check.c: why a plan's tokens do not add up, or its segments are not those its
 * layout gives them, of queries and of KV; NULL: all is well. */
const char *plan_inconsistent(const hcp_plan *plan, size_t n_ranks);

/* json.c: a strict JSON reader over a string. Its names are not those of jansson, which a
 * static link would mix up. The reading functions return 0, or -1 with
 * a reason in error (the first one stays). */
struct json_in {
    const char *start, *p, *end;
    char error[96];
};
int jin_fail(struct json_in *in, const char *what);
/* Says in which member an error is, if none is named yet; returns rc. */
int jin_within(struct json_in *in, const char *key, int rc);
int jin_literal(struct json_in *in, char c); /* skips white space, then exactly c */
int jin_peek(struct json_in *in);            /* next character after white space, or -1 */
int jin_string(struct json_in *in, char *out, size_t size); /* too long: error */
int jin_double(struct json_in *in, double *out);            /* null -> NaN */
int jin_int(struct json_in *in, int64_t min, int64_t max, int64_t *out);
int jin_skip(struct json_in *in); /* any value, nested at most 32 deep */
int jin_bool(struct json_in *in, int32_t *out);
int jin_int32(struct json_in *in, int64_t min, int64_t max, int32_t *out);
int jin_hash(struct json_in *in, uint64_t *out); /* 16 hexadecimal digits in a string */
/* Which of n names a key is; -1: none. */
int jin_member(const char *const *names, int n, const char *key);
/* Calls member for every member of the object that follows, with its key; keys of more
 * than 63 characters are skipped. Duplicate keys are the caller's to refuse. */
int jin_object(struct json_in *in,
               int (*member)(struct json_in *in, const char *key, void *ctx), void *ctx);
int jin_array(struct json_in *in, int (*element)(struct json_in *in, void *ctx),
              void *ctx);

#endif
