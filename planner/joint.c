/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "kernels/geometry.h"
#include "planner/joint.h"

/* A split that gives each rank its queries and its KV apart. What a block costs follows
 * from where both lie in the sequence: there are no classes of equal blocks under a
 * causal mask, each is asked for. The table of block times takes the place of the memo's
 * (s->memo.early, own times on its diagonal), which is empty afterwards. */

size_t joint_runs_room(size_t n)
{
    return n > JOINT_MAX_RANKS ? 0 : 16 * n < 1024 ? 1024 : 16 * n;
}

hcp_status joint_check(const hcp_question *q, const hcp_ring *ring, char *text,
                       size_t text_size)
{
    size_t n = ring->n;
    size_t runs = hcp_segments_max(n, q->layout, q->stripes);

    if (!q->joint && !q->kv_tokens)
        return HCP_STATUS_OK;
    if (q->late_kv)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "KV that is split apart from queries travels in turn; leave "
                         "late KV or joint out");
    if (ring->linear)
        return plan_fail(
            text, text_size, HCP_STATUS_INVALID,
            "queries and KV are split apart for attention alone: how KV gets "
            "from where its layer makes it to where it is kept is not known "
            "here; leave the linear work or joint out");
    if (n > JOINT_MAX_RANKS)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "queries and KV are split apart for up to %d ranks, not for "
                         "%zu; leave joint out",
                         JOINT_MAX_RANKS, n);
    if (runs > joint_runs_room(n))
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "queries and KV of %zu ranks are split apart with at most %zu "
                         "stripes; use fewer, or leave joint out",
                         n, joint_runs_room(n) / n);
    return HCP_STATUS_OK;
}

/* ---- who holds what ---- */

static const int64_t (*runs_of(const hcp_segment *segments))[2]
{
    _Static_assert(sizeof(hcp_segment) == 2 * sizeof(int64_t), "offset, length");
    return (const int64_t(*)[2])(const void *)segments;
}

static void find_runs(const struct problem *p, const int64_t *tokens, hcp_segment *runs,
                      int64_t *counts, int64_t *first)
{
    int64_t at = 0;

    cost_segments(p->layout, p->stripes, p->n, tokens, p->seq_len, runs, counts);
    for (size_t r = 0; r < p->n; r++) {
        first[r] = at;
        at += counts[r];
    }
}

/* Whether rank a has work on the KV of rank b. */
static int sees(const struct problem *p, const struct joint_scratch *j, size_t a,
                size_t b)
{
    const hcp_segment *last = j->q_runs + j->q_first[a] + j->q_counts[a] - 1;

    if (j->q_counts[a] == 0 || j->kv_counts[b] == 0)
        return 0;
    return !p->causal || j->kv_runs[j->kv_first[b]].offset < last->offset + last->length;
}

void joint_lay_out(const struct problem *p, struct scratch *s, const int64_t *q,
                   const int64_t *kv)
{
    struct joint_scratch *j = &s->joint;
    struct active *act = &s->act;
    int32_t m = 0;

    find_runs(p, q, j->q_runs, j->q_counts, j->q_first);
    find_runs(p, kv, j->kv_runs, j->kv_counts, j->kv_first);
    for (size_t r = 0; r < p->n; r++) {
        if (q[r] == 0 && kv[r] == 0)
            continue;
        act->rank[m] = (int32_t)r;
        act->len[m++] = kv[r];
    }
    act->m = m;
    for (int32_t b = 0; b < m; b++) {
        int32_t h = act->len[b] > 0 ? m - 1 : 0;

        while (h > 0 && !sees(p, j, (size_t)act->rank[(b + h) % m], (size_t)act->rank[b]))
            h--;
        s->hops[b] = h;
    }
}

/* ---- what it costs ---- */

struct calls {
    void (*visit)(void *ctx, int causal, int64_t q_len, int64_t kv_len);
    void *ctx;
};

static void pass_on(void *ctx, const hcp_call *call)
{
    const struct calls *c = ctx;

    c->visit(c->ctx, call->causal, call->rows, call->keys);
}

