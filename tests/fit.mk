# SPDX-License-Identifier: Apache-2.0
if HAVE_CMOCKA
check_PROGRAMS += tests/test-model
TESTS += tests/test-model
tests_test_model_SOURCES = tests/test-model.c tests/model-check.h
tests_test_model_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_model_LDADD = fit/libhcpmodel.la db/libhcpdb.la $(CMOCKA_LIBS) $(LIBM)
endif
