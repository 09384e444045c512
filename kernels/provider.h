/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention provider ABI, version 1. A provider is one attention kernel family:
 * built in, loaded from a vendor's library, or a user's plug-in (a shared object
 * that exports hcp_provider_get). C only; every struct that crosses the boundary
 * begins with its size so that it can grow; sizes and strides are int64.
 *
 * Rules: return codes, never abort or exit; no allocation, no host
 * synchronisation and no global state in run(); run() is asynchronous on the
 * given stream (CPU providers: done on return, stream is NULL).
 *
 * Growth: within an ABI version fields are appended only, and 0 in a new one means
 * what its absence meant. Structs come from the host, zeroed beyond what it sets; a
 * provider refuses one whose size is below its own sizeof, reads and writes no more
 * than its own sizeof of a larger one, and leaves size as it is. The host refuses a
 * table below its own sizeof. Anything else is a new HCP_PROVIDER_ABI.
 *
 * The caller keeps to this: the device is the thread's current one in every call of a
 * CUDA provider; a plan is used by one thread at a time, different plans by any; a plan
 * is destroyed after the work that it has queued. Pointers of Q, K, V and O are 16-byte
 * aligned whenever the tensor's strides are multiples of 16 bytes; L and the workspace
 * are always.
 */
#ifndef HCP_PROVIDER_H
#define HCP_PROVIDER_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HCP_PROVIDER_ABI 1
#define HCP_PROVIDER_SYMBOL "hcp_provider_get"

typedef enum hcp_dtype { HCP_BF16 = 0, HCP_FP16 = 1, HCP_FP32 = 2 } hcp_dtype;
typedef enum hcp_device_kind { HCP_DEVICE_CPU = 1, HCP_DEVICE_CUDA = 2 } hcp_device_kind;

typedef enum hcp_rc {
    HCP_RC_OK = 0,
    HCP_RC_UNSUPPORTED = 1, /* query() said no, or should have */
    HCP_RC_INVALID = 2,     /* arguments contradict the problem */
    HCP_RC_NO_MEMORY = 3,
    HCP_RC_DEVICE = 4, /* the device or its library reported an error */
    HCP_RC_MISSING = 5 /* a library this provider needs is not there */
} hcp_rc;

typedef struct hcp_device_ref {
    size_t size;
    int32_t kind;    /* hcp_device_kind */
    int32_t ordinal; /* CUDA device ordinal in this process; 0 for the CPU */
    int32_t cc_major, cc_minor;
    int32_t sm_count; /* SMs this process can use (limiter applied); CPU: threads */
} hcp_device_ref;

/* Capability bits, answered by query(). The host normalises what differs. */
enum {
    HCP_CAP_LSE_LOG2 = 1u << 0,        /* L in base 2; otherwise natural log */
    HCP_CAP_EMPTY_POS_INF = 1u << 1,   /* empty row gives L = +inf; otherwise -inf */
    HCP_CAP_EMPTY_UNDEFINED = 1u << 2, /* empty row: O and L undefined */
    HCP_CAP_OUT_FP32 = 1u << 3,        /* O can be written as fp32; otherwise in dtype */
    HCP_CAP_ACCUMULATE = 1u << 4,      /* can merge into the running (O, L) in one pass */
    HCP_CAP_DIAG = 1u << 5,            /* any diag >= 0, also at run time; otherwise
                                        * diag = kv_len - q_len only */
    HCP_CAP_DYNAMIC_LEN = 1u << 6,     /* run() may use smaller q_len and kv_len than the
                                        * plan's, with the plan's strides */
    HCP_CAP_DETERMINISTIC = 1u << 7,   /* same input, same bits */
    HCP_CAP_NAN_ROWS = 1u << 8         /* a row whose scores are NaN gets NaN in O and L;
                                        * otherwise undefined */
};

/* One block problem. Tensors are [batch][head][token][head_dim] addressed through
 * strides in elements; the head_dim axis is contiguous. KV has kv_heads heads;
 * query head h reads KV head h / (heads / kv_heads); KV is never expanded. */
typedef struct hcp_attn_problem {
    size_t size;
    int64_t batch, q_len, kv_len, heads, kv_heads, head_dim;
    int32_t dtype;     /* hcp_dtype of Q, K, V */
    int32_t out_dtype; /* hcp_dtype of O; HCP_FP32 needs HCP_CAP_OUT_FP32 */
    int32_t causal;    /* 0: every row sees every key. 1: row i sees keys j <= i + diag */
    int32_t accumulate; /* 1: O, L hold the running state and receive the merged one */
    int64_t diag;       /* >= 0; only with causal */
    double scale;       /* applied to Q.K^T, usually 1/sqrt(head_dim) */
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3]; /* batch, head, token */
} hcp_attn_problem;

typedef struct hcp_attn_support {
    size_t size;
    int32_t supported; /* 1 yes, 0 no */
    uint32_t caps;     /* HCP_CAP_* for this problem */
    int64_t workspace_bytes;
    int64_t tile_q, tile_kv; /* lengths are rounded up to these; 0 = not known */
    char reason[160];        /* why not, one line; empty when supported */
} hcp_attn_support;

/* Arguments of one run. L is fp32 [batch][head][q_len] with this q_len, contiguous.
 * O is normalised; (O, L) of an empty row is (0, -inf) after normalisation. */
typedef struct hcp_attn_args {
    size_t size;
    const void *q, *k, *v;
    void *o;
    float *lse;
    void *workspace;
    int64_t q_len, kv_len, diag; /* differ from the plan only with DYNAMIC_LEN / DIAG */
} hcp_attn_args;

typedef struct hcp_attn_plan hcp_attn_plan; /* each provider's own */

typedef struct hcp_provider {
    size_t size;
    uint32_t abi;                 /* HCP_PROVIDER_ABI */
    uint32_t device_kinds;        /* OR of hcp_device_kind */
    const char *name;             /* slug: "cudnn", "cpu-blas" */
    const char *(*version)(void); /* of the kernel or its library, e.g. "9.14.0" */

    /* Answers without side effects visible to the caller. HCP_RC_OK with
     * out->supported = 0 and a reason is the ordinary "no". */
    int (*query)(const hcp_device_ref *device, const hcp_attn_problem *problem,
                 hcp_attn_support *out);
    int (*plan_create)(const hcp_device_ref *device, const hcp_attn_problem *problem,
                       hcp_attn_plan **out);
    int (*run)(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream);
    void (*plan_destroy)(hcp_attn_plan *plan); /* accepts NULL */
    /* One line saying what this plan runs (engine, tiles, splits). */
    int (*describe)(const hcp_attn_plan *plan, char *text, size_t text_size);
} hcp_provider;

/* The one symbol a plug-in exports, whatever visibility it is compiled with.
 * Returns NULL if it cannot serve abi. */
__attribute__((visibility("default"))) const hcp_provider *hcp_provider_get(uint32_t abi);
typedef const hcp_provider *(*hcp_provider_get_fn)(uint32_t abi);

#ifdef __cplusplus
}
#endif
#endif
