/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <string.h>
#include "planner/options.h"

/* "0 3 7:8192+4096": whole documents, and of cut ones offset and length; of many whole
 * ones only some. */
static void parts_text(const hcp_documents_plan *plan, const hcp_documents_rank *rank,
                       char *out, size_t size)
{
    const hcp_document_part *part = plan->parts + rank->first_part;
    int64_t shown = 0, left = 0;
    size_t at = 0;

    out[0] = 0;
    for (int64_t i = 0; i < rank->n_parts; i++) {
        int cut = part[i].length < plan->lengths[part[i].document];

        if (!cut && shown >= (rank->n_parts <= 6 ? 6 : 3)) {
            left++;
            continue;
        }
        at += (size_t)snprintf(out + at, size - at, "%s%lld", at ? " " : "",
                               (long long)part[i].document);
        if (cut)
            at += (size_t)snprintf(out + at, size - at, ":%lld+%lld",
                                   (long long)part[i].offset, (long long)part[i].length);
        shown += !cut;
    }
    if (left > 0)
        snprintf(out + at, size - at, " and %lld more", (long long)left);
}

static int has_linear(const hcp_documents_plan *plan)
{
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].linear_before_us > 0 || plan->ranks[r].linear_after_us > 0 ||
            plan->ranks[r].linear_before_fixed_us > 0 ||
            plan->ranks[r].linear_after_fixed_us > 0)
            return 1;
    return 0;
}

static int has_memory(const hcp_documents_plan *plan)
{
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].max_bytes > 0 || plan->ranks[r].weight_bytes > 0)
            return 1;
    return plan->layers != 1 || plan->activation_bytes > 0;
}

static double linear_ms(const hcp_documents_rank *rank)
{
    return rank->tokens > 0
               ? ((rank->linear_before_us + rank->linear_after_us) *
                      (double)rank->tokens +
                  rank->linear_before_fixed_us + rank->linear_after_fixed_us) /
                     1e3
               : 0;
}

static void print_other(FILE *out, const char *what, double ms, double gain)
{
    if (isnan(ms))
        fprintf(out, "%s: not known", what);
    else
        fprintf(out, "%s: %.4g ms (%.3gx)", what, ms, gain);
}

/* How many documents are cut, and where the first few are. */
static void print_cuts(const hcp_documents_plan *plan, FILE *out)
{
    int64_t last = -1;
    int shown = 0;

    fprintf(out, "\n%lld document%s cut", (long long)plan->n_cut,
            plan->n_cut == 1 ? "" : "s");
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_documents_rank *rank = &plan->ranks[r];

        for (int64_t i = 0; i < rank->n_parts; i++) {
            const hcp_document_part *part = &plan->parts[rank->first_part + i];

            if (part->offset == 0 || shown++ >= 8)
                continue;
            if (part->document == last)
                fprintf(out, " and %lld", (long long)part->offset);
            else
                fprintf(out, "%s document %lld of %lld at %lld", shown > 1 ? "," : ":",
                        (long long)part->document,
                        (long long)plan->lengths[part->document],
                        (long long)part->offset);
            last = part->document;
        }
    }
    if (shown > 8)
        fprintf(out, ", ... (%d cuts)", shown);
}

static void print_summary(const hcp_documents_plan *plan, FILE *out)
{
    static const char *const reasons[] = {
        "",
        "times are even: calls, tiles and linear work cost beside area",
        "no document is to be cut",
        "cuts would gain less than --cut-gain",
        "memory caps are in the way",
        "a tile more or less is too large a step",
        "ranks wait for keys and values",
        "no cut was found that costs less than it evens out"};
    int64_t tokens = 0;

    for (size_t i = 0; i < plan->n_documents; i++)
        tokens += plan->lengths[i];
    fprintf(out, "\n%zu document%s, %lld tokens, %s mask, %s", plan->n_documents,
            plan->n_documents == 1 ? "" : "s", (long long)tokens,
            plan->causal ? "causal" : "full", plan->provider);
    if (plan->link_alpha_us > 0 || plan->link_gbps > 0)
        fprintf(out, ", link %.4g us", plan->link_alpha_us);
    if (plan->link_gbps > 0)
        fprintf(out, " + bytes / %.4g GB/s", plan->link_gbps);
    fprintf(out, "\nmakespan: %.4g ms (%.4g to %.4g, %s), bound %.4g ms%s\n",
            plan->makespan_ms, plan->interval_lo_ms, plan->interval_hi_ms,
            hcp_source_name(plan->source), plan->bound_ms,
            plan->exact ? ", no other is faster" : "");
    print_other(out, "even tokens", plan->even_ms, plan->gain_over_even);
    print_other(out, "; whole documents", plan->whole_ms, plan->gain_over_whole);
    print_cuts(plan, out);
    fprintf(out, "\nimbalance: time %.3g %%, area %.3g %%%s%s\n", 100 * plan->imbalance,
            100 * plan->area_imbalance, plan->uneven ? ": " : "",
            plan->uneven >= 0 && plan->uneven <= HCP_UNEVEN_COST ? reasons[plan->uneven]
                                                                 : "?");
}

int documents_print(const hcp_documents_plan *plan, FILE *out)
{
    hcp_table *t = hcp_table_new();
    int linear = has_linear(plan), memory = has_memory(plan), rc;
    double area = 0;

    hcp_table_column(t, "rank", 1);
    hcp_table_column(t, "device", 0);
    hcp_table_column(t, "limit", 0);
    hcp_table_column(t, "tokens", 1);
    hcp_table_column(t, "area", 1);
    hcp_table_column(t, "predicted_ms", 1);
    hcp_table_column(t, "wait_ms", 1);
    if (linear)
        hcp_table_column(t, "linear_ms", 1);
    if (memory)
        hcp_table_column(t, "memory_gib", 1);
    hcp_table_column(t, "documents", 0);
    for (size_t r = 0; r < plan->n_ranks; r++)
        area += (double)plan->ranks[r].area;
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_documents_rank *rank = &plan->ranks[r];
        char parts[320];

        hcp_table_row(t);
        hcp_table_cell(t, "%zu", r);
        hcp_table_cell(t, "%s", rank->device);
        hcp_table_cell(t, "%s", rank->limit[0] ? rank->limit : "whole");
        hcp_table_cell(t, "%lld", (long long)rank->tokens);
        hcp_table_cell(t, "%.2f %%", 100 * (double)rank->area / area);
        hcp_table_cell(t, "%.4f", rank->predicted_ms);
        hcp_table_cell(t, "%.4f", rank->predicted_ms - rank->compute_ms);
        if (linear)
            hcp_table_cell(t, "%.4f", linear_ms(rank));
        if (memory)
            hcp_table_cell(t, "%.3f", (double)rank->memory_bytes / (1 << 30));
        parts_text(plan, rank, parts, sizeof parts);
        hcp_table_cell(t, "%s", parts);
    }
    rc = hcp_table_print(t, out);
    print_summary(plan, out);
    return rc;
}
