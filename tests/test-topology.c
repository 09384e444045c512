/* SPDX-License-Identifier: Apache-2.0
 *
 * The way between two devices, from an NVML and a machine that are made up: links to each
 * other and through switches, links that are down, no peer access, drivers that answer
 * little; PCIe switches, host bridges and NUMA nodes.
 */
#include "config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "profiler/topology.h"

/* ---- NVML --------------------------------------------------------------- */

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};
static struct card {
    const char *uuid;
    unsigned bus;
    int up[18], remote_bus[18], type[18]; /* type: 0 GPU, 2 switch; -1 not answered */
} cards[2];
static int init_rc, shut, peer[5], level, missing_mask;

static int init(void)
{
    return init_rc;
}

static int shutdown(void)
{
    shut++;
    return 0;
}

static int by_uuid(const char *uuid, void **device)
{
    for (int i = 0; i < 2; i++)
        if (!strcmp(uuid, cards[i].uuid)) {
            *device = &cards[i];
            return 0;
        }
    return 6;
}

static int pci_info(void *device, struct pci *out)
{
    memset(out, 0, sizeof *out);
    out->bus = ((struct card *)device)->bus;
    return 0;
}

static int state(void *device, unsigned link, unsigned *active)
{
    *active = (unsigned)((struct card *)device)->up[link];
    return ((struct card *)device)->up[link] < 0 ? 3 : 0;
}

static int version(void *device, unsigned link, unsigned *out)
{
    (void)device, (void)link;
    *out = 4;
    return 0;
}

static int remote(void *device, unsigned link, struct pci *out)
{
    memset(out, 0, sizeof *out);
    out->bus = (unsigned)((struct card *)device)->remote_bus[link];
    return 0;
}

static int remote_type(void *device, unsigned link, unsigned *type)
{
    int is = ((struct card *)device)->type[link];
    *type = (unsigned)is;
    return is < 0 ? 3 : 0;
}

static int ancestor(void *a, void *b, unsigned *out)
{
    (void)a, (void)b;
    *out = (unsigned)level;
    return level < 0 ? 3 : 0;
}

static int p2p(void *a, void *b, unsigned index, unsigned *status)
{
    (void)a, (void)b;
    *status = (unsigned)peer[index];
    return peer[index] < 0 ? 3 : 0;
}

static void *symbol(void *ctx, const char *name)
{
    const struct {
        const char *name;
        void *function;
    } all[] = {
        {"nvmlInit_v2", (void *)init},
        {"nvmlShutdown", (void *)shutdown},
        {"nvmlDeviceGetHandleByUUID", (void *)by_uuid},
        {"nvmlDeviceGetPciInfo_v3", (void *)pci_info},
        {"nvmlDeviceGetNvLinkState", (void *)state},
        {"nvmlDeviceGetNvLinkVersion", (void *)version},
        {"nvmlDeviceGetNvLinkRemotePciInfo_v2", (void *)remote},
        {"nvmlDeviceGetNvLinkRemoteDeviceType", (void *)remote_type},
        {"nvmlDeviceGetTopologyCommonAncestor", (void *)ancestor},
        {"nvmlDeviceGetP2PStatus", (void *)p2p},
    };
    assert_ptr_equal(ctx, &cards);
    for (int i = 0; i < 10; i++)
        if (!strcmp(all[i].name, name))
            return missing_mask >> i & 1 ? NULL : all[i].function;
    fail_msg("%s", name);
    return NULL;
}

/* Two cards, all links down, peers of each other. */
static void plain(void)
{
    memset(cards, 0, sizeof cards);
    memset(peer, 0, sizeof peer);
    cards[0].uuid = "GPU-a";
    cards[1].uuid = "GPU-b";
    cards[0].bus = 0x18;
    cards[1].bus = 0x2a;
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < 18; i++)
            cards[c].type[i] = -1;
    init_rc = shut = missing_mask = 0;
    level = 50;
}

static void connect_link(int card, int link, int to_bus, int type)
{
    cards[card].up[link] = 1;
    cards[card].remote_bus[link] = to_bus;
    cards[card].type[link] = type;
}

static struct hcp_nvml_pair ask(void)
{
    struct hcp_nvml_pair p;
    hcp_nvml_pair_ask(symbol, &cards, "GPU-a", "GPU-b", &p);
    return p;
}

