/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes of splits that fit into memory. With K the largest share, that of rank h, all
 * others receive at most K and rank h receives the second largest, which leaves each rank
 * a cap that depends on nothing but h and K; every split under these caps fits, and every
 * split that fits is under those of its own h and K where every block reaches every rank.
 * Contiguous under a causal mask a rank receives earlier blocks only: there what is
 * before rank h has a lower limit, in steps, and whether anything fits at all is asked of
 * memory-forward.c.
 */
#include "planner/plan.h"

/* Shares of a holder that are looked at one by one, in groups above ALL_HOLDERS. */
enum { SCAN = 256, SCAN_LARGE = 16 };
/* Ranks up to which rings of fewer are looked at; holders of groups in which not all are
 * tried. */
enum { FEWER = 16, HOLDERS = 8 };
/* Steps of what comes before the holder of the largest share. */
enum { INNER = 8 };

int64_t memory_tokens_in(const struct problem *p, int64_t bytes, int sends)
{
    int64_t plain = memory_unit(p, 1, 0), packed, tokens;

    if (bytes < 0)
        return 0;
    tokens = plain > 0 ? bytes / plain : p->seq_len;
    tokens = tokens < p->seq_len ? tokens : p->seq_len;
    if (p->sub_blocks == 1 || !sends || tokens <= p->tile)
        return tokens;
    packed = memory_unit(p, p->tile + 1, 1);
    packed = packed > 0 ? bytes / packed : p->seq_len;
    packed = packed < tokens ? packed : tokens;
    return packed > p->tile ? packed : p->tile;
}

int memory_forward(const struct problem *p)
{
    return p->causal && (p->layout == HCP_LAYOUT_CONTIGUOUS ||
                         (p->layout == HCP_LAYOUT_STRIPED && p->stripes == 1));
}

/* Leaves the m largest caps, the holder's among them. */
static void keep_largest(size_t n, size_t h, int32_t m, int64_t *cap)
{
    int32_t left = 0;

    for (size_t r = 0; r < n; r++)
        left += cap[r] > 0;
    for (; left > m; left--) {
        size_t least = n;

        for (size_t r = 0; r < n; r++)
            if (r != h && cap[r] > 0 && (least == n || cap[r] < cap[least]))
                least = r;
        cap[least] = 0;
    }
}

int memory_box(const struct problem *p, const uint8_t *allowed,
               const struct memory_shape *b, int64_t *cap)
{
    int64_t received = memory_times(memory_buffers(p, b->m), p->kv_bytes), left;
    int64_t second = b->most, before = 0;
    int sends = b->m > 1;

    left = memory_room(p, b->h) -
           memory_times(b->most, memory_unit(p, b->most, sends));
    if (b->most > p->cap[b->h] || left < 0)
        return -1;
    if (received > 0)
        second = left / received < second ? left / received : second;
    for (size_t r = 0; r < p->n; r++) {
        int64_t fits, top = b->most;

        cap[r] = 0;
        if (allowed && !allowed[r])
            continue;
        if (!memory_forward(p)) {
            top = r == b->h ? b->most : second;
            fits = r == b->h
                       ? b->most
                       : memory_tokens_in(p,
                                          memory_room(p, r) -
                                              memory_times(received, b->most),
                                          sends);
        } else { /* receives what is before it, held to `inner` up to the holder */
            if (r < b->h)
                top = b->inner < second ? b->inner : second;
            fits = r == b->h
                       ? b->most
                       : memory_tokens_in(
                             p, memory_room(p, r) - memory_times(received, before),
                             sends);
        }
        fits = top < fits ? top : fits;
        cap[r] = fits < p->cap[r] ? fits : p->cap[r];
        before = cap[r] > before ? cap[r] : before;
    }
    keep_largest(p->n, b->h, b->m, cap);
    return 0;
}

/* ---- which ranks hold the largest share ---- */

static int same_caps(const struct problem *p, size_t a, size_t b)
{
    return p->cap[a] == p->cap[b] && memory_room(p, a) == memory_room(p, b);
}

