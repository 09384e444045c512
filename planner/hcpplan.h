/* SPDX-License-Identifier: Apache-2.0
 *
 * libhcpplan: how many tokens, and which tokens, each rank of a ring-attention group
 * gets, decided from measured attention times. What does not appear in this file is
 * not part of the interface. The manual page is libhcpplan(3).
 *
 * Use, in this order:
 *
 *     hcp_models_load()      once: reads the fitted models of a profile database
 *     hcp_ring_create()      once a group: binds ranks and shape to those models
 *     hcp_plan_split()       once a sequence: the decision; no allocation, no lock
 *     hcp_ring_free(), hcp_models_free()
 *
 * Errors. Every function that can fail returns an hcp_status, HCP_STATUS_OK being 0.
 * Arguments named `text` and `text_size` are a buffer of the caller (NULL and 0
 * allowed) that receives one line, the cause and the next step, when the status is
 * not OK; hcp_strerror() gives the general meaning of a status. Output arguments come
 * last and are written only on success. The library prints nothing, never exits, and
 * keeps no global state.
 *
 * Threads. hcp_models and hcp_ring do not change after their creation: any number of
 * threads may use one at the same time. Each thread brings its own workspace and plan.
 *
 * Reproducibility. Two processes that load the same models and ask the same question
 * get identical plans, on every IEEE 754 machine; hcp_plan.fingerprint lets ranks
 * check that with one exchanged number.
 *
 * Growth. Structs begin with `size`, which their _init function sets; later versions
 * add members at the end only, and the library gets a new soname with them.
 *
 * Units are in the names: _ms milliseconds, _us microseconds, _gbps 1e9 bytes per
 * second. Lengths are tokens. A rank is an index into the caller's array, in ring
 * order: rank r sends to rank r + 1.
 */
#ifndef HCPPLAN_H
#define HCPPLAN_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header: 10000 * major + 100 * minor + patch. */
#define HCP_PLAN_VERSION 200

/* Longest sequence in tokens (2^30) and largest group. */
#define HCP_PLAN_MAX_LEN ((int64_t)1 << 30)
#define HCP_PLAN_MAX_RANKS 4096
/* Factors on the times of a rank. */
#define HCP_PLAN_MIN_SCALE 0.001
#define HCP_PLAN_MAX_SCALE 1000.0
/* Largest memory of a rank, 2^50. */
#define HCP_PLAN_MAX_BYTES ((int64_t)1 << 50)

#if defined __GNUC__
#define HCP_API __attribute__((visibility("default")))
#else
#define HCP_API
#endif

/* What a call returns. Numbers are stable. */
typedef enum hcp_status {
    HCP_STATUS_OK = 0,
    HCP_STATUS_INVALID = 1,    /* an argument is wrong: a bug or a usage error */
    HCP_STATUS_SPACE = 2,      /* workspace or array too small; text says the size */
    HCP_STATUS_IO = 3,         /* the database cannot be opened or read */
    HCP_STATUS_NO_MODEL = 4,   /* nothing measured or fitted for a rank */
    HCP_STATUS_STALE = 5,      /* samples changed after the model was fitted */
    HCP_STATUS_OUTSIDE = 6,    /* a block lies outside the measured lengths */
    HCP_STATUS_INFEASIBLE = 7, /* the memory caps cannot hold the sequence */
    HCP_STATUS_FORMAT = 8,     /* a plan's text is damaged or inconsistent */
    HCP_STATUS_NO_MEMORY = 9
} hcp_status;

/* How a split is decided. */
typedef enum hcp_strategy {
    HCP_STRATEGY_EVEN = 0,         /* equal tokens */
    HCP_STRATEGY_NOMINAL = 1,      /* by the advertised percentage of each limit */
    HCP_STRATEGY_PROPORTIONAL = 2, /* by measured throughput at the sequence's length */
    HCP_STRATEGY_LUT = 3,          /* solver on lookup tables */
    HCP_STRATEGY_POLY = 4,         /* solver on polynomial regressions */
    HCP_STRATEGY_BEST = 5,         /* solver on each rank's more accurate model; all of
                                      the above and all ways to leave slow ranks out
                                      are candidates; never predicted slower than them */
    HCP_STRATEGY_GIVEN = 6         /* the caller's own split: of plans that
                                      hcp_plan_evaluate() fills, no answer to ask for */
} hcp_strategy;

/* Which tokens a rank with a given number of tokens holds. Under a full mask all
 * layouts cost the same. */
typedef enum hcp_layout {
    HCP_LAYOUT_AUTO = 0,       /* best: the fastest, of those inside the measured
                                  lengths unless told to extrapolate; others: zigzag
                                  under a causal mask, contiguous under a full one */
    HCP_LAYOUT_CONTIGUOUS = 1, /* one run of tokens, ranks in order */
    HCP_LAYOUT_ZIGZAG = 2,     /* the r-th chunk from the front (half of the share,
                                  rounded up) and the r-th from the back */
    HCP_LAYOUT_STRIPED = 3     /* `stripes` runs; the first tokens % stripes of them are
                                  one token longer; in each stripe ranks in order */
} hcp_layout;

/* Where predicted times come from; a plan carries the weakest of its blocks. */
typedef enum hcp_source {
    HCP_FROM_MEASURED = 0,     /* every block is a measured cell */
    HCP_FROM_INTERPOLATED = 1, /* inside the measured lengths */
    HCP_FROM_EXTRAPOLATED = 2, /* outside them; only when asked for */
    HCP_FROM_ESTIMATED = 3     /* a rank of the ring is a data sheet, not a measurement */
} hcp_source;

/* What the numbers advise. The plan itself is the fastest found in any case. */
typedef enum hcp_decision {
    HCP_DECISION_SPLIT = 0, /* uneven shares gain more than the error bar */
    HCP_DECISION_EVEN = 1,  /* the gain over an even split is inside the error bar */
    HCP_DECISION_DROP = 2   /* as SPLIT, and at least one rank gets no tokens */
} hcp_decision;

/* Which fitted model answers hcp_block_predict(). */
typedef enum hcp_model_kind {
    HCP_MODEL_BEST = 0, /* smaller held-out error (median + 90th percentile / 4; lut
                           when equal or unknown) */
    HCP_MODEL_LUT = 1,
    HCP_MODEL_POLY = 2
} hcp_model_kind;

typedef struct hcp_models hcp_models; /* the models of one database */
typedef struct hcp_ring hcp_ring;     /* ranks and shape bound to their models */

/* The layer's shape. Plans are of prefill (each rank's own queries against all keys; KV
 * heads travel, query heads do not) or of decode (one new token of each of `batch`
 * sequences against the keys of seq_len tokens: KV stays where it is, partial results are
 * merged). A ring of decode answers for batches that were not measured too, from those
 * that were. */
typedef struct hcp_shape {
    size_t size;
    char dtype[8]; /* "bf16" "fp16" "fp32" */
    int32_t batch, heads, kv_heads, head_dim;
    char phase[8]; /* "prefill" (also ""), "decode" */
} hcp_shape;

/* One rank. */
typedef struct hcp_rank {
    size_t size;
    char device[64];    /* slug, as hcp-profile stores it: "nvidia-h200"; or "spec:a100",
                           a GPU by its data sheet (hcp_models_load_specs()) */
    char limit[32];     /* "mps:10" "green:24" "cpu:50"; "" = the whole device */
    int64_t max_tokens; /* memory cap: never more tokens than this; 0 = none. Where
                           queries and KV are split apart: never the KV of more tokens */
    /* The rest of a layer, in us: a token, and fixed. Before its ring a rank computes
     * what its own Q, K and V come from (it neither sends nor receives before that is
     * done), after its last block the output projection and MLP. A rank without tokens
     * has neither. 0 (default): attention alone. */
    double linear_before_us, linear_before_fixed_us;
    double linear_after_us, linear_after_fixed_us;
    int64_t max_bytes;    /* cap in bytes, see hcp_plan_rank.memory_bytes; 0 = none */
    int64_t weight_bytes; /* held whatever the tokens, of that; default 0 */
    double linear_error;  /* linear work is within 1 +- linear_error of the above with
                             about 90 % confidence, 0 .. 10; default 0: as given */
    double time_scale; /* its blocks and linear work take that much of what is measured
                          and given, HCP_PLAN_MIN_SCALE .. HCP_PLAN_MAX_SCALE: of a rank
                          that has been seen to run slower (above 1) or faster than when
                          it was profiled. Default 0: 1 */
    double decode_linear_us; /* linear work of a decode step of a layer, all sequences;
                                hcp_disagg_advise() alone looks at it. Default 0 */
} hcp_rank;

/* May the planner choose the order of the ranks in the ring? */
typedef enum hcp_order {
    HCP_ORDER_GIVEN = 0, /* the caller's, and no other is looked at */
    HCP_ORDER_FREE = 1,  /* the fastest found */
    HCP_ORDER_FIXED = 2  /* the caller's; the plan says what HCP_ORDER_FREE would gain */
} hcp_order;

/* The link over which rank `from` sends to rank `to`, and what its transfers and the
 * blocks that `to` computes meanwhile cost each other. No size member: it travels in
 * arrays of the caller, so its layout is fixed for one major version. */
typedef struct hcp_link {
    int32_t from, to;  /* different ranks, by their index in hcp_ring_create() */
    int32_t shared[2]; /* what other links use, too (a network card on the way out, one
                          on the way in): 1 .. n_shared; 0: nothing */
    double alpha_us, gbps;    /* alone; gbps 0: infinitely fast */
    double slowdown;          /* of the block beside a transfer, >= 1; 0: 1 */
    double transfer_slowdown; /* of the transfer beside a block, >= 1; 0: 1 */
    double overhead_us;       /* of every step whose block came over it */
} hcp_link;

