/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: the caller's workspace in pieces.
 */
#ifndef HCP_CARVE_H
#define HCP_CARVE_H
#include <stddef.h>
#include <stdint.h>

/* Hands out pieces of the workspace; with base 0 it only counts. */
struct carver {
    uintptr_t base, at;
};

static inline void *carve(struct carver *c, size_t count, size_t size)
{
    void *piece;

    c->at = (c->at + 63) & ~(uintptr_t)63; /* a line of the cache */
    piece = c->base ? (void *)c->at : NULL;
    c->at += count * size;
    return piece;
}

#define CARVE(carver, field, count)                                                      \
    ((field) = carve((carver), (count), sizeof *(field)))

#endif
