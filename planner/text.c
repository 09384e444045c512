/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/options.h"

char *plan_json(const hcp_plan *plan)
{
    size_t needed;
    char *json;

    hcp_plan_to_json(plan, NULL, 0, &needed);
    json = malloc(needed + 1);
    if (json)
        hcp_plan_to_json(plan, json, needed + 1, NULL);
    return json;
}

void plan_rank_name(const char *device, const char *limit, char *out, size_t size)
{
    snprintf(out, size, "%s%s%s", device, limit[0] ? "@" : "", limit);
}

void plan_tokens_text(const hcp_plan *plan, char *out, size_t size)
{
    size_t at = 0, shown = plan->n_ranks <= 8 ? plan->n_ranks : 6;

    out[0] = 0;
    for (size_t r = 0; r < shown && at < size; r++) {
        at += (size_t)snprintf(out + at, size - at, "%s%lld", r ? " " : "",
                               (long long)plan->ranks[r].tokens);
        if (plan->joint && at < size)
            at += (size_t)snprintf(out + at, size - at, "/%lld",
                                   (long long)plan->ranks[r].kv_tokens);
    }
    if (shown < plan->n_ranks && at < size)
        snprintf(out + at, size - at, " ... (%zu ranks)", plan->n_ranks);
}

double plan_before_ms(const hcp_plan_rank *rank)
{
    return rank->tokens > 0 ? (rank->linear_before_us * (double)rank->tokens +
                               rank->linear_before_fixed_us) / 1e3
                            : 0;
}

double plan_after_ms(const hcp_plan_rank *rank)
{
    return rank->tokens > 0 ? (rank->linear_after_us * (double)rank->tokens +
                               rank->linear_after_fixed_us) / 1e3
                            : 0;
}

int plan_has_linear(const hcp_plan *plan)
{
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].linear_before_us > 0 ||
            plan->ranks[r].linear_before_fixed_us > 0 ||
            plan->ranks[r].linear_after_us > 0 ||
            plan->ranks[r].linear_after_fixed_us > 0)
            return 1;
    return 0;
}

int plan_has_memory(const hcp_plan *plan)
{
    if (plan->layers != 1 || plan->activation_bytes > 0)
        return 1;
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].max_bytes > 0 || plan->ranks[r].weight_bytes > 0)
            return 1;
    return 0;
}

/* "0+30016 35520+30016": offset and length; long lists are cut. */
static void segments_text(const hcp_segment *segment, int64_t n, char *out, size_t size)
{
    int64_t shown = n <= 3 ? n : 2;
    size_t at = 0;

    out[0] = 0;
    for (int64_t i = 0; i < shown; i++)
        at +=
            (size_t)snprintf(out + at, size - at, "%s%lld+%lld", i ? " " : "",
                             (long long)segment[i].offset, (long long)segment[i].length);
    if (shown < n)
        snprintf(out + at, size - at, " ... (%lld)", (long long)n);
}

static void print_known(FILE *out, const char *before, double ms, const char *after)
{
    if (isnan(ms))
        fprintf(out, "%snot known%s", before, after);
    else
        fprintf(out, "%s%.4g ms%s", before, ms, after);
}

void plan_print_link(const hcp_plan *plan, FILE *out)
{
    if (plan->has_links) {
        fprintf(out, ", a link for each pair");
        return;
    }
    if (plan->link_alpha_us != 0 || plan->link_gbps != 0) {
        fprintf(out, ", link %.4g us", plan->link_alpha_us);
        if (plan->link_gbps > 0)
            fprintf(out, " + bytes / %.4g GB/s", plan->link_gbps);
    }
    if (plan->node_ranks > 0) {
        fprintf(out, ", nodes of %d ranks, %.4g us", (int)plan->node_ranks,
                plan->node_alpha_us);
        if (plan->node_gbps > 0)
            fprintf(out, " + bytes / %.4g GB/s", plan->node_gbps);
        fputs(" between them", out);
        if (plan->node_shared_gbps > 0)
            fprintf(out, " (%.4g GB/s a node)", plan->node_shared_gbps);
    }
}

