# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # the harness sets some
# hcp-ring on CPU ranks, for the bats files ring-*.bats.
load scale

# Skips where hcp-ring cannot run. Everything of a test is in its own directory: what is
# left there, or runs with a name of it on its command line, was left behind.
ring_setup() {
    [ -x "$top_builddir/executor/hcp-ring" ] || skip "built without MPI"
    command -v mpirun >/dev/null || skip "no mpirun"
    cd "$BATS_TEST_TMPDIR" || return 1
    unset HCP_DB
    mkdir tmp
    export TMPDIR=$BATS_TEST_TMPDIR/tmp
    # What --local sets, so that mpirun needs no arguments.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
    # A launcher is not to wait a second for ranks that end by themselves.
    export OMPI_MCA_odls_base_sigkill_timeout=0
    # LeakSanitizer knows neither what MPI keeps nor how to stop its threads (it crashes
    # now and then); ring-leak.sh looks for leaks.
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
    cpu=$(cpu_device)
}

cpu_device() { # what plans call this CPU
    hcp-profile devices 2>/dev/null | awk '$1 == "cpu" { print $2; exit }'
}

# add_models DB DTYPE BATCH HEADS KV_HEADS HEAD_DIM [LIMITS [LENGTH]]: times of this CPU
# as a formula has them (1 TFLOP/s would not matter: nobody compares them with a clock).
add_models() {
    local raw=$TMPDIR/raw.$$.db formula=${FORMULA:-a=2e-6,b=1e-4,c=5e-5,f=0.02}
    hcp-profile run --db "$raw" --device "synthetic:name=$(cpu_device),$formula" --limits "${7:-none}" \
        --dtype "$2" --batch "$3" --heads "$4" --kv-heads "$5" --head-dim "$6" \
        --max-len "${8:-1K}" >/dev/null 2>&1
    # The kernel that the ranks run, and the limits of a CPU.
    hcp-profile export --db "$raw" --format csv 2>/dev/null |
        sed 's/,synthetic,\('"$2"'\),/,cpu-blas,\1,/' | hcp-profile import --db "$1" - >/dev/null 2>&1
    hcp-plan fit --quiet --db "$1"
    rm -f "$raw"*
}

# plan DB FILE RANKS MASK LAYOUT TOKENS [OPTION...]: a plan of these tokens (4,0,3).
plan() {
    local db=$1 file=$2 ranks=$3 mask=$4 layout=$5 tokens=$6
    shift 6
    hcp-plan split --db "$db" --ranks "$ranks" --mask "$mask" --layout "$layout" --tokens "$tokens" \
        --seq-len $((${tokens//,/+})) --extrapolate --json "$@" >"$file"
}

# ring N OPTION...: hcp-ring on N ranks, quick unless told otherwise. No number of passes and
# no wait is cut short on a busy machine.
ring() {
    local n=$1
    shift
    timeout -k 5 600 mpirun -np "$n" hcp-ring --warm-up 0 --repeat 1 --max-time 500 --timeout 300 "$@"
}

# Ranks whose words go to the files out and err, as a launcher that ends a run may lose them:
#     mpirun -np N ./apart hcp-ring ...
# and, after apart alone, their exit codes to code-RANK: the launcher then ends none of them
# when one has ended.
apart() {
    local then=exec
    unset OMPI_MCA_orte_enable_recovery
    rm -rf marks out err code-*
    mkdir marks
    touch out err
    export HCP_FAULTY_MARK=$PWD/marks
    if [ "${1:-}" = alone ]; then
        export OMPI_MCA_orte_enable_recovery=1
        then=
    fi
    # shellcheck disable=SC2016 # it is the script's
    printf '#!/bin/sh\ncd "%s"\n%s "$@" >>out 2>>err\necho $? >"code-$OMPI_COMM_WORLD_RANK"\n' \
        "$PWD" "$then" >apart
    chmod +x apart
}

# until_computing N: N ranks have computed, with the plug-in that leaves marks.
until_computing() {
    for _ in $(seq 2400); do
        [ "$(find marks -name 'pid-*' | wc -l)" -lt "$1" ] || return 0
        sleep 0.05
    done
    cat out err
    return 1
}

# Results in $output of --json, one a line.
results() {
    sed 's/{"schema":/\n&/g' <<<"$output" | grep '^{"schema":'
}

# Processes of this test that still run, after at most a minute.
nothing_left() {
    local left=
    for _ in $(seq 600); do
        left=$(pgrep -f -a -- "$BATS_TEST_TMPDIR/" | grep -v " <defunct>" || true)
        [ -n "$left" ] || [ -n "$(find tmp -mindepth 1 -name 'hcp-*' 2>/dev/null)" ] || return 0
        sleep 0.1
    done
    echo "left behind: $left $(find tmp -mindepth 1)"
    return 1
}

# Rehearsals of --rebalance: a file's models, and each test's copy of them with its $shape.
rehearsal_models() {
    export TMPDIR=$BATS_FILE_TMPDIR
    add_models "$TMPDIR/m.db" fp32 1 2 1 32 none 2K
}
rehearsal_setup() {
    ring_setup
    # shellcheck disable=SC2034 # the tests'
    shape=(--dtype fp32 --batch 1 --heads 2 --kv-heads 1 --head-dim 32)
    cp "$BATS_FILE_TMPDIR/m.db" .
    export HCP_REHEARSE=1
}

tokens() { # of a phase by its line: "1008 992"
    sed 's/.*"tokens":\[\([0-9,]*\)\].*/\1/; y/,/ /' <<<"$1"
}
