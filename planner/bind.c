/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "db/parse.h"
#include "planner/bind.h"
#include "planner/specs.h"

const struct stored_model *bind_find_model(const hcp_models *models,
                                           const hcp_shape *shape, const hcp_rank *rank,
                                           const char *provider, const char *kind,
                                           int *stale)
{
    for (size_t i = 0; i < models->n_stored; i++) {
        const struct stored_model *entry = &models->stored[i];
        const struct hcp_model_row *row = hcp_model_row(entry->model);

        if (strcmp(row->kind, kind) != 0 || strcmp(row->key.provider, provider) != 0 ||
            !same_rank(&row->key, rank) || !same_shape(&row->key, shape))
            continue;
        if (!entry->stale)
            return entry;
        *stale = 1;
    }
    return NULL;
}

void bind_find_batches(const hcp_models *models, const hcp_shape *shape,
                       const hcp_rank *rank, const char *provider, const char *kind,
                       struct hcp_blend_from *from)
{
    *from = (struct hcp_blend_from){NULL, NULL, NULL, NULL};
    for (size_t i = 0; i < models->n_stored; i++) {
        const hcp_model *m = models->stored[i].model;
        const struct hcp_model_row *row = hcp_model_row(m);

        if (strcmp(shape->phase, "decode") != 0 || models->stored[i].stale ||
            strcmp(row->kind, kind) != 0 || strcmp(row->key.provider, provider) != 0 ||
            !same_rank(&row->key, rank) || !same_family(&row->key, shape))
            continue;
        if (row->key.batch < shape->batch) {
            if (!from->low || row->key.batch > hcp_model_row(from->low)->key.batch) {
                from->below = from->low;
                from->low = m;
            } else if (!from->below ||
                       row->key.batch > hcp_model_row(from->below)->key.batch) {
                from->below = m;
            }
        } else if (!from->high || row->key.batch < hcp_model_row(from->high)->key.batch) {
            from->above = from->high;
            from->high = m;
        } else if (!from->above ||
                   row->key.batch < hcp_model_row(from->above)->key.batch) {
            from->above = m;
        }
    }
}

static int has_batches(const hcp_models *models, const hcp_shape *shape,
                       const hcp_rank *rank, const char *provider)
{
    struct hcp_blend_from lut, poly;

    bind_find_batches(models, shape, rank, provider, "lut", &lut);
    bind_find_batches(models, shape, rank, provider, "poly", &poly);
    return lut.low || lut.high || poly.low || poly.high;
}

/* The rank whose models speak for one with a kernel: itself, or the kin of a data sheet,
 * over which that is *speed times as fast. NULL: there is none. */
static const hcp_rank *stand_in(const hcp_models *models, const hcp_shape *shape,
                                const hcp_rank *rank, const char *provider,
                                hcp_rank *stand, double *speed)
{
    const struct hcp_key *key;

    *speed = 1;
    if (!specs_name(rank->device))
        return rank;
    key = estimate_kin(models, shape, rank, provider, speed);
    if (!key)
        return NULL;
    *stand = *rank;
    memcpy(stand->device, key->device, sizeof stand->device);
    memcpy(stand->limit, key->limit, sizeof stand->limit);
    return stand;
}

static int covers(const hcp_models *models, const hcp_shape *shape, const hcp_rank *rank,
                  const char *provider, int *stale)
{
    hcp_rank stand;
    double speed;

    rank = stand_in(models, shape, rank, provider, &stand, &speed);
    if (!rank)
        return 0;
    return bind_find_model(models, shape, rank, provider, "lut", stale) ||
           bind_find_model(models, shape, rank, provider, "poly", stale) ||
           has_batches(models, shape, rank, provider);
}

/* The model that speaks for a kernel on a rank where kernels are compared, a stale one
 * too; NULL: the kernel has none there. */
static const hcp_model *speaker(const hcp_models *models, const hcp_shape *shape,
                                const hcp_rank *rank, const char *provider)
{
    const hcp_model *found = NULL;

    for (size_t i = 0; i < models->n_stored; i++) {
        const hcp_model *model = models->stored[i].model;
        const struct hcp_model_row *row = hcp_model_row(model);
        int lut = strcmp(row->kind, "lut") == 0;

        if ((lut || strcmp(row->kind, "poly") == 0) && (lut || !found) &&
            strcmp(row->key.provider, provider) == 0 && same_rank(&row->key, rank) &&
            same_shape(&row->key, shape))
            found = model;
    }
    for (int poly = 0; !found && poly < 2; poly++) { /* decode: of a batch near it */
        struct hcp_blend_from from;

        bind_find_batches(models, shape, rank, provider, poly ? "poly" : "lut", &from);
        found = from.low ? from.low : from.high;
    }
    return found;
}

