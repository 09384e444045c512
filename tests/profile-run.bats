#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-profile run, end to end: synthetic, recorded, this CPU; interruptions.

bats_require_minimum_version 1.5.0
load scale

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export HCP_DB=$BATS_TEST_TMPDIR/h.db
    toy=synthetic:name=toy,a=1e-6,b=1e-4,c=5e-5,f=0.01,tile_q=128,tile_kv=64,sms=132
    shape=(--heads 2 --kv-heads 1 --head-dim 64 --dtype fp32)
}

rows() { # rows [FILTER...]: stored cells, one JSON object a line
    hcp-profile export --format jsonl "$@" 2>/dev/null | grep '"status":' || true
}
field() { # field NAME: its value in each line
    sed -n 's/.*"'"$1"'":\("\([^"]*\)"\|\([^,}]*\)\).*/\2\3/p'
}
identities() {
    sed 's/.*"limit":\("[^"]*"\).*"mask":\("[^"]*"\),"q_len":\([0-9]*\),"kv_len":\([0-9]*\).*/\1 \2 \3 \4/'
}
# Waits until so many cells are stored (two minutes at most); the sweep may be writing.
wait_for_cells() {
    for _ in $(seq 1200); do
        [ "$(rows | grep -c '"status":"ok"')" -lt "$1" ] || return 0
        sleep 0.1
    done
    return 1
}
process_gone() { # a zombie of ours counts as gone
    for _ in $(seq 600); do
        kill -0 "$1" 2>/dev/null || return 0
        grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null && return 0
        sleep 0.1
    done
    return 1
}

@test "synthetic: every cell, marked as such, with the times of its formula" {
    run --separate-stderr hcp-profile run --device "$toy" --limits mps:100,mps:50 \
        --q-lens 100,256 --kv-lens 64,1K --causal-lens 256
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"synthetic toy"* ]]
    [[ "$output" == *synthetic* ]]
    [ "$(rows | wc -l)" -eq 10 ]
    [ "$(rows | field origin | sort -u)" = synthetic ]
    [ "$(rows | field method | sort -u)" = synthetic ]
    # 100 queries are 128: 1e-6*128*1024 + 1e-4*128 + 5e-5*1024 + 0.01
    t=$(rows --limit mps:100 | grep '"q_len":100,"kv_len":1024' | field time_ms)
    awk -v t="$t" 'BEGIN { exit !(t > 0.205071 && t < 0.205073) }'
    t=$(rows --limit mps:50 | grep '"q_len":100,"kv_len":1024' | field time_ms)
    awk -v t="$t" 'BEGIN { exit !(t > 0.410143 && t < 0.410145) }'
    # causal: 256*257/2 pairs
    t=$(rows --limit mps:100 | grep '"mask":"causal"' | field time_ms)
    awk -v t="$t" 'BEGIN { exit !(t > 0.081295 && t < 0.081297) }'
    [ "$(rows --limit mps:50 | field sm_seen | sort -u)" = 66 ]
    [ "$(rows | field sm_count | sort -u)" = 132 ]
}

@test "synthetic: noise is there, and the same again for the same seed" {
    for f in 1 2; do
        HCP_DB=$f.db hcp-profile run --device "$toy,noise=0.05,seed=7" --levels 50 --max-len 1K
        HCP_DB=$f.db hcp-profile export | grep -v '^#' | cut -d, -f1-18 >$f.csv
    done
    cmp 1.csv 2.csv
    [ "$(awk -F, 'NR > 1 && $14 == $17' 1.csv | wc -l)" -eq 0 ] # min and max differ
    HCP_DB=3.db hcp-profile run --device "$toy,noise=0.05,seed=8" --levels 50 --max-len 1K
    HCP_DB=3.db hcp-profile export | grep -v '^#' | cut -d, -f1-18 >3.csv
    run cmp -s 1.csv 3.csv
    [ "$status" -eq 1 ]
}

@test "the same command again has nothing to do; --fresh measures beside" {
    hcp-profile run --device "$toy" --levels 50 --max-len 512
    before=$(rows | wc -l)
    run --separate-stderr hcp-profile run --device "$toy" --levels 50 --max-len 512
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"0 cells to do"* ]]
    [ "$(rows | wc -l)" -eq "$before" ]
    hcp-profile run --device "$toy" --levels 50 --max-len 1K # the rest of a longer sweep
    [ "$(rows | identities | sort | uniq -d | wc -l)" -eq 0 ]
    [ "$(rows | field run_uid | sort -u | wc -l)" -eq 1 ]
    hcp-profile run --device "$toy" --levels 50 --max-len 512 --fresh
    [ "$(rows | field run_uid | sort -u | wc -l)" -eq 2 ]
}

