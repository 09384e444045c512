#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# The group of ranks under mpirun: agreement, limits, and the end of one of them.

bats_require_minimum_version 1.5.0
load scale

setup() {
    long_test
    cd "$BATS_TEST_TMPDIR" || return 1
    prog=$top_builddir/tests/ring-comm
    [ -x "$prog" ] || skip "built without MPI"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # What MPI keeps is no leak of ours.
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
    export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_btl_vader_single_copy_mechanism=none
    dir=$BATS_TEST_TMPDIR
}

teardown() {
    if [ -n "${launcher:-}" ] && kill -0 "$launcher" 2>/dev/null; then
        kill -TERM "$launcher"
        wait "$launcher" || true
    fi
}

ranks() { # ranks N COMMAND...: to the end
    local n=$1
    shift
    timeout 300 mpirun -np "$n" "$prog" "$@"
}
# start N COMMAND...: in the background; returns when all ranks are ready. What they say
# goes to files: a launcher that ends a run may lose it.
start() {
    local n=$1
    shift
    printf '#!/bin/sh\nexec "$@" >>"%s/out" 2>>"%s/err"\n' "$dir" "$dir" >apart
    in_background "$n" "$@"
}
# The launcher ends none of them when one has ended: the others do so by themselves, and
# leave their exit codes.
start_alone() {
    local n=$1
    shift
    # shellcheck disable=SC2016 # it is the script's
    printf '#!/bin/sh\n"$@" >>"%s/out" 2>>"%s/err"\necho $? >"%s/code-$OMPI_COMM_WORLD_RANK"\n' \
        "$dir" "$dir" "$dir" >apart
    OMPI_MCA_orte_enable_recovery=1 in_background "$n" "$@"
}
in_background() {
    local n=$1
    shift
    chmod +x apart
    touch out err
    timeout -k 5 300 mpirun -np "$n" "$dir/apart" "$prog" "$@" >launcher 2>&1 3>&- &
    launcher=$!
    for _ in $(seq 2400); do
        [ "$(find "$dir" -maxdepth 1 -name 'pid-*' | wc -l)" -lt "$n" ] || return 0
        sleep 0.05
    done
    cat out err launcher
    return 1
}
told() { # told N: N ranks have printed
    for _ in $(seq 2400); do
        [ "$(wc -l <"$dir/out")" -lt "$1" ] || return 0
        sleep 0.05
    done
    cat out err launcher
    return 1
}
pid_of() {
    cat "$dir/pid-$1"
}
finish() { # the launcher's end and its status
    status=0
    wait "$launcher" || status=$?
    launcher=
    cat out err launcher
    [ "$status" -lt 124 ] || [ "$status" -gt 127 ]
}
failed() { # failed RANK...: they have ended with exit code 1
    for r in "$@"; do
        [ "$(cat "code-$r")" -eq 1 ]
    done
}
message_of() { # what rank N printed: one line or none
    grep "^hcp-ring: rank $1: " "$dir/err" || true
}
process_gone() { # a zombie counts as gone
    for _ in $(seq 1200); do
        kill -0 "$1" 2>/dev/null || return 0
        grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null && return 0
        sleep 0.05
    done
    return 1
}

@test "errors: all ranks get that of the lowest rank that has one" {
    run --separate-stderr ranks 4 all-ok
    [ "$status" -eq 0 ]
    [ "$(sort <<<"$output" | tr '\n' '|')" = "0: 0 |1: 0 |2: 0 |3: 0 |" ]
    run --separate-stderr ranks 4 all-ok 3 1n
    host=$(hostname)
    for r in 0 1 2 3; do
        grep -qxF "$r: 3 rank 1 (${host:0:63}): rank 1n is told to fail" <<<"$output"
    done
    run --separate-stderr ranks 1 all-ok 0
    [[ "$output" == "0: 1 rank 0 ("*"): rank 0 is told to fail" ]]
}

