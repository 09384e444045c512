#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The transports between processes of this host.
program=${top_builddir:-.}/tests/ring-transport-test
# shellcheck source=tests/mpi-tap.sh
. "${top_srcdir:-.}/tests/mpi-tap.sh"

scaled() { # N: as many times as HCP_TEST_SCALE says, 4 at least and N at most
    awk -v n="$1" -v s="${HCP_TEST_SCALE:-1}" \
        'BEGIN { m = int(n * s); print (m < 4 ? 4 : m > n ? n : m) }'
}

run 1 cpu passes 5
run 2 cpu passes "$(scaled 60)"
run 3 cpu passes "$(scaled 40)"
run 4 cpu passes "$(scaled 30)"
run 7 cpu passes "$(scaled 15)"
run 3 cpu refused
run 2 cpu silent
run 3 cpu silent
run 2 cpu untaken
run 2 cpu cancel
run 3 cpu mismatch
# 4 GB of memory: on request.
[ -z "$HCP_TEST_HUGE" ] || run 2 cpu huge
run 2 staged passes "$(scaled 30)"
run 4 staged passes "$(scaled 20)"
if grep -q '^#define HAVE_CUDA' "${top_builddir:-.}/config.h"; then
    FAKE_GPU_SHARED=1
    export FAKE_GPU_SHARED
    run 2 copy passes "$(scaled 40)"
    run 2 copy shared
    run 2 copy silent
    run 2 copy untaken
    run 2 copy cancel
    run 2 copy length
    unset FAKE_GPU_SHARED
fi
HCP_NCCL=${top_builddir:-.}/tests/.libs/fake-nccl.so
export HCP_NCCL
if [ -e "$HCP_NCCL" ]; then
    for ranks in 1 2 3 4 5; do
        run $ranks nccl passes "$(scaled 20)"
    done
    run 3 nccl shared
    run 2 nccl channels
    run 2 nccl precede
    run 3 nccl precede
    run 2 nccl silent
    run 3 nccl silent
    run 2 nccl untaken
    run 2 nccl cancel
fi
echo "1..$n"
