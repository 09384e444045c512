/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "planner/disagg.h"

/* ---- classes ---- */

static int alike(const hcp_rank *a, const hcp_rank *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->limit, b->limit) == 0 &&
           a->max_tokens == b->max_tokens && a->max_bytes == b->max_bytes &&
           a->weight_bytes == b->weight_bytes && layer_alike(a, b) &&
           a->linear_error == b->linear_error && a->time_scale == b->time_scale &&
           a->decode_linear_us == b->decode_linear_us;
}

static void number_classes(hcp_disagg *d)
{
    int32_t at = 0;

    for (size_t r = 0; r < d->n; r++) {
        size_t i = 0;

        while (i < r && !alike(&d->ranks[i], &d->ranks[r]))
            i++;
        d->class_of[r] = i < r ? d->class_of[i] : d->n_classes++;
        d->number_of[r] = d->class_n[d->class_of[r]]++;
    }
    for (int32_t c = 0; c < d->n_classes; c++) {
        d->first[c] = at;
        at += d->class_n[c];
    }
    for (size_t r = 0; r < d->n; r++)
        d->member[d->first[d->class_of[r]] + d->number_of[r]] = (int32_t)r;
}

/* ---- groups ---- */

static int is_stale(hcp_status status)
{
    return status == HCP_STATUS_STALE || status == HCP_STATUS_NO_MEMORY;
}

/* The ranks of a group as a phase takes them; returns their number. */
static size_t ranks_of(const hcp_disagg *d, const struct disagg_group *g, int phase,
                       hcp_rank *out)
{
    size_t n = 0;

    for (size_t r = 0; r < d->n; r++) {
        if (g->place[r] < 0)
            continue;
        out[n] = d->ranks[r];
        if (phase == DECODE) { /* decode_linear_us instead */
            out[n].linear_before_us = out[n].linear_before_fixed_us = 0;
            out[n].linear_after_us = out[n].linear_after_fixed_us = 0;
            out[n].linear_error = 0;
        }
        n++;
    }
    return n;
}

static hcp_status bind_group(hcp_disagg *d, struct disagg_group *g,
                             const char *const provider[PHASES], char *text, size_t size)
{
    hcp_rank *ranks = malloc(d->n * sizeof *ranks);

    if (!ranks)
        return plan_fail(text, size, HCP_STATUS_NO_MEMORY, "out of memory");
    for (int phase = 0; phase < PHASES; phase++) {
        size_t n = ranks_of(d, g, phase, ranks);
        char why[900] = "";
        hcp_status status =
            hcp_ring_create(d->models, &d->shape[phase], ranks, n, provider[phase], why,
                            sizeof why, &g->ring[phase]);

        if (status == HCP_STATUS_NO_MODEL || status == HCP_STATUS_OK)
            continue;
        free(ranks);
        return is_stale(status) && n < d->n
                   ? plan_fail(text, size, status, "in a group of %zu of the ranks: %s",
                               n, why)
                   : plan_fail(text, size, status, "%s", why);
    }
    free(ranks);
    return HCP_STATUS_OK;
}

/* A class that has no model in a phase at all is an error of the ranks, which the ring of
 * all names best. */
static hcp_status check_phase(hcp_disagg *d, int phase, const char *provider, char *text,
                              size_t size)
{
    hcp_rank *ranks = malloc(d->n * sizeof *ranks);
    struct disagg_group all = {.place = calloc(d->n, sizeof(int16_t))};
    hcp_status status = HCP_STATUS_NO_MEMORY, one;
    hcp_ring *ring;

    if (ranks && all.place) {
        ranks_of(d, &all, phase, ranks); /* place 0 each: all are in it */
        status = hcp_ring_create(d->models, &d->shape[phase], ranks, d->n, provider, text,
                                 size, &ring);
        if (!status)
            hcp_ring_free(ring);
        /* No kernel of all is no error where each class has one. */
        for (int32_t c = 0; status == HCP_STATUS_NO_MODEL && c < d->n_classes; c++) {
            one = hcp_ring_create(d->models, &d->shape[phase],
                                  &ranks[d->member[d->first[c]]], 1, provider, NULL, 0,
                                  &ring);
            if (one)
                break;
            hcp_ring_free(ring);
            if (c + 1 == d->n_classes)
                status = HCP_STATUS_OK;
        }
    }
    free(ranks);
    free(all.place);
    return status == HCP_STATUS_NO_MEMORY
               ? plan_fail(text, size, HCP_STATUS_NO_MEMORY, "out of memory")
               : status;
}

