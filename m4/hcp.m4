# SPDX-License-Identifier: Apache-2.0
# Checks of configure.ac, one macro each. --with-X=DIR that is missing is an error;
# guessed and missing is a line in the summary.

# Flags that decide correctness (C17, no contraction) apart from those that warn.
AC_DEFUN([HCP_WARNINGS], [
  HCP_CFLAGS="-std=gnu17 -ffp-contract=off -fno-fast-math -fvisibility=hidden"
  HCP_CFLAGS="$HCP_CFLAGS -Wall -Wextra -Wshadow -Wmissing-prototypes"
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [warnings are errors (CI)])])
  AS_IF([test "x$enable_werror" = xyes], [HCP_CFLAGS="$HCP_CFLAGS -Werror"])
  AC_SUBST([HCP_CFLAGS])
])

AC_DEFUN([HCP_LIBRARIES], [
  PKG_CHECK_MODULES([SQLITE], [sqlite3 >= 3.37])
  PKG_CHECK_MODULES([GSL], [gsl])
  PKG_CHECK_MODULES([SMARTCOLS], [smartcols])
  PKG_CHECK_MODULES([JANSSON], [jansson >= 2.10])
  PKG_CHECK_MODULES([BLAS], [openblas], [],
    [AC_MSG_ERROR([OpenBLAS not found; install libopenblas-dev])])
  AC_CHECK_LIB([m], [sqrt], [LIBM=-lm]) AC_SUBST([LIBM])
  AC_SEARCH_LIBS([dlopen], [dl])
])

AC_DEFUN([HCP_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [CUDA kernels and devices @<:@guess@:>@])],
    [], [with_cuda=guess])
  have_cuda=no
  AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda], [yes|guess], [cuda_dirs="${CUDA_HOME:-/usr/local/cuda} /usr/local/cuda /opt/cuda"],
      [cuda_dirs=$with_cuda])
    for d in $cuda_dirs; do
      AS_IF([test $have_cuda = no && test -x "$d/bin/nvcc" && test -f "$d/include/cuda_runtime.h"],
        [have_cuda=yes CUDA_DIR=$d])
    done
    AS_IF([test $have_cuda = no && test "x$with_cuda" != xguess],
      [AC_MSG_ERROR([CUDA asked for but no bin/nvcc and include/cuda_runtime.h under: $cuda_dirs])])
  ])
  AS_IF([test $have_cuda = yes], [
    NVCC=$CUDA_DIR/bin/nvcc
    cuda_libdir=$CUDA_DIR/lib64
    test -d "$cuda_libdir" || cuda_libdir=$CUDA_DIR/lib
    CUDA_CPPFLAGS="-isystem $CUDA_DIR/include"
    CUDA_LIBS="-L$cuda_libdir -lcudart_static -lpthread -ldl -lrt"
    AC_DEFINE([HAVE_CUDA], [1], [CUDA runtime and nvcc are there])
    AS_IF([test -f "$CUDA_DIR/include/cudnn.h"], [have_cudnn=yes
      AC_DEFINE([HAVE_CUDNN], [1], [cudnn.h is there; the library is loaded at run time])], [have_cudnn=no])
  ], [have_cudnn=no])
  AC_ARG_VAR([CUDA_GENCODE], [nvcc -gencode options @<:@sm_80 86 89 90a 100 and compute_100 PTX@:>@])
  AS_IF([test -z "$CUDA_GENCODE"], [
    CUDA_GENCODE="-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_86,code=sm_86 -gencode=arch=compute_89,code=sm_89 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_100,code=sm_100 -gencode=arch=compute_100,code=compute_100"])
  AC_SUBST([NVCC]) AC_SUBST([CUDA_DIR]) AC_SUBST([CUDA_CPPFLAGS]) AC_SUBST([CUDA_LIBS])
  AM_CONDITIONAL([HAVE_CUDA], [test $have_cuda = yes])
  AM_CONDITIONAL([HAVE_CUDNN], [test $have_cudnn = yes])
])

