/* SPDX-License-Identifier: Apache-2.0
 *
 * Which providers there are on a device (user plug-in, cuDNN, built-in CUDA kernels,
 * CPU) and which is preferred for a shape (preference.h). The registry hides what the
 * capability bits say differs between them: hcp_attention_* below always gives
 * natural-log L, (0, -inf) for empty rows, any diag, fp32 partials, and merges where a
 * provider cannot accumulate.
 */
#ifndef HCP_REGISTRY_H
#define HCP_REGISTRY_H
#include "kernels/provider.h"
#include "kernels/runtime.h"

typedef struct hcp_registry hcp_registry;

/* One line for an hcp_rc. */
const char *hcp_rc_text(int rc);

/* Opens the providers usable on device: the plug-in, then the built-in ones, in the
 * order of preference where nothing was measured. plugin_path NULL or a shared object;
 * a plug-in that cannot be loaded or does not serve the device is an error
 * (HCP_RC_INVALID, _MISSING or _UNSUPPORTED with the reason in err), never passed over
 * in silence.
 * In a build with CUDA, programs that call this link libhcpcuda.a. */
int hcp_registry_open(const hcp_device_ref *device, const char *plugin_path,
                      hcp_registry **out, char *err, size_t err_size);

/* The same with the built-ins given: constructors that may return NULL. Needs
 * nothing beyond libhcpkernels.la (hcp_registry_open() is in an object of its own,
 * builtins.c, the one place that lists them all). */
typedef const hcp_provider *(*hcp_provider_ctor)(void);
int hcp_registry_open_with(const hcp_device_ref *device,
                           const hcp_provider_ctor *builtins, size_t n,
                           const char *plugin_path, hcp_registry **out, char *err,
                           size_t err_size);
void hcp_registry_close(hcp_registry *registry);
size_t hcp_registry_count(const hcp_registry *registry);
const hcp_provider *hcp_registry_at(const hcp_registry *registry, size_t i);

/* The i-th in order of preference for the problem: the plug-in, what was measured to be
 * best for such problems on such a device, then the others as hcp_registry_at(). NULL
 * from i = count on. */
const hcp_provider *hcp_registry_ranked(const hcp_registry *registry,
                                        const hcp_attn_problem *problem, size_t i);

/* First provider in that order that hcp_attention_create() can serve the problem with
 * (name NULL), or the named one; support as by hcp_attention_probe(). NULL and one line
 * in why (naming each refusal) when there is none. */
const hcp_provider *hcp_registry_pick(const hcp_registry *registry, const char *name,
                                      const hcp_attn_problem *problem,
                                      hcp_attn_support *support, char *why,
                                      size_t why_size);

/* Dense [batch][head][token][head_dim] strides for a problem whose lengths are set. */
void hcp_problem_set_dense_strides(hcp_attn_problem *problem);

/* Built-in providers; NULL where the build lacks them. */
const hcp_provider *hcp_provider_cpu(void);            /* "cpu-blas" */
const hcp_provider *hcp_provider_cuda_reference(void); /* "cuda-reference" */
const hcp_provider *hcp_provider_cudnn(void);          /* "cudnn" */
const hcp_provider *hcp_provider_cuda_wgmma(void);     /* "cuda-wgmma", Hopper */
const hcp_provider *hcp_provider_cuda_mma(void);       /* "cuda-mma", 8.0 and newer */
const hcp_provider *hcp_provider_cuda_decode(void);    /* "cuda-decode" */

/* A normalised attention step: one provider plan or two, plus merge pass and
 * scratch where the provider needs them. The problem's out_dtype is fp32 and its
 * diag any int64: EMPTY blocks launch nothing of the provider, rows that see no key
 * are dropped before it and get (0, -inf) (kept as they are with accumulate), and
 * PARTIAL blocks of a provider without HCP_CAP_DIAG are covered by two calls. One
 * step serves one block shape and one thread at a time. */
typedef struct hcp_attention hcp_attention;

/* Whether and how create() could serve the problem: the provider's answer for its
 * own part (caps, tiles, workspace; no part: supported, caps 0). */
int hcp_attention_probe(const hcp_provider *provider, const hcp_device_ref *device,
                        const hcp_attn_problem *problem, hcp_attn_support *out);
int hcp_attention_create(const hcp_provider *provider, const hcp_runtime *runtime,
                         const hcp_device_ref *device, const hcp_attn_problem *problem,
                         hcp_attention **out, char *err, size_t err_size);

/* Workspace and partial results that several steps share, so that a ring of many block
 * shapes holds that of its largest step and not of all together. It grows as steps are
 * created with it and never shrinks. The steps run one after the other: on one stream,
 * from one thread at a time, of one device; none is in flight while another is created
 * (what it uses may move). Freed after the last of them. */
typedef struct hcp_attention_scratch hcp_attention_scratch;
int hcp_attention_scratch_new(const hcp_runtime *runtime, hcp_attention_scratch **out);
int64_t hcp_attention_scratch_bytes(const hcp_attention_scratch *scratch); /* held now */
void hcp_attention_scratch_free(hcp_attention_scratch *scratch); /* accepts NULL */

/* What create() takes as 0. lse_pitch is for rows of a larger shard: L of row (b, h, i)
 * is at (b*heads + h)*lse_pitch + i floats from args->lse; at least q_len, 0 is q_len.
 * Rows of L between the heads are neither read nor written. scratch NULL: the step has
 * its own; else it was made for the same runtime. */
typedef struct hcp_attention_options {
    int64_t lse_pitch;
    hcp_attention_scratch *scratch;
} hcp_attention_options;

/* create() with options (NULL: none). HCP_RC_NO_MEMORY where shared scratch cannot grow:
 * run() of steps that had used it may then return that too. */
int hcp_attention_create_with(const hcp_provider *provider, const hcp_runtime *runtime,
                              const hcp_device_ref *device,
                              const hcp_attn_problem *problem,
                              const hcp_attention_options *options, hcp_attention **out,
                              char *err, size_t err_size);

/* 1: the provider's O, of the whole block or a part, goes to scratch, and run() brings it
 * to the caller's by the runtime's finish(): stored, or merged with accumulate. 0: the
 * provider writes or updates O itself (L, and rows that see no key, may still be
 * finish()'s). A cost beside the provider's own that grows with q_len. */
int hcp_attention_finishes(const hcp_attention *attention);

/* args: lengths and diag as in the problem (else HCP_RC_INVALID); workspace is
 * ignored, the step has scratch; Q, K, V and O are aligned as provider.h says, L as a
 * float. O and L are written, or with accumulate updated. */
int hcp_attention_run(hcp_attention *attention, const hcp_attn_args *args, void *stream);

/* One line: what runs (the provider's describe() and what is added to it). */
int hcp_attention_describe(const hcp_attention *attention, char *text, size_t text_size);
void hcp_attention_destroy(hcp_attention *attention); /* accepts NULL */

#endif
