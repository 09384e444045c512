/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring as it runs on GPUs, without one: ring-pass.c queues whole passes, held back,
 * on streams of fake-gpu, its blocks travel over fake-nccl, and what it computed is
 * compared with fp64. ring-queued.sh runs this under mpirun.
 * Usage: ring-queued-test CASE [SEED [N]]...: N of one of
 *        rings: random rings, which must be right
 *        slowed: likewise, one rank made slower
 *        levels: likewise with two levels; an even number of ranks, four or more
 *        decode: steps of decode, merged in every schedule
 *        staged: likewise over MPI, by way of host memory (the first case, if any)
 *        moves: KV from one plan's shares to another's
 *        documents: packs of documents, some of them cut
 *        chunks: prompts in chunks
 *        or
 *        unordered: nothing waits for events, which must be found
 *        stuck: the last rank's device never gets on; all must end
 *        lost: ranks' devices or kernels fail in the middle of a pass; the others must
 *        come out of it, and make a ring without them
 *        lost-staged: likewise over MPI (the first case, if any)
 */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/fake-gpu.h"
#include "tests/ring-queued.h"

/* In place of comm.c's, without its limits. */
int ring_all_ok(const struct ring_comm *c, int rc, struct hcp_err *err)
{
    int mine = rc == HCP_OK ? c->size : c->rank, first = c->size;

    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, c->world);
    if (first < c->size)
        MPI_Bcast(err, sizeof *err, MPI_BYTE, first, c->world);
    return first < c->size ? HCP_FAILED : HCP_OK;
}

int64_t queued_range(uint64_t *state, int64_t lo, int64_t hi)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return lo + (int64_t)((x ^ x >> 31) % (uint64_t)(hi - lo + 1));
}

void queued_point(struct queued_test *t, int ok, const char *what)
{
    int mine = ok != 0, all = 0;

    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, t->comm.world);
    t->points++;
    t->failed += !all;
    if (t->comm.rank == 0)
        printf("%sok %d - %s\n", all ? "" : "not ", t->points, what);
    fflush(stdout);
}

_Noreturn void queued_give_up(struct queued_test *t, const struct hcp_err *err)
{
    if (!*err->text)
        fprintf(stderr, "# rank %d: failed without a text\n", t->comm.rank);
    ring_watch_fail(t->watch, err);
}

/* ---- a plan ---- */

void queued_plan_make(struct queued_test *t, struct queued_plan *p, int64_t length)
{
    static const char *const dtypes[] = {"bf16", "fp16", "fp32"};
    uint64_t *seed = &t->seed;
    size_t n = (size_t)t->comm.size;
    int64_t counts[RANKS], at = 0, left = length;

    memset(p, 0, sizeof *p);
    hcp_plan_init(&p->plan, p->ranks, RANKS, p->segments, RANKS * PARTS);
    hcp_shape_init(&p->plan.shape);
    snprintf(p->plan.shape.dtype, sizeof p->plan.shape.dtype, "%s",
             dtypes[queued_range(seed, 0, 2)]);
    p->plan.shape.batch = (int32_t)queued_range(seed, 1, 2);
    p->plan.shape.heads = 2;
    p->plan.shape.kv_heads = 1;
    p->plan.shape.head_dim = 16;
    p->plan.n_ranks = n;
    p->plan.seq_len = length;
    p->plan.causal = (int32_t)queued_range(seed, 0, 1);
    p->plan.layout =
        (hcp_layout)queued_range(seed, HCP_LAYOUT_CONTIGUOUS, HCP_LAYOUT_STRIPED);
    p->plan.stripes = (int32_t)queued_range(seed, 1, STRIPES);
    p->plan.tile = queued_range(seed, 1, 40);
    p->plan.sub_blocks = (int32_t)queued_range(seed, 1, 4);
    p->plan.buffers = (int32_t)queued_range(seed, 0, 2);
    p->plan.buffers += p->plan.buffers > 0; /* none, 2, 3 */
    p->plan.barrier = queued_range(seed, 0, 7) == 0;
    for (size_t i = 0; i < n; i++) { /* one in six without tokens */
        p->tokens[i] =
            queued_range(seed, 0, 5) ? queued_range(seed, 0, 2 * length / (int64_t)n) : 0;
        p->tokens[i] = p->tokens[i] < left ? p->tokens[i] : left;
        left -= p->tokens[i];
    }
    p->tokens[queued_range(seed, 0, (int64_t)n - 1)] += left;
    if (hcp_layout_segments(p->plan.layout, p->plan.stripes, n, p->tokens, length,
                            p->segments, RANKS * PARTS, counts) != HCP_STATUS_OK)
        abort();
    for (size_t i = 0; i < n; i++) {
        p->ranks[i].tokens = p->tokens[i];
        p->ranks[i].first_segment = at;
        p->ranks[i].n_segments = counts[i];
        at += counts[i];
    }
    p->plan.n_segments = (size_t)at;
}

