/* SPDX-License-Identifier: Apache-2.0
 *
 * Made-up GPUs for the tests of data sheets: one that was measured, in a database of a
 * folder of the program's own, and the sheets of it and of another.
 */
#ifndef SPECS_FIXTURE_H
#define SPECS_FIXTURE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "planner/specs.h"
#include "tests/plan-fixture.h"
#include "tests/specs-reference.h"

enum { NODES = 7, GPUS = 240 };

/* One made-up kin with its sheet, and a sheet that nobody measured. */
struct gpu {
    struct ref_shape shape;
    struct ref_device kin, target;
    char limit[32]; /* of both */
    int poly;       /* else a table */
    double q[NODES], kv[NODES], ms[NODES * NODES], s_ms[NODES], full[8], square[6];
    double finish[4], error;
};

static char folder[] = "/tmp/hcp-specs-XXXXXX";

static inline const char *in_folder(const char *name)
{
    static char path[2][256];
    static int at;

    at = !at;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    static const char *const names[] = {"kin.db", "twin.db", "specs.txt", "empty.db"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        remove(in_folder(names[i]));
    return rmdir(folder);
}

/* ---- made-up devices ---- */

static inline void rise(double *v, double below)
{
    if (*v < below * 1.001)
        *v = below * 1.001;
}

static inline void fill_times(struct gpu *g, uint64_t *seed)
{
    double a = fixture_real(seed, 1e-9, 5e-8), b = fixture_real(seed, 0, 1e-5);
    double c = fixture_real(seed, 0, 1e-5), f = fixture_real(seed, 0.001, 0.05);
    int one = g->shape.decode;

    for (int i = 0; i < NODES; i++) {
        g->q[i] = one ? 1 : 128 << i;
        g->kv[i] = 512 << i;
    }
    for (int i = 0; i < NODES; i++) {
        for (int j = 0; j < NODES; j++) {
            double *t = &g->ms[i * NODES + j];

            *t = (a * g->q[i] * g->kv[j] + b * g->q[i] + c * g->kv[j] + f) *
                 fixture_real(seed, 1, 1.3);
            if (i > 0)
                rise(t, t[-NODES]);
            if (j > 0)
                rise(t, t[-1]);
        }
        g->s_ms[i] = (a * g->q[i] * g->q[i] / 2 + (b + c) * g->q[i] + f) *
                     fixture_real(seed, 1, 1.3);
        if (i > 0)
            rise(&g->s_ms[i], g->s_ms[i - 1]);
    }
    for (int i = 0; i < 8; i++)
        g->full[i] = fixture_range(seed, 0, 2) ? 0 : fixture_real(seed, 0, 1e-7);
    g->full[0] = f;
    g->full[1] = a;
    for (int i = 0; i < 6; i++)
        g->square[i] = fixture_range(seed, 0, 2) ? 0 : fixture_real(seed, 0, 1e-7);
    g->square[1] = a / 2;
    for (int i = 0; i < 4; i++)
        g->finish[i] = fixture_real(seed, 0, 1e-4);
}

static inline struct ref_device device(uint64_t *seed)
{
    return (struct ref_device){fixture_real(seed, 20, 3000),
                               fixture_real(seed, 200, 9000),
                               2 * (int)fixture_range(seed, 10, 90), 0};
}

static inline void make_gpu(struct gpu *g, uint64_t *seed, int decode)
{
    int pct = (int)fixture_range(seed, 5, 99), kind = (int)fixture_range(seed, 0, 2);

    memset(g, 0, sizeof *g);
    g->kin = device(seed);
    g->target = device(seed);
    g->kin.used = g->kin.sms;
    g->target.used = g->target.sms;
    if (kind == 1) {
        snprintf(g->limit, sizeof g->limit, "mps:%d", pct);
        g->kin.used = g->kin.sms / 2 * 2 * pct / 200 * 2;
        g->target.used = g->target.sms * pct / 200 * 2;
    } else if (kind == 2) {
        snprintf(g->limit, sizeof g->limit, "green:%d", 2 + pct % 18);
        g->kin.used = g->target.used = 2 + pct % 18;
    }
    g->kin.used = g->kin.used < 2 ? 2 : g->kin.used;
    g->target.used = g->target.used < 2 ? 2 : g->target.used;
    g->poly = (int)fixture_range(seed, 0, 2) == 0;
    g->error = fixture_real(seed, 0, 0.1);
    g->shape = (struct ref_shape){.heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .batch = 1,
                                  .element = 2,
                                  .decode = decode,
                                  .tile_q = decode ? 1 : 128,
                                  .ctas = 32,
                                  .sm_known = fixture_range(seed, 0, 3) > 0,
                                  .rho = fixture_real(seed, 0.5, 1),
                                  .lambda = fixture_real(seed, 0, 0.9),
                                  .first = (double)fixture_range(seed, 0, 1)};
    fill_times(g, seed);
}

/* Puts a model into a database: times of g, on a device with so many SMs. */
static inline void put(hcp_db *db, const struct gpu *g, const char *device_name,
                       const char *limit, int sms, double lo, double hi)
{
    double shape[7] = {
        g->shape.tile_q, 128,           32, g->shape.sm_known ? sms : 0, g->shape.rho,
        g->shape.lambda, g->shape.first};
    double hull[6] = {1, 8192, 1, 32768, 1, 8192}, error[3] = {1e9, lo, hi};
    double finish[4], known[NODES * NODES], ms[NODES * NODES];
    size_t nq = g->shape.decode ? 1 : NODES;
    struct hcp_named_array lut[] = {
        {"shape", 7, shape},       {"hull", 6, hull},
        {"error", 3, error},       {"finish", 4, finish},
        {"q", nq, (double *)g->q}, {"kv", NODES, (double *)g->kv},
        {"ms", nq * NODES, ms},    {"known", nq * NODES, known},
        {"s", nq, (double *)g->q}, {"s_ms", nq, (double *)g->s_ms}};
    struct hcp_named_array poly[] = {{"shape", 7, shape},
                                     {"hull", 6, hull},
                                     {"error", 3, error},
                                     {"finish", 4, finish},
                                     {"full", 8, (double *)g->full},
                                     {"square", 6, (double *)g->square}};
    struct hcp_model_row row = {.format = 1, .holdout_cells = 10};
    struct hcp_err err = {0};

    memcpy(finish, g->finish, sizeof finish);
    memcpy(ms, g->ms, sizeof ms);
    for (int i = 0; i < NODES * NODES; i++)
        known[i] = 1;
    if (g->shape.decode)
        hull[1] = 1;
    strcpy(row.kind, g->poly ? "poly" : "lut");
    snprintf(row.key.device, sizeof row.key.device, "%s", device_name);
    snprintf(row.key.limit, sizeof row.key.limit, "%s", limit);
    strcpy(row.key.provider, "cudnn");
    strcpy(row.key.dtype, "bf16");
    strcpy(row.key.phase, g->shape.decode ? "decode" : "prefill");
    row.key.batch = 1;
    row.key.heads = 32;
    row.key.kv_heads = 8;
    row.key.head_dim = 128;
    strcpy(row.origin, "synthetic");
    strcpy(row.fitted_at, "2026-11-30T00:00:00Z");
    strcpy(row.tool_version, "0.2.0");
    assert_int_equal(hcp_db_samples_hash(db, &row.key, &row.samples_hash, &err), HCP_OK);
    if (hcp_db_put_model(db, &row, g->poly ? poly : lut,
                         (g->poly ? 6 : 10) - (g->shape.decode && !g->poly ? 2 : 0),
                         &err))
        fail_msg("%s", err.text);
}

static inline hcp_db *open_db(const char *name)
{
    struct hcp_err err = {0};
    hcp_db *db;

    remove(in_folder(name));
    if (hcp_db_open(in_folder(name), HCP_DB_WRITE | HCP_DB_CREATE, &db, &err))
        fail_msg("%s", err.text);
    return db;
}

static inline void put_line(FILE *f, const char *name, int arch,
                            const struct ref_device *d)
{
    fprintf(f, "%s g%d %d %.17g - - %.17g 80 - - - made up\n", name, arch, d->sms,
            d->tflops, d->gbps);
}

/* GPUs of a seed, measured in kin.db; a table with both sheets of each. */
static inline struct gpu *make_all(uint64_t seed, int decode, hcp_specs **specs)
{
    struct gpu *gpus = calloc(GPUS, sizeof *gpus);
    hcp_db *db = open_db("kin.db");
    FILE *f = fopen(in_folder("specs.txt"), "w");
    struct hcp_err err = {0};
    char text[512] = "", name[32];

    assert_true(gpus && f);
    assert_int_equal(hcp_db_begin(db, &err), HCP_OK);
    for (int i = 0; i < GPUS; i++) {
        make_gpu(&gpus[i], &seed, decode);
        snprintf(name, sizeof name, "kin%d", i);
        put_line(f, name, i, &gpus[i].kin);
        put(db, &gpus[i], name, gpus[i].limit, gpus[i].kin.used, gpus[i].error,
            gpus[i].error);
        snprintf(name, sizeof name, "target%d", i);
        put_line(f, name, i, &gpus[i].target);
    }
    fclose(f);
    assert_int_equal(hcp_db_commit(db, &err), HCP_OK);
    hcp_db_close(db);
    if (hcp_specs_load(in_folder("specs.txt"), text, sizeof text, specs))
        fail_msg("%s", text);
    assert_int_equal(hcp_specs_count(*specs), 2 * GPUS);
    return gpus;
}

static inline hcp_ring *bind(const hcp_models *models, const char *a, const char *b,
                             const char *limit, int decode, char *text, size_t size)
{
    hcp_rank ranks[2];
    hcp_shape shape;
    hcp_ring *ring = NULL;

    hcp_shape_init(&shape);
    strcpy(shape.phase, decode ? "decode" : "prefill");
    for (int r = 0; r < 2; r++) {
        hcp_rank_init(&ranks[r]);
        snprintf(ranks[r].device, sizeof ranks[r].device, "%s", r ? b : a);
        snprintf(ranks[r].limit, sizeof ranks[r].limit, "%s", limit);
    }
    hcp_ring_create(models, &shape, ranks, 2, NULL, text, size, &ring);
    return ring;
}

#endif
