/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in for FlashAttention-3's header, for provider-man.sh: of its parameters those
 * that plugin-fa3.cpp sets, by their names and types, in no particular order.
 */
#pragma once
#include <cstdint>

struct Flash_fwd_params {
    void *q_ptr, *k_ptr, *v_ptr, *o_ptr, *softmax_lse_ptr;
    int64_t q_batch_stride, k_batch_stride, v_batch_stride, o_batch_stride;
    int64_t q_row_stride, k_row_stride, v_row_stride, o_row_stride;
    int64_t q_head_stride, k_head_stride, v_head_stride, o_head_stride, v_dim_stride;
    int b, b_k, h, h_k, seqlen_q, seqlen_k, d, d_rounded, dv, dv_rounded;
    int window_size_left, window_size_right, page_size, num_splits, arch, num_sm;
    float scale_softmax;
    bool is_bf16, is_causal;
    int *tile_count_semaphore;
};

template <int Arch, typename T, int kHeadDim, int kHeadDimV, bool Split,
          bool PagedKVNonTMA, bool Has_softcap, bool PackGQA>
void run_mha_fwd_(Flash_fwd_params &params, cudaStream_t stream);
