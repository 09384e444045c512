/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#if defined __x86_64__ && defined __GNUC__
#include <immintrin.h>
#endif
#include "planner/plan.h"

/* The recurrence of ring.c, step by step for many ranks at a time: whole blocks, no
 * barrier, links that do not differ, and blocks that travel the whole way round, or
 * (falling: contiguous under a causal mask) up to the last rank, so that rank i has work
 * in steps 1 .. i alone.
 *
 * The loops are written for the vectoriser, and compiled for each kind of vector
 * registers that it knows of here; which of them a processor has is asked at run time.
 */
#if defined __GNUC__ && !defined __clang__
#define LANES_OPTIMISE __attribute__((optimize("O3")))
#else
#define LANES_OPTIMISE /* clang vectorises anyway */
#endif

#define LANES(name) name##_base
#define LANES_TARGET LANES_OPTIMISE
#include "planner/ring-lanes.h"

#if defined __x86_64__ && defined __GNUC__
#define LANES(name) name##_avx2
#define LANES_TARGET LANES_OPTIMISE __attribute__((target("avx2")))
#include "planner/ring-lanes.h"

#define LANES(name) name##_avx512
#if defined __clang__
#define LANES_TARGET __attribute__((target("avx512f"), min_vector_width(512)))
#else
#define LANES_TARGET                                                                     \
    LANES_OPTIMISE __attribute__((target("avx512f,prefer-vector-width=512")))
#endif
#include "planner/ring-lanes.h"

const struct ring_lanes *ring_lanes_here(void)
{
    if (__builtin_cpu_supports("avx512f"))
        return &lanes_avx512;
    return __builtin_cpu_supports("avx2") ? &lanes_avx2 : &lanes_base;
}
#else
const struct ring_lanes *ring_lanes_here(void)
{
    return &lanes_base;
}
#endif

/* Rows at the first rank of a range. ready[-1] and passed[n - 1] are there, too. */
struct span {
    const double *ready, *freed, *passed, *before;
    double *ready_next, *fin;
};

static struct span span_at(const struct span *row, ptrdiff_t x)
{
    return (struct span){row->ready + x,  row->freed + x,      row->passed + x,
                         row->before + x, row->ready_next + x, row->fin + x};
}

struct wide {
    const struct ring_input *in;
    struct ring_arrays *arrays;
    const struct ring_lanes *lanes;
    int falling;
    double *fin; /* [m] out; falling: each rank's when it has done its last step */
};

/* Transfer of the KV of rank j into rank i. */
static double send_ms(const struct ring_input *in, int32_t i, int32_t j)
{
    if (!in->into)
        return in->send_ms[j];
    return in->into[i].alpha_ms + in->into[i].token_ms * (double)in->len[j];
}

/* Ranks i .. i + n - 1 of a step, whose KV is that of ranks j, j + 1, ... */
static void advance_from(const struct wide *w, int32_t i, int32_t j, int32_t n,
                         struct span s)
{
    const struct ring_input *in = w->in;
    const double *table = j < i ? in->early : in->late;
    const int32_t *cls = in->cls;
    double *ms = w->arrays->step_ms;

