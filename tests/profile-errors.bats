#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-profile devices and run with wrong arguments, broken kernels, daemons and disks:
# exit code and message.

bats_require_minimum_version 1.5.0
load scale

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export HCP_DB=$BATS_TEST_TMPDIR/h.db
    unset HCP_MPS_CONTROL FAKE_MPS CUDA_MPS_PIPE_DIRECTORY
    toy=synthetic:name=toy
    shape=(--heads 2 --kv-heads 1 --head-dim 64 --dtype fp32)
    faulty=$top_builddir/tests/.libs/plugin-faulty.so
}

# refuse CODE WORDS COMMAND...: this exit code, these words on stderr.
refuse() {
    code=$1 words=$2
    shift 2
    run --separate-stderr "$@"
    echo "status $status: $stderr" >&2
    [ "$status" -eq "$code" ]
    [[ "$stderr" == *"$words"* ]]
}
# usage WORDS ARGUMENTS...: hcp-profile run refuses them and makes no database.
usage() {
    words=$1
    shift
    refuse 2 "$words" hcp-profile run --db no.db "$@"
    [ ! -e no.db ]
}
stored() {
    hcp-profile export --format jsonl 2>/dev/null | grep -c '"status":"ok"' || true
}
eventually() { # COMMAND... comes true, within two minutes
    for _ in $(seq 1200); do
        ! "$@" 2>/dev/null || return 0
        sleep 0.1
    done
    return 1
}
gone() { # its parent may be slow to collect it
    for _ in $(seq 600); do
        kill -0 "$1" 2>/dev/null || return 0
        grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null && return 0
        sleep 0.1
    done
    return 1
}
# The script in the daemon's place, under the daemon's name.
fake_mps() {
    mkdir -p fake
    cp "$top_srcdir/tests/fake-mps-control" fake/nvidia-cuda-mps-control
    chmod 755 fake fake/nvidia-cuda-mps-control
    export FAKE_MPS=$1 HCP_MPS_WAIT=1 PATH=$PWD/fake:$PATH FAKE_MPS_PID=$PWD/daemon TMPDIR=$PWD
    [ "${#TMPDIR}" -le 48 ] || export TMPDIR=/tmp
}

@test "levels: 0, 101, words, fractions, holes" {
    usage "--levels: a level '0' is out of range; allowed: 1 to 100" --device "$toy" --levels 0
    usage "'101' is out of range" --device "$toy" --levels 10,101
    usage "--levels: a level 'abc'" --device "$toy" --levels abc
    usage "'-5'" --device "$toy" --levels=-5
    usage "'12.5'" --device "$toy" --levels 12.5
    usage "has an empty item" --device "$toy" --levels 10,,20
    usage "has an empty item" --device "$toy" --levels ''
    usage "mps:101" --device "$toy" --limits mps:101
    usage "mps:0" --device "$toy" --limits mps:0
    usage "gpu:5" --device "$toy" --limits gpu:5
    usage "give --levels or --limits, once" --device "$toy" --levels 10 --limits mps:10
}

@test "limits of another kind of device" {
    usage "limit 'mps:10' is not one of a CPU; use cpu:PCT" --device cpu --limits mps:10
    usage "limit 'green:16' is not one of a CPU; use cpu:PCT" --device cpu --limits green:16
    usage "limit 'green:133': this device has 132 SMs" --device "$toy" --limits green:133
}

@test "one limiter a run" {
    usage "limits 'mps:10' and 'green:16': one limiter a run" --device cuda:0 --limits mps:10,none,green:16
    usage "limits 'green:16' and 'mps:10': one limiter a run" --limits green:16,mps:10
    # Times of a machine that is computed or was recorded need no limiter at all.
    hcp-profile run --device "$toy" --limits mps:50,green:66 --q-lens 256 --kv-lens 256 --causal-lens none
}

