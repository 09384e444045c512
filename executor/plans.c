/* SPDX-License-Identifier: Apache-2.0
 *
 * Where plans come from: files, or the library asked on every rank. The second way is how
 * an executor uses libhcpplan: load the models once, bind the ranks once, then ask; ranks
 * that loaded the same models get the same plan without a word between them.
 */
#include "config.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "executor/program.h"

void ring_plan_free(hcp_plan *plan)
{
    free(plan->ranks);
    free(plan->segments);
    free(plan->places);
    plan->places = NULL;
    plan->ranks = NULL;
    plan->segments = NULL;
}

void ring_plans_free(struct ring_plans *p)
{
    for (size_t i = 0; i < p->n; i++) {
        ring_plan_free(&p->plans[i]);
        ring_documents_free(p->documents[i]);
    }
    ring_chunks_free(p->chunks);
    free(p->plans);
    free(p->documents);
    free(p->workspace);
    hcp_ring_free(p->ring);
    hcp_models_free(p->models);
    *p = (struct ring_plans){0};
}

int ring_exit_code(hcp_status status)
{
    switch (status) {
    case HCP_STATUS_OK:
        return HCP_OK;
    case HCP_STATUS_INVALID:
        return HCP_USAGE;
    case HCP_STATUS_NO_MODEL:
    case HCP_STATUS_STALE:
    case HCP_STATUS_OUTSIDE:
    case HCP_STATUS_INFEASIBLE:
        return HCP_NO_ANSWER;
    default:
        return HCP_FAILED;
    }
}

int ring_plan_unchanged(const char *file, uint64_t said, uint64_t is, struct hcp_err *err)
{
    if (said == 0 || said == is)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED,
                    "%s was changed after it was printed (its fingerprint does not "
                    "match); print it again, or take the member \"fingerprint\" out",
                    file);
}

int ring_plan_arrays(hcp_plan *plan, size_t n_ranks, size_t n_segments,
                       struct hcp_err *err)
{
    hcp_plan_rank *ranks = calloc(n_ranks, sizeof *ranks);
    hcp_segment *segments = calloc(n_segments + 1, sizeof *segments);
    hcp_place *places = calloc(n_ranks, sizeof *places);

    if (!ranks || !segments || !places) {
        free(ranks);
        free(segments);
        free(places);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    hcp_plan_init(plan, ranks, n_ranks, segments, n_segments + 1);
    plan->places = places; /* of a plan with an order or links of its own */
    return HCP_OK;
}

/* documents NULL: of one sequence. */
static int add_plan(struct ring_plans *p, hcp_plan *plan, hcp_documents_plan *documents,
                    struct hcp_err *err)
{
    hcp_plan *more = realloc(p->plans, (p->n + 1) * sizeof *more);
    hcp_documents_plan **packs = realloc(p->documents, (p->n + 1) * sizeof(void *));

    if (more)
        p->plans = more;
    if (packs)
        p->documents = packs;
    if (!more || !packs)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    p->documents[p->n] = documents;
    p->plans[p->n++] = *plan;
    return HCP_OK;
}

/* ---- files ---- */

static int one_prompt(struct hcp_err *err)
{
    return hcp_fail(err, HCP_USAGE,
                    "a plan of chunks is run alone, chunk after chunk; leave the other "
                    "plans out, or run them one at a time");
}

static int read_documents(const char *file, const char *text, struct ring_plans *p,
                          struct hcp_err *err)
{
    hcp_documents_plan *documents = NULL;
    hcp_plan plan;
    int rc = ring_documents_read(file, text, strlen(text), &plan, &documents, err);

    if (rc)
        return rc;
    rc = add_plan(p, &plan, documents, err);
    if (rc) {
        ring_plan_free(&plan);
        ring_documents_free(documents);
    }
    return rc;
}

static int read_chunks(const char *file, const char *text, struct ring_plans *p,
                       struct hcp_err *err)
{
    hcp_chunks_plan *chunks = NULL;
    hcp_plan plan;
    int rc;

