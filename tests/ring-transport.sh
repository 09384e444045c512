#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The mpi transport between processes of this host.
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

run 2 passes 60
run 3 passes 40
run 4 passes 30
run 7 passes 15
run 1 passes 5
run 3 refused
run 2 silent
run 3 silent
run 2 untaken
run 2 cancel
run 3 mismatch
# 4 GB of memory: on request.
[ -z "$HCP_TEST_HUGE" ] || run 2 huge
echo "1..$n"
