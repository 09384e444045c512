/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for NVML where there is no GPU: a library of its name, loaded as that is. Its
 * card's SM clock falls from 1980 to 1650 MHz while it works and comes back when it
 * rests, its power goes from 100 to 700 W, its energy counter moves every 20 ms; all of
 * that by the clock it is given.
 *
 * $FAKE_NVML: "broken" does not start, "unknown" knows no GPU, "old" has no names of
 * drivers after 530, "lost" answers nothing but that the GPU is lost, "mute" lets
 * everything be unknown.
 * $FAKE_NVML_FALL: seconds in which the clock falls most of the way (0.04).
 * $FAKE_NVML_REASONS, $FAKE_NVML_SM: what is read instead, in turn, as REASONS*TIMES
 * separated by commas; the last one stays.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fake-nvml.h"

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, NOT_LOADED = 9, LOST = 15 };

static struct {
    double busy_s, last_s;   /* worked without a rest; when it did last */
    double began_s, busy_ms; /* of the energy counter */
} card;

static double (*clock_s)(void); /* NULL: none yet, nothing has happened */

void fake_nvml_use_clock(double (*now_s)(void))
{
    clock_s = now_s;
}

static double now_s(void)
{
    return clock_s ? clock_s() : 0;
}

static int is(const char *what)
{
    const char *mode = getenv("FAKE_NVML");
    return mode && strcmp(mode, what) == 0;
}

void fake_nvml_work(double ms)
{
    double now = now_s();
    if (card.began_s == 0)
        card.began_s = now;
    if (now - card.last_s > 0.2)
        card.busy_s = 0;
    card.busy_s += ms / 1e3;
    card.busy_ms += ms;
    card.last_s = now;
}

double fake_nvml_sm_mhz(void)
{
    double busy_s = now_s() - card.last_s > 0.2 ? 0 : card.busy_s;
    const char *fall_s = getenv("FAKE_NVML_FALL");
    return 1650 + 330 * exp(-busy_s / (fall_s ? atof(fall_s) : 0.04));
}

/* The next value of a variable's list: 1, or 0 when there is none. */
static int scripted(const char *variable, int *at, int *turns, unsigned *value)
{
    const char *text = getenv(variable);
    if (!text || !*text)
        return 0;
    for (int i = 0; i < *at; i++)
        text = strchr(text, ',') + 1;
    char *rest;
    *value = (unsigned)strtoul(text, &rest, 0);
    int times = *rest == '*' ? atoi(rest + 1) : 1;
    if (++*turns >= times && strchr(text, ',')) {
        ++*at;
        *turns = 0;
    }
    return 1;
}

int nvmlInit_v2(void)
{
    return is("broken") ? NOT_LOADED : OK;
}

int nvmlShutdown(void)
{
    return OK;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    snprintf(version, size, "580.1-fake");
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = &card;
    return is("unknown") || strncmp(uuid, "GPU-", 4) != 0 ? NOT_FOUND : OK;
}

static int answer(void)
{
    return is("lost") ? LOST : is("mute") ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    static int at, turns;
    (void)device;
    if (type == 2)
        *mhz = 3201;
    else if (!scripted("FAKE_NVML_SM", &at, &turns, mhz))
        *mhz = (unsigned)fake_nvml_sm_mhz() / 15 * 15;
    return answer();
}

int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned *mhz)
{
    (void)device;
    *mhz = type == 1 ? 1980 : 3201;
    return answer();
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatt)
{
    (void)device;
    *milliwatt = 400000; /* an average over the second before */
    return answer();
}

struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, rc;
    union {
        double d;
        unsigned u;
    } value;
};

int nvmlDeviceGetFieldValues(void *device, int n, struct field *fields)
{
    (void)device;
    for (int i = 0; i < n; i++) {
        fields[i].rc = fields[i].id == 186 && !is("old") ? OK : NOT_SUPPORTED;
        fields[i].type = 1;
        fields[i].value.u = now_s() - card.last_s > 0.05 ? 100000 : 700000;
    }
    return answer();
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoule)
{
    double on_s = card.began_s > 0 ? now_s() - card.began_s : 0;
    double ticks = floor(on_s / 0.02); /* what it did until the last one */
    double part = on_s > 0 ? 0.02 * ticks / on_s : 0;
    (void)device;
    *millijoule =
        (unsigned long long)(1e8 + 100e3 * 0.02 * ticks + 600 * card.busy_ms * part);
    return answer();
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    (void)device, (void)sensor;
    *celsius = 61;
    return answer();
}

static int reasons(unsigned long long *mask)
{
    static int at, turns;
    unsigned value = now_s() - card.last_s > 0.2 ? 0x1 : 0x4;
    scripted("FAKE_NVML_REASONS", &at, &turns, &value);
    *mask = value;
    return answer();
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *mask)
{
    (void)device;
    return reasons(mask);
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *mask)
{
    (void)device;
    return reasons(mask);
}
