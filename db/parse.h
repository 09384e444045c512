/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to numbers and back, strictly and in no locale but C: decimal point '.',
 * whole string, no sign or space in front. Pure C, part of libhcpdb, so that
 * libhcpplan can read and print the same numbers as the programs.
 */
#ifndef HCP_PARSE_H
#define HCP_PARSE_H
#include <stddef.h>
#include <stdint.h>
#include "db/error.h"

/* Longest sequence accepted anywhere, in tokens; equals HCP_MAX_LEN of
 * kernels/geometry.h, which db/ may not include. */
#define HCP_LEN_LIMIT ((int64_t)1 << 30)
/* Largest tile of a kernel that a model takes, in tokens. */
#define HCP_TILE_LIMIT ((int64_t)1 << 20)

/* "4096", "64K", "1M", "1G" (powers of two; k m g too) -> tokens in
 * [min, HCP_LEN_LIMIT]. Anything else: HCP_USAGE and what was wrong. */
int hcp_parse_len(const char *text, int64_t min, int64_t *out, struct hcp_err *err);
/* Plain decimal integer in [min, max], optional '-' where min < 0. what names the
 * number in the message ("batch"). */
int hcp_parse_int(const char *text, const char *what, int64_t min, int64_t max,
                  int64_t *out, struct hcp_err *err);
/* Plain decimal number, '.' only, whole string, finite; exponent allowed. */
int hcp_parse_double(const char *text, double *out, struct hcp_err *err);
/* "mps:10" (1..100 % of the SMs) "green:24" (SMs) "cpu:50" (1..100 % of a core)
 * "" (whole device) -> kind ("mps", "green", "cpu", "") and number. One spelling a
 * limit: no leading zeros. */
int hcp_parse_limit(const char *text, char kind[8], int32_t *value, struct hcp_err *err);
/* Order of limits in tables: by number, the whole device after its parts. */
int hcp_limit_compare(const char *a, const char *b);
/* A device or provider name: lower-case letters, digits and . _ + - , first a letter
 * or digit, shorter than size. what names it in the message. */
int hcp_parse_slug(const char *text, const char *what, size_t size, struct hcp_err *err);

/* Shortest decimal that reads back as the same bits (up to 17 digits), '.' in every
 * locale; "nan", "inf", "-inf" otherwise. Returns buf. */
char *hcp_format_double(double v, char buf[32]);

/* 1 if text is valid UTF-8 without control characters other than tab. */
int hcp_text_is_clean(const char *text);

#endif
