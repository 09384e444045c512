/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks as a group: start, agreement, and what happens when one of them ends early.
 *
 * A rank that cannot go on must not leave the others waiting. Three things see to that:
 * collective error exchange at every stage before the ring runs (ring_all_ok), a watch
 * thread that follows the processes of the other ranks on this host and the time this
 * rank has been waiting, and the launcher, whose SIGTERM the watch turns into a message.
 */
#ifndef HCP_RING_COMM_H
#define HCP_RING_COMM_H
#include <mpi.h>
#include <stdint.h>
#include "db/error.h"
#include "planner/hcpplan.h"

struct ring_comm {
    MPI_Comm world; /* errors are returned, not fatal */
    int rank, size;
    MPI_Comm host; /* ranks of this host */
    int host_rank, host_size;
    int thread_level; /* MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE */
    char host_name[64];
};

/* ---- before MPI: launch.c ------------------------------------------------ */

/* A small process forked before MPI starts threads: it runs the MPS daemon of this host
 * and the duty cycle of this rank, and ends both when this process ends, however. When
 * it is killed itself, the rank goes on unthrottled, never stopped. */
typedef struct ring_warden ring_warden;
int ring_warden_start(ring_warden **out, struct hcp_err *err);
/* Starts a private MPS daemon; its directories come back. */
int ring_warden_mps(ring_warden *w, char pipe_dir[108], char log_dir[108],
                    struct hcp_err *err);
/* Throttles this process to percent of a core from now on. */
int ring_warden_throttle(ring_warden *w, int percent, struct hcp_err *err);
/* HCP_FAILED if what it was asked for has not held since the last check, because somebody
 * killed it or its helper: times measured meanwhile are not those of the limit. Accepts
 * NULL. */
int ring_warden_check(ring_warden *w, struct hcp_err *err);
/* Ends what it does: a throttle before it returns, an MPS daemon as soon as this process
 * has ended (until then it is the daemon's client, for whom the daemon would wait). No
 * other rank of the host may be at work on its device. Accepts NULL. (A process that ends
 * without it: the daemon is stopped a second later.) */
void ring_warden_stop(ring_warden *w);

/* hcp-ring --local N ...: replaces this process by mpirun ($HCP_MPIRUN, else of PATH)
 * with N ranks of the same command line without --local, on this host; sets what running
 * as root, with more ranks than cores or in a container needs, and says on stderr what
 * it set. MCA parameters of the environment are left as they are. Unblocks the signals
 * that ring_watch_block_signals() blocked. Returns only on failure. */
int ring_launch_local(int n, int argc, char **argv, struct hcp_err *err);
/* 1 if a launcher (mpirun, srun) started this process as one of its ranks. To be asked
 * before MPI starts, too: the first answer is kept. */
int ring_launched(void);

/* ---- MPI ----------------------------------------------------------------- */

/* MPI_Init_thread (asks for MPI_THREAD_MULTIPLE, content with serialized) and the
 * communicators. */
int ring_comm_open(int *argc, char ***argv, struct ring_comm *out, struct hcp_err *err);
/* Collective; ends with MPI_Finalize. The ranks of a host meet in it, so that a daemon
 * which ring_warden_stop() ends after it has no client at work. */
void ring_comm_close(struct ring_comm *c);
/* Makes this rank number `place`; collective, every number once. What is opened on c
 * afterwards counts so. */
int ring_comm_reorder(struct ring_comm *c, int place, struct hcp_err *err);

/* Applies the rank's limit of the plan: `mps:` sets this process's environment, before
 * its first CUDA call, the host's first rank having started the daemon if any rank of
 * the host has such a limit; `cpu:` throttles; `green:` nothing yet, the
 * context is made when the device is opened; "" nothing. Not `mps:` and `green:` on one
 * host. device_uuid: which GPU ("": not a GPU). Collective over the host's ranks. */
int ring_limit_apply(struct ring_comm *c, ring_warden *w, const char *limit,
                     const char *device_uuid, char pipe_dir[108], char log_dir[108],
                     struct hcp_err *err);

/* Collective: HCP_OK if rc is on every rank; otherwise a failure everywhere, err being
 * that of the lowest rank that failed, with "rank N (HOST): " in front. */
