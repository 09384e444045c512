/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "planner/options.h"

/* The prompt, the plan with its arrays, and workspace. */
struct prompt {
    hcp_chunks question;
    int64_t *lengths; /* --chunks; NULL: chunks are to be found */
    size_t n_lengths, max_chunks;
    hcp_chunks_plan plan;
    void *workspace;
    size_t workspace_bytes;
};

int chunks_parse_ms(const char *text, const char *option, double *out,
                    struct hcp_err *err)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"us", 1e-3}, {"ms", 1}, {"s", 1e3}};
    size_t length = strlen(text);
    char number[40];
    double unit = 1;

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].name);

        if (length > n && strcmp(text + length - n, units[i].name) == 0) {
            length -= n;
            unit = units[i].ms;
            break;
        }
    }
    if (length >= sizeof number)
        return hcp_fail(err, HCP_USAGE, "%s '%.60s' is too long", option, text);
    memcpy(number, text, length);
    number[length] = 0;
    if (hcp_parse_double(number, out, NULL))
        return hcp_fail(err, HCP_USAGE, "%s '%s' is no time; use 50ms, 0.05s or 800us",
                        option, text);
    *out *= unit;
    return *out >= 0 && *out <= 1e9
               ? HCP_OK
               : hcp_fail(err, HCP_USAGE, "%s '%s' is not in 0..1e9 ms", option, text);
}

/* What means nothing where each chunk is a ring of its own, or is not looked at. */
static int refuse(const struct plan_args *args, struct hcp_err *err)
{
    const unsigned ring = PLAN_GIVEN_BARRIER | PLAN_GIVEN_SUB_BLOCKS |
                          PLAN_GIVEN_STRATEGY | PLAN_GIVEN_ORDER | PLAN_GIVEN_JOINT |
                          PLAN_GIVEN_NODES;

    if (args->tokens || args->kv_tokens || args->documents)
        return hcp_fail(err, HCP_USAGE,
                        "chunks are each split on their own; leave --tokens, --kv-tokens "
                        "and --documents out");
    if (args->given & ring)
        return hcp_fail(err, HCP_USAGE,
                        "chunks are whole blocks in one ring in the order of --ranks: "
                        "leave --strategy, --sub-blocks, --barrier, --links, --hosts, "
                        "orders, --late-kv, --joint and nodes out");
    if (strcmp(args->shape.phase, "prefill") != 0)
        return hcp_fail(err, HCP_USAGE, "chunks are of prefill; leave --phase %s out",
                        args->shape.phase);
    if (strcmp(args->shape.mask, "causal") != 0)
        return hcp_fail(err, HCP_USAGE,
                        "chunks need --mask causal: under a full one the first tokens "
                        "would see chunks that are not there yet");
    if (args->shape.batch != 1)
        return hcp_fail(err, HCP_USAGE, "chunks are of one prompt; leave --batch out");
    if (args->question.layers == 0)
        return hcp_fail(err, HCP_USAGE,
                        "a step has a layer at least; --layers 0 is none");
    return HCP_OK;
}

static int open_prompt(struct plan_args *args, struct prompt *p, struct hcp_err *err)
{
    int64_t sum = 0;
    int rc = refuse(args, err);

    if (rc == HCP_OK && args->chunks)
        rc = documents_list("--chunks", args->chunks, &p->lengths, &p->n_lengths, err);
    if (rc || !args->chunks)
        return rc;
    for (size_t i = 0; i < p->n_lengths; i++)
        sum += p->lengths[i];
    if (args->chunk_len > 0)
        return hcp_fail(err, HCP_USAGE,
                        "--chunks says how long each is; leave --chunk-len out");
    if (args->shape.seq_len > 0 && args->shape.seq_len != sum)
        return hcp_fail(err, HCP_USAGE,
                        "--chunks add up to %lld, --seq-len is %lld; leave it out",
                        (long long)sum, (long long)args->shape.seq_len);
    if (sum > HCP_PLAN_MAX_LEN || p->n_lengths > HCP_CHUNKS_MAX)
        return hcp_fail(
            err, HCP_USAGE, "%zu --chunks with %lld tokens; %zu and %lld at most",
            p->n_lengths, (long long)sum, HCP_CHUNKS_MAX, (long long)HCP_PLAN_MAX_LEN);
    args->shape.seq_len = sum;
    return HCP_OK;
}

/* Room for as many chunks as there can be of 128 tokens, and for what the question says.
 */
static int make_room(const struct session *s, const struct plan_args *args,
                     struct prompt *p, struct hcp_err *err)
{
    const hcp_question *q = &args->question;
    size_t n = hcp_ring_size(s->ring);
    int64_t len = q->tile > 0 ? q->tile : 64, most = q->seq_len / len + 1;
    size_t segments = q->layout == HCP_LAYOUT_STRIPED ? (size_t)q->stripes : 2;

    if (args->chunk_budget == 0)
        most = args->chunk_len > 0 ? (q->seq_len - 1) / args->chunk_len + 1
                                   : (int64_t)p->n_lengths;
    p->max_chunks = most < (int64_t)HCP_CHUNKS_MAX ? (size_t)most : HCP_CHUNKS_MAX;
    if (p->max_chunks < p->n_lengths)
        p->max_chunks = p->n_lengths;
    hcp_chunks_plan_init(&p->plan, malloc(n * sizeof *p->plan.ranks), n,
                         malloc(p->max_chunks * sizeof *p->plan.chunks), p->max_chunks,
                         malloc(p->max_chunks * n * sizeof *p->plan.shares),
                         p->max_chunks * n,
                         malloc(p->max_chunks * n * segments * sizeof *p->plan.segments),
                         p->max_chunks * n * segments);
    p->workspace_bytes = hcp_chunks_workspace_bytes(s->ring, p->max_chunks);
    p->workspace = malloc(p->workspace_bytes + 1);
    if (!p->plan.ranks || !p->plan.chunks || !p->plan.shares || !p->plan.segments ||
        !p->workspace)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    return HCP_OK;
}

