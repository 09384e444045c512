# SPDX-License-Identifier: Apache-2.0
# Transports and the executor. Under MPI unless said otherwise.

if HAVE_CMOCKA
check_PROGRAMS += tests/test-ring-schedule tests/test-ring-schedule-plans
TESTS += tests/test-ring-schedule tests/test-ring-schedule-plans
tests_test_ring_schedule_SOURCES = tests/test-ring-schedule.c
tests_test_ring_schedule_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_ring_schedule_LDADD = executor/libhcpschedule.la $(PLAN_LIBS)
check_PROGRAMS += tests/test-ring-chunks
TESTS += tests/test-ring-chunks
tests_test_ring_chunks_SOURCES = tests/test-ring-chunks.c
tests_test_ring_chunks_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_ring_chunks_LDADD = executor/libhcpschedule.la $(PLAN_LIBS)
tests_test_ring_schedule_plans_SOURCES = tests/test-ring-schedule-plans.c
tests_test_ring_schedule_plans_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_ring_schedule_plans_LDADD = executor/libhcpschedule.la $(PLAN_LIBS)
endif

# verify.c alone: the test plays the ring.
if HAVE_MPI
if HAVE_CMOCKA
check_PROGRAMS += tests/test-ring-verify
TESTS += tests/test-ring-verify
tests_test_ring_verify_SOURCES = tests/test-ring-verify.c executor/verify.c \
	executor/verify-compare.c executor/verify-internal.h executor/verify.h \
	tests/faulty-provider.c tests/faulty-provider.h
tests_test_ring_verify_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(MPI_CFLAGS)
tests_test_ring_verify_LDADD = executor/libhcpschedule.la kernels/libhcpkernels.la \
	$(PLAN_LIBS)
endif
endif

if HAVE_MPI
# The group of ranks: agreement, limits, the end of one of them.
check_PROGRAMS += tests/ring-comm
tests_ring_comm_SOURCES = tests/ring-comm.c
tests_ring_comm_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS)
tests_ring_comm_LDADD = executor/libhcpgroup.la $(PROFILER_CUDA)
if HAVE_CMOCKA
check_PROGRAMS += tests/test-ring-warden
TESTS += tests/test-ring-warden
tests_test_ring_warden_SOURCES = tests/test-ring-warden.c tests/mps-fixture.h
tests_test_ring_warden_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(MPI_CFLAGS)
tests_test_ring_warden_LDADD = executor/libhcpgroup.la $(PROFILER_CUDA) $(CMOCKA_LIBS)
endif
endif
dist_check_SCRIPTS += tests/ring-comm.bats
TESTS += tests/ring-comm.bats

if HAVE_MPI
TRANSPORT_LIBS = profiler/libhcptransport.la
if HAVE_CUDA
TRANSPORT_LIBS += kernels/libhcpcuda.a $(CUDA_LIBS)
endif
# Without a GPU: fake-gpu stands in for the CUDA library, fake-nccl for NCCL.
check_PROGRAMS += tests/ring-transport-test
transport_cases = tests/transport-cases.c tests/transport-cases.h tests/transport-hops.c \
	tests/transport-copy-cases.c \
	tests/transport-points.c tests/transport-points.h
tests_ring_transport_test_SOURCES = tests/ring-transport-test.c $(transport_cases) \
	tests/fake-gpu.c tests/fake-gpu-memory.c tests/fake-gpu.h
tests_ring_transport_test_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS)
tests_ring_transport_test_LDADD = executor/libhcpschedule.la profiler/libhcptransport.la $(LIBM)
if HAVE_NCCL
check_LTLIBRARIES += tests/fake-nccl.la
tests_fake_nccl_la_SOURCES = tests/fake-nccl.c tests/fake-gpu.h
tests_fake_nccl_la_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_fake_nccl_la_LDFLAGS = $(plugin_ldflags)
# One rank a GPU; skips where there are fewer than two.
check_PROGRAMS += tests/gpu-transport
TESTS += tests/gpu-transport
GPU_TESTS += tests/gpu-transport
tests_gpu_transport_SOURCES = tests/gpu-transport.c $(transport_cases)
tests_gpu_transport_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS)
tests_gpu_transport_LDADD = executor/libhcpschedule.la $(TRANSPORT_LIBS) $(LIBM)
endif
endif
EXTRA_DIST += tests/mpi-tap.sh
dist_check_SCRIPTS += tests/ring-transport.sh
TESTS += tests/ring-transport.sh

