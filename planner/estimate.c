/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of data sheets: which measured device speaks for them, and what is said of that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "planner/hash.h"
#include "planner/specs.h"

/* How far estimates have been off where they could be checked, as factors either way: of
 * one generation they hold for 90 % of the blocks and more, of two they are the largest
 * of a few published figures (planner/specs.md): */
#define FACTOR_NEAR 1.4  /* same generation of tensor cores */
#define FACTOR_OTHER 2.7 /* another one; each */
#define FACTOR_FAR 1.5   /* times this, with more than FAR times as many SMs, or fewer */
#define FAR 3

static double apart(double a, double b)
{
    return a > b ? a / b : b / a;
}

static double peak(const hcp_spec *spec, const char *dtype)
{
    return strcmp(dtype, "bf16") == 0   ? spec->bf16_tflops
           : strcmp(dtype, "fp16") == 0 ? spec->fp16_tflops
                                        : spec->fp32_tflops;
}

/* ---- kin ---- */

/* How near a measured rank is: less is nearer, the first member that differs decides. */
struct near {
    int generation; /* 1: another one */
    double device;  /* factors between peak FLOP/s, and between bandwidths */
    double part;    /* factor between parts of the SMs */
    int limit;      /* 1: another name of the limit */
};

static int nearer(const struct near *a, const struct near *b)
{
    if (a->generation != b->generation)
        return a->generation < b->generation;
    if (a->device != b->device)
        return a->device < b->device;
    if (a->part != b->part)
        return a->part < b->part;
    return a->limit < b->limit;
}

static int same_family(const struct hcp_key *key, const hcp_shape *shape)
{
    int decode = strcmp(shape->phase, "decode") == 0;

    return strcmp(key->dtype, shape->dtype) == 0 &&
           strcmp(key->phase, shape->phase) == 0 && key->heads == shape->heads &&
           key->kv_heads == shape->kv_heads && key->head_dim == shape->head_dim &&
           (decode || key->batch == shape->batch);
}

static const hcp_spec *spec_of(const hcp_models *models, const hcp_rank *rank)
{
    const char *name = specs_name(rank->device);

    return name ? specs_find(models->specs, name) : NULL;
}

void estimate_know(const hcp_specs *specs, const struct hcp_key *key,
                   struct stored_arrays *arrays)
{
    int32_t seen = 0; /* SMs that it was measured on */

    for (size_t i = 0; i < arrays->n; i++)
        if (strcmp(arrays->array[i].name, "shape") == 0 && arrays->array[i].n == 7)
            seen = (int32_t)arrays->array[i].v[3];
    arrays->spec = specs_find(specs, key->device);
    /* More SMs than the sheet has: it is another board's. */
    if (arrays->spec &&
        estimate_resources(arrays->spec, key->limit, seen, key->dtype, &arrays->have))
        arrays->spec = NULL;
}

/* The nearest stored model of a kernel (NULL: any), or -1. */
static ptrdiff_t nearest(const hcp_models *models, const hcp_shape *shape,
                         const hcp_rank *rank, const char *provider, struct near *how)
{
    const hcp_spec *spec = spec_of(models, rank);
    struct resources want;
    ptrdiff_t best = -1;

    if (!spec || estimate_resources(spec, rank->limit, 0, shape->dtype, &want))
        return -1;
    for (size_t i = 0; i < models->n_stored; i++) {
        const struct hcp_key *key = &hcp_model_row(models->stored[i].model)->key;
        const hcp_spec *other = models->arrays[i].spec;
        struct near n;

        if (!other || !same_family(key, shape) ||
            (provider && strcmp(key->provider, provider) != 0))
            continue;
        n.generation = strcmp(other->arch, spec->arch) != 0;
        n.device = apart(peak(other, shape->dtype), peak(spec, shape->dtype)) *
                   apart(other->memory_gbps, spec->memory_gbps);
        n.part = apart(models->arrays[i].have.part, want.part);
        n.limit = strcmp(key->limit, rank->limit) != 0;
        if (best < 0 || nearer(&n, how)) {
            best = (ptrdiff_t)i;
            *how = n;
        }
    }
    return best;
}

const struct hcp_key *estimate_kin(const struct hcp_models *models,
                                   const hcp_shape *shape, const hcp_rank *rank,
                                   const char *provider, double *speed)
{
    struct resources want;
    struct near how = {0};
    ptrdiff_t at = nearest(models, shape, rank, provider, &how);

    if (at < 0)
        return NULL;
    estimate_resources(spec_of(models, rank), rank->limit, 0, shape->dtype, &want);
    *speed = strcmp(shape->phase, "decode") == 0
                 ? want.bytes / models->arrays[at].have.bytes
                 : want.flops / models->arrays[at].have.flops;
    return &hcp_model_row(models->stored[at].model)->key;
}

