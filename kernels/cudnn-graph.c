/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph, in the order that cuDNN's attention engines recognise:
 *   S = Q K^T -> * scale -> [row + diagonal >= column ? S : -inf] -> max over keys
 *   -> subtract -> exp -> sum -> log -> + max = statistics
 *   -> exp / sum = P -> P V = O
 * Everything between Q, K, V and O, statistics is virtual and never stored.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_CUDNN
#include "kernels/cudnn-graph.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DESCRIPTORS = 96, MAX_OPS = 20, MAX_CONFIGS = 16, ALIGNMENT = 16 };

typedef cudnnBackendDescriptor_t desc;

struct hcp_cudnn_graph {
    const hcp_cudnn_api *api;
    hcp_cudnn_target target;
    desc made[MAX_DESCRIPTORS]; /* in order of making, destroyed in reverse */
    int n_made;
    desc ops[MAX_OPS];
    int n_ops;
    desc config[MAX_CONFIGS];
    int64_t n_configs;
    desc plan;
    int64_t workspace;
    char text[160];
    /* while building */
    int64_t next_uid;
    int64_t score_dims[4], score_strides[4], row_dims[4], row_strides[4];
    int rc;
    char *why;
    size_t why_size;
};

/* The first failure stays; steps after it do nothing and return NULL, so that the
 * graph below reads as the formula and is checked once. */
static void fail(hcp_cudnn_graph *g, int rc, const char *step, cudnnStatus_t status)
{
    char said[256] = "";
    if (g->rc != HCP_RC_OK)
        return;
    g->rc = rc;
    g->api->last_error_string(said, sizeof said);
    said[strcspn(said, "\n")] = 0;
    snprintf(g->why, g->why_size, "cuDNN %s: %s failed: %s%s%s", g->api->version_text,
             step, g->api->error_string(status), *said ? ": " : "", said);
}

static desc make(hcp_cudnn_graph *g, cudnnBackendDescriptorType_t type, const char *step)
{
    desc d = NULL;
    cudnnStatus_t s;
    if (g->rc != HCP_RC_OK)
        return NULL;
    if (g->n_made == MAX_DESCRIPTORS) {
        fail(g, HCP_RC_DEVICE, step, CUDNN_STATUS_INTERNAL_ERROR);
        return NULL;
    }
    if ((s = g->api->create_descriptor(type, &d)) != CUDNN_STATUS_SUCCESS) {
        fail(g, HCP_RC_DEVICE, step, s);
        return NULL;
    }
    return g->made[g->n_made++] = d;
}

static void set(hcp_cudnn_graph *g, desc d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value,
                const char *step)
{
    cudnnStatus_t s;
    if (g->rc != HCP_RC_OK)
        return;
    if ((s = g->api->set_attribute(d, name, type, count, value)) != CUDNN_STATUS_SUCCESS)
        fail(g, HCP_RC_DEVICE, step, s);
}

static void set_desc(hcp_cudnn_graph *g, desc d, cudnnBackendAttributeName_t name,
                     desc value, const char *step)
{
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, step);
}

/* Whether cuDNN says that it does not do this, rather than that something broke. */
static int failure_code(cudnnStatus_t status)
{
    return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED
               ? HCP_RC_UNSUPPORTED
               : HCP_RC_DEVICE;
}

static void finalize(hcp_cudnn_graph *g, desc d, const char *step)
{
    cudnnStatus_t s;
    if (g->rc != HCP_RC_OK)
        return;
    if ((s = g->api->finalize(d)) != CUDNN_STATUS_SUCCESS)
        fail(g, failure_code(s), step, s);
}

/* uid 0: a virtual tensor. by_value: a host scalar. */
static desc tensor(hcp_cudnn_graph *g, int64_t uid, cudnnDataType_t type,
                   const int64_t dims[4], const int64_t strides[4], bool by_value,
                   const char *step)
{
    desc d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, step);
    bool is_virtual = uid == 0;
    int64_t align = ALIGNMENT, id = uid ? uid : g->next_uid++;
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, step);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims, step);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides, step);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id, step);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align, step);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual, step);
    set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value, step);
    finalize(g, d, step);
    return d;
}

static desc scalar(hcp_cudnn_graph *g, int64_t uid, cudnnDataType_t type,
                   const char *step)
{
    static const int64_t ones[4] = {1, 1, 1, 1};
    return tensor(g, uid, type, ones, ones, true, step);
}

/* Virtual {batch, heads, q_len, kv_len}. */
static desc scores(hcp_cudnn_graph *g, cudnnDataType_t type, const char *step)
{
    return tensor(g, 0, type, g->score_dims, g->score_strides, false, step);
}

