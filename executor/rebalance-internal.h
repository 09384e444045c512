/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of --rebalance; nobody else includes it.
 */
#ifndef HCP_REBALANCE_INTERNAL_H
#define HCP_REBALANCE_INTERNAL_H
#include "executor/program.h"

/* Beside HCP_OK and its failures: ranks have failed, all know which (run.heard), and the
 * others can go on. */
enum { RANK_LOST = -1 };

enum { FAILURE_TEXT = 500 };

/* What a rank tells the others of a pass. */
struct told {
    double compute_ms, total_ms;
    uint64_t state; /* of its object, before the pass */
};

/* ... and of how it ended: */
struct heard {
    struct told told;
    int64_t meetings; /* of ring_meetings() */
    int32_t through;  /* it has gone through; or */
    int32_t broken;   /* it has failed itself. Neither: it was cut off */
};

/* A rank that has failed. */
struct failure {
    int rank, pass;     /* measured passes before it */
    const char *during; /* "pass", "warm-up" ... */
    char text[FAILURE_TEXT];
    double recovered_ms; /* until passes went on */
    hcp_recompute *lost; /* [n_lost] what the library says is to be computed again */
    size_t n_lost;
};

/* Passes of one plan. */
struct phase {
    int first, n;
    int64_t *tokens; /* [ranks] */
    double *scale;   /* [ranks] that the plan was made for */
    uint64_t fingerprint;
    double predicted_ms, open_ms; /* of the plan; until its first pass could begin */
    hcp_rebalance_verdict why;    /* of those after the first */
    struct ring_result checked;   /* verification, and what runs */
};

struct run {
    struct ring_program *p;
    size_t n;
    hcp_plan plan;    /* the first one, in the order in which it runs */
    hcp_plan running; /* that of the ring: arrays are plan's, or the library's */
    hcp_rebalance *rebalance;
    ring *ring;
    struct told *told;   /* [passes][n], on every rank */
    struct heard *heard; /* [n] of the last pass, timed or not */
    int passes, room;
    struct phase *phases;
    size_t n_phases;
    hcp_rebalance_reason
        kept;            /* why the last change of a speed has not changed the plan; */
    char kept_text[700]; /* STEADY: there was none */
    struct failure *failures;
    size_t n_failures, recovered; /* of which passes have gone on */
    double broken_since_s;        /* of this rank's failure, or when it heard of one */
    struct hcp_err mine;          /* of this rank's failure */
};

/* rebalance-failure.c: what is exchanged when a pass, or opening a ring, has ended on
 * this rank with rc (err says why): HCP_OK: well on all. RANK_LOST. Another failure is
 * the run's, and this rank's alone where p->alone is set. Collective. */
int rebalance_hear(struct run *r, int rc, const struct ring_times *times,
                   struct hcp_err *err);
/* After RANK_LOST: the failures are kept for the report, the ring is left, and the
 * library asked for a plan without them, which all ranks compare: its verdict in *v, with
 * the reason HCP_REBALANCE_FAILED. Collective. */
int rebalance_lose(struct run *r, const char *during, hcp_rebalance_verdict *v,
                   struct hcp_err *err);
/* The next pass is measured. */
int rebalance_recovered(struct run *r, struct hcp_err *err);

/* rebalance-report.c: rank 0 prints. */
int rebalance_report(const struct run *r, struct hcp_err *err);

#endif
