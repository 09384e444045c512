/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside libhcpplan: what fingerprints of plans are made of.
 */
#ifndef HCP_HASH_H
#define HCP_HASH_H
#include <stdint.h>
#include <string.h>

/* FNV-1a by words of 64 bits instead of bytes, with the high half folded down so that
 * it counts; the same on every machine. */
static inline void hash_u64(uint64_t *h, uint64_t v)
{
    *h = (*h ^ v) * UINT64_C(0x100000001b3);
    *h ^= *h >> 32;
}

static inline void hash_double(uint64_t *h, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    hash_u64(h, bits);
}

/* Length first, so that two names never run together. */
static inline void hash_text(uint64_t *h, const char *text, size_t max)
{
    size_t n = strnlen(text, max);

    hash_u64(h, n);
    for (size_t i = 0; i < n; i++)
        hash_u64(h, (unsigned char)text[i]);
}

#endif
