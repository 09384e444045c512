/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/interference.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/db-internal.h"

#define MOST 1000.0  /* times slower */
#define RATIO 1.0116 /* from one step of the scan to the next */

enum { REFINE = 60 };

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static int counts(const struct hcp_interference_row *row)
{
    return row->alone_ms > 0 && row->beside_ms > 0 && row->transfer_alone_ms > 0 &&
           row->transfer_beside_ms > 0;
}

/* Whether a's peer is b's device under b's limit. */
static int is_end(const struct hcp_interference_row *a,
                  const struct hcp_interference_row *b)
{
    return !strcmp(a->device_b, b->key.device) && !strcmp(a->limit_b, b->key.limit);
}

/* What the other end computed for, beside the same transfer; 0 unknown. */
static double peer_of(const struct hcp_interference_row *row,
                      const struct hcp_interference_row *peers, size_t n)
{
    double sum = 0;
    int found = 0;

    for (size_t i = 0; i < n; i++) {
        const struct hcp_interference_row *p = &peers[i];

        if (!counts(p) || !is_end(p, row) || !is_end(row, p) ||
            strcmp(p->transport, row->transport) || strcmp(p->mask, row->mask) ||
            p->q_len != row->q_len || p->kv_len != row->kv_len || p->bytes != row->bytes)
            continue;
        sum += p->beside_ms;
        found++;
    }
    return found ? sum / found : 0;
}

/* ms at 1 / slowdown of its speed for the first other_ms. */
static double slowed(double slowdown, double ms, double other_ms)
{
    double all = ms * slowdown;

    return all > other_ms ? ms + other_ms * (1 - 1 / slowdown) : all;
}

/* Blocks, or transfers: alone, beside the other, and how long the other went on. */
struct pairs {
    double alone_ms, beside_ms, other_ms;
};

static double loss(const struct pairs *p, size_t n, double slowdown)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        double e = slowed(slowdown, p[i].alone_ms, p[i].other_ms) / p[i].beside_ms - 1;
        sum += e * e;
    }
    return sum;
}

/* From 1 to MOST: the best of a scan in equal ratios, and of the golden section about it.
 * It becomes part of what the planner is asked, so that no function of libm is in it:
 * machines differ in the last bit of those. */
static double least(const struct pairs *p, size_t n)
{
    const double golden = 0.6180339887498949;
    double best = 1, lo, hi, a, b;

    for (double at = 1; at < MOST; at *= RATIO)
        if (loss(p, n, at) < loss(p, n, best))
            best = at;
    lo = best / RATIO > 1 ? best / RATIO : 1;
    hi = best * RATIO < MOST ? best * RATIO : MOST;
    for (int i = 0; i < REFINE; i++) {
        a = hi - golden * (hi - lo);
        b = lo + golden * (hi - lo);
        if (loss(p, n, a) <= loss(p, n, b))
            hi = b;
        else
            lo = a;
    }
    a = (lo + hi) / 2;
    return loss(p, n, a) < loss(p, n, best) ? a : best;
}

void hcp_interference_times(const struct hcp_interference *f, double block_ms,
                            double peer_ms, double transfer_ms, double *block_beside_ms,
                            double *transfer_beside_ms)
{
    double c = block_ms * f->slowdown, t;

    /* Either the transfer is over before a block of full slowdown, or that block and its
     * peer before the transfer. */
    t = slowed(f->transfer_slowdown, transfer_ms, fmax(c, peer_ms));
    *block_beside_ms = slowed(f->slowdown, block_ms, t);
    *transfer_beside_ms = t;
}

static double wait_of(double ms)
{
    return ms > 0 ? ms : 0; /* NaN: not known */
}

static double error_of(const struct hcp_interference *f,
                       const struct hcp_interference_row *r, double peer_ms)
{
    double c, t, step = fmax(r->beside_ms, r->transfer_beside_ms) + wait_of(r->wait_ms);

    hcp_interference_times(f, r->alone_ms, peer_ms, r->transfer_alone_ms, &c, &t);
    return fabs(fmax(c, t) + wait_of(f->overhead_ms) - step) / step;
}

int hcp_interference_fit(const struct hcp_interference_row *rows, size_t n,
                         const struct hcp_interference_row *peers, size_t n_peers,
                         struct hcp_interference *out, struct hcp_err *err)
{
    struct hcp_interference f = {.overhead_ms = NAN};
    struct pairs *blocks = calloc(n + 1, sizeof *blocks);
    struct pairs *transfers = calloc(n + 1, sizeof *transfers);
    double *waits = calloc(n + 1, sizeof *waits);
    size_t known = 0;
    int rc = blocks && transfers && waits ? HCP_OK
                                          : hcp_fail(err, HCP_FAILED, "out of memory");

