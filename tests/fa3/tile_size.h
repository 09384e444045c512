/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in for FlashAttention-3's header, for provider-man.sh: names only.
 */
#pragma once
#include <tuple>
std::tuple<int, int, bool, bool> tile_size_fwd_sm90(int headdim, int headdim_v,
                                                    bool is_causal, bool is_local);
