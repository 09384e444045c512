/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN behind the "cudnn" provider: the library loaded at run time, and the
 * attention graph built with its backend API. Internal to libhcpcuda.a, apart from
 * the test that builds graphs for a described device on machines without a GPU.
 */
#ifndef HCP_CUDNN_GRAPH_H
#define HCP_CUDNN_GRAPH_H
#include <cudnn.h>
#include "kernels/provider.h"

typedef struct hcp_cudnn_api {
    __typeof__(cudnnGetVersion) *get_version;
    __typeof__(cudnnGetErrorString) *error_string;
    __typeof__(cudnnGetLastErrorString) *last_error_string;
    __typeof__(cudnnCreate) *create;
    __typeof__(cudnnDestroy) *destroy;
    __typeof__(cudnnSetStream) *set_stream;
    __typeof__(cudnnBackendCreateDescriptor) *create_descriptor;
    __typeof__(cudnnBackendDestroyDescriptor) *destroy_descriptor;
    __typeof__(cudnnBackendSetAttribute) *set_attribute;
    __typeof__(cudnnBackendGetAttribute) *get_attribute;
    __typeof__(cudnnBackendFinalize) *finalize;
    __typeof__(cudnnBackendExecute) *execute;
    size_t version; /* 91400 = 9.14.0 */
    char version_text[24];
} hcp_cudnn_api;

/* The library, loaded once for the process and never unloaded (its destructors and
 * CUDA's do not agree on an order): $HCP_CUDNN if set, else libcudnn.so.9 from the
 * loader's path, else from the CUDA directory of the build. NULL with one line in
 * why (NULL allowed) when it is missing or too old; the answer stays the same.
 * Thread-safe. */
const hcp_cudnn_api *hcp_cudnn_load(char *why, size_t why_size);

/* A cuDNN handle on the device, for one thread at a time. Handles that are given back
 * are kept (some, for the life of the process): a handle remembers the kernels that
 * it compiled, which is most of the time of building a plan. Thread-safe. Status as
 * cudnnCreate's; the caller has selected the device, for giving back too, and no
 * graph of the handle is left by then. */
cudnnStatus_t hcp_cudnn_take_handle(const hcp_cudnn_api *api, int device,
                                    cudnnHandle_t *out);
void hcp_cudnn_give_handle(const hcp_cudnn_api *api, int device, cudnnHandle_t handle);

/* Tensors of the graph that run() binds. */
enum {
    HCP_CUDNN_Q = 1,
    HCP_CUDNN_K,
    HCP_CUDNN_V,
    HCP_CUDNN_O,
    HCP_CUDNN_STATS,
    HCP_CUDNN_SCALE,    /* host float */
    HCP_CUDNN_NEG_INF,  /* host float, causal only */
    HCP_CUDNN_DIAGONAL, /* host int32, causal only */
    HCP_CUDNN_ONE_PAST
};

/* A graph, its engine configurations, its plan once built, and every descriptor it stands
 * on. */
typedef struct hcp_cudnn_graph hcp_cudnn_graph;

/* Where a graph runs: a handle, or a finalised device-properties descriptor. */
typedef struct hcp_cudnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device;
} hcp_cudnn_target;

/* Makes the attention graph (bf16 or fp16 in and out, statistics in natural log and
 * fp32) for problem, masked by a run-time diagonal if causal, and asks the heuristic
 * (mode A) for engines. HCP_RC_UNSUPPORTED if it knows none or says so; HCP_RC_DEVICE
 * if the library fails; both with the step and the library's words in why. */
int hcp_cudnn_graph_create(const hcp_cudnn_api *api, hcp_cudnn_target target,
                           const hcp_attn_problem *problem, int causal,
                           hcp_cudnn_graph **out, char *why, size_t why_size);

/* Finalises the first engine configuration that builds and needs no more than
 * max_workspace bytes as the graph's plan (compiles a kernel: needs a driver).
 * HCP_RC_UNSUPPORTED if none does; HCP_RC_DEVICE if one failed for another reason than
 * that it does not serve this graph or GPU. Call once. */
int hcp_cudnn_graph_build(hcp_cudnn_graph *graph, int64_t max_workspace, char *why,
                          size_t why_size);

void hcp_cudnn_graph_destroy(hcp_cudnn_graph *graph);

/* The plan and the bytes of workspace that it needs; before build NULL and what the
 * heuristic's first choice would need. */
cudnnBackendDescriptor_t hcp_cudnn_graph_plan(const hcp_cudnn_graph *graph);
int64_t hcp_cudnn_graph_workspace(const hcp_cudnn_graph *graph);
/* "engine 2 (config 1 of 2), knobs 24=7": of the plan, or of the heuristic's first
 * choice before build. */
const char *hcp_cudnn_graph_text(const hcp_cudnn_graph *graph);

#endif
