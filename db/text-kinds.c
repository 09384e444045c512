/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "db/text-internal.h"

/* The fields of a row from where reading has put them: the cell's field of that name, or
 * the link's. What the kind of row has no column for must be empty. */
static int take(const struct hcp_text_row *row, const struct hcp_rows *rows, void *target,
                struct hcp_err *err)
{
    const char *name;

    for (int i = -1; (i = hcp_text_next_column(i, HCP_TEXT_VERSION, &name)) >= 0;) {
        const struct hcp_column *c = hcp_rows_column(rows, name);
        void *field = c ? (char *)target + c->offset : NULL;
        if (!c && row->given[i] && strcmp(name, "kind"))
            return hcp_text_bad(
                row, i, "does not apply to a row of this kind; leave it empty", err);
        if (!c)
            continue;
        if ((size_t)i < hcp_n_columns) {
            const struct hcp_column *from = &hcp_columns[i];
            assert(from->type == c->type && from->size == c->size);
            memcpy(field, (const char *)&row->cell + from->offset, c->size);
        } else if (i >= HCP_LINK_COLUMN(0)) {
            memcpy(field, (const char *)&row->link + c->offset, c->size);
        } else if (i == (int)hcp_n_columns + HCP_EXTRA_KIND) {
            memcpy(field, row->kind, c->size);
        } else {
            assert(i == (int)hcp_n_columns + HCP_EXTRA_BYTES);
            memcpy(field, &row->bytes, c->size);
        }
    }
    return HCP_OK;
}

static int require(const struct hcp_text_row *row, const char *const *names,
                   struct hcp_err *err)
{
    for (; *names; names++) {
        int column = hcp_column_index(*names);
        if (!row->given[column])
            return hcp_text_bad(row, column, "is empty; a value is required", err);
    }
    return HCP_OK;
}

int hcp_text_end_finish(struct hcp_text_row *row, struct hcp_text *out,
                        struct hcp_err *err)
{
    static const char *const required[] = {"device", "provider", "q_len", "time_ms",
                                           NULL};
    struct hcp_finish_row f, *list;
    struct hcp_err why;
    int unnamed, rc = require(row, required, err);

    hcp_finish_row_init(&f);
    if (!rc)
        rc = take(row, &hcp_finish_rows, &f, err);
    if (rc)
        return rc;
    unnamed = !*f.from.run_uid; /* named once the file is read */
    if (unnamed)
        strcpy(f.from.run_uid, "?");
    if (hcp_finish_row_validate(&f, &why))
        return hcp_fail(err, HCP_FAILED, "%s:%ld: %s", row->name, row->line, why.text);
    if (unnamed)
        f.from.run_uid[0] = '\0';
    list = hcp_text_grow(out->finishes, out->n_finishes, sizeof *list);
    if (!list)
        return hcp_fail(err, HCP_FAILED, "%s: out of memory", row->name);
    out->finishes = list;
    list[out->n_finishes++] = f;
    return HCP_OK;
}

int hcp_text_end_link(struct hcp_text_row *row, struct hcp_text *out, struct hcp_err *err)
{
    static const char *const required[] = {"device", "peer_device", "transport",
                                           "bytes",  "time_ms",     NULL};
    struct hcp_link_row l, *list;
    struct hcp_err why;
    int unnamed, rc = require(row, required, err);

    hcp_link_row_init(&l);
    if (!rc)
        rc = take(row, &hcp_link_rows, &l, err);
    if (rc)
        return rc;
    unnamed = !*l.from.run_uid;
    if (unnamed)
        strcpy(l.from.run_uid, "?");
    if (hcp_link_row_validate(&l, &why))
        return hcp_fail(err, HCP_FAILED, "%s:%ld: %s", row->name, row->line, why.text);
    if (unnamed)
        l.from.run_uid[0] = '\0';
    list = hcp_text_grow(out->links, out->n_links, sizeof *list);
    if (!list)
        return hcp_fail(err, HCP_FAILED, "%s: out of memory", row->name);
    out->links = list;
    list[out->n_links++] = l;
    return HCP_OK;
}
