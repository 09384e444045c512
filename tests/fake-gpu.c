/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake-gpu.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "kernels/cuda.h"

struct event {
    unsigned long recorded, completed; /* numbers of records */
    double at_ms;
    int queued; /* records and waits under way: it may be destroyed meanwhile */
    int destroyed;
};

struct stream;

struct job {
    void (*fn)(void *arg);
    void *arg;
    struct stream *stream;
    unsigned long number; /* in its stream */
    struct job *next;
};

struct list {
    struct job *first, **last;
};

struct stream {
    fake_stream base;
    pthread_t thread;
    struct list jobs;
    struct queue *queue; /* NULL: its jobs do not pass through one */
    unsigned long queued, worked;
    int quit;
    int late; /* it is at a transfer that FAKE_GPU_NO_WAIT makes late */
    struct stream *next;
};

/* What a GPU reads streams' work from. Work that is in front and cannot start, because
 * what is before it in its stream is not over or an event has not happened, keeps that of
 * the other streams of the queue back. */
struct queue {
    struct list jobs;
};
enum { QUEUES = 32 };
static struct queue queues[QUEUES];
static int n_queues = -1; /* 0: streams never wait for each other */

static enum fake_gpu_fault fault;

void fake_gpu_fault(enum fake_gpu_fault which)
{
    fault = which;
}

static atomic_int calls_left = -1;

void fake_gpu_lose_after(int calls)
{
    calls_left = calls;
}

/* Of a call about an event or a copy. */
static int lost(void)
{
    int left = calls_left;
    while (left > 0 && !atomic_compare_exchange_weak(&calls_left, &left, left - 1))
        ;
    return left == 0;
}

/* One lock and one condition for all that happens here. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream *streams;
static unsigned long host_waits; /* how often the host asked whether work is over */

/* Both under lock. */
static void append(struct list *l, struct job *j)
{
    j->next = NULL;
    if (!l->first)
        l->last = &l->first;
    *l->last = j;
    l->last = &j->next;
    pthread_cond_broadcast(&changed);
}

static struct job *take(struct list *l)
{
    struct job *j = l->first;
    if (j)
        l->first = j->next;
    return j;
}

static void *work(void *arg)
{
    struct stream *s = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!s->jobs.first && !(s->quit && s->worked == s->queued))
            pthread_cond_wait(&changed, &lock);
        struct job *j = take(&s->jobs);
        if (!j)
            break;
        pthread_mutex_unlock(&lock);
        if (j->fn)
            j->fn(j->arg);
        free(j);
        pthread_mutex_lock(&lock);
        s->worked++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int may_start(const struct job *j);

static void *dispatch(void *arg)
{
    struct queue *q = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!q->jobs.first || !may_start(q->jobs.first))
            pthread_cond_wait(&changed, &lock);
        struct job *j = take(&q->jobs);
        append(&j->stream->jobs, j);
    }
    return NULL;
}

/* One after the other, as a driver deals them out. Under lock. */
static struct queue *next_queue(void)
{
    static int next;
    if (n_queues < 0) {
        const char *n = getenv("FAKE_GPU_QUEUES");
        n = n ? n : getenv("CUDA_DEVICE_MAX_CONNECTIONS");
        n_queues = n ? atoi(n) : 0;
        for (int i = 0; i < n_queues && i < QUEUES; i++) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, dispatch, &queues[i]))
                abort();
            pthread_detach(thread);
        }
    }
    return n_queues > 0 ? &queues[next++ % n_queues] : NULL;
}

static void call(fake_stream *base, void (*fn)(void *arg), void *arg)
{
    struct stream *s = (struct stream *)base;
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        abort();
    j->fn = fn;
    j->arg = arg;
    j->stream = s;
    pthread_mutex_lock(&lock);
    j->number = s->queued++;
    append(s->queue ? &s->queue->jobs : &s->jobs, j);
    pthread_mutex_unlock(&lock);
}

struct late {
    void (*fn)(void *arg);
    void *arg;
    struct stream *stream;
    unsigned long host_waits;
};

/* Whether there is nothing to do but such transfers, which may wait for each other's
 * other ends. Under lock. */
