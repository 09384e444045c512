/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank must hold, in bytes: weights, for each of its tokens the keys and values of
 * all layers and activations, the copy of its own block in pieces where it is sent in
 * several, and receive buffers, each as long as the largest block that it receives. The
 * last makes the memory of a rank depend on the others' shares: the splits that fit are
 * no box. But they are closed downwards: with fewer tokens a split that fits still does.
 */
#include <string.h>
#include "planner/decode.h"
#include "planner/joint.h"

/* More than any cap; products and sums stop there. */
#define NO_CAP (INT64_MAX / 4)

int64_t memory_times(int64_t a, int64_t b)
{
    int64_t out;

    return __builtin_mul_overflow(a, b, &out) || out > NO_CAP ? NO_CAP : out;
}

int64_t memory_plus(int64_t a, int64_t b)
{
    return a + b > NO_CAP ? NO_CAP : a + b;
}

int64_t memory_cap(const struct problem *p, size_t r)
{
    const hcp_rank *spec = &p->ring->ranks[r].spec;

    if (spec->max_bytes == 0)
        return NO_CAP;
    return spec->max_bytes + (p->raised_by > 0 && r == p->raised ? p->raised_by : 0);
}

int64_t memory_room(const struct problem *p, size_t r)
{
    return memory_cap(p, r) - p->ring->ranks[r].spec.weight_bytes;
}

int64_t memory_unit(const struct problem *p, int64_t len, int sends)
{
    int64_t bytes =
        memory_plus(memory_times(p->layers, p->kv_bytes), p->activation_bytes);

    return p->sub_blocks > 1 && sends && len > p->tile ? memory_plus(bytes, p->kv_bytes)
                                                       : bytes;
}

int32_t memory_buffers(const struct problem *p, int32_t m)
{
    int32_t buffers = p->buffers;

    if (buffers > 0 && p->two_level) /* and those of the outer ring */
        buffers += 2;
    return buffers > 0 && buffers < m - 1 ? buffers : m - 1;
}

int64_t memory_bytes(const struct problem *p, int64_t len, int64_t largest, int sends,
                     int32_t m)
{
    int64_t blocks = memory_times(memory_buffers(p, m), largest);

    return memory_plus(memory_times(len, memory_unit(p, len, sends)),
                       memory_times(blocks, p->kv_bytes));
}

/* Rank i receives what is before it, and what is after the first rank from i on that sees
 * later ranks' blocks. */
int32_t memory_largest(const struct problem *p, size_t n, const int64_t *len,
                       int64_t *largest, int *last_sends)
{
    int64_t most = 0, after = 0;
    int32_t m = 0;

    *last_sends = 0;
    for (size_t i = n; i-- > 0;) {
        if (len[i] == 0)
            continue;
        if (cost_sees_later(p, len[i])) {
            after = most;
            *last_sends |= m > 0;
        }
        largest[i] = after;
        most = len[i] > most ? len[i] : most;
        m++;
    }
    most = 0;
    for (size_t i = 0; i < n; i++) {
        if (len[i] == 0)
            continue;
        largest[i] = most > largest[i] ? most : largest[i];
        most = len[i] > most ? len[i] : most;
    }
    return m;
}

int memory_fits(const struct problem *p, size_t n, const int32_t *rank,
                const int64_t *len, int64_t *largest)
{
    int last_sends;
    int32_t m = memory_largest(p, n, len, largest, &last_sends), at = 0;

    for (size_t i = 0; i < n; i++)
        if (len[i] > 0 &&
            memory_bytes(p, len[i], largest[i], ++at < m || last_sends, m) >
                memory_room(p, rank ? (size_t)rank[i] : i))
            return 0;
    return 1;
}

int64_t memory_tokens_alone(const struct problem *p, size_t r)
{
    int64_t room = memory_room(p, r), bytes = memory_unit(p, 1, 0);

    if (room < 0)
        return 0;
    return bytes > 0 ? room / bytes : HCP_PLAN_MAX_LEN;
}

/* ---- why nothing fits ---- */

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b > 0) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static int fits_raised(struct problem *p, int64_t *cap, int64_t most, int64_t by,
                       int64_t *box)
{
    int64_t tokens;

    p->raised_by = by;
    tokens = memory_tokens_alone(p, p->raised);
    cap[p->raised] = tokens < most ? tokens : most;
    return round_shortfall(p, NULL) == 0 && memory_shortfall(p, NULL, box) == 0;
}

/* Bytes below `limit` that rank r's cap is to rise by until a split fits; -1: so many do
 * not help. Beside its weights a rank needs a multiple of what a token takes, times what
 * shares are multiples of: only such caps are tried. */
