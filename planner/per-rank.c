/* SPDX-License-Identifier: Apache-2.0
 *
 * Options with a value for each rank: one for all, a list by rank, or RANK=VALUE,...
 */
#include "config.h"
#include <string.h>
#include "db/db.h"
#include "planner/options.h"

/* One entry; *rank = -1 without a rank before a '='. */
static int cut_item(const char *option, const char *text, size_t len, size_t n,
                    char item[64], int64_t *rank, const char **value, struct hcp_err *err)
{
    char name[48], *equals;

    if (len >= 64)
        return hcp_fail(err, HCP_USAGE, "%s entry '%.40s...' is too long", option, text);
    memcpy(item, text, len);
    item[len] = 0;
    equals = strchr(item, '=');
    *rank = -1;
    *value = equals ? equals + 1 : item;
    if (!equals)
        return HCP_OK;
    *equals = 0;
    snprintf(name, sizeof name, "rank of %s", option);
    return hcp_parse_int(item, name, 0, (int64_t)n - 1, rank, err);
}

int plan_per_rank(const char *option, const char *text, plan_set_rank set,
                  hcp_rank *ranks, size_t n, struct hcp_err *err)
{
    size_t next = 0;
    int named = 0, listed = 0;
    char item[64];
    const char *value = text;

    for (const char *p = text;; p++) {
        struct hcp_err why = {0};
        size_t len = strcspn(p, ",");
        int64_t rank;
        int rc = cut_item(option, p, len, n, item, &rank, &value, err);

        if (rc)
            return rc;
        if (rank < 0) {
            listed = 1;
            if (next == n)
                return hcp_fail(err, HCP_USAGE, "%s lists more than %zu ranks", option,
                                n);
            rank = (int64_t)next++;
        } else {
            named = 1;
        }
        rc = set(&ranks[rank], value, &why);
        if (rc)
            return hcp_fail(err, rc, "%s: %s", option, why.text);
        p += len;
        if (!*p)
            break;
    }
    if (named && listed)
        return hcp_fail(err, HCP_USAGE,
                        "%s mixes RANK=N with a list by rank; use one form", option);
    if (listed && next == 1) {
        for (size_t r = 1; r < n; r++)
            set(&ranks[r], value, err);
    } else if (listed && next != n) {
        return hcp_fail(err, HCP_USAGE, "%s lists %zu ranks, --ranks has %zu", option,
                        next, n);
    }
    return HCP_OK;
}

int plan_set_tokens(hcp_rank *rank, const char *value, struct hcp_err *err)
{
    return hcp_parse_len(value, 0, &rank->max_tokens, err);
}

/* "US" or "US+FIXED". */
static int parse_work(const char *text, size_t len, double *us, double *fixed_us,
                      struct hcp_err *err)
{
    double *out[2] = {us, fixed_us};
    char copy[64], *part = copy;

    memcpy(copy, text, len);
    copy[len] = 0;
    *fixed_us = 0;
    for (int i = 0; i < 2 && part; i++) {
        char *plus = i == 0 ? strchr(part, '+') : NULL;
        int rc;

        if (plus)
            *plus = 0;
        rc = hcp_parse_double(part, out[i], err);
        if (rc)
            return rc;
        if (!(*out[i] >= 0 && *out[i] <= 1e9))
            return hcp_fail(err, HCP_USAGE, "'%s' is not in 0..1e9", part);
        part = plus ? plus + 1 : NULL;
    }
    return HCP_OK;
}

int plan_set_linear(hcp_rank *rank, const char *value, struct hcp_err *err)
{
    const char *colon = strchr(value, ':'), *after = colon ? colon + 1 : value;
    int rc = parse_work(after, strlen(after), &rank->linear_after_us,
                        &rank->linear_after_fixed_us, err);

    rank->linear_before_us = rank->linear_before_fixed_us = 0;
    if (rc == HCP_OK && colon)
        rc = parse_work(value, (size_t)(colon - value), &rank->linear_before_us,
                        &rank->linear_before_fixed_us, err);
    return rc;
}

int plan_parse_bytes(const char *text, int64_t most, int64_t *out, struct hcp_err *err)
{
    static const char suffixes[] = "KMGT";
    size_t len = strspn(text, "0123456789");
    const char *unit = text[len] ? strchr(suffixes, text[len] & ~0x20) : suffixes;
    int shift = text[len] && unit ? 10 * (int)(unit - suffixes + 1) : 0;
    int64_t n = 0;

    if (len == 0 || !unit || (text[len] && text[len + 1]))
        return hcp_fail(err, HCP_USAGE,
                        "'%s' is not a number of bytes; write 24000000000 or 80G (K, M, "
                        "G, T are powers of two)",
                        text);
    for (size_t i = 0; i < len; i++)
        n = n > most ? n : 10 * n + (text[i] - '0');
    if (n > most >> shift)
        return hcp_fail(err, HCP_USAGE, "'%s' is more than %lld bytes", text,
                        (long long)most);
    *out = n << shift;
    return HCP_OK;
}

int plan_set_memory(hcp_rank *rank, const char *value, struct hcp_err *err)
{
    if (strcmp(value, "spec") == 0) {
        rank->max_bytes = MEMORY_OF_SPEC;
        return HCP_OK;
    }
    return plan_parse_bytes(value, HCP_PLAN_MAX_BYTES, &rank->max_bytes, err);
}

int plan_set_weights(hcp_rank *rank, const char *value, struct hcp_err *err)
{
    return plan_parse_bytes(value, HCP_PLAN_MAX_BYTES, &rank->weight_bytes, err);
}

int plan_set_time_scale(hcp_rank *rank, const char *value, struct hcp_err *err)
{
    double v;
    int rc = hcp_parse_double(value, &v, err);

    if (rc == HCP_OK && !(v >= HCP_PLAN_MIN_SCALE && v <= HCP_PLAN_MAX_SCALE))
        return hcp_fail(err, HCP_USAGE, "'%s' is not in 0.001..1000", value);
    rank->time_scale = rc == HCP_OK ? v : 1;
    return rc;
}

int plan_set_decode_linear(hcp_rank *rank, const char *value, struct hcp_err *err)
{
    int rc = hcp_parse_double(value, &rank->decode_linear_us, err);

    if (rc == HCP_OK && !(rank->decode_linear_us >= 0 && rank->decode_linear_us <= 1e9))
        return hcp_fail(err, HCP_USAGE, "'%s' is not in 0..1e9", value);
    return rc;
}
