/* SPDX-License-Identifier: Apache-2.0
 *
 * The best split that measuring finds: the yardstick for plans. Around the fastest of the
 * given plans tokens are moved between pairs of ranks, in steps of 1/32 of the sequence,
 * then of 1/128 (whole tiles, at least one); as long as an end of the line is the
 * fastest the line is followed. Of decode steps are hundredths of the keys: of two ranks
 * all of them are measured, of more those along the lines. All ranks run the same search:
 * rank 0's medians are shared after every measurement.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/program.h"

enum { REACH = 3, LONGEST_WALK = 12 };
static const int STEPS[] = {32, 128}; /* parts of the sequence */
#define NEAR 1.03     /* given plans this near to the fastest are measured again */
#define HOPELESS 1.15 /* a split this much slower ends a walk in its direction */

struct tried {
    hcp_plan own; /* arrays NULL: the plan is one of the given */
    struct ring_result result;
    double ms; /* on every rank */
    int given;
};

struct search {
    struct ring_program *p;
    const hcp_plan *like; /* question of the group */
    struct tried **tried;
    size_t n, best;
};

static void search_free(struct search *s)
{
    for (size_t i = 0; i < s->n; i++) {
        ring_result_free(&s->tried[i]->result);
        if (!s->tried[i]->given)
            ring_plan_free(&s->tried[i]->own);
        free(s->tried[i]);
    }
    free(s->tried);
}

static const hcp_plan *plan_of(const struct tried *t, const hcp_plan *given)
{
    return t->given ? given : &t->own;
}

static int64_t tokens_of(const struct tried *t, size_t rank)
{
    return t->own.ranks[rank].tokens;
}

static struct tried *find(const struct search *s, const hcp_plan *plan)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t r = 0;

        while (r < plan->n_ranks && tokens_of(s->tried[i], r) == plan->ranks[r].tokens)
            r++;
        if (r == plan->n_ranks)
            return s->tried[i];
    }
    return NULL;
}

/* The median of a result, which rank 0 has, on every rank. */
static int share(struct search *s, struct tried *t, struct hcp_err *err)
{
    double ms = s->p->comm.rank == 0 ? t->result.makespan.median : 0;

    ring_watch_waiting(s->p->watch, "waiting for rank 0's summary", 0);
    if (MPI_Bcast(&ms, 1, MPI_DOUBLE, 0, s->p->comm.world) != MPI_SUCCESS) {
        s->p->alone = 1;
        return hcp_fail(err, HCP_FAILED, "MPI failed to share a time");
    }
    ring_watch_idle(s->p->watch);
    t->ms = ms;
    return HCP_OK;
}

/* Measures a plan (whose arrays go to t->own either way, the given plan's staying its
 * own) and notes it. */
static int try_plan(struct search *s, const hcp_plan *plan, int given,
                    struct hcp_err *err)
{
    struct tried *t = calloc(1, sizeof *t);
    struct tried **more = realloc(s->tried, (s->n + 1) * sizeof *more);
    int rc;

    if (more)
        s->tried = more;
    if (!t || !more) {
        free(t);
        s->p->alone = 1;
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    t->own = *plan;
    t->given = given;
    s->tried[s->n++] = t;
    rc = ring_measure(s->p, given ? plan : &t->own, s->p->o.repeat,
                      given && s->p->o.verify_rows >= 0, &t->result, err);
    if (rc == HCP_OK)
        rc = share(s, t, err);
    if (rc == HCP_OK && t->ms < s->tried[s->best]->ms)
        s->best = s->n - 1;
    return rc;
}

static int try_tokens(struct search *s, const int64_t *tokens, double *ms,
                      struct hcp_err *err)
{
    struct tried *known;
    hcp_plan plan;
    int rc = ring_plan_of_tokens(&s->p->plans, s->like, tokens, &plan, err);

