/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/layer.h"
#include "db/parse.h"

/* name hidden ffn layers heads kv_heads head_dim mlp, and where that is from. */
enum { COLUMNS = 8 };

static int damaged(const char *path, int number, const char *why, struct hcp_err *err)
{
    return hcp_fail(err, HCP_FAILED,
                    "%s:%d: %s; a line is: name hidden ffn layers heads kv_heads "
                    "head_dim gated|plain source",
                    path, number, why);
}

/* A line that is not empty. It is taken apart. */
static int read_line(char *line, const char *path, int number, struct hcp_layer *out,
                     struct hcp_err *err)
{
    char *field[COLUMNS], *rest = NULL;
    int64_t value[COLUMNS];
    struct hcp_err why;
    for (int i = 0; i < COLUMNS; i++) {
        field[i] = strtok_r(i ? NULL : line, " \t", &rest);
        if (!field[i])
            return damaged(path, number, "too few columns", err);
        if (i > 0 && i < COLUMNS - 1 &&
            hcp_parse_int(field[i], "a number", 1, 1 << 24, &value[i], &why) != HCP_OK)
            return damaged(path, number, why.text, err);
    }
    if (!rest || !rest[strspn(rest, " \t")])
        return damaged(path, number, "it does not say where it is from", err);
    int gated = strcmp(field[7], "gated") == 0;
    if (!gated && strcmp(field[7], "plain") != 0)
        return damaged(path, number, "the MLP is neither gated nor plain", err);
    *out = (struct hcp_layer){.hidden = value[1],
                              .ffn = value[2],
                              .layers = (int32_t)value[3],
                              .heads = (int32_t)value[4],
                              .kv_heads = (int32_t)value[5],
                              .head_dim = (int32_t)value[6],
                              .gated = gated};
    if (snprintf(out->name, sizeof out->name, "%s", field[0]) >= (int)sizeof out->name)
        return damaged(path, number, "the name is too long", err);
    return hcp_layer_check(out, &why) == HCP_OK ? HCP_OK
                                                : damaged(path, number, why.text, err);
}

int hcp_layer_find(const char *name, struct hcp_layer *out, struct hcp_err *err)
{
    const char *path = getenv("HCP_MODELS");
    char line[512], known[700] = "";
    int number = 0, found = 0, rc = HCP_OK;
    if (!path || !*path)
        path = PKGDATADIR "/models.txt";
    FILE *f = fopen(path, "re");
    if (!f)
        return hcp_fail(err, HCP_FAILED,
                        "cannot read the table of model shapes '%s': %s; set HCP_MODELS "
                        "to its path, or give the shape itself (--hidden --ffn --heads "
                        "--kv-heads --head-dim)",
                        path, strerror(errno));
    while (rc == HCP_OK && !found && fgets(line, sizeof line, f)) {
        struct hcp_layer one;
        number++;
        line[strcspn(line, "\r\n#")] = '\0';
        if (!line[strspn(line, " \t")])
            continue;
        rc = read_line(line, path, number, &one, err);
        if (rc != HCP_OK)
            break;
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", one.name);
        found = strcmp(one.name, name) == 0;
        if (found)
            *out = one;
    }
    fclose(f);
    if (rc == HCP_OK && !found)
        rc = hcp_fail(err, HCP_USAGE, "no model '%.40s' in %s; it has %s", name, path,
                      *known ? known : "none");
    return rc;
}
