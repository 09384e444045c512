/* SPDX-License-Identifier: Apache-2.0
 *
 * What hcpplan.h says about one prompt in chunks, written a second time and as plainly:
 * calls from the segments of a chunk, the ring as a table of blocks, every plan there is.
 * Only the times of calls come from the models.
 */
#ifndef CHUNKS_REFERENCE_H
#define CHUNKS_REFERENCE_H
#include "planner/plan.h"

enum { REFERENCE_CHUNK_RANKS = 16 };

/* Time of a layer of a step; fin and bytes [ranks] or NULL. INFINITY: over a cap. */
double reference_chunk(const hcp_ring *ring, const hcp_chunks *question,
                       hcp_layout layout, const int64_t *resident, const int64_t *tokens,
                       double *fin, int64_t *bytes);

/* The step of all layers in the fastest layout that the question allows. */
double reference_chunk_step(const hcp_ring *ring, const hcp_chunks *question,
                            const int64_t *resident, const int64_t *tokens);

/* The fastest such step of all splits of a chunk, shares being multiples of tile but for
 * one. */
double reference_chunk_split(const hcp_ring *ring, const hcp_chunks *question,
                             int64_t tile, const int64_t *resident, int64_t chunk);

/* Least total of all chunks and all their splits, chunks being multiples of tile but for
 * the last; without a budget they have the question's length. INFINITY: there are none.
 */
double reference_chunks_best(const hcp_ring *ring, const hcp_chunks *question,
                             int64_t tile);
#endif