@test "other coefficients are another kernel version and are measured anew" {
    hcp-profile run --device "$toy" --levels 50 --max-len 256
    run --separate-stderr hcp-profile run --device "${toy/a=1e-6/a=2e-6}" --levels 50 --max-len 256
    [[ "$stderr" != *"0 cells to do"* ]]
}

@test "SIGKILL in mid-sweep: nothing finished is lost, nothing is measured twice" {
    long_test
    set -- --limits mps:50,mps:20 --max-len 512
    # 15 s in all: still running when the fourth cell is seen, however slow the machine.
    hcp-profile run --device "$toy,delay=500" "$@" >/dev/null 2>&1 3>&- &
    pid=$!
    set -- --device "$toy" "$@"
    wait_for_cells 4
    kill -9 $pid
    wait $pid || true
    rows | identities | sort >before
    [ "$(wc -l <before)" -ge 4 ]
    run --separate-stderr hcp-profile run "$@"
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"measured before"* ]]
    rows | identities | sort >after
    [ "$(uniq -d <after | wc -l)" -eq 0 ]
    [ "$(comm -23 before after | wc -l)" -eq 0 ]
    [ "$(wc -l <after)" -eq 30 ]
    [ "$(rows | field run_uid | sort -u | wc -l)" -eq 1 ]
}

@test "Ctrl-C: ends with 130, says how to go on, loses no finished cell" {
    set -- --limits mps:50,mps:20 --max-len 512
    # A shell's background job would ignore SIGINT: give it back its default.
    env --default-signal=INT hcp-profile run --device "$toy,delay=500" "$@" >/dev/null 2>err 3>&- &
    pid=$!
    set -- --device "$toy" "$@"
    wait_for_cells 3
    kill -INT $pid
    code=0
    wait $pid || code=$?
    [ "$code" -eq 130 ]
    grep -q 'the same command goes on' err
    stored=$(rows | wc -l)
    [ "$stored" -ge 3 ]
    [ "$stored" -lt 30 ]
    hcp-profile run "$@"
    [ "$(rows | wc -l)" -eq 30 ]
}

@test "Ctrl-C while the kernel is checked: ends with 130 and says so" {
    env --default-signal=INT hcp-profile run --device cpu --limits cpu:100 "${shape[@]}" --max-len 1K \
        >/dev/null 2>err 3>&- &
    pid=$!
    for _ in $(seq 6000); do # the worker is there, nothing is stored
        [ -z "$(cat "/proc/$pid/task/$pid/children")" ] || break
        sleep 0.01
    done
    kill -INT $pid
    code=0
    wait $pid || code=$?
    [ "$code" -eq 130 ]
    grep -q 'hcp-profile: stopped; ' err
}

@test "Ctrl-C while a worker computes: it ends too" {
    long_test
    env --default-signal=INT hcp-profile run --device cpu --limits cpu:20 "${shape[@]}" --max-len 1K --warm-up 0.2 \
        >/dev/null 2>err 3>&- &
    pid=$!
    wait_for_cells 1
    worker=$(cat "/proc/$pid/task/$pid/children")
    worker=${worker%% *}
    kill -INT $pid
    code=0
    wait $pid || code=$?
    [ "$code" -eq 130 ]
    process_gone "$worker"
}

@test "SIGKILL of a sweep on this CPU takes its stopped worker along" {
    long_test
    hcp-profile run --device cpu --limits cpu:20 "${shape[@]}" --max-len 1K --warm-up 0.2 >/dev/null 2>&1 3>&- &
    pid=$!
    wait_for_cells 1
    worker=$(cat "/proc/$pid/task/$pid/children")
    worker=${worker%% *}
    [ -n "$worker" ]
    kill -9 $pid
    wait $pid || true
    process_gone "$worker"
}

