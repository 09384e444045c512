/* SPDX-License-Identifier: Apache-2.0
 *
 * Green contexts by the driver's own functions, loaded when they are asked for: a build
 * without CUDA has them too, and tests put a library of their own in the driver's place.
 */
#include "config.h"
#include "profiler/limiter.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/library.h"

/* What of the driver's ABI is used here; the same since CUDA 12.4. */
typedef int cu_result; /* 0: success */
typedef int cu_device;
typedef void *cu_context, *cu_green, *cu_desc, *cu_stream;

enum { CU_RESOURCE_SM = 1, CU_GREEN_DEFAULT_STREAM = 1, CU_STREAM_NON_BLOCKING = 1 };
enum { CU_ATTRIBUTE_CC_MAJOR = 75, CU_NOT_SUPPORTED = 801 };

typedef struct {
    int type;
    unsigned char internal[92];
    union {
        struct {
            unsigned sm_count;
            unsigned min, step; /* since CUDA 13.0; before it 0 */
        } sm;
        unsigned char oversize[48];
    } u;
} cu_resource;

static struct {
    cu_result (*init)(unsigned flags);
    cu_result (*error_string)(cu_result code, const char **text);
    cu_result (*driver_version)(int *version);
    cu_result (*device)(cu_device *device, int ordinal);
    cu_result (*attribute)(int *value, int which, cu_device device);
    cu_result (*resource)(cu_device device, cu_resource *out, int type);
    cu_result (*split)(cu_resource *out, unsigned *groups, const cu_resource *from,
                       cu_resource *rest, unsigned flags, unsigned sms);
    cu_result (*describe)(cu_desc *out, cu_resource *resources, unsigned n);
    cu_result (*create)(cu_green *out, cu_desc desc, cu_device device, unsigned flags);
    cu_result (*destroy)(cu_green green);
    cu_result (*context)(cu_context *out, cu_green green);
    cu_result (*resource_of)(cu_context context, cu_resource *out, int type);
    cu_result (*push)(cu_context context);
    cu_result (*pop)(cu_context *was);
    cu_result (*priorities)(int *least, int *greatest);
    cu_result (*stream)(cu_stream *out, unsigned flags, int priority);
} cu;

