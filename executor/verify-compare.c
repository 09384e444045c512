/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include "executor/verify-internal.h"
#include "kernels/bounds.h"
#include "kernels/reference.h"

/* Fewer than this can all be rounded well in the single pass by luck. */
enum { FEW_PAIRS = 4096 };

/* A row of a wrong block or a lost one is off by far more than this many times what a
 * whole tensor may be; no right row is. */
static const double ROW_FACTOR = 16;

static int64_t position_of(const struct verify *v, int64_t row)
{
    int64_t s = 0;

    while (row >= v->segments[s].length)
        row -= v->segments[s++].length;
    return v->segments[s].offset + row;
}

/* The first thing that is wrong is the one that is told. */
__attribute__((format(printf, 4, 5))) static void
wrong(struct verify *v, int64_t head, int64_t row, const char *format, ...)
{
    struct ring_errors *e = v->errors;
    char where[80] = "";
    va_list args;
    int n;

    if (!e->passed)
        return;
    e->passed = 0;
    if (head >= 0 && v->shape.batch > 1)
        snprintf(where, sizeof where, "batch %" PRId64 " ", head / v->shape.heads);
    n = snprintf(e->text, sizeof e->text, "%s", where);
    if (head >= 0)
        n = snprintf(e->text, sizeof e->text, "%shead %" PRId64 " token %" PRId64 ": ",
                     where, head % v->shape.heads, position_of(v, row));
    va_start(args, format);
    vsnprintf(e->text + n, sizeof e->text - (size_t)n, format, args);
    va_end(args);
}

/* A row of the ring with the same of the single pass: i-th of the chunk. */
static void compare_row(struct verify *v, int64_t head, int64_t row, int64_t i)
{
    int64_t dim = v->shape.head_dim;
    const float *o = v->o_rows + i * dim, *single = v->single_rows + i * dim;
    double off = 0, all = 0, limit = ROW_FACTOR * hcp_o_bound(v->shape.dtype);
    double lse = hcp_lse_excess(v->lse_rows[i], v->single_lse_rows[i]) / 2, excess;

    for (int64_t d = 0; d < dim; d++) {
        double difference = (double)o[d] - single[d];

        off += difference * difference;
        all += (double)single[d] * single[d];
    }
    excess = sqrt(off) / (limit * sqrt(all));
    excess = off == 0 ? 0 : excess < INFINITY ? excess : INFINITY; /* NaN, too */
    if (excess > v->errors->row_error)
        v->errors->row_error = excess;
    if (lse > v->errors->row_error)
        v->errors->row_error = lse;
    if (isnan(off) || isnan(v->lse_rows[i]))
        wrong(v, head, row, "O or L is not a number, as where nothing was written");
    else if (!(lse <= 1))
        wrong(v, head, row, "L is %.9g, in a single pass %.9g", v->lse_rows[i],
              v->single_lse_rows[i]);
    else if (!(excess <= 1))
        wrong(v, head, row, "O differs by %.2e of its length from the single pass's",
              excess * limit);
}

/* The same row with fp64. */
static int compare_sample(struct verify *v, const struct part *part, int64_t head,
                          int64_t row, int64_t i, struct hcp_err *err)
{
    struct ring_errors *e = v->errors;
    int64_t dim = v->shape.head_dim, position = position_of(v, row);
    int64_t first = part->first_key * dim * v->element;
    const float *o = v->o_rows + i * dim, *single = v->single_rows + i * dim;
    hcp_attn_problem p = v->shape;
    double lse, excess;
    int rc = v->config->runtime->to_host(
        v->q_host,
        (char *)v->q + (head * part->rows + row - part->row) * dim * v->element,
        dim * v->element, v->stream);

    if (rc)
        return verify_fail(v, rc, "copying queries", err);
    position -= part->first_key;
    p.kv_len = part->keys;
    p.diag = position; /* q strides are 0: any row of any head is this one */
    hcp_reference_row(&p, v->q_host, v->k_host + first, v->v_host + first, head / p.heads,
                      head % p.heads, 0, v->reference, &lse, v->scratch);
    for (int64_t d = 0; d < dim; d++) {
        double r = o[d] - v->reference[d], s = single[d] - v->reference[d];

        v->ring_squares += r * r;
        v->single_squares += s * s;
        v->squares += v->reference[d] * v->reference[d];
        if (!(fabs(r) <= e->max_abs_error) && !isnan(e->max_abs_error))
            e->max_abs_error = fabs(r);
    }
    excess = hcp_lse_excess(v->lse_rows[i], lse);
    e->lse_error = excess > e->lse_error ? excess : e->lse_error;
    if (excess > 1)
        wrong(v, head, row, "L is %.9g, should be %.9g", v->lse_rows[i], lse);
    v->top_lse = fmax(v->top_lse, fabs(lse));
    e->rows_compared++;
    v->pairs += p.causal ? position + 1 : p.kv_len;
    return HCP_OK;
}

