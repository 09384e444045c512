/* SPDX-License-Identifier: Apache-2.0
 *
 * From one plan's KV to another's. Rank r has x_r tokens and shall have y_r: it gives
 * max(0, x_r - y_r) or takes max(0, y_r - x_r), and no fewer tokens make the one of the
 * other. A rank sends one message at a time and receives one, so a pairing takes
 *
 *   max over ranks of the sums of alpha + bytes / speed of what it sends, or receives
 *
 * Ranks in order are paired first; where few change, all pairings whose messages form no
 * circle are looked at. With one link for all these are enough: the bytes of a rank are
 * what they are, and a circle can be broken without a message more for anybody.
 */
#include <math.h>
#include <string.h>
#include "planner/decode.h"
#include "planner/moves.h"

enum { FEW = 8, MOST_NODES = 50000 };

struct pair {
    int32_t from, to;
    int64_t tokens;
};

/* ---- times ---- */

static int before(const hcp_link *a, int32_t from, int32_t to)
{
    return a->from != from ? a->from < from : a->to < to;
}

static double pair_ms(const struct pairing *p, int32_t from, int32_t to, int64_t tokens)
{
    double alpha_us = p->q->link_alpha_us, byte_ms = p->byte_ms;
    size_t lo = 0, hi = p->q->n_links;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (before(&p->q->links[mid], from, to))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < p->q->n_links && p->q->links[lo].from == from && p->q->links[lo].to == to) {
        double gbps = p->q->links[lo].gbps;

        alpha_us = p->q->links[lo].alpha_us;
        byte_ms = gbps > 0 ? 1 / (gbps * 1e6) : 0;
    }
    return alpha_us / 1e3 + (double)tokens * p->token_bytes * byte_ms;
}

/* ---- in the order of the ranks ---- */

static size_t pair_in_order(const struct pairing *p, hcp_move *out, size_t capacity)
{
    size_t i = 0, j = 0, n = 0;
    int64_t give = p->give[0], take = p->take[0], tokens;

    for (;;) {
        while (give == 0 && ++i < p->n)
            give = p->give[i];
        while (take == 0 && ++j < p->n)
            take = p->take[j];
        if (i >= p->n || j >= p->n)
            return n;
        tokens = give < take ? give : take;
        if (n < capacity)
            out[n] = (hcp_move){.from = (int32_t)i, .to = (int32_t)j, .tokens = tokens};
        n++;
        give -= tokens;
        take -= tokens;
    }
}

/* The largest sum of a rank, sent or received; sums: room for [2 n]. */
static double pairing_ms(const struct pairing *p, const hcp_move *move, size_t n_moves,
                         double *sums)
{
    double most = 0;

    memset(sums, 0, 2 * p->n * sizeof *sums);
    for (size_t i = 0; i < n_moves; i++) {
        double ms = pair_ms(p, move[i].from, move[i].to, move[i].tokens);

        sums[move[i].from] += ms;
        sums[p->n + (size_t)move[i].to] += ms;
    }
    for (size_t i = 0; i < 2 * p->n; i++)
        most = sums[i] > most ? sums[i] : most;
    return most;
}

/* ---- all pairings of few ranks ---- */

struct search {
    const struct pairing *p;
    int n_from, n_to, depth, n_best, nodes;
    int32_t from[FEW], to[FEW];
    int64_t give[FEW], take[FEW];
    double sent[FEW], got[FEW];
    struct pair path[FEW], best[FEW];
    double best_ms;
};

/* Whether a rank with one message more for what it has left is no faster. */
static int hopeless(const struct search *s, const double *sums, const int64_t *left,
                    int n)
{
    double alpha_ms = s->p->q->link_alpha_us / 1e3;

    for (int i = 0; i < n && s->p->q->n_links == 0; i++)
        if (left[i] > 0 &&
            sums[i] + alpha_ms + (double)left[i] * s->p->token_bytes * s->p->byte_ms >=
                s->best_ms * (1 - 1e-12))
            return 1;
    return 0;
}

/* A message that uses up what one side has left, then the others: pairings without
 * circles always have such a one, whichever is taken first. */
