# SPDX-License-Identifier: Apache-2.0
PROFILER_TEST_LIBS = profiler/libhcpprofiler.la $(PROFILER_CUDA) $(CMOCKA_LIBS)
if HAVE_CMOCKA
profiler_tests = tests/test-stats tests/test-sweep tests/test-predict tests/test-limiter \
	tests/test-bench tests/test-drift
check_PROGRAMS += $(profiler_tests)
TESTS += $(profiler_tests)
check_PROGRAMS += tests/test-green
TESTS += tests/test-green
tests_test_green_SOURCES = tests/test-green.c tests/fake-cuda-driver.h
tests_test_green_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_green_LDADD = $(PROFILER_TEST_LIBS)
if HAVE_CUDA
check_PROGRAMS += tests/test-green-cuda
TESTS += tests/test-green-cuda
tests_test_green_cuda_SOURCES = tests/test-green-cuda.c tests/fake-cuda-driver.h
tests_test_green_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) $(CUDA_CPPFLAGS)
tests_test_green_cuda_LDFLAGS = -Wl,--wrap=cudaGetDevice,--wrap=cudaSetDevice \
	-Wl,--wrap=cudaGetDeviceCount,--wrap=cudaGetDeviceProperties \
	-Wl,--wrap=cudaDeviceGetAttribute,--wrap=cudaMalloc \
	-Wl,--wrap=cudaFree,--wrap=cudaMemsetAsync \
	-Wl,--wrap=cudaMemcpyAsync,--wrap=cudaStreamSynchronize \
	-Wl,--wrap=cudaStreamCreateWithFlags,--wrap=cudaStreamDestroy \
	-Wl,--wrap=cudaStreamBeginCapture,--wrap=cudaStreamEndCapture \
	-Wl,--wrap=cudaGraphInstantiate,--wrap=cudaGraphLaunch \
	-Wl,--wrap=cudaGraphExecDestroy,--wrap=cudaGraphDestroy \
	-Wl,--wrap=hcp_mark_sms_launch
tests_test_green_cuda_LDADD = $(PROFILER_TEST_LIBS)
else
EXTRA_DIST += tests/test-green-cuda.c
endif
tests_test_drift_SOURCES = tests/test-drift.c tests/db-fixture.h
tests_test_drift_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_drift_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_test_drift_LDFLAGS = -Wl,--wrap=time
tests_test_drift_LDADD = $(PROFILER_TEST_LIBS)
tests_test_bench_SOURCES = tests/test-bench.c
tests_test_bench_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_bench_LDADD = $(PROFILER_TEST_LIBS)
tests_test_limiter_SOURCES = tests/test-limiter.c tests/mps-fixture.h
tests_test_limiter_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_limiter_LDADD = $(PROFILER_TEST_LIBS)
tests_test_predict_SOURCES = tests/test-predict.c
tests_test_predict_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_predict_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_test_predict_LDADD = $(PROFILER_TEST_LIBS)
tests_test_stats_SOURCES = tests/test-stats.c
tests_test_stats_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_stats_LDFLAGS = -Wl,--wrap=clock_gettime
tests_test_stats_LDADD = $(PROFILER_TEST_LIBS)
tests_test_sweep_SOURCES = tests/test-sweep.c
tests_test_sweep_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_sweep_LDADD = $(PROFILER_TEST_LIBS)
endif

if HAVE_CMOCKA
check_PROGRAMS += tests/test-compare
TESTS += tests/test-compare
tests_test_compare_SOURCES = tests/test-compare.c
tests_test_compare_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_test_compare_LDADD = db/libhcpaudit.la db/libhcpdb.la $(CMOCKA_LIBS) $(SQLITE_LIBS) $(LIBM)
endif

if HAVE_CMOCKA
check_PROGRAMS += tests/test-topology
TESTS += tests/test-topology
tests_test_topology_SOURCES = tests/test-topology.c
tests_test_topology_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_topology_LDADD = profiler/libhcptopology.la $(CMOCKA_LIBS)
endif

