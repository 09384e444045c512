/* SPDX-License-Identifier: Apache-2.0
 *
 * The program hcp-ring, around the ring:
 *
 *   options.c  command line            plans.c   plans from files or from the library
 *   plans-split.c  other splits        plans-documents.c  plans of packed documents
 *   plans-chunks.c  plans of chunks    chunks.c    chunk after chunk
 *   chunks-report.c  ... in tables and JSON
 *   place.c    this rank's device      measure.c passes of one plan, gathered on rank 0
 *   report.c   tables and JSON         store.c   rows of the database
 *   search.c   splits around a plan    hcp-ring.c the order in which that happens
 *   transition.c  KV from one plan's shares to another's
 *   rebalance.c   another plan in the middle of a run
 *   rebalance-failure.c  ... without ranks that have failed
 *   rebalance-report.c   ... and what is said of it
 */
#ifndef HCP_RING_PROGRAM_H
#define HCP_RING_PROGRAM_H
#include "db/cli.h"
#include "executor/ring.h"
#include "executor/verify.h"
#include "profiler/stats.h"

/* ---- options.c ------------------------------------------------------------ */

enum {
    RING_GIVEN_BUFFERS = 1,
    RING_GIVEN_SUB_BLOCKS = 2,
    RING_GIVEN_BARRIER = 4,
    RING_GIVEN_MLP = 8,
    RING_GIVEN_ALPHA = 16,
    RING_GIVEN_GBPS = 32,
    RING_GIVEN_MOVE = 64,
    RING_GIVEN_WARM_UP = 128
};

enum { RING_SLOWED = 16 }; /* at most, and as many that fail */

/* --slow: from a timed pass on a rank takes so much of its time. */
struct ring_slowed {
    int32_t rank;
    int64_t pass;
    double factor;
};

/* --fail: in this timed pass the kernel on the block of this step returns an error. */
struct ring_failing {
    int32_t rank;
    int64_t pass;
    int32_t step;
};

struct ring_options {
    int rebalance;
    double move_ms; /* that a change is taken to cost */
    struct ring_slowed slowed[RING_SLOWED];
    int n_slowed;
    struct ring_failing failing[RING_SLOWED];
    int n_failing;
    int search, transition; /* the command */
    const char *from, *to;  /* of transition: plan_files has to, then from */
    const char *moves;      /* file of what to move; NULL: the library is asked */
    int64_t steps;          /* decode steps to come; 0: not known */
    const char *db, *ranks, *provider, *plugin, *strategies, *transport;
    int32_t channels; /* of NCCL, for each direction; 0: its choice */
    int32_t spare_sms; /* that attention leaves to transfers; -1: auto */
    const char **plan_files;
    size_t n_plan_files;
    struct hcp_shape_args shape;
    hcp_question question; /* what the options say; mask and layout are in shape */
    unsigned given;        /* RING_GIVEN_ */
    int local;             /* --local N; 0: not given */
    int repeat;
    double warm_up_s, max_time_s, timeout_s;
    int64_t verify_rows; /* -1: no verification */
    uint64_t seed;
    int json, any_device, no_store;
    const char *model; /* its layer is run; NULL: see layer */
    struct hcp_layer layer; /* hidden 0: attention alone; heads are the plan's */
};
/* Exits with HCP_USAGE on a wrong command line. */
void ring_options_parse(int argc, char **argv, struct ring_options *out);

/* ---- plans.c -------------------------------------------------------------- */

/* Plans of one set of ranks and one shape. */
struct ring_plans {
    hcp_plan *plans; /* each owns its arrays */
    hcp_documents_plan **documents; /* [n] of a pack; elements NULL: one sequence */
    size_t n;
    hcp_chunks_plan *chunks; /* plans[0] is then the whole prompt, and n 1; NULL: none */
    hcp_models *models;      /* NULL without a database */
    hcp_ring *ring;
    void *workspace;
    size_t workspace_bytes;
};
int ring_plans_load(struct ring_options *o, struct ring_plans *out,
                    struct hcp_err *err);
void ring_plans_free(struct ring_plans *p);
/* Whether a split (of a joint plan its queries) keeps within a plan's caps, in tokens and
 * bytes. */
int ring_tokens_fit(const hcp_plan *like, const int64_t *tokens);
/* The plan of other tokens (of a joint plan queries, KV staying where it is) in the
 * layout of `like`: with predictions when there are models, without (NaN) otherwise. Free
 * with ring_plan_free(). */
int ring_plan_of_tokens(const struct ring_plans *p, const hcp_plan *like,
                        const int64_t *tokens, hcp_plan *out, struct hcp_err *err);