@test "--dry-run touches nothing and names every cell" {
    run --separate-stderr hcp-profile run --dry-run --device "$toy" --levels 10,50 --q-lens 128,256 \
        --kv-lens 64 --causal-lens none
    [ "$status" -eq 0 ]
    [ ! -e "$HCP_DB" ]
    [ "${#lines[@]}" -eq 5 ] # a header and four cells
    hcp-profile run --device "$toy" --levels 10 --q-lens 128,256 --kv-lens 64 --causal-lens none
    run --separate-stderr hcp-profile run --dry-run --device "$toy" --levels 10,50 --q-lens 128,256 \
        --kv-lens 64 --causal-lens none
    [ "${#lines[@]}" -eq 3 ]
    run --separate-stderr hcp-profile run --dry-run --json --device "$toy" --levels 50 --q-lens 128 \
        --kv-lens 64 --causal-lens none
    [[ "$output" == '[{"device":"toy","limit":"mps:50","mask":"full","q_len":128,"kv_len":64,"expected_ms":'* ]]
}

@test "--time-budget leaves out what does not fit, and the next run takes it up" {
    long_test
    run --separate-stderr hcp-profile run --device cpu --limits cpu:100 "${shape[@]}" --max-len 1K \
        --time-budget 2s --warm-up 0.2
    [ "$status" -eq 0 ] || [ "$status" -eq 3 ] # a machine too busy for one cell
    [[ "$stderr" == *"left out by --time-budget"* ]]
    [ "$(rows | wc -l)" -lt 30 ]
}

@test "--max-cell-time leaves slow cells out and says so" {
    long_test
    run --separate-stderr hcp-profile run --device cpu --limits cpu:100 "${shape[@]}" --q-lens 64 \
        --kv-lens 64,1G --causal-lens none --max-cell-time 1
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"would take longer than 1 s each"* ]]
    [ "$(rows | field kv_len)" = 64 ]
}

@test "failed cells keep their error and are measured again only on request" {
    run --separate-stderr hcp-profile run --device "$toy,fail_q=256" --levels 50 --q-lens 128,256 \
        --kv-lens 64,128 --causal-lens none
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"2 cells failed"* ]]
    [ "$(rows | grep -c '"status":"failed","error":"synthetic failure')" -eq 2 ]
    [ "$(rows | grep '"status":"failed"' | grep -c stop_reason)" -eq 0 ] # nothing of the cell before
    run --separate-stderr hcp-profile run --device "$toy" --levels 50 --q-lens 128,256 --kv-lens 64,128 \
        --causal-lens none
    [[ "$stderr" == *"0 cells to do"* ]]
    hcp-profile run --device "$toy" --levels 50 --q-lens 128,256 --kv-lens 64,128 --causal-lens none \
        --retry-failed
    [ "$(rows | grep -c '"status":"ok"')" -eq 4 ]
    [ "$(rows | wc -l)" -eq 4 ]
}

@test "recorded: replays what is there, marks it, reports what is missing" {
    hcp-profile run --device "$toy" --levels 50,100 --q-lens 128,256 --kv-lens 64 --causal-lens 256
    sed 's/"origin":"synthetic"/"origin":"measured"/' <(hcp-profile export --format jsonl) >rec.jsonl
    run --separate-stderr hcp-profile run --db r.db --device recorded:rec.jsonl
    [ "$status" -eq 0 ]
    HCP_DB=r.db
    [ "$(rows | wc -l)" -eq 6 ]
    [ "$(rows | field origin | sort -u)" = recorded ]
    [ "$(rows | field method | sort -u)" = recorded ]
    HCP_DB=h.db rows | sort | field time_ms >a
    HCP_DB=r.db rows | sort | field time_ms >b
    cmp a b
    run --separate-stderr hcp-profile run --db s.db --device recorded:rec.jsonl --levels 50 \
        --q-lens 128,384 --kv-lens 64 --causal-lens none
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"1 cells are not in the recording"* ]]
    HCP_DB=s.db
    [ "$(rows | wc -l)" -eq 1 ]
}

@test "recorded: from a database, and what was synthetic stays synthetic" {
    hcp-profile run --device "$toy" --levels 50 --max-len 256
    hcp-profile run --db r.db --device "recorded:$HCP_DB"
    [ "$(HCP_DB=r.db rows | field origin | sort -u)" = synthetic ]
}

@test "recorded: a machine shipped with the program" {
    long_test
    run --separate-stderr hcp-profile run --device recorded:nvidia-h200-fa2 --levels 10
    [ "$status" -eq 0 ]
    [ "$(rows | wc -l)" -gt 20 ]
    [ "$(rows | field sm_seen | sort -u)" = 12 ]
}

