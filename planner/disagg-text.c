/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include "planner/options.h"

static const char *role_name(int32_t role)
{
    static const char *const names[] = {"none", "prefill", "decode", "both"};

    return role >= 0 && role < 4 ? names[role] : "?";
}

static int32_t role_of(const hcp_disagg_advice *a, const hcp_disagg_rank *rank)
{
    return a->decision == HCP_DISAGG_SEPARATE ? rank->separate : rank->colocated;
}

/* ---- text ---- */

static int print_ranks(const hcp_disagg_advice *a, FILE *out)
{
    hcp_table *t = hcp_table_new();

    hcp_table_column(t, "rank", 1);
    hcp_table_column(t, "device", 0);
    hcp_table_column(t, "limit", 0);
    hcp_table_column(t, "role", 0);
    hcp_table_column(t, "prefill_tokens", 1);
    hcp_table_column(t, "decode_tokens", 1);
    hcp_table_column(t, "memory_gib", 1);
    for (size_t r = 0; r < a->n_ranks; r++) {
        const hcp_disagg_rank *rank = &a->ranks[r];

        hcp_table_row(t);
        hcp_table_cell(t, "%zu", r);
        hcp_table_cell(t, "%s", rank->device);
        hcp_table_cell(t, "%s", rank->limit[0] ? rank->limit : "whole");
        hcp_table_cell(t, "%s", role_name(role_of(a, rank)));
        hcp_table_cell(t, "%lld", (long long)rank->prefill_tokens);
        hcp_table_cell(t, "%lld", (long long)rank->decode_tokens);
        hcp_table_cell(t, "%.3f", (double)rank->memory_bytes / (1 << 30));
    }
    return hcp_table_print(t, out);
}

static int print_moves(const hcp_disagg_advice *a, FILE *out)
{
    hcp_table *t;

    if (a->n_moves == 0)
        return 0;
    fputc('\n', out);
    t = hcp_table_new();
    hcp_table_column(t, "from", 1);
    hcp_table_column(t, "to", 1);
    hcp_table_column(t, "tokens", 1);
    hcp_table_column(t, "bytes", 1);
    hcp_table_column(t, "ms", 1);
    for (size_t i = 0; i < a->n_moves; i++) {
        hcp_table_row(t);
        hcp_table_cell(t, "%d", (int)a->moves[i].from);
        hcp_table_cell(t, "%d", (int)a->moves[i].to);
        hcp_table_cell(t, "%lld", (long long)a->moves[i].tokens);
        hcp_table_cell(t, "%lld", (long long)a->moves[i].bytes);
        hcp_table_cell(t, "%.4f", a->moves[i].ms);
    }
    return hcp_table_print(t, out);
}

static void option_row(const hcp_disagg_option *o, const char *name, hcp_table *t)
{
    if (!o->exists)
        return;
    hcp_table_row(t);
    hcp_table_cell(t, "%s", name);
    hcp_table_cell(t, "%d", (int)o->prefill_ranks);
    hcp_table_cell(t, "%d", (int)o->decode_ranks);
    hcp_table_cell(t, "%d", (int)o->both_ranks);
    hcp_table_cell(t, "%.4g", o->ttft_ms);
    hcp_table_cell(t, "%.4g", o->move_ms);
    hcp_table_cell(t, "%.4g", o->step_ms);
    hcp_table_cell(t, "%.4g", o->tpot_ms);
    hcp_table_cell(t, "%.4g", o->latency_ms);
    hcp_table_cell(t, "%.4g", o->period_ms);
    hcp_table_cell(t, "%.4g", o->requests_per_s);
}

static int print_options(const hcp_disagg_advice *a, FILE *out)
{
    hcp_table *t = hcp_table_new();

    fputc('\n', out);
    hcp_table_column(t, "groups", 0);
    hcp_table_column(t, "prefill", 1);
    hcp_table_column(t, "decode", 1);
    hcp_table_column(t, "both", 1);
    hcp_table_column(t, "ttft_ms", 1);
    hcp_table_column(t, "move_ms", 1);
    hcp_table_column(t, "step_ms", 1);
    hcp_table_column(t, "tpot_ms", 1);
    hcp_table_column(t, "latency_ms", 1);
    hcp_table_column(t, "period_ms", 1);
    hcp_table_column(t, "requests_per_s", 1);
    option_row(&a->colocated, "colocated", t);
    option_row(&a->separate, "disaggregated", t);
    return hcp_table_print(t, out);
}

static double score(const hcp_disagg_advice *a, const hcp_disagg_option *o)
{
    return a->objective == HCP_DISAGG_LATENCY ? o->latency_ms : o->period_ms;
}

