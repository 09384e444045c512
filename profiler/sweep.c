/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/sweep.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "kernels/geometry.h"

static int add_len(int64_t **lens, size_t *n, int64_t len)
{
    size_t i = 0;
    while (i < *n && (*lens)[i] < len)
        i++;
    if (i < *n && (*lens)[i] == len)
        return 0;
    int64_t *more = realloc(*lens, (*n + 1) * sizeof **lens);
    if (!more)
        return -1;
    memmove(more + i + 1, more + i, (*n - i) * sizeof *more);
    more[i] = len;
    *lens = more;
    ++*n;
    return 0;
}

int hcp_grid_preset(int64_t lowest, int64_t max_len, enum hcp_half_steps half_steps,
                    struct hcp_grid *out, struct hcp_err *err)
{
    struct hcp_grid g = {0};
    int bad = 0;
    for (int64_t len = lowest; len < max_len && !bad; len *= 2) {
        bad = add_len(&g.q, &g.n_q, len) || add_len(&g.kv, &g.n_kv, len) ||
              add_len(&g.causal, &g.n_causal, len);
        int64_t half = len + len / 2;
        if (half >= max_len || half_steps == HCP_HALF_NONE)
            continue;
        if (half_steps == HCP_HALF_ALL)
            bad = bad || add_len(&g.q, &g.n_q, half) || add_len(&g.kv, &g.n_kv, half) ||
                  add_len(&g.causal, &g.n_causal, half);
        else if (len >= 256 && len < 2048)
            bad = bad || add_len(&g.q, &g.n_q, half);
    }
    bad = bad || add_len(&g.q, &g.n_q, max_len) || add_len(&g.kv, &g.n_kv, max_len) ||
          add_len(&g.causal, &g.n_causal, max_len);
    if (bad) {
        hcp_grid_free(&g);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    *out = g;
    return HCP_OK;
}

int hcp_grid_lens(const char *text, const char *option, int64_t **lens, size_t *n,
                  struct hcp_err *err)
{
    int64_t *list = NULL;
    size_t count = 0;
    if (strcmp(text, "none") != 0) {
        for (const char *at = text;; at++) {
            char item[32];
            size_t len = strcspn(at, ",");
            int64_t value;
            struct hcp_err why;
            snprintf(item, sizeof item, "%.*s",
                     (int)(len < sizeof item ? len : sizeof item - 1), at);
            if (hcp_parse_len(item, 1, &value, &why) != HCP_OK) {
                free(list);
                return hcp_fail(err, HCP_USAGE, "%s: %s", option, why.text);
            }
            if (add_len(&list, &count, value) != 0) {
                free(list);
                return hcp_fail(err, HCP_FAILED, "out of memory");
            }
            at += len;
            if (!*at)
                break;
        }
    }
    free(*lens);
    *lens = list;
    *n = count;
    return HCP_OK;
}

void hcp_grid_free(struct hcp_grid *grid)
{
    free(grid->q);
    free(grid->kv);
    free(grid->causal);
    free(grid->batches);
    *grid = (struct hcp_grid){0};
}

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t x = (*state += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void hcp_shuffle(void *items, size_t n, size_t size, uint64_t seed)
{
    char *at = items, tmp[256];
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)(next_random(&seed) % i);
        if (j == i - 1)
            continue;
        memcpy(tmp, at + j * size, size);
        memcpy(at + j * size, at + (i - 1) * size, size);
        memcpy(at + (i - 1) * size, tmp, size);
    }
}

static int is_coarse(size_t i, size_t n)
{
    return (n - 1 - i) % 2 == 0;
}

int hcp_sweep_cells(const struct hcp_grid *grid, uint64_t seed,
                    struct hcp_sweep_cell **out, size_t *n, struct hcp_err *err)
{
    size_t one = grid->n_q * grid->n_kv + grid->n_causal;
    size_t batches = grid->n_batches > 0 ? grid->n_batches : 1;
    size_t total = one * batches, coarse = 0, fine = total;
    struct hcp_sweep_cell *cells = calloc(total + 1, sizeof *cells);
    if (!cells)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t k = 0; k < total; k++) {
        struct hcp_sweep_cell c = {.seqs = 1};
        size_t i = k % one, batch = k / one;
        if (i < grid->n_causal) {
            c.causal = 1;
            c.q_len = c.kv_len = grid->causal[i];
            c.coarse = is_coarse(i, grid->n_causal);
        } else {
            size_t iq = (i - grid->n_causal) / grid->n_kv,
                   ik = (i - grid->n_causal) % grid->n_kv;
            c.q_len = grid->q[iq];
            c.kv_len = grid->kv[ik];
            c.coarse = is_coarse(iq, grid->n_q) && is_coarse(ik, grid->n_kv);
        }
        if (grid->n_batches > 0) {
            c.seqs = (int32_t)grid->batches[batch];
            c.coarse = c.coarse && is_coarse(batch, batches);
        }
        cells[c.coarse ? coarse++ : --fine] = c;
    }
    hcp_shuffle(cells, coarse, sizeof *cells, seed);
    hcp_shuffle(cells + coarse, total - coarse, sizeof *cells, seed + 1);
    *out = cells;
    *n = total;
    return HCP_OK;
}

