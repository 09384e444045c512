/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading an object of JSON by a table of its members.
 */
#ifndef HCP_JSON_MEMBERS_H
#define HCP_JSON_MEMBERS_H
#include <stddef.h>
#include "planner/plan.h"

enum json_type {
    INT64,    /* min .. max, as for the next three */
    INT32,
    SIZE,     /* size_t */
    REAL,     /* of any size where max is 0; null is NaN */
    SPEED,    /* REAL of which null is 0: infinitely fast, no budget */
    HASH,     /* uint64_t of 16 hexadecimal digits */
    FLAG,     /* int32_t of true or false */
    TEXT,     /* char[max] */
    NAME,     /* int or enumeration: name_at(min) .. name_at(max) */
    INTERVAL, /* double[2] */
    NUMBER,   /* min .. max, and goes nowhere */
    OTHER     /* what `read` does of it */
};

/* A member and where it goes. */
struct json_member {
    const char *name;
    enum json_type type;
    size_t offset;
    int64_t min, max;
    const char *(*name_at)(int i);
    int (*read)(struct json_in *in, void *ctx);
};

/* Reads the members of an object into what is at base; those that the table has not are
 * skipped, none may come twice. Bit i of *seen: member i was there. At most 64. */
int jin_members(struct json_in *in, const struct json_member *members, size_t n,
                void *base, void *ctx, uint64_t *seen);

/* JSON names of numbers, as NAME wants them. */
const char *json_mask_at(int causal);
const char *json_layout_at(int layout);
const char *json_source_at(int source);

#endif
