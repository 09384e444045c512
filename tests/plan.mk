# SPDX-License-Identifier: Apache-2.0
# Unit tests see the library from inside (plan.h), so they link its convenience library.
# What several of them share is compiled once.
PLAN_LIBS = tests/libplantest.la planner/libhcpplancore.la fit/libhcpmodel.la \
	kernels/libhcpgeometry.la db/libhcpdb.la $(CMOCKA_LIBS) $(SQLITE_LIBS) $(LIBM)
check_LTLIBRARIES += tests/libplantest.la
tests_libplantest_la_SOURCES = tests/plan-fixture.h tests/plan-fixture.c \
	tests/plan-reference.h tests/plan-reference-ring.h tests/plan-reference.c \
	tests/plan-reference-orders.c tests/plan-reference-levels.c \
	tests/plan-reference-best.c tests/decode-reference.h tests/decode-reference.c \
	tests/documents-reference.h tests/documents-reference.c tests/specs-reference.h \
	tests/specs-reference.c tests/disagg-reference.h tests/disagg-reference.c \
	tests/chunks-reference.h tests/chunks-reference.c

if HAVE_CMOCKA
PLAN_TESTS = tests/test-plan-solver tests/test-plan-random tests/test-plan-forms \
	tests/test-plan-json tests/test-plan-api tests/test-plan-allocations \
	tests/test-plan-given tests/test-plan-schedule tests/test-plan-order \
	tests/test-plan-order-links tests/test-plan-layer tests/test-plan-scale \
	tests/test-plan-late tests/test-plan-late-ranks tests/test-plan-joint \
	tests/test-plan-joint-plans tests/test-plan-memory tests/test-plan-memory-room \
	tests/test-plan-rings tests/test-plan-decode tests/test-plan-decode-asked \
	tests/test-plan-moves tests/test-plan-documents tests/test-plan-documents-asked \
	tests/test-plan-rebalance tests/test-plan-rebalance-moves \
	tests/test-plan-rebalance-state tests/test-plan-factor tests/test-plan-specs \
	tests/test-plan-specs-kin tests/test-plan-disagg tests/test-plan-disagg-asked \
	tests/test-plan-chunks tests/test-plan-chunks-asked tests/test-specs-table
check_PROGRAMS += $(PLAN_TESTS)
TESTS += $(PLAN_TESTS)
tests_test_plan_solver_SOURCES = tests/test-plan-solver.c
tests_test_plan_solver_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_solver_LDADD = $(PLAN_LIBS)
tests_test_plan_layer_SOURCES = tests/test-plan-layer.c
tests_test_plan_layer_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_layer_LDADD = $(PLAN_LIBS)
tests_test_plan_memory_SOURCES = tests/test-plan-memory.c tests/memory-fixture.h
tests_test_plan_memory_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_memory_LDADD = $(PLAN_LIBS)
tests_test_plan_memory_room_SOURCES = tests/test-plan-memory-room.c tests/memory-fixture.h
tests_test_plan_memory_room_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_memory_room_LDADD = $(PLAN_LIBS)
tests_test_plan_random_SOURCES = tests/test-plan-random.c
tests_test_plan_random_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_random_LDADD = $(PLAN_LIBS)
tests_test_plan_forms_SOURCES = tests/test-plan-forms.c
tests_test_plan_forms_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_forms_LDADD = $(PLAN_LIBS)
tests_test_plan_order_SOURCES = tests/test-plan-order.c tests/order-fixture.h
tests_test_plan_order_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_order_LDADD = $(PLAN_LIBS)
tests_test_plan_order_links_SOURCES = tests/test-plan-order-links.c tests/order-fixture.h
tests_test_plan_order_links_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_order_links_LDADD = $(PLAN_LIBS)
tests_test_plan_scale_SOURCES = tests/test-plan-scale.c
tests_test_plan_scale_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_scale_LDADD = $(PLAN_LIBS)
tests_test_plan_joint_SOURCES = tests/test-plan-joint.c tests/joint-fixture.h
tests_test_plan_joint_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_joint_LDADD = $(PLAN_LIBS)
tests_test_plan_joint_plans_SOURCES = tests/test-plan-joint-plans.c tests/joint-fixture.h
tests_test_plan_joint_plans_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_joint_plans_LDADD = $(PLAN_LIBS)
tests_test_plan_late_SOURCES = tests/test-plan-late.c tests/late-fixture.h
tests_test_plan_late_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_late_LDADD = $(PLAN_LIBS)
tests_test_plan_late_ranks_SOURCES = tests/test-plan-late-ranks.c tests/late-fixture.h
tests_test_plan_late_ranks_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_late_ranks_LDADD = $(PLAN_LIBS)
tests_test_plan_rings_SOURCES = tests/test-plan-rings.c
tests_test_plan_rings_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_rings_LDADD = $(PLAN_LIBS)
tests_test_plan_decode_SOURCES = tests/test-plan-decode.c tests/decode-fixture.h
tests_test_plan_decode_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_decode_LDADD = $(PLAN_LIBS)
tests_test_plan_decode_asked_SOURCES = tests/test-plan-decode-asked.c \
	tests/decode-fixture.h
