/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: rebalancing while a plan runs.
 *
 *   rebalance.c         the object, what goes in, a step
 *   rebalance-speed.c   times of a rank -> its factor, its noise, and whether it changed
 *   rebalance-decide.c  stay or move; what moves, what is lost
 *   rebalance-text.c    state as text, fingerprint, names
 */
#ifndef HCP_REBALANCE_H
#define HCP_REBALANCE_H
#include "planner/decode.h"
#include "planner/plan.h"

enum {
    REBALANCE_HISTORY = 64, /* steps of a rank that are kept */
    REBALANCE_WINDOWS = 6,
    REBALANCE_EXACT = 16,   /* ranks whose factors are taken as they are */
    REBALANCE_PATIENCE = 64 /* steps, at most */
};

/* What is known of a rank's speed: factors y on the times of its models. */
struct speed {
    double y[REBALANCE_HISTORY]; /* the last ones; step i at i % REBALANCE_HISTORY */
    int64_t seen;                /* all of them */
    int64_t age;                 /* since the last change */
    double scale;                /* of those, without outliers; without any: as given */
    double error;                /* standard error of scale, relative */
    double noise;                /* standard deviation of y, relative, */
    double spread;               /* and what it would be by y alone */
    int fresh;                   /* no change yet: what was given counts */
    double given;                /* what it was then */
};

/* What the change test goes by, from the options. */
struct speed_test {
    double threshold[REBALANCE_WINDOWS]; /* in standard deviations */
    double one;                          /* of a single factor, */
    double sure;     /* of a mean, not looked at for a change: one side */
    double noise;    /* assumed at first */
    double held_out; /* relative, 90 %, of the models */
};

struct rank_state {
    struct speed speed;
    double base_ms;    /* of the plan that runs at factor 1 */
    double plan_scale; /* what the plan that runs was made for, */
    double old_scale;  /* and the one before it */
    double pending_y;  /* of the step that runs */
    uint8_t heard;     /* something came: */
    uint8_t timed;     /* a time, */
    uint8_t failing;   /* a failure */
    uint8_t failed, restored;
};

struct held_plan {
    hcp_plan plan;
    hcp_plan_rank *ranks;
    hcp_segment *segments;
    hcp_place *places;
};

struct hcp_rebalance {
    size_t n;
    hcp_ring *ring; /* own: rescale.c */
    hcp_question question;
    hcp_link *links;
    double *shared_gbps;
    hcp_rebalance_options options;
    struct speed_test test;
    struct rank_state *ranks; /* [n] */
    struct held_plan now, next, trial;
    int64_t *tokens; /* [n] scratch */
    double *scale;   /* [n] scratch */
    uint8_t *out;    /* [n] scratch */
    void *workspace;
    size_t workspace_bytes;
    int64_t step;
    int proposed;      /* next is a proposal, for the speeds in offered[] */
    double *offered;   /* [n] */
    uint8_t *lost;     /* [n] failed with KV of the plan that runs */
    int pending;       /* a change waits for its break-even: */
    double gain_ms;    /* saved a step, */
    double lost_ms;    /* since the change, */
    int64_t waited;    /* steps since then, */
    int64_t patience;  /* of at least */
    int64_t last_move; /* step; -1 none */
};

/* rebalance-speed.c */
void speed_test_init(struct speed_test *test, const hcp_rebalance_options *options,
                     double held_out);
void speed_start(struct speed *s, double scale);
/* A step's factor, of every rank; then what is typical of their spreads (mixes them);
 * then, with that, 1 where a speed has changed. */
void speed_add(struct speed *s, double y);
double speed_typical(double *spreads, size_t n);
int speed_look(struct speed *s, const struct speed_test *test, double typical);
/* Whether the factor `back` steps ago is one of the speed as it is taken to be now,
 * rather than of another. */
int speed_agrees(const struct speed *s, const struct speed_test *test, double other,
                 int64_t back);
/* Whether the last change is beyond noise by all that is known since. */
int speed_stands(const struct speed *s, const struct speed_test *test);
/* Whether there are just so many factors since the last change that it is worth a look at
 * what they say by now. */
int speed_due(const struct speed *s);

/* rebalance-decide.c: at the end of a step; changed: a speed changed, forced: the plan
 * cannot stay, due: speeds are known better. */
hcp_status rebalance_decide(hcp_rebalance *r, int changed, int forced, int due,
                            int64_t steps_left, char *text, size_t text_size,
                            hcp_rebalance_verdict *v);
/* base_ms of the plan that runs. */
hcp_status rebalance_base(hcp_rebalance *r, char *text, size_t text_size);
/* The plan of tokens of the layout of `like` at these factors, into `into`. */
hcp_status rebalance_evaluate(hcp_rebalance *r, const hcp_plan *like,
                              const int64_t *tokens, const double *scale,
                              struct held_plan *into, char *text, size_t text_size);

/* rebalance-text.c: ring, question and options. */
uint64_t rebalance_setting(const hcp_rebalance *r);

/* How far off the models are for a plan, relative, 90 %: the upper end of its interval.
 * With data sheets in the ring that of each rank, theirs without the factor that
 * estimates may be off: measured times are relative to the estimate, and tell it. */
double rebalance_off(const hcp_rebalance *r, const hcp_plan *plan);

#endif
