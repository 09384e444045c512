/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include "planner/rebalance.h"

/* The last 2 or 3 steps are a change by their sum, in which an outlier, however large,
 * counts as 0.8 thresholds, and so not for all of them; of the last 5 and more the larger
 * part is to be on one side of the threshold, so that outliers do not add up. */
enum { SUMS = 2 };
static const int window[REBALANCE_WINDOWS] = {2, 3, 5, 9, 17, 33};

static int many(int w)
{
    return w / 2 + 1;
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
    double part = options->false_alarms / (2 * REBALANCE_WINDOWS); /* two sides of each */

    for (int i = 0; i < REBALANCE_WINDOWS; i++)
        test->threshold[i] = i < SUMS ? threshold_of(part, 1, 1)
                                      : threshold_of(part, window[i], many(window[i]));
    test->one = threshold_of(part, 2, 2);
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

/* Steps that the estimate of the noise is made from. */
static int differences(const struct speed *s)
{
    return s->seen < REBALANCE_HISTORY ? (int)s->seen - 1 : REBALANCE_HISTORY - 1;
}

/* Of all differences of two normal values six tenths lie within 0.8416 sqrt(2) standard
 * deviations. Of those one and two steps apart: a change, and an outlier, is in few. */
static double spread(const struct speed *s)
{
    double d[2 * REBALANCE_HISTORY] = {0};
    int n = 0;

    for (int i = 0; i < differences(s); i++)
        for (int k = i + 1; k <= i + 2 && k <= differences(s); k++) {
            double a = past(s, i), b = past(s, k);

            d[n++] = 2 * (a > b ? a - b : b - a) / (a + b);
        }
    return n > 0 ? ranked(d, n, 3 * n / 5) / 1.190232 : 0;
}

void speed_add(struct speed *s, double y)
{
    s->y[s->seen % REBALANCE_HISTORY] = y;
    s->seen++;
    s->age++;
    s->spread = spread(s);
}

double speed_typical(double *spreads, size_t n)
{
    return n > 0 ? median(spreads, (int)n) : 0;
}

/* A spread from m differences is off by 0.97 / sqrt(m), and raised by that. Where it is
 * within twice that of what is typical of the ranks, it is taken for theirs, of which
 * there are more. While there are few, what was assumed counts as eight. */
static double noise_of(const struct speed *s, const struct speed_test *test,
                       double typical)
{
    int m = differences(s);
    double found = s->spread, least = test->held_out / 1.645, far = found - typical;
    double error = m > 0 ? 0.97 / sqrt(m) : 0;

    if ((far < 0 ? -far : far) <= 2 * error * typical) {
        found = sqrt((found * found + 2 * typical * typical) / 3);
        error /= sqrt(2);
    }
    found *= 1 + error;
    if (m < 32)
        found = sqrt((8 * test->noise * test->noise + m * found * found) / (8 + m));
    return found > least ? found : least;
}

/* Whether the last w factors are no further apart than those of one speed: by noise as it
 * was, or, of a speed that is noisier, by half of how far they are from what was. */
static int of_one_speed(const struct speed *s, int w, double from)
{
    double low = past(s, 0), high = low, sum = low;

    for (int k = 1; k < w; k++) {
        double y = past(s, k);

        low = y < low ? y : low;
        high = y > high ? y : high;
        sum += y;
    }
    from = sum / w > from ? sum / w - from : from - sum / w;
    return high - low <= low * (6 * s->noise + 1e-9) || high - low <= from / 2;
}

/* Whether the sum of the last w factors shows a change from what n before them have on
 * average. n 0: from what was given, that may be off by allowed. */
static int sum_shows(const struct speed *s, int w, double threshold, double from, int n,
                     double allowed)
{
    double one = from * (s->noise * (n > 0 ? sqrt(1 + (double)w / n) : 1) + 1e-9);
    double most = 0.8 * threshold, need = threshold * sqrt(w), sum = 0;
    int up = 1, down = 1;

    for (int k = 0; k < w; k++) {
        double far = past(s, k) - from;

        if (n == 0 && far > 0)
            far = far > allowed ? far - allowed : 0;
        else if (n == 0)
            far = far < -allowed ? far + allowed : 0;
        far /= one;
        sum += far > most ? most : far < -most ? -most : far;
        up &= 2 * w * far > need;
        down &= 2 * w * far < -need;
    }
    return (up && sum > need) || (down && sum < -need);
}

/* Does this window show a change? */
static int shows(const struct speed *s, const struct speed_test *test, int i)
{
    int w = window[i], above = 0, below = 0, up = 1, down = 1, left = 0;
    int64_t before = s->age - w;
    double threshold = test->threshold[i], from, allowed;

    if (before < 0 || (before == 0 && (!s->fresh || i >= SUMS)))
        return 0;
    if (before + w > REBALANCE_HISTORY)
        before = REBALANCE_HISTORY - w;
    from = before > 0 ? level(s, w, (int)before, &left) : s->given;
    if (!of_one_speed(s, i < SUMS ? w : 2, from))
        return 0;
    if (i < SUMS)
        return sum_shows(s, w, threshold, from, left, from * test->held_out);
    allowed = s->noise * (threshold + (left > 0 ? 3 / sqrt(left) : 0));
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

/* The level since the last change. Before the first one what was given counts, too: as
 * much as the error bar of the models says. */
static void take(struct speed *s, const struct speed_test *test)
{
    int left, n = s->age < REBALANCE_HISTORY ? (int)s->age : REBALANCE_HISTORY;
    double given = test->held_out / 1.645;

    s->scale = level(s, 0, n, &left);
    s->error = s->noise / sqrt(left);
    if (s->fresh && given > 0) {
        double a = s->error * s->error, b = given * given; /* b > 0: so is noise */

        s->scale = (b * s->scale + a * s->given) / (a + b);
        s->error = sqrt(a * b / (a + b));
    }
}

int speed_look(struct speed *s, const struct speed_test *test, double typical)
{
    int changed = 0;

    s->noise = noise_of(s, test, typical);
    for (int i = 0; i < REBALANCE_WINDOWS && !changed; i++)
        if (shows(s, test, i)) {
            s->age = window[i];
            s->fresh = 0;
            changed = 1;
        }
    if (!s->fresh || s->age > 1) /* one time does not say more than what was given */
        take(s, test);
    return changed;
}

int speed_agrees(const struct speed *s, const struct speed_test *test, double other,
                 int64_t back)
{
    double y = back < s->seen ? past(s, back) : s->scale, one = s->scale * s->noise;
    double off = y > s->scale ? y - s->scale : s->scale - y;
    double apart = other > s->scale ? other - s->scale : s->scale - other;
    double from = y > other ? y - other : other - y;

    if (apart > one && from < off)
        return 0;
    return off <= one * test->one + s->scale * 1e-9;
}

int speed_stands(const struct speed *s, const struct speed_test *test)
{
    int64_t before = (s->seen < REBALANCE_HISTORY ? s->seen : REBALANCE_HISTORY) - s->age;
    double from, far;
    int left;

    if (s->fresh || before < 0)
        return 0;
    if (s->age == s->seen) { /* from what was given, and since the beginning */
        far = s->scale > s->given ? s->scale - s->given : s->given - s->scale;
        return far > s->given * (test->held_out + test->sure * s->error);
    }
    if (before == 0)
        return 0;
    from = level(s, s->age, (int)before, &left);
    far = s->scale > from ? s->scale - from : from - s->scale;
    return far >
           test->sure * from * sqrt(s->error * s->error + s->noise * s->noise / left);
}

int speed_due(const struct speed *s)
{
    return s->age == 4 || s->age == 8 || s->age == 16 || s->age == 32 || s->age == 64;
}