    if (rc)
        return ring_all_ok(&s->p->comm, rc, err);
    rc = ring_all_ok(&s->p->comm, HCP_OK, err);
    known = rc == HCP_OK ? find(s, &plan) : NULL;
    if (rc || known) {
        ring_plan_free(&plan);
        if (known)
            *ms = known->ms;
        return rc;
    }
    rc = try_plan(s, &plan, 0, err);
    *ms = rc == HCP_OK ? s->tried[s->n - 1]->ms : NAN;
    return rc;
}

/* Moves tokens between two ranks from the best split so far, both ways. */
static int walk(struct search *s, size_t i, size_t j, int64_t step, struct hcp_err *err)
{
    const hcp_plan *like = s->like;
    size_t n = like->n_ranks;
    int64_t *base = calloc(n, sizeof *base), *tokens = calloc(n, sizeof *tokens);
    int rc = base && tokens ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    rc = ring_all_ok(&s->p->comm, rc, err);
    for (size_t r = 0; rc == HCP_OK && r < n; r++)
        base[r] = tokens_of(s->tried[s->best], r);
    for (int sign = -1; rc == HCP_OK && sign <= 1; sign += 2) {
        size_t since = s->best; /* the walk goes on while its last steps are the best */

        for (int k = 1; rc == HCP_OK && k <= LONGEST_WALK; k++) {
            double ms = NAN;

            if (k > REACH && s->best == since)
                break;
            since = k % REACH == 0 ? s->best : since;
            memcpy(tokens, base, n * sizeof *tokens);
            tokens[i] += sign * k * step;
            tokens[j] -= sign * k * step;
            if (!ring_tokens_fit(like, tokens)) /* or one has less than none */
                break;
            rc = try_tokens(s, tokens, &ms, err);
            if (rc == HCP_OK && ms > HOPELESS * s->tried[s->best]->ms)
                break;
        }
    }
    free(base);
    free(tokens);
    return rc;
}

/* One rank alone: leaving the others out is a split too. Two ranks only; with more the
 * planner's drop sets are among the given plans. */
static int try_alone(struct search *s, struct hcp_err *err)
{
    size_t n = s->like->n_ranks;
    int rc = HCP_OK;

    for (size_t r = 0; n == 2 && rc == HCP_OK && r < n; r++) {
        int64_t tokens[2] = {0, 0};
        double ms, ratio;

        tokens[r] = s->like->seq_len;
        if (!ring_tokens_fit(s->like, tokens))
            continue;
        /* A rank that would be far slower alone is not worth its time. */
        ratio = (double)tokens[r] / (double)(tokens_of(s->tried[s->best], r) + 1);
        if (ratio > 8)
            continue;
        rc = try_tokens(s, tokens, &ms, err);
    }
    return rc;
}

/* The fastest and the given plans once more, in turn: clocks drift meanwhile. */
static int confirm(struct search *s, const hcp_plan *given, const size_t *which,
                   size_t n_which, struct hcp_err *err)
{
    size_t best = s->best;
    int rc = HCP_OK;

    for (size_t i = 0; rc == HCP_OK && i < s->n; i++) {
        struct tried *t = s->tried[i];
        struct ring_result again = {0};
        size_t g = 0;

        if (i != best && !t->given)
            continue;
        if (t->ms > NEAR * s->tried[best]->ms)
            continue;
        while (t->given && g < n_which && find(s, &given[which[g]]) != t)
            g++;
        rc = ring_measure(s->p, plan_of(t, t->given ? &given[which[g]] : NULL),
                          s->p->o.repeat, 0, &again, err);
        if (rc == HCP_OK && s->p->comm.rank == 0) {
            rc = ring_result_add(&t->result, &again, err);
            s->p->alone = rc != HCP_OK;
        }
        if (rc == HCP_OK)
            rc = share(s, t, err);
        ring_result_free(&again);
    }
    for (size_t i = 0; rc == HCP_OK && i < s->n; i++)
        if (s->tried[i]->ms < s->tried[s->best]->ms)
            s->best = i;
    return rc;
}

/* Every hundredth of the keys on the first of two ranks, in whole tiles. */
static int try_hundredths(struct search *s, struct hcp_err *err)
{
    int64_t tile = s->like->tile > 0 ? s->like->tile : 1, length = s->like->seq_len;
    int rc = HCP_OK;

    for (int i = 0; rc == HCP_OK && i <= 100; i++) {
        int64_t tokens[2] = {length / 100 * i + length % 100 * i / 100, 0};
        double ms;

        if (i < 100)
            tokens[0] = (tokens[0] + tile / 2) / tile * tile;
        tokens[0] = tokens[0] < length ? tokens[0] : length;
        tokens[1] = length - tokens[0];
        if (ring_tokens_fit(s->like, tokens))
            rc = try_tokens(s, tokens, &ms, err);
    }
    return rc;
}

static int explore(struct search *s, struct hcp_err *err)
{
    int decode = ring_plan_is_decode(s->like);
    int64_t tile = s->like->tile > 0 ? s->like->tile : 1, step, last = 0;
    size_t n = s->like->n_ranks, n_steps = decode ? 1 : sizeof STEPS / sizeof *STEPS;
    int rc;

    if (decode && n == 2)
        return try_hundredths(s, err);
    rc = try_alone(s, err);
    for (size_t k = 0; rc == HCP_OK && k < n_steps; k++) {
        step = s->like->seq_len / (decode ? 100 : STEPS[k]) / tile * tile;
        step = step > tile ? step : tile;
        if (step == last)
            break;
        last = step;
        for (size_t i = 0; rc == HCP_OK && i + 1 < n; i++)
            rc = walk(s, i, i + 1, step, err);
        if (rc == HCP_OK && n > 2)
            rc = walk(s, n - 1, 0, step, err);
    }
    return rc;
}

/* ---- what is said about it ---- */

struct findings {
    struct ring_result *results;
    char (*text)[64];
    const char **notes;
    size_t n;
};

static int note(struct findings *f, const struct ring_result *r, const char *what,
                struct hcp_err *err)
{
    struct ring_result *results = realloc(f->results, (f->n + 1) * sizeof *results);
    char(*text)[64] = realloc(f->text, (f->n + 1) * sizeof *text);

