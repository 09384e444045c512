/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <dlfcn.h>
#include <string.h>
#include "profiler/topology.h"

/* NVML's C interface as documented; an nvmlReturn_t of 0 is success. */
typedef void *nvml_device;
struct nvml_pci { /* nvmlPciInfo_t, third version */
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
enum { LINKS = 18, REMOTE_GPU = 0, REMOTE_SWITCH = 2, P2P_READ = 0, P2P_NVLINK = 2 };

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_uuid)(const char *, nvml_device *);
    int (*pci)(nvml_device, struct nvml_pci *);
    int (*link_state)(nvml_device, unsigned link, unsigned *active);
    int (*link_version)(nvml_device, unsigned link, unsigned *version);
    int (*link_remote)(nvml_device, unsigned link, struct nvml_pci *);
    int (*link_type)(nvml_device, unsigned link, unsigned *type);
    int (*ancestor)(nvml_device, nvml_device, unsigned *level);
    int (*peer)(nvml_device, nvml_device, unsigned index, unsigned *status);
};

static const char *common_name(unsigned level)
{
    switch (level) { /* nvmlGpuTopologyLevel_t */
    case 0:
        return "one board";
    case 10:
        return "one PCIe switch";
    case 20:
        return "several PCIe switches";
    case 30:
        return "host bridge";
    case 40:
        return "NUMA node";
    case 50:
        return "interconnect between NUMA nodes";
    }
    return "";
}

static const char *peer_reason(unsigned status)
{
    switch (status) { /* nvmlGpuP2PStatus_t */
    case 1:
        return "chipset not supported";
    case 2:
        return "GPU not supported";
    case 3:
        return "IOH topology not supported";
    case 4:
        return "disabled in the driver's registry";
    case 5:
        return "not supported";
    }
    return "";
}

static int same_card(const struct nvml_pci *a, const struct nvml_pci *b)
{
    return a->domain == b->domain && a->bus == b->bus && a->device == b->device;
}

/* Links of one GPU that are up: to the other GPU, and to switches. */
static void count_links(const struct nvml *n, nvml_device from,
                        const struct nvml_pci *other, int32_t *direct, int32_t *switches,
                        int32_t *version)
{
    *direct = *switches = 0;
    for (unsigned link = 0; n->link_state && link < LINKS; link++) {
        struct nvml_pci remote = {.domain = ~0u};
        unsigned active = 0, type = ~0u, is = 0;
        if (n->link_state(from, link, &active) != 0 || !active)
            continue;
        if (n->link_version && n->link_version(from, link, &is) == 0)
            *version = (int32_t)is;
        int named = n->link_remote && n->link_remote(from, link, &remote) == 0;
        int typed = n->link_type && n->link_type(from, link, &type) == 0;
        if (named && same_card(&remote, other))
            ++*direct;
        else if (typed && type == REMOTE_SWITCH)
            ++*switches;
    }
}

static void ask_peer(const struct nvml *n, nvml_device a, nvml_device b, int32_t *peer,
                     int *nvlink, const char **why)
{
    unsigned status;
    *peer = *nvlink = -1;
    *why = "";
    if (!n->peer)
        return;
    if (n->peer(a, b, P2P_NVLINK, &status) == 0)
        *nvlink = status == 0;
    if (n->peer(a, b, P2P_READ, &status) != 0)
        return;
    *peer = status == 0;
    *why = peer_reason(status);
}

static void ask(const struct nvml *n, const char *uuid_a, const char *uuid_b,
                struct hcp_nvml_pair *out)
{
    nvml_device a, b;
    struct nvml_pci pci_a = {.domain = ~0u}, pci_b = {.domain = ~0u};
    int32_t there, back, up_a, up_b;
    unsigned level;
    int nvlink;
    if (n->by_uuid(uuid_a, &a) != 0 || n->by_uuid(uuid_b, &b) != 0)
        return;
    out->known = 1;
    if (n->pci) {
        n->pci(a, &pci_a);
        n->pci(b, &pci_b);
    }
    count_links(n, a, &pci_b, &there, &up_a, &out->version);
    count_links(n, b, &pci_a, &back, &up_b, &out->version);
    ask_peer(n, a, b, &out->peer, &nvlink, &out->why);
    out->links = there < back ? there : back;
    /* Switches connect what they are told to: NVML knows whether these two. */
    if (out->links == 0 && up_a > 0 && up_b > 0 && nvlink != 0) {
        out->links = up_a < up_b ? up_a : up_b;
        out->switched = 1;
    }
    if (n->ancestor && n->ancestor(a, b, &level) == 0)
        out->common = common_name(level);
}

void hcp_nvml_pair_ask(hcp_nvml_symbol symbol, void *ctx, const char *uuid_a,
                       const char *uuid_b, struct hcp_nvml_pair *out)
{
    struct nvml n;
    const struct {
        const char *name;
        void **to;
    } wanted[] = {
        {"nvmlInit_v2", (void **)&n.init},
        {"nvmlShutdown", (void **)&n.shutdown},
        {"nvmlDeviceGetHandleByUUID", (void **)&n.by_uuid},
        {"nvmlDeviceGetPciInfo_v3", (void **)&n.pci},
        {"nvmlDeviceGetNvLinkState", (void **)&n.link_state},
        {"nvmlDeviceGetNvLinkVersion", (void **)&n.link_version},
        {"nvmlDeviceGetNvLinkRemotePciInfo_v2", (void **)&n.link_remote},
        {"nvmlDeviceGetNvLinkRemoteDeviceType", (void **)&n.link_type},
        {"nvmlDeviceGetTopologyCommonAncestor", (void **)&n.ancestor},
        {"nvmlDeviceGetP2PStatus", (void **)&n.peer},
    };
    *out = (struct hcp_nvml_pair){.peer = -1, .why = "", .common = ""};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        *wanted[i].to = symbol(ctx, wanted[i].name);
    if (!n.init || !n.by_uuid || n.init() != 0)
        return;
    ask(&n, uuid_a, uuid_b, out);
    if (n.shutdown)
        n.shutdown();
}

static void *in_library(void *library, const char *name)
{
    return dlsym(library, name);
}

void hcp_nvml_pair_look(const char *uuid_a, const char *uuid_b, struct hcp_nvml_pair *out)
{
    static const char *const names[] = {"libnvidia-ml.so.1",
                                        "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
                                        "/usr/lib/wsl/lib/libnvidia-ml.so.1"};
    void *library = NULL;
    *out = (struct hcp_nvml_pair){.peer = -1, .why = "", .common = ""};
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    hcp_nvml_pair_ask(in_library, library, uuid_a, uuid_b, out);
    dlclose(library);
}