# hcp-profile run with a registry of its own, and a holder of locks.
check_PROGRAMS += tests/profile-fixture
tests_profile_fixture_SOURCES = tests/profile-fixture.c tests/faulty-provider.c \
	tests/faulty-provider.h profiler/cmd-run.c
tests_profile_fixture_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_profile_fixture_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=nanosleep
tests_profile_fixture_LDADD = profiler/libhcpprofiler.la $(PROFILER_CUDA)

# In the CUDA driver's place; and one from before green contexts.
check_LTLIBRARIES += tests/fake-cuda-driver.la tests/fake-cuda-driver-old.la
fake_driver_sources = tests/fake-cuda-driver.c tests/fake-cuda-driver.h
tests_fake_cuda_driver_la_SOURCES = $(fake_driver_sources)
tests_fake_cuda_driver_la_CPPFLAGS = -I$(top_srcdir)
tests_fake_cuda_driver_la_LDFLAGS = $(plugin_ldflags)
tests_fake_cuda_driver_old_la_SOURCES = $(fake_driver_sources)
tests_fake_cuda_driver_old_la_CPPFLAGS = -I$(top_srcdir) -DFAKE_CUDA_OLD
tests_fake_cuda_driver_old_la_LDFLAGS = $(plugin_ldflags)
# hcp-profile run on a fake GPU, with fakes of the libraries that belong to one.
check_PROGRAMS += tests/gpu-machine
tests_gpu_machine_SOURCES = tests/gpu-machine.c tests/fake-nvml.h tests/fake-cupti.h \
	profiler/device-cuda.c profiler/cuda-timer.h profiler/cmd-run.c
tests_gpu_machine_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
tests_gpu_machine_LDFLAGS = -Wl,--wrap=clock_gettime,--wrap=nanosleep
tests_gpu_machine_LDADD = profiler/libhcpprofiler.la
check_LTLIBRARIES += tests/fake-nvml.la tests/fake-cupti.la
tests_fake_nvml_la_SOURCES = tests/fake-nvml.c tests/fake-nvml.h
tests_fake_nvml_la_LDFLAGS = $(plugin_ldflags)
tests_fake_nvml_la_LIBADD = $(LIBM)
tests_fake_cupti_la_SOURCES = tests/fake-cupti.c tests/fake-cupti.h
tests_fake_cupti_la_LDFLAGS = $(plugin_ldflags)

if HAVE_CUDA
check_PROGRAMS += tests/gpu-clocks
TESTS += tests/gpu-clocks
GPU_TESTS += tests/gpu-clocks
tests_gpu_clocks_SOURCES = tests/gpu-clocks.c tests/gpu-tap.h
tests_gpu_clocks_LDADD = profiler/libhcpprofiler.la $(PROFILER_CUDA)
else
EXTRA_DIST += tests/gpu-clocks.c
endif

check_LTLIBRARIES += tests/plugin-faulty.la
tests_plugin_faulty_la_SOURCES = tests/plugin-faulty.c
tests_plugin_faulty_la_CPPFLAGS = -I$(top_srcdir) $(plugin_cppflags)
tests_plugin_faulty_la_LDFLAGS = $(plugin_ldflags)
tests_plugin_faulty_la_LIBADD = $(LIBM)
$(tests_plugin_faulty_la_OBJECTS): tests/include/hcp/provider.h

EXTRA_DIST += tests/fake-mps-control tests/guards.md tests/guards-lib.bash tests/scale.bash
# The longest first: they mostly wait, and others run beside them.
profiler_scripts = tests/profile-clocks.bats tests/profile-lost.bats tests/profile-guards.bats \
	tests/profile-run.bats tests/profile-adaptive.bats \
	tests/profile-errors.bats tests/profile-durable.bats \
	tests/profile-finish.bats tests/profile-link.bats tests/profile-beside.bats \
	tests/profile-check.bats tests/profile-check-rows.bats tests/profile-diff.bats tests/profile-man.sh \
	tests/guards.sh \
	tests/gpu-profile.sh
dist_check_SCRIPTS += $(profiler_scripts)
TESTS += $(profiler_scripts)
GPU_TESTS += tests/gpu-profile.sh
