/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "planner/commands.h"
#include "planner/options.h"

enum { OPT_Q_LEN = 0x4000, OPT_KV_LEN, OPT_CELLS, OPT_MODEL };

struct args {
    struct plan_args plan;
    int64_t q_len, kv_len;
    const char *cells;
    hcp_model_kind kind;
};

static const struct argp_option options[] = {
    {"q-len", OPT_Q_LEN, "N", 0, "Queries of the block", 0},
    {"kv-len", OPT_KV_LEN, "N", 0, "Keys of the block", 0},
    {"cells", OPT_CELLS, "FILE", 0,
     "Answer each line of a CSV with the header q_len,kv_len,mask; - reads standard "
     "input",
     0},
    {"model", OPT_MODEL, "KIND", 0, "lut, poly or best (best: smaller held-out error)",
     0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *args = state->input;
    struct hcp_err err = {0}, why = {0};
    int rc = HCP_OK;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->plan;
        return 0;
    case OPT_Q_LEN:
        rc = hcp_parse_len(arg, 1, &args->q_len, &why);
        if (rc)
            hcp_fail(&err, rc, "--q-len: %s", why.text);
        break;
    case OPT_KV_LEN:
        rc = hcp_parse_len(arg, 1, &args->kv_len, &why);
        if (rc)
            hcp_fail(&err, rc, "--kv-len: %s", why.text);
        break;
    case OPT_CELLS:
        args->cells = arg;
        return 0;
    case OPT_MODEL:
        if (strcmp(arg, "best") == 0)
            args->kind = HCP_MODEL_BEST;
        else if (strcmp(arg, "lut") == 0)
            args->kind = HCP_MODEL_LUT;
        else if (strcmp(arg, "poly") == 0)
            args->kind = HCP_MODEL_POLY;
        else
            rc =
                hcp_fail(&err, HCP_USAGE, "--model '%s' is none of lut, poly, best", arg);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    if (rc)
        argp_error(state, "%s", err.text);
    return 0;
}

struct block {
    int64_t q_len, kv_len;
    int causal;
};

static const char *mask_name(const struct block *block)
{
    return block->causal ? "causal" : "full";
}

static int predict(const struct args *args, const struct session *s, size_t rank,
                   const struct block *block, hcp_prediction *out, struct hcp_err *err)
{
    hcp_status status;

    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    status = hcp_block_predict(s->ring, rank, args->kind, block->causal, block->q_len,
                               block->kv_len, args->plan.question.extrapolate, err->text,
                               sizeof err->text, out);
    return err->code = plan_exit_code(status);
}

/* ---- one block on each rank ---- */

/* p NULL: outside the measured lengths; e: what a data sheet is estimated from, or
 * NULL. */
static json_t *block_json(const struct hcp_key *key, const struct block *block,
                          const hcp_prediction *p, const hcp_rank_estimate *e)
{
    json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:s}", "device", key->device,
                               "limit", key->limit, "q_len", (json_int_t)block->q_len,
                               "kv_len", (json_int_t)block->kv_len, "mask",
                               mask_name(block));

    if (!p) {
        json_object_set_new(object, "predicted_ms", json_null());
        json_object_set_new(object, "source", json_string("outside"));
        return object;
    }
    json_object_set_new(object, "predicted_ms", hcp_json_real(p->ms));
    json_object_set_new(
        object, "interval_ms",
        json_pack("[o, o]", hcp_json_real(p->lo_ms), hcp_json_real(p->hi_ms)));
    json_object_set_new(object, "source", json_string(hcp_source_name(p->source)));
    json_object_set_new(object, "model", json_string(p->model));
    if (e && e->estimated) {
        char kin[112];

        plan_rank_name(e->kin_device, e->kin_limit, kin, sizeof kin);
        json_object_set_new(object, "estimated_from", json_string(kin));
        json_object_set_new(object, "measure", json_string(e->command));
    }
    return object;
}

