/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "planner/options.h"

/* Documents, the plan with its arrays, and workspace. */
struct documents {
    hcp_documents question;
    int64_t *lengths;
    size_t n;
    hcp_documents_plan plan;
    void *workspace;
    size_t workspace_bytes;
};

/* What means nothing where documents are cut into rings of their own. */
static int refuse(const struct plan_args *args, int64_t sum, struct hcp_err *err)
{
    const unsigned ring = PLAN_GIVEN_BUFFERS | PLAN_GIVEN_BARRIER |
                          PLAN_GIVEN_SUB_BLOCKS | PLAN_GIVEN_STRATEGY | PLAN_GIVEN_ORDER |
                          PLAN_GIVEN_JOINT | PLAN_GIVEN_NODES;

    if (args->tokens || args->kv_tokens)
        return hcp_fail(err, HCP_USAGE,
                        "--documents says what to spread, --tokens how one sequence is "
                        "split; leave one out");
    if (args->given & ring || args->shape.layout[0] || args->question.stripes != 8)
        return hcp_fail(
            err, HCP_USAGE,
            "--documents are not one sequence in one ring: leave --strategy, "
            "--layout, --stripes, --buffers, --sub-blocks, --barrier, --links, "
            "--hosts, orders, --late-kv, --joint and nodes out");
    if (strcmp(args->shape.phase, "prefill") != 0)
        return hcp_fail(err, HCP_USAGE,
                        "--documents are prefilled or trained on; leave --phase %s out",
                        args->shape.phase);
    if (args->shape.batch != 1)
        return hcp_fail(err, HCP_USAGE,
                        "--documents are the batch: list each of them, and leave --batch "
                        "out");
    if (args->shape.seq_len > 0 && args->shape.seq_len != sum)
        return hcp_fail(err, HCP_USAGE,
                        "--documents add up to %lld, --seq-len is %lld; leave it out",
                        (long long)sum, (long long)args->shape.seq_len);
    if (sum > HCP_PLAN_MAX_LEN)
        return hcp_fail(err, HCP_USAGE, "--documents add up to %lld tokens; %lld at most",
                        (long long)sum, (long long)HCP_PLAN_MAX_LEN);
    return HCP_OK;
}

static int open_documents(struct plan_args *args, struct documents *d,
                          struct hcp_err *err)
{
    int64_t sum = 0;
    int rc = documents_list("--documents", args->documents, &d->lengths, &d->n, err);

    for (size_t i = 0; rc == HCP_OK && i < d->n; i++) /* 2^20 of 2^30 at most */
        sum += d->lengths[i];
    if (rc == HCP_OK)
        rc = refuse(args, sum, err);
    args->shape.seq_len = sum;
    return rc;
}

static int make_room(const struct session *s, struct documents *d, struct hcp_err *err)
{
    size_t n = hcp_ring_size(s->ring), parts = d->n + n - 1;

    hcp_documents_plan_init(&d->plan, malloc(n * sizeof *d->plan.ranks), n,
                            malloc(parts * sizeof *d->plan.parts), parts,
                            malloc(d->n * sizeof *d->plan.lengths), d->n);
    d->workspace_bytes = hcp_documents_workspace_bytes(s->ring, d->n);
    d->workspace = malloc(d->workspace_bytes + 1);
    if (!d->plan.ranks || !d->plan.parts || !d->plan.lengths || !d->workspace)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    return HCP_OK;
}

static int ask(const struct session *s, struct documents *d, struct hcp_err *err)
{
    hcp_status status =
        hcp_documents_split(s->ring, &d->question, d->workspace, d->workspace_bytes,
                            err->text, sizeof err->text, &d->plan);

    return err->code = plan_exit_code(status);
}

/* As ask(), with linear work that is exact at the tokens of the plan: again until they
 * stand still, a few times at most. */
static int ask_measured(struct session *s, struct documents *d, int64_t *at,
                        struct hcp_err *err)
{
    size_t n = hcp_ring_size(s->ring);
    char provider[32];

