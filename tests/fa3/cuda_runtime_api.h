/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in for CUDA's header, for provider-man.sh: names only.
 */
#pragma once
#include <cstddef>
typedef struct CUstream_st *cudaStream_t;
typedef enum cudaError { cudaSuccess = 0 } cudaError_t;
extern "C" cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t);
extern "C" cudaError_t cudaPeekAtLastError();