/* How KV goes round, where ranks stand on nodes (hcp_question.node_ranks). */
typedef enum hcp_rings {
    HCP_RINGS_ONE = 0, /* one ring of all ranks */
    HCP_RINGS_BEST = 1 /* that, or two levels: round the ranks of each node while it goes
                          from node to node; the faster */
} hcp_rings;

/* How m ranks bring the partial results of a decode step together, so that all of them
 * have the result. A rank's partial result is batch * heads rows of head_dim + 1 floats:
 * M bytes. A transfer of b bytes takes alpha + b / speed; what ranks merge is not
 * counted. Sends of each: hcp_plan_merge_sends(). */
typedef enum hcp_merge {
    HCP_MERGE_AUTO = 0,     /* question: the fastest; plan: nothing to merge */
    HCP_MERGE_RING = 1,     /* each sums up an m-th of the rows, then passes it on:
                               2 (m - 1) rounds of M / m, whole rows */
    HCP_MERGE_DOUBLING = 2, /* pairs exchange all they have: log2 m rounds of M; if m is
                               no power of two, two more for those above the last one */
    HCP_MERGE_GATHER = 3    /* each sends to all others at once, one after the other over
                               its link: alpha + (m - 1) M / speed */
} hcp_merge;

/* What to split, and how. */
typedef struct hcp_question {
    size_t size;
    int64_t seq_len;       /* 1 .. HCP_PLAN_MAX_LEN */
    int32_t causal;        /* 0: every query sees every key; 1: itself and earlier ones */
    hcp_strategy strategy; /* default BEST */
    hcp_layout layout;     /* default AUTO */
    int32_t stripes;       /* of HCP_LAYOUT_STRIPED, 1 .. 1024, default 8 */
    int64_t tile;          /* shares are multiples of it except one; 0 (default): the
                              largest kernel tile among the ranks' models; under a
                              causal mask that times 2 (ZIGZAG) or stripes (STRIPED),
                              for halves and stripes in whole kernel tiles, where the
                              sequence has 4 of these a rank and the caps allow it */
    int32_t buffers;       /* KV blocks a rank can hold beside its own, 1 .. 16;
                              default 2; 0: no limit */
    int32_t barrier;       /* 1: the executor synchronises after every step; default 0 */
    double link_alpha_us;  /* start-up time of a transfer, default 0 */
    double link_gbps;      /* link speed; 0 (default): infinitely fast */
    int32_t extrapolate;   /* 1: answer outside the measured lengths, flagged */
    int32_t sub_blocks;    /* pieces in which a KV block is sent and computed, 1 .. 64;
                              default 1 */
    hcp_order order;       /* default GIVEN */
    const hcp_link *links; /* ascending by from, then to, none twice; a pair that is not
                              among them has link_alpha_us and link_gbps. Default none */
    size_t n_links;
    const double
        *shared_gbps; /* [n_shared] speed of what links share: of k links of the
                         ring that carry blocks over it each has a k-th at most */
    size_t n_shared;  /* 4 a rank at most */
    int32_t late_kv;  /* 1: KV that would make others wait may travel after that of other
                         ranks, and ranks receive from the start, also during their linear
                         work before the ring; up to 64 ranks, whole blocks, no barrier.
                         Default 0: in turn, a rank's own KV first */
    int32_t joint; /* 1: hcp_plan_split() with BEST, LUT or POLY gives each rank its
                      queries and its KV apart, caps being those of its KV; up to 256
                      ranks without linear work. Default 0: a rank keeps the KV of its
                      queries' tokens */
    const int64_t *kv_tokens; /* hcp_plan_evaluate(): [n] tokens whose KV each rank keeps,
                                 which add up to seq_len; default NULL: as the queries */
    int32_t layers;           /* whose KV a rank keeps, 0 .. 65536; default 1 */
    int64_t activation_bytes; /* it holds beside that, a token; default 0 */
    int32_t node_ranks;      /* ranks a node has, in a row; default 0: no nodes. Not with
                                links, an order to choose, joint or late_kv */
    double node_alpha_us;    /* of transfers between nodes, as link_ within one; */
    double node_gbps;        /* 0: infinitely fast */
    double node_shared_gbps; /* what the ranks of a node send to others, all together; 0:
                                each as much as it can */
    hcp_rings rings;         /* default ONE */
    hcp_merge merge; /* of a ring of decode; default AUTO. That has one link for all
                        pairs, contiguous shares, and none of: linear work, barrier,
                        sub_blocks, an order, links, late_kv, joint, nodes; causal and
                        buffers are not looked at. seq_len is the keys of each sequence */
} hcp_question;

/* A run of consecutive tokens. */
typedef struct hcp_segment {
    int64_t offset, length;
} hcp_segment;

/* A rank's part of a plan. No size member: it travels in arrays of the caller, so its
 * layout is fixed for one major version. */
typedef struct hcp_plan_rank {
    char device[64], limit[32];
    char model[8];                     /* the model that predicted: "lut" "poly" */
    int64_t max_tokens;                /* cap, 0 = none */
    int64_t tokens;                    /* queries held; 0, and no KV: not in the ring */
    int64_t kv_tokens;                 /* keys it sends round, exact: equal to tokens
                                          unless the plan is joint */
    int64_t first_segment, n_segments; /* its queries' part of hcp_plan.segments */
    double predicted_ms;               /* when it has finished its last block, and its
                                          linear work after that */
    double compute_ms; /* its blocks, finish passes and linear work included;
                          predicted_ms - compute_ms is waiting */
    double linear_before_us, linear_before_fixed_us; /* as in hcp_rank */
    double linear_after_us, linear_after_fixed_us;
    double linear_before_ms, linear_after_ms; /* of its tokens */
    int32_t
        late_slots; /* of a plan with late_kv: by how much its KV is late (hcp_plan) */
    int64_t first_kv_segment, n_kv_segments; /* its KV's part of hcp_plan.segments: that
                                                of its queries unless the plan is joint */
    int64_t max_bytes, weight_bytes;          /* as in hcp_rank */
    int64_t memory_bytes; /* weight_bytes, and for each of its tokens K and V of all
                             layers, activation_bytes, and K and V of a layer once more
                             where its block is sent in pieces; and receive buffers for K
                             and V of a layer, `buffers` of them but at most one a rank of
                             the ring beside it, each of the largest block that it
                             receives. In a joint plan KV is that of kv_tokens,
                             activations those of tokens. In a decode plan there are no
                             such buffers but its own partial result and room for one
                             more, or with HCP_MERGE_GATHER one of each other rank. 0 for
                             a rank that is not in the ring. Never above max_bytes */
    double linear_error;  /* as in hcp_rank */
    double time_scale;    /* as in hcp_rank, 1 where that is 0 */
    char kin[96]; /* "DEVICE[@LIMIT]" from whose times those of a data sheet are
                     estimated; "": they are its own */
} hcp_plan_rank;

/* A rank's place in a plan with an order or links of its own. */
typedef struct hcp_place {
    int32_t rank; /* the question's index of the rank here: a permutation */
    hcp_link
        link; /* to the next rank with tokens, as it is while all that share it are
                 busy (shared is 0 0); all 0 where the rank has no tokens, or alone */
} hcp_place;

/* A plan. Before the call the caller sets size, the two arrays and their capacities
 * (hcp_plan_init()), and places where it is needed; everything else is output. */
typedef struct hcp_plan {
    size_t size;
    hcp_plan_rank *ranks;
    size_t ranks_capacity; /* at least the number of ranks */
    hcp_segment *segments;
    size_t segments_capacity; /* at least hcp_segments_max(), twice that for a joint
                                 plan: queries' first, then KV's */

    size_t n_ranks, n_segments;
    hcp_shape shape;
    char provider[32]; /* kernel whose times were used */
    int64_t seq_len;
    int32_t causal;
    hcp_strategy strategy;
    hcp_layout layout; /* never AUTO */
    int32_t stripes;
    int64_t tile;
    int32_t buffers, barrier;
    double link_alpha_us, link_gbps;

    double makespan_ms; /* the ring recurrence over predicted block times */
    double interval_lo_ms, interval_hi_ms; /* about 90 %: the makespan times the mean of
                            the error bars of the blocks and the linear work of the
                            critical rank, weighted by time */
    double bound_ms; /* attention area / sum of throughputs, each rank's being the larger
                        of that on the whole sequence and that in this plan, of the
                        kernels alone; with linear work, the time in which all ranks that
                        are busy without a pause do both: no split of these ranks at
                        these speeds is faster */
    double even_ms;  /* the fastest even split in the layouts the question allowed; NaN
                        outside the hull */
    double drop_ms;  /* best split after leaving out the 1 .. n-1 slowest ranks, in the
                        same layouts; NaN for one rank, outside the hull, or when the
                        caps need all ranks */
    double gain_over_even; /* even_ms / makespan_ms */
    hcp_source source;
    hcp_decision decision;
    int32_t critical_rank; /* finishes last */
    int32_t exact;         /* 1: no other split of these ranks is predicted faster (2 or
                              3 ranks, this layout); 0: found by search, or by rule */
    uint64_t models_hash;  /* of the models' contents */
    uint64_t fingerprint;  /* of question, models and answer */
    int32_t sub_blocks;
    hcp_place *places; /* the caller's, ranks_capacity of them; NULL will do for the order
                          GIVEN without links. Filled in if order or has_links is not 0 */
    hcp_order order;   /* not GIVEN: ranks[i] is rank places[i].rank of the question */
    int32_t has_links; /* 1: links are those of places */
    double given_order_ms; /* the fastest found in the caller's order and in any; NaN:
                              none, */
    double any_order_ms;   /* or order is GIVEN. given / any: what reordering gains */
    int32_t late_kv; /* 1: KV travels by slots. The KV of the j-th rank with tokens is due
                        in slot h + late_slots on the link from the h-th rank behind it
                        (h = 0: itself), and a link carries blocks by slot; in one slot
                        the one with fewer late_slots first, then smaller h. A rank
                        computes its own block, then others as they come */
    double in_turn_ms;    /* of late_kv: the fastest found with all KV in turn, in any
                             order that the question leaves open; that over makespan_ms is
                             the gain. NaN: none inside the hull, or no late_kv */
    double late_bound_ms; /* no order of the blocks is faster with these tokens; NaN
                             without late_kv */
    int32_t joint;         /* 1: kv_tokens and KV segments are the ranks' own */
    double tied_ms; /* joint: what the question without it gets, in the same order; of a
                       plan that hcp_plan_evaluate() fills the same queries with their own
                       KV. NaN: not joint, over a cap, or outside the hull */
    double gain_over_tied; /* tied_ms / makespan_ms */
    int32_t layers;
    int64_t activation_bytes;
    int32_t node_ranks;    /* as in the question */
    double node_alpha_us, node_gbps, node_shared_gbps;
    hcp_rings rings;     /* as in the question */
    int32_t inner_ranks; /* ranks of each inner ring, with two levels; 0: one ring */
    double one_ring_ms;  /* rings BEST: the fastest found in one ring and with two levels;
                            NaN: none, */
    double two_level_ms; /* or rings ONE. one / two: what two levels gain */
    hcp_merge merge; /* of a plan of decode (shape.phase), whose tokens are those whose KV
                        each rank keeps; makespan_ms is that of a step of one layer: the
                        longest compute_ms, and merge_ms. AUTO: one rank, or prefill */
    int64_t merge_bytes; /* of a rank's partial result */
    double merge_ms;
    double merge_ring_ms, merge_doubling_ms, merge_gather_ms; /* of each schedule among
                                                                 the ranks with tokens */
} hcp_plan;

