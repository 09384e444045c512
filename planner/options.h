/* SPDX-License-Identifier: Apache-2.0
 *
 * What split, compare, simulate and predict of hcp-plan share: options, the models and
 * ring behind them, and how a plan looks as text.
 */
#ifndef HCP_PLAN_OPTIONS_H
#define HCP_PLAN_OPTIONS_H
#include "db/cli.h"
#include "planner/hcpplan.h"
#include "planner/layer-measured.h"

enum {
    PLAN_GIVEN_BUFFERS = 1,
    PLAN_GIVEN_ALPHA = 2,
    PLAN_GIVEN_GBPS = 4,
    PLAN_GIVEN_BARRIER = 8,
    PLAN_GIVEN_SPLIT = 16, /* --tile, --stripes, caps, linear work and what is held */
    PLAN_GIVEN_SUB_BLOCKS = 32,
    PLAN_GIVEN_STRATEGY = 64,
    PLAN_GIVEN_ORDER = 128,
    PLAN_GIVEN_JOINT = 256,
    PLAN_GIVEN_LAYERS = 512,
    PLAN_GIVEN_NODES = 1024,
    PLAN_GIVEN_CHANNELS = 2048,
    PLAN_GIVEN_MERGE = 4096
};

struct plan_args {
    const char *db, *ranks, *provider, *max_tokens;
    const char *link;   /* transport whose measured times count; NULL none */
    const char *tokens; /* split: --tokens, NULL none */
    const char *kv_tokens; /* split: --kv-tokens, NULL none */
    const char *links;  /* file or transport with a link for each pair; NULL none */
    const char *hosts;  /* --hosts; NULL: nobody knows */
    enum hcp_hosts link_hosts, links_hosts; /* whose times those are, or any */
    int32_t channels;   /* of NCCL, with which they were measured; 0: its own choice */
    const char *linear; /* --linear-us, NULL none */
    const char *memory, *weights; /* NULL none */
    const char *time_scale;       /* NULL none */
    const char *documents;        /* split: --documents, NULL none */
    int whole_documents;
    double cut_gain; /* < 0: not given */
    const char *chunks; /* split: --chunks, NULL none */
    int64_t chunk_len;  /* 0: not given, as the next */
    double chunk_budget, chunk_fixed; /* ms */
    struct layer_args layer;
    int layer_given; /* some of it */
    const char *specs; /* --specs, NULL none */
    int json;
    int decode; /* --phase decode is answered */
    unsigned given; /* PLAN_GIVEN_ of the ring's options on the command line */
    struct hcp_shape_args shape;
    hcp_question question; /* layout, mask and seq_len are filled from shape */
};
void plan_args_init(struct plan_args *args);
/* --db --json --ranks --provider --specs --extrapolate and the shape. Child input: struct
 * plan_args *. */
extern const struct argp plan_common_argp;
/* --tile --stripes --max-tokens --buffers --sub-blocks --link --link-alpha-us
 * --link-gbps --links --reorder --fix-order --joint --node-ranks --node-alpha-us
 * --node-gbps --node-shared-gbps --double-ring --barrier --linear-us --model --hidden
 * --ffn --mlp --memory --weights --layers --activation-bytes --merge --channels
 * --time-scale; child
 * input: struct plan_args *. */
extern const struct argp plan_ring_argp;
/* Value of --strategy; a usage error ends the program. */
void plan_strategy_option(const char *arg, struct argp_state *state, hcp_question *q);

/* Exit code for a library status. */
int plan_exit_code(hcp_status status);

/* Values by rank of an option: V for all, V,V,... by rank, or RANK=V,...; set puts one
 * into a rank, and says in err what is wrong with it. (per-rank.c) */
typedef int (*plan_set_rank)(hcp_rank *rank, const char *value, struct hcp_err *err);
int plan_per_rank(const char *option, const char *text, plan_set_rank set,
                  hcp_rank *ranks, size_t n, struct hcp_err *err);
/* --max-tokens: a length. */
int plan_set_tokens(hcp_rank *rank, const char *value, struct hcp_err *err);
/* --linear-us: [BEFORE:]AFTER, each US or US+FIXED. */
int plan_set_linear(hcp_rank *rank, const char *value, struct hcp_err *err);
/* --memory and --weights: bytes, K M G T being powers of two; --memory spec: what the
 * data sheet says, MEMORY_OF_SPEC until session_specs(). */
enum { MEMORY_OF_SPEC = -1 };
int plan_set_memory(hcp_rank *rank, const char *value, struct hcp_err *err);
int plan_set_weights(hcp_rank *rank, const char *value, struct hcp_err *err);
/* --decode-linear-us: a number. */
int plan_set_decode_linear(hcp_rank *rank, const char *value, struct hcp_err *err);
/* --time-scale: a factor on times. */
int plan_set_time_scale(hcp_rank *rank, const char *value, struct hcp_err *err);
/* Such a number of bytes in 0 .. most. */
int plan_parse_bytes(const char *text, int64_t most, int64_t *out, struct hcp_err *err);
/* ms of a plan's rank before its ring, and after it; whether any rank has such work. */
double plan_before_ms(const hcp_plan_rank *rank);
double plan_after_ms(const hcp_plan_rank *rank);
int plan_has_linear(const hcp_plan *plan);
/* Channels with which the times of a transport's links were measured: NCCL alone has
 * any. */
