/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <assert.h>
#include <string.h>
#include "db/text-internal.h"

static struct {
    const char *name;
    int version;
    const struct hcp_column *of[1 + HCP_N_KINDS]; /* of cells, then of the kinds */
} table[HCP_MAX_TEXT_COLUMNS];
static int n_columns;

static int find(const char *name)
{
    for (int i = 0; i < n_columns; i++)
        if (!strcmp(table[i].name, name))
            return i;
    return -1;
}

/* Of a column of several kinds, the oldest version counts. */
static int add(const char *name, int version)
{
    int i = find(name);

    if (i >= 0)
        return i;
    assert(n_columns < HCP_MAX_TEXT_COLUMNS);
    table[n_columns].name = name;
    table[n_columns].version = version;
    return n_columns++;
}

static void add_list(int kind, const struct hcp_column *columns, size_t n, int version)
{
    for (const struct hcp_column *c = columns; c < columns + n; c++) {
        int i = add(c->name, c->since > version ? c->since : version);
        table[i].of[kind + 1] = c;
    }
}

static void fill(void)
{
    static const char *const extra[] = {"samples_ms", "kind", "gb_per_s", "bytes"};

    _Static_assert((int)HCP_TEXT_KINDS == HCP_N_KINDS, "text.h says how many");
    if (n_columns)
        return;
    add_list(-1, hcp_columns, hcp_n_columns, 1);
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++)
        add(extra[i], 1);
    for (int i = 0; i < HCP_N_KINDS; i++)
        add_list(i, hcp_kinds[i]->rows->columns, hcp_kinds[i]->rows->n,
                 hcp_kinds[i]->version);
}

int hcp_text_column_index(const char *name)
{
    fill();
    return find(name);
}

int hcp_text_n_columns(void)
{
    fill();
    return n_columns;
}

const char *hcp_text_column_name(int column)
{
    return table[column].name;
}

int hcp_text_column_version(int column)
{
    return table[column].version;
}

const struct hcp_column *hcp_text_column_of(int kind, int column)
{
    return table[column].of[kind + 1];
}

int hcp_text_samples_column(void)
{
    fill();
    return (int)hcp_n_columns;
}

int hcp_text_kind_column(void)
{
    return hcp_text_samples_column() + 1;
}

int hcp_text_kind_of(const char *word)
{
    for (int i = 0; i < HCP_N_KINDS; i++)
        if (!hcp_check_word("", word, hcp_kinds[i]->words, NULL))
            return i;
    return -1;
}