    if (p->n > 0)
        return one_prompt(err);
    rc = ring_chunks_read(file, text, strlen(text), &plan, &chunks, err);
    if (rc)
        return rc;
    rc = add_plan(p, &plan, NULL, err);
    if (rc) {
        ring_plan_free(&plan);
        ring_chunks_free(chunks);
        return rc;
    }
    p->chunks = chunks;
    return HCP_OK;
}

static int read_plan(const char *file, const json_t *object, struct ring_plans *p,
                     struct hcp_err *err)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    char why[200] = "";
    size_t n_ranks = 0, n_segments = 0;
    hcp_status status;
    hcp_plan plan;
    int rc;

    if (!text)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (p->chunks) {
        free(text);
        return one_prompt(err);
    }
    if (json_object_get(object, "documents")) {
        rc = read_documents(file, text, p, err);
        free(text);
        return rc;
    }
    if (json_object_get(object, "chunks")) {
        rc = read_chunks(file, text, p, err);
        free(text);
        return rc;
    }
    status =
        hcp_plan_json_counts(text, strlen(text), why, sizeof why, &n_ranks, &n_segments);
    rc = status ? ring_exit_code(status)
                : ring_plan_arrays(&plan, n_ranks, n_segments, err);
    if (!status && rc == HCP_OK) {
        status = hcp_plan_from_json(text, strlen(text), why, sizeof why, &plan);
        if (status)
            ring_plan_free(&plan);
    }
    free(text);
    if (status)
        return hcp_fail(err, ring_exit_code(status),
                        "%s: %s; print a plan with 'hcp-plan split --json'", file,
                        why[0] ? why : hcp_strerror(status));
    if (rc)
        return rc;
    if (ring_plan_unchanged(file, plan.fingerprint, hcp_plan_fingerprint(&plan), err)) {
        ring_plan_free(&plan);
        return err->code;
    }
    plan.fingerprint = hcp_plan_fingerprint(&plan);
    rc = add_plan(p, &plan, NULL, err);
    if (rc)
        ring_plan_free(&plan);
    return rc;
}

/* A plan, or an array of them as 'compare' prints it: its strategies without an answer
 * are left out. */
static int read_file(const char *file, struct ring_plans *p, struct hcp_err *err)
{
    json_error_t why;
    json_t *json, *element;
    size_t i, before = p->n;
    int rc = HCP_OK;
    FILE *in = strcmp(file, "-") == 0 ? stdin : fopen(file, "r");

    if (!in)
        return hcp_fail(err, HCP_FAILED,
                        "cannot open plan %s: %s; print one with 'hcp-plan split --json'",
                        file, strerror(errno));
    json = json_loadf(in, JSON_REJECT_DUPLICATES, &why);
    if (in != stdin)
        fclose(in);
    if (!json && in == stdin)
        return hcp_fail(err, HCP_FAILED,
                        "standard input is not a plan: line %d: %s; print one with "
                        "'hcp-plan split --json', and for several ranks into a file: a "
                        "launcher hands standard input to rank 0 alone",
                        why.line, why.text);
    if (!json)
        return hcp_fail(err, HCP_FAILED,
                        "%s is not a plan: line %d: %s; print one with 'hcp-plan split "
                        "--json'",
                        file, why.line, why.text);
    if (!json_is_array(json)) {
        rc = read_plan(file, json, p, err);
    } else {
        json_array_foreach(json, i, element)
        {
            if (rc == HCP_OK && !json_object_get(element, "error"))
                rc = read_plan(file, element, p, err);
        }
    }
    json_decref(json);
    if (rc == HCP_OK && p->n == before)
        rc = hcp_fail(err, HCP_NO_ANSWER,
                      "%s holds no plan; print one with 'hcp-plan split --json'", file);
    return rc;
}

/* ---- the library ---- */

