/* SPDX-License-Identifier: Apache-2.0
 *
 * Every rank sends its identity as text of one fixed size, a line a field: two versions
 * of the program can compare what they have even if their structs differ.
 */
#include "config.h"
#include "executor/comm.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD_SIZE = 1024, /* of every version, or ranks of two of them cannot talk */
    MAX_VALUES = 3,     /* named for a field; the others are counted */
    MAX_RUNS = 6        /* of ranks named for a value */
};

/* Fields in the order in which they are reported, and what mends a difference. */
static const struct {
    const char *name, *mend;
} fields[] = {
    {"version", "install the same version on all hosts"},
    {"libhcpplan", "install the same version on all hosts"},
    {"plan fingerprint", "load the same models or give all ranks the same plan file"},
    {"tokens", "load the same models or give all ranks the same plan file"},
    {"ranks", "load the same models or give all ranks the same plan file"},
    {"shape", "load the same models or give all ranks the same plan file"},
    {"options", "give all ranks the same options"},
    {"kernel", "give all ranks the same kernel"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static void write_record(const struct ring_identity *id, char record[RECORD_SIZE])
{
    memset(record, 0, RECORD_SIZE);
    snprintf(record, RECORD_SIZE,
             "version=%.15s\nlibhcpplan=%" PRId64 "\nplan fingerprint=%016" PRIx64
             "\ntokens=%" PRId64 "\nranks=%" PRId64
             "\nshape=%.95s\noptions=%.127s\nkernel=%.79s\n",
             id->tool_version, id->plan_version, id->fingerprint, id->seq_len,
             id->n_ranks, id->shape, id->options, id->provider);
}

/* Value of a field in a record; "nothing" if the rank's version has no such field. */
static void value_of(const char *record, const char *name, char value[128])
{
    size_t n = strlen(name);
    for (const char *line = record; *line; line += strcspn(line, "\n") + 1) {
        if (strncmp(line, name, n) == 0 && line[n] == '=') {
            snprintf(value, 128, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
            if (!*value)
                strcpy(value, "none");
            return;
        }
    }
    strcpy(value, "nothing");
}

struct text {
    char *to;
    size_t size, n;
    int full; /* something did not fit */
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->to + t->n, t->size - t->n, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= t->size - t->n)
        t->full = 1;
    else
        t->n += (size_t)n;
}

/* "rank 1", "ranks 0, 2-3", "ranks 0, 2, 4 and 997 more": those of the group. */
static void put_ranks(struct text *t, const int *group_of, int n, int group)
{
    int total = 0, named = 0, runs = 0;
    for (int r = 0; r < n; r++)
        total += group_of[r] == group;
    put(t, total == 1 ? "rank" : "ranks");
    for (int r = 0; r < n && runs < MAX_RUNS; r++) {
        if (group_of[r] != group)
            continue;
        int last = r;
        while (last + 1 < n && group_of[last + 1] == group)
            last++;
        put(t, runs++ ? ", %d" : " %d", r);
        if (last > r)
            put(t, "-%d", last);
        named += last - r + 1;
        r = last;
    }
    if (named < total)
        put(t, " and %d more", total - named);
}

/* Compares one field; if it differs, adds "NAME VALUE on RANKS, but VALUE on RANKS". */
static int compare_field(const char *records, int n, const char *name, int *group_of,
                         struct text *t)
{
    char values[MAX_VALUES][128], value[128];
    int n_values = 0, others = 0;
    for (int r = 0; r < n; r++) {
        value_of(records + (size_t)r * RECORD_SIZE, name, value);
        int g = 0;
        while (g < n_values && strcmp(values[g], value) != 0)
            g++;
        if (g == n_values && n_values < MAX_VALUES)
            memcpy(values[n_values++], value, sizeof value);
        others += g == MAX_VALUES;
        group_of[r] = g;
    }
    if (n_values == 1)
        return 0;
    put(t, "%s ", name);
    for (int g = 0; g < n_values; g++) {
        put(t, "%s%s on ", g ? ", but " : "", values[g]);
        put_ranks(t, group_of, n, g);
    }
    if (others) {
        put(t, ", and others on ");
        put_ranks(t, group_of, n, MAX_VALUES);
    }
    return 1;
}

/* HCP_OK, or HCP_FAILED and the text that all ranks get. */
static int compare(const char *records, int n, char *out, size_t size)
{
    int *group_of = malloc((size_t)n * sizeof *group_of);
    if (!group_of) {
        snprintf(out, size, "out of memory");
        return HCP_FAILED;
    }
    const char *mend = NULL;
    /* Room for the end: names of the fields that did not fit, and what mends it. */
    struct text t = {.to = out, .size = size - 200};
    put(&t, "the ranks do not agree: ");
    for (int f = 0, cut = 0; f < N_FIELDS; f++) {
        struct text before = t;
        if (mend && !cut)
            put(&t, "; ");
        if (!compare_field(records, n, fields[f].name, group_of, &t)) {
            t = before;
            continue;
        }
        if (cut || t.full) { /* its name only */
            t = before;
            t.size = size - 90;
            put(&t, cut ? ", %s" : "; different too: %s", fields[f].name);
            cut = 1;
        }
        if (!mend)
            mend = fields[f].mend;
    }
    free(group_of);
    if (!mend)
        return HCP_OK;
    t.size = size;
    put(&t, "; %s", mend);
    return HCP_FAILED;
}

int ring_agree(const struct ring_comm *c, const struct ring_identity *mine,
               struct hcp_err *err)
{
    char record[RECORD_SIZE], *all = NULL;
    struct {
        int rc;
        char text[1024];
    } verdict = {.rc = HCP_OK};
    write_record(mine, record);
    struct hcp_err why = {0};
    int rc = HCP_OK;
    if (c->rank == 0 && !(all = malloc((size_t)c->size * RECORD_SIZE)))
        rc = hcp_fail(&why, HCP_FAILED, "out of memory");
    rc = ring_all_ok(c, rc, &why); /* nobody waits for a rank that cannot go on */
    if (rc != HCP_OK) {
        free(all);
        return hcp_fail(err, rc, "%s", why.text);
    }
    int mpi = MPI_Gather(record, RECORD_SIZE, MPI_CHAR, all, RECORD_SIZE, MPI_CHAR, 0,
                         c->world);
    if (mpi == MPI_SUCCESS && c->rank == 0)
        verdict.rc = compare(all, c->size, verdict.text, sizeof verdict.text);
    free(all);
    if (mpi == MPI_SUCCESS)
        mpi = MPI_Bcast(&verdict, (int)sizeof verdict, MPI_BYTE, 0, c->world);
    if (mpi != MPI_SUCCESS)
        return hcp_fail(err, HCP_FAILED, "MPI failed while comparing the ranks' plans");
    return verdict.rc == HCP_OK ? HCP_OK : hcp_fail(err, verdict.rc, "%s", verdict.text);
}
