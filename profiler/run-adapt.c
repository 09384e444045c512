/* SPDX-License-Identifier: Apache-2.0
 *
 * The adaptive sweep: which cells are wanted next, and when there are enough.
 *
 * Wanted cells are a function of the times of those wanted before, and of nothing else:
 * not of when the sweep was interrupted, nor of what else the database holds. A sweep
 * that goes on finds the same cells again, most of them measured.
 */
#include "config.h"
#include "profiler/run.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "profiler/predict.h"
#include "profiler/worker.h"

/* Cells chosen at a time of rectangles and of squares: their visits interleave. */
static const size_t batch[2] = {6, 2};
/* Errors of fewer cells say nothing, unless there are no more. */
enum { LEAST_CELLS = 4 };

static int has_time(const struct hcp_sweep_cell *c)
{
    return c->ms > 0 && (c->state == HCP_CELL_KEPT || c->state == HCP_CELL_OK);
}

static int is_block(const struct hcp_sweep_cell *c, int causal)
{
    return !c->finish && c->causal == causal;
}

static struct hcp_point point_of(const struct hcp_sweep_cell *c)
{
    return (struct hcp_point){c->q_len, c->kv_len, c->ms};
}

static struct hcp_predict_shape shape_of(const struct hcp_sweep *run,
                                         const struct hcp_level *level, int causal)
{
    struct hcp_predict_shape shape = {.causal = causal,
                                      .sms = level->sm_seen,
                                      .blocks_of_tile =
                                          (int64_t)run->key.batch * run->key.heads};
    for (size_t i = 0; i < level->n; i++) {
        const struct hcp_sweep_cell *c = &level->cells[i];
        if (!is_block(c, causal) || !has_time(c) || !c->wanted)
            continue;
        shape.tile_q = c->tile_q > shape.tile_q ? c->tile_q : shape.tile_q;
        shape.tile_kv = c->tile_kv > shape.tile_kv ? c->tile_kv : shape.tile_kv;
    }
    return shape;
}

/* Predictor from the wanted cells of a mask; *out is NULL when none has a time. */
static int predict(const struct hcp_sweep *run, const struct hcp_level *level, int causal,
                   hcp_predictor **out, struct hcp_err *err)
{
    struct hcp_predict_shape shape = shape_of(run, level, causal);
    struct hcp_point *points = malloc((level->n + 1) * sizeof *points);
    size_t n = 0;
    *out = NULL;
    if (!points)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    for (size_t i = 0; i < level->n; i++) {
        const struct hcp_sweep_cell *c = &level->cells[i];
        if (is_block(c, causal) && has_time(c) && c->wanted)
            points[n++] = point_of(c);
    }
    int rc = n > 0 ? hcp_predictor_fit(&shape, points, n, out, err) : HCP_OK;
    free(points);
    return rc;
}

/* One of the two errors, as a fraction; -1 when it is none. */
static double one_error(const char *text)
{
    char number[32];
    size_t n = strlen(text);
    double value, unit = 1;
    struct hcp_err ignored;
    if (n > 0 && text[n - 1] == '%')
        n--, unit = 0.01;
    if (n == 0 || n >= sizeof number)
        return -1;
    memcpy(number, text, n);
    number[n] = '\0';
    if (hcp_parse_double(number, &value, &ignored) != HCP_OK)
        return -1;
    value *= unit;
    return value > 0 && value < 1 ? value : -1;
}

int hcp_parse_target(const char *text, struct hcp_target *target, struct hcp_err *err)
{
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text);
    char *second = strchr(copy, ',');
    if (second)
        *second++ = '\0';
    double median = strlen(text) < sizeof copy ? one_error(copy) : -1;
    double p90 = median < 0 ? -1 : second ? one_error(second) : fmin(2.5 * median, 0.99);
    if (median < 0 || p90 < 0)
        return hcp_fail(err, HCP_USAGE,
                        "--target-error '%s' is not an error, or median and 90th "
                        "percentile, between 0 and 100 %%: such as 2%%,5%% or 0.02,0.05",
                        text);
    if (p90 < median)
        return hcp_fail(err, HCP_USAGE,
                        "--target-error '%s': the 90th percentile comes second and is no "
                        "less than the median",
                        text);
    *target = (struct hcp_target){median, p90};
    return HCP_OK;
}

static int within(const struct hcp_sweep *run, const struct hcp_heldout *h, int least)
{
    return h->cells >= least && h->median <= run->target.median &&
           h->p90 <= run->target.p90;
}

/* Errors of the last batch, predicted before it was measured: of its long cells, or all.
 * Its cells are those most in doubt, so that this is worse than the rest of the grid. */
static struct hcp_heldout foretold(const struct hcp_level *level, int causal, int number)
{
    double error[8];
    size_t n = 0;
    for (int all = 0; number > 0 && all < 2 && n == 0; all++)
        for (size_t i = 0; i < level->n; i++) {
            const struct hcp_sweep_cell *c = &level->cells[i];
            if (is_block(c, causal) && c->wanted && c->batch == number && has_time(c) &&
                (all || c->ms > HCP_HEADLINE_MS))
                error[n++] = fabs(c->foretold_ms / c->ms - 1);
        }
    return hcp_heldout_of(error, n);
}