@test "this CPU: shares of a core, kernel checked first, samples kept" {
    long_test
    for _ in $(seq 20); do # a machine too busy to hold the limit says so
        rm -f h.db
        run --separate-stderr hcp-profile run --device cpu --limits cpu:30 "${shape[@]}" --q-lens 128 \
            --kv-lens 128,256 --causal-lens 128 --warm-up 0.03
        echo "$stderr" >&2
        [[ "$stderr $(rows | field error)" == *"limit cpu:30 not proven: the kernel had "* ]] || break
    done
    [ "$status" -eq 0 ]
    [ "$(rows | wc -l)" -eq 3 ]
    [ "$(rows | field origin | sort -u)" = measured ]
    [ "$(rows | field method | grep -cE '^(wall|cpu-time)$')" -eq 3 ]
    [ "$(rows | field check_result | grep -c '^passed')" -eq 3 ]
    [ "$(rows | grep -c '"samples_ms":\[[0-9]')" -eq 3 ]
    [ "$(rows | field note | grep -c 'warm-up 30 ms')" -eq 3 ]
    [ "$(rows | field cache | sort -u)" = cold ]
    [[ "$(rows | field device_uuid | sort -u)" == CPU-* ]]
    [ "$(hcp-profile export --format jsonl | grep -c '"kind":"drift"')" -eq 1 ]
}

@test "this CPU: what a node of the same image measured is not this one's" {
    command -v sqlite3 || skip "no sqlite3 program"
    set -- --device cpu --limits cpu:100 "${shape[@]}" --q-lens 64 --kv-lens 64 --causal-lens none --warm-up 0.01
    hcp-profile run "$@"
    run --separate-stderr hcp-profile run "$@"
    [[ "$stderr" == *" 0 cells to do, 1 measured before"* ]]
    # machine-id and model, and so the UUID, are the same there; the host is not
    sqlite3 "$HCP_DB" "UPDATE run SET host = 'clone'"
    run --separate-stderr hcp-profile run "$@"
    echo "$stderr" >&2
    [[ "$stderr" == *" 1 cells to do"* ]]
    [ "$(rows | field host | sort | paste -sd' ')" = "$(printf '%s\n' clone "$(uname -n)" | sort | paste -sd' ')" ]
    [ "$(rows | field device_uuid | sort -u | wc -l)" -eq 1 ]
    # Rows that name no host are anybody's.
    sqlite3 "$HCP_DB" "UPDATE run SET host = NULL"
    run --separate-stderr hcp-profile run "$@"
    [[ "$stderr" == *" 0 cells to do"* ]]
}

@test "a plug-in kernel is timed under its own name" {
    run --separate-stderr hcp-profile run --device cpu --limits cpu:100 "${shape[@]}" --q-lens 32 \
        --kv-lens 32 --causal-lens none --kernel "$top_builddir/tests/.libs/plugin-example.so"
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    [ "$(rows | field provider | sort -u)" = example ] # the cell and its finish passes
    [[ "$(rows | field provider_config)" == *"out fp32"* ]]
}

@test "decode: one query against many keys" {
    hcp-profile run --device "$toy" --levels 50 --phase decode --max-len 4K
    [ "$(rows | field q_len | sort -u)" = 1 ]
    [ "$(rows | field phase | sort -u)" = decode ]
    [ "$(rows | wc -l)" -eq 3 ]
}

