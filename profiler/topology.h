/* SPDX-License-Identifier: Apache-2.0
 *
 * The way between two devices: NVLinks and peer access by NVML, PCIe bridges, NUMA nodes
 * and network cards by hwloc. Both are asked if they are there (NVML at run time, hwloc
 * when this was built); what nobody knows stays open.
 */
#ifndef HCP_TOPOLOGY_H
#define HCP_TOPOLOGY_H
#include <stddef.h>
#include <stdint.h>

/* One end as its own host sees it; sent as it is between two copies of one program. */
struct hcp_topology_end {
    char host[64];
    char uuid[64]; /* of a GPU; "": the end is the host's memory */
    char pci[32];  /* "0000:18:00.0"; "" none or unknown */
    int32_t numa;  /* node next to it; -1 unknown */
    char
        nics[64]; /* network cards, those of its NUMA node if there are any; "" unknown */
};

struct hcp_topology {
    char connection[8]; /* "nvlink" "pcie" "host" "network" */
    int32_t links;      /* NVLinks between the two; -1 unknown */
    char detail[192];
};

/* What hwloc says about the end whose uuid and pci are set. */
void hcp_topology_look(struct hcp_topology_end *end);
/* The way between two ends; on the host of both, if they share one. */
void hcp_topology_connect(const struct hcp_topology_end ends[2],
                          struct hcp_topology *out);

/* ---- its parts ------------------------------------------------------------- */

/* What NVML says about two GPUs of this host. */
struct hcp_nvml_pair {
    int known;          /* 0: no NVML, or it does not know one of them */
    int32_t links;      /* NVLinks that both have up, towards each other or a switch */
    int switched;       /* through an NVSwitch */
    int32_t version;    /* of NVLink; 0 unknown */
    int32_t peer;       /* 1 one may read the other's memory, 0 not, -1 unknown */
    const char *why;    /* where not: the reason; "" */
    const char *common; /* what their ways over PCIe meet at: "PCIe switch" ...; "" */
};
/* Functions of NVML by name; NULL: there is none. */
typedef void *(*hcp_nvml_symbol)(void *ctx, const char *name);
void hcp_nvml_pair_ask(hcp_nvml_symbol symbol, void *ctx, const char *uuid_a,
                       const char *uuid_b, struct hcp_nvml_pair *out);
/* With the system's library. */
void hcp_nvml_pair_look(const char *uuid_a, const char *uuid_b,
                        struct hcp_nvml_pair *out);

/* What the PCIe ways of two devices of this host meet at, by hwloc: "PCIe switch
 * 0000:15:00.0", "host bridge 0000:[15-2a]", "package 0", "machine"; "" unknown. */
void hcp_topology_meeting(const char *pci_a, const char *pci_b, char *out, size_t size);

#endif
