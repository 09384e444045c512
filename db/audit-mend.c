/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/audit-internal.h"

enum { LIST_LENGTHS = 16 }; /* a longer list helps nobody */

struct text {
    char s[4096];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format,
                                                      ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(t->s + t->n, sizeof t->s - t->n, format, args);
    va_end(args);
    t->n += n > 0 ? (size_t)n : 0;
    if (t->n >= sizeof t->s)
        t->n = sizeof t->s - 1;
}

static void number(struct text *t, const char *option, int32_t value, int32_t usual)
{
    if (value != usual)
        put(t, " %s %d", option, (int)value);
}

/* Options of `hcp-profile run` for a key; what is usual is left out. */
static void put_key(struct text *t, const struct hcp_finding *f)
{
    const struct hcp_key *k = &f->key;

    if (!strcmp(k->provider, "synthetic"))
        put(t, " --device synthetic:name=%s", k->device);
    else if (!strncmp(k->provider, "cpu", 3))
        put(t, " --device cpu");
    if (!f->any_limit)
        put(t, " --limits %s", *k->limit ? k->limit : "none");
    if (strcmp(k->provider, "synthetic"))
        put(t, " --provider %s", k->provider);
    if (strcmp(k->dtype, "bf16"))
        put(t, " --dtype %s", k->dtype);
    if (strcmp(k->phase, "prefill"))
        put(t, " --phase %s", k->phase);
    number(t, "--batch", k->batch, 1);
    number(t, "--heads", k->heads, 32);
    number(t, "--kv-heads", k->kv_heads, 8);
    number(t, "--head-dim", k->head_dim, 128);
}

