/* SPDX-License-Identifier: Apache-2.0
 *
 * What 'hcp-plan transition --json' printed, as the library would have answered it.
 */
#include "config.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "executor/move.h"
#include "executor/program.h"

static int bad(const char *file, const char *what, struct hcp_err *err)
{
    return hcp_fail(
        err, HCP_FAILED,
        "%s is not what to move: %s; print it with 'hcp-plan transition --json'", file,
        what);
}

/* A whole number from 0 to most; -1: none. */
static int64_t whole(const json_t *o, const char *key, int64_t most)
{
    const json_t *v = json_object_get(o, key);
    int64_t n = json_is_integer(v) ? (int64_t)json_integer_value(v) : -1;

    return n <= most ? n : -1;
}

/* NaN for null, and for what is none. */
static double real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* It must have been made for these plans. */
static int check_fingerprint(const char *file, const json_t *o, const char *key,
                             const hcp_plan *plan, const char *option,
                             struct hcp_err *err)
{
    const char *text = json_string_value(json_object_get(o, key));
    char want[24];

    snprintf(want, sizeof want, "%016" PRIx64, plan->fingerprint);
    if (!text)
        return bad(file, "it does not say of which plans", err);
    return strcmp(text, want) == 0
               ? HCP_OK
               : hcp_fail(
                     err, HCP_FAILED,
                     "%s is for another plan than that of %s (fingerprint %.32s, not "
                     "%s); print it again",
                     file, option, text, want);
}

/* Bytes of so many tokens, all sequences and layers; exact up to 2^53. */
static double bytes_of(const hcp_plan *to, int64_t tokens)
{
    const hcp_shape *s = &to->shape;

    return 2.0 * s->batch * s->kv_heads * s->head_dim *
           (strcmp(s->dtype, "fp32") == 0 ? 4 : 2) * to->layers * (double)tokens;
}

/* Whether a rank has all of a segment by the old plan. */
static int has(const hcp_plan *from, int32_t rank, int64_t at, int64_t n)
{
    const hcp_plan_rank *old = ring_move_old(from, rank);
    const hcp_segment *s = from->segments + old->first_kv_segment;

    for (int64_t i = 0; i < old->n_kv_segments; i++)
        if (at >= s[i].offset && at + n <= s[i].offset + s[i].length)
            return 1;
    return 0;
}

static int read_move(const char *file, const json_t *o, const hcp_plan *old,
                     const hcp_plan *to, hcp_moves *m, struct hcp_err *err)
{
    int64_t last = (int64_t)to->n_ranks - 1, length = to->seq_len, sum = 0;
    int64_t from = whole(o, "from", last), dest = whole(o, "to", last);
    const json_t *segments = json_object_get(o, "segments"), *pair;
    hcp_move *move = &m->moves[m->n_moves];
    size_t i;

    *move = (hcp_move){.from = (int32_t)from,
                       .to = (int32_t)dest,
                       .tokens = whole(o, "tokens", length),
                       .bytes = whole(o, "bytes", HCP_PLAN_MAX_BYTES),
                       .ms = real(o, "ms"),
                       .first_segment = (int64_t)m->n_segments};
    if (from < 0 || dest < 0 || from == dest || move->tokens < 1 ||
        !json_is_array(segments))
        return bad(file, "a move between ranks that there are not, or of no tokens", err);
    json_array_foreach(segments, i, pair)
    {
        int64_t at = json_is_integer(json_array_get(pair, 0))
                         ? (int64_t)json_integer_value(json_array_get(pair, 0))
                         : -1;
        int64_t n = json_is_integer(json_array_get(pair, 1))
                        ? (int64_t)json_integer_value(json_array_get(pair, 1))
                        : -1;

        if (at < 0 || n < 1 || n > length || at > length - n ||
            m->n_segments == m->segments_capacity)
            return bad(file, "a segment outside the sequence", err);
        if (!has(old, move->from, at, n))
            return bad(file, "a segment that is not on the rank that sends it", err);
        m->segments[m->n_segments++] = (hcp_segment){at, n};
        move->n_segments++;
        sum += n;
    }
    m->n_moves++;
    if (sum != move->tokens)
        return bad(file, "segments that are not its tokens", err);
    return (double)move->bytes == bytes_of(to, sum)
               ? HCP_OK
               : bad(file, "bytes that are not those of its tokens", err);
}

static int read_moves(const char *file, const json_t *o, const hcp_plan *from,
                      const hcp_plan *to, hcp_moves *m, struct hcp_err *err)
{
    const json_t *moves = json_object_get(o, "moves"), *move;
    const char *decision = json_string_value(json_object_get(o, "decision"));
    double even = real(o, "break_even_steps");
    int64_t tokens = 0;
    size_t i;
    int rc;

    if (!json_is_object(o) || whole(o, "schema", 1) != 1 || !json_is_array(moves) ||
        !decision)
        return bad(file, "schema, decision or moves are missing", err);
    rc = check_fingerprint(file, o, "from_fingerprint", from, "--from", err);
    if (rc == HCP_OK)
        rc = check_fingerprint(file, o, "to_fingerprint", to, "--to", err);
    for (i = HCP_MOVE_OPEN;
         strcmp(decision, hcp_move_decision_name((hcp_move_decision)i)); i++)
        if (i == HCP_MOVE_GO)
            return bad(file, "no such decision", err);
    m->decision = (hcp_move_decision)i;
    m->tokens = whole(o, "move_tokens", to->seq_len);
    m->bytes = whole(o, "move_bytes", HCP_PLAN_MAX_BYTES);
    m->steps = whole(o, "steps", INT64_C(1) << 40);
    m->move_ms = real(o, "move_ms");
    m->stay_ms = real(o, "stay_ms");
    m->step_ms = real(o, "step_ms");
    m->break_even_steps = isnan(even) ? INFINITY : even;
    json_array_foreach(moves, i, move)
    {
        if (rc == HCP_OK && m->n_moves == m->moves_capacity)
            rc = bad(file, "more moves than ranks", err);
        if (rc == HCP_OK)
            rc = read_move(file, move, from, to, m, err);
        if (rc == HCP_OK)
            tokens += m->moves[i].tokens;
    }
    if (rc == HCP_OK && m->n_moves > 0 &&
        (m->decision == HCP_MOVE_STAY || m->tokens != tokens ||
         (double)m->bytes != bytes_of(to, tokens)))
        rc = bad(file, "its moves are not what it decides to move, or so many bytes",
                 err);
    return rc;
}

int ring_moves_read(const char *file, const hcp_plan *from, const hcp_plan *to,
                    hcp_moves *out, struct hcp_err *err)
{
    FILE *in = fopen(file, "r");
    json_error_t why;
    json_t *json;
    int rc;

    if (!in)
        return hcp_fail(err, HCP_FAILED, "cannot open %s: %s", file, strerror(errno));
    json = json_loadf(in, JSON_REJECT_DUPLICATES, &why);
    fclose(in);
    if (!json)
        return bad(file, why.text, err);
    rc = read_moves(file, json, from, to, out, err);
    json_decref(json);
    return rc;
}