/* The ranks to try, at most ALL_HOLDERS: where blocks reach everybody one of each kind of
 * caps, elsewhere all; in larger groups one of each of the first kinds, the last of them
 * where blocks go forward. */
static int holders(const struct problem *p, const uint8_t *allowed,
                   size_t out[ALL_HOLDERS])
{
    int n = 0, forward = memory_forward(p),
        most = p->n > ALL_HOLDERS ? HOLDERS : ALL_HOLDERS;

    for (size_t i = 0; i < p->n && n < most; i++) {
        size_t r = forward ? p->n - 1 - i : i;
        int seen = 0;

        if (allowed && !allowed[r])
            continue;
        for (int k = 0; k < n && (!forward || p->n > ALL_HOLDERS); k++)
            seen |= same_caps(p, out[k], r);
        if (!seen)
            out[n++] = r;
    }
    return n;
}

/* ---- boxes with room ---- */

static int64_t short_of(const struct problem *p, const uint8_t *allowed,
                        const int64_t *cap)
{
    struct problem boxed = *p;

    boxed.cap = cap;
    return round_shortfall(&boxed, allowed);
}

/* The next number of ranks below m that need fewer buffers; 0: none. */
static int32_t fewer(const struct problem *p, int32_t m)
{
    if (p->n > FEWER)
        return 0;
    for (int32_t k = m - 1; k > 0; k--)
        if (memory_buffers(p, k) < memory_buffers(p, m))
            return k;
    return 0;
}

static int32_t count(const struct problem *p, const uint8_t *allowed)
{
    int32_t m = 0;

    for (size_t r = 0; r < p->n; r++)
        m += !allowed || allowed[r];
    return m;
}

/* Steps of `inner`: where blocks reach all ranks there is no such limit. */
static int inner_steps(const struct problem *p)
{
    return memory_forward(p) ? INNER : 1;
}

/* A box of the holder with this share; 1: it has room. */
static int try_share(const struct problem *p, const uint8_t *allowed, size_t h, int32_t m,
                     int64_t share, int64_t *cap, int64_t *least)
{
    for (int i = 0; share > 0 && i < inner_steps(p); i++) {
        struct memory_shape b = {h, share, share - share * i / INNER, m};
        int64_t lack;

        if (memory_box(p, allowed, &b, cap))
            continue;
        lack = short_of(p, allowed, cap);
        *least = *least < 0 || lack < *least ? lack : *least;
        if (lack == 0)
            return 1;
    }
    return 0;
}

/* The boxes of a holder with shares from tile `from` to tile `to`, SCAN of them at
 * most. */
static int look(const struct problem *p, const uint8_t *allowed, size_t h, int32_t m,
                int64_t from, int64_t to, int64_t *cap, int64_t *least)
{
    int64_t step = (to - from) / (p->n > ALL_HOLDERS ? SCAN_LARGE : SCAN) + 1;

    for (int64_t k = to; k >= from; k -= step)
        if (try_share(p, allowed, h, m, k * p->tile + p->rest, cap, least) ||
            (p->rest > 0 && try_share(p, allowed, h, m, k * p->tile, cap, least)))
            return 1;
    return 0;
}

/* ---- every share of a holder, where blocks reach all ranks ----
 *
 * But for tiles the tokens that fit are
 *
 *   R(K) = K + sum over others of max(0, min(s(K), (room - r K) / unit, cap)),
 *   s(K) = min(K, (room of h - unit K) / r),  r bytes a token of the receive buffers,
 *
 * linear in K between the points where one of the terms takes over from another. Only
 * where R(K) >= S are whole tiles worth a look. */
enum { CORNERS = 6 * ALL_HOLDERS + FEWER * FEWER + 4 };

struct shares {
    const struct problem *p;
    const uint8_t *allowed;
    size_t h;
    int32_t m;
    int all; /* nobody is left out for m */
    double unit, received, top;
    int n;
    double at[CORNERS];
};

