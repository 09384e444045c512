/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/parse.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The C locale object: glibc hands out a static one, nothing to free. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

int hcp_parse_len(const char *text, int64_t min, int64_t *out, struct hcp_err *err)
{
    const char *p = text;
    int64_t n = 0;
    int shift = 0, over = 0;

    for (; is_digit(*p); p++) {
        n = n * 10 + (*p - '0');
        if (n > HCP_LEN_LIMIT) {
            over = 1;
            n = HCP_LEN_LIMIT;
        }
    }
    if (p == text)
        return hcp_fail(err, HCP_USAGE,
                        "length '%s' is not a whole number of tokens; write 4096 or 64K "
                        "(%lld to %lld)",
                        text, (long long)min, (long long)HCP_LEN_LIMIT);
    switch (*p) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    }
    if (shift)
        p++;
    if (*p)
        return hcp_fail(err, HCP_USAGE,
                        "length '%s': '%s' does not belong to a whole number of tokens; "
                        "write 4096 or 64K (K, M, G are powers of two)",
                        text, p);
    if (over || n > (HCP_LEN_LIMIT >> shift) || n << shift < min)
        return hcp_fail(
            err, HCP_USAGE,
            "length '%s' is out of range; lengths go from %lld to %lld tokens", text,
            (long long)min, (long long)HCP_LEN_LIMIT);
    *out = n << shift;
    return HCP_OK;
}

int hcp_parse_int(const char *text, const char *what, int64_t min, int64_t max,
                  int64_t *out, struct hcp_err *err)
{
    const char *p = text;
    int negative = min < 0 && *p == '-', over = 0;
    int64_t n = 0;

    p += negative;
    if (!is_digit(*p))
        goto bad;
    for (; is_digit(*p); p++) {
        int64_t digit = *p - '0';
        if (n > (INT64_MAX - digit) / 10)
            over = 1;
        else
            n = n * 10 + digit;
    }
    if (*p)
        goto bad;
    if (negative)
        n = -n;
    if (over || n < min || n > max)
        return hcp_fail(err, HCP_USAGE, "%s '%s' is out of range; allowed: %lld to %lld",
                        what, text, (long long)min, (long long)max);
    *out = n;
    return HCP_OK;
bad:
    return hcp_fail(err, HCP_USAGE,
                    "%s '%s' is not a whole number; allowed: %lld to %lld", what, text,
                    (long long)min, (long long)max);
}

int hcp_parse_double(const char *text, double *out, struct hcp_err *err)
{
    const char *p = text;
    double v;
    int digits = 0;

    if (*p == '-')
        p++;
    for (; is_digit(*p); p++)
        digits++;
    if (*p == '.')
        for (p++; is_digit(*p); p++)
            digits++;
    if (digits && (*p == 'e' || *p == 'E')) {
        const char *e = p + 1;
        if (*e == '+' || *e == '-')
            e++;
        if (is_digit(*e)) {
            while (is_digit(*e))
                e++;
            p = e;
        }
    }
    if (digits && *p == ',')
        return hcp_fail(err, HCP_USAGE,
                        "number '%s' has a decimal comma; write a decimal point", text);
    if (!digits || *p)
        return hcp_fail(err, HCP_USAGE, "'%s' is not a finite decimal number", text);
    v = strtod_l(text, NULL, c_locale());
    if (!isfinite(v))
        return hcp_fail(err, HCP_USAGE, "number '%s' is too large", text);
    *out = v;
    return HCP_OK;
}

int hcp_parse_limit(const char *text, char kind[8], int32_t *value, struct hcp_err *err)
{
    static const struct {
        const char *kind, *unit;
        int32_t max;
    } limits[] = {
        {"mps", "% of the SMs", 100},
        {"green", "SMs", 1024},
        {"cpu", "% of a core", 100},
    };
    const char *colon = strchr(text, ':');
    const char *p;
    int64_t n = 0;

    if (!*text) {
        kind[0] = '\0';
        *value = 0;
        return HCP_OK;
    }
    for (size_t i = 0; colon && i < sizeof limits / sizeof *limits; i++) {
        size_t len = strlen(limits[i].kind);
        if ((size_t)(colon - text) != len || memcmp(text, limits[i].kind, len))
            continue;
        for (p = colon + 1; is_digit(*p) && n <= limits[i].max; p++)
            n = n * 10 + (*p - '0');
        if (*p || colon[1] == '0' || n < 1 || n > limits[i].max)
            return hcp_fail(
                err, HCP_USAGE,
                "limit '%s': '%s' is not a level; write %s:N with N from 1 to %d (%s)",
                text, colon + 1, limits[i].kind, (int)limits[i].max, limits[i].unit);
        strcpy(kind, limits[i].kind);
        *value = (int32_t)n;
        return HCP_OK;
    }
    return hcp_fail(err, HCP_USAGE,
                    "limit '%s' is not known; write mps:PCT, green:SMS or cpu:PCT, or "
                    "leave it out for the whole device",
                    text);
}

int hcp_limit_compare(const char *a, const char *b)
{
    char kind[8];
    int32_t x = 0, y = 0;

    if (!*a || hcp_parse_limit(a, kind, &x, NULL))
        x = INT32_MAX;
    if (!*b || hcp_parse_limit(b, kind, &y, NULL))
        y = INT32_MAX;
    return x != y ? (x > y) - (x < y) : strcmp(a, b);
}

int hcp_parse_slug(const char *text, const char *what, size_t size, struct hcp_err *err)
{
    size_t n = 0;

    for (; text[n]; n++) {
        char c = text[n];
        int letter = (c >= 'a' && c <= 'z') || is_digit(c);
        if (!letter && (n == 0 || !strchr("._+-", c)))
            return hcp_fail(err, HCP_USAGE,
                            "%s '%s': '%c' is not allowed; names are lower-case letters, "
                            "digits and . _ + - (like nvidia-h200)",
                            what, text, c);
    }
    if (n == 0)
        return hcp_fail(err, HCP_USAGE, "%s is empty; names look like nvidia-h200", what);
    if (n >= size)
        return hcp_fail(err, HCP_USAGE, "%s '%s' is longer than %zu characters", what,
                        text, size - 1);
    return HCP_OK;
}

char *hcp_format_double(double v, char buf[32])
{
    locale_t c = c_locale(), old;

    if (isnan(v))
        return strcpy(buf, "nan");
    if (isinf(v))
        return strcpy(buf, v < 0 ? "-inf" : "inf");
    old = uselocale(c);
    /* A decimal of up to 15 digits survives the way through a double, and %g drops
     * its trailing zeros: the shortest form has 15 digits or fewer, or 16, or 17. */
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    uselocale(old);
    return buf;
}

int hcp_text_is_clean(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    while (*p) {
        uint32_t code = *p;
        int more = code < 0x80 ? 0 : code >= 0xf0 ? 3 : code >= 0xe0 ? 2 : 1;
        static const uint32_t lowest[] = {0, 0x80, 0x800, 0x10000};

        if ((code < 0x20 && code != '\t') || code == 0x7f)
            return 0;
        if ((code >= 0x80 && code < 0xc2) || code > 0xf4)
            return 0;
        p++;
        if (more)
            code &= 0x3f >> more;
        for (int i = 0; i < more; i++, p++) {
            if ((*p & 0xc0) != 0x80)
                return 0;
            code = code << 6 | (*p & 0x3f);
        }
        if (code < lowest[more] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            return 0;
    }
    return 1;
}
