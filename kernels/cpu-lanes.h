/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CPU kernel does a row at a time around its two products: conversion and
 * the softmax, in base 2. Loops run over whole groups of HCP_LANES so that every
 * compiler vectorises them at -O2.
 */
#ifndef HCP_CPU_LANES_H
#define HCP_CPU_LANES_H
#include <stdint.h>

enum { HCP_LANES = 16 };

/* n contiguous elements of dtype as fp32. */
void hcp_lanes_to_float(float *dst, const void *src, int64_t n, int32_t dtype);

/* Running state of one row: the largest score seen (base 2) and the sum of
 * 2^(score - max). Nothing seen: (-inf, 0). */
typedef struct hcp_softmax_row {
    float max, sum;
} hcp_softmax_row;

/* Replaces the scores s[0..visible) by 2^(s - max), zeroes s[visible..width) and
 * updates the state. width is a multiple of HCP_LANES. Returns the factor 2^(old
 * max - new max) that the row's output so far must be multiplied by (0: discard
 * it; 1: keep it). */
float hcp_softmax_tile_row(float *s, int64_t visible, int64_t width,
                           hcp_softmax_row *state);

/* 2^x for x <= 0, to 2 ulp down to x = -126; from there to 2^-126 absolute, and 0
 * from -127 on. NaN stays NaN. Exposed for the tests. */
float hcp_exp2_nonpositive(float x);

#endif
