/* SPDX-License-Identifier: Apache-2.0
 *
 * One sweep: a device, its levels, the cells of each, what became of them.
 */
#ifndef HCP_RUN_H
#define HCP_RUN_H
#include "db/cli.h"
#include "db/layer.h"
#include "profiler/device.h"
#include "profiler/limiter.h"
#include "profiler/predict.h"
#include "profiler/progress.h"
#include "profiler/sweep.h"

struct hcp_limit_list {
    char (*limit)[32]; /* "mps:10"; "" = whole device */
    size_t n;
};

/* What an adaptive sweep aims at: held-out errors, per level and mask. */
struct hcp_target {
    double median, p90;
};
/* "2%,5%" or "0.02,0.05"; the second is 2.5 times the first where it is left out. */
int hcp_parse_target(const char *text, struct hcp_target *target, struct hcp_err *err);

enum hcp_run_how {
    HCP_RUN_DEFAULT = 0, /* adaptive where times take time and no lengths are given */
    HCP_RUN_ADAPTIVE,
    HCP_RUN_EXHAUSTIVE
};
enum hcp_run_preset { HCP_PRESET_STANDARD = 0, HCP_PRESET_QUICK, HCP_PRESET_THOROUGH };

struct hcp_run_options {
    struct hcp_shape_args shape;
    char provider[32], plugin[1024];
    struct hcp_limit_list limits; /* n = 0: the device's preset */
    int levels_only;      /* limits hold bare levels: their kind is the device's */
    struct hcp_grid grid; /* empty parts: the device's preset */
    int q_given, kv_given, causal_given;
    int64_t max_len;            /* 0: the device's preset */
    int linear;                 /* products of a layer of this shape instead of blocks */
    struct hcp_layer layer;     /* name may be "" */
    const char *model;          /* its name on the command line; NULL none */
    int layer_parts, plain_mlp; /* some of its shape was given; --mlp plain */
    int64_t *tokens;            /* of linear layers; n 0: the preset */
    size_t n_tokens;
    int64_t seed;
    double max_cell_s, time_budget_s; /* NaN: preset; INFINITY: none */
    double warmup_s;                  /* NaN: preset */
    enum hcp_run_how how;
    enum hcp_run_preset preset;
    struct hcp_target target; /* 0: the preset's */
    int dry_run, retry_failed, fresh, allow_throttled, no_cupti, no_boosted;
    int json;
};

/* An adaptive sweep of one mask of a level. */
struct hcp_adapt {
    int batches; /* chosen after the starting set */
    int good;    /* the last so many of them met the target */
    int met;     /* the target, by heldout */
    /* Of the wanted cells, each predicted from the others; of all cells of the grid in
     * the same way, or what that is estimated to be; and of the cells left out, predicted
     * from the wanted ones, where their times are known. */
    struct hcp_heldout heldout, exhaustive, left_out;
    int estimated;
};

/* The first cell that was measured on a level, and the same cell again at its end. */
struct hcp_drift {
    const struct hcp_sweep_cell *cell; /* NULL: none yet */
    int others;  /* cells measured since, or since it was last measured again */
    double at_s; /* when, on hcp_now_s's clock */
    double first_ms, first_lo_ms, first_hi_ms, first_mhz; /* median, its interval, SMs */
    double last_ms, last_lo_ms, last_hi_ms, last_mhz;     /* last_ms 0: not measured */
    double seconds;                                       /* between the two */
    char error[256]; /* why it could not be measured again; "" */
};

struct hcp_level {
    char limit[32];
    double fraction; /* of the whole device, as far as the limit's name says */
    struct hcp_sweep_cell *cells; /* blocks, and finish passes among them */
    size_t n;
    /* Filled by hcp_run_count: blocks, and finish passes. */
    int n_blocks, counts[HCP_CELL_STATES], finishes[HCP_CELL_STATES];
    struct hcp_estimate estimate;
    struct hcp_adapt adapt[2]; /* full, causal */
    int out_of_time;           /* adaptive: a wanted cell did not fit the time left */
    struct hcp_drift drift;
    double boosted_ms, sustained_ms; /* of its largest cell; 0: not measured */
    int throttled;                   /* cells whose samples were all rejected */
    int32_t sm_seen;
    double wall_s;
    char error[1024];        /* the level could not be measured; "" */
    char finish_error[1024]; /* why a finish pass or product could not be; "" */
};

