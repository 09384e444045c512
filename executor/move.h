/* SPDX-License-Identifier: Apache-2.0
 *
 * KV of all layers and sequences on its way from one plan's shares to another's: the
 * messages of hcp_plan_moves(), each as one message.
 *
 * A rank's KV lies in parts, as in a paged cache: the tokens that stay, and those of each
 * message, each part [layer][K, V][batch][kv_heads][tokens][head_dim]. So a message is
 * sent from where it lies, and what was received is a part like any other.
 */
#ifndef HCP_RING_MOVE_H
#define HCP_RING_MOVE_H
#include "executor/ring.h"

typedef struct ring_move ring_move;

/* Segments of the tokens that stay on a rank: room for as many as the old plan has for
 * it. Returns how many; *tokens: what they hold. */
int64_t ring_move_kept(const hcp_plan *from, const hcp_moves *moves, int32_t rank,
                       hcp_segment *out, int64_t *tokens);
/* The old plan's rank of that number (it may have an order of its own). */
const hcp_plan_rank *ring_move_old(const hcp_plan *from, int32_t rank);

struct ring_move_config {
    const hcp_plan *from, *to; /* outlive the move, as does moves */
    const hcp_moves *moves;
    int32_t rank; /* of `to`, and in comm */
    const struct ring_comm *comm;
    const hcp_runtime *runtime;
    ring_links *links;
    ring_watch *watch;
    uint64_t seed; /* of layer 0: K from seed + 2, V + 3, as a ring has them; layer l: 2 l
                      more */
};

/* Allocates and fills what this rank has by the old plan. Collective; all ranks fail if
 * one does. */
int ring_move_open(const struct ring_move_config *config, ring_move **out,
                   struct hcp_err *err);
/* All messages, once more; collective. *total_ms: from the start, after all ranks have
 * met, until this rank has sent and received its own. After a failure only
 * ring_move_close(). */
int ring_move_pass(ring_move *m, double *total_ms, struct hcp_err *err);
/* NaN in what is to be received. */
int ring_move_poison(ring_move *m, struct hcp_err *err);
/* Compares every number of the KV that this rank has by the new plan with what it should
 * be. *tokens: of each sequence; text: what is wrong, "" where nothing is. */
int ring_move_compare(ring_move *m, int64_t *tokens, char text[200], struct hcp_err *err);
/* The parts of layer 0 that this rank has by the new plan: room for as many as there are
 * messages, and one. Returns how many. */
int32_t ring_move_kv(const ring_move *m, struct ring_kv *out);
int64_t ring_move_bytes(const ring_move *m, int sent); /* of this rank's messages */
const char *ring_move_transport(const ring_move *m, const char **version); /* "": none */
void ring_move_close(ring_move *m); /* collective after a good pass; accepts NULL */

#endif
