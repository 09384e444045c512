/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan. Folder of the decision, in the order things happen:
 *
 *   models.c      database -> hcp_models            bind*.c   ranks -> hcp_ring
 *   init.c        structs as they begin
 *   api.c         hcp_plan_split and friends        answer.c  numbers beside a split
 *   strategies.c  the six strategies                round.c   shares -> whole tiles
 *   strategy-splits.c  what they choose from        reach.c   what cannot be faster
 *   solve-equal.c, solve-search.c, solve-exact.c    shares that finish first
 *   order.c       the order of the ranks            links.c   links between them
 *   eval.c        a split's predicted time          ring.c    the recurrence
 *   memo.c        ... busy times of its ranks
 *   few.c         ... of few ranks                  tally.c   ... of many
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
 * This header has structs, and what is not in cost.h, links.h, memory.h, ring.h or
 * json-in.h, which it includes.
 *
 * Nothing from hcp_plan_split downwards allocates: all arrays come from the caller's
 * workspace through struct scratch. Only + - * / sqrt and comparisons decide.
 */
#ifndef HCP_PLAN_H
#define HCP_PLAN_H
#include "db/db.h"
#include "fit/model-rows.h"
#include "fit/model.h"
#include "planner/cost.h"
#include "planner/hcpplan.h"
#include "planner/json-in.h"
#include "planner/links.h"
#include "planner/memory.h"
#include "planner/ring.h"

#define MAX_STRIPES 1024
#define MEMO_CLASSES 512 /* at most, a multiple of 64 */
#define MEMO_WORDS (MEMO_CLASSES / 64)
#define JOINT_MAX_RANKS 256
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
    int32_t id[3]; /* number of model and linear work among the ring's distinct ones */
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
    hcp_model *own[2 * 5]; /* by kind: of its batch, or of the next ones and a blend */
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
    int32_t *asked, *head_to;               /* by class, see memo_sum() */
    double *head_ms;
    uint32_t *seen; /* by class: number of the last split that had it, */
    uint32_t split; /* and of this one */
    int32_t *ask; /* classes, with lengths and times: blocks asked for together */
    int64_t *ask_len, *ask_keys;
    double *ask_ms;
    int direct; /* more classes than the memo holds: block times are asked one by one */
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

/* bind.c: numbers of the ring's distinct models, and what few.c keeps of them; again
 * after models have changed. */
void bind_number(struct hcp_ring *ring);

/* rescale.c: models by their factor for the ranks that have one. */
hcp_status rescale_bind(hcp_ring *ring, char *text, size_t text_size);
/* A ring whose factors and ranks that are left out can be set (not while others read it);
 * from's models must outlive it, and a ring with blends itself. NULL: out of memory. */
hcp_ring *rescale_copy(const hcp_ring *from);
void rescale_set(hcp_ring *ring, const double *scale, const uint8_t *left_out);

/* few.c: what is to be known of a ring's models. */
void few_bind(struct hcp_ring *ring);
/* Whether splits are evaluated there: few ranks and tables, whole blocks of one call. */
int few_possible(const struct problem *p);
/* memo_find_classes() and memo_sum(): the split into s->act, its tables into s->few. */
void few_classes(const struct problem *p, struct scratch *s, const int64_t *tokens);
double few_sum(const struct problem *p, struct scratch *s, double limit_ms, double *busy);
/* eval_source() of that split. */
uint8_t few_source(const struct problem *p, const struct scratch *s);

/* tally.c: where it is for; busy times [n] by rank, but for the last bits those that
 * eval_split() finds, and the largest. */
int tally_possible(const struct problem *p);
double tally_busy(const struct problem *p, const int64_t *tokens, double *busy);

/* memo.c */
void memo_reset(struct memo *memo);
/* The classes of a split into s->act, those that come first numbered first; direct if the
 * memo cannot hold them. */
void memo_find_classes(const struct problem *p, struct scratch *s, const int64_t *tokens);
/* Busy times of that split into busy[] by active index; returns the largest. Asks the
 * models for what the memo does not have: afterwards all blocks of the split are in it.
 * Stops at a rank that is busy for limit_ms. */
double memo_sum(const struct problem *p, struct scratch *s, double limit_ms,
                double *busy);

/* eval.c */
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
/* Up to four ranks with whole blocks, without the memo. Gives up when a rank's blocks
 * alone take limit_ms. */
struct score eval_small(const struct problem *p, int m, const int32_t *rank,
                        const int64_t *len, double limit_ms);

/* round.c: tiles a rank may hold beside the rest (1) or not (0). */
int64_t round_room(const struct problem *p, size_t r, int with_rest);
/* Tokens by weight (>= 0; 0 = none unless caps force it), whole tiles and one rest,
 * under caps. 0, or -1 if the ranks with weight > 0 cannot hold the sequence. */
int round_shares(const struct problem *p, struct scratch *s, const double *weight,
                 int64_t *tokens);
/* Tokens by which caps fall short of the sequence; 0 = feasible. allowed NULL = all. */
int64_t round_shortfall(const struct problem *p, const uint8_t *allowed);

/* sort.c: order[n] by value[order[]], largest first, lower index first when equal. */
void sort_descending(const double *value, int32_t *order, size_t n);

/* solve-search.c: good split of the allowed ranks into out. Gives up early (returns
 * with its start) when it cannot get below limit_ms; otherwise s->fin and s->busy are
 * those of out. */
struct score solve_search(const struct problem *p, struct scratch *s,
                          const uint8_t *allowed, double limit_ms, int64_t *out);
/* solve-equal.c: about what solve_search() comes to where nobody waits; for layouts. */
double solve_estimate(const struct problem *p, struct scratch *s, const uint8_t *allowed);
/* The best split found from one on, into it: of four allowed ranks with contiguous shares
 * under a causal mask. Others: gave_up. s->fin and s->busy are of another split. */
struct score solve_from(const struct problem *p, struct scratch *s,
                        const uint8_t *allowed, int64_t *split);
/* reach.c: what these ranks would need at their peak speeds, linear work left out; 0:
 * they are not to be given up, or there is no limit. */
double reach_bound(const struct problem *p, const struct scratch *s,
                   const uint8_t *allowed, double limit_ms);
/* Is a time out of reach of a group that would take estimate_ms if its blocks were spread
 * evenly at the speeds they have? The search gains a small part of what is between that
 * and the bound, where they are near each other; where fixed costs count for much, it can
 * gain more by leaving ranks out. Stripes make many small calls, whose times jump. */
int reach_beyond(const struct problem *p, double bound_ms, double estimate_ms,
                 double limit_ms);
/* The same for these ranks, of which some more may be left out; estimate_ms: of them, or
 * of more ranks (0: not known). */
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
/* Best split that leaves out the k slowest ranks, k = 1 .. n - 1 as above; none, too,
 * when it is not below limit_ms. */
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

#endif
