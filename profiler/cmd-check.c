/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "db/audit.h"
#include "db/cli.h"
#include "profiler/commands.h"
#include "profiler/show-table.h"
#include "profiler/worker.h"

enum { OPT_STRICT = 0x2000, OPT_NO_DEVICE };

struct args {
    const char *db;
    int literal; /* db was given by itself, not with --db: no pattern */
    int json, strict, no_device;
};

static const struct argp_option options[] = {
    {"db", 'd', "FILE", 0, "The same as FILE ($HCP_DB, else hcp.db)", 0},
    {"strict", OPT_STRICT, NULL, 0, "Warnings end with 1 too", 0},
    {"no-device", OPT_NO_DEVICE, NULL, 0,
     "Do not compare with the devices of this machine", 0},
    {"json", 'j', NULL, 0, "Report as JSON", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;

    switch (key) {
    case 'd':
    case ARGP_KEY_ARG:
        a->literal = key == ARGP_KEY_ARG;
        if (a->db)
            argp_error(state, "one file at a time; '%s' is one too many", arg);
        a->db = arg;
        return 0;
    case 'j':
        a->json = 1;
        return 0;
    case OPT_STRICT:
        a->strict = 1;
        return 0;
    case OPT_NO_DEVICE:
        a->no_device = 1;
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

/* ---- this machine ---- */

struct here {
    struct hcp_audit_here *list;
    size_t n;
};

static void add_here(struct here *here, const struct hcp_device_info *device,
                     const struct hcp_kernel_info *kernel)
{
    struct hcp_audit_here *grown = realloc(here->list, (here->n + 1) * sizeof *grown);

    if (!grown)
        return;
    here->list = grown;
    grown = memset(&grown[here->n++], 0, sizeof *grown);
    memcpy(grown->device, device->slug, sizeof grown->device);
    memcpy(grown->driver, device->driver, sizeof grown->driver);
    memcpy(grown->cuda_version, device->cuda_version, sizeof grown->cuda_version);
    memcpy(grown->provider, kernel->name, sizeof grown->provider);
    memcpy(grown->provider_version, kernel->version, sizeof grown->provider_version);
}

/* Without a device there is nothing to compare with, which is no fault of the file. */
static void look_here(struct here *here)
{
    struct hcp_device_info *gpus = NULL, cpu = {0};
    struct hcp_kernel_info *kernels = NULL;
    size_t n_gpus = 0, n_kernels = 0;
    struct hcp_err err = {0};
    char reason[512];
    int cores;

    if (hcp_worker_list(&gpus, &n_gpus, reason, &err) == HCP_OK &&
        hcp_worker_kernels(&kernels, &n_kernels, &err) == HCP_OK) {
        hcp_cpu_describe(cpu.name, cpu.uuid, &cpu.l2_bytes, &cpu.memory_bytes, &cores);
        hcp_device_slug(cpu.name, cpu.slug, sizeof cpu.slug);
        for (size_t i = 0; i < n_kernels; i++) {
            if (kernels[i].gpu < 0)
                add_here(here, &cpu, &kernels[i]);
            else if ((size_t)kernels[i].gpu < n_gpus)
                add_here(here, &gpus[kernels[i].gpu], &kernels[i]);
        }
    }
    free(kernels);
    free(gpus);
}

/* ---- text ---- */

static void range_cell(hcp_table *t, int64_t min, int64_t max)
{
    if (!max)
        hcp_table_cell(t, "%s", "");
    else if (min == max)
        hcp_table_cell(t, "%lld", (long long)min);
    else
        hcp_table_cell(t, "%lld-%lld", (long long)min, (long long)max);
}

static void print_covers(const struct hcp_audit *audit)
{
    static const struct show_column columns[] = {
        {"device", 0}, {"limit", 0},  {"kernel", 0}, {"shape", 0},  {"mask", 0},
        {"cells", 1},  {"failed", 1}, {"q_len", 1},  {"kv_len", 1}, {"finish", 1},
        {"models", 0}, {"origin", 0}, {NULL, 0}};
    hcp_table *t = show_table(columns);

    for (size_t i = 0; i < audit->n_covers; i++) {
        const struct hcp_cover *c = &audit->covers[i];
        hcp_table_row(t);
        hcp_table_cell(t, "%s", c->key.device);
        hcp_table_cell(t, "%s", show_limit(c->key.limit));
        hcp_table_cell(t, "%s", c->key.provider);
        hcp_table_cell(t, SHOW_SHAPE, SHOW_SHAPE_VALUES(&c->key));
        hcp_table_cell(t, "%s", c->mask);
        hcp_table_cell(t, "%lld", (long long)c->cells);
        hcp_table_cell(t, "%lld", (long long)c->failed);
        range_cell(t, c->q_min, c->q_max);
        range_cell(t, c->kv_min, c->kv_max);
        hcp_table_cell(t, "%lld", (long long)(c->stores + c->merges));
        hcp_table_cell(t, "%s", !c->models ? "none" : c->stale ? "stale" : "fitted");
        hcp_table_cell(t, "%s", show_origin(c->origin));
    }
    hcp_table_print(t, stdout);
}

static void end_cell(hcp_table *t, const char *device, const char *limit)
{
    hcp_table_cell(t, "%s%s%s", device, *limit ? "@" : "", limit);
}

static void print_links(const struct hcp_audit *audit)
{
    static const struct show_column columns[] = {
        {"a", 0},    {"b", 0},     {"one_way", 0}, {"transport", 0},
        {"rows", 1}, {"bytes", 1}, {NULL, 0}};
    hcp_table *t = audit->n_links ? show_table(columns) : NULL;

    for (size_t i = 0; i < audit->n_links; i++) {
        const struct hcp_cover_link *l = &audit->links[i];
        hcp_table_row(t);
        end_cell(t, l->device_a, l->limit_a);
        end_cell(t, l->device_b, l->limit_b);
        hcp_table_cell(t, "%s", l->one_way ? "yes" : "no");
        show_transport(t, l->transport, l->channels ? l->channels : -1);
        hcp_table_cell(t, "%lld", (long long)l->rows);
        range_cell(t, l->bytes_min, l->bytes_max);
    }
    if (t)
        hcp_table_print(t, stdout);
}

static void print_besides(const struct hcp_audit *audit)
{
    static const struct show_column columns[] = {
        {"a", 0},         {"kernel", 0}, {"shape", 0},  {"b", 0},
        {"transport", 0}, {"rows", 1},   {"factor", 1}, {NULL, 0}};
    hcp_table *t = audit->n_besides ? show_table(columns) : NULL;

    for (size_t i = 0; i < audit->n_besides; i++) {
        const struct hcp_cover_beside *b = &audit->besides[i];
        hcp_table_row(t);
        end_cell(t, b->key.device, b->key.limit);
        hcp_table_cell(t, "%s", b->key.provider);
        hcp_table_cell(t, SHOW_SHAPE, SHOW_SHAPE_VALUES(&b->key));
        end_cell(t, b->peer_device, b->peer_limit);
        show_transport(t, b->transport, b->channels ? b->channels : -1);
        hcp_table_cell(t, "%lld", (long long)b->rows);
        hcp_table_cell(t, "%.3f-%.3f", b->factor_min, b->factor_max);
    }
    if (t)
        hcp_table_print(t, stdout);
}

static void print_linears(const struct hcp_audit *audit)
{
    static const struct show_column columns[] = {
        {"device", 0}, {"limit", 0},  {"library", 0}, {"dtype", 0},
        {"rows", 1},   {"layers", 1}, {"tokens", 1},  {NULL, 0}};
    hcp_table *t = audit->n_linears ? show_table(columns) : NULL;

    for (size_t i = 0; i < audit->n_linears; i++) {
        const struct hcp_cover_linear *l = &audit->linears[i];
        hcp_table_row(t);
        hcp_table_cell(t, "%s", l->device);
        hcp_table_cell(t, "%s", show_limit(l->limit));
        hcp_table_cell(t, "%s", l->library);
        hcp_table_cell(t, "%s", l->dtype);
        hcp_table_cell(t, "%lld", (long long)l->rows);
        hcp_table_cell(t, "%lld", (long long)l->layers);
        range_cell(t, l->tokens_min, l->tokens_max);
    }
    if (t)
        hcp_table_print(t, stdout);
}

static const char *const severities[] = {"note", "warning", "error"};

static void print_subject(const struct hcp_finding *f)
{
    const struct hcp_key *k = &f->key;

    if (!*k->device)
        return;
    printf("%s%s%s", k->device, *k->limit ? "@" : "", k->limit);
    if (*f->transport) {
        printf(",%s%s%s %s", f->peer_device, *f->peer_limit ? "@" : "", f->peer_limit,
               f->transport);
        if (f->channels)
            printf("/%d", (int)f->channels);
        printf("%s", f->one_way ? " one way" : "");
    }
    if (f->kind == HCP_ROWS_LINEAR)
        printf(" %s %s", k->provider, k->dtype);
    else if (*k->provider)
        printf(" %s " SHOW_SHAPE, k->provider, SHOW_SHAPE_VALUES(k));
    printf(": ");
}

/* "3 rows, the worst full 512x4096, " */
static void print_rows(const struct hcp_finding *f)
{
    const struct hcp_lengths *l = f->lengths;

    if (!f->rows || !f->n_lengths)
        return;
    if (f->rows > 1)
        printf("%zu rows, the worst ", f->rows);
    if (f->kind == HCP_ROWS_LINKS)
        printf("%lld bytes: ", (long long)l->q_len);
    else if (f->kind == HCP_ROWS_LINEAR)
        printf("%lld tokens: ", (long long)l->q_len);
    else if (l->kv_len)
        printf("%s %lldx%lld: ", l->mask, (long long)l->q_len, (long long)l->kv_len);
    else
        printf("%s of %lld rows: ", l->mask, (long long)l->q_len);
}

static int same_but_limit(const struct hcp_finding *a, const struct hcp_finding *b)
{
    struct hcp_key key = b->key;

    memcpy(key.limit, a->key.limit, sizeof key.limit);
    return a->severity == b->severity && !strcmp(a->code, b->code) &&
           a->kind == b->kind && !*a->transport && *a->key.device && !a->any_limit &&
           hcp_key_equal(&a->key, &key);
}

/* Where a command names the finding's limit, and how long that is; NULL: it does not. */
static const char *find_limit(const struct hcp_finding *f, size_t *len)
{
    static const char option[] = " --limits ";
    const char *limit = *f->key.limit ? f->key.limit : "none";
    const char *at = strstr(f->command, option);

    if (!at)
        return NULL;
    at += sizeof option - 1;
    *len = strlen(limit);
    return !strncmp(at, limit, *len) && (at[*len] == ' ' || !at[*len]) ? at : NULL;
}

/* One line can tell both: facts that ask for nothing, or the same about keys as a whole
 * with commands that differ in the limit alone. */
static int one_line(const struct hcp_finding *a, const struct hcp_finding *b)
{
    const char *x, *y;
    size_t n, m;

    if (!same_but_limit(a, b))
        return 0;
    if (!*a->command && !*b->command && a->severity == HCP_NOTE)
        return 1;
    if (a->rows || b->rows || strcmp(a->text, b->text))
        return 0;
    x = find_limit(a, &n);
    y = find_limit(b, &m);
    return x && y && x - a->command == y - b->command &&
           !memcmp(a->command, b->command, (size_t)(x - a->command)) &&
           !strcmp(x + n, y + m);
}

/* A line for all limits of a key; returns how many findings it tells, 0: none. */
static size_t print_limits(const struct hcp_finding *f, const struct hcp_finding *end)
{
    const struct hcp_finding *last = f;
    const char *at;
    size_t rows = 0, len = 0;

    while (last < end && one_line(f, last))
        rows += last++->rows;
    if (last - f < 2)
        return 0;
    printf("%-7s %s: %s %s " SHOW_SHAPE ":", severities[f->severity], f->code,
           f->key.device, f->key.provider, SHOW_SHAPE_VALUES(&f->key));
    if (rows)
        printf(" %zu rows", rows);
    printf(" under");
    for (const struct hcp_finding *g = f; g < last; g++)
        printf(" %s", show_limit(g->key.limit));
    if (rows)
        printf("; %s", show_limit(last[-1].key.limit));
    printf(": ");
    print_rows(&last[-1]);
    printf("%s", last[-1].text);
    at = find_limit(f, &len);
    if (at) {
        printf("; run: %.*s", (int)(at - f->command), f->command);
        for (const struct hcp_finding *g = f; g < last; g++)
            printf("%s%s", g > f ? "," : "", *g->key.limit ? g->key.limit : "none");
        printf("%s", at + len);
    }
    printf("\n");
    return (size_t)(last - f);
}

static void print_findings(const struct hcp_audit *audit, const char *section)
{
    const struct hcp_finding *f = audit->findings;
    const struct hcp_finding *end = audit->n_findings ? f + audit->n_findings : f;
    size_t n = 0;

    for (; f < end; f++) {
        size_t told;
        if (strcmp(f->section, section))
            continue;
        n++;
        told = print_limits(f, end);
        if (told) {
            f += told - 1;
            continue;
        }
        printf("%-7s %s: ", severities[f->severity], f->code);
        print_subject(f);
        print_rows(f);
        printf("%s", f->text);
        if (*f->command)
            printf("; run: %s", f->command);
        printf("\n");
    }
    if (!n)
        printf("nothing found\n");
}

static void print_text(const char *path, const struct hcp_audit *audit)
{
    static const char *const sections[] = {"integrity", "staleness", "suspicious"};

    printf("%s\n\ncoverage\n", path);
    if (audit->n_covers)
        print_covers(audit);
    print_links(audit);
    print_besides(audit);
    print_linears(audit);
    print_findings(audit, "coverage");
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        printf("\n%s\n", sections[i]);
        print_findings(audit, sections[i]);
    }
    printf("\n");
    for (int s = HCP_ERROR; s >= HCP_NOTE; s--)
        printf("%zu %s%s%s", audit->n[s], severities[s], audit->n[s] == 1 ? "" : "s",
               s ? ", " : "\n");
}

/* ---- JSON ---- */

static json_t *key_json(const struct hcp_key *k)
{
    json_t *o = json_object();

    json_object_set_new(o, "device", show_json_text(k->device));
    json_object_set_new(o, "limit", *k->device ? json_string(k->limit) : json_null());
    json_object_set_new(o, "provider", show_json_text(k->provider));
    json_object_set_new(o, "dtype", show_json_text(k->dtype));
    json_object_set_new(o, "phase", show_json_text(k->phase));
    json_object_set_new(o, "batch", k->batch ? json_integer(k->batch) : json_null());
    json_object_set_new(o, "heads", k->heads ? json_integer(k->heads) : json_null());
    json_object_set_new(o, "kv_heads",
                        k->kv_heads ? json_integer(k->kv_heads) : json_null());
    json_object_set_new(o, "head_dim",
                        k->head_dim ? json_integer(k->head_dim) : json_null());
    return o;
}

static json_t *channels_json(int32_t channels)
{
    return channels ? json_integer(channels) : json_null();
}

static json_t *finding_json(const struct hcp_finding *f)
{
    json_t *o = json_object(), *cells = json_array();

    json_object_set_new(o, "section", json_string(f->section));
    json_object_set_new(o, "severity", json_string(severities[f->severity]));
    json_object_set_new(o, "code", json_string(f->code));
    json_object_update_new(o, key_json(&f->key));
    if (f->any_limit)
        json_object_set_new(o, "limit", json_null());
    json_object_set_new(o, "peer_device", show_json_text(f->peer_device));
    json_object_set_new(o, "peer_limit",
                        *f->transport ? json_string(f->peer_limit) : json_null());
    json_object_set_new(o, "one_way",
                        *f->transport ? json_boolean(f->one_way) : json_null());
    json_object_set_new(o, "transport", show_json_text(f->transport));
    json_object_set_new(o, "channels", channels_json(f->channels));
    json_object_set_new(o, "rows", json_integer((json_int_t)f->rows));
    for (size_t i = 0; i < f->n_lengths; i++) {
        const struct hcp_lengths *l = &f->lengths[i];
        if (f->kind == HCP_ROWS_LINKS || f->kind == HCP_ROWS_LINEAR)
            json_array_append_new(
                cells, json_pack("{s:I}", f->kind == HCP_ROWS_LINKS ? "bytes" : "tokens",
                                 (json_int_t)l->q_len));
        else
            json_array_append_new(
                cells, json_pack("{s:s, s:I, s:o}", "mask", l->mask, "q_len",
                                 (json_int_t)l->q_len, "kv_len",
                                 l->kv_len ? json_integer(l->kv_len) : json_null()));
    }
    json_object_set_new(o, "cells", cells);
    json_object_set_new(o, "text", json_string(f->text));
    json_object_set_new(o, "command", show_json_text(f->command));
    return o;
}

static json_t *cover_json(const struct hcp_cover *c)
{
    json_t *o = key_json(&c->key);

    json_object_update_new(
        o,
        json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:I, s:s, s:s}", "mask",
                  c->mask, "cells", (json_int_t)c->cells, "failed", (json_int_t)c->failed,
                  "q_len_min", show_json_int(c->q_min ? c->q_min : -1), "q_len_max",
                  show_json_int(c->q_max ? c->q_max : -1), "kv_len_min",
                  show_json_int(c->kv_min ? c->kv_min : -1), "kv_len_max",
                  show_json_int(c->kv_max ? c->kv_max : -1), "finish_store",
                  (json_int_t)c->stores, "finish_merge", (json_int_t)c->merges, "models",
                  !c->models ? "none"
                  : c->stale ? "stale"
                             : "fitted",
                  "origin", c->origin));
    return o;
}

