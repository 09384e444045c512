/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of ring-wide.c for one kind of vector registers: included once for each, with
 * LANES(name) and LANES_TARGET defined. Only maxima, additions and loads, so that the
 * results are the same with any of them, and without.
 */

/* Ranks whose block takes equally long, from senders of equal blocks. */
LANES_TARGET static void
LANES(equal)(int32_t n, const double *restrict ready, const double *restrict freed,
             const double *restrict passed, const double *restrict before, double send,
             double ms, double *restrict ready_next, double *restrict fin)
{
    for (int32_t i = 0; i < n; i++) {
        double start = ready[i - 1] > ready[i] ? ready[i - 1] : ready[i];
        double buffer = freed[i] > passed[i] ? freed[i] : passed[i];

        start = (start > buffer ? start : buffer) + send;
        ready_next[i] = start;
        fin[i] = (start > before[i] ? start : before[i]) + ms;
    }
}

/* Any ranks. */
LANES_TARGET static void
LANES(any)(int32_t n, const double *restrict ready, const double *restrict freed,
           const double *restrict passed, const double *restrict before,
           const double *restrict send, const double *restrict ms,
           double *restrict ready_next, double *restrict fin)
{
    for (int32_t i = 0; i < n; i++) {
        double start = ready[i - 1] > ready[i] ? ready[i - 1] : ready[i];
        double buffer = freed[i] > passed[i] ? freed[i] : passed[i];

        start = (start > buffer ? start : buffer) + send[i];
        ready_next[i] = start;
        fin[i] = (start > before[i] ? start : before[i]) + ms[i];
    }
}

/* The same, with look_up() of their blocks. */
LANES_TARGET static void
LANES(classed)(int32_t n, const double *restrict ready, const double *restrict freed,
               const double *restrict passed, const double *restrict before,
               const double *restrict send, const double *restrict table, int32_t stride,
               const int32_t *restrict mine, const int32_t *restrict theirs,
               double *restrict ready_next, double *restrict fin)
{
    for (int32_t i = 0; i < n; i++) {
        double start = ready[i - 1] > ready[i] ? ready[i - 1] : ready[i];
        double buffer = freed[i] > passed[i] ? freed[i] : passed[i];

        start = (start > buffer ? start : buffer) + send[i];
        ready_next[i] = start;
        fin[i] = (start > before[i] ? start : before[i]) +
                 table[mine[i] * stride + theirs[i]];
    }
}

/* As equal and any, over links that differ by rank: alpha[i] + token[i] * what is sent.
 */
LANES_TARGET static void
LANES(equal_linked)(int32_t n, const double *restrict ready, const double *restrict freed,
                    const double *restrict passed, const double *restrict before,
                    const double *restrict alpha, const double *restrict token,
                    double len, double ms, double *restrict ready_next,
                    double *restrict fin)
{
    for (int32_t i = 0; i < n; i++) {
        double start = ready[i - 1] > ready[i] ? ready[i - 1] : ready[i];
        double buffer = freed[i] > passed[i] ? freed[i] : passed[i];

        start = (start > buffer ? start : buffer) + (alpha[i] + token[i] * len);
        ready_next[i] = start;
        fin[i] = (start > before[i] ? start : before[i]) + ms;
    }
}

LANES_TARGET static void LANES(link)(int32_t n, const double *restrict alpha,
                                     const double *restrict token,
                                     const double *restrict len, double *restrict send)
{
    for (int32_t i = 0; i < n; i++)
        send[i] = alpha[i] + token[i] * len[i];
}

/* Ranks in the order of rings.c: what comes to rank i has no neighbour in it. */
LANES_TARGET static void
LANES(inner)(int32_t n, const double *restrict there, const double *restrict link,
             const double *restrict freed, const double *restrict passed,
             const double *restrict before, double send, double ms, double *restrict now,
             double *restrict fin)
{
    for (int32_t i = 0; i < n; i++) {
        double start = there[i] > link[i] ? there[i] : link[i];
        double buffer = freed[i] > passed[i] ? freed[i] : passed[i];

        start = (start > buffer ? start : buffer) + send;
        now[i] = start;
        fin[i] = (start > before[i] ? start : before[i]) + ms;
    }
}

LANES_TARGET static void
LANES(inner_any)(int32_t n, const double *restrict there, const double *restrict link,
                 const double *restrict freed, const double *restrict passed,
                 const double *restrict before, const double *restrict send,
                 const double *restrict ms, double *restrict now, double *restrict fin)
{
    for (int32_t i = 0; i < n; i++) {
        double start = there[i] > link[i] ? there[i] : link[i];
        double buffer = freed[i] > passed[i] ? freed[i] : passed[i];

        start = (start > buffer ? start : buffer) + send[i];
        now[i] = start;
        fin[i] = (start > before[i] ? start : before[i]) + ms[i];
    }
}

/* Times of the blocks of ranks of classes mine[], whose KV is of classes theirs[]. */
LANES_TARGET static void LANES(look_up)(int32_t n, const double *restrict table,
                                        int32_t stride, const int32_t *restrict mine,
                                        const int32_t *restrict theirs,
                                        double *restrict ms)
{
    for (int32_t i = 0; i < n; i++)
        ms[i] = table[mine[i] * stride + theirs[i]];
}

static const struct ring_lanes LANES(lanes) = {
    LANES(equal), LANES(any),       LANES(equal_linked), LANES(link),
    LANES(inner), LANES(inner_any), LANES(look_up), LANES(classed)};
#undef LANES
#undef LANES_TARGET
