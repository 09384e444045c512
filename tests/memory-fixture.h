/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems with caps in bytes.
 */
#ifndef MEMORY_FIXTURE_H
#define MEMORY_FIXTURE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/plan-fixture.h"
#include "tests/plan-reference.h"

enum { MAX = 64, KV = 2 * 8 * 128 * 2 };

struct memory_case {
    struct fixture fixtures[4];
    hcp_rank ranks[MAX];
    size_t n;
    hcp_question question;
};

static inline void random_case(struct memory_case *c, size_t n, int64_t most,
                               uint64_t *seed)
{
    static const char *const names[] = {"d0", "d1", "d2", "d3"};
    static const int64_t tiles[] = {1, 16, 64, 128, 100};
    hcp_question *q = &c->question;
    int64_t tile = tiles[fixture_range(seed, 0, 4)], each;
    int kinds = (int)fixture_range(seed, 1, 4);

    memset(c, 0, sizeof *c);
    c->n = n;
    for (int i = 0; i < 4; i++) {
        double speed = fixture_real(seed, 0.05, 1);

        c->fixtures[i] = (struct fixture){.device = names[i],
                                          .tile = tile,
                                          .error = 0.02,
                                          .a = 2e-8 / speed,
                                          .b = fixture_real(seed, 0, 4e-5) / speed,
                                          .c = fixture_real(seed, 0, 2e-5),
                                          .f = fixture_real(seed, 1e-6, 0.05),
                                          .lut = 1};
    }
    hcp_question_init(q);
    q->seq_len = fixture_range(seed, 1, most * tile);
    q->tile = fixture_range(seed, 0, 2) ? tile : 0;
    q->causal = (int32_t)fixture_range(seed, 0, 3) > 0;
    q->layout =
        (hcp_layout)fixture_range(seed, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);
    q->stripes = (int32_t)fixture_range(seed, 1, 9);
    q->buffers = (int32_t)fixture_range(seed, 0, 3);
    q->barrier = fixture_range(seed, 0, 4) == 0;
    q->layers =
        (int32_t)fixture_range(seed, 0, 1) ? 1 : (int32_t)fixture_range(seed, 0, 32);
    q->activation_bytes = fixture_range(seed, 0, 2) ? 0 : fixture_range(seed, 1, 20000);
    if (fixture_range(seed, 0, 1)) {
        q->link_alpha_us = fixture_real(seed, 0, 300);
        q->link_gbps = fixture_real(seed, 0.5, 50);
    }
    q->extrapolate = 1;
    /* What an even split would about need, buffers included. */
    each = q->seq_len / (int64_t)n + 1;
    for (size_t r = 0; r < n; r++) {
        int64_t even = each * (q->layers * KV + q->activation_bytes + 2 * KV);

        hcp_rank_init(&c->ranks[r]);
        strcpy(c->ranks[r].device, names[fixture_range(seed, 0, kinds - 1)]);
        if (fixture_range(seed, 0, 5))
            c->ranks[r].max_bytes = even / 4 + fixture_range(seed, 1, 2 * even + 1);
        if (fixture_range(seed, 0, 3) == 0)
            c->ranks[r].weight_bytes = fixture_range(seed, 0, even / 4);
        if (fixture_range(seed, 0, 9) == 0)
            c->ranks[r].max_tokens = fixture_range(seed, 1, 2 * each);
    }
    c->ranks[0].max_bytes += c->ranks[0].max_bytes == 0;
    c->ranks[0].max_bytes += each * KV;
}

#endif
