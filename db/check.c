/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "db/db-internal.h"
#include "db/parse.h"

/* A picosecond to eleven days: beyond is a unit mistake or a broken file. Weights of
 * a fit (1/t^2) stay finite between them. */
#define TIME_MS_MIN 1e-9
#define TIME_MS_MAX 1e9

int hcp_check_texts(const struct hcp_column *columns, size_t n, const void *row,
                    struct hcp_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct hcp_column *c = &columns[i];
        const char *field = (const char *)row + c->offset;
        if (c->type != HCP_COL_TEXT)
            continue;
        if (!memchr(field, '\0', c->size))
            return hcp_fail(err, HCP_FAILED, "%s is longer than %zu bytes", c->name,
                            c->size - 1);
        if (!hcp_text_is_clean(field))
            return hcp_fail(err, HCP_FAILED, "%s is not one line of UTF-8 text", c->name);
    }
    return HCP_OK;
}

int hcp_check_range(const char *name, int64_t v, int64_t min, int64_t max,
                    struct hcp_err *err)
{
    if (v >= min && v <= max)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED, "%s %lld is out of range; expected %lld to %lld",
                    name, (long long)v, (long long)min, (long long)max);
}

int hcp_check_word(const char *name, const char *value, const char *expected,
                   struct hcp_err *err)
{
    size_t len = strlen(value), n;

    for (const char *p = expected; *p; p += n + (p[n] == ' ')) {
        n = strcspn(p, " ");
        if (n == len && !strncmp(p, value, n))
            return HCP_OK;
    }
    return hcp_fail(err, HCP_FAILED, "%s '%s' is not known; expected one of: %s", name,
                    value, expected);
}

int hcp_check_heads(int32_t batch, int32_t heads, int32_t kv_heads, int32_t head_dim,
                    struct hcp_err *err)
{
    int rc = hcp_check_range("batch", batch, 1, 1 << 20, err);

    if (!rc)
        rc = hcp_check_range("heads", heads, 1, 65536, err);
    if (!rc)
        rc = hcp_check_range("kv_heads", kv_heads, 1, 65536, err);
    if (!rc)
        rc = hcp_check_range("head_dim", head_dim, 1, 65536, err);
    if (!rc && heads % kv_heads)
        rc = hcp_fail(
            err, HCP_FAILED,
            "heads %d is not a multiple of kv_heads %d; query heads share KV heads "
            "evenly",
            (int)heads, (int)kv_heads);
    return rc;
}

int hcp_check_device(const char *device, const char *limit, struct hcp_err *err)
{
    char kind[8];
    int32_t level;
    int rc = hcp_parse_slug(device, "device", sizeof((struct hcp_key *)0)->device, err);

    if (!rc)
        rc = hcp_parse_limit(limit, kind, &level, err);
    return rc ? HCP_FAILED : HCP_OK;
}

int hcp_check_sms(int32_t sm_seen, int32_t sm_count, struct hcp_err *err)
{
    if (sm_seen == 0)
        return hcp_fail(err, HCP_FAILED,
                        "sm_seen is 0; leave it empty where it is not known");
    if (sm_seen > 0 && sm_count > 0 && sm_seen > sm_count)
        return hcp_fail(
            err, HCP_FAILED,
            "sm_seen %d is more than sm_count %d, the SMs of the whole device",
            (int)sm_seen, (int)sm_count);
    return HCP_OK;
}

int hcp_check_times(const struct hcp_named_time *times, size_t n, struct hcp_err *err)
{
    const struct hcp_named_time *last = NULL;
    char a[32], b[32];

    for (const struct hcp_named_time *t = times; t < times + n; t++) {
        if (isnan(t->ms))
            continue;
        if (!(t->ms > 0) || isinf(t->ms))
            return hcp_fail(err, HCP_FAILED,
                            "%s %s is not a time; expected milliseconds above zero",
                            t->name, hcp_format_double(t->ms, a));
        if (t->ms < TIME_MS_MIN || t->ms > TIME_MS_MAX)
            return hcp_fail(
                err, HCP_FAILED, "%s %s is out of range; expected %g to %g milliseconds",
                t->name, hcp_format_double(t->ms, a), TIME_MS_MIN, TIME_MS_MAX);
        if (last && last->ms > t->ms)
            return hcp_fail(err, HCP_FAILED, "%s %s is above %s %s", last->name,
                            hcp_format_double(last->ms, a), t->name,
                            hcp_format_double(t->ms, b));
        last = t;
    }
    return HCP_OK;
}

