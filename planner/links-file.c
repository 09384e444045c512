/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "db/interference.h"
#include "planner/options.h"

/* --links: a table of links between pairs of ranks, from a file or from the database. It
 * is kept as a square by pair until it is whole; pairs nobody named are left out then. */
enum { MOST_RANKS = 512, MOST_SHARED = 4 * MOST_RANKS, NAME = 32 };

struct reading {
    const char *path;
    int line;
    size_t n; /* ranks */
    hcp_link *links;
    uint8_t *named; /* [n * n] */
    double *gbps;   /* of what links share, [n_shared] */
    size_t n_shared;
    char names[MOST_SHARED][NAME];
};

static int complain(const struct reading *r, struct hcp_err *err, const char *what,
                    const char *word)
{
    return hcp_fail(err, HCP_USAGE, "%s, line %d: %s '%.60s'", r->path, r->line, what,
                    word ? word : "");
}

/* "3", "0-3" or "*". */
static int read_range(const struct reading *r, const char *word, size_t *from, size_t *to)
{
    char *end;

    *from = 0;
    *to = r->n - 1;
    if (!word || strcmp(word, "*") == 0)
        return word ? 0 : -1;
    if (*word < '0' || *word > '9')
        return -1;
    *from = *to = strtoul(word, &end, 10);
    if (*end == '-' && end[1] >= '0' && end[1] <= '9')
        *to = strtoul(end + 1, &end, 10);
    return *end || *from > *to || *to >= r->n ? -1 : 0;
}

static int read_number(const char *word, double lo, double hi, double *out)
{
    struct hcp_err why;

    return !word || hcp_parse_double(word, out, &why) || !(*out >= lo && *out <= hi);
}

/* share NAME GB/S */
static int read_share(struct reading *r, char **rest, struct hcp_err *err)
{
    const char *name = strtok_r(NULL, " \t", rest), *speed = strtok_r(NULL, " \t", rest);
    size_t i = 0;

    if (!name || strlen(name) >= NAME || strchr(name, ','))
        return complain(r, err, "expected a name of at most 31 letters, not", name);
    if (read_number(speed, 1e-6, 1e9,
                    &r->gbps[r->n_shared < MOST_SHARED ? r->n_shared : 0]))
        return complain(r, err, "expected a speed of 1e-6..1e9 GB/s, not", speed);
    while (i < r->n_shared && strcmp(r->names[i], name) != 0)
        i++;
    if (i < r->n_shared)
        return complain(r, err, "shared twice:", name);
    if (r->n_shared == 4 * r->n)
        return complain(r, err, "more than four shared things a rank, with", name);
    strcpy(r->names[r->n_shared++], name);
    return HCP_OK;
}

/* share=A[,B] */
static int read_shared(const struct reading *r, char *names, hcp_link *link)
{
    char *rest, *name = strtok_r(names, ",", &rest);

    if (!name)
        return -1;
    for (int s = 0; name; name = strtok_r(NULL, ",", &rest), s++) {
        size_t i = 0;

        while (i < r->n_shared && strcmp(r->names[i], name) != 0)
            i++;
        if (s == 2 || i == r->n_shared || (s == 1 && link->shared[0] == (int32_t)i + 1))
            return -1;
        link->shared[s] = (int32_t)i + 1;
    }
    return 0;
}

static int read_word(const struct reading *r, char *word, hcp_link *link,
                     struct hcp_err *err)
{
    char *equals = strchr(word, '=');
    int bad = 1;

    if (equals && strncmp(word, "share=", 6) == 0)
        bad = read_shared(r, equals + 1, link);
    else if (equals && strncmp(word, "slowdown=", 9) == 0)
        bad = read_number(equals + 1, 1, 1e3, &link->slowdown);
    else if (equals && strncmp(word, "transfer_slowdown=", 18) == 0)
        bad = read_number(equals + 1, 1, 1e3, &link->transfer_slowdown);
    else if (equals && strncmp(word, "overhead_us=", 12) == 0)
        bad = read_number(equals + 1, 0, 1e9, &link->overhead_us);
    return bad ? complain(r, err,
                          "expected share=NAME[,NAME] (shared above), slowdown=1..1000, "
                          "transfer_slowdown=1..1000 or overhead_us=US, not",
                          word)
               : HCP_OK;
}