void queued_open(struct queued_test *t, const struct queued_plan *p, ring **r)
{
    struct ring_config config = {.plan = &p->plan,
                                 .rank = t->comm.rank,
                                 .comm = &t->comm,
                                 .runtime = t->runtime,
                                 .device = t->device,
                                 .provider = fake_gpu_provider(),
                                 .links = t->links,
                                 .watch = t->watch,
                                 .alarm = t->alarm,
                                 .sub_blocks = p->plan.sub_blocks,
                                 .barrier = p->plan.barrier,
                                 .buffers = p->plan.buffers,
                                 .seed = t->seed,
                                 .documents = p->documents,
                                 .chunk = p->chunk};
    struct hcp_err err = {0};

    if (ring_open(&config, r, &err))
        queued_give_up(t, &err);
}

void queued_poison(struct queued_test *t, ring *r)
{
    struct hcp_err err = {0};
    const struct ring_schedule *s = &r->schedule;

    if (ring_poison(r, &err))
        queued_give_up(t, &err);
    if (r->decode)
        memset(r->decode->states, 0xff,
               (size_t)(r->decode->n_states * r->decode->pitch) * sizeof(float));
    for (int32_t k = 1; s->index >= 0 && k < s->m && !r->decode; k++)
        for (int32_t i = 0; s->steps[k].receive && i < r->transfers[k].n_pieces; i++)
            memset(r->transfers[k].pieces[i].data, 0xff,
                   (size_t)r->transfers[k].pieces[i].bytes);
}

void queued_run(struct queued_test *t, const struct queued_plan *p, int n_passes)
{
    struct ring_errors errors;
    struct ring_times times;
    struct hcp_err err = {0};
    ring *r = NULL;

    queued_open(t, p, &r);
    for (int i = 0; i < n_passes; i++) {
        queued_poison(t, r);
        ring_all_ok(&t->comm, HCP_OK, &err);
        if (rand() % 3 == 0)
            usleep((useconds_t)(rand() % 3000));
        if (ring_pass(r, &times, NULL, &err))
            queued_give_up(t, &err);
        if (ring_verify(r, 40, &errors, &err))
            queued_give_up(t, &err);
        if (!errors.passed) {
            t->wrong++;
            if (t->wrong == 1)
                printf("# rank %d, %lld tokens, %s, %s, pass %d: %s\n", t->comm.rank,
                       (long long)p->plan.seq_len, hcp_layout_name(p->plan.layout),
                       p->plan.causal ? "causal" : "full", i, errors.text);
        }
    }
    t->held += r->ticket;
    t->late += r->go ? r->go[1] : 0;
    ring_close(r);
}

/* ---- cases ---- */