/* ---- what can be wrong ---- */

hcp_status estimate_check(const struct hcp_models *models, const hcp_shape *shape,
                          const hcp_rank *rank, size_t r, char *text, size_t text_size)
{
    const char *name = specs_name(rank->device);
    const hcp_spec *spec;
    struct resources have;
    char kind[8] = "";
    int32_t value = 0;

    if (!models->specs)
        return plan_fail(
            text, text_size, HCP_STATUS_NO_MODEL,
            "rank %zu, '%s', is a data sheet, and no table of them is loaded: "
            "use hcp-plan, or hcp_models_load_specs()",
            r, rank->device);
    spec = specs_find(models->specs, name);
    if (!spec)
        return specs_unknown(models->specs, name, text, text_size);
    if (rank->limit[0])
        hcp_parse_limit(rank->limit, kind, &value, NULL);
    if (rank->limit[0] && strcmp(kind, "mps") != 0 && strcmp(kind, "green") != 0)
        return plan_fail(
            text, text_size, HCP_STATUS_INVALID,
            "rank %zu, '%s@%s': a GPU is limited by mps:PERCENT or green:SMS", r,
            rank->device, rank->limit);
    if (strcmp(kind, "green") == 0 && value > spec->sms)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "rank %zu, '%s@%s': %s has %d SMs; write green:N with N from 1 "
                         "to that",
                         r, rank->device, rank->limit, spec->name, (int)spec->sms);
    if (estimate_resources(spec, rank->limit, 0, shape->dtype, &have))
        return plan_fail(text, text_size, HCP_STATUS_NO_MODEL,
                         "rank %zu, '%s': the data sheet in %s has no %s FLOP/s; ask for "
                         "another --dtype",
                         r, rank->device, models->specs->path, shape->dtype);
    return HCP_STATUS_OK;
}

/* A device of the table with measured cells of that shape, and no model; NULL none. */
static const struct hcp_key *unfitted(const hcp_models *models, const hcp_shape *shape)
{
    for (size_t i = 0; i < models->n_measured; i++)
        if (same_family(&models->measured[i], shape) &&
            specs_find(models->specs, models->measured[i].device))
            return &models->measured[i];
    return NULL;
}

hcp_status estimate_none(const struct hcp_models *models, const hcp_shape *shape,
                         const hcp_rank *rank, size_t r, const char *provider, char *text,
                         size_t text_size)
{
    const struct hcp_key *key = unfitted(models, shape);
    char described[96], run[224], others[300] = "";
    const char *at = rank->limit[0] ? "@" : "";
    size_t n = 0, len = 0;

    bind_describe(shape, described, sizeof described);
    if (key && !provider)
        return plan_fail(text, text_size, HCP_STATUS_NO_MODEL,
                         "rank %zu, '%s%s%s' (%s): its kin '%s' is measured but not "
                         "fitted; run 'hcp-plan fit --db %s'",
                         r, rank->device, at, rank->limit, described, key->device,
                         models->path);
    for (size_t i = 0; i < models->n_measured && n < 4 && len < sizeof others; i++) {
        const char *device = models->measured[i].device;

        if (i > 0 && strcmp(device, models->measured[i - 1].device) == 0)
            continue;
        len += (size_t)snprintf(
            others + len, sizeof others - len, "%s%s%s", n++ ? ", " : "; measured are ",
            device, specs_find(models->specs, device) ? "" : " (not in the table)");
    }
    return plan_fail(
        text, text_size, HCP_STATUS_NO_MODEL,
        "no measured kin of '%s%s%s' (rank %zu; %s%s%s) in %s: times of a data sheet are "
        "scaled from a profile of another GPU of the table; run 'hcp-profile run --db "
        "%s%s' "
        "on one, or import a recorded one ('hcp-profile import --db %s nvidia-h200'), "
        "then "
        "'hcp-plan fit --db %s'%s",
        rank->device, at, rank->limit, r, provider ? provider : "", provider ? ", " : "",
        described, models->path, models->path, bind_run_options("", shape, provider, run),
        models->path, models->path, others);
}

/* ---- models ---- */

static size_t stored_number(const hcp_models *models, const hcp_model *model)
{
    size_t i = 0;

    while (models->stored[i].model != model)
        i++;
    return i;
}

