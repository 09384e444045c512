/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/plan.h"

/* Heapsort: the C library's qsort may allocate. */
static int sinks(const double *value, int32_t a, int32_t b)
{
    return value[a] != value[b] ? value[a] < value[b] : a > b; /* a after b */
}

static void sift(const double *value, int32_t *order, size_t root, size_t n)
{
    for (;;) { /* the one that comes last is on top */
        size_t child = 2 * root + 1;
        int32_t swap;

        if (child >= n)
            return;
        if (child + 1 < n && sinks(value, order[child + 1], order[child]))
            child++;
        if (!sinks(value, order[child], order[root]))
            return;
        swap = order[root];
        order[root] = order[child];
        order[child] = swap;
        root = child;
    }
}

void sort_descending(const double *value, int32_t *order, size_t n)
{
    size_t sorted = 1;

    while (sorted < n && !sinks(value, order[sorted - 1], order[sorted]))
        sorted++;
    if (sorted >= n) /* ranks are often given in order of their kinds */
        return;
    if (n <= 16) { /* by insertion */
        for (size_t i = 1; i < n; i++) {
            int32_t x = order[i];
            size_t at = i;

            for (; at > 0 && sinks(value, order[at - 1], x); at--)
                order[at] = order[at - 1];
            order[at] = x;
        }
        return;
    }
    for (size_t i = n / 2; i-- > 0;)
        sift(value, order, i, n);
    for (size_t end = n; end-- > 1;) {
        int32_t swap = order[0];

        order[0] = order[end];
        order[end] = swap;
        sift(value, order, 0, end);
    }
}
