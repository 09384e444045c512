/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run of chunks has measured, beside what its plan says.
 */
#include "config.h"
#include <math.h>
#include <string.h>
#include "executor/program.h"

/* Sums over chunks. A layer is what is run; a step is all layers and what is beside them.
 */
struct sums {
    double layer_ms, predicted_layer_ms, bound_ms;
    double total_ms, longest_ms;
    size_t over_budget; /* steps */
    int predicted;      /* what is run is what was predicted */
};

static double step_of(const hcp_chunks_plan *plan, double layer_ms)
{
    return plan->step_fixed_ms + plan->layers * layer_ms;
}

static struct sums sum(const struct ring_chunks_result *r)
{
    struct sums s = {.predicted = 1};

    for (size_t k = 0; k < r->plan->n_chunks; k++) {
        const struct ring_chunk_result *c = &r->chunks[k];
        double step_ms = step_of(r->plan, c->result.makespan.median);

        s.layer_ms += c->result.makespan.median;
        s.predicted_layer_ms += c->plan.makespan_ms;
        s.bound_ms += c->plan.bound_ms;
        s.total_ms += step_ms;
        s.longest_ms = fmax(s.longest_ms, step_ms);
        s.over_budget += r->plan->step_budget_ms > 0 && step_ms > r->plan->step_budget_ms;
    }
    s.predicted = !isnan(s.predicted_layer_ms);
    return s;
}

int ring_chunks_passed(const struct ring_chunks_result *r)
{
    for (size_t k = 0; k < r->plan->n_chunks; k++)
        if (!ring_result_passed(&r->chunks[k].result))
            return 0;
    for (size_t i = 0; r->failed && i < r->plan->n_ranks; i++)
        if (r->failed[i][0])
            return 0;
    return 1;
}

/* Largest error of O over all chunks, its bound and that of L; NaN when not verified. */
static double worst(const struct ring_chunks_result *r, double *bound, double *lse,
                    int64_t *rows)
{
    double error = r->failed ? 0 : NAN;

    *bound = *lse = 0;
    *rows = 0;
    for (size_t k = 0; r->failed && k < r->plan->n_chunks; k++) {
        for (size_t i = 0; i < r->plan->n_ranks; i++) {
            const struct ring_errors *e = &r->chunks[k].result.errors[i];

            *rows += e->rows_compared;
            *lse = fmax(*lse, e->lse_error);
            if (e->o_error == error) { /* of no tokens there is no bound */
                *bound = fmax(*bound, e->o_bound);
            } else if (!isnan(error) && !(e->o_error < error)) { /* a NaN stays */
                error = e->o_error;
                *bound = e->o_bound;
            }
        }
    }
    return error;
}

/* ---- JSON ---- */

static void set_real(json_t *object, const char *key, double v)
{
    json_object_set_new(object, key, hcp_json_real(v));
}

static void set_int(json_t *object, const char *key, int64_t v)
{
    json_object_set_new(object, key, json_integer((json_int_t)v));
}

static json_t *chunk_json(const struct ring_program *p,
                          const struct ring_chunks_result *r, size_t k)
{
    /* Of all chunks the same, or of no one. */
    static const char *const others[] = {
        "schema",  "fingerprint",       "strategy",          "seq_len",
        "mask",    "transport",         "transport_version", "channels",
        "buffers", "sub_blocks",        "barrier",           "provider",
        "layer",   "predicted_even_ms", "predicted_tied_ms"};
    const struct ring_chunk_result *c = &r->chunks[k];
    json_t *o = json_object(), *result = ring_result_json(p, &c->result), *rank;
    size_t i;

    set_int(o, "offset", r->plan->chunks[k].offset);
    set_int(o, "chunk_tokens", r->plan->chunks[k].tokens);
    for (i = 0; i < sizeof others / sizeof *others; i++)
        json_object_del(result, others[i]);
    json_object_update(o, result);
    json_decref(result);
    set_real(o, "step_ms", step_of(r->plan, c->result.makespan.median));
    set_real(o, "predicted_step_ms",
             isnan(c->plan.makespan_ms) ? NAN : r->plan->chunks[k].step_ms);
    json_array_foreach(json_object_get(o, "ranks"), i, rank)
    {
        set_int(rank, "received_blocks", c->traffic[2 * i].blocks);
        set_int(rank, "received_bytes", c->traffic[2 * i].bytes);
        set_int(rank, "sent_blocks", c->traffic[2 * i + 1].blocks);
        set_int(rank, "sent_bytes", c->traffic[2 * i + 1].bytes);
    }
    return o;
}

