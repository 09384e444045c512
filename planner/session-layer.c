/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans with measured linear work. The library takes a straight line by rank. What a
 * machine takes has steps: a product's tiles fill its SMs so many times, and a few tokens
 * more are a round more (measured: 5 % between 4,608 and 4,736 tokens on an H200). So the
 * lines go through the times of a plan's own tokens, and shares are moved tile by tile as
 * long as what was measured says that it pays.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "planner/decision.h"
#include "planner/options.h"

enum {
    ROUNDS = 8,      /* of lines and plans */
    WALKS = 32,      /* improvements */
    WALK_RANKS = 16, /* more are left as they are */
    WALK_TILES = 4,  /* moved at once at most: past the end of a step */
    WALK_PAIRED = 4, /* ranks up to which all pairs are tried */
};

hcp_status session_ask(const struct plan_args *args, struct session *s,
                       struct hcp_err *err)
{
    if (s->tokens)
        return hcp_plan_evaluate(s->ring, &args->question, s->tokens, s->workspace,
                                 s->workspace_bytes, err->text, sizeof err->text,
                                 &s->plan);
    return hcp_plan_split(s->ring, &args->question, s->workspace, s->workspace_bytes,
                          err->text, sizeof err->text, &s->plan);
}

static int own_order(const hcp_plan *plan)
{
    return plan->order || plan->has_links;
}

static int bind_lines(struct session *s, const char *provider, struct hcp_err *err)
{
    size_t n = hcp_ring_size(s->ring);

    hcp_ring_free(s->ring);
    s->ring = NULL;
    return err->code =
               plan_exit_code(hcp_ring_create(s->models, &s->shape, s->ranks, n, provider,
                                              err->text, sizeof err->text, &s->ring));
}

int session_rebind(struct session *s, const int64_t *at, const char *provider,
                   struct hcp_err *err)
{
    layer_measured_lines(s->layer, at, s->ranks);
    return bind_lines(s, provider, err);
}

/* Plans until they are for the tokens that their lines are exact at, a few times at most:
 * *settled then. at: the plan's tokens, of a rank without any those before, [n]. */
static int settle(const struct plan_args *args, struct session *s, size_t n, int64_t *at,
                  const char *provider, int *settled, struct hcp_err *err)
{
    hcp_status status;

    *settled = 0;
    for (size_t r = 0; r < n; r++)
        at[r] = s->tokens ? s->tokens[r] : args->question.seq_len / (int64_t)n;
    for (int round = 0; !*settled && round < ROUNDS; round++) {
        if (session_rebind(s, at, provider, err))
            return err->code;
        status = session_ask(args, s, err);
        if (status)
            return err->code = plan_exit_code(status);
        *settled = 1;
        for (size_t r = 0; r < n; r++) {
            int64_t tokens = s->plan.ranks[r].tokens;
            size_t given = own_order(&s->plan) ? (size_t)s->plan.places[r].rank : r;

            *settled &= tokens == 0 || tokens == at[given];
            at[given] = tokens > 0 ? tokens : at[given];
        }
    }
    return HCP_OK;
}

/* The same plan once more, its error bars wide enough for lines that are exact at other
 * tokens than its own: a split in an order that was chosen cannot be asked for. */
static int widen(const struct plan_args *args, struct session *s, const int64_t *tokens,
                 const char *provider, struct hcp_err *err)
{
    layer_measured_widen(s->layer, tokens, s->ranks);
    return bind_lines(s, provider, err)
               ? err->code
               : (err->code = plan_exit_code(session_ask(args, s, err)));
}

struct walk {
    struct session *s;
    size_t n;
    const char *provider;
    hcp_question question; /* that of the plan's layout */
    hcp_strategy strategy; /* the plan's */
    /* [n] by the ranks as given: the plan's tokens, some that are tried, the best of
     * these, and where lines are exact. */
    int64_t *tokens, *tried, *best, *at;
    /* Of the even split and the best one without the slowest ranks, with lines exact at
     * their own tokens; NaN: none. */
    double even_ms, drop_ms;
    /* The fastest split of these and the other strategies; its tokens as above. HUGE_VAL:
     * none. rival_asked: it is what `rival` answers, in an order of its own. */
    double rival_ms;
    int rival_asked;
    hcp_strategy rival;
    hcp_layout rival_layout;
    int64_t *rival_tokens;
};

