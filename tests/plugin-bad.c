/* SPDX-License-Identifier: Apache-2.0
 *
 * A plug-in with the fault that $HCP_BAD_PLUGIN names, for the tests of the loader.
 */
#include <hcp/provider.h>
#include <stdlib.h>
#include <string.h>

static const char *version(void)
{
    return "0";
}

static const char *no_version(void)
{
    return NULL;
}

static int query(const hcp_device_ref *device, const hcp_attn_problem *p,
                 hcp_attn_support *out)
{
    (void)device;
    (void)p;
    (void)out;
    return HCP_RC_DEVICE;
}

static int plan_create(const hcp_device_ref *device, const hcp_attn_problem *p,
                       hcp_attn_plan **out)
{
    (void)device;
    (void)p;
    (void)out;
    return HCP_RC_DEVICE;
}

static int run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    (void)plan;
    (void)args;
    (void)stream;
    return HCP_RC_DEVICE;
}

static void plan_destroy(hcp_attn_plan *plan)
{
    (void)plan;
}

static int describe(const hcp_attn_plan *plan, char *text, size_t size)
{
    (void)plan;
    (void)text;
    (void)size;
    return HCP_RC_DEVICE;
}

const hcp_provider *hcp_provider_get(uint32_t abi)
{
    static hcp_provider p;
    const char *fault = getenv("HCP_BAD_PLUGIN");
    p = (hcp_provider){sizeof p,    abi, HCP_DEVICE_CPU, "bad",   version, query,
                       plan_create, run, plan_destroy,   describe};
    if (!fault)
        return &p;
    if (!strcmp(fault, "null"))
        return NULL;
    if (!strcmp(fault, "abi"))
        p.abi = abi + 1;
    if (!strcmp(fault, "tiny"))
        p.size = 4;
    if (!strcmp(fault, "size"))
        p.size = sizeof p - sizeof(void *);
    if (!strcmp(fault, "function"))
        p.run = NULL;
    if (!strcmp(fault, "name"))
        p.name = "My Kernel";
    if (!strcmp(fault, "taken"))
        p.name = "cpu-blas";
    if (!strcmp(fault, "version"))
        p.version = no_version;
    if (!strcmp(fault, "device"))
        p.device_kinds = HCP_DEVICE_CUDA;
    return &p;
}
