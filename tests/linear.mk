# SPDX-License-Identifier: Apache-2.0
# Linear layers and decode batches.
if HAVE_CMOCKA
check_PROGRAMS += tests/test-gemm tests/test-linear tests/test-blend
TESTS += tests/test-gemm tests/test-linear tests/test-blend
tests_test_gemm_SOURCES = tests/test-gemm.c
tests_test_gemm_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_gemm_LDADD = kernels/libhcpkernels.la $(CMOCKA_LIBS) $(LIBM)
tests_test_linear_SOURCES = tests/test-linear.c tests/db-fixture.h
tests_test_linear_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_test_linear_LDADD = db/libhcpdb.la $(CMOCKA_LIBS) $(SQLITE_LIBS) $(LIBM)
tests_test_blend_SOURCES = tests/test-blend.c
tests_test_blend_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_blend_LDADD = $(PLAN_LIBS)
endif

# A cuBLAS on the host, for tests/test-gemm.
check_LTLIBRARIES += tests/fake-cublas.la
tests_fake_cublas_la_SOURCES = tests/fake-cublas.c
tests_fake_cublas_la_LDFLAGS = $(plugin_ldflags)
tests_fake_cublas_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default

dist_check_SCRIPTS += tests/profile-linear.bats
TESTS += tests/profile-linear.bats
EXTRA_DIST += tests/data/h200-decode-linear.csv tests/data/h200-linear-steps.csv