static int64_t raise_of(struct problem *p, int64_t *cap, size_t r, int64_t limit,
                        int64_t *box)
{
    int64_t had = cap[r], most = p->ring->ranks[r].spec.max_tokens;
    int64_t step = common_divisor(memory_unit(p, 1, 0), p->kv_bytes) *
                   common_divisor(p->tile, p->rest);
    int64_t above = memory_room(p, r) > 0 ? memory_room(p, r) % step : memory_room(p, r);
    int64_t low = 0, high = (limit - 1 + above) / step; /* in steps, from `above` below */

    most = most > 0 && most < p->seq_len ? most : p->seq_len;
    p->raised = r;
    if (!fits_raised(p, cap, most, high * step - above, box))
        high = -1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;

        if (fits_raised(p, cap, most, middle * step - above, box))
            high = middle;
        else
            low = middle;
    }
    cap[r] = had;
    p->raised_by = 0;
    return high > 0 ? high * step - above : -1;
}

/* More than any rank needs. */
static int64_t enough(const struct problem *p)
{
    int64_t blocks = memory_times(memory_buffers(p, (int32_t)p->n), p->seq_len);
    int64_t most = memory_plus(memory_times(p->seq_len, memory_unit(p, p->seq_len, 1)),
                               memory_times(blocks, p->kv_bytes));

    return memory_plus(2 * HCP_PLAN_MAX_BYTES, memory_plus(most, most));
}

/* Contiguous shares need least: blocks reach fewer ranks, and the tile is smallest. */
static hcp_layout loosest(hcp_layout layout)
{
    return layout == HCP_LAYOUT_AUTO ? HCP_LAYOUT_CONTIGUOUS : layout;
}

int memory_hopeless(const struct problem *p, struct scratch *s,
                    const hcp_question *question)
{
    struct problem loose = *p;

    if (p->n <= 3) /* every split is looked at */
        return 0;
    problem_set_layout(&loose, loosest(question->layout));
    if (memory_forward(&loose) && question->order != HCP_ORDER_GIVEN)
        return 0;
    return memory_shortfall(&loose, NULL, s->box) > 0;
}

hcp_status memory_explain(const struct problem *p, struct scratch *s, hcp_layout layout,
                          char *text, size_t text_size)
{
    enum { TRIES = 16 };
    struct problem raised = *p;
    int forward;
    int64_t *cap = s->tokens[TOK_START], least = -1, lack;
    size_t best = 0;
    int tries = 0;

    for (size_t r = 0; r < p->n; r++)
        cap[r] = p->cap[r];
    raised.cap = cap;
    problem_set_layout(&raised, loosest(layout));
    p = &raised;
    forward = memory_forward(p);
    lack = round_shortfall(p, NULL);
    if (lack == 0)
        lack = memory_shortfall(p, NULL, s->box);
    for (size_t r = 0; lack > 0 && r < p->n && tries < TRIES; r++) {
        const hcp_rank *spec = &p->ring->ranks[r].spec;
        const hcp_rank *last = r > 0 ? &p->ring->ranks[r - 1].spec : NULL;
        int64_t by;

        if (spec->max_bytes == 0 ||
            (!forward && last && spec->max_bytes == last->max_bytes &&
             spec->weight_bytes == last->weight_bytes &&
             spec->max_tokens == last->max_tokens))
            continue;
        tries++;
        by = raise_of(&raised, cap, r, least < 0 ? enough(p) : least, s->box);
        if (by > 0) {
            least = by;
            best = r;
        }
    }
    if (lack == 0)
        return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                         "no split under these caps in tiles of %lld tokens",
                         (long long)p->tile);
    if (least < 0)
        return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                         "the memory caps are short by %lld tokens for a sequence of "
                         "%lld in tiles of %lld, and no rank alone could hold them; "
                         "raise the caps or add a rank",
                         (long long)lack, (long long)p->seq_len, (long long)p->tile);
    return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                     "the memory caps are short by %lld tokens for a sequence of %lld in "
                     "tiles of %lld; least is missing on rank %zu ('%s%s%s'): %lld bytes "
                     "beyond its %lld; raise its cap, add a rank or use fewer buffers",
                     (long long)lack, (long long)p->seq_len, (long long)p->tile, best,
                     p->ring->ranks[best].spec.device,
                     p->ring->ranks[best].spec.limit[0] ? "@" : "",
                     p->ring->ranks[best].spec.limit, (long long)least,
                     (long long)p->ring->ranks[best].spec.max_bytes);
}

static hcp_status memory_too_small(char *text, size_t text_size, size_t r, int64_t bytes,
                                   int64_t tokens, int64_t largest, int64_t cap)
{
    return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                     "rank %zu needs %lld bytes for its %lld tokens and blocks of up to "
                     "%lld that it receives, %lld more than its cap of %lld; give it "
                     "fewer or raise the cap",
                     r, (long long)bytes, (long long)tokens, (long long)largest,
                     (long long)(bytes - cap), (long long)cap);
}