struct hcp_green {
    cu_green green;
    cu_context context;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int usable, version;
static char failure[400];

static const char *text_of(cu_result code)
{
    const char *text = NULL;
    return cu.error_string(code, &text) == 0 && text ? text : "unknown error";
}

static void load(void)
{
    static const struct hcp_library driver = {
        .variable = "HCP_CUDA_DRIVER",
        .name = "libcuda.so.1",
        .built_with = "libcuda.so",
        .missing = "install the NVIDIA driver (nvidia-smi must work)",
        .title = "NVIDIA driver",
        .install = "a driver for CUDA 12.4 (550) or newer, or use mps:PCT"};
    const struct hcp_library_function wanted[] = {
        {"cuInit", (void **)&cu.init},
        {"cuGetErrorString", (void **)&cu.error_string},
        {"cuDriverGetVersion", (void **)&cu.driver_version},
        {"cuDeviceGet", (void **)&cu.device},
        {"cuDeviceGetAttribute", (void **)&cu.attribute},
        {"cuDeviceGetDevResource", (void **)&cu.resource},
        {"cuDevSmResourceSplitByCount", (void **)&cu.split},
        {"cuDevResourceGenerateDesc", (void **)&cu.describe},
        {"cuGreenCtxCreate", (void **)&cu.create},
        {"cuGreenCtxDestroy", (void **)&cu.destroy},
        {"cuCtxFromGreenCtx", (void **)&cu.context},
        {"cuCtxGetDevResource", (void **)&cu.resource_of},
        {"cuCtxPushCurrent_v2", (void **)&cu.push},
        {"cuCtxPopCurrent_v2", (void **)&cu.pop},
        {"cuCtxGetStreamPriorityRange", (void **)&cu.priorities},
        {"cuStreamCreateWithPriority", (void **)&cu.stream},
    };
    if (!hcp_library_load(&driver, wanted, sizeof wanted / sizeof *wanted, failure,
                          sizeof failure))
        return;
    cu_result code = cu.init(0);
    if (code != 0) {
        snprintf(failure, sizeof failure,
                 "the NVIDIA driver does not start: %s (%d); nvidia-smi must work",
                 text_of(code), code);
        return;
    }
    cu.driver_version(&version);
    usable = 1;
}

/* What the driver says of a call, as one line. */
static int refused(const char *doing, cu_result code, struct hcp_err *err)
{
    if (code == CU_NOT_SUPPORTED)
        return hcp_fail(err, HCP_FAILED,
                        "green contexts: the driver (CUDA %d.%d) does not serve them on "
                        "this device; use mps:PCT",
                        version / 1000, version % 1000 / 10);
    return hcp_fail(err, HCP_FAILED,
                    "green contexts: the driver does not %s: %s (%d); use mps:PCT", doing,
                    text_of(code), code);
}

/* All SMs of a device, and its number at the driver. */
static int whole(int ordinal, cu_device *device, cu_resource *all, struct hcp_err *err)
{
    pthread_once(&once, load);
    if (!usable)
        return hcp_fail(err, HCP_FAILED, "green contexts: %s", failure);
    cu_result code = cu.device(device, ordinal);
    if (code != 0)
        return refused("find the device", code, err);
    memset(all, 0, sizeof *all);
    code = cu.resource(*device, all, CU_RESOURCE_SM);
    return code == 0 ? HCP_OK : refused("tell the device's SMs", code, err);
}

/* NVIDIA's table, for drivers that do not say it with the resource. */
static void table(int cc_major, struct hcp_green_rule *rule)
{
    rule->min = cc_major >= 9 ? 8 : cc_major == 8 ? 4 : 2;
    rule->step = cc_major >= 9 ? 8 : 2;
}

static int rule_of(cu_device device, const cu_resource *all, struct hcp_green_rule *out,
                   struct hcp_err *err)
{
    struct hcp_green_rule rule = {.sm_count = (int32_t)all->u.sm.sm_count,
                                  .min = (int32_t)all->u.sm.min,
                                  .step = (int32_t)all->u.sm.step};
    int cc_major = 0;
    if (rule.min <= 0 || rule.step <= 0) {
        cu.attribute(&cc_major, CU_ATTRIBUTE_CC_MAJOR, device);
        table(cc_major, &rule);
    }
    /* Not all steps up to the last are there on every card: it rounds up to the whole
     * device where the clusters of its SMs do not go into steps. */
    for (int32_t sms = (rule.sm_count - 1) / rule.step * rule.step; sms >= rule.min;
         sms -= rule.step) {
        cu_resource part;
        unsigned groups = 1;
        memset(&part, 0, sizeof part);
        cu_result code = cu.split(&part, &groups, all, NULL, 0, (unsigned)sms);
        if (code != 0)
            return refused("divide the device's SMs", code, err);
        if (groups == 1 && part.u.sm.sm_count == (unsigned)sms) {
            rule.most = sms;
            break;
        }
    }
    if (rule.most == 0)
        return hcp_fail(err, HCP_FAILED,
                        "green contexts: the driver has no SMs to set aside on this "
                        "device; use mps:PCT");
    *out = rule;
    return HCP_OK;
}

int hcp_green_rule(int ordinal, struct hcp_green_rule *out, struct hcp_err *err)
{
    cu_device device;
    cu_resource all;
    int rc = whole(ordinal, &device, &all, err);
    return rc == HCP_OK ? rule_of(device, &all, out, err) : rc;
}

int hcp_green_check(const struct hcp_green_rule *rule, int sms, struct hcp_err *err)
{
    int whole_device = sms == rule->sm_count;
    if (sms > rule->sm_count)
        return hcp_fail(err, HCP_USAGE, "limit 'green:%d': this device has %d SMs", sms,
                        rule->sm_count);
    if (sms < rule->min)
        return hcp_fail(err, HCP_USAGE,
                        "limit 'green:%d': this device sets aside %d SMs or more; use "
                        "green:%d",
                        sms, rule->min, rule->min);
    if (!whole_device && sms > rule->most)
        return hcp_fail(err, HCP_USAGE,
                        "limit 'green:%d': this device sets aside up to %d SMs, or all "
                        "of its %d; use green:%d or green:%d",
                        sms, rule->most, rule->sm_count, rule->most, rule->sm_count);
    int below = sms / rule->step * rule->step, above = below + rule->step;
    if (!whole_device && sms != below)
        return hcp_fail(err, HCP_USAGE,
                        "limit 'green:%d': this device sets aside SMs in steps of %d; "
                        "use green:%d or green:%d",
                        sms, rule->step, below < rule->min ? rule->min : below,
                        above > rule->most ? rule->sm_count : above);
    return HCP_OK;
}

int32_t hcp_green_near(const struct hcp_green_rule *rule, int percent)
{
    double want = percent / 100.0 * rule->sm_count;
    int32_t best = rule->sm_count;
    for (int32_t sms = rule->most / rule->step * rule->step; sms >= rule->min;
         sms -= rule->step)
        if (fabs(sms - want) <= fabs(best - want))
            best = sms;
    return best;
}

/* The part of all SMs that a context is to have. */
static int part_of(const cu_resource *all, int sms, cu_resource *part,
                   struct hcp_err *err)
{
    unsigned groups = 1;
    *part = *all;
    if ((unsigned)sms == all->u.sm.sm_count)
        return HCP_OK;
    memset(part, 0, sizeof *part);
    cu_result code = cu.split(part, &groups, all, NULL, 0, (unsigned)sms);
    if (code != 0)
        return refused("set the SMs aside", code, err);
    if (groups < 1)
        return hcp_fail(
            err, HCP_FAILED,
            "green contexts: the driver has no %d SMs to set aside; use fewer", sms);
    return HCP_OK;
}

/* As many as were asked for, or the name of the limit would not be what it is. */
static int check_count(int sms, unsigned got, struct hcp_err *err)
{
    if ((unsigned)sms == got)
        return HCP_OK;
    return hcp_fail(err, HCP_FAILED,
                    "green contexts: the driver sets aside %u SMs where %d were asked "
                    "for; use green:%u",
                    got, sms, got);
}

int hcp_green_open(int ordinal, int sms, hcp_green **out, struct hcp_err *err)
{
    cu_device device;
    cu_resource all, part, got;
    cu_desc desc = NULL;
    cu_result code;
    struct hcp_green_rule rule;
    int rc = whole(ordinal, &device, &all, err);
    if (rc == HCP_OK)
        rc = rule_of(device, &all, &rule, err);
    if (rc == HCP_OK)
        rc = hcp_green_check(&rule, sms, err);
    if (rc == HCP_OK)
        rc = part_of(&all, sms, &part, err);
    if (rc == HCP_OK)
        rc = check_count(sms, part.u.sm.sm_count, err);
    if (rc != HCP_OK)
        return rc;
    hcp_green *green = calloc(1, sizeof *green);
    if (!green)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    memset(&got, 0, sizeof got);
    if ((code = cu.describe(&desc, &part, 1)) != 0 ||
        (code = cu.create(&green->green, desc, device, CU_GREEN_DEFAULT_STREAM)) != 0 ||
        (code = cu.context(&green->context, green->green)) != 0)
        rc = refused("make a context", code, err);
    else if ((code = cu.resource_of(green->context, &got, CU_RESOURCE_SM)) != 0)
        rc = refused("tell the context's SMs", code, err);
    else
        rc = check_count(sms, got.u.sm.sm_count, err);
    if (rc != HCP_OK) {
        hcp_green_close(green);
        return rc;
    }
    *out = green;
    return HCP_OK;
}

void hcp_green_close(hcp_green *green)
{
    if (!green)
        return;
    if (green->green)
        cu.destroy(green->green);
    free(green);
}

int hcp_green_stream(hcp_green *green, int high, void **stream, struct hcp_err *err)
{
    int least = 0, greatest = 0;
    cu_stream made = NULL;
    cu_context was;
    cu_result code = cu.push(green->context);
    if (code != 0)
        return refused("make the context current", code, err);
    code = cu.priorities(&least, &greatest);
    if (code == 0)
        code = cu.stream(&made, CU_STREAM_NON_BLOCKING, high ? greatest : least);
    cu.pop(&was);
    if (code != 0)
        return refused("make a stream", code, err);
    *stream = made;
    return HCP_OK;
}

int hcp_green_prove(int sms, int seen, int seen_in_graph, struct hcp_err *err)
{
    if (seen == sms && seen_in_graph == sms)
        return HCP_OK;
    int graph = seen == sms;
    return hcp_fail(err, HCP_FAILED,
                    "limit green:%d not proven: a kernel%s ran on %d SMs; end other "
                    "programs on this GPU, or use mps:PCT",
                    sms, graph ? " in a CUDA graph" : "", graph ? seen_in_graph : seen);
}

int hcp_limits_agree(const char *a, const char *b, struct hcp_err *err)
{
    int mps = strncmp(a, "mps:", 4) == 0 || strncmp(b, "mps:", 4) == 0;
    int green = strncmp(a, "green:", 6) == 0 || strncmp(b, "green:", 6) == 0;
    if (!mps || !green)
        return HCP_OK;
    return hcp_fail(err, HCP_USAGE,
                    "limits '%s' and '%s': one limiter a run, a percentage of MPS makes "
                    "green contexts larger than they say; run them one after the other",
                    a, b);
}
