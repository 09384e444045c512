/* SPDX-License-Identifier: Apache-2.0
 *
 * The example plug-in with a fault that $HCP_FAULTY names, for the tests of the profiler
 * and the ring: "wrong" computes something else, "fail:Q" reports an error, "crash:Q"
 * dies and "stop:Q" is stopped at the first run with Q queries, "nth:N" reports an error
 * at the N-th run of the process, "lse:QxKV" makes L of Q queries on KV keys larger,
 * "key:QxKV" changes, once in a process, the last bit of the first key after such a run,
 * "memory:Q" finds no memory for calls of Q queries, "blank:Q" leaves a NaN in O of Q
 * queries. The first run of a process leaves its id in $HCP_FAULTY_MARK/pid-RANK.
 */
#define hcp_provider_get example_get
#include "tests/plugin-example.c"
#undef hcp_provider_get
__attribute__((visibility("default"))) const hcp_provider *hcp_provider_get(uint32_t abi);
#include <signal.h>
#include <unistd.h>

static void mark(void)
{
    static int marked;
    const char *dir = getenv("HCP_FAULTY_MARK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    char part[4096], whole[4096];
    if (marked++ || !dir)
        return;
    snprintf(part, sizeof part, "%s/new-%s", dir, rank ? rank : "0");
    snprintf(whole, sizeof whole, "%s/pid-%s", dir, rank ? rank : "0");
    FILE *out = fopen(part, "w");
    if (!out)
        return;
    fprintf(out, "%ld\n", (long)getpid());
    if (fclose(out) == 0)
        rename(part, whole); /* who sees it can read it */
}

static int faulty_run(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    const char *fault = getenv("HCP_FAULTY");
    const char *q = fault ? strchr(fault, ':') : NULL;
    const char *kv = q ? strchr(q, 'x') : NULL;
    static long long runs;
    static int changed;
    int hit = q && strtoll(q + 1, NULL, 10) == args->q_len &&
              (!kv || strtoll(kv + 1, NULL, 10) == args->kv_len);
    mark();
    if (hit && fault[0] == 'c')
        raise(SIGKILL);
    if (hit && fault[0] == 's')
        raise(SIGSTOP);
    runs++;
    if ((hit && fault[0] == 'f') ||
        (q && fault[0] == 'n' && strtoll(q + 1, NULL, 10) == runs))
        return HCP_RC_DEVICE;
    int rc = run(plan, args, stream);
    if (rc == HCP_RC_OK && fault && strcmp(fault, "wrong") == 0 && args->q_len > 0)
        memset(args->o, 0, 64);
    for (int64_t i = 0; rc == HCP_RC_OK && hit && fault[0] == 'l' && i < args->q_len; i++)
        args->lse[i] += 0.01f;
    if (rc == HCP_RC_OK && hit && fault[0] == 'b')
        *(float *)args->o = NAN;
    if (rc == HCP_RC_OK && hit && fault[0] == 'k' && !changed++)
        *(unsigned char *)(uintptr_t)args->k ^= 1; /* the first byte in memory */
    return rc;
}

static int faulty_create(const hcp_device_ref *device, const hcp_attn_problem *p,
                         hcp_attn_plan **out)
{
    const char *fault = getenv("HCP_FAULTY");
    if (fault && strncmp(fault, "memory:", 7) == 0 && atoll(fault + 7) == p->q_len)
        return HCP_RC_NO_MEMORY;
    return plan_create(device, p, out);
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
    faulty.plan_create = faulty_create;
    return &faulty;
}
