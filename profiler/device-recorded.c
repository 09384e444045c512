/* SPDX-License-Identifier: Apache-2.0
 *
 * A machine that was measured before: answers with its stored cells, exactly those
 * and nothing between them. FILE is a database, a CSV or JSON-lines file, or the
 * name of a recorded machine that is installed with the program.
 */
#include "config.h"
#include "profiler/device.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "db/text.h"

struct recorded {
    hcp_device base;
    struct hcp_cell *cells; /* of the limit and shape; raw_ms owned */
    size_t n;
    const struct hcp_cell *cell; /* prepared */
};

struct cell_list {
    const struct hcp_device_config *config;
    struct hcp_cell *cells;
    size_t n, room;
    int out_of_memory;
    int other_shapes; /* cells that were left out for their shape */
};

static int same_shape(const struct hcp_key *key, const struct hcp_device_config *config)
{
    return strcmp(key->dtype, config->dtype) == 0 && key->batch == config->batch &&
           key->heads == config->heads && key->kv_heads == config->kv_heads &&
           key->head_dim == config->head_dim &&
           (!*config->provider || strcmp(key->provider, config->provider) == 0);
}

static int add_cell(const struct hcp_cell *cell, void *ctx)
{
    struct cell_list *list = ctx;
    if (strcmp(cell->status, "ok") != 0)
        return 0;
    if (!same_shape(&cell->key, list->config)) {
        list->other_shapes++;
        return 0;
    }
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 256;
        struct hcp_cell *more = realloc(list->cells, room * sizeof *more);
        if (!more) {
            list->out_of_memory = 1;
            return 1;
        }
        list->cells = more;
        list->room = room;
    }
    struct hcp_cell *copy = &list->cells[list->n];
    *copy = *cell;
    copy->raw_ms = NULL;
    if (cell->n_raw > 0) {
        copy->raw_ms = malloc((size_t)cell->n_raw * sizeof *copy->raw_ms);
        if (!copy->raw_ms) {
            list->out_of_memory = 1;
            return 1;
        }
        memcpy(copy->raw_ms, cell->raw_ms, (size_t)cell->n_raw * sizeof *copy->raw_ms);
    }
    list->n++;
    return 0;
}

static void free_cells(struct hcp_cell *cells, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(cells[i].raw_ms);
    free(cells);
}

static int is_database(const char *path)
{
    char head[16] = "";
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    return n == sizeof head && memcmp(head, "SQLite format 3", 16) == 0;
}

static int read_cells(const char *file, struct cell_list *list, struct hcp_err *err)
{
    if (is_database(file)) {
        hcp_db *db;
        int rc = hcp_db_open(file, HCP_DB_READ, &db, err);
        if (rc != HCP_OK)
            return rc;
        rc = hcp_db_each_cell(db, NULL, 1, add_cell, list, err);
        hcp_db_close(db);
        return rc;
    }
    FILE *in;
    char path[1024];
    struct hcp_text text;
    int rc = hcp_text_open(file, &in, path, sizeof path, err);
    if (rc != HCP_OK)
        return rc;
    rc = hcp_text_load(in, path, HCP_TEXT_AUTO, 0, &text, err);
    if (in != stdin)
        fclose(in);
    if (rc != HCP_OK)
        return rc;
    for (size_t i = 0; i < text.n_cells && add_cell(&text.cells[i], list) == 0; i++)
        ;
    hcp_text_free(&text);
    return HCP_OK;
}

/* The cells of one kernel on one device; the kernel with most cells where several
 * were recorded and none was asked for. */
static void keep_one_kernel(struct cell_list *list)
{
    const struct hcp_key *best = NULL;
    size_t best_n = 0, kept = 0;
    for (size_t i = 0; i < list->n; i++) {
        size_t count = 0;
        for (size_t k = 0; k < list->n; k++)
            count +=
                strcmp(list->cells[k].key.provider, list->cells[i].key.provider) == 0 &&
                strcmp(list->cells[k].key.device, list->cells[i].key.device) == 0;
        if (count > best_n) {
            best_n = count;
            best = &list->cells[i].key;
        }
    }
    struct hcp_key key = best ? *best : (struct hcp_key){0};
    for (size_t i = 0; i < list->n; i++) {
        struct hcp_cell *c = &list->cells[i];
        if (strcmp(c->key.provider, key.provider) == 0 &&
            strcmp(c->key.device, key.device) == 0)
            list->cells[kept++] = *c;
        else
            free(c->raw_ms);
    }
    list->n = kept;
}

static int load(const struct hcp_device_config *config, struct cell_list *list,
                struct hcp_err *err)
{
    *list = (struct cell_list){.config = config};
    const char *file = strchr(config->spec, ':') + 1;
    int rc = read_cells(file, list, err);
    if (rc == HCP_OK && list->out_of_memory)
        rc = hcp_fail(err, HCP_FAILED, "out of memory reading %s", file);
    if (rc == HCP_OK && list->n == 0)
        rc = hcp_fail(
            err, HCP_NO_ANSWER,
            "%s has no cell of %d/%d heads, head dim %d, %s, batch %d%s%s%s", file,
            (int)config->heads, (int)config->kv_heads, (int)config->head_dim,
            config->dtype, (int)config->batch, *config->provider ? ", kernel " : "",
            config->provider,
            list->other_shapes
                ? "; it has others: give --heads, --kv-heads, --head-dim, --dtype"
                : "");
    if (rc != HCP_OK) {
        free_cells(list->cells, list->n);
        return rc;
    }
    keep_one_kernel(list);
    return HCP_OK;
}