/* One message of the merging that a decode plan ends with. Those of a round are sent at
 * once, after all of the round before have come. */
typedef struct hcp_merge_send {
    int32_t round, from, to;
    int64_t first_row, n_rows; /* of batch * heads: all heads of a sequence together */
    int32_t merges;            /* 1: `to` merges them into its rows; 0: replaces them */
} hcp_merge_send;

/* What is to be moved where, between two plans? No rank both sends and receives: links
 * are of data that goes one way, as hcp-profile link --one-way measures them. */
typedef struct hcp_move_question {
    size_t size;
    int64_t steps;        /* decode steps to come after it; 0 (default): not known */
    double link_alpha_us; /* start-up time of a transfer, default 0 */
    double link_gbps;     /* link speed; 0 (default): infinitely fast */
    const hcp_link *links; /* as in hcp_question, without anything shared: a pair's own
                              start-up and speed; default none */
    size_t n_links;
    int32_t extrapolate; /* 1: step times outside the measured lengths will do */
} hcp_move_question;

/* Whether to move. */
typedef enum hcp_move_decision {
    HCP_MOVE_OPEN = 0, /* steps are not known: it pays from break_even_steps on */
    HCP_MOVE_STAY = 1, /* it does not pay */
    HCP_MOVE_GO = 2    /* it does, or KV does not fit where it is */
} hcp_move_decision;

/* What one rank sends to another. No size member: it travels in arrays of the caller. */
typedef struct hcp_move {
    int32_t from, to;
    int64_t tokens; /* of each sequence */
    int64_t bytes;  /* K and V of all layers and sequences */
    double ms;      /* alone */
    int64_t first_segment, n_segments; /* which tokens: part of hcp_moves.segments */
} hcp_move;

/* The way from one plan to another. Arrays are the caller's (hcp_moves_init()). */
typedef struct hcp_moves {
    size_t size;
    hcp_move *moves;
    size_t moves_capacity; /* one less than the number of ranks is enough */
    hcp_segment *segments;
    size_t segments_capacity; /* segments of the old plan and moves_capacity are enough */

    size_t n_moves, n_segments; /* 0 where the decision is to stay */
    hcp_move_decision decision;
    int64_t tokens; /* that would change ranks: no fewer make the new shares of the old */
    int64_t bytes;
    double move_ms; /* each rank sends one message at a time and receives one, all ranks
                       at once: the largest sum of times of what a rank sends, or
                       receives */
    double stay_ms; /* a decode step of all layers with KV where it is, over the new
                       plan's link; NaN: it does not fit there */
    double step_ms; /* the same after moving */
    double break_even_steps; /* move_ms / (stay_ms - step_ms); infinite: never pays */
    int64_t steps;           /* of the question */
    double saved_ms; /* by moving: steps * (stay_ms - step_ms) - move_ms; NaN: unknown */
    int32_t exact;   /* 1: no pairing of the ranks takes less than move_ms */
} hcp_moves;

/* One step of one rank of a simulated ring. Block of step k on rank i is the KV of the
 * k-th active rank (with queries or KV) before i; with two levels of w ranks a node, that
 * of the rank k mod w places before it, on the (k / w)-th node before its own. A block
 * that rank never receives (nothing in it is visible here or later) has ready_ms = NaN.
 * Linear work is no step: step 0 starts when that before the ring is done, and a rank
 * ends when that after it follows its last step (with a barrier: everybody's last
 * step). */
typedef struct hcp_step {
    int32_t rank, step, block_of; /* block_of: rank whose KV it is */
    double ready_ms;              /* the whole block, its last piece, is here */
    double start_ms;              /* computing its first piece starts */
    double busy_ms;               /* computing time of all pieces */
    double fin_ms;                /* computing done */
    double wait_ms; /* idle before and between pieces: fin_ms - busy_ms - the previous
                       fin_ms (of step 0: start_ms) */
} hcp_step;

/* A predicted block time. */
typedef struct hcp_prediction {
    size_t size;
    double ms, lo_ms, hi_ms; /* about 90 % confidence */
    hcp_source source;
    char model[8]; /* "lut" "poly" */
} hcp_prediction;

/* HCP_PLAN_VERSION of the library that runs; compare with the header's. */
HCP_API int hcp_plan_version(void);

/* General meaning of a status: a constant string, never NULL. */
HCP_API const char *hcp_strerror(hcp_status status);

/* Names as in JSON and on the command line ("even", "zigzag", "measured", "split");
 * "?" for a number that is none. The _from_name functions return 0 and set *out, or
 * return -1. */
HCP_API const char *hcp_strategy_name(hcp_strategy strategy);
HCP_API int hcp_strategy_from_name(const char *name, hcp_strategy *out);
HCP_API const char *hcp_layout_name(hcp_layout layout);
HCP_API int hcp_layout_from_name(const char *name, hcp_layout *out);
HCP_API const char *hcp_order_name(hcp_order order);
HCP_API const char *hcp_rings_name(hcp_rings rings);
HCP_API const char *hcp_merge_name(hcp_merge merge); /* AUTO: "none" */
HCP_API const char *hcp_move_decision_name(hcp_move_decision decision);
HCP_API const char *hcp_source_name(hcp_source source);
HCP_API const char *hcp_decision_name(hcp_decision decision);

/* Reads every model of the database file at path, and what has been measured. A file
 * without models loads; asking for a rank of it then fails. Opens read-only and closes
 * before it returns; only a file that an older version wrote is brought up to date first,
 * and must be writable for that. Free with hcp_models_free(), which accepts NULL. */
HCP_API hcp_status hcp_models_load(const char *path, char *text, size_t text_size,
                                   hcp_models **out);
HCP_API void hcp_models_free(hcp_models *models);

/* Defaults: bf16, batch 1, 32 query heads, 8 KV heads, head dim 128. */
HCP_API void hcp_shape_init(hcp_shape *shape);
/* Sets size, clears the rest. */
HCP_API void hcp_rank_init(hcp_rank *rank);
/* Defaults as named in the struct. */
HCP_API void hcp_question_init(hcp_question *question);
HCP_API void hcp_move_question_init(hcp_move_question *question);
/* Clears the plan, sets its size and the caller's arrays. */
HCP_API void hcp_plan_init(hcp_plan *plan, hcp_plan_rank *ranks, size_t ranks_capacity,
                           hcp_segment *segments, size_t segments_capacity);

/* Binds n ranks (an array whose elements have the size ranks[0].size) and a shape to
 * models. provider: the kernel to use for all ranks, or NULL: of those that cover all of
 * them the one that does the most on all together, by the longest square block that is
 * measured of each. HCP_STATUS_NO_MODEL names the rank and shape that are missing, near
 * matches, and the command that fills the gap; HCP_STATUS_STALE the rank whose samples
 * changed after the fit. The models must outlive the ring. Free with hcp_ring_free(),
 * which accepts NULL. */
HCP_API hcp_status hcp_ring_create(const hcp_models *models, const hcp_shape *shape,
                                   const hcp_rank *ranks, size_t n, const char *provider,
                                   char *text, size_t text_size, hcp_ring **out);
HCP_API void hcp_ring_free(hcp_ring *ring);
/* The kernel chosen, and the number of ranks. */
HCP_API const char *hcp_ring_provider(const hcp_ring *ring);
HCP_API size_t hcp_ring_size(const hcp_ring *ring);

/* Bytes of workspace that hcp_plan_split(), hcp_plan_evaluate() and hcp_plan_simulate()
 * need for n ranks (0 for an n they do not take), and the segments a plan of n ranks can
 * have (AUTO: in any layout). Any
 * alignment of the workspace will do; its contents need no initialisation and mean
 * nothing between calls. */
HCP_API size_t hcp_workspace_bytes(size_t n_ranks);
HCP_API size_t hcp_segments_max(size_t n_ranks, hcp_layout layout, int32_t stripes);

/* The decision. Tokens add up to seq_len; every share is a multiple of the tile except
 * one; no cap is exceeded; segments cover every position once. Ranks may get no
 * tokens. One to three ranks that send whole blocks (sub_blocks 1): exact over all tile
 * splits and rank subsets; four, contiguous under a causal mask: within 1 % of the best
 * of these (where a few thousand parts of them are enough to tell). Allocates nothing,
 * takes no lock.
 * HCP_STATUS_OUTSIDE: the plan needs block times outside the measured lengths; text
 * names them. HCP_STATUS_INFEASIBLE: text says by how many tokens the caps fall short. */
