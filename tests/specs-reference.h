/* SPDX-License-Identifier: Apache-2.0
 *
 * A second way from a kin's table to the times of a data sheet, written from
 * planner/specs.md and the arrays of fit/model-internal.h, sharing no code with planner/.
 */
#ifndef SPECS_REFERENCE_H
#define SPECS_REFERENCE_H
#include <stdint.h>

/* A device under a limit, as a sheet has it. */
struct ref_device {
    double tflops, gbps; /* of the whole device */
    int sms, used;       /* SMs it has, and those under the limit */
};

struct ref_shape {
    int heads, kv_heads, head_dim, batch, element, decode;
    int tile_q;
    int ctas, sm_known; /* waves are counted where both are not 0 */
    double rho, lambda, first;
};

/* Query tokens that whole waves of q tokens would be; 0: waves are not counted. */
double ref_wave_tokens(const struct ref_shape *s, int sms, double q);
/* Part of the memory's bandwidth that a part of the SMs reaches. */
double ref_bandwidth_part(double part);
/* ms[nq][nkv] of a kin at lengths q and kv, in place. */
void ref_grid(const struct ref_shape *s, const struct ref_device *kin,
              const struct ref_device *target, int nq, int nkv, const double *q,
              const double *kv, double *ms);
/* ms[n] of causal squares, in place. */
void ref_squares(const struct ref_shape *s, const struct ref_device *kin,
                 const struct ref_device *target, int n, const double *len, double *ms);
/* Coefficients of a regression, in place; longest: keys of the longest decode. */
void ref_terms(const struct ref_shape *s, const struct ref_device *kin,
               const struct ref_device *target, double longest, double full[8],
               double square[6]);

#endif
