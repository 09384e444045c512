/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiler/run.h"
#include "profiler/worker.h"

/* Something is to do with this kernel; or all that it has are failures, as after a check
 * that it did not pass: then another one may still be to do. */
static int to_check(struct hcp_sweep *run)
{
    int todo = 0, good = 0, bad = 0;
    for (size_t i = 0; i < run->n_levels; i++) {
        const int *counts = run->levels[i].counts;
        hcp_run_count(&run->levels[i]);
        todo += hcp_run_todo(&run->levels[i]);
        good += counts[HCP_CELL_KEPT];
        bad += counts[HCP_CELL_KEPT_FAILED];
    }
    return todo > 0 || (good == 0 && bad > 0);
}

/* Kernels here in order of preference; gpu of those that are not to be tried any more is
 * GONE. */
struct kernels {
    struct hcp_kernel_info *list;
    size_t n;
};

enum { GONE = -2 };

/* Opens the device with the next kernel that serves the shape, of those that have not
 * failed. HCP_NO_ANSWER: there is none, or the user has said which kernel it must be. */
static int next_kernel(struct hcp_sweep *run, struct kernels *k, struct hcp_err *err)
{
    const struct hcp_run_options *o = run->options;
    const char *at = strchr(run->config.spec, ':');
    int gpu = strcmp(run->ops->kind, "cpu") == 0 ? -1 : at ? atoi(at + 1) : 0;
    if (*o->provider || *o->plugin || !run->ops->in_worker)
        return HCP_NO_ANSWER;
    if (!k->list) {
        int rc = hcp_worker_kernels(&k->list, &k->n, err);
        if (rc != HCP_OK)
            return rc;
    }
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(k->list[i].name, run->info.provider) == 0)
            k->list[i].gpu = GONE;
    for (size_t i = 0; i < k->n; i++) {
        struct hcp_kernel_info *one = &k->list[i];
        struct hcp_err refused;
        if (one->gpu != gpu)
            continue;
        one->gpu = GONE;
        if (hcp_run_use_kernel(run, one->name, &refused) == HCP_OK)
            return HCP_OK;
        if (hcp_worker_stop)
            return HCP_NO_ANSWER;
    }
    return HCP_NO_ANSWER;
}

/* Its cells are stored as failed, with the reason. */
static int store_failed(struct hcp_sweep *run, const char *why, struct hcp_err *err)
{
    for (size_t l = 0; l < run->n_levels; l++) {
        struct hcp_level *level = &run->levels[l];
        for (size_t i = 0; i < level->n; i++)
            if (hcp_run_is_due(run, &level->cells[i]) && !level->cells[i].finish &&
                hcp_run_store(run, level, &level->cells[i], NULL, NULL, why, err) !=
                    HCP_OK)
                return HCP_FAILED;
    }
    return hcp_run_flush(run, err);
}

static int check(struct hcp_sweep *run, struct kernels *k, struct hcp_err *err)
{
    while (to_check(run)) {
        struct hcp_err why = {0};
        char failed[32], version[48];
        int rc = run->whole->ops->check(run->whole, run->check_result, &why);
        hcp_run_close_whole(run);
        if (rc == HCP_OK && !hcp_worker_stop)
            return HCP_OK;
        strcpy(failed, run->info.provider);
        strcpy(version, run->info.provider_version);
        if (!hcp_worker_stop)
            rc = next_kernel(run, k, err);
        if (hcp_worker_stop)
            return hcp_fail(err, HCP_FAILED, "stopped");
        if (rc == HCP_NO_ANSWER) {
            rc = store_failed(run, why.text, err);
            return rc == HCP_OK ? hcp_fail(err, HCP_FAILED,
                                           "%s %s failed its conformance check and was "
                                           "not timed: %.900s",
                                           failed, version, why.text)
                                : rc;
        }
        if (rc != HCP_OK)
            return rc;
        fprintf(stderr,
                "hcp-profile: %s %s failed its conformance check and is not timed: %s; "
                "next kernel: %s\n",
                failed, version, why.text, run->info.provider);
        rc = hcp_run_resume(run, run->db, err);
        if (rc != HCP_OK)
            return rc;
    }
    return HCP_OK;
}

int hcp_run_check(struct hcp_sweep *run, struct hcp_err *err)
{
    struct kernels kernels = {NULL, 0};
    int rc = check(run, &kernels, err);
    free(kernels.list);
    for (size_t i = 0; i < run->n_levels; i++)
        hcp_run_count(&run->levels[i]);
    return rc;
}