HCP_API hcp_status hcp_plan_split(const hcp_ring *ring, const hcp_question *question,
                                  void *workspace, size_t workspace_bytes, char *text,
                                  size_t text_size, hcp_plan *plan);

/* The plan of a split of the caller's own: the numbers that hcp_plan_split() gives with
 * its splits, for tokens[n] of the ring's n ranks, which add up to seq_len. No share
 * exceeds its rank's cap (HCP_STATUS_INFEASIBLE names the rank); shares need not be
 * multiples of the tile, and ranks may have none. With the question's kv_tokens the plan
 * is joint: tokens are queries, and kv_tokens stay under the caps. The question's layout
 * is not AUTO; its strategy is not looked at: the plan's is GIVEN. Allocates nothing,
 * takes no lock. */
HCP_API hcp_status hcp_plan_evaluate(const hcp_ring *ring, const hcp_question *question,
                                     const int64_t *tokens, void *workspace,
                                     size_t workspace_bytes, char *text, size_t text_size,
                                     hcp_plan *plan);

/* The messages with which the ranks of a decode plan merge their results, ordered by
 * round, then sender; *n_sends is their number also where sends is NULL and capacity 0.
 * HCP_STATUS_SPACE: capacity is less. */
HCP_API hcp_status hcp_plan_merge_sends(const hcp_plan *plan, hcp_merge_send *sends,
                                        size_t capacity, size_t *n_sends);

/* Sets size and arrays, clears the rest. */
HCP_API void hcp_moves_init(hcp_moves *moves, hcp_move *array, size_t moves_capacity,
                            hcp_segment *segments, size_t segments_capacity);

/* From where a plan (of prefill or decode) keeps its KV to the shares of a decode plan on
 * the same ranks: the fewest tokens that make the new shares of the old, and whether that
 * pays. ring: the new plan's, of phase decode, whose caps say whether KV fits where it
 * is. Both plans have one sequence length, dtype, KV heads and head dim; the batch is
 * that of the new plan. Which tokens a rank keeps does not matter to a step, only how
 * many: it gives away the last of its segments, and the new plan's segments are not
 * looked at. Ranks are those of the ring; an old plan in an order of its own is brought
 * back to it. With one link for all and up to 8 ranks that change, the pairing is the
 * fastest there is (exact). HCP_STATUS_INVALID: the plans do not belong together.
 * Allocates nothing, takes no lock. */
HCP_API hcp_status hcp_plan_moves(const hcp_ring *ring, const hcp_plan *from,
                                  const hcp_plan *to, const hcp_move_question *question,
                                  void *workspace, size_t workspace_bytes, char *text,
                                  size_t text_size, hcp_moves *moves);

/* Fills in memory_bytes of the ranks of a plan from its other members, as an executor
 * that changes its buffers or sub_blocks, or the tokens, must before it runs it.
 * HCP_STATUS_INFEASIBLE names the first rank that needs more than its max_bytes. */
HCP_API hcp_status hcp_plan_memory(hcp_plan *plan, char *text, size_t text_size);

/* The tokens that each of n ranks holds in a layout (not AUTO), in rank order: counts[r]
 * segments of rank r, in the order in which its tokens lie in memory, empty ones left
 * out. tokens[n] add up to seq_len. stripes is looked at for STRIPED
 * only. HCP_STATUS_SPACE: capacity is less than the sum of counts, which are filled in
 * this case too; hcp_segments_max() is always enough. segments NULL with capacity 0:
 * counts alone, and HCP_STATUS_OK. */
HCP_API hcp_status hcp_layout_segments(hcp_layout layout, int32_t stripes, size_t n,
                                       const int64_t *tokens, int64_t seq_len,
                                       hcp_segment *segments, size_t capacity,
                                       int64_t *counts);

/* Replays a plan on a ring of the same ranks, step by step. steps has room for
 * m * m entries, m being the number of ranks with queries or KV (capacity is checked);
 * they come ordered by rank, then step. *n_steps = m * m. Blocks outside the measured
 * lengths: HCP_STATUS_OUTSIDE, unless extrapolate is 1. */
HCP_API hcp_status hcp_plan_simulate(const hcp_ring *ring, const hcp_plan *plan,
                                     int32_t extrapolate, void *workspace,
                                     size_t workspace_bytes, char *text, size_t text_size,
                                     hcp_step *steps, size_t steps_capacity,
                                     size_t *n_steps);

/* Predicted time of one block on a rank: q_len queries against kv_len keys, all visible
 * (causal 0), or query i seeing keys up to i + kv_len - q_len (causal 1). The kernel
 * alone: what an executor needs to bring the result of a kernel that cannot accumulate
 * into its state (the finish pass) is in plans and simulations, not here.
 * out->size must be set. Outside the measured lengths: HCP_STATUS_OUTSIDE, unless
 * extrapolate is 1. Allocates nothing. */
HCP_API hcp_status hcp_block_predict(const hcp_ring *ring, size_t rank,
                                     hcp_model_kind kind, int32_t causal, int64_t q_len,
                                     int64_t kv_len, int32_t extrapolate, char *text,
                                     size_t text_size, hcp_prediction *out);

/* A plan as one line of JSON, the same text in every locale. Writes at most size bytes
 * with the final NUL; *needed (if not NULL) = bytes without it, also when the status is
 * HCP_STATUS_SPACE, so that a first call may pass NULL and 0. */
HCP_API hcp_status hcp_plan_to_json(const hcp_plan *plan, char *json, size_t size,
                                    size_t *needed);

/* How many ranks and segments the plan in a JSON text has, to size the arrays. */
HCP_API hcp_status hcp_plan_json_counts(const char *json, size_t length, char *text,
                                        size_t text_size, size_t *n_ranks,
                                        size_t *n_segments);
/* Reads a plan: strict JSON, unknown members skipped, required ones (schema, seq_len,
 * mask, layout, ranks with device, tokens and segments) present, tokens adding up and
 * segments (of queries and, in a joint plan, of KV) equal to what layout and tokens say;
 * otherwise HCP_STATUS_FORMAT. A plan without sub_blocks has 1. The
 * fingerprint is taken from the text; compare it with hcp_plan_fingerprint() to see
 * whether somebody has edited the file. */
HCP_API hcp_status hcp_plan_from_json(const char *json, size_t length, char *text,
                                      size_t text_size, hcp_plan *plan);

/* Fingerprint of a plan from its members: shape, ranks, options, tokens, segments,
 * makespan and models_hash. */
HCP_API uint64_t hcp_plan_fingerprint(const hcp_plan *plan);

/* ---- several documents in one step ----
 *
 * A pack of documents of any lengths (a packed training batch, a batch of prompts): each
 * token sees tokens of its own document alone, under a causal mask itself and earlier
 * ones. Every document lies whole on one rank, or is cut: then a run of neighbouring
 * ranks (in the caller's order, ranks without tokens left out) shares it, the first
 * tokens on the first of them, and no two documents cross from one rank to the next at
 * the same place. So each document has at most one part a rank, and there are fewer cuts
 * than ranks.
 *
 * What a plan's times assume. A rank does the linear work before attention of all its
 * tokens, then its whole documents and own blocks of its parts, each a call of the
 * kernel, then the block of each earlier part of the document it shares, nearest first,
 * as its keys and values come, and the linear work after that. Keys and values go from
 * rank to rank along the run, nearest first, a block at a time; a link does not send
 * before both of its ends are done with their linear work before attention; there is a
 * buffer for every block received. Documents do not wait for each other. */

/* Most documents of a pack, and most ranks that they are spread over. */
#define HCP_DOCUMENTS_MAX ((size_t)1 << 20)
#define HCP_DOCUMENTS_MAX_RANKS 256

/* What to spread, and how. */
typedef struct hcp_documents {
    size_t size;
    const int64_t *lengths; /* [n_documents] tokens, 1 or more each; together at most
                               HCP_PLAN_MAX_LEN */
    size_t n_documents;
    int32_t causal; /* default 1; 0: a token sees all of its document, none is cut */
    int32_t whole;  /* 1: none is cut; default 0 */
    double cut_gain; /* cuts must make the whole step faster by more than this part of it,
                        0 .. 10; default 0.01. 0: any gain will do */
    int64_t tile; /* cuts lie at multiples of it from the document's start; 0 (default):
                     the largest kernel tile among the ranks' models */
    double link_alpha_us, link_gbps; /* of transfers between ranks, as in hcp_question */
    int32_t extrapolate;             /* as there */
    int32_t layers;                  /* as there, default 1 */
    int64_t activation_bytes;
} hcp_documents;

/* Why areas are uneven by more than 2 %. */
typedef enum hcp_uneven {
    HCP_UNEVEN_NO = 0,    /* they are not */
    HCP_UNEVEN_TIME = 1,  /* times are even within 2 %: calls, tiles and linear work cost
                             beside area */
    HCP_UNEVEN_WHOLE = 2, /* documents are not to be cut, or none is under this mask */
    HCP_UNEVEN_GAIN = 3,  /* cuts would gain less than cut_gain */
    HCP_UNEVEN_CAPS = 4,  /* a rank with time left cannot hold a tile more */
    HCP_UNEVEN_TILE = 5,  /* a tile of its longest part takes the rank that finishes last
                             more than 2 % of the mean time, or the one that finishes
                             first more than it has left */
    HCP_UNEVEN_WAIT = 6,  /* a rank waits for keys and values for more than 2 % of the
                             mean time */
    HCP_UNEVEN_COST = 7   /* none of these: no cut was found whose calls and transfers
                             cost less than it evens out */
} hcp_uneven;