static int bind(const struct ring_options *o, const hcp_shape *shape,
                const hcp_rank *ranks, size_t n, const char *provider,
                struct ring_plans *p, struct hcp_err *err)
{
    const char *db = hcp_cli_db(o->db, err);
    hcp_status status;

    if (!db)
        return err->code;
    for (size_t r = 0; r < n; r++)
        if (strncmp(ranks[r].device, "spec:", 5) == 0)
            return hcp_fail(err, HCP_USAGE,
                            "rank %zu, '%s', is a GPU by its data sheet, of which "
                            "hcp-ring knows no times; profile the machine ('hcp-profile "
                            "run') and name its device, or let hcp-plan answer ('split "
                            "--json' for --plan, 'transition --json' for --moves)",
                            r, ranks[r].device);
    status = hcp_models_load(db, err->text, sizeof err->text, &p->models);
    if (!status)
        status = hcp_ring_create(p->models, shape, ranks, n, provider, err->text,
                                 sizeof err->text, &p->ring);
    if (status)
        return err->code = ring_exit_code(status);
    p->workspace_bytes = hcp_workspace_bytes(n);
    p->workspace = malloc(p->workspace_bytes);
    return p->workspace ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");
}

/* Names of --strategy as a bit set. */
static int strategies_of(const char *text, unsigned *out, struct hcp_err *err)
{
    *out = 1u << HCP_STRATEGY_BEST;
    if (!text)
        return HCP_OK;
    *out = 0;
    if (strcmp(text, "all") == 0) {
        *out = (2u << HCP_STRATEGY_BEST) - 1;
        return HCP_OK;
    }
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        char name[24];
        hcp_strategy strategy;

        snprintf(name, sizeof name, "%.*s", (int)(len < 23 ? len : 23), at);
        if (hcp_strategy_from_name(name, &strategy) || strategy > HCP_STRATEGY_BEST)
            return hcp_fail(err, HCP_USAGE,
                            "--strategy '%s' is not known; expected even, nominal, "
                            "proportional, lut, poly, best or all",
                            name);
        *out |= 1u << strategy;
        at += len;
        if (!*at)
            return HCP_OK;
    }
}

static int ask(const struct ring_options *o, struct ring_plans *p, hcp_strategy strategy,
               struct hcp_err *err)
{
    hcp_question q = o->question;
    size_t n = hcp_ring_size(p->ring);
    hcp_status status;
    hcp_plan plan;
    int rc;

    q.seq_len = o->shape.seq_len;
    q.causal = strcmp(o->shape.mask, "causal") == 0;
    q.strategy = strategy;
    if (o->shape.layout[0])
        hcp_layout_from_name(o->shape.layout, &q.layout);
    rc = ring_plan_arrays(&plan, n,
                     (q.joint ? 2 : 1) * hcp_segments_max(n, q.layout, q.stripes), err);
    if (rc)
        return rc;
    status = hcp_plan_split(p->ring, &q, p->workspace, p->workspace_bytes, err->text,
                            sizeof err->text, &plan);
    rc = err->code = ring_exit_code(status);
    if (rc == HCP_OK)
        rc = add_plan(p, &plan, NULL, err);
    if (rc)
        ring_plan_free(&plan);
    return rc;
}

static int ask_all(const struct ring_options *o, struct ring_plans *p,
                   struct hcp_err *err)
{
    const struct hcp_shape_args *from = &o->shape;
    struct hcp_key *keys = NULL;
    hcp_rank *ranks = NULL;
    hcp_shape shape;
    unsigned wanted;
    size_t n = 0;
    int rc = strategies_of(o->strategies, &wanted, err);

