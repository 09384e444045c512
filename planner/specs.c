/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of data sheets (hcp-db(5)): strict, so that a slip in a number does not pass
 * for another GPU.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "planner/specs.h"

enum {
    COL_NAME,
    COL_ARCH,
    COL_SMS,
    COL_BF16,
    COL_FP16,
    COL_FP32,
    COL_MEM_GBPS,
    COL_MEM_GB,
    COL_NVLINK,
    COL_PCIE,
    COL_ALIASES,
    COLUMNS,
    NAME_SIZE = 64 - (int)sizeof SPEC_PREFIX + 1, /* "spec:" before it fits a device */
    LINE_MAX_BYTES = 1023,
    FILE_MAX_BYTES = 1 << 20
};

static const char *const columns[COLUMNS] = {"name",   "arch", "sms",      "bf16",
                                             "fp16",   "fp32", "mem_gbps", "mem_gb",
                                             "nvlink", "pcie", "aliases"};

const char *specs_name(const char *device)
{
    size_t n = sizeof SPEC_PREFIX - 1;

    return strncmp(device, SPEC_PREFIX, n) == 0 ? device + n : NULL;
}

/* A number of a column, 0 where it is '-' and may be. */
static int read_number(const char *field, int column, double most, int needed,
                       double *out, struct hcp_err *err)
{
    struct hcp_err why = {0};

    *out = 0;
    if (strcmp(field, "-") == 0)
        return needed ? hcp_fail(err, HCP_USAGE, "%s is needed, not '-'", columns[column])
                      : HCP_OK;
    if (hcp_parse_double(field, out, &why) != HCP_OK)
        return hcp_fail(err, HCP_USAGE, "%s: %.200s", columns[column], why.text);
    if (!(*out >= 1e-3 && *out <= most))
        return hcp_fail(err, HCP_USAGE, "%s '%s' is not in 0.001..%g", columns[column],
                        field, most);
    return HCP_OK;
}

static int read_slug(const char *field, const char *what, size_t size, char *out,
                     struct hcp_err *err)
{
    int rc = hcp_parse_slug(field, what, size, err);

    if (rc == HCP_OK)
        memcpy(out, field, strlen(field) + 1);
    return rc;
}

/* Each a name of its own. */
static int check_aliases(const char *aliases, struct hcp_err *err)
{
    char one[NAME_SIZE];

    for (const char *p = aliases;; p++) {
        size_t len = strcspn(p, ",");

        if (len >= sizeof one)
            return hcp_fail(err, HCP_USAGE, "alias '%.40s...' is too long", p);
        memcpy(one, p, len);
        one[len] = 0;
        if (hcp_parse_slug(one, "alias", sizeof one, err) != HCP_OK)
            return err->code;
        p += len;
        if (!*p)
            return HCP_OK;
    }
}

static int read_fields(char *const field[COLUMNS], hcp_spec *out, struct hcp_err *err)
{
    struct {
        int column, needed;
        double most, *to;
    } numbers[] = {
        {COL_BF16, 0, 1e6, &out->bf16_tflops}, {COL_FP16, 0, 1e6, &out->fp16_tflops},
        {COL_FP32, 0, 1e6, &out->fp32_tflops}, {COL_MEM_GBPS, 1, 1e6, &out->memory_gbps},
        {COL_MEM_GB, 1, 1e5, &out->memory_gb}, {COL_NVLINK, 0, 1e5, &out->nvlink_gbps},
        {COL_PCIE, 0, 1e5, &out->pcie_gbps}};
    int64_t sms = 0;

    if (read_slug(field[COL_NAME], "name", NAME_SIZE, out->name, err) ||
        read_slug(field[COL_ARCH], "arch", sizeof out->arch, out->arch, err) ||
        hcp_parse_int(field[COL_SMS], "sms", 1, 4096, &sms, err))
        return err->code;
    out->sms = (int32_t)sms;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (read_number(field[numbers[i].column], numbers[i].column, numbers[i].most,
                        numbers[i].needed, numbers[i].to, err))
            return err->code;
    if (out->bf16_tflops == 0 && out->fp16_tflops == 0 && out->fp32_tflops == 0)
        return hcp_fail(err, HCP_USAGE, "none of bf16, fp16 and fp32 has a number");
    out->memory_bytes = (int64_t)(out->memory_gb * 1e9 + 0.5);
    if (strcmp(field[COL_ALIASES], "-") == 0)
        return HCP_OK;
    if (strlen(field[COL_ALIASES]) >= sizeof out->aliases)
        return hcp_fail(err, HCP_USAGE, "aliases have more than %zu characters",
                        sizeof out->aliases - 1);
    memcpy(out->aliases, field[COL_ALIASES], strlen(field[COL_ALIASES]) + 1);
    return check_aliases(out->aliases, err);
}