/* Keys from .. to - 1 of the KV of rank b on rank a. */
static void piece_calls(const struct problem *p, const struct joint_scratch *j, size_t a,
                        size_t b, int64_t from, int64_t to, struct calls *c)
{
    hcp_piece_calls(p->causal ? HCP_MASK_CAUSAL : HCP_MASK_FULL,
                    runs_of(j->q_runs + j->q_first[a]), j->q_counts[a],
                    runs_of(j->kv_runs + j->kv_first[b]), j->kv_counts[b], from, to,
                    pass_on, c);
}

void joint_each_call(const struct problem *p, const struct scratch *s, size_t a, size_t b,
                     const int64_t *kv,
                     void (*visit)(void *ctx, int causal, int64_t q_len, int64_t kv_len),
                     void *ctx)
{
    struct calls c = {visit, ctx};
    int64_t ends[MAX_SUB_BLOCKS], from = 0;
    int32_t n = 1;

    ends[0] = kv[b];
    if (kv[b] == 0)
        return;
    if (a != b)
        n = cost_cuts(p, kv[b], ends);
    for (int32_t i = 0; i < n; from = ends[i++])
        piece_calls(p, &s->joint, a, b, from, ends[i], &c);
}

struct sum {
    const struct problem *p;
    struct scratch *s;
    const hcp_model *model;
    int32_t id;
    int own; /* first to write its rows' state: the result is stored, not merged */
    double ms;
};

/* Times of calls come back often: pieces and shares are of few lengths. */
static void add_call(void *ctx, int causal, int64_t q_len, int64_t kv_len)
{
    struct sum *sum = ctx;
    int32_t id = -2 - (4 * sum->id + 2 * (sum->own != 0) + (causal != 0));
    struct cached_call *call = eval_find_call(sum->s, id, q_len, kv_len);

    if (call->id != id || call->q_len != q_len || call->kv_len != kv_len) {
        double ms = hcp_model_block_ms(sum->model, causal, q_len, kv_len, NULL);

        if (!sum->p->kernel_only)
            ms += hcp_model_finish_ms(sum->model, !sum->own, q_len);
        *call = (struct cached_call){q_len, kv_len, id, ms};
    }
    sum->ms += call->ms;
}

static struct sum sum_for(const struct problem *p, struct scratch *s, size_t a, size_t b)
{
    return (struct sum){p,      s, problem_model(p, a), p->ring->ranks[a].id[p->kind],
                        a == b, 0};
}

/* Times of all blocks by active rank and whose KV it is, and of what each rank is busy
 * with; the largest. Stops at a rank that is busy for limit_ms. */
static double fill_times(const struct problem *p, struct scratch *s, const int64_t *kv,
                         double limit_ms)
{
    const struct active *act = &s->act;
    double most = 0;

    for (int32_t a = 0; a < act->m; a++) {
        double *row = s->memo.early + (size_t)a * (size_t)s->memo.cap;

        s->busy[a] = 0;
        for (int32_t b = 0; b < act->m; b++) {
            size_t ra = (size_t)act->rank[a], rb = (size_t)act->rank[b];
            struct sum sum = sum_for(p, s, ra, rb);

            if (s->joint.q_counts[ra] > 0)
                joint_each_call(p, s, ra, rb, kv, add_call, &sum);
            row[b] = sum.ms;
            s->busy[a] += sum.ms;
        }
        most = s->busy[a] > most ? s->busy[a] : most;
        if (most >= limit_ms)
            break;
    }
    return most;
}

struct block_pieces {
    const struct problem *p;
    struct scratch *s;
    double ms[MAX_SUB_BLOCKS], send_ms[MAX_SUB_BLOCKS];
};

