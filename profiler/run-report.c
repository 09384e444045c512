/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/run.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* How a sweep is spoken of: what was not measured never looks as if it was. */
static const char *adjective(const struct hcp_sweep *run)
{
    return strcmp(run->info.origin, "measured") == 0 ? "" : run->info.origin;
}

void hcp_run_announce(const struct hcp_sweep *run)
{
    int todo = 0, kept = 0, finishes = 0, candidates = 0;
    char time[24];
    for (size_t i = 0; i < run->n_levels; i++)
        for (size_t k = 0; k < run->levels[i].n; k++) {
            int is_todo = hcp_run_is_due(run, &run->levels[i].cells[k]);
            int finish = run->levels[i].cells[k].finish != HCP_FINISH_NONE;
            todo += is_todo && !finish;
            candidates += !is_todo && run->levels[i].cells[k].state == HCP_CELL_TODO;
            finishes += is_todo && finish;
            kept += run->levels[i].cells[k].state == HCP_CELL_KEPT && !finish;
        }
    const char *word = adjective(run);
    fprintf(stderr, "hcp-profile: %s%s%s (%s), kernel %s %s, %zu level%s, %d cells to do",
            word, *word ? " " : "", run->info.slug,
            *run->info.uuid ? run->info.uuid : "no UUID", run->info.provider,
            run->info.provider_version, run->n_levels, run->n_levels == 1 ? "" : "s",
            todo);
    if (finishes > 0)
        fprintf(stderr, " and %d finish pass%s", finishes, finishes == 1 ? "" : "es");
    if (candidates > 0)
        fprintf(stderr, " and as many of %d more as %g %% median, %g %% p90 need",
                candidates, 100 * run->target.median, 100 * run->target.p90);
    if (kept > 0)
        fprintf(stderr, ", %d measured before", kept);
    double left = hcp_run_left_s(run);
    if (todo + finishes > 0 && left >= 1)
        fprintf(stderr, ", about %s", hcp_format_duration(left, time));
    fputc('\n', stderr);
    if (*run->note)
        fprintf(stderr, "hcp-profile: %s\n", run->note);
    if (*run->info.note)
        fprintf(stderr, "hcp-profile: %s\n", run->info.note);
}

/* Of both masks the larger errors: of the cells measured, or of the whole grid. */
static struct hcp_heldout worst(const struct hcp_sweep *run, const struct hcp_level *l,
                                int grid)
{
    struct hcp_heldout w = {0, 0, 0};
    for (int causal = 0; causal < 2 && run->adaptive; causal++) {
        const struct hcp_adapt *a = &l->adapt[causal];
        const struct hcp_heldout *h = grid ? &a->exhaustive : &a->heldout;
        if (h->cells == 0)
            continue;
        w.median = fmax(w.median, h->median);
        w.p90 = fmax(w.p90, h->p90);
        w.cells += h->cells;
    }
    return w;
}

static void error_cell(hcp_table *table, const struct hcp_heldout *h, double error,
                       const char *about)
{
    if (h->cells > 0)
        hcp_table_cell(table, "%s%.1f%%", about, 100 * error);
    else
        hcp_table_cell(table, "-");
}

/* By how much a time is another one, where both are known. */
static void change_cell(hcp_table *table, double from_ms, double to_ms)
{
    if (from_ms > 0 && to_ms > 0)
        hcp_table_cell(table, "%+.1f%%", 100 * (to_ms / from_ms - 1));
    else
        hcp_table_cell(table, "-");
}

/* With which cells a level has not met its target. */
static const char *why_missed(const struct hcp_sweep *run, const struct hcp_level *l)
{
    if (l->out_of_time)
        return "what --time-budget allowed; the same command goes on";
    if (hcp_run_due(run, l) > 0)
        return "the cells so far; the same command goes on";
    if (run->ops == &hcp_device_recorded_ops ||
        run->options->preset == HCP_PRESET_THOROUGH)
        return "all cells there are";
    return "all cells there are; --preset thorough has more";
}

static int is_within(const struct hcp_sweep *run, const struct hcp_heldout *h)
{
    return h->median <= run->target.median && h->p90 <= run->target.p90;
}

