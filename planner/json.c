/* SPDX-License-Identifier: Apache-2.0
 *
 * A strict reader for RFC 8259 JSON, small enough to live in libhcpplan, which links no
 * JSON library. Numbers are read by db/parse.h, the same in every locale.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "db/parse.h"
#include "planner/plan.h"

enum { MAX_DEPTH = 32 };

int jin_fail(struct json_in *in, const char *what)
{
    if (!in->error[0])
        snprintf(in->error, sizeof in->error, "%s at byte %zu", what,
                 (size_t)(in->p - in->start));
    return -1;
}

int jin_within(struct json_in *in, const char *key, int rc)
{
    size_t n = strlen(in->error);

    if (rc && !strstr(in->error, " in '"))
        snprintf(in->error + n, sizeof in->error - n, " in '%s'", key);
    return rc;
}

static void skip_space(struct json_in *in)
{
    while (in->p < in->end &&
           (*in->p == ' ' || *in->p == '\t' || *in->p == '\n' || *in->p == '\r'))
        in->p++;
}

int jin_peek(struct json_in *in)
{
    skip_space(in);
    return in->p < in->end ? (unsigned char)*in->p : -1;
}

int jin_literal(struct json_in *in, char c)
{
    char what[] = "expected ' '";

    if (jin_peek(in) == (unsigned char)c) {
        in->p++;
        return 0;
    }
    what[10] = c;
    return jin_fail(in, what);
}

static int hex4(struct json_in *in, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = in->p < in->end ? *in->p++ : 0;

        *out *= 16;
        if (c >= '0' && c <= '9')
            *out += (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            *out += (unsigned)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            *out += (unsigned)(c - 'A' + 10);
        else
            return jin_fail(in, "bad \\u escape");
    }
    return 0;
}

/* One code point as UTF-8; returns its length. */
static size_t put_utf8(unsigned c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* One character of a string, escapes resolved; returns its bytes, 0 on error. */
static size_t one_char(struct json_in *in, char out[4])
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *e;
    unsigned c, low;

    if ((unsigned char)*in->p < 0x20) {
        jin_fail(in, "control character in a string");
        return 0;
    }
    if (*in->p != '\\') {
        out[0] = *in->p++;
        return 1;
    }
    in->p++;
    if (in->p == in->end) {
        jin_fail(in, "unfinished string");
        return 0;
    }
    e = *in->p ? strchr(escapes, *in->p) : NULL;
    if (e) {
        in->p++;
        out[0] = meant[e - escapes];
        return 1;
    }
    if (*in->p++ != 'u') {
        jin_fail(in, "bad escape");
        return 0;
    }
    if (hex4(in, &c))
        return 0;
    if (c >= 0xd800 && c < 0xdc00) {
        if (in->end - in->p < 6 || in->p[0] != '\\' || in->p[1] != 'u') {
            jin_fail(in, "half of a surrogate pair");
            return 0;
        }
        in->p += 2;
        if (hex4(in, &low))
            return 0;
        if (low < 0xdc00 || low > 0xdfff) {
            jin_fail(in, "half of a surrogate pair");
            return 0;
        }
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c == 0 || (c >= 0xdc00 && c < 0xe000)) {
        jin_fail(in, "bad \\u escape");
        return 0;
    }
    return put_utf8(c, out);
}

/* out NULL: only skips. */
static int read_string(struct json_in *in, char *out, size_t size)
{
    size_t n = 0;

    if (jin_literal(in, '"'))
        return -1;
    while (in->p < in->end && *in->p != '"') {
        char bytes[4];
        size_t k = one_char(in, bytes);

        if (k == 0)
            return -1;
        if (out && n + k >= size)
            return jin_fail(in, "string too long");
        if (out)
            memcpy(out + n, bytes, k);
        n += k;
    }
    if (in->p == in->end)
        return jin_fail(in, "unfinished string");
    in->p++;
    if (out)
        out[n] = 0;
    return 0;
}

int jin_string(struct json_in *in, char *out, size_t size)
{
    return read_string(in, out, size);
}

static int word(struct json_in *in, const char *text)
{
    size_t n = strlen(text);

    if ((size_t)(in->end - in->p) < n || memcmp(in->p, text, n) != 0)
        return jin_fail(in, "unexpected text");
    in->p += n;
    return 0;
}

/* The grammar of a number: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)? */
static int digits(struct json_in *in)
{
    const char *from = in->p;

    while (in->p < in->end && *in->p >= '0' && *in->p <= '9')
        in->p++;
    return in->p > from ? 0 : jin_fail(in, "expected a number");
}

