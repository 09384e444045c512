/* SPDX-License-Identifier: Apache-2.0
 *
 * hcp-plan: ranks of data sheets. Where their table is, what --memory spec means, and
 * what is said of estimates.
 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "planner/options.h"

int session_is_spec(const char *device)
{
    return strncmp(device, "spec:", 5) == 0;
}

int session_specs_load(const char *given, hcp_specs **out, struct hcp_err *err)
{
    const char *path = given ? given : getenv("HCP_SPECS");
    hcp_status status;

    if (!path || !*path)
        path = PKGDATADIR "/specs.txt";
    status = hcp_specs_load(path, err->text, sizeof err->text, out);
    if (status == HCP_STATUS_IO && !given) {
        char why[800];

        snprintf(why, sizeof why, "%.799s", err->text);
        return hcp_fail(err, HCP_FAILED,
                        "%s; give it with --specs FILE, or set HCP_SPECS", why);
    }
    if (status)
        return err->code = status == HCP_STATUS_INVALID ? HCP_USAGE : HCP_FAILED;
    return HCP_OK;
}

int session_specs(const struct plan_args *args, hcp_rank *ranks, size_t n,
                  struct session *s, struct hcp_err *err)
{
    int needed = args->specs != NULL, rc = HCP_OK;

    for (size_t r = 0; r < n; r++)
        needed |=
            session_is_spec(ranks[r].device) || ranks[r].max_bytes == MEMORY_OF_SPEC;
    if (needed)
        rc = session_specs_load(args->specs, &s->specs, err);
    for (size_t r = 0; r < n && rc == HCP_OK; r++) {
        hcp_spec spec = {.size = sizeof spec};
        hcp_status status;

        if (ranks[r].max_bytes != MEMORY_OF_SPEC)
            continue;
        status =
            hcp_specs_find(s->specs, ranks[r].device, err->text, sizeof err->text, &spec);
        if (status && !session_is_spec(ranks[r].device))
            return hcp_fail(err, HCP_NO_ANSWER,
                            "--memory spec: '%s' (rank %zu) is not in the table of data "
                            "sheets ('hcp-plan specs'); give its bytes, as in --memory "
                            "%zu=80G",
                            ranks[r].device, r, r);
        if (status)
            return err->code = plan_exit_code(status);
        ranks[r].max_bytes = spec.memory_bytes;
    }
    return rc;
}

int session_no_link(const char *device, const char *option, struct hcp_err *err)
{
    return hcp_fail(
        err, HCP_NO_ANSWER,
        "%s: '%s' is a data sheet, whose transfers nobody has measured; give "
        "--link-alpha-us and --link-gbps, or --links FILE ('hcp-plan specs %s' "
        "has its NVLink and PCIe, both directions together: half each way)",
        option, device, device + sizeof "spec:" - 1);
}

/* ---- what is said ---- */

/* An earlier rank with the same data sheet and limit, or r. */
static size_t first_like(const hcp_ring *ring, size_t r)
{
    hcp_rank_estimate a = {.size = sizeof a}, b = {.size = sizeof b};

    hcp_ring_estimate(ring, r, &a);
    for (size_t i = 0; i < r; i++)
        if (hcp_ring_estimate(ring, i, &b) == HCP_STATUS_OK && b.estimated &&
            strcmp(a.name, b.name) == 0 && strcmp(a.command, b.command) == 0)
            return i;
    return r;
}

static void say(FILE *out, const char *before, const hcp_rank_estimate *e)
{
    char kin[112];

    plan_rank_name(e->kin_device, e->kin_limit, kin, sizeof kin);
    fprintf(
        out,
        "%sspec:%s is estimated from %s (%.3g of its FLOP/s, %.3g of its bandwidth, %d "
        "SMs by %d), within a factor of %.3g; to measure it, run '%s' on that machine\n",
        before, e->name, kin, e->flops_ratio, e->memory_ratio, (int)e->sms,
        (int)e->kin_sms, e->factor, e->command);
}

int session_say_rings(hcp_ring *const *rings, size_t n_rings, int json)
{
    int said = 0;

    for (size_t i = 0; i < n_rings; i++) {
        size_t n = rings[i] ? hcp_ring_size(rings[i]) : 0;

        for (size_t r = 0; r < n; r++) {
            hcp_rank_estimate e = {.size = sizeof e};

            if (hcp_ring_estimate(rings[i], r, &e) != HCP_STATUS_OK || !e.estimated ||
                first_like(rings[i], r) < r)
                continue;
            if (json) {
                fflush(stdout);
                say(stderr, "hcp-plan: ", &e);
            } else {
                say(stdout, said ? "" : "\n", &e);
            }
            said++;
        }
    }
    if (said > 0 && !json) {
        fflush(stdout);
        fputs("hcp-plan: these times are estimated, not measured: profile the machine "
              "before you rely on them\n",
              stderr);
    }
    return said;
}

int session_say_estimates(const struct session *s, int json)
{
    return session_say_rings(&s->ring, 1, json);
}
