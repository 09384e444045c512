/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL loaded at run time: a program starts without it.
 */
#ifndef HCP_NCCL_API_H
#define HCP_NCCL_API_H
#include <nccl.h>
#include <stddef.h>

typedef struct hcp_nccl_api {
    int version; /* 22809 */
    char version_text[32];
    ncclResult_t (*get_version)(int *version);
    ncclResult_t (*get_unique_id)(ncclUniqueId *id);
    const char *(*error_string)(ncclResult_t result);
    const char *(*last_error)(ncclComm_t comm);
    ncclResult_t (*init)(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                         ncclConfig_t *config);
    ncclResult_t (*finalize)(ncclComm_t comm);
    ncclResult_t (*destroy)(ncclComm_t comm);
    ncclResult_t (*abort)(ncclComm_t comm);
    ncclResult_t (*async_error)(ncclComm_t comm, ncclResult_t *error);
    ncclResult_t (*send)(const void *data, size_t count, ncclDataType_t type, int peer,
                         ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*recv)(void *data, size_t count, ncclDataType_t type, int peer,
                         ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
} hcp_nccl_api;

/* The library, loaded once. NULL: why says what to install. Thread-safe. */
const hcp_nccl_api *hcp_nccl_load(char *why, size_t why_size);

#endif
