/* SPDX-License-Identifier: Apache-2.0
 *
 * The energy counter moves every 20 to 100 ms, whoever reads it in between: power of a
 * kernel is the energy between two moves of the counter that lie in one of its turns.
 * Turns without two moves say nothing.
 */
#include "config.h"
#include "tests/bench-gpu.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "profiler/clocks.h"

struct sum {
    double mhz, energy_j, seconds;
    int n;
};

struct bench_watch {
    hcp_nvml *nvml;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    struct sum sums[BENCH_LANES];
    int lane, stop;
    unsigned turn; /* counts changes of lane */
};

static void *loop(void *arg)
{
    struct bench_watch *w = arg;
    struct hcp_clocks last = {.energy_j = NAN};
    double moved_s = 0, moved_j = 0; /* last move of the counter in this turn */
    unsigned moved_turn = 0, last_turn = 0;

    for (;;) {
        struct hcp_clocks now;
        int lane, stop;
        unsigned turn;

        pthread_mutex_lock(&w->lock);
        lane = w->lane;
        turn = w->turn;
        pthread_mutex_unlock(&w->lock);
        hcp_clocks_read(w->nvml, &now);
        double now_s = hcp_now_s();

        pthread_mutex_lock(&w->lock);
        /* A reading counts when no turn began while it was taken. */
        if (lane >= 0 && w->turn == turn) {
            struct sum *s = &w->sums[lane];

            if (isfinite(now.sm_mhz)) {
                s->mhz += now.sm_mhz;
                s->n++;
            }
            /* Seen to move from one reading of the turn to the next: just now. */
            if (last_turn == turn && now.energy_j > last.energy_j) {
                if (moved_turn == turn) {
                    s->energy_j += now.energy_j - moved_j;
                    s->seconds += now_s - moved_s;
                }
                moved_turn = turn;
                moved_j = now.energy_j;
                moved_s = now_s;
            }
        }
        stop = w->stop;
        pthread_mutex_unlock(&w->lock);
        if (stop)
            return NULL;
        last = now;
        last_turn = turn;
        nanosleep(&(struct timespec){0, 4000000}, NULL);
    }
}

struct bench_watch *bench_watch_start(const char *uuid)
{
    char driver[32], why[160];
    struct bench_watch *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->lane = -1;
    w->nvml = hcp_nvml_open(uuid, driver, why, sizeof why);
    if (!w->nvml || pthread_mutex_init(&w->lock, NULL) != 0) {
        hcp_nvml_close(w->nvml);
        free(w);
        return NULL;
    }
    if (pthread_create(&w->thread, NULL, loop, w) != 0) {
        pthread_mutex_destroy(&w->lock);
        hcp_nvml_close(w->nvml);
        free(w);
        return NULL;
    }
    return w;
}

void bench_watch_reset(struct bench_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < BENCH_LANES; i++)
        w->sums[i] = (struct sum){0};
    pthread_mutex_unlock(&w->lock);
}

void bench_watch_lane(struct bench_watch *w, int lane)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->lane = lane;
    w->turn++;
    pthread_mutex_unlock(&w->lock);
}

void bench_watch_read(struct bench_watch *w, int lane, double *sm_mhz, double *power_w)
{
    *sm_mhz = *power_w = NAN;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    const struct sum *s = &w->sums[lane];
    if (s->n > 0)
        *sm_mhz = s->mhz / s->n;
    if (s->seconds > 0)
        *power_w = s->energy_j / s->seconds;
    pthread_mutex_unlock(&w->lock);
}

void bench_watch_stop(struct bench_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = 1;
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    hcp_nvml_close(w->nvml);
    free(w);
}
