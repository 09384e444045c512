/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: JSON into a buffer of the caller, the same text in every locale.
 */
#ifndef HCP_JSON_OUT_H
#define HCP_JSON_OUT_H
#include <stdint.h>
#include <string.h>
#include "db/parse.h"

/* Appends to a buffer and counts on when it is full. */
struct json_out {
    char *buf;
    size_t size, n;
};

static inline void put(struct json_out *out, const char *text)
{
    for (; *text; text++, out->n++)
        if (out->n + 1 < out->size)
            out->buf[out->n] = *text;
}

static inline void put_name(struct json_out *out, const char *name)
{
    put(out, ",\"");
    put(out, name);
    put(out, "\":");
}

static inline void put_int(struct json_out *out, int64_t v)
{
    char text[24], *p = text + sizeof text - 1;
    uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v;

    *p = 0;
    do {
        *--p = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (v < 0)
        *--p = '-';
    put(out, p);
}

static inline void put_double(struct json_out *out, double v)
{
    char text[32];

    put(out, v - v == 0 ? hcp_format_double(v, text) : "null");
}

/* Names are slugs, but a plan may come from anywhere: escape what JSON forbids. */
static inline void put_string(struct json_out *out, const char *text, size_t max)
{
    static const char hex[] = "0123456789abcdef";

    put(out, "\"");
    for (size_t i = 0; i < max && text[i]; i++) {
        char c = text[i], one[7] = {c, 0};

        if (c == '"' || c == '\\')
            memcpy(one, (char[]){'\\', c, 0}, 3);
        else if ((unsigned char)c < 0x20)
            memcpy(one, (char[]){'\\', 'u', '0', '0', hex[c >> 4 & 15], hex[c & 15], 0},
                   7);
        put(out, one);
    }
    put(out, "\"");
}

static inline void put_hash(struct json_out *out, uint64_t v)
{
    static const char hex[] = "0123456789abcdef";
    char text[19] = "\"";

    for (int i = 0; i < 16; i++)
        text[1 + i] = hex[v >> (60 - 4 * i) & 15];
    text[17] = '"';
    text[18] = 0;
    put(out, text);
}

static inline void name_int(struct json_out *out, const char *name, int64_t v)
{
    put_name(out, name);
    put_int(out, v);
}

static inline void name_double(struct json_out *out, const char *name, double v)
{
    put_name(out, name);
    put_double(out, v);
}

static inline void name_flag(struct json_out *out, const char *name, int flag)
{
    put_name(out, name);
    put(out, flag ? "true" : "false");
}

static inline void name_hash(struct json_out *out, const char *name, uint64_t v)
{
    put_name(out, name);
    put_hash(out, v);
}

/* 0 is null: infinitely fast, or no limit. */
static inline void name_speed(struct json_out *out, const char *name, double v)
{
    put_name(out, name);
    put_double(out, v > 0 ? v : 1.0 / 0.0);
}

/* Of both ends. */
static inline void name_interval(struct json_out *out, const char *name, double lo,
                                 double hi)
{
    put_name(out, name);
    put(out, "[");
    put_double(out, lo);
    put(out, ",");
    put_double(out, hi);
    put(out, "]");
}

static inline void name_string(struct json_out *out, const char *name, const char *v,
                               size_t max)
{
    put_name(out, name);
    put_string(out, v, max);
}

#endif
