/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic models for the planner's tests, through the real hcp_model_create: times are
 * known functions, so that answers can be checked against formulas and brute force.
 */
#ifndef PLAN_FIXTURE_H
#define PLAN_FIXTURE_H
#include "planner/plan.h"

/* t(q, kv) = a q kv + b q + c kv + f in ms; the causal square has area s^2 / 2 (exactly
 * s (s + 1) / 2 is not a term of the regression). */
struct fixture {
    const char *device, *limit, *provider;
    double a, b, c, f;
    int64_t tile;     /* of queries and keys */
    int lut, poly;    /* which models to make; a lut tabulates 128 .. 64K */
    uint64_t bumps;   /* lut: seed of kinks of up to 40 % in the table; 0 none */
    double finish[4]; /* f, b of storing; f, b of merging; 0s: none */
    double error;     /* relative error bar of the lut; the poly's is twice that */
};

/* Models of n fixtures as if loaded from "test.db". Aborts the test on failure. */
hcp_models *fixture_models(const struct fixture *fixtures, size_t n);
void fixture_free(hcp_models *models);

/* Binds ranks (indices into fixtures) with caps (NULL none) to a ring. */
hcp_ring *fixture_ring(const hcp_models *models, const struct fixture *fixtures,
                       const int *which, const int64_t *caps, size_t n);

/* A ring of these ranks as they are, default shape. */
hcp_ring *fixture_ring_of(const hcp_models *models, const hcp_rank *ranks, size_t n);

/* splitmix64: the same numbers on every machine. */
uint64_t fixture_random(uint64_t *state);
int64_t fixture_range(uint64_t *state, int64_t lo, int64_t hi); /* inclusive */
double fixture_real(uint64_t *state, double lo, double hi);

/* Next permutation of n, in lexical order; 0: that was the last. */
int fixture_next_order(int32_t *v, size_t n);

/* $HCP_TEST_SCALE as a number, 1 if unset. */
double fixture_scale(void);

/* So many problems of n at that scale; 1 at least. */
int fixture_times(int n);

/* A kind of random speed with a table or a regression, or both: the i-th, of device "d0",
 * "d1" ... "d3". */
void fixture_random_kind(struct fixture *kind, int i, int64_t tile, uint64_t *seed);
/* n kinds of random speed with tables, some with kinks; the same names. */
void fixture_kinds(struct fixture *kinds, int n, uint64_t *seed);
/* A question about up to so many tiles, a layout chosen, with and without a link. */
void fixture_random_question(hcp_question *question, int64_t most, int64_t tile,
                             uint64_t *seed);

/* A plan with its arrays and workspace for up to n ranks; free with fixture_plan_free. */
struct fixture_plan {
    hcp_plan plan;
    void *workspace;
    size_t workspace_bytes;
};
void fixture_plan_init(struct fixture_plan *p, size_t n);
void fixture_plan_free(struct fixture_plan *p);
/* The same with places, for orders and links. */
void fixture_places_init(struct fixture_plan *p, size_t n);
void fixture_places_free(struct fixture_plan *p);
hcp_status fixture_split(const hcp_ring *ring, const hcp_question *question,
                         struct fixture_plan *p, char *text, size_t text_size);

#endif