static void print_verdict(const hcp_disagg_advice *a, FILE *out)
{
    const char *what =
        a->objective == HCP_DISAGG_LATENCY ? "latency of a batch" : "period of a stream";
    int separate = a->decision == HCP_DISAGG_SEPARATE;
    const hcp_disagg_option *best = separate ? &a->separate : &a->colocated;
    const hcp_disagg_option *other = separate ? &a->colocated : &a->separate;

    fprintf(out, "\n%s: %s %.4g ms (%.4g to %.4g, %s)",
            separate ? "disaggregate" : "do not disaggregate", what, score(a, best),
            best->interval_lo_ms, best->interval_hi_ms, hcp_source_name(a->source));
    if (!other->exists)
        fprintf(out, "; there is no way to %s\n", separate ? "colocate" : "disaggregate");
    else
        fprintf(out, ", %s %.4g ms (%.3gx)%s\n", separate ? "colocated" : "disaggregated",
                score(a, other), score(a, other) / score(a, best),
                a->within_error ? ", within the error bars" : "");
    if (best->move_bytes > 0)
        fprintf(out, "%.4g GB of KV a batch in %.4g ms, %.4g ms of it after prefill\n",
                (double)best->move_bytes / 1e9, best->move_ms, best->exposed_ms);
    else if (best->stays)
        fputs("decode runs on the shares that prefill leaves\n", out);
}

/* "the answer turns at 3.2 GB/s of transfers and less, and at 80 and more" */
static void print_turn(FILE *out, const char *unit, const char *any, double below,
                       double above)
{
    int low = below > 0, high = above > 0 && isfinite(above);

    if (!low && !high)
        fprintf(out, "the answer is the same with any %s\n", any);
    else if (!low)
        fprintf(out, "the answer turns at %.6g %s and more\n", above, unit);
    else if (!high)
        fprintf(out, "the answer turns at %.6g %s and less\n", below, unit);
    else
        fprintf(out, "the answer turns at %.6g %s and less, and at %.6g and more\n",
                below, unit, above);
}

int disagg_print(const hcp_disagg_advice *a, int no_linear, const struct move_ways *ways,
                 FILE *out)
{
    const hcp_disagg_option *best =
        a->decision == HCP_DISAGG_SEPARATE ? &a->separate : &a->colocated;
    const hcp_disagg_option *other = best == &a->separate ? &a->colocated : &a->separate;
    double bound;
    int rc = print_ranks(a, out);

    rc = print_moves(a, out) || rc;
    rc = print_options(a, out) || rc;
    print_verdict(a, out);
    print_turn(out, "GB/s of transfers", "speed of transfers", a->turns_below_gbps,
               a->turns_above_gbps);
    print_turn(out, "tokens to generate", "number of tokens to generate",
               (double)a->turns_below_steps, (double)a->turns_above_steps);
    fprintf(out,
            "prompts of %lld tokens, batch %d, %lld tokens to generate, %d layer%s; "
            "prefill %s, decode %s\n",
            (long long)a->prefill->seq_len, (int)a->batch, (long long)a->steps,
            (int)a->layers, a->layers == 1 ? "" : "s", a->prefill->provider,
            a->decode->provider);
    bound = best->bound_ms;
    if (other->exists && other->bound_ms < bound)
        bound = other->bound_ms;
    fprintf(out, "%d kinds of groups", (int)a->n_groups);
    if (!(bound > 0))
        fputs(" of those there are, others may be better\n", out);
    else if (bound >= score(a, best))
        fputs(", no other are better\n", out);
    else
        fprintf(out, ", no other are better by more than %.2g %%\n",
                100 * (score(a, best) / bound - 1));
    if (a->n_unknown > 0)
        fprintf(out,
                "%d of them left out: lengths that were not measured (--extrapolate)\n",
                (int)a->n_unknown);
    if (a->link_gbps == 0)
        fputs("transfers are taken to be infinitely fast; --link, --link-gbps or "
              "--transfer-gbps say how fast they are\n",
              out);
    if (no_linear)
        fputs("decode steps are attention and merge alone; --decode-linear-us or --model "
              "add a layer's linear work\n",
              out);
    move_ways_print(ways, out);
    return rc;
}

/* ---- JSON ---- */

static json_t *option_json(const hcp_disagg_option *o)
{
    if (!o->exists)
        return json_null();
    return json_pack(
        "{s:i, s:i, s:i, s:b, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:[o, o], s:o, "
        "s:o}",
        "prefill_ranks", (int)o->prefill_ranks, "decode_ranks", (int)o->decode_ranks,
        "both_ranks", (int)o->both_ranks, "stays", (int)o->stays, "move_bytes",
        (json_int_t)o->move_bytes, "ttft_ms", hcp_json_real(o->ttft_ms), "move_ms",
        hcp_json_real(o->move_ms), "exposed_ms", hcp_json_real(o->exposed_ms), "step_ms",
        hcp_json_real(o->step_ms), "tpot_ms", hcp_json_real(o->tpot_ms), "latency_ms",
        hcp_json_real(o->latency_ms), "period_ms", hcp_json_real(o->period_ms),
        "interval_ms", hcp_json_real(o->interval_lo_ms), hcp_json_real(o->interval_hi_ms),
        "bound_ms", hcp_json_real(o->bound_ms > 0 ? o->bound_ms : NAN), "requests_per_s",
        hcp_json_real(o->requests_per_s));
}

