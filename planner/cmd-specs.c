/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "planner/commands.h"
#include "planner/options.h"

enum { OPT_SPECS = 0x4000, MOST_NAMES = 64 };

struct args {
    const char *specs;
    int json;
    const char *names[MOST_NAMES];
    size_t n_names;
};

static const struct argp_option options[] = {
    {"specs", OPT_SPECS, "FILE", 0,
     "Table of data sheets ($HCP_SPECS, else the one that is "
     "installed)",
     0},
    {"json", 'j', NULL, 0, "Print JSON", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *args = state->input;

    switch (key) {
    case OPT_SPECS:
        args->specs = arg;
        return 0;
    case 'j':
        args->json = 1;
        return 0;
    case ARGP_KEY_ARG:
        if (args->n_names == MOST_NAMES)
            argp_error(state, "more than %d names", (int)MOST_NAMES);
        args->names[args->n_names++] = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static json_t *number(double v)
{
    return v > 0 ? hcp_json_real(v) : json_null();
}

static json_t *spec_json(const hcp_spec *s)
{
    json_t *aliases = json_array();

    for (const char *p = s->aliases; *p; p += *p == ',') {
        size_t len = strcspn(p, ",");

        json_array_append_new(aliases, json_stringn(p, len));
        p += len;
    }
    return json_pack("{s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:s}",
                     "name", s->name, "arch", s->arch, "sms", (int)s->sms, "bf16_tflops",
                     number(s->bf16_tflops), "fp16_tflops", number(s->fp16_tflops),
                     "fp32_tflops", number(s->fp32_tflops), "memory_gbps",
                     number(s->memory_gbps), "memory_bytes", (json_int_t)s->memory_bytes,
                     "nvlink_gbps", number(s->nvlink_gbps), "pcie_gbps",
                     number(s->pcie_gbps), "aliases", aliases, "source", s->source);
}

static void cell(hcp_table *t, double v)
{
    if (v > 0)
        hcp_table_cell(t, "%g", v);
    else
        hcp_table_cell(t, "-");
}

static void spec_row(hcp_table *t, const hcp_spec *s)
{
    hcp_table_row(t);
    hcp_table_cell(t, "%s", s->name);
    hcp_table_cell(t, "%s", s->arch);
    hcp_table_cell(t, "%d", (int)s->sms);
    cell(t, s->bf16_tflops);
    cell(t, s->fp16_tflops);
    cell(t, s->fp32_tflops);
    cell(t, s->memory_gbps);
    cell(t, s->memory_gb);
    cell(t, s->nvlink_gbps);
    cell(t, s->pcie_gbps);
    hcp_table_cell(t, "%s", s->aliases[0] ? s->aliases : "-");
    hcp_table_cell(t, "%s", s->source);
}

static hcp_table *new_table(void)
{
    static const char *const columns[] = {"name",        "arch",        "sms",
                                          "bf16_tflops", "fp16_tflops", "fp32_tflops",
                                          "memory_gbps", "memory_gb",   "nvlink_gbps",
                                          "pcie_gbps",   "aliases",     "source"};
    hcp_table *t = hcp_table_new();

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(t, columns[i], i >= 2 && i <= 9);
    return t;
}

static int print(const struct args *args, const hcp_specs *specs, struct hcp_err *err)
{
    size_t n = args->n_names ? args->n_names : hcp_specs_count(specs);
    json_t *array = args->json ? json_array() : NULL;
    hcp_table *t = args->json ? NULL : new_table();

    for (size_t i = 0; i < n; i++) {
        hcp_spec spec = {.size = sizeof spec};
        hcp_status status = args->n_names
                                ? hcp_specs_find(specs, args->names[i], err->text,
                                                 sizeof err->text, &spec)
                                : hcp_specs_get(specs, i, &spec);

        if (status) {
            json_decref(array);
            hcp_table_free(t);
            return err->code = plan_exit_code(status);
        }
        if (array)
            json_array_append_new(array, spec_json(&spec));
        else
            spec_row(t, &spec);
    }
    if (array ? hcp_json_print(array, stdout) : hcp_table_print(t, stdout))
        return hcp_fail(err, HCP_FAILED, "cannot print the data sheets");
    return HCP_OK;
}

int cmd_specs(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "[NAME...]",
        "Lists the GPUs that ranks can be by their data sheet, as spec:NAME.",
        NULL,
        NULL,
        NULL};
    struct args args = {0};
    struct hcp_err err = {0};
    hcp_specs *specs = NULL;
    int rc;

    argp_parse(&argp, argc, argv, 0, NULL, &args);
    rc = session_specs_load(args.specs, &specs, &err);
    if (rc == HCP_OK)
        rc = print(&args, specs, &err);
    hcp_specs_free(specs);
    return hcp_cli_finish(rc ? hcp_cli_report(&err) : HCP_OK);
}
