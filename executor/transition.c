/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-ring transition: KV goes from the shares of one plan to those of another by the
 * messages of hcp_plan_moves(), which every rank asks the library for; the time that
 * takes and that of decode steps before and after it stand beside what was predicted.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/move.h"
#include "executor/program.h"
#include "profiler/measure.h"

enum { FEW_PASSES = 3 };
#define FROM_IDLE_S 0.5 /* until clocks stand still */

struct transition {
    struct ring_program *p;
    const hcp_plan *from, *to;
    hcp_moves moves;
    ring_move *move;
    int64_t *bytes;      /* [2][n] sent, received: on rank 0 */
    double *times;       /* [passes][n] of ranks, likewise */
    double *ranks;       /* [n] their medians */
    char (*failed)[200]; /* [n] what --verify found wrong; "" */
    int64_t *compared;   /* [n] tokens */
    int passes;
    struct hcp_stats stats;
    struct ring_result proof;         /* of a step after it */
    struct ring_result before, after; /* steps with KV where it was, and is */
    char transport[8], version[32];
};

/* ---- what is to be moved ---- */

static int ask(struct transition *t, struct hcp_err *err)
{
    const struct ring_options *o = &t->p->o;
    struct ring_plans *plans = &t->p->plans;
    size_t n = t->to->n_ranks, room = t->from->n_segments + n;
    hcp_move *array = calloc(n, sizeof *array);
    hcp_segment *segments = calloc(room, sizeof *segments);
    hcp_move_question q;

    hcp_moves_init(&t->moves, array, n, segments, room);
    if (!array || !segments)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (o->moves)
        return ring_moves_read(o->moves, t->from, t->to, &t->moves, err);
    hcp_move_question_init(&q);
    q.steps = o->steps;
    q.extrapolate = o->question.extrapolate;
    q.link_alpha_us =
        o->given & RING_GIVEN_ALPHA ? o->question.link_alpha_us : t->to->link_alpha_us;
    q.link_gbps = o->given & RING_GIVEN_GBPS ? o->question.link_gbps : t->to->link_gbps;
    return err->code = ring_exit_code(hcp_plan_moves(
               plans->ring, t->from, t->to, &q, plans->workspace, plans->workspace_bytes,
               err->text, sizeof err->text, &t->moves));
}

static uint64_t mix(uint64_t hash, int64_t value)
{
    return (hash ^ (uint64_t)value) * 1099511628211u; /* FNV-1a, a word at a time */
}

/* All ranks must move the same. */
static int agree(const struct transition *t, struct hcp_err *err)
{
    const hcp_moves *m = &t->moves;
    uint64_t hash = mix(14695981039346656037u, (int64_t)m->decision), ends[2];

    for (size_t i = 0; i < m->n_moves; i++)
        hash = mix(mix(mix(hash, m->moves[i].from), m->moves[i].to), m->moves[i].tokens);
    for (size_t i = 0; i < m->n_segments; i++)
        hash = mix(mix(hash, m->segments[i].offset), m->segments[i].length);
    MPI_Allreduce(&hash, &ends[0], 1, MPI_UINT64_T, MPI_MIN, t->p->comm.world);
    MPI_Allreduce(&hash, &ends[1], 1, MPI_UINT64_T, MPI_MAX, t->p->comm.world);
    return ends[0] == ends[1]
               ? HCP_OK
               : hcp_fail(
                     err, HCP_FAILED,
                     "the ranks do not agree on what to move; give all ranks the same "
                     "database and options");
}