static void nvlinks(void **none)
{
    struct hcp_nvml_pair p;
    (void)none;
    plain();
    p = ask();
    assert_true(p.known && p.links == 0 && !p.switched && p.peer == 1 && shut == 1);
    assert_string_equal(p.common, "interconnect between NUMA nodes");
    /* To each other; one is down, one goes to a third card. */
    for (int i = 0; i < 5; i++) {
        connect_link(0, i, 0x2a, 0);
        connect_link(1, i, 0x18, 0);
    }
    cards[0].up[1] = 0;
    cards[1].remote_bus[4] = 0x99;
    p = ask();
    assert_true(p.links == 4 && !p.switched && p.version == 4);
    /* Through a switch: as many as the one with fewer has. */
    plain();
    for (int i = 0; i < 18; i++)
        connect_link(0, i, 0x90 + i % 4, 2);
    for (int i = 0; i < 12; i++)
        connect_link(1, i, 0x90 + i % 4, 2);
    p = ask();
    assert_true(p.links == 12 && p.switched);
    peer[2] = 5; /* the fabric is not for these two */
    assert_int_equal(ask().links, 0);
}

static void little_known(void **none)
{
    struct hcp_nvml_pair p;
    (void)none;
    plain();
    init_rc = 9;
    p = ask();
    assert_true(!p.known && p.peer == -1 && !*p.why && !*p.common && shut == 0);
    plain();
    cards[1].uuid = "GPU-c";
    p = ask();
    assert_true(!p.known && shut == 1);
    plain();
    peer[0] = 1;
    level = 10;
    p = ask();
    assert_true(p.known && p.peer == 0);
    assert_string_equal(p.why, "chipset not supported");
    assert_string_equal(p.common, "one PCIe switch");
    plain(); /* an old driver: handles and states of links alone */
    connect_link(0, 0, 0x2a, 0);
    connect_link(1, 0, 0x18, 0);
    missing_mask = 0x3e8;
    p = ask();
    assert_true(p.known && p.links == 0 && p.peer == -1);
    missing_mask = 1;
    assert_false(ask().known);
}

/* ---- hwloc -------------------------------------------------------------- */

#ifdef HAVE_HWLOC
/* Two packages; on the first a host bridge with a switch above two GPUs and a NIC, and
 * another host bridge with a third; a fourth on the second package. */
