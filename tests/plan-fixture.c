/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/plan-fixture.h"

enum { NODES = 10 }; /* 128 .. 64K */

static void die(const char *what)
{
    fprintf(stderr, "plan-fixture: %s\n", what);
    abort();
}

uint64_t fixture_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

int64_t fixture_range(uint64_t *state, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(fixture_random(state) % (uint64_t)(hi - lo + 1));
}

double fixture_real(uint64_t *state, double lo, double hi)
{
    return lo + (hi - lo) * (double)(fixture_random(state) >> 11) / 9007199254740992.0;
}

int fixture_next_order(int32_t *v, size_t n)
{
    size_t i = n - 1, j = n - 1;
    int32_t swap;

    while (i > 0 && v[i - 1] > v[i])
        i--;
    if (i == 0)
        return 0;
    while (v[j] < v[i - 1])
        j--;
    swap = v[i - 1];
    v[i - 1] = v[j];
    v[j] = swap;
    for (j = n - 1; i < j; i++, j--) {
        swap = v[i];
        v[i] = v[j];
        v[j] = swap;
    }
    return 1;
}

double fixture_scale(void)
{
    const char *text = getenv("HCP_TEST_SCALE");
    double scale = text ? strtod(text, NULL) : 1;

    return scale > 0 ? scale : 1;
}

/* Kinks, then made to rise strictly along both axes, as a fit guarantees. */
static void bump(double ms[NODES][NODES], double square[NODES], uint64_t seed)
{
    for (int i = 0; i < NODES; i++) {
        for (int j = 0; j < NODES; j++) {
            if (seed)
                ms[i][j] *= fixture_real(&seed, 1, 1.4);
            if (i > 0)
                ms[i][j] = fmax(ms[i][j], ms[i - 1][j] * 1.001);
            if (j > 0)
                ms[i][j] = fmax(ms[i][j], ms[i][j - 1] * 1.001);
        }
        if (seed)
            square[i] *= fixture_real(&seed, 1, 1.4);
        if (i > 0)
            square[i] = fmax(square[i], square[i - 1] * 1.001);
    }
}

static struct stored_model make(const struct fixture *f, const char *kind)
{
    static double axis[NODES], ms[NODES][NODES], known[NODES][NODES], square[NODES];
    double shape[7] = {(double)f->tile, (double)f->tile, 32, 0, 1, 0, 0};
    double hull[6] = {1, 65536, 1, 65536, 1, 65536};
    double error[3] = {1e9, f->error, f->error};
    double finish[4] = {f->finish[0], f->finish[1], f->finish[2], f->finish[3]};
    double full[8] = {f->f, f->a, f->b, f->c}, half[6] = {f->f, f->a / 2, f->b + f->c};
    struct hcp_named_array lut[] = {{"shape", 7, shape},
                                    {"hull", 6, hull},
                                    {"error", 3, error},
                                    {"q", NODES, axis},
                                    {"kv", NODES, axis},
                                    {"ms", NODES * NODES, &ms[0][0]},
                                    {"known", NODES * NODES, &known[0][0]},
                                    {"s", NODES, axis},
                                    {"s_ms", NODES, square},
                                    {"finish", 4, finish}};
    struct hcp_named_array poly[] = {{"shape", 7, shape}, {"hull", 6, hull},
                                     {"error", 3, error}, {"full", 8, full},
                                     {"square", 6, half}, {"finish", 4, finish}};
    struct hcp_model_row row = {.format = 1, .holdout_cells = 100};
    struct stored_model out = {NULL, 0, 0};
    struct hcp_err err;
    int is_lut = strcmp(kind, "lut") == 0;
    size_t n = (is_lut ? 9 : 5) + (f->finish[0] + f->finish[2] > 0); /* or no array */

