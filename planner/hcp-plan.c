/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/cli.h"
#include "planner/commands.h"

int main(int argc, char **argv)
{
    static const struct hcp_command commands[] = {
        {"fit", cmd_fit, "fit the measured cells of a database"},
        {"predict", cmd_predict, "time of one block, or of a list of blocks"},
        {"split", cmd_split, "how many tokens, and which, each rank gets"},
        {"compare", cmd_compare, "all strategies side by side"},
        {"simulate", cmd_simulate, "a split step by step round the ring"},
        {"transition", cmd_transition, "what to move between two plans, and if it pays"},
        {"specs", cmd_specs, "GPUs that ranks can be by their data sheet"},
        {"disaggregate", cmd_disaggregate, "which ranks prefill, which decode, or both"},
        {"rebalance", cmd_rebalance,
         "what would be proposed while a plan runs, by a trace"},
        {NULL, NULL, NULL},
    };

    return hcp_cli_main("hcp-plan", commands, argc, argv);
}