/* As ring_input.pieces: the pieces of the KV of active rank b on active rank a. */
static int32_t block_pieces(void *ctx, int32_t a, int32_t b, const double **ms,
                            const double **send_ms)
{
    struct block_pieces *e = ctx;
    const struct problem *p = e->p;
    struct scratch *s = e->s;
    const struct active *act = &s->act;
    double alpha_ms = p->links ? s->into[a].alpha_ms : p->alpha_ms;
    double token_ms = p->links ? s->into[a].token_ms : p->token_ms;
    size_t ra = (size_t)act->rank[a], rb = (size_t)act->rank[b];
    int64_t ends[MAX_SUB_BLOCKS], from = 0;
    int32_t n = cost_cuts(p, act->len[b], ends);

    *ms = e->ms;
    *send_ms = e->send_ms;
    for (int32_t i = 0; i < n; from = ends[i++]) {
        struct sum sum = sum_for(p, s, ra, rb);
        struct calls c = {add_call, &sum};

        e->send_ms[i] = alpha_ms + token_ms * (double)(ends[i] - from);
        e->ms[i] = s->memo.early[(size_t)a * (size_t)s->memo.cap + (size_t)b];
        if (n == 1)
            break;
        if (s->joint.q_counts[ra] > 0)
            piece_calls(p, &s->joint, ra, rb, from, ends[i], &c);
        e->ms[i] = sum.ms;
    }
    return n;
}

/* Values of active ranks over all ranks, from the end so that nothing is lost. */
static void spread(const struct problem *p, const struct active *act, double *value)
{
    int32_t i = act->m;

    for (size_t r = p->n; r-- > 0;)
        value[r] = i > 0 && act->rank[i - 1] == (int32_t)r ? value[--i] : 0;
}

struct score joint_eval(const struct problem *p, struct scratch *s, const int64_t *q,
                        const int64_t *kv, double limit_ms, hcp_step *steps)
{
    struct active *act = &s->act;
    struct block_pieces pieces = {.p = p, .s = s};
    struct ring_input in;
    struct score score = {0, 0, HCP_FROM_MEASURED, 0};

    memo_reset(&s->memo);
    eval_ready_calls(s);
    joint_lay_out(p, s, q, kv);
    if (fill_times(p, s, kv, limit_ms) >= limit_ms)
        return (struct score){0, 1, 0, limit_ms};
    if (p->links)
        links_into(p, s);
    for (int32_t b = 0; b < act->m; b++)
        s->send_ms[b] = cost_send(p, act->len[b]);
    in = (struct ring_input){.m = act->m,
                             .stride = s->memo.cap,
                             .early = s->memo.early,
                             .pieces = block_pieces,
                             .pieces_ctx = &pieces,
                             .hops = s->hops,
                             .send_ms = s->send_ms,
                             .buffers = p->buffers,
                             .barrier = p->barrier,
                             .into = p->links ? s->into : NULL,
                             .starts = s->starts,
                             .len = act->len,
                             .busy = s->busy};
    score.ms = joint_ring(&in, &s->ring, s->fin, steps);
    spread(p, act, s->fin);
    spread(p, act, s->busy);
    return score;
}

void joint_kernels(const struct problem *p, struct scratch *s, const int64_t *q,
                   const int64_t *kv)
{
    struct problem kernels = *p;

    kernels.kernel_only = 1;
    s->calls_ready = 0; /* they hold other times, and will again */
    eval_ready_calls(s);
    memo_reset(&s->memo);
    joint_lay_out(&kernels, s, q, kv);
    fill_times(&kernels, s, kv, HUGE_MS);
    spread(p, &s->act, s->busy);
    s->calls_ready = 0;
}

struct weakest {
    const hcp_model *model;
    uint8_t source;
};

static void weaken(void *ctx, int causal, int64_t q_len, int64_t kv_len)
{
    struct weakest *w = ctx;
    hcp_model_source from;

    hcp_model_block_ms(w->model, causal, q_len, kv_len, &from);
    if (w->source < (uint8_t)from)
        w->source = (uint8_t)from;
}

uint8_t joint_source(const struct problem *p, struct scratch *s, const int64_t *q,
                     const int64_t *kv)
{
    struct weakest w = {NULL, HCP_FROM_MEASURED};

    joint_lay_out(p, s, q, kv);
    for (size_t a = 0; a < p->n; a++) {
        w.model = problem_model(p, a);
        for (size_t b = 0; q[a] > 0 && b < p->n && w.source < HCP_FROM_EXTRAPOLATED; b++)
            joint_each_call(p, s, a, b, kv, weaken, &w);
    }
    return w.source;
}