/* The split of these tokens, with lines that are exact at them, into the session's plan.
 * 0: it has no answer, as where a cap is exceeded. */
static int walk_to(struct walk *w, const int64_t *tokens)
{
    struct session *s = w->s;
    struct hcp_err why = {0};

    for (size_t r = 0; r < w->n; r++)
        w->at[r] = tokens[r] > 0 ? tokens[r] : 1;
    if (session_rebind(s, w->at, w->provider, &why) ||
        hcp_plan_evaluate(s->ring, &w->question, tokens, s->workspace, s->workspace_bytes,
                          why.text, sizeof why.text, &s->plan))
        return 0;
    s->plan.strategy = w->strategy;
    s->plan.fingerprint = hcp_plan_fingerprint(&s->plan);
    return 1;
}

static size_t slowest(const hcp_plan *plan)
{
    size_t r = 0;

    for (size_t i = 1; i < plan->n_ranks; i++)
        if (plan->ranks[i].predicted_ms > plan->ranks[r].predicted_ms)
            r = i;
    return r;
}

/* One step of the walk: the fastest of the splits that move a few tiles from one rank to
 * another; of many ranks those with the slowest. tokens and *ms follow. 0: none is
 * faster. */
static int walk_on(struct walk *w, double *ms)
{
    size_t late = slowest(&w->s->plan), bytes = w->n * sizeof *w->tokens;
    int64_t tile = w->s->plan.tile > 0 ? w->s->plan.tile : 1;
    int found = 0;

    for (size_t a = 0; a < w->n; a++)
        for (size_t b = 0; b < w->n; b++)
            for (int64_t k = 1; k <= WALK_TILES; k++) {
                if (a == b || w->tokens[a] < k * tile || w->tokens[b] == 0 ||
                    (w->n > WALK_PAIRED && a != late && b != late))
                    continue;
                memcpy(w->tried, w->tokens, bytes);
                w->tried[a] -= k * tile;
                w->tried[b] += k * tile;
                if (walk_to(w, w->tried) && w->s->plan.makespan_ms < *ms) {
                    *ms = w->s->plan.makespan_ms;
                    memcpy(w->best, w->tried, bytes);
                    found = 1;
                }
            }
    if (found)
        memcpy(w->tokens, w->best, bytes);
    return found;
}

/* Shares that the walk may move: those of one ring in its given order. */
static int may_walk(const struct session *s, size_t n)
{
    const hcp_plan *plan = &s->plan;

    return n > 1 && n <= WALK_RANKS && plan->strategy == HCP_STRATEGY_BEST &&
           !plan->late_kv && plan->inner_ranks == 0;
}

static void given_tokens(const struct session *s, size_t n, int64_t *tokens)
{
    for (size_t r = 0; r < n; r++)
        tokens[own_order(&s->plan) ? (size_t)s->plan.places[r].rank : r] =
            s->plan.ranks[r].tokens;
}

/* What another strategy would answer. */
static int answer_of(const struct plan_args *args, struct walk *w, hcp_strategy strategy,
                     int *settled)
{
    struct plan_args asked = *args;
    struct session *s = w->s;
    int64_t *tokens = s->tokens;
    struct hcp_err why = {0};
    int rc;

    asked.question.strategy = strategy;
    s->tokens = NULL;
    rc = settle(&asked, s, w->n, w->at, w->provider, settled, &why);
    s->tokens = tokens;
    return rc == HCP_OK;
}

static void keep_rival(struct walk *w, int asked, hcp_strategy strategy)
{
    if (w->s->plan.makespan_ms >= w->rival_ms)
        return;
    w->rival_ms = w->s->plan.makespan_ms;
    w->rival_asked = asked;
    w->rival = strategy;
    w->rival_layout = w->s->plan.layout;
    memcpy(w->rival_tokens, w->tried, w->n * sizeof *w->tried);
}