static json_t *link_json(const struct hcp_cover_link *l)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:o, s:I, s:I, s:I}", "device",
                     l->device_a, "limit", l->limit_a, "peer_device", l->device_b,
                     "peer_limit", l->limit_b, "one_way", l->one_way, "transport",
                     l->transport, "channels", channels_json(l->channels), "rows",
                     (json_int_t)l->rows, "bytes_min", (json_int_t)l->bytes_min,
                     "bytes_max", (json_int_t)l->bytes_max);
}

static json_t *beside_json(const struct hcp_cover_beside *b)
{
    json_t *o = key_json(&b->key);

    json_object_update_new(
        o, json_pack("{s:s, s:s, s:s, s:o, s:I, s:o, s:o}", "peer_device", b->peer_device,
                     "peer_limit", b->peer_limit, "transport", b->transport, "channels",
                     channels_json(b->channels), "rows", (json_int_t)b->rows,
                     "factor_min", hcp_json_real(b->factor_min), "factor_max",
                     hcp_json_real(b->factor_max)));
    return o;
}

static json_t *linear_json(const struct hcp_cover_linear *l)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "device", l->device,
                     "limit", l->limit, "library", l->library, "dtype", l->dtype, "rows",
                     (json_int_t)l->rows, "layers", (json_int_t)l->layers, "tokens_min",
                     (json_int_t)l->tokens_min, "tokens_max", (json_int_t)l->tokens_max);
}

