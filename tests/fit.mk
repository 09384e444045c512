# SPDX-License-Identifier: Apache-2.0
if HAVE_CMOCKA
fit_tests = tests/test-model tests/test-nnls tests/test-fit tests/test-fit-samples \
	tests/test-fit-h200
check_PROGRAMS += $(fit_tests)
TESTS += $(fit_tests)
tests_test_model_SOURCES = tests/test-model.c tests/model-check.h
tests_test_model_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_model_LDADD = fit/libhcpmodel.la db/libhcpdb.la $(CMOCKA_LIBS) $(LIBM)
tests_test_fit_SOURCES = tests/test-fit.c tests/fit-fixture.h tests/model-check.h
tests_test_fit_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_fit_LDADD = fit/libhcpfit.la fit/libhcpmodel.la db/libhcpdb.la $(GSL_LIBS) \
	$(CMOCKA_LIBS) $(LIBM)
tests_test_fit_samples_SOURCES = tests/test-fit-samples.c tests/fit-fixture.h \
	tests/model-check.h
tests_test_fit_samples_CFLAGS = $(tests_test_fit_CFLAGS)
tests_test_fit_samples_LDADD = $(tests_test_fit_LDADD)
tests_test_nnls_SOURCES = tests/test-nnls.c tests/model-check.h
tests_test_nnls_CFLAGS = $(tests_test_fit_CFLAGS)
tests_test_nnls_LDADD = $(tests_test_fit_LDADD)
tests_test_fit_h200_SOURCES = tests/test-fit-h200.c tests/model-check.h
tests_test_fit_h200_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)
tests_test_fit_h200_LDADD = fit/libhcpfit.la fit/libhcpmodel.la db/libhcpcli.la \
	db/libhcpdb.la $(GSL_LIBS) $(CMOCKA_LIBS) $(LIBM)
endif
EXTRA_DIST += tests/data/h200-fa2-heldout.csv
dist_check_SCRIPTS += tests/plan-fit.bats
TESTS += tests/plan-fit.bats