struct hcp_sweep {
    const struct hcp_run_options *options;
    struct hcp_device_config config; /* limit is the current level's */
    const struct hcp_device_ops *ops;
    struct hcp_device_info info; /* of the whole device */
    hcp_device *whole;           /* the device without limit, until it is checked */
    struct hcp_key key;
    char run_uid[40], host[64], check_result[64];
    struct hcp_grid grid;
    struct hcp_level *levels;
    size_t n_levels;
    struct hcp_cost cost;
    double guess_gb_per_s;         /* of finish passes, on the whole device */
    double open_s;                 /* a level takes this to begin with */
    double slip;                   /* cells take this times what they are expected to */
    double max_cell_s, deadline_s; /* deadline on hcp_now_s's clock */
    int adaptive;
    struct hcp_target target;
    hcp_db *db;           /* NULL: dry run without a database */
    double batch_began_s; /* > 0: a transaction is open since then */
    hcp_mps *mps;
    struct hcp_progress progress;
    char note[1100]; /* what the user should know before it starts; "" */
    int failed;      /* some cell or level failed */
};

/* Identity of the device, levels and cells; hcp_run_resume comes next. gpu: which one
 * of several, or NULL. */
int hcp_run_prepare(struct hcp_sweep *run, const struct hcp_run_options *options,
                    const char *spec, const struct hcp_device_info *gpu,
                    struct hcp_err *err);
/* Conformance once, on the whole device, before anything is timed; nothing when all is
 * done. A kernel that fails gives way to the next one of the registry that serves the
 * shape, unless the user named it; one line on stderr says so, and what that one has
 * measured before counts. HCP_FAILED: none passes, and the cells of the last are
 * stored as failed; or the device is gone, and nothing is stored; or "stopped". After
 * hcp_run_resume. */
int hcp_run_check(struct hcp_sweep *run, struct hcp_err *err);
/* Measures what is to do; every finished cell is stored at once. HCP_FAILED with
 * text "stopped" after a signal; another failure is one of the database or of the
 * whole device. Failed cells are counted, not returned. */
int hcp_run_measure(struct hcp_sweep *run, struct hcp_err *err);
void hcp_run_free(struct hcp_sweep *run);

void hcp_run_count(struct hcp_level *level);
/* Blocks and finish passes to do, by the last count; of an adaptive sweep also those
 * that may turn out not to be needed. */
int hcp_run_todo(const struct hcp_level *level);
void hcp_run_close_whole(struct hcp_sweep *run);
/* Opens the whole device with this kernel instead, and forgets what is known of the
 * cells; hcp_run_resume comes next. On failure run stays as it was. */
int hcp_run_use_kernel(struct hcp_sweep *run, const char *name, struct hcp_err *err);

/* ---- run-linear.c --------------------------------------------------------- */

/* Takes --hidden, --ffn, --layers or --mlp. */
int hcp_run_layer_option(const char *name, const char *arg, struct hcp_run_options *o,
                         struct hcp_err *err);
/* After all options: the shape of --model into that of attention, and the layer of
 * --linear from both; refuses what does not go together. */
int hcp_run_layer(struct hcp_run_options *o, struct hcp_err *err);
/* "1,8,64" into grid->batches. */
int hcp_parse_batches(const char *text, struct hcp_grid *grid, struct hcp_err *err);
/* The products of the layer as cells of every level; max_len: of the device's preset. */
int hcp_run_linear_cells(struct hcp_sweep *run, int64_t max_len, struct hcp_err *err);

/* ---- run-plan.c: what next, and how long -------------------------------- */

/* Predicted time of one run of a cell on a level. */
double hcp_run_predict_ms(const struct hcp_sweep *run, const struct hcp_level *level,
                          const struct hcp_sweep_cell *cell);
/* Seconds that it will take, with all its samples. */
double hcp_run_cost_s(const struct hcp_sweep *run, const struct hcp_level *level,
                      const struct hcp_sweep_cell *cell);
/* Seconds that a level, and that all levels, will take; 0: nothing to do. */
double hcp_run_level_left_s(const struct hcp_sweep *run, const struct hcp_level *level);
double hcp_run_left_s(const struct hcp_sweep *run);
/* Next of the due cells to measure, at most max, 0 when there is none: those that fit
 * before deadline_s, in the sweep's order. When none fits, the smallest one left is
 * judged for good, because predictions only get better (and lower) as larger cells are
 * measured. */