int hcp_check_measured(double p25_ms, double time_ms, double p75_ms, struct hcp_err *err)
{
    const struct hcp_named_time times[] = {
        {"p25_ms", p25_ms}, {"time_ms", time_ms}, {"p75_ms", p75_ms}};

    if (isnan(time_ms))
        return hcp_fail(err, HCP_FAILED, "time_ms is missing");
    return hcp_check_times(times, 3, err);
}

int hcp_check_provenance(const struct hcp_provenance *from, struct hcp_err *err)
{
    if (!*from->run_uid)
        return hcp_fail(err, HCP_FAILED, "run_uid is empty; every row belongs to a run");
    return hcp_check_word("origin", from->origin, "measured recorded synthetic", err);
}

int hcp_check_block(const struct hcp_key *key, const char *mask, int64_t q_len,
                    int64_t kv_len, struct hcp_err *err)
{
    int rc = hcp_check_word("dtype", key->dtype, "bf16 fp16 fp32", err);

    if (!rc)
        rc = hcp_check_word("phase", key->phase, "prefill decode", err);
    if (!rc)
        rc = hcp_check_word("mask", mask, "full causal", err);
    if (!rc && hcp_parse_slug(key->provider, "provider", sizeof key->provider, err))
        rc = HCP_FAILED;
    if (!rc)
        rc = hcp_check_range("q_len", q_len, 1, HCP_LEN_LIMIT, err);
    if (!rc)
        rc = hcp_check_range("kv_len", kv_len, 1, HCP_LEN_LIMIT, err);
    return rc ? rc
              : hcp_check_heads(key->batch, key->heads, key->kv_heads, key->head_dim,
                                err);
}

int hcp_check_transfer(const char *transport, int32_t channels, int64_t bytes,
                       struct hcp_err *err)
{
    int rc = hcp_check_word("transport", transport, "nccl mpi copy", err);

    if (!rc && channels != -1)
        rc = hcp_check_range("channels", channels, 1, 1024, err);
    if (!rc && channels != -1 && strcmp(transport, "nccl"))
        rc = hcp_fail(err, HCP_FAILED, "channels are of nccl, not of transport '%s'",
                      transport);
    return rc ? rc : hcp_check_range("bytes", bytes, 1, INT64_MAX, err);
}

int hcp_check_clock(const char *name, double mhz, struct hcp_err *err)
{
    char text[32];

    if (isnan(mhz) || (mhz > 0 && !isinf(mhz)))
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED, "%s %s is not a clock; expected MHz above zero",
                    name, hcp_format_double(mhz, text));
}

int hcp_check_utilisation(double tflops, double peak_tflops, const char *device,
                          const char *dtype, const char *origin, int32_t sm_seen,
                          int32_t sm_count, struct hcp_err *err)
{
    double peak = peak_tflops;
    char a[32], b[32];

    if (!isnan(peak) && !(peak > 0))
        return hcp_fail(err, HCP_FAILED, "peak_tflops %s is not above zero",
                        hcp_format_double(peak, a));
    if (isnan(peak))
        peak = hcp_peak_tflops(device, dtype);
    if (isnan(peak) && strcmp(origin, "synthetic"))
        peak = HCP_ANY_PEAK_TFLOPS;
    if (isnan(peak))
        return HCP_OK;
    if (sm_seen > 0 && sm_count > 0)
        peak = peak * sm_seen / sm_count;
    if (tflops / peak <= 1)
        return HCP_OK;
    snprintf(a, sizeof a, "%.4g", tflops);
    snprintf(b, sizeof b, "%.4g", peak);
    return hcp_fail(err, HCP_FAILED,
                    "utilisation is %.1f: %s TFLOP/s where the hardware's peak is %s; is "
                    "time_ms in milliseconds, is the device right?",
                    tflops / peak, a, b);
}
