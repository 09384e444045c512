/* SPDX-License-Identifier: Apache-2.0
 *
 * A machine with known coefficients, so that everything downstream can be checked
 * against the truth:
 *
 *   time_ms = (a*area + b*q + c*kv + f) / speed
 *
 * with q and kv rounded up to the tile first, area the unmasked pairs of the
 * rounded rectangle (waves=1: times whole waves / waves, of a block for each tile of
 * queries, head and batch on the SMs of the limit; rectangles only), and speed = P/100
 * under mps:P or cpu:P, N/sms under green:N. A kernel that needs finish passes is planted
 * with
 *
 *   store_ms = (store_b*q + store_f) / speed, merge_ms = (merge_b*q + merge_f) / speed
 *
 * q being the rows themselves; both coefficients 0: it does not need that pass. A batch
 * of n takes n times the part that depends on lengths. The product of a linear layer:
 *
 *   time_ms = (linear_a*tokens*n_in*n_out + linear_w*n_in*n_out + linear_f) / speed
 *
 * with tokens rounded up to tile_q. From the second measurement under a limit on
 * everything is slower by the part drift, and the SM clock, clock MHz at first, lower by
 * as much.
 */
#include "config.h"
#include "profiler/device.h"
#include "db/parse.h"
#include "kernels/geometry.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct synthetic {
    hcp_device base;
    double a, b, c, f, noise, drift, clock_mhz;
    int64_t measured; /* since it was opened */
    double store_b, store_f, merge_b, merge_f;
    double linear_a, linear_w, linear_f;
    int64_t tile_q, tile_kv, sms, seed, samples, delay_ms, fail_q, waves;
    int32_t heads, batch;
    double speed;
    char limit[32];
};

static int set_field(struct synthetic *m, char *name, const char *key, const char *value,
                     struct hcp_err *err)
{
    struct {
        const char *key;
        double *real;
        int64_t *integer;
        double min, max;
    } const fields[] = {
        {"a", &m->a, NULL, 0, 1},
        {"b", &m->b, NULL, 0, 1e3},
        {"c", &m->c, NULL, 0, 1e3},
        {"f", &m->f, NULL, 0, 1e6},
        {"noise", &m->noise, NULL, 0, 0.5},
        {"drift", &m->drift, NULL, -0.5, 1},
        {"clock", &m->clock_mhz, NULL, 0, 1e5},
        {"store_b", &m->store_b, NULL, 0, 1e3},
        {"store_f", &m->store_f, NULL, 0, 1e6},
        {"merge_b", &m->merge_b, NULL, 0, 1e3},
        {"merge_f", &m->merge_f, NULL, 0, 1e6},
        {"linear_a", &m->linear_a, NULL, 0, 1},
        {"linear_w", &m->linear_w, NULL, 0, 1},
        {"linear_f", &m->linear_f, NULL, 1e-6, 1e6},
        {"tile_q", NULL, &m->tile_q, 1, 65536},
        {"tile_kv", NULL, &m->tile_kv, 1, 65536},
        {"sms", NULL, &m->sms, 1, 4096},
        {"seed", NULL, &m->seed, 0, 1e15},
        {"samples", NULL, &m->samples, 1, 1000},
        {"delay", NULL, &m->delay_ms, 0, 60000},
        {"waves", NULL, &m->waves, 0, 1},
        {"fail_q", NULL, &m->fail_q, 0, 1 << 30},
    };
    if (strcmp(key, "name") == 0) {
        hcp_device_slug(value, name, 64);
        if (!*name)
            return hcp_fail(err, HCP_USAGE, "synthetic: name '%s' has no letter or digit",
                            value);
        return HCP_OK;
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(key, fields[i].key) != 0)
            continue;
        double v;
        struct hcp_err why;
        if (hcp_parse_double(value, &v, &why) != HCP_OK)
            return hcp_fail(err, HCP_USAGE, "synthetic: %s: %s", key, why.text);
        if (v < fields[i].min || v > fields[i].max ||
            (fields[i].integer && v != floor(v)))
            return hcp_fail(err, HCP_USAGE, "synthetic: %s=%s is not %s from %g to %g",
                            key, value, fields[i].integer ? "a whole number" : "a number",
                            fields[i].min, fields[i].max);
        if (fields[i].integer)
            *fields[i].integer = (int64_t)v;
        else
            *fields[i].real = v;
        return HCP_OK;
    }
    return hcp_fail(
        err, HCP_USAGE,
        "synthetic: unknown key '%s'; known: name a b c f noise drift clock seed samples "
        "tile_q tile_kv sms waves delay fail_q store_b store_f merge_b merge_f "
        "linear_a linear_w linear_f (see "
        "hcp-profile(1))",
        key);
}

