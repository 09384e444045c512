/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/show-rows.h"
#include "profiler/show-table.h"

struct printer {
    hcp_table *table;
    json_t *array;
    size_t rows;
};

/* Prints and frees what was gathered, or only frees it. */
static int finish(struct printer *p, int rc, size_t *rows)
{
    if (rc || !p->rows) {
        hcp_table_free(p->table);
        json_decref(p->array);
    } else if (p->array) {
        hcp_json_print(p->array, stdout);
    } else {
        hcp_table_print(p->table, stdout);
    }
    *rows = p->rows;
    return rc;
}

static struct printer begin(const struct show_column *columns, int json)
{
    struct printer p = {.array = json ? json_array() : NULL};

    if (!json)
        p.table = show_table(columns);
    return p;
}

static void end_cell(hcp_table *t, const char *device, const char *limit)
{
    hcp_table_cell(t, "%s%s%s", device, *limit ? "@" : "", limit);
}

static void length_cell(hcp_table *t, int64_t n)
{
    hcp_table_cell(t, "%lld", (long long)n);
}

static void origin_cells(hcp_table *t, const struct hcp_provenance *from)
{
    hcp_table_cell(t, "%s", show_origin(from->origin));
    hcp_table_cell(t, "%s", from->run_uid);
}

static void put_real(json_t *o, const char *name, double v)
{
    json_object_set_new(o, name, hcp_json_real(v));
}

static void put_text(json_t *o, const char *name, const char *text)
{
    json_object_set_new(o, name, show_json_text(text));
}

/* A limit: "" is the whole device, not an unknown. */
static void put_limit(json_t *o, const char *name, const char *limit)
{
    json_object_set_new(o, name, json_string(limit));
}

static void put_int(json_t *o, const char *name, int64_t v)
{
    json_object_set_new(o, name, show_json_int(v));
}

static void put_provenance(json_t *o, const struct hcp_provenance *from)
{
    put_text(o, "measured_at", from->measured_at);
    put_text(o, "origin", from->origin);
    put_text(o, "run_uid", from->run_uid);
}

static void put_block(json_t *o, const struct hcp_key *k, const char *mask, int64_t q_len,
                      int64_t kv_len)
{
    put_text(o, "device", k->device);
    put_limit(o, "limit", k->limit);
    put_text(o, "provider", k->provider);
    put_text(o, "dtype", k->dtype);
    put_text(o, "phase", k->phase);
    put_int(o, "batch", k->batch);
    put_int(o, "heads", k->heads);
    put_int(o, "kv_heads", k->kv_heads);
    put_int(o, "head_dim", k->head_dim);
    put_text(o, "mask", mask);
    put_int(o, "q_len", q_len);
    put_int(o, "kv_len", kv_len);
}

/* ---- topology ---- */

static int print_topology(const struct hcp_topology_row *r, void *ctx)
{
    struct printer *p = ctx;
    hcp_table *t = p->table;
    json_t *o;

    p->rows++;
    if (!p->array) {
        hcp_table_row(t);
        hcp_table_cell(t, "%s", r->device_a);
        hcp_table_cell(t, "%s", r->uuid_a);
        hcp_table_cell(t, "%s", r->from.host);
        hcp_table_cell(t, "%s", r->device_b);
        hcp_table_cell(t, "%s", r->uuid_b);
        hcp_table_cell(t, "%s", r->host_b);
        hcp_table_cell(t, "%s", r->connection);
        show_int(t, r->links);
        hcp_table_cell(t, "%s", r->detail);
        origin_cells(t, &r->from);
        return HCP_OK;
    }
    o = json_object();
    put_text(o, "device", r->device_a);
    put_text(o, "device_uuid", r->uuid_a);
    put_text(o, "host", r->from.host);
    put_text(o, "peer_device", r->device_b);
    put_text(o, "peer_uuid", r->uuid_b);
    put_text(o, "peer_host", r->host_b);
    put_text(o, "connection", r->connection);
    put_int(o, "links", r->links);
    put_text(o, "detail", r->detail);
    put_provenance(o, &r->from);
    json_array_append_new(p->array, o);
    return HCP_OK;
}

int show_topology(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
                  struct hcp_err *err)
{
    static const struct show_column columns[] = {
        {"A", 0},      {"UUID_A", 0}, {"HOST_A", 0}, {"B", 0},
        {"UUID_B", 0}, {"HOST_B", 0}, {"BY", 0},     {"LINKS", 1},
        {"DETAIL", 0}, {"ORIGIN", 0}, {"RUN", 0},    {NULL, 0}};
    struct printer p = begin(columns, json);

