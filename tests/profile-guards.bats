#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# What stands between a measurement and a wrong row on a GPU, without one: the program's
# own CUDA device, worker and limiter on the fake machine of gpu-machine.c, with fakes of
# NVML, CUPTI and the MPS daemon where the real ones would be found.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export HCP_DB=$BATS_TEST_TMPDIR/h.db HCP_COOL_WAIT=0 HCP_MPS_WAIT=1
    unset HCP_MPS_CONTROL FAKE_MPS CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
    mkdir lib fake
    ln -s "$top_builddir/tests/.libs/fake-nvml.so" lib/libnvidia-ml.so.1
    ln -s "$top_builddir/tests/.libs/fake-cupti.so" lib/libcupti.so.13
    cp "$top_srcdir/tests/fake-mps-control" fake/nvidia-cuda-mps-control
    chmod 755 fake/nvidia-cuda-mps-control
    export LD_LIBRARY_PATH=$PWD/lib PATH=$PWD/fake:$PATH FAKE_MPS_PID=$PWD/daemon
    # Paths of sockets hold 107 characters.
    TMPDIR=$(mktemp -d /tmp/hcp-guard-XXXXXX)
    export TMPDIR
}
teardown() {
    rm -rf "$TMPDIR"
}

# gpu ARGUMENTS...: hcp-profile run on the fake GPU; $status, $output, $stderr.
gpu() {
    # shellcheck disable=SC2086 # an option, or none
    run --separate-stderr "$top_builddir/tests/gpu-machine" run --device cuda:0 --heads 2 --kv-heads 1 \
        --head-dim 64 --dtype fp32 --causal-lens none $boosted "$@"
    echo "status $status: $stderr" >&2
}
boosted=--no-boosted # it takes a second
# each NAME ARGUMENTS...: the same in the background; then wait, its exit code is in
# NAME.code, its messages in NAME.err, its rows in NAME.db.
each() {
    name=$1
    shift
    (
        set +e
        # shellcheck disable=SC2086
        "$top_builddir/tests/gpu-machine" run --db "$name.db" --device cuda:0 --heads 2 --kv-heads 1 --head-dim 64 \
            --dtype fp32 --causal-lens none $boosted "$@" >/dev/null 2>"$name.err" 3>&-
        echo $? >"$name.code"
    ) 3>&- &
}
one=(--q-lens 128 --kv-lens 512)
two=(--q-lens '128,256' --kv-lens 512)
rows() { # blocks, a JSON object a line
    hcp-profile export --format jsonl "$@" 2>/dev/null | grep '"status":' || true
}
field() { # field NAME: its value in each line
    sed -n 's/.*"'"$1"'":\("\([^"]*\)"\|\([^,}]*\)\).*/\2\3/p'
}
holds() { # holds EXPRESSION: of awk
    awk "BEGIN { exit !($1) }" || {
        echo "not so: $1" >&2
        return 1
    }
}
no_daemon() { # none of ours is left, nor its directories
    for _ in $(seq 50); do
        if ! kill -0 "$(cat daemon)" 2>/dev/null && [ -z "$(ls "$TMPDIR")" ]; then return 0; fi
        sleep 0.1
    done
    return 1
}

# ---- limiters ----

@test "a limit is a process of its own, and rows have the SMs that it saw" {
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
    FAKE_MPS=refuse gpu --limits mps:50 "${one[@]}"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"An instance of this daemon is already running"*"(pipe directory "*", log directory "* ]]
    FAKE_MPS=mute gpu --limits mps:50 "${one[@]}"
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
    for _ in $(seq 100); do grep -q nvidia-cuda-mps "/proc/$pid/comm" && break || sleep 0.1; done
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
    for sms in 132 67 40 1; do FAKE_CUDA_SMS=$sms each $sms --limits mps:50 "${one[@]}"; done
    wait
    for sms in 132 67 40 1; do
        [ "$(cat $sms.code)" -eq 1 ]
        grep "limit mps:50 not proven: the client sees $sms of 132 SMs, expected about 66" $sms.err
        [ -z "$(rows --db $sms.db)" ]
    done
    FAKE_CUDA_SMS=130 gpu --limits mps:100 "${one[@]}"
    [[ "$stderr" == *"limit mps:100 not proven: the client sees 130 of 132 SMs"* ]]
    [ -z "$(rows)" ]
}