    for (int i = 0; i < NODES; i++) {
        double q = axis[i] = 128 << i;

        square[i] = f->a * q * q / 2 + (f->b + f->c) * q + f->f;
        for (int j = 0; j < NODES; j++) {
            double kv = 128 << j;

            ms[i][j] = f->a * q * kv + f->b * q + f->c * kv + f->f;
            known[i][j] = 1;
        }
    }
    bump(ms, square, f->bumps);
    snprintf(row.key.device, sizeof row.key.device, "%s", f->device);
    snprintf(row.key.limit, sizeof row.key.limit, "%s", f->limit ? f->limit : "");
    snprintf(row.key.provider, sizeof row.key.provider, "%s",
             f->provider ? f->provider : "cudnn");
    strcpy(row.key.dtype, "bf16");
    strcpy(row.key.phase, "prefill");
    row.key.batch = 1;
    row.key.heads = 32;
    row.key.kv_heads = 8;
    row.key.head_dim = 128;
    snprintf(row.kind, sizeof row.kind, "%s", kind);
    row.holdout_median = row.holdout_p90 = is_lut ? f->error : 2 * f->error;
    if (hcp_model_create(&row, is_lut ? lut : poly, n, &out.model, &err))
        die(err.text);
    out.hash = UINT64_C(0x1234567) * (uint64_t)(f->a * 1e18) + (uint64_t)is_lut;
    return out;
}

hcp_models *fixture_models(const struct fixture *fixtures, size_t n)
{
    hcp_models *models = calloc(1, sizeof *models);

    if (!models || !(models->stored = calloc(2 * n, sizeof *models->stored)))
        die("out of memory");
    strcpy(models->path, "test.db");
    for (size_t i = 0; i < n; i++) {
        if (fixtures[i].lut)
            models->stored[models->n_stored++] = make(&fixtures[i], "lut");
        if (fixtures[i].poly)
            models->stored[models->n_stored++] = make(&fixtures[i], "poly");
    }
    return models;
}

void fixture_free(hcp_models *models)
{
    hcp_models_free(models);
}

hcp_ring *fixture_ring(const hcp_models *models, const struct fixture *fixtures,
                       const int *which, const int64_t *caps, size_t n)
{
    hcp_rank *ranks = calloc(n, sizeof *ranks);
    hcp_shape shape;
    hcp_ring *ring = NULL;
    char text[512];

    if (!ranks)
        die("out of memory");
    for (size_t r = 0; r < n; r++) {
        const struct fixture *f = &fixtures[which[r]];

        hcp_rank_init(&ranks[r]);
        snprintf(ranks[r].device, sizeof ranks[r].device, "%s", f->device);
        snprintf(ranks[r].limit, sizeof ranks[r].limit, "%s", f->limit ? f->limit : "");
        ranks[r].max_tokens = caps ? caps[r] : 0;
    }
    hcp_shape_init(&shape);
    if (hcp_ring_create(models, &shape, ranks, n, NULL, text, sizeof text, &ring))
        die(text);
    free(ranks);
    return ring;
}

void fixture_plan_init(struct fixture_plan *p, size_t n)
{
    size_t m = hcp_segments_max(n, HCP_LAYOUT_AUTO, 16);
    hcp_plan_rank *ranks = calloc(n, sizeof *ranks);
    hcp_segment *segments = calloc(m, sizeof *segments);

    p->workspace_bytes = hcp_workspace_bytes(n);
    p->workspace = malloc(p->workspace_bytes);
    if (!ranks || !segments || !p->workspace)
        die("out of memory");
    hcp_plan_init(&p->plan, ranks, n, segments, m);
}

void fixture_plan_free(struct fixture_plan *p)
{
    free(p->plan.ranks);
    free(p->plan.segments);
    free(p->workspace);
}

void fixture_places_init(struct fixture_plan *p, size_t n)
{
    fixture_plan_init(p, n);
    p->plan.places = calloc(n, sizeof *p->plan.places);
    if (!p->plan.places)
        die("out of memory");
}

void fixture_places_free(struct fixture_plan *p)
{
    free(p->plan.places);
    fixture_plan_free(p);
}