/* Virtual {batch, heads, q_len, 1}, fp32. */
static desc rows(hcp_cudnn_graph *g, const char *step)
{
    return tensor(g, 0, CUDNN_DATA_FLOAT, g->row_dims, g->row_strides, false, step);
}

static void push(hcp_cudnn_graph *g, desc op, const char *step)
{
    finalize(g, op, step);
    if (g->rc == HCP_RC_OK)
        g->ops[g->n_ops++] = op;
}

static void matmul(hcp_cudnn_graph *g, desc a, desc b, desc c, const char *step)
{
    cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
    desc how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, step);
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &fp32, step);
    finalize(g, how, step);
    desc op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, step);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a, step);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b, step);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c, step);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how, step);
    push(g, op, step);
}

static void reduce(hcp_cudnn_graph *g, cudnnReduceTensorOp_t mode, desc x, desc y,
                   const char *step)
{
    cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
    desc how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, step);
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
        &mode, step);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &fp32, step);
    finalize(g, how, step);
    desc op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, step);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, step);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, step);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how, step);
    push(g, op, step);
}

struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t precision;
    desc x, b, t, y; /* b, t NULL where the mode has none */
    int64_t axis;    /* of GEN_INDEX */
};

static void pointwise(hcp_cudnn_graph *g, struct pointwise p, const char *step)
{
    desc how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, step);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p.mode, step);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p.precision,
        step);
    if (p.mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p.axis, step);
    finalize(g, how, step);
    desc op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, step);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how, step);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x, step);
    if (p.b)
        set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b, step);
    if (p.t)
        set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t, step);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y, step);
    push(g, op, step);
}

static desc fp32_of(hcp_cudnn_graph *g, cudnnPointwiseMode_t mode, desc x, desc b, desc y,
                    const char *step)
{
    pointwise(g,
              (struct pointwise){
                  .mode = mode, .precision = CUDNN_DATA_FLOAT, .x = x, .b = b, .y = y},
              step);
    return y;
}

static desc index_of(hcp_cudnn_graph *g, desc s, int64_t axis, const char *step)
{
    desc y = scores(g, CUDNN_DATA_INT32, step);
    pointwise(g,
              (struct pointwise){.mode = CUDNN_POINTWISE_GEN_INDEX,
                                 .precision = CUDNN_DATA_INT32,
                                 .x = s,
                                 .y = y,
                                 .axis = axis},
              step);
    return y;
}

/* Row i keeps the columns j with j <= i + diagonal. */
static desc mask(hcp_cudnn_graph *g, desc s)
{
    desc row = index_of(g, s, 2, "row index");
    desc column = index_of(g, s, 3, "column index");
    desc diagonal = scalar(g, HCP_CUDNN_DIAGONAL, CUDNN_DATA_INT32, "diagonal");
    desc neg_inf = scalar(g, HCP_CUDNN_NEG_INF, CUDNN_DATA_FLOAT, "mask value");
    desc limit = scores(g, CUDNN_DATA_INT32, "row + diagonal");
    desc seen = scores(g, CUDNN_DATA_BOOLEAN, "mask");
    desc y = scores(g, CUDNN_DATA_FLOAT, "masked scores");
    pointwise(g,
              (struct pointwise){.mode = CUDNN_POINTWISE_ADD,
                                 .precision = CUDNN_DATA_INT32,
                                 .x = row,
                                 .b = diagonal,
                                 .y = limit},
              "row + diagonal");
    pointwise(g,
              (struct pointwise){.mode = CUDNN_POINTWISE_CMP_GE,
                                 .precision = CUDNN_DATA_BOOLEAN,
                                 .x = limit,
                                 .b = column,
                                 .y = seen},
              "row + diagonal >= column");
    pointwise(g,
              (struct pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                 .precision = CUDNN_DATA_FLOAT,
                                 .x = s,
                                 .b = neg_inf,
                                 .t = seen,
                                 .y = y},
              "select scores");
    return y;
}

