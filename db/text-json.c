/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "db/text-internal.h"

static const char *type_name(const json_t *v)
{
    return json_is_object(v)  ? "an object"
           : json_is_array(v) ? "an array"
                              : "true or false";
}

/* One value as the text a CSV field would have. jansson has no exact decimals, but
 * doubles print shortest and read back the same. */
static int value_text(const json_t *v, char *number, const char **text)
{
    if (json_is_null(v))
        *text = "";
    else if (json_is_string(v))
        *text = json_string_value(v);
    else if (json_is_integer(v)) {
        snprintf(number, 32, "%lld", (long long)json_integer_value(v));
        *text = number;
    } else if (json_is_real(v))
        *text = hcp_format_double(json_real_value(v), number);
    else
        return -1;
    return 0;
}

static int set_samples(struct hcp_text_row *row, const json_t *array, struct hcp_err *err)
{
    json_t *item;
    size_t i;
    int rc = HCP_OK;

    json_array_foreach(array, i, item)
    {
        if (!json_is_number(item))
            return hcp_fail(err, HCP_FAILED,
                            "%s:%ld: column samples_ms: element %zu is not a number",
                            row->name, row->line, i + 1);
        if ((rc = hcp_text_row_sample(row, json_number_value(item), err)))
            break;
    }
    return rc;
}

static int read_object(json_t *object, struct hcp_text_row *row, int ignore_unknown,
                       struct hcp_text *out, struct hcp_err *err)
{
    const char *key, *text;
    json_t *v;
    int rc = HCP_OK;

    json_object_foreach(object, key, v)
    {
        int column = hcp_text_column_index(key);
        if (column < 0) {
            out->ignored++;
            if (ignore_unknown)
                continue;
            return hcp_fail(err, HCP_FAILED,
                            "%s:%ld: unknown column '%s'; hcp-db(5) lists the columns, "
                            "--ignore-unknown leaves the others out",
                            row->name, row->line, key);
        }
        if (column == hcp_text_samples_column() && json_is_array(v))
            rc = set_samples(row, v, err);
        else if (value_text(v, row->number[column], &text))
            rc = hcp_fail(err, HCP_FAILED, "%s:%ld: column %s: %s; expected a value",
                          row->name, row->line, key, type_name(v));
        else if (*text)
            row->value[column] = text;
        if (rc)
            return rc;
    }
    return hcp_text_row_end(row, out, err);
}

/* {"run_uid": "...", "run_note": "..."}: what a CSV says in its comments. */
static int read_note(json_t *object, const struct hcp_text_row *row, struct hcp_text *out,
                     struct hcp_err *err)
{
    const char *uid = json_string_value(json_object_get(object, "run_uid"));
    const char *note = json_string_value(json_object_get(object, "run_note"));
    char *copy, *line, *rest;
    int rc = HCP_OK;

    if (!note || (uid && strlen(uid) >= sizeof out->notes->run_uid))
        return hcp_fail(err, HCP_FAILED,
                        "%s:%ld: run_note and run_uid must be short texts", row->name,
                        row->line);
    rest = copy = strdup(note);
    if (!copy)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    while (!rc && (line = strsep(&rest, "\n")))
        rc = hcp_text_is_clean(line)
                 ? hcp_text_add_note(out, uid ? uid : "", line, err)
                 : hcp_fail(err, HCP_FAILED, "%s:%ld: run_note is not UTF-8 text",
                            row->name, row->line);
    free(copy);
    return rc;
}

static int read_line(const char *text, struct hcp_text_row *row, int ignore_unknown,
                     struct hcp_text *out, struct hcp_err *err)
{
    json_error_t why;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    int rc;

    if (!json_is_object(object)) {
        rc = hcp_fail(err, HCP_FAILED, "%s:%ld: %s; expected one JSON object a line",
                      row->name, row->line, object ? "not an object" : why.text);
    } else if (json_object_get(object, "run_note")) {
        rc = read_note(object, row, out, err);
    } else {
        rc = read_object(object, row, ignore_unknown, out, err);
    }
    json_decref(object);
    return rc;
}

int hcp_text_load_jsonl(char *start, const char *name, int ignore_unknown,
                        struct hcp_text *out, struct hcp_err *err)
{
    struct hcp_text_row *row = calloc(1, sizeof *row);
    char *rest = start, *text;
    long line = 0;
    int rc = row ? HCP_OK : hcp_fail(err, HCP_FAILED, "out of memory");

    while (!rc && (text = strsep(&rest, "\n"))) {
        line++;
        if (!text[strspn(text, " \t\r")])
            continue;
        hcp_text_row_begin(row, name, line);
        rc = read_line(text, row, ignore_unknown, out, err);
    }
    if (row)
        free(row->raw);
    free(row);
    return rc;
}
