/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries of NVIDIA that a program starts without, and their functions. Inline: those
 * who load one are linked in no fixed order.
 */
#ifndef HCP_LIBRARY_H
#define HCP_LIBRARY_H
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct hcp_library {
    const char *variable; /* of the environment: a path, and nothing else is tried */
    const char *name, *built_with; /* the loader's search, then this path */
    const char *missing;           /* what is said if there is none */
    const char *title, *install;   /* "cuDNN", what to install for all functions */
};
struct hcp_library_function {
    const char *name;
    void **to;
};

/* Loads the library and finds all n functions; it stays loaded. 0: why says what to do.
 */
static inline int hcp_library_load(const struct hcp_library *l,
                                   const struct hcp_library_function *wanted, size_t n,
                                   char *why, size_t why_size)
{
    const char *path = getenv(l->variable);
    int given = path && *path;
    void *handle = dlopen(given ? path : l->name, RTLD_NOW | RTLD_LOCAL);
    if (!handle && given) {
        snprintf(why, why_size, "%s: %s", l->variable, dlerror());
        return 0;
    }
    if (!handle)
        handle = dlopen(l->built_with, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(why, why_size, "%s not found; %s", l->name, l->missing);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        if (!(*wanted[i].to = dlsym(handle, wanted[i].name))) {
            snprintf(why, why_size, "the %s library lacks %s; install %s", l->title,
                     wanted[i].name, l->install);
            return 0;
        }
    return 1;
}

#endif