AC_DEFUN([HCP_NCCL], [
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl@<:@=DIR@:>@], [KV transport between GPUs @<:@guess@:>@])],
    [], [with_nccl=guess])
  have_nccl=no
  AS_IF([test "x$with_nccl" != xno], [
    AS_CASE([$with_nccl], [yes|guess], [nccl_dirs="$CUDA_DIR /usr"], [nccl_dirs=$with_nccl])
    for d in $nccl_dirs; do
      AS_IF([test $have_nccl = no && test $have_cuda = yes && test -f "$d/include/nccl.h"], [have_nccl=yes NCCL_DIR=$d])
    done
    AS_IF([test $have_nccl = no && test "x$with_nccl" != xguess],
      [AC_MSG_ERROR([NCCL asked for but no include/nccl.h under: $nccl_dirs (it also needs CUDA)])])
  ])
  AS_IF([test $have_nccl = yes], [
    AC_DEFINE([HAVE_NCCL], [1], [nccl.h is there; the library is loaded at run time])
    NCCL_CPPFLAGS="-isystem $NCCL_DIR/include"])
  AC_SUBST([NCCL_CPPFLAGS])
  AM_CONDITIONAL([HAVE_NCCL], [test $have_nccl = yes])
])

AC_DEFUN([HCP_CUPTI], [
  AC_ARG_WITH([cupti], [AS_HELP_STRING([--with-cupti@<:@=DIR@:>@], [CUPTI kernel times as cross-check @<:@guess@:>@])],
    [], [with_cupti=guess])
  have_cupti=no
  AS_IF([test "x$with_cupti" != xno], [
    AS_CASE([$with_cupti], [yes|guess], [cupti_dirs="$CUDA_DIR $CUDA_DIR/extras/CUPTI"], [cupti_dirs=$with_cupti])
    for d in $cupti_dirs; do
      AS_IF([test $have_cupti = no && test $have_cuda = yes && test -f "$d/include/cupti.h"], [have_cupti=yes CUPTI_DIR=$d])
    done
    AS_IF([test $have_cupti = no && test "x$with_cupti" != xguess],
      [AC_MSG_ERROR([CUPTI asked for but no include/cupti.h under: $cupti_dirs (it also needs CUDA)])])
  ])
  AS_IF([test $have_cupti = yes], [
    AC_DEFINE([HAVE_CUPTI], [1], [cupti.h is there; the library is loaded at run time])
    CUPTI_CPPFLAGS="-isystem $CUPTI_DIR/include"])
  AC_SUBST([CUPTI_CPPFLAGS])
  AM_CONDITIONAL([HAVE_CUPTI], [test $have_cupti = yes])
])

AC_DEFUN([HCP_MPI], [
  AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi@<:@=DIR@:>@], [MPI for hcp-ring @<:@guess@:>@])],
    [], [with_mpi=guess])
  have_mpi=no
  AS_IF([test "x$with_mpi" != xno], [
    AS_CASE([$with_mpi],
      [yes|guess], [AC_PATH_PROGS([MPICC], [mpicc])],
      [AC_PATH_PROGS([MPICC], [mpicc], [], [$with_mpi/bin])])
    AS_IF([test -n "$MPICC"], [have_mpi=yes],
      [test "x$with_mpi" != xguess], [AC_MSG_ERROR([MPI asked for but no mpicc found; install libopenmpi-dev or give --with-mpi=DIR])])
  ])
  AS_IF([test $have_mpi = yes], [
    # Programs are compiled by CC with what the wrapper would add: one compiler, one set
    # of warnings. Both Open MPI and MPICH answer -show.
    hcp_mpi_words=`$MPICC -show | sed 's/^@<:@^ @:>@* *//; s/-I */-isystem /g'`
    MPI_LIBS= MPI_CFLAGS=
    for word in $hcp_mpi_words; do
      AS_CASE([$word], [-L*|-l*|-Wl*], [MPI_LIBS="$MPI_LIBS $word"],
        [MPI_CFLAGS="$MPI_CFLAGS $word"])
    done
    hcp_save_CFLAGS=$CFLAGS hcp_save_LIBS=$LIBS
    CFLAGS="$CFLAGS $MPI_CFLAGS" LIBS="$MPI_LIBS $LIBS"
    AC_MSG_CHECKING([whether MPI programs link])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Finalize();]])],
      [AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no])
      AS_IF([test "x$with_mpi" != xguess], [AC_MSG_ERROR([MPI asked for but programs do not link with: $MPI_LIBS])])
      have_mpi=no])
    CFLAGS=$hcp_save_CFLAGS LIBS=$hcp_save_LIBS
  ])
  AS_IF([test $have_mpi = yes], [AC_DEFINE([HAVE_MPI], [1], [MPI is there])])
  AC_SUBST([MPI_CFLAGS]) AC_SUBST([MPI_LIBS])
  AM_CONDITIONAL([HAVE_MPI], [test $have_mpi = yes])
])