static void rings(struct queued_test *t, int n)
{
    int held = 0;
    char text[120];

    for (int i = 0; i < n; i++) {
        struct queued_plan p;

        queued_plan_make(
            t, &p, queued_range(&t->seed, 1, queued_range(&t->seed, 0, 2) ? 400 : 20));
        /* One of the ranks keeps the others waiting. */
        fake_gpu_slow(queued_range(&t->seed, 0, t->comm.size) == t->comm.rank ? 3000 : 0);
        queued_run(t, &p, PASSES);
    }
    snprintf(text, sizeof text, "%d rings of %d ranks, %d passes each, are right", n,
             t->comm.size, PASSES);
    queued_point(t, t->wrong == 0, text);
    MPI_Allreduce(&t->held, &held, 1, MPI_INT, MPI_SUM, t->comm.world);
    queued_point(t, held > n, "most passes were held back until all was queued");
    queued_point(t, t->late == 0, "and let go then");
}

/* Passes of a rank that is to be slower, and others: every piece is stretched, and
 * right. */
static void slowed(struct queued_test *t, int n)
{
    struct hcp_err err = {0};
    int odd = 0;
    char text[120];

    for (int i = 0; i < n; i++) {
        struct ring_errors errors;
        struct ring_times times;
        struct queued_plan p;
        ring *r = NULL;

        queued_plan_make(t, &p, 100);
        queued_open(t, &p, &r);
        for (int pass = 0; pass < PASSES; pass++) {
            int slow = t->comm.rank == pass % t->comm.size;

            queued_poison(t, r);
            if (ring_slow(r, slow ? FAKE_GPU_STRETCH : 1, &err) ||
                ring_pass(r, &times, NULL, &err) || ring_verify(r, 40, &errors, &err))
                queued_give_up(t, &err);
            t->wrong += !errors.passed;
            odd += fake_gpu_stretches() != (slow ? (int)r->schedule.n_pieces : 0);
        }
        ring_close(r);
    }
    snprintf(text, sizeof text, "%d rings of %d ranks, one of them slowed, are right", n,
             t->comm.size);
    queued_point(t, t->wrong == 0, text);
    queued_point(t, odd == 0, "each piece of the slowed rank is stretched, no other");
}

/* Two levels: every rank has tokens that see all blocks. */
static void levels(struct queued_test *t, int n)
{
    char text[120];

    for (int i = 0; i < n; i++) {
        int64_t counts[RANKS], at = 0, length = 0;
        size_t ranks = (size_t)t->comm.size;
        struct queued_plan p;

        queued_plan_make(t, &p, 100);
        for (size_t r = 0; r < ranks; r++)
            length += p.tokens[r] = queued_range(&t->seed, 4, 60);
        p.plan.seq_len = length;
        p.plan.layout = p.plan.causal ? HCP_LAYOUT_ZIGZAG : HCP_LAYOUT_CONTIGUOUS;
        p.plan.sub_blocks = 1;
        p.plan.barrier = 0;
        p.plan.node_ranks = p.plan.inner_ranks =
            (int32_t)(i % 2 ? ranks / 2 : 2); /* two nodes, or nodes of two */
        if (hcp_layout_segments(p.plan.layout, p.plan.stripes, ranks, p.tokens, length,
                                p.segments, RANKS * PARTS, counts) != HCP_STATUS_OK)
            abort();
        for (size_t r = 0; r < ranks; r++) {
            p.ranks[r].tokens = p.tokens[r];
            p.ranks[r].first_segment = at;
            p.ranks[r].n_segments = counts[r];
            at += counts[r];
        }
        p.plan.n_segments = (size_t)at;
        fake_gpu_slow(queued_range(&t->seed, 0, t->comm.size) == t->comm.rank ? 3000 : 0);
        queued_run(t, &p, PASSES);
    }
    snprintf(text, sizeof text,
             "%d rings of rings of %d ranks, %d passes each, are right", n, t->comm.size,
             PASSES);
    queued_point(t, t->wrong == 0, text);
}

struct pack {
    struct queued_plan plan;
    hcp_documents_plan documents;
    hcp_documents_rank ranks[RANKS];
    hcp_document_part parts[RANKS * PARTS];
    int64_t lengths[RANKS * PARTS], starts[RANKS * PARTS];
};