static void look(struct search *s, double here_ms)
{
    int open = 0;

    if (s->nodes++ > MOST_NODES || here_ms >= s->best_ms ||
        hopeless(s, s->sent, s->give, s->n_from) || hopeless(s, s->got, s->take, s->n_to))
        return;
    for (int i = 0; i < s->n_from; i++) {
        for (int j = 0; j < s->n_to && s->give[i] > 0; j++) {
            int64_t tokens = s->give[i] < s->take[j] ? s->give[i] : s->take[j];
            double ms, sent = s->sent[i], got = s->got[j], most = here_ms;

            if (tokens == 0)
                continue;
            open = 1;
            ms = pair_ms(s->p, s->from[i], s->to[j], tokens);
            s->path[s->depth++] = (struct pair){s->from[i], s->to[j], tokens};
            s->give[i] -= tokens;
            s->take[j] -= tokens;
            s->sent[i] += ms;
            s->got[j] += ms;
            most = s->sent[i] > most ? s->sent[i] : most;
            most = s->got[j] > most ? s->got[j] : most;
            look(s, most);
            s->sent[i] = sent;
            s->got[j] = got;
            s->give[i] += tokens;
            s->take[j] += tokens;
            s->depth--;
        }
    }
    if (!open) {
        s->best_ms = here_ms;
        s->n_best = s->depth;
        memcpy(s->best, s->path, sizeof s->path);
    }
}

/* Puts a faster pairing into move if there is one; whether all were looked at. */
static int pair_few(const struct pairing *p, hcp_move *move, size_t *n_moves, double *ms)
{
    struct search s = {.p = p, .best_ms = *ms};

    for (size_t r = 0; r < p->n; r++) {
        if (p->give[r] > 0) {
            s.from[s.n_from] = (int32_t)r;
            s.give[s.n_from++] = p->give[r];
        }
        if (p->take[r] > 0) {
            s.to[s.n_to] = (int32_t)r;
            s.take[s.n_to++] = p->take[r];
        }
    }
    if (s.n_from > 1 && s.n_to > 1)
        look(&s, 0);
    if (s.n_best > 0) {
        *ms = s.best_ms;
        *n_moves = (size_t)s.n_best;
        for (int i = 0; i < s.n_best; i++) { /* by sender, then receiver */
            int k = i;
            hcp_move one = {
                .from = s.best[i].from, .to = s.best[i].to, .tokens = s.best[i].tokens};

            for (; k > 0 && (move[k - 1].from > one.from ||
                             (move[k - 1].from == one.from && move[k - 1].to > one.to));
                 k--)
                move[k] = move[k - 1];
            move[k] = one;
        }
    }
    return s.nodes <= MOST_NODES;
}

double moves_in_order(const struct pairing *p, hcp_move *move, double *sums,
                      size_t *n_moves)
{
    *n_moves = pair_in_order(p, move, p->n);
    return pairing_ms(p, move, *n_moves, sums);
}

double moves_pair(const struct pairing *p, hcp_move *move, double *sums, size_t *n_moves,
                  int *exact)
{
    int changing = 0, givers = 0;
    double ms;

    for (size_t r = 0; r < p->n; r++) {
        givers += p->give[r] > 0;
        changing += p->give[r] > 0 || p->take[r] > 0;
    }
    ms = moves_in_order(p, move, sums, n_moves);
    *exact = givers < 2 || changing - givers < 2;
    if (changing <= FEW && !*exact)
        *exact = pair_few(p, move, n_moves, &ms) && p->q->n_links == 0;
    return ms;
}

int64_t moves_bytes(const struct pairing *p, int64_t tokens)
{
    double bytes = (double)tokens * p->token_bytes;

    return bytes < 9e18 ? (int64_t)bytes : INT64_MAX;
}

/* ---- which tokens ---- */

/* The last tokens that a rank of the old plan still has: what it has given away before is
 * given. Runs in order of position in its memory; n they make, or -1: no room for them.
 */
static int64_t take_last(const hcp_plan *from, const hcp_plan_rank *rank, int64_t given,
                         int64_t tokens, hcp_segment *out, size_t room)
{
    const hcp_segment *segment = from->segments + rank->first_kv_segment;
    int64_t n = 0, end = rank->n_kv_segments;

    for (int64_t i = end; i-- > 0 && tokens > 0;) {
        int64_t len = segment[i].length, left, part;

        if (given >= len) {
            given -= len;
            continue;
        }
        left = len - given;
        part = left < tokens ? left : tokens;
        if ((size_t)n == room)
            return -1;
        out[n++] = (hcp_segment){segment[i].offset + left - part, part};
        tokens -= part;
        given = 0;
    }
    for (int64_t i = 0; i < n / 2; i++) {
        hcp_segment swap = out[i];

        out[i] = out[n - 1 - i];
        out[n - 1 - i] = swap;
    }
    return n;
}

