/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <string.h>
#include "executor/program.h"

static double relative(double predicted, double measured)
{
    return predicted / measured - 1;
}

static json_t *interval(double lo, double hi)
{
    json_t *pair = json_array();

    json_array_append_new(pair, hcp_json_real(lo));
    json_array_append_new(pair, hcp_json_real(hi));
    return pair;
}

static void set_real(json_t *object, const char *key, double v)
{
    json_object_set_new(object, key, hcp_json_real(v));
}

static void set_text(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, json_string(text));
}

static void set_int(json_t *object, const char *key, int64_t v)
{
    json_object_set_new(object, key, json_integer((json_int_t)v));
}

/* The last pass step by step, as 'hcp-plan simulate' shows what it should be. */
static json_t *steps_json(const struct ring_result *r, size_t k)
{
    json_t *list = json_array();

    for (size_t i = 0; i < r->m; i++) {
        const double *t = r->steps[k * r->m + i];
        json_t *o = json_object();

        set_int(o, "step", (int64_t)i);
        set_real(o, "ready_ms", t[0]);
        set_real(o, "start_ms", t[1]);
        set_real(o, "busy_ms", t[2]);
        set_real(o, "fin_ms", t[3]);
        json_array_append_new(list, o);
    }
    return list;
}

static int in_ring(const hcp_plan_rank *planned)
{
    return planned->tokens > 0 || planned->kv_tokens > 0;
}

static json_t *rank_json(const struct ring_program *p, const struct ring_result *r,
                         size_t k)
{
    const hcp_plan_rank *planned = &r->plan->ranks[k];
    const struct ring_peer *peer = &p->peers[k];
    const struct ring_times *t = &r->ranks[k];
    int in = in_ring(planned);
    json_t *o = json_object();

    set_int(o, "rank", (int64_t)k);
    set_text(o, "device", peer->device);
    set_text(o, "limit", planned->limit);
    set_text(o, "host", peer->host);
    set_int(o, "sm_seen", peer->sm_seen);
    set_int(o, "tokens", planned->tokens);
    if (r->plan->joint)
        set_int(o, "kv_tokens", planned->kv_tokens);
    set_real(o, "compute_ms", t->compute_ms);
    set_real(o, "wait_ms", t->wait_ms);
    set_real(o, "transfer_ms", t->transfer_ms);
    set_real(o, "total_ms", t->total_ms);
    if (p->o.layer.hidden) {
        set_real(o, "linear_ms", t->linear_ms);
        set_real(o, "predicted_linear_ms",
                 planned->linear_before_ms + planned->linear_after_ms);
    }
    set_real(o, "predicted_compute_ms", in ? planned->compute_ms : 0);
    set_real(o, "predicted_ms", in ? planned->predicted_ms : 0);
    if (in && !ring_plan_is_decode(r->plan))
        json_object_set_new(o, "steps", steps_json(r, k));
    if (r->errors) {
        const struct ring_errors *e = &r->errors[k];

        set_real(o, "max_error", e->o_error);
        set_real(o, "error_bound", e->o_bound);
        set_real(o, "single_device_error", e->single_error);
        set_real(o, "lse_error", e->lse_error);
        set_int(o, "rows_compared", e->rows_compared);
        if (!e->passed)
            set_text(o, "failure", e->text);
    }
    return o;
}

/* "llama-3-8b", or "hidden 4096, ffn 14336, plain". */
static const char *layer_name(const struct ring_program *p, char text[64])
{
    const struct hcp_layer *l = &p->o.layer;

    if (p->o.model)
        snprintf(text, 64, "%s", p->o.model);
    else
        snprintf(text, 64, "hidden %lld, ffn %lld%s", (long long)l->hidden,
                 (long long)l->ffn, l->gated ? "" : ", plain");
    return text;
}