/* Wants the next cells of a mask, unless its target is met; *grown counts them. */
static int grow_mask(const struct hcp_sweep *run, struct hcp_level *level, int causal,
                     size_t *grown, struct hcp_err *err)
{
    struct hcp_adapt *a = &level->adapt[causal];
    struct hcp_point *points = malloc((level->n + 1) * sizeof *points);
    size_t *cell = malloc((level->n + 1) * sizeof *cell), n = 0, chosen[8];
    hcp_predictor *p = NULL;
    int rc = points && cell ? predict(run, level, causal, &p, err)
                            : hcp_fail(err, HCP_FAILED, "out of memory");
    if (rc == HCP_OK && p) {
        a->heldout = hcp_predictor_heldout(p);
        for (size_t i = 0; i < level->n; i++)
            if (is_block(&level->cells[i], causal) && !level->cells[i].wanted) {
                cell[n] = i;
                points[n++] = point_of(&level->cells[i]);
            }
        /* Batches are always chosen, and have to come out as foretold, twice in a row: a
         * grid as regular as the starting set can miss a step between all of its
         * lengths, and an error that falls to the target once may be luck. */
        struct hcp_heldout last = foretold(level, causal, a->batches);
        int good = within(run, &a->heldout, n > 0 ? LEAST_CELLS : 1) &&
                   (last.cells == 0 || within(run, &last, 1));
        a->good = good && a->batches > 0 ? a->good + 1 : 0;
        a->met = n > 0 ? a->good >= 2 : within(run, &a->heldout, 1);
        if (!a->met && n > 0) {
            n = hcp_predictor_next(p, points, n, batch[causal], chosen);
            *grown += n;
            a->batches++;
            for (size_t i = 0; i < n; i++) {
                struct hcp_sweep_cell *c = &level->cells[cell[chosen[i]]];
                c->wanted = 1;
                c->batch = a->batches;
                c->foretold_ms = hcp_predictor_ms(p, c->q_len, c->kv_len);
            }
        }
    }
    hcp_predictor_free(p);
    free(points);
    free(cell);
    return rc;
}

int hcp_run_is_due(const struct hcp_sweep *run, const struct hcp_sweep_cell *cell)
{
    return cell->state == HCP_CELL_TODO &&
           (!run->adaptive || cell->finish || cell->wanted);
}

int hcp_run_due(const struct hcp_sweep *run, const struct hcp_level *level)
{
    int due = 0;
    for (size_t i = 0; i < level->n; i++)
        due += hcp_run_is_due(run, &level->cells[i]);
    return due;
}

int hcp_run_grow(const struct hcp_sweep *run, struct hcp_level *level,
                 struct hcp_err *err)
{
    int rc = HCP_OK;
    if (!run->adaptive)
        return HCP_OK;
    while (rc == HCP_OK && !level->out_of_time && hcp_run_due(run, level) == 0) {
        size_t grown = 0;
        for (int causal = 0; causal < 2 && rc == HCP_OK; causal++)
            rc = grow_mask(run, level, causal, &grown, err);
        if (grown > 0)
            continue;
        for (size_t i = 0; i < level->n; i++) {
            struct hcp_sweep_cell *c = &level->cells[i];
            if (c->state == HCP_CELL_TODO && level->adapt[c->causal].met)
                c->state = HCP_CELL_SPARED;
        }
        break;
    }
    return rc;
}

/* Errors of a mask, as they will be reported. device: one whose answers cost nothing,
 * asked for the cells left out; or NULL. */
static int report_mask(const struct hcp_sweep *run, struct hcp_level *level, int causal,
                       hcp_device *device, struct hcp_err *err)
{
    struct hcp_adapt *a = &level->adapt[causal];
    struct hcp_predict_shape shape = shape_of(run, level, causal);
    struct hcp_point *all = malloc((2 * level->n + 1) * sizeof *all),
                     *missing = all + level->n;
    double *error = malloc((level->n + 1) * sizeof *error);
    size_t n_all = 0, n_missing = 0, n_error = 0;
    hcp_predictor *p = NULL, *whole = NULL;
    int rc = all && error ? predict(run, level, causal, &p, err)
                          : hcp_fail(err, HCP_FAILED, "out of memory");
    if (rc != HCP_OK || !p)
        goto out;
    for (size_t i = 0; i < level->n; i++) {
        const struct hcp_sweep_cell *c = &level->cells[i];
        struct hcp_point at = point_of(c);
        if (!is_block(c, causal) || (c->wanted && !has_time(c)))
            continue;
        if (!has_time(c))
            at.ms = device && !hcp_worker_stop ? hcp_run_ask(run, device, c) : 0;
        if (at.ms > 0)
            all[n_all++] = at;
        else
            missing[n_missing++] = at;
        if (!c->wanted && at.ms > HCP_HEADLINE_MS)
            error[n_error++] = fabs(hcp_predictor_ms(p, at.q_len, at.kv_len) / at.ms - 1);
    }
    a->heldout = hcp_predictor_heldout(p);
    a->left_out = hcp_heldout_of(error, n_error);
    a->estimated = n_missing > 0;
    if (n_missing > 0) {
        a->exhaustive = hcp_predictor_expect(p, missing, n_missing);
    } else {
        rc = hcp_predictor_fit(&shape, all, n_all, &whole, err);
        if (rc == HCP_OK)
            a->exhaustive = hcp_predictor_heldout(whole);
    }
out:
    hcp_predictor_free(whole);
    hcp_predictor_free(p);
    free(all);
    free(error);
    return rc;
}

int hcp_run_judge(const struct hcp_sweep *run, struct hcp_level *level,
                  hcp_device *device, struct hcp_err *err)
{
    int rc = HCP_OK;
    for (int causal = 0; causal < 2 && rc == HCP_OK && run->adaptive; causal++)
        rc = report_mask(run, level, causal, device, err);
    return rc;
}
