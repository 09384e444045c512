/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "db/cli.h"
#include "db/compare.h"
#include "db/text.h"
#include "profiler/commands.h"
#include "profiler/show-table.h"

enum { OPT_ALL = 0x2000, OPT_TOLERANCE, WORST = 10 };
/* As diff(1) has it; a file that cannot be read is trouble, like a wrong option. */
enum { EXIT_SAME = 0, EXIT_DIFFER = 1, EXIT_TROUBLE = 2, EXIT_NOTHING = 3 };

struct args {
    const char *file[2];
    int n_files, json, all;
    double tolerance; /* 0.01 = 1 % */
};

static const struct argp_option options[] = {
    {"all", OPT_ALL, NULL, 0, "List every row that changed, not only the worst ten", 0},
    {"tolerance", OPT_TOLERANCE, "PCT", 0, "Medians that differ by less are the same (1)",
     0},
    {"json", 'j', NULL, 0, "Report as JSON", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    struct hcp_err err;

    switch (key) {
    case 'j':
        a->json = 1;
        return 0;
    case OPT_ALL:
        a->all = 1;
        return 0;
    case OPT_TOLERANCE:
        if (hcp_parse_double(arg, &a->tolerance, &err) || a->tolerance < 0 ||
            a->tolerance > 1000)
            argp_error(state, "--tolerance '%s' is not a percentage, like 1 or 0.5", arg);
        a->tolerance /= 100;
        return 0;
    case ARGP_KEY_ARG:
        if (a->n_files == 2)
            argp_error(state, "two profiles are compared; '%s' is one too many", arg);
        a->file[a->n_files++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->n_files < 2)
            argp_error(state, "give two profiles: databases, CSV or JSON lines files, or "
                              "names of recorded machines");
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

/* ---- the two files ---- */

struct profile {
    hcp_db *db;
    char temporary[4096]; /* a database made from text; "" if there is none */
};

static void close_profile(struct profile *p)
{
    hcp_db_close(p->db);
    if (*p->temporary)
        unlink(p->temporary);
    *p->temporary = '\0';
    p->db = NULL;
}

static int is_database(const char *name)
{
    char head[16] = "";
    FILE *f = fopen(name, "re");
    int is = f && fread(head, 1, sizeof head, f) == sizeof head &&
             !memcmp(head, "SQLite format 3", sizeof head);

    if (f)
        fclose(f);
    return is;
}

static int make_temporary(struct profile *p, struct hcp_err *err)
{
    const char *dir = getenv("TMPDIR");
    int fd;

    snprintf(p->temporary, sizeof p->temporary, "%s/hcp-diff-XXXXXX",
             dir && *dir ? dir : "/tmp");
    fd = mkstemp(p->temporary);
    if (fd >= 0) {
        close(fd);
        return HCP_OK;
    }
    *p->temporary = '\0';
    return hcp_fail(
        err, HCP_FAILED,
        "cannot make a temporary file in '%s'; set TMPDIR to a directory that "
        "can be written",
        dir && *dir ? dir : "/tmp");
}

/* Text is loaded into a database of its own, so that both are compared in one way. */
static int open_text(const char *name, struct profile *p, struct hcp_err *err)
{
    struct hcp_text text = {0};
    struct hcp_text_tally tally = {0};
    char path[4096];
    FILE *in = NULL;
    int rc = hcp_text_open(name, &in, path, sizeof path, err);

    if (rc)
        return rc;
    rc = hcp_text_load(in, path, HCP_TEXT_AUTO, 0, &text, err);
    if (in != stdin)
        fclose(in);
    if (!rc)
        rc = make_temporary(p, err);
    if (!rc)
        rc = hcp_db_open(p->temporary, HCP_DB_WRITE | HCP_DB_CREATE, &p->db, err);
    if (!rc)
        rc = hcp_text_store(p->db, &text, &tally, err);
    hcp_text_free(&text);
    return rc;
}

static int open_profile(const char *name, struct profile *p, struct hcp_err *err)
{
    return is_database(name) ? hcp_db_open(name, HCP_DB_READ, &p->db, err)
                             : open_text(name, p, err);
}

/* ---- text ---- */

static void end_text(const char *device, const char *limit, char *out, size_t size)
{
    snprintf(out, size, "%s%s%s", device, *limit ? "@" : "", limit);
}

/* "nccl", "nccl/4" */
static void transport_text(const struct hcp_change_key *k, char *out, size_t size)
{
    if (k->channels)
        snprintf(out, size, "%s/%d", k->transport, (int)k->channels);
    else
        snprintf(out, size, "%s", k->transport);
}

/* What a group is, in four cells of a table. */
static void key_cells(hcp_table *t, const struct hcp_change_key *k)
{
    char a[100], b[100], by[24];

    end_text(k->key.device, k->key.limit, a, sizeof a);
    end_text(k->peer_device, k->peer_limit, b, sizeof b);
    transport_text(k, by, sizeof by);
    if (*k->peer_device)
        hcp_table_cell(t, "%s,%s", a, b);
    else
        hcp_table_cell(t, "%s", a);
    hcp_table_cell(t, "%s", hcp_what_is_link(k->what) ? by : k->key.provider);
    switch (k->what) {
    case HCP_WHAT_LINK:
    case HCP_WHAT_ONE_WAY:
        hcp_table_cell(t, "%s", "");
        hcp_table_cell(t, "%s", k->what == HCP_WHAT_LINK ? "link" : "one way");
        break;
    case HCP_WHAT_LINEAR:
        hcp_table_cell(t, "%s %lldx%lld", k->key.dtype, (long long)k->n_in,
                       (long long)k->n_out);
        hcp_table_cell(t, "%s", "linear");
        break;
    case HCP_WHAT_BESIDE:
        hcp_table_cell(t, SHOW_SHAPE, SHOW_SHAPE_VALUES(&k->key));
        hcp_table_cell(t, "%s beside %s", k->mask, by);
        break;
    case HCP_WHAT_DISTURBED:
        hcp_table_cell(t, SHOW_SHAPE, SHOW_SHAPE_VALUES(&k->key));
        hcp_table_cell(t, "%s beside %s", by, k->mask);
        break;
    case HCP_WHAT_CELL:
    case HCP_WHAT_FINISH:
        hcp_table_cell(t, SHOW_SHAPE, SHOW_SHAPE_VALUES(&k->key));
        hcp_table_cell(t, "%s", k->mask);
        break;
    }
}

static void print_groups(const struct hcp_diff *diff)
{
    static const struct show_column columns[] = {
        {"rank", 0},   {"kernel", 0},  {"shape", 0},  {"mask", 0},     {"both", 1},
        {"only_a", 1}, {"only_b", 1},  {"beyond", 1}, {"b_over_a", 1}, {"p10", 1},
        {"p90", 1},    {"largest", 1}, {NULL, 0}};
    hcp_table *t = show_table(columns);

    for (size_t i = 0; i < diff->n_groups; i++) {
        const struct hcp_change_group *g = &diff->groups[i];
        hcp_table_row(t);
        key_cells(t, &g->key);
        hcp_table_cell(t, "%zu", g->both);
        hcp_table_cell(t, "%zu", g->only_a);
        hcp_table_cell(t, "%zu", g->only_b);
        hcp_table_cell(t, "%zu", g->beyond);
        show_real(t, 4, g->median);
        show_real(t, 4, g->p10);
        show_real(t, 4, g->p90);
        show_real(t, 4, g->largest);
    }
    hcp_table_print(t, stdout);
}

static void length_cell(hcp_table *t, int64_t n)
{
    if (n)
        hcp_table_cell(t, "%lld", (long long)n);
    else
        hcp_table_cell(t, "%s", "");
}

static void print_changes(const struct hcp_diff *diff, size_t n)
{
    static const struct show_column columns[] = {
        {"rank", 0},  {"kernel", 0},   {"shape", 0}, {"mask", 0},
        {"q_len", 1}, {"kv_len", 1},   {"bytes", 1}, {"a_ms", 1},
        {"b_ms", 1},  {"b_over_a", 1}, {NULL, 0}};
    hcp_table *t = show_table(columns);

    for (size_t i = 0; i < n; i++) {
        const struct hcp_change *c = &diff->changes[i];
        hcp_table_row(t);
        key_cells(t, &c->key);
        const int link = hcp_what_is_link(c->key.what);
        length_cell(t, link ? 0 : c->q_len);
        length_cell(t, c->kv_len);
        length_cell(t, link ? c->q_len : c->bytes);
        show_real(t, 5, c->a_ms);
        show_real(t, 5, c->b_ms);
        show_real(t, 4, c->ratio);
    }
    hcp_table_print(t, stdout);
}

static int differ(double a, double b, double by)
{
    return !isnan(a) && !isnan(b) && fabs(b / a - 1) > by;
}

static int print_facts(const struct hcp_diff *diff)
{
    int n = 0;

    for (size_t i = 0; i < diff->n_facts; i++, n++)
        printf("%s %s: A %s, B %s\n", diff->facts[i].device, diff->facts[i].name,
               *diff->facts[i].a ? diff->facts[i].a : "not known",
               *diff->facts[i].b ? diff->facts[i].b : "not known");
    /* Means over the same cells: 1 % of a clock is 1 % of time; power is less sure. */
    for (size_t i = 0; i < diff->n_groups; i++) {
        const struct hcp_change_group *g = &diff->groups[i];
        const struct hcp_key *k = &g->key.key;
        if (differ(g->a_mhz, g->b_mhz, 0.01) && ++n)
            printf("%s%s%s %s %s sm_clock_mhz: A %.0f, B %.0f\n", k->device,
                   *k->limit ? "@" : "", k->limit, k->provider, g->key.mask, g->a_mhz,
                   g->b_mhz);
        if (differ(g->a_w, g->b_w, 0.05) && ++n)
            printf("%s%s%s %s %s power_w: A %.0f, B %.0f\n", k->device,
                   *k->limit ? "@" : "", k->limit, k->provider, g->key.mask, g->a_w,
                   g->b_w);
    }
    return n;
}

static void print_text(const struct args *a, const struct hcp_diff *diff)
{
    size_t n = diff->n_changes;

    printf("A %s\nB %s\n", a->file[0], a->file[1]);
    if (!print_facts(diff))
        printf(
            "device, driver, CUDA, kernel and tool version, clocks, power: the same\n");
    printf("\n");
    print_groups(diff);
    if (!a->all && n > WORST)
        n = WORST;
    if (n) {
        printf("\nbeyond noise and %g %%%s\n", 100 * a->tolerance,
               n < diff->n_changes ? ", the worst of them (--all: every one)" : "");
        print_changes(diff, n);
    }
    printf(
        "\n%zu rows in both, %zu of them changed beyond noise; %zu only in A, %zu only "
        "in B\n",
        diff->both, diff->n_changes, diff->only_a, diff->only_b);
}

/* ---- JSON ---- */

static json_t *key_json(const struct hcp_change_key *k)
{
    static const char *const whats[] = {"cell",     "finish", "link", "interference",
                                        "transfer", "linear", "link"};
    json_t *o = json_pack("{s:s, s:s, s:s}", "what", whats[k->what], "device",
                          k->key.device, "limit", k->key.limit);

    if (k->what == HCP_WHAT_LINEAR)
        json_object_update_new(o, json_pack("{s:s, s:s, s:I, s:I}", "library",
                                            k->key.provider, "dtype", k->key.dtype,
                                            "n_in", (json_int_t)k->n_in, "n_out",
                                            (json_int_t)k->n_out));
    else if (!hcp_what_is_link(k->what))
        json_object_update_new(
            o,
            json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:s}", "provider",
                      k->key.provider, "dtype", k->key.dtype, "phase", k->key.phase,
                      "batch", (int)k->key.batch, "heads", (int)k->key.heads, "kv_heads",
                      (int)k->key.kv_heads, "head_dim", (int)k->key.head_dim,
                      k->what == HCP_WHAT_FINISH ? "kind" : "mask", k->mask));
    if (*k->peer_device)
        json_object_update_new(o, json_pack("{s:s, s:s}", "peer_device", k->peer_device,
                                            "peer_limit", k->peer_limit));
    if (hcp_what_is_link(k->what))
        json_object_set_new(o, "one_way", json_boolean(k->what == HCP_WHAT_ONE_WAY));
    if (*k->peer_device)
        json_object_update_new(
            o, json_pack("{s:s, s:o}", "transport", k->transport, "channels",
                         k->channels ? json_integer(k->channels) : json_null()));
    return o;
}

static json_t *group_json(const struct hcp_change_group *g)
{
    json_t *o = key_json(&g->key);

    json_object_update_new(
        o, json_pack("{s:I, s:I, s:I, s:I}", "both", (json_int_t)g->both, "only_a",
                     (json_int_t)g->only_a, "only_b", (json_int_t)g->only_b,
                     "beyond_noise", (json_int_t)g->beyond));
    json_object_set_new(o, "ratio_median", hcp_json_real(g->median));
    json_object_set_new(o, "ratio_p10", hcp_json_real(g->p10));
    json_object_set_new(o, "ratio_p90", hcp_json_real(g->p90));
    json_object_set_new(o, "ratio_largest", hcp_json_real(g->largest));
    if (g->key.what == HCP_WHAT_CELL) {
        json_object_set_new(o, "a_sm_clock_mhz", hcp_json_real(g->a_mhz));
        json_object_set_new(o, "b_sm_clock_mhz", hcp_json_real(g->b_mhz));
        json_object_set_new(o, "a_power_w", hcp_json_real(g->a_w));
        json_object_set_new(o, "b_power_w", hcp_json_real(g->b_w));
    }
    return o;
}

static json_t *change_json(const struct hcp_change *c)
{
    json_t *o = key_json(&c->key);

    json_object_set_new(o,
                        hcp_what_is_link(c->key.what)    ? "bytes"
                        : c->key.what == HCP_WHAT_LINEAR ? "tokens"
                                                         : "q_len",
                        json_integer(c->q_len));
    if (c->kv_len)
        json_object_set_new(o, "kv_len", json_integer(c->kv_len));
    if (c->bytes)
        json_object_set_new(o, "bytes", json_integer(c->bytes));
    json_object_set_new(o, "a_ms", hcp_json_real(c->a_ms));
    json_object_set_new(o, "a_lo_ms", hcp_json_real(c->a_lo_ms));
    json_object_set_new(o, "a_hi_ms", hcp_json_real(c->a_hi_ms));
    json_object_set_new(o, "b_ms", hcp_json_real(c->b_ms));
    json_object_set_new(o, "b_lo_ms", hcp_json_real(c->b_lo_ms));
    json_object_set_new(o, "b_hi_ms", hcp_json_real(c->b_hi_ms));
    json_object_set_new(o, "ratio", hcp_json_real(c->ratio));
    return o;
}

static void print_json(const struct args *a, const struct hcp_diff *diff)
{
    json_t *facts = json_array(), *groups = json_array(), *changes = json_array();

    for (size_t i = 0; i < diff->n_facts; i++)
        json_array_append_new(facts, json_pack("{s:s, s:s, s:o, s:o}", "device",
                                               diff->facts[i].device, "fact",
                                               diff->facts[i].name, "a",
                                               show_json_text(diff->facts[i].a), "b",
                                               show_json_text(diff->facts[i].b)));
    for (size_t i = 0; i < diff->n_groups; i++)
        json_array_append_new(groups, group_json(&diff->groups[i]));
    for (size_t i = 0; i < diff->n_changes && (a->all || i < WORST); i++)
        json_array_append_new(changes, change_json(&diff->changes[i]));
    hcp_json_print(json_pack("{s:i, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o}",
                             "schema", 1, "a", a->file[0], "b", a->file[1], "tolerance",
                             hcp_json_real(a->tolerance), "both", (json_int_t)diff->both,
                             "only_a", (json_int_t)diff->only_a, "only_b",
                             (json_int_t)diff->only_b, "beyond_noise",
                             (json_int_t)diff->n_changes, "facts", facts, "groups",
                             groups, "changes", changes),
                   stdout);
}

int cmd_diff(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "A B",
        "Says what changed between two profiles of the same devices: B's times over A's, "
        "by "
        "key, and which of them are beyond noise. A and B are databases, CSV or JSON "
        "lines "
        "files, or names of recorded machines. Ends with 0 if nothing changed beyond "
        "noise, "
        "1 if something did, 2 in trouble, 3 if they have no row in common.",
        NULL,
        NULL,
        NULL};
    struct args a = {.tolerance = 0.01};
    struct profile p[2] = {0};
    struct hcp_diff diff = {0};
    struct hcp_err err = {0};
    int rc = HCP_OK, code;

    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return EXIT_TROUBLE;
    for (int i = 0; !rc && i < 2; i++)
        rc = open_profile(a.file[i], &p[i], &err);
    if (!rc)
        rc = hcp_diff_files(p[0].db, p[1].db, a.tolerance, &diff, &err);
    if (rc)
        hcp_cli_report(&err);
    else if (a.json)
        print_json(&a, &diff);
    else
        print_text(&a, &diff);
    code = rc ? (rc == HCP_NO_ANSWER ? EXIT_NOTHING : EXIT_TROUBLE)
              : (diff.n_changes ? EXIT_DIFFER : EXIT_SAME);
    hcp_diff_free(&diff);
    close_profile(&p[0]);
    close_profile(&p[1]);
    return hcp_cli_finish(0) ? EXIT_TROUBLE : code;
}
