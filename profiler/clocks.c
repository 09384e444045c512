/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/clocks.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* NVML's C interface as documented; an nvmlReturn_t of 0 is success. */
typedef void *nvml_device;
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_TEMPERATURE_GPU = 0 };
enum { NVML_FIELD_POWER_INSTANT = 186, NVML_VALUE_UNSIGNED = 1 };
struct nvml_field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, rc;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
};

struct hcp_nvml {
    void *library;
    nvml_device device;
    int (*shutdown)(void);
    int (*clock)(nvml_device, int type, unsigned *mhz);
    int (*max_clock)(nvml_device, int type, unsigned *mhz);
    int (*fields)(nvml_device, int n, struct nvml_field *);
    int (*power)(nvml_device, unsigned *milliwatt);
    int (*energy)(nvml_device, unsigned long long *millijoule);
    int (*temperature)(nvml_device, int sensor, unsigned *celsius);
    int (*reasons)(nvml_device, unsigned long long *mask);
};

static void *symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

static void *open_library(void)
{
    static const char *const names[] = {"libnvidia-ml.so.1",
                                        "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
                                        "/usr/lib/wsl/lib/libnvidia-ml.so.1"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

hcp_nvml *hcp_nvml_open(const char *uuid, char driver[32], char *why, size_t why_size)
{
    void *library = open_library();
    if (!library) {
        snprintf(why, why_size,
                 "NVML (libnvidia-ml.so.1) not found: clocks and power unknown");
        return NULL;
    }
    int (*init)(void) = (int (*)(void))symbol(library, "nvmlInit_v2");
    int (*version)(char *, unsigned) =
        (int (*)(char *, unsigned))symbol(library, "nvmlSystemGetDriverVersion");
    int (*by_uuid)(const char *, nvml_device *) =
        (int (*)(const char *, nvml_device *))symbol(library,
                                                     "nvmlDeviceGetHandleByUUID");
    hcp_nvml *n = calloc(1, sizeof *n);
    int rc = !n || !init || !by_uuid ? -1 : init();
    if (rc != 0) {
        snprintf(why, why_size, "NVML does not start (code %d): clocks and power unknown",
                 rc);
        goto fail;
    }
    n->library = library;
    n->shutdown = (int (*)(void))symbol(library, "nvmlShutdown");
    n->clock =
        (int (*)(nvml_device, int, unsigned *))symbol(library, "nvmlDeviceGetClockInfo");
    n->max_clock = (int (*)(nvml_device, int, unsigned *))symbol(
        library, "nvmlDeviceGetMaxClockInfo");
    n->fields = (int (*)(nvml_device, int, struct nvml_field *))symbol(
        library, "nvmlDeviceGetFieldValues");
    n->power =
        (int (*)(nvml_device, unsigned *))symbol(library, "nvmlDeviceGetPowerUsage");
    n->energy = (int (*)(nvml_device, unsigned long long *))symbol(
        library, "nvmlDeviceGetTotalEnergyConsumption");
    n->temperature = (int (*)(nvml_device, int, unsigned *))symbol(
        library, "nvmlDeviceGetTemperature");
    n->reasons = (int (*)(nvml_device, unsigned long long *))symbol(
        library, "nvmlDeviceGetCurrentClocksEventReasons");
    if (!n->reasons) /* its name in drivers before 535 */
        n->reasons = (int (*)(nvml_device, unsigned long long *))symbol(
            library, "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (version && version(driver, 32) != 0)
        driver[0] = '\0';
    rc = by_uuid(uuid, &n->device);
    if (rc != 0) {
        snprintf(why, why_size,
                 "NVML does not know %s (code %d): clocks and power unknown", uuid, rc);
        if (n->shutdown)
            n->shutdown();
        goto fail;
    }
    return n;
fail:
    free(n);
    dlclose(library);
    return NULL;
}

void hcp_nvml_close(hcp_nvml *nvml)
{
    if (!nvml)
        return;
    if (nvml->shutdown)
        nvml->shutdown();
    dlclose(nvml->library);
    free(nvml);
}

/* Drivers since 530 also know the power of this moment. */
static double power_now_w(const hcp_nvml *nvml)
{
    struct nvml_field field = {.id = NVML_FIELD_POWER_INSTANT, .rc = -1};
    unsigned value;
    if (nvml->fields && nvml->fields(nvml->device, 1, &field) == 0 && field.rc == 0 &&
        field.type == NVML_VALUE_UNSIGNED)
        return field.value.u / 1e3;
    if (nvml->power && nvml->power(nvml->device, &value) == 0)
        return value / 1e3;
    return NAN;
}

void hcp_clocks_glance(hcp_nvml *nvml, struct hcp_clocks *out)
{
    unsigned value;
    unsigned long long wide;
    *out = (struct hcp_clocks){NAN, NAN, NAN, NAN, NAN, NAN, -1};
    if (!nvml)
        return;
    if (nvml->clock && nvml->clock(nvml->device, NVML_CLOCK_SM, &value) == 0)
        out->sm_mhz = value;
    if (nvml->energy && nvml->energy(nvml->device, &wide) == 0)
        out->energy_j = (double)wide / 1e3;
    if (nvml->reasons && nvml->reasons(nvml->device, &wide) == 0)
        out->throttle_reasons = (int64_t)wide;
}

void hcp_clocks_read(hcp_nvml *nvml, struct hcp_clocks *out)
{
    unsigned value;
    hcp_clocks_glance(nvml, out);
    if (!nvml)
        return;
    if (nvml->clock && nvml->clock(nvml->device, NVML_CLOCK_MEM, &value) == 0)
        out->mem_mhz = value;
    if (nvml->max_clock && nvml->max_clock(nvml->device, NVML_CLOCK_SM, &value) == 0)
        out->max_sm_mhz = value;
    out->power_w = power_now_w(nvml);
    if (nvml->temperature &&
        nvml->temperature(nvml->device, NVML_TEMPERATURE_GPU, &value) == 0)
        out->temperature_c = value;
}
