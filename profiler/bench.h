/* SPDX-License-Identifier: Apache-2.0
 *
 * What timing a cell needs on any real device: the provider, its plans, and inputs
 * laid out so that every run reads memory that the caches no longer hold.
 */
#ifndef HCP_BENCH_H
#define HCP_BENCH_H
#include "kernels/gemm.h"
#include "kernels/registry.h"
#include "profiler/device.h"

/* Plan of one cell. */
struct hcp_bench_plan {
    int causal;
    int64_t q_len, kv_len;
    int ready;             /* 0: this entry is free */
    int finish;            /* hcp_finish_kind: the pass alone, or what `without` says */
    int32_t seqs;          /* batch */
    hcp_gemm_shape linear; /* n_out > 0: this product and no attention */
    hcp_finish job;        /* as hcp_attention issues it, but for the pointers */
    int64_t job_bytes;     /* one set of its fp32 data in the bench's state, O first */
    int64_t lse_at, lse_part_at;
    int64_t part_at; /* partial O in that set; -1: it has set_bytes of the pool */
    hcp_attn_problem problem;
    hcp_attn_support support;
    hcp_attn_plan *plan;
    /* Merge of a kernel that accumulates: the same block stored. What a run of plan takes
     * longer is measured; leave_out: runs are those of without. */
    hcp_attn_plan *without;
    int leave_out;
    int64_t set_bytes;  /* one set of Q, K, V in the pool */
    int64_t sets;       /* distinct sets the pool holds; runs go round them */
    int64_t k_at, v_at; /* offsets in a set; of a product, k_at is W's */
    int by_graph;       /* the device's note how visits time it: 0 not chosen, 1, -1 no */
};

enum { HCP_BENCH_PLANS = 16 };

struct hcp_bench {
    const hcp_runtime *runtime;
    hcp_device_ref device;
    hcp_registry *registry;
    const hcp_provider *provider; /* NULL: gemm's products are timed */
    hcp_gemm *gemm;
    hcp_attn_problem shape; /* with the lengths that the phase's kernel is chosen for */
    void *stream;
    int64_t cold_bytes; /* runs go round at least this much input */
    char *pool;         /* random normal numbers of the shape's dtype */
    int64_t pool_bytes;
    void *o, *workspace;
    float *lse;
    int64_t o_bytes, lse_bytes, workspace_bytes;
    float *state; /* random normal numbers: what finish passes store to and merge */
    int64_t state_bytes;
    uint64_t turn;                                /* runs so far: which set is next */
    struct hcp_bench_plan plans[HCP_BENCH_PLANS]; /* visits of a cell share a plan */
    int next_plan;
};

/* Opens registry and provider for the config's shape on device; who prepares a cell gets
 * the pool. cold_bytes: twice the last cache. info gets provider and version. */
int hcp_bench_open(struct hcp_bench *bench, const struct hcp_device_config *config,
                   const hcp_runtime *runtime, const hcp_device_ref *device,
                   int64_t cold_bytes, struct hcp_device_info *info, struct hcp_err *err);
void hcp_bench_close(struct hcp_bench *bench);

/* The kernel's conformance set (quick level); as hcp_device_ops.check. */
int hcp_bench_check(struct hcp_bench *bench, char result[64], struct hcp_err *err);

/* Plan and memory of a cell; the plan stays the bench's. */
int hcp_bench_prepare(struct hcp_bench *bench, const struct hcp_cell_request *cell,
                      struct hcp_bench_plan **out, struct hcp_err *err);
/* One run on the next set of inputs; asynchronous on the stream. hcp_rc. */
int hcp_bench_run(struct hcp_bench *bench, const struct hcp_bench_plan *plan);
/* Fails with what the provider or device says. */
int hcp_bench_fail(const struct hcp_bench *bench, int rc, const char *doing,
                   struct hcp_err *err);
/* Grows the pool, or the state, to want bytes of random numbers. */
int hcp_bench_grow_pool(struct hcp_bench *bench, int64_t want, struct hcp_err *err);
int hcp_bench_grow_state(struct hcp_bench *bench, int64_t want, struct hcp_err *err);
/* Memory for the output of a block of problem's shape. */
int hcp_bench_grow_output(struct hcp_bench *bench, const hcp_attn_problem *problem,
                          struct hcp_err *err);

/* Plan and inputs of the block plan->problem, whose out_dtype is chosen here where
 * it does not accumulate. */
int hcp_bench_plan_block(struct hcp_bench *bench, struct hcp_bench_plan *plan,
                         struct hcp_err *err);

/* ---- bench-finish.c ------------------------------------------------------- */

/* What a step of hcp_attention costs beside this kernel's blocks as they are measured: 1
 * << hcp_finish_kind each. A finish pass, or for a kernel that accumulates (on a GPU,
 * where it shows) the reading of the state. */
uint32_t hcp_bench_finishes(const struct hcp_bench *bench);
/* Fills plan->job for plan->finish and plan->q_len; sets as hcp_bench_prepare. Runs the
 * kernel once, on a short block: hcp_attention says what the pass looks like. Of a kernel
 * that accumulates: makes the plans with and without that, on a short block. */
int hcp_bench_plan_finish(struct hcp_bench *bench, struct hcp_bench_plan *plan,
                          struct hcp_err *err);
/* One pass on the next set. hcp_rc. */
int hcp_bench_run_finish(struct hcp_bench *bench, const struct hcp_bench_plan *plan);

/* ---- bench-linear.c ------------------------------------------------------- */

/* The rest of hcp_bench_open for a config of linear layers: the stream and the library,
 * which stands in the place of the provider in info. */
int hcp_bench_open_linear(struct hcp_bench *bench, const struct hcp_device_config *config,
                          struct hcp_device_info *info, struct hcp_err *err);
/* Inputs and output of plan->linear, checked against a reference before anything is
 * timed. */
int hcp_bench_plan_linear(struct hcp_bench *bench, struct hcp_bench_plan *plan,
                          struct hcp_err *err);
/* One product on the next set. hcp_rc. */
int hcp_bench_run_linear(struct hcp_bench *bench, const struct hcp_bench_plan *plan);

/* ---- of all --------------------------------------------------------------- */

/* Grows the output to want bytes. */
int hcp_bench_grow_o(struct hcp_bench *bench, int64_t want, struct hcp_err *err);
/* Fills tiles and configuration. */
void hcp_bench_facts(const struct hcp_bench *bench, const struct hcp_bench_plan *plan,
                     struct hcp_cell_facts *facts);

#endif
