/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/preference.h"

enum { PREFILL = 0, DECODE = 1 };

struct rule {
    int32_t cc_major, cc_minor, dtype;
    int64_t head_dim;
    int decode;
    const char *names[4];
};

int hcp_is_decode(const hcp_attn_problem *problem)
{
    return problem->q_len <= HCP_DECODE_MAX_Q;
}

const char *const *hcp_preference(const hcp_device_ref *device,
                                  const hcp_attn_problem *problem)
{
    static const char *const none[] = {NULL};
    static const struct rule rules[] = {{0}};

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct rule *r = &rules[i];

        if (device->kind == HCP_DEVICE_CUDA && r->cc_major == device->cc_major &&
            r->cc_minor == device->cc_minor && r->dtype == problem->dtype &&
            r->head_dim == problem->head_dim && r->decode == hcp_is_decode(problem))
            return r->names;
    }
    return none;
}
