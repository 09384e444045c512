#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hcp-plan fit: what it stores, prints and refuses.

setup() {
    db=$BATS_TEST_TMPDIR/h.db
    csv=$BATS_TEST_TMPDIR/in.csv
    unset HCP_DB
}

import() { hcp-profile import --db "$db" "$@" >/dev/null; }
models() { sqlite3 "$db" 'SELECT count(*) FROM model'; }
# How often a text occurs in the output.
count() { grep -o -- "$1" <<<"$output" | wc -l; }

@test "a recorded machine: ten limits, both kinds, held-out errors" {
    import nvidia-h200-fa2
    run hcp-plan fit --db "$db" --json
    [ "$status" -eq 0 ]
    json=$(hcp-plan fit --db "$db" --json 2>/dev/null)
    output=$json
    [ "$(count '"limit":')" -eq 10 ]
    [ "$(count '"holdout_p90":')" -eq 20 ]
    [ "$(count '"fitted":true')" -eq 10 ]
    [ "$(count '"tile_q":128')" -eq 10 ]
    [ "$(count '"origin":"recorded"')" -eq 10 ]
    [ "$(count '"best":"\(lut\|poly\)"')" -eq 10 ]
}

@test "the table names device, limit and errors; notes go to stderr" {
    import nvidia-h200-fa2
    table=$(hcp-plan fit --db "$db" 2>/dev/null)
    [ "$(wc -l <<<"$table")" -eq 11 ]
    [[ "$table" == *nvidia-h200*mps:10*flash*128x64*%*lut* ]]
    notes=$(hcp-plan fit --db "$db" 2>&1 >/dev/null)
    [[ "$notes" == *"nvidia-h200@mps:100, flash: "* ]]
    [ -z "$(hcp-plan fit --db "$db" --quiet 2>&1)" ]
}

@test "fitting again replaces, it does not add" {
    command -v sqlite3 || skip "no sqlite3 program"
    import nvidia-h200-fa2
    hcp-plan fit --db "$db" --quiet
    [ "$(models)" -eq 20 ]
    hcp-plan fit --db "$db" --quiet
    [ "$(models)" -eq 20 ]
}

@test "--limit fits one limit, with what all limits say of the kernel" {
    import nvidia-h200-fa2
    run hcp-plan fit --db "$db" --limit mps:50 --json --quiet
    [ "$status" -eq 0 ]
    ! command -v sqlite3 || [ "$(models)" -eq 2 ]
    table=$(hcp-plan fit --db "$db" --limit mps:50)
    [[ "$table" == *"waves/66"* ]]
}

@test "one key with too little data does not stop the others" {
    printf 'device,limit,provider,mask,q_len,kv_len,time_ms\n' >"$csv"
    printf 'gpu-x,mps:50,flash,full,1024,2048,1.5\n' >>"$csv"
    printf 'gpu-x,,flash,full,%d,4096,%d\n' 512 1 1024 2 2048 4 >>"$csv"
    import "$csv"
    run hcp-plan fit --db "$db"
    [ "$status" -eq 0 ]
    [[ "$output" == *"hcp-plan: gpu-x@mps:50, flash: one full cell, q_len 1024 x kv_len 2048"* ]]
    [[ "$output" == *"hcp-profile run"* ]]
    [[ "$output" == *"gpu-x  whole"* ]]
}

@test "nothing but too little data: exit 3 and why" {
    printf 'device,limit,provider,mask,q_len,kv_len,time_ms\n' >"$csv"
    printf 'gpu-x,mps:50,flash,full,1024,2048,1.5\n' >>"$csv"
    import "$csv"
    run hcp-plan fit --db "$db"
    [ "$status" -eq 3 ]
    [ "${#lines[@]}" -eq 1 ]
}

@test "no such device: exit 3; no such file: exit 1" {
    import nvidia-h200-fa2
    run hcp-plan fit --db "$db" --device amd-mi300x
    [ "$status" -eq 3 ]
    [[ "$output" == *"hcp-profile show"* ]]
    run hcp-plan fit --db "$BATS_TEST_TMPDIR/none.db"
    [ "$status" -eq 1 ]
    [[ "$output" == *none.db* ]]
    [ ! -e "$BATS_TEST_TMPDIR/none.db" ]
}

@test "usage errors: exit 2" {
    run hcp-plan fit --nonsense
    [ "$status" -eq 2 ]
    run hcp-plan fit some.db
    [ "$status" -eq 2 ]
}

@test "a full disk is an error" {
    [ -e /dev/full ] || skip "no /dev/full"
    import nvidia-h200-fa2
    run bash -c "hcp-plan fit --db '$db' 2>/dev/null >/dev/full"
    [ "$status" -eq 1 ]
}