    if (!in->ask && !in->into && (in->runs == 0 || in->runs * 8 > in->m)) {
        w->lanes->classed(n, s.ready, s.freed, s.passed, s.before, in->send_ms + j, table,
                          in->stride, cls + i, cls + j, s.ready_next, s.fin);
        return;
    }
    if (in->ask || in->runs == 0 || in->runs * 8 > in->m) {
        if (in->ask)
            for (int32_t x = 0; x < n; x++)
                ms[x] = in->ask(in->ask_ctx, i + x, j + x);
        else
            w->lanes->look_up(n, table, in->stride, cls + i, cls + j, ms);
        if (in->into)
            w->lanes->link(n, in->link_alpha + i, in->link_token + i, in->sent + j,
                           w->arrays->step_send);
        w->lanes->any(n, s.ready, s.freed, s.passed, s.before,
                      in->into ? w->arrays->step_send : in->send_ms + j, ms,
                      s.ready_next, s.fin);
        return;
    }
    while (n > 0) { /* long runs of equal ranks */
        int32_t run = in->run_end[i] - i, theirs = in->run_end[j] - j;
        double block;

        run = run < theirs ? run : theirs;
        run = run < n ? run : n;
        block = table[(size_t)cls[i] * (size_t)in->stride + (size_t)cls[j]];
        if (in->into)
            w->lanes->equal_linked(run, s.ready, s.freed, s.passed, s.before,
                                   in->link_alpha + i, in->link_token + i, in->sent[j],
                                   block, s.ready_next, s.fin);
        else
            w->lanes->equal(run, s.ready, s.freed, s.passed, s.before, in->send_ms[j],
                            block, s.ready_next, s.fin);
        s = span_at(&s, run);
        i += run;
        j += run;
        n -= run;
    }
}

/* The rows of step k: pointers at rank 0, or what stands for it; pitch: from one row to
 * the next. Block k - buffers was in the row that is used next. Without a condition:
 * times that are not later than others. */
static struct span rows_of(const struct ring_input *in, double *ready, double *history,
                           size_t pitch, int32_t k)
{
    int32_t n_ready = in->buffers > 2 ? in->buffers : 2, at_ready = k % n_ready;
    int32_t n_fin = in->buffers > 0 ? in->buffers + 1 : 2, at_fin = k % n_fin;
    double *ready_now = ready + (size_t)at_ready * pitch;
    double *fin_now = history + (size_t)at_fin * pitch;
    struct span s = {.ready_next = ready_now, .fin = fin_now};

    s.ready = at_ready > 0 ? ready_now - pitch : ready + (size_t)(n_ready - 1) * pitch;
    s.before = at_fin > 0 ? fin_now - pitch : history + (size_t)(n_fin - 1) * pitch;
    s.freed = s.passed = s.ready;
    if (in->buffers > 0 && k > in->buffers) {
        s.freed = s.passed = at_fin + 1 < n_fin ? fin_now + pitch : history;
        if (in->buffers > 1)
            s.passed = 1 + (at_ready + 1 < n_ready ? ready_now + pitch : ready);
    }
    return s;
}

/* Positions from .. to - 1 of a step, which go on from rank m - 1 to rank 0 and below
 * rank 0 to rank m - 1; row: at position `at`. */
static void advance_range(const struct wide *w, int32_t k, int32_t from, int32_t to,
                          const struct span *row, int32_t at)
{
    int32_t m = w->in->m;

    while (from < to) {
        int32_t i = from < 0 ? from + m : from >= m ? from - m : from;
        int32_t j = i >= k ? i - k : i - k + m;
        int32_t n = (i >= k ? m : k) - i; /* up to where i or j begins again */

        n = n < to - from ? n : to - from;
        advance_from(w, i, j, n, span_at(row, from - at));
        from += n;
    }
}

/* ---- all ranks step by step ---- */

enum { FEW = 12, MANY = 1280 };

static void run_steps(const struct wide *w)
{
    const struct ring_input *in = w->in;
    int32_t m = in->m;
    size_t pitch = ring_pitch(m);
    double *ready = w->arrays->ready + RING_LEAD,
           *history = w->arrays->history + RING_LEAD;

    for (int32_t k = 1; k < m; k++) {
        struct span s = rows_of(in, ready, history, pitch, k);

        advance_range(w, k, w->falling ? k : 0, m, &s, 0);
        s.ready_next[-1] = s.ready_next[m - 1];
        s.ready_next[m] = w->falling ? 0 : s.ready_next[0];
        if (w->falling)
            w->fin[k] = s.fin[k];
    }
}

