/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/topology.h"
#include <stdio.h>
#include <string.h>
#ifdef HAVE_HWLOC
#include <hwloc.h>

/* Of hwloc's ways to find devices, only those that look and do not touch: the others make
 * contexts on GPUs, which a limit is not meant for. */
static hwloc_topology_t load(void)
{
    static const char *const unwanted[] = {"cuda", "nvml", "opencl",
                                           "gl",   "rsmi", "levelzero"};
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
        hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      unwanted[i]);
    if (hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL) != 0 ||
        hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return NULL;
    }
    return topology;
}

static hwloc_obj_t device_at(hwloc_topology_t topology, const char *pci)
{
    return *pci ? hwloc_get_pcidev_by_busidstring(topology, pci) : NULL;
}

/* The one node beside an I/O object; -1: several, or unknown. */
static int node_of(hwloc_topology_t topology, hwloc_obj_t io)
{
    hwloc_obj_t at = io ? hwloc_get_non_io_ancestor_obj(topology, io) : NULL;
    if (!at || !at->nodeset || hwloc_bitmap_weight(at->nodeset) != 1)
        return -1;
    return hwloc_bitmap_first(at->nodeset);
}

static int is_nic(hwloc_obj_t os)
{
    return os->attr && (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
                        os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS);
}

/* Names, a blank between; a card has one as a network device and one as a fabric. */
static void list_nics(hwloc_topology_t topology, int node, char *out, size_t size)
{
    size_t n = 0;
    *out = '\0';
    for (hwloc_obj_t os = hwloc_get_next_osdev(topology, NULL); os;
         os = hwloc_get_next_osdev(topology, os)) {
        if (!is_nic(os) || !os->name || (node >= 0 && node_of(topology, os) != node))
            continue;
        if (n + strlen(os->name) + 2 > size)
            break;
        n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", os->name);
    }
}

void hcp_topology_look(struct hcp_topology_end *end)
{
    hwloc_topology_t topology = load();
    end->numa = -1;
    *end->nics = '\0';
    if (!topology)
        return;
    hwloc_obj_t device = device_at(topology, end->pci);
    end->numa =
        (int32_t)node_of(topology, device ? device : hwloc_get_root_obj(topology));
    list_nics(topology, end->numa, end->nics, sizeof end->nics);
    if (!*end->nics)
        list_nics(topology, -1, end->nics, sizeof end->nics);
    hwloc_topology_destroy(topology);
}

static void name_meeting(hwloc_obj_t at, char *out, size_t size)
{
    const struct hwloc_bridge_attr_s *bridge = at->attr ? &at->attr->bridge : NULL;
    if (at->type == HWLOC_OBJ_BRIDGE && bridge &&
        bridge->upstream_type == HWLOC_OBJ_BRIDGE_PCI)
        snprintf(out, size, "PCIe switch %04x:%02x:%02x.%x",
                 (unsigned)bridge->upstream.pci.domain, bridge->upstream.pci.bus,
                 bridge->upstream.pci.dev, bridge->upstream.pci.func);
    else if (at->type == HWLOC_OBJ_BRIDGE && bridge)
        snprintf(out, size, "host bridge %04x:[%02x-%02x]",
                 (unsigned)bridge->downstream.pci.domain,
                 bridge->downstream.pci.secondary_bus,
                 bridge->downstream.pci.subordinate_bus);
    else if (at->type == HWLOC_OBJ_MACHINE)
        snprintf(out, size, "machine");
    else if (at->type == HWLOC_OBJ_PACKAGE)
        snprintf(out, size, "package %u", at->os_index);
    else
        snprintf(out, size, "%s %u", hwloc_obj_type_string(at->type), at->logical_index);
}

void hcp_topology_meeting(const char *pci_a, const char *pci_b, char *out, size_t size)
{
    hwloc_topology_t topology = *pci_a && *pci_b ? load() : NULL;
    *out = '\0';
    if (!topology)
        return;
    hwloc_obj_t a = device_at(topology, pci_a), b = device_at(topology, pci_b);
    for (hwloc_obj_t x = a ? a->parent : NULL; a && b && x && !*out; x = x->parent)
        for (hwloc_obj_t y = b->parent; y && !*out; y = y->parent)
            if (x == y)
                name_meeting(x, out, size);
    hwloc_topology_destroy(topology);
}

#else

void hcp_topology_look(struct hcp_topology_end *end)
{
    end->numa = -1;
    *end->nics = '\0';
}

void hcp_topology_meeting(const char *pci_a, const char *pci_b, char *out, size_t size)
{
    (void)pci_a, (void)pci_b;
    snprintf(out, size, "%s", "");
}

#endif