hcp_ring *fixture_ring_of(const hcp_models *models, const hcp_rank *ranks, size_t n)
{
    hcp_shape shape;
    hcp_ring *ring = NULL;
    char text[512] = "";

    hcp_shape_init(&shape);
    if (hcp_ring_create(models, &shape, ranks, n, NULL, text, sizeof text, &ring))
        die(text);
    return ring;
}

hcp_status fixture_split(const hcp_ring *ring, const hcp_question *question,
                         struct fixture_plan *p, char *text, size_t text_size)
{
    return hcp_plan_split(ring, question, p->workspace, p->workspace_bytes, text,
                          text_size, &p->plan);
}

int fixture_times(int n)
{
    int scaled = (int)(n * fixture_scale());

    return scaled > 0 ? scaled : 1;
}

void fixture_random_kind(struct fixture *f, int i, int64_t tile, uint64_t *seed)
{
    static const char *const names[] = {"d0", "d1", "d2", "d3"};
    double speed = fixture_real(seed, 0.05, 1);

    *f = (struct fixture){.device = names[i], .tile = tile, .error = 0.02};
    f->a = 2e-8 / speed;
    f->b = fixture_range(seed, 0, 1) ? fixture_real(seed, 0, 4e-5) / speed : 0;
    f->c = fixture_range(seed, 0, 1) ? fixture_real(seed, 0, 4e-5) : 0;
    f->f = fixture_range(seed, 0, 2) ? fixture_real(seed, 0.001, 0.3) : 1e-6;
    if (fixture_range(seed, 0, 3) == 0)
        for (int k = 0; k < 4; k++)
            f->finish[k] = fixture_real(seed, 0, k % 2 ? 1e-5 : 0.1);
    f->lut = (int)fixture_range(seed, 0, 1);
    f->poly = !f->lut || fixture_range(seed, 0, 3) == 0;
    f->bumps = f->lut && fixture_range(seed, 0, 1) ? fixture_random(seed) | 1 : 0;
}

void fixture_kinds(struct fixture *kinds, int n, uint64_t *seed)
{
    static const char *const names[] = {"d0", "d1", "d2", "d3"};

    for (int i = 0; i < n; i++) {
        double speed = fixture_range(seed, 0, 2) ? fixture_real(seed, 0.1, 1) : 1;

        kinds[i] = (struct fixture){.device = names[i],
                                    .a = 2e-8 / speed,
                                    .b = fixture_real(seed, 0, 1e-5),
                                    .c = fixture_real(seed, 0, 2e-6),
                                    .f = fixture_real(seed, 0, 0.01),
                                    .tile = 128,
                                    .lut = 1,
                                    .error = 0.02};
        if (fixture_range(seed, 0, 1))
            kinds[i].bumps = fixture_random(seed) | 1;
        if (fixture_range(seed, 0, 2) == 0)
            for (int k = 0; k < 4; k++)
                kinds[i].finish[k] = fixture_real(seed, 0, k % 2 ? 1e-6 : 0.01);
    }
}

void fixture_random_question(hcp_question *q, int64_t most, int64_t tile, uint64_t *seed)
{
    hcp_question_init(q);
    q->seq_len = fixture_range(seed, 1, most * tile);
    if (fixture_range(seed, 0, 2) == 0)
        q->seq_len = fixture_range(seed, 1, most) * tile;
    q->causal = (int32_t)fixture_range(seed, 0, 3) > 0;
    q->layout =
        (hcp_layout)fixture_range(seed, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);
    q->stripes = (int32_t)fixture_range(seed, 1, 9);
    q->buffers = (int32_t)fixture_range(seed, 0, 3);
    q->barrier = fixture_range(seed, 0, 4) == 0;
    if (fixture_range(seed, 0, 1)) {
        q->link_alpha_us = fixture_real(seed, 0, 300);
        q->link_gbps = fixture_real(seed, 0.5, 50);
    }
    q->extrapolate = 1;
}
