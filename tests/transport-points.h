/* SPDX-License-Identifier: Apache-2.0
 *
 * Test points that all ranks of a transport make together.
 */
#ifndef TRANSPORT_POINTS_H
#define TRANSPORT_POINTS_H
#include "tests/transport-cases.h"

/* Time-outs of what is not to end by one, however busy the machine is. */
#define PATIENCE_S 120.0

/* A test point that holds if it does on every rank; `why` of the lowest other rank. */
__attribute__((format(printf, 4, 5))) int all_ok(const struct transport_world *w,
                                                 int pass, const char *why,
                                                 const char *format, ...);
/* The world's transport; NULL, and why, if it cannot be opened. */
hcp_transport *open_transport(const struct transport_world *w, double timeout_s,
                              char *why, size_t size);
/* Monotonic. */
double now_s(void);
void sleep_ms(double ms);

#endif