static int all_else_done(void)
{
    for (const struct stream *s = streams; s; s = s->next)
        if (!s->late && s->worked != s->queued)
            return 0;
    return 1;
}

/* What a ring computes without waiting is computed by then. */
static void do_late(void *arg)
{
    struct late *l = arg;
    pthread_mutex_lock(&lock);
    l->stream->late = 1;
    pthread_cond_broadcast(&changed);
    while (host_waits == l->host_waits || !all_else_done())
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    l->fn(l->arg);
    pthread_mutex_lock(&lock);
    l->stream->late = 0;
    pthread_mutex_unlock(&lock);
    free(l);
}

static void transfer(fake_stream *base, void (*fn)(void *arg), void *arg)
{
    struct late *l;
    if (fault != FAKE_GPU_NO_WAIT) {
        call(base, fn, arg);
        return;
    }
    if (!(l = malloc(sizeof *l)))
        abort();
    pthread_mutex_lock(&lock);
    *l = (struct late){fn, arg, (struct stream *)base, host_waits};
    pthread_mutex_unlock(&lock);
    call(base, do_late, l);
}

/* Under lock. */
static void host_waits_now(void)
{
    host_waits++;
    pthread_cond_broadcast(&changed);
}

static int stream_create(void **out)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return HCP_RC_NO_MEMORY;
    s->base.call = call;
    s->base.transfer = transfer;
    if (pthread_create(&s->thread, NULL, work, s)) {
        free(s);
        return HCP_RC_DEVICE;
    }
    pthread_mutex_lock(&lock);
    s->queue = next_queue();
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&lock);
    *out = s;
    return HCP_RC_OK;
}

/* Unlike CUDA's, ends after what is queued. */
static void stream_destroy(void *stream)
{
    struct stream *s = stream;
    if (!s)
        return;
    pthread_mutex_lock(&lock);
    s->quit = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&lock);
    for (struct stream **at = &streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    free(s);
}

/* NULL is a stream too. */
static struct stream *stream_of(void *stream)
{
    static struct stream *none;
    if (stream)
        return stream;
    if (!none)
        stream_create((void **)&none);
    return none;
}

static int sync_stream(void *stream)
{
    struct stream *s = stream_of(stream);
    pthread_mutex_lock(&lock);
    host_waits_now();
    for (unsigned long n = s->queued; s->worked < n;)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return HCP_RC_OK;
}

struct copy {
    void *to;
    const void *from;
    int64_t bytes;
    int byte;
};

static void do_copy(void *arg)
{
    struct copy *c = arg;
    usleep((useconds_t)(rand() % 300)); /* asynchronous enough to be seen */
    if (c->from)
        memcpy(c->to, c->from, (size_t)c->bytes);
    else
        memset(c->to, c->byte, (size_t)c->bytes);
    free(c);
}

static int queue_copy(void *to, const void *from, int byte, int64_t bytes, void *stream)
{
    struct copy *c = lost() ? NULL : malloc(sizeof *c);
    if (!c)
        return HCP_RC_DEVICE;
    *c = (struct copy){to, from, bytes, byte};
    call(&stream_of(stream)->base, do_copy, c);
    return HCP_RC_OK;
}

static int copy_async(void *to, const void *from, int64_t bytes, void *stream)
{
    return queue_copy(to, from, 0, bytes, stream);
}

static int copy(void *to, const void *from, int64_t bytes, void *stream)
{
    int rc = queue_copy(to, from, 0, bytes, stream);
    return rc == HCP_RC_OK ? sync_stream(stream) : rc;
}

static int fill(void *to, int byte, int64_t bytes, void *stream)
{
    return queue_copy(to, NULL, byte, bytes, stream);
}

/* A record or a wait of the n-th one. */
struct mark {
    struct event *event;
    unsigned long n;
};

static int event_create(void **out)
{
    *out = calloc(1, sizeof(struct event));
    return *out ? HCP_RC_OK : HCP_RC_NO_MEMORY;
}

/* Under lock. */
static void let_go(struct event *e)
{
    if (e->destroyed && e->queued == 0)
        free(e);
}

static void event_destroy(void *event)
{
    struct event *e = event;
    if (!e)
        return;
    pthread_mutex_lock(&lock);
    e->destroyed = 1;
    let_go(e);
    pthread_mutex_unlock(&lock);
}

