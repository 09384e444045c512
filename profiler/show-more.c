/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/show-fields.h"
#include "profiler/show-rows.h"

/* A kind of row: KIND_fields() names what is shown of it, show_KIND() shows it. */
#define SHOW_KIND(kind)                                                                  \
    static void kind##_of(struct show_fields *f, const void *row)                        \
    {                                                                                    \
        kind##_fields(f, row);                                                           \
    }                                                                                    \
    static int visit_##kind(const struct hcp_##kind##_row *row, void *f)                 \
    {                                                                                    \
        show_row(f, row);                                                                \
        return HCP_OK;                                                                   \
    }                                                                                    \
    int show_##kind(hcp_db *db, const struct hcp_filter *filter, int json, size_t *rows, \
                    struct hcp_err *err)                                                 \
    {                                                                                    \
        static const struct hcp_##kind##_row zero;                                       \
        struct show_fields f;                                                            \
                                                                                         \
        show_begin(&f, kind##_of, &zero, json);                                          \
        return show_end(&f, hcp_db_each_##kind(db, filter, visit_##kind, &f, err),       \
                        rows);                                                           \
    }

static void finish_fields(struct show_fields *f, const struct hcp_finish_row *r)
{
    field_text(f, "DEVICE", "device", r->key.device);
    field_limit(f, "LIMIT", "limit", r->key.limit);
    field_key(f, &r->key);
    field_text(f, "KIND", "kind", r->kind);
    field_int(f, "Q_LEN", "q_len", r->q_len);
    field_real(f, "TIME_MS", "time_ms", 5, r->time_ms);
    field_real(f, "P25_MS", "p25_ms", 5, r->p25_ms);
    field_real(f, "P75_MS", "p75_ms", 5, r->p75_ms);
    field_int(f, "SAMPLES", "samples", r->samples);
    field_int(f, "SMS", "sm_seen", r->sm_seen);
    field_origin(f, &r->from);
}

static void topology_fields(struct show_fields *f, const struct hcp_topology_row *r)
{
    field_text(f, "A", "device", r->device_a);
    field_text(f, "UUID_A", "device_uuid", r->uuid_a);
    field_text(f, "HOST_A", "host", r->from.host);
    field_text(f, "B", "peer_device", r->device_b);
    field_text(f, "UUID_B", "peer_uuid", r->uuid_b);
    field_text(f, "HOST_B", "peer_host", r->host_b);
    field_text(f, "BY", "connection", r->connection);
    field_int(f, "LINKS", "links", r->links);
    field_text(f, "DETAIL", "detail", r->detail);
    field_origin(f, &r->from);
}

static void block_fields(struct show_fields *f, const struct hcp_key *key,
                         const char *mask, int64_t q_len, int64_t kv_len)
{
    field_key(f, key);
    field_text(f, "MASK", "mask", mask);
    field_int(f, "Q_LEN", "q_len", q_len);
    field_int(f, "KV_LEN", "kv_len", kv_len);
}

static void interference_fields(struct show_fields *f,
                                const struct hcp_interference_row *r)
{
    field_end(f, "A", "device", r->key.device, "limit", r->key.limit);
    block_fields(f, &r->key, r->mask, r->q_len, r->kv_len);
    field_end(f, "B", "peer_device", r->device_b, "peer_limit", r->limit_b);
    field_transport(f, r->transport, r->channels);
    field_int(f, "BYTES", "bytes", r->bytes);
    field_real(f, "ALONE_MS", "alone_ms", 5, r->alone_ms);
    field_real(f, "BESIDE_MS", "beside_ms", 5, r->beside_ms);
    field_real(f, "FACTOR", "factor", 3, r->beside_ms / r->alone_ms);
    field_real(f, "TRANSFER_MS", "transfer_alone_ms", 5, r->transfer_alone_ms);
    field_real(f, "BESIDE_MS", "transfer_beside_ms", 5, r->transfer_beside_ms);
    field_real(f, "FACTOR", "transfer_factor", 3,
               r->transfer_beside_ms / r->transfer_alone_ms);
    field_real(f, "WAIT_US", NULL, 3, 1e3 * r->wait_ms);
    field_real(f, NULL, "wait_ms", 0, r->wait_ms);
    field_int(f, "SAMPLES", "samples", r->samples);
    field_int(f, "SMS", "sm_seen", r->sm_seen);
    field_text(f, NULL, "provider_version", r->provider_version);
    field_text(f, NULL, "transport_version", r->transport_version);
    field_origin(f, &r->from);
}

static void drift_fields(struct show_fields *f, const struct hcp_drift_row *r)
{
    const double change = r->last_ms / r->first_ms - 1;

    field_text(f, "DEVICE", "device", r->key.device);
    field_limit(f, "LIMIT", "limit", r->key.limit);
    block_fields(f, &r->key, r->mask, r->q_len, r->kv_len);
    field_real(f, "FIRST_MS", "first_ms", 5, r->first_ms);
    field_real(f, "LAST_MS", "last_ms", 5, r->last_ms);
    field_percent(f, "CHANGE_%", 100 * change);
    field_real(f, NULL, "change", 0, change);
    field_real(f, "FIRST_MHZ", "first_sm_clock_mhz", 0, r->first_sm_clock_mhz);
    field_real(f, "LAST_MHZ", "last_sm_clock_mhz", 0, r->last_sm_clock_mhz);
    field_real(f, "SECONDS", "seconds", 0, r->seconds);
    field_origin(f, &r->from);
}

static void linear_fields(struct show_fields *f, const struct hcp_linear_row *r)
{
    field_text(f, "DEVICE", "device", r->device);
    field_limit(f, "LIMIT", "limit", r->limit);
    field_text(f, "LIBRARY", "library", r->library);
    field_text(f, NULL, "library_version", r->library_version);
    field_text(f, "DTYPE", "dtype", r->dtype);
    field_int(f, NULL, "tokens", r->tokens);
    field_int(f, "N_IN", "n_in", r->n_in);
    field_int(f, "N_OUT", "n_out", r->n_out);
    field_int(f, "TOKENS", NULL, r->tokens);
    field_real(f, "TIME_MS", "time_ms", 5, r->time_ms);
    field_real(f, "P25_MS", "p25_ms", 5, r->p25_ms);
    field_real(f, "P75_MS", "p75_ms", 5, r->p75_ms);
    field_int(f, "SAMPLES", "samples", r->samples);
    field_real(f, "TFLOP/S", "tflops", 1, hcp_linear_tflops(r));
    field_real(f, "SM_MHZ", "sm_clock_mhz", 0, r->sm_clock_mhz);
    field_int(f, "SMS", "sm_seen", r->sm_seen);
    field_origin(f, &r->from);
}

SHOW_KIND(finish)
SHOW_KIND(topology)
SHOW_KIND(interference)
SHOW_KIND(drift)
SHOW_KIND(linear)
