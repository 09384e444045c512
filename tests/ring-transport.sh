#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The transports between processes of this host.
program=${top_builddir:-.}/tests/ring-transport-test
# shellcheck source=tests/mpi-tap.sh
. "${top_srcdir:-.}/tests/mpi-tap.sh"

# In one process what leaves no failed transport behind comes first.
run 1 cpu passes 5 queues
run 2 cpu passes "$(scaled 60)" silent untaken cancel
run 3 cpu passes "$(scaled 40)" refused silent mismatch
run 4 cpu settle passes "$(scaled 30)"
run 7 cpu passes "$(scaled 15)"
# 4 GB of memory: on request.
[ -z "$HCP_TEST_HUGE" ] || run 2 cpu huge
run 2 staged passes "$(scaled 30)"
run 4 staged settle passes "$(scaled 20)"
if grep -q '^#define HAVE_CUDA' "${top_builddir:-.}/config.h"; then
    FAKE_GPU_SHARED=1
    export FAKE_GPU_SHARED
    run 2 copy passes "$(scaled 40)" shared silent untaken cancel length
    unset FAKE_GPU_SHARED
fi
HCP_NCCL=${top_builddir:-.}/tests/.libs/fake-nccl.so
export HCP_NCCL
if [ -e "$HCP_NCCL" ]; then
    run 1 nccl passes "$(scaled 20)"
    run 2 nccl passes "$(scaled 20)" channels precede silent untaken cancel
    run 3 nccl passes "$(scaled 20)" shared precede silent hosts
    run 4 nccl settle passes "$(scaled 20)"
    run 5 nccl passes "$(scaled 20)"
fi
echo "1..$n"