static int number_text(struct json_in *in, char *out, size_t size, int *whole)
{
    const char *from;

    skip_space(in);
    from = in->p;
    *whole = 1;
    if (in->p < in->end && *in->p == '-')
        in->p++;
    if (in->p < in->end && *in->p == '0')
        in->p++;
    else if (digits(in))
        return -1;
    if (in->p < in->end && *in->p == '.') {
        *whole = 0;
        in->p++;
        if (digits(in))
            return -1;
    }
    if (in->p < in->end && (*in->p == 'e' || *in->p == 'E')) {
        *whole = 0;
        in->p++;
        if (in->p < in->end && (*in->p == '+' || *in->p == '-'))
            in->p++;
        if (digits(in))
            return -1;
    }
    if ((size_t)(in->p - from) >= size)
        return jin_fail(in, "number too long");
    memcpy(out, from, (size_t)(in->p - from));
    out[in->p - from] = 0;
    return 0;
}

int jin_double(struct json_in *in, double *out)
{
    char text[64];
    int whole, minus;

    if (jin_peek(in) == 'n') {
        *out = NAN;
        return word(in, "null");
    }
    if (number_text(in, text, sizeof text, &whole))
        return -1;
    minus = text[0] == '-';
    if (hcp_parse_double(text + minus, out, NULL) != HCP_OK)
        return jin_fail(in, "number out of range");
    *out = minus ? -*out : *out;
    return 0;
}

int jin_int(struct json_in *in, int64_t min, int64_t max, int64_t *out)
{
    char text[64];
    int whole;

    if (number_text(in, text, sizeof text, &whole))
        return -1;
    if (!whole || hcp_parse_int(text, "number", min, max, out, NULL) != HCP_OK)
        return jin_fail(in, "number is not an integer in range");
    return 0;
}

static int skip_value(struct json_in *in, int depth)
{
    char close, text[400];
    int whole, object;

    if (depth > MAX_DEPTH)
        return jin_fail(in, "nested too deep");
    switch (jin_peek(in)) {
    case '"':
        return read_string(in, NULL, 0);
    case 't':
        return word(in, "true");
    case 'f':
        return word(in, "false");
    case 'n':
        return word(in, "null");
    case '{':
    case '[':
        break;
    default:
        return number_text(in, text, sizeof text, &whole);
    }
    object = *in->p++ == '{';
    close = object ? '}' : ']';
    if (jin_peek(in) == close) {
        in->p++;
        return 0;
    }
    for (;;) {
        if (object && (read_string(in, NULL, 0) || jin_literal(in, ':')))
            return -1;
        if (skip_value(in, depth + 1))
            return -1;
        if (jin_peek(in) == close) {
            in->p++;
            return 0;
        }
        if (jin_literal(in, ','))
            return -1;
    }
}

int jin_skip(struct json_in *in)
{
    return skip_value(in, 0);
}

int jin_object(struct json_in *in,
               int (*member)(struct json_in *in, const char *key, void *ctx), void *ctx)
{
    char key[64];

    if (jin_literal(in, '{'))
        return -1;
    if (jin_peek(in) == '}') {
        in->p++;
        return 0;
    }
    for (;;) {
        const char *from = (jin_peek(in), in->p);
        int rc;

        if (read_string(in, NULL, 0))
            return -1;
        if ((size_t)(in->p - from) < sizeof key) {
            in->p = from;
            rc = read_string(in, key, sizeof key);
        } else {
            key[0] = 0;
            rc = 0;
        }
        if (rc || jin_literal(in, ':') || member(in, key, ctx))
            return -1;
        if (jin_peek(in) == '}') {
            in->p++;
            return 0;
        }
        if (jin_literal(in, ','))
            return -1;
    }
}

int jin_array(struct json_in *in, int (*element)(struct json_in *in, void *ctx),
              void *ctx)
{
    if (jin_literal(in, '['))
        return -1;
    if (jin_peek(in) == ']') {
        in->p++;
        return 0;
    }
    for (;;) {
        if (element(in, ctx))
            return -1;
        if (jin_peek(in) == ']') {
            in->p++;
            return 0;
        }
        if (jin_literal(in, ','))
            return -1;
    }
}

int jin_member(const char *const *names, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], key) == 0)
            return i;
    return -1;
}

int jin_bool(struct json_in *in, int32_t *out)
{
    int c = jin_peek(in);

    if (c != 't' && c != 'f')
        return jin_fail(in, "expected true or false");
    *out = c == 't';
    return jin_skip(in);
}

int jin_int32(struct json_in *in, int64_t min, int64_t max, int32_t *out)
{
    int64_t v;

    if (jin_int(in, min, max, &v))
        return -1;
    *out = (int32_t)v;
    return 0;
}

int jin_hash(struct json_in *in, uint64_t *out)
{
    static const char hex[] = "0123456789abcdef";
    char text[20];
    uint64_t v = 0;

    if (jin_string(in, text, sizeof text))
        return -1;
    for (int i = 0; i < 16; i++) {
        const char *d = text[i] ? strchr(hex, text[i]) : NULL;

        if (!d)
            return jin_fail(in, "expected 16 hexadecimal digits");
        v = v << 4 | (uint64_t)(d - hex);
    }
    if (text[16])
        return jin_fail(in, "expected 16 hexadecimal digits");
    *out = v;
    return 0;
}