/* A few ranks: without what it takes to begin a loop over vectors. */
static void run_few(const struct wide *w)
{
    const struct ring_input *in = w->in;
    int32_t m = in->m;
    size_t pitch = ring_pitch(m), stride = (size_t)in->stride;
    double *ready = w->arrays->ready + RING_LEAD,
           *history = w->arrays->history + RING_LEAD;

    for (int32_t k = 1; k < m; k++) {
        struct span s = rows_of(in, ready, history, pitch, k);

        for (int32_t i = w->falling ? k : 0; i < m; i++) {
            int32_t j = i >= k ? i - k : i - k + m;
            const double *table = i >= k ? in->early : in->late;
            double start = s.ready[i - 1] > s.ready[i] ? s.ready[i - 1] : s.ready[i];
            double buffer = s.freed[i] > s.passed[i] ? s.freed[i] : s.passed[i];

            start = (start > buffer ? start : buffer) + send_ms(in, i, j);
            s.ready_next[i] = start;
            s.fin[i] = (start > s.before[i] ? start : s.before[i]) +
                       table[(size_t)in->cls[i] * stride + (size_t)in->cls[j]];
        }
        s.ready_next[-1] = s.ready_next[m - 1];
        s.ready_next[m] = w->falling ? 0 : s.ready_next[0];
        if (w->falling)
            w->fin[k] = s.fin[k];
    }
}

/* Up to eight ranks, all steps in the registers of one vector. */
#if defined __x86_64__ && defined __GNUC__

enum { EIGHT = 8 };

static int is_eight(const struct ring_input *in)
{
    return in->m > EIGHT / 2 && in->m <= EIGHT && !in->ask && !in->into &&
           in->buffers <= 3 && __builtin_cpu_supports("avx512f");
}

/* blocks: of step k and rank i at k EIGHT + i; send: of rank j at j and m + j. The lanes
 * above the m ranks reach none of these, nor do (falling) ranks that have no work
 * left. */
__attribute__((target("avx512f"))) static void steps_of_eight(const struct wide *w,
                                                              const double *blocks,
                                                              const double *send)
{
    int32_t m = w->in->m, buffers = w->in->buffers;
    double *history = w->arrays->history + RING_LEAD, end[EIGHT * EIGHT];
    __m512i step = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    __m512i one = _mm512_set1_epi64(1), last = _mm512_set1_epi64(m - 1);
    /* rank i - 1 and i + 1, around */
    __m512i behind = _mm512_mask_mov_epi64(_mm512_sub_epi64(step, one), 1, last);
    __m512i ahead = _mm512_add_epi64(step, one);
    __mmask8 inside = (__mmask8)((1u << (m - 1)) - 1);
    __m512d ready = _mm512_loadu_pd(w->arrays->ready + RING_LEAD);
    __m512d fin = _mm512_loadu_pd(history);
    /* of the last steps, the latest first */
    __m512d ready1 = ready, ready2 = ready, fin1 = fin, fin2 = fin, fin3 = fin;

    if (!w->falling) {
        ahead = _mm512_mask_mov_epi64(ahead, (__mmask8)(1u << (m - 1)),
                                      _mm512_setzero_si512());
        inside = 0xff;
    }
    for (int32_t k = 1; k < m; k++) {
        __m512d start = _mm512_max_pd(_mm512_permutexvar_pd(behind, ready), ready);

        ready2 = ready1;
        ready1 = ready;
        fin3 = fin2;
        fin2 = fin1;
        fin1 = fin;
        if (buffers > 0 && k > buffers) { /* as rows_of() */
            __m512d buffer = buffers == 1 ? fin1 : buffers == 2 ? fin2 : fin3;

            if (buffers > 1)
                buffer = _mm512_max_pd(
                    buffer, _mm512_maskz_permutexvar_pd(
                                inside, ahead, buffers == 2 ? ready1 : ready2));
            start = _mm512_max_pd(start, buffer);
        }
        ready = _mm512_add_pd(start, _mm512_loadu_pd(send + (m - k)));
        fin = _mm512_add_pd(_mm512_max_pd(ready, fin),
                            _mm512_loadu_pd(blocks + k * EIGHT));
        _mm512_storeu_pd(end + k * EIGHT, fin);
    }
    for (int32_t k = 1; w->falling && k < m; k++)
        w->fin[k] = end[k * EIGHT + k];
    for (int32_t i = 0; !w->falling && m > 1 && i < m; i++)
        w->fin[i] = end[(m - 1) * EIGHT + i];
    if (m == 1)
        w->fin[0] = history[0];
}