static void do_record(void *arg)
{
    struct mark *m = arg;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    pthread_mutex_lock(&lock);
    m->event->completed = m->n;
    m->event->at_ms = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
    m->event->queued--;
    let_go(m->event);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(m);
}

static void do_nothing_for_ever(void *arg)
{
    (void)arg;
    for (;;)
        pause();
}

static void do_wait(void *arg)
{
    struct mark *m = arg;
    pthread_mutex_lock(&lock);
    while (m->event->completed < m->n)
        pthread_cond_wait(&changed, &lock);
    m->event->queued--;
    let_go(m->event);
    pthread_mutex_unlock(&lock);
    free(m);
}

/* Under lock. */
static int may_start(const struct job *j)
{
    const struct mark *m = j->arg;
    return j->stream->worked == j->number &&
           (j->fn != do_wait || m->event->completed >= m->n);
}

static int queue_mark(struct event *e, int record, void *stream)
{
    struct mark *m = malloc(sizeof *m);
    if (!m)
        return HCP_RC_NO_MEMORY;
    m->event = e;
    pthread_mutex_lock(&lock);
    m->n = e->recorded += record != 0;
    e->queued++;
    pthread_mutex_unlock(&lock);
    call(&stream_of(stream)->base, record ? do_record : do_wait, m);
    return HCP_RC_OK;
}

static int event_record(void *event, void *stream)
{
    if (lost())
        return HCP_RC_DEVICE;
    if (fault == FAKE_GPU_STUCK)
        call(&stream_of(stream)->base, do_nothing_for_ever, NULL);
    return queue_mark(event, 1, stream);
}

static int event_wait(void *event, void *stream)
{
    if (lost())
        return HCP_RC_DEVICE;
    if (fault == FAKE_GPU_NO_WAIT)
        return HCP_RC_OK;
    return queue_mark(event, 0, stream);
}

static int event_done(void *event, int *done)
{
    struct event *e = event;
    if (lost())
        return HCP_RC_DEVICE;
    pthread_mutex_lock(&lock);
    host_waits_now();
    *done = e->completed == e->recorded;
    pthread_mutex_unlock(&lock);
    return HCP_RC_OK;
}

static int event_ms(void *from_, void *to_, double *ms)
{
    struct event *from = from_, *to = to_;
    int done;
    pthread_mutex_lock(&lock);
    done = from->completed == from->recorded && from->recorded && to->recorded &&
           to->completed == to->recorded;
    *ms = to->at_ms - from->at_ms;
    pthread_mutex_unlock(&lock);
    return done ? HCP_RC_OK : HCP_RC_DEVICE;
}

int hcp_cuda_peer_copy(void *dst, const void *src, int64_t bytes, void *stream)
{
    return queue_copy(dst, src, 0, bytes, stream);
}

static int select_device(int ordinal)
{
    return ordinal >= 0 ? HCP_RC_OK : HCP_RC_INVALID;
}

static const char *last_error(void)
{
    return "";
}

const hcp_runtime *fake_gpu_runtime(void)
{
    static const hcp_runtime runtime = {
        .kind = HCP_DEVICE_CUDA,
        .select = select_device,
        .alloc = fake_gpu_alloc,
        .release = fake_gpu_release,
        .to_device = copy_async,
        .to_host = copy,
        .to_host_async = copy_async,
        .host_alloc = fake_gpu_alloc,
        .host_release = fake_gpu_release,
        .fill = fill,
        .stream_create = stream_create,
        .stream_create_high = stream_create,
        .stream_destroy = stream_destroy,
        .sync = sync_stream,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_wait = event_wait,
        .event_done = event_done,
        .event_ms = event_ms,
        .last_error = last_error,
    };
    return &runtime;
}

/* In place of the one in the CUDA library: a GPU for each ordinal. */
int hcp_cuda_device(int ordinal, hcp_device_ref *out, hcp_cuda_info *info, char *err,
                    size_t err_size)
{
    (void)out;
    (void)err;
    (void)err_size;
    snprintf(info->uuid, sizeof info->uuid, "GPU-%08d", ordinal);
    info->sm_count = 132;
    info->runtime_version = 13000;
    return HCP_RC_OK;
}