int ring_all_ok(const struct ring_comm *c, int rc, struct hcp_err *err);

/* What must be equal on all ranks before the first send. Text fields are compared
 * verbatim; each difference is named with the ranks that have it. */
struct ring_identity {
    char tool_version[16];
    int64_t plan_version; /* hcp_plan_version() */
    uint64_t fingerprint;
    int64_t seq_len, n_ranks;
    char shape[96];   /* "bf16 32/8 heads x 128, batch 1, causal, zigzag" */
    char options[128]; /* buffers, sub-blocks, barrier, transport, seed, repeats */
    char provider[80]; /* kernel's name; versions may differ between devices */
};
/* Collective. HCP_FAILED on every rank with e.g. "the ranks do not agree: plan
 * fingerprint 93fa... on ranks 0, 2-3, but 11bc... on rank 1; load the same models or
 * give all ranks the same plan file". */
int ring_agree(const struct ring_comm *c, const struct ring_identity *mine,
               struct hcp_err *err);

/* ---- alarm.c -------------------------------------------------------------- */

/* For a rank that cannot go on though its process lives: the others may be in the middle
 * of something and wait for its messages. A thread of each hears of it, over a
 * communicator of its own, and calls stop (which cancels transports), within some
 * milliseconds. */
typedef struct ring_alarm ring_alarm;
/* Collective. *out is NULL where MPI does not give MPI_THREAD_MULTIPLE, without which no
 * thread can listen. HCP_FAILED on all ranks if it is not had on one. */
int ring_alarm_start(const struct ring_comm *c, void (*stop)(void *ctx), void *ctx,
                     ring_alarm **out, struct hcp_err *err);
/* Tells all other ranks. HCP_FAILED: MPI failed. */
int ring_alarm_raise(ring_alarm *a, struct hcp_err *err);
/* Whether another rank has raised it since the last ring_alarm_over(), and waiting for
 * that for at most so long: 1 or 0. */
int ring_alarm_heard(const ring_alarm *a);
int ring_alarm_await(const ring_alarm *a, double patience_s);
/* All ranks know of all failures: what is still on its way to this rank is about them,
 * and stop is not called for it any more. Every rank calls it, and raises nothing before
 * all have. */
void ring_alarm_over(ring_alarm *a);
void ring_alarm_stop(ring_alarm *a); /* collective; accepts NULL */

/* ---- watch.c -------------------------------------------------------------- */

/* Follows the other ranks from here on: the processes of this host's ranks (pidfd), the
 * deadline of what this rank waits for, SIGTERM and SIGINT. When one of them ends the
 * run it prints one line that names the rank and ends this process (exit code 1) after
 * calling stop (which cancels transports), at most 3 s later whatever the device does.
 * timeout_s: longest wait for anything announced with ring_watch_waiting(); 0: for ever.
 * A transport's own time-out should be longer, so that this one names the rank.
 * Collective over the host's ranks; after a failure the rank can only end. Signals it
 * handles must be blocked from the program's start: call ring_watch_block_signals()
 * first thing in main, before MPI makes threads. */
typedef struct ring_watch ring_watch; /* NULL is accepted everywhere: nothing watched */
void ring_watch_block_signals(void);
int ring_watch_start(const struct ring_comm *c, double timeout_s, ring_watch **out,
                     struct hcp_err *err);
void ring_watch_on_stop(ring_watch *w, void (*stop)(void *ctx), void *ctx);
/* "waiting for the KV of rank 2 from rank 1 (step 3)": what this rank does now, and the
 * rank it depends on (-1: all). The deadline starts anew. what is copied. */
void ring_watch_waiting(ring_watch *w, const char *what, int on_rank);
/* Not waiting for anybody. */
void ring_watch_idle(ring_watch *w);
/* Ends this process with exit code 1 after a failure of its own, calling stop as above.
 * Prints err, or what the watch prints if the failure follows from another rank's end.
 * The other ranks see this one end and end too. */
_Noreturn void ring_watch_fail(ring_watch *w, const struct hcp_err *err);
/* Ends the watch: ranks may come and go from here, and signals have their default effect
 * again. Collective over the host's ranks, after everything that can fail. */
void ring_watch_stop(ring_watch *w);

#endif