/* A line that is not empty. It is taken apart. */
static int read_line(char *line, hcp_spec *out, struct hcp_err *err)
{
    char *field[COLUMNS], *rest = line;

    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    for (int i = 0; i < COLUMNS; i++) {
        rest += strspn(rest, " \t");
        field[i] = rest;
        rest += strcspn(rest, " \t");
        if (field[i] == rest)
            return hcp_fail(err, HCP_USAGE, "column '%s' is missing", columns[i]);
        if (*rest)
            *rest++ = 0;
    }
    rest += strspn(rest, " \t");
    if (!*rest)
        return hcp_fail(err, HCP_USAGE, "it does not say where it is from");
    if (strlen(rest) >= sizeof out->source)
        return hcp_fail(err, HCP_USAGE, "its source has more than %zu characters",
                        sizeof out->source - 1);
    memcpy(out->source, rest, strlen(rest) + 1);
    return read_fields(field, out, err);
}

/* Whether a name is in a list by commas. */
static int listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = list; *p; p += p[0] == ',') {
        size_t len = strcspn(p, ",");

        if (len == n && strncmp(p, name, n) == 0)
            return 1;
        p += len;
    }
    return 0;
}

static int is_called(const hcp_spec *spec, const char *name)
{
    return strcmp(spec->name, name) == 0 || listed(spec->aliases, name);
}

const hcp_spec *specs_find(const hcp_specs *specs, const char *name)
{
    for (size_t i = 0; specs && i < specs->n; i++)
        if (is_called(&specs->spec[i], name))
            return &specs->spec[i];
    return NULL;
}

/* A name of the last line that an earlier one has, or that it has twice; NULL: none. */
static const char *taken(const hcp_specs *specs, char one[64])
{
    const hcp_spec *last = &specs->spec[specs->n - 1];
    const char *p = last->aliases, *name = last->name;
    const hcp_spec *other;

    for (;;) {
        for (size_t i = 0; i + 1 < specs->n; i++)
            if (is_called(other = &specs->spec[i], name))
                return name;
        if (name == one && (strcmp(one, last->name) == 0 || listed(p, one)))
            return name;
        if (!*p)
            return NULL;
        size_t len = strcspn(p, ",");
        memcpy(one, p, len);
        one[len] = 0;
        name = one;
        p += len + (p[len] == ',');
    }
}

