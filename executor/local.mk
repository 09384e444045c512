# SPDX-License-Identifier: Apache-2.0
# Pure C, no MPI: what a rank does, from the plan.
noinst_LTLIBRARIES += executor/libhcpschedule.la
executor_libhcpschedule_la_SOURCES = executor/schedule.c executor/schedule.h \
	executor/schedule-check.c executor/schedule-internal.h \
	executor/schedule-late.c executor/schedule-late.h \
	executor/schedule-documents.c executor/schedule-documents.h
executor_libhcpschedule_la_LIBADD = kernels/libhcpgeometry.la

if HAVE_MPI
# The ranks as a group, without the ring: start, agreement, limits, watch.
noinst_LTLIBRARIES += executor/libhcpgroup.la
executor_libhcpgroup_la_SOURCES = executor/comm.c executor/comm.h executor/agree.c \
	executor/launch.c executor/warden.c executor/watch.c executor/alarm.c
executor_libhcpgroup_la_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS)
executor_libhcpgroup_la_LIBADD = profiler/libhcpprofiler.la $(MPI_LIBS) -lpthread

# Everything of hcp-ring but main: tests link it too.
noinst_LTLIBRARIES += executor/libhcpring.la
executor_libhcpring_la_SOURCES = executor/ring.c executor/ring.h executor/ring-pass.c \
	executor/ring-levels.c executor/ring-failure.c executor/ring-memory.c \
	executor/ring-links.c executor/ring-linear.c executor/ring-chunks.c executor/decode.c \
	executor/decode.h \
	executor/move.c \
	executor/move.h executor/ring-internal.h executor/verify.c executor/verify-compare.c \
	executor/verify-internal.h executor/verify.h
executor_libhcpring_la_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS) $(JANSSON_CFLAGS)
executor_libhcpring_la_LIBADD = executor/libhcpschedule.la executor/libhcpgroup.la \
	profiler/libhcptransport.la \
	profiler/libhcpprofiler.la db/libhcpcli.la db/libhcpdb.la kernels/libhcpkernels.la \
	$(MPI_LIBS) -lpthread $(LIBM)

bin_PROGRAMS += executor/hcp-ring
executor_hcp_ring_SOURCES = executor/hcp-ring.c executor/program.h executor/options.c \
	executor/plans.c executor/place.c executor/measure.c executor/report.c \
	executor/store.c executor/search.c executor/transition.c \
	executor/moves-file.c executor/plans-documents.c executor/plans-split.c \
	executor/plans-chunks.c executor/chunks.c executor/chunks-report.c executor/rebalance.c \
	executor/rebalance-failure.c executor/rebalance-report.c executor/rebalance-internal.h
executor_hcp_ring_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS) $(JANSSON_CFLAGS)
executor_hcp_ring_LDADD = executor/libhcpring.la planner/libhcpplan.la $(PROFILER_CUDA)
endif

EXTRA_DIST += executor/h200-layers-and-joint.md executor/h200-two-ranks.md executor/h200-shared.md \
	executor/h200-reproduce/makespan.csv \
	executor/h200-reproduce/speedup.csv executor/h200-reproduce/prediction.csv
