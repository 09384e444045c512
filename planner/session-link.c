/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of the links that a plan reckons with, from measured transfers.
 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "db/db.h"
#include "planner/options.h"

static double kv_bytes_of_token(const hcp_shape *shape)
{
    double element = strcmp(shape->dtype, "fp32") == 0 ? 4 : 2;

    return 2.0 * shape->batch * shape->kv_heads * shape->head_dim * element;
}

/* A rank's partial result of a decode step: hcp_plan.merge_bytes. */
static double state_bytes(const hcp_shape *shape)
{
    return 4.0 * shape->batch * shape->heads * (shape->head_dim + 1);
}

static int same_end(const hcp_rank *a, const hcp_rank *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->limit, b->limit) == 0;
}

/* Pairs of ranks `step` apart; where ranks stand on nodes, those of one node or of two.
 */
struct pairs {
    const hcp_rank *ranks;
    size_t n, step;
    int32_t node_ranks; /* 0: no nodes */
    enum hcp_hosts hosts;
    const int32_t *host_of; /* by rank; NULL: nobody knows */
};

static enum hcp_hosts hosts_of(const struct pairs *p, size_t r)
{
    return session_hosts_of(p->hosts, p->host_of, r, (r + p->step) % p->n);
}

static int is_pair(const struct pairs *p, size_t r)
{
    size_t next = (r + p->step) % p->n;

    return p->node_ranks == 0 ||
           (r / (size_t)p->node_ranks == next / (size_t)p->node_ranks) ==
               (p->hosts == HCP_HOSTS_WITHIN);
}

/* Whether that of rank r is one that has come before. */
static int pair_seen(const struct pairs *p, size_t r)
{
    const hcp_rank *a = &p->ranks[r], *b = &p->ranks[(r + p->step) % p->n];

    for (size_t i = 0; i < r; i++) {
        const hcp_rank *c = &p->ranks[i], *d = &p->ranks[(i + p->step) % p->n];

        if (is_pair(p, i) && hosts_of(p, i) == hosts_of(p, r) &&
            ((same_end(c, a) && same_end(d, b)) || (same_end(c, b) && same_end(d, a))))
            return 1;
    }
    return 0;
}

/* The line of the pair that takes longest to pass `bytes` on, if that is longer than
 * *longest us. */
static int slowest_link(hcp_db *db, const struct plan_args *args, const struct pairs *p,
                        double bytes, double *longest, struct hcp_link_fit *out,
                        struct hcp_err *err)
{
    for (size_t r = 0; p->n > 1 && r < p->n; r++) {
        const hcp_rank *a = &p->ranks[r], *b = &p->ranks[(r + p->step) % p->n];
        const struct hcp_link_by by = {.transport = args->link,
                                       .hosts = hosts_of(p, r),
                                       .channels = plan_link_channels(args, args->link)};
        struct hcp_link_fit fit;
        double us;

        if (!is_pair(p, r) || pair_seen(p, r))
            continue;
        if (session_is_spec(a->device) || session_is_spec(b->device))
            return session_no_link(session_is_spec(a->device) ? a->device : b->device,
                                   "--link", err);
        if (hcp_db_link_near(db, &by, a->device, a->limit, b->device, b->limit, bytes,
                             &fit, err))
            return err->code;
        us = fit.alpha_us + (fit.gbps > 0 ? bytes / (fit.gbps * 1e3) : 0);
        if (us <= *longest)
            continue;
        *longest = us;
        *out = fit;
    }
    return HCP_OK;
}

int session_link(const struct plan_args *args, const int32_t *host_of,
                 const hcp_shape *shape, const hcp_rank *ranks, size_t n, int64_t seq_len,
                 int32_t pieces, int32_t node_ranks, const struct link_into_plan *out,
                 struct hcp_err *err)
{
    int decode = session_of_decode(shape->phase);
    double bytes = decode
                       ? state_bytes(shape)
                       : kv_bytes_of_token(shape) * (double)seq_len / (double)n / pieces;
    int nodes = node_ranks > 0 && (size_t)node_ranks < n;
    struct pairs p = {
        ranks,  n, 1, nodes ? node_ranks : 0, nodes ? HCP_HOSTS_WITHIN : args->link_hosts,
        host_of};
    struct hcp_link_fit fit;
    double longest = -1;
    const char *path = hcp_cli_db(args->db, err);
    hcp_db *db;
    int rc = path ? hcp_db_open(path, HCP_DB_READ, &db, err) : err->code;

    if (rc)
        return rc;
    rc = slowest_link(db, args, &p, bytes, &longest, &fit, err);
    /* Decode may merge between any two. */
    for (; rc == HCP_OK && decode && n <= 64 && p.step < n / 2;) {
        p.step++;
        rc = slowest_link(db, args, &p, bytes, &longest, &fit, err);
    }
    if (rc == HCP_OK && longest >= 0) {
        if (!(args->given & PLAN_GIVEN_ALPHA))
            *out->alpha_us = fit.alpha_us;
        if (!(args->given & PLAN_GIVEN_GBPS))
            *out->gbps = fit.gbps;
    }
    /* Between nodes: as the command line says, or measured. */
    if (nodes && *out->node_alpha_us == 0 && *out->node_gbps == 0) {
        p.hosts = HCP_HOSTS_BETWEEN;
        longest = -1;
        if (rc == HCP_OK)
            rc = slowest_link(db, args, &p, bytes, &longest, &fit, err);
        p.step = (size_t)node_ranks;
        if (rc == HCP_OK)
            rc = slowest_link(db, args, &p, bytes, &longest, &fit, err);
        if (rc == HCP_OK && longest >= 0) {
            *out->node_alpha_us = fit.alpha_us;
            *out->node_gbps = fit.gbps;
        }
    }
    hcp_db_close(db);
    return rc;
}
