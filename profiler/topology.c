/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/topology.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends a part of the text, set apart by "; ". */
__attribute__((format(printf, 2, 3))) static void add(struct hcp_topology *t,
                                                      const char *format, ...)
{
    char part[200];
    size_t n = strlen(t->detail);
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof part, format, args);
    va_end(args);
    snprintf(t->detail + n, sizeof t->detail - n, "%s%s", n ? "; " : "", part);
}

static void between_hosts(const struct hcp_topology_end ends[2], struct hcp_topology *out)
{
    strcpy(out->connection, "network");
    out->links = 0;
    for (int i = 0; i < 2; i++)
        if (*ends[i].nics)
            add(out, "%.40s%s: %s", *ends[i].uuid ? "GPU of " : "", ends[i].host,
                ends[i].nics);
}

static void add_nodes(const struct hcp_topology_end ends[2], struct hcp_topology *out)
{
    if (ends[0].numa >= 0 && ends[1].numa >= 0)
        add(out, "NUMA nodes %d and %d", (int)ends[0].numa, (int)ends[1].numa);
}

static void between_gpus(const struct hcp_topology_end ends[2], struct hcp_topology *out)
{
    struct hcp_nvml_pair pair;
    char meeting[64];
    hcp_nvml_pair_look(ends[0].uuid, ends[1].uuid, &pair);
    hcp_topology_meeting(ends[0].pci, ends[1].pci, meeting, sizeof meeting);
    out->links = pair.known ? pair.links : -1;
    if (pair.links > 0 && pair.peer != 0) {
        strcpy(out->connection, "nvlink");
        add(out, "%d NVLink%s%s", (int)pair.links, pair.links == 1 ? "" : "s",
            pair.switched ? " through NVSwitch" : "");
    } else if (pair.peer == 0) {
        strcpy(out->connection, "host");
        add(out, "no peer access%s%s", *pair.why ? ": " : "", pair.why);
    } else {
        strcpy(out->connection, "pcie");
        if (!pair.known)
            add(out, "NVML does not say whether there are NVLinks");
    }
    if (*meeting || *pair.common)
        add(out, "PCIe by %s", *meeting ? meeting : pair.common);
    if (*ends[0].pci && *ends[1].pci)
        add(out, "%s and %s", ends[0].pci, ends[1].pci);
    add_nodes(ends, out);
}

void hcp_topology_connect(const struct hcp_topology_end ends[2], struct hcp_topology *out)
{
    const struct hcp_topology_end *a = &ends[0], *b = &ends[1];
    *out = (struct hcp_topology){.links = 0};
    if (strcmp(a->host, b->host) != 0) {
        between_hosts(ends, out);
    } else if (*a->uuid && *b->uuid && strcmp(a->uuid, b->uuid) != 0) {
        between_gpus(ends, out);
    } else {
        strcpy(out->connection, "host");
        add(out, "%s", *a->uuid && *b->uuid ? "one GPU" : "the host's memory");
        add_nodes(ends, out);
    }
}