static hcp_status parse_into(hcp_specs *specs, const char *text, size_t length,
                             char *error, size_t error_size)
{
    const char *p = text, *end = text + length;
    char line[LINE_MAX_BYTES + 1], one[64];
    size_t room = 0;

    for (int number = 1; p < end; number++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((stop ? stop : end) - p);
        struct hcp_err err = {0};
        const char *again;

        if (n > LINE_MAX_BYTES || memchr(p, 0, n))
            return plan_fail(error, error_size, HCP_STATUS_INVALID,
                             "%s:%d: %s; this is no table of data sheets (hcp-db(5))",
                             specs->path, number,
                             n > LINE_MAX_BYTES ? "the line has more than 1023 bytes"
                                                : "a byte is 0");
        memcpy(line, p, n);
        line[n] = 0;
        p = stop ? stop + 1 : end;
        if (n > 0 && line[n - 1] == '\r')
            line[n - 1] = 0;
        if (!hcp_text_is_clean(line))
            return plan_fail(error, error_size, HCP_STATUS_INVALID,
                             "%s:%d: not UTF-8 text without control characters",
                             specs->path, number);
        if (number == 1 && (unsigned char)line[0] == 0xef)
            return plan_fail(error, error_size, HCP_STATUS_INVALID,
                             "%s:1: it begins with a byte-order mark; remove it with "
                             "dos2unix",
                             specs->path);
        line[strcspn(line, "#")] = 0;
        if (!line[strspn(line, " \t")])
            continue;
        if (specs->n == SPECS_MAX)
            return plan_fail(error, error_size, HCP_STATUS_INVALID,
                             "%s:%d: more than %d GPUs", specs->path, number,
                             (int)SPECS_MAX);
        if (specs->n == room) {
            hcp_spec *more =
                realloc(specs->spec, (room = room ? 2 * room : 32) * sizeof *more);
            if (!more)
                return plan_fail(error, error_size, HCP_STATUS_NO_MEMORY,
                                 "out of memory");
            specs->spec = more;
        }
        if (read_line(line, &specs->spec[specs->n], &err) != HCP_OK)
            return plan_fail(
                error, error_size, HCP_STATUS_INVALID,
                "%s:%d: %s; a line is: name arch sms bf16 fp16 fp32 mem_gbps "
                "mem_gb nvlink pcie aliases source (hcp-db(5))",
                specs->path, number, err.text);
        specs->n++;
        again = taken(specs, one);
        if (again)
            return plan_fail(
                error, error_size, HCP_STATUS_INVALID,
                "%s:%d: '%s' is there already; names and aliases mean one GPU",
                specs->path, number, again);
    }
    return specs->n > 0
               ? HCP_STATUS_OK
               : plan_fail(error, error_size, HCP_STATUS_INVALID,
                           "%s: no GPU in it; a line is: name arch sms bf16 fp16 "
                           "fp32 mem_gbps mem_gb nvlink pcie aliases source "
                           "(hcp-db(5))",
                           specs->path);
}

hcp_status specs_parse(const char *text, size_t length, const char *path, char *error,
                       size_t error_size, hcp_specs **out)
{
    hcp_specs *specs = calloc(1, sizeof *specs);
    hcp_status status;

    if (!specs)
        return plan_fail(error, error_size, HCP_STATUS_NO_MEMORY, "out of memory");
    snprintf(specs->path, sizeof specs->path, "%s", path);
    status = parse_into(specs, text, length, error, error_size);
    if (status) {
        hcp_specs_free(specs);
        return status;
    }
    *out = specs;
    return HCP_STATUS_OK;
}

hcp_status hcp_specs_load(const char *path, char *text, size_t text_size, hcp_specs **out)
{
    hcp_status status;
    FILE *file;
    char *bytes;
    size_t n;
    int bad;

    if (!path || !*path || !out || strlen(path) >= sizeof((hcp_specs *)0)->path)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "no path of a table of data sheets, or one of more than %zu "
                         "characters",
                         sizeof((hcp_specs *)0)->path - 1);
    file = fopen(path, "rbe");
    if (!file)
        return plan_fail(text, text_size, HCP_STATUS_IO,
                         "cannot read the table of data sheets '%s': %s", path,
                         strerror(errno));
    bytes = malloc(FILE_MAX_BYTES + 1);
    if (!bytes) {
        fclose(file);
        return plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
    }
    n = fread(bytes, 1, FILE_MAX_BYTES + 1, file);
    bad = ferror(file) ? errno : 0;
    fclose(file);
    if (bad)
        status = plan_fail(text, text_size, HCP_STATUS_IO,
                           "cannot read the table of data sheets '%s': %s", path,
                           strerror(bad));
    else if (n > FILE_MAX_BYTES)
        status = plan_fail(text, text_size, HCP_STATUS_INVALID,
                           "%s has more than 1 MiB: it is no table of data sheets "
                           "(hcp-db(5))",
                           path);
    else
        status = specs_parse(bytes, n, path, text, text_size, out);
    free(bytes);
    return status;
}