@test "agreement: each field, its values and ranks, the same text everywhere" {
    local -A text=(
        [fingerprint=11bc]="plan fingerprint 00000000000093fa on ranks 0, 2-3, but 00000000000011bc on rank 1; load the same models"
        [tool=0.2.0]="version 0.1.0 on ranks 0, 2-3, but 0.2.0 on rank 1; install the same version"
        [lib=2]="libhcpplan 1 on ranks 0, 2-3, but 2 on rank 1; install the same version"
        [len=4096]="tokens 65536 on ranks 0, 2-3, but 4096 on rank 1; load"
        [ranks=2]="ranks 4 on ranks 0, 2-3, but 2 on rank 1; load"
        [shape=other]="shape bf16 32/8 heads x 128, batch 1, causal, zigzag on ranks 0, 2-3, but other on rank 1; load"
        [options=]="options buffers 2, sub-blocks 1 on ranks 0, 2-3, but seed 3 on rank 1; give all ranks the same options"
        [kernel=cudnn]="kernel cpu on ranks 0, 2-3, but cudnn on rank 1; give all ranks the same kernel"
    )
    local cases=()
    for field in "${!text[@]}"; do
        [ "$field" = options= ] && cases+=("1:options=seed 3" +) || cases+=("1:$field" +)
    done
    run --separate-stderr ranks 4 agree "${cases[@]}" # the last: nothing differs
    [ "$status" -eq 0 ]
    for field in "${!text[@]}"; do
        [ "$(grep -cF ": 1 the ranks do not agree: ${text[$field]}" <<<"$output")" -eq 4 ]
    done
    [ "$(cut -d' ' -f2- <<<"$output" | sort -u | wc -l)" -eq 9 ]
    [ "$(grep -c '^[0-3]: 0 $' <<<"$output")" -eq 4 ]
}

@test "agreement: several fields, several values, and more than fits" {
    run --separate-stderr ranks 4 agree 3:len=1 0:tool=9 1:kernel=a 2:kernel=b 3:kernel=c
    [[ "$output" == *"version 9 on rank 0, but 0.1.0 on ranks 1-3; tokens 65536 on ranks 0-2, but 1 on rank 3; kernel cpu on rank 0, but a on rank 1, but b on rank 2, and others on rank 3; install the same version on all hosts"* ]]
    run --separate-stderr ranks 14 agree {1,3,5,7,9,11,13}:len=1
    [[ "$output" == *": tokens 65536 on ranks 0, 2, 4, 6, 8, 10 and 1 more, but 1 on ranks 1, 3, 5, 7, 9, 11 and 1 more; load"* ]]
    local long args=()
    long=$(printf 'x%.0s' $(seq 70))
    for r in 1 2 3; do
        args+=("$r:shape=$long$r" "$r:options=$long$r" "$r:kernel=$long$r" "$r:fingerprint=$r")
    done
    run --separate-stderr ranks 4 agree "${args[@]}"
    [ "$(cut -d' ' -f2- <<<"$output" | sort -u | wc -l)" -eq 1 ]
    [[ "$output" == *"; different too: "*kernel"; load the same models or give all ranks the same plan file"* ]]
}

@test "a rank that is killed: the others name it and end" {
    start_alone 4 watch "$dir" 600
    kill -9 "$(pid_of 1)"
    finish
    failed 0 2 3
    # Whichever came first in time, everybody names the rank that was first to end.
    for r in 0 2 3; do
        before=$(((r + 3) % 4))
        [[ "$(message_of $r)" == "hcp-ring: rank $r: rank 1 (pid $(pid_of 1) on "*") ended while this rank was waiting for the KV of rank $before (step 1)" ]]
        grep -q "^$r: stopping" "$dir/out"
        process_gone "$(pid_of $r)"
    done
}

@test "a rank that fails by itself: its own error, and the others name it" {
    start_alone 3 watch "$dir" 600 fail 2
    finish
    failed 0 1 2
    [ "$(message_of 2)" = "hcp-ring: rank 2: the kernel failed" ]
    for r in 0 1; do
        [[ "$(message_of $r)" == *": rank 2 (pid $(pid_of 2) on "*") ended while"* ]]
    done
}

@test "a rank that does not answer: a time-out that names it; the launcher ends what is left" {
    export OMPI_MCA_odls_base_sigkill_timeout=0
    start 2 watch "$dir" 1 stop 1
    finish
    [ "$status" -ne 0 ]
    [ "$(message_of 0)" = "hcp-ring: rank 0: nothing from rank 1 for 1 s while waiting for the KV of rank 1 (step 1): giving up (--timeout)" ]
    process_gone "$(pid_of 1)"
}

