/* SPDX-License-Identifier: Apache-2.0
 *
 * Which cases there are. Lengths x diagonals is run whole; head counts, head
 * dimensions, dtypes, strides and accumulation rotate through it with periods that
 * share no factor, so that each meets each, within a bound on the work of a case.
 * Threads each go through all cases, and run those whose numbers they have drawn.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/conformance-case.h"

static const int64_t lengths[] = {0, 1, 2, 63, 64, 65, 127, 129, 1000, 4097};
static const int64_t head_counts[][2] = {{8, 8},  {8, 1},  {28, 4},
                                         {12, 2}, {64, 8}, {64, 2}};
static const int64_t head_dims[] = {64, 128, 256};
enum {
    N_LENGTHS = sizeof lengths / sizeof *lengths,
    N_SHORT = 8 /* up to 129 */,
    N_DIAGS = 10,
    N_HEADS = 5, /* the last is of decode_cases alone */
    SAMPLE = 4   /* one in so many diagonals */
};

/* Multiply-adds of one run that a case may cost: 4097 x 4097, 8 heads of 64; and
 * elements of its largest tensor: 4097 rows, 28 heads of 64. */
#define MAX_WORK (4097.0 * 4097 * 8 * 64)
#define MAX_ELEMENTS (4097.0 * 28 * 64)

/* More would only wait for the device, and each keeps provider state of its own. */
enum { MAX_THREADS = 8 };

typedef struct kept {
    hcp_conformance_case c;
    int32_t dtype;
    int done;
} kept;

/* What the threads share, under the lock; results are told in order. */
typedef struct shared {
    pthread_mutex_t lock;
    hcp_conformance_fn report;
    void *user;
    hcp_conformance_summary *summary;
    int64_t next; /* first case that nobody has drawn */
    kept *results;
    int64_t room, told;
    int rc; /* of the first thread that could not go on, with its line */
    char *err;
    size_t err_size;
} shared;

/* One thread's way through the cases. */
typedef struct run_all {
    cf_context context;
    shared *shared;
    const hcp_provider *provider;
    const hcp_runtime *runtime;
    const hcp_device_ref *device;
    int level;
    int64_t rotation; /* cases so far */
    int64_t mine;     /* the next one that is this thread's */
    char err[512];
} run_all;

typedef enum layout {
    LAYOUT_DENSE,
    LAYOUT_TOKEN_MAJOR, /* [batch][token][head][head_dim] */
    LAYOUT_PADDED,      /* rows 8 elements longer than head_dim */
    LAYOUT_ODD,         /* one element: no row but the first is aligned */
    N_LAYOUTS
} layout;

static void strides(int64_t stride[3], int64_t heads, int64_t len, int64_t dim, layout l)
{
    int64_t row = dim + (l == LAYOUT_PADDED ? 8 : l == LAYOUT_ODD ? 1 : 0);
    stride[2] = l == LAYOUT_TOKEN_MAJOR ? heads * row : row;
    stride[1] = l == LAYOUT_TOKEN_MAJOR ? row : len * row;
    stride[0] = heads * len * row;
}

static const char *const layout_label[] = {"", "token-major", "padded rows",
                                           "unaligned rows"};

static cf_spec make_spec(int32_t dtype, int64_t batch, const int64_t heads[2],
                         int64_t dim, int64_t q_len, int64_t kv_len, int causal,
                         int64_t diag, layout l)
{
    cf_spec s = {.label = layout_label[l]};
    s.problem = (hcp_attn_problem){.size = sizeof s.problem,
                                   .batch = batch,
                                   .q_len = q_len,
                                   .kv_len = kv_len,
                                   .heads = heads[0],
                                   .kv_heads = heads[1],
                                   .head_dim = dim,
                                   .dtype = dtype,
                                   .out_dtype = HCP_FP32,
                                   .causal = causal,
                                   .diag = causal ? diag : 0,
                                   .scale = 1 / sqrt((double)dim)};
    strides(s.problem.q_stride, heads[0], q_len, dim, l);
    strides(s.problem.o_stride, heads[0], q_len, dim, l);
    strides(s.problem.k_stride, heads[1], kv_len, dim, l);
    strides(s.problem.v_stride, heads[1], kv_len, dim, l);
    return s;
}

