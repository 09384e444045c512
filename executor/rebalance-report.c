/* SPDX-License-Identifier: Apache-2.0
 *
 * What hcp-ring --rebalance says at the end.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/rebalance-internal.h"

static double makespan(const struct run *r, int pass)
{
    double most = 0;

    for (size_t k = 0; k < r->n; k++)
        most = fmax(most, r->told[(size_t)pass * r->n + k].total_ms);
    return most;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median makespan of n passes from the first; NaN: none. rank >= 0: of what it computed.
 */
static double median_ms(const struct run *r, int first, int n, int rank)
{
    double *ms = n > 0 ? malloc((size_t)n * sizeof *ms) : NULL, out = NAN;

    for (int i = 0; ms && i < n; i++)
        ms[i] = rank < 0 ? makespan(r, first + i)
                         : r->told[(size_t)(first + i) * r->n + (size_t)rank].compute_ms;
    if (ms) {
        qsort(ms, (size_t)n, sizeof *ms, by_size);
        out = n % 2 ? ms[n / 2] : (ms[n / 2 - 1] + ms[n / 2]) / 2;
    }
    free(ms);
    return out;
}

/* Of the passes right before a phase, those in which what it answers was already so: two
 * at least, as the change test wants them. */
static double before_ms(const struct run *r, const struct phase *p)
{
    const struct phase *was = p - 1;
    int n = was->n < 2 ? was->n : 2;

    return median_ms(r, p->first - n, n, -1);
}

static double after_ms(const struct run *r, const struct phase *p)
{
    return median_ms(r, p->first, p->n, -1);
}

static int64_t lost_tokens(const struct failure *f)
{
    int64_t sum = 0;

    for (size_t i = 0; i < f->n_lost; i++)
        sum += f->lost[i].length;
    return sum;
}

static json_t *phase_json(const struct run *r, size_t i)
{
    const struct phase *p = &r->phases[i];
    json_t *o = json_object(), *tokens = json_array(), *scale = json_array(),
           *compute = json_array();
    char print[24];

    snprintf(print, sizeof print, "%016llx", (unsigned long long)p->fingerprint);
    for (size_t k = 0; k < r->n; k++) {
        json_array_append_new(tokens, json_integer((json_int_t)p->tokens[k]));
        json_array_append_new(scale, hcp_json_real(p->scale[k]));
        json_array_append_new(compute,
                              hcp_json_real(median_ms(r, p->first, p->n, (int)k)));
    }
    json_object_set_new(o, "first_pass", json_integer(p->first));
    json_object_set_new(o, "passes", json_integer(p->n));
    json_object_set_new(o, "fingerprint", json_string(print));
    json_object_set_new(o, "tokens", tokens);
    json_object_set_new(o, "time_scale", scale);
    json_object_set_new(o, "makespan_ms", hcp_json_real(after_ms(r, p)));
    json_object_set_new(o, "predicted_ms", hcp_json_real(p->predicted_ms));
    json_object_set_new(o, "compute_ms", compute);
    if (i > 0) {
        const char *reason = hcp_rebalance_reason_name(p->why.reason);
        double gain = before_ms(r, p) - after_ms(r, p);

        json_object_set_new(o, "reason", json_string(reason));
        json_object_set_new(o, "stay_ms", hcp_json_real(p->why.stay_ms));
        json_object_set_new(o, "margin_ms", hcp_json_real(p->why.margin_ms));
        json_object_set_new(o, "before_ms", hcp_json_real(before_ms(r, p)));
        json_object_set_new(o, "gain_ms", hcp_json_real(gain));
        json_object_set_new(o, "saved_ms", hcp_json_real(gain * p->n - p->open_ms));
        json_object_set_new(o, "move_ms", hcp_json_real(p->open_ms));
    }
    json_object_set_new(o, "verified",
                        p->checked.verified
                            ? json_boolean(ring_result_passed(&p->checked))
                            : json_null());
    json_object_set_new(o, "max_error", hcp_json_real(ring_result_error(&p->checked)));
    return o;
}

static json_t *failure_json(const struct failure *f)
{
    json_t *o = json_object(), *recompute = json_array();

    json_object_set_new(o, "rank", json_integer(f->rank));
    json_object_set_new(o, "pass", json_integer(f->pass));
    json_object_set_new(o, "during", json_string(f->during));
    json_object_set_new(o, "error", json_string(f->text));
    json_object_set_new(o, "lost_tokens", json_integer((json_int_t)lost_tokens(f)));
    for (size_t i = 0; i < f->n_lost; i++) {
        json_t *part = json_object();

        json_object_set_new(part, "rank", json_integer(f->lost[i].rank));
        json_object_set_new(part, "offset", json_integer((json_int_t)f->lost[i].offset));
        json_object_set_new(part, "length", json_integer((json_int_t)f->lost[i].length));
        json_array_append_new(recompute, part);
    }
    json_object_set_new(o, "recompute", recompute);
    json_object_set_new(o, "recovered_ms", hcp_json_real(f->recovered_ms));
    return o;
}

/* The first ring that could be opened says by what. */
static const struct ring_result *first_opened(const struct run *r)
{
    size_t i = 0;

    while (i + 1 < r->n_phases && !r->phases[i].checked.provider[0])
        i++;
    return &r->phases[i].checked;
}

