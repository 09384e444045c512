/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of 'hcp-profile run'.
 */
#ifndef HCP_RUN_OPTIONS_H
#define HCP_RUN_OPTIONS_H
#include <argp.h>
#include "profiler/run.h"

struct hcp_run_args {
    struct hcp_run_options run;
    const char *db, *device; /* NULL: not given */
    int preset_given;
};

/* For an argp with hcp_shape_argp as its first child and a struct hcp_run_args as input;
 * wrong arguments end the process with exit code 2. */
extern const struct argp_option hcp_run_argp_options[];
error_t hcp_run_argp_parse(int key, char *arg, struct argp_state *state);
void hcp_run_args_init(struct hcp_run_args *args);
void hcp_run_args_free(struct hcp_run_args *args); /* what the options hold */

#endif