static void run_eight(const struct wide *w)
{
    const struct ring_input *in = w->in;
    double blocks[EIGHT * EIGHT], send[3 * EIGHT];
    int32_t m = in->m;

    if (m < EIGHT || w->falling) { /* else all that is used is set below */
        memset(blocks, 0, sizeof blocks);
        memset(send, 0, sizeof send);
    }
    for (int32_t j = 0; j < m; j++)
        send[j] = send[m + j] = in->send_ms[j];
    for (int32_t i = 0; i < m; i++) {
        const double *early = in->early + (size_t)in->cls[i] * (size_t)in->stride;
        const double *late = in->late + (size_t)in->cls[i] * (size_t)in->stride;

        for (int32_t j = 0; j < i; j++)
            blocks[(i - j) * EIGHT + i] = early[in->cls[j]];
        for (int32_t j = i + 1; j < m; j++)
            blocks[(i - j + m) * EIGHT + i] = late[in->cls[j]];
    }
    steps_of_eight(w, blocks, send);
}
#else
static int is_eight(const struct ring_input *in)
{
    (void)in;
    return 0;
}
static void run_eight(const struct wide *w)
{
    (void)w;
}
#endif

/* ---- a band of steps at a time ----
 *
 * A step reads and writes five rows or more, which for thousands of ranks are far from
 * the processor. So BAND steps are done on some of the ranks before the others follow:
 * those ranks and the BAND ones on either side, on which they depend. One fewer on either
 * side is right after each step; what is done twice comes out the same.
 */
enum { BAND = 48, WIDTH = RING_TILE - 2 * BAND, SETS = 2 };

/* One row's positions from .. to - 1 into out, from rank m - 1 on to rank 0. */
static void load(int32_t m, const double *row, int32_t from, int32_t to, double *out)
{
    while (from < to) {
        int32_t i = from < 0 ? from + m : from >= m ? from - m : from;
        int32_t n = m - i < to - from ? m - i : to - from;

        memcpy(out, row + i, (size_t)n * sizeof *out);
        out += n;
        from += n;
    }
}

/* Steps k .. k + n - 1 of ranks from .. to - 1. */
static void run_tile(const struct wide *w, int32_t k, int32_t n, int32_t from, int32_t to,
                     const double *ready, const double *history, double *ready_out,
                     double *history_out)
{
    const struct ring_input *in = w->in;
    int32_t m = in->m, lo = from - n, hi = to + n;
    int n_ready = in->buffers > 2 ? in->buffers : 2;
    int n_fin = in->buffers > 0 ? in->buffers + 1 : 2;
    size_t pitch = ring_pitch(m), tile_pitch = ring_pitch(RING_TILE);
    double *tile = w->arrays->tile + RING_LEAD, *tile_fin = tile + RING_ROWS * tile_pitch;
    size_t bytes = (size_t)(to - from) * sizeof *tile;

    if (w->falling) {
        lo = lo > 0 ? lo : 0;
        hi = hi < m ? hi : m;
    }
    for (int row = 0; row < n_ready; row++) {
        double *out = tile + (size_t)row * tile_pitch;

        if (row != k % n_ready) /* that one is written next */
            load(m, ready + (size_t)row * pitch, lo, hi, out);
        out[hi - lo] = 0; /* falling: rank m - 1 waits for nobody */
    }
    for (int row = 0; row < n_fin; row++)
        if (row != k % n_fin)
            load(m, history + (size_t)row * pitch, lo, hi,
                 tile_fin + (size_t)row * tile_pitch);
    for (int32_t s = 0; s < n; s++) {
        int32_t step = k + s, a = lo + s + 1, b = hi - s - 1;
        struct span row = rows_of(in, tile, tile_fin, tile_pitch, step);

        if (w->falling) {
            a = lo > 0 && a > step ? a : step;
            b = hi < m ? b : m;
            row.ready_next[hi - lo] = 0;
        }
        advance_range(w, step, a, b, &row, lo);
        if (w->falling && step >= from && step < to)
            w->fin[step] = row.fin[step - lo];
    }
    for (int row = 0; row < n_ready; row++)
        if (row != (k + n) % n_ready)
            memcpy(ready_out + (size_t)row * pitch + from,
                   tile + (size_t)row * tile_pitch + (from - lo), bytes);
    for (int row = 0; row < n_fin; row++)
        if (row != (k + n) % n_fin)
            memcpy(history_out + (size_t)row * pitch + from,
                   tile_fin + (size_t)row * tile_pitch + (from - lo), bytes);
}