static int by_length(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Distinct lengths of one mask, ascending; which 0: q_len, 1: kv_len. */
static size_t distinct(const struct hcp_finding *f, const char *mask, int which,
                       int64_t out[HCP_FINDING_LENGTHS])
{
    size_t n = 0, m = 0;

    for (size_t i = 0; i < f->n_lengths; i++)
        if (!strcmp(f->lengths[i].mask, mask))
            out[n++] = which ? f->lengths[i].kv_len : f->lengths[i].q_len;
    if (n)
        qsort(out, n, sizeof *out, by_length);
    for (size_t i = 0; i < n; i++)
        if (!i || out[i] != out[m - 1])
            out[m++] = out[i];
    return m;
}

static void put_list(struct text *t, const char *option, const int64_t *v, size_t n)
{
    put(t, " %s ", option);
    for (size_t i = 0; i < n; i++)
        put(t, "%s%lld", i ? "," : "", (long long)v[i]);
    if (!n)
        put(t, "none");
}

/* The lengths of a finding as lists of a sweep; all of the key where they are many. */
static void put_lengths(struct text *t, const struct hcp_finding *f)
{
    int64_t q[HCP_FINDING_LENGTHS], kv[HCP_FINDING_LENGTHS], c[HCP_FINDING_LENGTHS];
    size_t n_q = distinct(f, "full", 0, q), n_kv = distinct(f, "full", 1, kv);
    size_t n_c = distinct(f, "causal", 0, c);

    if (!n_q && !n_c && f->n_lengths) /* finish passes, up to the longest */
        put(t, " --max-len %lld", (long long)f->lengths[0].q_len);
    if ((!n_q && !n_c) || f->rows > f->n_lengths || n_q > LIST_LENGTHS ||
        n_kv > LIST_LENGTHS || n_c > LIST_LENGTHS)
        return;
    put_list(t, "--q-lens", q, n_q);
    if (n_q)
        put_list(t, "--kv-lens", kv, n_kv);
    put_list(t, "--causal-lens", c, n_c);
}

static void put_run(struct text *t, const char *db, const struct hcp_finding *f)
{
    put(t, "hcp-profile run --db %s", db);
    put_key(t, f);
}

/* Rows that are to be measured again must go: fits take the median of what there is, and
 * `run` keeps what is stored. Keys are off in the shell, samples would stay. */
static void put_delete(struct text *t, const char *db, const struct hcp_finding *f,
                       const int64_t *ids)
{
    static const char *const tables[] = {"cell", "finish", "link", "interference",
                                         "linear"};

    put(t, "sqlite3 %s 'PRAGMA foreign_keys=ON; DELETE FROM %s WHERE id IN (", db,
        tables[f->kind]);
    for (size_t i = 0; i < f->n_lengths; i++)
        put(t, "%s%lld", i ? "," : "", (long long)ids[i]);
    put(t, ")' && ");
}

static void put_redo(struct text *t, const char *db, const struct hcp_finding *f,
                     const int64_t *ids)
{
    if (f->rows > f->n_lengths || f->n_lengths == 0) {
        put_run(t, "NEW.db", f);
        return;
    }
    put_delete(t, db, f, ids);
    put_run(t, db, f);
    put_lengths(t, f);
}

/* Options of `hcp-profile link` for a pair. */
static void put_pair(struct text *t, const char *db, const struct hcp_finding *f)
{
    put(t, " --db %s --limits %s/%s --transport %s", db,
        *f->key.limit ? f->key.limit : "none", *f->peer_limit ? f->peer_limit : "none",
        f->transport);
    if (f->channels)
        put(t, " --channels %d", (int)f->channels);
}

/* What of a block is not usual, for `hcp-profile link --beside`. */
static void put_block(struct text *t, const struct hcp_finding *f)
{
    const struct hcp_key *k = &f->key;
    int64_t q[HCP_FINDING_LENGTHS];

    put(t, " --provider %s", k->provider);
    if (strcmp(k->dtype, "bf16"))
        put(t, " --dtype %s", k->dtype);
    number(t, "--heads", k->heads, 32);
    number(t, "--kv-heads", k->kv_heads, 8);
    number(t, "--head-dim", k->head_dim, 128);
    for (int causal = 0; causal < 2; causal++) {
        const char *mask = causal ? "causal" : "full";
        size_t n = distinct(f, mask, 0, q);
        if (n && n <= LIST_LENGTHS && f->rows <= f->n_lengths) {
            put(t, " --mask %s", mask);
            put_list(t, "--lens", q, n);
            return; /* the rest is found by the next check */
        }
    }
}

/* A command that was given, with the file's name in it. */
static void put_given(struct text *t, const char *db, const char *given)
{
    const char *at = strstr(given, "FILE");

    if (at)
        put(t, "%.*s%s%s", (int)(at - given), given, db, at + 4);
    else
        put(t, "%s", given);
}

char *hcp_audit_mend(hcp_db *db, enum hcp_mend mend, const struct hcp_finding *f,
                     const char *more, const int64_t *ids)
{
    struct text t = {"", 0};

    switch (mend) {
    case HCP_MEND_NONE:
        break;
    case HCP_MEND_GIVEN:
        put_given(&t, db->path, more ? more : "");
        break;
    case HCP_MEND_REDO:
        if (f->severity != HCP_NOTE) /* a fact of the row */
            put_redo(&t, db->path, f, ids);
        break;
    case HCP_MEND_RETRY:
        put_run(&t, db->path, f);
        put_lengths(&t, f);
        put(&t, " --retry-failed");
        break;
    case HCP_MEND_RESUME:
        put_run(&t, db->path, f);
        put(&t, "%s", more ? more : "");
        break;
    case HCP_MEND_ANEW:
        put_run(&t, "NEW.db", f);
        break;
    case HCP_MEND_FIT:
        put(&t, "hcp-plan fit --db %s", db->path);
        break;
    case HCP_MEND_LINK:
        put_delete(&t, db->path, f, ids);
        put(&t, "hcp-profile link%s", f->one_way ? " --one-way" : "");
        put_pair(&t, db->path, f);
        break;
    case HCP_MEND_BESIDE:
        put_delete(&t, db->path, f, ids);
        put(&t, "hcp-profile link --beside");
        put_pair(&t, db->path, f);
        put_block(&t, f);
        break;
    case HCP_MEND_LINEAR:
        put_delete(&t, db->path, f, ids);
        put(&t, "hcp-profile run --linear --model NAME --db %s%s --limits %s", db->path,
            strcmp(f->key.provider, "cublas") ? " --device cpu" : "",
            *f->key.limit ? f->key.limit : "none");
        if (strcmp(f->key.dtype, "bf16"))
            put(&t, " --dtype %s", f->key.dtype);
        break;
    }
    return strdup(t.s);
}
