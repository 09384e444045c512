# SPDX-License-Identifier: Apache-2.0
# What measures, apart from the commands: tests link it too. Programs link
# profiler/libhcpprofcuda.a and kernels/libhcpcuda.a after it when HAVE_CUDA.
noinst_LTLIBRARIES += profiler/libhcpprofiler.la
profiler_libhcpprofiler_la_SOURCES = \
	profiler/bench.c profiler/bench.h profiler/bench-finish.c \
	profiler/bench-linear.c profiler/check.c profiler/check.h \
	profiler/device.c profiler/device.h profiler/device-cpu.c \
	profiler/device-recorded.c profiler/device-synthetic.c \
	profiler/limiter.h profiler/limiter-cpu.c profiler/limiter-green.c \
	profiler/limiter-mps.c \
	profiler/mps-guard.c profiler/mps-internal.h \
	profiler/measure.c profiler/measure.h profiler/progress.c profiler/progress.h \
	profiler/predict.c profiler/predict.h \
	profiler/run.h profiler/run.c profiler/run-adapt.c profiler/run-check.c profiler/run-drift.c profiler/run-linear.c \
	profiler/run-options.h profiler/run-options.c profiler/run-plan.c profiler/run-prepare.c \
	profiler/run-report.c profiler/run-store.c profiler/stats.c profiler/stats.h \
	profiler/clocks.c profiler/clocks.h profiler/cupti.c profiler/cupti.h \
	profiler/watch.c profiler/watch.h \
	profiler/sweep.c profiler/sweep.h profiler/worker.c profiler/worker.h \
	profiler/worker-internal.h profiler/worker-main.c
profiler_libhcpprofiler_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
profiler_libhcpprofiler_la_LIBADD = db/libhcpcli.la db/libhcpdb.la \
	kernels/libhcpkernels.la -lpthread $(LIBM)

# Starts ranks; of MPI it needs to know which one, and links nothing.
if HAVE_MPI
profiler_libhcpprofiler_la_SOURCES += profiler/mpirun.c profiler/mpirun.h
profiler_libhcpprofiler_la_CFLAGS += $(MPI_CFLAGS)
else
EXTRA_DIST += profiler/mpirun.c profiler/mpirun.h
endif

if HAVE_CUDA
profiler_libhcpprofiler_la_SOURCES += profiler/limiter-green-cuda.c
profiler_libhcpprofiler_la_SOURCES += profiler/device-cuda.c \
	profiler/cuda-timer.c profiler/cuda-timer.h
profiler_libhcpprofiler_la_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(CUPTI_CPPFLAGS) \
	-DHCP_CUDA_LIBDIR=\"$(CUDA_DIR)/lib64\"
noinst_LIBRARIES += profiler/libhcpprofcuda.a
profiler_libhcpprofcuda_a_SOURCES = profiler/spin.cu profiler/spin.h
profiler_libhcpprofcuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
PROFILER_CUDA = profiler/libhcpprofcuda.a kernels/libhcpcuda.a $(CUDA_LIBS)
EXTRA_DIST += profiler/device-cuda-none.c
else
profiler_libhcpprofiler_la_SOURCES += profiler/device-cuda-none.c
PROFILER_CUDA =
EXTRA_DIST += profiler/limiter-green-cuda.c
EXTRA_DIST += profiler/device-cuda.c profiler/cuda-timer.c profiler/cuda-timer.h \
	profiler/spin.cu profiler/spin.h
