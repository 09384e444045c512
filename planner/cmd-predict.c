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

static int predict(const struct args *args, const struct session *s, size_t rank,
                   int causal, int64_t q_len, int64_t kv_len, hcp_prediction *out,
                   struct hcp_err *err)
{
    hcp_status status;

    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    status = hcp_block_predict(s->ring, rank, args->kind, causal, q_len, kv_len,
                               args->plan.question.extrapolate, err->text,
                               sizeof err->text, out);
    return err->code = plan_exit_code(status);
}

/* ---- one block on each rank ---- */

static json_t *block_json(const struct args *args, const struct hcp_key *key,
                          const hcp_prediction *p)
{
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:I, s:s}", "device", key->device, "limit", key->limit,
                  "q_len", (json_int_t)args->q_len, "kv_len", (json_int_t)args->kv_len,
                  "mask", args->plan.shape.mask);

    json_object_set_new(object, "predicted_ms", hcp_json_real(p->ms));
    json_object_set_new(
        object, "interval_ms",
        json_pack("[o, o]", hcp_json_real(p->lo_ms), hcp_json_real(p->hi_ms)));
    json_object_set_new(object, "source", json_string(hcp_source_name(p->source)));
    json_object_set_new(object, "model", json_string(p->model));
    return object;
}

static void block_text(const struct args *args, const struct hcp_key *key,
                       const hcp_prediction *p)
{
    char name[112];

    plan_rank_name(key->device, key->limit, name, sizeof name);
    printf("%s: %lld queries, %lld keys, %s: %.6g ms (%.6g to %.6g), %s, %s\n", name,
           (long long)args->q_len, (long long)args->kv_len, args->plan.shape.mask, p->ms,
           p->lo_ms, p->hi_ms, hcp_source_name(p->source), p->model);
}

static int predict_one(const struct args *args, const struct session *s,
                       const struct hcp_key *keys, size_t n, struct hcp_err *err)
{
    int causal = strcmp(args->plan.shape.mask, "causal") == 0, rc = HCP_OK;
    json_t *array = args->plan.json && n > 1 ? json_array() : NULL;

    if (args->q_len == 0 || args->kv_len == 0)
        return hcp_fail(err, HCP_USAGE, "--q-len and --kv-len, or --cells, are missing");
    for (size_t r = 0; r < n && rc == HCP_OK; r++) {
        hcp_prediction p;

        rc = predict(args, s, r, causal, args->q_len, args->kv_len, &p, err);
        if (rc)
            break;
        if (array)
            json_array_append_new(array, block_json(args, &keys[r], &p));
        else if (args->plan.json)
            rc = hcp_json_print(block_json(args, &keys[r], &p), stdout);
        else
            block_text(args, &keys[r], &p);
    }
    if (array && rc == HCP_OK)
        return hcp_json_print(array, stdout);
    json_decref(array);
    return rc;
}

/* ---- a list of blocks ---- */

static int parse_cell(char *line, size_t number, int64_t *q_len, int64_t *kv_len,
                      int *causal, struct hcp_err *err)
{
    char *kv = strchr(line, ','), *mask = kv ? strchr(kv + 1, ',') : NULL;
    struct hcp_err why = {0};

    if (!mask || strchr(mask + 1, ','))
        return hcp_fail(err, HCP_USAGE, "line %zu: expected q_len,kv_len,mask", number);
    *kv++ = 0;
    *mask++ = 0;
    if (hcp_parse_len(line, 1, q_len, &why) || hcp_parse_len(kv, 1, kv_len, &why))
        return hcp_fail(err, HCP_USAGE, "line %zu: %s", number, why.text);
    if (strcmp(mask, "full") != 0 && strcmp(mask, "causal") != 0)
        return hcp_fail(err, HCP_USAGE, "line %zu: mask '%s' is neither full nor causal",
                        number, mask);
    *causal = mask[0] == 'c';
    return HCP_OK;
}

static void print_cell(int64_t q_len, int64_t kv_len, int causal, const hcp_prediction *p)
{
    char ms[32], lo[32], hi[32];

    printf("%lld,%lld,%s,", (long long)q_len, (long long)kv_len,
           causal ? "causal" : "full");
    if (p)
        printf("%s,%s,%s,%s\n", hcp_format_double(p->ms, ms),
               hcp_format_double(p->lo_ms, lo), hcp_format_double(p->hi_ms, hi),
               hcp_source_name(p->source));
    else
        printf(",,,outside\n");
}

/* Answers line by line. A block outside the measured lengths gets a line without
 * numbers, and the exit code says that not everything was answered. */
static int predict_lines(const struct args *args, const struct session *s, FILE *in,
                         struct hcp_err *err)
{
    char *line = NULL;
    size_t size = 0, number = 0, outside = 0;
    struct hcp_err first = {0};
    int rc = HCP_OK;

    while (rc == HCP_OK && getline(&line, &size, in) >= 0) {
        int64_t q_len = 0, kv_len = 0;
        int causal = 0;
        hcp_prediction p;

        number++;
        line[strcspn(line, "\n")] = 0;
        if (number == 1) {
            if (strcmp(line, "q_len,kv_len,mask") != 0)
                rc = hcp_fail(err, HCP_USAGE,
                              "line 1 of the cells is not the header q_len,kv_len,mask%s",
                              strchr(line, '\r') || (unsigned char)line[0] == 0xef
                                  ? " (it has CR LF or a byte-order mark; convert the "
                                    "file with dos2unix)"
                                  : "");
            else
                puts("q_len,kv_len,mask,predicted_ms,lo_ms,hi_ms,source");
            continue;
        }
        rc = parse_cell(line, number, &q_len, &kv_len, &causal, err);
        if (rc)
            break;
        rc = predict(args, s, 0, causal, q_len, kv_len, &p, err);
        if (rc == HCP_NO_ANSWER && args->plan.question.extrapolate == 0) {
            if (outside++ == 0)
                first = *err;
            rc = HCP_OK;
            print_cell(q_len, kv_len, causal, NULL);
        } else if (rc == HCP_OK) {
            print_cell(q_len, kv_len, causal, &p);
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

static int predict_cells(const struct args *args, const struct session *s, size_t n,
                         struct hcp_err *err)
{
    FILE *in = stdin;
    int rc;

    if (n != 1)
        return hcp_fail(err, HCP_USAGE, "--cells answers for one rank, --ranks has %zu",
                        n);
    if (args->q_len || args->kv_len)
        return hcp_fail(err, HCP_USAGE,
                        "--cells has its own lengths; leave --q-len and --kv-len out");
    if (args->plan.json)
        return hcp_fail(err, HCP_USAGE, "--cells prints CSV; leave --json out");
    if (strcmp(args->cells, "-") != 0 && !(in = fopen(args->cells, "r")))
        return hcp_fail(err, HCP_FAILED, "cannot open %s: %s", args->cells,
                        strerror(errno));
    rc = predict_lines(args, s, in, err);
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
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    rc = session_open(&args.plan, &s, &err);
    if (rc == HCP_OK)
        rc = hcp_parse_ranks(args.plan.ranks, &keys, &n, &err);
    if (rc == HCP_OK)
        rc = args.cells ? predict_cells(&args, &s, n, &err)
                        : predict_one(&args, &s, keys, n, &err);
    free(keys);
    session_close(&s);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