static void hash_spec(uint64_t *h, const hcp_spec *spec)
{
    const double numbers[] = {spec->bf16_tflops, spec->fp16_tflops, spec->fp32_tflops,
                              spec->memory_gbps, spec->memory_gb,   spec->nvlink_gbps,
                              spec->pcie_gbps};

    hash_text(h, spec->name, sizeof spec->name);
    hash_text(h, spec->arch, sizeof spec->arch);
    hash_text(h, spec->aliases, sizeof spec->aliases);
    hash_text(h, spec->source, sizeof spec->source);
    hash_u64(h, (uint64_t)spec->sms);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        hash_double(h, numbers[i]);
}

struct making {
    struct hcp_ring *ring;
    struct bound_rank *b;
    struct estimate *e;
    const hcp_spec *kin, *target;
    struct resources want;
    struct hcp_err err;
};

/* The scaled model of a stored one; hash is that of both sheets, the stored model and
 * what was made of it. */
static hcp_model *scale(struct making *m, const hcp_model *from, uint64_t *hash)
{
    const hcp_models *models = m->ring->models;
    size_t at = stored_number(models, from);
    const struct stored_arrays *arrays = &models->arrays[at];
    struct hcp_model_row row = *hcp_model_row(from);
    hcp_model *model = NULL;
    uint64_t h;

    if (!arrays->spec) { /* others of its key had SMs that the sheet has */
        hcp_fail(&m->err, HCP_FAILED,
                 "its kin '%s' was seen with more SMs than its data sheet has",
                 row.key.device);
        return NULL;
    }
    memcpy(row.key.device, m->b->spec.device, sizeof row.key.device);
    memcpy(row.key.limit, m->b->spec.limit, sizeof row.key.limit);
    if (estimate_scale(&row, arrays->array, arrays->n, &arrays->have, &m->want,
                       m->e->said.factor, &model, &h, &m->err) != HCP_OK)
        return NULL;
    hash_u64(hash, h);
    hash_u64(hash, models->stored[at].hash);
    hash_spec(hash, m->kin);
    hash_spec(hash, m->target);
    m->e->own[m->e->n_own++] = model;
    return model;
}

/* Where a batch of decode was not measured: of its neighbours, scaled. */
static int scale_batches(struct making *m, const hcp_rank *stand, int k, const char *kind)
{
    struct hcp_ring *ring = m->ring;
    struct hcp_blend_from from;
    const hcp_model **each[] = {&from.below, &from.low, &from.high, &from.above};
    hcp_model *model;

    bind_find_batches(ring->models, &ring->shape, stand, ring->provider, kind, &from);
    if (!from.low && !from.high)
        return 0;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (*each[i] && !(*each[i] = scale(m, *each[i], &m->b->hash[k])))
            return -1;
    if (hcp_model_blend(&from, ring->shape.batch, &model, &m->err) != HCP_OK)
        return -1;
    m->e->own[m->e->n_own++] = model;
    m->b->model[k] = model;
    return 0;
}

static hcp_status stale_kin(const struct hcp_ring *ring, const hcp_rank *rank,
                            const hcp_rank *stand, size_t r, char *text, size_t text_size)
{
    return plan_fail(text, text_size, HCP_STATUS_STALE,
                     "rank %zu, '%s%s%s': samples of its kin '%s%s%s' changed since the "
                     "fit; run 'hcp-plan fit --db %s'",
                     r, rank->device, rank->limit[0] ? "@" : "", rank->limit,
                     stand->device, stand->limit[0] ? "@" : "", stand->limit,
                     ring->models->path);
}

static void say(struct making *m, const struct near *how, const hcp_rank *stand,
                const struct resources *have)
{
    const struct hcp_ring *ring = m->ring;
    hcp_rank_estimate *said = &m->e->said;
    char run[224];

    memset(said, 0, sizeof *said);
    said->size = sizeof *said;
    said->estimated = 1;
    memcpy(said->name, m->target->name, sizeof said->name);
    memcpy(said->kin_device, stand->device, sizeof said->kin_device);
    memcpy(said->kin_limit, stand->limit, sizeof said->kin_limit);
    said->sms = m->want.sms;
    said->kin_sms = have->sms;
    said->kin_tflops = have->flops / 1e9;
    said->kin_gbps = have->bytes / 1e6;
    said->flops_ratio = m->want.flops / have->flops;
    said->memory_ratio = m->want.bytes / have->bytes;
    said->factor = how->generation ? FACTOR_OTHER : FACTOR_NEAR;
    if (apart(said->sms, said->kin_sms) > FAR)
        said->factor *= FACTOR_FAR;
    said->memory_bytes = m->target->memory_bytes;
    /* Another generation may have no such kernel. */
    snprintf(said->command, sizeof said->command, "hcp-profile run --db %.240s%s",
             ring->models->path,
             bind_run_options(m->b->spec.limit, &ring->shape,
                              how->generation ? NULL : ring->provider, run));
}