static int parse_spec(struct synthetic *m, char *name, const char *text,
                      struct hcp_err *err)
{
    char copy[1024];
    if (strlen(text) >= sizeof copy)
        return hcp_fail(err, HCP_USAGE,
                        "synthetic: specification longer than %zu characters",
                        sizeof copy - 1);
    strcpy(copy, text);
    char *rest = NULL;
    for (char *item = strtok_r(copy, ",", &rest); item;
         item = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(item, '=');
        if (!value || value == item || !value[1])
            return hcp_fail(err, HCP_USAGE, "synthetic: '%s' is not KEY=VALUE", item);
        *value++ = '\0';
        int rc = set_field(m, name, item, value, err);
        if (rc != HCP_OK)
            return rc;
    }
    if (m->a == 0 && m->b == 0 && m->c == 0 && m->f == 0)
        return hcp_fail(err, HCP_USAGE,
                        "synthetic: a, b, c and f are all 0: no time would pass");
    return HCP_OK;
}

static int apply_limit(struct synthetic *m, const char *limit, struct hcp_err *err)
{
    char kind[8] = "";
    int32_t value = 0;
    int rc = hcp_parse_limit(limit, kind, &value, err);
    if (rc != HCP_OK)
        return rc;
    m->speed = 1;
    m->base.info.sm_seen = (int32_t)m->sms;
    if (strcmp(kind, "green") == 0) {
        if (value > m->sms)
            return hcp_fail(err, HCP_USAGE, "green:%d: this synthetic machine has %d SMs",
                            (int)value, (int)m->sms);
        m->speed = (double)value / (double)m->sms;
        m->base.info.sm_seen = value;
    } else if (*kind) {
        m->speed = value / 100.0;
        int64_t seen = m->sms * value / 100;
        m->base.info.sm_seen = seen > 0 ? (int32_t)seen : 1;
    }
    return HCP_OK;
}

static int synthetic_open(const struct hcp_device_config *config, hcp_device **out,
                          struct hcp_err *err)
{
    struct synthetic *m = calloc(1, sizeof *m);
    if (!m)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    m->a = 1e-9, m->b = 1e-6, m->c = 2e-7, m->f = 0.01;
    m->tile_q = 128, m->tile_kv = 64, m->sms = 132, m->seed = 1, m->samples = 10;
    m->linear_a = 4e-12, m->linear_w = 5e-10, m->linear_f = 0.004;
    m->heads = config->heads, m->batch = config->batch;
    struct hcp_device_info *info = &m->base.info;
    strcpy(info->slug, "synthetic");
    int rc = parse_spec(m, info->slug, strchr(config->spec, ':') + 1, err);
    if (rc == HCP_OK)
        rc = apply_limit(m, config->limit, err);
    if (rc != HCP_OK) {
        free(m);
        return rc;
    }
    m->base.ops = &hcp_device_synthetic_ops;
    snprintf(m->limit, sizeof m->limit, "%s", config->limit);
    snprintf(info->name, sizeof info->name, "synthetic %.63s", info->slug);
    snprintf(info->uuid, sizeof info->uuid, "SYN-%.58s", info->slug);
    strcpy(info->origin, "synthetic");
    strcpy(info->limit_kind, "mps");
    info->sm_count = (int32_t)m->sms;
    info->peak_tflops = NAN;
    strcpy(info->provider, "synthetic");
    /* The coefficients are the version: other coefficients, other rows; w: in waves. */
    snprintf(info->provider_version, sizeof info->provider_version,
             "a%.4g b%.4g c%.4g %c%.4g", m->a, m->b, m->c, m->waves ? 'w' : 'f', m->f);
    info->drifts = m->drift != 0 || m->clock_mhz > 0; /* else a cell is what it was */
    if (config->linear)
        snprintf(info->provider_version, sizeof info->provider_version,
                 "a%.4g w%.4g f%.4g", m->linear_a, m->linear_w, m->linear_f);
    else if (m->store_b > 0 || m->store_f > 0)
        info->finishes |= 1u << HCP_FINISH_STORE;
    if (!config->linear && (m->merge_b > 0 || m->merge_f > 0))
        info->finishes |= 1u << HCP_FINISH_MERGE;
    *out = &m->base;
    return HCP_OK;
}

static int synthetic_check(hcp_device *device, char result[64], struct hcp_err *err)
{
    (void)device, (void)err;
    strcpy(result, "not run: synthetic");
    return HCP_OK;
}

static int synthetic_prepare(hcp_device *device, const struct hcp_cell_request *cell,
                             struct hcp_err *err)
{
    struct synthetic *m = (struct synthetic *)device;
    if (m->fail_q > 0 && cell->q_len == m->fail_q)
        return hcp_fail(err, HCP_FAILED, "synthetic failure at q_len %lld (fail_q)",
                        (long long)cell->q_len);
    return HCP_OK;
}