static json_t *rank_json(const struct ring_program *p, const struct ring_chunks_result *r,
                         size_t i)
{
    const struct ring_peer *peer = &p->peers[i];
    json_t *o = json_object();

    set_int(o, "rank", (int64_t)i);
    json_object_set_new(o, "device", json_string(peer->device));
    json_object_set_new(o, "limit", json_string(r->plan->ranks[i].limit));
    json_object_set_new(o, "host", json_string(peer->host));
    set_int(o, "sm_seen", peer->sm_seen);
    set_int(o, "tokens", r->plan->ranks[i].tokens);
    if (r->failed)
        set_int(o, "tokens_compared", r->plan->ranks[i].tokens);
    if (r->failed && r->failed[i][0])
        json_object_set_new(o, "failure", json_string(r->failed[i]));
    return o;
}

/* A result whose ring has moved blocks; a chunk on one rank alone says less. */
static const struct ring_result *telling(const struct ring_chunks_result *r)
{
    size_t k = 0;

    while (k + 1 < r->plan->n_chunks && !r->chunks[k].result.transport[0])
        k++;
    return &r->chunks[k].result;
}

static int print_json(const struct ring_program *p, const struct ring_chunks_result *r)
{
    static const char *const copied[] = {
        "schema",    "fingerprint",       "strategy", "seq_len", "mask",
        "transport", "transport_version", "channels", "buffers", "sub_blocks",
        "barrier",   "provider",          "layer"};
    json_t *o = json_object(), *from = ring_result_json(p, telling(r));
    json_t *chunks = json_array(), *ranks = json_array();
    struct sums s = sum(r);
    double bound, lse;
    int64_t rows;

    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        if (json_object_get(from, copied[i]))
            json_object_set(o, copied[i], json_object_get(from, copied[i]));
    json_decref(from);
    set_int(o, "layers", r->plan->layers);
    set_real(o, "makespan_ms", s.layer_ms);
    set_real(o, "predicted_ms", s.predicted_layer_ms);
    set_real(o, "prediction_error", s.predicted_layer_ms / s.layer_ms - 1);
    set_real(o, "bound_ms", s.bound_ms);
    set_real(o, "efficiency", s.bound_ms / s.layer_ms);
    set_real(o, "step_fixed_ms", r->plan->step_fixed_ms);
    set_real(o, "step_budget_ms",
             r->plan->step_budget_ms > 0 ? r->plan->step_budget_ms : NAN);
    set_real(o, "total_ms", s.total_ms);
    set_real(o, "predicted_total_ms", s.predicted ? r->plan->total_ms : NAN);
    set_real(o, "longest_step_ms", s.longest_ms);
    set_real(o, "predicted_longest_step_ms",
             s.predicted ? r->plan->longest_step_ms : NAN);
    set_int(o, "over_budget", (int64_t)s.over_budget);
    json_object_set_new(o, "verified",
                        r->failed ? json_boolean(ring_chunks_passed(r)) : json_null());
    set_real(o, "max_error", worst(r, &bound, &lse, &rows));
    for (size_t k = 0; k < r->plan->n_chunks; k++)
        json_array_append_new(chunks, chunk_json(p, r, k));
    json_object_set_new(o, "chunks", chunks);
    for (size_t i = 0; i < r->plan->n_ranks; i++)
        json_array_append_new(ranks, rank_json(p, r, i));
    json_object_set_new(o, "ranks", ranks);
    return hcp_json_print(o, stdout);
}

/* ---- text ---- */

static void cell_ms(hcp_table *t, double ms)
{
    if (isnan(ms))
        hcp_table_cell(t, "-");
    else
        hcp_table_cell(t, ms < 100 ? "%.3f" : "%.1f", ms);
}

static void add_rank(hcp_table *t, const struct ring_program *p,
                     const struct ring_chunk_result *c, size_t k, size_t i)
{
    const hcp_plan_rank *planned = &c->plan.ranks[i];
    const struct ring_times *times = &c->result.ranks[i];
    int in = planned->tokens > 0 || planned->kv_tokens > 0;

    hcp_table_row(t);
    hcp_table_cell(t, "%zu", k);
    hcp_table_cell(t, "%zu", i);
    hcp_table_cell(t, "%s", p->peers[i].device);
    hcp_table_cell(t, "%s", planned->limit[0] ? planned->limit : "-");
    hcp_table_cell(t, "%s", hcp_layout_name(c->plan.layout));
    hcp_table_cell(t, "%lld", (long long)planned->tokens);
    hcp_table_cell(t, "%lld", (long long)planned->kv_tokens);
    cell_ms(t, times->compute_ms);
    cell_ms(t, in ? planned->compute_ms : 0);
    cell_ms(t, times->wait_ms);
    cell_ms(t, times->transfer_ms);
    cell_ms(t, times->total_ms);
    cell_ms(t, in ? planned->predicted_ms : 0);
}

