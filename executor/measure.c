/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/program.h"
#include "kernels/dtype.h"
#include "profiler/measure.h"

/* Passes before any is timed: the first of the program loads modules and connects, that
 * of another ring only runs its kernels for the first time. */
enum { FEW_PASSES = 3, WARM_FIRST = 2, WARM_OTHER = 1 };

/* ---- the kernel and the ring ---- */

static int pick_kernel(const struct ring_program *p, const hcp_plan *plan,
                       const hcp_provider **out, struct hcp_err *err)
{
    hcp_attn_support support = {.size = sizeof support};
    hcp_attn_problem typical = {.size = sizeof typical,
                                .batch = plan->shape.batch,
                                .q_len = ring_plan_is_decode(plan) ? 1 : 1024,
                                .kv_len = 1024,
                                .heads = plan->shape.heads,
                                .kv_heads = plan->shape.kv_heads,
                                .head_dim = plan->shape.head_dim,
                                .dtype = hcp_dtype_of_name(plan->shape.dtype),
                                .out_dtype = HCP_FP32,
                                .scale = 1 / sqrt(plan->shape.head_dim)};
    const char *name = p->o.provider ? p->o.provider
                       : p->o.plugin ? hcp_registry_at(p->place.registry, 0)->name
                       : plan->provider[0] ? plan->provider
                                           : NULL;
    char why[700];

    if (typical.dtype < 0)
        return hcp_fail(err, HCP_FAILED,
                        "dtype '%s' of the plan is not known; there are bf16, fp16 and "
                        "fp32",
                        plan->shape.dtype);
    hcp_problem_set_dense_strides(&typical);
    *out = hcp_registry_pick(p->place.registry, name, &typical, &support, why,
                             sizeof why);
    return *out ? HCP_OK
                : hcp_fail(err, HCP_FAILED,
                           "no kernel for this plan: %s; name another with --provider or "
                           "--kernel",
                           why);
}

int ring_open_plan(struct ring_program *p, const hcp_plan *plan, const struct ring_kv *kv,
                   int32_t n_kv, const struct ring_chunk *chunk, struct ring_result *out,
                   ring **r, struct hcp_err *err)
{
    const hcp_provider *provider = NULL;
    int rc = ring_all_ok(&p->comm, pick_kernel(p, plan, &provider, err), err);
    struct ring_config config = {.plan = plan,
                                 .rank = p->comm.rank,
                                 .comm = &p->comm,
                                 .runtime = p->place.runtime,
                                 .device = p->place.device,
                                 .provider = provider,
                                 .links = p->links,
                                 .watch = p->watch,
                                 .alarm = p->alarm,
                                 .broken = &p->broken,
                                 .sub_blocks = plan->sub_blocks,
                                 .barrier = plan->barrier,
                                 .buffers = plan->buffers,
                                 .seed = p->o.seed,
                                 .layer = p->o.layer.hidden ? &p->o.layer : NULL,
                                 .spare_sms = p->o.spare_sms,
                                 .channels = p->o.channels,
                                 .kv = kv,
                                 .n_kv = n_kv,
                                 .documents = ring_documents_of(&p->plans, plan),
                                 .chunk = chunk};

    if (rc)
        return rc;
    if (strncmp(p->place.self.limit, "green:", 6) == 0)
        config.sms = p->place.self.sm_seen;
    rc = ring_open(&config, r, err);
    if (rc)
        return rc;
    snprintf(out->provider, sizeof out->provider, "%s", provider->name);
    snprintf(p->place.self.provider_version, sizeof p->place.self.provider_version, "%s",
             provider->version());
    ring_describe(*r, out->config, sizeof out->config);
    snprintf(out->transport, sizeof out->transport, "%s", ring_transport_name(*r));
    snprintf(out->transport_version, sizeof out->transport_version, "%s",
             ring_transport_version(*r));
    out->buffers = plan->buffers;
    out->sub_blocks = plan->sub_blocks;
    out->barrier = plan->barrier;
    return HCP_OK;
}

/* ---- passes ---- */

static int mpi_failed(int code, const char *doing, struct hcp_err *err)
{
    return code == MPI_SUCCESS ? HCP_OK
                               : hcp_fail(err, HCP_FAILED, "MPI failed to %s", doing);
}

/* Rank 0 decides, all do as it says, once all are there: a rank 0 without tokens would
 * otherwise be through with its passes at once and ask for any number of them. */
int ring_decide(struct ring_program *p, int *go_on, struct hcp_err *err)
{
    int mine = p->comm.rank == 0 ? *go_on : 0, rc;

    ring_watch_waiting(p->watch, "waiting for all ranks to go on", -1);
    rc = mpi_failed(MPI_Allreduce(&mine, go_on, 1, MPI_INT, MPI_MAX, p->comm.world),
                    "share a decision", err);
    ring_watch_idle(p->watch);
    return rc;
}

