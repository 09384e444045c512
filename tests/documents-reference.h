/* SPDX-License-Identifier: Apache-2.0
 *
 * What hcpplan.h says about several documents in one step, written a second time and as
 * plainly: parts by document, arrivals by recursion, every plan there is. Only the times
 * of calls come from the models.
 */
#ifndef DOCUMENTS_REFERENCE_H
#define DOCUMENTS_REFERENCE_H
#include "planner/plan.h"

enum { REFERENCE_DOCUMENTS = 64, REFERENCE_DOCUMENT_RANKS = 64 };

/* Where a document lies: on n ranks, ascending; part k is [from[k], from[k + 1]). */
struct reference_document {
    int n, rank[REFERENCE_DOCUMENT_RANKS];
    int64_t from[REFERENCE_DOCUMENT_RANKS + 1];
};

/* Makespan in ms; fin [ranks] or NULL. INFINITY: over a cap, or no plan by the rules. */
double reference_documents(const hcp_ring *ring, const hcp_documents *question,
                           const struct reference_document *documents, double *fin);

/* The fastest of all plans, cuts at multiples of tile; INFINITY: there is none. *plans
 * says how many were looked at; more than most: they are not, and the result is NAN. */
double reference_documents_best(const hcp_ring *ring, const hcp_documents *question,
                                int64_t tile, int cuts, long most, long *plans);
#endif