tests_test_plan_decode_asked_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_decode_asked_LDADD = $(PLAN_LIBS)
tests_test_plan_moves_SOURCES = tests/test-plan-moves.c
tests_test_plan_moves_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_moves_LDADD = $(PLAN_LIBS)
tests_test_plan_documents_SOURCES = tests/test-plan-documents.c tests/documents-fixture.h
tests_test_plan_documents_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_documents_LDADD = $(PLAN_LIBS)
tests_test_plan_documents_asked_SOURCES = tests/test-plan-documents-asked.c \
	tests/documents-fixture.h
tests_test_plan_documents_asked_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_documents_asked_LDADD = $(PLAN_LIBS)
REBALANCE_FIXTURE = tests/rebalance-fixture.h tests/rebalance-run.h
tests_test_plan_rebalance_SOURCES = tests/test-plan-rebalance.c $(REBALANCE_FIXTURE)
tests_test_plan_rebalance_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_rebalance_LDADD = $(PLAN_LIBS)
tests_test_plan_rebalance_moves_SOURCES = tests/test-plan-rebalance-moves.c \
	$(REBALANCE_FIXTURE)
tests_test_plan_rebalance_moves_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_rebalance_moves_LDADD = $(PLAN_LIBS)
tests_test_plan_rebalance_state_SOURCES = tests/test-plan-rebalance-state.c \
	$(REBALANCE_FIXTURE)
tests_test_plan_rebalance_state_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_rebalance_state_LDADD = $(PLAN_LIBS)
tests_test_plan_factor_SOURCES = tests/test-plan-factor.c
tests_test_plan_factor_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_factor_LDADD = $(PLAN_LIBS)
tests_test_plan_specs_SOURCES = tests/test-plan-specs.c tests/specs-fixture.h
tests_test_plan_specs_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_specs_LDADD = $(PLAN_LIBS)
tests_test_plan_specs_kin_SOURCES = tests/test-plan-specs-kin.c tests/specs-fixture.h
tests_test_plan_specs_kin_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_specs_kin_LDADD = $(PLAN_LIBS)
tests_test_plan_disagg_SOURCES = tests/test-plan-disagg.c \
	tests/disagg-fixture.h tests/count-allocations.h
tests_test_plan_disagg_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_disagg_LDADD = $(PLAN_LIBS)
tests_test_plan_disagg_asked_SOURCES = tests/test-plan-disagg-asked.c \
	tests/disagg-fixture.h tests/count-allocations.h
tests_test_plan_disagg_asked_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_disagg_asked_LDADD = $(PLAN_LIBS)
tests_test_plan_chunks_SOURCES = tests/test-plan-chunks.c tests/chunks-fixture.h
tests_test_plan_chunks_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_chunks_LDADD = $(PLAN_LIBS)
tests_test_plan_chunks_asked_SOURCES = tests/test-plan-chunks-asked.c \
	tests/chunks-fixture.h
