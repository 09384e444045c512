/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <string.h>
#include "planner/options.h"

enum { FIRST = 16, LAST = 8 }; /* of many chunks */

/* "3072/1024": new tokens by rank. */
static void shares_text(const hcp_chunks_plan *plan, size_t k, char *out, size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (size_t r = 0; r < plan->n_ranks && at + 24 < size; r++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", r ? "/" : "",
                               (long long)plan->shares[k * plan->n_ranks + r].tokens);
}

static void shown(hcp_table *t, double v)
{
    if (isnan(v))
        hcp_table_cell(t, "-");
    else
        hcp_table_cell(t, "%.4f", v);
}

static int print_chunks(const hcp_chunks_plan *plan, FILE *out)
{
    hcp_table *t = hcp_table_new();

    hcp_table_column(t, "chunk", 1);
    hcp_table_column(t, "offset", 1);
    hcp_table_column(t, "tokens", 1);
    hcp_table_column(t, "layout", 0);
    hcp_table_column(t, "step_ms", 1);
    hcp_table_column(t, "predicted_ms", 1);
    hcp_table_column(t, "bound_ms", 1);
    hcp_table_column(t, "least_ms", 1);
    hcp_table_column(t, "by_rank", 0);
    for (size_t k = 0; k < plan->n_chunks; k++) {
        const hcp_chunk *chunk = &plan->chunks[k];
        char shares[320];

        hcp_table_row(t);
        if (plan->n_chunks > FIRST + LAST + 1 && k == FIRST) {
            hcp_table_cell(t, "...");
            k = plan->n_chunks - LAST - 1;
            continue;
        }
        shares_text(plan, k, shares, sizeof shares);
        hcp_table_cell(t, "%zu", k);
        hcp_table_cell(t, "%lld", (long long)chunk->offset);
        hcp_table_cell(t, "%lld", (long long)chunk->tokens);
        hcp_table_cell(t, "%s", hcp_layout_name(chunk->layout));
        hcp_table_cell(t, "%.4f", chunk->step_ms);
        hcp_table_cell(t, "%.4f", chunk->predicted_ms);
        hcp_table_cell(t, "%.4f", chunk->bound_ms);
        shown(t, chunk->least_ms);
        hcp_table_cell(t, "%s", shares);
    }
    return hcp_table_print(t, out);
}

/* Resident tokens from which a tile on this rank takes longer than the budget; -1:
 * nowhere. */
static int64_t out_from(const hcp_chunks_plan *plan, size_t r)
{
    size_t k = plan->n_chunks;

    while (k > 0 &&
           plan->shares[(k - 1) * plan->n_ranks + r].least_ms > plan->step_budget_ms)
        k--;
    return k < plan->n_chunks && plan->step_budget_ms > 0 ? plan->chunks[k].offset : -1;
}

static int print_ranks(const hcp_chunks_plan *plan, FILE *out)
{
    hcp_table *t = hcp_table_new();

    hcp_table_column(t, "rank", 1);
    hcp_table_column(t, "device", 0);
    hcp_table_column(t, "limit", 0);
    hcp_table_column(t, "kv_tokens", 1);
    hcp_table_column(t, "memory_gib", 1);
    hcp_table_column(t, "over_budget_from", 1);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_chunks_rank *rank = &plan->ranks[r];
        int64_t from = out_from(plan, r);

        hcp_table_row(t);
        hcp_table_cell(t, "%zu", r);
        hcp_table_cell(t, "%s", rank->device);
        hcp_table_cell(t, "%s", rank->limit[0] ? rank->limit : "whole");
        hcp_table_cell(t, "%lld", (long long)rank->tokens);
        hcp_table_cell(t, "%.3f", (double)rank->memory_bytes / (1 << 30));
        if (from < 0)
            hcp_table_cell(t, "-");
        else
            hcp_table_cell(t, "%lld", (long long)from);
    }
    return hcp_table_print(t, out);
}

static void print_summary(const hcp_chunks_plan *plan, FILE *out)
{
    int64_t most = 0, least = INT64_MAX;
    size_t over = 0;

    for (size_t k = 0; k < plan->n_chunks; k++) {
        most = plan->chunks[k].tokens > most ? plan->chunks[k].tokens : most;
        least = plan->chunks[k].tokens < least ? plan->chunks[k].tokens : least;
        over +=
            plan->step_budget_ms > 0 && plan->chunks[k].step_ms > plan->step_budget_ms;
    }
    fprintf(out, "\n%lld tokens in %zu chunk%s of %lld to %lld, causal mask, %s",
            (long long)plan->seq_len, plan->n_chunks, plan->n_chunks == 1 ? "" : "s",
            (long long)least, (long long)most, plan->provider);
    if (plan->link_alpha_us > 0 || plan->link_gbps > 0)
        fprintf(out, ", link %.4g us", plan->link_alpha_us);
    if (plan->link_gbps > 0)
        fprintf(out, " + bytes / %.4g GB/s", plan->link_gbps);
    fprintf(out, "\nstep: %d layer%s", (int)plan->layers, plan->layers == 1 ? "" : "s");
    if (plan->step_fixed_ms > 0)
        fprintf(out, " + %.4g ms", plan->step_fixed_ms);
    fprintf(out, ", longest %.4g ms", plan->longest_step_ms);
    if (plan->step_budget_ms > 0)
        fprintf(out, " of %.4g ms", plan->step_budget_ms);
    if (over > 0)
        fprintf(out, ", %zu over it", over);
    if (!isnan(plan->least_ms))
        fprintf(out, "; the smallest chunk takes %.4g ms at the end", plan->least_ms);
    fprintf(out, "\ntotal: %.4g ms (%.4g to %.4g, %s), bound %.4g ms%s\n", plan->total_ms,
            plan->interval_lo_ms, plan->interval_hi_ms, hcp_source_name(plan->source),
            plan->bound_ms, plan->exact ? ", no other is faster" : "");
    if (isnan(plan->whole_ms))
        fputs("in one step: not known", out);
    else
        fprintf(out, "in one step: %.4g ms (chunks take %.3gx)", plan->whole_ms,
                plan->over_whole);
    if (isnan(plan->even_ms))
        fputs("; even split: none meets the budget, the caps or the measured lengths\n",
              out);
    else if (plan->even_len > 0)
        fprintf(out, "; even split, chunks of %lld: %.4g ms (%.3gx)\n",
                (long long)plan->even_len, plan->even_ms, plan->gain_over_even);
    else
        fprintf(out, "; even split of these chunks: %.4g ms (%.3gx)\n", plan->even_ms,
                plan->gain_over_even);
}

int chunks_print(const hcp_chunks_plan *plan, FILE *out)
{
    int rc = print_chunks(plan, out);

    fputc('\n', out);
    rc |= print_ranks(plan, out);
    print_summary(plan, out);
    return rc;
}