/* splitmix64: a counter hash, so that a sample depends on what it is and not on
 * when it is drawn. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double normal(uint64_t h)
{
    double u = ((double)(mix(h) >> 11) + 1) * 0x1p-53; /* (0, 1] */
    double v = (double)(mix(h ^ 0xabcdef) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

static int64_t round_up(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile * tile;
}

static double block_ms(const struct synthetic *m, const struct hcp_cell_request *cell)
{
    int causal = strcmp(cell->mask, "causal") == 0;
    int64_t seqs = cell->seqs > 0 ? cell->seqs : m->batch;
    int64_t q = round_up(cell->q_len, m->tile_q), kv = round_up(cell->kv_len, m->tile_kv);
    int64_t area =
        hcp_block_area(causal ? HCP_MASK_CAUSAL : HCP_MASK_FULL, q, kv, kv - q);
    double whole = 1; /* waves for each that is full */
    if (m->waves && !causal) {
        int64_t blocks = q / m->tile_q * m->heads * seqs, sms = m->base.info.sm_seen;
        whole = (double)round_up(blocks, sms) / (double)blocks;
    }
    double lengths = m->a * whole * (double)area + m->b * (double)q + m->c * (double)kv;
    return (lengths * (double)seqs + m->f) / m->speed;
}

static double linear_ms(const struct synthetic *m, const struct hcp_cell_request *cell)
{
    double weights = (double)cell->n_in * (double)cell->n_out;
    double tokens = (double)round_up(cell->q_len, m->tile_q);
    return (m->linear_a * tokens * weights + m->linear_w * weights + m->linear_f) /
           m->speed;
}

static double finish_ms(const struct synthetic *m, const struct hcp_cell_request *cell)
{
    int merge = cell->finish == HCP_FINISH_MERGE;
    return ((merge ? m->merge_b : m->store_b) * (double)cell->q_len +
            (merge ? m->merge_f : m->store_f)) /
           m->speed;
}

static int synthetic_time(hcp_device *device, const struct hcp_cell_request *cell,
                          struct hcp_cell_facts *facts, double **samples,
                          struct hcp_err *err)
{
    struct synthetic *m = (struct synthetic *)device;
    double slower = m->measured++ > 0 ? 1 + m->drift : 1;
    double ms = slower * (cell->finish      ? finish_ms(m, cell)
                          : cell->n_out > 0 ? linear_ms(m, cell)
                                            : block_ms(m, cell));
    uint64_t kind =
        cell->finish ? (uint64_t)cell->finish + 1 : strcmp(cell->mask, "causal") == 0;

    hcp_cell_facts_init(facts);
    facts->n = (int32_t)m->samples;
    *samples = malloc((size_t)facts->n * sizeof **samples);
    if (!*samples)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    uint64_t h = (uint64_t)m->seed;
    for (const char *c = m->limit; *c; c++)
        h = mix(h ^ (unsigned char)*c);
    h = mix(mix(mix(h ^ (uint64_t)cell->q_len) ^ (uint64_t)cell->kv_len) ^ kind);
    if (cell->n_out > 0)
        h = mix(mix(h ^ (uint64_t)cell->n_in) ^ (uint64_t)cell->n_out);
    if (cell->seqs > 1)
        h = mix(h ^ (uint64_t)cell->seqs);
    for (int i = 0; i < facts->n; i++)
        (*samples)[i] = m->noise > 0 ? ms * exp(m->noise * normal(h + (uint64_t)i)) : ms;
    facts->tile_q = m->tile_q;
    facts->tile_kv = m->tile_kv;
    if (m->clock_mhz > 0)
        facts->sm_clock_mhz = m->clock_mhz / slower;
    strcpy(facts->method, "synthetic");
    strcpy(facts->cache, "cold");
    strcpy(facts->stop_reason, "cap");
    snprintf(facts->provider_config, sizeof facts->provider_config,
             "noise %g seed %lld tile %lldx%lld", m->noise, (long long)m->seed,
             (long long)m->tile_q, (long long)m->tile_kv);
    if (m->delay_ms > 0) {
        struct timespec t = {m->delay_ms / 1000, m->delay_ms % 1000 * 1000000};
        nanosleep(&t, NULL); /* a signal ends it early: the cell is complete anyway */
    }
    return HCP_OK;
}

static void synthetic_close(hcp_device *device)
{
    free(device);
}

const struct hcp_device_ops hcp_device_synthetic_ops = {
    .kind = "synthetic",
    .open = synthetic_open,
    .check = synthetic_check,
    .prepare = synthetic_prepare,
    .time = synthetic_time,
    .close = synthetic_close,
};
