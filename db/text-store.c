/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <string.h>
#include "db/text.h"

static void count(struct hcp_text_tally *t, enum hcp_db_outcome outcome)
{
    t->kept += outcome == HCP_DB_STORED;
    t->replaced += outcome == HCP_DB_REPLACED;
    t->same += outcome == HCP_DB_SAME || outcome == HCP_DB_SUPERSEDED;
    t->conflicts += outcome == HCP_DB_CONFLICT;
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
    for (size_t i = 0; !rc && common && i < text->n_bandwidths; i++)
        rc = hcp_db_note_run(db, text->bandwidths[i].run_uid, common, err);
    for (size_t i = 0; !rc && common && i < text->n_finishes; i++)
        rc = hcp_db_note_run(db, text->finishes[i].from.run_uid, common, err);
    for (size_t i = 0; !rc && common && i < text->n_links; i++)
        rc = hcp_db_note_run(db, text->links[i].from.run_uid, common, err);
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
    for (size_t i = 0; !rc && i < text->n_bandwidths; i++) {
        rc = hcp_db_add_bandwidth(db, &text->bandwidths[i], &outcome, err);
        count(t, outcome);
    }
    for (size_t i = 0; !rc && i < text->n_finishes; i++) {
        rc = hcp_db_add_finish(db, &text->finishes[i], &outcome, err);
        count(t, outcome);
    }
    for (size_t i = 0; !rc && i < text->n_links; i++) {
        rc = hcp_db_add_link(db, &text->links[i], &outcome, err);
        count(t, outcome);
    }
    if (!rc)
        rc = store_notes(db, text, err);
    if (!rc)
        return hcp_db_commit(db, err);
    hcp_db_rollback(db);
    return rc;
}
