/* SPDX-License-Identifier: Apache-2.0
 *
 * A model whose times are those of another times a factor: of a device that has been seen
 * to run slower, or faster, than when it was measured. Sources and relative error bars
 * are the other's.
 */
#include <stdlib.h>
#include "fit/model-internal.h"

int hcp_model_scaled(const hcp_model *base, double factor, hcp_model **out,
                     struct hcp_err *err)
{
    hcp_model *m = calloc(1, sizeof *m);
    if (!m)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    m->row = base->row;
    m->is_poly = base->is_poly;
    m->tile_q = base->tile_q;
    m->tile_kv = base->tile_kv;
    m->blend.low = base;
    m->weight = factor;
    m->is_blend = m->is_scaled = 1;
    *out = m;
    return HCP_OK;
}

void hcp_model_rescale(hcp_model *scaled, double factor)
{
    scaled->weight = factor;
}

int hcp_model_alike(const hcp_model *a, const hcp_model *b)
{
    return a == b || (a && b && a->is_scaled && b->is_scaled &&
                      a->blend.low == b->blend.low && a->weight == b->weight);
}