@test "a stop that hangs does not keep the process" {
    start_alone 2 watch "$dir" 600 hang
    kill -9 "$(pid_of 1)"
    finish
    failed 0
    [[ "$(message_of 0)" == *"rank 1 (pid "*") ended while"* ]]
    process_gone "$(pid_of 0)"
}

@test "the launcher is stopped: the ranks end" {
    start 3 watch "$dir" 600
    kill -TERM "$(pgrep -P "$launcher")"
    finish
    [ "$status" -ne 0 ]
    for r in 0 1 2; do
        process_gone "$(pid_of $r)"
    done
}

@test "all ranks are signalled: none blames another" {
    start_alone 3 watch "$dir" 600
    kill -TERM "$(pid_of 0)" "$(pid_of 1)" "$(pid_of 2)"
    finish
    failed 0 1 2
    [ "$(grep -c '^hcp-ring: .*stopped by the launcher' err)" -eq 3 ]
    run ! grep '^hcp-ring:.*(pid ' err
}

@test "a rank is signalled: it says so, and is not taken for dead" {
    start_alone 3 watch "$dir" 600
    kill -TERM "$(pid_of 2)"
    finish
    failed 0 1 2
    [ "$(message_of 2)" = "hcp-ring: rank 2: stopped by the launcher (interrupted or cancelled) while this rank was waiting for the KV of rank 1 (step 1)" ]
    run ! grep '^hcp-ring:.*(pid ' err
}

@test "a rank is interrupted" {
    start_alone 2 watch "$dir" 600
    kill -INT "$(pid_of 0)"
    finish
    failed 0 1
    [ "$(message_of 0)" = "hcp-ring: rank 0: interrupted while this rank was waiting for the KV of rank 1 (step 1)" ]
}

@test "the end of a good run is no failure, however the ranks leave" {
    run --separate-stderr ranks 4 watch "$dir" 600 end
    [ "$status" -eq 0 ]
    [ "$(sort <<<"$output" | tr '\n' '|')" = "0: 0 |1: 0 |2: 0 |3: 0 |" ]
    [[ "$stderr" != *hcp-ring* ]]
}

fake_mps() {
    cp "$top_srcdir/tests/fake-mps-control" "$dir/nvidia-cuda-mps-control"
    chmod +x "$dir/nvidia-cuda-mps-control"
    mkdir "$dir/tmp"
    export HCP_MPS_CONTROL=$dir/nvidia-cuda-mps-control HCP_MPS_WAIT=10 TMPDIR=$dir/tmp
    export FAKE_MPS_PID=$dir/daemon
    unset FAKE_MPS
}

@test "limits: one daemon for the host, gone when the ranks are" {
    fake_mps
    start 4 limit "$dir" mps:30 - cpu:50 mps:70
    told 4
    sort "$dir/out"
    grep -qx "0: 0 30 .*/hcp-mps-.*/pipe" "$dir/out"
    grep -qx "1: 0 - -" "$dir/out"
    grep -qx "2: 0 - -" "$dir/out"
    grep -qx "3: 0 70 .*/hcp-mps-.*/pipe" "$dir/out"
    pipe=$(sed -n 's/^0: 0 30 //p' "$dir/out")
    [ "$pipe" = "$(sed -n 's/^3: 0 70 //p' "$dir/out")" ]
    [ -d "$pipe" ]
    kill -0 "$(cat "$dir/daemon")"
    touch "$dir/go"
    finish
    [ "$status" -eq 0 ]
    process_gone "$(cat "$dir/daemon")"
    for _ in $(seq 600); do # it goes after the ranks, its directories after it
        [ -e "$pipe" ] || break
        sleep 0.1
    done
    [ ! -e "$pipe" ]
}

@test "limits: the daemon ends with a rank that is killed" {
    fake_mps
    start 2 limit "$dir" - mps:70
    told 2
    pipe=$(sed -n 's/^1: 0 70 //p' "$dir/out")
    [ -d "$pipe" ]
    kill -9 "$(pid_of 0)"
    finish
    process_gone "$(cat "$dir/daemon")"
    for _ in $(seq 600); do
        [ -e "$pipe" ] || break
        sleep 0.1
    done
    [ ! -e "$pipe" ]
}

