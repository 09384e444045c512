/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/link-rank.h"
#ifdef HAVE_CUDA
#include "profiler/spin.h"
#endif

#define HOLD_LIMIT_NS 2000000000ull

int link_hold_open(struct link_hold *h, const struct link_plan *plan, struct hcp_err *err)
{
    const hcp_runtime *r = plan->runtime;
    void *words = NULL;
    if (r->kind != HCP_DEVICE_CUDA || !hcp_transport_queues(plan->transport))
        return HCP_OK;
    if (r->host_alloc(&words, 2 * sizeof *h->words) != HCP_RC_OK)
        return hcp_fail(err, HCP_FAILED, "cannot allocate pinned memory: %s",
                        r->last_error());
    h->words = words;
    h->words[0] = h->words[1] = 0;
    return HCP_OK;
}

void link_hold_close(struct link_hold *h, const struct link_plan *plan)
{
    plan->runtime->host_release(h->words);
    h->words = NULL;
}

int link_holds(const struct link_hold *h)
{
    return h->words != NULL;
}

int link_hold_launch(struct link_hold *h, void *stream, struct hcp_err *err)
{
#ifdef HAVE_CUDA
    if (hcp_spin_launch(h->words, ++h->ticket, HOLD_LIMIT_NS, h->words + 1, stream) != 0)
        return hcp_fail(err, HCP_FAILED, "cannot launch the holding kernel");
#else
    (void)h, (void)stream, (void)err;
#endif
    return HCP_OK;
}

void link_hold_release(struct link_hold *h, MPI_Comm comm)
{
    MPI_Barrier(comm); /* both have queued theirs */
    *(volatile int *)h->words = h->ticket;
}

int link_hold_check(struct link_hold *h, struct hcp_err *err)
{
    if (!h->words || *(volatile int *)(h->words + 1) == 0)
        return HCP_OK;
    h->words[1] = 0;
    return hcp_fail(err, HCP_FAILED,
                    "a held transfer timed out: the transport waits for the device while "
                    "it queues");
}