@test "the whole device is not measured through somebody's daemon" {
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
    stat -c '%a' "$TMPDIR" >/dev/null
    "$top_builddir/tests/gpu-machine" run --device cuda:0 --heads 2 --kv-heads 1 --head-dim 64 --dtype fp32 \
        --causal-lens none --limits mps:50 --q-lens 128,256,512 --kv-lens 512,1K >/dev/null 2>&1 3>&- &
    sweep=$!
    for _ in $(seq 100); do [ -z "$(rows)" ] || break; sleep 0.1; done
    modes=$(stat -c %a "$TMPDIR"/hcp-mps-* "$TMPDIR"/hcp-mps-*/pipe "$TMPDIR"/hcp-mps-*/log | sort -u)
    kill -9 $sweep
    [ "$modes" = 700 ]
    no_daemon # its guard ends it
}

@test "a client waits for its work before it ends, interrupted too" {
    export FAKE_CUDA_LOG=$PWD/log
    gpu --limits none "${one[@]}"
    [ "$(grep -c settled log)" -eq 2 ] # one that checks the kernel, one that times it
    rm log
    env --default-signal=INT "$top_builddir/tests/gpu-machine" run --device cuda:0 --heads 2 --kv-heads 1 --head-dim 64 \
        --dtype fp32 --limits mps:50 --q-lens 128,256,512 --kv-lens 512,1K --causal-lens none >/dev/null 2>err 3>&- &
    sweep=$!
    for _ in $(seq 100); do ! grep -q 512 log || break; sleep 0.1; done
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

# ---- devices that fail ----

@test "MPS server restarts in mid-sweep: the block is measured by a new client" {
    for code in 805 806 807 810; do
        FAKE_CUDA_FAIL=$code@256 FAKE_CUDA_ONCE=$PWD/once.$code each $code --limits mps:50 "${two[@]}"
    done
    wait
    for code in 805 806 807 810; do
        [ "$(cat $code.code)" -eq 0 ]
        [ -e once.$code ]
        [ "$(rows --db $code.db | field status | paste -sd' ')" = 'ok ok' ]
    done
    no_daemon
}

@test "an MPS server that ends each time: the block fails with its error, the sweep goes on" {
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
    FAKE_CUDA_HANG=128 HCP_WORKER_WAIT=2 gpu --limits mps:50 "${two[@]}"
    [ "$status" -eq 1 ]
    [[ "$(rows | grep '"q_len":128' | field error)" == "no answer from the worker process in 2 s, it was ended: the kernel, the driver or the MPS server hangs; HCP_WORKER_WAIT gives it more seconds" ]]
    [ "$(rows | grep '"q_len":256' | field status)" = ok ]
    no_daemon
}

@test "an MPS server that never answers costs its limit and some patience" {
    FAKE_CUDA_HANG=mps HCP_WORKER_WAIT=2 gpu --limits none,mps:50 "${one[@]}"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"fake-h200@mps:50: no answer from the worker process in 2 s, it was ended: "*"the MPS server hangs"* ]]
    [ "$(rows | field limit | sort -u)" = "" ]
    [ "$(rows | field status)" = ok ]
    no_daemon
}

