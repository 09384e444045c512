# SPDX-License-Identifier: Apache-2.0
# Transports and the executor. Under MPI unless said otherwise.

if HAVE_CMOCKA
check_PROGRAMS += tests/test-ring-schedule
TESTS += tests/test-ring-schedule
tests_test_ring_schedule_SOURCES = tests/test-ring-schedule.c $(PLAN_FIXTURE)
tests_test_ring_schedule_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_ring_schedule_LDADD = executor/libhcpschedule.la $(PLAN_LIBS)
endif
