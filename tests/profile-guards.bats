#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# Limits of a GPU: proven, or nothing is measured. Daemons: ours, and those of others.

bats_require_minimum_version 1.5.0
load scale
load guards-lib

setup() {
    guards_setup
}
teardown() {
    guards_teardown
}

@test "a limit is a process of its own, and rows have the SMs that it saw" {
    long_test
    gpu --limits none,mps:50,mps:10 "${one[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | field sm_seen | sort -n | paste -sd' ')" = '12 66 132' ]
    [ "$(rows | field sm_count | sort -u)" = 132 ]
    [ "$(hcp-profile export --format jsonl | grep -c 'private MPS daemon, default active thread percentage 100')" -eq 1 ]
    no_daemon
}

@test "daemon missing: said at once, nothing measured, the way without it is named" {
    rm fake/nvidia-cuda-mps-control
    PATH=${PATH#*:} gpu --limits mps:50 "${one[@]}"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"nvidia-cuda-mps-control not found in PATH"*"'--limits none' measures the whole device"* ]]
    [ -z "$(rows)" ]
}

@test "daemon does not start, or does not answer: its directories and last words" {
    long_test
    FAKE_MPS=refuse gpu --limits mps:50 "${one[@]}"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"An instance of this daemon is already running"*"(pipe directory "*", log directory "* ]]
    FAKE_MPS=mute HCP_MPS_WAIT=1 gpu --limits mps:50 "${one[@]}"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"does not answer"*"control.log: "*"Other started"* ]]
    [ -z "$(rows)" ]
    no_daemon
}

@test "daemon of another user: named when ours does not start" {
    [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || skip "needs root and setpriv"
    other=$(mktemp -d /tmp/hcp-other-XXXXXX)
    chmod 755 "$other"
    cp -p fake/nvidia-cuda-mps-control "$other"
    setpriv --reuid=65534 --regid=65534 --clear-groups \
        "$other/nvidia-cuda-mps-control" serve >/dev/null 2>&1 3>&- &
    pid=$!
    eventually grep -q nvidia-cuda-mps "/proc/$pid/comm"
    FAKE_MPS=refuse gpu --limits mps:50 "${one[@]}"
    kill $pid
    rm -r "$other"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"an MPS daemon of user"*"uid 65534, pid $pid"* ]]
}

@test "wrong pipe directory: a client without a limit is no measurement" {
    FAKE_CUDA_PIPE=/nonexistent gpu --limits mps:50 "${one[@]}"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"fake-h200@mps:50: limit mps:50 not proven: this process is no client of the MPS daemon and runs unlimited (pipe directory "*"/pipe, log directory "*"in a container both, and the IPC namespace, must be shared)"* ]]
    [ -z "$(rows)" ]
}

@test "SMs that do not match the percentage: not proven, not stored" {
    for sms in $(some 132 67 40 1); do FAKE_CUDA_SMS=$sms each $sms --limits mps:50 "${one[@]}"; done
    wait
    for sms in $(some 132 67 40 1); do
        [ "$(cat $sms.code)" -eq 1 ]
        grep "limit mps:50 not proven: the client sees $sms of 132 SMs, expected about 66" $sms.err
        [ -z "$(rows --db $sms.db)" ]
    done
    FAKE_CUDA_SMS=130 gpu --limits mps:100 "${one[@]}"
    [[ "$stderr" == *"limit mps:100 not proven: the client sees 130 of 132 SMs"* ]]
    [ -z "$(rows)" ]
}

@test "the whole device is not measured through somebody's daemon" {
    long_test
    mkdir pipe
    echo $$ >pipe/pid
    CUDA_MPS_PIPE_DIRECTORY=$PWD/pipe CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10 gpu --limits none "${one[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | field sm_seen)" = 132 ] # its environment does not reach the worker
    FAKE_CUDA_PIPE=$PWD/pipe gpu --db no.db --limits none "${one[@]}"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"this process is a client of an MPS daemon"* ]]
}

@test "a daemon that somebody started is left alone, and ours has no defaults of the environment" {
    long_test
    mkdir theirs
    CUDA_MPS_PIPE_DIRECTORY=$PWD/theirs CUDA_MPS_LOG_DIRECTORY=$PWD/theirs FAKE_MPS_PID='' \
        fake/nvidia-cuda-mps-control -d 3>&-
    pid=$(cat theirs/pid)
    CUDA_MPS_PIPE_DIRECTORY=$PWD/theirs CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=PCI_BUS_ID \
        CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30 FAKE_MPS_ENV=$PWD/env gpu --limits mps:50 "${one[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | field sm_seen)" = 66 ]
    kill -0 "$pid"
    kill "$pid"
    no_daemon
    grep "^CUDA_MPS_PIPE_DIRECTORY=$TMPDIR/hcp-mps-......./*pipe$" env
    # numbers are the daemon's, so devices go by UUID
    run grep -e '^CUDA_VISIBLE_DEVICES' -e '^CUDA_DEVICE_ORDER' -e '^CUDA_MPS_ACTIVE_THREAD_PERCENTAGE' env
    [ "$status" -eq 1 ]
}

@test "directories that only their owner can enter" {
    long_test
    : >stay # one block is measured, others are under way
    FAKE_CUDA_STAY=1024@$PWD/stay "$top_builddir/tests/gpu-machine" run --device cuda:0 --heads 2 --kv-heads 1 --head-dim 64 \
        --dtype fp32 --causal-lens none --limits mps:50 --q-lens 128,256,1K --kv-lens 512,1K >/dev/null 2>&1 3>&- &
    sweep=$!
    eventually some_rows
    modes=$(stat -c %a "$TMPDIR"/hcp-mps-* "$TMPDIR"/hcp-mps-*/pipe "$TMPDIR"/hcp-mps-*/log | sort -u)
    kill -9 $sweep
    [ "$modes" = 700 ]
    no_daemon # its guard ends it
}

@test "a client waits for its work before it ends, interrupted too" {
    long_test
    export FAKE_CUDA_LOG=$PWD/log
    gpu --limits none "${one[@]}"
    [ "$(grep -c settled log)" -eq 2 ] # one that checks the kernel, one that times it
    rm log
    : >stay
    FAKE_CUDA_STAY=512@$PWD/stay env --default-signal=INT "$top_builddir/tests/gpu-machine" run --device cuda:0 --heads 2 --kv-heads 1 --head-dim 64 \
        --dtype fp32 --limits mps:50 --q-lens 128,256,512 --kv-lens 512,1K --causal-lens none >/dev/null 2>err 3>&- &
    sweep=$!
    eventually grep -q '^512 ' log
    kill -INT $sweep
    code=0
    wait $sweep || code=$?
    cat err >&2
    [ "$code" -eq 130 ]
    [ "$(grep -c settled log)" -eq 2 ]
    no_daemon
}

@test "clocks, power limits, compute and persistence modes are read, never set" {
    grep -a -q nvmlDeviceGetClockInfo "$top_builddir/tests/gpu-machine" # names are seen
    for program in tests/gpu-machine profiler/hcp-profile profiler/hcp-link; do
        [ -e "$top_builddir/$program" ] || continue
        run grep -a -e nvmlDeviceSet -e nvmlDeviceReset -e nvidia-smi.-[a-z] "$top_builddir/$program"
        [ "$status" -eq 1 ]
    done
}
