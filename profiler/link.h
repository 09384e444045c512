/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-profile link: what a transfer between two devices takes when each sends to the
 * other at the same time, as neighbours of a ring do, or (--one-way) when one sends and
 * nothing comes back. hcp-profile starts hcp-link, an MPI program of two ranks, once for
 * each pair of limits, and stores what it says.
 *
 * hcp-link TRANSPORT CHANNELS WAYS SIZES TARGET BUDGET_S PIPE_DIR LOG_DIR
 *          DEVICE LIMIT UUID SMS (rank 0)  DEVICE LIMIT UUID SMS (rank 1)
 *          [BLOCKS] (link-beside.h)
 *
 * WAYS: "both" at once, or "each" alone, first that of rank 0.
 * "-" stands for an empty word: NCCL's choice of channels, no sizes to be added, no
 * budget, no MPS daemon, the whole device, a UUID or number of SMs that only the other
 * host knows. Rank 0 prints JSON lines:
 *
 *   {"ends":[{"host","device","name","uuid","sm_seen","sm_count"},{...}],"version":...,
 *    "topology":{"connection","links","detail"}}
 *   {"visit":1,"visits":54}                   before each visit of a size
 *   {"bytes":4096,"repeats":1,"ms":[...]}     samples of a size, after the last visit;
 *                                             "sender":0 or 1 where ways are apart
 *   {"done":true,"left_out":0}                sizes for which the budget left no time;
 *                                             nothing follows
 *   {"error":"..."}                           nothing follows; the exit code is 0
 */
#ifndef HCP_LINK_H
#define HCP_LINK_H
#include <stdint.h>
#include "db/db.h"

enum { HCP_LINK_SIZES = 64, HCP_LINK_SAMPLES = 128 };

struct json_t;

/* One end, as asked for. */
struct hcp_link_end {
    char spec[32];    /* "cuda:0" "cpu" */
    char limit[32];   /* "mps:50"; "" whole device */
    char uuid[64];    /* cuda: which GPU; "" unknown here */
    int32_t sm_count; /* of the whole device; 0 unknown here */
};

/* ---- hcp-profile's side: link-run.c --------------------------------------- */

struct hcp_link_job {
    struct hcp_link_end end[2];
    const char *program;            /* path of hcp-link */
    const char *transport;          /* "mpi" "nccl" "copy" */
    int32_t channels;               /* of NCCL; 0: its own choice */
    int one_way;                    /* each way alone; 0: both at once */
    const char *pipe_dir, *log_dir; /* of the MPS daemon; "" none */
    int64_t sizes[HCP_LINK_SIZES];
    size_t n_sizes;
    double target;   /* held-out error for which sizes are added; NaN: none are */
    double budget_s; /* INFINITY: none */
    int launched;    /* this process is a rank: start one, no mpirun */
    int silent;      /* of another rank than 0: says nothing */
    const char *blocks; /* --beside: BLOCKS, instead of sizes; NULL: sizes */
    /* Takes a line of link-beside.h; ends: as in a row of sizes. */
    int (*beside)(void *ctx, const struct hcp_link_row *ends, const struct json_t *line,
                  struct hcp_err *err);
    void *ctx; /* of beside */
};

/* What hcp-link said: one row a size, without provenance (but for the hosts). One way,
 * those that rank 0 sends come first; of the others the ends are the other way round. */
struct hcp_link_result {
    struct hcp_link_row rows[2 * HCP_LINK_SIZES];
    size_t n;                         /* sizes left out by the budget are missing */
    size_t n_first;                   /* of them sent by rank 0; all, where both are */
    int left_out;                     /* so many */
    struct hcp_topology_row topology; /* connection "": not said */
};

/* Called before each visit of a size: visits done, of how many. */
typedef void (*hcp_link_progress)(void *ctx, int done, int total);

/* Measures one pair of limits; blocks. HCP_FAILED: what hcp-link said, how it ended, or
 * "stopped" after hcp_worker_stop was set. */
int hcp_link_measure(const struct hcp_link_job *job, struct hcp_link_result *out,
                     hcp_link_progress progress, void *ctx, struct hcp_err *err);

/* Whether ranks can be started for this job: HCP_FAILED where there is no mpirun, or no
 * MPI in this build. */
int hcp_link_ready(const struct hcp_link_job *job, struct hcp_err *err);

/* Path of hcp-link: $HCP_LINK, beside this program, or where it is installed. */
int hcp_link_find(char *path, size_t size, struct hcp_err *err);

#endif
