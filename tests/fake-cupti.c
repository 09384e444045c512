/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for CUPTI's activity interface, under its library's name. $FAKE_CUPTI:
 * "lose" loses a record and counts it, "silent" loses one and does not, "slow" finds
 * kernels 10 % longer than they were, "broken" does not start.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fake-cupti.h"

struct record { /* as CUpti_ActivityKernel9 begins */
    int kind;
    char other[12];
    uint64_t start, end;
    char rest[96];
};

static struct {
    void (*request)(uint8_t **, size_t *, size_t *);
    void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
    int enabled, n;
    uint64_t ns[64];
} cupti;

static int is(const char *what)
{
    const char *mode = getenv("FAKE_CUPTI");
    return mode && strcmp(mode, what) == 0;
}

void fake_cupti_kernel(double ms)
{
    if (cupti.enabled && cupti.n < 64)
        cupti.ns[cupti.n++] = (uint64_t)(1e6 * ms * (is("slow") ? 1.1 : 1));
}

int cuptiActivityRegisterCallbacks(void (*request)(uint8_t **, size_t *, size_t *),
                                   void (*complete)(void *, uint32_t, uint8_t *, size_t,
                                                    size_t))
{
    cupti.request = request;
    cupti.complete = complete;
    return is("broken");
}

int cuptiActivityEnable(int kind)
{
    cupti.enabled = kind == 10;
    cupti.n = 0;
    return 0;
}

int cuptiActivityDisable(int kind)
{
    cupti.enabled &= kind != 10;
    return 0;
}

int cuptiActivityFlushAll(uint32_t flags)
{
    uint8_t *buffer = NULL;
    size_t size = 0, most = 0, n = 0;
    (void)flags;
    cupti.request(&buffer, &size, &most);
    struct record *records = (struct record *)(void *)buffer;
    int lost = is("lose") || is("silent");
    for (int i = lost; i < cupti.n && (n + 2) * sizeof *records <= size; i++) {
        records[n++] = (struct record){.kind = 1}; /* of another kind: a copy */
        records[n++] =
            (struct record){.kind = 10, .start = 1000, .end = 1000 + cupti.ns[i]};
    }
    cupti.complete(NULL, 0, buffer, size, n * sizeof *records);
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    struct record *next = *record ? (struct record *)*record + 1 : (void *)buffer;
    if ((uint8_t *)(next + 1) > buffer + valid)
        return 12; /* CUPTI_ERROR_MAX_LIMIT_REACHED */
    *record = next;
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context, (void)stream;
    *dropped = is("lose");
    return 0;
}
