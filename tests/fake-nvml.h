/* SPDX-License-Identifier: Apache-2.0
 *
 * NVML's functions of fake-nvml.c, whose prototypes nobody includes, and what a fake GPU
 * tells its card: the clock, and how long it worked. Looked up with dlsym.
 */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#pragma GCC visibility push(default)
void fake_nvml_use_clock(double (*now_s)(void));
void fake_nvml_work(double ms);
double fake_nvml_sm_mhz(void);

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *version, unsigned size);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatt);
struct field;
int nvmlDeviceGetFieldValues(void *device, int n, struct field *fields);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoule);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *mask);
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *mask);

#pragma GCC visibility pop
#endif