@test "GPU lost in mid-sweep: nothing is made up, no block is blamed, the same command goes on" {
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

@test "repetitions are interleaved: no block has its visits one after the other" {
    FAKE_CUDA_LOG=$PWD/log gpu --limits none --q-lens 64,128,256,512 --kv-lens 256
    [ "$status" -eq 0 ]
    cat log >&2
    grep -v settled log | sort | uniq -c | sort -n >visits
    [ "$(awk '$1 >= 2' visits | wc -l)" -ge 3 ] # the first of all is alone
    # apart from the block for a first guess, and the same once more at the end
    [ "$(grep -v settled log | sed 1,2d | head -6 | uniq -d | wc -l)" -eq 0 ]
}

# ---- clocks ----

@test "clocks, power, energy, temperature and reasons are in the row" {
    gpu --limits none "${one[@]}"
    [ "$status" -eq 0 ]
    row=$(rows)
    [ "$(field throttle_reasons <<<"$row")" = 4 ] # a fact
    [ -z "$(field note <<<"$row")" ]
    [ "$(field mem_clock_mhz <<<"$row")" = 3201 ]
    [ "$(field temperature_c <<<"$row")" = 61 ]
    [ "$(field driver <<<"$row")" = 580.1-fake ]
    mhz=$(field sm_clock_mhz <<<"$row") w=$(field power_w <<<"$row") ms=$(field time_ms <<<"$row")
    holds "$mhz >= 1650 && $mhz < 1670"
    # of a short block the power of the moment, not the 400 W of NVML's average second
    [ "$w" = 700 ]
    [ -z "$(field energy_j <<<"$row")" ]
    # of a long one by the energy counter; energy of a run is power times time
    gpu --db long.db --limits none --q-lens 6K --kv-lens 6K
    row=$(rows --db long.db)
    w=$(field power_w <<<"$row") ms=$(field time_ms <<<"$row") j=$(field energy_j <<<"$row")
    holds "$w > 600 && $w < 760 && $w != 700"
    holds "$j > 0.999e-3 * $w * $ms && $j < 1.001e-3 * $w * $ms"
}

@test "NVML absent, broken, or ignorant of the GPU: said, measured, unknown" {
    rm lib/libnvidia-ml.so.1
    if ! ldconfig -p | grep -q libnvidia-ml; then
        gpu --db absent.db --limits none "${one[@]}"
        [ "$status" -eq 0 ]
        [[ "$stderr" == *"NVML (libnvidia-ml.so.1) not found: clocks and power unknown"* ]]
        [ -z "$(rows --db absent.db | field sm_clock_mhz)" ]
    fi
    ln -s "$top_builddir/tests/.libs/fake-nvml.so" lib/libnvidia-ml.so.1
    for how in broken unknown lost mute; do FAKE_NVML=$how each $how --limits none "${one[@]}"; done
    wait
    for how in broken unknown lost mute; do
        [ "$(cat $how.code)" -eq 0 ]
        row=$(rows --db $how.db)
        for name in sm_clock_mhz power_w energy_j temperature_c throttle_reasons; do
            [ -z "$(field $name <<<"$row")" ]
        done
        [ -n "$(field time_ms <<<"$row")" ]
    done
    grep "NVML does not start (code 9): clocks and power unknown" broken.err
    grep "NVML does not know GPU-00000000-fake (code 6): clocks and power unknown" unknown.err
}

@test "a driver without the power of this moment" {
    FAKE_NVML=old gpu --limits none "${one[@]}"
    [ "$status" -eq 0 ]
    [ -n "$(rows | field power_w)" ]
}

@test "all samples throttled: a state of its own, with its clocks, and a way out" {
    for reasons in 0x8 0x40 0x80 0x20; do FAKE_NVML_REASONS=$reasons each $reasons --limits none "${one[@]}"; done
    wait
    for reasons in 0x8 0x40 0x80 0x20; do
        [ "$(cat $reasons.code)" -eq 1 ]
        grep "of 1 cell all samples were rejected: the GPU was throttled (hardware or thermal); cool it and use --retry-failed, or keep such samples with --allow-throttled" $reasons.err
        row=$(rows --db $reasons.db)
        [ "$(field status <<<"$row")" = failed ]
        [ "$(field stop_reason <<<"$row")" = throttled ]
        [ "$(field throttle_reasons <<<"$row")" = $((reasons)) ]
        [ "$(field temperature_c <<<"$row")" = 61 ]
        [ -z "$(field time_ms <<<"$row")" ]
        [[ "$(field error <<<"$row")" =~ ^all\ [1-9][0-9]*\ samples\ rejected:\ the\ GPU\ was\ throttled\ \(reasons\ $reasons,\ 61\ C,\ SM\ clock\ 16[0-9]*\ MHz\ of\ 1980\) ]]
        [[ "$row" != *[nN]a[nN]* ]]
    done
    HCP_DB=0x40.db FAKE_NVML_REASONS=0x40 gpu --limits none "${one[@]}" # not again by itself
    [[ "$stderr" == *" 0 cells to do"* ]]
    HCP_DB=0x40.db gpu --limits none "${one[@]}" --retry-failed # cool now
    [ "$status" -eq 0 ]
    [ "$(rows --db 0x40.db | field status)" = ok ]
}

@test "throttled in mid-block, and neither before nor after: seen" {
    # 0.1 s a run: looks at the card while it works
    FAKE_NVML_REASONS='0x4*6,0x44,0x4' gpu --limits none --q-lens 5K --kv-lens 5K --allow-throttled
    [ "$status" -eq 0 ]
    [ "$(rows | field throttle_reasons)" = 68 ]
}

@test "throttled at first: measured again after a rest" {
    FAKE_NVML_REASONS='0x40*4,0x4' gpu --limits none "${one[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | field throttle_reasons)" = 4 ]
}

@test "--allow-throttled keeps such samples and says so" {
    FAKE_NVML_REASONS=0x48 gpu --limits none "${one[@]}" --allow-throttled
    [ "$status" -eq 0 ]
    [ "$(rows | field throttle_reasons)" = 72 ]
    [ "$(rows | field note)" = 'throttled (0x48), kept on request' ]
    run hcp-profile check --no-device --strict
    [ "$status" -eq 1 ]
    [[ "$output" == *"hardware slowdown hardware thermal slowdown (0x48) at 61 C"* ]]
}

