/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "db/cli.h"
#include "profiler/commands.h"
#include "profiler/worker.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"devices", cmd_devices, "what is here, and which limits work"},
    {"run", cmd_run, "measure attention on a device"},
    {"show", cmd_show, "what a profile database holds"},
    {"export", cmd_export, "rows as CSV or JSON lines"},
    {"import", cmd_import, "add rows from a file, or a recorded machine by name"},
    {"merge", cmd_merge, "add the rows of other databases"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *out)
{
    fputs("Usage: hcp-profile COMMAND [OPTION...]\n\n", out);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\n'hcp-profile COMMAND --help' explains one; hcp-profile(1) explains all.\n", out);
}

int main(int argc, char **argv)
{
    static char name[64];

    /* Only the character set: numbers stay in the C locale everywhere. */
    setlocale(LC_CTYPE, "");
    hcp_cli_set_name("hcp-profile");
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error to report, not a death */
    if (argc == 2 && !strcmp(argv[1], HCP_WORKER_COMMAND)) /* started by ourselves */
        return hcp_worker_main();
    if (argc < 2) {
        usage(stderr);
        return HCP_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-?")) {
        usage(stdout);
        return hcp_cli_finish(HCP_OK);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("hcp-profile %s\n", PACKAGE_VERSION);
        return hcp_cli_finish(HCP_OK);
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            snprintf(name, sizeof name, "hcp-profile %s", argv[1]);
            argv[1] = name;
            return commands[i].run(argc - 1, argv + 1);
        }
    fprintf(stderr, "hcp-profile: no command '%s'; 'hcp-profile --help' lists them\n", argv[1]);
    return HCP_USAGE;
}