    if (rc == HCP_OK)
        rc = hcp_parse_ranks(o->ranks, &keys, &n, err);
    if (rc)
        return rc;
    hcp_shape_init(&shape);
    memcpy(shape.dtype, from->dtype, sizeof shape.dtype);
    shape.batch = from->batch;
    shape.heads = from->heads;
    shape.kv_heads = from->kv_heads;
    shape.head_dim = from->head_dim;
    snprintf(shape.phase, sizeof shape.phase, "%s", from->phase);
    ranks = calloc(n, sizeof *ranks);
    if (!ranks)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t r = 0; ranks && r < n; r++) {
        hcp_rank_init(&ranks[r]);
        memcpy(ranks[r].device, keys[r].device, sizeof ranks[r].device);
        memcpy(ranks[r].limit, keys[r].limit, sizeof ranks[r].limit);
    }
    if (rc == HCP_OK)
        rc = bind(o, &shape, ranks, n, o->provider, p, err);
    for (int s = 0; rc == HCP_OK && s <= HCP_STRATEGY_BEST; s++)
        if (wanted & 1u << s)
            rc = ask(o, p, (hcp_strategy)s, err);
    free(ranks);
    free(keys);
    return rc;
}

/* ---- both ---- */

/* Processes and devices are set up once, for all plans. */
/* The number that the rank at place r was started with. */
static size_t started_as(const hcp_plan *plan, size_t r)
{
    return plan->order || plan->has_links ? (size_t)plan->places[r].rank : r;
}

static int check_alike(const struct ring_plans *p, struct hcp_err *err)
{
    const hcp_plan *a = &p->plans[0];

    for (size_t i = 1; i < p->n; i++) {
        const hcp_plan *b = &p->plans[i];
        int same = a->n_ranks == b->n_ranks;

        for (size_t r = 0; same && r < a->n_ranks; r++)
            same = !strcmp(a->ranks[r].device, b->ranks[r].device) &&
                   !strcmp(a->ranks[r].limit, b->ranks[r].limit) &&
                   started_as(a, r) == started_as(b, r);
        if (!same)
            return hcp_fail(err, HCP_USAGE,
                            "the plans are for different ranks, or for another order of "
                            "them; run those of one at a time");
        if (ring_plan_is_decode(a) != ring_plan_is_decode(b))
            return hcp_fail(err, HCP_USAGE,
                            "the plans are of prefill and of decode; run those of one "
                            "phase at a time");
        if (strcmp(a->shape.dtype, b->shape.dtype) || a->shape.batch != b->shape.batch ||
            a->shape.heads != b->shape.heads || a->shape.kv_heads != b->shape.kv_heads ||
            a->shape.head_dim != b->shape.head_dim)
            return hcp_fail(err, HCP_USAGE,
                            "the plans are for different shapes; run those of one shape "
                            "at a time");
    }
    return HCP_OK;
}

/* plans[0] is that of --to, plans[1] that of --from. */
static int check_transition(const struct ring_plans *p, struct hcp_err *err)
{
    if (p->n != 2)
        return hcp_fail(err, HCP_USAGE,
                        "--from and --to hold %zu plans; give files of one plan each, as "
                        "'hcp-plan split --json' prints it",
                        p->n);
    if (!ring_plan_is_decode(&p->plans[0]))
        return hcp_fail(err, HCP_USAGE,
                        "--to is a plan of prefill; it is one of 'hcp-plan split --phase "
                        "decode --json'");
    if (p->plans[1].n_ranks != p->plans[0].n_ranks)
        return hcp_fail(err, HCP_USAGE, "--from is for %zu ranks, --to for %zu",
                        p->plans[1].n_ranks, p->plans[0].n_ranks);
    return HCP_OK;
}

/* Models for the ranks of plan files, so that other splits can be predicted. */
static int bind_files(const struct ring_options *o, struct ring_plans *p,
                      struct hcp_err *err)
{
    const hcp_plan *plan = &p->plans[0];
    hcp_rank *ranks = calloc(plan->n_ranks, sizeof *ranks);
    int rc;