AC_DEFUN([HCP_HWLOC], [
  AC_ARG_WITH([hwloc], [AS_HELP_STRING([--with-hwloc], [PCIe bridges, NUMA nodes and network cards of links @<:@guess@:>@])],
    [], [with_hwloc=guess])
  have_hwloc=no
  AS_IF([test "x$with_hwloc" != xno], [
    PKG_CHECK_MODULES([HWLOC], [hwloc >= 2.1], [have_hwloc=yes], [
      AS_IF([test "x$with_hwloc" != xguess], [AC_MSG_ERROR([hwloc asked for but not found; install libhwloc-dev])])])
  ])
  AS_IF([test $have_hwloc = yes], [AC_DEFINE([HAVE_HWLOC], [1], [hwloc is there])])
  AC_SUBST([HWLOC_CFLAGS]) AC_SUBST([HWLOC_LIBS])
])

AC_DEFUN([HCP_TEST_TOOLS], [
  PKG_CHECK_MODULES([CMOCKA], [cmocka], [have_cmocka=yes], [have_cmocka=no])
  AM_CONDITIONAL([HAVE_CMOCKA], [test $have_cmocka = yes])
  AC_PATH_PROG([BATS], [bats], [no])
  AM_CONDITIONAL([HAVE_BATS], [test "x$BATS" != xno])
  AC_PATH_PROG([MANDOC], [mandoc], [no])
])

AC_DEFUN([HCP_SUMMARY], [
  AS_IF([test $have_cuda = yes], [s_cuda="yes, $CUDA_DIR"], [s_cuda="no: profiles this CPU and recorded machines only (--with-cuda=DIR)"])
  AS_IF([test $have_cudnn = yes], [s_cudnn="yes, loaded at run time"], [s_cudnn="no: cudnn.h not found; GPUs get the reference kernel only"])
  AS_IF([test $have_nccl = yes], [s_nccl="yes, loaded at run time"], [s_nccl="no: no GPU-to-GPU transport"])
  AS_IF([test $have_cupti = yes], [s_cupti="yes, loaded at run time"], [s_cupti="no: CUDA events without cross-check"])
  AS_IF([test $have_mpi = yes], [s_mpi="yes, $MPICC"], [s_mpi="no: hcp-ring will not be built"])
  AS_IF([test $have_hwloc = yes], [s_hwloc="yes"], [s_hwloc="no: PCIe and NUMA nodes of links stay unknown (libhwloc-dev)"])
  AS_IF([test $have_cmocka = yes && test "x$BATS" != xno], [s_tests="yes (cmocka, bats)"], [s_tests="incomplete: install libcmocka-dev and bats"])
  AC_MSG_NOTICE([
  hcp $PACKAGE_VERSION
    prefix             $prefix
    CUDA kernels       $s_cuda
    cuDNN provider     $s_cudnn
    CUPTI cross-check  $s_cupti
    NCCL transport     $s_nccl
    MPI                $s_mpi
    hwloc              $s_hwloc
    tests              $s_tests
])
])