    return finish(&p, hcp_db_each_topology(db, filter, print_topology, &p, err), rows);
}

/* ---- interference ---- */

static int print_interference(const struct hcp_interference_row *r, void *ctx)
{
    const double factor = r->beside_ms / r->alone_ms;
    const double back = r->transfer_beside_ms / r->transfer_alone_ms; /* NaN: unknown */
    struct printer *p = ctx;
    hcp_table *t = p->table;
    json_t *o;

    p->rows++;
    if (!p->array) {
        hcp_table_row(t);
        end_cell(t, r->key.device, r->key.limit);
        hcp_table_cell(t, "%s", r->key.provider);
        hcp_table_cell(t, SHOW_SHAPE, SHOW_SHAPE_VALUES(&r->key));
        hcp_table_cell(t, "%s", r->mask);
        length_cell(t, r->q_len);
        length_cell(t, r->kv_len);
        end_cell(t, r->device_b, r->limit_b);
        show_transport(t, r->transport, r->channels);
        length_cell(t, r->bytes);
        show_real(t, 5, r->alone_ms);
        show_real(t, 5, r->beside_ms);
        show_real(t, 3, factor);
        show_real(t, 5, r->transfer_alone_ms);
        show_real(t, 5, r->transfer_beside_ms);
        show_real(t, 3, back);
        show_real(t, 3, 1e3 * r->wait_ms);
        show_int(t, r->samples);
        show_int(t, r->sm_seen);
        origin_cells(t, &r->from);
        return HCP_OK;
    }
    o = json_object();
    put_block(o, &r->key, r->mask, r->q_len, r->kv_len);
    put_text(o, "peer_device", r->device_b);
    put_limit(o, "peer_limit", r->limit_b);
    put_text(o, "transport", r->transport);
    put_int(o, "channels", r->channels);
    put_int(o, "bytes", r->bytes);
    put_real(o, "alone_ms", r->alone_ms);
    put_real(o, "beside_ms", r->beside_ms);
    put_real(o, "factor", factor);
    put_real(o, "transfer_alone_ms", r->transfer_alone_ms);
    put_real(o, "transfer_beside_ms", r->transfer_beside_ms);
    put_real(o, "transfer_factor", back);
    put_real(o, "wait_ms", r->wait_ms);
    put_int(o, "samples", r->samples);
    put_int(o, "sm_seen", r->sm_seen);
    put_text(o, "provider_version", r->provider_version);
    put_text(o, "transport_version", r->transport_version);
    put_provenance(o, &r->from);
    json_array_append_new(p->array, o);
    return HCP_OK;
}

int show_interference(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
                      struct hcp_err *err)
{
    static const struct show_column columns[] = {
        {"A", 0},           {"KERNEL", 0},    {"SHAPE", 0},     {"MASK", 0},
        {"Q_LEN", 1},       {"KV_LEN", 1},    {"B", 0},         {"TRANSPORT", 0},
        {"BYTES", 1},       {"ALONE_MS", 1},  {"BESIDE_MS", 1}, {"FACTOR", 1},
        {"TRANSFER_MS", 1}, {"BESIDE_MS", 1}, {"FACTOR", 1},    {"WAIT_US", 1},
        {"SAMPLES", 1},     {"SMS", 1},       {"ORIGIN", 0},    {"RUN", 0},
        {NULL, 0}};
    struct printer p = begin(columns, json);

    return finish(&p, hcp_db_each_interference(db, filter, print_interference, &p, err),
                  rows);
}

/* ---- drift ---- */

