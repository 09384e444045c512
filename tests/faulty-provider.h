/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu-blas with one fault or one habit of another provider: what conformance must
 * find, and what hcp_attention must even out.
 */
#ifndef HCP_FAULTY_PROVIDER_H
#define HCP_FAULTY_PROVIDER_H
#include "kernels/provider.h"

typedef enum hcp_fault {
    FAULT_NONE,
    /* faults */
    FAULT_LSE,        /* L too large by 1e-3 */
    FAULT_O,          /* one element in 50 off by a quarter */
    FAULT_DIAG,       /* one key too many under a mask */
    FAULT_UNWRITTEN,  /* leaves the last row as it was */
    FAULT_OUTSIDE,    /* writes one element past the last row */
    FAULT_GAP,        /* writes between rows */
    FAULT_RANDOM,     /* other low bits each time */
    FAULT_OVERWRITES, /* forgets the running state */
    FAULT_LENGTHS,    /* runs the plan's length when a shorter one is asked for */
    FAULT_READS_GAP,  /* what lies between rows of K gets into O, times 0 */
    FAULT_LOST_NAN,   /* a row of NaN becomes one that sees no key */
    FAULT_ERROR,      /* run() fails */
    FAULT_REFUSE,     /* query() says no to everything */
    N_FAULTS,
    /* habits */
    HABIT_LOG2,      /* L in base 2 */
    HABIT_PARTIAL,   /* does not accumulate */
    HABIT_CORNER,    /* bottom-right causal only */
    HABIT_HALF,      /* O in the dtype of the inputs only */
    HABIT_ALL,       /* all of these */
    HABIT_WORKSPACE, /* wants 100 bytes of workspace, and uses them */
    N_HABITS
} hcp_fault;

/* One at a time. Counts calls of run(). */
const hcp_provider *hcp_faulty_provider(hcp_fault fault);
extern int hcp_faulty_runs;

#endif
