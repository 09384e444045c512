/* SPDX-License-Identifier: Apache-2.0
 *
 * What a profile database can answer, and what is wrong with it: the findings of
 * `hcp-profile check`. A library of its own (libhcpaudit.la): programs only.
 */
#ifndef HCP_AUDIT_H
#define HCP_AUDIT_H
#include "db/db.h"

enum hcp_severity { HCP_NOTE, HCP_WARNING, HCP_ERROR };

/* What a finding's rows are. */
enum hcp_row_kind {
    HCP_ROWS_CELLS, /* drift rows too, which are of a cell */
    HCP_ROWS_FINISH,
    HCP_ROWS_LINKS,
    HCP_ROWS_BESIDE, /* interference */
    HCP_ROWS_LINEAR
};
struct hcp_lengths {
    char mask[8];          /* "full" "causal"; "store" "merge"; "" */
    int64_t q_len, kv_len; /* of a transfer: bytes, 0; of a GEMM: tokens, 0 */
};

/* Rows of one key that share a fault. */
struct hcp_finding {
    enum hcp_severity severity;
    const char *section; /* "integrity" "coverage" "staleness" "suspicious" */
    const char *code;    /* stable: "not-monotone" */
    enum hcp_row_kind kind;
    struct hcp_key key; /* device "": the whole file; of GEMMs provider is the library */
    int any_limit;      /* it is about all limits of the key; key.limit is "" */
    char peer_device[64], peer_limit[32], transport[8]; /* of transfers, else "" */
    int32_t channels;            /* of transfers: NCCL's, as set; 0: its own choice */
    int one_way;                 /* of transfers: device to peer_device, nothing back */
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
    int32_t channels; /* 0: NCCL's own choice */
    int one_way;      /* a sends to b, nothing comes back */
    int64_t rows, bytes_min, bytes_max;
};
/* Blocks of one key beside transfers with one peer. */
struct hcp_cover_beside {
    struct hcp_key key;
    char peer_device[64], peer_limit[32], transport[8];
    int32_t channels;
    int64_t rows;
    double factor_min, factor_max; /* beside_ms / alone_ms */
};
/* GEMMs of one device, limit, library and dtype. */
struct hcp_cover_linear {
    char device[64], limit[32], library[32], dtype[8];
    int64_t rows, layers, tokens_min, tokens_max; /* layers: distinct n_in x n_out */
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
    struct hcp_cover_beside *besides;
    size_t n_besides;
    struct hcp_cover_linear *linears;
    size_t n_linears;
};

/* Looks through the whole file. A finding is no failure: HCP_FAILED only where the file
 * cannot be read. Free with hcp_audit_free, also after a failure. */
int hcp_audit_file(hcp_db *db, const struct hcp_audit_here *here, size_t n_here,
                   struct hcp_audit *out, struct hcp_err *err);
void hcp_audit_free(struct hcp_audit *audit);

#endif