static void corner(struct shares *s, double at)
{
    if (at > 0 && at < s->top && s->n < CORNERS)
        s->at[s->n++] = at;
}

static void find_corners(struct shares *s)
{
    const struct problem *p = s->p;
    double unit = s->unit, r = s->received, mine = (double)memory_room(p, s->h);

    s->n = 0;
    corner(s, mine / (unit + r));
    for (size_t i = 0; i < p->n; i++) {
        double room = (double)memory_room(p, i), cap = (double)p->cap[i];

        if (i == s->h || (s->allowed && !s->allowed[i]))
            continue;
        corner(s, cap);
        corner(s, (mine - r * cap) / unit);
        corner(s, room / (unit + r));
        corner(s, room / r);
        corner(s, (room - unit * cap) / r);
        if (unit != r)
            corner(s, (unit * mine - r * room) / (unit * unit - r * r));
        for (size_t j = 0; !s->all && j < p->n; j++) /* who is among the m largest */
            if (j != i)
                corner(s, (room - unit * (double)p->cap[j]) / r);
    }
    s->at[s->n++] = s->top;
    for (int i = 1; i < s->n; i++) {
        double at = s->at[i];
        int j = i;

        for (; j > 0 && s->at[j - 1] > at; j--)
            s->at[j] = s->at[j - 1];
        s->at[j] = at;
    }
}

static double tokens_at(const struct shares *s, double most)
{
    const struct problem *p = s->p;
    double mine = (double)memory_room(p, s->h), sum = most, largest[FEWER];
    double second = (mine - s->unit * most) / s->received;
    int kept = 0;

    second = second < most ? second : most;
    for (size_t i = 0; i < p->n; i++) {
        double room = (double)memory_room(p, i), cap = (double)p->cap[i];
        double fits = (room - s->received * most) / s->unit;
        int k;

        if (i == s->h || (s->allowed && !s->allowed[i]))
            continue;
        fits = fits < second ? fits : second;
        fits = fits < cap ? fits : cap;
        if (fits <= 0)
            continue;
        sum += fits;
        if (s->all)
            continue;
        for (k = kept < s->m - 1 ? kept++ : s->m - 1; k > 0 && largest[k - 1] < fits; k--)
            if (k < s->m - 1)
                largest[k] = largest[k - 1];
        if (k < s->m - 1)
            largest[k] = fits;
    }
    if (s->all)
        return sum;
    sum = most;
    for (int k = 0; k < kept; k++)
        sum += largest[k];
    return sum;
}

static int look_everywhere(const struct problem *p, const uint8_t *allowed, size_t h,
                           int32_t m, int64_t *cap, int64_t *least)
{
    struct shares s = {.p = p,
                       .allowed = allowed,
                       .h = h,
                       .m = m,
                       .all = m == count(p, allowed),
                       .unit = (double)memory_unit(p, 1, 0),
                       .received = (double)memory_buffers(p, m) * (double)p->kv_bytes,
                       .top = (double)p->cap[h]};
    double need = (double)p->seq_len, tile = (double)p->tile, from = 0, had = 0;

    find_corners(&s);
    for (int i = 0; i < s.n; i++) {
        double to = s.at[i], has = tokens_at(&s, to), low = from, high = to;

        if (has >= need || had >= need) {
            if (had < need)
                low = to - (has - need) * (to - from) / (has - had);
            else if (has < need)
                high = from + (had - need) * (to - from) / (had - has);
            if (look(p, allowed, h, m, (int64_t)(low / tile) - (low >= tile),
                     (int64_t)(high / tile) + 1, cap, least))
                return 1;
        } else {
            try_share(p, allowed, h, m, (int64_t)(to / tile) * p->tile, cap, least);
        }
        from = to;
        had = has;
    }
    return 0;
}

