/* SPDX-License-Identifier: Apache-2.0
 *
 * Random queries that hold every model to its promises: positive, non-decreasing in
 * both lengths, for both masks, up to 2^30 tokens.
 */
#ifndef HCP_TEST_MODEL_CHECK_H
#define HCP_TEST_MODEL_CHECK_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "fit/model.h"

static inline uint64_t check_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Uniform in [0, 1). */
static inline double check_uniform(uint64_t *state)
{
    return (double)(check_random(state) >> 11) * 0x1p-53;
}

/* A length of any magnitude up to 2^30. */
static inline int64_t check_length(uint64_t *state)
{
    int64_t top = (int64_t)1 << (1 + check_random(state) % 30);
    return 1 + (int64_t)(check_random(state) % (uint64_t)top);
}

static inline long check_scale(void)
{
    const char *text = getenv("HCP_TEST_SCALE");
    long scale = text ? strtol(text, NULL, 10) : 1;
    return scale > 0 ? scale : 1;
}

static inline void check_pair(const hcp_model *m, int causal, int64_t q, int64_t kv,
                              int64_t q2, int64_t kv2)
{
    double a = hcp_model_block_ms(m, causal, q, kv, NULL);
    double b = hcp_model_block_ms(m, causal, q2, kv2, NULL);
    if (!(a > 0) || !isfinite(a) || !isfinite(b) || !(b >= a))
        fail_msg("%s %s: %lld x %lld -> %.17g ms, %lld x %lld -> %.17g ms",
                 hcp_model_row(m)->kind, causal ? "causal" : "full", (long long)q,
                 (long long)kv, a, (long long)q2, (long long)kv2, b);
}

/* n pairs of ordered queries, half of them neighbours. */
static inline void check_monotone(const hcp_model *m, long n, uint64_t seed)
{
    const int64_t most = (int64_t)1 << 30;
    for (long i = 0; i < n; i++) {
        int causal = (int)(check_random(&seed) & 1);
        int64_t q = check_length(&seed), kv = check_length(&seed), q2 = q, kv2 = kv;
        if (check_random(&seed) % 4 == 0) /* near the diagonal */
            kv = kv2 = q + (int64_t)(check_random(&seed) % 300) - 100;
        if (kv < 1)
            kv = kv2 = 1;
        int64_t step = check_random(&seed) & 1 ? 1 : check_length(&seed);
        switch (check_random(&seed) % 3) {
        case 0:
            q2 += step;
            break;
        case 1:
            kv2 += step;
            break;
        default:
            q2 += step;
            kv2 += check_length(&seed);
        }
        check_pair(m, causal, q, kv, q2 > most ? most : q2, kv2 > most ? most : kv2);
    }
}

#endif
