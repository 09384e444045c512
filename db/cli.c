/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/cli.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 65536 };

static const char *program = "hcp";

void hcp_cli_set_name(const char *name)
{
    program = name;
    argp_err_exit_status = HCP_USAGE;
}

int hcp_cli_report(const struct hcp_err *err)
{
    fprintf(stderr, "%s: %s\n", program, err->text);
    return err->code ? err->code : HCP_FAILED;
}

/* Why stdout failed; by the end of the program errno is about something else. */
static int output_errno;

int hcp_cli_written(FILE *out)
{
    if (!ferror(out))
        return 0;
    if (out == stdout && !output_errno)
        output_errno = errno;
    return -1;
}

int hcp_cli_finish(int code)
{
    int failed = ferror(stdout);

    if (fflush(stdout) || failed) {
        hcp_cli_written(stdout);
        fprintf(stderr, "%s: cannot write standard output: %s\n", program,
                output_errno ? strerror(output_errno) : "write error");
        return code ? code : HCP_FAILED;
    }
    return code;
}

/* One "[N*]DEVICE[@LIMIT]" of length len. */
static int parse_rank(const char *text, size_t len, struct hcp_key *key, int64_t *count,
                      struct hcp_err *err)
{
    char item[160], number[8], kind[8], *at, *name = item;
    const char *star = memchr(text, '*', len);
    size_t spec;
    int32_t level;
    int rc;

    if (len >= sizeof item)
        return hcp_fail(err, HCP_USAGE, "rank '%.40s...' is too long", text);
    memcpy(item, text, len);
    item[len] = '\0';
    *count = 1;
    if (star) {
        size_t n = (size_t)(star - text);
        snprintf(number, sizeof number, "%.*s", (int)(n < 7 ? n : 7), text);
        if (hcp_parse_int(number, "rank count", 1, MAX_RANKS, count, NULL))
            return hcp_fail(
                err, HCP_USAGE,
                "rank '%s': '%.*s' is not a number of ranks; write N*DEVICE with "
                "N from 1 to %d",
                item, (int)n, text, MAX_RANKS);
        name = item + n + 1;
    }
    at = strchr(name, '@');
    memset(key, 0, sizeof *key);
    if (at) {
        *at++ = '\0';
        if (!*at)
            return hcp_fail(
                err, HCP_USAGE,
                "rank '%.*s': nothing after '@'; write DEVICE@LIMIT or DEVICE", (int)len,
                text);
        if ((rc = hcp_parse_limit(at, kind, &level, err)))
            return rc;
        memcpy(key->limit, at, strlen(at) + 1); /* canonical, so short */
    }
    if (!*name)
        return hcp_fail(
            err, HCP_USAGE,
            "rank '%.*s' has no device; write DEVICE[@LIMIT] or N*DEVICE[@LIMIT]",
            (int)len, text);
    spec = strncmp(name, "spec:", 5) == 0 ? 5 : 0; /* a data sheet */
    if ((rc = hcp_parse_slug(name + spec, "device", sizeof key->device - spec, err)))
        return rc;
    memcpy(key->device, name, strlen(name) + 1);
    return HCP_OK;
}

int hcp_parse_ranks(const char *text, struct hcp_key **ranks, size_t *n,
                    struct hcp_err *err)
{
    struct hcp_key *list = NULL, *grown, key;
    size_t count = 0;
    int64_t times = 0;

    if (!*text)
        return hcp_fail(err, HCP_USAGE,
                        "the list of ranks is empty; write DEVICE[@LIMIT],... or "
                        "N*DEVICE[@LIMIT]");
    for (;;) {
        size_t len = strcspn(text, ",");
        int rc = parse_rank(text, len, &key, &times, err);
        if (!rc && count + (size_t)times > MAX_RANKS)
            rc = hcp_fail(err, HCP_USAGE, "more than %d ranks", MAX_RANKS);
        if (!rc && !(grown = realloc(list, (count + (size_t)times) * sizeof *list)))
            rc = hcp_fail(err, HCP_FAILED, "out of memory");
        if (rc) {
            free(list);
            return rc;
        }
        list = grown;
        while (times--)
            list[count++] = key;
        text += len;
        if (!*text)
            break;
        text++;
    }
    *ranks = list;
    *n = count;
    return HCP_OK;
}
