/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider around decode.cu: checks, how the work is cut, bookkeeping.
 */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include "kernels/cuda-internal.h"
#include "kernels/cuda-shape.h"
#include "kernels/decode.h"
#include "kernels/dtype.h"
#include "kernels/preference.h"
#include "kernels/registry.h"

/* Rows of a KV head from which products take longer than reading K and V, unless they are
 * wgmma's. */
enum { MIN_WGMMA_ROWS = 33 };

struct hcp_attn_plan {
    hcp_attn_problem problem;
    hcp_device_ref device;
    hcp_decode_tiling tiling; /* of the last lengths; at first the problem's */
    int64_t q_len, steps;     /* these: steps of the keys that a row sees */
    hcp_sm90_encoder encode;  /* NULL where no lengths are decode-sm90.cu's */
    int64_t split_rows;       /* rows of all splits that the workspace has room for */
    int32_t overlap;          /* the merge waits by itself for the splits */
};

static const char *version(void)
{
    return "1";
}

static const char *refusal(const hcp_device_ref *device, const hcp_attn_problem *p)
{
    const char *why = hcp_cuda_tile_refusal(device, p);
    if (why)
        return why;
    if (p->q_len > HCP_DECODE_MAX_Q)
        return "takes up to 16 queries";
    if (p->batch * p->heads > INT32_MAX / HCP_DECODE_MAX_Q)
        return "batch x heads x 16 is over 2^31";
    return NULL;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks of an SM at a time: what its shared memory has room for. */
static int blocks_per_sm(const hcp_device_ref *device)
{
    return device->cc_major == 9 || device->cc_major == 10 ? 2 : 1;
}

/* How long so many blocks take that start together on sms SMs, one or two on each, in
 * units of a block's time on a full device over blocks of an SM. Memory sets the pace
 * where most SMs are busy; alone on its SM a block takes that long at least, and pair is
 * what an SM that has two still needs when the others, with one, are done. */
static double wave_time(int64_t blocks, int64_t sms, double alone, double pair)
{
    double busy = (double)blocks / (double)sms;
    if (blocks <= sms)
        return busy > alone || blocks == 0 ? busy : alone;
    return busy > 1 + pair ? busy : 1 + pair;
}

static double within(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* How many splits of tiles x steps end first; at most most. Each block takes its steps
 * and START more for its first keys and its last results, merging takes MERGE a split.
 * alone and pair as measured on an H200: a block with more rows has more to compute and
 * needs a second beside it. One with few rows does where a limiter leaves few SMs: of all
 * 132 each has 32 GB/s of memory at most, and a block reads 42; two read 55, which 66 SMs
 * have, and with fewer the SM sets the pace, not memory. */
static int64_t choose_splits(const hcp_device_ref *device, int tile_rows,
                             int64_t head_dim, int64_t tiles, int64_t steps, int64_t most)
{
    const double START = 2, MERGE = 1.0 / 32;
    const int per_sm = blocks_per_sm(device), few = tile_rows <= 16 && head_dim < 256;
    const int64_t sms = device->sm_count > 0 ? device->sm_count : 1;
    const double few_alone = per_sm == 1 ? 0.95 : within(100.0 / (double)sms, 0.95, 1.35);
    const double few_pair = per_sm == 1 ? 0.58 : within(150.0 / (double)sms - 1, 0.58, 1);
    const double alone = few ? few_alone : per_sm == 1 ? 1 : tile_rows <= 64 ? 1.25 : 1.5;
    const double pair = few ? few_pair : 0.9;
    const int64_t slots = sms * per_sm, end = min64(steps, most);
    double least = 0;
    int64_t best = 1;
    for (int64_t n = 1; n <= end; n++) {
        int64_t of_one = ceil_div(steps, n), blocks = tiles * ceil_div(steps, of_one);
        double waves = (double)(blocks / slots * per_sm) +
                       wave_time(blocks % slots, sms, alone, pair);
        double cost = waves * ((double)of_one + START) + MERGE * (double)(n > 1 ? n : 0);
        if (n == 1 || cost < least) {
            least = cost;
            best = n;
        }
        if (blocks > 8 * slots)
            break; /* smaller ones only cost more */
    }
    return best;
}

/* Whether rows of this many queries are decode-sm90.cu's. */
static bool by_wgmma(const hcp_device_ref *device, const hcp_attn_problem *p,
                     int64_t q_len, int64_t keys)
{
    const float scale = (float)p->scale * 1.44269504f;
    return device->cc_major == 9 && device->cc_minor == 0 && keys > 0 &&
           p->heads / p->kv_heads * q_len >= MIN_WGMMA_ROWS && scale >= FLT_MIN &&
           hcp_sm90_walkable(p, p->k_stride, p->kv_heads, p->kv_len) &&
           hcp_sm90_walkable(p, p->v_stride, p->kv_heads, p->kv_len);
}

/* Each block of decode-sm90.cu gets as many steps, unless parts to be merged cost more;
 * t->splits is at most most. */
static void cut_steps(const hcp_device_ref *device, hcp_decode_tiling *t, int64_t tiles,
                      int per_sm, int64_t head_dim, int64_t most)
{
    /* Of one block an SM: what merging takes, in bytes of K that it reads meanwhile. */
    const int64_t MERGE_BYTES = 4 * 64 * 128;
    const int64_t slots = (int64_t)per_sm * (device->sm_count > 0 ? device->sm_count : 1);
    const int64_t even = ceil_div(tiles * t->steps, slots);
    const int64_t whole = ceil_div(tiles, slots) * t->steps;
    int64_t n = even;
    if (most < 2 || (whole - even) * per_sm * t->step_keys * head_dim <= MERGE_BYTES)
        n = whole;
    else if (ceil_div(t->steps - 1, n) + 1 > most)
        n = ceil_div(t->steps - 1, most - 1);
    t->block_steps = n;
    t->splits = (int32_t)(n % t->steps == 0   ? 1
                          : t->steps % n == 0 ? t->steps / n
                                              : ceil_div(t->steps - 1, n) + 1);
}

/* How a problem of so many queries and keys (that any of them sees) is cut; its splits
 * have at most room rows in all (0: any number). */
static hcp_decode_tiling cut(const hcp_device_ref *device, const hcp_attn_problem *p,
                             int64_t q_len, int64_t keys, int64_t room)
{
    hcp_decode_tiling t = {0};
    const int64_t rows = p->heads / p->kv_heads * q_len, dim = p->head_dim;
    const int64_t out_rows = p->batch * p->heads * q_len;
    const int64_t most = room && out_rows ? room / out_rows : INT32_MAX;
    if (by_wgmma(device, p, q_len, keys)) {
        const hcp_decode_sm90_tile tile = hcp_cuda_decode_sm90_tile(dim, rows);
        t.tile_rows = tile.rows;
        t.row_tiles = (int32_t)ceil_div(rows, t.tile_rows);
        t.step_keys = tile.keys;
        t.steps = (int32_t)ceil_div(keys, t.step_keys);
        cut_steps(device, &t, p->batch * p->kv_heads * t.row_tiles, tile.blocks_per_sm,
                  dim, most);
        return t;
    }
    /* A step of head dim 256 has keys for two warps only. */
    t.row_groups = rows <= 16 && dim < 256 ? 1 : rows <= 32 ? 2 : 4;
    t.warp_tiles = rows <= 64 || dim == 256 ? 1 : 2;
    t.tile_rows = t.row_groups * t.warp_tiles * HCP_DECODE_MMA_ROWS;
    t.row_tiles = (int32_t)ceil_div(rows, t.tile_rows);
    t.step_keys = (int32_t)(HCP_DECODE_STAGE_BYTES / (4 * dim));
    t.steps = (int32_t)ceil_div(keys, t.step_keys);

    int64_t splits = choose_splits(device, t.tile_rows, dim,
                                   p->batch * p->kv_heads * t.row_tiles, t.steps, most);
    int64_t of_one = ceil_div(t.steps > 0 ? t.steps : 1, splits);
    t.split_keys = (int32_t)(of_one * t.step_keys);
    t.splits = (int32_t)(t.steps > 0 ? ceil_div(t.steps, of_one) : 1);
    return t;
}

/* Keys that the last of so many queries sees, which sees the most. */
static int64_t keys_seen(const hcp_attn_problem *p, int64_t q_len, int64_t kv_len,
                         int64_t diag)
{
    return p->causal && diag < kv_len ? min64(kv_len, q_len + diag) : kv_len;
}

/* The whole problem. */
static hcp_decode_tiling cut_all(const hcp_device_ref *device, const hcp_attn_problem *p)
{
    return cut(device, p, p->q_len, keys_seen(p, p->q_len, p->kv_len, p->diag), 0);
}

static int64_t split_rows(const hcp_attn_problem *p, const hcp_decode_tiling *t)
{
    return t->splits > 1 ? t->splits * p->batch * p->heads * p->q_len : 0;
}

static int query(const hcp_device_ref *device, const hcp_attn_problem *problem,
                 hcp_attn_support *out)
{
    hcp_attn_support answer = {.size = sizeof answer};
    const char *why = refusal(device, problem);
    if (out->size < sizeof answer)
        return HCP_RC_INVALID;
    if (why) {
        snprintf(answer.reason, sizeof answer.reason, "%s", why);
    } else {
        hcp_decode_tiling t = cut_all(device, problem);
        answer.supported = 1;
        answer.caps = HCP_CAP_OUT_FP32 | HCP_CAP_ACCUMULATE | HCP_CAP_DIAG |
                      HCP_CAP_DYNAMIC_LEN | HCP_CAP_DETERMINISTIC | HCP_CAP_NAN_ROWS;
        answer.workspace_bytes =
            split_rows(problem, &t) * (problem->head_dim + 1) * (int64_t)sizeof(float);
        answer.tile_q = 1; /* the rows of a tile are queries times heads */
        answer.tile_kv = t.step_keys;
    }
    answer.size = out->size;
    *out = answer;
    return HCP_RC_OK;
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *problem,
                       hcp_attn_plan **out)
{
    hcp_attn_plan *plan;
    hcp_sm90_encoder encode = NULL;
    const char *why = refusal(device, problem);
    if (why) {
        hcp_cuda_note(why);
        return HCP_RC_UNSUPPORTED;
    }
    if (by_wgmma(device, problem, problem->q_len, problem->kv_len)) {
        const int rc = hcp_sm90_find_encoder(&encode);
        if (rc)
            return rc;
    }
    if (!(plan = malloc(sizeof *plan)))
        return HCP_RC_NO_MEMORY;
    plan->problem = *problem;
    plan->device = *device;
    plan->encode = encode;
    plan->tiling = cut_all(device, problem);
    plan->q_len = problem->q_len;
    plan->steps = plan->tiling.steps;
    plan->split_rows = split_rows(problem, &plan->tiling);
    plan->overlap = device->cc_major >= 9 && hcp_cuda_decode_overlaps();
    *out = plan;
    return HCP_RC_OK;
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    const hcp_attn_problem *p = &plan->problem;
    hcp_attn_args a;
    int rc = hcp_cuda_clamp_args(p, args, &a);
    if (rc != HCP_RC_OK || !hcp_cuda_args_aligned(&a)) {
        hcp_cuda_note("cuda-decode: arguments contradict the plan (lengths, diagonal or "
                      "16-byte alignment)");
        return HCP_RC_INVALID;
    }
    if (p->batch * a.q_len == 0)
        return HCP_RC_OK;
    const int64_t keys = keys_seen(p, a.q_len, a.kv_len, a.diag);
    const int64_t steps = ceil_div(keys, plan->tiling.step_keys);
    if (a.q_len != plan->q_len || steps != plan->steps) {
        /* Without room for splits there is one. */
        plan->tiling = cut(&plan->device, p, a.q_len, keys,
                           plan->split_rows > 0 ? plan->split_rows : 1);
        plan->q_len = a.q_len;
        plan->steps = plan->tiling.steps;
    }
    const hcp_decode_tiling *t = &plan->tiling;
    hcp_decode_sm90_maps maps;
    const bool wgmma = t->block_steps > 0;
    if (wgmma && ((rc = hcp_sm90_encode(plan->encode, p, &maps.k, a.k, p->k_stride,
                                        p->kv_heads, a.kv_len, t->step_keys)) ||
                  (rc = hcp_sm90_encode(plan->encode, p, &maps.v, a.v, p->v_stride,
                                        p->kv_heads, a.kv_len, t->step_keys))))
        return rc;
    return hcp_cuda_check(
        hcp_cuda_launch_decode(p, &a, t, wgmma ? &maps : NULL, plan->overlap, stream),
        "launch the decode kernel");
}

static void plan_destroy(hcp_attn_plan *plan)
{
    free(plan);
}

static int describe(const hcp_attn_plan *plan, char *text, size_t text_size)
{
    const hcp_attn_problem *p = &plan->problem;
    const hcp_decode_tiling *t = &plan->tiling;
    int n = snprintf(text, text_size, "%s%s, head dim %lld, %d rows x %d keys, ",
                     t->block_steps ? "wgmma, " : "", hcp_dtype_name(p->dtype),
                     (long long)p->head_dim, t->tile_rows, t->step_keys);
    if (n < 0 || (size_t)n >= text_size)
        return HCP_RC_OK;
    text += n;
    text_size -= (size_t)n;
    if (t->block_steps)
        snprintf(text, text_size, "%lld steps a block, %d splits",
                 (long long)t->block_steps, t->splits);
    else
        snprintf(text, text_size, "%d splits", t->splits);
    return HCP_RC_OK;
}

const hcp_provider *hcp_provider_cuda_decode(void)
{
    static const hcp_provider provider = {
        .size = sizeof provider,
        .abi = HCP_PROVIDER_ABI,
        .device_kinds = HCP_DEVICE_CUDA,
        .name = "cuda-decode",
        .version = version,
        .query = query,
        .plan_create = plan_create,
        .run = run,
        .plan_destroy = plan_destroy,
        .describe = describe,
    };
    return &provider;
}
