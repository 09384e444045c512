/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a provider compute attention on this device? Test shapes, bounds and
 * invariances of block attention, run through hcp_attention_* against fp64.
 *
 * Of each case every output element is checked to be written, finite and inside its
 * row (outputs are poisoned with NaN, gaps and margins must keep the poison; those of
 * the inputs are NaN too, so that what is read there shows), each
 * case runs twice (bitwise equal where the provider says DETERMINISTIC), and as many
 * rows as fit into a fixed amount of work are compared with fp64: all of a small
 * case; of a large one the edges of the mask and of tiles and a random sample.
 *
 * Bounds: relative Frobenius error of O 4e-3 bf16, 5e-4 fp16, 2e-5 fp32, and 2^-22
 * times the size of the scores where these lie far from zero (a score's rounding to
 * fp32 is a relative error of its weight);
 * |L - Lref| <= 1e-4 + 1e-5 |Lref|; a row without keys exactly (0, -inf). A sequence
 * processed in blocks: 1.5 times the error of the single pass with fp32 partials, 3
 * times with others.
 */
#ifndef HCP_CONFORMANCE_H
#define HCP_CONFORMANCE_H
#include "kernels/registry.h"

/* Quick: under a second, before anything is timed. Full: every test shape, below a
 * minute on a CPU core. HUGE may be added to either: tensors over 2^31 elements
 * (13 GiB on the device). SMALL may be added to FULL: no rectangle longer than 129,
 * for sanitizers. So may SAMPLED: a quarter of the diagonals of each rectangle longer
 * than 129 (with SMALL: of each at all), so that every pair of lengths and every
 * diagonal with every length remain; the smaller of the head counts and dimensions on
 * large ones; every other ring. For devices as slow as one core. THREADS may be added to
 * any: cases run side by side in a few threads (huge ones alone), for a provider whose
 * plans may be made and run by different threads at a time. */
enum {
    HCP_CONFORMANCE_QUICK = 0,
    HCP_CONFORMANCE_FULL = 1,
    HCP_CONFORMANCE_HUGE = 2,
    HCP_CONFORMANCE_SMALL = 4,
    HCP_CONFORMANCE_SAMPLED = 8,
    HCP_CONFORMANCE_THREADS = 16
};

typedef enum hcp_outcome {
    HCP_CASE_PASSED = 0,
    HCP_CASE_REFUSED = 1, /* the provider says that it does not do this; why is in text */
    HCP_CASE_FAILED = 2
} hcp_outcome;

typedef struct hcp_conformance_case {
    char name[128]; /* "bf16 28/4 d128 65x1000 causal diag 63" */
    hcp_outcome outcome;
    double o_error;   /* relative Frobenius, of the rows compared */
    double lse_error; /* largest |L - Lref| / (1e-4 + 1e-5 |Lref|): at most 1 */
    int64_t rows_compared;
    char text[256]; /* what is wrong, or why refused; empty when passed */
} hcp_conformance_case;

typedef void (*hcp_conformance_fn)(const hcp_conformance_case *result, void *user);

typedef struct hcp_conformance_summary {
    int64_t passed, refused, failed;
    double worst_o_error[3]; /* by hcp_dtype */
    double worst_lse_error;
    char first_failure[400]; /* "name: text" */
} hcp_conformance_summary;

/* Runs the level's cases; report (NULL allowed) hears of each, in their order, one call
 * at a time, as soon as it and those before it have ended. A summary with failures is
 * still HCP_RC_OK; anything else means that the device or memory gave out, with one line
 * in err. */
int hcp_conformance_run(const hcp_provider *provider, const hcp_runtime *runtime,
                        const hcp_device_ref *device, int level,
                        hcp_conformance_fn report, void *user,
                        hcp_conformance_summary *out, char *err, size_t err_size);

/* One case: a problem as for hcp_attention_create() (any diag, any strides), random
 * normal inputs. For a check of the very class of cell that is timed next. */
int hcp_conformance_problem(const hcp_provider *provider, const hcp_runtime *runtime,
                            const hcp_device_ref *device, const hcp_attn_problem *problem,
                            hcp_conformance_case *out, char *err, size_t err_size);

#endif