static double *run_bands(const struct wide *w)
{
    int32_t m = w->in->m, tiles = (m + WIDTH - 1) / WIDTH,
            width = (m + tiles - 1) / tiles;
    size_t set = (size_t)RING_ROWS * ring_pitch(m);
    double *ready[SETS] = {w->arrays->ready + RING_LEAD,
                           w->arrays->ready + RING_LEAD + set};
    double *history[SETS] = {w->arrays->history + RING_LEAD,
                             w->arrays->history + RING_LEAD + set};
    int now = 0;

    for (int32_t k = 1; k < m; k += BAND) {
        int32_t n = BAND < m - k ? BAND : m - k;

        for (int32_t from = 0; from < m; from += width) {
            int32_t to = from + width < m ? from + width : m;

            if (!w->falling || to > k) /* else all of these are done */
                run_tile(w, k, n, from, to, ready[now], history[now], ready[!now],
                         history[!now]);
        }
        now = !now;
    }
    return history[now];
}

int ring_is_wide(const struct ring_input *in, int *falling)
{
    int full = 1;

    *falling = 1;
    for (int32_t i = 0; i < in->m; i++) {
        full &= in->hops[i] == in->m - 1;
        *falling &= in->hops[i] == in->m - 1 - i;
    }
    return (full || *falling) && (!in->into || !in->busy) && !in->pieces && !in->barrier;
}

double ring_run_wide(const struct ring_input *in, struct ring_arrays *a, int falling,
                     double *fin)
{
    struct wide w = {in, a, ring_lanes_here(), falling, fin};
    int32_t m = in->m;
    size_t n_fin = in->buffers > 0 ? (size_t)in->buffers + 1 : 2;
    double *ready = a->ready + RING_LEAD, *now = a->history + RING_LEAD, makespan = 0;

    for (int32_t i = 0; i < m; i++) {
        ready[i] = in->before ? in->before[i] : 0;
        now[i] = ready[i] + in->own[in->cls[i]];
    }
    if (is_eight(in)) {
        run_eight(&w);
        fin[0] = falling ? now[0] : fin[0];
        for (int32_t i = 0; i < m; i++) {
            if (in->after)
                fin[i] += in->after[i];
            makespan = fin[i] > makespan ? fin[i] : makespan;
        }
        return makespan;
    }
    ready[-1] = ready[m - 1];
    ready[m] = falling ? 0 : ready[0];
    fin[0] = now[0];
    if (m <= MANY || in->buffers >= RING_ROWS) {
        if (m <= FEW && !in->ask)
            run_few(&w);
        else
            run_steps(&w);
        now += (size_t)(m - 1) % n_fin * ring_pitch(m);
    } else {
        now = run_bands(&w) + (size_t)(m - 1) % n_fin * ring_pitch(m);
    }
    for (int32_t i = 0; i < m; i++) {
        if (!falling)
            fin[i] = now[i];
        if (in->after)
            fin[i] += in->after[i];
        makespan = fin[i] > makespan ? fin[i] : makespan;
    }
    return makespan;
}
