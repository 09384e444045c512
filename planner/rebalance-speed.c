/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include "planner/rebalance.h"

/* In the last `window` steps so many on one side of the threshold are a change: not one
 * outlier, however large. */
static const int window[REBALANCE_WINDOWS] = {2, 5, 9, 17, 33};

static int many(int w)
{
    return w == 2 ? 2 : w / 2 + 1;
}

/* ---- thresholds, once ---- */

/* exp(-x) for x in 0..800, the same on every machine. */
static double exp_minus(double x)
{
    double part = x / 1024, term = 1, sum = 1;

    for (int i = 1; i < 16; i++) {
        term *= part / i;
        sum += term;
    }
    for (int i = 0; i < 10; i++)
        sum *= sum;
    return 1 / sum;
}

/* Probability that a normal deviate is above h >= 0.3: its continued fraction. */
static double tail(double h)
{
    double rest = h;

    for (int i = 300; i > 0; i--)
        rest = h + i / rest;
    return exp_minus(h * h / 2) * 0.3989422804014327 / rest;
}

/* Of w such deviates at least k are, but for those that are counted twice. */
static double tails(double h, int w, int k)
{
    double p = tail(h), all = 1;

    for (int i = 0; i < k; i++)
        all *= p * (w - i) / (i + 1);
    return all;
}

static double threshold_of(double probability, int w, int k)
{
    double low = 0.3, high = 38;

    for (int i = 0; i < 60; i++) {
        double mid = (low + high) / 2;

        if (tails(mid, w, k) > probability)
            low = mid;
        else
            high = mid;
    }
    return high;
}

void speed_test_init(struct speed_test *test, const hcp_rebalance_options *options,
                     double held_out)
{
    for (int i = 0; i < REBALANCE_WINDOWS; i++) /* two sides of each */
        test->threshold[i] = threshold_of(options->false_alarms / (2 * REBALANCE_WINDOWS),
                                          window[i], many(window[i]));
    test->sure = threshold_of(options->false_alarms, 1, 1);
    test->noise = options->noise;
    test->held_out = held_out;
}

/* ---- one rank ---- */

void speed_start(struct speed *s, double scale)
{
    *s = (struct speed){.scale = scale, .given = scale, .fresh = 1};
}

/* The factor `back` steps ago, 0 the last one. */
static double past(const struct speed *s, int64_t back)
{
    return s->y[(s->seen - 1 - back) % REBALANCE_HISTORY];
}

/* The value that k of n are below, n > k; mixes v. */
static double ranked(double *v, int n, int k)
{
    int low = 0, high = n - 1;

    while (low < high) {
        double pivot = v[(low + high) / 2];
        int i = low, j = high;

        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i <= j) {
                double swap = v[i];
                v[i++] = v[j];
                v[j--] = swap;
            }
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return v[k];
}

static double median(double *v, int n)
{
    double upper = ranked(v, n, n / 2), lower;

    if (n % 2)
        return upper;
    lower = ranked(v, n, n / 2 - 1);
    return lower + (upper - lower) / 2;
}

/* Mean of n factors, the last of them `back` steps ago, without those that are more than
 * three standard deviations from their median; how many are left. */
static double level(const struct speed *s, int64_t back, int n, int *left)
{
    double v[REBALANCE_HISTORY], middle, sum = 0, far;

    for (int i = 0; i < n; i++)
        v[i] = past(s, back + i);
    middle = median(v, n);
    far = 3 * s->noise * middle;
    *left = 0;
    for (int i = 0; i < n; i++) { /* by time: v is mixed */
        double y = past(s, back + i), off = y > middle ? y - middle : middle - y;

        if (n > 2 && off > far)
            continue;
        sum += y;
        ++*left;
    }
    if (*left == 0) { /* of an even number, far apart */
        *left = 1;
        return middle;
    }
    return sum / *left;
}

/* Half of all differences of two normal values lie within 0.6745 sqrt(2) standard
 * deviations. An estimate from m of them is off by 1.17 / sqrt(m); it is raised by that.
 * While there are few, what was assumed counts as eight. */
static double noise_of(const struct speed *s, const struct speed_test *test)
{
    double d[REBALANCE_HISTORY] = {0}, found, least = test->held_out / 1.645;
    int64_t kept = s->seen < REBALANCE_HISTORY ? s->seen : REBALANCE_HISTORY;
    int m = kept > 1 ? (int)kept - 1 : 0;

    for (int i = 0; i < m; i++) {
        double a = past(s, i), b = past(s, i + 1);

        d[i] = 2 * (a > b ? a - b : b - a) / (a + b);
    }
    found = m > 0 ? median(d, m) / 0.9538725524 * (1 + 1.17 / sqrt(m)) : 0;
    if (m < 32)
        found = sqrt((8 * test->noise * test->noise + m * found * found) / (8 + m));
    return found > least ? found : least;
}

/* Does this window show a change? */
static int shows(const struct speed *s, const struct speed_test *test, int i)
{
    int w = window[i], above = 0, below = 0, up = 1, down = 1, left = 0;
    int64_t before = s->age - w;
    double from, allowed;

    if (before < 0 || (before == 0 && !s->fresh))
        return 0;
    if (before + w > REBALANCE_HISTORY)
        before = REBALANCE_HISTORY - w;
    from = before > 0 ? level(s, w, (int)before, &left) : s->given;
    allowed = s->noise * (test->threshold[i] + (left > 0 ? 3 / sqrt(left) : 0));
    allowed = from * ((before > 0 ? allowed : allowed + test->held_out) + 1e-9);
    for (int k = 0; k < w; k++) {
        double y = past(s, k), most = k < 2 ? allowed / 2 : -INFINITY;

        above += y - from > allowed;
        below += from - y > allowed;
        up &= y - from > most; /* the last two, or it is one that comes and goes */
        down &= from - y > most;
    }
    return (up && above >= many(w)) || (down && below >= many(w));
}

int speed_add(struct speed *s, const struct speed_test *test, double y)
{
    int changed = 0, left;
    int64_t n;

    s->y[s->seen % REBALANCE_HISTORY] = y;
    s->seen++;
    s->age++;
    s->noise = noise_of(s, test);
    for (int i = 0; i < REBALANCE_WINDOWS && !changed; i++)
        if (shows(s, test, i)) {
            s->age = window[i];
            s->fresh = 0;
            changed = 1;
        }
    n = s->age < REBALANCE_HISTORY ? s->age : REBALANCE_HISTORY;
    if (s->age >= 4)
        s->fresh = 0;
    if (s->fresh && n < 2)
        return 0; /* one time does not say more than what was given */
    s->scale = level(s, 0, (int)n, &left);
    s->error = s->noise / sqrt(left);
    return changed;
}

int speed_agrees(const struct speed *s, const struct speed_test *test)
{
    double y = s->seen > 0 ? past(s, 0) : s->scale;
    double off = y > s->scale ? y - s->scale : s->scale - y;

    return off <= s->scale * (s->noise * test->threshold[0] + 1e-9);
}

int speed_due(const struct speed *s)
{
    return s->age == 4 || s->age == 8 || s->age == 16 || s->age == 32 || s->age == 64;
}
