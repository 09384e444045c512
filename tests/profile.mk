# SPDX-License-Identifier: Apache-2.0
PROFILER_TEST_LIBS = profiler/libhcpprofiler.la $(PROFILER_CUDA) $(CMOCKA_LIBS)
if HAVE_CMOCKA
check_PROGRAMS += tests/test-stats tests/test-sweep
TESTS += tests/test-stats tests/test-sweep
tests_test_stats_SOURCES = tests/test-stats.c
tests_test_stats_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_stats_LDADD = $(PROFILER_TEST_LIBS)
tests_test_sweep_SOURCES = tests/test-sweep.c
tests_test_sweep_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_test_sweep_LDADD = $(PROFILER_TEST_LIBS)
endif

dist_check_SCRIPTS += tests/profile-run.bats tests/profile-errors.bats tests/gpu-profile.sh
TESTS += tests/profile-run.bats tests/profile-errors.bats tests/gpu-profile.sh
GPU_TESTS += tests/gpu-profile.sh