@test "green contexts without a GPU" {
    hcp-profile devices --json | grep -q '"device":"cuda:0"' && skip "there is a GPU"
    refuse 1 "no CUDA GPU" hcp-profile run --device cuda:0 --limits green:24
    run hcp-profile devices
    [[ "$output" == *"green:SMS no "*"there is no CUDA GPU: "* ]]
    [ "$(hcp-profile devices --json | grep -o '"limit":"[a-z]*"' | tr -d '"' | tr '\n' ' ')" = "limit:mps limit:green limit:cpu " ]
    refuse 2 "'green:16' is not one of a CPU" hcp-profile conform --device cpu --limit green:16
    refuse 2 "cases are checked on a whole device or under green:SMS" hcp-profile conform --limit mps:50
    refuse 2 "--limit: limit 'green:x'" hcp-profile conform --limit green:x
}

@test "lengths" {
    for len in 0 -1 2^40 1099511627776 7.5 64KB '' 1,,2; do
        usage "--q-lens" --device "$toy" --q-lens="$len"
        usage "--kv-lens" --device "$toy" --kv-lens="$len"
        usage "--causal-lens" --device "$toy" --causal-lens="$len"
        usage "--max-len: " --device "$toy" --max-len="$len"
    done
    usage "nothing to measure" --device "$toy" --q-lens none --causal-lens none
    hcp-profile run --device "$toy" --levels 50 --q-lens 1,7 --kv-lens 1,7 --causal-lens 1,7
    [ "$(stored)" -eq 6 ]
}

@test "shapes" {
    usage "32 query heads cannot share 7 KV heads evenly" --device "$toy" --kv-heads 7
    usage "6 query heads cannot share 4 KV heads evenly" --device cpu --heads 6 --kv-heads 4
    usage "--dtype 'int8' is not known" --device "$toy" --dtype int8
    for n in 0 -4 99999999999; do
        usage "--heads '$n' is" --device "$toy" --heads="$n"
        usage "--batch '$n' is" --device "$toy" --batch="$n"
        usage "--head-dim '$n' is" --device "$toy" --head-dim="$n"
    done
}

@test "times" {
    for t in 0 -3 5x m 1e99 nan ''; do
        usage "is not a time; write 90s, 5m or 1h" --device "$toy" --time-budget="$t"
        usage "is not a time; write 90s, 5m or 1h" --device "$toy" --max-cell-time="$t"
    done
}

@test "devices that are not" {
    for d in gpu nvidia-l40s cuda: cpu:1 recorded recorded: synthetic synthetic: '' CUDA:0; do
        usage "unknown device '$d'; use cuda, cuda:N, cpu, recorded:FILE or synthetic:SPEC" --device "$d"
    done
}

@test "synthetic specifications" {
    refuse 2 "unknown key 'speed'; known: name a b c" hcp-profile run --device synthetic:speed=3
    refuse 2 "'a' is not KEY=VALUE" hcp-profile run --device synthetic:a
    refuse 2 "'a=' is not KEY=VALUE" hcp-profile run --device synthetic:a=
    refuse 2 "synthetic: a:" hcp-profile run --device synthetic:a=fast
    refuse 2 "'5e-6' is not KEY=VALUE" hcp-profile run --device synthetic:a=1,5e-6,b=0
    refuse 2 "noise=2 is not a number from 0 to 0.5" hcp-profile run --device synthetic:noise=2
    refuse 2 "sms=1.5 is not a whole number" hcp-profile run --device synthetic:sms=1.5
    refuse 2 "are all 0: no time would pass" hcp-profile run --device synthetic:a=0,b=0,c=0,f=0
    refuse 2 "has no letter or digit" hcp-profile run --device synthetic:name=---
}

@test "recordings that are not" {
    refuse 1 "nosuch" hcp-profile run --device recorded:nosuch
    refuse 1 "./nosuch.csv" hcp-profile run --device recorded:./nosuch.csv
    echo 'device,limit' >short.csv
    refuse 1 "short.csv" hcp-profile run --device recorded:short.csv
    head -c 100 /dev/zero >zero.db
    refuse 1 "zero.db" hcp-profile run --device recorded:./zero.db
    refuse 3 "has no cell of 4/4 heads" hcp-profile run --device recorded:nvidia-h200-fa2 --heads 4 --kv-heads 4
    refuse 3 "it has others" hcp-profile run --device recorded:nvidia-h200-fa2 --dtype fp32
    [ "$(stored)" -eq 0 ]
}

@test "no GPU" {
    hcp-profile devices --json | grep -q '"device":"cuda:0"' && skip "there is a GPU"
    refuse 1 "no CUDA GPU: " hcp-profile run --device cuda
    refuse 1 "no CUDA GPU: " hcp-profile run --device cuda:3
    run --separate-stderr hcp-profile run --dry-run "${shape[@]}" --max-len 64
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"profiling this CPU"* ]]
    [[ "$output" == *"cpu:25"* ]]
}