/* length tokens of a document, after those that earlier ranks have of it. */
static void add_part(struct pack *p, size_t rank, int64_t document, int64_t length)
{
    hcp_documents_plan *d = &p->documents;
    hcp_documents_rank *r = &p->ranks[rank];

    if (document == (int64_t)d->n_documents)
        p->lengths[d->n_documents++] = 0;
    p->parts[d->n_parts++] = (hcp_document_part){document, p->lengths[document], length};
    p->lengths[document] += length;
    r->n_parts++;
    r->tokens += length;
}

/* Ranks in turn: the rest of a document or another part of it, whole ones, the first part
 * of one that goes on. */
static void make_pack(struct queued_test *t, struct pack *p)
{
    hcp_documents_plan *d = &p->documents;
    size_t n = (size_t)t->comm.size;
    int64_t open = -1, at = 0; /* document that goes on */
    hcp_plan *plan = &p->plan.plan;

    memset(p, 0, sizeof *p);
    queued_plan_make(t, &p->plan, 100);
    plan->barrier = plan->buffers = 0;
    plan->sub_blocks = 1;
    plan->layout = HCP_LAYOUT_CONTIGUOUS;
    hcp_documents_plan_init(d, p->ranks, RANKS, p->parts, RANKS * PARTS, p->lengths,
                            RANKS * PARTS);
    d->n_ranks = n;
    d->causal = plan->causal;
    d->shape = plan->shape;
    for (size_t r = 0; r < n; r++) {
        int last = r + 1 == n;

        p->ranks[r].first_part = (int64_t)d->n_parts;
        if (open < 0 && !last && queued_range(&t->seed, 0, 5) == 0)
            continue;
        if (open >= 0) {
            add_part(p, r, open, queued_range(&t->seed, 1, 60));
            open = last || queued_range(&t->seed, 0, 1) ? -1 : open;
        }
        for (int64_t k = queued_range(&t->seed, 0, PARTS - 3); k > 0; k--)
            add_part(p, r, (int64_t)d->n_documents, queued_range(&t->seed, 1, 40));
        if (p->ranks[r].n_parts == 0 || (open < 0 && !last && d->causal)) {
            int goes_on = open < 0 && !last && d->causal;

            add_part(p, r, (int64_t)d->n_documents, queued_range(&t->seed, 1, 60));
            open = goes_on ? (int64_t)d->n_documents - 1 : open;
        }
    }
    for (size_t i = 0; i < d->n_documents; i++) {
        p->starts[i] = at;
        at += p->lengths[i];
    }
    plan->seq_len = at;
    plan->n_segments = d->n_parts;
    for (size_t i = 0; i < d->n_parts; i++)
        p->plan.segments[i] = (hcp_segment){
            p->starts[p->parts[i].document] + p->parts[i].offset, p->parts[i].length};
    for (size_t r = 0; r < n; r++) {
        p->plan.ranks[r].tokens = p->plan.ranks[r].kv_tokens = p->ranks[r].tokens;
        p->plan.ranks[r].first_segment = p->ranks[r].first_part;
        p->plan.ranks[r].n_segments = p->ranks[r].n_parts;
    }
    p->plan.documents = d;
}

static void documents(struct queued_test *t, int n)
{
    char text[120];
    int wrong = 0;

    for (int i = 0; i < n; i++) {
        static struct pack p;

        make_pack(t, &p);
        fake_gpu_slow(queued_range(&t->seed, 0, t->comm.size) == t->comm.rank ? 3000 : 0);
        queued_run(t, &p.plan, PASSES);
    }
    snprintf(text, sizeof text, "%d packs on %d ranks, %d passes each, are right", n,
             t->comm.size, PASSES);
    MPI_Allreduce(&t->wrong, &wrong, 1, MPI_INT, MPI_SUM, t->comm.world);
    queued_point(t, wrong == 0, text);
    queued_point(t, t->late == 0, "and let go when all was queued");
}

/* Even shares, two buffers, so that everything has something to wait for. */
static void even_plan(struct queued_test *t, struct queued_plan *p)
{
    do
        queued_plan_make(t, p, 400);
    while (p->plan.barrier || p->plan.causal || p->plan.layout != HCP_LAYOUT_CONTIGUOUS ||
           p->plan.buffers != 2 || p->tokens[0] < 50 || p->tokens[t->comm.size - 1] < 50);
}