void hcp_run_explain_adaptive(const struct hcp_sweep *run)
{
    struct hcp_heldout own = {0, 0, 0}, grid = {0, 0, 0}, out = {0, 0, 0};
    int taken = 0, all = 0, estimated = 0;
    for (size_t i = 0; i < run->n_levels && run->adaptive; i++) {
        const struct hcp_level *l = &run->levels[i];
        struct hcp_heldout h = worst(run, l, 0), g = worst(run, l, 1);
        taken += l->counts[HCP_CELL_OK] + l->counts[HCP_CELL_KEPT];
        all += l->n_blocks;
        own = (struct hcp_heldout){fmax(own.median, h.median), fmax(own.p90, h.p90),
                                   own.cells + h.cells};
        grid = (struct hcp_heldout){fmax(grid.median, g.median), fmax(grid.p90, g.p90),
                                    grid.cells + g.cells};
        for (int causal = 0; causal < 2; causal++) {
            const struct hcp_adapt *a = &l->adapt[causal];
            estimated |= a->estimated;
            if (a->left_out.cells > 0)
                out = (struct hcp_heldout){fmax(out.median, a->left_out.median),
                                           fmax(out.p90, a->left_out.p90),
                                           out.cells + a->left_out.cells};
            if (!a->met && a->heldout.cells > 0)
                fprintf(stderr,
                        "hcp-profile: %s@%s %s: %s: held-out error %.1f %% median, %.1f "
                        "%% p90 with %s\n",
                        run->info.slug, *l->limit ? l->limit : "none",
                        causal ? "causal" : "full",
                        is_within(run, &a->heldout)
                            ? "within the target, which further cells have to confirm"
                            : "target missed",
                        100 * a->heldout.median, 100 * a->heldout.p90,
                        why_missed(run, l));
        }
    }
    if (own.cells == 0)
        return;
    fprintf(stderr,
            "hcp-profile: %d cells where an exhaustive grid takes %d; held-out error of "
            "the worst level %.1f %% median, %.1f %% p90; of the exhaustive grid's %s"
            "%.1f %%, %.1f %%\n",
            taken, all, 100 * own.median, 100 * own.p90, estimated ? "an estimated " : "",
            100 * grid.median, 100 * grid.p90);
    if (out.cells > 0)
        fprintf(stderr,
                "hcp-profile: error at %d known cells that it left out: %.1f %% median, "
                "%.1f %% p90\n",
                out.cells, 100 * out.median, 100 * out.p90);
}

static json_t *heldout_json(const struct hcp_heldout *h)
{
    json_t *doc = json_object();
    json_object_set_new(doc, "cells", json_integer(h->cells));
    json_object_set_new(doc, "median",
                        h->cells > 0 ? hcp_json_real(h->median) : json_null());
    json_object_set_new(doc, "p90", h->cells > 0 ? hcp_json_real(h->p90) : json_null());
    return doc;
}

static json_t *adaptive_json(const struct hcp_sweep *run, const struct hcp_level *l)
{
    if (!run->adaptive)
        return json_null();
    json_t *doc = json_object();
    json_object_set_new(doc, "target_median", hcp_json_real(run->target.median));
    json_object_set_new(doc, "target_p90", hcp_json_real(run->target.p90));
    for (int causal = 0; causal < 2; causal++) {
        const struct hcp_adapt *a = &l->adapt[causal];
        json_t *mask = json_object();
        json_object_set_new(mask, "met", json_boolean(a->met));
        json_object_set_new(mask, "heldout", heldout_json(&a->heldout));
        json_object_set_new(mask, "exhaustive", heldout_json(&a->exhaustive));
        json_object_set_new(mask, "exhaustive_estimated", json_boolean(a->estimated));
        json_object_set_new(mask, "left_out", heldout_json(&a->left_out));
        json_object_set_new(doc, causal ? "causal" : "full", mask);
    }
    return doc;
}

