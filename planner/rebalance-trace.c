/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include "db/cli.h"
#include "planner/rebalance-trace.h"

static int wrong(const struct trace *t, struct hcp_err *err, const char *what)
{
    return hcp_fail(err, HCP_USAGE, "%s, line %zu: %s", t->path, t->line, what);
}

int trace_open(const char *path, size_t n_ranks, struct trace *t, struct hcp_err *err)
{
    *t = (struct trace){.path = strcmp(path, "-") == 0 ? "standard input" : path,
                        .n_ranks = n_ranks};
    t->in = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!t->in)
        return hcp_fail(err, HCP_FAILED, "cannot open %s: %s", path, strerror(errno));
    t->line = 1;
    if (getline(&t->text, &t->room, t->in) < 0) {
        if (ferror(t->in))
            return hcp_fail(err, HCP_FAILED, "cannot read %s: %s", path, strerror(errno));
        return wrong(t, err, "the trace is empty; its first line is step,rank,ms");
    }
    t->text[strcspn(t->text, "\r\n")] = 0;
    if (strcmp(t->text, "step,rank,ms") != 0)
        return wrong(t, err, "expected the header step,rank,ms");
    return HCP_OK;
}

/* NaN: no time, of a rank that failed. */
static int read_ms(const char *text, double *ms)
{
    struct hcp_err why;

    *ms = NAN;
    if (!*text || strcmp(text, "failed") == 0 || strcmp(text, "nan") == 0)
        return 0;
    return hcp_parse_double(text, ms, &why) || *ms < 0 ? -1 : 0;
}

int trace_next(struct trace *t, struct trace_time *out, struct hcp_err *err)
{
    char *rank, *ms;
    int64_t number;
    ssize_t length;

    errno = 0;
    length = getline(&t->text, &t->room, t->in);
    if (length < 0) {
        out->step = -1;
        return ferror(t->in) ? hcp_fail(err, HCP_FAILED, "cannot read %s: %s", t->path,
                                        strerror(errno))
                             : HCP_OK;
    }
    t->line++;
    if (memchr(t->text, 0, (size_t)length))
        return wrong(t, err, "a zero byte, which no text has");
    t->text[strcspn(t->text, "\r\n")] = 0;
    rank = strchr(t->text, ',');
    ms = rank ? strchr(rank + 1, ',') : NULL;
    if (!ms || strchr(ms + 1, ','))
        return wrong(t, err, "expected step,rank,ms");
    *rank++ = 0;
    *ms++ = 0;
    if (hcp_parse_int(t->text, "step", 0, (int64_t)1 << 40, &out->step, NULL))
        return wrong(t, err, "the step is not a whole number");
    if (out->step < t->step)
        return wrong(t, err, "steps are to ascend");
    if (hcp_parse_int(rank, "rank", 0, (int64_t)t->n_ranks - 1, &number, NULL))
        return wrong(t, err, "the rank is none of the plan's");
    if (read_ms(ms, &out->ms))
        return wrong(t, err,
                     "the time is neither in ms, 0 or more, nor 'failed' or nothing");
    out->rank = (size_t)number;
    t->step = out->step;
    return HCP_OK;
}

void trace_close(struct trace *t)
{
    if (t->in && t->in != stdin)
        fclose(t->in);
    free(t->text);
    *t = (struct trace){0};
}