static int print_json(const struct run *r)
{
    const struct ring_result *first = first_opened(r);
    json_t *o = json_object(), *phases = json_array(), *all = json_array(),
           *failures = json_array();

    for (size_t i = 0; i < r->n_phases; i++)
        json_array_append_new(phases, phase_json(r, i));
    for (size_t i = 0; i < r->n_failures; i++)
        json_array_append_new(failures, failure_json(&r->failures[i]));
    for (int i = 0; i < r->passes; i++)
        json_array_append_new(all, hcp_json_real(makespan(r, i)));
    json_object_set_new(o, "schema", json_integer(1));
    json_object_set_new(o, "seq_len", json_integer((json_int_t)r->plan.seq_len));
    json_object_set_new(o, "mask", json_string(r->plan.causal ? "causal" : "full"));
    json_object_set_new(o, "layout", json_string(hcp_layout_name(r->plan.layout)));
    json_object_set_new(o, "transport", json_string(first->transport));
    json_object_set_new(o, "provider", json_string(first->provider));
    json_object_set_new(o, "repeats", json_integer(r->passes));
    json_object_set_new(o, "moves", json_integer((json_int_t)r->n_phases - 1));
    json_object_set_new(o, "kept",
                        r->kept ? json_string(hcp_rebalance_reason_name(r->kept))
                                : json_null());
    json_object_set_new(o, "pass_ms", all);
    json_object_set_new(o, "phases", phases);
    json_object_set_new(o, "failures", failures);
    return hcp_json_print(o, stdout);
}

static void cell_ms(hcp_table *t, double ms)
{
    if (isnan(ms))
        hcp_table_cell(t, "-");
    else
        hcp_table_cell(t, ms < 100 ? "%.3f" : "%.1f", ms);
}

static void tokens_text(const struct run *r, const struct phase *p, char *out,
                        size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (size_t k = 0; k < r->n && at + 24 < size; k++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", k ? "/" : "",
                               (long long)p->tokens[k]);
}

static void failure_text(const struct failure *f)
{
    printf("rank %d failed (%s %d): %s\n", f->rank, f->during, f->pass, f->text);
    if (f->n_lost > 0)
        printf("  %lld tokens to recompute:", (long long)lost_tokens(f));
    for (size_t i = 0; i < f->n_lost; i++)
        printf("%s %lld+%lld by rank %d", i ? "," : "", (long long)f->lost[i].offset,
               (long long)f->lost[i].length, f->lost[i].rank);
    printf("%spasses went on %.1f ms later\n", f->n_lost ? "; " : "  ", f->recovered_ms);
}

static int print_text(const struct run *r)
{
    static const char *const columns[] = {"pass",         "passes",    "measured_ms",
                                          "predicted_ms", "before_ms", "stay_ms",
                                          "saved_ms",     "reason",    "tokens"};
    hcp_table *t = hcp_table_new();
    int rc;

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        hcp_table_column(t, columns[i], i < 7);
    for (size_t i = 0; i < r->n_phases; i++) {
        const struct phase *p = &r->phases[i];
        double gain = i > 0 ? before_ms(r, p) - after_ms(r, p) : NAN;
        char tokens[200];

        hcp_table_row(t);
        hcp_table_cell(t, "%d", p->first);
        hcp_table_cell(t, "%d", p->n);
        cell_ms(t, after_ms(r, p));
        cell_ms(t, p->predicted_ms);
        cell_ms(t, i > 0 ? before_ms(r, p) : NAN);
        cell_ms(t, i > 0 ? p->why.stay_ms : NAN);
        cell_ms(t, gain * p->n - p->open_ms);
        hcp_table_cell(t, "%s", i > 0 ? hcp_rebalance_reason_name(p->why.reason) : "-");
        tokens_text(r, p, tokens, sizeof tokens);
        hcp_table_cell(t, "%s", tokens);
    }
    rc = hcp_table_print(t, stdout);
    printf("\n%d pass%s, %zu change%s of the plan", r->passes, r->passes == 1 ? "" : "es",
           r->n_phases - 1, r->n_phases == 2 ? "" : "s");
    for (size_t i = 1; i < r->n_phases; i++) {
        const struct phase *p = &r->phases[i];

        if (p->n > 0 && p[-1].n > 0)
            printf("\npass %d: %.3f ms a pass instead of %.3f, %.1f ms to change",
                   p->first, after_ms(r, p), before_ms(r, p), p->open_ms);
    }
    puts("");
    for (size_t i = 0; i < r->n_failures; i++)
        failure_text(&r->failures[i]);
    if (r->kept)
        printf("at the end speeds have changed, and the plan has not: %s%s%s\n",
               hcp_rebalance_reason_name(r->kept), r->kept_text[0] ? ": " : "",
               r->kept_text);
    for (size_t i = 0; i < r->n_phases; i++) {
        const struct ring_result *c = &r->phases[i].checked;

        if (c->verified)
            printf("%s from pass %d on: O within %.2e\n",
                   ring_result_passed(c) ? "verified" : "NOT VERIFIED",
                   r->phases[i].first, ring_result_error(c));
    }
    return rc;
}

int rebalance_report(const struct run *r, struct hcp_err *err)
{
    int rc = HCP_OK;

    if (r->p->o.json ? print_json(r) : print_text(r))
        rc = hcp_fail(err, HCP_FAILED, "cannot print the results");
    fflush(stdout); /* a launcher may end this rank when the first one ends */
    hcp_cli_written(stdout);
    for (size_t i = 0; rc == HCP_OK && i < r->n_phases; i++)
        if (!ring_result_passed(&r->phases[i].checked))
            rc = hcp_fail(err, HCP_FAILED, "verification failed: see above");
    return rc;
}
