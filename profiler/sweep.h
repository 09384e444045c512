/* SPDX-License-Identifier: Apache-2.0
 *
 * Which cells a sweep has, in what order, and how long they will take. Pure: no
 * device, no database, no clock.
 */
#ifndef HCP_SWEEP_H
#define HCP_SWEEP_H
#include <stddef.h>
#include <stdint.h>
#include "db/error.h"

enum hcp_cell_state {
    HCP_CELL_TODO = 0,
    HCP_CELL_KEPT,        /* measured by an earlier run */
    HCP_CELL_KEPT_FAILED, /* failed in an earlier run; --retry-failed */
    HCP_CELL_OK,
    HCP_CELL_BAD,     /* failed now */
    HCP_CELL_MISSING, /* a recorded machine that does not have it */
    HCP_CELL_SLOW,    /* would take longer than --max-cell-time */
    HCP_CELL_NO_TIME, /* left out by --time-budget */
    HCP_CELL_SPARED,  /* an adaptive sweep met its target without it */
    HCP_CELL_STATES
};

/* The pass of an executor after a kernel that cannot accumulate: what brings q_len rows
 * of its partial result into the fp32 state. */
enum hcp_finish_kind {
    HCP_FINISH_NONE = 0,
    HCP_FINISH_STORE, /* of the first block */
    HCP_FINISH_MERGE  /* of a later one */
};
/* "store", "merge"; "" for none: as the database calls them. */
const char *hcp_finish_name(enum hcp_finish_kind kind);

/* A block; or, with finish set, a finish pass over q_len rows (kv_len 0, no mask); or,
 * with n_out set, the product of a linear layer for q_len tokens (kv_len 0, no mask). */
struct hcp_sweep_cell {
    int causal;
    int64_t q_len, kv_len;
    int64_t n_in, n_out;
    int32_t seqs; /* batch: sequences of a block, each of these lengths */
    enum hcp_finish_kind finish;
    int coarse; /* belongs to the coarse grid, which goes first */
    int wanted; /* adaptive: belongs to the starting set, or was chosen since */
    enum hcp_cell_state state;
    int uncommitted;           /* its row is in the transaction that is open */
    int batch;                 /* adaptive: of its choice; 0 the starting set */
    double foretold_ms;        /* what was predicted when it was chosen */
    double ms;                 /* of a block with a stored time; else 0 */
    int64_t tile_q, tile_kv;   /* with it, as the kernel says; 0 where it does not */
    double ci_lo_ms, ci_hi_ms; /* of a cell measured now; else 0 */
};

/* Lengths of a sweep: rectangles q x kv under the full mask, squares under the
 * causal one. Arrays are owned by the grid. */
struct hcp_grid {
    int64_t *q, *kv, *causal;
    size_t n_q, n_kv, n_causal;
    int64_t *batches; /* every block with each of these; none: with 1 */
    size_t n_batches;
};

/* The preset up to max_len: powers of two from lowest, max_len itself always in.
 * half_steps: where lengths half-way between them are in too; HCP_HALF_WAVES: q from 256
 * to 2K, where a step in q is a step in waves of tiles. */
enum hcp_half_steps { HCP_HALF_NONE = 0, HCP_HALF_WAVES, HCP_HALF_ALL };
int hcp_grid_preset(int64_t lowest, int64_t max_len, enum hcp_half_steps half_steps,
                    struct hcp_grid *out, struct hcp_err *err);
/* "128,1K,64K" -> sorted, distinct lengths; "none" -> none. */
int hcp_grid_lens(const char *text, const char *option, int64_t **lens, size_t *n,
                  struct hcp_err *err);
void hcp_grid_free(struct hcp_grid *grid);

/* Cells of the grid in the order of measurement: the coarse ones (every second
 * length, counted from the longest) first, each part shuffled by seed. */
int hcp_sweep_cells(const struct hcp_grid *grid, uint64_t seed,
                    struct hcp_sweep_cell **out, size_t *n, struct hcp_err *err);
/* Products of linear layers, n of them as { n_in, n_out }, equal ones once, each for all
 * of the token counts; the order as of hcp_sweep_cells. */
int hcp_sweep_linear(const int64_t (*products)[2], size_t n_products,
                     const int64_t *tokens, size_t n_tokens, uint64_t seed,
                     struct hcp_sweep_cell **out, size_t *n, struct hcp_err *err);
/* Token counts of linear layers up to max_len: powers of two from 1, max_len itself
 * always in; half_steps: as hcp_grid_preset, between 128 and 2K, or from 8. */
int hcp_linear_tokens(int64_t max_len, enum hcp_half_steps half_steps, int64_t **tokens,
                      size_t *n, struct hcp_err *err);
/* Marks as wanted the cells that an adaptive sweep begins with, and no others: of each
 * mask all if they are few, else the nearest to HCP_START_LENS lengths a side, spread
 * evenly in octaves with both ends in. And every short q_len against the longest kv_len,
 * because few waves of tiles make steps that lie between the lengths of a coarse set. */
enum { HCP_START_LENS = 4, HCP_FEW_WAVES = 2048 };
void hcp_sweep_start(struct hcp_sweep_cell *cells, size_t n);
/* Query lengths at which finish passes are measured, given the sweep's longest: powers
 * of two from 512, and the longest itself, thinned to at most HCP_FINISH_LENS; where
 * these are not two, a quarter of the longest as well. Ascending; their number. */
enum { HCP_FINISH_LENS = 5 };
size_t hcp_finish_lens(int64_t longest, int64_t lens[HCP_FINISH_LENS]);
/* For each batch there is: puts finish passes before the other cells, and takes out those
 * that were there: every plan needs them, they are short, and a part of them is worse
 * than none, because what was not measured counts as nothing. kinds: which the kernel
 * needs, 1 << kind each. */
int hcp_sweep_add_finishes(struct hcp_sweep_cell **cells, size_t *n, unsigned kinds,
                           struct hcp_err *err);
/* Shuffles in place, the same way for the same seed on every machine. */
void hcp_shuffle(void *items, size_t n, size_t size, uint64_t seed);

/* Unmasked pairs of a cell. */
double hcp_cell_area(int causal, int64_t q_len, int64_t kv_len);
/* What a cell's time is about proportional to: pairs of all sequences; of a product,
 * multiplications. */
double hcp_cell_work(const struct hcp_sweep_cell *cell);

/* What is known about times so far under one limit. */
struct hcp_estimate {
    double guess_ms, guess_per_pair; /* before anything is measured */
    struct hcp_estimate_point {
        double area, ms;
    } * points; /* by area */
    size_t n, room;
};
void hcp_estimate_init(struct hcp_estimate *e, double guess_ms, double guess_per_pair);
void hcp_estimate_free(struct hcp_estimate *e);
void hcp_estimate_add(struct hcp_estimate *e, double area, double ms);
/* Time of one run over area pairs, an upper guess: time per pair never grows with
 * the area, and no smaller cell takes longer. */
double hcp_estimate_ms(const struct hcp_estimate *e, double area);

/* Blocks of this and more are measured with as few runs as will do. */
#define HCP_SLOW_MS 50.0

/* Seconds a cell takes in a sweep when one sample takes ms. */
struct hcp_cost {
    double overhead_s; /* plan, inputs */
    double warmup_s, min_time_s, cap_s;
    int min_samples, few_samples, visits;
};
/* Visits of a cell: one when it is slow, for its samples last long enough to see the
 * clocks settle, and every visit warms up again. */
int hcp_cost_visits(const struct hcp_cost *cost, double sample_ms);
double hcp_cost_s(const struct hcp_cost *cost, double sample_ms);

#endif
