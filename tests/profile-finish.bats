#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-profile run with kernels that cannot accumulate: the finish pass of each.

bats_require_minimum_version 1.5.0
load scale

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    command -v sqlite3 >/dev/null || skip "no sqlite3 program"
    export HCP_DB=$BATS_TEST_TMPDIR/h.db
    toy=synthetic:name=toy,store_b=1e-5,store_f=0.002,merge_b=3e-5,merge_f=0.004
    plugin=$top_builddir/tests/.libs/plugin-example.so
    shape=(--heads 2 --kv-heads 1 --head-dim 64)
}

finishes() { # SQL columns and the rest: rows of the table finish
    sqlite3 "$HCP_DB" "SELECT $1 FROM finish ${2-}"
}

@test "synthetic: both passes at each limit, with the times planted" {
    run --separate-stderr hcp-profile run --device "$toy" --levels 100,50 --max-len 64K
    [ "$status" -eq 0 ]
    [[ "$stderr" == *" cells to do and 20 finish passes"* ]]
    [ "$(finishes "kind || q_len" "WHERE limiter = 'mps:50' ORDER BY kind, q_len" | xargs)" = \
        "merge512 merge2048 merge8192 merge16384 merge65536 store512 store2048 store8192 store16384 store65536" ]
    [ "$(finishes "count(*)" "WHERE abs(time_ms / ((CASE kind WHEN 'store' THEN 1e-5 * q_len + 0.002
        ELSE 3e-5 * q_len + 0.004 END) * (CASE limiter WHEN 'mps:50' THEN 2 ELSE 1 END)) - 1) < 1e-9")" -eq 20 ]
    [ "$(finishes "DISTINCT samples || '/' || sm_seen" "WHERE limiter = 'mps:50'")" = 10/66 ]
    [ "$(sqlite3 "$HCP_DB" "SELECT DISTINCT origin FROM finish JOIN run ON run.id = run_id")" = synthetic ]
}

@test "synthetic: a kernel that only merges, and one that needs nothing" {
    hcp-profile run --device synthetic:name=toy,merge_b=1e-5 --levels 50 --max-len 1K
    [ "$(finishes "DISTINCT kind")" = merge ]
    run --separate-stderr hcp-profile run --db n.db --json --device synthetic:name=toy --levels 50 --max-len 1K
    [[ "$output" == *'"finish":0,'* ]]
    [[ "$stderr" != *finish* ]]
    HCP_DB=n.db
    [ "$(finishes "count(*)")" -eq 0 ]
}

@test "the same command measures no pass twice; a longer sweep adds its lengths; --fresh all" {
    hcp-profile run --device "$toy" --levels 50 --max-len 1K
    [ "$(finishes "count(*)")" -eq 4 ]
    run --separate-stderr hcp-profile run --json --device "$toy" --levels 50 --max-len 1K
    [[ "$stderr" == *"0 cells to do"* ]]
    [[ "$stderr" != *finish* ]]
    [[ "$output" == *'"finish":4,'* ]]
    [ "$(finishes "count(*)")" -eq 4 ]
    hcp-profile run --device "$toy" --levels 50 --max-len 2K
    [ "$(finishes "count(*)")" -eq 6 ]
    [ "$(finishes "count(DISTINCT run_id)")" -eq 1 ]
    hcp-profile run --device "$toy" --levels 50 --max-len 2K --fresh
    [ "$(finishes "count(*)")" -eq 12 ]
    [ "$(finishes "count(DISTINCT run_id)")" -eq 2 ]
}

@test "cells measured before the passes were: the same command adds them" {
    hcp-profile run --device "$toy" --levels 50 --max-len 1K
    sqlite3 "$HCP_DB" 'DELETE FROM finish WHERE q_len = 512'
    run --separate-stderr hcp-profile run --device "$toy" --levels 50 --max-len 1K
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"0 cells to do and 2 finish passes"* ]]
    [ "$(finishes "count(*)")" -eq 4 ]
}

@test "--dry-run lists them, and stores nothing" {
    run --separate-stderr hcp-profile run --dry-run --device "$toy" --levels 50 --q-lens 1K --kv-lens 128 \
        --causal-lens none
    [ "$status" -eq 0 ]
    [ "$(grep -c -E '^toy +mps:50 +(store|merge) +(512|1024) +0 ' <<<"$output")" -eq 4 ]
    [ "${#lines[@]}" -eq 6 ] # a header, one cell, four passes
    [ ! -e "$HCP_DB" ]
}

@test "a pass that fails is said, not stored, and measured by the next run" {
    run --separate-stderr hcp-profile run --device "$toy,fail_q=512" --levels 50 --q-lens 1K --kv-lens 128 \
        --causal-lens none
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"2 finish passes failed; the same command measures them again: synthetic failure"* ]]
    [ "$(finishes "count(*)")" -eq 2 ]
    run --separate-stderr hcp-profile run --device "$toy" --levels 50 --q-lens 1K --kv-lens 128 --causal-lens none
    [ "$status" -eq 0 ]
    [ "$(finishes "count(*)")" -eq 4 ]
}

@test "this CPU: a plug-in that accumulates nothing, output in bf16: both passes" {
    long_test
    for _ in $(seq 20); do # a machine too busy to hold the limit says so
        rm -f h.db
        run --separate-stderr hcp-profile run --device cpu --limits cpu:100,cpu:50 "${shape[@]}" --dtype bf16 \
            --q-lens 64 --kv-lens 32 --causal-lens none --warm-up 0.005 --kernel "$plugin"
        echo "$stderr" >&2
        [[ "$stderr $(hcp-profile show --failed 2>&1)" == *"limit cpu:50 not proven: the kernel had "* ]] || break
    done
    [ "$status" -eq 0 ]
    [ "$(finishes "limiter || kind || q_len" "ORDER BY 1" | xargs)" = \
        "cpu:100merge16 cpu:100merge64 cpu:100store16 cpu:100store64 cpu:50merge16 cpu:50merge64 cpu:50store16 cpu:50store64" ]
    [ "$(finishes "DISTINCT provider || '/' || dtype || '/' || heads || '/' || kv_heads || '/' || head_dim")" = \
        example/bf16/2/1/64 ]
    [ "$(finishes "count(*)" "WHERE samples >= 3 AND p25_ms <= time_ms AND time_ms <= p75_ms")" -eq 8 ]
}

@test "this CPU: fp32 output goes to the state itself, so only the merge is a pass" {
    long_test
    hcp-profile run --device cpu --limits cpu:100 "${shape[@]}" --dtype fp32 --q-lens 64 --kv-lens 32 \
        --causal-lens none --warm-up 0.005 --kernel "$plugin"
    [ "$(finishes "DISTINCT kind")" = merge ]
}

@test "this CPU: cpu-blas accumulates in one pass" {
    hcp-profile run --device cpu --limits cpu:100 "${shape[@]}" --dtype fp32 --q-lens 64 --kv-lens 32 \
        --causal-lens none --warm-up 0.005
    [ "$(finishes "count(*)")" -eq 0 ]
}