/* Place of the old plan's rank r of the ring. */
static size_t place_of(const hcp_plan *from, const int32_t *place, size_t r)
{
    return from->order || from->has_links ? (size_t)place[r] : r;
}

/* ---- what is asked ---- */

static hcp_status check_question(const hcp_move_question *q, size_t n, char *text,
                                 size_t size)
{
    hcp_question links = {.links = q->links, .n_links = q->n_links};
    hcp_status status = links_check(&links, n, text, size);

    if (status)
        return status;
    for (size_t i = 0; i < q->n_links; i++)
        if (q->links[i].shared[0] || q->links[i].shared[1])
            return plan_fail(text, size, HCP_STATUS_INVALID,
                             "link %zu is shared; moves take links without that", i);
    if (q->steps < 0 || !(q->link_alpha_us >= 0 && q->link_alpha_us <= 1e9) ||
        !(q->link_gbps == 0 || (q->link_gbps >= 1e-6 && q->link_gbps <= 1e9)))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "steps must not be negative, link alpha be 0..1e9 us and link "
                         "speed 1e-6..1e9 GB/s (0: infinitely fast)");
    return HCP_STATUS_OK;
}

/* Runs that the arrays of a plan have, and that make its tokens. */
static int has_segments(const hcp_plan *plan, const hcp_plan_rank *rank)
{
    int64_t sum = 0;

    if (rank->kv_tokens < 0 || rank->n_kv_segments < 0 || rank->first_kv_segment < 0 ||
        rank->first_kv_segment > (int64_t)plan->n_segments ||
        rank->n_kv_segments > (int64_t)plan->n_segments - rank->first_kv_segment)
        return 0;
    for (int64_t i = 0; i < rank->n_kv_segments; i++) {
        const hcp_segment *s = &plan->segments[rank->first_kv_segment + i];

        if (s->length < 0 || s->length > rank->kv_tokens - sum)
            return 0;
        sum += s->length;
    }
    return sum == rank->kv_tokens;
}

static hcp_status check_plans(const hcp_ring *ring, const hcp_plan *from,
                              const hcp_plan *to, char *text, size_t size)
{
    const hcp_shape *a = &from->shape, *b = &to->shape;

    if (!plan_is_decode(to) || decode_bad(to))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "the plan to move to is not one of decode; make it with phase "
                         "decode");
    if (from->n_ranks != ring->n || to->n_ranks != ring->n)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "the plans have %zu and %zu ranks; both must be of the same "
                         "%zu ranks",
                         from->n_ranks, to->n_ranks, ring->n);
    if (from->seq_len != to->seq_len)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "the plans are of %lld and %lld tokens; both must be of what is "
                         "there when decode begins",
                         (long long)from->seq_len, (long long)to->seq_len);
    if (strncmp(a->dtype, b->dtype, sizeof a->dtype) != 0 || a->kv_heads != b->kv_heads ||
        a->head_dim != b->head_dim)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "the plans' KV differ: %.7s, %d KV heads of %d, and %.7s, %d of "
                         "%d",
                         a->dtype, (int)a->kv_heads, (int)a->head_dim, b->dtype,
                         (int)b->kv_heads, (int)b->head_dim);
    if (b->batch != ring->shape.batch || b->heads != ring->shape.heads ||
        b->kv_heads != ring->shape.kv_heads || b->head_dim != ring->shape.head_dim ||
        strncmp(b->dtype, ring->shape.dtype, sizeof b->dtype) != 0)
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "the ring is not of the shape of the plan to move to");
    if ((from->order || from->has_links) && links_bad_places(from))
        return plan_fail(text, size, HCP_STATUS_INVALID,
                         "the old plan's places are not its ranks in another order");
    return HCP_STATUS_OK;
}

static int same_device(const hcp_plan_rank *a, const hcp_rank *b)
{
    return strncmp(a->device, b->device, sizeof a->device) == 0 &&
           strncmp(a->limit, b->limit, sizeof a->limit) == 0;
}

