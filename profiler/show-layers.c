/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-profile show --model: what the linear rows say about the layer of a model, for each
 * device, limit and dtype that they cover.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/show-layers.h"
#include "profiler/show-table.h"

struct place {
    char device[64], limit[32], dtype[8], origin[12];
};

struct places {
    struct place *list;
    size_t n;
    int64_t *tokens; /* all that were measured of the layer's products, ascending */
    size_t n_tokens;
    struct hcp_layer_product product[HCP_LAYER_PRODUCTS];
    struct hcp_err *err;
};

static int add_tokens(struct places *p, int64_t tokens)
{
    size_t i = 0;
    while (i < p->n_tokens && p->tokens[i] < tokens)
        i++;
    if (i < p->n_tokens && p->tokens[i] == tokens)
        return HCP_OK;
    int64_t *more = realloc(p->tokens, (p->n_tokens + 1) * sizeof *more);
    if (!more)
        return hcp_fail(p->err, HCP_FAILED, "out of memory");
    memmove(more + i + 1, more + i, (p->n_tokens - i) * sizeof *more);
    more[i] = tokens;
    p->tokens = more;
    p->n_tokens++;
    return HCP_OK;
}

static int gather(const struct hcp_linear_row *row, void *ctx)
{
    struct places *p = ctx;
    int ours = 0;
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
        ours |= row->n_in == p->product[i].n_in && row->n_out == p->product[i].n_out;
    if (!ours)
        return HCP_OK;
    struct place *here = NULL;
    for (size_t i = 0; i < p->n && !here; i++)
        if (!strcmp(p->list[i].device, row->device) &&
            !strcmp(p->list[i].limit, row->limit) &&
            !strcmp(p->list[i].dtype, row->dtype))
            here = &p->list[i];
    if (!here) {
        struct place *more = realloc(p->list, (p->n + 1) * sizeof *more);
        if (!more)
            return hcp_fail(p->err, HCP_FAILED, "out of memory");
        p->list = more;
        here = &more[p->n++];
        strcpy(here->device, row->device);
        strcpy(here->limit, row->limit);
        strcpy(here->dtype, row->dtype);
        strcpy(here->origin, row->from.origin);
    }
    if (strcmp(here->origin, row->from.origin))
        strcpy(here->origin, "mixed");
    return add_tokens(p, row->tokens);
}

static int by_place(const void *x, const void *y)
{
    const struct place *a = x, *b = y;
    int order = strcmp(a->device, b->device);
    if (!order)
        order = hcp_limit_compare(a->limit, b->limit);
    return order ? order : strcmp(a->dtype, b->dtype);
}

struct output {
    hcp_table *table;
    json_t *array;
    const struct hcp_layer *layer;
    double flop_per_token; /* of a layer */
};

static void put_row(const struct output *o, const struct place *at, hcp_linear *linear,
                    int64_t tokens)
{
    struct hcp_linear_answer a;
    const char *version, *library = hcp_linear_library(linear, &version);
    hcp_linear_ms(linear, tokens, &a);
    double tflops = 1e-9 * o->flop_per_token * (double)tokens / a.ms;
    if (!o->array) {
        hcp_table *t = o->table;
        hcp_table_row(t);
        hcp_table_cell(t, "%s", at->device);
        hcp_table_cell(t, "%s", show_limit(at->limit));
        hcp_table_cell(t, "%s", library);
        hcp_table_cell(t, "%s", at->dtype);
        hcp_table_cell(t, "%lld", (long long)tokens);
        for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
            show_real(t, 5, a.product_ms[i]);
        show_real(t, 5, a.ms);
        show_real(t, 3, a.ms * o->layer->layers);
        show_real(t, 3, 1e3 * a.ms / (double)tokens);
        show_real(t, 1, tflops);
        hcp_table_cell(t, "%s", hcp_linear_source_name(a.source));
        show_real(t, 1, 100 * a.error);
        hcp_table_cell(t, "%s", show_origin(at->origin));
        return;
    }
    struct hcp_layer_product p[HCP_LAYER_PRODUCTS];
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:i}", "device", at->device,
                            "limit", at->limit, "library", library, "library_version",
                            version, "dtype", at->dtype, "tokens", (json_int_t)tokens,
                            "layers", (int)o->layer->layers);
    hcp_layer_products(o->layer, p);
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++) {
        char key[16];
        snprintf(key, sizeof key, "%s_ms", p[i].name);
        json_object_set_new(row, key, hcp_json_real(a.product_ms[i]));
    }
    json_object_set_new(row, "layer_ms", hcp_json_real(a.ms));
    json_object_set_new(row, "model_ms", hcp_json_real(a.ms * o->layer->layers));
    json_object_set_new(row, "tflops", hcp_json_real(tflops));
    json_object_set_new(row, "source", json_string(hcp_linear_source_name(a.source)));
    json_object_set_new(row, "error", hcp_json_real(a.error));
    json_object_set_new(row, "origin", json_string(at->origin));
    json_array_append_new(o->array, row);
}

