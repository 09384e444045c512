/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/plugin.h"
#include "kernels/preference.h"
#include "kernels/registry.h"

struct hcp_registry {
    hcp_device_ref device;
    void *plugin;
    size_t count;
    const hcp_provider *providers[]; /* plug-in, then built-ins as given */
};

const char *hcp_rc_text(int rc)
{
    static const char *const text[] = {
        [HCP_RC_OK] = "ok",
        [HCP_RC_UNSUPPORTED] = "not supported",
        [HCP_RC_INVALID] = "invalid arguments",
        [HCP_RC_NO_MEMORY] = "out of memory",
        [HCP_RC_DEVICE] = "device error",
        [HCP_RC_MISSING] = "library missing",
    };
    return rc >= 0 && (size_t)rc < sizeof text / sizeof *text ? text[rc] : "unknown code";
}

static int add_plugin(hcp_registry *r, const char *path, char *err, size_t err_size)
{
    const hcp_provider *p;
    int rc = hcp_plugin_open(path, &r->plugin, &p, err, err_size);
    if (rc)
        return rc;
    if (!(p->device_kinds & (uint32_t)r->device.kind)) {
        snprintf(err, err_size, "kernel plug-in '%s': '%s' does not run on %s", path,
                 p->name, r->device.kind == HCP_DEVICE_CUDA ? "CUDA devices" : "the CPU");
        return HCP_RC_UNSUPPORTED;
    }
    r->providers[r->count++] = p;
    return HCP_RC_OK;
}

int hcp_registry_open_with(const hcp_device_ref *device,
                           const hcp_provider_ctor *builtins, size_t n,
                           const char *plugin_path, hcp_registry **out, char *err,
                           size_t err_size)
{
    hcp_registry *r = calloc(1, sizeof *r + (n + 1) * sizeof *r->providers);
    if (!r) {
        snprintf(err, err_size, "out of memory");
        return HCP_RC_NO_MEMORY;
    }
    r->device = *device;

    int rc = plugin_path ? add_plugin(r, plugin_path, err, err_size) : HCP_RC_OK;
    for (size_t i = 0; !rc && i < n; i++) {
        const hcp_provider *p = builtins[i]();
        if (!p)
            continue;
        if (plugin_path && !strcmp(p->name, r->providers[0]->name)) {
            /* Rows of the profile name the provider: two must not share one. */
            snprintf(err, err_size,
                     "kernel plug-in '%s': the name '%s' is a built-in's; choose another",
                     plugin_path, p->name);
            rc = HCP_RC_INVALID;
        } else if (p->device_kinds & (uint32_t)device->kind) {
            r->providers[r->count++] = p;
        }
    }
    if (rc) {
        hcp_registry_close(r);
        return rc;
    }
    *out = r;
    return HCP_RC_OK;
}

void hcp_registry_close(hcp_registry *r)
{
    if (!r)
        return;
    hcp_plugin_close(r->plugin);
    free(r);
}

size_t hcp_registry_count(const hcp_registry *r)
{
    return r->count;
}

const hcp_provider *hcp_registry_at(const hcp_registry *r, size_t i)
{
    return i < r->count ? r->providers[i] : NULL;
}

static int is_among(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

const hcp_provider *hcp_registry_ranked(const hcp_registry *r,
                                        const hcp_attn_problem *problem, size_t i)
{
    const char *const *names = hcp_preference(&r->device, problem);
    size_t first = r->plugin != NULL;

    if (i < first)
        return r->providers[i];
    i -= first;
    for (const char *const *name = names; *name; name++)
        for (size_t k = first; k < r->count; k++)
            if (strcmp(*name, r->providers[k]->name) == 0 && i-- == 0)
                return r->providers[k];
    for (size_t k = first; k < r->count; k++)
        if (!is_among(r->providers[k]->name, names) && i-- == 0)
            return r->providers[k];
    return NULL;
}

static void append(char *text, size_t size, const char *name, const char *reason)
{
    size_t used = strlen(text);
    if (used < size)
        snprintf(text + used, size - used, "%s%s: %s", used ? "; " : "", name, reason);
}

const hcp_provider *hcp_registry_pick(const hcp_registry *r, const char *name,
                                      const hcp_attn_problem *problem,
                                      hcp_attn_support *support, char *why,
                                      size_t why_size)
{
    int known = 0;
    if (why_size)
        why[0] = 0;
    for (size_t i = 0; i < r->count; i++) {
        const hcp_provider *p = hcp_registry_ranked(r, problem, i);
        if (name && strcmp(name, p->name))
            continue;
        known = 1;
        hcp_attn_support s = {.size = sizeof s};
        int rc = hcp_attention_probe(p, &r->device, problem, &s);
        if (!rc && s.supported) {
            *support = s;
            return p;
        }
        append(why, why_size, p->name, rc ? hcp_rc_text(rc) : s.reason);
    }
    if (!known && name) {
        char list[512] = "";
        for (size_t i = 0; i < r->count; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
                     i ? ", " : "", r->providers[i]->name);
        snprintf(why, why_size, "no kernel '%s' here; there is: %s", name, list);
    } else if (!known) {
        snprintf(why, why_size, "no kernel runs on this device");
    }
    return NULL;
}