/* The last answer's split with lines that are exact at it; in the order as given. */
static int tried_exactly(struct walk *w)
{
    given_tokens(w->s, w->n, w->tried);
    w->question.layout = w->s->plan.layout;
    return walk_to(w, w->tried);
}

/* Plans without the slowest ranks by their linear work: those have room for nothing while
 * it is asked. Of many ranks all that are as slow are left out at once. */
static void leave_out(const struct plan_args *args, struct walk *w)
{
    struct session *s = w->s;
    struct plan_args asked = *args;
    size_t n = w->n, *by = calloc(n, sizeof *by);
    double *slow = calloc(n, sizeof *slow);
    int64_t *room = calloc(n, sizeof *room);
    int settled;

    asked.question.order = HCP_ORDER_GIVEN;
    for (size_t r = 0; r < n; r++)
        w->at[r] = args->question.seq_len / (int64_t)n;
    if (by && slow && room)
        layer_measured_lines(s->layer, w->at, s->ranks);
    for (size_t r = 0; by && slow && room && r < n; r++) {
        const hcp_rank *k = &s->ranks[r];
        size_t i = r;

        slow[r] = (k->linear_before_us + k->linear_after_us) * (double)w->at[r] +
                  k->linear_before_fixed_us + k->linear_after_fixed_us;
        room[r] = k->max_bytes;
        for (; i > 0 && slow[by[i - 1]] < slow[r]; i--)
            by[i] = by[i - 1];
        by[i] = r;
    }
    for (size_t k = 1; by && slow && room && k < n; k++) {
        int answers;

        if (n > WALK_RANKS && slow[by[k]] >= slow[by[k - 1]])
            continue;
        for (size_t i = 0; i < k; i++)
            s->ranks[by[i]].max_bytes = 1;
        answers = answer_of(&asked, w, HCP_STRATEGY_BEST, &settled);
        for (size_t i = 0; i < k; i++)
            s->ranks[by[i]].max_bytes = room[by[i]];
        if (!answers || !tried_exactly(w))
            continue;
        w->drop_ms = fmin(w->drop_ms, s->plan.makespan_ms);
        keep_rival(w, 0, HCP_STRATEGY_BEST);
    }
    free(by);
    free(slow);
    free(room);
}

/* Lines that are exact at one split say little of another: the even one, those without
 * the slowest ranks, and of the best what it must not be slower than, are asked for with
 * lines of their own. */
static void meet_rivals(const struct plan_args *args, struct walk *w)
{
    static const hcp_strategy rivals[] = {HCP_STRATEGY_EVEN, HCP_STRATEGY_NOMINAL,
                                          HCP_STRATEGY_PROPORTIONAL, HCP_STRATEGY_LUT,
                                          HCP_STRATEGY_POLY};
    struct session *s = w->s;
    int best = !s->tokens && args->question.strategy == HCP_STRATEGY_BEST, settled;

    w->even_ms = w->drop_ms = NAN;
    w->rival_ms = HUGE_VAL;
    for (size_t i = 0; i < (best ? sizeof rivals / sizeof *rivals : 1); i++) {
        int own, other = rivals[i] == HCP_STRATEGY_LUT || rivals[i] == HCP_STRATEGY_POLY;

        if (!answer_of(args, w, rivals[i], &settled))
            continue;
        /* No split can be asked for in an order of its own; of models, by the best's. */
        own = own_order(&s->plan) && settled && !other;
        if (!own && !tried_exactly(w))
            continue;
        if (rivals[i] == HCP_STRATEGY_EVEN)
            w->even_ms = s->plan.makespan_ms;
        keep_rival(w, own, rivals[i]);
    }
    leave_out(args, w);
}

/* The plan that lines have led to, or a faster one of another strategy, with lines that
 * are exact at its own tokens; and from there, where that may be, to the nearest split
 * that no few tiles make faster by the measured times. */
