/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "db/db-internal.h"
#include "db/parse.h"

void hcp_cell_init(struct hcp_cell *cell)
{
    memset(cell, 0, sizeof *cell);
    for (size_t i = 0; i < hcp_n_columns; i++) {
        const struct hcp_column *c = &hcp_columns[i];
        char *field = (char *)cell + c->offset;
        if (c->type == HCP_COL_REAL)
            *(double *)(void *)field = NAN;
        else if (c->type == HCP_COL_INT32)
            *(int32_t *)(void *)field = (int32_t)c->unknown;
        else if (c->type == HCP_COL_INT64)
            *(int64_t *)(void *)field = c->unknown;
    }
    strcpy(cell->key.dtype, "bf16");
    strcpy(cell->key.phase, "prefill");
    cell->key.batch = 1;
    cell->key.heads = 32;
    cell->key.kv_heads = 8;
    cell->key.head_dim = 128;
    strcpy(cell->mask, "full");
    strcpy(cell->status, "ok");
    strcpy(cell->origin, "measured");
}

/* Pairs (i, j) with j <= i + kv_len - q_len, or all of them. */
static double area(const struct hcp_cell *cell)
{
    double q = (double)cell->q_len, kv = (double)cell->kv_len;

    if (strcmp(cell->mask, "causal"))
        return q * kv;
    return kv >= q ? q * (kv - q + 1) + q * (q - 1) / 2 : kv * (kv + 1) / 2;
}

double hcp_cell_tflops(const struct hcp_cell *cell)
{
    return 4 * area(cell) * cell->key.heads * cell->key.head_dim * cell->key.batch /
           (cell->time_ms * 1e9);
}

static int one_of(const char *text, const char *const *allowed)
{
    for (; *allowed; allowed++)
        if (!strcmp(text, *allowed))
            return 1;
    return 0;
}

static int check_words(const struct hcp_cell *cell, struct hcp_err *err)
{
    static const struct {
        const char *name, *expected;
        size_t offset;
        const char *allowed[5];
    } words[] = {
        {"dtype",
         "bf16, fp16 or fp32",
         offsetof(struct hcp_cell, key.dtype),
         {"bf16", "fp16", "fp32"}},
        {"phase",
         "prefill or decode",
         offsetof(struct hcp_cell, key.phase),
         {"prefill", "decode"}},
        {"mask", "full or causal", offsetof(struct hcp_cell, mask), {"full", "causal"}},
        {"status", "ok or failed", offsetof(struct hcp_cell, status), {"ok", "failed"}},
        {"origin",
         "measured, recorded or synthetic",
         offsetof(struct hcp_cell, origin),
         {"measured", "recorded", "synthetic"}},
        {"cache",
         "cold, warm or nothing",
         offsetof(struct hcp_cell, cache),
         {"cold", "warm", ""}},
    };
    char kind[8];
    int32_t level;
    int rc;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *value = (const char *)cell + words[i].offset;
        if (!one_of(value, words[i].allowed))
            return hcp_fail(err, HCP_FAILED, "%s '%s' is not known; expected %s",
                            words[i].name, value, words[i].expected);
    }
    rc = hcp_parse_slug(cell->key.device, "device", sizeof cell->key.device, err);
    if (!rc)
        rc = hcp_parse_slug(cell->key.provider, "provider", sizeof cell->key.provider,
                            err);
    if (!rc)
        rc = hcp_parse_limit(cell->key.limit, kind, &level, err);
    return rc ? HCP_FAILED : HCP_OK;
}

