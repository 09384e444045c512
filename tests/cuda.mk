# SPDX-License-Identifier: Apache-2.0
dist_check_SCRIPTS += tests/ptxas.sh
TESTS += tests/ptxas.sh
if HAVE_CUDA
CUDA_TEST_LIBS = kernels/libhcpkernels.la kernels/libhcpcuda.a $(CUDA_LIBS)
if HAVE_CMOCKA
check_PROGRAMS += tests/test-cuda
TESTS += tests/test-cuda
tests_test_cuda_SOURCES = tests/test-cuda.c
tests_test_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_cuda_LDADD = $(CUDA_TEST_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/test-cuda-shape
TESTS += tests/test-cuda-shape
tests_test_cuda_shape_SOURCES = tests/test-cuda-shape.c
tests_test_cuda_shape_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_cuda_shape_LDADD = $(CUDA_TEST_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/test-cuda-launch tests/test-cuda-decode
TESTS += tests/test-cuda-launch tests/test-cuda-decode
FAKE_LAUNCH = -Wl,--wrap=cudaFuncSetAttribute,--wrap=__cudaGetKernel \
	-Wl,--wrap=__cudaLaunchKernel,--wrap=cudaLaunchKernel \
	-Wl,--wrap=cudaLaunchKernelExC,--wrap=cudaFuncGetAttributes \
	-Wl,--wrap=cudaGetDriverEntryPointByVersion \
	-Wl,--wrap=cudaPeekAtLastError,--wrap=cudaGetLastError
tests_test_cuda_launch_SOURCES = tests/test-cuda-launch.c tests/cuda-launch-fixture.h
tests_test_cuda_launch_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_launch_LDFLAGS = $(FAKE_LAUNCH)
tests_test_cuda_launch_LDADD = $(CUDA_TEST_LIBS) $(CMOCKA_LIBS)
tests_test_cuda_decode_SOURCES = tests/test-cuda-decode.c tests/cuda-launch-fixture.h
tests_test_cuda_decode_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) $(CUDA_CPPFLAGS)
tests_test_cuda_decode_LDFLAGS = $(FAKE_LAUNCH)
tests_test_cuda_decode_LDADD = $(CUDA_TEST_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/test-prefill-sm80
TESTS += tests/test-prefill-sm80
tests_test_prefill_sm80_SOURCES = tests/test-prefill-sm80.c
tests_test_prefill_sm80_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_prefill_sm80_LDADD = $(CUDA_TEST_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/test-prefill-sm90
TESTS += tests/test-prefill-sm90
tests_test_prefill_sm90_SOURCES = tests/test-prefill-sm90.c
tests_test_prefill_sm90_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) $(CUDA_CPPFLAGS)
tests_test_prefill_sm90_LDFLAGS = -Wl,--wrap=cudaGetDriverEntryPointByVersion \
	-Wl,--wrap=hcp_cuda_launch_prefill_sm90
tests_test_prefill_sm90_LDADD = $(CUDA_TEST_LIBS) $(CMOCKA_LIBS)
if HAVE_CUDNN
check_PROGRAMS += tests/test-cudnn-graph
TESTS += tests/test-cudnn-graph
tests_test_cudnn_graph_SOURCES = tests/test-cudnn-graph.c
tests_test_cudnn_graph_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) $(CUDA_CPPFLAGS) \
	-DHCP_CUDA_LIBDIR=\"$(CUDA_DIR)/lib64\"
tests_test_cudnn_graph_LDADD = $(CUDA_TEST_LIBS) $(CMOCKA_LIBS)
endif
endif

# Skip without a GPU; `make check-gpu` runs them where there is one. Plain TAP: no cmocka.
gpu_kernel_tests = tests/gpu-kernels tests/gpu-merge tests/gpu-runtime
check_PROGRAMS += $(gpu_kernel_tests)
TESTS += $(gpu_kernel_tests)
GPU_TESTS += $(gpu_kernel_tests)
tests_gpu_kernels_SOURCES = tests/gpu-kernels.c tests/gpu-tap.h
tests_gpu_kernels_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_kernels_LDADD = $(CUDA_TEST_LIBS) $(LIBM)
tests_gpu_runtime_SOURCES = tests/gpu-runtime.c tests/gpu-tap.h
tests_gpu_runtime_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_runtime_LDADD = $(CUDA_TEST_LIBS)
tests_gpu_merge_SOURCES = tests/gpu-merge.c tests/gpu-tap.h
tests_gpu_merge_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_merge_LDADD = $(CUDA_TEST_LIBS) $(LIBM)
endif
