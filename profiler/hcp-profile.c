/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <signal.h>
#include <string.h>
#include "db/cli.h"
#include "profiler/commands.h"
#include "profiler/worker.h"

int main(int argc, char **argv)
{
    static const struct hcp_command commands[] = {
        {"devices", cmd_devices, "what is here, and which limits work"},
        {"run", cmd_run, "measure attention on a device"},
        {"conform", cmd_conform, "check that kernels compute attention"},
        {"link", cmd_link, "measure transfers between two devices"},
        {"show", cmd_show, "what a profile database holds"},
        {"check", cmd_check, "what a profile can answer, and what is wrong with it"},
        {"diff", cmd_diff, "what changed between two profiles, beyond noise"},
        {"export", cmd_export, "rows as CSV or JSON lines"},
        {"import", cmd_import, "add rows from a file, or a recorded machine by name"},
        {"merge", cmd_merge, "add the rows of other databases"},
        {NULL, NULL, NULL},
    };

    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error to report, not a death */
    if (argc == 2 && !strcmp(argv[1], HCP_WORKER_COMMAND)) { /* started by ourselves */
        hcp_cli_set_name("hcp-profile");
        return hcp_worker_main();
    }
    return hcp_cli_main("hcp-profile", commands, argc, argv);
}
