/* SPDX-License-Identifier: Apache-2.0 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_CUDNN
#include "kernels/cudnn-graph.h"
#include "kernels/library.h"

#include <pthread.h>
#include <stdio.h>

/* 9.10.0 and 9.10.1 compute wrong attention; before that -inf is no valid mask. */
enum { OLDEST = 91002 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static hcp_cudnn_api loaded;
static int usable;
static char failure[256];

static void load(void)
{
    static const struct hcp_library cudnn = {
        .variable = "HCP_CUDNN",
        .name = "libcudnn.so.9",
        .built_with = HCP_CUDA_LIBDIR "/libcudnn.so.9",
        .missing = "install cuDNN 9.10.2 or newer or set HCP_CUDNN to its path",
        .title = "cuDNN",
        .install = "cuDNN 9"};
    const struct hcp_library_function wanted[] = {
        {"cudnnGetVersion", (void **)&loaded.get_version},
        {"cudnnGetErrorString", (void **)&loaded.error_string},
        {"cudnnGetLastErrorString", (void **)&loaded.last_error_string},
        {"cudnnCreate", (void **)&loaded.create},
        {"cudnnDestroy", (void **)&loaded.destroy},
        {"cudnnSetStream", (void **)&loaded.set_stream},
        {"cudnnBackendCreateDescriptor", (void **)&loaded.create_descriptor},
        {"cudnnBackendDestroyDescriptor", (void **)&loaded.destroy_descriptor},
        {"cudnnBackendSetAttribute", (void **)&loaded.set_attribute},
        {"cudnnBackendGetAttribute", (void **)&loaded.get_attribute},
        {"cudnnBackendFinalize", (void **)&loaded.finalize},
        {"cudnnBackendExecute", (void **)&loaded.execute},
    };
    if (!hcp_library_load(&cudnn, wanted, sizeof wanted / sizeof *wanted, failure,
                          sizeof failure))
        return;
    loaded.version = loaded.get_version();
    snprintf(loaded.version_text, sizeof loaded.version_text, "%zu.%zu.%zu",
             loaded.version / 10000, loaded.version / 100 % 100, loaded.version % 100);
    if (loaded.version < OLDEST) {
        snprintf(failure, sizeof failure,
                 "cuDNN %s is too old for masked attention; install 9.10.2 or newer",
                 loaded.version_text);
        return;
    }
    usable = 1;
}

const hcp_cudnn_api *hcp_cudnn_load(char *why, size_t why_size)
{
    pthread_once(&once, load);
    if (!usable && why && why_size)
        snprintf(why, why_size, "%s", failure);
    return usable ? &loaded : NULL;
}

/* Idle handles, by device: of its primary context, the only one that this process
 * uses. Whoever takes one has it alone until it comes back; the lock covers the list,
 * never a call of cuDNN. */
enum { MAX_IDLE = 16 };
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int device;
    cudnnHandle_t handle;
} idle[MAX_IDLE];
static int n_idle;

cudnnStatus_t hcp_cudnn_take_handle(const hcp_cudnn_api *api, int device,
                                    cudnnHandle_t *out)
{
    cudnnHandle_t found = NULL;
    pthread_mutex_lock(&idle_lock);
    for (int i = n_idle; i-- > 0 && !found;) {
        if (idle[i].device == device) {
            found = idle[i].handle;
            idle[i] = idle[--n_idle];
        }
    }
    pthread_mutex_unlock(&idle_lock);
    if (found) {
        *out = found;
        return CUDNN_STATUS_SUCCESS;
    }
    return api->create(out);
}

void hcp_cudnn_give_handle(const hcp_cudnn_api *api, int device, cudnnHandle_t handle)
{
    int kept;
    api->set_stream(handle,
                    NULL); /* the user's stream may be gone before the next plan */
    pthread_mutex_lock(&idle_lock);
    kept = n_idle < MAX_IDLE;
    if (kept) {
        idle[n_idle].device = device;
        idle[n_idle++].handle = handle;
    }
    pthread_mutex_unlock(&idle_lock);
    if (!kept)
        api->destroy(handle);
}
#else
typedef int hcp_no_cudnn; /* a translation unit may not be empty */
#endif