/* Shares of both plans by rank of the ring, and the old one's places. */
static hcp_status read_shares(const hcp_ring *ring, const hcp_plan *from,
                              const hcp_plan *to, int32_t *place, int64_t *old,
                              int64_t *new, char *text, size_t size)
{
    int64_t old_sum = 0, new_sum = 0;

    for (size_t i = 0; i < ring->n; i++)
        place[from->order || from->has_links ? (size_t)from->places[i].rank : i] =
            (int32_t)i;
    for (size_t r = 0; r < ring->n; r++) {
        const hcp_plan_rank *a = &from->ranks[place_of(from, place, r)];
        const hcp_plan_rank *b = &to->ranks[r];

        if (!same_device(a, &ring->ranks[r].spec) ||
            !same_device(b, &ring->ranks[r].spec))
            return plan_fail(
                text, size, HCP_STATUS_INVALID,
                "rank %zu is '%.63s%s%.31s' in the one plan and "
                "'%.63s%s%.31s' in the other; both must be of the same ranks "
                "in the same order",
                r, a->device, a->limit[0] ? "@" : "", a->limit, b->device,
                b->limit[0] ? "@" : "", b->limit);
        if (!has_segments(from, a) || b->tokens < 0 || b->tokens > to->seq_len - new_sum)
            return plan_fail(text, size, HCP_STATUS_INVALID,
                             "rank %zu: tokens and segments do not add up", r);
        old[r] = a->kv_tokens;
        new[r] = b->tokens;
        old_sum += old[r];
        new_sum += new[r];
    }
    if (old_sum != from->seq_len || new_sum != to->seq_len)
        return plan_fail(text, size, HCP_STATUS_INVALID, "tokens do not add up to %lld",
                         (long long)to->seq_len);
    return HCP_STATUS_OK;
}

/* ---- whether it pays ---- */

static hcp_status step_times(const hcp_ring *ring, const hcp_plan *to,
                             const hcp_move_question *q, struct scratch *s,
                             const int64_t *old, const int64_t *new, char *text,
                             size_t size, hcp_moves *out)
{
    struct decode d;
    struct decode_score stay, step;

    decode_set(&d, ring, s, to->seq_len, to->layers, to->activation_bytes,
               to->link_alpha_us, to->link_gbps, HCP_MERGE_AUTO);
    d.extrapolate = q->extrapolate != 0;
    stay = decode_eval(&d, old);
    d.only = to->merge;
    step = decode_eval(&d, new);
    if (step.none)
        return plan_fail(text, size, HCP_STATUS_INFEASIBLE,
                         "the plan to move to does not fit into the memory of the ring's "
                         "ranks");
    if (!stay.none && decode_check_source(&d, old, text, size))
        return HCP_STATUS_OUTSIDE;
    if (decode_check_source(&d, new, text, size))
        return HCP_STATUS_OUTSIDE;
    out->stay_ms = stay.none ? NAN : stay.ms * to->layers;
    out->step_ms = step.ms * to->layers;
    return HCP_STATUS_OK;
}

static void decide(hcp_moves *m)
{
    double gain = m->stay_ms - m->step_ms;

    m->saved_ms = NAN;
    if (m->tokens == 0) {
        m->break_even_steps = INFINITY;
        m->decision = HCP_MOVE_STAY;
        return;
    }
    if (isnan(m->stay_ms)) { /* it must */
        m->break_even_steps = 0;
        m->decision = HCP_MOVE_GO;
        return;
    }
    if (m->steps > 0)
        m->saved_ms = (double)m->steps * gain - m->move_ms;
    m->break_even_steps = gain > 0 ? m->move_ms / gain : INFINITY;
    if (!(gain > 0))
        m->decision = HCP_MOVE_STAY;
    else if (m->steps == 0)
        m->decision = HCP_MOVE_OPEN;
    else
        m->decision = m->saved_ms > 0 ? HCP_MOVE_GO : HCP_MOVE_STAY;
}

/* ---- the calls ---- */

void hcp_move_question_init(hcp_move_question *question)
{
    memset(question, 0, sizeof *question);
    question->size = sizeof *question;
}

void hcp_moves_init(hcp_moves *moves, hcp_move *array, size_t moves_capacity,
                    hcp_segment *segments, size_t segments_capacity)
{
    memset(moves, 0, sizeof *moves);
    moves->size = sizeof *moves;
    moves->moves = array;
    moves->moves_capacity = moves_capacity;
    moves->segments = segments;
    moves->segments_capacity = segments_capacity;
}