static void block_text(const struct hcp_key *key, const struct block *block,
                       const hcp_prediction *p)
{
    char name[112];

    plan_rank_name(key->device, key->limit, name, sizeof name);
    printf("%s: %lld queries, %lld keys, %s: %.6g ms (%.6g to %.6g), %s, %s\n", name,
           (long long)block->q_len, (long long)block->kv_len, mask_name(block), p->ms,
           p->lo_ms, p->hi_ms, hcp_source_name(p->source), p->model);
}

static int predict_one(const struct args *args, const struct session *s,
                       const struct hcp_key *keys, size_t n, struct hcp_err *err)
{
    struct block block = {args->q_len, args->kv_len,
                          strcmp(args->plan.shape.mask, "causal") == 0};
    int rc = HCP_OK;
    json_t *array = args->plan.json && n > 1 ? json_array() : NULL;

    if (args->q_len == 0 || args->kv_len == 0)
        return hcp_fail(err, HCP_USAGE, "--q-len and --kv-len, or --cells, are missing");
    for (size_t r = 0; r < n && rc == HCP_OK; r++) {
        hcp_rank_estimate e = {.size = sizeof e};
        hcp_prediction p;

        rc = predict(args, s, r, &block, &p, err);
        if (rc)
            break;
        hcp_ring_estimate(s->ring, r, &e);
        if (array)
            json_array_append_new(array, block_json(&keys[r], &block, &p, &e));
        else if (args->plan.json)
            rc = hcp_json_print(block_json(&keys[r], &block, &p, &e), stdout);
        else
            block_text(&keys[r], &block, &p);
    }
    if (array && rc == HCP_OK)
        return hcp_json_print(array, stdout);
    json_decref(array);
    return rc;
}

/* ---- a list of blocks ---- */

static int parse_cell(char *line, size_t number, struct block *block,
                      struct hcp_err *err)
{
    char *kv = strchr(line, ','), *mask = kv ? strchr(kv + 1, ',') : NULL;
    struct hcp_err why = {0};

    if (!mask || strchr(mask + 1, ','))
        return hcp_fail(err, HCP_USAGE, "line %zu: expected q_len,kv_len,mask", number);
    *kv++ = 0;
    *mask++ = 0;
    if (hcp_parse_len(line, 1, &block->q_len, &why) ||
        hcp_parse_len(kv, 1, &block->kv_len, &why))
        return hcp_fail(err, HCP_USAGE, "line %zu: %s", number, why.text);
    if (strcmp(mask, "full") != 0 && strcmp(mask, "causal") != 0)
        return hcp_fail(err, HCP_USAGE, "line %zu: mask '%s' is neither full nor causal",
                        number, mask);
    block->causal = mask[0] == 'c';
    return HCP_OK;
}

/* A line of CSV, or an element of array if there is one. p NULL: outside. */
static void put_cell(json_t *array, const struct hcp_key *key, const struct block *block,
                     const hcp_prediction *p, const hcp_rank_estimate *e)
{
    char ms[32], lo[32], hi[32];

    if (array) {
        json_array_append_new(array, block_json(key, block, p, e));
        return;
    }
    printf("%lld,%lld,%s,", (long long)block->q_len, (long long)block->kv_len,
           mask_name(block));
    if (p)
        printf("%s,%s,%s,%s\n", hcp_format_double(p->ms, ms),
               hcp_format_double(p->lo_ms, lo), hcp_format_double(p->hi_ms, hi),
               hcp_source_name(p->source));
    else
        printf(",,,outside\n");
}

/* Answers line by line. A block outside the measured lengths gets a line without
 * numbers, and the exit code says that not everything was answered. */
static int predict_lines(const struct args *args, const struct session *s,
                         const struct hcp_key *key, FILE *in, json_t *array,
                         struct hcp_err *err)
{
    char *line = NULL;
    size_t size = 0, number = 0, outside = 0;
    struct hcp_err first = {0};
    hcp_rank_estimate e = {.size = sizeof e};
    int rc = HCP_OK;

