/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/preference.h"

enum { PREFILL = 0, DECODE = 1 };

struct rule {
    int32_t cc_major, cc_minor, dtype;
    int64_t head_dim;
    int decode;
    const char *names[8]; /* all six built-ins and the NULL after them fit */
};

/* Measured on an H200: kernels/h200-bench.md, "The choice". Not here is what was not
 * measured, or not decided by it: prefill of head dim 64, whose blocks gain only under a
 * mask, and whose rings of 4K blocks lose. */
static const struct rule rules[] = {
    {9, 0, HCP_BF16, 128, PREFILL, {"cuda-wgmma", "cudnn"}},
    {9, 0, HCP_FP16, 128, PREFILL, {"cuda-wgmma", "cudnn"}},
    {9, 0, HCP_BF16, 256, PREFILL, {"cuda-wgmma", "cudnn"}},
    {9, 0, HCP_FP16, 256, PREFILL, {"cuda-wgmma", "cudnn"}},
    {9, 0, HCP_BF16, 64, DECODE, {"cuda-decode", "cudnn"}},
    {9, 0, HCP_BF16, 128, DECODE, {"cuda-decode", "cudnn"}},
    {9, 0, HCP_BF16, 256, DECODE, {"cuda-decode", "cudnn"}},
};

int hcp_is_decode(const hcp_attn_problem *problem)
{
    return problem->q_len <= HCP_DECODE_MAX_Q;
}

const char *const *hcp_preference(const hcp_device_ref *device,
                                  const hcp_attn_problem *problem)
{
    static const char *const none[] = {NULL};

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct rule *r = &rules[i];

        if (device->kind == HCP_DEVICE_CUDA && r->cc_major == device->cc_major &&
            r->cc_minor == device->cc_minor && r->dtype == problem->dtype &&
            r->head_dim == problem->head_dim && r->decode == hcp_is_decode(problem))
            return r->names;
    }
    return none;
}