/* Pairs givers and takers into out->moves. */
static hcp_status pair_up(struct pairing *p, struct scratch *s, char *text, size_t size,
                          hcp_moves *out)
{
    size_t n = pair_in_order(p, out->moves, out->moves ? out->moves_capacity : 0);
    int changing = 0;

    for (size_t r = 0; r < p->n; r++)
        changing += p->give[r] > 0 || p->take[r] > 0;
    /* As many as there can be: a search may need one more than it had in order. */
    if (n > 0 && (!out->moves || out->moves_capacity + 1 < (size_t)changing))
        return plan_fail(text, size, HCP_STATUS_SPACE, "array of %zu moves, %d needed",
                         out->moves_capacity, changing - 1);
    out->n_moves = 0;
    out->move_ms = 0;
    out->exact = 1;
    if (n > 0)
        out->move_ms =
            moves_pair(p, out->moves, s->probe, &out->n_moves, &out->exact);
    return HCP_STATUS_OK;
}

int moves_name_tokens(const struct pairing *p, const hcp_plan *from, const int32_t *place,
                      int64_t *given, hcp_move *move, size_t n_moves,
                      hcp_segment *segments, size_t segments_capacity, size_t *n_segments)
{
    *n_segments = 0;
    memset(given, 0, p->n * sizeof *given);
    for (size_t i = 0; i < n_moves; i++, move++) {
        size_t r = (size_t)move->from, at = place ? (size_t)place[r] : r;
        int64_t n = take_last(from, &from->ranks[at], given[r], move->tokens,
                              segments + *n_segments, segments_capacity - *n_segments);

        if (n < 0)
            return -1;
        given[r] += move->tokens;
        move->bytes = moves_bytes(p, move->tokens);
        move->ms = pair_ms(p, move->from, move->to, move->tokens);
        move->first_segment = (int64_t)*n_segments;
        move->n_segments = n;
        *n_segments += (size_t)n;
    }
    return 0;
}

hcp_status hcp_plan_moves(const hcp_ring *ring, const hcp_plan *from, const hcp_plan *to,
                          const hcp_move_question *question, void *workspace,
                          size_t workspace_bytes, char *text, size_t text_size,
                          hcp_moves *moves)
{
    struct scratch s;
    struct pairing p;
    hcp_moves out;
    hcp_status status;
    int64_t *old, *new;

    if (!ring || !from || !to || !question || !moves || from->size < sizeof *from ||
        to->size < sizeof *to || question->size < sizeof *question ||
        moves->size < sizeof *moves || !from->ranks || !from->segments || !to->ranks ||
        strcmp(ring->shape.phase, "decode") != 0)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "a ring of phase decode, two plans, a question and an output "
                         "with their sizes set are needed");
    status = check_plans(ring, from, to, text, text_size);
    if (!status)
        status = check_question(question, ring->n, text, text_size);
    if (!status && (!workspace || workspace_bytes < scratch_bytes(ring->n)))
        status = plan_fail(text, text_size, HCP_STATUS_SPACE,
                           "workspace of %zu bytes, %zu needed for %zu ranks",
                           workspace_bytes, scratch_bytes(ring->n), ring->n);
    if (status)
        return status;
    scratch_carve(&s, workspace, ring->n);
    old = s.tokens[TOK_CUR];
    new = s.tokens[TOK_PLAN];
    status = read_shares(ring, from, to, s.place, old, new, text, text_size);
    if (status)
        return status;
    p = (struct pairing){question,
                         question->link_gbps > 0 ? 1 / (question->link_gbps * 1e6) : 0,
                         ring->token_bytes * to->layers,
                         s.tokens[TOK_CAND],
                         s.tokens[TOK_OTHER],
                         ring->n};
    out = *moves;
    out.n_moves = out.n_segments = 0;
    out.tokens = 0;
    out.steps = question->steps;
    for (size_t r = 0; r < p.n; r++) {
        p.give[r] = old[r] > new[r] ? old[r] - new[r] : 0;
        p.take[r] = new[r] > old[r] ? new[r] - old[r] : 0;
        out.tokens += p.give[r];
    }
    out.bytes = moves_bytes(&p, out.tokens);
    status = step_times(ring, to, question, &s, old, new, text, text_size, &out);
    if (!status)
        status = pair_up(&p, &s, text, text_size, &out);
    if (status)
        return status;
    decide(&out);
    if (out.decision == HCP_MOVE_STAY)
        out.n_moves = 0;
    if (moves_name_tokens(&p, from, from->order || from->has_links ? s.place : NULL,
                          s.tokens[TOK_KEPT], out.moves, out.n_moves, out.segments,
                          out.segments_capacity, &out.n_segments))
        return plan_fail(text, text_size, HCP_STATUS_SPACE,
                         "array of %zu segments, up to %zu needed", out.segments_capacity,
                         from->n_segments + out.n_moves);
    *moves = out;
    return HCP_STATUS_OK;
}