json_t *ring_result_json(const struct ring_program *p, const struct ring_result *r)
{
    const hcp_plan *plan = r->plan;
    const hcp_documents_plan *documents = ring_documents_of(&p->plans, plan);
    json_t *o = json_object(), *ranks = json_array(), *tokens = json_array();
    char fingerprint[20], layer[64];

    snprintf(fingerprint, sizeof fingerprint, "%016llx",
             (unsigned long long)plan->fingerprint);
    set_int(o, "schema", 1);
    set_text(o, "fingerprint", fingerprint);
    set_text(o, "strategy", hcp_strategy_name(plan->strategy));
    set_int(o, "seq_len", plan->seq_len);
    if (ring_plan_is_decode(plan)) {
        set_text(o, "phase", "decode");
        set_int(o, "batch", plan->shape.batch);
        set_text(o, "merge", hcp_merge_name(plan->merge));
        set_real(o, "predicted_merge_ms",
                 isnan(plan->makespan_ms) ? NAN : plan->merge_ms);
    }
    if (documents) {
        set_int(o, "documents", (int64_t)documents->n_documents);
        set_int(o, "cut_documents", documents->n_cut);
    }
    set_text(o, "mask", plan->causal ? "causal" : "full");
    set_text(o, "layout", hcp_layout_name(plan->layout));
    for (size_t k = 0; k < plan->n_ranks; k++)
        json_array_append_new(tokens, json_integer((json_int_t)plan->ranks[k].tokens));
    json_object_set_new(o, "tokens", tokens);
    if (plan->joint) {
        json_t *kv = json_array();

        for (size_t k = 0; k < plan->n_ranks; k++)
            json_array_append_new(kv,
                                  json_integer((json_int_t)plan->ranks[k].kv_tokens));
        json_object_set_new(o, "kv_tokens", kv);
    }
    set_real(o, "makespan_ms", r->makespan.median);
    json_object_set_new(o, "interval_ms",
                        interval(r->makespan.ci_lo, r->makespan.ci_hi));
    set_real(o, "min_ms", r->makespan.min);
    set_int(o, "repeats", r->repeats);
    set_real(o, "predicted_ms", plan->makespan_ms);
    json_object_set_new(o, "predicted_interval_ms",
                        interval(plan->interval_lo_ms, plan->interval_hi_ms));
    set_real(o, "prediction_error", relative(plan->makespan_ms, r->makespan.median));
    set_real(o, "bound_ms", plan->bound_ms);
    set_real(o, "efficiency", plan->bound_ms / r->makespan.median);
    set_real(o, "predicted_even_ms", plan->even_ms);
    if (plan->joint)
        set_real(o, "predicted_tied_ms", plan->tied_ms);
    set_text(o, "transport", r->transport);
    set_text(o, "transport_version", r->transport_version);
    json_object_set_new(o, "channels",
                        p->o.channels ? json_integer(p->o.channels) : json_null());
    set_int(o, "buffers", r->buffers);
    set_int(o, "sub_blocks", r->sub_blocks);
    json_object_set_new(o, "barrier", json_boolean(r->barrier));
    set_text(o, "provider", r->provider);
    set_text(o, "kernel", r->config);
    if (p->o.layer.hidden)
        set_text(o, "layer", layer_name(p, layer));
    json_object_set_new(o, "verified",
                        r->verified ? json_boolean(ring_result_passed(r)) : json_null());
    set_real(o, "max_error", ring_result_error(r));
    for (size_t k = 0; k < plan->n_ranks; k++)
        json_array_append_new(ranks, rank_json(p, r, k));
    json_object_set_new(o, "ranks", ranks);
    return o;
}

static void cell_ms(hcp_table *t, double ms)
{
    if (isnan(ms))
        hcp_table_cell(t, "-");
    else
        hcp_table_cell(t, ms < 100 ? "%.3f" : "%.1f", ms);
}