/* The group of these numbers of ranks, unless it is there. */
static hcp_status add_group(hcp_disagg *d, const int32_t *count,
                            const char *const provider[PHASES], char *text, size_t size)
{
    struct disagg_group *g = &d->groups[d->n_groups];
    hcp_status status;

    for (size_t i = 0; i < d->n_groups; i++)
        if (memcmp(d->groups[i].count, count, (size_t)d->n_classes * sizeof *count) == 0)
            return HCP_STATUS_OK;
    memset(g, 0, sizeof *g);
    g->count = malloc((size_t)d->n_classes * sizeof *g->count);
    g->place = malloc(d->n * sizeof *g->place);
    d->n_groups++; /* hcp_disagg_free() sees it from here on */
    if (!g->count || !g->place)
        return plan_fail(text, size, HCP_STATUS_NO_MEMORY, "out of memory");
    memcpy(g->count, count, (size_t)d->n_classes * sizeof *count);
    for (size_t r = 0; r < d->n; r++)
        g->place[r] = d->number_of[r] < count[d->class_of[r]] ? (int16_t)g->n++ : -1;
    if (g->n == (int32_t)d->n)
        d->all = d->n_groups - 1;
    status = bind_group(d, g, provider, text, size);
    return status;
}

/* Groups there can be, one of no ranks left out; more than `most`: most + 1. */
static size_t count_groups(const hcp_disagg *d, size_t most)
{
    size_t n = 1;

    for (int32_t c = 0; c < d->n_classes && n <= most + 1; c++)
        n *= (size_t)d->class_n[c] + 1;
    return n - 1 <= most ? n - 1 : most + 1;
}

static hcp_status add_all(hcp_disagg *d, const char *const provider[PHASES],
                          int32_t *count, char *text, size_t size)
{
    hcp_status status = HCP_STATUS_OK;

    memset(count, 0, (size_t)d->n_classes * sizeof *count);
    while (!status) {
        int32_t c = 0;

        while (c < d->n_classes && count[c] == d->class_n[c])
            count[c++] = 0;
        if (c == d->n_classes)
            break;
        count[c]++;
        status = add_group(d, count, provider, text, size);
    }
    return status;
}

/* ---- too many groups ---- */

/* Square blocks a ms over keys a ms, of the longest that are measured of a class. */
static double affinity(const hcp_disagg *d, int32_t c, const char *const provider[PHASES])
{
    double speed[PHASES] = {1, 1};

    for (int phase = 0; phase < PHASES; phase++) {
        hcp_rank rank = d->ranks[d->member[d->first[c]]];
        int64_t q_min, q_max, kv_min, kv_max;
        const hcp_model *model;
        hcp_ring *ring;

        rank.linear_before_us = rank.linear_before_fixed_us = 0;
        rank.linear_after_us = rank.linear_after_fixed_us = rank.linear_error = 0;
        if (hcp_ring_create(d->models, &d->shape[phase], &rank, 1, provider[phase], NULL,
                            0, &ring))
            continue;
        model = ring->ranks[0].model[HCP_MODEL_BEST];
        hcp_model_hull(model, 0, &q_min, &q_max, &kv_min, &kv_max);
        if (q_max < 1 || kv_max < 1) /* causal squares alone */
            hcp_model_hull(model, 1, &q_min, &q_max, &kv_min, &kv_max);
        if (q_max > 0 && kv_max > 0)
            speed[phase] = (double)q_max * (double)kv_max /
                           hcp_model_block_ms(model, 0, q_max, kv_max, NULL);
        hcp_ring_free(ring);
    }
    return speed[PREFILL] / speed[DECODE];
}