# The ring on top of that: passes that are queued.
if HAVE_MPI
if HAVE_NCCL
check_PROGRAMS += tests/ring-queued-test
tests_ring_queued_test_SOURCES = tests/ring-queued-test.c tests/ring-queued.h \
	tests/ring-queued-kv.c tests/ring-queued-chunks.c tests/ring-queued-lost.c \
	tests/fake-gpu.c tests/fake-gpu-memory.c \
	tests/fake-gpu.h tests/fake-kernels.c executor/ring.c executor/ring-pass.c \
	executor/ring-levels.c executor/ring-failure.c executor/ring-memory.c \
	executor/ring-links.c executor/ring-linear.c executor/ring-chunks.c \
	executor/ring-internal.h executor/ring.h executor/decode.c executor/decode.h \
	executor/move.c executor/move.h executor/verify.c \
	executor/verify-compare.c executor/verify-internal.h executor/verify.h \
	executor/watch.c executor/alarm.c executor/comm.h profiler/measure.c profiler/measure.h \
	profiler/stats.c profiler/stats.h
tests_ring_queued_test_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS)
tests_ring_queued_test_LDADD = executor/libhcpschedule.la profiler/libhcptransport.la \
	planner/libhcpplan.la $(LIBM)
endif
endif
dist_check_SCRIPTS += tests/ring-queued.sh
TESTS += tests/ring-queued.sh

# What hcp-link measures beside transfers, likewise.
if HAVE_MPI
if HAVE_NCCL
check_PROGRAMS += tests/beside-queued-test
tests_beside_queued_test_SOURCES = tests/beside-queued-test.c tests/fake-gpu.c \
	tests/fake-gpu-memory.c \
	tests/fake-gpu.h tests/fake-kernels.c profiler/link-beside-rank.c \
	profiler/link-beside-rank.h profiler/link-beside.c profiler/link-beside.h \
	profiler/link-hold.c profiler/link-rank.h profiler/bench.c profiler/bench-finish.c profiler/bench-linear.c \
	profiler/bench.h profiler/check.c profiler/check.h profiler/sweep.c profiler/sweep.h \
	profiler/measure.c profiler/measure.h profiler/stats.c profiler/stats.h
tests_beside_queued_test_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS) $(JANSSON_CFLAGS)
tests_beside_queued_test_LDADD = profiler/libhcptransport.la $(JANSSON_LIBS) $(LIBM)
endif
endif
dist_check_SCRIPTS += tests/beside-queued.sh
TESTS += tests/beside-queued.sh

# And of transfers alone.
if HAVE_MPI
if HAVE_NCCL
check_PROGRAMS += tests/link-queued-test
tests_link_queued_test_SOURCES = tests/link-queued-test.c tests/fake-gpu.c \
	tests/fake-gpu-memory.c tests/fake-gpu.h tests/fake-kernels.c \
	profiler/link-exchange.c profiler/link-visit.c profiler/link-hold.c \
	profiler/link-rank.h profiler/sweep.c profiler/sweep.h profiler/measure.c \
	profiler/measure.h profiler/stats.c profiler/stats.h
tests_link_queued_test_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS)
tests_link_queued_test_LDADD = profiler/libhcptransport.la db/libhcpdb.la $(LIBM)
endif
endif
dist_check_SCRIPTS += tests/link-queued.sh
TESTS += tests/link-queued.sh

# hcp-ring itself on CPU ranks.
ring_scripts = tests/ring-verify.bats tests/ring-late.bats tests/ring-joint.bats \
	tests/ring-levels.bats tests/ring-errors.bats tests/ring-run.bats tests/ring-decode.bats \
	tests/ring-documents.bats tests/ring-chunks.bats \
	tests/ring-rebalance.bats tests/ring-fail.bats \
	tests/ring-leak.sh
EXTRA_DIST += tests/ring-lib.bash
dist_check_SCRIPTS += $(ring_scripts)
TESTS += $(ring_scripts)

# Studies that are run by hand, on GPUs; ring-study.bats runs them small.
EXTRA_DIST += tests/study.sh tests/reproduce.sh tests/reproduce-n.sh tests/ring-table.sh \
	tests/ring-table.awk
study_scripts = tests/ring-study.bats tests/ring-man.sh
EXTRA_DIST += tests/man.sh
dist_check_SCRIPTS += $(study_scripts)
TESTS += $(study_scripts)

EXTRA_DIST += tests/gpu-shared.sh
dist_check_SCRIPTS += tests/gpu-ring.sh tests/gpu-decode.sh
TESTS += tests/gpu-ring.sh tests/gpu-decode.sh
GPU_TESTS += tests/gpu-ring.sh tests/gpu-decode.sh
