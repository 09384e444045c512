/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/cli.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Appends; 0 if it does not fit. */
static int put(char *path, size_t size, size_t *n, const char *text)
{
    size_t len = strlen(text);

    if (*n + len >= size)
        return 0;
    memcpy(path + *n, text, len + 1);
    *n += len;
    return 1;
}

const char *hcp_cli_db(const char *given, struct hcp_err *err)
{
    static char path[4096];
    const char *pattern = hcp_db_default_path(given), *p;
    char host[256] = "", one[2] = "";
    size_t n = 0;
    int fits = 1;

    *path = '\0';
    for (p = pattern; *p && fits; p++) {
        one[0] = *p;
        if (*p != '%') {
            fits = put(path, sizeof path, &n, one);
            continue;
        }
        p++;
        if (*p == '%') {
            fits = put(path, sizeof path, &n, "%");
        } else if (*p == 'h') {
            /* The name that rows carry in their column host. */
            if (gethostname(host, sizeof host - 1) || !*host) {
                hcp_fail(err, HCP_FAILED, "'%s': no host name for %%h: %s", pattern,
                         strerror(errno));
                return NULL;
            }
            fits = put(path, sizeof path, &n, host);
        } else if (strlen(pattern) < sizeof path && access(pattern, F_OK) == 0) {
            /* As messages name it, where %% has become one. */
            return strcpy(path, pattern);
        } else {
            hcp_fail(err, HCP_USAGE,
                     "database '%s': '%%%.1s' is not known; %%h is the host name, %%%% a "
                     "percent sign",
                     pattern, p);
            return NULL;
        }
    }
    if (fits)
        return path;
    hcp_fail(err, HCP_USAGE, "the database name is longer than %zu bytes",
             sizeof path - 1);
    return NULL;
}
