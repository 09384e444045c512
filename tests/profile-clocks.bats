#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# Clocks, power and throttling of a GPU in its rows, warm-up, and the cross-check by CUPTI.

bats_require_minimum_version 1.5.0
load scale
load guards-lib

setup() {
    guards_setup
}
teardown() {
    guards_teardown
}

@test "clocks, power, energy, temperature and reasons are in the row" {
    long_test
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
    long_test
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
    long_test
    for reasons in $(some 0x40 0x8 0x80 0x20); do FAKE_NVML_REASONS=$reasons each $reasons --limits none "${one[@]}"; done
    wait
    for reasons in $(some 0x40 0x8 0x80 0x20); do
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
    full_test
    # 0.1 s a run: looks at the card while it works
    FAKE_NVML_REASONS='0x4*6,0x44,0x4' gpu --limits none --q-lens 5K --kv-lens 5K --allow-throttled
    [ "$status" -eq 0 ]
    [ "$(rows | field throttle_reasons)" = 68 ]
}

@test "throttled at first: measured again after a rest" {
    full_test
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
    full_test
    FAKE_NVML_REASONS=0x24 FAKE_NVML_SM=1965 gpu --limits none "${one[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | field throttle_reasons)" = 36 ]
    [ "$(rows | field note)" = 'slowdown without effect (reasons 0x24, 61 C, SM clock 1965 MHz of 1980)' ]
    FAKE_NVML_REASONS=0x24 FAKE_NVML_SM=1500 gpu --db slow.db --limits none "${one[@]}"
    [ "$status" -eq 1 ]
}

@test "sustained and boosted speed are apart; time_ms is the sustained one" {
    long_test
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
    full_test
    # 0.04 ms blocks: no lower bound of their own
    set -- --limits none --q-lens 16,32 --kv-lens 512
    # After half a second, the least for a first shape, the clock is still above 1700 MHz.
    FAKE_NVML_FALL=0.3 gpu "$@"
    [ "$status" -eq 0 ]
    for mhz in $(rows | field sm_clock_mhz); do holds "$mhz < 1670"; done
    FAKE_NVML_FALL=0.04 gpu --db given.db "$@" --warm-up 0.001
    [ "$status" -eq 0 ]
    [ "$(rows --db given.db | field note | sort -u)" = 'warm-up 1 ms' ]
}

@test "drift: the first cell again at the end, stored, said when it moved" {
    long_test
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

@test "CUPTI's time stands beside the events'" {
    gpu --limits none "${one[@]}"
    ms=$(rows | field time_ms) cupti=$(rows | field cupti_ms)
    holds "$cupti > 0.99 * $ms && $cupti < 1.01 * $ms"
    [ -z "$(rows | field note)" ]
    gpu --db off.db --limits none "${one[@]}" --no-cupti
    [ -z "$(rows --db off.db | field cupti_ms)" ]
}

@test "CUPTI loses records, counted or not: no time of it, and a note" {
    long_test
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
    full_test
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