static int same_spec(const hcp_rank *a, const hcp_rank *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->limit, b->limit) == 0;
}

/* Blocks of len x len (decode: one query, len keys; of one sequence) under the full mask,
 * brought into the executor's state, that all ranks together do in a ms with a kernel;
 * -1: a rank has no model of it. With len 0 the longest such block that is measured on
 * all of them. */
static double rate_of(const hcp_models *models, const hcp_shape *shape,
                      const hcp_rank *ranks, size_t n, const char *provider, int64_t len)
{
    const hcp_model *model = NULL;
    int64_t longest = INT64_MAX;
    double rate = 0, one = 0, speed;
    hcp_rank stand;
    int decode = strcmp(shape->phase, "decode") == 0;

    for (size_t r = 0; r < n; r++) {
        int64_t q_min, q_max, kv_min, kv_max, q_len = decode ? 1 : len;

        if (r == 0 || !same_spec(&ranks[r], &ranks[r - 1])) {
            const hcp_rank *rank =
                stand_in(models, shape, &ranks[r], provider, &stand, &speed);

            if (!rank || !(model = speaker(models, shape, rank, provider)))
                return -1;
            hcp_model_hull(model, 0, &q_min, &q_max, &kv_min, &kv_max);
            if (q_max < 1 || kv_max < 1) /* causal squares alone */
                hcp_model_hull(model, 1, &q_min, &q_max, &kv_min, &kv_max);
            longest = q_max < longest && !decode ? q_max : longest;
            longest = kv_max < longest ? kv_max : longest;
            if (len > 0)
                one = speed * hcp_model_row(model)->key.batch /
                      (hcp_model_block_ms(model, 0, q_len, len, NULL) +
                       hcp_model_finish_ms(model, 1, q_len));
        }
        rate += one;
    }
    return len > 0 ? rate : (double)(longest < 1 ? 1 : longest);
}

/* Of the kernels that cover all ranks the one that does the most on all of them together,
 * by the longest square block that is measured of each; the first in the alphabet of
 * equals, "" if none covers. A stale model covers too, and is refused later: another
 * kernel must not step in unasked. */
static void choose_provider(const hcp_models *models, const hcp_shape *shape,
                            const hcp_rank *ranks, size_t n, char out[32])
{
    double len = 0, most = -1;

    out[0] = 0;
    for (int pass = 0; pass < 2; pass++) {
        const char *asked = "";
        for (size_t i = 0; i < models->n_stored; i++) {
            const char *name = hcp_model_row(models->stored[i].model)->key.provider;
            double v;

            if (strcmp(name, asked) == 0)
                continue;
            asked = name;
            v = rate_of(models, shape, ranks, n, name, pass ? (int64_t)len : 0);
            if (v < 0)
                continue;
            if (!pass) {
                len = len > 0 && len < v ? len : v;
            } else if (v > most || (v == most && strcmp(name, out) < 0)) {
                most = v;
                memcpy(out, name, strlen(name) + 1);
            }
        }
    }
}

/* Held-out error decides, by the same rule as 'hcp-plan fit' prints: median + p90 / 4,
 * lut where an error is unknown or both are equal. */
static hcp_model_kind better_kind(const hcp_model *lut, const hcp_model *poly)
{
    const struct hcp_model_row *l, *q;

    if (!lut || !poly)
        return lut ? HCP_MODEL_LUT : HCP_MODEL_POLY;
    l = hcp_model_row(lut);
    q = hcp_model_row(poly);
    if (l->holdout_cells < 1 || q->holdout_cells < 1)
        return HCP_MODEL_LUT;
    return q->holdout_median + q->holdout_p90 / 4 < l->holdout_median + l->holdout_p90 / 4
               ? HCP_MODEL_POLY
               : HCP_MODEL_LUT;
}

/* The percentage a limit advertises; for SM counts, that part of the device's SMs. */
static double nominal_percent(const hcp_models *models, const hcp_rank *rank)
{
    char kind[8];
    int32_t value;

    if (!rank->limit[0] || hcp_parse_limit(rank->limit, kind, &value, NULL) != HCP_OK)
        return 100;
    if (strcmp(kind, "green") != 0)
        return value;
    if (specs_name(rank->device))
        return 100.0 * value / specs_find(models->specs, specs_name(rank->device))->sms;
    for (size_t i = 0; i < models->n_measured; i++)
        if (same_rank(&models->measured[i], rank) && models->sm_count[i] > 0)
            return 100.0 * value / models->sm_count[i];
    return 100;
}