static void unordered(struct queued_test *t)
{
    struct queued_plan p;
    int wrong = 0;

    even_plan(t, &p);
    fake_gpu_fault(FAKE_GPU_NO_WAIT);
    queued_run(t, &p, 3);
    MPI_Allreduce(&t->wrong, &wrong, 1, MPI_INT, MPI_SUM, t->comm.world);
    queued_point(t, wrong > 0, "what does not wait for its blocks is wrong");
}

static void stuck(struct queued_test *t)
{
    struct hcp_err err = {0};
    struct queued_plan p;

    even_plan(t, &p);
    queued_run(t, &p, 2);
    queued_point(t, t->wrong == 0, "right before the device is stuck");
    ring_watch_stop(t->watch); /* which had patience */
    ring_watch_block_signals();
    t->watch = NULL;
    if (ring_watch_start(&t->comm, 1, &t->watch, &err))
        abort();
    if (t->comm.rank == t->comm.size - 1)
        fake_gpu_fault(FAKE_GPU_STUCK);
    queued_run(t, &p, 2);
    queued_point(t, 0, "a pass that cannot end ends");
}

static void run_case(struct queued_test *t, const char *what, int n)
{
    t->held = t->late = t->wrong = 0;
    if (strcmp(what, "rings") == 0)
        rings(t, n);
    else if (strcmp(what, "slowed") == 0)
        slowed(t, n);
    else if (strcmp(what, "levels") == 0)
        levels(t, n);
    else if (strcmp(what, "decode") == 0 || strcmp(what, "staged") == 0)
        queued_decode(t, n, *what == 'd');
    else if (strcmp(what, "moves") == 0)
        queued_moves(t, n);
    else if (strcmp(what, "documents") == 0)
        documents(t, n);
    else if (strcmp(what, "chunks") == 0)
        queued_chunks(t, n);
    else if (strcmp(what, "unordered") == 0)
        unordered(t);
    else if (strcmp(what, "stuck") == 0)
        stuck(t);
    else if (strncmp(what, "lost", 4) == 0)
        queued_lost(t, n);
    else
        t->failed = 1;
}

int main(int argc, char **argv)
{
    struct queued_test t = {
        .runtime = fake_gpu_runtime_with_kernels(),
        .device = {.size = sizeof t.device, .kind = HCP_DEVICE_CUDA, .sm_count = 132}};
    const char *first = argc > 1 ? argv[1] : "";
    struct hcp_err err = {0};

    ring_watch_block_signals();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &t.comm.thread_level);
    t.comm.world = t.comm.host = MPI_COMM_WORLD;
    MPI_Comm_rank(t.comm.world, &t.comm.rank);
    MPI_Comm_size(t.comm.world, &t.comm.size);
    t.comm.host_rank = t.comm.rank;
    t.comm.host_size = t.comm.size;
    t.device.ordinal = t.comm.rank; /* a GPU each */
    srand((unsigned)t.comm.rank + 1);
    const double timeout_s = 200; /* nothing here is to be a matter of time */
    if (hcp_transport_prepare(1, &err) ||
        ring_watch_start(&t.comm, timeout_s, &t.watch, &err) ||
        ring_links_new(strstr(first, "staged") ? "mpi" : "nccl", 0, &t.comm, t.runtime,
                       &t.device, 1.5 * timeout_s + 2, &t.links, &err)) {
        fprintf(stderr, "ring-queued-test: %s\n", err.text);
        return 1;
    }
    for (int i = 1; i < argc; i += 3) {
        t.seed = i + 1 < argc ? strtoull(argv[i + 1], NULL, 10) : 1;
        run_case(&t, argv[i], i + 2 < argc ? atoi(argv[i + 2]) : 20);
    }
    ring_links_close(t.links);
    ring_watch_stop(t.watch);
    MPI_Finalize();
    return t.failed != 0;
}