static int print_ranks(const struct ring_program *p, const struct ring_result *r)
{
    static const char *const columns[] = {
        "rank",        "device",  "limit",       "tokens",   "compute_ms",
        "predicted_c", "wait_ms", "transfer_ms", "total_ms", "predicted_ms",
        "linear_ms",   "predicted_l"};
    size_t n_columns = sizeof columns / sizeof *columns - (p->o.layer.hidden ? 0 : 2);
    hcp_table *t = hcp_table_new();

    for (size_t i = 0; i < n_columns; i++) {
        hcp_table_column(t, columns[i], i != 1 && i != 2);
        if (i == 3 && r->plan->joint)
            hcp_table_column(t, "kv_tokens", 1);
    }
    for (size_t k = 0; k < r->plan->n_ranks; k++) {
        const hcp_plan_rank *planned = &r->plan->ranks[k];
        int in = in_ring(planned);

        hcp_table_row(t);
        hcp_table_cell(t, "%zu", k);
        hcp_table_cell(t, "%s", p->peers[k].device);
        hcp_table_cell(t, "%s", planned->limit[0] ? planned->limit : "-");
        hcp_table_cell(t, "%lld", (long long)planned->tokens);
        if (r->plan->joint)
            hcp_table_cell(t, "%lld", (long long)planned->kv_tokens);
        cell_ms(t, r->ranks[k].compute_ms);
        cell_ms(t, in ? planned->compute_ms : 0);
        cell_ms(t, r->ranks[k].wait_ms);
        cell_ms(t, r->ranks[k].transfer_ms);
        cell_ms(t, r->ranks[k].total_ms);
        cell_ms(t, in ? planned->predicted_ms : 0);
        if (p->o.layer.hidden) {
            cell_ms(t, r->ranks[k].linear_ms);
            cell_ms(t, planned->linear_before_ms + planned->linear_after_ms);
        }
    }
    return hcp_table_print(t, stdout);
}

static void print_verification(const struct ring_result *r)
{
    double worst = ring_result_error(r), bound = 0, lse = 0;
    int64_t rows = 0;

    if (!r->verified)
        return;
    for (size_t k = 0; k < r->plan->n_ranks; k++) {
        const struct ring_errors *e = &r->errors[k];

        rows += e->rows_compared;
        lse = fmax(lse, e->lse_error);
        if (e->o_error == worst) /* a rank without tokens has no bound */
            bound = fmax(bound, e->o_bound);
    }
    if (ring_result_passed(r))
        printf("verified: %lld rows, O within %.2e (bound %.2e), L within %.2f of its "
               "bound\n",
               (long long)rows, worst, bound, lse);
    for (size_t k = 0; k < r->plan->n_ranks; k++)
        if (!r->errors[k].passed)
            printf("NOT VERIFIED: rank %zu: %s\n", k, r->errors[k].text);
}

/* What moved the blocks and what computed them. */
void ring_print_means(const struct ring_program *p, const struct ring_result *r)
{
    int moved = r->transport[0] != '\0';

    printf("%s%s%s%s", moved ? r->transport : "one rank", moved ? " (" : "",
           r->transport_version, moved ? ")" : "");
    if (moved && p->o.channels)
        printf(", %d channel%s", (int)p->o.channels, p->o.channels == 1 ? "" : "s");
    printf(", kernel %s\n", r->provider);
}

static int print_one(const struct ring_program *p, const struct ring_result *r)
{
    const hcp_plan *plan = r->plan;
    const hcp_documents_plan *documents = ring_documents_of(&p->plans, plan);
    int rc = print_ranks(p, r);

    if (ring_plan_is_decode(plan))
        printf("\n%s, decode of batch %d, %lld keys, %s%s: ",
               hcp_strategy_name(plan->strategy), (int)plan->shape.batch,
               (long long)plan->seq_len, plan->merge ? "merge by " : "nothing to merge",
               plan->merge ? hcp_merge_name(plan->merge) : "");
    else if (documents)
        printf("\n%s, %zu documents of %lld tokens, %lld cut, %s mask: ",
               hcp_strategy_name(plan->strategy), documents->n_documents,
               (long long)plan->seq_len, (long long)documents->n_cut,
               plan->causal ? "causal" : "full");
    else
        printf("\n%s, %lld tokens, %s mask, %s layout: ",
               hcp_strategy_name(plan->strategy), (long long)plan->seq_len,
               plan->causal ? "causal" : "full", hcp_layout_name(plan->layout));
    printf("measured %.3f ms (95 %%: %.3f..%.3f, %d passes)", r->makespan.median,
           r->makespan.ci_lo, r->makespan.ci_hi, r->repeats);
    if (!isnan(plan->makespan_ms))
        printf(", predicted %.3f (%+.1f %%)", plan->makespan_ms,
               100 * relative(plan->makespan_ms, r->makespan.median));
    if (!isnan(plan->bound_ms))
        printf(", %.2f of the bound %.3f", plan->bound_ms / r->makespan.median,
               plan->bound_ms);
    printf("\n");
    ring_print_means(p, r);
    print_verification(r);
    return rc;
}