@test "limits: what cannot be had is everybody's error" {
    fake_mps
    FAKE_MPS=refuse run --separate-stderr ranks 3 limit "$dir" - mps:30 -
    [ "$status" -ne 0 ]
    [ "$(grep -c ': 1 rank 1 (.*already running' <<<"$output")" -eq 3 ]
    # One limiter a run; the daemon is not even started.
    run --separate-stderr ranks 3 limit "$dir" - green:24 mps:30
    [ "$(grep -c ': 1 rank 1 (.*limit green:24: another rank of this host has a limit mps:PCT; one limiter a run' <<<"$output")" -eq 3 ]
    [ ! -e "$dir/daemon" ]
    run --separate-stderr ranks 2 limit "$dir" cpu:0 -
    [ "$(grep -c ': 2 rank 0 (.*cpu:0' <<<"$output")" -eq 2 ]
}

@test "--local: mpirun with the same command line, and what it set" {
    unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
    unset OMPI_MCA_mpi_yield_when_idle OMPI_MCA_rmaps_base_oversubscribe
    # More ranks than cores: two on one of them, or as many as there are and one.
    n=$(($(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) + 1)) one=()
    if command -v taskset >/dev/null; then
        n=2 one=(taskset -c "$(awk '/^Cpus_allowed_list/ { sub("[-,].*", "", $2); print $2 }' /proc/self/status)")
    fi
    run --separate-stderr timeout 300 "${one[@]}" "$prog" --local "$n" all-ok 1
    [ "$status" -eq 0 ]
    [ "$(wc -l <<<"$output")" -eq "$n" ]
    [[ "$stderr" == "hcp-ring: --local $n: mpirun -np $n, --bind-to none, "*"mpi_yield_when_idle=1 ("* ]]
    [[ "$stderr" != *$'\n'*hcp-ring* ]]
    [ "$(id -u)" -ne 0 ] || [[ "$stderr" == *"--allow-run-as-root (user id 0)"* ]]
    run --separate-stderr timeout 300 "$prog" --loc=2 all-ok
    [ "$(sort <<<"$output" | tr '\n' '|')" = "0: 0 |1: 0 |" ]
}

@test "a container that forbids reading other processes' memory: no complaints" {
    unset OMPI_MCA_btl_vader_single_copy_mechanism
    mpirun --version | grep -q "Open MPI" || skip "not Open MPI"
    run "$prog" forbid true
    [ "$status" -ne 77 ] || skip "no seccomp here"
    for launch in "mpirun -np 2 $prog" "$prog --local 2"; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr timeout 300 "$prog" forbid $launch exchange
        [ "$status" -eq 0 ]
        [ "$(sort <<<"$output" | tr '\n' '|')" = "0: bb|1: aa|" ]
        [[ "$stderr" != *Read* && "$stderr" != *errno* ]]
    done
    [[ "$stderr" == *"(this container forbids reading another process's memory)"* ]]
}

@test "--local: an mpirun that is missing or belongs to another library" {
    HCP_MPIRUN=/nonexistent/mpirun run --separate-stderr "$prog" --local 2 all-ok
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"cannot run /nonexistent/mpirun of HCP_MPIRUN; install the package openmpi-bin"* ]]
    mpirun --version | grep -q "Open MPI" || skip "not Open MPI"
    printf '#!/bin/sh\necho "HYDRA build details:"\n' >mpirun
    chmod +x mpirun
    PATH=$dir:$PATH run --separate-stderr "$prog" --local 2 all-ok
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"another MPI than hcp-ring"*"HCP_MPIRUN"* ]]
}

@test "whether a launcher started it" {
    [ "$(env -i PATH="$PATH" "$prog" launched)" = 0 ]
    [ "$(env -i PATH="$PATH" SLURM_PROCID=0 "$prog" launched)" = 0 ] # a batch script
    for name in OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK; do
        [ "$(env -i PATH="$PATH" $name=0 "$prog" launched)" = 1 ]
    done
    [ "$(env -i PATH="$PATH" SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 \
        "$prog" launched)" = 1 ]
    [ "$(mpirun -np 2 "$prog" launched | tr '\n' ' ')" = "1 1 " ]
}

@test "ranks take other places" {
    run --separate-stderr ranks 3 reorder
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    for line in '0 is 2 of 3, 2 of 3 here' '1 is 1 of 3, 1 of 3 here' '2 is 0 of 3, 0 of 3 here'; do
        [[ "$output" == *"$line"* ]]
    done
    [[ "$output" == *'rank 2 ('*'): the first'* ]]
}
