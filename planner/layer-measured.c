/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-plan: linear work as measured by 'hcp-profile run --linear'. A plan takes a line by
 * rank; what was measured bends. So each rank's line goes through the time of its own
 * tokens, and the plan is made again until they stand still.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/layer-measured.h"

struct layer_measured {
    struct hcp_layer layer;
    size_t n;
    int32_t batch;
    int extrapolate;
    char shape_option[160]; /* of hcp-profile run */
    char db[512];
    hcp_rank *ranks;
    hcp_rank_estimate *estimate; /* [n] of data sheets */
    double element;         /* bytes */
    hcp_linear **curve; /* [n]; ranks of one device and limit share theirs */
};

int layer_measured_shape(const struct layer_args *args,
                         const struct hcp_shape_args *shape, struct hcp_layer *out,
                         struct hcp_err *err)
{
    if (args->model && (args->hidden || args->ffn || args->plain_mlp))
        return hcp_fail(err, HCP_USAGE,
                        "--model has its own layer; leave --hidden, --ffn and --mlp out");
    if (args->model)
        return hcp_layer_find(args->model, out, err);
    if (!args->hidden || !args->ffn)
        return hcp_fail(err, HCP_USAGE,
                        "a layer's linear work needs --hidden and --ffn, or --model");
    memset(out, 0, sizeof *out);
    out->hidden = args->hidden;
    out->ffn = args->ffn;
    out->layers = 1;
    out->heads = shape->heads;
    out->kv_heads = shape->kv_heads;
    out->head_dim = shape->head_dim;
    out->gated = !args->plain_mlp;
    return hcp_layer_check(out, err);
}

/* The rank before r with the same device and limit, or r. */
static size_t first_like(const hcp_rank *ranks, size_t r)
{
    for (size_t i = 0; i < r; i++)
        if (strcmp(ranks[i].device, ranks[r].device) == 0 &&
            strcmp(ranks[i].limit, ranks[r].limit) == 0)
            return i;
    return r;
}

static void describe(struct layer_measured *m, const char *dtype)
{
    const struct hcp_layer *l = &m->layer;

    if (*l->name)
        snprintf(m->shape_option, sizeof m->shape_option, "--model %s --dtype %s",
                 l->name, dtype);
    else
        snprintf(m->shape_option, sizeof m->shape_option,
                 "--hidden %lld --ffn %lld --heads %d --kv-heads %d --head-dim %d%s "
                 "--dtype %s",
                 (long long)l->hidden, (long long)l->ffn, (int)l->heads, (int)l->kv_heads,
                 (int)l->head_dim, l->gated ? "" : " --mlp plain", dtype);
}

/* The curve of a data sheet's kin. */
static int load_kin(layer_measured *m, size_t r, hcp_db *db, const hcp_shape *shape,
                    struct hcp_err *err)
{
    const hcp_rank_estimate *e = &m->estimate[r];
    struct hcp_err why = {0};

    if (hcp_linear_load(db, e->kin_device, e->kin_limit, shape->dtype, &m->layer,
                        &m->curve[r], &why) == HCP_OK)
        return HCP_OK;
    return hcp_fail(err, why.code,
                    "rank %zu, '%s', has the linear work of its kin, scaled: %.800s; or "
                    "give it with --linear-us",
                    r, m->ranks[r].device, why.text);
}

int layer_measured_load(const char *path, const struct hcp_layer *layer,
                        const hcp_shape *shape, const hcp_rank *ranks, size_t n,
                        int extrapolate, const hcp_ring *ring, layer_measured **out,
                        struct hcp_err *err)
{
    layer_measured *m = calloc(1, sizeof *m);
    hcp_db *db;
    int rc = hcp_db_open(path, HCP_DB_READ, &db, err);