/* link|both FROM TO US GB/S [KEY=VALUE...] */
static int read_link(struct reading *r, int both, char **rest, struct hcp_err *err)
{
    const char *from = strtok_r(NULL, " \t", rest), *to = strtok_r(NULL, " \t", rest);
    const char *alpha = strtok_r(NULL, " \t", rest), *gbps = strtok_r(NULL, " \t", rest);
    size_t a, a_last, b, b_last;
    hcp_link link = {0};
    char *word;

    if (read_range(r, from, &a, &a_last))
        return complain(r, err, "expected ranks as in 3, 0-3 or *, in the ring, not",
                        from);
    if (read_range(r, to, &b, &b_last))
        return complain(r, err, "expected ranks as in 3, 0-3 or *, in the ring, not", to);
    if (read_number(alpha, 0, 1e9, &link.alpha_us))
        return complain(r, err, "expected a start-up time of 0..1e9 us, not", alpha);
    if (read_number(gbps, 0, 1e9, &link.gbps) || (link.gbps > 0 && link.gbps < 1e-6))
        return complain(r, err, "expected a speed of 0 or 1e-6..1e9 GB/s, not", gbps);
    while ((word = strtok_r(NULL, " \t", rest)))
        if (read_word(r, word, &link, err))
            return err->code;
    for (size_t i = a; i <= a_last; i++)
        for (size_t j = b; j <= b_last; j++)
            for (int back = 0; back <= both; back++) {
                size_t x = back ? j : i, y = back ? i : j;

                link.from = (int32_t)x;
                link.to = (int32_t)y;
                r->links[x * r->n + y] = link;
                r->named[x * r->n + y] = x != y;
            }
    return HCP_OK;
}

static int read_file(struct reading *r, struct hcp_err *err)
{
    FILE *in = fopen(r->path, "r");
    char *text = NULL;
    size_t room = 0;
    int rc = HCP_OK;

    if (!in)
        return hcp_fail(err, HCP_FAILED,
                        "cannot open the links of %s: %s; --links takes a file, nccl or "
                        "mpi",
                        r->path, strerror(errno));
    while (rc == HCP_OK && getline(&text, &room, in) >= 0) {
        char *rest, *word;

        r->line++;
        text[strcspn(text, "#\r\n")] = 0;
        word = strtok_r(text, " \t", &rest);
        if (!word)
            continue;
        if (strcmp(word, "share") == 0)
            rc = read_share(r, &rest, err);
        else if (strcmp(word, "link") == 0 || strcmp(word, "both") == 0)
            rc = read_link(r, *word == 'b', &rest, err);
        else
            rc = complain(r, err, "expected link, both or share, not", word);
    }
    if (rc == HCP_OK && ferror(in))
        rc = hcp_fail(err, HCP_FAILED, "cannot read %s", r->path);
    fclose(in);
    free(text);
    return rc;
}

/* ---- measured ---- */

int links_transport(const char *word, const char **transport, enum hcp_hosts *hosts)
{
    static const char *const names[] = {"nccl", "mpi"};
    enum hcp_hosts which = HCP_HOSTS_ANY;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);

        if (strncmp(word, names[i], n) != 0 || (word[n] && word[n] != ':'))
            continue;
        for (int h = HCP_HOSTS_WITHIN; word[n] && h <= HCP_HOSTS_BETWEEN; h++)
            if (strcmp(word + n + 1, hcp_hosts_name((enum hcp_hosts)h)) == 0)
                which = (enum hcp_hosts)h;
        if (word[n] && which == HCP_HOSTS_ANY)
            return 0;
        *transport = names[i];
        *hosts = which;
        return 1;
    }
    return 0;
}

struct measured {
    hcp_db *db;
    struct hcp_link_by by; /* hosts: of the pair that is asked for */
    const hcp_shape *shape;
    const char *provider;
    double bytes;
    const int32_t *host_of; /* by rank; NULL: nobody knows */
    struct move_ways *ways; /* what goes one way; NULL: as in a ring */
};

static int pair_near(const struct measured *m, const hcp_rank *a, const hcp_rank *b,
                     struct hcp_link_fit *out, struct hcp_err *err)
{
    return m->ways ? move_link_near(m->db, &m->by, a, b, m->bytes, out, m->ways, err)
                   : hcp_db_link_near(m->db, &m->by, a->device, a->limit, b->device,
                                      b->limit, m->bytes, out, err);
}

/* What was measured between two devices under their limits; what computing and a transfer
 * cost each other only where that was measured, too. */
static int measured_pair(const struct measured *m, const hcp_rank *a, const hcp_rank *b,
                         hcp_link *link, struct hcp_err *err)
{
    struct hcp_interference beside;
    struct hcp_link_fit fit;
    struct hcp_key key = {.batch = m->shape->batch,
                          .heads = m->shape->heads,
                          .kv_heads = m->shape->kv_heads,
                          .head_dim = m->shape->head_dim};
    int spec = session_is_spec(a->device) || session_is_spec(b->device);
    int rc = spec ? session_no_link(session_is_spec(a->device) ? a->device : b->device,
                                    "--links", err)
                  : pair_near(m, a, b, &fit, err);

    if (rc)
        return rc;
    link->alpha_us = fit.alpha_us;
    link->gbps = fit.gbps;
    snprintf(key.device, sizeof key.device, "%s", b->device);
    snprintf(key.limit, sizeof key.limit, "%s", b->limit);
    snprintf(key.provider, sizeof key.provider, "%s", m->provider);
    snprintf(key.dtype, sizeof key.dtype, "%s", m->shape->dtype);
    strcpy(key.phase, "prefill");
    rc = hcp_db_interference_of(m->db, &key, a->device, a->limit, &m->by, &beside, err);
    if (rc == HCP_NO_ANSWER) {
        *err = (struct hcp_err){0};
        return HCP_OK;
    }
    if (rc)
        return rc;
    link->slowdown = beside.slowdown;
    link->transfer_slowdown = beside.transfer_slowdown;
    link->overhead_us = beside.overhead_ms > 0 ? beside.overhead_ms * 1e3 : 0;
    return HCP_OK;
}

