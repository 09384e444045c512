/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <string.h>
#include "profiler/show-table.h"

hcp_table *show_table(const struct show_column *columns)
{
    hcp_table *t = hcp_table_new();

    for (; columns->name; columns++)
        hcp_table_column(t, columns->name, columns->right);
    return t;
}

const char *show_origin(const char *origin)
{
    return !strcmp(origin, "synthetic") ? "SYNTHETIC" : origin;
}

const char *show_limit(const char *limit)
{
    return *limit ? limit : "whole";
}

void show_int(hcp_table *t, int32_t v)
{
    if (v < 0)
        hcp_table_cell(t, "%s", "");
    else
        hcp_table_cell(t, "%d", (int)v);
}

void show_real(hcp_table *t, int decimals, double v)
{
    if (isnan(v))
        hcp_table_cell(t, "%s", "");
    else
        hcp_table_cell(t, "%.*f", decimals, v);
}

json_t *show_json_int(int64_t v)
{
    return v < 0 ? json_null() : json_integer(v);
}

json_t *show_json_text(const char *text)
{
    return *text ? json_string(text) : json_null();
}

void show_transport(hcp_table *t, const char *transport, int32_t channels)
{
    if (channels < 0)
        hcp_table_cell(t, "%s", transport);
    else
        hcp_table_cell(t, "%s/%d", transport, (int)channels);
}
