/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <poll.h>
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

enum {
    GONE = -2,
    OPEN_TRIES = 3 /* of a device that may have been lost */
};

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

/* What failed may be the device: then no kernel is to blame. HCP_FAILED: it cannot be
 * opened any more. */
static int still_there(struct hcp_sweep *run, const char *last, struct hcp_err *err)
{
    hcp_device *device = NULL;
    struct hcp_err why = {0};
    int rc = HCP_FAILED;
    if (!run->ops->in_worker)
        return HCP_OK;
    for (int try = 0; try < OPEN_TRIES && rc != HCP_OK && !hcp_worker_stop; try++) {
        if (try > 0)
            poll(NULL, 0, 1000 * try);
        rc = hcp_device_worker_ops.open(&run->config, &device, &why);
    }
    if (rc != HCP_OK)
        return hcp_fail(err, HCP_FAILED,
                        "the device was lost while %s was checked (%.500s) and could not "
                        "be opened again (%.400s); the same command goes on",
                        run->info.provider, last, why.text);
    hcp_device_worker_ops.close(device);
    return HCP_OK;
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
        int there = hcp_worker_stop ? HCP_OK : still_there(run, why.text, err);
        if (there == HCP_OK && !hcp_worker_stop)
            rc = next_kernel(run, k, err);
        if (hcp_worker_stop)
            return hcp_fail(err, HCP_FAILED, "stopped");
        if (there != HCP_OK)
            return there;
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