/* Tokens [offset, offset + length) of a document. No size member, as hcp_segment. */
typedef struct hcp_document_part {
    int64_t document, offset, length;
} hcp_document_part;

/* A rank's part of a plan for documents. No size member, as hcp_plan_rank. */
typedef struct hcp_documents_rank {
    char device[64], limit[32], model[8];
    int64_t tokens;
    int64_t area;            /* (query, key) pairs that it computes */
    int64_t received_tokens; /* whose keys and values come from earlier ranks */
    int64_t first_part, n_parts; /* its part of hcp_documents_plan.parts, in which
                                    documents ascend */
    double predicted_ms; /* when it has finished */
    double compute_ms;   /* its calls, finish passes and linear work; the rest waiting */
    double linear_before_us, linear_before_fixed_us; /* as in hcp_rank */
    double linear_after_us, linear_after_fixed_us, linear_error;
    int64_t max_tokens, max_bytes, weight_bytes;
    int64_t memory_bytes; /* weights, K and V of all layers and activation_bytes of its
                             tokens, and K and V of a layer of those it receives; 0
                             without tokens */
    double time_scale; /* as in hcp_rank, 1 where that is 0 */
    char kin[96]; /* as in hcp_plan_rank */
} hcp_documents_rank;

/* The answer. The caller provides the arrays and their capacities
 * (hcp_documents_plan_init()); everything else is output. */
typedef struct hcp_documents_plan {
    size_t size;
    hcp_documents_rank *ranks;
    size_t ranks_capacity;
    hcp_document_part *parts;
    size_t parts_capacity; /* n_documents + ranks - 1 is always enough */
    int64_t *lengths;
    size_t lengths_capacity;

    size_t n_ranks, n_parts, n_documents;
    hcp_shape shape;
    char provider[32];
    int32_t causal, whole;
    double cut_gain;
    int64_t tile;
    double link_alpha_us, link_gbps;
    int32_t layers;
    int64_t activation_bytes;

    int64_t n_cut;      /* documents on more than one rank */
    double makespan_ms; /* the rank that finishes last */
    double interval_lo_ms, interval_hi_ms; /* about 90 %, as in hcp_plan */
    double bound_ms; /* all area and linear work, every rank being busy all the time and
                        as fast as on the document that suits it best, or in this plan: no
                        plan at these speeds is faster */
    double even_ms;  /* the documents one after the other as given, the same number of
                        tokens on each rank but for cuts at whole tiles; NaN: over a cap,
                        outside the measured lengths, or cut under a full mask */
    double gain_over_even; /* even_ms / makespan_ms */
    double whole_ms; /* the fastest found without cuts; NaN: none under the caps or inside
                        the measured lengths */
    double gain_over_whole;
    double imbalance;      /* longest compute_ms over their mean, less 1 */
    double area_imbalance; /* the same of area over the rank's speed on the whole pack */
    hcp_uneven uneven;     /* why that is above 0.02 */
    hcp_source source;
    int32_t critical_rank;
    int32_t exact; /* 1: no other plan of this kind is predicted faster, but for what
                      cut_gain leaves (of few documents and tiles on up to 6 ranks) */
    int32_t given; /* 1: parts are the caller's */
    uint64_t models_hash, fingerprint;
} hcp_documents_plan;

/* "no" "time" "whole" "gain" "caps" "tile" "wait" "cost"; "?" for a number that is
 * none. */
HCP_API const char *hcp_uneven_name(hcp_uneven uneven);

/* Defaults as named in the struct. */
HCP_API void hcp_documents_init(hcp_documents *documents);
/* Clears the plan, sets its size and the caller's arrays. */
HCP_API void hcp_documents_plan_init(hcp_documents_plan *plan, hcp_documents_rank *ranks,
                                     size_t ranks_capacity, hcp_document_part *parts,
                                     size_t parts_capacity, int64_t *lengths,
                                     size_t lengths_capacity);

/* Bytes of workspace that the next two need, of any alignment; 0 for numbers that they do
 * not take. */
HCP_API size_t hcp_documents_workspace_bytes(const hcp_ring *ring, size_t n_documents);

/* Spreads documents over the ranks of a ring (phase prefill, batch 1) so that the last
 * rank finishes as early as possible: caps are kept, no token is lost, and a document is
 * cut only where that helps. Never predicted slower than whole documents by more than
 * cut_gain, nor than even tokens by more than that. Allocates nothing, takes no lock.
 * HCP_STATUS_OUTSIDE names a length that is not measured, HCP_STATUS_INFEASIBLE what the
 * caps fall short by. */
HCP_API hcp_status hcp_documents_split(const hcp_ring *ring,
                                       const hcp_documents *documents, void *workspace,
                                       size_t workspace_bytes, char *text,
                                       size_t text_size, hcp_documents_plan *plan);

/* The plan of parts of the caller's own: counts[n] of each rank, one rank after another,
 * in any order. They are whole documents, and cut ones as above; cuts need not lie on
 * tiles. */
HCP_API hcp_status hcp_documents_evaluate(const hcp_ring *ring,
                                          const hcp_documents *documents,
                                          const hcp_document_part *parts,
                                          const int64_t *counts, void *workspace,
                                          size_t workspace_bytes, char *text,
                                          size_t text_size, hcp_documents_plan *plan);

/* As hcp_plan_to_json(), hcp_plan_json_counts(), hcp_plan_from_json() and
 * hcp_plan_fingerprint(). Reading refuses text in which a token of a document is missing
 * or comes twice, or parts are none that a plan can have. */
HCP_API hcp_status hcp_documents_to_json(const hcp_documents_plan *plan, char *json,
                                         size_t size, size_t *needed);
HCP_API hcp_status hcp_documents_json_counts(const char *json, size_t length, char *text,
                                             size_t text_size, size_t *n_ranks,
                                             size_t *n_parts, size_t *n_documents);
HCP_API hcp_status hcp_documents_from_json(const char *json, size_t length, char *text,
                                           size_t text_size, hcp_documents_plan *plan);
HCP_API uint64_t hcp_documents_fingerprint(const hcp_documents_plan *plan);

/* ---- rebalancing while a plan runs ----
 *
 * Measured compute times of every rank go in step by step (a step is a pass of the plan);
 * a speed that has changed is told from noise, and where it pays a plan for the speeds as
 * they are now comes out. Objects that see the same numbers say the same, in whatever
 * order the ranks' times of a step come: ranks need exchange nothing but the times.
 *
 *     hcp_rebalance_create()    once, with the plan that runs
 *     hcp_rebalance_observe()   each rank's time of the step; hcp_rebalance_fail(),
 *                               hcp_rebalance_skip()
 *     hcp_rebalance_step()      the verdict at the end of the step
 *     hcp_rebalance_proposal()  the plan, where that is to move; once all ranks run it:
 *     hcp_rebalance_adopt()
 *
 * A time is taken as a factor on what the models say of the rank's blocks and linear
 * work: its time_scale. Speeds are told to have changed by the sum of the last 2 or 3
 * steps, in which no outlier counts for all, and by how many of the last 5, 9, 17 and 33
 * (the larger half) lie beyond a threshold on one side of what came before. The standard
 * deviation is estimated from the differences of steps one and two apart, with those of
 * other ranks where they are alike, and taken to be no less than the models' held-out
 * error (of data sheets their kin's, and a part for the estimate, whose level the times
 * tell). Until a speed has changed its factor is the mean of its times and of what was
 * given, weighed by their errors. A move must save more a step than the error bar of what
 * it saves: where ranks' shares change as much of the held-out error as of the share, and
 * 0.4 standard errors of the factors, which is what such errors cost on average (of
 * speeds that were not seen to change so many as exceed chance, and one must be beyond
 * the noise of a step); and, times the steps that speeds are taken to last, more than it
 * costs. Only + - * / sqrt decide; nothing is allocated and no lock taken after
 * hcp_rebalance_create(). An object is one thread's at a time; the ring must outlive
 * it. */
typedef struct hcp_rebalance hcp_rebalance;

typedef struct hcp_rebalance_options {
    size_t size;
    double false_alarms; /* probability that a rank's speed is told to have changed in a
                            step in which noise alone, normal and independent, would do
                            it: 1e-12 .. 0.1, default 1e-8 */
    double noise;    /* relative standard deviation of the times until it is known,
                        0 .. 1; default 0.05 */
    double min_gain; /* part of a step that a move saves at least, 0 .. 1; default 0.01 */
    double move_ms;  /* what a move costs: default 0 */
    int32_t move_kv; /* 1: and the KV of tokens that change ranks, all layers of the
                        question, goes from rank to rank over the link below, a rank's
                        after the other; default 0: what is there stays, only what comes
                        is split anew */
    double link_alpha_us, link_gbps; /* a message each rank that receives; 0 (default):
                                        infinitely fast */
    int64_t expected_steps; /* how long speeds last once they have changed. Default 0: not
                               known, and a change must have lasted until staying has cost
                               what a move does: speeds that swing faster than that move
                               nothing */
} hcp_rebalance_options;

typedef enum hcp_rebalance_decision {
    HCP_REBALANCE_KEEP = 0,
    HCP_REBALANCE_MOVE = 1, /* to the proposal */
    HCP_REBALANCE_STUCK = 2 /* a rank failed, and there is no plan without it: text says
                               why */
} hcp_rebalance_decision;

/* Why. */
typedef enum hcp_rebalance_reason {
    HCP_REBALANCE_STEADY = 0, /* no speed has changed */
    HCP_REBALANCE_SAME = 1,   /* one has; no other plan is faster */
    HCP_REBALANCE_SMALL = 2,  /* another is, by less than margin_ms */
    HCP_REBALANCE_COST = 3,   /* moving costs more than is saved in the steps left */
    HCP_REBALANCE_WAIT = 4,   /* the change has not lasted long enough */
    HCP_REBALANCE_NO_PLAN = 5, /* there is no plan for these speeds: text says why */
    HCP_REBALANCE_GAIN = 6,   /* to move pays */
    HCP_REBALANCE_FAILED = 7  /* a rank with tokens has failed */
} hcp_rebalance_reason;