int hcp_sweep_linear(const int64_t (*products)[2], size_t n_products,
                     const int64_t *tokens, size_t n_tokens, uint64_t seed,
                     struct hcp_sweep_cell **out, size_t *n, struct hcp_err *err)
{
    struct hcp_sweep_cell *cells = calloc(n_products * n_tokens + 1, sizeof *cells);
    size_t total = 0;
    if (!cells)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (int fine = 0; fine < 2; fine++) {
        size_t first = total;
        for (size_t i = 0; i < n_products; i++) {
            int twice = 0;
            for (size_t k = 0; k < i; k++)
                twice |=
                    products[k][0] == products[i][0] && products[k][1] == products[i][1];
            for (size_t k = 0; k < n_tokens && !twice; k++)
                if (is_coarse(k, n_tokens) != fine)
                    cells[total++] = (struct hcp_sweep_cell){.q_len = tokens[k],
                                                             .n_in = products[i][0],
                                                             .n_out = products[i][1],
                                                             .coarse = !fine,
                                                             .seqs = 1};
        }
        hcp_shuffle(cells + first, total - first, sizeof *cells, seed + (uint64_t)fine);
    }
    *out = cells;
    *n = total;
    return HCP_OK;
}

int hcp_linear_tokens(int64_t max_len, enum hcp_half_steps half_steps, int64_t **tokens,
                      size_t *n, struct hcp_err *err)
{
    int64_t *list = NULL;
    size_t count = 0;
    int bad = 0;
    for (int64_t len = 1; len < max_len && !bad; len *= 2) {
        int64_t half = len + len / 2;
        int between = half_steps == HCP_HALF_ALL     ? len >= 8
                      : half_steps == HCP_HALF_WAVES ? len >= 128 && len < 2048
                                                     : 0;
        bad = add_len(&list, &count, len) ||
              (between && half < max_len && add_len(&list, &count, half));
    }
    if (bad || add_len(&list, &count, max_len)) {
        free(list);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    *tokens = list;
    *n = count;
    return HCP_OK;
}

/* The cell of a mask nearest to a place, by octaves. */
static struct hcp_sweep_cell *nearest(struct hcp_sweep_cell *cells, size_t n, int causal,
                                      double q_len, double kv_len)
{
    struct hcp_sweep_cell *best = NULL;
    double least = INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (cells[i].finish || cells[i].causal != causal)
            continue;
        double dq = log((double)cells[i].q_len / q_len),
               dkv = log((double)cells[i].kv_len / kv_len), off = dq * dq + dkv * dkv;
        if (off < least) {
            least = off;
            best = &cells[i];
        }
    }
    return best;
}

void hcp_sweep_start(struct hcp_sweep_cell *cells, size_t n)
{
    enum { FEW_SQUARES = 5, FEW_RECTANGLES = 24, STEPS = HCP_START_LENS - 1 };
    for (int causal = 0; causal < 2; causal++) {
        double q[2] = {INFINITY, 0}, kv[2] = {INFINITY, 0};
        int count = 0, few = causal ? FEW_SQUARES : FEW_RECTANGLES;
        for (size_t i = 0; i < n; i++) {
            struct hcp_sweep_cell *c = &cells[i];
            if (c->finish || c->causal != causal)
                continue;
            c->wanted = c->batch = 0;
            count++;
            q[0] = fmin(q[0], (double)c->q_len), q[1] = fmax(q[1], (double)c->q_len);
            kv[0] = fmin(kv[0], (double)c->kv_len),
            kv[1] = fmax(kv[1], (double)c->kv_len);
        }
        for (size_t i = 0; i < n && count <= few; i++)
            if (!cells[i].finish && cells[i].causal == causal)
                cells[i].wanted = 1;
        for (int a = 0; a <= STEPS && count > few; a++)
            for (int b = causal ? a : 0; b <= (causal ? a : STEPS); b++)
                nearest(cells, n, causal, q[0] * pow(q[1] / q[0], (double)a / STEPS),
                        kv[0] * pow(kv[1] / kv[0], (double)b / STEPS))
                    ->wanted = 1;
        for (size_t i = 0; i < n && count > few && !causal; i++)
            if (!cells[i].finish && !cells[i].causal && cells[i].q_len <= HCP_FEW_WAVES)
                nearest(cells, n, 0, (double)cells[i].q_len, kv[1])->wanted = 1;
    }
}

const char *hcp_finish_name(enum hcp_finish_kind kind)
{
    return kind == HCP_FINISH_STORE ? "store" : kind == HCP_FINISH_MERGE ? "merge" : "";
}

size_t hcp_finish_lens(int64_t longest, int64_t lens[HCP_FINISH_LENS])
{
    int64_t all[64];
    size_t n = 0, kept = 0;
    for (int64_t len = 512; len < longest && n < 62; len *= 2)
        all[n++] = len;
    if (n == 0 && longest >= 4)
        all[n++] = longest / 4;
    all[n++] = longest;
    size_t want = n < HCP_FINISH_LENS ? n : HCP_FINISH_LENS;
    for (size_t i = 0; i < want; i++) /* first and last always, the rest evenly */
        lens[kept++] = all[want == 1 ? 0 : (i * (n - 1) + (want - 1) / 2) / (want - 1)];
    return kept;
}