    hcp_ring_estimate(s->ring, 0, &e);
    while (rc == HCP_OK && getline(&line, &size, in) >= 0) {
        struct block block = {0};
        hcp_prediction p;

        number++;
        line[strcspn(line, "\r\n")] = 0;
        if (number == 1) {
            if (strcmp(line, "q_len,kv_len,mask") != 0)
                rc = hcp_fail(err, HCP_USAGE,
                              "line 1 of the cells is not the header q_len,kv_len,mask%s",
                              (unsigned char)line[0] == 0xef
                                  ? " (it begins with a byte-order mark; remove it with "
                                    "dos2unix)"
                                  : "");
            else if (!array)
                puts("q_len,kv_len,mask,predicted_ms,lo_ms,hi_ms,source");
            continue;
        }
        rc = parse_cell(line, number, &block, err);
        if (rc)
            break;
        rc = predict(args, s, 0, &block, &p, err);
        if (rc == HCP_NO_ANSWER && args->plan.question.extrapolate == 0) {
            if (outside++ == 0)
                first = *err;
            rc = HCP_OK;
            put_cell(array, key, &block, NULL, &e);
        } else if (rc == HCP_OK) {
            put_cell(array, key, &block, &p, &e);
        }
    }
    if (rc == HCP_OK && ferror(in))
        rc = hcp_fail(err, HCP_FAILED, "cannot read the cells: %s", strerror(errno));
    else if (rc == HCP_OK && number == 0)
        rc = hcp_fail(err, HCP_USAGE,
                      "the cells are empty; expected a header line "
                      "q_len,kv_len,mask");
    free(line);
    if (rc == HCP_OK && outside > 0)
        return hcp_fail(err, HCP_NO_ANSWER,
                        "%zu of %zu cells not answered, the first: %.800s", outside,
                        number - 1, first.text);
    return rc;
}

static int predict_cells(const struct args *args, const struct session *s,
                         const struct hcp_key *keys, size_t n, struct hcp_err *err)
{
    FILE *in = stdin;
    json_t *array;
    int rc;

    if (n != 1)
        return hcp_fail(err, HCP_USAGE, "--cells answers for one rank, --ranks has %zu",
                        n);
    if (args->q_len || args->kv_len)
        return hcp_fail(err, HCP_USAGE,
                        "--cells has its own lengths; leave --q-len and --kv-len out");
    if (strcmp(args->cells, "-") != 0 && !(in = fopen(args->cells, "r")))
        return hcp_fail(err, HCP_FAILED, "cannot open %s: %s", args->cells,
                        strerror(errno));
    array = args->plan.json ? json_array() : NULL;
    rc = predict_lines(args, s, &keys[0], in, array, err);
    if (array && (rc == HCP_OK || rc == HCP_NO_ANSWER))
        hcp_json_print(array, stdout); /* hcp_cli_finish() sees what went wrong */
    else
        json_decref(array);
    if (in != stdin)
        fclose(in);
    return rc;
}

int cmd_predict(int argc, char **argv)
{
    static const struct argp_child children[] = {{&plan_common_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options,  parse,
        NULL,     "Predicts the time of one block of attention on each rank.",
        children, NULL,
        NULL};
    struct args args = {0};
    struct session s = {0};
    struct hcp_err err = {0};
    struct hcp_key *keys = NULL;
    size_t n = 0;
    int rc;

    plan_args_init(&args.plan);
    args.plan.decode = 1;
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    rc = session_open(&args.plan, &s, &err);
    if (rc == HCP_OK)
        rc = hcp_parse_ranks(args.plan.ranks, &keys, &n, &err);
    if (rc == HCP_OK)
        rc = args.cells ? predict_cells(&args, &s, keys, n, &err)
                        : predict_one(&args, &s, keys, n, &err);
    if (rc == HCP_OK)
        session_say_estimates(&s, args.plan.json || args.cells);
    free(keys);
    session_close(&s);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