static void print_json(const char *path, const struct hcp_audit *audit)
{
    json_t *covers = json_array(), *links = json_array(), *besides = json_array(),
           *linears = json_array(), *findings = json_array();

    for (size_t i = 0; i < audit->n_covers; i++)
        json_array_append_new(covers, cover_json(&audit->covers[i]));
    for (size_t i = 0; i < audit->n_links; i++)
        json_array_append_new(links, link_json(&audit->links[i]));
    for (size_t i = 0; i < audit->n_besides; i++)
        json_array_append_new(besides, beside_json(&audit->besides[i]));
    for (size_t i = 0; i < audit->n_linears; i++)
        json_array_append_new(linears, linear_json(&audit->linears[i]));
    for (size_t i = 0; i < audit->n_findings; i++)
        json_array_append_new(findings, finding_json(&audit->findings[i]));
    hcp_json_print(
        json_pack("{s:i, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "db",
                  path, "errors", (json_int_t)audit->n[HCP_ERROR], "warnings",
                  (json_int_t)audit->n[HCP_WARNING], "notes",
                  (json_int_t)audit->n[HCP_NOTE], "coverage", covers, "links", links,
                  "interference", besides, "linear", linears, "findings", findings),
        stdout);
}

int cmd_check(int argc, char **argv)
{
    static const struct argp argp = {options,
                                     parse,
                                     "[FILE]",
                                     "Says what a profile database can answer, what is "
                                     "missing, damaged, out of date or "
                                     "suspicious in it, and the command that mends it. "
                                     "Ends with 1 if there is an error.",
                                     NULL,
                                     NULL,
                                     NULL};
    struct args a = {0};
    struct here here = {0};
    struct hcp_audit audit = {0};
    struct hcp_err err = {0};
    const char *name;
    hcp_db *db = NULL;
    int rc;

    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return HCP_USAGE;
    name = a.literal ? a.db : hcp_cli_db(a.db, &err);
    rc = name ? hcp_db_open(name, HCP_DB_READ, &db, &err) : err.code;
    if (!rc && !a.no_device)
        look_here(&here);
    if (!rc)
        rc = hcp_audit_file(db, here.list, here.n, &audit, &err);
    if (rc)
        hcp_cli_report(&err);
    else if (a.json)
        print_json(hcp_db_path(db), &audit);
    else
        print_text(hcp_db_path(db), &audit);
    if (!rc && (audit.n[HCP_ERROR] || (a.strict && audit.n[HCP_WARNING])))
        rc = HCP_FAILED;
    hcp_audit_free(&audit);
    free(here.list);
    hcp_db_close(db);
    return hcp_cli_finish(rc);
}
