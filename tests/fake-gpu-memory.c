/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake-gpu.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "kernels/cuda.h"

/* Memory that another process may open; the first bytes of a handle are the name. */
struct shared {
    char name[48];
    size_t size;
    void *at;
    int opened; /* another process's */
    struct shared *next;
};
static struct shared *all_shared;

/* What a failed transport leaves, or a test. */
static void unlink_shared(void)
{
    for (const struct shared *s = all_shared; s; s = s->next)
        if (!s->opened)
            shm_unlink(s->name);
}

static void *map_shared(const char *name, size_t size, int opened)
{
    struct shared *s = calloc(1, sizeof *s);
    int fd = shm_open(name, opened ? O_RDWR : O_RDWR | O_CREAT | O_EXCL, 0600);
    void *at = MAP_FAILED;
    if (s && fd >= 0 && (opened || ftruncate(fd, (off_t)size) == 0))
        at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        free(s);
        errno = why;
        return NULL;
    }
    close(fd);
    snprintf(s->name, sizeof s->name, "%s", name);
    s->size = size;
    s->at = at;
    s->opened = opened;
    if (!all_shared)
        atexit(unlink_shared);
    s->next = all_shared;
    all_shared = s;
    return at;
}

/* 1 if there was such memory. */
static int unmap_shared(void *at)
{
    for (struct shared **s = &all_shared; *s; s = &(*s)->next)
        if ((*s)->at == at) {
            struct shared *gone = *s;
            *s = gone->next;
            munmap(gone->at, gone->size);
            if (!gone->opened)
                shm_unlink(gone->name);
            free(gone);
            return 1;
        }
    return 0;
}

int hcp_cuda_ipc_export(void *memory, unsigned char handle[HCP_CUDA_IPC_BYTES])
{
    memset(handle, 0, HCP_CUDA_IPC_BYTES);
    for (struct shared *s = all_shared; s; s = s->next)
        if (s->at == memory) {
            memcpy(handle, s->name, sizeof s->name);
            memcpy(handle + sizeof s->name, &s->size, sizeof s->size);
            return HCP_RC_OK;
        }
    return HCP_RC_DEVICE;
}

int hcp_cuda_ipc_open(const unsigned char handle[HCP_CUDA_IPC_BYTES], void **out)
{
    char name[48];
    size_t size;
    memcpy(name, handle, sizeof name);
    memcpy(&size, handle + sizeof name, sizeof size);
    *out = map_shared(name, size, 1);
    return *out ? HCP_RC_OK : HCP_RC_DEVICE;
}

void hcp_cuda_ipc_close(void *memory)
{
    unmap_shared(memory);
}

int fake_gpu_alloc(void **out, int64_t bytes)
{
    static int n;
    size_t size = ((size_t)bytes + 63) / 64 * 64; /* kernels want it aligned */
    char name[48];
    void *p = NULL;
    size = size ? size : 64;
    if (!getenv("FAKE_GPU_SHARED"))
        p = aligned_alloc(64, size);
    else
        do { /* names may be left of a process that was killed */
            errno = 0;
            snprintf(name, sizeof name, "/fake-gpu-%d-%d", (int)getpid(), n++);
            p = map_shared(name, size, 0);
        } while (!p && errno == EEXIST);
    if (!p)
        return HCP_RC_NO_MEMORY;
    memset(p, 0xff, size);
    *out = p;
    return HCP_RC_OK;
}

void fake_gpu_release(void *p)
{
    if (!unmap_shared(p))
        free(p);
}