static void build_ops(hcp_cudnn_graph *g, const hcp_attn_problem *p, int causal)
{
    const cudnnDataType_t io =
        p->dtype == HCP_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    const int64_t b = p->batch, h = p->heads, hk = p->kv_heads, sq = p->q_len,
                  sk = p->kv_len, d = p->head_dim;
    const int64_t *qs = p->q_stride, *ks = p->k_stride, *vs = p->v_stride,
                  *os = p->o_stride;
    memcpy(g->score_dims, (int64_t[]){b, h, sq, sk}, sizeof g->score_dims);
    memcpy(g->score_strides, (int64_t[]){h * sq * sk, sq * sk, sk, 1},
           sizeof g->score_strides);
    memcpy(g->row_dims, (int64_t[]){b, h, sq, 1}, sizeof g->row_dims);
    memcpy(g->row_strides, (int64_t[]){h * sq, sq, 1, 1}, sizeof g->row_strides);

    desc q = tensor(g, HCP_CUDNN_Q, io, (int64_t[]){b, h, sq, d},
                    (int64_t[]){qs[0], qs[1], qs[2], 1}, false, "Q");
    /* K transposed, by its strides */
    desc k = tensor(g, HCP_CUDNN_K, io, (int64_t[]){b, hk, d, sk},
                    (int64_t[]){ks[0], ks[1], 1, ks[2]}, false, "K");
    desc v = tensor(g, HCP_CUDNN_V, io, (int64_t[]){b, hk, sk, d},
                    (int64_t[]){vs[0], vs[1], vs[2], 1}, false, "V");
    desc o = tensor(g, HCP_CUDNN_O, io, (int64_t[]){b, h, sq, d},
                    (int64_t[]){os[0], os[1], os[2], 1}, false, "O");
    desc stats = tensor(g, HCP_CUDNN_STATS, CUDNN_DATA_FLOAT, g->row_dims, g->row_strides,
                        false, "statistics");
    desc scale = scalar(g, HCP_CUDNN_SCALE, CUDNN_DATA_FLOAT, "scale");

    desc s = scores(g, CUDNN_DATA_FLOAT, "Q K^T");
    matmul(g, q, k, s, "Q K^T");
    s = fp32_of(g, CUDNN_POINTWISE_MUL, s, scale, scores(g, CUDNN_DATA_FLOAT, "scaled"),
                "times scale");
    if (causal)
        s = mask(g, s);
    desc top = rows(g, "max");
    reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, top, "max over keys");
    desc e = fp32_of(g, CUDNN_POINTWISE_SUB, s, top,
                     scores(g, CUDNN_DATA_FLOAT, "minus max"), "minus max");
    e = fp32_of(g, CUDNN_POINTWISE_EXP, e, NULL, scores(g, CUDNN_DATA_FLOAT, "exp"),
                "exp");
    desc sum = rows(g, "sum");
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, sum, "sum over keys");
    desc l = fp32_of(g, CUDNN_POINTWISE_LOG, sum, NULL, rows(g, "log of the sum"),
                     "log of the sum");
    fp32_of(g, CUDNN_POINTWISE_ADD, top, l, stats, "max + log of the sum");
    desc prob =
        fp32_of(g, CUDNN_POINTWISE_DIV, e, sum, scores(g, io, "P"), "divide by sum");
    matmul(g, prob, v, o, "P V");
}

/* Engine and knobs of the chosen configuration; what cannot be read is left out. */
static void describe(hcp_cudnn_graph *g, int i_config)
{
    const desc config = g->config[i_config];
    const hcp_cudnn_api *api = g->api;
    desc engine = NULL, choice[CUDNN_KNOB_TYPE_COUNTS] = {NULL};
    int64_t id = -1, got = 0, used;
    if (api->create_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) ==
            CUDNN_STATUS_SUCCESS &&
        api->get_attribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
                           &engine) == CUDNN_STATUS_SUCCESS)
        api->get_attribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                           &got, &id);
    if (engine)
        api->destroy_descriptor(engine);
    used = snprintf(g->text, sizeof g->text, "engine %lld (config %d of %lld)",
                    (long long)id, i_config + 1, (long long)g->n_configs);

    int64_t knobs = 0;
    for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; i++)
        if (api->create_descriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choice[i]) !=
            CUDNN_STATUS_SUCCESS)
            choice[i] = NULL;
    if (api->get_attribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                           CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS, &knobs,
                           choice) != CUDNN_STATUS_SUCCESS)
        knobs = 0;
    for (int64_t i = 0; i < knobs && used < (int64_t)sizeof g->text; i++) {
        cudnnBackendKnobType_t type;
        int64_t value;
        if (api->get_attribute(choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                               CUDNN_TYPE_KNOB_TYPE, 1, &got,
                               &type) == CUDNN_STATUS_SUCCESS &&
            api->get_attribute(choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                               CUDNN_TYPE_INT64, 1, &got, &value) == CUDNN_STATUS_SUCCESS)
            used += snprintf(g->text + used, sizeof g->text - (size_t)used, "%s%d=%lld",
                             i ? " " : ", knobs ", (int)type, (long long)value);
    }
    for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; i++)
        if (choice[i])
            api->destroy_descriptor(choice[i]);
}

