#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Queued passes of the ring between processes of this host.
program=${top_builddir:-.}/tests/ring-queued-test
HCP_NCCL=${top_builddir:-.}/tests/.libs/fake-nccl.so
export HCP_NCCL
if ! command -v mpirun >/dev/null 2>&1; then
    echo "1..0 # SKIP mpirun is not installed"
    exit 0
fi
if [ ! -x "$program" ] || [ ! -e "$HCP_NCCL" ]; then
    echo "1..0 # SKIP built without MPI or NCCL"
    exit 0
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1
# Computing and moving are threads enough.
export OPENBLAS_NUM_THREADS=1
# What MPI keeps is no leak of ours.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
oversubscribe=
if mpirun --version 2>&1 | grep -q 'Open MPI\|OpenRTE'; then
    oversubscribe='--oversubscribe --bind-to none'
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
n=0

start() { # RANKS CASE...
    ranks=$1
    shift
    # shellcheck disable=SC2086 # options are words
    timeout -k 5 60 mpirun $oversubscribe -np "$ranks" "$program" "$@" >"$out" 2>&1 </dev/null
    status=$?
}

point() { # STATUS TEXT
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else
        echo "not ok $n - $2"
        sed 's/^/# /' "$out"
    fi
}

# Points of one run, numbered on; that it ends well is a point too.
run() { # RANKS CASE...
    start "$@"
    while IFS= read -r line; do
        case $line in
        'ok '* | 'not ok '*)
            n=$((n + 1))
            echo "${line%%ok *}ok $n - ${line#* - }"
            ;;
        *) echo "# ${line#\# }" ;;
        esac
    done <"$out"
    n=$((n + 1))
    [ $status -eq 0 ] && echo "ok $n - ended: $*" ||
        echo "not ok $n - ended: $* (status $status)"
}

unset CUDA_DEVICE_MAX_CONNECTIONS FAKE_GPU_QUEUES FAKE_GPU_PARTIAL
run 1 rings 1 4
run 2 rings 2 8
run 3 rings 3 6
run 4 rings 4 4
run 5 rings 10 6
FAKE_GPU_PARTIAL=1 run 3 rings 5 4
# Streams that wait for each other, computing for a transfer among them.
FAKE_GPU_QUEUES=2 run 2 rings 6 5
FAKE_GPU_QUEUES=2 run 3 rings 7 4
FAKE_GPU_QUEUES=3 run 4 rings 8 4
# With one queue a ring stands still: it is not to run with one.
CUDA_DEVICE_MAX_CONNECTIONS=1 run 2 rings 9 3
run 3 unordered 1

start 2 stuck 1
grep -q 'rank [01]: .*giving up (--timeout)' "$out" && [ $status -eq 1 ]
point $? "a device that never gets on is given up by name, with status 1"

echo "1..$n"
