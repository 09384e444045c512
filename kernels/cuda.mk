# SPDX-License-Identifier: Apache-2.0
# What needs CUDA's headers or nvcc. Programs link kernels/libhcpcuda.a and CUDA_LIBS
# (static runtime) after kernels/libhcpkernels.la; cuDNN is loaded at run time.
if HAVE_CUDA
noinst_LIBRARIES += kernels/libhcpcuda.a
kernels_libhcpcuda_a_SOURCES = \
	kernels/cuda.h kernels/cuda-internal.h kernels/cuda-device.c kernels/cuda-ipc.c \
	kernels/runtime-cuda.c \
	kernels/cuda-shape.c kernels/cuda-shape.h \
	kernels/prefill-sm90.c kernels/prefill-sm90.h kernels/prefill-sm90.cu \
	kernels/sm90-maps.c kernels/sm90-maps.h kernels/sm90-ptx.cuh kernels/sm90-rows.cuh \
	kernels/sm90-tiles.cuh kernels/sm90-wgmma.cuh \
	kernels/prefill-sm80.c kernels/prefill-sm80.h kernels/prefill-sm80.cu \
	kernels/sm80-ptx.cuh \
	kernels/cuda-reference.c kernels/reference.cu kernels/merge.cu kernels/dtype.cuh \
	kernels/decode.c kernels/decode.h kernels/decode.cu kernels/decode-tile.cuh \
	kernels/decode-shape.cuh kernels/decode-sm90.cu kernels/decode-sm90.h \
	kernels/cudnn.c kernels/cudnn-graph.c kernels/cudnn-graph.h kernels/cudnn-api.c
kernels_libhcpcuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) \
	-DHCP_CUDA_LIBDIR=\"$(CUDA_DIR)/lib64\"
kernels_libhcpcuda_a_CFLAGS = $(AM_CFLAGS) -fPIC
kernels/merge.o: kernels/randn.h
kernels/merge.o kernels/reference.o: kernels/dtype.cuh kernels/cuda-internal.h \
	kernels/provider.h kernels/runtime.h
kernels/decode.o: kernels/decode.h kernels/decode-tile.cuh kernels/decode-shape.cuh \
	kernels/decode-sm90.h kernels/sm90-maps.h kernels/dtype.cuh kernels/sm80-ptx.cuh \
	kernels/provider.h
kernels/prefill-sm80.o: kernels/prefill-sm80.h kernels/sm80-ptx.cuh kernels/provider.h
# Hopper's own instructions: this one architecture, whatever the others are built for.
kernels/prefill-sm90.o kernels/decode-sm90.o: \
	override CUDA_GENCODE = -gencode=arch=compute_90a,code=sm_90a
kernels/prefill-sm90.o: kernels/prefill-sm90.h kernels/sm90-maps.h kernels/sm90-ptx.cuh \
	kernels/sm90-rows.cuh kernels/sm90-tiles.cuh kernels/sm90-wgmma.cuh kernels/provider.h
kernels/decode-sm90.o: kernels/decode-sm90.h kernels/decode-shape.cuh kernels/decode.h \
	kernels/sm90-maps.h kernels/sm90-ptx.cuh kernels/sm90-rows.cuh \
	kernels/sm90-wgmma.cuh kernels/provider.h
endif
CLEANFILES += kernels/*.ptxas profiler/*.ptxas
