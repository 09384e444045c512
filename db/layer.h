/* SPDX-License-Identifier: Apache-2.0
 *
 * The linear part of a transformer layer: its products, and what a profile says that
 * they take. Pure C; hcp_linear_ms() allocates nothing and decides with + - * / and
 * comparisons only.
 */
#ifndef HCP_LAYER_H
#define HCP_LAYER_H
#include "db/db.h"

/* One layer; layers of them make the model. */
struct hcp_layer {
    char name[32]; /* "" = none */
    int64_t hidden, ffn;
    int32_t layers, heads, kv_heads, head_dim;
    int32_t gated; /* 1: the MLP has a gate beside its up projection (SwiGLU) */
};
/* Refuses what cannot be: lengths < 1, heads % kv_heads. */
int hcp_layer_check(const struct hcp_layer *layer, struct hcp_err *err);

/* Products of one layer, as executors run them: Q, K and V in one, gate and up in one.
 *   qkv   hidden -> (heads + 2 kv_heads) head_dim
 *   out   heads head_dim -> hidden
 *   up    hidden -> 2 ffn, or ffn without a gate
 *   down  ffn -> hidden */
enum { HCP_LAYER_PRODUCTS = 4 };
struct hcp_layer_product {
    const char *name;
    int64_t n_in, n_out;
};
void hcp_layer_products(const struct hcp_layer *layer,
                        struct hcp_layer_product out[HCP_LAYER_PRODUCTS]);

/* A known shape by name, from $HCP_MODELS or the table installed as
 * pkgdatadir/models.txt (its format: hcp-profile(1)). HCP_USAGE: there is none of that
 * name, and which there are. (layer-table.c) */
int hcp_layer_find(const char *name, struct hcp_layer *out, struct hcp_err *err);

enum hcp_linear_source {
    HCP_LINEAR_MEASURED = 0,     /* this number of tokens was */
    HCP_LINEAR_INTERPOLATED = 1, /* between two that were */
    HCP_LINEAR_EXTRAPOLATED = 2  /* beyond the largest, or below the smallest */
};
/* "measured" "interpolated" "extrapolated" */
const char *hcp_linear_source_name(enum hcp_linear_source source);

struct hcp_linear_answer {
    double ms; /* of one layer */
    /* Relative: the time is within ms * (1 +- error) with about 90 % confidence, by the
     * error of predicting each measured number of tokens from its neighbours. */
    double error;
    enum hcp_linear_source source; /* the weakest of the products' */
    double product_ms[HCP_LAYER_PRODUCTS];
};

typedef struct hcp_linear hcp_linear; /* immutable; shared by threads */

/* The linear rows of a layer on a device under a limit, of the library and version that
 * were measured last; of several rows of one size, the median. HCP_NO_ANSWER: a product
 * is missing, and the command that measures it. Free with hcp_linear_free. */
int hcp_linear_load(hcp_db *db, const char *device, const char *limit, const char *dtype,
                    const struct hcp_layer *layer, hcp_linear **out, struct hcp_err *err);
void hcp_linear_free(hcp_linear *linear); /* accepts NULL */
/* "cublas"; the version of its rows. */
const char *hcp_linear_library(const hcp_linear *linear, const char **version);

/* Time of one layer for so many tokens (< 1: 0 ms). Non-decreasing in tokens. */
void hcp_linear_ms(const hcp_linear *linear, int64_t tokens,
                   struct hcp_linear_answer *out);

/* The measured numbers of tokens next to this one, itself if it was measured, of the
 * product for which they are farthest apart: 0, INT64_MAX where there is none. */
void hcp_linear_between(const hcp_linear *linear, int64_t tokens, int64_t *below,
                        int64_t *above);

/* Held-out error of all products: every number of tokens that has measured neighbours
 * on both sides, predicted from them. NaN and 0 where there are none. */
struct hcp_linear_heldout {
    double median, p90;
    int rows;
};
void hcp_linear_heldout(const hcp_linear *linear, struct hcp_linear_heldout *out);

/* Load, answer, free. */
int hcp_linear_of(hcp_db *db, const char *device, const char *limit, const char *dtype,
                  const struct hcp_layer *layer, int64_t tokens,
                  struct hcp_linear_answer *out, struct hcp_err *err);

#endif
