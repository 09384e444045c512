#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# A GPU, an MPS server or a kernel that fails, hangs or goes away while it is measured.

bats_require_minimum_version 1.5.0
load scale
load guards-lib

setup() {
    guards_setup
}
teardown() {
    guards_teardown
}

@test "MPS server restarts in mid-sweep: the block is measured by a new client" {
    for code in $(some 805 806 807 810); do
        FAKE_CUDA_FAIL=$code@256 FAKE_CUDA_ONCE=$PWD/once.$code each $code --limits mps:50 "${two[@]}"
    done
    wait
    for code in $(some 805 806 807 810); do
        [ "$(cat $code.code)" -eq 0 ]
        [ -e once.$code ]
        [ "$(rows --db $code.db | field status | paste -sd' ')" = 'ok ok' ]
    done
    no_daemon
}

@test "an MPS server that ends each time: the block fails with its error, the sweep goes on" {
    long_test
    FAKE_CUDA_FAIL=806@256 gpu --limits mps:50 "${two[@]}"
    [ "$status" -eq 1 ]
    [ "$(rows | grep '"q_len":128' | field status)" = ok ]
    [[ "$(rows | grep '"q_len":256' | field error)" == *"cannot run the kernel: CUDA error 806"* ]]
    gpu --limits mps:50 "${two[@]}" # only on request
    [[ "$stderr" == *" 0 cells to do"* ]]
    gpu --limits mps:50 "${two[@]}" --retry-failed
    [ "$status" -eq 0 ]
    [ "$(rows | field status | paste -sd' ')" = 'ok ok' ]
}

@test "a kernel's fatal error costs its block, in a process of its own" {
    FAKE_CUDA_FAIL=700@128 gpu --limits none "${two[@]}"
    [ "$status" -eq 1 ]
    [[ "$(rows | grep '"q_len":128' | field error)" == *"CUDA error 700"* ]]
    [ "$(rows | grep '"q_len":256' | field status)" = ok ]
}

@test "a kernel that never ends costs its block and some patience" {
    long_test
    FAKE_CUDA_HANG=128 HCP_WORKER_WAIT=5 FAKE_MPS_LOG=$PWD/ended gpu --limits mps:50 "${two[@]}"
    [ "$status" -eq 1 ]
    [[ "$(rows | grep '"q_len":128' | field error)" == "no answer from the worker process in 5 s, it was ended: the kernel, the driver or the MPS server hangs; HCP_WORKER_WAIT gives it more seconds" ]]
    [ "$(rows | grep '"q_len":256' | field status)" = ok ]
    # Its work is ended by the daemon before it is killed: on each server, once.
    [ "$(cut -d' ' -f1,2,4 ended)" = $'terminate_client 17 alive\nterminate_client 23 alive' ]
    [ "$(cut -d' ' -f3 ended | uniq | wc -l)" -eq 1 ]
    no_daemon
}

@test "an MPS server that never answers costs its limit and some patience" {
    long_test
    FAKE_CUDA_HANG=mps HCP_WORKER_WAIT=5 gpu --limits none,mps:50 "${one[@]}"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"fake-h200@mps:50: no answer from the worker process in 5 s, it was ended: "*"the MPS server hangs"* ]]
    [ "$(rows | field limit | sort -u)" = "" ]
    [ "$(rows | field status)" = ok ]
    no_daemon
}

@test "GPU lost in mid-sweep: nothing is made up, no block is blamed, the same command goes on" {
    long_test
    export FAKE_CUDA_GONE=$PWD/gone
    FAKE_CUDA_FAIL=46@1024 FAKE_CUDA_TAKES=1 FAKE_CUDA_ONCE=$PWD/once gpu --limits none,mps:50 \
        --q-lens 128,256,512,1K --kv-lens 512
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"the device was lost in mid-sweep (cannot run the kernel: CUDA error 46) and could not be opened again (CUDA error 100); the same command goes on"* ]]
    [[ "$stderr" == *"fake-h200@"*": CUDA error 100"* ]] # the other limit
    n=$(rows | wc -l)
    [ "$n" -lt 8 ]
    [ "$(rows | grep -vc '"status":"ok"')" -eq 0 ]
    rm gone
    gpu --limits none,mps:50 --q-lens 128,256,512,1K --kv-lens 512
    [ "$status" -eq 0 ]
    [[ "$stderr" == *" $((8 - n)) cells to do"* ]]
    [ "$(rows | grep -c '"status":"ok"')" -eq 8 ]
    no_daemon
}

@test "GPU lost while the kernel is checked: no kernel is blamed, the same command goes on" {
    long_test
    for how in fail crash; do
        FAKE_CUDA_CHECK=$how FAKE_CUDA_TAKES=1 FAKE_CUDA_GONE=$PWD/gone.$how each gone-$how --limits none "${two[@]}"
        # One that is still there after a failure, or a crash, is no excuse.
        FAKE_CUDA_CHECK=$how each here-$how --limits none "${two[@]}"
    done
    wait
    for how in fail crash; do
        [ "$(cat gone-$how.code)" -eq 1 ]
        [[ "$(cat gone-$how.err)" == *"the device was lost while fake was checked ("*") and could not be opened again (CUDA error 100); the same command goes on"* ]]
        [ -z "$(rows --db gone-$how.db)" ]
        [ "$(cat here-$how.code)" -eq 1 ]
        [ "$(rows --db here-$how.db | field status | paste -sd' ')" = 'failed failed' ]
    done
    gpu --db gone-crash.db --limits none "${two[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows --db gone-crash.db | field status | paste -sd' ')" = 'ok ok' ]
}

@test "Ctrl-Z and fg: the time between does not count against the worker" {
    long_test
    : >stay
    FAKE_CUDA_STAY=1024@$PWD/stay HCP_WORKER_WAIT=6 FAKE_CUDA_LOG=$PWD/log "$top_builddir/tests/gpu-machine" run --device cuda:0 \
        --heads 2 --kv-heads 1 --head-dim 64 --dtype fp32 --causal-lens none --no-boosted \
        --limits none --q-lens 1K --kv-lens 1K >/dev/null 2>err 3>&- &
    sweep=$!
    eventually grep -q '1024 1024' log
    worker=$(pgrep -P $sweep | tail -n 1)
    kill -STOP $sweep "$worker"
    sleep 7
    kill -CONT $sweep
    sleep 0.5 # it looks at its clock before there is an answer
    rm stay
    kill -CONT "$worker"
    code=0
    wait $sweep || code=$?
    cat err >&2
    [ "$code" -eq 0 ]
    [ "$(rows | field status)" = ok ]
}

@test "repetitions are interleaved: no block has its visits one after the other" {
    long_test
    FAKE_CUDA_LOG=$PWD/log gpu --limits none --q-lens 64,128,256,512 --kv-lens 256
    [ "$status" -eq 0 ]
    cat log >&2
    grep -v settled log | sort | uniq -c | sort -n >visits
    [ "$(awk '$1 >= 2' visits | wc -l)" -ge 3 ] # the first of all is alone
    # apart from the block for a first guess, and the same once more at the end
    [ "$(grep -v settled log | sed 1,2d | head -6 | uniq -d | wc -l)" -eq 0 ]
}
