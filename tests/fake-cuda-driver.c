/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's side of green contexts for a device of $FAKE_CUDA_SMS SMs (132) of
 * compute capability $FAKE_CUDA_CC (9), of which $FAKE_CUDA_LEFT (4) fit into no group.
 * $FAKE_CUDA_FAULT: init, unsupported, split, empty (no group of any size), none (no
 * group of 16), more (sets 24 aside for 16), create, memory, readback (the context has
 * other SMs than it was made with), stream. $FAKE_CUDA_VERSION: 12040 does not tell
 * minimum and step. Compiled with FAKE_CUDA_OLD it is a driver from before green
 * contexts.
 */
#include "tests/fake-cuda-driver.h"
#include <stdlib.h>
#include <string.h>

typedef int result;
enum { SUCCESS = 0, INVALID = 1, MEMORY = 2, UNINITIALISED = 3, NO_DEVICE = 100 };
enum { BAD_RESOURCE = 914, UNSUPPORTED = 801 };

#ifndef FAKE_CUDA_OLD
struct resource {
    int type;
    unsigned char internal[92];
    unsigned sm_count, min, step;
    unsigned char oversize[36];
};
_Static_assert(sizeof(struct resource) == 144, "as CUDA's CUdevResource");

struct context {
    struct resource sms;
};

static struct fake_cuda_driver state;
static struct context *stack[8];
#endif
static int initialised;

#pragma GCC visibility push(default)
/* CUDA's header, which a build without it has not, declares them. */
result cuInit(unsigned flags);
result cuGetErrorString(result code, const char **text);
result cuDriverGetVersion(int *version);
result cuDeviceGet(int *device, int ordinal);
result cuDeviceGetAttribute(int *value, int which, int device);

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static int fault(const char *name)
{
    const char *text = getenv("FAKE_CUDA_FAULT");
    return text && strcmp(text, name) == 0;
}

result cuInit(unsigned flags)
{
    (void)flags;
    if (fault("init"))
        return NO_DEVICE;
    initialised = 1;
    return SUCCESS;
}

result cuGetErrorString(result code, const char **text)
{
    *text = code == NO_DEVICE      ? "no CUDA-capable device is detected"
            : code == MEMORY       ? "out of memory"
            : code == BAD_RESOURCE ? "invalid resource configuration"
                                   : "invalid argument";
    return SUCCESS;
}

result cuDriverGetVersion(int *version)
{
    *version = number("FAKE_CUDA_VERSION", 13000);
    return SUCCESS;
}

result cuDeviceGet(int *device, int ordinal)
{
    if (!initialised)
        return UNINITIALISED;
    *device = ordinal;
    return ordinal == 0 ? SUCCESS : INVALID;
}

result cuDeviceGetAttribute(int *value, int which, int device)
{
    if (which != 75 || device != 0)
        return INVALID;
    *value = number("FAKE_CUDA_CC", 9);
    return SUCCESS;
}

#ifndef FAKE_CUDA_OLD
const struct fake_cuda_driver *fake_cuda_driver_state(void);
result cuDeviceGetDevResource(int device, struct resource *out, int type);
result cuDevSmResourceSplitByCount(struct resource *out, unsigned *groups,
                                   const struct resource *from, struct resource *rest,
                                   unsigned flags, unsigned sms);
result cuDevResourceGenerateDesc(void **out, struct resource *resources, unsigned n);
result cuGreenCtxCreate(void **out, void *desc, int device, unsigned flags);
result cuGreenCtxDestroy(void *green);
result cuCtxFromGreenCtx(void **out, void *green);
result cuCtxGetDevResource(void *context, struct resource *out, int type);
result cuCtxPushCurrent_v2(void *context);
result cuCtxPopCurrent_v2(void **was);
result cuCtxGetStreamPriorityRange(int *least, int *greatest);
result cuStreamCreateWithPriority(void **out, unsigned flags, int priority);

const struct fake_cuda_driver *fake_cuda_driver_state(void)
{
    return &state;
}

static unsigned step(void)
{
    return number("FAKE_CUDA_CC", 9) >= 9 ? 8 : 2;
}

static unsigned least_sms(void)
{
    return number("FAKE_CUDA_CC", 9) >= 9 ? 8 : 4;
}

result cuDeviceGetDevResource(int device, struct resource *out, int type)
{
    int told = number("FAKE_CUDA_VERSION", 13000) >= 13000;
    if (fault("unsupported"))
        return UNSUPPORTED;
    if (device != 0 || type != 1)
        return INVALID;
    *out = (struct resource){.type = 1,
                             .sm_count = (unsigned)number("FAKE_CUDA_SMS", 132),
                             .min = told ? least_sms() : 0,
                             .step = told ? step() : 0};
    return SUCCESS;
}

/* Rounds up, as the driver does. */
result cuDevSmResourceSplitByCount(struct resource *out, unsigned *groups,
                                   const struct resource *from, struct resource *rest,
                                   unsigned flags, unsigned sms)
{
    unsigned each = (sms + step() - 1) / step() * step();
    unsigned room = from->sm_count - (unsigned)number("FAKE_CUDA_LEFT", 4);
    (void)rest;
    if (fault("split") || flags != 0 || from->type != 1 || sms > from->sm_count)
        return INVALID;
    each = each < least_sms() ? least_sms() : each;
    unsigned n = fault("empty") || (fault("none") && sms == 16) ? 0 : room / each;
    if (!out) {
        *groups = n;
        return SUCCESS;
    }
    *groups = n < *groups ? n : *groups;
    for (unsigned i = 0; i < *groups; i++) {
        out[i] = *from;
        out[i].sm_count = each + (fault("more") && sms == 16 ? 8 : 0);
    }
    return SUCCESS;
}

result cuDevResourceGenerateDesc(void **out, struct resource *resources, unsigned n)
{
    if (n != 1 || resources->type != 1)
        return BAD_RESOURCE;
    struct resource *desc = malloc(sizeof *desc);
    *desc = *resources;
    *out = desc;
    return SUCCESS;
}

result cuGreenCtxCreate(void **out, void *desc, int device, unsigned flags)
{
    struct context *c = desc;
    if (device != 0 || flags != 1)
        return INVALID;
    if (fault("create") || fault("memory")) {
        free(desc);
        return fault("create") ? BAD_RESOURCE : MEMORY;
    }
    if (fault("readback"))
        c->sms.sm_count += 2;
    state.contexts++;
    *out = c;
    return SUCCESS;
}

result cuGreenCtxDestroy(void *green)
{
    state.contexts--;
    free(green);
    return SUCCESS;
}

result cuCtxFromGreenCtx(void **out, void *green)
{
    *out = green;
    return SUCCESS;
}

result cuCtxGetDevResource(void *context, struct resource *out, int type)
{
    if (type != 1)
        return INVALID;
    *out = ((struct context *)context)->sms;
    return SUCCESS;
}

result cuCtxPushCurrent_v2(void *context)
{
    stack[state.depth++] = context;
    return SUCCESS;
}

result cuCtxPopCurrent_v2(void **was)
{
    if (state.depth == 0)
        return INVALID;
    *was = stack[--state.depth];
    return SUCCESS;
}

result cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}

result cuStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
    if (fault("stream"))
        return MEMORY;
    struct fake_cuda_stream *s = malloc(sizeof *s);
    *s = (struct fake_cuda_stream){
        .sms = state.depth > 0 ? stack[state.depth - 1]->sms.sm_count : 0,
        .flags = flags,
        .priority = priority};
    *out = s;
    return SUCCESS;
}
#endif