static int same_linear(const hcp_rank *a, const hcp_rank *b)
{
    return a->linear_before_us == b->linear_before_us &&
           a->linear_before_fixed_us == b->linear_before_fixed_us &&
           a->linear_after_us == b->linear_after_us &&
           a->linear_after_fixed_us == b->linear_after_fixed_us;
}

/* Numbers of the ring's distinct models and linear work, in order of first use. */
static void number_models(struct hcp_ring *ring)
{
    ring->n_ids = 0;
    for (size_t r = 0; r < ring->n; r++) {
        for (int k = HCP_MODEL_LUT; k <= HCP_MODEL_POLY; k++) {
            struct bound_rank *b = &ring->ranks[r];

            b->id[k] = -1;
            if (!b->model[k])
                continue;
            for (size_t i = r; i-- > 0 && b->id[k] < 0;)
                if (hcp_model_alike(ring->ranks[i].model[k], b->model[k]) &&
                    (!ring->linear || same_linear(&ring->ranks[i].spec, &b->spec)))
                    b->id[k] = ring->ranks[i].id[k];
            if (b->id[k] < 0)
                b->id[k] = ring->n_ids++;
        }
    }
}

void bind_number(hcp_ring *ring)
{
    number_models(ring);
    for (size_t r = 0; r < ring->n; r++) {
        struct bound_rank *b = &ring->ranks[r];

        b->id[HCP_MODEL_BEST] = b->model[HCP_MODEL_BEST] == b->model[HCP_MODEL_LUT]
                                    ? b->id[HCP_MODEL_LUT]
                                    : b->id[HCP_MODEL_POLY];
    }
    few_bind(ring);
}

/* Models of a batch that was not measured, where its neighbours were. */
static hcp_status blend(const hcp_models *models, hcp_ring *ring, size_t r, char *text,
                        size_t text_size)
{
    static const char *const kinds[] = {"", "lut", "poly"};
    struct bound_rank *b = &ring->ranks[r];

    for (int k = HCP_MODEL_LUT; k <= HCP_MODEL_POLY; k++) {
        struct hcp_blend_from from;
        struct hcp_err err = {0};
        hcp_model *model;

        bind_find_batches(models, &ring->shape, &b->spec, ring->provider, kinds[k],
                          &from);
        if (!from.low && !from.high)
            continue;
        if (!ring->own)
            ring->own = calloc(4 * ring->n, sizeof *ring->own);
        if (!ring->own ||
            hcp_model_blend(&from, ring->shape.batch, &model, &err) != HCP_OK)
            return plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
        ring->own[ring->n_own++] = model;
        b->model[k] = model;
    }
    return HCP_STATUS_OK;
}

static hcp_status bind_rank(const hcp_models *models, hcp_ring *ring, size_t r,
                            char *text, size_t text_size)
{
    static const char *const kinds[] = {"", "lut", "poly"};
    struct bound_rank *b = &ring->ranks[r];
    hcp_model_kind best;
    int stale = 0, sheet = specs_name(b->spec.device) != NULL;
    hcp_status status = sheet ? estimate_bind(ring, r, text, text_size) : HCP_STATUS_OK;

    if (status)
        return status;
    for (int k = HCP_MODEL_LUT; !sheet && k <= HCP_MODEL_POLY; k++) {
        const struct stored_model *m = bind_find_model(models, &ring->shape, &b->spec,
                                                       ring->provider, kinds[k], &stale);

        b->model[k] = m ? m->model : NULL;
        b->hash[k] = m ? m->hash : 0;
    }
    if (!b->model[HCP_MODEL_LUT] && !b->model[HCP_MODEL_POLY] && !stale) {
        status = blend(models, ring, r, text, text_size);
        if (status)
            return status;
    }
    if (!b->model[HCP_MODEL_LUT] && !b->model[HCP_MODEL_POLY])
        return bind_missing(models, &ring->shape, &b->spec, r, ring->provider, stale,
                            text, text_size);
    best = better_kind(b->model[HCP_MODEL_LUT], b->model[HCP_MODEL_POLY]);
    b->model[HCP_MODEL_BEST] = b->model[best];
    b->hash[HCP_MODEL_BEST] = b->hash[best];
    b->nominal = nominal_percent(models, &b->spec);
    return HCP_STATUS_OK;
}

