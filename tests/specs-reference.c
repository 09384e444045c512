/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/specs-reference.h"
#include <math.h>

double ref_bandwidth_part(double part)
{
    /* Copies of the recorded H200, GB/s by SMs of 132. */
    static const double sms[] = {0, 12, 26, 38, 52, 66, 78, 92, 104, 118, 132};
    static const double copy[] = {0,      926.4,  1839.3, 2520.5, 3173.9, 3586.0,
                                  3711.8, 3832.6, 3948.7, 4103.0, 4179.2};
    double at = part * 132;

    for (int i = 1; i < 11; i++)
        if (at <= sms[i])
            return (copy[i - 1] +
                    (copy[i] - copy[i - 1]) * (at - sms[i - 1]) / (sms[i] - sms[i - 1])) /
                   copy[10];
    return 1;
}

static double flops_per_ms(const struct ref_device *d)
{
    return d->tflops * 1e9 * d->used / d->sms;
}

static double bytes_per_ms(const struct ref_device *d)
{
    return d->gbps * 1e6 * ref_bandwidth_part((double)d->used / d->sms);
}

/* Waves that so many query tiles take, one at a time on each SM being the unit. */
static double waves(const struct ref_shape *s, double sms, double tiles)
{
    double w = tiles * s->ctas / sms, k = ceil(w - 1e-12), stairs;

    if (tiles * s->ctas <= sms) {
        double step = s->first > 0 ? s->lambda : 0;

        return 2 * s->rho * (step + (1 - step) * w);
    }
    stairs = 2 * floor(k / 2) + (fmod(k, 2) > 0.5 ? 2 * s->rho : 0);
    return s->lambda * stairs + (1 - s->lambda) * (w + 2 * s->rho - 1);
}

double ref_wave_tokens(const struct ref_shape *s, int sms, double q)
{
    if (!s->ctas || !s->sm_known || !(s->lambda > 0))
        return 0;
    return waves(s, sms, ceil(q / s->tile_q)) * sms * s->tile_q / s->ctas;
}

static double roofline(const struct ref_shape *s, const struct ref_device *d, double q,
                       double keys, double kv)
{
    double rows = q * s->heads * s->batch, bytes;

    if (!s->decode && s->ctas && s->sm_known)
        rows = waves(s, d->used, ceil(q / s->tile_q)) * d->used * s->tile_q;
    bytes = s->element * s->head_dim * s->batch * 2.0 * (q * s->heads + kv * s->kv_heads);
    return 4 * rows * keys * s->head_dim / flops_per_ms(d) + bytes / bytes_per_ms(d);
}

static double fixed(double t0, double r0, double t1, double r1)
{
    return fmax(0, t0 - t1 / r1 * r0);
}

void ref_grid(const struct ref_shape *s, const struct ref_device *kin,
              const struct ref_device *target, int nq, int nkv, const double *q,
              const double *kv, double *ms)
{
    int last = nq * nkv - 1;
    double f = fixed(ms[0], roofline(s, kin, q[0], kv[0], kv[0]), ms[last],
                     roofline(s, kin, q[nq - 1], kv[nkv - 1], kv[nkv - 1]));

    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nkv; j++) {
            double t = ms[i * nkv + j],
                   used = (t - f) / roofline(s, kin, q[i], kv[j], kv[j]);

            t = f + used * roofline(s, target, q[i], kv[j], kv[j]);
            if (i > 0)
                t = fmax(t, ms[(i - 1) * nkv + j] * (1 + 1e-7));
            if (j > 0)
                t = fmax(t, ms[i * nkv + j - 1] * (1 + 1e-7));
            ms[i * nkv + j] = t;
        }
}

static double square_roof(const struct ref_shape *s, const struct ref_device *d, double n)
{
    return roofline(s, d, n, (n + s->tile_q) / 2, n);
}

void ref_squares(const struct ref_shape *s, const struct ref_device *kin,
                 const struct ref_device *target, int n, const double *len, double *ms)
{
    double f = fixed(ms[0], square_roof(s, kin, len[0]), ms[n - 1],
                     square_roof(s, kin, len[n - 1]));

    for (int i = 0; i < n; i++) {
        ms[i] = f + (ms[i] - f) / square_roof(s, kin, len[i]) *
                        square_roof(s, target, len[i]);
        if (i > 0)
            ms[i] = fmax(ms[i], ms[i - 1] * (1 + 1e-7));
    }
}

void ref_terms(const struct ref_shape *s, const struct ref_device *kin,
               const struct ref_device *target, double longest, double full[8],
               double square[6])
{
    double a = flops_per_ms(kin) / flops_per_ms(target);
    double m = bytes_per_ms(kin) / bytes_per_ms(target);
    double w = s->ctas && s->sm_known ? (double)kin->used / target->used : 1;

    if (s->decode) {
        a = roofline(s, target, 1, longest, longest) /
            roofline(s, kin, 1, longest, longest);
        m = a;
        w = a;
    }
    full[1] *= a; /* q kv */
    full[2] *= m; /* q */
    full[3] *= m; /* kv */
    full[4] *= a; /* w kv */
    full[5] *= w; /* w */
    full[6] *= a;
    full[7] *= a;
    square[1] *= a; /* s^2 */
    square[2] *= m; /* s */
    square[3] *= a; /* w s */
    square[4] *= w; /* w */
    square[5] *= a;
}