    if (results)
        f->results = results;
    if (text)
        f->text = text;
    if (!results || !text)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    f->results[f->n] = *r;
    snprintf(f->text[f->n], sizeof *text, "%s", what);
    f->n++;
    return HCP_OK;
}

/* Given plans (also those with equal splits) and the best found; with --json all. */
static int report(struct search *s, const hcp_plan *given, const size_t *which,
                  size_t n_which, struct findings *f, struct hcp_err *err)
{
    const struct tried *best = s->tried[s->best];
    char text[64];
    int rc = HCP_OK;

    for (size_t g = 0; rc == HCP_OK && g < n_which; g++) {
        const struct tried *t = find(s, &given[which[g]]);
        struct ring_result r = t->result;

        r.plan = &given[which[g]];
        snprintf(text, sizeof text, "%.3fx best found", t->ms / best->ms);
        rc = note(f, &r, text, err);
    }
    for (size_t i = 0; rc == HCP_OK && s->p->o.json && i < s->n; i++)
        if (!s->tried[i]->given && i != s->best)
            rc = note(f, &s->tried[i]->result, "tried", err);
    snprintf(text, sizeof text, "best found of %zu measured", s->n);
    return rc ? rc : note(f, &best->result, text, err);
}

static int search_group(struct ring_program *p, const size_t *which, size_t n_which,
                        struct search *s, struct findings *f, struct hcp_err *err)
{
    const hcp_plan *given = p->plans.plans;
    int rc = HCP_OK;