hcp_status memory_check(const struct problem *p, struct scratch *s, const int64_t *tokens,
                        char *text, size_t text_size)
{
    int last_sends;
    int32_t m = memory_largest(p, p->n, tokens, s->largest, &last_sends), at = 0;

    for (size_t r = 0; r < p->n; r++) {
        int64_t bytes;

        if (tokens[r] == 0)
            continue;
        bytes = memory_bytes(p, tokens[r], s->largest[r], ++at < m || last_sends, m) +
                p->ring->ranks[r].spec.weight_bytes;
        if (bytes > memory_cap(p, r))
            return memory_too_small(text, text_size, r, bytes, tokens[r], s->largest[r],
                                    memory_cap(p, r));
    }
    return HCP_STATUS_OK;
}

/* ---- of a plan ---- */

static struct problem problem_of(const hcp_plan *plan)
{
    const hcp_shape *shape = &plan->shape;
    double element = strcmp(shape->dtype, "fp32") == 0 ? 4 : 2;
    double bytes =
        2.0 * shape->batch * shape->kv_heads * shape->head_dim * element;

    return (struct problem){
        .n = plan->n_ranks,
        .seq_len = plan->seq_len,
        .tile = plan->tile > 1 ? plan->tile : 1,
        .causal = plan->causal,
        .layout = plan->layout,
        .stripes = plan->stripes,
        .buffers = plan->buffers,
        .two_level = plan->inner_ranks > 0,
        .sub_blocks = plan->sub_blocks,
        .layers = plan->layers,
        .activation_bytes = plan->activation_bytes,
        .kv_bytes = bytes < 1e15 ? (int64_t)bytes : HCP_PLAN_MAX_BYTES};
}

static hcp_status joint_plan_memory(const struct problem *p, hcp_plan *plan, char *text,
                                    size_t text_size)
{
    int64_t q[JOINT_MAX_RANKS], kv[JOINT_MAX_RANKS], bytes[JOINT_MAX_RANKS];

    if (plan->n_ranks > JOINT_MAX_RANKS)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "a joint plan has up to %d ranks", JOINT_MAX_RANKS);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        q[r] = plan->ranks[r].tokens;
        kv[r] = plan->ranks[r].kv_tokens;
    }
    joint_memory(p, q, kv, bytes);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        hcp_plan_rank *rank = &plan->ranks[r];

        rank->memory_bytes =
            q[r] > 0 || kv[r] > 0 ? memory_plus(bytes[r], rank->weight_bytes) : 0;
        if (rank->max_bytes > 0 && rank->memory_bytes > rank->max_bytes)
            return plan_fail(text, text_size, HCP_STATUS_INFEASIBLE,
                             "rank %zu needs %lld bytes for its %lld queries, the KV of "
                             "%lld tokens and blocks that it receives, %lld more than "
                             "its cap of %lld; give it fewer or raise the cap",
                             r, (long long)rank->memory_bytes, (long long)q[r],
                             (long long)kv[r],
                             (long long)(rank->memory_bytes - rank->max_bytes),
                             (long long)rank->max_bytes);
    }
    return HCP_STATUS_OK;
}

hcp_status hcp_plan_memory(hcp_plan *plan, char *text, size_t text_size)
{
    struct problem p;
    hcp_plan_rank *rank;
    int64_t most = 0, after = 0;
    int32_t m = 0, i = 0;
    int last_sends = 0;

    if (!plan || plan->size < sizeof *plan || !plan->ranks || plan->n_ranks < 1)
        return plan_fail(text, text_size, HCP_STATUS_INVALID, "a plan is needed");
    if (plan_is_decode(plan))
        return decode_memory(plan, text, text_size);
    p = problem_of(plan);
    if (plan->joint)
        return joint_plan_memory(&p, plan, text, text_size);
    /* As memory_largest(), the ranks' memory_bytes being the array. */
    for (size_t r = plan->n_ranks; r-- > 0;) {
        rank = &plan->ranks[r];
        rank->memory_bytes = 0;
        if (rank->tokens == 0)
            continue;
        if (cost_sees_later(&p, rank->tokens)) {
            after = most;
            last_sends |= m > 0;
        }
        rank->memory_bytes = after;
        most = rank->tokens > most ? rank->tokens : most;
        m++;
    }
    most = 0;
    for (size_t r = 0; r < plan->n_ranks; r++) {
        int64_t largest;

        rank = &plan->ranks[r];
        if (rank->tokens == 0)
            continue;
        largest = most > rank->memory_bytes ? most : rank->memory_bytes;
        most = rank->tokens > most ? rank->tokens : most;
        rank->memory_bytes =
            memory_plus(memory_bytes(&p, rank->tokens, largest, ++i < m || last_sends, m),
                        rank->weight_bytes);
        if (rank->max_bytes > 0 && rank->memory_bytes > rank->max_bytes)
            return memory_too_small(text, text_size, r, rank->memory_bytes, rank->tokens,
                                    largest, rank->max_bytes);
    }
    return HCP_STATUS_OK;
}
