/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by audit*.c. The rules read tables of the connection's own:
 *   akey   id and the nine columns of a key, of cells and finish rows
 *   acell  the ok cells: id, key, run_id, device_id, mask, q_len, kv_len, time_ms, lo, hi
 *          (the interval of the median, or the quartiles, or 2 % where neither is known)
 *   afinish  the same of finish passes, with kind
 *   alink    the same of transfers, with bytes; key is of apair
 *   apair    id, device_a, limiter_a, device_b, limiter_b, transport, channels (0: not
 * set) abeside  id, the columns of a key, peer, peer_limiter, transport, channels aside
 * interference rows, with key of abeside agemm    id, device, limiter, provider (the
 * library), dtype alinear  linear rows, with key of agemm, lo and hi adrift   drift rows
 * whose key has cells, with key of akey and noise (relative, of the cell that was
 * measured again: its interval, 1 % at least) anewest  of each key that is not computed,
 * where its newest cell comes from ahere    struct hcp_audit_here
 */
#ifndef HCP_AUDIT_INTERNAL_H
#define HCP_AUDIT_INTERNAL_H
#include "db/audit.h"
#include "db/db-internal.h"

/* LIMITS: the limits of a key together; column 7 says which. */
enum hcp_about {
    HCP_ABOUT_KEY,
    HCP_ABOUT_LIMITS,
    HCP_ABOUT_PAIR,
    HCP_ABOUT_BESIDE,
    HCP_ABOUT_GEMMS,
    HCP_ABOUT_FILE
};

/* What the reader is told to do. */
enum hcp_mend {
    HCP_MEND_NONE,
    HCP_MEND_GIVEN,  /* column 7 of the rule has the command; FILE stands for the file */
    HCP_MEND_REDO,   /* remove these rows and measure them again; of notes: nothing */
    HCP_MEND_RETRY,  /* failed cells */
    HCP_MEND_RESUME, /* the same sweep goes on; column 7 has more options */
    HCP_MEND_ANEW,   /* measure the whole key into a new file */
    HCP_MEND_FIT,
    HCP_MEND_LINK,   /* remove these transfers and measure them again */
    HCP_MEND_BESIDE, /* the same of blocks beside transfers */
    HCP_MEND_LINEAR  /* the same of GEMMs */
};

/* A query whose rows are: severity, key (id in the table that `about` names; NULL for a
 * file), mask, q_len, kv_len, text, how bad, command, row id. */
struct hcp_rule {
    const char *section, *code;
    enum hcp_about about;
    enum hcp_mend mend;
    const char *sql;
};
extern const struct hcp_rule hcp_audit_rules[];
extern const size_t hcp_n_audit_rules;
/* Those about rows other than cells, finish passes and transfers. */
extern const struct hcp_rule hcp_audit_row_rules[];
extern const size_t hcp_n_audit_row_rules;

/* Appends a copy of f (text and command are taken over, lengths too). */
int hcp_audit_add(struct hcp_audit *audit, const struct hcp_finding *f,
                  struct hcp_err *err);
/* Runs one rule. */
int hcp_audit_rule(hcp_db *db, const struct hcp_rule *rule, struct hcp_audit *audit,
                   struct hcp_err *err);
/* malloc'ed command for a finding; more: column 7. ids: of its rows. */
char *hcp_audit_mend(hcp_db *db, enum hcp_mend mend, const struct hcp_finding *f,
                     const char *more, const int64_t *ids);

/* Tables and models that do not fit their samples; coverage (fills covers and links). */
int hcp_audit_models(hcp_db *db, struct hcp_audit *audit, struct hcp_err *err);
int hcp_audit_cover(hcp_db *db, struct hcp_audit *audit, struct hcp_err *err);

#endif
