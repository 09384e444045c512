/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/transport-points.h"
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int points, failures;

int all_ok(const struct transport_world *w, int pass, const char *why, const char *format,
           ...)
{
    int bad = pass ? w->size : w->rank, lowest;
    char text[1200] = "";
    snprintf(text, sizeof text, "%s", why ? why : "");
    MPI_Allreduce(&bad, &lowest, 1, MPI_INT, MPI_MIN, w->comm);
    if (lowest < w->size)
        MPI_Bcast(text, sizeof text, MPI_CHAR, lowest, w->comm);
    points++;
    failures += lowest < w->size;
    if (w->rank == 0) {
        va_list args;
        printf("%sok %d - ", lowest < w->size ? "not " : "", points);
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
        if (lowest < w->size)
            printf("# rank %d: %s\n", lowest, text);
        fflush(stdout);
    }
    return lowest == w->size;
}

int transport_cases_done(const struct transport_world *w)
{
    if (w->rank == 0)
        printf("1..%d\n", points);
    return failures != 0;
}

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sleep_ms(double ms)
{
    usleep((useconds_t)(1e3 * ms));
}

hcp_transport *open_transport(const struct transport_world *w, double timeout_s,
                              char *why, size_t size)
{
    const struct hcp_transport_config config = {.name = w->name,
                                                .comm = w->comm,
                                                .runtime = w->runtime,
                                                .ordinal = w->ordinal,
                                                .sm_count = w->sm_count,
                                                .channels = w->channels,
                                                .timeout_s = timeout_s};
    hcp_transport *t = NULL;
    struct hcp_err err = {0};
    if (hcp_transport_open(&config, &t, &err) != HCP_OK)
        snprintf(why, size, "%s", err.text);
    return t;
}