static int ask(const struct session *s, struct prompt *p, struct hcp_err *err)
{
    hcp_status status =
        p->lengths
            ? hcp_chunks_evaluate(s->ring, &p->question, p->lengths, p->n_lengths, NULL,
                                  p->workspace, p->workspace_bytes, err->text,
                                  sizeof err->text, &p->plan)
            : hcp_chunks_split(s->ring, &p->question, p->workspace, p->workspace_bytes,
                               err->text, sizeof err->text, &p->plan);

    return err->code = plan_exit_code(status);
}

/* Tokens that each rank has of a chunk on average, of those it has any of. */
static void mean_tokens(const hcp_chunks_plan *plan, int64_t *at)
{
    for (size_t r = 0; r < plan->n_ranks; r++) {
        int64_t chunks = 0;

        for (size_t k = 0; k < plan->n_chunks; k++)
            chunks += plan->shares[k * plan->n_ranks + r].tokens > 0;
        if (chunks > 0)
            at[r] = plan->ranks[r].tokens / chunks;
    }
}

/* As ask(), with linear work that is exact at the tokens that a rank has on average:
 * again until they stand still, a few times at most. */
static int ask_measured(struct session *s, struct prompt *p, int64_t *at,
                        struct hcp_err *err)
{
    size_t n = hcp_ring_size(s->ring);
    char provider[32];

    snprintf(provider, sizeof provider, "%s", hcp_ring_provider(s->ring));
    for (int round = 0, again = 1; again && round < 6; round++) {
        int64_t had[HCP_CHUNKS_MAX_RANKS];
        if (session_rebind(s, at, provider, err))
            return err->code;
        if (ask(s, p, err))
            return err->code;
        memcpy(had, at, n * sizeof *had);
        mean_tokens(&p->plan, at);
        again = memcmp(had, at, n * sizeof *had) != 0;
    }
    for (size_t r = 0; r < n; r++)
        if (p->plan.ranks[r].tokens == 0)
            at[r] = 0;
    return layer_measured_check(s->layer, at, err);
}

static int answer(const struct plan_args *args, struct session *s, struct prompt *p,
                  struct hcp_err *err)
{
    const hcp_question *q = &args->question;
    size_t n = hcp_ring_size(s->ring);
    int64_t at[HCP_CHUNKS_MAX_RANKS];
    int rc = make_room(s, args, p, err);

    if (rc)
        return rc;
    hcp_chunks_init(&p->question);
    p->question.seq_len = q->seq_len;
    p->question.step_budget_ms = args->chunk_budget;
    p->question.step_fixed_ms = args->chunk_fixed;
    p->question.chunk_len = args->chunk_len;
    p->question.layers = q->layers;
    p->question.layout = args->shape.layout[0] ? q->layout : HCP_LAYOUT_AUTO;
    p->question.stripes = q->stripes;
    p->question.tile = q->tile;
    p->question.buffers = q->buffers;
    p->question.link_alpha_us = q->link_alpha_us;
    p->question.link_gbps = q->link_gbps;
    p->question.extrapolate = q->extrapolate;
    p->question.activation_bytes = q->activation_bytes;
    if (!s->layer)
        return ask(s, p, err);
    for (size_t r = 0; r < n; r++) {
        at[r] = args->chunk_len > 0 ? args->chunk_len : 2048;
        at[r] = at[r] / (int64_t)n > 0 ? at[r] / (int64_t)n : 1;
    }
    return ask_measured(s, p, at, err);
}

static int print(const hcp_chunks_plan *plan, int as_json, struct hcp_err *err)
{
    size_t needed;
    char *json;

    if (!as_json)
        return chunks_print(plan, stdout)
                   ? hcp_fail(err, HCP_FAILED, "cannot print the plan")
                   : HCP_OK;
    hcp_chunks_to_json(plan, NULL, 0, &needed);
    json = malloc(needed + 1);
    if (!json)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    hcp_chunks_to_json(plan, json, needed + 1, NULL);
    puts(json);
    free(json);
    return HCP_OK;
}

int chunks_split(struct plan_args *args)
{
    struct prompt p = {0};
    struct session s = {0};
    struct hcp_err err = {0};
    int rc = open_prompt(args, &p, &err);

    if (rc == HCP_OK)
        rc = session_open(args, &s, &err);
    if (rc == HCP_OK && hcp_ring_size(s.ring) > HCP_CHUNKS_MAX_RANKS)
        rc = hcp_fail(&err, HCP_USAGE, "chunks are for up to %d ranks, not %zu",
                      HCP_CHUNKS_MAX_RANKS, hcp_ring_size(s.ring));
    if (rc == HCP_OK)
        rc = answer(args, &s, &p, &err);
    if (rc == HCP_OK)
        rc = print(&p.plan, args->json, &err);
    if (rc == HCP_OK)
        session_say_estimates(&s, args->json);
    free(p.plan.ranks);
    free(p.plan.chunks);
    free(p.plan.shares);
    free(p.plan.segments);
    free(p.workspace);
    free(p.lengths);
    session_close(&s);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