tests_test_plan_chunks_asked_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_chunks_asked_LDADD = $(PLAN_LIBS)
tests_test_specs_table_SOURCES = tests/test-specs-table.c
tests_test_specs_table_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_specs_table_LDADD = $(PLAN_LIBS)
tests_test_plan_json_SOURCES = tests/test-plan-json.c
tests_test_plan_json_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_json_LDADD = $(PLAN_LIBS)
tests_test_plan_schedule_SOURCES = tests/test-plan-schedule.c
tests_test_plan_schedule_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_schedule_LDADD = executor/libhcpschedule.la $(PLAN_LIBS)
tests_test_plan_given_SOURCES = tests/test-plan-given.c tests/plan-kinds.h
tests_test_plan_given_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_given_LDADD = $(PLAN_LIBS)
tests_test_plan_api_SOURCES = tests/test-plan-api.c tests/plan-kinds.h
tests_test_plan_api_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_api_LDADD = $(PLAN_LIBS)
tests_test_plan_allocations_SOURCES = tests/test-plan-allocations.c tests/plan-kinds.h \
	tests/count-allocations.h
tests_test_plan_allocations_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plan_allocations_LDADD = $(PLAN_LIBS) -lpthread
endif

dist_check_SCRIPTS += tests/plan-fingerprint.sh tests/plan-exports.sh tests/plan-man.sh \
	tests/plan-cli.bats tests/plan-decode.bats tests/plan-layer.bats tests/plan-specs.bats tests/plan-disagg.bats \
	tests/plan-rebalance.bats tests/plan-chunks.bats
TESTS += tests/plan-fingerprint.sh tests/plan-exports.sh tests/plan-man.sh \
	tests/plan-cli.bats tests/plan-decode.bats tests/plan-layer.bats tests/plan-specs.bats tests/plan-disagg.bats \
	tests/plan-rebalance.bats tests/plan-chunks.bats
EXTRA_DIST += tests/plan-fingerprint.c tests/plan-installed.sh

BENCHES += tests/bench-plan
EXTRA_PROGRAMS = tests/bench-plan
CLEANFILES += tests/bench-plan
tests_bench_plan_SOURCES = tests/bench-plan.c tests/count-allocations.h
tests_bench_plan_LDADD = tests/libplantest.la planner/libhcpplancore.la fit/libhcpmodel.la \
	kernels/libhcpgeometry.la db/libhcpdb.la \
	$(SQLITE_LIBS) $(LIBM)

bench: $(BENCHES)
	@for b in $(BENCHES); do echo "$$b"; ./$$b || exit 1; done
# Latency and memory against the number of ranks: latency.csv, and latency.svg where
# gnuplot is.
bench-chart: tests/bench-plan
	./tests/bench-plan --chart >latency.csv
	@if command -v gnuplot >/dev/null; then \
		gnuplot -e "data='latency.csv'; picture='latency.svg'" \
			$(srcdir)/planner/latency.gp && echo latency.svg; fi
.PHONY: bench bench-chart
EXTRA_DIST += planner/latency.gp planner/latency.md planner/latency.csv planner/decode.md planner/specs.md \
	planner/specs-error
CLEANFILES += latency.csv latency.svg

installcheck-local:
	bindir='$(DESTDIR)$(bindir)' libdir='$(DESTDIR)$(libdir)' DESTDIR='$(DESTDIR)' \
	pkgconfigdir='$(DESTDIR)$(pkgconfigdir)' prefix='$(prefix)' CC='$(CC)' \
	CFLAGS='$(CFLAGS)' page='$(srcdir)/man/libhcpplan.3' \
	HCP_PROFILES='$(DESTDIR)$(pkgdatadir)/profiles' \
	HCP_SPECS='$(DESTDIR)$(pkgdatadir)/specs.txt' \
	$(SHELL) $(srcdir)/tests/plan-installed.sh
	bindir='$(DESTDIR)$(bindir)' libdir='$(DESTDIR)$(libdir)' DESTDIR='$(DESTDIR)' \
	pkgconfigdir='$(DESTDIR)$(pkgconfigdir)' prefix='$(prefix)' CC='$(CC)' \
	page='$(srcdir)/man/hcp-provider.7' \
	$(SHELL) $(srcdir)/tests/provider-installed.sh
