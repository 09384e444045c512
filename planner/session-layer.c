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

/* The plan that lines have led to, with lines that are exact at its own tokens; and from
 * there, where that may be, to the nearest split that no few tiles make faster by the
 * measured times. */
static int walk(const struct plan_args *args, struct session *s, size_t n,
                const char *provider, struct hcp_err *err)
{
    int64_t *room = calloc(4 * n, sizeof *room);
    struct walk w = {s,    n,        provider,     args->question, s->plan.strategy,
                     room, room + n, room + 2 * n, room + 3 * n};
    int moves = may_walk(s, n), good;
    double ms;

    if (!room)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    w.question.layout = s->plan.layout;
    for (size_t r = 0; r < n; r++)
        w.tokens[r] = s->plan.ranks[r].tokens;
    good = walk_to(&w, w.tokens);
    ms = s->plan.makespan_ms;
    for (int i = 0; good && moves && i < WALKS && walk_on(&w, &ms); i++)
        good = walk_to(&w, w.tokens);
    good = good && walk_to(&w, w.tokens);
    free(room);
    return good ? HCP_OK
                : hcp_fail(err, HCP_FAILED,
                           "a split that was planned has no answer when it is asked for; "
                           "please report this");
}

int session_say_finer(const struct session *s, FILE *out)
{
    size_t n = hcp_ring_size(s->ring);
    int64_t *tokens = s->layer ? calloc(n, sizeof *tokens) : NULL;
    int failed;

    if (!tokens)
        return s->layer != NULL;
    for (size_t r = 0; r < n; r++)
        tokens[own_order(&s->plan) ? (size_t)s->plan.places[r].rank : r] =
            s->plan.ranks[r].tokens;
    failed = layer_measured_finer(s->layer, tokens, out);
    free(tokens);
    return failed;
}

int session_ask_measured(const struct plan_args *args, struct session *s, int64_t *at,
                         struct hcp_err *err)
{
    size_t n = hcp_ring_size(s->ring);
    char provider[32];
    int settled, rc;

    snprintf(provider, sizeof provider, "%s", hcp_ring_provider(s->ring));
    rc = settle(args, s, n, at, provider, &settled, err);
    if (rc == HCP_OK && !s->tokens && !session_of_decode(s->plan.shape.phase)) {
        if (own_order(&s->plan) || s->plan.joint)
            rc = settled ? HCP_OK : widen(args, s, at, provider, err);
        else if (!settled || may_walk(s, n))
            rc = walk(args, s, n, provider, err);
    }
    if (rc)
        return rc;
    for (size_t r = 0; r < n; r++)
        at[own_order(&s->plan) ? (size_t)s->plan.places[r].rank : r] =
            s->plan.ranks[r].tokens;
    return layer_measured_check(s->layer, at, err);
}