    snprintf(provider, sizeof provider, "%s", hcp_ring_provider(s->ring));
    for (int round = 0, again = 1; again && round < 8; round++) {
        if (session_rebind(s, at, provider, err))
            return err->code;
        if (hcp_documents_workspace_bytes(s->ring, d->n) > d->workspace_bytes) {
            free(d->workspace); /* ranks have come to differ */
            d->workspace_bytes = hcp_documents_workspace_bytes(s->ring, d->n);
            d->workspace = malloc(d->workspace_bytes);
            if (!d->workspace)
                return hcp_fail(err, HCP_FAILED, "out of memory");
        }
        if (ask(s, d, err))
            return err->code;
        again = 0;
        for (size_t r = 0; r < n; r++) {
            int64_t tokens = d->plan.ranks[r].tokens;

            again |= tokens > 0 && tokens != at[r];
            at[r] = tokens > 0 ? tokens : at[r];
        }
    }
    for (size_t r = 0; r < n; r++)
        at[r] = d->plan.ranks[r].tokens;
    return layer_measured_check(s->layer, at, err);
}

static int answer(const struct plan_args *args, struct session *s, struct documents *d,
                  struct hcp_err *err)
{
    const hcp_question *q = &args->question;
    size_t n = hcp_ring_size(s->ring);
    int64_t *at;
    int rc = make_room(s, d, err);

    if (rc)
        return rc;
    hcp_documents_init(&d->question);
    d->question.lengths = d->lengths;
    d->question.n_documents = d->n;
    d->question.causal = q->causal;
    d->question.whole = args->whole_documents;
    if (args->cut_gain >= 0)
        d->question.cut_gain = args->cut_gain;
    d->question.tile = q->tile;
    d->question.link_alpha_us = q->link_alpha_us;
    d->question.link_gbps = q->link_gbps;
    d->question.extrapolate = q->extrapolate;
    d->question.layers = q->layers;
    d->question.activation_bytes = q->activation_bytes;
    if (!s->layer)
        return ask(s, d, err);
    at = malloc(n * sizeof *at);
    if (!at)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t r = 0; r < n; r++)
        at[r] = q->seq_len / (int64_t)n > 0 ? q->seq_len / (int64_t)n : 1;
    rc = ask_measured(s, d, at, err);
    free(at);
    return rc;
}

static int print(const hcp_documents_plan *plan, int as_json, struct hcp_err *err)
{
    size_t needed;
    char *json;

    if (!as_json)
        return documents_print(plan, stdout)
                   ? hcp_fail(err, HCP_FAILED, "cannot print the plan")
                   : HCP_OK;
    hcp_documents_to_json(plan, NULL, 0, &needed);
    json = malloc(needed + 1);
    if (!json)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    hcp_documents_to_json(plan, json, needed + 1, NULL);
    puts(json);
    free(json);
    return HCP_OK;
}

int documents_split(struct plan_args *args)
{
    struct documents d = {0};
    struct session s = {0};
    struct hcp_err err = {0};
    int rc = open_documents(args, &d, &err);

    if (rc == HCP_OK)
        rc = session_open(args, &s, &err);
    if (rc == HCP_OK && hcp_ring_size(s.ring) > HCP_DOCUMENTS_MAX_RANKS)
        rc = hcp_fail(&err, HCP_USAGE, "--documents are for up to %d ranks, not %zu",
                      HCP_DOCUMENTS_MAX_RANKS, hcp_ring_size(s.ring));
    if (rc == HCP_OK)
        rc = answer(args, &s, &d, &err);
    if (rc == HCP_OK)
        rc = print(&d.plan, args->json, &err);
    if (rc == HCP_OK)
        session_say_estimates(&s, args->json);
    free(d.plan.ranks);
    free(d.plan.parts);
    free(d.plan.lengths);
    free(d.workspace);
    free(d.lengths);
    session_close(&s);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