@test "MPS daemon: not installed" {
    hcp-profile devices --json | grep -q '"device":"cuda:0"' && skip "there is a GPU"
    [ ! -x /usr/local/nvidia/bin/nvidia-cuda-mps-control ] || skip "the driver is here"
    run hcp-profile devices
    [ "$status" -eq 0 ]
    [[ "$output" == *"nvidia-cuda-mps-control not found in PATH"* ]]
    HCP_MPS_CONTROL=/nonexistent run hcp-profile devices
    [[ "$output" == *"HCP_MPS_CONTROL=/nonexistent: No such file"* ]]
}

@test "MPS daemon: does not start" {
    fake_mps refuse
    run hcp-profile devices
    [ "$status" -eq 0 ]
    [[ "$output" == *"An instance of this daemon is already running"* ]]
    [[ "$output" == *"pipe directory"*"log directory"* ]]
}

@test "MPS daemon: starts and cannot be reached" {
    long_test
    fake_mps mute
    run hcp-profile devices
    [ "$status" -eq 0 ]
    [[ "$output" == *"does not answer: Cannot find MPS control daemon process"* ]]
    [[ "$output" == *"control.log: "*"Other started"* ]]
    gone "$(cat daemon)"
    [ -z "$(find "$TMPDIR" -maxdepth 1 -name 'hcp-mps-*')" ] || [ "$TMPDIR" = /tmp ]
}

@test "MPS daemon: another user's is named" {
    [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || skip "needs root and setpriv"
    other=$(mktemp -d /tmp/hcp-other-XXXXXX)
    chmod 755 "$other"
    cp "$top_srcdir/tests/fake-mps-control" "$other/nvidia-cuda-mps-control"
    chmod 755 "$other/nvidia-cuda-mps-control"
    fake_mps refuse
    setpriv --reuid=65534 --regid=65534 --clear-groups \
        env FAKE_MPS= "$other/nvidia-cuda-mps-control" serve >/dev/null 2>&1 3>&- &
    pid=$!
    eventually grep -q nvidia-cuda-mps "/proc/$pid/comm"
    run hcp-profile devices
    kill $pid
    rm -r "$other"
    [[ "$output" == *"an MPS daemon of user"*"uid 65534, pid $pid"* ]]
}

@test "a kernel that computes something else is reported and not timed" {
    long_test
    export HCP_FAULTY=wrong
    refuse 1 "faulty 1.0 failed its conformance check and was not timed: " hcp-profile run --device cpu \
        --limits cpu:100 "${shape[@]}" --q-lens 96 --kv-lens 96,128 --causal-lens none --kernel "$faulty"
    [ "$(stored)" -eq 0 ]
    [ "$(hcp-profile export --format jsonl | grep -c '"check_result":"failed')" -eq 2 ]
}

# fallback KERNELS ARGUMENTS...: a short sweep where these kernels are built in.
fallback() {
    kernels=$1
    shift
    run --separate-stderr env HCP_TEST_KERNELS="$kernels" "$top_builddir/tests/profile-fixture" run \
        --device cpu --limits cpu:100 "${shape[@]}" --q-lens 96 --kv-lens 96 --causal-lens none "$@"
    echo "status $status: $stderr" >&2
}

@test "a built-in kernel that fails its check gives way to the next that passes" {
    long_test
    fallback wrong,crash,picky,cpu
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"faulty 0 failed its conformance check and is not timed: "*"; next kernel: crashing"* ]]
    [[ "$stderr" == *"crashing "*" is not timed: the worker process ended (signal 9"*"; next kernel: cpu-blas"* ]]
    [[ "$stderr" == *"kernel cpu-blas "*"1 cells to do"* ]]
    [ "$(hcp-profile export --format jsonl | grep -c '"provider":"cpu-blas".*"check_result":"passed')" -eq 1 ]
    [ "$(hcp-profile export --format jsonl | grep -c '"status"')" -eq 1 ]
    fallback wrong,cpu # goes on where it was
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"next kernel: cpu-blas"*"0 cells to do, 1 measured before"* ]]
}

