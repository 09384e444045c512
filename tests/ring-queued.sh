#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Queued passes of the ring between processes of this host.
program=${top_builddir:-.}/tests/ring-queued-test
HCP_NCCL=${top_builddir:-.}/tests/.libs/fake-nccl.so
export HCP_NCCL
# shellcheck source=tests/mpi-tap.sh
. "${top_srcdir:-.}/tests/mpi-tap.sh"
[ -e "$HCP_NCCL" ] || skip_all "built without NCCL"
# Computing and moving are threads enough.
export OPENBLAS_NUM_THREADS=1

point() { # STATUS TEXT
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else
        echo "not ok $n - $2"
        sed 's/^/# /' "$out"
    fi
}

unset CUDA_DEVICE_MAX_CONNECTIONS FAKE_GPU_QUEUES FAKE_GPU_PARTIAL
run 1 rings 1 4
run 2 rings 2 "$(scaled 8)" decode 21 "$(scaled 9)" moves 31 "$(scaled 8)" documents 41 "$(scaled 6)"
run 3 rings 3 "$(scaled 6)" decode 22 "$(scaled 9)" slowed 51 "$(scaled 6)"
run 4 rings 4 4 levels 11 "$(scaled 6)" documents 42 "$(scaled 6)"
run 5 rings 10 "$(scaled 6)" moves 32 "$(scaled 6)"
run 6 levels 12 4
run 1 chunks 61 4
run 2 chunks 62 "$(scaled 6)"
run 4 chunks 63 "$(scaled 6)"
FAKE_GPU_PARTIAL=1 run 3 rings 5 4 chunks 64 4
FAKE_GPU_PARTIAL=1 run 5 decode 23 "$(scaled 6)"
# Streams that wait for each other, computing for a transfer among them.
FAKE_GPU_QUEUES=2 run 2 rings 6 "$(scaled 5)"
FAKE_GPU_QUEUES=2 run 3 rings 7 4 chunks 65 4
FAKE_GPU_QUEUES=3 run 4 rings 8 4 levels 13 4
# With one queue a ring stands still: it is not to run with one.
CUDA_DEVICE_MAX_CONNECTIONS=1 run 2 rings 9 3
run 3 staged 24 "$(scaled 6)"
run 3 unordered 1
# Ranks that fail; over MPI, too.
run 2 lost 51 "$(scaled 12)"
run 3 lost 52 "$(scaled 12)"
run 4 lost 53 "$(scaled 12)"
FAKE_GPU_QUEUES=3 run 3 lost 54 "$(scaled 9)"
run 3 lost-staged 55 "$(scaled 12)"
run 4 lost-staged 56 "$(scaled 12)"

start 2 stuck 1
grep -q '^ok 1 - right before' "$out" && grep -q 'rank [01]: .*giving up (--timeout)' "$out" &&
    [ $status -eq 1 ]
point $? "a device that never gets on is given up by name, with status 1"

echo "1..$n"
