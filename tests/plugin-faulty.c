/* SPDX-License-Identifier: Apache-2.0
 *
 * The example plug-in with a fault that $HCP_FAULTY names, for the tests of the
 * profiler: "wrong" computes something else, "fail:Q" reports an error and "crash:Q"
 * dies at the first run with Q queries.
 */
#define hcp_provider_get example_get
#include "tests/plugin-example.c"
#undef hcp_provider_get
__attribute__((visibility("default"))) const hcp_provider *hcp_provider_get(uint32_t abi);
#include <signal.h>

static int faulty_run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    const char *fault = getenv("HCP_FAULTY");
    const char *q = fault ? strchr(fault, ':') : NULL;
    if (q && strtoll(q + 1, NULL, 10) == args->q_len) {
        if (fault[0] == 'c')
            raise(SIGKILL);
        return HCP_RC_DEVICE;
    }
    int rc = run(plan, args, stream);
    if (rc == HCP_RC_OK && fault && strcmp(fault, "wrong") == 0 && args->q_len > 0)
        memset(args->o, 0, 64);
    return rc;
}

const hcp_provider *hcp_provider_get(uint32_t abi)
{
    static hcp_provider faulty;
    const hcp_provider *example = example_get(abi);
    if (!example)
        return NULL;
    faulty = *example;
    faulty.name = "faulty";
    faulty.run = faulty_run;
    return &faulty;
}
