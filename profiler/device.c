/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/device.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

volatile sig_atomic_t hcp_device_cancel;

int hcp_device_ops_of(const char *spec, const struct hcp_device_ops **out,
                      struct hcp_err *err)
{
    static const struct {
        const char *prefix;
        int has_argument; /* 0 never, 1 always, 2 sometimes */
        const struct hcp_device_ops *ops;
    } table[] = {
        {"cpu", 0, &hcp_device_cpu_ops},
        {"cuda", 2, &hcp_device_cuda_ops},
        {"recorded", 1, &hcp_device_recorded_ops},
        {"synthetic", 1, &hcp_device_synthetic_ops},
    };
    size_t len = strcspn(spec, ":");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strlen(table[i].prefix) != len || strncmp(spec, table[i].prefix, len) != 0)
            continue;
        int argument = spec[len] == ':' && spec[len + 1];
        if ((table[i].has_argument == 1 && !argument) ||
            (table[i].has_argument == 0 && spec[len]) || (spec[len] && !argument))
            break;
        *out = table[i].ops;
        return HCP_OK;
    }
    return hcp_fail(
        err, HCP_USAGE,
        "unknown device '%s'; use cuda, cuda:N, cpu, recorded:FILE or synthetic:SPEC "
        "('hcp-profile devices' lists what is here)",
        spec);
}

void hcp_device_slug(const char *name, char *slug, size_t size)
{
    size_t n = 0;
    for (; *name && n + 1 < size; name++) {
        unsigned char c = (unsigned char)*name;
        if (c < 128 && isalnum(c))
            slug[n++] = (char)tolower(c);
        else if (n > 0 && slug[n - 1] != '-')
            slug[n++] = '-';
    }
    while (n > 0 && slug[n - 1] == '-')
        n--;
    if (size > 0)
        slug[n] = '\0';
}

void hcp_cell_facts_init(struct hcp_cell_facts *facts)
{
    *facts = (struct hcp_cell_facts){.cupti_ms = NAN,
                                     .boosted_ms = NAN,
                                     .sm_clock_mhz = NAN,
                                     .mem_clock_mhz = NAN,
                                     .power_w = NAN,
                                     .energy_j = NAN,
                                     .temperature_c = NAN,
                                     .throttle_reasons = -1};
}
