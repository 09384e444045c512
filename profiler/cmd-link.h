/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of hcp-profile link.
 */
#ifndef HCP_CMD_LINK_H
#define HCP_CMD_LINK_H
#include <string.h>
#include "db/cli.h"
#include "profiler/cmd-beside.h"
#include "profiler/device.h"
#include "profiler/limiter.h"
#include "profiler/link.h"
#include "profiler/progress.h"

enum { LINK_PAIRS = 64 };

struct link_args {
    const char *db, *devices, *limits, *transport, *channels, *sizes, *target;
    double budget_s;
    int json, one_way;
    struct beside beside;
};

/* What one command measures. */
struct link_session {
    const struct link_args *args;
    struct beside *beside; /* NULL: sizes are measured */
    struct hcp_link_job job;
    struct {
        char limit[2][32];
        int32_t channels; /* of NCCL; 0: its own choice */
    } pairs[LINK_PAIRS];
    size_t n_pairs;
    int launched, rank; /* by a launcher, as which of two ranks */
    struct hcp_device_info *gpus;
    size_t n_gpus;
    char program[4096], no_gpu[512];
    hcp_db *db;
    hcp_mps *mps;
    struct hcp_provenance from, from_b; /* from_b.run_uid "": no row of it yet */
    struct hcp_progress progress;
    size_t pair;      /* at hand */
    int has_topology; /* a row of it is stored */
    hcp_table *table, *fits;
    size_t n_fits; /* rows of fits */
    json_t *list;
};

/* "mps:100 / mps:10", ", 2 channels" where the number is set, ", one way" where it is; of
 * the pair at hand, or (second) from its second end to its first. */
const char *link_name(const struct link_session *s, int second, char text[96]);

static inline int link_is_gpu(const struct hcp_link_end *end)
{
    return strcmp(end->spec, "cpu") != 0;
}

/* Where and when, of a row of the second end (side 1) or the first, into *from, which has
 * the host. A run is of one host, and has one row of an identity: rows of the second end
 * that are apart from those of the first, by their host or as their only difference, are
 * of a run of their own. */
void link_sign(struct link_session *s, int side, int apart, struct hcp_provenance *from);

/* ---- link-choose.c --------------------------------------------------------- */

/* Devices, transport, pairs of limits and sizes, from the options and what is here. */
int link_choose(struct link_session *s, struct hcp_err *err);

/* ---- link-report.c --------------------------------------------------------- */

void link_report_begin(struct link_session *s);
/* Rows of one pair of limits and their fit, one way those of each sender; error: why
 * there are none, or NULL. */
void link_report_pair(struct link_session *s, const struct hcp_link_result *result,
                      const char *error);
/* Prints it all (not from a silent rank) and frees it. */
void link_report_end(struct link_session *s);

#endif