/* "44032/21504", of a joint plan then " KV 32768/32768"; of very many ranks the first. */
static void list_tokens(const hcp_plan *plan, char text[320])
{
    enum { LONGEST = 25, ROOM = 160 }; /* of '/' and a number, or "/..."; of a list */
    size_t at = 0;

    for (int kv = 0; kv <= (plan->joint ? 1 : 0); kv++) {
        size_t end = at + ROOM;

        for (size_t k = 0; k < plan->n_ranks; k++) {
            const hcp_plan_rank *rank = &plan->ranks[k];

            if (at + 2 * LONGEST >= end && k + 1 < plan->n_ranks) {
                at += (size_t)snprintf(text + at, end - at, "/...");
                break;
            }
            at += (size_t)snprintf(text + at, end - at, "%s%lld",
                                   k    ? "/"
                                   : kv ? " KV "
                                        : "",
                                   (long long)(kv ? rank->kv_tokens : rank->tokens));
        }
    }
}

static int print_many(const struct ring_result *results, size_t n,
                      const char *const *notes)
{
    static const char *const columns[] = {"strategy",    "seq_len",      "mask",
                                          "layout",      "measured_ms",  "interval_ms",
                                          "predicted_ms", "error_%",     "of_bound",
                                          "tokens",      "note"};
    size_t n_columns = sizeof columns / sizeof *columns - (notes == NULL);
    hcp_table *t = hcp_table_new();

    for (size_t i = 0; i < n_columns; i++)
        hcp_table_column(t, columns[i], i == 1 || (i >= 4 && i <= 8));
    for (size_t i = 0; i < n; i++) {
        const struct ring_result *r = &results[i];
        const hcp_plan *plan = r->plan;
        char tokens[320];

        hcp_table_row(t);
        hcp_table_cell(t, "%s", hcp_strategy_name(plan->strategy));
        hcp_table_cell(t, "%lld", (long long)plan->seq_len);
        hcp_table_cell(t, "%s", plan->causal ? "causal" : "full");
        hcp_table_cell(t, "%s", hcp_layout_name(plan->layout));
        cell_ms(t, r->makespan.median);
        hcp_table_cell(t, "%.3f..%.3f", r->makespan.ci_lo, r->makespan.ci_hi);
        cell_ms(t, plan->makespan_ms);
        if (isnan(plan->makespan_ms))
            hcp_table_cell(t, "-");
        else
            hcp_table_cell(t, "%+.1f",
                           100 * relative(plan->makespan_ms, r->makespan.median));
        if (isnan(plan->bound_ms))
            hcp_table_cell(t, "-");
        else
            hcp_table_cell(t, "%.3f", plan->bound_ms / r->makespan.median);
        list_tokens(plan, tokens);
        hcp_table_cell(t, "%s", tokens);
        if (notes)
            hcp_table_cell(t, "%s", notes[i] ? notes[i] : "");
    }
    return hcp_table_print(t, stdout);
}

int ring_print(const struct ring_program *p, const struct ring_result *results, size_t n,
               const char *const *notes)
{
    size_t means = 0;

    if (p->o.json) {
        json_t *list;

        if (n == 1 && !notes)
            return hcp_json_print(ring_result_json(p, results), stdout);
        list = json_array();
        for (size_t i = 0; i < n; i++) {
            json_t *o = ring_result_json(p, &results[i]);

            if (notes)
                set_text(o, "note", notes[i] ? notes[i] : "");
            json_array_append_new(list, o);
        }
        return hcp_json_print(list, stdout);
    }
    if (n == 1 && !notes)
        return print_one(p, results);
    if (print_many(results, n, notes))
        return -1;
    while (means + 1 < n && !results[means].transport[0])
        means++; /* a plan of one rank says less */
    ring_print_means(p, &results[means]);
    for (size_t i = 0; i < n; i++)
        print_verification(&results[i]);
    return 0;
}
