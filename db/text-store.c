/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <string.h>
#include "db/text-internal.h"

static void count(struct hcp_text_tally *t, enum hcp_db_outcome outcome)
{
    t->kept += outcome == HCP_DB_STORED;
    t->replaced += outcome == HCP_DB_REPLACED;
    t->same += outcome == HCP_DB_SAME || outcome == HCP_DB_SUPERSEDED;
    t->conflicts += outcome == HCP_DB_CONFLICT;
}

static const char *row_of(const struct hcp_text *t, int kind, size_t i)
{
    return (const char *)t->others[kind].rows + i * hcp_kinds[kind]->size;
}

static int store_notes(hcp_db *db, const struct hcp_text *text, struct hcp_err *err)
{
    const char *common = NULL;
    int rc = HCP_OK;

    for (size_t i = 0; !rc && i < text->n_notes; i++) {
        if (*text->notes[i].run_uid)
            rc = hcp_db_note_run(db, text->notes[i].run_uid, text->notes[i].note, err);
        else
            common = text->notes[i].note;
    }
    for (size_t i = 0; !rc && common && i < text->n_cells; i++)
        if (!i || strcmp(text->cells[i].run_uid, text->cells[i - 1].run_uid))
            rc = hcp_db_note_run(db, text->cells[i].run_uid, common, err);
    for (int k = 0; !rc && common && k < HCP_N_KINDS; k++) {
        const struct hcp_column *uid = hcp_rows_column(hcp_kinds[k]->rows, "run_uid");
        for (size_t i = 0; !rc && i < text->others[k].n; i++)
            rc = hcp_db_note_run(db, row_of(text, k, i) + uid->offset, common, err);
    }
    return rc;
}

int hcp_text_store(hcp_db *db, const struct hcp_text *text, struct hcp_text_tally *t,
                   struct hcp_err *err)
{
    enum hcp_db_outcome outcome = HCP_DB_STORED;
    int rc = hcp_db_begin(db, err);

    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < text->n_cells; i++) {
        rc = hcp_db_add_cell(db, &text->cells[i], &outcome, err);
        count(t, outcome);
    }
    for (int k = 0; !rc && k < HCP_N_KINDS; k++)
        for (size_t i = 0; !rc && i < text->others[k].n; i++) {
            rc = hcp_kind_add(db, hcp_kinds[k], row_of(text, k, i), &outcome, err);
            count(t, outcome);
        }
    if (!rc)
        rc = store_notes(db, text, err);
    if (!rc)
        return hcp_db_commit(db, err);
    hcp_db_rollback(db);
    return rc;
}
