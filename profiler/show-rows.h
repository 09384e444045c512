/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of `hcp-profile show` beside those of cells. Each prints what passes the
 * filter as a table or a JSON array, nothing where there is no row; *rows counts.
 */
#ifndef HCP_SHOW_ROWS_H
#define HCP_SHOW_ROWS_H
#include "db/db.h"

int show_finish(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
                struct hcp_err *err);
/* A row a pair and transport with the fit to what passes the filter; each: every row. */
int show_links(hcp_db *db, const struct hcp_filter *filter, int each, int json,
               size_t *rows, struct hcp_err *err);
/* A row a pair, a block beside a transfer, a cell that was measured again, a GEMM. */
int show_topology(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
                  struct hcp_err *err);
int show_interference(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
                      struct hcp_err *err);
int show_drift(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
               struct hcp_err *err);
int show_linear(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
                struct hcp_err *err);
/* device and limit are those of one rank; run_uid is the ring's uid. */
int show_rings(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
               struct hcp_err *err);

#endif
