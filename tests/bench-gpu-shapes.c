/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/bench-gpu.h"
#include <stdlib.h>
#include "kernels/dtype.h"
#include "kernels/geometry.h"

#define K ((int64_t)1024)
#define SQUARE(set, dtype, dim, causal, len, quick)                                      \
    {                                                                                    \
        set, dtype, 1, 32, 8, dim, causal, len, len, 0, quick                            \
    }
#define BOTH(set, dtype, dim, len, quick)                                                \
    SQUARE(set, dtype, dim, 0, len, quick), SQUARE(set, dtype, dim, 1, len, quick)
#define RING(dtype, dim, causal, len, blocks, quick)                                     \
    {                                                                                    \
        BENCH_RING, dtype, 1, 32, 8, dim, causal, len, len, blocks, quick                \
    }

/* Shapes of one class (type, heads, head dim, phase) stand together: kernels are opened
 * and checked once for each. */
static const struct bench_shape all[] = {
    BOTH(BENCH_PREFILL, "bf16", 128, 1 * K, 0),
    BOTH(BENCH_PREFILL, "bf16", 128, 2 * K, 0),
    BOTH(BENCH_PREFILL, "bf16", 128, 4 * K, 1),
    BOTH(BENCH_PREFILL, "bf16", 128, 8 * K, 0),
    BOTH(BENCH_PREFILL, "bf16", 128, 16 * K, 1),
    BOTH(BENCH_PREFILL, "bf16", 128, 32 * K, 0),
    BOTH(BENCH_PREFILL, "bf16", 128, 64 * K, 1),
    BOTH(BENCH_PREFILL, "bf16", 128, 128 * K, 0),
    {BENCH_PREFILL, "bf16", 1, 32, 8, 128, 0, 6 * K, 60 * K, 0, 0},
    {BENCH_PREFILL, "bf16", 1, 32, 8, 128, 0, 60 * K, 6 * K, 0, 0},
    {BENCH_PREFILL, "bf16", 1, 32, 8, 128, 1, 6 * K, 60 * K, 0, 0},
    BOTH(BENCH_PREFILL, "bf16", 64, 4 * K, 0),
    BOTH(BENCH_PREFILL, "bf16", 64, 16 * K, 1),
    BOTH(BENCH_PREFILL, "bf16", 256, 4 * K, 0),
    BOTH(BENCH_PREFILL, "bf16", 256, 16 * K, 1),
    BOTH(BENCH_PREFILL, "fp16", 128, 4 * K, 0),
    BOTH(BENCH_PREFILL, "fp16", 128, 16 * K, 0),
    BOTH(BENCH_PREFILL, "fp16", 64, 16 * K, 0),
    BOTH(BENCH_PREFILL, "fp16", 256, 16 * K, 0),
    /* Over a gigabyte of K and V each. */
    {BENCH_DECODE, "bf16", 1, 32, 8, 128, 0, 1, 256 * K, 0, 1},
    {BENCH_DECODE, "bf16", 1, 32, 8, 128, 1, 4, 256 * K, 0, 0},
    {BENCH_DECODE, "bf16", 1, 32, 8, 128, 1, 16, 256 * K, 0, 1},
    {BENCH_DECODE, "bf16", 8, 32, 8, 128, 0, 1, 32 * K, 0, 1},
    {BENCH_DECODE, "bf16", 8, 32, 8, 128, 1, 16, 32 * K, 0, 0},
    {BENCH_DECODE, "bf16", 64, 32, 8, 128, 0, 1, 4 * K, 0, 0},
    {BENCH_DECODE, "bf16", 1, 48, 8, 128, 1, 16, 256 * K, 0, 0},
    {BENCH_DECODE, "bf16", 1, 64, 8, 128, 1, 16, 256 * K, 0, 0},
    {BENCH_DECODE, "bf16", 8, 64, 8, 128, 1, 16, 32 * K, 0, 0},
    {BENCH_DECODE, "bf16", 1, 28, 4, 128, 0, 1, 512 * K, 0, 0},
    {BENCH_DECODE, "bf16", 4, 32, 32, 128, 0, 1, 16 * K, 0, 0},
    {BENCH_DECODE, "bf16", 1, 32, 8, 64, 0, 1, 512 * K, 0, 0},
    {BENCH_DECODE, "bf16", 1, 32, 8, 256, 0, 1, 128 * K, 0, 0},
    {BENCH_DECODE, "fp16", 1, 32, 8, 128, 0, 1, 256 * K, 0, 0},
    BOTH(BENCH_LIMITS, "bf16", 128, 4 * K, 0),
    BOTH(BENCH_LIMITS, "bf16", 128, 16 * K, 1),
    {BENCH_LIMITS, "bf16", 1, 32, 8, 128, 0, 1536, 16 * K, 0, 0},
    {BENCH_LIMITS, "bf16", 1, 32, 8, 128, 0, 1, 256 * K, 0, 0},
    RING("bf16", 128, 0, 4 * K, 4, 0),
    RING("bf16", 128, 1, 4 * K, 4, 1),
    RING("bf16", 128, 0, 4 * K, 8, 0),
    RING("bf16", 128, 1, 4 * K, 8, 0),
    RING("bf16", 128, 0, 16 * K, 4, 0),
    RING("bf16", 128, 1, 16 * K, 4, 1),
    RING("bf16", 128, 0, 16 * K, 8, 0),
    RING("bf16", 128, 1, 16 * K, 8, 0),
    RING("bf16", 64, 0, 4 * K, 8, 0),
    RING("bf16", 64, 1, 4 * K, 8, 0),
    RING("bf16", 64, 1, 16 * K, 8, 0),
    RING("bf16", 256, 1, 4 * K, 8, 0),
    RING("fp16", 128, 1, 4 * K, 8, 0),
    RING("fp16", 256, 1, 4 * K, 8, 0),
};