static int same_end(const hcp_rank *a, const hcp_rank *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->limit, b->limit) == 0;
}

/* Numbers the different ends, a device under a limit, of ranks; returns how many. */
static size_t number_ends(const hcp_rank *ranks, size_t n, size_t *end)
{
    size_t ends = 0;

    for (size_t r = 0; r < n; r++) {
        size_t i = 0;

        while (i < r && !same_end(&ranks[i], &ranks[r]))
            i++;
        end[r] = i < r ? end[i] : ends++;
    }
    return ends;
}

/* Every pair of ranks; pairs of the same two ends, both within a host or between two, are
 * asked for once. */
static int read_measured(struct reading *r, struct measured *m, const hcp_rank *ranks,
                         struct hcp_err *err)
{
    enum hcp_hosts given = m->by.hosts;
    size_t n = r->n, ends = 0, *end = calloc(n, sizeof *end);
    size_t *first = NULL; /* [ends][ends][HCP_HOSTS_]: a pair of these, plus one */
    int rc = HCP_OK;

    if (end) {
        ends = number_ends(ranks, n, end);
        first = calloc(3 * ends * ends, sizeof *first);
    }
    if (!first)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; rc == HCP_OK && i < n; i++) {
        for (size_t j = 0; rc == HCP_OK && j < n; j++) {
            hcp_link *link = &r->links[i * n + j];
            size_t *seen;

            if (i == j)
                continue;
            m->by.hosts = session_hosts_of(given, m->host_of, i, j);
            seen = &first[3 * (end[i] * ends + end[j]) + (size_t)m->by.hosts];
            if (*seen) {
                *link = r->links[*seen - 1];
            } else {
                rc = measured_pair(m, &ranks[i], &ranks[j], link, err);
                *seen = i * n + j + 1;
            }
            r->named[i * n + j] = 1;
        }
    }
    free(end);
    free(first);
    return rc;
}

/* ---- both ---- */

static int read_links(struct reading *r, const struct plan_args *args,
                      const int32_t *host_of, const hcp_shape *shape,
                      const hcp_rank *ranks, int64_t seq_len, int32_t pieces,
                      const char *provider, struct move_ways *ways, struct hcp_err *err)
{
    struct measured m = {.by = {.transport = args->links,
                                .hosts = args->links_hosts,
                                .channels = plan_link_channels(args, args->links)},
                         .ways = ways,
                         .host_of = host_of,
                         .shape = shape,
                         .provider = provider};
    const char *path;
    int rc;

    if (strcmp(args->links, "nccl") != 0 && strcmp(args->links, "mpi") != 0)
        return read_file(r, err);
    path = hcp_cli_db(args->db, err);
    if (!path)
        return err->code;
    m.bytes = 2.0 * shape->batch * shape->kv_heads * shape->head_dim *
              (strcmp(shape->dtype, "fp32") == 0 ? 4 : 2) * (double)seq_len /
              (double)r->n / pieces;
    rc = hcp_db_open(path, HCP_DB_READ, &m.db, err);
    if (rc)
        return rc;
    rc = read_measured(r, &m, ranks, err);
    hcp_db_close(m.db);
    return rc;
}

int session_links(const struct plan_args *args, const hcp_shape *shape,
                  const hcp_rank *ranks, size_t n, const char *provider, hcp_question *q,
                  struct move_ways *ways, struct session *s, struct hcp_err *err)
{
    struct reading *r;
    size_t kept = 0;
    int rc;

    if (n > MOST_RANKS)
        return hcp_fail(err, HCP_USAGE, "--links takes %d ranks at most, --ranks has %zu",
                        MOST_RANKS, n);
    r = calloc(1, sizeof *r);
    s->links = calloc(n * n, sizeof *s->links);
    s->shared_gbps = calloc(MOST_SHARED, sizeof *s->shared_gbps);
    if (r)
        *r = (struct reading){.path = args->links,
                              .n = n,
                              .links = s->links,
                              .named = calloc(n * n, 1),
                              .gbps = s->shared_gbps};
    if (!r || !r->named || !s->links || !s->shared_gbps)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    else
        rc = read_links(r, args, s->hosts, shape, ranks, q->seq_len, q->sub_blocks,
                        provider, ways, err);
    for (size_t i = 0; rc == HCP_OK && i < n * n; i++) {
        if (!r->named[i])
            continue;
        s->links[kept] = s->links[i];
        s->links[kept].from = (int32_t)(i / n);
        s->links[kept++].to = (int32_t)(i % n);
    }
    q->links = s->links;
    q->n_links = kept;
    q->shared_gbps = s->shared_gbps;
    q->n_shared = r ? r->n_shared : 0;
    if (r)
        free(r->named);
    free(r);
    return rc;
}
