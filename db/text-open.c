/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "db/text.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Appends the names of the profiles in dir, sorted, to a list that fits in size. */
static void list_names(const char *dir, char *text, size_t size)
{
    char *names[64];
    struct dirent *entry;
    DIR *d = dir ? opendir(dir) : NULL;
    size_t n = 0, len;

    while (d && n < 64 && (entry = readdir(d))) {
        len = strlen(entry->d_name);
        if (len > 4 && !strcmp(entry->d_name + len - 4, ".csv") &&
            (names[n] = strndup(entry->d_name, len - 4)))
            n++;
    }
    if (d)
        closedir(d);
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++) {
        len = strlen(text);
        snprintf(text + len, size - len, "%s%s", len ? ", " : "", names[i]);
        free(names[i]);
    }
}

int hcp_text_open(const char *name, FILE **out, char *path, size_t path_size,
                  struct hcp_err *err)
{
    const char *const dirs[] = {getenv("HCP_PROFILES"), PKGDATADIR "/profiles"};
    char known[640] = "";
    FILE *f = NULL;

    if (!strcmp(name, "-")) {
        snprintf(path, path_size, "standard input");
        *out = stdin;
        return HCP_OK;
    }
    if (strpbrk(name, "/.")) {
        snprintf(path, path_size, "%s", name);
        f = fopen(path, "re");
        if (!f)
            return hcp_fail(err, HCP_FAILED, "cannot read '%s': %s", path,
                            strerror(errno));
        *out = f;
        return HCP_OK;
    }
    for (int i = 0; i < 2 && !f; i++) {
        if (!dirs[i] || !*dirs[i])
            continue;
        snprintf(path, path_size, "%s/%s.csv", dirs[i], name);
        f = fopen(path, "re");
        if (!f && errno != ENOENT)
            return hcp_fail(err, HCP_FAILED, "cannot read '%s': %s", path,
                            strerror(errno));
    }
    if (f) {
        *out = f;
        return HCP_OK;
    }
    for (int i = 0; i < 2; i++)
        list_names(dirs[i], known, sizeof known);
    return hcp_fail(err, HCP_FAILED,
                    "no recorded machine '%s'; there %s%s; a file of that name is './%s'",
                    name, *known ? "are: " : "are none in " PKGDATADIR "/profiles", known,
                    name);
}