size_t hcp_run_choose(const struct hcp_sweep *run, struct hcp_level *level,
                      double deadline_s, size_t max, struct hcp_sweep_cell **chunk);

/* ---- run-adapt.c: the adaptive sweep ------------------------------------- */

/* To be measured as things stand: not a candidate of an adaptive sweep. */
int hcp_run_is_due(const struct hcp_sweep *run, const struct hcp_sweep_cell *cell);
int hcp_run_due(const struct hcp_sweep *run, const struct hcp_level *level);
/* When no cell of the level is due, wants more until one is; when the targets are met,
 * marks what is left as spared. Nothing for an exhaustive sweep. */
int hcp_run_grow(const struct hcp_sweep *run, struct hcp_level *level,
                 struct hcp_err *err);
/* Fills the errors of an adaptive level. device: open under its limit, if its answers
 * cost nothing: cells left out are then asked for. Else NULL. */
int hcp_run_judge(const struct hcp_sweep *run, struct hcp_level *level,
                  hcp_device *device, struct hcp_err *err);
/* Median time of a cell that is not stored; 0: the device has no answer. */
double hcp_run_ask(const struct hcp_sweep *run, hcp_device *device,
                   const struct hcp_sweep_cell *cell);

/* ---- run-drift.c: the first cell of a level again ------------------------ */

/* To be called with each block that was stored. */
void hcp_run_drift_note(struct hcp_level *level, const struct hcp_sweep_cell *cell,
                        const struct hcp_cell_facts *facts);
/* Measures the first one again, if the device is one that drifts, others were measured
 * since and there is time, and stores the pair. A cell that fails this time is no failure
 * of the sweep: level->drift.error says so. */
int hcp_run_drift_check(struct hcp_sweep *run, struct hcp_level *level,
                        hcp_device *device, struct hcp_err *err);
/* It moved by more than 1 %, and the intervals of both medians are apart. */
int hcp_run_has_drifted(const struct hcp_drift *drift);
/* Lines on stderr about levels that drifted or could not be checked. */
void hcp_run_explain_drift(const struct hcp_sweep *run);
json_t *hcp_run_drift_json(const struct hcp_level *level); /* null: not measured */

/* A request of one visit of a cell, and more samples and facts of the same cell. */
void hcp_run_request(const struct hcp_sweep *run, const struct hcp_sweep_cell *cell,
                     double expect_ms, struct hcp_cell_request *request);

/* ---- run-store.c: the database side ------------------------------------- */

/* Marks the cells that db (NULL: none) has, feeds the estimates with their times, and
 * chooses the run uid: the one of the run that is continued, else a new one. */
int hcp_run_resume(struct hcp_sweep *run, hcp_db *db, struct hcp_err *err);
/* Stores the row of a finished cell from facts and samples, or of a failed one when
 * error is set (then facts and samples may be NULL), and sets the cell's state. Of a
 * failed one facts give the stop reason and the clocks. A finish pass or a product that
 * failed has no row: the same command measures it again. */
int hcp_run_store(struct hcp_sweep *run, struct hcp_level *level,
                  struct hcp_sweep_cell *cell, const struct hcp_cell_facts *facts,
                  double *samples, const char *error, struct hcp_err *err);

/* A name for a run that no other has; the time as rows have it (UTC). */
void hcp_run_new_uid(char uid[40]);
void hcp_run_now(char text[24]);

/* Commits cells that are not committed yet. */
int hcp_run_flush(struct hcp_sweep *run, struct hcp_err *err);

/* ---- run-report.c ------------------------------------------------------- */

/* One line on stderr before the sweep. */
void hcp_run_announce(const struct hcp_sweep *run);
/* Table rows or JSON objects of a sweep's levels. */
void hcp_run_table_columns(hcp_table *table);
void hcp_run_table_rows(const struct hcp_sweep *run, hcp_table *table);
json_t *hcp_run_json(const struct hcp_sweep *run);
/* Lines on stderr about an adaptive sweep: cells it took of the grid's, the errors of
 * both, and what missed its target; nothing for an exhaustive one. */
void hcp_run_explain_adaptive(const struct hcp_sweep *run);
/* After a sweep, lines on stderr about what the table cannot say: why levels failed, what
 * was left out and what to do; those of adaptive sweeps and drift among them. */
void hcp_run_explain(const struct hcp_sweep *run);

#endif