void ring_plan_free(hcp_plan *plan);
/* The exit code of a status of the library. */
int ring_exit_code(hcp_status status);
/* That what a plan's text says of itself (0: nothing) is so. */
int ring_plan_unchanged(const char *file, uint64_t said, uint64_t is, struct hcp_err *err);
/* The arrays of a plan, and the plan cleared. */
int ring_plan_arrays(hcp_plan *plan, size_t n_ranks, size_t n_segments,
                     struct hcp_err *err);

/* plans-documents.c: a plan of documents from text, and the plan of its pack: the
 * documents one behind the other as one sequence, parts as segments. file is for
 * messages. */
int ring_documents_read(const char *file, const char *text, size_t length, hcp_plan *plan,
                        hcp_documents_plan **out, struct hcp_err *err);
void ring_documents_free(hcp_documents_plan *d); /* accepts NULL */
/* The documents of one of the plans; NULL: it has none. Whether any has. */
const hcp_documents_plan *ring_documents_of(const struct ring_plans *p,
                                            const hcp_plan *plan);
int ring_documents_any(const struct ring_plans *p);

/* plans-chunks.c: a plan of chunks from text, and one plan of the whole prompt: where all
 * of it is at the end, by which ranks are set up. file is for messages. */
int ring_chunks_read(const char *file, const char *text, size_t length, hcp_plan *plan,
                     hcp_chunks_plan **out, struct hcp_err *err);
void ring_chunks_free(hcp_chunks_plan *c); /* accepts NULL */
/* Options that such a plan leaves room for: it is run as it says. */
int ring_chunks_check(const struct ring_options *o, struct hcp_err *err);
/* The joint plan of chunk k, as ring_schedule_chunk() wants it. comparable 0: what it
 * predicts is left out. Free with ring_plan_free(). */
int ring_chunk_plan(const hcp_chunks_plan *c, size_t k, int comparable, hcp_plan *out,
                    struct hcp_err *err);

/* ---- place.c -------------------------------------------------------------- */

/* What the others may know of a rank. */
struct ring_peer {
    char host[64], device[64], name[96], uuid[64];
    char limit[32]; /* that it runs under: the plan's, or with --any-device "" */
    char driver[32], cuda_version[16], provider_version[48];
    int32_t is_cuda, has_nccl, sm_count, sm_seen; /* has_nccl: its build */
};

struct ring_place {
    struct ring_peer self;
    const hcp_runtime *runtime;
    hcp_device_ref device;
    hcp_registry *registry;
    char pipe_dir[108], log_dir[108]; /* of the MPS daemon; "" */
};

/* GPUs of this host, before MPI: a process of its own asks. */
struct ring_gpus {
    struct hcp_device_info *infos;
    size_t n;
    char reason[512]; /* why there is none */
};
/* 1 if every rank of the plans is this host's CPU: then GPUs are not asked for. */
int ring_place_cpu_only(const struct ring_plans *plans);
int ring_gpus_list(struct ring_gpus *out, struct hcp_err *err);

/* Gives this rank its device and limit; collective over the host's ranks. After it CUDA
 * may be called. The caller exchanges failures. */
int ring_place_open(struct ring_comm *comm, ring_warden *warden,
                    const struct ring_gpus *gpus, const hcp_plan_rank *rank,
                    const struct ring_options *o, struct ring_place *out,
                    struct hcp_err *err);
void ring_place_close(struct ring_place *place);

/* ---- measure.c ------------------------------------------------------------ */

struct ring_program {
    struct ring_options o;
    struct ring_plans plans;
    struct ring_comm comm;
    ring_warden *warden;
    ring_watch *watch;
    struct ring_place place;
    struct ring_peer *peers; /* [ranks], on every rank */
    char transport[8];
    ring_links *links;
    int warmed; /* a ring has run in this process */
    int alone; /* the last failure is this rank's alone: the others do not know */
    ring_alarm *alarm;     /* of --rebalance, or NULL */
    struct hcp_err broken; /* why it was for this rank's device that the last ring could
                              not be opened; code HCP_OK: it was not */
};

/* What a plan's passes gave; filled on rank 0, elsewhere empty. */
struct ring_result {
    const hcp_plan *plan;
    int repeats;
    struct ring_times *times; /* [repeats][n_ranks] */
    struct ring_times *ranks; /* [n_ranks] medians over the repetitions */
    double (*steps)[4]; /* [n_ranks][m] of the last pass, as ring_pass() gives them; m:
                           ranks with tokens, of which a rank without has NaN */
    size_t m;
    struct hcp_stats makespan;
    int verified;
    struct ring_errors *errors; /* [n_ranks] when verified */
    char provider[32], config[200], transport[8], transport_version[32];
    int32_t buffers, sub_blocks, barrier;
};
/* Runs a plan `repeat` times after warming up; collective. HCP_OK also when a
 * verification has failed (ring_result_passed()). A failure that sets p->alone is this
 * rank's alone: it must end the process, which the others' watch sees. */
