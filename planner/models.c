/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "planner/specs.h"

/* FNV-1a, 64 bit, over bytes that are the same on every machine. */
static uint64_t hash_u64(uint64_t h, uint64_t v)
{
    for (int i = 0; i < 8; i++) {
        h ^= v >> (8 * i) & 0xff;
        h *= UINT64_C(0x100000001b3);
    }
    return h;
}

static uint64_t content_hash(const struct hcp_model_row *row,
                             const struct hcp_named_array *arrays, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325), bits;

    for (const char *c = row->kind; *c; c++)
        h = hash_u64(h, (unsigned char)*c);
    h = hash_u64(h, (uint64_t)row->format);
    for (size_t i = 0; i < n; i++) {
        for (const char *c = arrays[i].name; *c; c++)
            h = hash_u64(h, (unsigned char)*c);
        h = hash_u64(h, arrays[i].n);
        for (size_t k = 0; k < arrays[i].n; k++) {
            memcpy(&bits, &arrays[i].v[k], sizeof bits);
            h = hash_u64(h, bits);
        }
    }
    return h;
}

struct loading {
    hcp_models *models;
    size_t room, arrays_room;
    struct hcp_err *err;
};

static void free_arrays(struct stored_arrays *a)
{
    for (size_t i = 0; a->array && i < a->n; i++)
        free(a->array[i].v);
    free(a->array);
}

/* What the model to come, number n_stored, is made of. */
static int keep_arrays(struct loading *load, const struct hcp_named_array *arrays,
                       size_t n)
{
    hcp_models *models = load->models;
    struct stored_arrays *a;

    if (models->n_stored == load->arrays_room) {
        size_t room = load->arrays_room ? 2 * load->arrays_room : 16;

        a = realloc(models->arrays, room * sizeof *a);
        if (!a)
            return -1;
        models->arrays = a;
        load->arrays_room = room;
    }
    a = &models->arrays[models->n_stored];
    a->n = n;
    a->array = calloc(n + 1, sizeof *a->array);
    for (size_t i = 0; a->array && i < n; i++) {
        a->array[i] = arrays[i];
        a->array[i].v = malloc((arrays[i].n + 1) * sizeof *arrays[i].v);
        if (!a->array[i].v) {
            free_arrays(a);
            return -1;
        }
        memcpy(a->array[i].v, arrays[i].v, arrays[i].n * sizeof *arrays[i].v);
    }
    return a->array ? 0 : -1;
}

static int add_model(const struct hcp_model_row *row,
                     const struct hcp_named_array *arrays, size_t n_arrays, void *ctx)
{
    struct loading *load = ctx;
    hcp_models *models = load->models;
    struct stored_model *entry;
    int rc;

    if (models->n_stored == load->room) {
        size_t room = load->room ? 2 * load->room : 16;

        entry = realloc(models->stored, room * sizeof *entry);
        if (!entry)
            return hcp_fail(load->err, HCP_FAILED, "out of memory for models");
        models->stored = entry;
        load->room = room;
    }
    entry = &models->stored[models->n_stored];
    *entry = (struct stored_model){NULL, content_hash(row, arrays, n_arrays), 0};
    rc = hcp_model_create(row, arrays, n_arrays, &entry->model, load->err);
    if (rc == HCP_OK && models->specs && keep_arrays(load, arrays, n_arrays)) {
        hcp_model_free(entry->model);
        rc = hcp_fail(load->err, HCP_FAILED, "out of memory for models");
    }
    if (rc == HCP_OK && models->specs)
        estimate_know(models->specs, &row->key, &models->arrays[models->n_stored]);
    if (rc == HCP_OK)
        models->n_stored++;
    return rc;
}

static int take_sm_count(const struct hcp_cell *cell, void *ctx)
{
    *(int32_t *)ctx = cell->sm_count;
    return cell->sm_count > 0; /* one is enough */
}

/* What part of the device "green:24" is depends on its SM count. */
static int read_sm_counts(hcp_db *db, hcp_models *models, struct hcp_err *err)
{
    models->sm_count = calloc(models->n_measured + 1, sizeof *models->sm_count);
    if (!models->sm_count)
        return hcp_fail(err, HCP_FAILED, "out of memory for models");
    for (size_t i = 0; i < models->n_measured; i++) {
        struct hcp_filter filter = {.device = models->measured[i].device,
                                    .limit = models->measured[i].limit,
                                    .limit_set = 1};
        int rc;

        models->sm_count[i] = -1;
        if (strncmp(models->measured[i].limit, "green:", 6) != 0)
            continue;
        rc = hcp_db_each_cell(db, &filter, 0, take_sm_count, &models->sm_count[i], err);
        if (rc != HCP_OK && rc != 1)
            return rc;
        if (rc == 1 && models->sm_count[i] <= 0)
            return rc;
    }
    return HCP_OK;
}

static int read_models(hcp_db *db, hcp_models *models, struct hcp_err *err)
{
    struct hcp_filter any = {0};
    struct loading load = {models, 0, 0, err};
    int rc = hcp_db_each_model(db, &any, add_model, &load, err);

    for (size_t i = 0; rc == HCP_OK && i < models->n_stored; i++) {
        const struct hcp_model_row *row = hcp_model_row(models->stored[i].model);
        uint64_t now;

        rc = hcp_db_samples_hash(db, &row->key, &now, err);
        models->stored[i].stale = rc == HCP_OK && now != row->samples_hash;
    }
    if (rc == HCP_OK)
        rc = hcp_db_keys(db, &any, &models->measured, &models->n_measured, err);
    if (rc == HCP_OK)
        rc = read_sm_counts(db, models, err);
    return rc;
}

hcp_status hcp_models_load(const char *path, char *text, size_t text_size,
                           hcp_models **out)
{
    return hcp_models_load_specs(path, NULL, text, text_size, out);
}

hcp_status hcp_models_load_specs(const char *path, const hcp_specs *specs, char *text,
                                 size_t text_size, hcp_models **out)
{
    struct hcp_err err = {0};
    hcp_models *models;
    hcp_db *db;
    int rc;

    if (!path || !out || strlen(path) >= sizeof models->path)
        return plan_fail(text, text_size, HCP_STATUS_INVALID,
                         "no database path, or one of more than %zu characters",
                         sizeof models->path - 1);
    models = calloc(1, sizeof *models);
    if (!models || (specs && !(models->specs = specs_copy(specs)))) {
        free(models);
        return plan_fail(text, text_size, HCP_STATUS_NO_MEMORY, "out of memory");
    }
    memcpy(models->path, path, strlen(path) + 1);
    rc = hcp_db_open(path, HCP_DB_READ, &db, &err);
    if (rc == HCP_OK) {
        rc = read_models(db, models, &err);
        hcp_db_close(db);
    }
    if (rc != HCP_OK) {
        hcp_models_free(models);
        return plan_fail(text, text_size, HCP_STATUS_IO, "%s", err.text);
    }
    *out = models;
    return HCP_STATUS_OK;
}

void hcp_models_free(hcp_models *models)
{
    if (!models)
        return;
    for (size_t i = 0; i < models->n_stored; i++)
        hcp_model_free(models->stored[i].model);
    for (size_t i = 0; models->arrays && i < models->n_stored; i++)
        free_arrays(&models->arrays[i]);
    hcp_specs_free(models->specs);
    free(models->arrays);
    free(models->stored);
    free(models->measured);
    free(models->sm_count);
    free(models);
}
