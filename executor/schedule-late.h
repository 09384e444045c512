/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which KV travels round a ring of m ranks, from what libhcpplan(3) says of
 * plans with late KV: block j is due in slot h + slots[j] on the h-th link behind rank j
 * (0: out of it), and a link carries blocks by slot; in one slot the one with fewer slots
 * first, then smaller h. Ranks are numbered 0 .. m - 1 here; the KV of rank j travels
 * hops[j] links. With all slots 0 that is the usual order: a rank's own block first, then
 * those that it receives.
 */
#ifndef HCP_SCHEDULE_LATE_H
#define HCP_SCHEDULE_LATE_H
#include <stdint.h>

/* Whose KV rank i has in its steps 0 .. m - 1: its own, what it receives, then what never
 * comes here. Returns the number of steps received. */
int32_t schedule_turns(int32_t m, const int32_t *hops, const int32_t *slots, int32_t i,
                       int32_t *turn);
/* The step whose block rank i sends just before its own; 0: its own first (or never). */
int32_t schedule_own_after(int32_t m, const int32_t *hops, const int32_t *slots,
                           int32_t i);

#endif