static hcp_table *make_table(void)
{
    static const struct show_column columns[] = {
        {"DEVICE", 0},   {"LIMIT", 0},    {"LIBRARY", 0}, {"DTYPE", 0},   {"TOKENS", 1},
        {"QKV_MS", 1},   {"OUT_MS", 1},   {"UP_MS", 1},   {"DOWN_MS", 1}, {"LAYER_MS", 1},
        {"MODEL_MS", 1}, {"US/TOKEN", 1}, {"TFLOP/S", 1}, {"SOURCE", 0},  {"ERROR_%", 1},
        {"ORIGIN", 0},   {NULL, 0}};
    return show_table(columns);
}

/* How well the rows of a place foretell each other. */
static void say_heldout(const struct place *at, const hcp_linear *linear)
{
    struct hcp_linear_heldout h;
    hcp_linear_heldout(linear, &h);
    if (h.rows > 0)
        fprintf(stderr,
                "hcp-profile: %s@%s, %s: %d rows left out in turn: predicted from their "
                "neighbours within %.1f %% median, %.1f %% p90\n",
                at->device, show_limit(at->limit), at->dtype, h.rows, 100 * h.median,
                100 * h.p90);
}

int show_layers(hcp_db *db, const struct hcp_filter *filter,
                const struct hcp_layer *layer, const int64_t *tokens, size_t n_tokens,
                int json, size_t *rows, struct hcp_err *err)
{
    struct places places = {.err = err};
    struct output out = {.layer = layer, .array = json ? json_array() : NULL};
    struct hcp_err why = {0};
    size_t answered = 0;
    hcp_layer_products(layer, places.product);
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
        out.flop_per_token +=
            2.0 * (double)places.product[i].n_in * (double)places.product[i].n_out;
    if (!json)
        out.table = make_table();
    int rc = hcp_db_each_linear(db, filter, gather, &places, err);
    if (n_tokens == 0) {
        tokens = places.tokens;
        n_tokens = places.n_tokens;
    }
    if (rc == HCP_OK && places.n > 0)
        qsort(places.list, places.n, sizeof *places.list, by_place);
    for (size_t i = 0; i < places.n && rc == HCP_OK; i++) {
        const struct place *at = &places.list[i];
        hcp_linear *linear;
        struct hcp_err missing;
        int got = hcp_linear_load(db, at->device, at->limit, at->dtype, layer, &linear,
                                  &missing);
        if (got != HCP_OK && answered == 0)
            why = missing;
        if (got != HCP_OK)
            continue;
        for (size_t k = 0; k < n_tokens; k++)
            put_row(&out, at, linear, tokens[k]);
        say_heldout(at, linear);
        hcp_linear_free(linear);
        answered++;
    }
    *rows = answered * n_tokens;
    if (rc == HCP_OK && places.n > 0 && answered == 0)
        rc = hcp_fail(err, why.code, "%s", why.text);
    if (rc != HCP_OK || answered == 0) {
        hcp_table_free(out.table);
        json_decref(out.array);
    } else if (json) {
        hcp_json_print(out.array, stdout);
    } else {
        hcp_table_print(out.table, stdout);
    }
    free(places.list);
    free(places.tokens);
    return rc;
}