    *s = (struct search){.p = p, .like = &given[which[0]]};
    for (size_t g = 0; rc == HCP_OK && g < n_which; g++)
        if (!find(s, &given[which[g]]))
            rc = try_plan(s, &given[which[g]], 1, err);
    if (rc == HCP_OK)
        rc = explore(s, err);
    if (rc == HCP_OK)
        rc = confirm(s, given, which, n_which, err);
    if (rc == HCP_OK && p->comm.rank == 0) {
        rc = report(s, given, which, n_which, f, err);
        p->alone = rc != HCP_OK;
    }
    return rc;
}

static int same_order_of_kv(const hcp_plan *a, const hcp_plan *b)
{
    if (a->late_kv != b->late_kv || a->n_ranks != b->n_ranks)
        return 0;
    for (size_t r = 0; a->late_kv && r < a->n_ranks; r++)
        if (a->ranks[r].late_slots != b->ranks[r].late_slots)
            return 0;
    return 1;
}

/* Plans of queries and KV split apart are looked around by moving queries alone. */
static int same_place_of_kv(const hcp_plan *a, const hcp_plan *b)
{
    if (a->joint != b->joint || a->n_ranks != b->n_ranks)
        return 0;
    for (size_t r = 0; a->joint && r < a->n_ranks; r++)
        if (a->ranks[r].kv_tokens != b->ranks[r].kv_tokens)
            return 0;
    return 1;
}

/* Whether equal tokens of both are one measurement. */
static int same_question(const hcp_plan *a, const hcp_plan *b)
{
    return same_order_of_kv(a, b) && same_place_of_kv(a, b) && a->seq_len == b->seq_len &&
           a->causal == b->causal && a->merge == b->merge && a->layout == b->layout &&
           a->stripes == b->stripes && a->buffers == b->buffers &&
           a->sub_blocks == b->sub_blocks && a->barrier == b->barrier &&
           (a->sub_blocks == 1 || a->tile == b->tile) && /* where blocks are cut */
           strcmp(a->provider, b->provider) == 0;
}

static int publish(struct ring_program *p, struct findings *f, struct hcp_err *err)
{
    int rc = HCP_OK;

    f->notes = calloc(f->n + 1, sizeof *f->notes);
    if (!f->notes)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < f->n; i++)
        f->notes[i] = f->text[i];
    if (ring_print(p, f->results, f->n, f->notes))
        rc = hcp_fail(err, HCP_FAILED, "cannot print the results");
    fflush(stdout); /* a launcher may end this rank when the first one ends */
    hcp_cli_written(stdout);
    if (rc == HCP_OK)
        rc = ring_store(p, f->results, f->n, err);
    for (size_t i = 0; rc == HCP_OK && i < f->n; i++)
        if (!ring_result_passed(&f->results[i]))
            rc = hcp_fail(err, HCP_FAILED, "verification failed");
    return rc;
}

int ring_search(struct ring_program *p, struct hcp_err *err)
{
    size_t n = p->plans.n, n_groups = 0;
    struct search *groups = calloc(n, sizeof *groups);
    size_t *which = calloc(n, sizeof *which);
    char *seen = calloc(n, 1);
    struct findings f = {0};
    int rc = groups && which && seen ? HCP_OK
                                     : hcp_fail(err, HCP_FAILED, "out of memory");

    rc = ring_all_ok(&p->comm, rc, err);
    for (size_t i = 0; rc == HCP_OK && i < n; i++) {
        size_t m = 0;

        if (seen[i])
            continue;
        for (size_t k = i; k < n; k++) {
            if (same_question(&p->plans.plans[i], &p->plans.plans[k])) {
                which[m++] = k;
                seen[k] = 1;
            }
        }
        rc = search_group(p, which, m, &groups[n_groups++], &f, err);
    }
    if (rc == HCP_OK) {
        if (p->comm.rank == 0)
            rc = publish(p, &f, err);
        rc = ring_all_ok(&p->comm, rc, err);
    }
    for (size_t i = 0; i < n_groups; i++)
        search_free(&groups[i]);
    free(f.results);
    free(f.text);
    free(f.notes);
    free(groups);
    free(which);
    free(seen);
    return rc;
}