typedef struct hcp_rebalance_verdict {
    size_t size;
    int64_t step; /* number of this step, from 0 */
    hcp_rebalance_decision decision;
    hcp_rebalance_reason reason;
    int32_t changed;         /* ranks whose speed was told to have changed in this step */
    int32_t failed;          /* ranks that failed in it */
    double stay_ms, move_to_ms; /* a step of the plan that runs and of the best one at the
                                   present speeds; NaN: not looked for in this step */
    double margin_ms;        /* that stay_ms - move_to_ms must exceed */
    double cost_ms;          /* of the move */
    double break_even_steps; /* cost_ms / (stay_ms - move_to_ms); infinite: never pays */
    double lost_ms;          /* what staying has cost since the change, less the margin */
    int64_t move_tokens, move_bytes; /* whose KV changes ranks, with move_kv */
    int64_t lost_tokens;     /* whose KV is lost with ranks that failed */
    uint64_t fingerprint;    /* of the proposal; 0: none */
} hcp_rebalance_verdict;

/* What is known of a rank. */
typedef struct hcp_rebalance_rank {
    size_t size;
    double time_scale; /* as it is now, */
    double error;      /* its relative standard error, */
    double plan_scale; /* and as the plan that runs takes it to be */
    double noise;      /* relative standard deviation of its times */
    int64_t steps;     /* since it changed */
    int32_t failed;
} hcp_rebalance_rank;

/* Tokens whose KV a failed rank has lost and `rank` is to recompute. No size member. */
typedef struct hcp_recompute {
    int32_t lost_by, rank;
    int64_t offset, length;
} hcp_recompute;

/* "keep" "move" "stuck"; "steady" "same" "small" "cost" "wait" "no plan" "gain"
 * "failed". */
HCP_API const char *hcp_rebalance_decision_name(hcp_rebalance_decision decision);
HCP_API const char *hcp_rebalance_reason_name(hcp_rebalance_reason reason);

/* Defaults as named in the struct. */
HCP_API void hcp_rebalance_options_init(hcp_rebalance_options *options);

/* The question that a plan answers, as far as the plan says: its layout, tile, buffers,
 * pieces, link, nodes, layers and strategy (BEST for one that was given). Links between
 * pairs and caps are not among it: hcp_rank has these. */
HCP_API hcp_status hcp_plan_question(const hcp_plan *plan, hcp_question *question);

/* plan: of this ring, that runs now. question: what hcp_plan_split() is to be asked for
 * another one; in the order of the ring's ranks, queries and KV together. Both, and the
 * links of the question, are copied. options NULL: defaults. Free with
 * hcp_rebalance_free(), which accepts NULL. */
HCP_API hcp_status hcp_rebalance_create(const hcp_ring *ring,
                                        const hcp_question *question,
                                        const hcp_plan *plan,
                                        const hcp_rebalance_options *options, char *text,
                                        size_t text_size, hcp_rebalance **out);
HCP_API void hcp_rebalance_free(hcp_rebalance *rebalance);

/* A rank computed for measured_ms in the step that runs (hcp_plan_rank.compute_ms:
 * waiting is not in it). predicted_ms: what the models say of it at time_scale 1, where
 * the step is not a pass of the plan that runs (a chunk of a prompt, say); 0: that
 * plan's. A rank without tokens need not be heard of. A time that is not finite, or not
 * above 0 of a rank with tokens, is that of a rank that failed. HCP_STATUS_INVALID: no
 * such rank, or twice in a step. */
HCP_API hcp_status hcp_rebalance_observe(hcp_rebalance *rebalance, size_t rank,
                                         double measured_ms, double predicted_ms);
/* It has failed: it gets no tokens from now on. */
HCP_API hcp_status hcp_rebalance_fail(hcp_rebalance *rebalance, size_t rank);
/* It is there, and has no time to tell of: the step was cut off by another's failure. */
HCP_API hcp_status hcp_rebalance_skip(hcp_rebalance *rebalance, size_t rank);
/* A rank that failed is back, or one without tokens was measured by other means. */
HCP_API hcp_status hcp_rebalance_restore(hcp_rebalance *rebalance, size_t rank,
                                         double time_scale);

/* Ends a step. A rank with tokens that was not heard of has failed. steps_left: steps to
 * come; below 0: not known. A proposal lasts until the next step begins. */
HCP_API hcp_status hcp_rebalance_step(hcp_rebalance *rebalance, int64_t steps_left,
                                      char *text, size_t text_size,
                                      hcp_rebalance_verdict *verdict);
/* The plan to move to; NULL: none is proposed. */
HCP_API const hcp_plan *hcp_rebalance_proposal(const hcp_rebalance *rebalance);
/* The plan that runs, as it was predicted when it was taken. */
HCP_API const hcp_plan *hcp_rebalance_plan(const hcp_rebalance *rebalance);
/* Of a proposal after a failure, what is lost: *n of them also where array is NULL and
 * capacity 0. HCP_STATUS_SPACE: capacity is less. */
HCP_API hcp_status hcp_rebalance_recompute(const hcp_rebalance *rebalance,
                                           hcp_recompute *array, size_t capacity,
                                           size_t *n);
/* The next step is one of the proposal. HCP_STATUS_INVALID: there is none. */
HCP_API hcp_status hcp_rebalance_adopt(hcp_rebalance *rebalance);

/* out->size must be set. */
HCP_API hcp_status hcp_rebalance_rank_state(const hcp_rebalance *rebalance, size_t rank,
                                            hcp_rebalance_rank *out);

/* Of all that later verdicts depend on. */
HCP_API uint64_t hcp_rebalance_fingerprint(const hcp_rebalance *rebalance);
/* The same as text, between steps, for a rank that joins: it creates an object of the
 * same ring, question and options (with any plan of them), and reads it. As
 * hcp_plan_to_json() and hcp_plan_from_json(). HCP_STATUS_INVALID: in the middle of a
 * step. */
HCP_API hcp_status hcp_rebalance_to_json(const hcp_rebalance *rebalance, char *json,
                                         size_t size, size_t *needed);
HCP_API hcp_status hcp_rebalance_from_json(hcp_rebalance *rebalance, const char *json,
                                           size_t length, char *text, size_t text_size);
/* ---- GPUs that nobody has profiled ----
 *
 * A rank whose device is "spec:NAME" stands for a GPU of which there is a data sheet and
 * no profile. Its times are those of a measured device that is in the table of data
 * sheets too, the nearest of its kind, by what the sheets of the two say: the part of a
 * block's time that a roofline gives to arithmetic goes by FLOP/s and by waves of tiles
 * over its SMs, the part that it gives to memory by bandwidth, and a fixed cost stays.
 * How far such times have been off where they could be checked, and why, is in
 * planner/specs.md; error bars are as wide as that, and the source of every plan of such
 * a ring is HCP_FROM_ESTIMATED. Profile the machine as soon as there is one. */

/* A table of data sheets; immutable, shared by threads. */
typedef struct hcp_specs hcp_specs;

/* A line of it. Numbers are those of the whole device; 0: not known, or not there. */
typedef struct hcp_spec {
    size_t size;
    char name[64], arch[16];
    char aliases[256]; /* other names, by commas */
    char source[160];  /* the data sheet's name */
    int32_t sms;
    double bf16_tflops, fp16_tflops, fp32_tflops; /* dense */
    double memory_gbps, memory_gb;                /* 1e9 bytes */
    int64_t memory_bytes;
    double nvlink_gbps, pcie_gbps; /* both directions together */
} hcp_spec;

/* From what the times of a rank are estimated, and how they would be measured. */
typedef struct hcp_rank_estimate {
    size_t size;
    int32_t estimated;            /* 0: they are measured, and the rest is 0 */
    char name[64];                /* the table's, where the rank has an alias */
    char kin_device[64], kin_limit[32];
    int32_t sms, kin_sms;         /* under the limits */
    double kin_tflops, kin_gbps;  /* of its data sheet, for the ring's dtype, and */
    double flops_ratio, memory_ratio; /* of FLOP/s and bandwidth to those, limits
                                         included */
    double factor; /* times are taken to be within this factor of those given, either way;
                      the kin's own error bars come on top. About 90 % confidence within a
                      generation of tensor cores, where that was checked cell by cell;
                      across them the largest factor of a few published figures */
    int64_t memory_bytes;
    char command[512]; /* to be run on that machine */
} hcp_rank_estimate;

/* Reads a table: text, its format is in hcp-db(5). HCP_STATUS_INVALID names the line and
 * what is wrong with it. Free with hcp_specs_free(), which accepts NULL. */
HCP_API hcp_status hcp_specs_load(const char *path, char *text, size_t text_size,
                                  hcp_specs **out);
HCP_API void hcp_specs_free(hcp_specs *specs);
/* Its lines in the order of the file; out->size must be set. HCP_STATUS_INVALID: i is not
 * below the count. */
HCP_API size_t hcp_specs_count(const hcp_specs *specs);
HCP_API hcp_status hcp_specs_get(const hcp_specs *specs, size_t i, hcp_spec *out);
/* The line of a name or alias, with "spec:" before it or without. HCP_STATUS_NO_MODEL:
 * there is none; text says which are like it. */
HCP_API hcp_status hcp_specs_find(const hcp_specs *specs, const char *name, char *text,
                                  size_t text_size, hcp_spec *out);

/* As hcp_models_load(), for rings with ranks of data sheets, too. specs is copied. */
HCP_API hcp_status hcp_models_load_specs(const char *path, const hcp_specs *specs,
                                         char *text, size_t text_size, hcp_models **out);