static void tell(shared *s, const kept *r)
{
    hcp_conformance_summary *sum = s->summary;
    if (r->c.outcome == HCP_CASE_PASSED)
        sum->passed++;
    else if (r->c.outcome == HCP_CASE_REFUSED)
        sum->refused++;
    else if (sum->failed++ == 0)
        snprintf(sum->first_failure, sizeof sum->first_failure, "%s: %s", r->c.name,
                 r->c.text);
    if (r->c.o_error > sum->worst_o_error[r->dtype])
        sum->worst_o_error[r->dtype] = r->c.o_error;
    if (r->c.lse_error > sum->worst_lse_error)
        sum->worst_lse_error = r->c.lse_error;
    if (s->report)
        s->report(&r->c, s->user);
}

/* Under the lock: keeps the result of a case, tells those whose turn has come. */
static int keep(shared *s, int64_t number, const hcp_conformance_case *c, int32_t dtype)
{
    if (number >= s->room) {
        int64_t room = 2 * number + 64;
        kept *more = realloc(s->results, (size_t)room * sizeof *more);
        if (!more)
            return HCP_RC_NO_MEMORY;
        memset(more + s->room, 0, (size_t)(room - s->room) * sizeof *more);
        s->results = more;
        s->room = room;
    }
    s->results[number] = (kept){.c = *c, .dtype = dtype, .done = 1};
    for (; s->told < s->room && s->results[s->told].done; s->told++)
        tell(s, &s->results[s->told]);
    return HCP_RC_OK;
}

/* Whether the case that comes now is this thread's; counts it. */
static int is_mine(run_all *a)
{
    return a->rotation++ == a->mine;
}

/* The result of the thread's case, whose code was rc; draws the next case. A code: the
 * run is over, here or elsewhere. */
