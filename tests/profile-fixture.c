/* SPDX-License-Identifier: Apache-2.0
 *
 * "run": hcp-profile run with built-in kernels that fail before cpu-blas in the
 * registry's order. $HCP_TEST_KERNELS names those there are: "wrong" computes something
 * else, "crash" dies, "picky" serves no shape, "cpu" is cpu-blas.
 * "lock FILE": says "held" when it has locked a database, and keeps it until killed.
 * With $HCP_TEST_CLOCK set nobody sleeps: the clock goes on at once by as much. What
 * time budgets allow then does not hang on how fast the machine is.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "db/cli.h"
#include "kernels/registry.h"
#include "profiler/commands.h"
#include "profiler/worker.h"
#include "tests/faulty-provider.h"

static double slept_s;

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    int rc = __real_clock_gettime(id, t);
    double s = (double)t->tv_nsec * 1e-9 + slept_s;
    t->tv_sec += (time_t)s;
    t->tv_nsec = (long)(1e9 * fmod(s, 1));
    return rc;
}

int __real_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    if (!getenv("HCP_TEST_CLOCK"))
        return __real_nanosleep(t, left);
    slept_s += (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
    return 0;
}

static int die(hcp_attn_plan *plan, const hcp_attn_args *args, void *stream)
{
    (void)plan, (void)args, (void)stream;
    return raise(SIGKILL);
}

static int refuse(const hcp_device_ref *device, const hcp_attn_problem *problem,
                  hcp_attn_support *out)
{
    (void)device, (void)problem;
    out->supported = 0;
    strcpy(out->reason, "serves no shape");
    return HCP_RC_OK;
}

static const hcp_provider *wrong(void)
{
    return hcp_faulty_provider(FAULT_O);
}

static const hcp_provider *crash(void)
{
    static hcp_provider provider;
    provider = *hcp_provider_cpu();
    provider.name = "crashing";
    provider.run = die;
    return &provider;
}

static const hcp_provider *picky(void)
{
    static hcp_provider provider;
    provider = *hcp_provider_cpu();
    provider.name = "picky";
    provider.query = refuse;
    return &provider;
}

/* In the place of kernels/builtins.c. */
int hcp_registry_open(const hcp_device_ref *device, const char *plugin_path,
                      hcp_registry **out, char *err, size_t err_size)
{
    static const struct {
        const char *word;
        hcp_provider_ctor make;
    } all[] = {
        {"wrong", wrong}, {"crash", crash}, {"picky", picky}, {"cpu", hcp_provider_cpu}};
    const char *words = getenv("HCP_TEST_KERNELS");
    hcp_provider_ctor chosen[4] = {NULL};
    size_t n = 0;
    for (size_t i = 0; words && i < sizeof all / sizeof *all; i++)
        if (strstr(words, all[i].word))
            chosen[n++] = all[i].make;
    return hcp_registry_open_with(device, chosen, n, plugin_path, out, err, err_size);
}

static int cmd_lock(int argc, char **argv)
{
    struct hcp_err err = {0};
    hcp_db *db = NULL;
    int rc = hcp_db_open(argv[argc - 1], HCP_DB_WRITE, &db, &err);
    if (rc == HCP_OK)
        rc = hcp_db_begin(db, &err);
    if (rc != HCP_OK)
        return hcp_cli_report(&err);
    puts("held");
    fflush(stdout);
    return pause();
}

int main(int argc, char **argv)
{
    static const struct hcp_command commands[] = {{"run", cmd_run, "measure"},
                                                  {"lock", cmd_lock, "hold a database"},
                                                  {NULL, NULL, NULL}};
    if (argc == 2 && strcmp(argv[1], HCP_WORKER_COMMAND) == 0)
        return hcp_worker_main();
    return hcp_cli_main("hcp-profile", commands, argc, argv);
}
