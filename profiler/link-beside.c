/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "db/parse.h"
#include "kernels/dtype.h"
#include "profiler/link-beside.h"

const char *const hcp_beside_time_names[HCP_BESIDE_TIMES] = {
    [HCP_BESIDE_ALONE] = "alone_ms",
    [HCP_BESIDE_COMPUTE] = "beside_ms",
    [HCP_BESIDE_WAIT] = "wait_ms",
    [HCP_BESIDE_TRANSFER_ALONE] = "transfer_alone_ms",
    [HCP_BESIDE_TRANSFER] = "transfer_beside_ms"};

int64_t hcp_beside_bytes(const struct hcp_beside_job *job, int64_t kv_len)
{
    int32_t dtype = hcp_dtype_of_name(job->dtype);
    return dtype < 0
               ? 0
               : 2 * kv_len * job->kv_heads * job->head_dim * hcp_dtype_bytes(dtype);
}

char *hcp_beside_print(const struct hcp_beside_job *job)
{
    json_t *object = json_object(), *blocks = json_array();
    json_object_set_new(object, "provider", json_string(job->provider));
    json_object_set_new(object, "plugin", json_string(job->plugin));
    json_object_set_new(object, "dtype", json_string(job->dtype));
    json_object_set_new(object, "heads", json_integer(job->heads));
    json_object_set_new(object, "kv_heads", json_integer(job->kv_heads));
    json_object_set_new(object, "head_dim", json_integer(job->head_dim));
    for (size_t i = 0; i < job->n; i++) {
        const struct hcp_beside_block *b = &job->blocks[i];
        json_t *one = json_object();
        json_object_set_new(one, "mask", json_string(b->mask));
        json_object_set_new(one, "q_len", json_integer(b->q_len));
        json_object_set_new(one, "kv_len", json_integer(b->kv_len));
        json_object_set_new(one, "bytes", json_integer(b->bytes));
        json_array_append_new(blocks, one);
    }
    json_object_set_new(object, "blocks", blocks);
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

static int take_text(const json_t *object, const char *name, char *to, size_t size)
{
    const char *text = json_string_value(json_object_get(object, name));
    return !text || (size_t)snprintf(to, size, "%s", text) >= size;
}

static int take_number(const json_t *object, const char *name, int64_t max, int64_t *to)
{
    *to = json_integer_value(json_object_get(object, name));
    return *to < 1 || *to > max;
}

static int take_block(const json_t *one, struct hcp_beside_block *b)
{
    return take_text(one, "mask", b->mask, sizeof b->mask) ||
           take_number(one, "q_len", HCP_LEN_LIMIT, &b->q_len) ||
           take_number(one, "kv_len", HCP_LEN_LIMIT, &b->kv_len) ||
           take_number(one, "bytes", INT64_MAX / 4, &b->bytes);
}

int hcp_beside_parse(const char *text, struct hcp_beside_job *out, struct hcp_err *err)
{
    json_t *object = json_loads(text, 0, NULL);
    const json_t *blocks = json_object_get(object, "blocks");
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    memset(out, 0, sizeof *out);
    int bad = take_text(object, "provider", out->provider, sizeof out->provider) ||
              take_text(object, "plugin", out->plugin, sizeof out->plugin) ||
              take_text(object, "dtype", out->dtype, sizeof out->dtype) ||
              take_number(object, "heads", INT32_MAX, &heads) ||
              take_number(object, "kv_heads", INT32_MAX, &kv_heads) ||
              take_number(object, "head_dim", INT32_MAX, &head_dim) ||
              json_array_size(blocks) < 1 || json_array_size(blocks) > HCP_BESIDE_BLOCKS;
    out->heads = (int32_t)heads;
    out->kv_heads = (int32_t)kv_heads;
    out->head_dim = (int32_t)head_dim;
    for (size_t i = 0; !bad && i < json_array_size(blocks); i++)
        bad = take_block(json_array_get(blocks, i), &out->blocks[out->n++]);
    json_decref(object);
    return bad ? hcp_fail(err, HCP_USAGE,
                          "the blocks to measure beside transfers are not what "
                          "hcp-profile says; hcp-link and hcp-profile must be of one "
                          "version")
               : HCP_OK;
}
