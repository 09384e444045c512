/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include "db/cli.h"

static void usage(const char *program, const struct hcp_command *commands, FILE *out)
{
    fprintf(out, "Usage: %s COMMAND [OPTION...]\n\n", program);
    for (const struct hcp_command *c = commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->help);
    fprintf(out, "\n'%s COMMAND --help' explains one; %s(1) explains all.\n", program,
            program);
}

int hcp_cli_main(const char *program, const struct hcp_command *commands, int argc,
                 char **argv)
{
    static char name[64]; /* argv[0] of the command, which argp prints */

    /* Only the character set: numbers stay in the C locale everywhere. */
    setlocale(LC_CTYPE, "");
    hcp_cli_set_name(program);
    if (argc < 2) {
        usage(program, commands, stderr);
        return HCP_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-?")) {
        usage(program, commands, stdout);
        return hcp_cli_finish(HCP_OK);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("%s %s\n", program, PACKAGE_VERSION);
        return hcp_cli_finish(HCP_OK);
    }
    for (const struct hcp_command *c = commands; c->name; c++)
        if (!strcmp(argv[1], c->name)) {
            snprintf(name, sizeof name, "%s %s", program, c->name);
            argv[1] = name;
            return c->run(argc - 1, argv + 1);
        }
    fprintf(stderr, "%s: no command '%s'; '%s --help' lists them\n", program, argv[1],
            program);
    return HCP_USAGE;
}
