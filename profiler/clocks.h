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

/* Reasons that make a sample another machine's: hardware slowdown, software and
 * hardware thermal slowdown, power brake. The software power cap (0x4) is how large
 * attention runs on a power-limited card: a fact of the row, no reason to reject. */
#define HCP_THROTTLE_REJECT ((int64_t)(0x8 | 0x20 | 0x40 | 0x80))

struct hcp_clocks {
    double sm_mhz, mem_mhz;
    double power_w;  /* NVML's average over about a second */
    double energy_j; /* counter since the driver was loaded */
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

#endif