static int by_offset(const void *a, const void *b)
{
    const hcp_segment *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Whether what stays and what moves is every token once. */
static int check_cover(const struct transition *t, struct hcp_err *err)
{
    const hcp_moves *m = &t->moves;
    size_t n = m->n_segments;
    hcp_segment *all = calloc(t->from->n_segments + n + 1, sizeof *all);
    int64_t tokens, next = 0;
    size_t odd = 0;

    if (!all)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    memcpy(all, m->segments, n * sizeof *all);
    for (size_t r = 0; r < t->to->n_ranks; r++) {
        n += (size_t)ring_move_kept(t->from, m, (int32_t)r, all + n, &tokens);
        for (size_t i = 0; i < m->n_moves; i++)
            tokens += m->moves[i].to == (int32_t)r ? m->moves[i].tokens : 0;
        odd += tokens != t->to->ranks[r].tokens;
    }
    qsort(all, n, sizeof *all, by_offset);
    for (size_t i = 0; i < n && all[i].offset == next; i++)
        next += all[i].length;
    free(all);
    if (next == t->to->seq_len && odd == 0)
        return HCP_OK;
    return hcp_fail(
        err, HCP_FAILED,
        "what is to be moved does not make the shares of --from those of --to: "
        "token %lld would be on no rank or on two, or ranks would have other "
        "numbers of tokens",
        (long long)next);
}

/* ---- running it ---- */

/* Rank 0 decides for all. */
static int shared(struct transition *t, int *go_on)
{
    return MPI_Bcast(go_on, 1, MPI_INT, 0, t->p->comm.world) != MPI_SUCCESS;
}

static int one_pass(struct transition *t, struct hcp_err *err)
{
    size_t n = t->to->n_ranks;
    double ms = 0, *more;
    int rc = ring_move_pass(t->move, &ms, err);

    if (rc == HCP_OK && t->p->comm.rank == 0) {
        more = realloc(t->times, (size_t)(t->passes + 1) * n * sizeof *more);
        if (!more)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        t->times = more;
    }
    ring_watch_waiting(t->p->watch, "waiting for the times of the other ranks", -1);
    if (rc == HCP_OK &&
        MPI_Gather(&ms, 1, MPI_DOUBLE,
                   t->p->comm.rank == 0 ? t->times + (size_t)t->passes * n : NULL, 1,
                   MPI_DOUBLE, 0, t->p->comm.world) != MPI_SUCCESS)
        rc = hcp_fail(err, HCP_FAILED, "MPI failed to gather times");
    ring_watch_idle(t->p->watch);
    t->passes += rc == HCP_OK;
    return rc;
}

static int passes(struct transition *t, struct hcp_err *err)
{
    const struct ring_options *o = &t->p->o;
    double start = hcp_now_s(), unused;
    int go_on = 1, rc = HCP_OK;

    /* The first connects, in the second what it left is gone. */
    for (int i = 0; rc == HCP_OK && i < 2; i++)
        rc = ring_move_pass(t->move, &unused, err);
    while (rc == HCP_OK && go_on) {
        rc = one_pass(t, err);
        go_on = t->passes < o->repeat &&
                (t->passes < FEW_PASSES || hcp_now_s() - start < o->max_time_s);
        if (rc == HCP_OK && shared(t, &go_on))
            rc = hcp_fail(err, HCP_FAILED, "MPI failed to share a decision");
    }
    return rc;
}

static int gather_proof(struct transition *t, int64_t tokens, const char mine[200],
                        struct hcp_err *err)
{
    size_t n = t->to->n_ranks;
    int root = t->p->comm.rank == 0, rc = HCP_OK;

    if (root) {
        t->compared = calloc(n, sizeof *t->compared);
        t->failed = calloc(n, sizeof *t->failed);
        if (!t->compared || !t->failed)
            rc = hcp_fail(err, HCP_FAILED, "out of memory");
    }
    rc = ring_all_ok(&t->p->comm, rc, err);
    if (rc == HCP_OK && (MPI_Gather(&tokens, 1, MPI_INT64_T, t->compared, 1, MPI_INT64_T,
                                    0, t->p->comm.world) != MPI_SUCCESS ||
                         MPI_Gather(mine, 200, MPI_CHAR, t->failed, 200, MPI_CHAR, 0,
                                    t->p->comm.world) != MPI_SUCCESS))
        rc = hcp_fail(err, HCP_FAILED, "MPI failed to gather what was compared");
    return rc;
}

/* Every number where the new plan wants it, and a decode step on what is there. */
static int prove(struct transition *t, struct hcp_err *err)
{
    struct ring_program *p = t->p;
    struct ring_kv *kv = calloc(t->moves.n_moves + 1, sizeof *kv);
    char text[200] = "";
    int64_t tokens = 0;
    double unused;
    ring *r = NULL;
    int rc =
        kv ? ring_move_poison(t->move, err) : hcp_fail(err, HCP_FAILED, "out of memory");

    rc = ring_all_ok(&p->comm, rc, err);
    if (rc == HCP_OK) {
        rc = ring_move_pass(t->move, &unused, err);
        p->alone = rc != HCP_OK;
    }
    if (rc == HCP_OK)
        rc = ring_all_ok(&p->comm, ring_move_compare(t->move, &tokens, text, err), err);
    if (rc == HCP_OK)
        rc = gather_proof(t, tokens, text, err);
    if (rc == HCP_OK) {
        int32_t n = ring_move_kv(t->move, kv);

        t->proof.plan = t->to;
        rc = ring_open_plan(p, t->to, kv, n, NULL, &t->proof, &r, err);
    }
    if (rc == HCP_OK)
        rc = ring_prove(p, r, &t->proof, err);
    if (!p->alone)
        ring_close(r);
    free(kv);
    return rc;
}

static int run(struct transition *t, struct hcp_err *err)
{
    struct ring_program *p = t->p;
    const struct ring_move_config config = {.from = t->from,
                                            .to = t->to,
                                            .moves = &t->moves,
                                            .rank = p->comm.rank,
                                            .comm = &p->comm,
                                            .runtime = p->place.runtime,
                                            .links = p->links,
                                            .watch = p->watch,
                                            .seed = p->o.seed};
    int64_t mine[2];
    const char *version;
    int rc = ring_move_open(&config, &t->move, err);

    if (rc)
        return rc;
    snprintf(t->transport, sizeof t->transport, "%s",
             ring_move_transport(t->move, &version));
    snprintf(t->version, sizeof t->version, "%s", version);
    mine[0] = ring_move_bytes(t->move, 1);
    mine[1] = ring_move_bytes(t->move, 0);
    if (p->comm.rank == 0)
        t->bytes = calloc(2 * t->to->n_ranks, sizeof *t->bytes);
    rc = p->comm.rank == 0 && !t->bytes ? hcp_fail(err, HCP_FAILED, "out of memory")
                                        : HCP_OK;
    rc = ring_all_ok(&p->comm, rc, err);
    if (rc == HCP_OK && MPI_Gather(mine, 2, MPI_INT64_T, t->bytes, 2, MPI_INT64_T, 0,
                                   p->comm.world) != MPI_SUCCESS)
        rc = hcp_fail(err, HCP_FAILED, "MPI failed to gather sizes");
    if (rc == HCP_OK) {
        rc = passes(t, err);
        p->alone = rc != HCP_OK;
    }
    if (rc == HCP_OK && p->o.verify_rows >= 0)
        rc = prove(t, err);
    if (rc == HCP_OK)
        rc = ring_all_ok(&p->comm, ring_warden_check(p->warden, err), err);
    if (!p->alone) {
        ring_move_close(t->move);
        t->move = NULL;
    }
    return rc;
}

/* Steps with KV where it is, if it may stay there, and where it goes. */
static int measure_steps(struct transition *t, hcp_plan *before, struct hcp_err *err)
{
    size_t n = t->to->n_ranks;
    int64_t *tokens = calloc(n, sizeof *tokens);
    int rc = tokens ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    for (size_t r = 0; rc == HCP_OK && r < n; r++)
        tokens[r] = ring_move_old(t->from, (int32_t)r)->kv_tokens;
    /* GPUs that have moved memory or waited for it, for seconds, compute at idle clocks. */
    for (size_t r = 0; r < n && !(t->p->o.given & RING_GIVEN_WARM_UP); r++)
        if (t->p->peers[r].is_cuda)
            t->p->o.warm_up_s = fmax(t->p->o.warm_up_s, FROM_IDLE_S);
    if (rc == HCP_OK && !isnan(t->moves.stay_ms))
        rc = ring_plan_of_tokens(&t->p->plans, t->to, tokens, before, err);
    rc = ring_all_ok(&t->p->comm, rc, err);
    free(tokens);
    if (rc == HCP_OK && !isnan(t->moves.stay_ms))
        rc = ring_measure(t->p, before, t->p->o.repeat, 0, &t->before, err);
    if (rc == HCP_OK)
        rc = ring_measure(t->p, t->to, t->p->o.repeat, 0, &t->after, err);
    return rc;
}

static int summarise(struct transition *t, struct hcp_err *err)
{
    size_t n = t->to->n_ranks;
    double *room = calloc((size_t)t->passes + 1, sizeof *room);

    t->ranks = calloc(n, sizeof *t->ranks);
    if (!room || !t->ranks) {
        free(room);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    for (size_t r = 0; r <= n; r++) { /* of each rank, then of all */
        for (int i = 0; i < t->passes; i++) {
            const double *times = t->times + (size_t)i * n;

            room[i] = 0;
            for (size_t k = 0; k < n; k++)
                room[i] = r == k || r == n ? fmax(room[i], times[k]) : room[i];
        }
        if (hcp_stats_summary(room, t->passes, &t->stats)) {
            free(room);
            return hcp_fail(err, HCP_FAILED, "no pass was timed");
        }
        if (r < n)
            t->ranks[r] = t->stats.median;
    }
    free(room);
    return HCP_OK;
}

/* ---- what is said about it ---- */

static double all_layers(const struct transition *t, const struct ring_result *r)
{
    return r->plan ? r->makespan.median * t->to->layers : NAN;
}

static double break_even(const struct transition *t)
{
    double gain = all_layers(t, &t->before) - all_layers(t, &t->after);

    return t->moves.n_moves == 0 ? NAN : gain > 0 ? t->stats.median / gain : INFINITY;
}

/* The plan's time of a rank's messages: of what it sends, or receives. */
static double predicted(const struct transition *t, size_t rank)
{
    double sent = 0, received = 0;

    for (size_t i = 0; i < t->moves.n_moves; i++) {
        const hcp_move *m = &t->moves.moves[i];

        sent += (size_t)m->from == rank ? m->ms : 0;
        received += (size_t)m->to == rank ? m->ms : 0;
    }
    return fmax(sent, received);
}

static int passed(const struct transition *t)
{
    for (size_t r = 0; t->failed && r < t->to->n_ranks; r++)
        if (t->failed[r][0])
            return 0;
    return ring_result_passed(&t->proof);
}

static json_t *known(double v)
{
    return hcp_json_real(isinf(v) ? NAN : v);
}

static json_t *fingerprint(const hcp_plan *plan)
{
    char text[24];

    snprintf(text, sizeof text, "%016llx", (unsigned long long)plan->fingerprint);
    return json_string(text);
}

static json_t *moves_json(const hcp_moves *m)
{
    json_t *list = json_array();

    for (size_t i = 0; i < m->n_moves; i++)
        json_array_append_new(list,
                              json_pack("{s:i, s:i, s:I, s:I, s:o}", "from",
                                        (int)m->moves[i].from, "to", (int)m->moves[i].to,
                                        "tokens", (json_int_t)m->moves[i].tokens, "bytes",
                                        (json_int_t)m->moves[i].bytes, "predicted_ms",
                                        hcp_json_real(m->moves[i].ms)));
    return list;
}

static json_t *rank_json(const struct transition *t, size_t r)
{
    const struct ring_peer *peer = &t->p->peers[r];
    json_t *o = json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "rank",
                          (int)r, "device", peer->device, "limit", t->to->ranks[r].limit,
                          "host", peer->host, "tokens_before",
                          (json_int_t)ring_move_old(t->from, (int32_t)r)->kv_tokens,
                          "tokens", (json_int_t)t->to->ranks[r].tokens, "sent_bytes",
                          (json_int_t)(t->bytes ? t->bytes[2 * r] : 0), "received_bytes",
                          (json_int_t)(t->bytes ? t->bytes[2 * r + 1] : 0), "total_ms",
                          hcp_json_real(t->ranks ? t->ranks[r] : NAN), "predicted_ms",
                          hcp_json_real(predicted(t, r)));

    if (t->compared) {
        const struct ring_errors *e = &t->proof.errors[r];

        json_object_set_new(o, "tokens_compared", json_integer(t->compared[r]));
        json_object_set_new(o, "max_error", hcp_json_real(e->o_error));
        if (t->failed[r][0] || !e->passed)
            json_object_set_new(o, "failure",
                                json_string(t->failed[r][0] ? t->failed[r] : e->text));
    }
    return o;
}

static int print_json(const struct transition *t)
{
    const hcp_moves *m = &t->moves;
    int ran = t->ranks != NULL;
    json_t *ranks = json_array(), *o;

    for (size_t r = 0; r < t->to->n_ranks; r++)
        json_array_append_new(ranks, rank_json(t, r));
    o = json_pack(
        "{s:i, s:o, s:o, s:s, s:I, s:i, s:i, s:I, s:I, s:o, s:o, s:o, s:i, s:o, s:o}",
        "schema", 1, "from_fingerprint", fingerprint(t->from), "to_fingerprint",
        fingerprint(t->to), "decision", hcp_move_decision_name(m->decision), "seq_len",
        (json_int_t)t->to->seq_len, "batch", (int)t->to->shape.batch, "layers",
        (int)t->to->layers, "move_tokens", (json_int_t)m->tokens, "move_bytes",
        (json_int_t)m->bytes, "move_ms", hcp_json_real(ran ? t->stats.median : NAN),
        "interval_ms",
        ran ? json_pack("[o, o]", hcp_json_real(t->stats.ci_lo),
                        hcp_json_real(t->stats.ci_hi))
            : json_null(),
        "min_ms", hcp_json_real(ran ? t->stats.min : NAN), "repeats", t->passes,
        "predicted_move_ms", hcp_json_real(m->move_ms), "prediction_error",
        hcp_json_real(ran && m->move_ms > 0 ? m->move_ms / t->stats.median - 1 : NAN));
    json_object_set_new(o, "stay_ms", hcp_json_real(all_layers(t, &t->before)));
    json_object_set_new(o, "predicted_stay_ms", hcp_json_real(m->stay_ms));
    json_object_set_new(o, "step_ms", hcp_json_real(all_layers(t, &t->after)));
    json_object_set_new(o, "predicted_step_ms", hcp_json_real(m->step_ms));
    json_object_set_new(o, "break_even_steps", known(ran ? break_even(t) : NAN));
    json_object_set_new(o, "predicted_break_even_steps", known(m->break_even_steps));
    json_object_set_new(o, "transport", json_string(t->transport));
    json_object_set_new(o, "transport_version", json_string(t->version));
    json_object_set_new(o, "verified",
                        t->compared ? json_boolean(passed(t)) : json_null());
    json_object_set_new(o, "max_error", hcp_json_real(ring_result_error(&t->proof)));
    json_object_set_new(o, "moves", moves_json(m));
    json_object_set_new(o, "ranks", ranks);
    return hcp_json_print(o, stdout);
}

static void print_proof(const struct transition *t)
{
    int64_t tokens = 0;

    if (!t->compared)
        return;
    for (size_t r = 0; r < t->to->n_ranks; r++) {
        tokens += t->compared[r];
        if (t->failed[r][0])
            printf("NOT VERIFIED: rank %zu: %s\n", r, t->failed[r]);
        else if (!t->proof.errors[r].passed)
            printf("NOT VERIFIED: rank %zu: a decode step: %s\n", r,
                   t->proof.errors[r].text);
    }
    if (passed(t))
        printf(
            "verified: all numbers of the KV of %lld tokens, and a decode step, O within "
            "%.2e\n",
            (long long)tokens, ring_result_error(&t->proof));
}

static void print_verdict(const struct transition *t)
{
    const hcp_moves *m = &t->moves;
    double even = break_even(t);

    if (!t->ranks) {
        printf("do not move: %s%.4g GB in %.4g ms, and a step takes %.4g ms where KV is, "
               "%.4g ms after it (all predicted)\n",
               m->tokens > 0 ? "it does not pay; " : "the shares are the same; ",
               1e-9 * (double)m->bytes, m->move_ms, m->stay_ms, m->step_ms);
        return;
    }
    printf("%.4g GB in %zu message%s: measured %.3f ms (95 %%: %.3f..%.3f, %d passes), "
           "predicted %.3f",
           1e-9 * (double)m->bytes, m->n_moves, m->n_moves == 1 ? "" : "s",
           t->stats.median, t->stats.ci_lo, t->stats.ci_hi, t->passes, m->move_ms);
    if (m->move_ms > 0)
        printf(" (%+.1f %%)", 100 * (m->move_ms / t->stats.median - 1));
    printf("\na decode step of %d layer%s, batch %d: ", (int)t->to->layers,
           t->to->layers == 1 ? "" : "s", (int)t->to->shape.batch);
    if (isnan(m->stay_ms))
        printf("KV does not fit where it was");
    else
        printf("%.4g ms before (predicted %.4g)", all_layers(t, &t->before), m->stay_ms);
    printf(", %.4g ms after it (%.4g)", all_layers(t, &t->after), m->step_ms);
    if (isinf(even))
        printf("; that never pays");
    else if (!isnan(even))
        printf("; that pays from %.0f steps on (%.0f)", floor(even) + 1,
               floor(m->break_even_steps) + 1);
    printf("\n%s%s%s%s\n", t->transport[0] ? t->transport : "one rank",
           t->transport[0] ? " (" : "", t->version, t->transport[0] ? ")" : "");
    print_proof(t);
}

static int print_text(const struct transition *t)
{
    static const char *const columns[] = {"rank",          "device",   "limit",
                                          "tokens_before", "tokens",   "sent_gb",
                                          "received_gb",   "total_ms", "predicted_ms"};
    hcp_table *table = hcp_table_new();
    int rc = 0;

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(table, columns[i], i != 1 && i != 2);
    for (size_t r = 0; t->ranks && r < t->to->n_ranks; r++) {
        const hcp_plan_rank *rank = &t->to->ranks[r];

        hcp_table_row(table);
        hcp_table_cell(table, "%zu", r);
        hcp_table_cell(table, "%s", t->p->peers[r].device);
        hcp_table_cell(table, "%s", rank->limit[0] ? rank->limit : "-");
        hcp_table_cell(table, "%lld",
                       (long long)ring_move_old(t->from, (int32_t)r)->kv_tokens);
        hcp_table_cell(table, "%lld", (long long)rank->tokens);
        hcp_table_cell(table, "%.4g", 1e-9 * (double)t->bytes[2 * r]);
        hcp_table_cell(table, "%.4g", 1e-9 * (double)t->bytes[2 * r + 1]);
        hcp_table_cell(table, "%.3f", t->ranks[r]);
        hcp_table_cell(table, "%.3f", predicted(t, r));
    }
    if (t->ranks) {
        rc = hcp_table_print(table, stdout);
        putchar('\n');
    } else {
        hcp_table_free(table);
    }
    print_verdict(t);
    return rc;
}

static int publish(struct transition *t, struct hcp_err *err)
{
    int rc = HCP_OK;

    if (t->p->o.json ? print_json(t) : print_text(t))
        rc = hcp_fail(err, HCP_FAILED, "cannot print the results");
    fflush(stdout); /* a launcher may end this rank when the first one ends */
    hcp_cli_written(stdout);
    if (rc == HCP_OK && !passed(t))
        rc = hcp_fail(err, HCP_FAILED, "verification failed%s",
                      t->p->o.json ? "" : ": see above");
    return rc;
}

int ring_transition(struct ring_program *p, struct hcp_err *err)
{
    struct transition t = {.p = p, .to = &p->plans.plans[0], .from = &p->plans.plans[1]};
    hcp_plan before = {0};
    int rc = ring_all_ok(&p->comm, ask(&t, err), err);

    p->alone = 0;
    if (rc == HCP_OK)
        rc = ring_all_ok(&p->comm, agree(&t, err), err);
    if (rc == HCP_OK && t.moves.n_moves > 0) {
        rc = ring_all_ok(&p->comm, check_cover(&t, err), err);
        if (rc == HCP_OK)
            rc = run(&t, err);
        if (rc == HCP_OK)
            rc = measure_steps(&t, &before, err);
        if (rc == HCP_OK && p->comm.rank == 0) {
            rc = summarise(&t, err);
            p->alone = rc != HCP_OK;
        }
    }
    if (rc == HCP_OK) {
        if (p->comm.rank == 0)
            rc = publish(&t, err);
        rc = ring_all_ok(&p->comm, rc, err);
    }
    ring_result_free(&t.proof);
    ring_result_free(&t.before);
    ring_result_free(&t.after);
    ring_plan_free(&before);
    free(t.moves.moves);
    free(t.moves.segments);
    free(t.bytes);
    free(t.times);
    free(t.ranks);
    free(t.failed);
    free(t.compared);
    return rc;
}