static int walk(struct walk *w, struct hcp_err *err)
{
    struct session *s = w->s;
    int best = s->plan.strategy == HCP_STRATEGY_BEST, moves = may_walk(s, w->n), good;
    double ms;

    w->question.layout = s->plan.layout;
    for (size_t r = 0; r < w->n; r++)
        w->tokens[r] = s->plan.ranks[r].tokens;
    good = walk_to(w, w->tokens);
    if (good && best && w->rival_ms < s->plan.makespan_ms) {
        w->question.layout = w->rival_layout;
        memcpy(w->tokens, w->rival_tokens, w->n * sizeof *w->tokens);
        good = walk_to(w, w->tokens);
    }
    ms = s->plan.makespan_ms;
    for (int i = 0; good && moves && i < WALKS && walk_on(w, &ms); i++)
        good = walk_to(w, w->tokens);
    good = good && walk_to(w, w->tokens);
    return good ? HCP_OK
                : hcp_fail(err, HCP_FAILED,
                           "a split that was planned has no answer when it is asked for; "
                           "please report this");
}

/* A plan in an order of its own, and its error; or a faster one of its rivals. */
static int stay(const struct plan_args *args, struct walk *w, int settled, int64_t *at,
                struct hcp_err *err)
{
    struct session *s = w->s;
    int rc = settled ? HCP_OK : widen(args, s, at, w->provider, err);

    if (rc || w->strategy != HCP_STRATEGY_BEST || s->plan.makespan_ms <= w->rival_ms)
        return rc;
    w->question.layout = w->rival_layout;
    if (w->rival_asked ? !answer_of(args, w, w->rival, &settled)
                       : !walk_to(w, w->rival_tokens))
        return hcp_fail(err, HCP_FAILED,
                        "a split that was planned has no answer when it is asked for; "
                        "please report this");
    s->plan.strategy = w->strategy;
    return HCP_OK;
}

int session_say_finer(const struct session *s, FILE *out)
{
    size_t n = hcp_ring_size(s->ring);
    int64_t *tokens = s->layer ? calloc(n, sizeof *tokens) : NULL;
    int failed;

    if (!tokens)
        return s->layer != NULL;
    given_tokens(s, n, tokens);
    failed = layer_measured_finer(s->layer, tokens, out);
    free(tokens);
    return failed;
}

static int ask_all(const struct plan_args *args, struct walk *w, int64_t *at,
                   struct hcp_err *err)
{
    struct session *s = w->s;
    int settled, rc;

    meet_rivals(args, w);
    rc = settle(args, s, w->n, at, w->provider, &settled, err);
    if (rc)
        return rc;
    w->strategy = s->plan.strategy;
    if (!s->tokens && (own_order(&s->plan) || s->plan.joint))
        rc = stay(args, w, settled, at, err);
    else if (!s->tokens && (!settled || s->plan.strategy == HCP_STRATEGY_BEST))
        rc = walk(w, err);
    if (rc)
        return rc;
    s->plan.even_ms = w->even_ms;
    s->plan.gain_over_even = w->even_ms / s->plan.makespan_ms;
    s->plan.drop_ms = w->drop_ms;
    s->plan.decision = decision_of(&s->plan);
    s->plan.fingerprint = hcp_plan_fingerprint(&s->plan);
    return HCP_OK;
}

int session_ask_measured(const struct plan_args *args, struct session *s, int64_t *at,
                         struct hcp_err *err)
{
    size_t n = hcp_ring_size(s->ring);
    int64_t *room = calloc(5 * n, sizeof *room);
    char provider[32];
    struct walk w = {
        .s = s, .n = n, .provider = provider, .question = args->question, .tokens = room};
    int rc;

    if (!room)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    w.tried = room + n;
    w.best = room + 2 * n;
    w.at = room + 3 * n;
    w.rival_tokens = room + 4 * n;
    snprintf(provider, sizeof provider, "%s", hcp_ring_provider(s->ring));
    rc = ask_all(args, &w, at, err);
    free(room);
    if (rc)
        return rc;
    given_tokens(s, n, at);
    return layer_measured_check(s->layer, at, err);
}