static int print_table(const struct ring_program *p, const struct ring_chunks_result *r)
{
    static const char *const columns[] = {
        "chunk",       "rank",      "device",      "limit",       "layout",
        "tokens",      "kv_tokens", "compute_ms",  "predicted_c", "wait_ms",
        "transfer_ms", "total_ms",  "predicted_ms"};
    hcp_table *t = hcp_table_new();

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(t, columns[i], i < 2 || i > 4);
    for (size_t k = 0; k < r->plan->n_chunks; k++) {
        const struct ring_chunk_result *c = &r->chunks[k];
        const hcp_chunk *chunk = &r->plan->chunks[k];

        for (size_t i = 0; i < r->plan->n_ranks; i++)
            add_rank(t, p, c, k, i);
        hcp_table_row(t);
        hcp_table_cell(t, "%zu", k);
        for (int i = 0; i < 4; i++)
            hcp_table_cell(t, "%s", i == 0 ? "all" : "");
        hcp_table_cell(t, "%lld", (long long)chunk->tokens);
        hcp_table_cell(t, "%lld", (long long)(chunk->offset + chunk->tokens));
        for (int i = 0; i < 4; i++)
            hcp_table_cell(t, "%s", "");
        cell_ms(t, c->result.makespan.median);
        cell_ms(t, c->plan.makespan_ms);
    }
    return hcp_table_print(t, stdout);
}

static void print_verification(const struct ring_chunks_result *r)
{
    double bound, lse, error;
    int64_t rows;

    if (!r->failed)
        return;
    error = worst(r, &bound, &lse, &rows);
    if (ring_chunks_passed(r))
        printf("verified: %lld rows, O within %.2e (bound %.2e), L within %.2f of its "
               "bound; at the end all numbers of the KV of %lld tokens\n",
               (long long)rows, error, bound, lse, (long long)r->plan->seq_len);
    for (size_t k = 0; k < r->plan->n_chunks; k++)
        for (size_t i = 0; i < r->plan->n_ranks; i++)
            if (!r->chunks[k].result.errors[i].passed)
                printf("NOT VERIFIED: chunk %zu: rank %zu: %s\n", k, i,
                       r->chunks[k].result.errors[i].text);
    for (size_t i = 0; i < r->plan->n_ranks; i++)
        if (r->failed[i][0])
            printf("NOT VERIFIED: KV at the end: rank %zu: %s\n", i, r->failed[i]);
}

static int print_text(const struct ring_program *p, const struct ring_chunks_result *r)
{
    const hcp_chunks_plan *plan = r->plan;
    struct sums s = sum(r);
    int rc = print_table(p, r);

    printf("\n%s, %lld tokens in %zu chunk%s: a layer measured %.3f ms in all",
           hcp_strategy_name(r->chunks[0].plan.strategy), (long long)plan->seq_len,
           plan->n_chunks, plan->n_chunks == 1 ? "" : "s", s.layer_ms);
    if (s.predicted)
        printf(", predicted %.3f (%+.1f %%)", s.predicted_layer_ms,
               100 * (s.predicted_layer_ms / s.layer_ms - 1));
    if (!isnan(s.bound_ms))
        printf(", %.2f of the bound %.3f", s.bound_ms / s.layer_ms, s.bound_ms);
    printf("\nsteps of %d layer%s", (int)plan->layers, plan->layers == 1 ? "" : "s");
    if (plan->step_fixed_ms > 0)
        printf(" and %.4g ms", plan->step_fixed_ms);
    printf(": %.4g ms in all, the longest %.4g", s.total_ms, s.longest_ms);
    if (s.predicted)
        printf(" (predicted %.4g, %.4g)", plan->total_ms, plan->longest_step_ms);
    if (plan->step_budget_ms > 0)
        printf("; %zu above the budget of %.4g", s.over_budget, plan->step_budget_ms);
    printf("\n");
    ring_print_means(p, telling(r));
    print_verification(r);
    return rc;
}

int ring_chunks_print(const struct ring_program *p, const struct ring_chunks_result *r)
{
    return p->o.json ? print_json(p, r) : print_text(p, r);
}