static int finish_case(run_all *a, int rc, const hcp_conformance_case *c, int32_t dtype)
{
    shared *s = a->shared;
    pthread_mutex_lock(&s->lock);
    if (!rc) {
        rc = keep(s, a->mine, c, dtype);
        cf_check(&a->context, rc, "results");
    }
    if (rc && !s->rc) {
        s->rc = rc;
        snprintf(s->err, s->err_size, "%s", a->err);
    }
    rc = s->rc;
    a->mine = s->next++;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int run_spec(run_all *a, const cf_spec *spec)
{
    hcp_conformance_case r;
    if (!is_mine(a))
        return HCP_RC_OK;
    int rc = cf_run_case(&a->context, spec, &r);
    return finish_case(a, rc, &r, spec->problem.dtype);
}

/* The k-th of the diagonals for these lengths; the last is "no mask". */
static int64_t diagonal(int k, int64_t q_len, int64_t kv_len)
{
    const int64_t d[N_DIAGS] = {-q_len,     1 - q_len,       -1, 0, 1, 63, 64, kv_len - 2,
                                kv_len - 1, (int64_t)1 << 33};
    return d[k];
}

/* Heads, dimension, dtype and layout by number, smaller until the work fits. */
static cf_spec rotate(const run_all *a, int64_t q_len, int64_t kv_len, int causal,
                      int64_t diag)
{
    const int64_t number = a->rotation;
    const double share = a->level & HCP_CONFORMANCE_SAMPLED ? 1.0 / SAMPLE : 1;
    for (int64_t n = number;; n++) {
        const int64_t *heads = head_counts[n % N_HEADS];
        int64_t dim = head_dims[n / 2 % 3];
        double q = (double)q_len * (double)(heads[0] * dim);
        double kv = (double)kv_len * (double)(heads[1] * dim);
        int least = heads[0] == 8 && dim == 64; /* always fits */
        if (!least && (q * (double)kv_len > share * MAX_WORK ||
                       q > share * MAX_ELEMENTS || kv > share * MAX_ELEMENTS))
            continue;
        layout l = number % 7 < N_LAYOUTS ? (layout)(number % 7) : LAYOUT_DENSE;
        int64_t batch = number % 11 == 3 && q_len <= 129 && kv_len <= 129 ? 2 : 1;
        /* fp32 every fourth time: providers of bf16 and fp16 only are the rule */
        int32_t dtype = number % 4 == 3   ? HCP_FP32
                        : number % 4 == 2 ? HCP_FP16
                                          : HCP_BF16;
        cf_spec s = make_spec(dtype, batch, heads, dim, q_len, kv_len, causal, diag, l);
        s.problem.accumulate = number % 3 == 1;
        return s;
    }
}

static int run_rectangles(run_all *a)
{
    int small = a->level & HCP_CONFORMANCE_SMALL, n = small ? N_SHORT : N_LENGTHS;
    for (int q = 0; q < n; q++)
        for (int kv = 0; kv < n; kv++)
            for (int k = 0; k <= N_DIAGS; k++) {
                int sampled = a->level & HCP_CONFORMANCE_SAMPLED &&
                              (small || q >= N_SHORT || kv >= N_SHORT);
                if (sampled && (q + kv + k) % SAMPLE)
                    continue;
                int64_t diag = k < N_DIAGS ? diagonal(k, lengths[q], lengths[kv]) : 0;
                cf_spec s = rotate(a, lengths[q], lengths[kv], k < N_DIAGS, diag);
                int rc = run_spec(a, &s);
                if (rc)
                    return rc;
            }
    return HCP_RC_OK;
}

/* What the provider says it can change at run time: one plan, other lengths. */
enum { N_DIRECT = 7 };

static int run_direct(run_all *a, int k)
{
    static const int64_t at_run[N_DIRECT][3] = {
        {65, 127, 100},
        {129, 300, 0},
        {129, 300, 299},
        {129, 300, 63},
        {1, 300, 5},
        {129, 1, 0},
        {129, 300, (int64_t)1 << 33},
    };
    cf_spec s = make_spec((int32_t)(k % 3), 1, head_counts[3], 64, 129, 300, 1, 171,
                          LAYOUT_DENSE);
    s.direct = 1;
    s.run_q = at_run[k][0];
    s.run_kv = at_run[k][1];
    s.run_diag = at_run[k][2];
    return run_spec(a, &s);
}

/* Every head count with every dimension and dtype, once; then scores far from zero. */
static int run_kinds(run_all *a)
{
    int rc = HCP_RC_OK;
    for (int h = 0; h < N_HEADS; h++)
        for (int d = 0; d < 3; d++)
            for (int32_t t = HCP_BF16; !rc && t <= HCP_FP32; t++) {
                cf_spec s = make_spec(t, 1, head_counts[h], head_dims[d], 129, 200, 1, 71,
                                      LAYOUT_DENSE);
                rc = run_spec(a, &s);
            }
    if (!rc) { /* too much for the rotation */
        cf_spec s =
            make_spec(HCP_BF16, 1, head_counts[4], 64, 4097, 129, 1, 64, LAYOUT_DENSE);
        rc = run_spec(a, &s);
    }
    for (int k = 0; !rc && k < 12; k++) {
        cf_spec s = make_spec(k % 3, 1, head_counts[2], 128, 129, 300, k / 3 % 2, 171,
                              LAYOUT_DENSE);
        s.inputs = k < 6 ? CF_LOW_SCORES : CF_HIGH_SCORES;
        s.label = k < 6 ? "scores near -200" : "scores near 200";
        rc = run_spec(a, &s);
    }
    for (int k = 0; !rc && k < N_DIRECT; k++)
        rc = run_direct(a, k);
    return rc;
}

/* An uneven ring; its blocks in another order; cut at odd places; with empty blocks
 * between (length 0, and under a mask all that lies ahead of the shard). */
static int run_rings(run_all *a)
{
    static const int64_t uneven[] = {613, 311, 76, -1}, whole[] = {1000, -1};
    static const int64_t odd[] = {1, 612, 2, 63, 65, 257, -1};
    static const int64_t gaps[] = {0, 613, 0, 0, 311, 76, 0, -1};
    static const struct {
        const int64_t *q, *kv;
        uint64_t order;
        const char *label;
    } ring[] = {{uneven, uneven, 1, "ring of 613, 311, 76"},
                {whole, odd, 0, "cut in six"},
                {whole, odd, 5, "cut in six, permuted"},
                {uneven, gaps, 3, "ring with empty blocks"}};
    int rc = HCP_RC_OK, many = a->level & HCP_CONFORMANCE_FULL;
    for (size_t i = 0; i < (many ? sizeof ring / sizeof *ring : 1); i++)
        for (int k = 0; !rc && k < (many ? 6 : 1); k++) {
            int32_t dtype = k % 3;
            if (a->level & HCP_CONFORMANCE_SAMPLED && (i + (size_t)k) % 2)
                continue;
            cf_spec s = make_spec(dtype, 1, head_counts[i], head_dims[i % 2], 1000, 1000,
                                  k < 3, 0, LAYOUT_DENSE);
            cf_ring r = {.problem = s.problem,
                         .q_lengths = ring[i].q,
                         .kv_lengths = ring[i].kv,
                         .order = ring[i].order,
                         .label = ring[i].label};
            hcp_conformance_case result;
            if (is_mine(a)) {
                rc = cf_run_ring(&a->context, &r, &result);
                rc = finish_case(a, rc, &result, dtype);
            }
        }
    return rc;
}

/* Few queries against many keys, as in decoding: keys over many thread blocks, all
 * groupings of heads, several rows of tiles, parts of the keys that no row sees, rows
 * without keys, several sequences. The first N_QUICK_DECODE are short. */
typedef struct decode_case {
    int heads, dim; /* places in head_counts and head_dims */
    int64_t batch, q_len, kv_len, diag;
    int causal, accumulate;
    layout layout;
} decode_case;

static const decode_case decode_cases[] = {
    {1, 1, 2, 1, 1000, 0, 0, 0, LAYOUT_DENSE},
    {2, 0, 1, 16, 601, 300, 1, 1, LAYOUT_TOKEN_MAJOR},
    {4, 2, 1, 3, 321, 318, 1, 0, LAYOUT_PADDED},
    {0, 1, 3, 2, 1025, 0, 0, 1, LAYOUT_DENSE},
    {0, 0, 40, 1, 300, 0, 0, 0, LAYOUT_DENSE}, /* more sequences than thread blocks fit */
    {1, 1, 1, 1, 30011, 0, 0, 1, LAYOUT_DENSE},
    {1, 0, 1, 16, 70001, 69985, 1, 0, LAYOUT_PADDED},
    {1, 2, 1, 16, 12289, 6000, 1, 1, LAYOUT_DENSE}, /* no row sees the last keys */
    {3, 2, 1, 5, 5000, 0, 1, 0, LAYOUT_DENSE},      /* nor any but the first five */
    {2, 1, 3, 4, 2500, 2496, 1, 0, LAYOUT_TOKEN_MAJOR},
    {3, 1, 1, 11, 4095, 4084, 1, 1, LAYOUT_PADDED},
    {4, 0, 2, 16, 4097, 4081, 1, 1, LAYOUT_DENSE},
    {4, 1, 1, 9, 6000, 1, 1, 0, LAYOUT_TOKEN_MAJOR},
    {0, 0, 2, 16, 3000, -5, 1, 0, LAYOUT_DENSE}, /* the first five rows see none */
    {4, 0, 1, 16, 8193, -15, 1, 1, LAYOUT_DENSE},
    {2, 2, 2, 7, 2048, 0, 0, 0, LAYOUT_DENSE},
    {5, 1, 1, 16, 4097, 4081, 1, 1, LAYOUT_DENSE}, /* over 128 rows a KV head */
    {5, 0, 1, 9, 3000, 100, 1, 0, LAYOUT_PADDED},
};
enum { N_DECODE = sizeof decode_cases / sizeof *decode_cases, N_QUICK_DECODE = 3 };

static int run_decode_case(run_all *a, int k, int32_t dtype)
{
    const decode_case *d = &decode_cases[k];
    cf_spec s = make_spec(dtype, d->batch, head_counts[d->heads], head_dims[d->dim],
                          d->q_len, d->kv_len, d->causal, d->diag, d->layout);
    s.problem.accumulate = d->accumulate;
    return run_spec(a, &s);
}

/* One plan of 16 queries, run with fewer and fewer keys. */
static int run_decode_direct(run_all *a, int32_t dtype)
{
    static const int64_t at_run[][3] = {
        {1, 5001, 5000}, {16, 5000, 4990}, {16, 64, 0}, {5, 4097, 1}, {3, 1, 0}};
    int rc = HCP_RC_OK;
    for (size_t k = 0; !rc && k < sizeof at_run / sizeof *at_run; k++) {
        cf_spec s =
            make_spec(dtype, 2, head_counts[2], 128, 16, 5001, 1, 4985, LAYOUT_DENSE);
        s.direct = 1;
        s.run_q = at_run[k][0];
        s.run_kv = at_run[k][1];
        s.run_diag = at_run[k][2];
        rc = run_spec(a, &s);
    }
    return rc;
}

static int run_decode(run_all *a)
{
    const int small = a->level & HCP_CONFORMANCE_SMALL;
    int rc = HCP_RC_OK;
    for (int k = 0; k < (small ? N_QUICK_DECODE : N_DECODE); k++)
        for (int32_t t = HCP_BF16; !rc && t <= HCP_FP32; t++)
            if (!(a->level & HCP_CONFORMANCE_SAMPLED) || (k + t) % 3 == 0)
                rc = run_decode_case(a, k, t);
    for (int32_t t = HCP_BF16; !rc && !small && t <= HCP_FP16; t++)
        rc = run_decode_direct(a, t);
    return rc;
}

/* NaN in one row of Q, of which scores are all NaN: that row NaN, all others
 * untouched. Many and few queries; of these in several splits of the keys, with a state
 * to merge into and without, and over 32 rows a KV head. The first two are quick. */
static int run_nan(run_all *a, int many)
{
    static const struct {
        int heads, dim;
        int64_t q_len, kv_len, diag, row;
        int causal, accumulate;
    } cases[] = {{3, 0, 129, 200, 71, 301, 1, 1}, {1, 1, 2, 1500, 1498, 11, 1, 0},
                 {1, 1, 129, 129, 0, 700, 0, 0},  {2, 1, 65, 100, 10, 801, 1, 1},
                 {0, 2, 100, 65, 0, 150, 0, 1},   {3, 0, 3, 1000, 997, 5, 1, 1},
                 {2, 1, 16, 700, 0, 101, 0, 0},   {5, 0, 4, 500, 496, 121, 1, 1},
                 {4, 2, 16, 300, 284, 1000, 1, 0}};
    int rc = HCP_RC_OK;
    for (size_t k = 0; !rc && k < (many ? sizeof cases / sizeof *cases : 2); k++)
        for (int32_t t = many ? HCP_BF16 : (int32_t)(k % 2); !rc && t <= HCP_FP32;
             t += many ? 1 : 3) {
            if (a->level & HCP_CONFORMANCE_SAMPLED && k > 1 && ((int)k + t) % SAMPLE)
                continue;
            cf_spec s =
                make_spec(t, 1, head_counts[cases[k].heads], head_dims[cases[k].dim],
                          cases[k].q_len, cases[k].kv_len, cases[k].causal, cases[k].diag,
                          k % 3 == 2 ? LAYOUT_TOKEN_MAJOR : LAYOUT_DENSE);
            s.problem.accumulate = cases[k].accumulate;
            s.nan_row = cases[k].row;
            s.label = "NaN in one row of Q";
            rc = run_spec(a, &s);
        }
    return rc;
}

static int run_quick(run_all *a)
{
    static const struct {
        int64_t q_len, kv_len, diag;
        int heads, dim, causal, accumulate;
    } quick[] = {
        {129, 200, 0, 0, 1, 0, 0},
        {129, 200, 71, 1, 1, 1, 0},
        {65, 127, 0, 2, 1, 1, 0},
        {64, 64, 0, 3, 0, 1, 1},
        {1, 129, 0, 1, 1, 0, 0},
        {127, 65, -63, 2, 1, 1, 1},
        {63, 1000, 64, 0, 0, 1, 0},
        {200, 129, 0, 1, 2, 0, 1},
        {64, 129, -64, 3, 1, 1, 0},
        {2, 2, 0, 4, 1, 1, 0},
        {129, 64, (int64_t)1 << 33, 0, 1, 1, 0},
    };
    int rc = HCP_RC_OK;
    for (size_t i = 0; !rc && i < sizeof quick / sizeof *quick; i++) {
        cf_spec s = make_spec((int32_t)(i % 3), 1, head_counts[quick[i].heads],
                              head_dims[quick[i].dim], quick[i].q_len, quick[i].kv_len,
                              quick[i].causal, quick[i].diag,
                              i % 4 == 3 ? LAYOUT_TOKEN_MAJOR
                              : i == 4   ? LAYOUT_PADDED
                                         : LAYOUT_DENSE);
        s.problem.accumulate = quick[i].accumulate;
        rc = run_spec(a, &s);
    }
    for (int k = 0; !rc && k < N_QUICK_DECODE; k++)
        rc = run_decode_case(a, k, k % 2);
    if (!rc)
        rc = run_direct(a, 0);
    if (!rc)
        rc = run_nan(a, 0);
    return rc ? rc : run_rings(a);
}

/* One at a time, when all others are done. */
static int run_huge(run_all *a)
{
    int rc = HCP_RC_OK;
    for (int which = 0; !rc && which < 2; which++) {
        hcp_conformance_case result;
        a->mine = a->rotation++;
        rc = cf_run_huge(&a->context, which, &result);
        rc = finish_case(a, rc, &result, HCP_BF16);
    }
    return rc;
}

static int run_level(run_all *a)
{
    if (!(a->level & HCP_CONFORMANCE_FULL))
        return run_quick(a);
    int rc = run_kinds(a);
    if (!rc)
        rc = run_decode(a);
    if (!rc)
        rc = run_nan(a, 1);
    if (!rc)
        rc = run_rings(a);
    return rc ? rc : run_rectangles(a);
}

/* The device is selected, and has a stream, in each thread. */
static int open_thread(run_all *a)
{
    int rc =
        cf_open(&a->context, a->provider, a->runtime, a->device, a->err, sizeof a->err);
    shared *s = a->shared;
    pthread_mutex_lock(&s->lock);
    if (rc && !s->rc) {
        s->rc = rc;
        snprintf(s->err, s->err_size, "%s", a->err);
    }
    if (!rc)
        a->mine = s->next++;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void *run_thread(void *run)
{
    run_all *a = run;
    if (open_thread(a) == HCP_RC_OK) {
        run_level(a);
        cf_close(&a->context);
    }
    return NULL;
}

static int thread_count(int level)
{
    long cores = level & HCP_CONFORMANCE_THREADS ? sysconf(_SC_NPROCESSORS_ONLN) : 1;
    return cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : (int)cores;
}

int hcp_conformance_run(const hcp_provider *provider, const hcp_runtime *runtime,
                        const hcp_device_ref *device, int level,
                        hcp_conformance_fn report, void *user,
                        hcp_conformance_summary *out, char *err, size_t err_size)
{
    shared s = {.lock = PTHREAD_MUTEX_INITIALIZER,
                .report = report,
                .user = user,
                .summary = out,
                .err = err,
                .err_size = err_size};
    run_all thread[MAX_THREADS], *own = &thread[0];
    pthread_t id[MAX_THREADS];
    int n = 1;
    *out = (hcp_conformance_summary){0};
    for (int i = 0; i < MAX_THREADS; i++)
        thread[i] = (run_all){.shared = &s,
                              .provider = provider,
                              .runtime = runtime,
                              .device = device,
                              .level = level};
    /* A thread that cannot be had is done without. */
    while (n < thread_count(level) &&
           pthread_create(&id[n], NULL, run_thread, &thread[n]) == 0)
        n++;
    int opened = open_thread(own) == HCP_RC_OK;
    if (opened)
        run_level(own);
    for (int i = 1; i < n; i++)
        pthread_join(id[i], NULL);
    if (!s.rc && level & HCP_CONFORMANCE_HUGE)
        run_huge(own);
    if (opened)
        cf_close(&own->context);
    pthread_mutex_destroy(&s.lock);
    free(s.results);
    return s.rc;
}

int hcp_conformance_problem(const hcp_provider *provider, const hcp_runtime *runtime,
                            const hcp_device_ref *device, const hcp_attn_problem *problem,
                            hcp_conformance_case *out, char *err, size_t err_size)
{
    cf_context c;
    cf_spec spec = {.problem = *problem};
    int rc = cf_open(&c, provider, runtime, device, err, err_size);
    if (rc)
        return rc;
    rc = cf_run_case(&c, &spec, out);
    cf_close(&c);
    return rc;
}
