/* SPDX-License-Identifier: Apache-2.0
 *
 * Links of what moves from one rank to another and is answered by nothing: measured one
 * way where that was done. Both ways at once, as in a ring, each way is slower wherever
 * the two share something, such as the host's memory.
 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "db/db.h"
#include "planner/options.h"

enum { MANY_RANKS = 64 };

int move_link_near(hcp_db *db, const struct hcp_link_by *by, const hcp_rank *a,
                   const hcp_rank *b, double bytes, struct hcp_link_fit *out,
                   struct move_ways *ways, struct hcp_err *err)
{
    struct hcp_link_by way = *by;
    struct hcp_err both = {0};
    int rc;

    way.one_way = 1;
    rc = hcp_db_link_near(db, &way, a->device, a->limit, b->device, b->limit, bytes, out,
                          err);
    ways->one_way += rc == HCP_OK;
    if (rc != HCP_NO_ANSWER)
        return rc;
    way.one_way = 0;
    rc = hcp_db_link_near(db, &way, a->device, a->limit, b->device, b->limit, bytes, out,
                          &both);
    if (rc == HCP_NO_ANSWER)
        return rc; /* what err names is what should be measured */
    *err = both;
    if (rc)
        return rc;
    way.one_way = 1;
    if (ways->two_way++ == 0)
        hcp_db_link_command(db, &way, a->limit, b->limit, ways->command,
                            sizeof ways->command);
    return HCP_OK;
}

static int same_end(const hcp_plan_rank *a, const hcp_plan_rank *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->limit, b->limit) == 0;
}

/* Numbers the different ends, a device under a limit, from 0 in the order of their first
 * ranks; those go to first[]. Returns how many. */
static size_t number_ends(const struct move_ends *e, size_t *end, size_t *first)
{
    size_t ends = 0;

    for (size_t r = 0; r < e->n; r++) {
        size_t i = 0;

        while (i < ends && !same_end(&e->ranks[first[i]], &e->ranks[r]))
            i++;
        if (i == ends)
            first[ends++] = r;
        end[r] = i;
    }
    return ends;
}

/* Which pairs of ends data goes between: of many ranks, neighbours alone. */
static void mark(const struct move_ends *e, const size_t *end, size_t ends, uint8_t *pair)
{
    for (size_t i = 0; i < e->n; i++) {
        for (size_t j = 0; j < e->n; j++) {
            int near = j == (i + 1) % e->n || i == (j + 1) % e->n;

            if (i != j && (near || e->n <= MANY_RANKS) && (!e->gives || e->gives[i]) &&
                (!e->takes || e->takes[j]))
                pair[end[i] * ends + end[j]] = 1;
        }
    }
}

static int slowest(hcp_db *db, const struct plan_args *args, const struct move_ends *e,
                   const size_t *first, size_t ends, const uint8_t *pair, double bytes,
                   struct hcp_link_fit *out, double *longest, struct move_ways *ways,
                   struct hcp_err *err)
{
    const struct hcp_link_by by = {.transport = args->link,
                                   .hosts = args->link_hosts,
                                   .channels = plan_link_channels(args, args->link)};

    for (size_t k = 0; k < ends * ends; k++) {
        const hcp_plan_rank *from = &e->ranks[first[k / ends]];
        const hcp_plan_rank *to = &e->ranks[first[k % ends]];
        hcp_rank a, b;
        struct hcp_link_fit fit;
        double us;

        if (!pair[k])
            continue;
        if (session_is_spec(from->device) || session_is_spec(to->device))
            return session_no_link(
                session_is_spec(from->device) ? from->device : to->device, "--link", err);
        hcp_rank_init(&a);
        hcp_rank_init(&b);
        memcpy(a.device, from->device, sizeof a.device);
        memcpy(a.limit, from->limit, sizeof a.limit);
        memcpy(b.device, to->device, sizeof b.device);
        memcpy(b.limit, to->limit, sizeof b.limit);
        if (move_link_near(db, &by, &a, &b, bytes, &fit, ways, err))
            return err->code;
        us = fit.alpha_us + (fit.gbps > 0 ? bytes / (fit.gbps * 1e3) : 0);
        if (us <= *longest)
            continue;
        *longest = us;
        *out = fit;
    }
    return HCP_OK;
}

int session_move_link(const struct plan_args *args, const struct move_ends *ends,
                      double bytes, double *alpha_us, double *gbps,
                      struct move_ways *ways, struct hcp_err *err)
{
    size_t n = ends->n, n_ends, *end = calloc(2 * n + 1, sizeof *end), *first = NULL;
    const char *path = hcp_cli_db(args->db, err);
    struct hcp_link_fit fit = {0};
    uint8_t *pair = NULL;
    double longest = -1;
    hcp_db *db = NULL;
    int rc = !end   ? hcp_fail(err, HCP_FAILED, "out of memory")
             : path ? hcp_db_open(path, HCP_DB_READ, &db, err)
                    : err->code;

    if (rc == HCP_OK) {
        first = end + n;
        n_ends = number_ends(ends, end, first);
        pair = calloc(n_ends * n_ends + 1, 1);
        if (!pair)
            rc = hcp_fail(err, HCP_FAILED, "out of memory");
    }
    if (rc == HCP_OK) {
        mark(ends, end, n_ends, pair);
        rc = slowest(db, args, ends, first, n_ends, pair, bytes, &fit, &longest, ways,
                     err);
    }
    if (rc == HCP_OK && longest >= 0) {
        if (!(args->given & PLAN_GIVEN_ALPHA))
            *alpha_us = fit.alpha_us;
        if (!(args->given & PLAN_GIVEN_GBPS))
            *gbps = fit.gbps;
    }
    hcp_db_close(db);
    free(pair);
    free(end);
    return rc;
}

void move_ways_json(json_t *object, const struct move_ways *ways)
{
    json_object_set_new(object, "link_measured",
                        ways->two_way   ? json_string("two-way")
                        : ways->one_way ? json_string("one-way")
                                        : json_null());
    json_object_set_new(object, "link_command",
                        ways->two_way ? json_string(ways->command) : json_null());
}

void move_ways_print(const struct move_ways *ways, FILE *out)
{
    if (ways->two_way)
        fprintf(out,
                "link as measured with both ends sending at once; here one sends and "
                "nothing comes back, which may be faster: measure it with '%s'\n",
                ways->command);
}
