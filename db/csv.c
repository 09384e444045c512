/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "db/csv.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int hcp_read_all(FILE *in, const char *name, char **text, size_t *size,
                 struct hcp_err *err)
{
    size_t room = 1 << 16, n = 0, got;
    char *buffer = malloc(room), *grown;

    while (buffer && (got = fread(buffer + n, 1, room - n - 1, in)) > 0) {
        n += got;
        if (room - n > 1)
            continue;
        room *= 2;
        grown = realloc(buffer, room);
        if (!grown)
            free(buffer);
        buffer = grown;
    }
    if (!buffer)
        return hcp_fail(err, HCP_FAILED, "%s: out of memory", name);
    if (ferror(in)) {
        free(buffer);
        return hcp_fail(err, HCP_FAILED, "cannot read '%s': %s", name, strerror(errno));
    }
    if (memchr(buffer, '\0', n)) {
        int utf16 = n > 1 && ((buffer[0] == '\xff' && buffer[1] == '\xfe') ||
                              (buffer[0] == '\xfe' && buffer[1] == '\xff'));
        free(buffer);
        return hcp_fail(err, HCP_FAILED,
                        "'%s' is %s; expected CSV or JSON lines in UTF-8", name,
                        utf16 ? "UTF-16" : "a binary file");
    }
    buffer[n] = '\0';
    *text = buffer;
    *size = n;
    return HCP_OK;
}

int hcp_skip_bom(char *text, const char *name, char **start, struct hcp_err *err)
{
    const unsigned char *p = (const unsigned char *)text;

    if ((p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff))
        return hcp_fail(err, HCP_FAILED, "'%s' is UTF-16; save it as UTF-8", name);
    *start = p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf ? text + 3 : text;
    return HCP_OK;
}

void hcp_csv_init(struct hcp_csv *csv, const char *name, char *text)
{
    memset(csv, 0, sizeof *csv);
    csv->name = name;
    csv->next = text;
    csv->next_line = 1;
}

void hcp_csv_free(struct hcp_csv *csv)
{
    free(csv->fields);
    csv->fields = NULL;
}

char *hcp_csv_comment(struct hcp_csv *csv)
{
    char *text = csv->next, *end;

    if (*text != '#')
        return NULL;
    end = text + strcspn(text, "\n");
    csv->line = csv->next_line++;
    csv->next = *end ? end + 1 : end;
    if (end > text && end[-1] == '\r')
        end--;
    *end = '\0';
    text++;
    return *text == ' ' ? text + 1 : text;
}

static int add_field(struct hcp_csv *csv, char *text, struct hcp_err *err)
{
    if (csv->n == csv->room) {
        size_t room = csv->room ? csv->room * 2 : 64;
        char **grown = realloc(csv->fields, room * sizeof *grown);
        if (!grown)
            return hcp_fail(err, HCP_FAILED, "%s: out of memory", csv->name);
        csv->fields = grown;
        csv->room = room;
    }
    csv->fields[csv->n++] = text;
    return HCP_OK;
}

/* Undoes quoting in place; *p is the opening quote and ends behind the closing one. */
static int unquote(struct hcp_csv *csv, char **p, struct hcp_err *err)
{
    char *in = *p + 1, *out = *p;

    for (; *in && !(in[0] == '"' && in[1] != '"'); in++) {
        if (*in == '"')
            in++;
        if (*in == '\n')
            csv->next_line++;
        *out++ = *in;
    }
    if (!*in)
        return hcp_fail(err, HCP_FAILED, "%s:%ld: a quoted field does not end", csv->name,
                        csv->line);
    in++;
    if (*in && *in != ',' && *in != '\n' && !(in[0] == '\r' && in[1] == '\n'))
        return hcp_fail(err, HCP_FAILED,
                        "%s:%ld: '%c' after a closing quote; a quote inside a field is "
                        "written twice",
                        csv->name, csv->line, *in);
    /* out < in: the field's NUL never overwrites what follows it. */
    *out = '\0';
    *p = in;
    return HCP_OK;
}

int hcp_csv_row(struct hcp_csv *csv, int *more, struct hcp_err *err)
{
    char *p = csv->next, *start;
    int rc;

    while (*p == '\n' || (p[0] == '\r' && p[1] == '\n')) {
        p += *p == '\r' ? 2 : 1;
        csv->next_line++;
    }
    csv->n = 0;
    csv->line = csv->next_line;
    *more = *p != '\0';
    if (!*more) {
        csv->next = p;
        return HCP_OK;
    }
    for (;;) {
        char end;
        start = p;
        if (*p == '"') {
            if ((rc = unquote(csv, &p, err)))
                return rc;
        } else {
            p += strcspn(p, ",\n\"");
            if (*p == '"')
                return hcp_fail(
                    err, HCP_FAILED,
                    "%s:%ld: a quote inside an unquoted field; quote the whole "
                    "field",
                    csv->name, csv->line);
        }
        if ((rc = add_field(csv, start, err)))
            return rc;
        end = *p;
        if ((end == '\n' || !end) && p > start && p[-1] == '\r')
            p[-1] = '\0';
        if (end == '\r') { /* CRLF behind a quoted field */
            *p++ = '\0';
            end = *p;
        }
        if (end)
            *p++ = '\0';
        if (end != ',')
            break;
    }
    csv->next_line++;
    csv->next = p;
    return HCP_OK;
}