    if (rc) {
        free(m);
        return rc;
    }
    if (!m || !(m->ranks = malloc(n * sizeof *ranks)) ||
        !(m->estimate = calloc(n, sizeof *m->estimate)) ||
        !(m->curve = calloc(n, sizeof *m->curve))) {
        hcp_db_close(db);
        layer_measured_free(m);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    m->layer = *layer;
    m->n = n;
    m->batch = shape->batch;
    m->element = strcmp(shape->dtype, "fp32") == 0 ? 4 : 2;
    m->extrapolate = extrapolate;
    memcpy(m->ranks, ranks, n * sizeof *ranks);
    snprintf(m->db, sizeof m->db, "%s", hcp_db_path(db));
    describe(m, shape->dtype);
    for (size_t r = 0; rc == HCP_OK && r < n; r++) {
        size_t like = first_like(ranks, r);

        m->estimate[r].size = sizeof m->estimate[r];
        hcp_ring_estimate(ring, r, &m->estimate[r]);
        if (like < r)
            m->curve[r] = m->curve[like];
        else if (m->estimate[r].estimated)
            rc = load_kin(m, r, db, shape, err);
        else
            rc = hcp_linear_load(db, ranks[r].device, ranks[r].limit, shape->dtype, layer,
                                 &m->curve[r], err);
    }
    hcp_db_close(db);
    if (rc) {
        layer_measured_free(m);
        return rc;
    }
    *out = m;
    return HCP_OK;
}

void layer_measured_free(layer_measured *m)
{
    if (!m)
        return;
    for (size_t r = 0; m->curve && r < m->n; r++)
        if (first_like(m->ranks, r) == r)
            hcp_linear_free(m->curve[r]);
    free(m->curve);
    free(m->estimate);
    free(m->ranks);
    free(m);
}

/* A product's roofline time on the rank of a data sheet over that on its kin: FLOPs, and
 * the bytes of weights and of what goes in and out, once. */
static double roofline_ratio(const layer_measured *m, size_t r, int i, int64_t tokens)
{
    struct hcp_layer_product product[HCP_LAYER_PRODUCTS];
    const hcp_rank_estimate *e = &m->estimate[r];
    double n_in, n_out, flops, bytes;

    if (!e->estimated)
        return 1;
    hcp_layer_products(&m->layer, product);
    n_in = (double)product[i].n_in;
    n_out = (double)product[i].n_out;
    flops = 2 * (double)tokens * n_in * n_out / (e->kin_tflops * 1e12);
    bytes = m->element * (n_in * n_out + (double)tokens * (n_in + n_out)) /
            (e->kin_gbps * 1e9);
    return (flops / e->flops_ratio + bytes / e->memory_ratio) / (flops + bytes);
}

/* What makes Q, K and V, and the rest, for so many tokens of each sequence. Returns the
 * relative error of both together. */
static double work_of(const layer_measured *m, size_t r, int64_t tokens, double ms[2])
{
    struct hcp_linear_answer answer;

    hcp_linear_ms(m->curve[r], tokens * m->batch, &answer);
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
        answer.product_ms[i] *= roofline_ratio(m, r, i, tokens * m->batch);
    ms[0] = answer.product_ms[0];
    ms[1] = 0;
    for (int i = 1; i < HCP_LAYER_PRODUCTS; i++)
        ms[1] += answer.product_ms[i];
    if (m->estimate[r].estimated)
        answer.error = (1 + answer.error) * m->estimate[r].factor - 1;
    return answer.error < 10 ? answer.error : 10;
}

/* The line through (at, ms) with this slope; not below 0 without tokens, nor falling
 * (what is scaled by rooflines may, where it goes from memory to arithmetic). */
static void line(int64_t at, double ms, double slope, double *us, double *fixed_us)
{
    double fixed;

    slope = slope > 0 ? slope : 0;
    fixed = ms - slope * (double)at;

    if (fixed < 0) {
        fixed = 0;
        slope = ms / (double)at;
    }
    *us = 1e3 * slope;
    *fixed_us = 1e3 * fixed;
}

void layer_measured_lines(const layer_measured *m, const int64_t *at, hcp_rank *ranks)
{
    for (size_t r = 0; r < m->n; r++) {
        int64_t t = at[r] > 0 ? at[r] : 1, low = t - t / 2, high = 2 * t;
        double here[2], below[2], above[2];

        ranks[r].linear_error = work_of(m, r, t, here);
        work_of(m, r, low, below);
        work_of(m, r, high, above);
        line(t, here[0], (above[0] - below[0]) / (double)(high - low),
             &ranks[r].linear_before_us, &ranks[r].linear_before_fixed_us);
        line(t, here[1], (above[1] - below[1]) / (double)(high - low),
             &ranks[r].linear_after_us, &ranks[r].linear_after_fixed_us);
    }
}

void layer_measured_widen(const layer_measured *m, const int64_t *tokens, hcp_rank *ranks)
{
    double most = 0;

    for (size_t r = 0; r < m->n; r++) {
        const hcp_rank *k = &ranks[r];
        double ms[2], line_ms;

        if (tokens[r] < 1)
            continue;
        work_of(m, r, tokens[r], ms);
        line_ms = ((k->linear_before_us + k->linear_after_us) * (double)tokens[r] +
                   k->linear_before_fixed_us + k->linear_after_fixed_us) / 1e3;
        if (line_ms > 0)
            most = fmax(most, fabs(ms[0] + ms[1] - line_ms) / line_ms);
    }
    for (size_t r = 0; r < m->n; r++)
        ranks[r].linear_error = fmax(ranks[r].linear_error, fmin(most, 10));
}

/* HCP_NO_ANSWER: so many tokens on a rank are outside what was measured. */
static int check_rank(const layer_measured *m, size_t r, int64_t tokens,
                      struct hcp_linear_answer *answer, struct hcp_err *err)
{
    const hcp_rank *rank = &m->ranks[r];
    int kin = m->estimate[r].estimated; /* of which the times of a data sheet are */
    const char *device = kin ? m->estimate[r].kin_device : rank->device;
    const char *limit = kin ? m->estimate[r].kin_limit : rank->limit;

