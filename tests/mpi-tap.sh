# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by the tests whose points a program prints under mpirun; $program names it. The
# points of all runs are numbered on; the test prints the plan, 1..$n.
: "${program:?}"
skip_all() { # TEXT
    echo "1..0 # SKIP $1"
    exit 0
}
command -v mpirun >/dev/null 2>&1 || skip_all "mpirun is not installed"
[ -x "$program" ] || skip_all "built without MPI"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1
# What MPI keeps is no leak of ours.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
oversubscribe=
if mpirun --version 2>&1 | grep -q 'Open MPI\|OpenRTE'; then
    oversubscribe='--oversubscribe --bind-to none'
fi
out=$(mktemp) || exit 99
trap 'rm -f "$out"' EXIT
n=0

scaled() { # N: as many times as HCP_TEST_SCALE says, 4 at least and N at most
    awk -v n="$1" -v s="${HCP_TEST_SCALE:-1}" \
        'BEGIN { m = int(n * s); print (m < 4 ? 4 : m > n ? n : m) }'
}

start() { # RANKS CASE...: its output in $out, its end in $status
    ranks=$1
    shift
    # shellcheck disable=SC2086 # options are words
    timeout -k 5 600 mpirun $oversubscribe -np "$ranks" "$program" "$@" >"$out" 2>&1 </dev/null
    status=$?
}

# RANKS CASE...: the program's points; that it ends well is a point too.
run() {
    start "$@"
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
    shift
    n=$((n + 1))
    [ $status -eq 0 ] && echo "ok $n - $ranks ranks: $*" ||
        echo "not ok $n - $ranks ranks: $* (status $status)"
}