/* What a rank's times are estimated from. out->size must be set. */
HCP_API hcp_status hcp_ring_estimate(const hcp_ring *ring, size_t rank,
                                     hcp_rank_estimate *out);
/* ---- prefill and decode on ranks of their own ----
 *
 * A batch of requests is prefilled by one group of ranks, its keys and values (KV) are
 * sent to another, and that decodes: disaggregation. Or the same ranks do both in turn:
 * colocation. Ranks that are alike (hcp_rank but for its size) are a class; of a class a
 * group has any number. Every group has the plan that hcp_plan_split() gives it, in a
 * ring of its own in the caller's order, with the fastest kernel that all of its ranks
 * have: two groups can have two kernels.
 *
 * What times assume. TTFT (time to first token) is the prefill of the whole batch, all
 * layers. KV is sent when that is done, or layer by layer beside it (stream); a rank
 * sends one message at a time and receives one, as in hcp_plan_moves(). A decode step is
 * that of the plan, all layers, and the largest decode_linear_us of its ranks, its keys
 * those of the prompt. With `steps` of them:
 *
 *   latency = TTFT + transfer + steps * step           of a batch that comes alone
 *   period  = max(TTFT, transfer, steps * step)        of a stream, disaggregated: the
 *             groups and the links between them work side by side, on three batches
 *   period  = latency                                  of a stream, colocated
 *   TPOT    = (transfer + steps * step) / steps        time per output token
 *
 * Caps are those of hcp_rank. A rank that does both has its weights once, and at one time
 * KV as one phase has it or the other. Prefill has KV of all sequences at its end. In a
 * stream the ranks of both groups have that of two batches: one is sent, or received,
 * while they work on the other. */

/* Most ranks, and kinds of groups up to which all are looked at. */
#define HCP_DISAGG_MAX_RANKS 256
#define HCP_DISAGG_MAX_GROUPS 1024

/* What is to be short. */
typedef enum hcp_disagg_objective {
    HCP_DISAGG_THROUGHPUT = 0, /* the period of a steady stream of batches */
    HCP_DISAGG_LATENCY = 1     /* one batch */
} hcp_disagg_objective;

typedef enum hcp_disagg_decision {
    HCP_DISAGG_COLOCATE = 0, /* no two groups apart from each other do better */
    HCP_DISAGG_SEPARATE = 1
} hcp_disagg_decision;

typedef struct hcp_disagg hcp_disagg; /* groups of ranks, both phases, bound to models */

/* What is asked. */
typedef struct hcp_disagg_question {
    size_t size;
    const hcp_question *prefill; /* seq_len (the prompt), mask, layout, link of the ring,
                                    layers, ... without order, links, late_kv, joint,
                                    nodes and strategy GIVEN */
    const hcp_question *decode;  /* link and schedule of the merge, tile, strategy; its
                                    seq_len and layers are those of prefill. NULL
                                    (default): link, extrapolate and activation_bytes of
                                    prefill, else defaults */
    int64_t steps;               /* tokens to generate after the first one, 1 .. 2^40 */
    hcp_disagg_objective objective;
    double ttft_limit_ms; /* not to be exceeded; 0 (default): none */
    double tpot_limit_ms;
    double link_alpha_us; /* of KV transfers, as in hcp_question */
    double link_gbps;     /* 0 (default): infinitely fast */
    int32_t stream; /* 1: KV of a layer (of each run of prefill) is sent while the next is
                       computed: k pieces of TTFT and transfer take p + (k - 1) max(p, x)
                       + x, each with a start-up time. Default 0 */
} hcp_disagg_question;

/* The best of one kind. No size member, as hcp_move. */
typedef struct hcp_disagg_option {
    int32_t exists; /* 0: caps, limits, kernels or measured lengths leave none; no more */
    int32_t stays;  /* 1: decode runs on the shares that prefill leaves: no transfer */
    int32_t prefill_ranks, decode_ranks, both_ranks; /* with tokens in that phase, in
                                                        both */
    int64_t move_bytes;
    double ttft_ms, move_ms; /* transfer, alone */
    double exposed_ms;       /* of it after prefill */
    double step_ms, tpot_ms, latency_ms, period_ms;
    double interval_lo_ms, interval_hi_ms; /* of the objective, about 90 %, as in
                                              hcp_plan */
    double bound_ms; /* of the objective: no other numbers of ranks of each class take
                        less, groups having the plans they have. 0: not all were looked
                        at */
    double requests_per_s;                 /* batch / period_ms */
} hcp_disagg_option;

/* A rank's part. No size member. */
typedef struct hcp_disagg_rank {
    char device[64], limit[32];
    int32_t class_of; /* number of its class, by first rank */
    int32_t colocated, separate; /* tokens in 1: prefill, 2: decode, 3: both, 0: none, in
                                    the best of each kind */
    /* In the one that is advised: */
    int32_t prefill_place, decode_place; /* index in the plan's ranks; -1: not in the
                                            group */
    int64_t prefill_tokens, decode_tokens; /* of each sequence, whose KV it has */
    int64_t max_bytes, weight_bytes;
    int64_t memory_bytes; /* at most, of both phases and batches; 0: it has nothing */
} hcp_disagg_rank;

/* The answer. The caller provides arrays and two plans (hcp_disagg_advice_init()). */
typedef struct hcp_disagg_advice {
    size_t size;
    hcp_disagg_rank *ranks;
    size_t ranks_capacity;
    hcp_plan *prefill; /* of one run of prefill, one layer, as hcp_plan_split() has it */
    hcp_plan *decode;  /* both with arrays for all ranks; written also where the call
                          fails after the decision */
    hcp_move *moves;   /* from and to are ranks of the caller */
    size_t moves_capacity;
    hcp_segment *segments;
    size_t segments_capacity; /* segments of the prefill plan and moves_capacity */

    size_t n_ranks, n_moves, n_segments;
    int32_t n_classes;
    hcp_disagg_decision decision;
    hcp_disagg_objective objective; /* as in the question, and the four after it */
    int64_t steps;
    double link_alpha_us, link_gbps;
    int32_t stream;
    int32_t batch, layers;
    int32_t prefill_runs; /* one after the other: batch over the batch of prefill */
    hcp_disagg_option colocated, separate;
    double gain_over_colocated; /* of the best with ranks apart; NaN: one does not
                                   exist */
    int32_t within_error;       /* 1: the intervals of both overlap */
    /* Nearest speed of transfers, and number of steps, at which the answer is another one
     * (or there is none); 0: none that low, infinite or 0: none that high. Looked for by
     * fifths of what is asked up to ten times that, then in doublings. */
    double turns_below_gbps, turns_above_gbps;
    int64_t turns_below_steps, turns_above_steps;
    int32_t exact;     /* 1: bound_ms of both is what they take (of many ranks the pairing
                          of transfers need not be the fastest) */
    int32_t n_groups;  /* kinds of groups looked at */
    int32_t n_unknown; /* of these left out: lengths not measured in a phase */
    hcp_source source; /* of the plans advised; where a rank is a data sheet, estimated,
                          also where neither plan has it */
} hcp_disagg_advice;

/* "throughput" "latency"; "colocate" "disaggregate"; "?" for a number that is none. */
HCP_API const char *hcp_disagg_objective_name(hcp_disagg_objective objective);
HCP_API const char *hcp_disagg_decision_name(hcp_disagg_decision decision);

/* Defaults as named in the struct. */
HCP_API void hcp_disagg_question_init(hcp_disagg_question *question);
/* Clears the answer, sets its size, arrays and plans, which have arrays of their own. */
HCP_API void hcp_disagg_advice_init(hcp_disagg_advice *advice, hcp_disagg_rank *ranks,
                                    size_t ranks_capacity, hcp_plan *prefill,
                                    hcp_plan *decode, hcp_move *moves,
                                    size_t moves_capacity, hcp_segment *segments,
                                    size_t segments_capacity);

/* Binds the groups of 2 to HCP_DISAGG_MAX_RANKS ranks to models, in both phases: shapes
 * that differ in batch and phase alone. Prefill takes its own batch at a time. Providers:
 * as in hcp_ring_create(), of prefill and of decode. HCP_STATUS_NO_MODEL and
 * HCP_STATUS_STALE: of a class that lacks a phase altogether, with the command that fills
 * the gap; a group without a common kernel is left out. With more kinds of groups than
 * HCP_DISAGG_MAX_GROUPS prefill takes the ranks that are best at it beside decode, decode
 * those that are worst, and only some numbers of them are looked at. Free with
 * hcp_disagg_free(), which accepts NULL; models must outlive it. */
HCP_API hcp_status hcp_disagg_create(const hcp_models *models, const hcp_shape *prefill,
                                     const hcp_shape *decode, const hcp_rank *ranks,
                                     size_t n, const char *prefill_provider,
                                     const char *decode_provider, char *text,
                                     size_t text_size, hcp_disagg **out);
HCP_API void hcp_disagg_free(hcp_disagg *disagg);
/* Bytes of workspace that the next one needs, of any alignment. */
HCP_API size_t hcp_disagg_workspace_bytes(const hcp_disagg *disagg);

/* Advises. Allocates nothing, takes no lock. HCP_STATUS_INFEASIBLE: caps hold nowhere, or
 * limits are not kept anywhere: the text has the least TTFT and TPOT there are.
 * HCP_STATUS_OUTSIDE: all that there is needs lengths that are not measured. */
HCP_API hcp_status hcp_disagg_advise(const hcp_disagg *disagg,
                                     const hcp_disagg_question *question, void *workspace,
                                     size_t workspace_bytes, char *text, size_t text_size,
                                     hcp_disagg_advice *advice);

