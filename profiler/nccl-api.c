/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/nccl-api.h"
#include <pthread.h>
#include <stdio.h>
#include "kernels/library.h"

/* The first with maxCTAs in its configuration. */
enum { OLDEST = 21700 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static hcp_nccl_api loaded;
static int usable;
static char failure[256];

static void load(void)
{
    static const struct hcp_library nccl = {
        .variable = "HCP_NCCL",
        .name = "libnccl.so.2",
        .built_with = HCP_CUDA_LIBDIR "/libnccl.so.2",
        .missing = "install NCCL 2.17 or newer, set HCP_NCCL to its path, or use "
                   "--transport mpi",
        .title = "NCCL",
        .install = "NCCL 2.17 or newer"};
    const struct hcp_library_function wanted[] = {
        {"ncclGetVersion", (void **)&loaded.get_version},
        {"ncclGetUniqueId", (void **)&loaded.get_unique_id},
        {"ncclGetErrorString", (void **)&loaded.error_string},
        {"ncclGetLastError", (void **)&loaded.last_error},
        {"ncclCommInitRankConfig", (void **)&loaded.init},
        {"ncclCommFinalize", (void **)&loaded.finalize},
        {"ncclCommDestroy", (void **)&loaded.destroy},
        {"ncclCommAbort", (void **)&loaded.abort},
        {"ncclCommGetAsyncError", (void **)&loaded.async_error},
        {"ncclSend", (void **)&loaded.send},
        {"ncclRecv", (void **)&loaded.recv},
        {"ncclGroupStart", (void **)&loaded.group_start},
        {"ncclGroupEnd", (void **)&loaded.group_end},
    };
    if (!hcp_library_load(&nccl, wanted, sizeof wanted / sizeof *wanted, failure,
                          sizeof failure))
        return;
    if (loaded.get_version(&loaded.version) != ncclSuccess)
        loaded.version = 0;
    /* Numbered so since 2.9. */
    snprintf(loaded.version_text, sizeof loaded.version_text, "%d.%d.%d",
             loaded.version / 10000, loaded.version / 100 % 100, loaded.version % 100);
    if (loaded.version < OLDEST) {
        snprintf(failure, sizeof failure,
                 "NCCL %s cannot bound its blocks; install 2.17 or newer",
                 loaded.version_text);
        return;
    }
    usable = 1;
}

const hcp_nccl_api *hcp_nccl_load(char *why, size_t why_size)
{
    pthread_once(&once, load);
    if (!usable && why && why_size)
        snprintf(why, why_size, "%s", failure);
    return usable ? &loaded : NULL;
}
