/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "profiler/commands.h"
#include "profiler/run-options.h"
#include "profiler/worker.h"

enum { EXIT_STOPPED = 130 }; /* as a shell reports SIGINT */

/* What the devices of one command share. */
struct session {
    const struct hcp_run_args *args;
    hcp_db *db; /* opened when the first device is known: a wrong command makes none */
    double deadline_s;
    hcp_table *table;
    json_t *list; /* NULL: no JSON */
};

static void print_cells(const struct hcp_sweep *run, hcp_table *table)
{
    for (size_t i = 0; i < run->n_levels; i++)
        for (size_t k = 0; k < run->levels[i].n; k++) {
            const struct hcp_sweep_cell *c = &run->levels[i].cells[k];
            if (c->state != HCP_CELL_TODO)
                continue;
            hcp_table_row(table);
            hcp_table_cell(table, "%s", run->info.slug);
            hcp_table_cell(table, "%s",
                           *run->levels[i].limit ? run->levels[i].limit : "none");
            if (run->options->linear) {
                hcp_table_cell(table, "%lld", (long long)c->n_in);
                hcp_table_cell(table, "%lld", (long long)c->n_out);
                hcp_table_cell(table, "%lld", (long long)c->q_len);
            } else {
                hcp_table_cell(table, "%s",
                               c->finish   ? hcp_finish_name(c->finish)
                               : c->causal ? "causal"
                                           : "full");
                hcp_table_cell(table, "%lld", (long long)c->q_len);
                hcp_table_cell(table, "%lld", (long long)c->kv_len);
            }
            hcp_table_cell(table, "%.3g", hcp_run_predict_ms(run, &run->levels[i], c));
            hcp_table_cell(table, "%s", hcp_run_is_due(run, c) ? "next" : "candidate");
            if (run->grid.n_batches > 1)
                hcp_table_cell(table, "%d", (int)c->seqs);
        }
}

static hcp_table *dry_table(const struct hcp_run_options *o)
{
    static const char *const blocks[] = {"device", "limit",       "mask", "q_len",
                                         "kv_len", "expected_ms", "set"};
    static const char *const products[] = {"device", "limit",       "n_in", "n_out",
                                           "tokens", "expected_ms", "set"};
    hcp_table *table = hcp_table_new();
    for (int i = 0; i < 7; i++)
        hcp_table_column(table, o->linear ? products[i] : blocks[i],
                         i > (o->linear ? 1 : 2) && i < 6);
    if (o->grid.n_batches > 1)
        hcp_table_column(table, "batch", 1);
    return table;
}

static int open_db(struct session *s, struct hcp_err *err)
{
    const char *path;
    if (s->db)
        return HCP_OK;
    path = hcp_cli_db(s->args->db, err);
    if (!path)
        return err->code;
    if (!s->args->run.dry_run)
        return hcp_db_open(path, HCP_DB_WRITE | HCP_DB_CREATE, &s->db, err);
    return access(path, F_OK) == 0 ? hcp_db_open(path, HCP_DB_READ, &s->db, err) : HCP_OK;
}

/* Measures, and says how it went. */
static int measure(struct session *s, struct hcp_sweep *run)
{
    struct hcp_err err = {0};
    int rc = hcp_run_check(run, &err), got = 0;
    if (rc == HCP_OK) {
        hcp_run_announce(run);
        rc = hcp_run_measure(run, &err);
    }
    for (size_t i = 0; i < run->n_levels; i++)
        got += run->levels[i].counts[HCP_CELL_OK] + run->levels[i].counts[HCP_CELL_KEPT];
    if (hcp_worker_stop) {
        fprintf(stderr,
                "hcp-profile: stopped; every finished cell is in %s, the same command "
                "goes on "
                "from there\n",
                hcp_db_path(s->db));
        rc = EXIT_STOPPED;
    } else if (rc != HCP_OK) {
        rc = hcp_cli_report(&err);
    } else if (run->failed) {
        rc = HCP_FAILED;
    } else if (got == 0) {
        fprintf(stderr, "hcp-profile: nothing was measured\n");
        rc = HCP_NO_ANSWER;
    }
    hcp_run_explain(run);
    hcp_run_table_rows(run, s->table);
    if (s->list)
        json_array_append_new(s->list, hcp_run_json(run));
    return rc;
}

static int stopped_early(void)
{
    fputs("hcp-profile: stopped; the same command begins again\n", stderr);
    return EXIT_STOPPED;
}

static int sweep(struct session *s, const char *spec, const struct hcp_device_info *gpu)
{
    struct hcp_sweep run;
    struct hcp_err err = {0};
    int rc = hcp_run_prepare(&run, &s->args->run, spec, gpu, &err);
    hcp_waiting_begin();
    if (rc == HCP_OK)
        rc = open_db(s, &err);
    if (rc == HCP_OK)
        rc = hcp_run_resume(&run, s->db, &err);
    hcp_waiting_end();
    if (hcp_worker_stop) {
        rc = stopped_early();
    } else if (rc != HCP_OK) {
        hcp_cli_report(&err);
    } else {
        run.deadline_s = s->deadline_s;
        if (s->args->run.dry_run) {
            hcp_run_announce(&run);
            print_cells(&run, s->table);
        } else {
            rc = measure(s, &run);
        }
    }
    hcp_run_free(&run);
    return rc;
}