/* The caller's shape, which may be that of an older header, as this version has it. */
static hcp_status take_shape(const hcp_shape *from, hcp_shape *shape, char *text,
                             size_t text_size)
{
    if (!from || from->size < offsetof(hcp_shape, phase))
        return plan_fail(text, text_size, HCP_STATUS_INVALID, "shape has no size set");
    hcp_shape_init(shape);
    memcpy(shape, from, from->size < sizeof *shape ? from->size : sizeof *shape);
    shape->size = sizeof *shape;
    if (!shape->phase[0])
        memcpy(shape->phase, "prefill", sizeof "prefill");
    if (memcmp(shape->phase, "prefill", sizeof "prefill") != 0 &&
        memcmp(shape->phase, "decode", sizeof "decode") != 0)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "phase '%.7s' is neither prefill nor decode", shape->phase);
    return HCP_STATUS_OK;
}

static hcp_status check_shape(const hcp_shape *shape, char *text, size_t text_size)
{
    if (strcmp(shape->dtype, "bf16") && strcmp(shape->dtype, "fp16") &&
        strcmp(shape->dtype, "fp32"))
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "dtype '%.7s' is none of bf16, fp16, fp32", shape->dtype);
    if (shape->batch < 1 || shape->heads < 1 || shape->kv_heads < 1 ||
        shape->head_dim < 1 || shape->heads % shape->kv_heads)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "batch %d, %d heads, %d KV heads, head dim %d: all must be "
                         "positive and heads a multiple of KV heads",
                         (int)shape->batch, (int)shape->heads, (int)shape->kv_heads,
                         (int)shape->head_dim);
    return HCP_STATUS_OK;
}

static hcp_status copy_ranks(struct hcp_ring *ring, const hcp_rank *ranks, char *text,
                             size_t text_size)
{
    size_t stride = ranks[0].size; /* that of an older header may be smaller */

    for (size_t r = 0; r < ring->n; r++) {
        const hcp_rank *rank = (const void *)((const char *)ranks + r * stride);
        hcp_rank *spec = &ring->ranks[r].spec;

        if (rank->size != stride || !memchr(rank->device, 0, sizeof rank->device) ||
            !memchr(rank->limit, 0, sizeof rank->limit) || rank->max_tokens < 0)
            return plan_fail(text, text_size, HCP_STATUS_INVALID,
                             "rank %zu: size not set, unterminated name or negative cap",
                             r);
        hcp_rank_init(spec);
        memcpy(spec, rank, stride < sizeof *spec ? stride : sizeof *spec);
        spec->size = sizeof *spec;
        if (!layer_valid(spec))
            return plan_fail(text, text_size, HCP_STATUS_INVALID,
                             "rank %zu: linear work must be 0..1e9 us, a token and "
                             "fixed, its relative error 0..10",
                             r);
        ring->linear |= layer_given(spec);
        if (!(spec->time_scale == 0 ||
              (spec->time_scale >= HCP_PLAN_MIN_SCALE &&
               spec->time_scale <= HCP_PLAN_MAX_SCALE)))
            return plan_fail(text, text_size, HCP_STATUS_INVALID,
                             "rank %zu: time_scale must be %g..%g (0: 1)", r,
                             HCP_PLAN_MIN_SCALE, HCP_PLAN_MAX_SCALE);
        ring->ranks[r].scale = spec->time_scale > 0 ? spec->time_scale : 1;
        if (spec->max_bytes < 0 || spec->weight_bytes < 0 ||
            spec->max_bytes > HCP_PLAN_MAX_BYTES ||
            spec->weight_bytes > HCP_PLAN_MAX_BYTES)
            return plan_fail(text, text_size, HCP_STATUS_INVALID,
                             "rank %zu: bytes must be 0..%lld", r,
                             (long long)HCP_PLAN_MAX_BYTES);
        ring->memory |= spec->max_bytes > 0;
        ring->ranks[r].estimate = -1;
    }
    return HCP_STATUS_OK;
}

