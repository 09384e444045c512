/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in for CUTLASS's header, for provider-man.sh: names only.
 */
#pragma once
namespace cutlass
{
struct bfloat16_t;
struct half_t;
}
