#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Transfers both ways at once and one way, as hcp-link queues them.
program=${top_builddir:-.}/tests/link-queued-test
HCP_NCCL=${top_builddir:-.}/tests/.libs/fake-nccl.so
export HCP_NCCL
# shellcheck source=tests/mpi-tap.sh
. "${top_srcdir:-.}/tests/mpi-tap.sh"
[ -e "$HCP_NCCL" ] || skip_all "built without NCCL"
unset CUDA_DEVICE_MAX_CONNECTIONS FAKE_GPU_QUEUES FAKE_GPU_PARTIAL FAKE_GPU_SHARED
run 2 nccl
FAKE_GPU_SHARED=1 run 2 copy
echo "1..$n"