static json_t *ranks_json(const hcp_disagg_advice *a)
{
    json_t *array = json_array();

    for (size_t r = 0; r < a->n_ranks; r++) {
        const hcp_disagg_rank *rank = &a->ranks[r];

        json_array_append_new(
            array,
            json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I}",
                      "rank", (int)r, "device", rank->device, "limit", rank->limit,
                      "class", (int)rank->class_of, "role", role_name(role_of(a, rank)),
                      "colocated_role", role_name(rank->colocated), "disaggregated_role",
                      role_name(rank->separate), "prefill_tokens",
                      (json_int_t)rank->prefill_tokens, "decode_tokens",
                      (json_int_t)rank->decode_tokens, "max_bytes",
                      (json_int_t)rank->max_bytes, "weight_bytes",
                      (json_int_t)rank->weight_bytes, "memory_bytes",
                      (json_int_t)rank->memory_bytes));
    }
    return array;
}

static json_t *moves_json(const hcp_disagg_advice *a)
{
    json_t *array = json_array();

    for (size_t i = 0; i < a->n_moves; i++) {
        const hcp_move *move = &a->moves[i];
        json_t *segments = json_array();

        for (int64_t k = 0; k < move->n_segments; k++) {
            const hcp_segment *s = &a->segments[move->first_segment + k];

            json_array_append_new(segments, json_pack("[I, I]", (json_int_t)s->offset,
                                                      (json_int_t)s->length));
        }
        json_array_append_new(
            array, json_pack("{s:i, s:i, s:I, s:I, s:o, s:o}", "from", (int)move->from,
                             "to", (int)move->to, "tokens", (json_int_t)move->tokens,
                             "bytes", (json_int_t)move->bytes, "ms",
                             hcp_json_real(move->ms), "segments", segments));
    }
    return array;
}

/* A group's plan, and which rank of all each of its ranks is. */
static json_t *group_json(const hcp_disagg_advice *a, const hcp_plan *plan, int decode)
{
    json_t *ranks = json_array(), *object;
    char *text = plan_json(plan);

    for (size_t i = 0; i < plan->n_ranks; i++)
        for (size_t r = 0; r < a->n_ranks; r++)
            if ((decode ? a->ranks[r].decode_place : a->ranks[r].prefill_place) ==
                (int32_t)i)
                json_array_append_new(ranks, json_integer((json_int_t)r));
    object = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return json_pack("{s:o, s:o}", "ranks", ranks, "plan", object);
}

static json_t *turn_json(double v)
{
    return hcp_json_real(v > 0 && isfinite(v) ? v : NAN);
}

static json_t *count_json(int64_t n)
{
    return n > 0 ? json_integer((json_int_t)n) : json_null();
}

int disagg_print_json(const hcp_disagg_advice *a, const struct move_ways *ways, FILE *out)
{
    json_t *object;
    json_t *turns =
        json_pack("{s:o, s:o, s:o, s:o}", "below_gbps", turn_json(a->turns_below_gbps),
                  "above_gbps", turn_json(a->turns_above_gbps), "below_steps",
                  count_json(a->turns_below_steps), "above_steps",
                  count_json(a->turns_above_steps));

    object = json_pack(
        "{s:i, s:s, s:s, s:I, s:i, s:i, s:i, s:I, s:o, s:o, s:b, s:o, s:b, s:b, "
        "s:i, s:i, s:s}",
        "schema", 1, "decision", hcp_disagg_decision_name(a->decision), "objective",
        hcp_disagg_objective_name(a->objective), "seq_len",
        (json_int_t)a->prefill->seq_len, "batch", (int)a->batch, "prefill_runs",
        (int)a->prefill_runs, "layers", (int)a->layers, "steps", (json_int_t)a->steps,
        "link_alpha_us", hcp_json_real(a->link_alpha_us), "link_gbps",
        hcp_json_real(a->link_gbps), "stream", (int)a->stream, "gain_over_colocated",
        hcp_json_real(a->gain_over_colocated), "within_error", (int)a->within_error,
        "exact", (int)a->exact, "n_groups", (int)a->n_groups, "n_unknown",
        (int)a->n_unknown, "source", hcp_source_name(a->source));
    move_ways_json(object, ways);
    json_object_update_new(
        object, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "turns", turns,
                          "colocated", option_json(&a->colocated), "disaggregated",
                          option_json(&a->separate), "ranks", ranks_json(a), "moves",
                          moves_json(a), "prefill", group_json(a, a->prefill, 0),
                          "decode", group_json(a, a->decode, 1)));
    return hcp_json_print(object, out);
}