static int print_drift(const struct hcp_drift_row *r, void *ctx)
{
    const double change = r->last_ms / r->first_ms - 1;
    struct printer *p = ctx;
    hcp_table *t = p->table;
    json_t *o;

    p->rows++;
    if (!p->array) {
        hcp_table_row(t);
        hcp_table_cell(t, "%s", r->key.device);
        hcp_table_cell(t, "%s", show_limit(r->key.limit));
        hcp_table_cell(t, "%s", r->key.provider);
        hcp_table_cell(t, SHOW_SHAPE, SHOW_SHAPE_VALUES(&r->key));
        hcp_table_cell(t, "%s", r->mask);
        length_cell(t, r->q_len);
        length_cell(t, r->kv_len);
        show_real(t, 5, r->first_ms);
        show_real(t, 5, r->last_ms);
        hcp_table_cell(t, "%+.2f", 100 * change);
        show_real(t, 0, r->first_sm_clock_mhz);
        show_real(t, 0, r->last_sm_clock_mhz);
        show_real(t, 0, r->seconds);
        origin_cells(t, &r->from);
        return HCP_OK;
    }
    o = json_object();
    put_block(o, &r->key, r->mask, r->q_len, r->kv_len);
    put_real(o, "first_ms", r->first_ms);
    put_real(o, "last_ms", r->last_ms);
    put_real(o, "change", change);
    put_real(o, "first_sm_clock_mhz", r->first_sm_clock_mhz);
    put_real(o, "last_sm_clock_mhz", r->last_sm_clock_mhz);
    put_real(o, "seconds", r->seconds);
    put_provenance(o, &r->from);
    json_array_append_new(p->array, o);
    return HCP_OK;
}

int show_drift(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
               struct hcp_err *err)
{
    static const struct show_column columns[] = {
        {"DEVICE", 0},  {"LIMIT", 0},    {"KERNEL", 0},    {"SHAPE", 0},
        {"MASK", 0},    {"Q_LEN", 1},    {"KV_LEN", 1},    {"FIRST_MS", 1},
        {"LAST_MS", 1}, {"CHANGE_%", 1}, {"FIRST_MHZ", 1}, {"LAST_MHZ", 1},
        {"SECONDS", 1}, {"ORIGIN", 0},   {"RUN", 0},       {NULL, 0}};
    struct printer p = begin(columns, json);

    return finish(&p, hcp_db_each_drift(db, filter, print_drift, &p, err), rows);
}

/* ---- linear ---- */

static int print_linear(const struct hcp_linear_row *r, void *ctx)
{
    struct printer *p = ctx;
    hcp_table *t = p->table;
    json_t *o;

    p->rows++;
    if (!p->array) {
        hcp_table_row(t);
        hcp_table_cell(t, "%s", r->device);
        hcp_table_cell(t, "%s", show_limit(r->limit));
        hcp_table_cell(t, "%s", r->library);
        hcp_table_cell(t, "%s", r->dtype);
        length_cell(t, r->n_in);
        length_cell(t, r->n_out);
        length_cell(t, r->tokens);
        show_real(t, 5, r->time_ms);
        show_real(t, 5, r->p25_ms);
        show_real(t, 5, r->p75_ms);
        show_int(t, r->samples);
        show_real(t, 1, hcp_linear_tflops(r));
        show_real(t, 0, r->sm_clock_mhz);
        show_int(t, r->sm_seen);
        origin_cells(t, &r->from);
        return HCP_OK;
    }
    o = json_object();
    put_text(o, "device", r->device);
    put_limit(o, "limit", r->limit);
    put_text(o, "library", r->library);
    put_text(o, "library_version", r->library_version);
    put_text(o, "dtype", r->dtype);
    put_int(o, "tokens", r->tokens);
    put_int(o, "n_in", r->n_in);
    put_int(o, "n_out", r->n_out);
    put_real(o, "time_ms", r->time_ms);
    put_real(o, "p25_ms", r->p25_ms);
    put_real(o, "p75_ms", r->p75_ms);
    put_int(o, "samples", r->samples);
    put_real(o, "tflops", hcp_linear_tflops(r));
    put_real(o, "sm_clock_mhz", r->sm_clock_mhz);
    put_int(o, "sm_seen", r->sm_seen);
    put_provenance(o, &r->from);
    json_array_append_new(p->array, o);
    return HCP_OK;
}

int show_linear(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows,
                struct hcp_err *err)
{
    static const struct show_column columns[] = {
        {"DEVICE", 0},  {"LIMIT", 0},   {"LIBRARY", 0}, {"DTYPE", 0},  {"N_IN", 1},
        {"N_OUT", 1},   {"TOKENS", 1},  {"TIME_MS", 1}, {"P25_MS", 1}, {"P75_MS", 1},
        {"SAMPLES", 1}, {"TFLOP/S", 1}, {"SM_MHZ", 1},  {"SMS", 1},    {"ORIGIN", 0},
        {"RUN", 0},     {NULL, 0}};
    struct printer p = begin(columns, json);

    return finish(&p, hcp_db_each_linear(db, filter, print_linear, &p, err), rows);
}
