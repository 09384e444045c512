/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks, power, temperature and throttle reasons of a GPU, by NVML. The library is
 * loaded at run time and its few prototypes are our own; without it every field
 * is unknown.
 */
#ifndef HCP_CLOCKS_H
#define HCP_CLOCKS_H
#include <stddef.h>
#include <stdint.h>

/* Reasons that make a sample another machine's: hardware slowdown, hardware thermal
 * slowdown, power brake; and software thermal slowdown where it shows in the SM clock
 * (drivers also report it at full clocks). The software power cap (0x4) is how large
 * attention runs on a power-limited card: a fact of the row, no reason to reject. */
#define HCP_THROTTLE_CAP ((int64_t)0x4)
#define HCP_THROTTLE_HARDWARE ((int64_t)(0x8 | 0x40 | 0x80))
#define HCP_THROTTLE_THERMAL ((int64_t)0x20)

struct hcp_clocks {
    double sm_mhz, mem_mhz;
    double max_sm_mhz; /* highest SM clock of the card */
    double power_w;    /* now where the driver can say so, else averaged over a second */
    double energy_j;   /* counter since the driver was loaded */
    double temperature_c;
    int64_t throttle_reasons; /* -1: unknown */
};

typedef struct hcp_nvml hcp_nvml;

/* NULL and one line in why when NVML or the GPU (by UUID) cannot be had. driver
 * (size 32) gets the driver's version. */
hcp_nvml *hcp_nvml_open(const char *uuid, char driver[32], char *why, size_t why_size);
void hcp_nvml_close(hcp_nvml *nvml); /* accepts NULL */
/* NULL: everything unknown. */
void hcp_clocks_read(hcp_nvml *nvml, struct hcp_clocks *out);
/* The same of sm_mhz, energy_j and throttle_reasons only, for a look between samples. */
void hcp_clocks_glance(hcp_nvml *nvml, struct hcp_clocks *out);

#endif
