/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include "db/cli.h"
#include "planner/commands.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"fit", cmd_fit, "fit the measured cells of a database"},
    {"predict", cmd_predict, "time of one block, or of a list of blocks"},
    {"split", cmd_split, "how many tokens, and which, each rank gets"},
    {"compare", cmd_compare, "all strategies side by side"},
    {"simulate", cmd_simulate, "a split step by step round the ring"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *out)
{
    fputs("Usage: hcp-plan COMMAND [OPTION...]\n\n", out);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\n'hcp-plan COMMAND --help' explains one; hcp-plan(1) explains all.\n", out);
}

int main(int argc, char **argv)
{
    static char name[64];

    /* Only the character set: numbers stay in the C locale everywhere. */
    setlocale(LC_CTYPE, "");
    hcp_cli_set_name("hcp-plan");
    if (argc < 2) {
        usage(stderr);
        return HCP_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-?")) {
        usage(stdout);
        return hcp_cli_finish(HCP_OK);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("hcp-plan %s\n", PACKAGE_VERSION);
        return hcp_cli_finish(HCP_OK);
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            snprintf(name, sizeof name, "hcp-plan %s", argv[1]);
            argv[1] = name;
            return commands[i].run(argc - 1, argv + 1);
        }
    fprintf(stderr, "hcp-plan: no command '%s'; 'hcp-plan --help' lists them\n", argv[1]);
    return HCP_USAGE;
}
