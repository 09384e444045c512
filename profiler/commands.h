/* SPDX-License-Identifier: Apache-2.0
 *
 * The subcommands of hcp-profile. argv[0] is the name for messages
 * ("hcp-profile show"); each returns an exit code of db/error.h.
 */
#ifndef HCP_PROFILE_COMMANDS_H
#define HCP_PROFILE_COMMANDS_H

int cmd_devices(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_conform(int argc, char **argv);
int cmd_link(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_import(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_diff(int argc, char **argv);

#endif