int ring_measure(struct ring_program *p, const hcp_plan *plan, int repeat, int verify,
                 struct ring_result *out, struct hcp_err *err);
/* Its parts, for those who do otherwise in between. Opens the ring of a plan, with the
 * rank's KV where the caller has it, or of a chunk (both as in ring_config), and notes in
 * `out` what runs; collective. */
int ring_open_plan(struct ring_program *p, const hcp_plan *plan, const struct ring_kv *kv,
                   int32_t n_kv, const struct ring_chunk *chunk, struct ring_result *out,
                   ring **r, struct hcp_err *err);
/* Warms it up, proves it if it is to be checked, and measures it. */
int ring_run(struct ring_program *p, ring *r, int repeat, int check,
             struct ring_result *result, struct hcp_err *err);
/* A pass into poisoned memory and what comparing it says, gathered in out->errors;
 * collective. Failures as of ring_measure(). */
int ring_prove(struct ring_program *p, ring *r, struct ring_result *out,
               struct hcp_err *err);
/* Its second part, after a good pass into memory that was poisoned. */
int ring_compare(struct ring_program *p, ring *r, struct ring_result *out,
                 struct hcp_err *err);
/* Whether another pass is to be run untimed, of a ring that has run so many since start_s
 * (hcp_now_s()). */
int ring_is_cold(const struct ring_program *p, int passes, double start_s);
/* Adds the repetitions of another result of the same plan. */
int ring_result_add(struct ring_result *into, const struct ring_result *more,
                    struct hcp_err *err);
void ring_result_free(struct ring_result *r);
/* Largest relative error of O over the ranks; NaN when not verified. */
double ring_result_error(const struct ring_result *r);
int ring_result_passed(const struct ring_result *r);

/* ---- report.c, store.c, search.c ------------------------------------------ */

/* Rank 0: one result in full, or several as a table. Non-zero if printing failed. */
int ring_print(const struct ring_program *p, const struct ring_result *results,
               size_t n, const char *const *notes);
json_t *ring_result_json(const struct ring_program *p, const struct ring_result *r);
void ring_print_means(const struct ring_program *p, const struct ring_result *r);

/* Rank 0: adds results to the database of --db, those that search lists twice once.
 * Predictions for other devices (--any-device) are left out. */
int ring_store(const struct ring_program *p, const struct ring_result *results, size_t n,
               struct hcp_err *err);

/* Rank 0 decides whether to go on, all do as it says. */
int ring_decide(struct ring_program *p, int *go_on, struct hcp_err *err);

/* hcp-ring.c: what ranks compare of a plan before they run it. */
void ring_identify(const struct ring_program *p, const hcp_plan *plan,
                   struct ring_identity *id);

/* --rebalance: passes of the first plan, and of those that libhcpplan proposes while they
 * go on. Collective. */
int ring_rebalance(struct ring_program *p, struct hcp_err *err);

/* Plans of chunks: chunk after chunk, KV staying where a chunk's split has put it. One
 * chunk's share of the result: */
struct ring_chunk_result {
    hcp_plan plan;
    struct ring_result result;
    struct ring_traffic *traffic; /* [n_ranks][received, sent]; rank 0 */
};
struct ring_chunks_result {
    const hcp_chunks_plan *plan;
    struct ring_chunk_result *chunks; /* [plan->n_chunks] */
    char (*failed)[200]; /* [n_ranks] what of the KV is not what it should be at the end,
                            on rank 0 with --verify, else NULL */
};
/* Collective. */
int ring_chunks(struct ring_program *p, struct hcp_err *err);
/* chunks-report.c, on rank 0. Non-zero if printing failed. */
int ring_chunks_print(const struct ring_program *p, const struct ring_chunks_result *r);
int ring_chunks_passed(const struct ring_chunks_result *r);

/* hcp-ring search: measures the plans and splits around them. Collective. */
int ring_search(struct ring_program *p, struct hcp_err *err);

/* hcp-ring transition: moves KV from the shares of plans[1] to those of plans[0].
 * Collective. */
int ring_transition(struct ring_program *p, struct hcp_err *err);
/* moves-file.c: the answer in a file, as hcp_plan_moves() gives it for these plans;
 * arrays of out as there. Whether it moves every token once is not looked at. */
int ring_moves_read(const char *file, const hcp_plan *from, const hcp_plan *to,
                    hcp_moves *out, struct hcp_err *err);

#endif
