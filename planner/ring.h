/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: the recurrence round a ring (ring*.c).
 */
#ifndef HCP_PLAN_RING_H
#define HCP_PLAN_RING_H
#include <stddef.h>
#include "db/interference.h"
#include "planner/hcpplan.h"

#define MAX_BUFFERS 16
#define LATE_RANKS 64

/* A link as the recurrence needs it. */
struct link_into {
    double alpha_ms, token_ms;
    struct hcp_interference beside;
    int disturbs; /* beside is not 1, 1, 0 */
};

/* What the recurrence needs. Tables are [stride][stride] indexed by class. */
struct ring_input {
    int32_t m;
    const int32_t *cls;
    int32_t stride;
    const double *own, *early, *late;
    double (*ask)(const void *ctx, int32_t i, int32_t j); /* instead of early and late */
    const void *ask_ctx;
    const int32_t *hops; /* [m] ranks the KV of each travels on: up to its last reader */
    const double *send_ms; /* [m] transfer of each rank's KV, start-ups included */
    const double *before, *after; /* [m] work around the ring; NULL: none */
    /* Blocks in pieces (no barrier): their number, times of computing and of transfer of
     * the KV of rank j on rank i, valid until the next call. NULL: whole blocks. */
    int32_t (*pieces)(void *ctx, int32_t i, int32_t j, const double **ms,
                      const double **send_ms);
    void *pieces_ctx;
    int buffers, barrier;
    const int32_t *run_end; /* [m] end of the run of equal classes each rank is in */
    int32_t runs;           /* their number; 0: not counted */
    /* Links that differ: [m] that into each rank, transfers its KV is sent in, tokens.
     * NULL: send_ms. busy [m] then receives what is computed. */
    const struct link_into *into;
    const int32_t *starts;
    const int64_t *len;
    /* Where links do not disturb (busy NULL): into and len as arrays of numbers. */
    const double *link_alpha, *link_token, *sent;
    double *busy; /* (the ring's part of it) */
    const int32_t *slots; /* [m] by which each rank's KV is late: for ring_run_late() */
};

/* What ring_run_late() needs, for up to LATE_RANKS ranks. */
struct late_arrays {
    int32_t *turn, *step;  /* [m][m] */
    int32_t *count, *next; /* [m] */
    double *ready, *fin;   /* [m][m] */
};

enum { RING_TILE = 960, RING_ROWS = MAX_BUFFERS / 2 }; /* ring-wide.c */

/* Doubles from one row of m ranks to the next, of which rank 0 is number RING_LEAD: each
 * begins a line of the cache, there is room for one more rank on either side, and rows do
 * not lie a multiple of a page apart, where loads can wait for stores to another row. */
enum { RING_LEAD = 8 };

static inline size_t ring_pitch(int32_t m)
{
    size_t lines = ((size_t)m + 1 + 7) / 8 + 1;

    return 8 * (m < 256 ? lines : (lines + 63 - 13) / 64 * 64 + 13);
}

enum { RINGS_ROWS = 12 }; /* rings.c */

struct ring_arrays {
    double *ready;   /* [MAX_BUFFERS][ring_pitch(m)] */
    double *history; /* [MAX_BUFFERS + 1][ring_pitch(m)] */
    double *step_ms, *step_send; /* [m] */
    double *arrival; /* [m][MAX_SUB_BLOCKS], for pieces alone */
    double *tile;    /* [2 RING_ROWS][ring_pitch(RING_TILE)], for more ranks than that */
    int32_t *came, *buffer; /* [m], for joint splits alone */
    double *outer;          /* [RINGS_ROWS][m], for two levels alone */
    int32_t *turned;        /* [2][m] */
};

/* ring.c: makespan in ms; fin [m]; steps NULL or [m * m], whose ranks are active
 * indices. */
double ring_run(const struct ring_input *in, struct ring_arrays *a, double *fin,
                hcp_step *steps);
/* ring-pieces.c: the same for in->pieces. */
double ring_run_pieces(const struct ring_input *in, struct ring_arrays *a, double *fin,
                       hcp_step *steps);
/* ring-wide.c: loops over many ranks, for the vector registers there are here. What they
 * do is written in ring-lanes.h. */
struct ring_lanes {
    void (*equal)(int32_t n, const double *ready, const double *freed,
                  const double *passed, const double *before, double send, double ms,
                  double *ready_next, double *fin);
    void (*any)(int32_t n, const double *ready, const double *freed, const double *passed,
                const double *before, const double *send, const double *ms,
                double *ready_next, double *fin);
    void (*equal_linked)(int32_t n, const double *ready, const double *freed,
                         const double *passed, const double *before, const double *alpha,
                         const double *token, double len, double ms, double *ready_next,
                         double *fin);
    void (*link)(int32_t n, const double *alpha, const double *token, const double *len,
                 double *send);
    void (*inner)(int32_t n, const double *there, const double *link, const double *freed,
                  const double *passed, const double *before, double send, double ms,
                  double *now, double *fin);
    void (*inner_any)(int32_t n, const double *there, const double *link,
                      const double *freed, const double *passed, const double *before,
                      const double *send, const double *ms, double *now, double *fin);
    void (*look_up)(int32_t n, const double *table, int32_t stride, const int32_t *mine,
                    const int32_t *theirs, double *ms);
    void (*classed)(int32_t n, const double *ready, const double *freed,
                    const double *passed, const double *before, const double *send,
                    const double *table, int32_t stride, const int32_t *mine,
                    const int32_t *theirs, double *ready_next, double *fin);
};
const struct ring_lanes *ring_lanes_here(void);
/* The same recurrence, fast, for inputs that ring_is_wide() says it is for. */
int ring_is_wide(const struct ring_input *in, int *falling);
double ring_run_wide(const struct ring_input *in, struct ring_arrays *a, int falling,
                     double *fin);
/* By how much computing and transfer beside each other stretch block k of rank i, all its
 * pieces alike; alone_of: what a rank computes in a step, alone. */
struct ring_stretch {
    double compute, transfer, overhead_ms;
};
struct ring_stretch ring_stretch_of(const struct ring_input *in, int32_t i, int32_t k,
                                    double (*alone_of)(const struct ring_input *, int32_t,
                                                       int32_t));

/* Where links differ: alone, KV of rank j into rank i; beside what is computed, block k
 * into rank i; block k on rank i, own_ms and peer_ms being what its block k (or k - 1)
 * and that of the rank before take alone. */
double ring_transfer_ms(const struct ring_input *in, int32_t i, int32_t k, double own_ms,
                        double peer_ms);
double ring_compute_ms(const struct ring_input *in, int32_t i, int32_t k, double own_ms,
                       double peer_ms);
/* ring-late.c: the same for in->slots; HUGE_MS: with these buffers it stops. */
double ring_run_late(const struct ring_input *in, const struct late_arrays *a,
                     double *fin, hcp_step *steps);
/* What no order of the blocks can beat, whole blocks: every rank computes what it sees
 * as soon as it can be there with nothing else under way, and the link into it carries
 * all of that. Interference factors are left out. */
double ring_late_bound(const struct ring_input *in, const struct late_arrays *a);
/* Shared by both: the rows of step k, and a step of the report. */
double *ring_ready(const struct ring_input *in, const struct ring_arrays *a, int32_t k);
double *ring_fin(const struct ring_input *in, const struct ring_arrays *a, int32_t k);
void ring_put_step(const struct ring_input *in, hcp_step *steps, int32_t i, int32_t k,
                   double ready, double start, double busy, double fin, double wait);

#endif