    hcp_linear_ms(m->curve[r], tokens, answer);
    if (m->extrapolate || answer->source != HCP_LINEAR_EXTRAPOLATED)
        return HCP_OK;
    return hcp_fail(
        err, HCP_NO_ANSWER,
        "linear work of %lld tokens on '%s%s%s' (%srank %zu) is outside what was "
        "measured; run 'hcp-profile run --db %s --linear %s --limits %s --tokens "
        "%lld' on that machine, or allow extrapolation (--extrapolate)",
        (long long)tokens, device, *limit ? "@" : "", limit, kin ? "kin of " : "", r,
        m->db, m->shape_option, *limit ? limit : "none", (long long)tokens);
}

int layer_measured_check(const layer_measured *m, const int64_t *tokens,
                         struct hcp_err *err)
{
    struct hcp_linear_answer answer;

    for (size_t r = 0; r < m->n; r++)
        if (check_rank(m, r, tokens[r] * m->batch, &answer, err))
            return err->code;
    return HCP_OK;
}

/* The tokens of a rank in all of its sequences, if they lie between measured ones that
 * are far apart; else 0. */
static int64_t lies_between(const layer_measured *m, size_t r, int64_t tokens,
                            int64_t *below, int64_t *above)
{
    int64_t count = tokens * m->batch, far = count / 16 > 256 ? count / 16 : 256;

    if (count < 1 || m->estimate[r].estimated)
        return 0;
    hcp_linear_between(m->curve[r], count, below, above);
    return *above - *below > far ? count : 0;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int is_in(const int64_t *list, size_t n, int64_t tokens)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == tokens)
            return 1;
    return 0;
}

/* Whether a rank before r, from `first` on, has brought its limit in. */
static int limit_said(const layer_measured *m, const int64_t *tokens, size_t first,
                      size_t r)
{
    int64_t below, above;

    for (size_t i = first; i < r; i++)
        if (first_like(m->ranks, i) == first_like(m->ranks, r) &&
            lies_between(m, i, tokens[i], &below, &above))
            return 1;
    return 0;
}

/* Numbers of tokens about those of the ranks of one device, two steps of a thirty-second
 * on either side, in whole tiles of GEMMs; and the limits. */
static int say_finer(const layer_measured *m, const int64_t *tokens, size_t first,
                     FILE *out)
{
    enum { STEP = 128, SIDE = 2, MOST = 8 };
    int64_t list[MOST * (2 * SIDE + 1)] = {0}, below, above;
    size_t n = 0, n_limits = 0;

    fputs(" --limits ", out);
    for (size_t r = first; r < m->n && n + 2 * SIDE < sizeof list / sizeof *list; r++) {
        int64_t count, step, middle;

        if (strcmp(m->ranks[r].device, m->ranks[first].device) != 0 ||
            !(count = lies_between(m, r, tokens[r], &below, &above)))
            continue;
        step = count / 32 / STEP * STEP > 0 ? count / 32 / STEP * STEP : STEP;
        middle = (count + STEP - 1) / STEP * STEP;
        for (int64_t k = -SIDE; k <= SIDE; k++)
            if (middle + k * step > 0 && !is_in(list, n, middle + k * step))
                list[n++] = middle + k * step;
        if (!limit_said(m, tokens, first, r))
            fprintf(out, "%s%s", n_limits++ ? "," : "",
                    *m->ranks[r].limit ? m->ranks[r].limit : "none");
    }
    qsort(list, n, sizeof *list, ascending);
    fputs(" --tokens ", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%lld", i ? "," : "", (long long)list[i]);
    return fputc('\n', out) == EOF;
}

int layer_measured_finer(const layer_measured *m, const int64_t *tokens, FILE *out)
{
    for (size_t r = 0; r < m->n; r++) {
        int64_t below, above, count = lies_between(m, r, tokens[r], &below, &above);
        int said = 0;

        for (size_t i = 0; i < r && count; i++)
            said |= strcmp(m->ranks[i].device, m->ranks[r].device) == 0 &&
                    lies_between(m, i, tokens[i], &(int64_t){0}, &(int64_t){0});
        if (!count || said)
            continue;
        fprintf(out, "rank %zu: linear work of %lld tokens lies ", r, (long long)count);
        if (below < 1)
            fprintf(out, "below the fewest measured, %lld", (long long)above);
        else if (above == INT64_MAX)
            fprintf(out, "above the most measured, %lld", (long long)below);
        else
            fprintf(out, "between measured %lld and %lld", (long long)below,
                    (long long)above);
        fprintf(out, "; for a finer plan: hcp-profile run --db %s --linear %s", m->db,
                m->shape_option);
        if (say_finer(m, tokens, r, out))
            return 1;
    }
    return 0;
}

int layer_measured_decode(const layer_measured *m, int64_t tokens, hcp_rank *ranks,
                          struct hcp_err *err)
{
    struct hcp_linear_answer answer;

    for (size_t r = 0; r < m->n; r++) {
        double ms = 0;

        if (check_rank(m, r, tokens, &answer, err))
            return err->code;
        for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
            ms += answer.product_ms[i] * roofline_ratio(m, r, i, tokens);
        ranks[r].decode_linear_us = 1e3 * ms;
    }
    return HCP_OK;
}