int ring_is_cold(const struct ring_program *p, int passes, double start_s)
{
    return passes < (p->warmed ? WARM_OTHER : WARM_FIRST) ||
           hcp_now_s() - start_s < p->o.warm_up_s;
}

/* Passes that are not timed. */
static int warm_up(struct ring_program *p, ring *r, struct hcp_err *err)
{
    double start = hcp_now_s();
    int go_on = 1, rc = HCP_OK;

    for (int i = 0; rc == HCP_OK && go_on; i++) {
        struct ring_times times;

        go_on = ring_is_cold(p, i, start);
        rc = ring_decide(p, &go_on, err);
        if (rc == HCP_OK && go_on)
            rc = ring_pass(r, &times, NULL, err);
    }
    p->warmed = 1;
    return rc;
}

static int grow(struct ring_result *out, size_t n, int *room, struct hcp_err *err)
{
    struct ring_times *more;

    if (out->repeats < *room)
        return HCP_OK;
    *room = 2 * *room + 16;
    more = realloc(out->times, (size_t)*room * n * sizeof *more);
    if (!more)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    out->times = more;
    return HCP_OK;
}

/* Ready, start, busy and end of every step of every rank, to rank 0. */
static int gather_steps(struct ring_program *p, double (*mine)[4],
                        struct ring_result *out, struct hcp_err *err)
{
    size_t n = (size_t)p->comm.size, m = out->m;
    int rc, count = (int)(4 * m);

    if (p->comm.rank == 0)
        out->steps = calloc(n * m, sizeof *out->steps);
    if (p->comm.rank == 0 && !out->steps)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    ring_watch_waiting(p->watch, "waiting for the times of the other ranks", -1);
    rc = mpi_failed(MPI_Gather(mine, count, MPI_DOUBLE, out->steps, count, MPI_DOUBLE, 0,
                               p->comm.world),
                    "gather times", err);
    ring_watch_idle(p->watch);
    return rc;
}

static int timed_passes(struct ring_program *p, ring *r, int repeat,
                        struct ring_result *out, struct hcp_err *err)
{
    enum { NUMBERS = sizeof(struct ring_times) / sizeof(double) };
    size_t n = (size_t)p->comm.size;
    double start = hcp_now_s();
    int go_on = 1, room = 0, rc = HCP_OK;
    double(*steps)[4] = NULL;

    out->m = (size_t)ring_schedule_of(r)->m;
    steps = calloc(out->m, sizeof *steps);
    if (!steps)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < 4 * out->m; i++)
        steps[i / 4][i % 4] = NAN;
    while (rc == HCP_OK && go_on) {
        struct ring_times times = {0};
        void *to = NULL;

        go_on = out->repeats < repeat && (out->repeats < FEW_PASSES ||
                                          hcp_now_s() - start < p->o.max_time_s);
        if (p->comm.rank == 0 && grow(out, n, &room, err)) {
            rc = HCP_FAILED;
            break;
        }
        rc = ring_decide(p, &go_on, err);
        if (rc || !go_on)
            break;
        rc = ring_pass(r, &times, steps, err);
        if (rc)
            break;
        if (p->comm.rank == 0)
            to = out->times + (size_t)out->repeats * n;
        ring_watch_waiting(p->watch, "waiting for the times of the other ranks", -1);
        rc = mpi_failed(MPI_Gather(&times, NUMBERS, MPI_DOUBLE, to, NUMBERS, MPI_DOUBLE,
                                   0, p->comm.world),
                        "gather times", err);
        ring_watch_idle(p->watch);
        out->repeats++;
    }
    if (rc == HCP_OK)
        rc = gather_steps(p, steps, out, err);
    free(steps);
    return rc;
}

int ring_compare(struct ring_program *p, ring *r, struct ring_result *out,
                 struct hcp_err *err)
{
    struct ring_errors mine = {.passed = 1};
    struct hcp_err own = {0};
    int rc;

    rc = ring_verify(r, p->o.verify_rows, &mine, &own);
    *err = own;
    rc = ring_all_ok(&p->comm, rc, err);
    if (rc)
        return rc;
    if (p->comm.rank == 0)
        out->errors = calloc((size_t)p->comm.size, sizeof *out->errors);
    rc = p->comm.rank == 0 && !out->errors ? hcp_fail(err, HCP_FAILED, "out of memory")
                                           : HCP_OK;
    rc = ring_all_ok(&p->comm, rc, err);
    if (rc)
        return rc;
    out->verified = 1;
    rc = mpi_failed(MPI_Gather(&mine, sizeof mine, MPI_BYTE, out->errors, sizeof mine,
                               MPI_BYTE, 0, p->comm.world),
                    "gather errors", err);
    p->alone = rc != HCP_OK;
    return rc;
}

