#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The transports between processes of this host.
program=${top_builddir:-.}/tests/ring-transport-test
if ! command -v mpirun >/dev/null 2>&1; then
    echo "1..0 # SKIP mpirun is not installed"
    exit 0
fi
if [ ! -x "$program" ]; then
    echo "1..0 # SKIP built without MPI"
    exit 0
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# What MPI keeps is no leak of ours.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
oversubscribe=
if mpirun --version 2>&1 | grep -q 'Open MPI\|OpenRTE'; then
    oversubscribe='--oversubscribe --bind-to none'
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
n=0

# Points of one run, numbered on; that it ends well is a point too.
run() { # RANKS CASE...
    ranks=$1
    shift
    # shellcheck disable=SC2086 # options are words
    timeout -k 5 60 mpirun $oversubscribe -np "$ranks" "$program" "$@" >"$out" 2>&1 </dev/null
    status=$?
    while IFS= read -r line; do
        case $line in
        'ok '* | 'not ok '*)
            n=$((n + 1))
            echo "${line%%ok *}ok $n - ${line#* - }"
            ;;
        1..*) ;;
        *) echo "# ${line#\# }" ;;
        esac
    done <"$out"
    n=$((n + 1))
    [ $status -eq 0 ] && echo "ok $n - $ranks ranks: $*" ||
        echo "not ok $n - $ranks ranks: $* (status $status)"
}

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
HCP_NCCL=${top_builddir:-.}/tests/.libs/fake-nccl.so
export HCP_NCCL
if [ -e "$HCP_NCCL" ]; then
    for ranks in 1 2 3 4 5; do
        run $ranks nccl passes "$(scaled 20)"
    done
    run 3 nccl shared
    run 2 nccl silent
    run 3 nccl silent
    run 2 nccl untaken
    run 2 nccl cancel
fi
echo "1..$n"