size_t bench_shapes(const struct bench_options *options, int limited,
                    struct bench_shape **out)
{
    size_t n = 0;

    *out = malloc(sizeof all);
    if (!*out)
        return 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (options->sets & (1 << all[i].set) &&
            (all[i].set == BENCH_LIMITS) == limited && (!options->quick || all[i].quick))
            (*out)[n++] = all[i];
    return n;
}

char *bench_shape_text(const struct bench_shape *s, char text[96])
{
    char blocks[16] = "";

    if (s->blocks)
        snprintf(blocks, sizeof blocks, "%d of ", (int)s->blocks);
    snprintf(text, 96, "%s b%d %d/%dx%d %s %lld x %s%lld", s->dtype, (int)s->batch,
             (int)s->heads, (int)s->kv_heads, (int)s->head_dim,
             s->causal ? "causal" : "full", (long long)s->q_len, blocks,
             (long long)s->kv_len);
    return text;
}

/* The shard of the last rank sees its own block by the diagonal, all others whole. */
double bench_flops(const struct bench_shape *s)
{
    int64_t keys = s->blocks ? s->blocks * s->kv_len : s->kv_len;
    int64_t area = hcp_block_area(s->causal ? HCP_MASK_CAUSAL : HCP_MASK_FULL, s->q_len,
                                  keys, keys - s->q_len);

    return hcp_attention_flops(area, s->batch, s->heads, s->head_dim);
}

double bench_bytes(const struct bench_shape *s)
{
    int64_t keys = s->blocks ? s->blocks * s->kv_len : s->kv_len;
    int64_t size = hcp_dtype_bytes(hcp_dtype_of_name(s->dtype));
    int64_t rows = s->batch * s->heads * s->q_len;

    return (double)(2 * rows * s->head_dim * size + 4 * rows +
                    2 * s->batch * s->kv_heads * keys * s->head_dim * size);
}