/* Bytes that a plan or an engine configuration asks for. */
static int read_workspace(hcp_cudnn_graph *g, desc d, cudnnBackendAttributeName_t name)
{
    int64_t got = 0;
    return g->api->get_attribute(d, name, CUDNN_TYPE_INT64, 1, &got, &g->workspace) ==
           CUDNN_STATUS_SUCCESS;
}

/* Engine configurations of the heuristic, best first. */
static void ask_heuristic(hcp_cudnn_graph *g, desc ops)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    desc d = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristic");
    cudnnStatus_t s;
    set_desc(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, ops, "heuristic");
    set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, "heuristic");
    if (g->target.device)
        set_desc(g, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, g->target.device, "heuristic");
    finalize(g, d, "heuristic");
    for (int i = 0; i < MAX_CONFIGS; i++)
        g->config[i] =
            make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine configurations");
    if (g->rc != HCP_RC_OK)
        return;
    s = g->api->get_attribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &g->n_configs,
                              g->config);
    if (s == CUDNN_STATUS_SUCCESS && g->n_configs == 0)
        s = CUDNN_STATUS_NOT_SUPPORTED;
    if (s != CUDNN_STATUS_SUCCESS)
        fail(g, failure_code(s), "asking the heuristic for engines", s);
    else if (g->n_configs > MAX_CONFIGS)
        g->n_configs = MAX_CONFIGS;
}

int hcp_cudnn_graph_create(const hcp_cudnn_api *api, hcp_cudnn_target target,
                           const hcp_attn_problem *problem, int causal,
                           hcp_cudnn_graph **out, char *why, size_t why_size)
{
    hcp_cudnn_graph *g = calloc(1, sizeof *g);
    int rc;
    if (!g) {
        snprintf(why, why_size, "out of memory");
        return HCP_RC_NO_MEMORY;
    }
    g->api = api;
    g->target = target;
    g->why = why;
    g->why_size = why_size;
    g->next_uid = HCP_CUDNN_ONE_PAST;
    build_ops(g, problem, causal);

    desc ops = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph");
    if (!target.device)
        set(g, ops, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
            &target.handle, "operation graph");
    set(g, ops, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops,
        g->ops, "operation graph");
    finalize(g, ops, "operation graph");
    ask_heuristic(g, ops);
    rc = g->rc;
    if (rc == HCP_RC_OK) {
        read_workspace(g, g->config[0], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
        describe(g, 0);
        *out = g;
    } else {
        hcp_cudnn_graph_destroy(g);
    }
    return rc;
}

int hcp_cudnn_graph_build(hcp_cudnn_graph *g, int64_t max_workspace, char *why,
                          size_t why_size)
{
    cudnnStatus_t s, last = CUDNN_STATUS_NOT_SUPPORTED;
    g->why = why;
    g->why_size = why_size;
    for (int i = 0; i < g->n_configs && !g->plan; i++) {
        desc plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "execution plan");
        if (g->target.device)
            set_desc(g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, g->target.device,
                     "execution plan");
        else
            set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                &g->target.handle, "execution plan");
        set_desc(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, g->config[i],
                 "execution plan");
        if (g->rc != HCP_RC_OK)
            return g->rc;
        s = g->api->finalize(plan);
        if (s == CUDNN_STATUS_SUCCESS &&
            read_workspace(g, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) &&
            g->workspace <= max_workspace) {
            g->plan = plan;
            describe(g, i);
        } else {
            /* Built, and wants too much workspace: not supported, as it was before. */
            if (s != CUDNN_STATUS_SUCCESS && failure_code(last) == HCP_RC_UNSUPPORTED)
                last = s; /* something that broke is the better reason, and stays */
            g->n_made--;
            g->api->destroy_descriptor(plan);
        }
    }
    if (!g->plan)
        fail(g, failure_code(last), "building a plan from any engine", last);
    return g->rc;
}

void hcp_cudnn_graph_destroy(hcp_cudnn_graph *graph)
{
    if (!graph)
        return;
    while (graph->n_made > 0)
        graph->api->destroy_descriptor(graph->made[--graph->n_made]);
    free(graph);
}

cudnnBackendDescriptor_t hcp_cudnn_graph_plan(const hcp_cudnn_graph *graph)
{
    return graph->plan;
}

int64_t hcp_cudnn_graph_workspace(const hcp_cudnn_graph *graph)
{
    return graph->workspace;
}

const char *hcp_cudnn_graph_text(const hcp_cudnn_graph *graph)
{
    return graph->text;
}
#else
typedef int hcp_no_cudnn_graph; /* a translation unit may not be empty */
#endif