static void print_rings(const hcp_plan *plan, FILE *out)
{
    double gain = plan->one_ring_ms / plan->two_level_ms;

    if (!plan->rings)
        return;
    if (isnan(plan->two_level_ms))
        fputs("one ring: there are none of rings here", out);
    else if (plan->inner_ranks > 0)
        fprintf(out, "rings of %d ranks on every node, and rings of those",
                (int)plan->inner_ranks);
    else
        fprintf(out, "one ring; rings of rings would take %.4g ms", plan->two_level_ms);
    if (plan->inner_ranks > 0)
        print_known(out, "; one ring would take ", plan->one_ring_ms, "");
    if (plan->inner_ranks > 0 && !isnan(gain))
        fprintf(out, " (gain %.3gx)", gain);
    fputc('\n', out);
}

static void print_order(const hcp_plan *plan, FILE *out)
{
    double gain = plan->given_order_ms / plan->any_order_ms;
    int differs = 0;

    for (size_t r = 0; plan->order && r < plan->n_ranks; r++)
        differs |= plan->places[r].rank != (int32_t)r;
    if (!plan->order)
        return;
    if (differs) {
        fputs("order in the ring:", out);
        for (size_t r = 0; r < plan->n_ranks && r < 32; r++)
            fprintf(out, " %d", (int)plan->places[r].rank);
        fputs(plan->n_ranks > 32 ? " ...; " : "; ", out);
        print_known(out, "in the order of --ranks ", plan->given_order_ms, "");
        if (!isnan(gain))
            fprintf(out, ", %.4g times as long", gain);
    } else if (gain > 1) {
        fprintf(out,
                "order of --ranks kept; another would take %.4g ms (gain "
                "%.4gx)",
                plan->any_order_ms, gain);
    } else {
        fputs("no faster order found than that of --ranks", out);
    }
    fputc('\n', out);
}

/* Ranks that send late by their slots. */
static void print_late(const hcp_plan *plan, FILE *out)
{
    double gain = plan->in_turn_ms / plan->makespan_ms;
    int late = 0;

    if (!plan->late_kv)
        return;
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (plan->ranks[r].late_slots > 0)
            fprintf(out, "%s%zu by %d", late++ ? ", " : "late KV: of rank ", r,
                    (int)plan->ranks[r].late_slots);
    if (!late)
        fputs("late KV: of no rank", out);
    print_known(out, "; in turn ", plan->in_turn_ms, "");
    if (!isnan(gain))
        fprintf(out, " (gain %.4gx)", gain);
    fprintf(out, ", no order of these blocks is below %.4g ms\n", plan->late_bound_ms);
}

static void print_joint(const hcp_plan *plan, FILE *out)
{
    if (!plan->joint)
        return;
    print_known(out, "queries and KV split apart; with KV where its queries are ",
                plan->tied_ms, "");
    if (!isnan(plan->gain_over_tied))
        fprintf(out, " (gain %.4gx)", plan->gain_over_tied);
    fputc('\n', out);
}

/* Error bar of the linear work of those that have any. */
static void print_linear_error(const hcp_plan *plan, FILE *out)
{
    double least = -1, most = 0;

    for (size_t r = 0; r < plan->n_ranks; r++) {
        double error = plan->ranks[r].linear_error;

        if (plan->ranks[r].tokens == 0)
            continue;
        least = least < 0 || error < least ? error : least;
        most = error > most ? error : most;
    }
    if (most == 0)
        return;
    fprintf(out, "linear work as measured, within %.3g", 100 * least);
    if (most > least)
        fprintf(out, " to %.3g", 100 * most);
    fputs(" % (about 90 % confidence)\n", out);
}