static hcp_status bind(const hcp_models *models, hcp_ring *ring, const hcp_rank *ranks,
                       const char *provider, char *text, size_t text_size)
{
    hcp_rank *specs;
    hcp_status status = copy_ranks(ring, ranks, text, text_size);

    for (size_t r = 0; !status && r < ring->n; r++)
        if (specs_name(ring->ranks[r].spec.device))
            status = estimate_check(models, &ring->shape, &ring->ranks[r].spec, r, text,
                                    text_size);
    if (status)
        return status;
    if (provider) {
        snprintf(ring->provider, sizeof ring->provider, "%s", provider);
    } else {
        specs = malloc(ring->n * sizeof *specs);
        if (!specs)
            return plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
        for (size_t r = 0; r < ring->n; r++)
            specs[r] = ring->ranks[r].spec;
        choose_provider(models, &ring->shape, specs, ring->n, ring->provider);
        free(specs);
    }
    for (size_t r = 0; r < ring->n; r++) {
        if (!ring->provider[0]) { /* name a rank that no kernel covers, if there is one */
            int stale = 0, any = 0;

            for (size_t i = 0; i < models->n_stored && !any; i++)
                any =
                    covers(models, &ring->shape, &ring->ranks[r].spec,
                           hcp_model_row(models->stored[i].model)->key.provider, &stale);
            if (!any)
                return bind_missing(models, &ring->shape, &ring->ranks[r].spec, r, NULL,
                                    stale, text, text_size);
            continue;
        }
        status = bind_rank(models, ring, r, text, text_size);
        if (status)
            return status;
    }
    if (!ring->provider[0])
        return plan_fail(text, text_size, HCP_STATUS_NO_MODEL,
                         "no kernel is profiled on all ranks in %s; profile one on each "
                         "machine with 'hcp-profile run --db %s'",
                         models->path, models->path);
    return HCP_STATUS_OK;
}

hcp_status hcp_ring_create(const hcp_models *models, const hcp_shape *asked,
                           const hcp_rank *ranks, size_t n, const char *provider,
                           char *text, size_t text_size, hcp_ring **out)
{
    hcp_shape taken, *shape = &taken;
    hcp_status status = take_shape(asked, shape, text, text_size);
    hcp_ring *ring;

    if (!status)
        status = check_shape(shape, text, text_size);
    if (status)
        return status;
    if (!models || !out || !ranks || n < 1 || n > HCP_PLAN_MAX_RANKS ||
        ranks[0].size < offsetof(hcp_rank, linear_before_us) ||
        (provider && strlen(provider) > 31))
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "models, output, 1 to %d ranks with their size set, and a "
                         "provider name of at most 31 characters are needed",
                         HCP_PLAN_MAX_RANKS);
    ring = calloc(1, sizeof *ring);
    if (!ring || !(ring->ranks = calloc(n, sizeof *ring->ranks))) {
        free(ring);
        return plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
    }
    ring->models = models;
    ring->n = n;
    ring->scratch_bytes = scratch_bytes(n);
    ring->shape = *shape;
    ring->token_bytes = 2.0 * shape->kv_heads * shape->head_dim * shape->batch *
                        (strcmp(shape->dtype, "fp32") == 0 ? 4 : 2);
    status = bind(models, ring, ranks, provider, text, text_size);
    if (!status)
        status = rescale_bind(ring, text, text_size);
    if (status) {
        hcp_ring_free(ring);
        return status;
    }
    ring->has[HCP_MODEL_BEST] = ring->has[HCP_MODEL_LUT] = ring->has[HCP_MODEL_POLY] = 1;
    for (size_t r = 0; r < n; r++) {
        struct bound_rank *b = &ring->ranks[r];

        ring->has[HCP_MODEL_LUT] &= b->model[HCP_MODEL_LUT] != NULL;
        ring->has[HCP_MODEL_POLY] &= b->model[HCP_MODEL_POLY] != NULL;
    }
    bind_number(ring);
    *out = ring;
    return HCP_STATUS_OK;
}

void hcp_ring_free(hcp_ring *ring)
{
    if (!ring)
        return;
    for (size_t i = 0; i < ring->n_own; i++)
        hcp_model_free(ring->own[i]);
    for (size_t i = 0; !ring->copy && i < ring->n_estimates; i++)
        for (size_t k = 0; k < ring->estimates[i].n_own; k++)
            hcp_model_free(ring->estimates[i].own[k]);
    if (!ring->copy)
        free(ring->estimates);
    free(ring->own);
    free(ring->ranks);
    free(ring);
}

const char *hcp_ring_provider(const hcp_ring *ring)
{
    return ring->provider;
}

size_t hcp_ring_size(const hcp_ring *ring)
{
    return ring->n;
}