static int check_shape(const struct hcp_cell *cell, struct hcp_err *err)
{
    const struct hcp_key *k = &cell->key;
    int rc = hcp_check_range("q_len", cell->q_len, 1, HCP_LEN_LIMIT, err);

    if (!rc)
        rc = hcp_check_range("kv_len", cell->kv_len, 1, HCP_LEN_LIMIT, err);
    if (!rc)
        rc = hcp_check_range("tile_q", cell->tile_q, 0, HCP_TILE_LIMIT, err);
    if (!rc)
        rc = hcp_check_range("tile_kv", cell->tile_kv, 0, HCP_TILE_LIMIT, err);
    if (!rc)
        rc = hcp_check_heads(k->batch, k->heads, k->kv_heads, k->head_dim, err);
    return rc ? rc : hcp_check_sms(cell->sm_seen, cell->sm_count, err);
}

/* min <= p25 <= time <= p75 <= max and ci_lo <= time <= ci_hi, as far as known. */
static int check_times(const struct hcp_cell *cell, struct hcp_err *err)
{
    const struct hcp_named_time order[] = {{"min_ms", cell->min_ms},
                                           {"p25_ms", cell->p25_ms},
                                           {"time_ms", cell->time_ms},
                                           {"p75_ms", cell->p75_ms},
                                           {"max_ms", cell->max_ms}};
    const struct hcp_named_time interval[] = {{"ci_lo_ms", cell->ci_lo_ms},
                                              {"time_ms", cell->time_ms},
                                              {"ci_hi_ms", cell->ci_hi_ms}};
    const struct hcp_named_time cupti = {"cupti_ms", cell->cupti_ms};
    const struct hcp_named_time boosted = {"boosted_ms", cell->boosted_ms};
    int rc;

    if (!strcmp(cell->status, "ok") && isnan(cell->time_ms))
        return hcp_fail(err, HCP_FAILED,
                        "time_ms is missing; a cell that failed says so in "
                        "the column status");
    rc = hcp_check_times(order, 5, err);
    if (!rc)
        rc = hcp_check_times(interval, 3, err);
    if (!rc)
        rc = hcp_check_times(&boosted, 1, err);
    return rc ? rc : hcp_check_times(&cupti, 1, err);
}

static int check_raw(const struct hcp_cell *cell, struct hcp_err *err)
{
    double lo = INFINITY, hi = 0;
    char a[32], b[32], c[32];

    if (cell->n_raw < 0 || (cell->n_raw > 0 && !cell->raw_ms))
        return hcp_fail(err, HCP_FAILED, "samples_ms: %d values without an array",
                        (int)cell->n_raw);
    for (int32_t i = 0; i < cell->n_raw; i++) {
        double v = cell->raw_ms[i];
        if (!(v > 0) || isinf(v))
            return hcp_fail(
                err, HCP_FAILED,
                "samples_ms: %s is not a time; expected milliseconds above zero",
                hcp_format_double(v, a));
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    if (cell->n_raw && cell->samples >= 0 && cell->samples != cell->n_raw)
        return hcp_fail(err, HCP_FAILED, "samples is %d but samples_ms has %d values",
                        (int)cell->samples, (int)cell->n_raw);
    if (cell->n_raw && (cell->time_ms < lo || cell->time_ms > hi))
        return hcp_fail(err, HCP_FAILED,
                        "time_ms %s is outside its samples_ms (%s to %s)",
                        hcp_format_double(cell->time_ms, a), hcp_format_double(lo, b),
                        hcp_format_double(hi, c));
    return HCP_OK;
}

int hcp_cell_validate(const struct hcp_cell *cell, struct hcp_err *err)
{
    int rc = hcp_check_texts(hcp_columns, hcp_n_columns, cell, err);

    if (!rc)
        rc = check_words(cell, err);
    if (!rc)
        rc = check_shape(cell, err);
    if (!rc)
        rc = check_times(cell, err);
    if (!rc)
        rc = check_raw(cell, err);
    if (!rc && !strcmp(cell->status, "ok"))
        rc = hcp_check_utilisation(hcp_cell_tflops(cell), cell->peak_tflops,
                                   cell->key.device, cell->key.dtype, cell->origin,
                                   cell->sm_seen, cell->sm_count, err);
    return rc;
}