int64_t memory_shortfall(const struct problem *p, const uint8_t *allowed, int64_t *cap)
{
    size_t holder[ALL_HOLDERS];
    int n = holders(p, allowed, holder);
    int64_t least = -1;

    if (memory_forward(p) && p->n <= FORWARD_RANKS)
        return memory_forward_shortfall(p, allowed, cap);
    for (int32_t m = count(p, allowed); m > 0; m = fewer(p, m)) {
        for (int i = 0; i < n; i++) {
            int exact = m > 1 && p->n <= ALL_HOLDERS && !memory_forward(p) &&
                        p->sub_blocks == 1 && memory_unit(p, 1, 0) > 0;

            if (exact ? look_everywhere(p, allowed, holder[i], m, cap, &least)
                      : look(p, allowed, holder[i], m, 0, p->cap[holder[i]] / p->tile,
                             cap, &least))
                return 0;
        }
    }
    return least < 0 ? p->seq_len : least;
}

/* Shares of a holder that are tried as starts of a search: the larger the group, the
 * fewer. */
static int64_t start_points(const struct problem *p)
{
    return p->n <= 8 ? 16 : p->n <= ALL_HOLDERS ? 8 : 4;
}

int memory_next_box(const struct problem *p, const uint8_t *allowed,
                    struct memory_boxes *at, int64_t *cap)
{
    if (at->m == 0) {
        at->m = count(p, allowed);
        at->n = holders(p, allowed, at->holder);
    }
    for (; at->m > 0; at->m = fewer(p, at->m), at->h = 0) {
        for (; at->h < at->n; at->h++, at->k = 0) {
            size_t h = at->holder[at->h];
            int64_t tiles = p->cap[h] / p->tile, points = start_points(p);

            points = tiles < points ? tiles : points;
            while (at->k < (points + 1) * inner_steps(p)) {
                int64_t k = points > 0 ? tiles * (at->k / inner_steps(p)) / points : 0;
                int64_t most = k * p->tile + p->rest;
                struct memory_shape *b = &at->shape;

                /* The share may be the one with the rest. */
                most = most < p->cap[h] ? most : p->cap[h];
                *b = (struct memory_shape){h, most, most, at->m};
                b->inner -= most * (at->k % inner_steps(p)) / INNER;
                at->k++;
                if (memory_box(p, allowed, b, cap) == 0 && short_of(p, allowed, cap) == 0)
                    return 1;
            }
        }
    }
    at->m = -1; /* and so it stays */
    return 0;
}

/* How long the ranks take, in units of their weights, for the sequence under caps: those
 * that reach their cap keep it, the others share what is left. cap is used up. */
static double time_under(const struct problem *p, const double *weight, int64_t *cap)
{
    double left = (double)p->seq_len, sum = 0, time = 0;

    for (size_t r = 0; r < p->n; r++)
        sum += cap[r] > 0 ? weight[r] : 0;
    for (int again = 1; again && left > 0;) {
        time = sum > 0 ? left / sum : HUGE_MS;
        again = 0;
        for (size_t r = 0; r < p->n; r++) {
            if (cap[r] == 0 || weight[r] * time <= (double)cap[r])
                continue;
            left -= (double)cap[r];
            sum -= weight[r];
            cap[r] = 0;
            again = 1;
        }
    }
    return time;
}

int memory_best_boxes(const struct problem *p, const uint8_t *allowed,
                      const double *weight, struct memory_shape out[MEMORY_BOXES],
                      int64_t *cap)
{
    struct memory_boxes at = {.m = 0};
    double time[MEMORY_BOXES];
    int n = 0;

    while (memory_next_box(p, allowed, &at, cap)) {
        double ms = time_under(p, weight, cap);
        int k = n < MEMORY_BOXES ? n++ : MEMORY_BOXES;

        for (; k > 0 && time[k - 1] > ms; k--) {
            if (k == MEMORY_BOXES)
                continue;
            time[k] = time[k - 1];
            out[k] = out[k - 1];
        }
        if (k == MEMORY_BOXES)
            continue;
        time[k] = ms;
        out[k] = at.shape;
    }
    return n;
}
