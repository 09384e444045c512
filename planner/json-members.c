/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/json-members.h"
#include <math.h>
#include <string.h>

const char *json_mask_at(int causal)
{
    return causal ? "causal" : "full";
}

const char *json_layout_at(int layout)
{
    return hcp_layout_name((hcp_layout)layout);
}

const char *json_source_at(int source)
{
    return hcp_source_name((hcp_source)source);
}

struct object {
    const struct json_member *members;
    size_t n;
    char *base;
    void *ctx;
    uint64_t seen;
};

static int read_name(struct json_in *in, const struct json_member *m, void *to)
{
    char text[32];

    if (jin_string(in, text, sizeof text))
        return -1;
    for (int i = (int)m->min; i <= (int)m->max; i++)
        if (strcmp(text, m->name_at(i)) == 0) {
            memcpy(to, &i, sizeof i); /* an enumeration of a few names is an int */
            return 0;
        }
    return jin_fail(in, "unknown name");
}

static int read_real(struct json_in *in, const struct json_member *m, double *to)
{
    if (jin_double(in, to))
        return -1;
    if (m->type == SPEED && isnan(*to))
        *to = 0;
    return m->max > 0 && !(*to >= (double)m->min && *to <= (double)m->max)
               ? jin_fail(in, "number out of range")
               : 0;
}

struct interval {
    double ms[2];
    int n;
};

static int read_end(struct json_in *in, void *ctx)
{
    struct interval *i = ctx;

    if (i->n == 2)
        return jin_fail(in, "more than two numbers in an interval");
    return jin_double(in, &i->ms[i->n++]);
}

static int read_interval(struct json_in *in, void *to)
{
    struct interval i = {.n = 0};

    if (jin_array(in, read_end, &i))
        return -1;
    if (i.n != 2)
        return jin_fail(in, "an interval has two numbers");
    memcpy(to, i.ms, sizeof i.ms);
    return 0;
}

static int read_value(struct json_in *in, const struct json_member *m, void *to,
                      void *ctx)
{
    int64_t number;
    int rc;

    switch (m->type) {
    case INT64:
        return jin_int(in, m->min, m->max, to);
    case INT32:
        return jin_int32(in, m->min, m->max, to);
    case SIZE:
        rc = jin_int(in, m->min, m->max, &number);
        if (rc == 0)
            *(size_t *)to = (size_t)number;
        return rc;
    case REAL:
    case SPEED:
        return read_real(in, m, to);
    case HASH:
        return jin_hash(in, to);
    case FLAG:
        return jin_bool(in, to);
    case TEXT:
        return jin_string(in, to, (size_t)m->max);
    case NAME:
        return read_name(in, m, to);
    case INTERVAL:
        return read_interval(in, to);
    case NUMBER:
        return jin_int(in, m->min, m->max, &number);
    case OTHER:
        break;
    }
    return m->read(in, ctx);
}

static int read_member(struct json_in *in, const char *key, void *ctx)
{
    struct object *o = ctx;

    for (size_t i = 0; i < o->n; i++) {
        const struct json_member *m = &o->members[i];

        if (strcmp(m->name, key) != 0)
            continue;
        if (o->seen >> i & 1)
            return jin_within(in, key, jin_fail(in, "comes twice"));
        o->seen |= UINT64_C(1) << i;
        return jin_within(in, key, read_value(in, m, o->base + m->offset, o->ctx));
    }
    return jin_skip(in);
}

int jin_members(struct json_in *in, const struct json_member *members, size_t n,
                void *base, void *ctx, uint64_t *seen)
{
    struct object o = {members, n, base, ctx, 0};
    int rc = jin_object(in, read_member, &o);

    *seen = o.seen;
    return rc;
}
