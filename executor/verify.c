/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/verify-internal.h"
#include "kernels/dtype.h"
#include "kernels/randn.h"
#include "kernels/reference.h"

static int no_memory(struct hcp_err *err)
{
    return hcp_fail(err, HCP_FAILED,
                    "no memory to verify; use a shorter sequence, or "
                    "leave --verify out");
}

int verify_fail(const struct verify *v, int rc, const char *doing, struct hcp_err *err)
{
    const char *text = v->config->runtime->last_error();

    return hcp_fail(err, HCP_FAILED, "verification: %s: %s%s%s", doing, hcp_rc_text(rc),
                    *text ? ": " : "", text);
}

/* ---- what is compared ---- */

/* A part of a document sees that alone. */
static void see_document(const struct verify *v, int64_t i, struct part *part)
{
    const hcp_documents_plan *d = v->config->documents;
    const hcp_document_part *p =
        &d->parts[d->ranks[v->schedule->rank].first_part + i];

    part->first_key = v->segments[i].offset - p->offset;
    part->keys = v->plan->causal ? p->offset + p->length : d->lengths[p->document];
}

static int make_parts(struct verify *v, struct hcp_err *err)
{
    int64_t row = 0;

    v->n_parts = v->plan->causal || v->config->documents ? v->n_segments : 1;
    v->parts = calloc((size_t)v->n_parts, sizeof *v->parts);
    if (!v->parts)
        return no_memory(err);
    for (int64_t i = 0; i < v->n_parts; i++) {
        const hcp_segment *s = &v->segments[i];
        struct part *part = &v->parts[i];

        *part = (struct part){.row = row,
                              .rows = s->length,
                              .segment = i,
                              .n_segments = 1,
                              .keys = s->offset + s->length};
        if (v->config->documents)
            see_document(v, i, part);
        else if (!v->plan->causal)
            *part = (struct part){
                .rows = v->tokens, .n_segments = v->n_segments, .keys = v->plan->seq_len};
        row += part->rows;
        v->largest = part->rows > v->largest ? part->rows : v->largest;
    }
    return HCP_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;

    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    if (x->head != y->head)
        return x->head < y->head ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void add_sample(struct verify *v, int64_t head, int64_t row)
{
    int64_t low = 0,
            high = v->n_parts - 1; /* the last part that begins at row or before */

    while (low < high) {
        int64_t middle = (low + high + 1) / 2;

        if (v->parts[middle].row <= row)
            low = middle;
        else
            high = middle - 1;
    }
    v->samples[v->n_samples++] = (struct sample){low, head, row};
}

static int make_samples(struct verify *v, int64_t max_rows, struct hcp_err *err)
{
    int64_t all = v->heads * v->tokens, n = max_rows < all ? max_rows : all, row = 0;
    int64_t room = (n > 0 ? n : 0) + 2 * v->n_segments, kept = 0;

    v->samples = calloc((size_t)room, sizeof *v->samples);
    if (!v->samples)
        return no_memory(err);
    for (int64_t i = 0; i < n; i++) { /* somewhere in the i-th of n equal parts */
        int64_t from = (int64_t)((__int128)all * i / n);
        int64_t to = (int64_t)((__int128)all * (i + 1) / n);
        int64_t at =
            from + (int64_t)(hcp_hash64(11, (uint64_t)i) % (uint64_t)(to - from));

        add_sample(v, at / v->tokens, at % v->tokens);
    }
    for (int64_t s = 0; s < v->n_segments; row += v->segments[s++].length)
        for (int last = 0; last < 2; last++)
            add_sample(
                v,
                (int64_t)(hcp_hash64(12, (uint64_t)(2 * s + last)) % (uint64_t)v->heads),
                last ? row + v->segments[s].length - 1 : row);
    qsort(v->samples, (size_t)v->n_samples, sizeof *v->samples, by_place);
    for (int64_t i = 0; i < v->n_samples; i++)
        if (i == 0 || by_place(&v->samples[i], &v->samples[kept - 1]) != 0)
            v->samples[kept++] = v->samples[i];
    v->n_samples = kept;
    return HCP_OK;
}

/* ---- memory and inputs ---- */

static int set_shape(struct verify *v, struct hcp_err *err)
{
    const hcp_shape *s = &v->plan->shape;
    int32_t dtype = hcp_dtype_of_name(s->dtype);
    hcp_attn_problem *p = &v->shape;

    if (dtype < 0)
        return hcp_fail(err, HCP_FAILED, "dtype '%s' of the plan is not known", s->dtype);
    *p = (hcp_attn_problem){.size = sizeof *p,
                            .batch = s->batch,
                            .q_len = 1,
                            .kv_len = v->plan->seq_len,
                            .heads = s->heads,
                            .kv_heads = s->kv_heads,
                            .head_dim = s->head_dim,
                            .dtype = dtype,
                            .out_dtype = HCP_FP32,
                            .causal = v->plan->causal != 0,
                            .scale = 1 / sqrt(s->head_dim)};
    p->k_stride[2] = p->head_dim;
    p->k_stride[1] = p->kv_len * p->head_dim;
    p->k_stride[0] = p->kv_heads * p->k_stride[1];
    memcpy(p->v_stride, p->k_stride, sizeof p->v_stride);
    v->heads = p->batch * p->heads;
    v->element = hcp_dtype_bytes(dtype);
    return HCP_OK;
}

static int allocate(struct verify *v, struct hcp_err *err)
{
    const hcp_attn_problem *p = &v->shape;
    int64_t dim = p->head_dim, rows = v->heads * v->largest;
    int64_t kv = p->batch * p->k_stride[0] * v->element;
    int64_t chunk = v->largest < VERIFY_CHUNK ? v->largest : VERIFY_CHUNK;
    struct {
        void **out;
        int64_t bytes;
    } device[] = {{&v->k, kv},
                  {&v->v, kv},
                  {&v->q, rows * dim * v->element},
                  {&v->single_o, rows * dim * (int64_t)sizeof(float)},
                  {&v->single_lse, rows * (int64_t)sizeof(float)}};

    for (size_t i = 0; i < sizeof device / sizeof *device; i++) {
        int rc = v->config->runtime->alloc(device[i].out, device[i].bytes);

        if (rc) {
            *device[i].out = NULL;
            return verify_fail(v, rc,
                               "keys and values of the whole sequence and a single pass; "
                               "use a shorter sequence, or leave --verify out",
                               err);
        }
    }
    v->k_host = malloc((size_t)kv);
    v->v_host = malloc((size_t)kv);
    v->q_host = malloc((size_t)(dim * v->element));
    v->o_rows = malloc((size_t)(chunk * dim) * sizeof(float));
    v->single_rows = malloc((size_t)(chunk * dim) * sizeof(float));
    v->lse_rows = malloc((size_t)chunk * sizeof(float));
    v->single_lse_rows = malloc((size_t)chunk * sizeof(float));
    v->reference = malloc((size_t)dim * sizeof(double));
    v->scratch = malloc((size_t)hcp_reference_scratch(p) * sizeof(double));
    if (!v->k_host || !v->v_host || !v->q_host || !v->o_rows || !v->single_rows ||
        !v->lse_rows || !v->single_lse_rows || !v->reference || !v->scratch)
        return no_memory(err);
    return HCP_OK;
}

static void release(struct verify *v)
{
    void *device[] = {v->k, v->v, v->q, v->single_o, v->single_lse};

    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        if (device[i])
            v->config->runtime->release(device[i]);
    free(v->parts);
    free(v->samples);
    free(v->k_host);
    free(v->v_host);
    free(v->q_host);
    free(v->o_rows);
    free(v->single_rows);
    free(v->lse_rows);
    free(v->single_lse_rows);
    free(v->reference);
    free(v->scratch);
}

/* K and V of the whole sequence, there and here. */
static int fill_kv(struct verify *v, struct hcp_err *err)
{
    const hcp_runtime *runtime = v->config->runtime;
    int64_t n = v->shape.batch * v->shape.k_stride[0];
    uint64_t seed = v->config->seed;
    int rc = runtime->randn(v->k, n, v->shape.dtype, seed + 2, 0, v->stream);

    if (!rc)
        rc = runtime->randn(v->v, n, v->shape.dtype, seed + 3, 0, v->stream);
    if (!rc)
        rc = runtime->to_host(v->k_host, v->k, n * v->element, v->stream);
    if (!rc)
        rc = runtime->to_host(v->v_host, v->v, n * v->element, v->stream);
    return rc ? verify_fail(v, rc, "keys and values", err) : HCP_OK;
}

/* Q of a part, dense: a run of the sequence's numbers for each head and segment. */
static int fill_q(struct verify *v, const struct part *part)
{
    int64_t dim = v->shape.head_dim, length = v->plan->seq_len;
    int rc = HCP_RC_OK;

    for (int64_t head = 0; head < v->heads; head++) {
        char *out = (char *)v->q + head * part->rows * dim * v->element;

        for (int64_t i = 0; !rc && i < part->n_segments; i++) {
            const hcp_segment *s = &v->segments[part->segment + i];

            rc = v->config->runtime->randn(
                out, s->length * dim, v->shape.dtype, v->config->seed + 1,
                (uint64_t)((head * length + s->offset) * dim), v->stream);
            out += s->length * dim * v->element;
        }
    }
    return rc;
}

/* ---- the single pass ---- */

static int single_pass(struct verify *v, const struct part *part, struct hcp_err *err)
{
    const struct ring_config *c = v->config;
    hcp_attn_problem p = v->shape;
    hcp_attn_args args = {.size = sizeof args,
                          .q = v->q,
                          .k = v->k,
                          .v = v->v,
                          .o = v->single_o,
                          .lse = v->single_lse};
    hcp_attention *attention = NULL;
    char text[400] = "";
    int rc = fill_q(v, part);

    if (rc)
        return verify_fail(v, rc, "queries", err);
    args.k = (const char *)v->k + part->first_key * p.head_dim * v->element;
    args.v = (const char *)v->v + part->first_key * p.head_dim * v->element;
    p.q_len = args.q_len = part->rows;
    p.kv_len = args.kv_len = part->keys;
    /* A segment's last row sees all of its keys, the others one less each. */
    p.diag = args.diag = p.causal ? part->keys - part->rows : 0;
    p.q_stride[2] = p.head_dim;
    p.q_stride[1] = part->rows * p.head_dim;
    p.q_stride[0] = p.heads * p.q_stride[1];
    memcpy(p.o_stride, p.q_stride, sizeof p.o_stride);
    rc = hcp_attention_create(c->provider, c->runtime, &c->device, &p, &attention, text,
                              sizeof text);
    if (rc)
        return hcp_fail(err, HCP_FAILED,
                        "verification: single pass of %" PRId64 " queries x %" PRId64
                        " keys: %s",
                        p.q_len, p.kv_len, text);
    rc = hcp_attention_run(attention, &args, v->stream);
    if (!rc)
        rc = c->runtime->sync(v->stream);
    hcp_attention_destroy(attention);
    return rc ? verify_fail(v, rc, "single pass", err) : HCP_OK;
}

/* ---- the whole ---- */

int ring_verify(ring *r, int64_t max_rows, struct ring_errors *errors,
                struct hcp_err *err)
{
    struct verify v = {.config = ring_config_of(r),
                       .schedule = ring_schedule_of(r),
                       .stream = ring_stream_of(r),
                       .errors = errors};
    const hcp_plan_rank *rank;
    hcp_segment newest; /* of decode: the token whose query there is */
    int64_t next = 0;
    int rc;

    *errors = (struct ring_errors){.passed = 1};
    v.tokens = v.schedule->tokens;
    if (v.tokens == 0)
        return HCP_OK;
    v.plan = v.config->plan;
    rank = &v.plan->ranks[v.schedule->rank];
    v.segments = v.plan->segments + rank->first_segment;
    v.n_segments = rank->n_segments;
    if (strcmp(v.plan->shape.phase, "decode") == 0) {
        newest = (hcp_segment){v.plan->seq_len - 1, 1};
        v.segments = &newest;
        v.n_segments = 1;
    }
    ring_tensors_of(r, &v.ring);
    rc = set_shape(&v, err);
    if (!rc)
        rc = make_parts(&v, err);
    if (!rc)
        rc = make_samples(&v, max_rows, err);
    if (!rc)
        rc = allocate(&v, err);
    if (!rc)
        rc = fill_kv(&v, err);
    for (int64_t i = 0; !rc && i < v.n_parts; i++) {
        rc = single_pass(&v, &v.parts[i], err);
        if (!rc)
            rc = verify_compare_part(&v, i, &next, err);
    }
    if (!rc)
        rc = verify_judge(&v, err);
    release(&v);
    return rc;
}

int ring_poison(ring *r, struct hcp_err *err)
{
    const struct ring_config *c = ring_config_of(r);
    struct verify v = {.config = c};
    const hcp_shape *s = &c->plan->shape;
    int64_t rows = (int64_t)s->batch * s->heads * ring_schedule_of(r)->tokens;
    void *stream = ring_stream_of(r);
    int rc;

    if (rows == 0)
        return HCP_OK;
    ring_tensors_of(r, &v.ring);
    /* Device memory of the ring's own; const for those who only look. */
    rc = c->runtime->fill((void *)v.ring.o, 0xff,
                          rows * s->head_dim * (int64_t)sizeof(float), stream);
    if (!rc)
        rc = c->runtime->fill((void *)v.ring.lse, 0xff, rows * (int64_t)sizeof(float),
                              stream);
    if (!rc)
        rc = c->runtime->sync(stream);
    return rc ? verify_fail(&v, rc, "poisoning the output", err) : HCP_OK;
}