int32_t plan_link_channels(const struct plan_args *args, const char *transport);
/* Whether memory was part of the question. */
int plan_has_memory(const hcp_plan *plan);

/* Models, ring, workspace, and a plan with its arrays. */
struct session {
    hcp_specs *specs; /* NULL: no data sheet is needed */
    hcp_models *models;
    hcp_ring *ring;
    void *workspace;
    size_t workspace_bytes;
    int64_t *tokens; /* of --tokens; NULL none */
    int64_t *kv_tokens; /* of --kv-tokens; NULL none */
    int32_t *hosts;  /* of --hosts, by rank; NULL none */
    hcp_link *links; /* of --links; NULL none */
    double *shared_gbps;
    layer_measured *layer; /* NULL: linear work is given, or none */
    hcp_rank *ranks;       /* of layer, bound anew for every split */
    hcp_shape shape;
    hcp_plan plan;
};
/* Opens the database and binds the ranks of args. Zero the session first. */
int session_open(struct plan_args *args, struct session *s, struct hcp_err *err);
/* As session_open, but ranks, shape and provider come from a plan, whose arrays the
 * session takes over on success; args->link sets its link. */
int session_open_plan(const struct plan_args *args, hcp_plan *plan, struct session *s,
                      struct hcp_err *err);
/* links-file.c: "nccl" or "mpi", with ":within" or ":between" or neither, into its parts
 * (*transport is static); 0 for anything else, which leaves both as they are. */
int links_transport(const char *word, const char **transport, enum hcp_hosts *hosts);
/* hosts.c: the host of each of n ranks by --hosts, numbered from 0 in the order of their
 * first ranks, into a new array; NULL without the option. */
int session_hosts(const char *text, size_t n, int32_t **out, struct hcp_err *err);
/* Which of the measured transfers between two ranks count: as the option says (given),
 * else by their hosts, of which NULL knows nothing. */
enum hcp_hosts session_hosts_of(enum hcp_hosts given, const int32_t *hosts, size_t a,
                                size_t b);
/* Whether a shape's or a plan's phase is that. */
int session_of_decode(const char *phase);
/* session-link.c: where a link's numbers go. */
struct link_into_plan {
    double *alpha_us, *gbps, *node_alpha_us, *node_gbps;
};
/* Start-up time and speed (0: no transfers) of the pair of neighbours that takes longest
 * to pass an even share's KV on, in pieces, or in decode of the pair of ranks that does
 * for a partial result, from the sizes about such a piece; what the command line gave
 * stays. Where ranks stand on nodes, that of neighbours on one, and the same between
 * nodes, neighbours and ranks in the same place of two. */
int session_link(const struct plan_args *args, const int32_t *host_of,
                 const hcp_shape *shape, const hcp_rank *ranks, size_t n, int64_t seq_len,
                 int32_t pieces, int32_t node_ranks, const struct link_into_plan *out,
                 struct hcp_err *err);
/* move-link.c: links of what goes one way, as KV from one rank to another. Which measured
 * transfers answered: one way, or (of pairs without any) both ways at once, and the
 * command that would measure the first of these pairs. */
struct move_ways {
    int one_way, two_way; /* pairs */
    char command[HCP_LINK_COMMAND];
};
/* Ranks that data moves between. */
struct move_ends {
    const hcp_plan_rank *ranks;
    size_t n;
    const uint8_t *gives, *takes; /* [n] which of them do; NULL: any may */
};
/* The line of one pair near so many bytes, one way from a to b; where that was not
 * measured, of both ways at once. HCP_NO_ANSWER: neither was. */
int move_link_near(hcp_db *db, const struct hcp_link_by *by, const hcp_rank *a,
                   const hcp_rank *b, double bytes, struct hcp_link_fit *out,
                   struct move_ways *ways, struct hcp_err *err);
/* The slowest measured transfer of so many bytes over args->link from any rank that gives
 * to any that takes, unless the command line has its numbers. No such ranks: nothing. */
int session_move_link(const struct plan_args *args, const struct move_ends *ends,
                      double bytes, double *alpha_us, double *gbps,
                      struct move_ways *ways, struct hcp_err *err);
/* "link_measured" ("one-way", "two-way"; null: no measured link counts) and
 * "link_command" of an answer. */
void move_ways_json(json_t *object, const struct move_ways *ways);
/* A line that says so, where transfers both ways answered. */
void move_ways_print(const struct move_ways *ways, FILE *out);
/* links-file.c: --links into the session and the question. ways: the links are of what
 * goes one way; NULL: of a ring. */
int session_links(const struct plan_args *args, const hcp_shape *shape,
                  const hcp_rank *ranks, size_t n, const char *provider, hcp_question *q,
                  struct move_ways *ways, struct session *s, struct hcp_err *err);