@test "no kernel left that passes its check: none is timed" {
    fallback wrong,crash,picky
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"next kernel: crashing"* ]]
    [[ "$stderr" == *"crashing "*" failed its conformance check and was not timed: "* ]]
    [ "$(stored)" -eq 0 ]
}

@test "a kernel that was asked for has no other in its place" {
    full_test
    fallback wrong,cpu --provider faulty
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"faulty 0 failed its conformance check and was not timed: "* ]]
    [ "$(stored)" -eq 0 ]
    fallback wrong,cpu --provider faulty # says why again
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"faulty 0 failed its conformance check and was not timed: "* ]]
    fallback wrong,cpu # those failures do not keep another kernel away
    [ "$status" -eq 0 ]
    [ "$(stored)" -eq 1 ]
    HCP_FAULTY=wrong fallback cpu --kernel "$faulty"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"faulty 1.0 failed its conformance check and was not timed: "* ]]
    [[ "$stderr" != *"next kernel"* ]]
    [ "$(stored)" -eq 1 ]
}

@test "a kernel that reports an error fails its cells only" {
    long_test
    export HCP_FAULTY=fail:96
    refuse 1 "1 cells failed" hcp-profile run --device cpu --limits cpu:100 "${shape[@]}" \
        --q-lens 96,160 --kv-lens 48 --causal-lens none --kernel "$faulty"
    [ "$(stored)" -eq 1 ]
    hcp-profile export --format jsonl | grep '"q_len":96' | grep -q 'faulty: run: device error'
}

@test "a kernel that crashes costs its cells, not the sweep" {
    export HCP_FAULTY=crash:96
    refuse 1 "1 cells failed" hcp-profile run --device cpu --limits cpu:100 "${shape[@]}" \
        --q-lens 96,160 --kv-lens 48 --causal-lens none --kernel "$faulty"
    [ "$(stored)" -eq 1 ]
    hcp-profile export --format jsonl | grep '"q_len":96' | grep -q 'the worker process ended (signal 9'
}

@test "kernels that cannot be loaded or chosen" {
    refuse 1 "nosuch.so" hcp-profile run --device cpu "${shape[@]}" --kernel ./nosuch.so
    refuse 1 "nosuch" hcp-profile run --device cpu "${shape[@]}" --provider nosuch
    refuse 1 "exports no hcp_provider_get" hcp-profile run --device cpu "${shape[@]}" \
        --kernel "$top_builddir/tests/.libs/plugin-nosymbol.so"
    refuse 2 "--provider" hcp-profile run --device cpu --provider 'My Kernel'
}

@test "databases that cannot be written" {
    echo 'not a database' >text.db
    refuse 1 "text.db" hcp-profile run --db text.db --device "$toy"
    [ "$(cat text.db)" = 'not a database' ]
    refuse 1 "nosuch/h.db" hcp-profile run --db nosuch/h.db --device "$toy"
    refuse 1 "is not a regular file" hcp-profile run --db . --device "$toy"
    set -- --device "$toy" --levels 50 --q-lens 128 --kv-lens 64,128 --causal-lens none
    : >empty.db
    hcp-profile run --db empty.db "$@" # becomes a database
    # bytes 60..63: user_version; 68..71: application_id
    cp empty.db newer.db
    printf '\0\0\0\x63' | dd of=newer.db bs=1 seek=60 conv=notrunc status=none
    refuse 1 "has schema version 99, this program knows versions up to" hcp-profile run --db newer.db "$@"
    cp empty.db foreign.db
    printf '\x0f\x05\x51\x11' | dd of=foreign.db bs=1 seek=68 conv=notrunc status=none
    refuse 1 "is an SQLite database of another program" hcp-profile run --db foreign.db "$@"
    cp empty.db short.db
    truncate -s 5000 short.db
    refuse 1 "'short.db' is damaged" hcp-profile run --db short.db "$@"
    [ "$(stat -c %s short.db)" -eq 5000 ]
}