static void print_summary(const hcp_plan *plan, FILE *out)
{
    size_t dropped = 0;

    for (size_t r = 0; r < plan->n_ranks; r++)
        dropped += plan->ranks[r].tokens == 0 && plan->ranks[r].kv_tokens == 0;
    fprintf(out,
            "\n%s: %.4g ms (%.4g to %.4g), %s layout, %s kernel, tile %lld, %s times%s",
            hcp_strategy_name(plan->strategy), plan->makespan_ms, plan->interval_lo_ms,
            plan->interval_hi_ms, hcp_layout_name(plan->layout), plan->provider,
            (long long)plan->tile, hcp_source_name(plan->source),
            plan->source == HCP_FROM_EXTRAPOLATED ? " (outside what was measured)" : "");
    if (plan->sub_blocks > 1)
        fprintf(out, ", blocks in %d pieces", (int)plan->sub_blocks);
    plan_print_link(plan, out);
    print_known(out, "\neven split ", plan->even_ms, "");
    if (!isnan(plan->gain_over_even))
        fprintf(out, " (gain %.3gx)", plan->gain_over_even);
    print_known(out, ", best without the slowest ranks ", plan->drop_ms, "");
    fprintf(out, ", no split is below %.4g ms\n", plan->bound_ms);
    if (plan->decision == HCP_DECISION_EVEN)
        fprintf(out, "the gain over an even split is inside the error bar%s\n",
                plan->source == HCP_FROM_ESTIMATED ? " of the estimate"
                                                   : ": even is as good");
    if (dropped > 0)
        fprintf(out, "%zu of %zu ranks get no tokens\n", dropped, plan->n_ranks);
    print_linear_error(plan, out);
    print_joint(plan, out);
    print_rings(plan, out);
    print_order(plan, out);
    print_late(plan, out);
    fprintf(out, "fingerprint %016llx\n", (unsigned long long)plan->fingerprint);
}

static double gib(int64_t bytes)
{
    return (double)bytes / (1 << 30);
}

/* ---- many ranks: a line for those that are alike ---- */

enum { EACH_RANK = 64, MOST_LINES = 64 };

static int alike(const hcp_plan_rank *a, const hcp_plan_rank *b)
{
    return a->tokens == b->tokens && a->kv_tokens == b->kv_tokens &&
           a->max_tokens == b->max_tokens && a->max_bytes == b->max_bytes &&
           strcmp(a->device, b->device) == 0 &&
           strcmp(a->limit, b->limit) == 0 && strcmp(a->model, b->model) == 0;
}

/* Of rank r and those after it that are alike; done[] marks them. */
static void alike_row(const hcp_plan *plan, size_t r, uint8_t *done, hcp_table *t)
{
    const hcp_plan_rank *rank = &plan->ranks[r];
    double predicted = 0, wait = 0;
    size_t n = 0, last = r;

    for (size_t i = r; i < plan->n_ranks; i++) {
        const hcp_plan_rank *other = &plan->ranks[i];

        if (done[i] || !alike(rank, other))
            continue;
        done[i] = 1;
        last = i;
        n++;
        predicted = fmax(predicted, other->predicted_ms);
        wait = fmax(wait, other->predicted_ms - other->compute_ms);
    }
    hcp_table_row(t);
    hcp_table_cell(t, "%zu", n);
    hcp_table_cell(t, last == r ? "%zu" : "%zu-%zu", r, last);
    hcp_table_cell(t, "%s", rank->device);
    hcp_table_cell(t, "%s", rank->limit[0] ? rank->limit : "whole");
    hcp_table_cell(t, "%lld", (long long)rank->tokens);
    if (plan->joint)
        hcp_table_cell(t, "%lld", (long long)rank->kv_tokens);
    hcp_table_cell(t, "%.4f %%",
                   100.0 * (double)rank->tokens / (double)plan->seq_len * (double)n);
    hcp_table_cell(t, "%.4f", predicted);
    hcp_table_cell(t, "%.4f", wait);
    hcp_table_cell(t, "%s", rank->model);
}