/* Every GPU that the runtime shows, or the one asked for. */
static int sweep_gpus(struct session *s, int *n_gpus, char reason[512])
{
    const char *device = s->args->device;
    struct hcp_device_info *gpus = NULL;
    struct hcp_err err = {0};
    size_t n = 0;
    int64_t only = -1;
    int rc = hcp_worker_list(&gpus, &n, reason, &err);
    if (rc != HCP_OK)
        return hcp_worker_stop ? stopped_early() : hcp_cli_report(&err);
    *n_gpus = (int)n;
    if (device && device[4] == ':') {
        rc = hcp_parse_int(device + 5, "--device cuda:N", 0, 1024, &only, &err);
        if (rc == HCP_OK && n > 0 && only >= (int64_t)n)
            rc = hcp_fail(&err, HCP_FAILED,
                          "no device cuda:%lld: there are %zu ('hcp-profile devices' "
                          "lists them)",
                          (long long)only, n);
    }
    if (rc == HCP_OK && device && n == 0)
        rc = hcp_fail(&err, HCP_FAILED, "no CUDA GPU: %s", reason);
    if (rc != HCP_OK)
        n = 0, hcp_cli_report(&err);
    for (size_t i = 0; i < n && rc != HCP_USAGE && rc != EXIT_STOPPED; i++) {
        char spec[32];
        snprintf(spec, sizeof spec, "cuda:%zu", i);
        if (only >= 0 && (int64_t)i != only)
            continue;
        int one = sweep(s, spec, &gpus[i]);
        rc = one == HCP_OK ? rc : one;
    }
    free(gpus);
    return rc;
}

/* Of limits for GPUs here; other machines' times may come from several runs. */
static int check_limiters(const struct hcp_limit_list *limits)
{
    struct hcp_err err = {0};
    for (size_t i = 0; i < limits->n; i++)
        for (size_t k = 0; k < i; k++)
            if (hcp_limits_agree(limits->limit[k], limits->limit[i], &err) != HCP_OK)
                return hcp_cli_report(&err);
    return HCP_OK;
}

static int sweep_all(struct session *s)
{
    const char *device = s->args->device;
    int n_gpus = 0;
    char reason[512] = "";
    if (device && strncmp(device, "cuda", 4) != 0)
        return sweep(s, device, NULL);
    if (check_limiters(&s->args->run.limits) != HCP_OK)
        return HCP_USAGE;
    int rc = sweep_gpus(s, &n_gpus, reason);
    if (device || n_gpus > 0 || rc != HCP_OK)
        return rc;
    fprintf(stderr, "hcp-profile: no CUDA GPU (%s): profiling this CPU\n", reason);
    return sweep(s, "cpu", NULL);
}

static void print(struct session *s, int rc)
{
    if (s->list && s->args->run.dry_run)
        hcp_table_to_json(s->table, s->list);
    if (s->list)
        hcp_json_print(s->list, stdout);
    if (s->list || rc == HCP_USAGE)
        hcp_table_free(s->table);
    else
        hcp_table_print(s->table, stdout);
}

int cmd_run(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&hcp_shape_argp, 0, "Shape of the attention:", 10}, {0}};
    static const struct argp argp = {
        hcp_run_argp_options,
        hcp_run_argp_parse,
        "",
        "Measures attention blocks on a device at several limits and stores every cell "
        "as it is "
        "finished; the same command goes on after an interruption.",
        children,
        NULL,
        NULL};
    struct hcp_run_args a;
    struct hcp_err err = {0};
    hcp_run_args_init(&a);
    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return HCP_USAGE;
    if (a.run.max_len == 0)
        a.run.max_len = a.run.shape.seq_len;
    const struct hcp_device_ops *ops;
    int rc = a.device ? hcp_device_ops_of(a.device, &ops, &err) : HCP_OK;
    if (rc != HCP_OK)
        return hcp_cli_report(&err);
    hcp_worker_catch_signals();
    struct session session = {.args = &a, .deadline_s = INFINITY};
    if (!isnan(a.run.time_budget_s))
        session.deadline_s = hcp_now_s() + a.run.time_budget_s;
    session.table = a.run.dry_run ? dry_table(&a.run) : hcp_table_new();
    if (!a.run.dry_run)
        hcp_run_table_columns(session.table);
    session.list = a.run.json ? json_array() : NULL;
    rc = sweep_all(&session);
    hcp_db_close(session.db);
    print(&session, rc);
    hcp_run_args_free(&a);
    return hcp_cli_finish(rc);
}
