/* SPDX-License-Identifier: Apache-2.0
 *
 * --hosts: which ranks are on one host, as transfers within a host and between two are
 * measured apart.
 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "planner/options.h"

enum { NAME = 64 };

/* "4": ranks a host. */
static int by_number(const char *text, size_t n, int32_t *hosts, struct hcp_err *err)
{
    int64_t each;
    int rc = hcp_parse_int(text, "--hosts", 1, HCP_PLAN_MAX_RANKS, &each, err);

    if (rc)
        return rc;
    if (n % (size_t)each != 0 && n > (size_t)each)
        return hcp_fail(err, HCP_USAGE,
                        "--hosts %lld: %zu ranks are no whole number of hosts; name the "
                        "host of each rank, as in --hosts 4*a,2*b",
                        (long long)each, n);
    for (size_t r = 0; r < n; r++)
        hosts[r] = (int32_t)(r / (size_t)each);
    return HCP_OK;
}

/* "4*a,b": [N*]NAME in the order of the ranks. */
static int by_name(const char *text, size_t n, char (*names)[NAME], int32_t *hosts,
                   struct hcp_err *err)
{
    size_t r = 0, known = 0;

    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ","), digits = strspn(p, "0123456789"), host = 0;
        int64_t times = 1;
        char item[NAME];
        const char *name = item;
        int rc;

        if (len == 0 || len >= sizeof item)
            return hcp_fail(err, HCP_USAGE, "--hosts has a name that is empty or longer "
                                            "than %d characters",
                            NAME - 1);
        memcpy(item, p, len);
        item[len] = 0;
        if (digits > 0 && item[digits] == '*') {
            item[digits] = 0;
            rc = hcp_parse_int(item, "number of ranks in --hosts", 1,
                               HCP_PLAN_MAX_RANKS, &times, err);
            if (rc)
                return rc;
            name = item + digits + 1;
        }
        if (!*name)
            return hcp_fail(err, HCP_USAGE, "--hosts: no name after '%.40s*'", item);
        while (host < known && strcmp(names[host], name) != 0)
            host++;
        if (r + (size_t)times > n)
            return hcp_fail(err, HCP_USAGE, "--hosts names more than %zu ranks", n);
        if (host == known)
            strcpy(names[known++], name);
        for (; times > 0; times--)
            hosts[r++] = (int32_t)host;
        p += len;
        if (!*p)
            break;
    }
    if (r != n)
        return hcp_fail(err, HCP_USAGE, "--hosts names %zu ranks, --ranks has %zu", r, n);
    return HCP_OK;
}

int session_hosts(const char *text, size_t n, int32_t **out, struct hcp_err *err)
{
    int32_t *hosts;
    char (*names)[NAME];
    int rc;

    *out = NULL;
    if (!text)
        return HCP_OK;
    hosts = calloc(n, sizeof *hosts);
    names = calloc(n, sizeof *names);
    if (!hosts || !names)
        rc = hcp_fail(err, HCP_FAILED, "out of memory");
    else if (*text && strspn(text, "0123456789") == strlen(text))
        rc = by_number(text, n, hosts, err);
    else
        rc = by_name(text, n, names, hosts, err);
    free(names);
    if (rc) {
        free(hosts);
        return rc;
    }
    *out = hosts;
    return HCP_OK;
}

enum hcp_hosts session_hosts_of(enum hcp_hosts given, const int32_t *hosts, size_t a,
                                size_t b)
{
    if (given != HCP_HOSTS_ANY || !hosts)
        return given;
    return hosts[a] == hosts[b] ? HCP_HOSTS_WITHIN : HCP_HOSTS_BETWEEN;
}