@test "thermal slowdown at full clocks is flagged, not rejected" {
    FAKE_NVML_REASONS=0x24 FAKE_NVML_SM=1965 gpu --limits none "${one[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | field throttle_reasons)" = 36 ]
    [ "$(rows | field note)" = 'slowdown without effect (reasons 0x24, 61 C, SM clock 1965 MHz of 1980)' ]
    FAKE_NVML_REASONS=0x24 FAKE_NVML_SM=1500 gpu --db slow.db --limits none "${one[@]}"
    [ "$status" -eq 1 ]
}

@test "sustained and boosted speed are apart; time_ms is the sustained one" {
    boosted='' FAKE_NVML_FALL=0.05 gpu --json --limits none --q-lens 128,256 --kv-lens 512,2K
    [ "$status" -eq 0 ]
    [ "$(rows | grep -c '"boosted_ms"')" -eq 1 ] # of the largest
    row=$(rows | grep '"boosted_ms"')
    [[ "$row" == *'"q_len":256,"kv_len":2048'* ]]
    fast=$(field boosted_ms <<<"$row") sustained=$(field time_ms <<<"$row")
    # 0.01 + 4e-6 * 256 * 2048 ms at 1980 MHz; at 1650 MHz a fifth longer
    holds "$sustained > 2.45 && $sustained < 2.5296"
    holds "$fast > 2.1 && $fast < 0.96 * $sustained"
    [[ "$output" == *"\"boosted_ms\":$fast,\"sustained_ms\":$sustained"* ]]
}

@test "warm-up: until times stand still, unless it is given" {
    # 0.04 ms blocks: no lower bound of their own
    set -- --limits none --q-lens 16,32 --kv-lens 512
    FAKE_NVML_FALL=0.04 gpu "$@"
    [ "$status" -eq 0 ]
    for mhz in $(rows | field sm_clock_mhz); do holds "$mhz < 1670"; done
    FAKE_NVML_FALL=0.04 gpu --db given.db "$@" --warm-up 0.001
    [ "$status" -eq 0 ]
    [ "$(rows --db given.db | field note | sort -u)" = 'warm-up 1 ms' ]
}

@test "drift: the first cell again at the end, stored, said when it moved" {
    export FAKE_NVML_SM='1755*100000'
    gpu --limits none "${two[@]}"
    [ "$status" -eq 0 ]
    [[ "$stderr" != *drifted* ]]
    [ "$(sqlite3 h.db 'SELECT count(*) FROM drift')" -eq 1 ]
    [ "$(sqlite3 h.db 'SELECT abs(last_ms / first_ms - 1) < 0.01 AND first_sm_clock_mhz = 1755 AND last_sm_clock_mhz = 1755 AND seconds > 0 FROM drift')" = 1 ]
    unset FAKE_NVML_SM
    # no second cell, no drift
    gpu --db one.db --limits none "${one[@]}"
    [ "$(sqlite3 one.db 'SELECT count(*) FROM drift')" -eq 0 ]
}

# ---- cross-check ----

@test "CUPTI's time stands beside the events'" {
    gpu --limits none "${one[@]}"
    ms=$(rows | field time_ms) cupti=$(rows | field cupti_ms)
    holds "$cupti > 0.99 * $ms && $cupti < 1.01 * $ms"
    [ -z "$(rows | field note)" ]
    gpu --db off.db --limits none "${one[@]}" --no-cupti
    [ -z "$(rows --db off.db | field cupti_ms)" ]
}

@test "CUPTI loses records, counted or not: no time of it, and a note" {
    for how in lose silent; do FAKE_CUPTI=$how each $how --limits none "${one[@]}"; done
    wait
    for how in lose silent; do
        [ "$(cat $how.code)" -eq 0 ]
        [ -z "$(rows --db $how.db | field cupti_ms)" ]
        [ "$(rows --db $how.db | field note)" = 'CUPTI lost records: 2 kernels of 3 runs' ]
        run hcp-profile check --no-device $how.db
        [[ "$output" == *"cupti-lost"*"CUPTI lost records: no cross-check"* ]]
    done
}

@test "CUPTI disagrees by more than 2 %: flagged" {
    FAKE_CUPTI=slow gpu --limits none "${one[@]}"
    [ "$status" -eq 0 ]
    [[ "$(rows | field note)" =~ ^event\ -9\.[0-9]\ %\ from\ CUPTI\'s\ 0\.3[0-9]*\ ms\ in\ 1\ kernel\ a\ run$ ]]
}

@test "CUPTI does not start: events alone, and why" {
    FAKE_CUPTI=broken gpu --limits none "${one[@]}"
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"libcupti.so does not start: event times have no cross-check"* ]]
    [ -z "$(rows | field cupti_ms)" ]
}