    if (!ranks)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t r = 0; r < plan->n_ranks; r++) {
        hcp_rank_init(&ranks[r]);
        memcpy(ranks[r].device, plan->ranks[r].device, sizeof ranks[r].device);
        memcpy(ranks[r].limit, plan->ranks[r].limit, sizeof ranks[r].limit);
        ranks[r].max_tokens =
            o->transition || o->rebalance ? plan->ranks[r].max_tokens : 0;
        ranks[r].time_scale = plan->ranks[r].time_scale;
        ranks[r].max_bytes = plan->ranks[r].max_bytes;
        ranks[r].weight_bytes = plan->ranks[r].weight_bytes;
        if (!o->layer.hidden) /* attention alone is run */
            continue;
        ranks[r].linear_before_us = plan->ranks[r].linear_before_us;
        ranks[r].linear_before_fixed_us = plan->ranks[r].linear_before_fixed_us;
        ranks[r].linear_after_us = plan->ranks[r].linear_after_us;
        ranks[r].linear_after_fixed_us = plan->ranks[r].linear_after_fixed_us;
        ranks[r].linear_error = plan->ranks[r].linear_error;
    }
    rc = bind(o, &plan->shape, ranks, plan->n_ranks,
              plan->provider[0] ? plan->provider : NULL, p, err);
    free(ranks);
    return rc;
}

/* By what linear work costs: a plan file need not have what that comes to. */
static int has_linear(const hcp_plan *plan)
{
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const hcp_plan_rank *k = &plan->ranks[r];

        if (k->linear_before_us > 0 || k->linear_before_fixed_us > 0 ||
            k->linear_after_us > 0 || k->linear_after_fixed_us > 0)
            return 1;
    }
    return 0;
}

/* The command line's way of running a plan. What a plan file predicts of another way is
 * no prediction of this one; nor is that of a whole layer one of its attention, or the
 * other way round. */
static int change(const struct ring_options *o, hcp_plan *plan, struct hcp_err *err)
{
    const hcp_question *q = &o->question;
    const int32_t before[] = {plan->buffers, plan->sub_blocks, plan->barrier};
    char why[256] = "";

    if (ring_plan_is_decode(plan) &&
        (o->given & (RING_GIVEN_BUFFERS | RING_GIVEN_SUB_BLOCKS | RING_GIVEN_BARRIER) ||
         o->layer.hidden))
        return hcp_fail(err, HCP_USAGE,
                        "in decode KV stays where it is, and a step is of attention "
                        "alone; leave --buffers, --sub-blocks, --barrier and the layer "
                        "out");
    if (o->given & RING_GIVEN_BUFFERS)
        plan->buffers = q->buffers;
    if (o->given & RING_GIVEN_SUB_BLOCKS)
        plan->sub_blocks = q->sub_blocks;
    if (o->given & RING_GIVEN_BARRIER)
        plan->barrier = q->barrier;
    if ((before[0] != plan->buffers || before[1] != plan->sub_blocks) &&
        hcp_plan_memory(plan, why, sizeof why))
        return hcp_fail(err, HCP_NO_ANSWER,
                        "with --buffers %d and --sub-blocks %d the plan does not keep "
                        "within its caps: %s",
                        (int)plan->buffers, (int)plan->sub_blocks, why);
    if (before[0] == plan->buffers && before[1] == plan->sub_blocks &&
        before[2] == plan->barrier && has_linear(plan) == (o->layer.hidden > 0))
        return HCP_OK;
    plan->makespan_ms = plan->interval_lo_ms = plan->interval_hi_ms = NAN;
    if (has_linear(plan) != (o->layer.hidden > 0))
        plan->bound_ms = plan->even_ms = plan->drop_ms = plan->gain_over_even = NAN;
    for (size_t r = 0; r < plan->n_ranks; r++)
        plan->ranks[r].predicted_ms = plan->ranks[r].compute_ms = NAN;
    return HCP_OK;
}

