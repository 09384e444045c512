/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "kernels/plugin.h"

static int refuse(const char *path, char *err, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int refuse(const char *path, char *err, size_t size, const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    snprintf(err, size, "kernel plug-in '%s': %s", path, text);
    return HCP_RC_INVALID;
}

/* First function of the table that is NULL; NULL when all are there. */
static const char *missing_function(const hcp_provider *p)
{
    return !p->version        ? "version"
           : !p->query        ? "query"
           : !p->plan_create  ? "plan_create"
           : !p->run          ? "run"
           : !p->plan_destroy ? "plan_destroy"
           : !p->describe     ? "describe"
                              : NULL;
}

static int check_provider(const char *path, const hcp_provider *p, char *err, size_t size)
{
    if (!p)
        return refuse(
            path, err, size,
            "does not serve provider ABI %d; rebuild it with this hcp/provider.h",
            HCP_PROVIDER_ABI);
    if (p->size < offsetof(hcp_provider, device_kinds) || p->abi != HCP_PROVIDER_ABI)
        return refuse(
            path, err, size,
            "built for provider ABI %u, this program has %d; rebuild it with this "
            "hcp/provider.h",
            p->size < offsetof(hcp_provider, device_kinds) ? 0 : p->abi,
            HCP_PROVIDER_ABI);
    if (p->size < sizeof *p)
        return refuse(path, err, size,
                      "provider struct of %zu bytes, expected %zu; set size to "
                      "sizeof(hcp_provider) and rebuild it",
                      p->size, sizeof *p);
    const char *missing = missing_function(p);
    if (missing)
        return refuse(path, err, size, "leaves %s() unset", missing);
    if (!p->name || !p->name[0] ||
        p->name[strspn(p->name, "abcdefghijklmnopqrstuvwxyz0123456789-_.")])
        return refuse(path, err, size,
                      "needs a name of lower-case letters, digits, '-', '_' and '.'");
    if (!p->version())
        return refuse(path, err, size, "version() gives no text");
    return HCP_RC_OK;
}

int hcp_plugin_open(const char *path, void **handle, const hcp_provider **provider,
                    char *err, size_t err_size)
{
    char here[4096];
    if (access(path, R_OK)) {
        int rc = errno == ENOENT ? HCP_RC_MISSING : HCP_RC_INVALID;
        refuse(path, err, err_size, "%s", strerror(errno));
        return rc;
    }
    /* Without a slash dlopen() would look in the library path, not here. */
    int n = snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
    if (n < 0 || (size_t)n >= sizeof here)
        return refuse(path, err, err_size, "path too long");
    void *h = dlopen(here, RTLD_NOW | RTLD_LOCAL);
    if (!h)
        return refuse(path, err, err_size, "cannot be loaded: %s", dlerror());

    int rc;
    hcp_provider_get_fn get;
    void *symbol = dlsym(h, HCP_PROVIDER_SYMBOL);
    if (!symbol) {
        rc = refuse(path, err, err_size,
                    "exports no %s(); write one as hcp/provider.h describes",
                    HCP_PROVIDER_SYMBOL);
        goto fail;
    }
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from void * to function */
    const hcp_provider *p = get(HCP_PROVIDER_ABI);
    rc = check_provider(path, p, err, err_size);
    if (rc)
        goto fail;
    *handle = h;
    *provider = p;
    return HCP_RC_OK;
fail:
    dlclose(h);
    return rc;
}

void hcp_plugin_close(void *handle)
{
    if (handle)
        dlclose(handle);
}
