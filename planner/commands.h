/* SPDX-License-Identifier: Apache-2.0
 *
 * The subcommands of hcp-plan. argv[0] is "hcp-plan COMMAND"; the exit code returns.
 */
#ifndef HCP_PLAN_COMMANDS_H
#define HCP_PLAN_COMMANDS_H

int cmd_fit(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_split(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_transition(int argc, char **argv);
int cmd_specs(int argc, char **argv);
int cmd_disaggregate(int argc, char **argv);
int cmd_rebalance(int argc, char **argv);

#endif
