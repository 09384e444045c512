/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that run slower or faster than their models say (hcp_rank.time_scale): each has
 * models of its own, the times of the database's by its factor. A ring made for that has
 * one for every rank, so that factors change without allocating.
 */
#include <stdlib.h>
#include <string.h>
#include "planner/plan.h"

/* Models of its own for a rank. */
static hcp_status own_models(hcp_ring *ring, size_t r, char *text, size_t text_size)
{
    struct bound_rank *b = &ring->ranks[r];

    if (!ring->own)
        ring->own = calloc(4 * ring->n, sizeof *ring->own);
    for (int k = HCP_MODEL_LUT; ring->own && k <= HCP_MODEL_POLY; k++) {
        struct hcp_err err = {0};

        if (!b->model[k] || b->scaled[k])
            continue;
        b->plain[k] = b->model[k];
        if (hcp_model_scaled(b->plain[k], 1, &b->scaled[k], &err))
            return plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
        ring->own[ring->n_own++] = b->scaled[k];
    }
    return ring->own ? HCP_STATUS_OK
                     : plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
}

/* Puts the rank's models in place; at factor 1 the database's. */
static void take(struct bound_rank *b)
{
    int lut_best = b->model[HCP_MODEL_BEST] == b->model[HCP_MODEL_LUT];

    for (int k = HCP_MODEL_LUT; k <= HCP_MODEL_POLY; k++) {
        if (!b->scaled[k])
            continue;
        hcp_model_rescale(b->scaled[k], b->scale);
        b->model[k] = b->scale == 1 ? b->plain[k] : b->scaled[k];
    }
    b->model[HCP_MODEL_BEST] = b->model[lut_best ? HCP_MODEL_LUT : HCP_MODEL_POLY];
}

hcp_status rescale_bind(hcp_ring *ring, char *text, size_t text_size)
{
    for (size_t r = 0; r < ring->n; r++) {
        hcp_status status;

        if (ring->ranks[r].scale == 1)
            continue;
        status = own_models(ring, r, text, text_size);
        if (status)
            return status;
        take(&ring->ranks[r]);
    }
    return HCP_STATUS_OK;
}

hcp_ring *rescale_copy(const hcp_ring *from)
{
    hcp_ring *ring = malloc(sizeof *ring);

    if (!ring)
        return NULL;
    *ring = *from;
    ring->own = NULL;
    ring->n_own = 0;
    ring->copy = 1;
    ring->ranks = malloc(from->n * sizeof *ring->ranks);
    if (!ring->ranks) {
        free(ring);
        return NULL;
    }
    memcpy(ring->ranks, from->ranks, from->n * sizeof *ring->ranks);
    for (size_t r = 0; r < ring->n; r++) {
        struct bound_rank *b = &ring->ranks[r];
        int lut_best = b->model[HCP_MODEL_BEST] == b->model[HCP_MODEL_LUT];

        for (int k = HCP_MODEL_LUT; k <= HCP_MODEL_POLY; k++) {
            if (b->scaled[k])
                b->model[k] = b->plain[k];
            b->scaled[k] = NULL;
        }
        b->model[HCP_MODEL_BEST] = b->model[lut_best ? HCP_MODEL_LUT : HCP_MODEL_POLY];
        if (own_models(ring, r, NULL, 0)) {
            hcp_ring_free(ring);
            return NULL;
        }
        take(b);
    }
    bind_number(ring);
    return ring;
}

void rescale_set(hcp_ring *ring, const double *scale, const uint8_t *left_out)
{
    for (size_t r = 0; r < ring->n; r++) {
        ring->ranks[r].scale = scale[r];
        ring->ranks[r].left_out = left_out[r];
        take(&ring->ranks[r]);
    }
    bind_number(ring);
}
