/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-profile link --beside, the command's side.
 */
#ifndef HCP_CMD_BESIDE_H
#define HCP_CMD_BESIDE_H
#include <argp.h>
#include "db/cli.h"
#include "db/interference.h"
#include "profiler/link-beside.h"

struct link_session;

/* What one command measures beside transfers, and what it has heard of the pair at
 * hand. */
struct beside {
    int on;            /* --beside was given */
    const char *other; /* an option that only goes with it */
    const char *lens, *masks;
    struct hcp_beside_job job;
    char *text; /* job as hcp-link is told */
    struct hcp_interference_row rows[2 * HCP_BESIDE_BLOCKS];
    double quartiles[2 * HCP_BESIDE_BLOCKS][2]; /* of beside_ms */
    int side[2 * HCP_BESIDE_BLOCKS];            /* which end a row is of */
    size_t n;
    hcp_table *table, *fits;
    json_t *list;
};

extern const struct argp beside_argp; /* child input: struct beside *, zeroed */

/* Blocks of the session's devices, once these are chosen. */
int beside_choose(struct link_session *s, struct hcp_err *err);
/* A pair of limits was measured (rc HCP_OK) or not: stores and reports. Returns rc, or
 * why nothing was stored. */
int beside_end_pair(struct link_session *s, int rc, struct hcp_err *err);

/* ---- beside-report.c ------------------------------------------------------- */

void beside_report_begin(struct link_session *s);
/* error: why there is nothing, or NULL. */
void beside_report_pair(struct link_session *s, const char *error);
/* Prints it all (not from a silent rank) and frees it. */
void beside_report_end(struct link_session *s);

#endif