int hcp_recorded_cells(const struct hcp_device_config *config, struct hcp_cell **cells,
                       size_t *n, struct hcp_err *err)
{
    struct cell_list list;
    int rc = load(config, &list, err);
    if (rc != HCP_OK)
        return rc;
    for (size_t i = 0; i < list.n; i++) {
        free(list.cells[i].raw_ms);
        list.cells[i].raw_ms = NULL;
    }
    *cells = list.cells;
    *n = list.n;
    return HCP_OK;
}

static int recorded_open(const struct hcp_device_config *config, hcp_device **out,
                         struct hcp_err *err)
{
    struct cell_list list;
    int rc = load(config, &list, err);
    if (rc != HCP_OK)
        return rc;
    struct recorded *r = calloc(1, sizeof *r);
    if (!r) {
        free_cells(list.cells, list.n);
        return hcp_fail(err, HCP_FAILED, "out of memory");
    }
    r->base.ops = &hcp_device_recorded_ops;
    struct hcp_device_info *info = &r->base.info;
    const struct hcp_cell *first = &list.cells[0];
    strcpy(info->slug, first->key.device);
    strcpy(info->name, first->device_name);
    strcpy(info->uuid, first->device_uuid);
    /* What was synthetic when it was recorded stays synthetic. */
    strcpy(info->origin,
           strcmp(first->origin, "synthetic") == 0 ? "synthetic" : "recorded");
    char kind[8] = "";
    int32_t value;
    for (size_t i = 0; i < list.n && !*kind; i++)
        hcp_parse_limit(list.cells[i].key.limit, kind, &value, NULL);
    strcpy(info->limit_kind, *kind ? kind : "mps");
    info->sm_count = first->sm_count;
    info->peak_tflops = first->peak_tflops;
    strcpy(info->driver, first->driver);
    strcpy(info->cuda_version, first->cuda_version);
    strcpy(info->provider, first->key.provider);
    strcpy(info->provider_version, first->provider_version);
    for (size_t i = 0; i < list.n; i++) { /* the cells of the limit only */
        struct hcp_cell *c = &list.cells[i];
        if (strcmp(c->key.limit, config->limit) == 0) {
            if (c->sm_seen > 0)
                info->sm_seen = c->sm_seen;
            r->n++;
            struct hcp_cell swap = list.cells[r->n - 1];
            list.cells[r->n - 1] = *c;
            *c = swap;
        }
    }
    for (size_t i = r->n; i < list.n; i++)
        free(list.cells[i].raw_ms);
    r->cells = list.cells;
    *out = &r->base;
    return HCP_OK;
}

static int recorded_check(hcp_device *device, char result[64], struct hcp_err *err)
{
    (void)device, (void)err;
    strcpy(result, "not run: recorded");
    return HCP_OK;
}

static int recorded_prepare(hcp_device *device, const struct hcp_cell_request *cell,
                            struct hcp_err *err)
{
    struct recorded *r = (struct recorded *)device;
    r->cell = NULL;
    for (size_t i = 0; i < r->n; i++)
        if (r->cells[i].q_len == cell->q_len && r->cells[i].kv_len == cell->kv_len &&
            strcmp(r->cells[i].mask, cell->mask) == 0)
            r->cell = &r->cells[i];
    return r->cell ? HCP_OK : hcp_fail(err, HCP_NO_ANSWER, "not recorded");
}

/* Where only the summary was recorded, the samples are what it can be told by. */
static int recorded_time(hcp_device *device, const struct hcp_cell_request *request,
                         struct hcp_cell_facts *facts, double **samples,
                         struct hcp_err *err)
{
    const struct hcp_cell *c = ((struct recorded *)device)->cell;
    (void)request;
    hcp_cell_facts_init(facts);
    facts->n = c->n_raw > 0 ? c->n_raw : 1;
    *samples = malloc((size_t)facts->n * sizeof **samples);
    if (!*samples)
        return hcp_fail(err, HCP_FAILED, "out of memory");
    if (c->n_raw > 0)
        memcpy(*samples, c->raw_ms, (size_t)c->n_raw * sizeof **samples);
    else
        **samples = c->time_ms;
    strcpy(facts->method, "recorded");
    strcpy(facts->cache, c->cache);
    strcpy(facts->stop_reason, c->stop_reason);
    strcpy(facts->provider_config, c->provider_config);
    facts->cupti_ms = c->cupti_ms;
    facts->sm_clock_mhz = c->sm_clock_mhz;
    facts->mem_clock_mhz = c->mem_clock_mhz;
    facts->power_w = c->power_w;
    facts->energy_j = c->energy_j;
    facts->temperature_c = c->temperature_c;
    facts->throttle_reasons = c->throttle_reasons;
    facts->tile_q = c->tile_q;
    facts->tile_kv = c->tile_kv;
    snprintf(facts->note, sizeof facts->note, "replay of run %s%s%.190s", c->run_uid,
             *c->note ? "; " : "", c->note);
    return HCP_OK;
}

static void recorded_close(hcp_device *device)
{
    struct recorded *r = (struct recorded *)device;
    if (r)
        free_cells(r->cells, r->n);
    free(r);
}

const struct hcp_device_ops hcp_device_recorded_ops = {
    .kind = "recorded",
    .open = recorded_open,
    .check = recorded_check,
    .prepare = recorded_prepare,
    .time = recorded_time,
    .close = recorded_close,
};
