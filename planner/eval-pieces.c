/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/plan.h"

/* Pieces of a block are of few different lengths, and so are blocks: most calls have been
 * asked for before. */
struct cached_call *eval_find_call(struct scratch *s, int32_t id, int64_t q_len,
                                   int64_t kv_len)
{
    uint64_t h = ((uint64_t)q_len * UINT64_C(0x9E3779B97F4A7C15)) ^
                 ((uint64_t)kv_len * 64 + (uint64_t)id);

    h *= UINT64_C(0xD6E8FEB86659FD93);
    return &s->calls[(h >> 40) & (uint64_t)(s->n_calls - 1)];
}

struct piece_sum {
    const struct problem *p;
    struct scratch *s;
    const hcp_model *model;
    int32_t id;
    double ms;
};

static void add_call(void *ctx, int64_t q_len, int64_t kv_len)
{
    struct piece_sum *sum = ctx;
    struct cached_call *call = eval_find_call(sum->s, sum->id, q_len, kv_len);

    if (call->id != sum->id || call->q_len != q_len || call->kv_len != kv_len)
        *call = (struct cached_call){q_len, kv_len, sum->id,
                                     cost_call(sum->p, sum->model, q_len, kv_len, NULL)};
    sum->ms += call->ms;
}

void eval_ready_calls(struct scratch *s)
{
    for (int32_t c = 0; !s->calls_ready && c < s->n_calls; c++)
        s->calls[c].id = -1;
    s->calls_ready = 1;
}

int32_t eval_block_pieces(void *eval_pieces, int32_t i, int32_t j, const double **ms,
                          const double **send_ms)
{
    struct eval_pieces *e = eval_pieces;
    const struct problem *p = e->p;
    const struct active *act = &e->s->act;
    size_t r = (size_t)act->rank[i];
    struct piece_sum sum = {p, e->s, problem_model(p, r), p->ring->ranks[r].id[p->kind],
                            0};
    int64_t ends[MAX_SUB_BLOCKS], from = 0;

    *ms = e->ms;
    *send_ms = e->send_ms;
    if (e->n > 0 && !act->direct && !e->into && e->mine == act->cls[i] &&
        e->theirs == act->cls[j] && e->earlier == (j < i))
        return e->n;
    eval_ready_calls(e->s);
    e->mine = act->cls[i];
    e->theirs = act->cls[j];
    e->earlier = j < i;
    e->n = cost_cuts(p, act->len[j], ends);
    for (int32_t x = 0; x < e->n; from = ends[x++]) {
        sum.ms = 0;
        cost_piece_calls(p, act->len[i], act->len[j], j < i, from, ends[x], add_call,
                         &sum);
        e->ms[x] = sum.ms;
        e->send_ms[x] =
            e->into ? e->into[i].alpha_ms + e->into[i].token_ms * (double)(ends[x] - from)
                    : p->alpha_ms + p->token_ms * (double)(ends[x] - from);
        if (act->direct && !p->links)
            e->s->busy[i] += sum.ms;
    }
    return e->n;
}