/* Those of one batch, before what there is. */
static int add_finishes(struct hcp_sweep_cell **cells, size_t *n, unsigned kinds,
                        int32_t seqs, int64_t longest, struct hcp_err *err)
{
    int64_t lens[HCP_FINISH_LENS];
    size_t finishes = 0, n_lens = hcp_finish_lens(longest, lens);
    struct hcp_sweep_cell made[2 * HCP_FINISH_LENS];
    for (int kind = HCP_FINISH_STORE; kind <= HCP_FINISH_MERGE; kind++)
        for (size_t i = 0; i < n_lens && kinds & 1u << kind; i++)
            made[finishes++] =
                (struct hcp_sweep_cell){.finish = kind, .q_len = lens[i], .seqs = seqs};
    if (finishes == 0)
        return HCP_OK;
    struct hcp_sweep_cell *all = realloc(*cells, (*n + finishes) * sizeof *all);
    if (!all)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    memmove(all + finishes, all, *n * sizeof *all);
    memcpy(all, made, finishes * sizeof *all);
    *cells = all;
    *n += finishes;
    return HCP_OK;
}

int hcp_sweep_add_finishes(struct hcp_sweep_cell **cells, size_t *n, unsigned kinds,
                           struct hcp_err *err)
{
    struct hcp_sweep_cell *all = *cells;
    size_t blocks = 0;
    for (size_t i = 0; i < *n; i++)
        if (!all[i].finish)
            all[blocks++] = all[i];
    *n = blocks;
    int rc = HCP_OK;
    for (size_t i = 0; i < blocks && kinds && rc == HCP_OK; i++) {
        /* The blocks stay the last ones, whatever is put before them. */
        const struct hcp_sweep_cell *block = *cells + (*n - blocks);
        int32_t seqs = block[i].seqs;
        int64_t longest = 0;
        int done = 0;
        for (size_t k = 0; k < blocks; k++) {
            done |= k < i && block[k].seqs == seqs;
            if (block[k].seqs == seqs && block[k].q_len > longest)
                longest = block[k].q_len;
        }
        if (!done)
            rc = add_finishes(cells, n, kinds, seqs, longest, err);
    }
    return rc;
}

double hcp_cell_area(int causal, int64_t q_len, int64_t kv_len)
{
    return (double)hcp_block_area(causal ? HCP_MASK_CAUSAL : HCP_MASK_FULL, q_len, kv_len,
                                  kv_len - q_len);
}

double hcp_cell_work(const struct hcp_sweep_cell *c)
{
    if (c->n_out > 0)
        return (double)c->q_len * (double)c->n_in * (double)c->n_out;
    return hcp_cell_area(c->causal, c->q_len, c->kv_len) * (c->seqs > 1 ? c->seqs : 1);
}

void hcp_estimate_init(struct hcp_estimate *e, double guess_ms, double guess_per_pair)
{
    *e = (struct hcp_estimate){.guess_ms = guess_ms, .guess_per_pair = guess_per_pair};
}

void hcp_estimate_free(struct hcp_estimate *e)
{
    free(e->points);
    *e = (struct hcp_estimate){0};
}

void hcp_estimate_add(struct hcp_estimate *e, double area, double ms)
{
    if (e->n == e->room) {
        size_t room = e->room ? 2 * e->room : 64;
        struct hcp_estimate_point *more = realloc(e->points, room * sizeof *more);
        if (!more)
            return; /* one point less: estimates stay upper guesses */
        e->points = more;
        e->room = room;
    }
    size_t i = e->n++;
    for (; i > 0 && e->points[i - 1].area > area; i--)
        e->points[i] = e->points[i - 1];
    e->points[i] = (struct hcp_estimate_point){area, ms};
}

double hcp_estimate_ms(const struct hcp_estimate *e, double area)
{
    double best = INFINITY;
    for (size_t i = 0; i < e->n; i++) {
        const struct hcp_estimate_point *p = &e->points[i];
        best = fmin(best, p->area >= area ? p->ms : p->ms * area / p->area);
    }
    return e->n > 0 ? best : e->guess_ms + e->guess_per_pair * area;
}

int hcp_cost_visits(const struct hcp_cost *cost, double sample_ms)
{
    return sample_ms >= HCP_SLOW_MS ? 1 : cost->visits;
}

double hcp_cost_s(const struct hcp_cost *cost, double sample_ms)
{
    double one = sample_ms / 1e3, visits = hcp_cost_visits(cost, sample_ms);
    double warm = visits * fmax(cost->warmup_s, one);
    double want = fmax(cost->min_time_s, cost->min_samples * one);
    double few = visits * ceil(cost->few_samples / visits);
    if (want > cost->cap_s)
        want = fmax(cost->cap_s, few * one);
    return cost->overhead_s + warm + want;
}