endif
EXTRA_DIST += profiler/h200-links.md
CLEANFILES += profiler/*.ptxas
EXTRA_DIST += profiler/h200-layers.md
EXTRA_DIST += profiler/h200-clocks.md

EXTRA_DIST += profiler/h200-beside.md
bin_PROGRAMS += profiler/hcp-profile
profiler_hcp_profile_SOURCES = profiler/hcp-profile.c profiler/commands.h \
	profiler/cmd-devices.c profiler/cmd-run.c \
	profiler/cmd-link.c profiler/cmd-link.h profiler/link-choose.c profiler/link-report.c \
	profiler/link-run.c profiler/link.h profiler/link-beside.h profiler/link-beside.c \
	profiler/cmd-beside.h profiler/cmd-beside.c profiler/beside-report.c \
	profiler/cmd-show.c profiler/show-groups.h profiler/show-groups.c \
	profiler/show-table.h profiler/show-table.c profiler/show-rows.h \
	profiler/show-rows.c profiler/show-fields.h profiler/show-fields.c profiler/show-more.c profiler/show-rings.c \
	profiler/show-layers.h profiler/show-layers.c \
	profiler/cmd-export.c profiler/cmd-import.c profiler/cmd-merge.c \
	profiler/cmd-conform.c profiler/cmd-check.c profiler/cmd-diff.c
profiler_hcp_profile_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
profiler_hcp_profile_CPPFLAGS = $(AM_CPPFLAGS) -DPKGLIBEXECDIR=\"$(pkglibexecdir)\"
profiler_hcp_profile_LDADD = db/libhcpaudit.la profiler/libhcpprofiler.la $(PROFILER_CUDA)

# How two devices are connected.
noinst_LTLIBRARIES += profiler/libhcptopology.la
profiler_libhcptopology_la_SOURCES = profiler/topology.h profiler/topology.c \
	profiler/topology-nvml.c profiler/topology-hwloc.c
profiler_libhcptopology_la_CFLAGS = $(AM_CFLAGS) $(HWLOC_CFLAGS)
profiler_libhcptopology_la_LIBADD = $(HWLOC_LIBS)

if HAVE_MPI
# KV between ranks, for programs that link MPI: hcp-ring and hcp-link.
noinst_LTLIBRARIES += profiler/libhcptransport.la
profiler_libhcptransport_la_SOURCES = profiler/transport.h profiler/transport.c \
	profiler/transport-internal.h profiler/transport-mpi.h \
	profiler/transport-mpi.c profiler/transport-mpi-thread.c \
	profiler/transport-mpi-pass.c profiler/mesh-mpi.c
profiler_libhcptransport_la_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS)
profiler_libhcptransport_la_LIBADD = db/libhcpdb.la kernels/libhcpkernels.la $(MPI_LIBS) -lpthread
if HAVE_CUDA
profiler_libhcptransport_la_SOURCES += profiler/transport-copy.c
else
EXTRA_DIST += profiler/transport-copy.c
endif
if HAVE_NCCL
profiler_libhcptransport_la_SOURCES += profiler/transport-nccl.c \
	profiler/transport-nccl-link.c profiler/mesh-nccl.c profiler/transport-nccl.h profiler/nccl-api.c \
	profiler/nccl-api.h
profiler_libhcptransport_la_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS) \
	-DHCP_CUDA_LIBDIR=\"$(CUDA_DIR)/lib64\"
else
EXTRA_DIST += profiler/transport-nccl.c profiler/transport-nccl-link.c profiler/mesh-nccl.c \
	profiler/transport-nccl.h profiler/nccl-api.c profiler/nccl-api.h
endif

# The two ranks of hcp-profile link.
pkglibexec_PROGRAMS = profiler/hcp-link
profiler_hcp_link_SOURCES = profiler/hcp-link.c profiler/link.h profiler/link-rank.h \
	profiler/link-end.c profiler/link-exchange.c profiler/link-hold.c \
	profiler/link-visit.c profiler/link-beside.h profiler/link-beside.c \
	profiler/link-beside-rank.h profiler/link-beside-rank.c
profiler_hcp_link_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS) $(JANSSON_CFLAGS)
profiler_hcp_link_LDADD = profiler/libhcptopology.la profiler/libhcptransport.la \
	profiler/libhcpprofiler.la $(PROFILER_CUDA) $(MPI_LIBS)
endif
