/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <math.h>
#include <string.h>
#include "db/cli.h"

json_t *hcp_json_real(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static void put_string(const char *text, size_t len, FILE *out)
{
    putc('"', out);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c == '\t')
            fputs("\\t", out);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\u%04x", c);
        else
            putc(c, out);
    }
    putc('"', out);
}

static void put(const json_t *v, FILE *out)
{
    const char *key;
    json_t *item;
    char number[32];
    size_t i;

    switch (json_typeof(v)) {
    case JSON_OBJECT:
        putc('{', out);
        i = 0;
        json_object_foreach((json_t *)v, key, item)
        {
            if (i++)
                putc(',', out);
            put_string(key, strlen(key), out);
            putc(':', out);
            put(item, out);
        }
        putc('}', out);
        break;
    case JSON_ARRAY:
        putc('[', out);
        json_array_foreach(v, i, item)
        {
            if (i)
                putc(',', out);
            put(item, out);
        }
        putc(']', out);
        break;
    case JSON_STRING:
        put_string(json_string_value(v), json_string_length(v), out);
        break;
    case JSON_INTEGER:
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JSON_REAL:
        fputs(hcp_format_double(json_real_value(v), number), out);
        break;
    case JSON_TRUE:
        fputs("true", out);
        break;
    case JSON_FALSE:
        fputs("false", out);
        break;
    case JSON_NULL:
        fputs("null", out);
        break;
    }
}

/* jansson's own dump prints 0.1 as 0.10000000000000001 when asked for 17 digits. */
int hcp_json_print(json_t *json, FILE *out)
{
    if (!json)
        return -1;
    put(json, out);
    putc('\n', out);
    json_decref(json);
    return hcp_cli_written(out);
}