int ring_prove(struct ring_program *p, ring *r, struct ring_result *out,
               struct hcp_err *err)
{
    struct ring_times times;
    int rc = ring_all_ok(&p->comm, ring_poison(r, err), err);

    if (rc)
        return rc;
    rc = ring_pass(r, &times, NULL, err);
    p->alone = rc != HCP_OK;
    return rc ? rc : ring_compare(p, r, out, err);
}

/* ---- summary, on rank 0 ---- */

static double median_of(const struct ring_result *r, size_t n, size_t rank, size_t offset,
                        double *room)
{
    struct hcp_stats stats;

    for (int i = 0; i < r->repeats; i++) {
        const char *times = (const char *)&r->times[(size_t)i * n + rank];

        memcpy(&room[i], times + offset, sizeof *room);
    }
    return hcp_stats_summary(room, r->repeats, &stats) ? NAN : stats.median;
}

static int summarise(struct ring_result *r, struct hcp_err *err)
{
    size_t n = r->plan->n_ranks;
    double *room = calloc((size_t)r->repeats + 1, sizeof *room);
    struct ring_times *ranks = calloc(n, sizeof *ranks);

    if (!room || !ranks) {
        free(room);
        free(ranks);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    for (size_t k = 0; k < n; k++) {
        ranks[k].total_ms = median_of(r, n, k, offsetof(struct ring_times, total_ms),
                                      room);
        ranks[k].compute_ms =
            median_of(r, n, k, offsetof(struct ring_times, compute_ms), room);
        ranks[k].wait_ms = median_of(r, n, k, offsetof(struct ring_times, wait_ms), room);
        ranks[k].transfer_ms =
            median_of(r, n, k, offsetof(struct ring_times, transfer_ms), room);
        ranks[k].linear_ms =
            median_of(r, n, k, offsetof(struct ring_times, linear_ms), room);
    }
    for (int i = 0; i < r->repeats; i++) {
        room[i] = 0;
        for (size_t k = 0; k < n; k++)
            room[i] = fmax(room[i], r->times[(size_t)i * n + k].total_ms);
    }
    free(r->ranks);
    r->ranks = ranks;
    if (hcp_stats_summary(room, r->repeats, &r->makespan)) {
        free(room);
        return hcp_fail(err, HCP_FAILED, "no pass was timed");
    }
    free(room);
    return HCP_OK;
}

int ring_run(struct ring_program *p, ring *r, int repeat, int check,
             struct ring_result *result, struct hcp_err *err)
{
    int rc = warm_up(p, r, err);

    p->alone = rc != HCP_OK;
    if (rc == HCP_OK && check)
        rc = ring_prove(p, r, result, err);
    if (rc == HCP_OK) {
        rc = timed_passes(p, r, repeat, result, err);
        if (rc == HCP_OK && p->comm.rank == 0)
            rc = summarise(result, err);
        p->alone = rc != HCP_OK;
    }
    if (rc == HCP_OK)
        rc = ring_all_ok(&p->comm, ring_warden_check(p->warden, err), err);
    return rc;
}

int ring_measure(struct ring_program *p, const hcp_plan *plan, int repeat, int check,
                 struct ring_result *out, struct hcp_err *err)
{
    struct ring_result result = {.plan = plan};
    ring *r = NULL;
    int rc = ring_open_plan(p, plan, NULL, 0, NULL, &result, &r, err);

    p->alone = 0;
    if (rc == HCP_OK)
        rc = ring_run(p, r, repeat, check, &result, err);
    if (!p->alone) /* else there may be work in flight; the process ends */
        ring_close(r);
    if (rc) {
        ring_result_free(&result);
        return rc;
    }
    *out = result;
    return HCP_OK;
}

int ring_result_add(struct ring_result *into, const struct ring_result *more,
                    struct hcp_err *err)
{
    size_t n = into->plan->n_ranks, had = (size_t)into->repeats * n;
    size_t new = (size_t)more->repeats * n;
    struct ring_times *times = realloc(into->times, (had + new) * sizeof *times);

    if (!times)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    memcpy(times + had, more->times, new * sizeof *times);
    into->times = times;
    into->repeats += more->repeats;
    return summarise(into, err);
}

void ring_result_free(struct ring_result *r)
{
    free(r->times);
    free(r->ranks);
    free(r->steps);
    free(r->errors);
    *r = (struct ring_result){0};
}

double ring_result_error(const struct ring_result *r)
{
    double worst = r->errors ? 0 : NAN;

    for (size_t k = 0; r->errors && k < r->plan->n_ranks; k++)
        if (!isnan(worst) && !(r->errors[k].o_error <= worst)) /* a NaN stays */
            worst = r->errors[k].o_error;
    return worst;
}

int ring_result_passed(const struct ring_result *r)
{
    for (size_t k = 0; r->errors && k < r->plan->n_ranks; k++)
        if (!r->errors[k].passed)
            return 0;
    return 1;
}
