/* SPDX-License-Identifier: Apache-2.0
 *
 * The rest of a layer around a pass: the product that makes queries, keys and values of a
 * rank's tokens before it, and the output projection and the MLP's products after it, by
 * the library and the call that 'hcp-profile run --linear' measures. They take the time
 * of a layer, not its data: their inputs are random, and the pass has its own.
 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "executor/ring-internal.h"
#include "kernels/gemm.h"

struct ring_linear {
    hcp_gemm *gemm;
    struct hcp_layer_product product[HCP_LAYER_PRODUCTS];
    int64_t rows; /* tokens of all batches */
    char *x, *y;  /* as long as the longest */
    char *w[HCP_LAYER_PRODUCTS];
    void *begun[2], *done[2]; /* events: before the pass, after it */
};

static int64_t longest(const struct ring_linear *l, int out)
{
    int64_t most = 0;

    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++) {
        int64_t n = out ? l->product[i].n_out : l->product[i].n_in;

        most = n > most ? n : most;
    }
    return most;
}

static int allocate(ring *r, char **out, int64_t elements, uint64_t seed,
                    struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    int64_t bytes = elements * r->element_bytes;
    char doing[128];
    void *p = NULL;
    int rc = runtime->alloc(&p, bytes);

    snprintf(doing, sizeof doing,
             "cannot allocate %.3f GB for the linear layers (fewer tokens a rank need "
             "less)",
             1e-9 * (double)bytes);
    if (rc)
        return ring_device_fail(r, rc, doing, err);
    *out = p;
    rc = runtime->randn(p, elements, r->shape.dtype, seed, 0, r->stream);
    return rc ? ring_device_fail(r, rc, "cannot fill the linear layers", err) : HCP_OK;
}

/* One right result of each product before any is timed. */
static int check(ring *r, struct ring_linear *l, int i, struct hcp_err *err)
{
    hcp_gemm_shape shape = {l->rows, l->product[i].n_in, l->product[i].n_out};
    char why[600];

    if (hcp_gemm_check(l->gemm, r->config.runtime, r->stream, &shape, r->shape.dtype,
                       l->x, l->w[i], l->y, why, sizeof why) == HCP_RC_OK)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED, "%s: %lld tokens, %s of the layer: %s",
                    l->gemm->library, (long long)l->rows, l->product[i].name, why);
}

int ring_linear_open(ring *r, struct hcp_err *err)
{
    struct ring_linear *l = calloc(1, sizeof *l);
    char why[600];
    int rc = HCP_OK;

    if (!l)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    r->linear = l;
    hcp_layer_products(r->config.layer, l->product);
    l->rows = r->schedule.tokens * r->shape.batch;
    if (hcp_gemm_open(r->config.runtime, r->stream, r->config.sms, &l->gemm, why,
                      sizeof why) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "no library for linear layers: %s", why);
    for (int i = 0; rc == HCP_OK && i < 2; i++) {
        rc = r->config.runtime->event_create(&l->begun[i]);
        if (rc == HCP_RC_OK)
            rc = r->config.runtime->event_create(&l->done[i]);
        if (rc)
            return ring_device_fail(r, rc, "cannot create events", err);
    }
    rc = allocate(r, &l->x, l->rows * longest(l, 0), r->config.seed + 4, err);
    if (rc == HCP_OK)
        rc = allocate(r, &l->y, l->rows * longest(l, 1), r->config.seed + 5, err);
    for (int i = 0; rc == HCP_OK && i < HCP_LAYER_PRODUCTS; i++) {
        rc = allocate(r, &l->w[i], l->product[i].n_in * l->product[i].n_out,
                      r->config.seed + 6 + (uint64_t)i, err);
        if (rc == HCP_OK)
            rc = check(r, l, i, err);
    }
    return rc;
}

void ring_linear_close(ring *r)
{
    const hcp_runtime *runtime = r->config.runtime;
    struct ring_linear *l = r->linear;

    if (!l)
        return;
    hcp_gemm_close(l->gemm);
    runtime->release(l->x);
    runtime->release(l->y);
    for (int i = 0; i < HCP_LAYER_PRODUCTS; i++)
        runtime->release(l->w[i]);
    for (int i = 0; i < 2; i++) {
        runtime->event_destroy(l->begun[i]);
        runtime->event_destroy(l->done[i]);
    }
    free(l);
    r->linear = NULL;
}

int ring_linear_run(ring *r, int after, struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    struct ring_linear *l = r->linear;
    int first = after ? 1 : 0, end = after ? HCP_LAYER_PRODUCTS : 1;
    int rc = runtime->event_record(l->begun[after], r->stream);

    for (int i = first; rc == HCP_RC_OK && i < end; i++) {
        hcp_gemm_shape shape = {l->rows, l->product[i].n_in, l->product[i].n_out};

        if (l->gemm->run(l->gemm, &shape, r->shape.dtype, l->x, l->w[i], l->y))
            return hcp_fail(err, HCP_FAILED, "%s failed in a pass: %s", l->gemm->library,
                            l->gemm->error);
    }
    if (rc == HCP_RC_OK)
        rc = runtime->event_record(l->done[after], r->stream);
    return rc ? ring_device_fail(r, rc, "cannot record an event", err) : HCP_OK;
}

void *ring_linear_ready(const ring *r)
{
    return r->linear->done[0];
}

int ring_linear_follow(ring *r, int after, struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    const struct timespec nap = {.tv_nsec = 20000};

    for (int done = 0; !done;) {
        int rc = runtime->event_done(r->linear->done[after], &done);

        if (rc)
            return ring_device_fail(r, rc, "the device failed in a pass", err);
        if (!done && r->transport && hcp_transport_check(r->transport, err))
            return HCP_FAILED;
        if (!done)
            nanosleep(&nap, NULL);
    }
    return HCP_OK;
}

int ring_linear_times(ring *r, double ms[2], double *ready_ms, double *end_ms,
                      struct hcp_err *err)
{
    const hcp_runtime *runtime = r->config.runtime;
    struct ring_linear *l = r->linear;
    int rc = HCP_RC_OK;

    for (int i = 0; rc == HCP_RC_OK && i < 2; i++)
        rc = runtime->event_ms(l->begun[i], l->done[i], &ms[i]);
    if (rc == HCP_RC_OK)
        rc = runtime->event_ms(r->start, l->done[0], ready_ms);
    if (rc == HCP_RC_OK)
        rc = runtime->event_ms(r->start, l->done[1], end_ms);
    return rc ? ring_device_fail(r, rc, "cannot read an event", err) : HCP_OK;
}