static int print_alike(const hcp_plan *plan, FILE *out)
{
    uint8_t *done = calloc(plan->n_ranks, 1);
    size_t lines = 0, left = 0;
    hcp_table *t;
    int rc;

    if (!done)
        return -1;
    t = hcp_table_new();
    hcp_table_column(t, "ranks", 1);
    hcp_table_column(t, "among", 0);
    hcp_table_column(t, "device", 0);
    hcp_table_column(t, "limit", 0);
    hcp_table_column(t, "tokens each", 1);
    if (plan->joint)
        hcp_table_column(t, "KV each", 1);
    hcp_table_column(t, "share of all", 1);
    hcp_table_column(t, "predicted_ms", 1);
    hcp_table_column(t, "wait_ms", 1);
    hcp_table_column(t, "model", 0);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        if (done[r])
            continue;
        if (lines++ < MOST_LINES)
            alike_row(plan, r, done, t);
        else
            left++;
    }
    rc = hcp_table_print(t, out);
    if (left > 0)
        fprintf(out, "... and %zu more ranks\n", left);
    fprintf(out, "ranks that are alike share a line, with their longest times; --json "
                 "has every rank\n");
    free(done);
    return rc;
}

int plan_print(const hcp_plan *plan, FILE *out)
{
    hcp_table *t;
    int rc, linear = plan_has_linear(plan), memory = plan_has_memory(plan);

    if (strcmp(plan->shape.phase, "decode") == 0)
        return plan_print_decode(plan, out);
    if (plan->n_ranks > EACH_RANK) {
        rc = print_alike(plan, out);
        print_summary(plan, out);
        return rc;
    }
    t = hcp_table_new();
    hcp_table_column(t, "rank", 1);
    if (plan->order)
        hcp_table_column(t, "given_rank", 1);
    hcp_table_column(t, "device", 0);
    hcp_table_column(t, "limit", 0);
    hcp_table_column(t, "tokens", 1);
    if (plan->joint)
        hcp_table_column(t, "kv_tokens", 1);
    hcp_table_column(t, "share", 1);
    hcp_table_column(t, "predicted_ms", 1);
    hcp_table_column(t, "wait_ms", 1);
    if (linear)
        hcp_table_column(t, "linear_ms", 1);
    if (memory) {
        hcp_table_column(t, "memory_gib", 1);
        hcp_table_column(t, "of_gib", 1);
    }
    hcp_table_column(t, "model", 0);
    hcp_table_column(t, "segments", 0);
    if (plan->joint)
        hcp_table_column(t, "kv_segments", 0);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_plan_rank *rank = &plan->ranks[r];
        char segments[160];

        hcp_table_row(t);
        hcp_table_cell(t, "%zu", r);
        if (plan->order)
            hcp_table_cell(t, "%d", (int)plan->places[r].rank);
        hcp_table_cell(t, "%s", rank->device);
        hcp_table_cell(t, "%s", rank->limit[0] ? rank->limit : "whole");
        hcp_table_cell(t, "%lld", (long long)rank->tokens);
        if (plan->joint)
            hcp_table_cell(t, "%lld", (long long)rank->kv_tokens);
        hcp_table_cell(t, "%.2f %%",
                       100.0 * (double)rank->tokens / (double)plan->seq_len);
        hcp_table_cell(t, "%.4f", rank->predicted_ms);
        hcp_table_cell(t, "%.4f", rank->predicted_ms - rank->compute_ms);
        if (linear)
            hcp_table_cell(t, "%.4f", plan_before_ms(rank) + plan_after_ms(rank));
        if (memory)
            hcp_table_cell(t, "%.3f", gib(rank->memory_bytes));
        if (memory && rank->max_bytes > 0)
            hcp_table_cell(t, "%.3f", gib(rank->max_bytes));
        else if (memory)
            hcp_table_cell(t, "-");
        hcp_table_cell(t, "%s", rank->model);
        segments_text(plan->segments + rank->first_segment, rank->n_segments, segments,
                      sizeof segments);
        hcp_table_cell(t, "%s", segments);
        if (!plan->joint)
            continue;
        segments_text(plan->segments + rank->first_kv_segment, rank->n_kv_segments,
                      segments, sizeof segments);
        hcp_table_cell(t, "%s", segments);
    }
    rc = hcp_table_print(t, out);
    print_summary(plan, out);
    return rc;
}