/* An earlier rank of the same data sheet and limit. */
static const struct bound_rank *like(const struct hcp_ring *ring, size_t r)
{
    for (size_t i = r; i-- > 0;)
        if (ring->ranks[i].estimate >= 0 &&
            strcmp(ring->ranks[i].spec.device, ring->ranks[r].spec.device) == 0 &&
            strcmp(ring->ranks[i].spec.limit, ring->ranks[r].spec.limit) == 0)
            return &ring->ranks[i];
    return NULL;
}

hcp_status estimate_bind(struct hcp_ring *ring, size_t r, char *text, size_t text_size)
{
    static const char *const kinds[] = {"", "lut", "poly"};
    struct bound_rank *b = &ring->ranks[r];
    const struct bound_rank *before = like(ring, r);
    struct making m = {.ring = ring, .b = b};
    const struct hcp_key *key;
    struct near how = {0};
    hcp_rank stand = b->spec;
    ptrdiff_t at;
    int stale = 0, blends;

    if (before) {
        memcpy(b->model, before->model, sizeof b->model);
        memcpy(b->hash, before->hash, sizeof b->hash);
        b->estimate = before->estimate;
        return HCP_STATUS_OK;
    }
    at = nearest(ring->models, &ring->shape, &b->spec, ring->provider, &how);
    if (at < 0)
        return estimate_none(ring->models, &ring->shape, &b->spec, r, ring->provider,
                             text, text_size);
    if (!ring->estimates && !(ring->estimates = calloc(ring->n, sizeof *ring->estimates)))
        return plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
    b->estimate = (int32_t)ring->n_estimates++;
    m.e = &ring->estimates[b->estimate];
    key = &hcp_model_row(ring->models->stored[at].model)->key;
    memcpy(stand.device, key->device, sizeof stand.device);
    memcpy(stand.limit, key->limit, sizeof stand.limit);
    m.target = spec_of(ring->models, &b->spec);
    estimate_resources(m.target, b->spec.limit, 0, ring->shape.dtype, &m.want);
    m.kin = ring->models->arrays[at].spec;
    say(&m, &how, &stand, &ring->models->arrays[at].have);
    for (int k = HCP_MODEL_LUT; k <= HCP_MODEL_POLY; k++) {
        const struct stored_model *stored = bind_find_model(
            ring->models, &ring->shape, &stand, ring->provider, kinds[k], &stale);

        b->hash[k] = 0;
        b->model[k] = NULL;
        if (stored && !(b->model[k] = scale(&m, stored->model, &b->hash[k])))
            return plan_fail(text, text_size, HCP_STATUS_NO_MODEL, "rank %zu, '%s': %s",
                             r, b->spec.device, m.err.text);
    }
    blends = !b->model[HCP_MODEL_LUT] && !b->model[HCP_MODEL_POLY] && !stale;
    for (int k = HCP_MODEL_LUT; blends && k <= HCP_MODEL_POLY; k++)
        if (scale_batches(&m, &stand, k, kinds[k]))
            return plan_fail(text, text_size, HCP_STATUS_NO_MODEL, "rank %zu, '%s': %s",
                             r, b->spec.device, m.err.text);
    if (!b->model[HCP_MODEL_LUT] && !b->model[HCP_MODEL_POLY])
        return stale ? stale_kin(ring, &b->spec, &stand, r, text, text_size)
                     : estimate_none(ring->models, &ring->shape, &b->spec, r,
                                     ring->provider, text, text_size);
    return HCP_STATUS_OK;
}

hcp_status hcp_ring_estimate(const hcp_ring *ring, size_t rank, hcp_rank_estimate *out)
{
    hcp_rank_estimate none = {0};
    const hcp_rank_estimate *said = &none;
    size_t size;

    if (!ring || rank >= ring->n || !out || out->size < sizeof *out)
        return HCP_STATUS_INVALID;
    if (ring->ranks[rank].estimate >= 0)
        said = &ring->estimates[ring->ranks[rank].estimate].said;
    size = out->size;
    *out = *said;
    out->size = size;
    return HCP_STATUS_OK;
}

void estimate_kin_name(const struct hcp_ring *ring, size_t rank, char out[96])
{
    int32_t at = ring->ranks[rank].estimate;

    memset(out, 0, 96);
    if (at >= 0)
        snprintf(out, 96, "%s%s%s", ring->estimates[at].said.kin_device,
                 ring->estimates[at].said.kin_limit[0] ? "@" : "",
                 ring->estimates[at].said.kin_limit);
}
