/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include "planner/bind.h"
#include "planner/specs.h"

/* What is said of a rank without models: how to measure them, and what there is. */

/* Appends to a line of bounded length; what does not fit is cut. */
struct line {
    char *buf;
    size_t size, n;
};

static void add(struct line *l, const char *a, const char *b, const char *c)
{
    int n;

    if (l->n >= l->size)
        return;
    n = snprintf(l->buf + l->n, l->size - l->n, "%s%s%s", a, b, c);
    l->n += n > 0 ? (size_t)n : 0;
}

static void describe_shape(const char *dtype, int32_t heads, int32_t kv_heads,
                           int32_t head_dim, int32_t batch, char *out, size_t size)
{
    snprintf(out, size, "%s, %d/%d heads, head dim %d, batch %d", dtype, (int)heads,
             (int)kv_heads, (int)head_dim, (int)batch);
}

void bind_describe(const hcp_shape *shape, char *out, size_t size)
{
    describe_shape(shape->dtype, shape->heads, shape->kv_heads, shape->head_dim,
                   shape->batch, out, size);
}

static void add_number(struct line *l, const char *option, int32_t value, int32_t usual)
{
    char digits[16];

    snprintf(digits, sizeof digits, "%d", (int)value);
    if (value != usual)
        add(l, option, digits, "");
}

const char *bind_run_options(const char *limit, const hcp_shape *shape,
                             const char *provider, char out[224])
{
    struct line line = {out, 224, 0};
    hcp_shape usual;

    out[0] = 0;
    hcp_shape_init(&usual);
    if (limit[0])
        add(&line, " --limits ", limit, "");
    if (provider)
        add(&line, " --provider ", provider, "");
    if (strcmp(shape->phase, usual.phase) != 0)
        add(&line, " --phase ", shape->phase, "");
    if (strcmp(shape->dtype, usual.dtype) != 0)
        add(&line, " --dtype ", shape->dtype, "");
    add_number(&line, " --batch ", shape->batch, usual.batch);
    add_number(&line, " --heads ", shape->heads, usual.heads);
    add_number(&line, " --kv-heads ", shape->kv_heads, usual.kv_heads);
    add_number(&line, " --head-dim ", shape->head_dim, usual.head_dim);
    return out;
}

/* What is measured of the same device: other limits, shapes, kernels. */
static void near_matches(const hcp_models *models, const hcp_shape *shape,
                         const hcp_rank *rank, struct line *line)
{
    int n = 0;

    for (size_t i = 0; i < models->n_measured; i++) {
        const struct hcp_key *key = &models->measured[i];
        char other[96];

        if (strcmp(key->device, rank->device) != 0)
            continue;
        if (n++ == 6) {
            add(line, ", ...", "", "");
            return;
        }
        add(line, n == 1 ? "; there is " : ", ", key->device, "");
        if (key->limit[0])
            add(line, "@", key->limit, "");
        add(line, " (", key->provider, "");
        if (!same_shape(key, shape)) {
            describe_shape(key->dtype, key->heads, key->kv_heads, key->head_dim,
                           key->batch, other, sizeof other);
            add(line, ", ", other, "");
            if (strcmp(key->phase, shape->phase) != 0)
                add(line, ", ", key->phase, "");
        }
        add(line, ")", "", "");
    }
    if (n > 0 || models->n_measured == 0)
        return;
    for (size_t i = 0; i < models->n_measured && n < 6; i++) {
        if (i > 0 &&
            strcmp(models->measured[i].device, models->measured[i - 1].device) == 0)
            continue;
        add(line, n++ ? ", " : "; measured devices: ", models->measured[i].device, "");
    }
}

hcp_status bind_missing(const hcp_models *models, const hcp_shape *shape,
                        const hcp_rank *rank, size_t r, const char *provider, int stale,
                        char *text, size_t text_size)
{
    char shape_text[96], run[224], near[700] = "";
    struct line line = {near, sizeof near, 0};
    const char *at = rank->limit[0] ? "@" : "";
    int measured = 0;

    if (specs_name(rank->device))
        return estimate_none(models, shape, rank, r, provider, text, text_size);
    bind_describe(shape, shape_text, sizeof shape_text);
    if (stale)
        return plan_fail(text, text_size, HCP_STATUS_STALE,
                         "rank %zu, '%s%s%s' (%s): samples changed since the fit; run "
                         "'hcp-plan fit --db %s'",
                         r, rank->device, at, rank->limit, shape_text, models->path);
    for (size_t i = 0; i < models->n_measured; i++)
        measured |= same_rank(&models->measured[i], rank) &&
                    same_shape(&models->measured[i], shape) &&
                    (!provider || strcmp(provider, models->measured[i].provider) == 0);
    if (measured)
        return plan_fail(text, text_size, HCP_STATUS_NO_MODEL,
                         "rank %zu, '%s%s%s' (%s): measured but not fitted; run "
                         "'hcp-plan fit --db %s'",
                         r, rank->device, at, rank->limit, shape_text, models->path);
    near_matches(models, shape, rank, &line);
    return plan_fail(text, text_size, HCP_STATUS_NO_MODEL,
                     "no profile for '%s%s%s' (rank %zu; %s%s%s) in %s; run 'hcp-profile "
                     "run --db %s%s' on that machine%s",
                     rank->device, at, rank->limit, r, provider ? provider : "",
                     provider ? ", " : "", shape_text, models->path, models->path,
                     bind_run_options(rank->limit, shape, provider, run), near);
}
