/* SPDX-License-Identifier: Apache-2.0
 *
 * Which providers there are on a device, in order of preference: user plug-in,
 * cuDNN, built-in CUDA kernels, CPU. The registry hides what the capability bits
 * say differs between them: hcp_attention_* below always gives natural-log L,
 * (0, -inf) for empty rows, any diag, fp32 partials, and merges where a provider
 * cannot accumulate.
 */
#ifndef HCP_REGISTRY_H
#define HCP_REGISTRY_H
#include "kernels/provider.h"
#include "kernels/runtime.h"

typedef struct hcp_registry hcp_registry;

/* Opens the providers usable on device. plugin_path NULL or a shared object
 * (dlopened; wrong ABI, missing symbol: HCP_RC_INVALID with the reason in err). */
int hcp_registry_open(const hcp_device_ref *device, const char *plugin_path,
                      hcp_registry **out, char *err, size_t err_size);
void hcp_registry_close(hcp_registry *registry);
size_t hcp_registry_count(const hcp_registry *registry);
const hcp_provider *hcp_registry_at(const hcp_registry *registry, size_t i);

/* First provider that supports the problem (name NULL), or the named one.
 * NULL and one line in why (naming each refusal) when there is none. */
const hcp_provider *hcp_registry_pick(const hcp_registry *registry, const char *name,
                                      const hcp_attn_problem *problem,
                                      hcp_attn_support *support, char *why, size_t why_size);

/* Dense [batch][head][token][head_dim] strides for a problem whose lengths are set. */
void hcp_problem_set_dense_strides(hcp_attn_problem *problem);

/* Built-in providers; NULL where the build lacks them. */
const hcp_provider *hcp_provider_cpu(void);            /* "cpu-blas" */
const hcp_provider *hcp_provider_cuda_reference(void); /* "cuda-reference" */
const hcp_provider *hcp_provider_cudnn(void);          /* "cudnn" */

/* A normalised attention step: one provider plan, plus merge pass and scratch
 * where the provider needs them. The problem's out_dtype is fp32. PARTIAL blocks
 * with a provider that has no HCP_CAP_DIAG are covered by two calls. */
typedef struct hcp_attention hcp_attention;
int hcp_attention_create(const hcp_provider *provider, const hcp_runtime *runtime,
                         const hcp_device_ref *device, const hcp_attn_problem *problem,
                         hcp_attention **out, char *err, size_t err_size);
int hcp_attention_run(hcp_attention *attention, const hcp_attn_args *args, void *stream);
void hcp_attention_destroy(hcp_attention *attention);

#endif