void hcp_specs_free(hcp_specs *specs)
{
    if (!specs)
        return;
    free(specs->spec);
    free(specs);
}

hcp_specs *specs_copy(const hcp_specs *specs)
{
    hcp_specs *copy = malloc(sizeof *copy);

    if (!copy)
        return NULL;
    *copy = *specs;
    copy->spec = malloc(specs->n * sizeof *copy->spec);
    if (!copy->spec) {
        free(copy);
        return NULL;
    }
    memcpy(copy->spec, specs->spec, specs->n * sizeof *copy->spec);
    return copy;
}

size_t hcp_specs_count(const hcp_specs *specs)
{
    return specs ? specs->n : 0;
}

static void give(const hcp_spec *from, hcp_spec *out)
{
    size_t size = out->size;

    memcpy(out, from, size < sizeof *from ? size : sizeof *from);
    out->size = size;
}

hcp_status hcp_specs_get(const hcp_specs *specs, size_t i, hcp_spec *out)
{
    if (!specs || i >= specs->n || !out || out->size < sizeof *out)
        return HCP_STATUS_INVALID;
    give(&specs->spec[i], out);
    return HCP_STATUS_OK;
}

/* ---- near matches ---- */

/* Letters to put in, leave out or change to make b of a; both are shorter than 64. */
static int distance(const char *a, const char *b)
{
    int row[65], n = (int)strlen(b);

    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 0; a[i]; i++) {
        int corner = row[0];

        row[0] = i + 1;
        for (int j = 1; j <= n; j++) {
            int change = corner + (a[i] != b[j - 1]);

            corner = row[j];
            if (row[j] + 1 < change)
                change = row[j] + 1;
            if (row[j - 1] + 1 < change)
                change = row[j - 1] + 1;
            row[j] = change;
        }
    }
    return row[n];
}

/* 0: not at all; else the smaller the nearer. */
static int nearness(const char *asked, const char *name)
{
    size_t a = strlen(asked), b = strlen(name), same = 0;
    int d = distance(asked, name);

    while (asked[same] && asked[same] == name[same])
        same++;
    if (d <= 2 && (size_t)d * 2 < b)
        return 1 + d;
    if (same >= 2 && (same == a || same == b || (same >= 3 && same + 2 >= a)))
        return 8;
    return a >= 3 && strstr(name, asked) ? 9 : 0;
}

hcp_status specs_unknown(const hcp_specs *specs, const char *name, char *text,
                         size_t text_size)
{
    char near[256] = "";
    size_t at = 0, shown = 0;

    for (int rank = 1; rank <= 9 && strlen(name) < 64; rank++)
        for (size_t i = 0; i < specs->n && shown < 6 && at < sizeof near; i++)
            if (nearness(name, specs->spec[i].name) == rank)
                at += (size_t)snprintf(near + at, sizeof near - at, "%s%s",
                                       shown++ ? ", " : "; did you mean ",
                                       specs->spec[i].name);
    return plan_fail(text, text_size, HCP_STATUS_NO_MODEL,
                     "%s%.80s: no such GPU in %s%s%s; 'hcp-plan specs' lists them; for "
                     "another, add a line to a copy of that file, for --specs",
                     SPEC_PREFIX, name, specs->path, near, shown ? "?" : "");
}

hcp_status hcp_specs_find(const hcp_specs *specs, const char *name, char *text,
                          size_t text_size, hcp_spec *out)
{
    const hcp_spec *found;

    if (!specs || !name || !out || out->size < sizeof *out)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "a table, a name and an output with its size set are needed");
    found = specs_find(specs, specs_name(name) ? specs_name(name) : name);
    if (!found)
        return specs_unknown(specs, specs_name(name) ? specs_name(name) : name, text,
                             text_size);
    give(found, out);
    return HCP_STATUS_OK;
}
