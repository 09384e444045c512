# SPDX-License-Identifier: Apache-2.0
# Kernels side by side on a GPU: `make bench-gpu ARGS=--quick` is a sample.
EXTRA_DIST += kernels/h200-bench.md profiler/h200-limiters.md profiler/h200-limiters.csv
if HAVE_CUDA
EXTRA_PROGRAMS += tests/bench-gpu
CLEANFILES += tests/bench-gpu
tests_bench_gpu_SOURCES = tests/bench-gpu.c tests/bench-gpu.h tests/bench-gpu-child.c \
	tests/bench-gpu-copy.c tests/bench-gpu-options.c tests/bench-gpu-ring.c \
	tests/bench-gpu-shapes.c tests/bench-gpu-table.c tests/bench-gpu-watch.c
tests_bench_gpu_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_bench_gpu_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_bench_gpu_LDADD = profiler/libhcpprofiler.la $(PROFILER_CUDA) -lpthread $(LIBM)

# MPS percentages and green contexts of as many SMs, in turn.
EXTRA_PROGRAMS += tests/bench-limiters
CLEANFILES += tests/bench-limiters
tests_bench_limiters_SOURCES = tests/bench-limiters.c
tests_bench_limiters_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_bench_limiters_LDADD = profiler/libhcpprofiler.la $(PROFILER_CUDA) -lpthread $(LIBM)

bench-gpu: tests/bench-gpu
	./tests/bench-gpu $(ARGS)
bench-limiters: tests/bench-limiters
	./tests/bench-limiters $(ARGS)
else
bench-limiters:
	@echo 'bench-limiters: this build has no CUDA (see the summary of configure)' >&2; exit 1
bench-gpu:
	@echo 'bench-gpu: this build has no CUDA (see the summary of configure)' >&2; exit 1
endif
.PHONY: bench-gpu bench-limiters