/* ---- one prompt in chunks ----
 *
 * A long prompt under a causal mask, prefilled in chunks of consecutive tokens, a chunk a
 * step (an engine runs decode steps of other requests between them). The tokens of a
 * chunk are split over the ranks; each computes their queries against the keys and values
 * of all earlier chunks and of its chunk's earlier tokens. Keys and values stay on the
 * rank that computed them: what is resident never moves, each chunk's split is its own.
 *
 * What a plan's times assume. Ranks with tokens of the chunk or resident keys and values
 * form a ring in the caller's order. A rank's block is what is resident on it and its new
 * tokens, sent in one transfer. A rank does the linear work before attention of its new
 * tokens, then its own block, then the others' from its neighbour backwards, then the
 * linear work after that. Calls of q new tokens of its own on a block of r resident and k
 * new ones: the keys that all q see are one call (r; and k of an earlier rank if
 * CONTIGUOUS, its front half, rounded up, if ZIGZAG); of its own block also the causal
 * square of q; of a later rank under ZIGZAG q / 2 (rounded down) on k; STRIPED as in
 * hcp_plan_split(). A block travels to the last rank with work on it; ranks between pass
 * it on. `buffers` blocks have room beside the own one, as in hcp_question. A step takes
 * step_fixed_ms and `layers` times that. */

/* Most ranks, and most chunks of a plan. */
#define HCP_CHUNKS_MAX_RANKS 64
#define HCP_CHUNKS_MAX ((size_t)1 << 16)

/* What to cut into chunks, and how. */
typedef struct hcp_chunks {
    size_t size;
    int64_t seq_len;       /* 1 .. HCP_PLAN_MAX_LEN */
    double step_budget_ms; /* no step takes longer; 0 (default): no budget */
    double step_fixed_ms;  /* of every step beside its layers, default 0 */
    int64_t chunk_len;     /* tokens of every chunk but the last; with a budget the most
                              that a chunk has. 0 (default): no limit */
    int32_t layers;        /* of a step, and whose KV is kept, 1 .. 65536; default 1 */
    hcp_layout layout;     /* of new tokens; AUTO (default): of each chunk the faster of
                              contiguous and zigzag */
    int32_t stripes;       /* of STRIPED, default 8 */
    int64_t tile;          /* chunks by budget, and shares, are multiples of it but for
                              one share of a chunk that is none; 0 (default): the largest
                              kernel tile among the ranks' models */
    int32_t buffers;       /* as in hcp_question, default 2 */
    double link_alpha_us, link_gbps;
    int32_t extrapolate;
    int64_t activation_bytes; /* of a new token */
} hcp_chunks;

/* A step. No size member, as hcp_segment. */
typedef struct hcp_chunk {
    int64_t offset, tokens; /* of the prompt; offset is how many tokens are resident */
    hcp_layout layout;      /* not AUTO */
    hcp_source source;
    double predicted_ms; /* of a layer: the rank that finishes last */
    double interval_lo_ms, interval_hi_ms; /* of that, about 90 % */
    double bound_ms; /* of a layer: no split of these tokens is faster, keys and values
                        being where they are */
    double step_ms;  /* step_fixed_ms + layers * predicted_ms */
    double least_ms; /* the step of a tile (or of what is left), where it is done first */
    int32_t critical_rank, least_rank;
} hcp_chunk;

/* A rank's part of a chunk. */
typedef struct hcp_chunk_share {
    int64_t tokens;   /* new ones, whose queries and KV are this rank's */
    int64_t resident; /* tokens of earlier chunks whose KV it holds */
    int64_t first_segment, n_segments; /* its new tokens in hcp_chunks_plan.segments, by
                                          their place in the prompt */
    double predicted_ms, compute_ms;   /* of a layer, as in hcp_plan_rank */
    double least_ms; /* the step of a tile on this rank alone: beyond the budget the rank
                        can take none of this chunk */
    int64_t memory_bytes; /* weights, KV of all layers of what it holds then, activations
                             of new tokens, and a layer's KV of the blocks received; 0
                             without either */
} hcp_chunk_share;

/* A rank. No size member, as hcp_plan_rank. */
typedef struct hcp_chunks_rank {
    char device[64], limit[32], model[8];
    int64_t tokens; /* of the whole prompt, whose KV it holds at the end */
    int64_t max_tokens, max_bytes, weight_bytes;
    double linear_before_us, linear_before_fixed_us; /* as in hcp_rank */
    double linear_after_us, linear_after_fixed_us, linear_error;
    int64_t memory_bytes; /* the most of all chunks */
    double time_scale;    /* as in hcp_rank, 1 where that is 0 */
    char kin[96];         /* as in hcp_plan_rank */
} hcp_chunks_rank;

/* The answer. The caller provides the arrays and their capacities
 * (hcp_chunks_plan_init()); everything else is output. */
typedef struct hcp_chunks_plan {
    size_t size;
    hcp_chunks_rank *ranks;
    size_t ranks_capacity;
    hcp_chunk *chunks;
    size_t chunks_capacity; /* no plan has more: seq_len / tile + 1 is always enough */
    hcp_chunk_share *shares; /* of rank r in chunk c: shares[c * n_ranks + r] */
    size_t shares_capacity;  /* chunks_capacity * ranks */
    hcp_segment *segments;
    size_t segments_capacity; /* twice that, or with STRIPED `stripes` times */

    size_t n_ranks, n_chunks, n_segments;
    hcp_shape shape;
    char provider[32];
    int64_t seq_len;
    double step_budget_ms, step_fixed_ms;
    int64_t chunk_len;
    int32_t layers, stripes, buffers;
    int64_t tile;
    double link_alpha_us, link_gbps;
    int64_t activation_bytes;

    double total_ms; /* sum of step_ms */
    double interval_lo_ms, interval_hi_ms;
    double bound_ms;        /* of these chunks, each as in hcp_chunk */
    double longest_step_ms; /* at most the budget, but for chunks of the caller's own */
    double least_ms;        /* largest least_ms: of this plan no smaller budget could be
                               met */
    double whole_ms;        /* all of the prompt in one step, the fastest split found;
                               NaN: over a cap or outside the measured lengths */
    double over_whole;      /* total_ms / whole_ms */
    int64_t even_len; /* length of chunks of one length, split evenly over all ranks: the
                         largest that meets the budget (no budget: chunk_len); 0: none, or
                         the caller's own chunks, split evenly */
    double even_ms;   /* their total; NaN: over a cap, outside the measured lengths, or
                         none meets the budget */
    double gain_over_even; /* even_ms / total_ms */
    hcp_source source;
    int32_t exact; /* 1: no plan of this kind takes less (of few tiles and ranks) */
    int32_t given; /* 1: chunks are the caller's; 2: shares, too */
    uint64_t models_hash, fingerprint;
} hcp_chunks_plan;

/* Defaults as named in the struct. */
HCP_API void hcp_chunks_init(hcp_chunks *chunks);
/* Clears the plan, sets its size and the caller's arrays. */
HCP_API void hcp_chunks_plan_init(hcp_chunks_plan *plan, hcp_chunks_rank *ranks,
                                  size_t ranks_capacity, hcp_chunk *chunks,
                                  size_t chunks_capacity, hcp_chunk_share *shares,
                                  size_t shares_capacity, hcp_segment *segments,
                                  size_t segments_capacity);

/* Bytes of workspace that the next two need for plans of up to max_chunks chunks, of any
 * alignment; 0 for numbers that they do not take. */
HCP_API size_t hcp_chunks_workspace_bytes(const hcp_ring *ring, size_t max_chunks);

/* Cuts a prompt into chunks on a ring of phase prefill and batch 1, with a budget, a
 * chunk length, or both, so that all steps together take least and none takes longer than
 * the budget. With few tiles all plans are looked at (exact). Else each chunk is as long
 * as the budget lets it be, and split so that it ends first, with all ranks, and with the
 * slowest ones left out; where caps bind, also with capped ranks joining late, when keys
 * are many; of all these, and of even chunks evenly split, the least total. Allocates
 * nothing, takes no lock. workspace_bytes must be those of plan->chunks_capacity chunks.
 * HCP_STATUS_INFEASIBLE: from what length on no chunk meets the budget, by how much, and
 * on which rank, or what the caps fall short by; HCP_STATUS_OUTSIDE names a length that
 * is not measured; HCP_STATUS_SPACE: an array is too small, or there would be more chunks
 * than it has room for. */
HCP_API hcp_status hcp_chunks_split(const hcp_ring *ring, const hcp_chunks *chunks,
                                    void *workspace, size_t workspace_bytes, char *text,
                                    size_t text_size, hcp_chunks_plan *plan);

/* The plan of chunks of the caller's own: lengths[n_chunks], which add up to seq_len, and
 * tokens[n_chunks * ranks] of each, or NULL: split so that each ends first. Tokens need
 * not be multiples of the tile, and steps may take longer than the budget, if there is
 * one. Layout AUTO: of each chunk the faster one. */
HCP_API hcp_status hcp_chunks_evaluate(const hcp_ring *ring, const hcp_chunks *chunks,
                                       const int64_t *lengths, size_t n_chunks,
                                       const int64_t *tokens, void *workspace,
                                       size_t workspace_bytes, char *text,
                                       size_t text_size, hcp_chunks_plan *plan);

/* As hcp_plan_to_json(), hcp_plan_json_counts(), hcp_plan_from_json() and
 * hcp_plan_fingerprint(). Reading refuses text in which tokens are missing or come twice,
 * or where what is resident is not what earlier chunks left. */
HCP_API hcp_status hcp_chunks_to_json(const hcp_chunks_plan *plan, char *json,
                                      size_t size, size_t *needed);
HCP_API hcp_status hcp_chunks_json_counts(const char *json, size_t length, char *text,
                                          size_t text_size, size_t *n_ranks,
                                          size_t *n_chunks, size_t *n_segments);
HCP_API hcp_status hcp_chunks_from_json(const char *json, size_t length, char *text,
                                        size_t text_size, hcp_chunks_plan *plan);
HCP_API uint64_t hcp_chunks_fingerprint(const hcp_chunks_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