static const char machine[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
    "<topology version=\"2.0\">\n"
    "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" "
    "allowed_cpuset=\"0x3\" nodeset=\"0x3\" complete_nodeset=\"0x3\" "
    "allowed_nodeset=\"0x3\" gp_index=\"1\">\n"
    " <object type=\"Package\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
    "nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"2\">\n"
    "  <object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
    "nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"3\"/>\n"
    "  <object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
    "nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"4\"/>\n"
    "  <object type=\"Bridge\" gp_index=\"5\" bridge_type=\"0-1\" depth=\"0\" "
    "bridge_pci=\"0000:[15-2f]\">\n"
    "   <object type=\"Bridge\" gp_index=\"6\" bridge_type=\"1-1\" depth=\"1\" "
    "bridge_pci=\"0000:[16-2f]\" pci_busid=\"0000:15:00.0\" pci_type=\"0604 "
    "[1000:c030] [0000:0000] a0\" pci_link_speed=\"0.0\">\n"
    "    <object type=\"PCIDev\" gp_index=\"7\" pci_busid=\"0000:18:00.0\" "
    "pci_type=\"0302 [10de:2335] [10de:18be] a1\" pci_link_speed=\"0.0\"/>\n"
    "    <object type=\"PCIDev\" gp_index=\"8\" pci_busid=\"0000:2a:00.0\" "
    "pci_type=\"0302 [10de:2335] [10de:18be] a1\" pci_link_speed=\"0.0\"/>\n"
    "    <object type=\"PCIDev\" gp_index=\"9\" pci_busid=\"0000:2b:00.0\" "
    "pci_type=\"0207 [15b3:1021] [15b3:0041] 00\" pci_link_speed=\"0.0\">\n"
    "     <object type=\"OSDev\" gp_index=\"10\" name=\"ib0\" osdev_type=\"2\"/>\n"
    "     <object type=\"OSDev\" gp_index=\"11\" name=\"mlx5_0\" osdev_type=\"3\"/>\n"
    "    </object>\n"
    "   </object>\n"
    "  </object>\n"
    " </object>\n"
    " <object type=\"Package\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" "
    "nodeset=\"0x2\" complete_nodeset=\"0x2\" gp_index=\"12\">\n"
    "  <object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" "
    "nodeset=\"0x2\" complete_nodeset=\"0x2\" gp_index=\"13\"/>\n"
    "  <object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" "
    "nodeset=\"0x2\" complete_nodeset=\"0x2\" gp_index=\"14\"/>\n"
    "  <object type=\"Bridge\" gp_index=\"15\" bridge_type=\"0-1\" depth=\"0\" "
    "bridge_pci=\"0000:[80-9f]\">\n"
    "   <object type=\"PCIDev\" gp_index=\"16\" pci_busid=\"0000:81:00.0\" "
    "pci_type=\"0302 [10de:2335] [10de:18be] a1\" pci_link_speed=\"0.0\"/>\n"
    "   <object type=\"PCIDev\" gp_index=\"17\" pci_busid=\"0000:82:00.0\" "
    "pci_type=\"0302 [10de:2335] [10de:18be] a1\" pci_link_speed=\"0.0\"/>\n"
    "  </object>\n"
    " </object>\n"
    "</object>\n"
    "</topology>\n";

static int made_up(void **none)
{
    static char path[] = "/tmp/hcp-topology-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    (void)none;
    if (!f || fputs(machine, f) < 0 || fclose(f))
        return -1;
    setenv("HWLOC_XMLFILE", path, 1);
    setenv("HWLOC_HIDE_ERRORS", "1", 0);
    return 0;
}

static int removed(void **none)
{
    (void)none;
    int rc = remove(getenv("HWLOC_XMLFILE"));
    unsetenv("HWLOC_XMLFILE");
    return rc;
}

static void meeting(const char *a, const char *b, const char *where)
{
    char text[64];
    hcp_topology_meeting(a, b, text, sizeof text);
    assert_string_equal(text, where);
}

static void bridges(void **none)
{
    struct hcp_topology_end end = {.pci = "0000:2a:00.0"};
    (void)none;
    meeting("0000:18:00.0", "0000:2a:00.0", "PCIe switch 0000:15:00.0");
    meeting("0000:81:00.0", "0000:82:00.0", "host bridge 0000:[80-9f]");
    meeting("0000:18:00.0", "0000:81:00.0", "machine");
    meeting("0000:18:00.0", "0000:77:00.0", "");
    meeting("", "0000:18:00.0", "");
    hcp_topology_look(&end);
    assert_int_equal(end.numa, 0);
    assert_string_equal(end.nics, "ib0 mlx5_0");
    strcpy(end.pci, "0000:81:00.0");
    hcp_topology_look(&end); /* none of its own: the host's */
    assert_int_equal(end.numa, 1);
    assert_string_equal(end.nics, "ib0 mlx5_0");
    strcpy(end.pci, "");
    hcp_topology_look(&end); /* memory of a host of two nodes */
    assert_int_equal(end.numa, -1);
}
#endif

/* ---- both --------------------------------------------------------------- */

static void kinds(void **none)
{
    struct hcp_topology_end ends[2] = {{.host = "one", .numa = 0},
                                       {.host = "one", .numa = 1}};
    struct hcp_topology t;
    (void)none;
    hcp_topology_connect(ends, &t);
    assert_string_equal(t.connection, "host");
    assert_int_equal(t.links, 0);
    assert_string_equal(t.detail, "the host's memory; NUMA nodes 0 and 1");
    strcpy(ends[1].host, "two");
    strcpy(ends[0].nics, "ib0 mlx5_0");
    hcp_topology_connect(ends, &t);
    assert_string_equal(t.connection, "network");
    assert_string_equal(t.detail, "one: ib0 mlx5_0");
    /* GPUs that no NVML here knows. */
    strcpy(ends[1].host, "one");
    strcpy(ends[0].uuid, "GPU-x");
    strcpy(ends[1].uuid, "GPU-y");
    hcp_topology_connect(ends, &t);
    assert_string_equal(t.connection, "pcie");
    assert_int_equal(t.links, -1);
    assert_non_null(strstr(t.detail, "NVML does not say whether there are NVLinks"));
    /* All that can be said does not run over. */
    memset(ends[0].nics, 'x', sizeof ends[0].nics - 1);
    memset(ends[1].nics, 'y', sizeof ends[1].nics - 1);
    memset(ends[0].host, 'h', sizeof ends[0].host - 1);
    hcp_topology_connect(ends, &t);
    assert_true(strlen(t.detail) < sizeof t.detail);
    assert_string_equal(t.connection, "network");
    strcpy(ends[0].host, "one");
    strcpy(ends[1].uuid, "GPU-x");
    hcp_topology_connect(ends, &t);
    assert_string_equal(t.connection, "host");
    assert_non_null(strstr(t.detail, "one GPU"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvlinks),
        cmocka_unit_test(little_known),
        cmocka_unit_test(kinds),
#ifdef HAVE_HWLOC
        cmocka_unit_test_setup_teardown(bridges, made_up, removed),
#endif
    };
    return cmocka_run_group_tests_name("topology", tests, NULL, NULL);
}
