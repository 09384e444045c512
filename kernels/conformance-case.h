/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the conformance set: tensors with margins, one case, one ring.
 */
#ifndef HCP_CONFORMANCE_CASE_H
#define HCP_CONFORMANCE_CASE_H
#include "kernels/conformance.h"

/* Scores: about normal; about -200 +- 10 (so that L < -100); the same above zero. */
enum { CF_FAR_SCORE = 200 };
typedef enum cf_inputs { CF_NORMAL, CF_LOW_SCORES, CF_HIGH_SCORES } cf_inputs;

typedef struct cf_spec {
    hcp_attn_problem problem;
    cf_inputs inputs;
    /* 1: the provider alone, without hcp_attention: a plan for the problem is run
     * with these lengths and this diag (HCP_CAP_DYNAMIC_LEN, HCP_CAP_DIAG). */
    int direct;
    int64_t run_q, run_kv, run_diag;
    int64_t nan_row;   /* this row of Q (heads x tokens, from 1; 0: none) has a NaN */
    const char *label; /* what is special, "" if nothing */
} cf_spec;

/* One conformance run on one device. */
typedef struct cf_context {
    const hcp_provider *provider;
    const hcp_runtime *runtime;
    const hcp_device_ref *device;
    void *stream;
    float *pool;     /* normal numbers that inputs are cut from */
    double *scratch; /* of hcp_reference_row(), grown as needed */
    int64_t scratch_n;
    char *err;
    size_t err_size;
} cf_context;

/* A device tensor with a margin of poison on both sides, and its image on the host. */
typedef struct cf_tensor {
    char *device_base, *host_base;
    void *device, *host; /* behind the margin; host NULL without an image */
    int64_t bytes;
} cf_tensor;

enum { CF_POOL = 1000003, CF_MARGIN = 256, CF_POISON = 0xff };

int cf_open(cf_context *c, const hcp_provider *provider, const hcp_runtime *runtime,
            const hcp_device_ref *device, char *err, size_t err_size);
void cf_close(cf_context *c);

/* rc with one line in the context's err unless rc is HCP_RC_OK. */
int cf_check(cf_context *c, int rc, const char *doing);

/* host: 1 with a host image. The contents are poison on both sides. */
int cf_tensor_alloc(cf_context *c, cf_tensor *t, int64_t bytes, int host);
void cf_tensor_free(cf_context *c, cf_tensor *t);
int cf_upload(cf_context *c, cf_tensor *t);
/* Copies back; *intact = 0 if a margin was written to. */
int cf_download(cf_context *c, cf_tensor *t, int *intact);

/* Whether n bytes of a host image still are what they were filled with. */
int cf_is_poison(const void *bytes, int64_t n);

/* Elements from the first to the last of a strided tensor. */
int64_t cf_extent(const int64_t stride[3], int64_t batch, int64_t heads, int64_t len,
                  int64_t head_dim);
/* Q, K, V of a problem, allocated, filled from seed and uploaded; NaN between padded
 * rows. */
int cf_make_inputs(cf_context *c, const hcp_attn_problem *p, cf_inputs kind,
                   uint64_t seed, cf_tensor qkv[3]);

/* Scratch of hcp_reference_row() for this problem; NULL without memory. */
double *cf_reference_scratch(cf_context *c, const hcp_attn_problem *p);

/* Bound of kernels' relative Frobenius error for a dtype and kind of inputs. */
double cf_o_bound(int32_t dtype, cf_inputs kind);

/* Writes the case's name. */
void cf_name(const cf_spec *spec, char *text, size_t size);

/* Marks the case failed with a text, unless it has failed already. */
void cf_fail(hcp_conformance_case *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What a run came to: a device error ends the set (returned), others fail the case. */
int cf_run_result(cf_context *c, int rc, hcp_conformance_case *out);

/* Runs one case. A code other than HCP_RC_OK: device or memory gave out. */
int cf_run_case(cf_context *c, const cf_spec *spec, hcp_conformance_case *out);

/* A sequence cut into Q shards and KV blocks, the blocks of each shard merged in an
 * order of their own, against the single pass. lengths end with -1. */
typedef struct cf_ring {
    hcp_attn_problem problem; /* the whole: q_len = kv_len */
    const int64_t *q_lengths, *kv_lengths;
    uint64_t order; /* 0: as they lie; else the seed of a permutation */
    const char *label;
} cf_ring;
int cf_run_ring(cf_context *c, const cf_ring *ring, hcp_conformance_case *out);

/* A tensor over 2^31 elements: Q and O (which = 0), K and V (1). */
int cf_run_huge(cf_context *c, int which, hcp_conformance_case *out);

#endif