/* Rows [from, from + n) of a part's, of one head, to the host. */
static int fetch(struct verify *v, const struct part *part, int64_t head, int64_t from,
                 int64_t n, struct hcp_err *err)
{
    const hcp_runtime *runtime = v->config->runtime;
    int64_t dim = v->shape.head_dim, bytes = n * (int64_t)sizeof(float);
    int64_t at = head * v->tokens + part->row + from, single = head * part->rows + from;
    int rc = runtime->to_host(v->o_rows, v->ring.o + at * dim, bytes * dim, v->stream);

    if (!rc)
        rc = runtime->to_host(v->lse_rows, v->ring.lse + at, bytes, v->stream);
    if (!rc)
        rc = runtime->to_host(v->single_rows, (float *)v->single_o + single * dim,
                              bytes * dim, v->stream);
    if (!rc)
        rc = runtime->to_host(v->single_lse_rows, (float *)v->single_lse + single, bytes,
                              v->stream);
    return rc ? verify_fail(v, rc, "copying results", err) : HCP_OK;
}

int verify_compare_part(struct verify *v, int64_t index, int64_t *next,
                        struct hcp_err *err)
{
    const struct part *part = &v->parts[index];
    int rc = HCP_OK;

    for (int64_t head = 0; head < v->heads; head++) {
        for (int64_t from = 0; !rc && from < part->rows; from += VERIFY_CHUNK) {
            int64_t n =
                part->rows - from < VERIFY_CHUNK ? part->rows - from : VERIFY_CHUNK;
            int64_t row = part->row + from;

            rc = fetch(v, part, head, from, n, err);
            for (int64_t i = 0; !rc && i < n; i++)
                compare_row(v, head, row + i, i);
            for (; !rc && *next < v->n_samples; ++*next) {
                const struct sample *s = &v->samples[*next];

                if (s->part != index || s->head != head || s->row >= row + n)
                    break;
                rc = compare_sample(v, part, head, s->row, s->row - row, err);
            }
        }
    }
    return rc;
}

/* Whether partial results of the schedule's largest call are fp32, and how many of them
 * are merged one after the other. */
static int partials(const struct verify *v, int *fp32, int64_t *blocks,
                    struct hcp_err *err)
{
    const struct ring_schedule *s = v->schedule;
    const struct ring_call *largest = &s->calls[0];
    hcp_attn_problem p = v->shape;
    hcp_attn_support support = {.size = sizeof support};
    int rc;

    *blocks = 0;
    for (size_t i = 0; i < s->n_pieces; i++)
        *blocks += s->pieces[i].n_calls > 0;
    for (size_t i = 0; i < s->n_calls; i++)
        *blocks += s->calls[i].merges != 0;
    if (s->n_pieces == 0) /* decode: a partial result a rank */
        *blocks = s->m;
    for (size_t i = 1; i < s->n_calls; i++)
        if (s->calls[i].rows * s->calls[i].keys > largest->rows * largest->keys ||
            i == 1) /* one that is merged, if there is one */
            largest = &s->calls[i];
    p.q_len = largest->rows;
    p.kv_len = largest->keys;
    p.causal = largest->causal;
    p.diag = 0;
    p.accumulate = largest > &s->calls[0];
    hcp_problem_set_dense_strides(&p);
    rc = hcp_attention_probe(v->config->provider, &v->config->device, &p, &support);
    *fp32 = p.dtype == HCP_FP32 || support.caps & HCP_CAP_OUT_FP32;
    return rc ? verify_fail(v, rc, "query", err) : HCP_OK;
}

int verify_judge(struct verify *v, struct hcp_err *err)
{
    struct ring_errors *e = v->errors;
    int64_t blocks;
    int fp32, rc = partials(v, &fp32, &blocks, err);

    if (rc)
        return rc;
    e->o_error = sqrt(v->ring_squares / v->squares);
    e->single_error = sqrt(v->single_squares / v->squares);
    e->o_bound = hcp_blocks_o_bound(e->single_error, fp32, blocks, v->top_lse);
    if (v->pairs < FEW_PAIRS)
        e->o_bound = fmax(e->o_bound, hcp_o_bound(v->shape.dtype));
    if (!(e->o_error <= e->o_bound))
        wrong(v, -1, 0,
              "O is off by %.2e, more than the %.2e that the single pass's %.2e "
              "allows",
              e->o_error, e->o_bound, e->single_error);
    else if (!(e->single_error <= hcp_o_bound(v->shape.dtype)))
        wrong(v, -1, 0,
              "a single pass of the kernel is off by %.2e, more than %.0e; try another "
              "kernel",
              e->single_error, hcp_o_bound(v->shape.dtype));
    return HCP_OK;
}
