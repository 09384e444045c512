/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks in decode, few and with caps.
 */
#ifndef DECODE_FIXTURE_H
#define DECODE_FIXTURE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/decode-reference.h"

static inline hcp_shape shape_of(int32_t batch, int32_t heads)
{
    hcp_shape shape;

    hcp_shape_init(&shape);
    strcpy(shape.phase, "decode");
    shape.batch = batch;
    shape.heads = heads;
    shape.kv_heads = heads < 8 ? heads : 8;
    return shape;
}

struct problem_case {
    size_t n;
    hcp_shape shape;
    hcp_models *models;
    hcp_ring *ring;
    hcp_question q;
    int64_t tile;
    struct fixture_plan p;
};

static inline void random_kinds(uint64_t *seed, struct decode_kind *kinds, size_t n,
                                int64_t tile)
{
    for (size_t r = 0; r < n; r++)
        kinds[r] = (struct decode_kind){
            fixture_real(seed, 0, 0.03),
            fixture_real(seed, 1e-6, 2e-5) * (double)fixture_range(seed, 1, 40),
            fixture_range(seed, 0, 2) ? 0 : 0.002,
            0.02,
            fixture_range(seed, 0, 1) ? fixture_random(seed) : 0,
            tile};
}

/* Few ranks and tiles; caps in tokens and bytes that are sometimes in the way. */
static inline void make_case(struct problem_case *c, uint64_t *seed)
{
    struct decode_kind kinds[5];
    int64_t most[5], bytes[5], weights[5], unit, state;
    static const int32_t heads[] = {1, 2, 32};

    c->n = (size_t)fixture_range(seed, 1, 5);
    c->tile = 64 * fixture_range(seed, 1, 3);
    c->shape =
        shape_of((int32_t)fixture_range(seed, 1, 16), heads[fixture_range(seed, 0, 2)]);
    random_kinds(seed, kinds, c->n, fixture_range(seed, 0, 1) ? c->tile : 1);
    hcp_question_init(&c->q);
    c->q.extrapolate = 1;
    c->q.tile = kinds[0].tile == 1 ? c->tile : 0;
    c->q.seq_len = c->tile * fixture_range(seed, 0, c->n > 4 ? 9 : 14) +
                   (fixture_range(seed, 0, 1) ? fixture_range(seed, 1, c->tile - 1) : 0);
    c->q.seq_len += c->q.seq_len == 0;
    c->q.layers = (int32_t)fixture_range(seed, 0, 3);
    c->q.activation_bytes = fixture_range(seed, 0, 1000);
    c->q.link_alpha_us = fixture_range(seed, 0, 3) ? fixture_real(seed, 0, 30) : 0;
    c->q.link_gbps = fixture_range(seed, 0, 3) ? fixture_real(seed, 0.05, 100) : 0;
    c->q.merge = (hcp_merge)(fixture_range(seed, 0, 1) ? 0 : fixture_range(seed, 1, 3));
    state = (int64_t)c->shape.batch * c->shape.heads * 129 * 4;
    unit = reference_decode_bytes(&c->shape, &c->q, 0, 1, 0, 1) - state;
    for (size_t r = 0; r < c->n; r++) {
        most[r] = fixture_range(seed, 0, 3) ? 0 : fixture_range(seed, 1, c->q.seq_len);
        weights[r] = fixture_range(seed, 0, 1) ? 0 : fixture_range(seed, 0, 1000000);
        bytes[r] = fixture_range(seed, 0, 2)
                       ? 0
                       : 1 + weights[r] +
                             (int64_t)(fixture_real(seed, 0, 1.2) *
                                       (double)(unit * c->q.seq_len)) +
                             fixture_range(seed, 0, 4 * state);
    }
    c->models = decode_models(kinds, c->n, &c->shape);
    c->ring = decode_ring(c->models, &c->shape, most, bytes, weights, c->n);
    fixture_plan_init(&c->p, c->n);
}

static inline void free_case(struct problem_case *c)
{
    fixture_plan_free(&c->p);
    hcp_ring_free(c->ring);
    hcp_models_free(c->models);
}

#endif
