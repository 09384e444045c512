/* SPDX-License-Identifier: Apache-2.0
 *
 * What computing and a transfer cost each other, from interference rows.
 *
 * While a transfer is under way a block of attention runs at 1 / slowdown of its speed.
 * The transfer needs both ends: it runs at 1 / transfer_slowdown of its own speed while
 * either of them computes (a kernel that leaves the transfer's no room until it has ended
 * shows as a very large one). What is over does not disturb. A block of C ms alone and a
 * transfer of T ms alone that begin together, while the other end computes for P ms, so
 * take
 *
 *   T' = transfer_slowdown T, or where that is more than B = max(C', P')
 *   T' = T + B (1 - 1 / transfer_slowdown)
 *   C' = slowdown C, or where that is more than T'
 *   C' = C + T' (1 - 1 / slowdown)
 *
 * and a step that computes beside its transfer max(C', T') + overhead_ms: launches,
 * events between streams, threads that wake up.
 */
#ifndef HCP_INTERFERENCE_H
#define HCP_INTERFERENCE_H
#include "db/db.h"

struct hcp_interference {
    double slowdown, transfer_slowdown; /* >= 1 */
    double overhead_ms; /* of a step with a transfer, >= 0; NaN: no row has it */
    double max_error;   /* of the rows' steps, C' and T' from C and T: relative */
    int rows;
};

/* From rows of one device, limit and kernel, with any blocks; peers: rows of the other
 * end, of which those with a row's block and bytes say how long that end computed (none:
 * not longer than the row's own). slowdown is the one from 1 to 1000 that makes the sum
 * over rows of
 *
 *   (C' / beside_ms - 1)^2, C' from C = alone_ms and T' = transfer_beside_ms,
 *
 * least, and transfer_slowdown that of (T' / transfer_beside_ms - 1)^2, T' from
 * T = transfer_alone_ms and B, the longer of both ends' beside_ms. overhead_ms is the
 * median of wait_ms. Rows without transfer times do not count. HCP_NO_ANSWER: none is
 * left. */
int hcp_interference_fit(const struct hcp_interference_row *rows, size_t n,
                         const struct hcp_interference_row *peers, size_t n_peers,
                         struct hcp_interference *out, struct hcp_err *err);

/* C' and T' for C and T >= 0 (either may be 0: then the other takes its own time).
 * peer_ms: P, 0 if the other end does not compute. */
void hcp_interference_times(const struct hcp_interference *f, double block_ms,
                            double peer_ms, double transfer_ms, double *block_beside_ms,
                            double *transfer_beside_ms);

/* The fit of the rows of one key beside transfers with one peer; peer_device, peer_limit
 * and by->transport NULL: any. HCP_NO_ANSWER
 * when it was never measured, and the command that does; HCP_USAGE as hcp_db_link_of,
 * which has hosts too. */
int hcp_db_interference_of(hcp_db *db, const struct hcp_key *key, const char *peer_device,
                           const char *peer_limit, const struct hcp_link_by *by,
                           struct hcp_interference *out, struct hcp_err *err);

#endif
