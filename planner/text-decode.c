/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include "planner/options.h"

enum { MOST_LINES = 64 };

static double gib(int64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static void rank_row(const hcp_plan *plan, size_t r, int memory, hcp_table *t)
{
    const hcp_plan_rank *rank = &plan->ranks[r];

    hcp_table_row(t);
    hcp_table_cell(t, "%zu", r);
    hcp_table_cell(t, "%s", rank->device);
    hcp_table_cell(t, "%s", rank->limit[0] ? rank->limit : "whole");
    hcp_table_cell(t, "%lld", (long long)rank->kv_tokens);
    hcp_table_cell(t, "%.2f %%", 100.0 * (double)rank->tokens / (double)plan->seq_len);
    hcp_table_cell(t, "%.4f", rank->compute_ms);
    if (memory) {
        hcp_table_cell(t, "%.3f", gib(rank->memory_bytes));
        if (rank->max_bytes > 0)
            hcp_table_cell(t, "%.3f", gib(rank->max_bytes));
        else
            hcp_table_cell(t, "-");
    }
    hcp_table_cell(t, "%s", rank->model);
}

static void print_merge(const hcp_plan *plan, FILE *out)
{
    if (!plan->merge) {
        fputs("one rank has all keys: nothing to merge\n", out);
        return;
    }
    fprintf(out,
            "merge by %s: %.4g ms of that, %lld bytes a rank (ring %.4g, doubling %.4g, "
            "gather %.4g ms)\n",
            hcp_merge_name(plan->merge), plan->merge_ms, (long long)plan->merge_bytes,
            plan->merge_ring_ms, plan->merge_doubling_ms, plan->merge_gather_ms);
}

static void print_known(FILE *out, const char *before, double ms)
{
    if (isnan(ms))
        fprintf(out, "%snot known", before);
    else
        fprintf(out, "%s%.4g ms", before, ms);
}

static void print_summary(const hcp_plan *plan, FILE *out)
{
    size_t dropped = 0;

    for (size_t r = 0; r < plan->n_ranks; r++)
        dropped += plan->ranks[r].tokens == 0;
    fprintf(out,
            "\n%s: %.4g ms (%.4g to %.4g) for a decode step of a layer, batch %d, %s "
            "kernel, tile %lld, %s times%s",
            hcp_strategy_name(plan->strategy), plan->makespan_ms, plan->interval_lo_ms,
            plan->interval_hi_ms, (int)plan->shape.batch, plan->provider,
            (long long)plan->tile, hcp_source_name(plan->source),
            plan->source == HCP_FROM_EXTRAPOLATED ? " (outside what was measured)" : "");
    plan_print_link(plan, out);
    fputc('\n', out);
    print_merge(plan, out);
    print_known(out, "even split ", plan->even_ms);
    if (!isnan(plan->gain_over_even))
        fprintf(out, " (gain %.3gx)", plan->gain_over_even);
    print_known(out, ", best without one rank or more ", plan->drop_ms);
    fprintf(out, ", no split is below %.4g ms\n", plan->bound_ms);
    if (plan->decision == HCP_DECISION_EVEN)
        fprintf(out, "the gain over an even split is inside the error bar%s\n",
                plan->source == HCP_FROM_ESTIMATED ? " of the estimate"
                                                   : ": even is as good");
    if (dropped > 0)
        fprintf(out, "%zu of %zu ranks get no keys\n", dropped, plan->n_ranks);
    fprintf(out, "fingerprint %016llx\n", (unsigned long long)plan->fingerprint);
}

int plan_print_decode(const hcp_plan *plan, FILE *out)
{
    hcp_table *t = hcp_table_new();
    size_t shown = plan->n_ranks < MOST_LINES ? plan->n_ranks : MOST_LINES;
    int rc, memory = plan_has_memory(plan);

    hcp_table_column(t, "rank", 1);
    hcp_table_column(t, "device", 0);
    hcp_table_column(t, "limit", 0);
    hcp_table_column(t, "kv_tokens", 1);
    hcp_table_column(t, "share", 1);
    hcp_table_column(t, "compute_ms", 1);
    if (memory) {
        hcp_table_column(t, "memory_gib", 1);
        hcp_table_column(t, "of_gib", 1);
    }
    hcp_table_column(t, "model", 0);
    for (size_t r = 0; r < shown; r++)
        rank_row(plan, r, memory, t);
    rc = hcp_table_print(t, out);
    if (shown < plan->n_ranks)
        fprintf(out, "... and %zu more ranks; --json has every rank\n",
                plan->n_ranks - shown);
    print_summary(plan, out);
    return rc;
}
