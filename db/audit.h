/* SPDX-License-Identifier: Apache-2.0
 *
 * What a profile database can answer, and what is wrong with it: the findings of
 * `hcp-profile check`. A library of its own (libhcpaudit.la): programs only.
 */
#ifndef HCP_AUDIT_H
#define HCP_AUDIT_H
#include "db/db.h"

enum hcp_severity { HCP_NOTE, HCP_WARNING, HCP_ERROR };

struct hcp_lengths {
    char mask[8]; /* "full" "causal"; "store" "merge": a finish pass; "" a transfer */
    int64_t q_len, kv_len; /* of a transfer: bytes, 0 */
};

/* Rows of one key that share a fault. */
struct hcp_finding {
    enum hcp_severity severity;
    const char *section; /* "integrity" "coverage" "staleness" "suspicious" */
    const char *code;    /* stable: "not-monotone" */
    struct hcp_key key;  /* device "": the whole file */
    int any_limit;       /* it is about all limits of the key; key.limit is "" */
    char peer_device[64], peer_limit[32], transport[8]; /* of transfers, else "" */
    size_t rows;                 /* concerned; 0: it is about no row */
    struct hcp_lengths *lengths; /* the worst first; at most HCP_FINDING_LENGTHS */
    size_t n_lengths;
    char *text;    /* the cause, of the worst row */
    char *command; /* what mends it; "" if nothing has to be done */
};
enum { HCP_FINDING_LENGTHS = 64 };

/* What one key has under one mask. */
struct hcp_cover {
    struct hcp_key key;
    char mask[8];
    int64_t cells, failed;                /* failed and never measured since */
    int64_t q_min, q_max, kv_min, kv_max; /* of the measured ones; 0: none */
    int64_t stores, merges;               /* finish passes of the key */
    int models, stale;                    /* of the key */
    char origin[12];                      /* "mixed" when rows differ */
};
/* Transfers of one pair under its limits. */
struct hcp_cover_link {
    char device_a[64], limit_a[32], device_b[64], limit_b[32], transport[8];
    int64_t rows, bytes_min, bytes_max;
};

/* A kernel on a device of this machine, to compare with; "" = not known. */
struct hcp_audit_here {
    char device[64], driver[32], cuda_version[16];
    char provider[32], provider_version[48];
};

struct hcp_audit {
    struct hcp_finding *findings; /* in order of section, severity, code, key */
    size_t n_findings, n[3];      /* n: by severity */
    struct hcp_cover *covers;
    size_t n_covers;
    struct hcp_cover_link *links;
    size_t n_links;
};

/* Looks through the whole file. A finding is no failure: HCP_FAILED only where the file
 * cannot be read. Free with hcp_audit_free, also after a failure. */
int hcp_audit_file(hcp_db *db, const struct hcp_audit_here *here, size_t n_here,
                   struct hcp_audit *out, struct hcp_err *err);
void hcp_audit_free(struct hcp_audit *audit);

#endif
