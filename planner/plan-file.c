/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "planner/options.h"

static int read_all(const char *path, char **out, size_t *n, struct hcp_err *err)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    size_t room = 0, got;
    char *text = NULL, *more;

    *n = 0;
    if (!in)
        return hcp_fail(err, HCP_FAILED, "cannot open %s: %s", path, strerror(errno));
    do {
        if (*n + 4096 > room) {
            room = 2 * room + 8192;
            more = realloc(text, room);
            if (!more) {
                free(text);
                if (in != stdin)
                    fclose(in);
                return hcp_fail(err, HCP_FAILED, "out of memory");
            }
            text = more;
        }
        got = fread(text + *n, 1, room - *n, in);
        *n += got;
    } while (got > 0);
    if (ferror(in)) {
        free(text);
        text = NULL;
        hcp_fail(err, HCP_FAILED, "cannot read %s: %s", path, strerror(errno));
    }
    if (in != stdin)
        fclose(in);
    *out = text;
    return text ? HCP_OK : HCP_FAILED;
}

int plan_load(const char *path, hcp_plan *plan, struct hcp_err *err)
{
    char *text = NULL, why[200] = "";
    size_t n, n_ranks, n_segments;
    hcp_status status;
    int rc = read_all(path, &text, &n, err);

    if (rc)
        return rc;
    status = hcp_plan_json_counts(text, n, why, sizeof why, &n_ranks, &n_segments);
    if (!status) {
        hcp_plan_rank *ranks = calloc(n_ranks, sizeof *ranks);
        hcp_segment *segments = calloc(n_segments + 1, sizeof *segments);

        hcp_plan_init(plan, ranks, n_ranks, segments, n_segments + 1);
        plan->places = calloc(n_ranks, sizeof *plan->places);
        status = ranks && segments && plan->places
                     ? hcp_plan_from_json(text, n, why, sizeof why, plan)
                     : HCP_STATUS_NO_MEMORY;
        if (status) {
            free(ranks);
            free(segments);
            free(plan->places);
        }
    }
    free(text);
    if (status)
        return hcp_fail(err, plan_exit_code(status), "%s: %s%s", path,
                        why[0] ? why : hcp_strerror(status),
                        status == HCP_STATUS_FORMAT
                            ? "; print one with 'hcp-plan split --json'"
                            : "");
    if (plan->fingerprint && plan->fingerprint != hcp_plan_fingerprint(plan))
        fprintf(stderr,
                "hcp-plan: note: %s was changed after it was printed (its fingerprint "
                "does not match)\n",
                path);
    return HCP_OK;
}
