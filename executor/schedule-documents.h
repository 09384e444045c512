/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan of documents as a ring's schedule: the ranks with tokens are the ring, the own
 * block is all of a rank's parts, each a call that sees its own keys alone, and of it
 * that part is sent that goes on on the next rank. The steps after it are the blocks of
 * the earlier parts of the document that comes from the rank before, nearest first; they
 * are sent on if it goes on. Most ranks receive fewer than there are: the other steps are
 * empty. Nothing goes from the last rank to the first.
 */
#ifndef HCP_RING_SCHEDULE_DOCUMENTS_H
#define HCP_RING_SCHEDULE_DOCUMENTS_H
#include "executor/schedule.h"

/* As ring_schedule_make(). HCP_FAILED: a document whose parts are not on neighbouring
 * ranks, a rank outside the plan, no memory. */
int ring_schedule_documents(const hcp_documents_plan *plan, int32_t rank,
                            struct ring_schedule *out, struct hcp_err *err);

#endif