    for (size_t i = 0; !rc && i < n; i++) {
        const struct hcp_interference_row *r = &rows[i];
        double computing;

        if (!counts(r))
            continue;
        computing = fmax(r->beside_ms, peer_of(r, peers, n_peers));
        blocks[f.rows] = (struct pairs){r->alone_ms, r->beside_ms, r->transfer_beside_ms};
        transfers[f.rows++] =
            (struct pairs){r->transfer_alone_ms, r->transfer_beside_ms, computing};
        if (r->wait_ms >= 0)
            waits[known++] = r->wait_ms;
    }
    if (known > 0) {
        qsort(waits, known, sizeof *waits, by_value);
        f.overhead_ms = (waits[(known - 1) / 2] + waits[known / 2]) / 2;
    }
    if (!rc && f.rows == 0)
        rc = hcp_fail(err, HCP_NO_ANSWER,
                      "no block was measured together with its transfer");
    if (!rc) {
        f.slowdown = least(blocks, (size_t)f.rows);
        f.transfer_slowdown = least(transfers, (size_t)f.rows);
    }
    free(blocks);
    free(transfers);
    free(waits);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        if (counts(&rows[i]))
            f.max_error = fmax(f.max_error,
                               error_of(&f, &rows[i], peer_of(&rows[i], peers, n_peers)));
    *out = f;
    return HCP_OK;
}

struct rows {
    struct hcp_interference_row *rows;
    size_t n;
};

struct search {
    const struct hcp_key *key;
    const char *peer_device, *peer_limit;
    const struct hcp_link_by *by;
    int found[3];           /* own rows by HCP_HOSTS_ */
    struct rows own, peers; /* a row may be both */
    struct hcp_err *err;
};

static int is(const char *want, const char *have)
{
    return !want || strcmp(want, have) == 0;
}

static int keep(struct rows *to, const struct hcp_interference_row *row,
                struct hcp_err *err)
{
    struct hcp_interference_row *more = realloc(to->rows, (to->n + 1) * sizeof *more);

    if (!more)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    to->rows = more;
    to->rows[to->n++] = *row;
    return HCP_OK;
}

static int collect(const struct hcp_interference_row *row, void *ctx)
{
    struct search *s = ctx;
    enum hcp_hosts hosts = hcp_hosts_of(row->from.host, row->host_b);
    int other =
        hosts != HCP_HOSTS_ANY && s->by->hosts != HCP_HOSTS_ANY && hosts != s->by->hosts;
    struct hcp_key key = row->key;
    int rc = HCP_OK;

    if (!hcp_link_has_channels(s->by, row->channels) ||
        !is(s->by->transport, row->transport) || other)
        return HCP_OK;
    if (hcp_key_equal(&key, s->key) && is(s->peer_device, row->device_b) &&
        is(s->peer_limit, row->limit_b)) {
        rc = keep(&s->own, row, s->err);
        s->found[hosts]++;
    }
    /* The same seen from there. */
    strcpy(key.device, s->key->device);
    strcpy(key.limit, s->key->limit);
    if (!rc && hcp_key_equal(&key, s->key) && is(s->peer_device, row->key.device) &&
        is(s->peer_limit, row->key.limit) && !strcmp(row->device_b, s->key->device) &&
        !strcmp(row->limit_b, s->key->limit))
        rc = keep(&s->peers, row, s->err);
    return rc;
}

int hcp_db_interference_of(hcp_db *db, const struct hcp_key *key, const char *peer_device,
                           const char *peer_limit, const struct hcp_link_by *by,
                           struct hcp_interference *out, struct hcp_err *err)
{
    const char *transport = by->transport;
    const struct hcp_filter filter = {
        .device = key->device, .limit = key->limit, .limit_set = 1};
    struct search s = {.key = key,
                       .peer_device = peer_device,
                       .peer_limit = peer_limit,
                       .by = by,
                       .err = err};
    int rc = hcp_db_each_interference(db, &filter, collect, &s, err);

    if (!rc && s.found[HCP_HOSTS_WITHIN] && s.found[HCP_HOSTS_BETWEEN])
        rc = hcp_fail(
            err, HCP_USAGE,
            "%s%s%s in '%s' was measured beside transfers within a host (%d rows) "
            "and between hosts (%d); say which they are: %s:within or %s:between",
            key->device, *key->limit ? "@" : "", key->limit, db->path,
            s.found[HCP_HOSTS_WITHIN], s.found[HCP_HOSTS_BETWEEN],
            transport ? transport : "nccl", transport ? transport : "nccl");
    if (!rc)
        rc = hcp_interference_fit(s.own.rows, s.own.n, s.peers.rows, s.peers.n, out, err);
    if (rc == HCP_NO_ANSWER)
        hcp_fail(err, rc,
                 "%s%s%s was never measured beside a transfer%s%s%s%s%s%s (%s, %s, %d/%d "
                 "heads of %d) in '%s'; where it is, measure it with 'hcp-profile link "
                 "--beside --db %s --limits %s/%s%s%s'",
                 key->device, *key->limit ? "@" : "", key->limit,
                 peer_device ? " with " : "", peer_device ? peer_device : "",
                 peer_limit && *peer_limit ? "@" : "", peer_limit ? peer_limit : "",
                 transport ? " by " : "", transport ? transport : "", key->provider,
                 key->dtype, (int)key->heads, (int)key->kv_heads, (int)key->head_dim,
                 db->path, db->path, *key->limit ? key->limit : "none",
                 peer_limit && *peer_limit ? peer_limit : "none",
                 transport ? " --transport " : "", transport ? transport : "");
    free(s.own.rows);
    free(s.peers.rows);
    return rc;
}
