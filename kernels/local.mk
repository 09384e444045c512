# SPDX-License-Identifier: Apache-2.0
# Geometry apart: libhcpplan takes it without BLAS. The built-in providers are listed
# in builtins.c, an object of libhcpkernels.la that only callers of
# hcp_registry_open() pull in; those link libhcpcuda.a after it when HAVE_CUDA.
noinst_LTLIBRARIES += kernels/libhcpgeometry.la kernels/libhcpkernels.la

kernels_libhcpgeometry_la_SOURCES = kernels/geometry.c kernels/geometry.h

kernels_libhcpkernels_la_SOURCES = \
	kernels/merge.c kernels/merge.h kernels/dtype.h kernels/randn.h \
	kernels/problem.c kernels/problem.h kernels/attention.c \
	kernels/registry.c kernels/registry.h kernels/builtins.c \
	kernels/preference.c kernels/preference.h \
	kernels/plugin.c kernels/plugin.h kernels/library.h kernels/cpu.c \
	kernels/cpu-lanes.c kernels/cpu-lanes.h \
	kernels/reference.c kernels/reference.h \
	kernels/conformance.c kernels/conformance.h kernels/conformance-case.c \
	kernels/conformance-case.h kernels/conformance-tensor.c \
	kernels/conformance-ring.c kernels/conformance-huge.c kernels/bounds.h \
	kernels/gemm.c kernels/gemm.h kernels/gemm-cblas.c kernels/gemm-cublas.c \
	kernels/runtime-cpu.c kernels/runtime.h kernels/provider.h
kernels_libhcpkernels_la_CFLAGS = $(AM_CFLAGS) $(BLAS_CFLAGS)
if HAVE_CUDA
kernels_libhcpkernels_la_CPPFLAGS = $(AM_CPPFLAGS) \
	-DHCP_CUDA_LIBDIR=\"$(CUDA_DIR)/lib64\"
endif
kernels_libhcpkernels_la_LIBADD = kernels/libhcpgeometry.la $(BLAS_LIBS) -lpthread $(LIBM)

pkginclude_HEADERS += kernels/provider.h

# What hcp-provider(7) speaks of.
examplesdir = $(docdir)/examples
dist_examples_DATA = kernels/plugin-template.c kernels/plugin-fa3.cpp

include kernels/cuda.mk