/* The k ranks that are best at prefill beside decode, and the k that are worst. */
static hcp_status add_some(hcp_disagg *d, const char *const provider[PHASES],
                           int32_t *count, char *text, size_t size)
{
    double *value = malloc((size_t)d->n_classes * sizeof *value);
    int32_t *order = malloc((size_t)d->n_classes * sizeof *order);
    size_t step = (d->n + 63) / 64;
    hcp_status status = HCP_STATUS_OK;

    if (!value || !order) {
        free(value);
        free(order);
        return plan_fail(text, size, HCP_STATUS_NO_MEMORY, "out of memory");
    }
    for (int32_t c = 0; c < d->n_classes; c++) {
        value[c] = affinity(d, c, provider);
        order[c] = c;
    }
    sort_descending(value, order, (size_t)d->n_classes);
    for (size_t k = d->n; !status && k > 0; k = k > step ? (k - 1) / step * step : 0) {
        for (int last = 0; !status && last < 2; last++) {
            size_t left = k;

            for (int32_t i = 0; i < d->n_classes; i++) {
                int32_t c = order[last ? d->n_classes - 1 - i : i];

                count[c] = (size_t)d->class_n[c] < left ? d->class_n[c] : (int32_t)left;
                left -= (size_t)count[c];
            }
            status = add_group(d, count, provider, text, size);
        }
    }
    free(value);
    free(order);
    return status;
}

/* ---- the session ---- */

static hcp_status copy_ranks(hcp_disagg *d, const hcp_rank *ranks, char *text,
                             size_t size)
{
    size_t stride = ranks[0].size; /* that of an older header may be smaller */

    for (size_t r = 0; r < d->n; r++) {
        const hcp_rank *rank = (const void *)((const char *)ranks + r * stride);
        hcp_rank *own = &d->ranks[r];

        if (rank->size != stride || !memchr(rank->device, 0, sizeof rank->device) ||
            !memchr(rank->limit, 0, sizeof rank->limit))
            return plan_fail(text, size, HCP_STATUS_INVALID,
                             "rank %zu: size not set or unterminated name", r);
        hcp_rank_init(own);
        memcpy(own, rank, stride < sizeof *own ? stride : sizeof *own);
        own->size = sizeof *own;
        if (!(own->decode_linear_us >= 0 && own->decode_linear_us <= 1e9))
            return plan_fail(text, size, HCP_STATUS_INVALID,
                             "rank %zu: linear work of a decode step must be 0..1e9 us",
                             r);
        d->memory |= own->max_bytes > 0;
    }
    return HCP_STATUS_OK;
}

static hcp_status copy_shapes(hcp_disagg *d, const hcp_shape *const shape[PHASES],
                              char *text, size_t size)
{
    static const char *const phase[PHASES] = {"prefill", "decode"};

    for (int i = 0; i < PHASES; i++) {
        if (!shape[i] || shape[i]->size < offsetof(hcp_shape, phase))
            return plan_fail(text, size, HCP_STATUS_INVALID, "a shape has no size set");
        hcp_shape_init(&d->shape[i]);
        memcpy(&d->shape[i], shape[i],
               shape[i]->size < sizeof(hcp_shape) ? shape[i]->size : sizeof(hcp_shape));
        d->shape[i].size = sizeof(hcp_shape);
        memset(d->shape[i].phase, 0, sizeof d->shape[i].phase);
        memcpy(d->shape[i].phase, phase[i], strlen(phase[i]));
    }
    if (strncmp(d->shape[0].dtype, d->shape[1].dtype, sizeof d->shape[0].dtype) != 0 ||
        d->shape[0].heads != d->shape[1].heads ||
        d->shape[0].kv_heads != d->shape[1].kv_heads ||
        d->shape[0].head_dim != d->shape[1].head_dim ||
        d->shape[0].batch > d->shape[1].batch)
        return plan_fail(
            text, size, HCP_STATUS_INVALID,
            "prefill and decode are of one model: shapes may differ in batch "
            "alone, that of prefill being no larger");
    return HCP_STATUS_OK;
}

