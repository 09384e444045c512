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
    int todo = 0, kept = 0, finishes = 0;
    char time[24];
    for (size_t i = 0; i < run->n_levels; i++)
        for (size_t k = 0; k < run->levels[i].n; k++) {
            int is_todo = run->levels[i].cells[k].state == HCP_CELL_TODO;
            int finish = run->levels[i].cells[k].finish != HCP_FINISH_NONE;
            todo += is_todo && !finish;
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

void hcp_run_table_columns(hcp_table *table)
{
    static const char *const left[] = {"device", "origin", "limit", "kernel"};
    static const char *const right[] = {"sms",    "cells",   "measured", "kept",
                                        "failed", "missing", "slow",     "no_time",
                                        "todo",   "finish",  "seconds"};
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
        hcp_table_cell(table, "%d", l->counts[HCP_CELL_TODO]);
        hcp_table_cell(table, "%d",
                       l->finishes[HCP_CELL_OK] + l->finishes[HCP_CELL_KEPT]);
        hcp_table_cell(table, "%.1f", l->wall_s);
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
        json_object_set_new(level, "todo", json_integer(l->counts[HCP_CELL_TODO]));
        json_object_set_new(
            level, "finish",
            json_integer(l->finishes[HCP_CELL_OK] + l->finishes[HCP_CELL_KEPT]));
        json_object_set_new(level, "seconds",
                            hcp_json_real(round(l->wall_s * 1e3) / 1e3));
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
