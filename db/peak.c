/* SPDX-License-Identifier: Apache-2.0
 *
 * Data-sheet rooflines, the one place for them: dense (no sparsity) tensor-core
 * peaks in TFLOP/s from NVIDIA's product data sheets (A100, A10, A30, L4, L40, L40S,
 * H100, H200, B200; the sheets of the Hopper and later cards print figures with
 * sparsity, halved here). fp32: TF32 tensor cores, an upper bound for kernels that
 * use plain FP32. Where a name covers several boards, the fastest. They only refuse
 * rows that cannot be true.
 */
#include "config.h"
#include <math.h>
#include <string.h>
#include "db/db.h"

static const struct {
    const char *slug;
    double half, fp32; /* bf16 and fp16; fp32 */
} peaks[] = {
    {"nvidia-a10", 125, 62.5},
    {"nvidia-a100", 312, 156},
    {"nvidia-a100-pcie-40gb", 312, 156},
    {"nvidia-a100-pcie-80gb", 312, 156},
    {"nvidia-a100-sxm4-40gb", 312, 156},
    {"nvidia-a100-sxm4-80gb", 312, 156},
    {"nvidia-a100-80gb-pcie", 312, 156},
    {"nvidia-a30", 165, 82},
    {"nvidia-b200", 2250, 1125},
    {"nvidia-h100", 989.4, 494.7},
    {"nvidia-h100-80gb-hbm3", 989.4, 494.7},
    {"nvidia-h100-nvl", 989.4, 494.7}, /* the sheet's 835 is at its lower clock */
    {"nvidia-h100-pcie", 756, 378},
    {"nvidia-h200", 989.4, 494.7},
    {"nvidia-h200-nvl", 989.4, 494.7},
    {"nvidia-l4", 121, 60},
    {"nvidia-l40", 181.05, 90.5},
    {"nvidia-l40s", 362.05, 183},
};

double hcp_peak_tflops(const char *device, const char *dtype)
{
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++)
        if (!strcmp(device, peaks[i].slug))
            return strcmp(dtype, "fp32") ? peaks[i].half : peaks[i].fp32;
    return NAN;
}