@test "drift: the first cell of a limit again at its end, stored, said beyond noise" {
    long_test
    set -- --levels 50,20 --q-lens 128,256 --kv-lens 128 --causal-lens none
    run --separate-stderr hcp-profile run --json --device "$toy,drift=0.018,clock=1755" "$@"
    [ "$status" -eq 0 ]
    for limit in mps:50 mps:20; do
        [[ "$stderr" == *"toy@$limit: drifted by +1.8 % in "*" s, SM clock 1755 -> 1724 MHz: full "*x128" took "*" ms first, "*" ms at the end; measure the limit again into another file (--db): fits take the median of all runs in one"* ]]
    done
    [[ "$output" == *'"drift":{"mask":"full","q_len":'*'"first_sm_clock_mhz":1755,"last_sm_clock_mhz":1723.'*'"drifted":true}'* ]]
    [ "$(sqlite3 h.db 'SELECT count(*), min(last_ms / first_ms BETWEEN 1.0179 AND 1.0181), min(first_ms = time_ms)
        FROM drift d JOIN cell c USING (limiter, mask, q_len, kv_len)')" = '2|1|1' ]
    # other noise, less of it, faster
    HCP_DB=noise.db run --separate-stderr hcp-profile run --device "$toy,drift=0.018,clock=1755,noise=0.05" "$@"
    [[ "$stderr" != *drifted* ]]
    HCP_DB=less.db run --separate-stderr hcp-profile run --json --device "$toy,drift=0.009,clock=1755" "$@"
    [[ "$stderr" != *drifted* ]]
    [[ "$output" == *'"drifted":false}'* ]]
    [ "$(sqlite3 less.db 'SELECT count(*) FROM drift')" -eq 2 ]
    HCP_DB=faster.db run --separate-stderr hcp-profile run --device "$toy,drift=-0.1" "$@"
    [[ "$stderr" == *"toy@mps:50: drifted by -10.0 % in "*" s: full "* ]]
    # nothing to do, nothing to compare; a machine that is computed does not drift
    run --separate-stderr hcp-profile run --device "$toy,drift=0.018,clock=1755" "$@"
    [[ "$stderr" == *" 0 cells to do"* ]]
    [ "$(sqlite3 h.db 'SELECT count(*) FROM drift')" -eq 2 ]
    hcp-profile run --db none.db --device "$toy" "$@"
    [ "$(sqlite3 none.db 'SELECT count(*) FROM drift')" -eq 0 ]
}

@test "times that fall as lengths grow are stored and say so" {
    hcp-profile run --device "$toy,drift=-0.5" --levels 50 --q-lens 128,256 --kv-lens 128 --causal-lens none
    [ "$(rows | field note | grep -c -e '^faster than the smaller cell 128 x 128$' -e '^slower than the larger cell 256 x 128$')" -le 1 ]
    hcp-profile run --db more.db --device "$toy,drift=-0.5,f=10" --levels 50,20 --q-lens 128,256,512 --kv-lens 128 \
        --causal-lens none
    HCP_DB=more.db
    [ "$(rows | field note | grep -c -E '^(faster than the smaller|slower than the larger) cell [0-9]+ x 128$')" -ge 2 ]
    # and a machine that is in order has no such notes
    hcp-profile run --db good.db --device "$toy" --levels 50,20 --q-lens 128,256,512 --kv-lens 128 --causal-lens none
    [ -z "$(rows --db good.db | field note)" ]
}

@test "drift: a repetition that does not fit the time budget is left out and said" {
    long_test
    # Cells of 50 s each; none of these seconds passes.
    run --separate-stderr env HCP_TEST_CLOCK=1 "$top_builddir/tests/profile-fixture" run \
        --device "$toy,drift=0.018,delay=50000" --levels 50 --q-lens 128,256 --kv-lens 128 \
        --causal-lens none --time-budget 115s
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"toy@mps:50: not checked for drift: no time was left for it"* ]]
    [ "$(sqlite3 h.db 'SELECT count(*) FROM drift')" -eq 0 ]
}

@test "--json: one object a device" {
    run --separate-stderr hcp-profile run --json --device "$toy" --levels 50,20 --max-len 256
    [ "$status" -eq 0 ]
    [[ "$output" == '[{"schema":1,"device":"toy",'* ]]
    [[ "$output" == *'"origin":"synthetic"'* ]]
    [[ "$output" == *'"limit":"mps:50","sm_seen":66,"cells":6,"measured":6,'* ]]
}

@test "devices: text and JSON" {
    run --separate-stderr hcp-profile devices
    [ "$status" -eq 0 ]
    [[ "$output" == *"cpu-blas"* ]]
    [[ "$output" == *"mps:PCT"* ]]
    [[ "$output" == *"cpu:PCT"* ]]
    run --separate-stderr hcp-profile devices --json
    [ "$status" -eq 0 ]
    [[ "$output" == '{"schema":1,"devices":['* ]]
    [[ "$output" == *'"limiters":[{"limit":"mps",'* ]]
}

@test "numbers do not depend on the locale" {
    long_test
    german=$(locale -a | grep -i '^de_DE' | head -1)
    if [ -z "$german" ]; then
        localedef -i de_DE -f UTF-8 "$PWD/de_DE.UTF-8" 2>/dev/null || skip "no German locale here"
        export LOCPATH=$PWD
        german=de_DE.UTF-8
    fi
    LC_ALL=$german hcp-profile run --device "$toy,noise=0.01" \
        --levels 50 --max-len 256
    LC_ALL=C hcp-profile run --db c.db --device "$toy,noise=0.01" --levels 50 --max-len 256
    rows | field time_ms >a
    HCP_DB=c.db rows | field time_ms >b
    cmp a b
}
