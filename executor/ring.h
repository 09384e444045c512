/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring itself: one rank's buffers, kernels and transport, and a pass through them.
 * A pass computes this rank's rows of softmax(Q K^T / sqrt(head_dim)) V into a running
 * state (O fp32 normalised, L natural log-sum-exp), block by block as KV comes round,
 * the next block being received and the present one passed on meanwhile. Of a plan of
 * decode a pass is a step: one query of each sequence against the KV of all ranks, whose
 * partial results are merged (decode.c).
 */
#ifndef HCP_RING_H
#define HCP_RING_H
#include <mpi.h>
#include "db/layer.h"
#include "executor/comm.h"
#include "executor/schedule.h"
#include "kernels/registry.h"
#include "profiler/transport.h"

typedef struct ring ring;

/* Transports between the ranks, opened when a set of ranks first forms a ring and kept:
 * rings of the same ranks share one. channels: as in hcp_transport_config. */
typedef struct ring_links ring_links;
int ring_links_new(const char *transport, int32_t channels, const struct ring_comm *comm,
                   const hcp_runtime *runtime, const hcp_device_ref *device,
                   double timeout_s, ring_links **out, struct hcp_err *err);
/* Gives up what is under way, from any thread. */
void ring_links_cancel(ring_links *links);
/* Where all processes live, but ranks have failed or given up in the middle of something:
 * ends what is under way, and forgets all sets of ranks. Collective over all ranks; a
 * ring of these links can only be closed, after this. HCP_FAILED: MPI failed, or no
 * memory. */
int ring_links_drop(ring_links *links, struct hcp_err *err);
void ring_links_close(ring_links *links); /* collective after success; accepts NULL */

/* Keys and values of some tokens: each [batch][kv_heads][tokens][head_dim]. */
struct ring_kv {
    const void *k, *v;
    int64_t tokens;
};

/* One chunk of a prompt: queries of positions [offset, offset + tokens) against all KV up
 * to there. */
struct ring_chunk {
    int64_t offset, tokens;
    void *kv; /* device memory, the caller's: this rank's KV, by its place in the prompt,
                 [KV tokens][K, V][kv_heads][head_dim]. Opening the ring appends that of
                 the chunk to what is there */
};

struct ring_config {
    const hcp_plan *plan; /* must outlive the ring */
    int32_t rank;         /* plan rank = rank in comm */
    const struct ring_comm *comm; /* of all the plan's ranks */
    const hcp_runtime *runtime;
    hcp_device_ref device;
    const hcp_provider *provider;
    ring_links *links;
    ring_watch *watch; /* is told what this rank waits for; may be NULL */
    ring_alarm *alarm; /* ends the waits of a pass; NULL: a failure is the end of all */
    struct hcp_err *broken; /* filled where ring_open() fails for this rank's device or
                               memory, and not only for another's; may be NULL */
    int32_t sub_blocks;
    int barrier;  /* all ranks synchronise after every step */
    int32_t buffers; /* KV blocks beside its own that a rank can hold, >= 1; the plan's 0
                        (no limit) is one for each step */
    uint64_t seed; /* of the inputs: Q from seed + 1, K + 2, V + 3 */
    const struct hcp_layer *layer; /* whose products a pass has around it; NULL: none */
    int32_t sms; /* that they are chosen for; 0: those the device shows */
    int32_t spare_sms; /* asked of ring_schedule_spare_sms(); < 0: as it thinks best */
    int32_t channels;  /* of the links, each direction; 0: not known */
    const struct ring_kv *kv; /* of decode: [n_kv] this rank's KV, the caller's, which
                                 lasts as long as the ring; NULL: made from the seed */
    int32_t n_kv;
    const hcp_documents_plan *documents; /* whose pack `plan` is, one behind the other; it
                                            outlives the ring. NULL: one sequence */
    const struct ring_chunk *chunk; /* whose joint plan (ring_schedule_chunk()) `plan` is,
                                       batch 1; outlives the ring. NULL: no chunk */
};

/* What one rank measured in one pass, in ms. Times count from the pass's start on this
 * rank, taken after all ranks have met. */
struct ring_times {
    double total_ms;    /* start to the end of its last block */
    double compute_ms;  /* kernels and merging */
    double wait_ms;     /* total - compute: blocks that were not there yet, gaps */
    double transfer_ms; /* time during which it received or sent */
    double linear_ms;   /* the layer's products, part of compute_ms */
};

/* Allocates, plans every call, fills Q, K and V (values depend on the seed and the
 * position in the sequence alone, so that any split has the same inputs). Collective;
 * on failure of any rank all fail, with the text of the lowest rank that has one. */
int ring_open(const struct ring_config *config, ring **out, struct hcp_err *err);
/* One pass; collective over the ranks with tokens (others return zeros at once). step_ms
 * NULL or [m][4]: when a step's block was here (NaN: not received; MPI: when waiting for
 * it ended), start, time computed, end. After a failure only ring_close(). */
int ring_pass(ring *r, struct ring_times *out, double (*step_ms)[4], struct hcp_err *err);
/* After it has failed: whether it was for this rank's device, memory or kernel, rather
 * than for what others did. */
int ring_broken(ring *r);
/* In the next pass the kernel on the block of this step, or of the last one before it
 * that is computed here, is taken to return an error. A rank without tokens has none. */
void ring_fail_at(ring *r, int32_t step);
/* Of a ring with an alarm: meetings that this rank has come to, what it tells the others
 * before ring_abandon(). 0 of NULL. */
int64_t ring_meetings(const ring *r);
/* ring_close() of a ring whose last pass has failed on some ranks, all of whose processes
 * live, and ring_links_drop(). Collective over all ranks. most_meetings: of any of them.
 * HCP_FAILED: MPI failed, or no memory; then the process can only end. */
int ring_abandon(ring *r, int64_t most_meetings, struct hcp_err *err);
int ring_plan_is_decode(const hcp_plan *plan);
/* From the next pass on attention takes factor >= 1 times its time on this rank: after
 * each piece it spins, the CPU or one thread on the GPU's stream. Not decode. */
int ring_slow(ring *r, double factor, struct hcp_err *err);
void ring_close(ring *r); /* collective after a good pass; accepts NULL */

/* For verification: this rank's tensors as the pass left them. Q, K, V in the plan's
 * dtype, [batch][heads or kv_heads][tokens][head_dim] (K and V of the tokens whose KV it
 * keeps); O fp32 likewise; L fp32 [batch][heads][tokens]. Device pointers. */
struct ring_tensors {
    const void *q, *k, *v;
    const float *o, *lse;
};
void ring_tensors_of(const ring *r, struct ring_tensors *out);
const struct ring_schedule *ring_schedule_of(const ring *r);
/* What a pass of this rank sends (or receives): blocks, and their bytes. */
struct ring_traffic {
    int64_t blocks, bytes;
};
struct ring_traffic ring_traffic_of(const ring *r, int sent);
/* Of a chunk: whether all of this rank's KV is, bit by bit, what it should be. text: what
 * is not; "". */
int ring_chunk_compare(ring *r, char text[200], struct hcp_err *err);
const struct ring_config *ring_config_of(const ring *r);
void *ring_stream_of(const ring *r);
/* Name and version of what moves the blocks; "" in a ring of one. */
const char *ring_transport_name(const ring *r);
const char *ring_transport_version(const ring *r);
/* One line: the kernel's description of this rank's largest call. */
void ring_describe(const ring *r, char *text, size_t size);

#endif