@test "a database that may only be read" {
    [ "$(id -u)" -ne 0 ] || command -v setpriv >/dev/null || skip "root may write anywhere and there is no setpriv"
    as_user=()
    [ "$(id -u)" -ne 0 ] || as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    dir=$(mktemp -d /tmp/hcp-ro-XXXXXX)
    bin=$(command -v hcp-profile)
    chmod 755 "$dir"
    "${as_user[@]}" "$bin" --version >/dev/null || skip "an ordinary user cannot run programs here"
    set -- --device "$toy" --levels 50 --q-lens 128 --kv-lens 64,128 --causal-lens none
    hcp-profile run --db "$dir/h.db" --device "$toy" --levels 20 --max-len 128
    chmod 444 "$dir/h.db"
    refuse 1 "cannot write '$dir/h.db': Permission denied; make it writable or give another --db" \
        "${as_user[@]}" "$bin" run --db "$dir/h.db" "$@"
    refuse 1 "its directory '$dir' is not writable" "${as_user[@]}" "$bin" run --db "$dir/new.db" "$@"
    run "${as_user[@]}" "$bin" run --dry-run --db "$dir/h.db" "$@" # only reads
    [ "$status" -eq 0 ]
    rm -r "$dir"
}

@test "a database that another program has locked: says that it waits, and goes on" {
    hcp-profile run --device "$toy" --levels 50 --q-lens 128 --kv-lens 64 --causal-lens none
    "$top_builddir/tests/profile-fixture" lock "$HCP_DB" >held 3>&- &
    holder=$!
    eventually grep -q held held
    hcp-profile run --device "$toy" --levels 50 --q-lens 128 --kv-lens 64,128 --causal-lens none \
        >/dev/null 2>err 3>&- &
    sweep=$!
    eventually grep -q "waiting for the database" err
    kill "$holder"
    wait "$sweep"
    [ "$(stored)" -eq 2 ]
    [ "$(grep -c waiting err)" -eq 1 ]
}

@test "disk full: cells of a transaction that is rolled back are not counted as measured" {
    hcp-profile run --device "$toy" --levels 50 --q-lens 128 --kv-lens 64 --causal-lens none
    refuse 1 "cannot write" env bash -c "ulimit -f $(($(stat -c %s "$HCP_DB") / 1024 + 24))
        hcp-profile run --device $toy --levels 50,20,10 --max-len 8K"
    counted=$(awk '$1 == "DEVICE" { for (i = 1; i <= NF; i++) c[$i] = i }
        $1 == "toy" { n += $c["MEASURED"] } END { print n + 0 }' <<<"$output")
    echo "$output" "$counted counted, $(stored) stored" >&2
    grep -q '^DEVICE' <<<"$output"
    [ "$counted" -eq $(($(stored) - 1)) ]
}

@test "disk full in mid-sweep: what was finished stays, the way on is named" {
    long_test
    hcp-profile run --device "$toy" --levels 50 --q-lens 128 --kv-lens 64 --causal-lens none
    refuse 1 "cannot write" env bash -c "ulimit -f $(($(stat -c %s "$HCP_DB") / 1024 + 24))
        hcp-profile run --device $toy,delay=50 --levels 50,20,10 --max-len 8K"
    n=$(stored)
    [ "$n" -gt 1 ]
    hcp-profile run --device "$toy" --levels 50,20,10 --max-len 8K
    [ "$(stored)" -gt "$n" ]
}

@test "arguments that nobody asked for" {
    refuse 2 "unexpected argument 'x'" hcp-profile run x
    refuse 2 "unexpected argument 'x'" hcp-profile devices x
    refuse 2 "no command 'measure'" hcp-profile measure
    refuse 2 "Usage:" hcp-profile
}

@test "standard output full" {
    refuse 1 "cannot write standard output" bash -c "hcp-profile devices >/dev/full"
    refuse 1 "cannot write standard output" bash -c \
        "hcp-profile run --device $toy --levels 50 --max-len 256 >/dev/full"
    [ "$(stored)" -gt 0 ]
}
