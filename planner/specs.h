/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: GPUs that nobody has profiled. specs.c reads the table of data
 * sheets, estimate.c makes models of its GPUs from those of measured kin.
 */
#ifndef HCP_SPECS_H
#define HCP_SPECS_H
#include "planner/plan.h"

#define SPEC_PREFIX "spec:"
enum { SPECS_MAX = 1024 }; /* lines of a table */

struct hcp_specs {
    char path[512];
    hcp_spec *spec;
    size_t n;
};

/* What stands behind "spec:" in a device's name, or NULL. */
const char *specs_name(const char *device);
/* Reads a table from memory; path names it in errors. *out is malloc'ed. */
hcp_status specs_parse(const char *text, size_t length, const char *path, char *error,
                       size_t error_size, hcp_specs **out);
/* The line with this name, or alias, or NULL. */
const hcp_spec *specs_find(const hcp_specs *specs, const char *name);
/* HCP_STATUS_NO_MODEL: there is no such name, and which are like it. */
hcp_status specs_unknown(const hcp_specs *specs, const char *name, char *text,
                         size_t text_size);
/* A copy, or NULL without memory. */
hcp_specs *specs_copy(const hcp_specs *specs);

/* The SMs an MPS percentage leaves: whole pairs of those of the H200's ten levels. */
int32_t estimate_mps_sms(int32_t sms, int32_t percent);
/* Of the memory's bandwidth that a part of the SMs reaches. */
double estimate_bandwidth_part(double part);
/* seen: the SMs that were seen under the limit, 0 unknown. 0, or -1: a limit of another
 * kind, more SMs than it has, or no such dtype (0 TFLOP/s). */
int estimate_resources(const hcp_spec *spec, const char *limit, int32_t seen,
                       const char *dtype, struct resources *out);

/* Sets spec and resources of a stored model's arrays. */
void estimate_know(const hcp_specs *specs, const struct hcp_key *key,
                   struct stored_arrays *arrays);

/* A model whose times are those of another's arrays on other resources, bit for bit the
 * same on every machine. factor: its error bars are that much wider. */
int estimate_scale(const struct hcp_model_row *row, const struct hcp_named_array *arrays,
                   size_t n, const struct resources *kin, const struct resources *target,
                   double factor, hcp_model **out, uint64_t *hash, struct hcp_err *err);

/* The times that rank r of a ring being made is to be estimated from, into b->model, hash
 * and estimate. */
hcp_status estimate_bind(struct hcp_ring *ring, size_t r, char *text, size_t text_size);
/* What is wrong with a rank of a data sheet that can be said before kernels are chosen.
 */
hcp_status estimate_check(const struct hcp_models *models, const hcp_shape *shape,
                          const hcp_rank *rank, size_t r, char *text, size_t text_size);
/* HCP_STATUS_NO_MODEL: nothing that is measured is kin of a rank. */
hcp_status estimate_none(const struct hcp_models *models, const hcp_shape *shape,
                         const hcp_rank *rank, size_t r, const char *provider, char *text,
                         size_t text_size);
/* "DEVICE[@LIMIT]" of a rank's kin, "" where it is measured; the rest 0. */
void estimate_kin_name(const struct hcp_ring *ring, size_t rank, char out[96]);
/* The measured rank that stands for it with a kernel (NULL: any), its speed over that of
 * the kin in *speed; NULL: there is none. */
const struct hcp_key *estimate_kin(const struct hcp_models *models,
                                   const hcp_shape *shape, const hcp_rank *rank,
                                   const char *provider, double *speed);

#endif
