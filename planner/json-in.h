/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: reading JSON.
 */
#ifndef HCP_JSON_IN_H
#define HCP_JSON_IN_H
#include <stddef.h>
#include <stdint.h>

/* json.c: a strict JSON reader over a string. Its names are not those of jansson, which a
 * static link would mix up. The reading functions return 0, or -1 with
 * a reason in error (the first one stays). */
struct json_in {
    const char *start, *p, *end;
    char error[96];
};
int jin_fail(struct json_in *in, const char *what);
/* Says in which member an error is, if none is named yet; returns rc. */
int jin_within(struct json_in *in, const char *key, int rc);
int jin_literal(struct json_in *in, char c); /* skips white space, then exactly c */
int jin_peek(struct json_in *in);            /* next character after white space, or -1 */
int jin_string(struct json_in *in, char *out, size_t size); /* too long: error */
int jin_double(struct json_in *in, double *out);            /* null -> NaN */
int jin_int(struct json_in *in, int64_t min, int64_t max, int64_t *out);
int jin_skip(struct json_in *in); /* any value, nested at most 32 deep */
int jin_bool(struct json_in *in, int32_t *out);
int jin_int32(struct json_in *in, int64_t min, int64_t max, int32_t *out);
int jin_hash(struct json_in *in, uint64_t *out); /* 16 hexadecimal digits in a string */
/* Which of n names a key is; -1: none. */
int jin_member(const char *const *names, int n, const char *key);
/* Calls member for every member of the object that follows, with its key; keys of more
 * than 63 characters are skipped. Duplicate keys are the caller's to refuse. */
int jin_object(struct json_in *in,
               int (*member)(struct json_in *in, const char *key, void *ctx), void *ctx);
int jin_array(struct json_in *in, int (*element)(struct json_in *in, void *ctx),
              void *ctx);

#endif
