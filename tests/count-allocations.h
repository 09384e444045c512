/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation of the process is counted, of all its threads: glibc's allocator under
 * its other name. Not under a sanitizer, which has one of its own: COUNTED is 0 there.
 */
#ifndef COUNT_ALLOCATIONS_H
#define COUNT_ALLOCATIONS_H
#include <stdlib.h>

static long allocations;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define COUNTED 0
#else
#define COUNTED 1
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
void *malloc(size_t size)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t size)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_realloc(p, size);
}
#endif

#endif