/* Asks for a plan with args->question, or for the plan of args->tokens, into s->plan. */
int session_split(struct plan_args *args, struct session *s, struct hcp_err *err);
/* session-layer.c: one such plan as the ring stands; with measured linear work the plan
 * whose lines go through the times of its own tokens, none of which are better moved
 * elsewhere by a few tiles. at: [n] the tokens of the ranks as given, into it. */
hcp_status session_ask(const struct plan_args *args, struct session *s,
                       struct hcp_err *err);
int session_ask_measured(const struct plan_args *args, struct session *s, int64_t *at,
                         struct hcp_err *err);
/* Below a plan: where linear work was measured far from its tokens, and the command that
 * measures it there. Non-zero if printing failed. */
int session_say_finer(const struct session *s, FILE *out);
/* The ring anew, of the kernel given, with measured linear work that is exact at at[n]
 * tokens of its ranks. */
int session_rebind(struct session *s, const int64_t *at, const char *provider,
                   struct hcp_err *err);
void session_close(struct session *s);
/* What 'hcp-plan disaggregate' opens: models, and with --model or --hidden a layer's
 * times, into the session, ranks into a new array, the shape of prefill of this batch,
 * --link of rings into args->question and of decode. */
int session_open_ranks(struct plan_args *args, int32_t prefill_batch, hcp_shape *shape,
                       hcp_rank **ranks, size_t *n, double *decode_alpha_us,
                       double *decode_gbps, struct session *s, struct hcp_err *err);

/* specs-session.c: whether a device is "spec:NAME"; the table of data sheets, from the
 * file given, $HCP_SPECS or where it is installed. */
int session_is_spec(const char *device);
int session_specs_load(const char *given, hcp_specs **out, struct hcp_err *err);
/* The table where ranks need it, into the session, and bytes for --memory spec. */
int session_specs(const struct plan_args *args, hcp_rank *ranks, size_t n,
                  struct session *s, struct hcp_err *err);
/* That a data sheet has no measured link for an option. */
int session_no_link(const char *device, const char *option, struct hcp_err *err);
/* From what the ring's data sheets are estimated, and how to measure them: below what was
 * printed on stdout, with a word on stderr; beside JSON all on stderr. How many there
 * are. */
int session_say_estimates(const struct session *s, int json);
int session_say_rings(hcp_ring *const *rings, size_t n_rings, int json); /* of several */

/* plan-file.c: a plan from a file (- is standard input), with arrays of its own: its
 * ranks, segments and places. Says on stderr if it was edited. */
int plan_load(const char *path, hcp_plan *plan, struct hcp_err *err);

/* documents-session.c: split --documents, with what the command line gave; exit code. */
int documents_split(struct plan_args *args);
/* documents-list.c: lengths from a list, or from the file that is named ("-": standard
 * input): numbers apart by commas or white space, N*LENGTH for N of a length, # up to the
 * end of a line for remarks. A new array of *n. */
int documents_list(const char *option, const char *text, int64_t **lengths, size_t *n,
                   struct hcp_err *err);
/* documents-text.c: table by rank and a summary; non-zero if printing failed. */
int documents_print(const hcp_documents_plan *plan, FILE *out);

/* disagg-text.c: an answer as text, with its notes, and as JSON; non-zero if printing
 * failed. */
int disagg_print(const hcp_disagg_advice *advice, int no_linear,
                 const struct move_ways *ways, FILE *out);
int disagg_print_json(const hcp_disagg_advice *advice, const struct move_ways *ways,
                      FILE *out);

/* chunks-session.c: split --chunk-budget, --chunk-len or --chunks, if it is that; exit
 * code. A time: ms, or with us, ms or s after it. */
static inline int plan_in_chunks(const struct plan_args *args)
{
    return args->chunks || args->chunk_len > 0 || args->chunk_budget > 0;
}
int chunks_split(struct plan_args *args);
int chunks_parse_ms(const char *text, const char *option, double *out,
                    struct hcp_err *err);
/* chunks-text.c: tables by chunk and by rank and a summary; non-zero if printing
 * failed. */
int chunks_print(const hcp_chunks_plan *plan, FILE *out);

/* The plan as JSON, malloc'ed; NULL without memory. */
char *plan_json(const hcp_plan *plan);
/* Table by rank and a summary; non-zero if printing failed. */
int plan_print(const hcp_plan *plan, FILE *out);
/* text-decode.c: the same of a plan of decode. */
int plan_print_decode(const hcp_plan *plan, FILE *out);
/* ", link 8.2 us + bytes / 155 GB/s" where there is one. */
void plan_print_link(const hcp_plan *plan, FILE *out);
/* "4352 1024 ...": tokens by rank, of a joint plan "4352/2048", queries' and KV's;
 * shortened for large groups. */
void plan_tokens_text(const hcp_plan *plan, char *out, size_t size);
/* "nvidia-h200@mps:10" */
void plan_rank_name(const char *device, const char *limit, char *out, size_t size);

#endif
