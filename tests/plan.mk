# SPDX-License-Identifier: Apache-2.0
# Unit tests see the library from inside (plan.h), so they link its convenience library.
PLAN_FIXTURE = tests/plan-fixture.h tests/plan-fixture.c
PLAN_LIBS = planner/libhcpplancore.la fit/libhcpmodel.la db/libhcpdb.la $(SQLITE_LIBS) $(LIBM)

BENCHES += tests/bench-plan
EXTRA_PROGRAMS = tests/bench-plan
CLEANFILES += tests/bench-plan
tests_bench_plan_SOURCES = tests/bench-plan.c $(PLAN_FIXTURE)
tests_bench_plan_CFLAGS = $(AM_CFLAGS) -Wno-missing-prototypes
tests_bench_plan_LDADD = $(PLAN_LIBS)

bench: $(BENCHES)
	@for b in $(BENCHES); do echo "$$b"; ./$$b || exit 1; done
.PHONY: bench