void hcp_run_table_columns(hcp_table *table)
{
    static const char *const left[] = {"device", "origin", "limit", "kernel"};
    static const char *const right[] = {
        "sms",    "cells",   "measured",    "kept",     "failed", "missing",
        "slow",   "no_time", "spared",      "todo",     "finish", "seconds",
        "median", "p90",     "grid_median", "grid_p90", "drift",  "boost"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        hcp_table_column(table, left[i], 0);
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        hcp_table_column(table, right[i], 1);
}

void hcp_run_table_rows(const struct hcp_sweep *run, hcp_table *table)
{
    for (size_t i = 0; i < run->n_levels; i++) {
        const struct hcp_level *l = &run->levels[i];
        hcp_table_row(table);
        hcp_table_cell(table, "%s", run->info.slug);
        hcp_table_cell(table, "%s", run->info.origin);
        hcp_table_cell(table, "%s", *l->limit ? l->limit : "none");
        hcp_table_cell(table, "%s", run->info.provider);
        if (l->sm_seen > 0)
            hcp_table_cell(table, "%d", (int)l->sm_seen);
        else
            hcp_table_cell(table, "-");
        hcp_table_cell(table, "%d", l->n_blocks);
        hcp_table_cell(table, "%d", l->counts[HCP_CELL_OK]);
        hcp_table_cell(table, "%d", l->counts[HCP_CELL_KEPT]);
        hcp_table_cell(table, "%d",
                       l->counts[HCP_CELL_BAD] + l->counts[HCP_CELL_KEPT_FAILED]);
        hcp_table_cell(table, "%d", l->counts[HCP_CELL_MISSING]);
        hcp_table_cell(table, "%d", l->counts[HCP_CELL_SLOW]);
        hcp_table_cell(table, "%d", l->counts[HCP_CELL_NO_TIME]);
        hcp_table_cell(table, "%d", l->counts[HCP_CELL_SPARED]);
        hcp_table_cell(table, "%d", l->counts[HCP_CELL_TODO]);
        hcp_table_cell(table, "%d",
                       l->finishes[HCP_CELL_OK] + l->finishes[HCP_CELL_KEPT]);
        hcp_table_cell(table, "%.1f", l->wall_s);
        struct hcp_heldout own = worst(run, l, 0), grid = worst(run, l, 1);
        error_cell(table, &own, own.median, "");
        error_cell(table, &own, own.p90, "");
        const char *about = l->adapt[0].estimated || l->adapt[1].estimated ? "~" : "";
        error_cell(table, &grid, grid.median, about);
        error_cell(table, &grid, grid.p90, about);
        change_cell(table, l->drift.first_ms, l->drift.last_ms);
        change_cell(table, l->sustained_ms, l->boosted_ms);
    }
}

json_t *hcp_run_json(const struct hcp_sweep *run)
{
    json_t *levels = json_array();
    for (size_t i = 0; i < run->n_levels; i++) {
        const struct hcp_level *l = &run->levels[i];
        json_t *level = json_object();
        json_object_set_new(level, "limit", json_string(l->limit));
        json_object_set_new(level, "sm_seen",
                            l->sm_seen > 0 ? json_integer(l->sm_seen) : json_null());
        json_object_set_new(level, "cells", json_integer(l->n_blocks));
        json_object_set_new(level, "measured", json_integer(l->counts[HCP_CELL_OK]));
        json_object_set_new(level, "kept", json_integer(l->counts[HCP_CELL_KEPT]));
        json_object_set_new(
            level, "failed",
            json_integer(l->counts[HCP_CELL_BAD] + l->counts[HCP_CELL_KEPT_FAILED]));
        json_object_set_new(level, "missing", json_integer(l->counts[HCP_CELL_MISSING]));
        json_object_set_new(level, "slow", json_integer(l->counts[HCP_CELL_SLOW]));
        json_object_set_new(level, "no_time", json_integer(l->counts[HCP_CELL_NO_TIME]));
        json_object_set_new(level, "spared", json_integer(l->counts[HCP_CELL_SPARED]));
        json_object_set_new(level, "todo", json_integer(l->counts[HCP_CELL_TODO]));
        json_object_set_new(
            level, "finish",
            json_integer(l->finishes[HCP_CELL_OK] + l->finishes[HCP_CELL_KEPT]));
        json_object_set_new(level, "seconds",
                            hcp_json_real(round(l->wall_s * 1e3) / 1e3));
        json_object_set_new(level, "adaptive", adaptive_json(run, l));
        json_object_set_new(level, "throttled", json_integer(l->throttled));
        json_object_set_new(level, "drift", hcp_run_drift_json(l));
        int boosted = l->boosted_ms > 0;
        json_object_set_new(level, "boosted_ms",
                            boosted ? hcp_json_real(l->boosted_ms) : json_null());
        json_object_set_new(level, "sustained_ms",
                            boosted ? hcp_json_real(l->sustained_ms) : json_null());
        json_object_set_new(level, "error",
                            *l->error ? json_string(l->error) : json_null());
        json_array_append_new(levels, level);
    }
    json_t *doc = json_object();
    json_object_set_new(doc, "schema", json_integer(1));
    json_object_set_new(doc, "device", json_string(run->info.slug));
    json_object_set_new(doc, "device_name", json_string(run->info.name));
    json_object_set_new(doc, "device_uuid", json_string(run->info.uuid));
    json_object_set_new(doc, "origin", json_string(run->info.origin));
    json_object_set_new(doc, "provider", json_string(run->info.provider));
    json_object_set_new(doc, "provider_version", json_string(run->info.provider_version));
    json_object_set_new(doc, "check_result", json_string(run->check_result));
    json_object_set_new(doc, "run_uid", json_string(run->run_uid));
    json_object_set_new(doc, "levels", levels);
    return doc;
}

void hcp_run_explain(const struct hcp_sweep *run)
{
    int slow = 0, no_time = 0, failed = 0, missing = 0, finishes = 0, throttled = 0;
    const char *finish_error = "";
    for (size_t i = 0; i < run->n_levels; i++) {
        const struct hcp_level *l = &run->levels[i];
        if (*l->error)
            fprintf(stderr, "hcp-profile: %s@%s: %s\n", run->info.slug,
                    *l->limit ? l->limit : "none", l->error);
        slow += l->counts[HCP_CELL_SLOW] + l->finishes[HCP_CELL_SLOW];
        no_time += l->counts[HCP_CELL_NO_TIME] + l->finishes[HCP_CELL_NO_TIME];
        finishes += l->finishes[HCP_CELL_BAD];
        if (*l->finish_error)
            finish_error = l->finish_error;
        failed += l->counts[HCP_CELL_BAD] + l->counts[HCP_CELL_KEPT_FAILED];
        missing += l->counts[HCP_CELL_MISSING];
        throttled += l->throttled;
    }
    if (slow > 0)
        fprintf(stderr,
                "hcp-profile: %d cells left out: they would take longer than %g s each "
                "(--max-cell-time)\n",
                slow, run->max_cell_s);
    hcp_run_explain_adaptive(run);
    hcp_run_explain_drift(run);
    if (no_time > 0)
        fprintf(
            stderr,
            "hcp-profile: %d cells left out by --time-budget; the same command measures "
            "them next\n",
            no_time);
    if (missing > 0)
        fprintf(stderr,
                "hcp-profile: %d cells are not in the recording and stay missing\n",
                missing);
    if (finishes > 0)
        fprintf(stderr,
                "hcp-profile: %d finish pass%s failed; the same command measures them "
                "again: %s\n",
                finishes, finishes == 1 ? "" : "es", finish_error);
    if (throttled > 0)
        fprintf(stderr,
                "hcp-profile: of %d cell%s all samples were rejected: the GPU was "
                "throttled (hardware or thermal); cool it and use --retry-failed, or "
                "keep such samples with --allow-throttled\n",
                throttled, throttled == 1 ? "" : "s");
    if (failed > 0 && run->options->linear)
        fprintf(stderr,
                "hcp-profile: %d products failed; the same command measures them again: "
                "%s\n",
                failed, finish_error);
    else if (failed > 0)
        fprintf(stderr,
                "hcp-profile: %d cells failed; 'hcp-profile show --failed' says why, "
                "--retry-failed measures them again\n",
                failed);
}