static hcp_status make(hcp_disagg *d, const hcp_rank *ranks,
                       const hcp_shape *const shape[PHASES],
                       const char *const provider[PHASES], char *text, size_t size)
{
    hcp_status status = copy_shapes(d, shape, text, size);
    size_t n_groups;
    int32_t *count;

    if (!status)
        status = copy_ranks(d, ranks, text, size);
    if (status)
        return status;
    number_classes(d);
    for (int phase = 0; !status && phase < PHASES; phase++)
        status = check_phase(d, phase, provider[phase], text, size);
    if (status)
        return status;
    n_groups = count_groups(d, HCP_DISAGG_MAX_GROUPS);
    d->every = n_groups <= HCP_DISAGG_MAX_GROUPS;
    d->groups = calloc(HCP_DISAGG_MAX_GROUPS, sizeof *d->groups);
    count = calloc((size_t)d->n_classes, sizeof *count);
    if (!d->groups || !count)
        status = plan_fail(text, size, HCP_STATUS_NO_MEMORY, "out of memory");
    else
        status = d->every ? add_all(d, provider, count, text, size)
                          : add_some(d, provider, count, text, size);
    free(count);
    return status;
}

hcp_status hcp_disagg_create(const hcp_models *models, const hcp_shape *prefill,
                             const hcp_shape *decode, const hcp_rank *ranks, size_t n,
                             const char *prefill_provider, const char *decode_provider,
                             char *text, size_t text_size, hcp_disagg **out)
{
    const hcp_shape *const shape[PHASES] = {prefill, decode};
    const char *const provider[PHASES] = {prefill_provider, decode_provider};
    hcp_status status;
    hcp_disagg *d;

    if (n > HCP_DISAGG_MAX_RANKS)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "%zu ranks, more than the %d that are advised on; ask about "
                         "fewer of each kind, in the same proportion",
                         n, HCP_DISAGG_MAX_RANKS);
    if (!models || !out || !ranks || n < 1 ||
        ranks[0].size < offsetof(hcp_rank, linear_before_us))
        return plan_fail(
            text, text_size, HCP_STATUS_INVALID,
            "models, output and 2 to %d ranks with their size set are needed",
            HCP_DISAGG_MAX_RANKS);
    if (n < 2)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "one rank does prefill and decode in turn; there is nothing to "
                         "advise below 2 ranks");
    d = calloc(1, sizeof *d);
    if (!d)
        return plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
    d->models = models;
    d->n = n;
    d->ranks = calloc(n, sizeof *d->ranks);
    d->class_of = calloc(n, sizeof *d->class_of);
    d->number_of = calloc(n, sizeof *d->number_of);
    d->class_n = calloc(n, sizeof *d->class_n);
    d->member = calloc(n, sizeof *d->member);
    d->first = calloc(n, sizeof *d->first);
    status =
        d->ranks && d->class_of && d->number_of && d->class_n && d->member && d->first
            ? make(d, ranks, shape, provider, text, text_size)
            : plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
    if (status) {
        hcp_disagg_free(d);
        return status;
    }
    *out = d;
    return HCP_STATUS_OK;
}

void hcp_disagg_free(hcp_disagg *d)
{
    if (!d)
        return;
    for (size_t g = 0; g < d->n_groups; g++) {
        for (int phase = 0; phase < PHASES; phase++)
            hcp_ring_free(d->groups[g].ring[phase]);
        free(d->groups[g].count);
        free(d->groups[g].place);
    }
    free(d->groups);
    free(d->ranks);
    free(d->class_of);
    free(d->number_of);
    free(d->class_n);
    free(d->member);
    free(d->first);
    free(d);
}