/* The layer of the command line: that of a model whose heads are the plans'. */
static int name_layer(struct ring_options *o, const hcp_shape *shape, struct hcp_err *err)
{
    struct hcp_layer *layer = &o->layer;

    if (o->model && hcp_layer_find(o->model, layer, err))
        return err->code;
    if (!layer->hidden)
        return HCP_OK;
    if (o->model && (layer->heads != shape->heads || layer->kv_heads != shape->kv_heads ||
                     layer->head_dim != shape->head_dim))
        return hcp_fail(err, HCP_USAGE,
                        "%s has %d/%d heads x %d, the plan %d/%d x %d; give the model "
                        "that was planned, or --hidden and --ffn",
                        o->model, (int)layer->heads, (int)layer->kv_heads,
                        (int)layer->head_dim, (int)shape->heads, (int)shape->kv_heads,
                        (int)shape->head_dim);
    layer->heads = shape->heads;
    layer->kv_heads = shape->kv_heads;
    layer->head_dim = shape->head_dim;
    return hcp_layer_check(layer, err);
}

/* What can be split anew in the middle of a run. */
static int check_rebalance(const struct ring_plans *p, struct hcp_err *err)
{
    const hcp_plan *plan = &p->plans[0];

    if (p->n != 1)
        return hcp_fail(err, HCP_USAGE,
                        "--rebalance starts from one plan, and these are %zu; give one "
                        "plan, or one strategy",
                        p->n);
    if (plan->joint || plan->has_links || ring_plan_is_decode(plan) ||
        ring_documents_any(p))
        return hcp_fail(err, HCP_USAGE,
                        "--rebalance is for plans of prefill without --joint, --links "
                        "and --documents; leave it out, or print another plan");
    return HCP_OK;
}

int ring_plans_load(struct ring_options *o, struct ring_plans *out,
                    struct hcp_err *err)
{
    struct ring_plans p = {0};
    int rc = HCP_OK;

    if (!o->n_plan_files)
        rc = ask_all(o, &p, err);
    for (size_t i = 0; rc == HCP_OK && i < o->n_plan_files; i++)
        rc = read_file(o->plan_files[i], &p, err);
    for (size_t i = 0; rc == HCP_OK && o->search && i < p.n; i++)
        if (p.plans[i].inner_ranks > 0)
            rc = hcp_fail(err, HCP_USAGE,
                          "a plan is for rings of rings, of which search looks at none; "
                          "run it without search, or print one without --double-ring");
    if (rc == HCP_OK && ring_documents_any(&p) &&
        (o->search || o->transition ||
         o->given & (RING_GIVEN_BUFFERS | RING_GIVEN_SUB_BLOCKS | RING_GIVEN_BARRIER)))
        rc = hcp_fail(err, HCP_USAGE,
                      "a plan is of documents, which are run as it says, whole blocks "
                      "with a buffer for each; leave %s out",
                      o->search       ? "search"
                      : o->transition ? "transition"
                                      : "--buffers, --sub-blocks and --barrier");
    if (rc == HCP_OK && p.chunks)
        rc = ring_chunks_check(o, err);
    if (rc == HCP_OK && o->rebalance)
        rc = check_rebalance(&p, err);
    if (rc == HCP_OK)
        rc = o->transition ? check_transition(&p, err) : check_alike(&p, err);
    if (rc == HCP_OK)
        rc = name_layer(o, &p.plans[0].shape, err);
    /* A database that is not there yet gets the results. */
    if (rc == HCP_OK &&
        ((o->transition && !o->moves) || (o->n_plan_files && o->rebalance) ||
         (o->n_plan_files && o->search && o->db && !access(o->db, F_OK))))
        rc = bind_files(o, &p, err);
    for (size_t i = 0; rc == HCP_OK && i < p.n; i++)
        rc = change(o, &p.plans[i], err);
    if (rc) {
        ring_plans_free(&p);
        return rc;
    }
    *out = p;
    return HCP_OK;
}
