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
    [[ "$table" == DEVICE*LUT_MEDIAN_%*LUT_P90_%*POLY_MEDIAN_%*nvidia-h200*mps:10*flash*128x64*lut* ]]
    # limits by number: 20 before 100
    [[ "$table" == *mps:10\ *mps:20\ *mps:90\ *mps:100\ * ]]
    notes=$(hcp-plan fit --db "$db" 2>&1 >/dev/null)
    [[ "$notes" == *"nvidia-h200@mps:100, flash: "* ]]
    [ -z "$(hcp-plan fit --db "$db" --quiet 2>&1)" ]
}

@test "finish passes: two lines beside the models, added to plans" {
    command -v sqlite3 || skip "no sqlite3 program"
    import nvidia-h200-fa2
    r='2*nvidia-h200@mps:50'
    hcp-plan fit --db "$db" --json 2>/dev/null | grep -q '"finish":null'
    hcp-plan split --db "$db" --ranks "$r" --seq-len 16K --json >"$BATS_TEST_TMPDIR/a.json"
    # 4 us + 2 ns a row to store, 6 us + 5 ns to merge
    for q in 128 1024 8192; do
        for pass in 'store 4 2' 'merge 6 5'; do
            # shellcheck disable=SC2086
            set -- $pass
            sqlite3 "$db" "INSERT INTO finish (run_id, device_id, limiter, provider, dtype,
                phase, batch, heads, kv_heads, head_dim, kind, q_len, time_ms)
                SELECT run_id, device_id, limiter, provider, dtype, phase, batch, heads,
                kv_heads, head_dim, '$1', $q, ($2 + $3 * $q / 1e3) / 1e3 FROM cell
                WHERE limiter = 'mps:50' LIMIT 1"
        done
    done
    run hcp-plan split --db "$db" --ranks "$r" --seq-len 16K
    [ "$status" -eq 3 ]
    [[ "$output" == *"samples changed since the fit"* ]]
    table=$(hcp-plan fit --db "$db" 2>/dev/null)
    [[ "$table" == *"finish passes"*STORE_US*MERGE_US*"4.00 + 2.000 q/1000"*"6.00 + 5.000 q/1000"* ]]
    [ "$(models)" -eq 20 ]
    output=$(hcp-plan fit --db "$db" --json 2>/dev/null)
    [ "$(count '"finish":null')" -eq 9 ]
    [ "$(count '"rows":6')" -eq 1 ]
    hcp-plan split --db "$db" --ranks "$r" --seq-len 16K --json >"$BATS_TEST_TMPDIR/b.json"
    # Two ranks of 8192: a store and a merge are 10 us + 7 ns * 8192.
    awk -v a="$(sed 's/.*"compute_ms":\([0-9.]*\).*/\1/' "$BATS_TEST_TMPDIR/a.json")" \
        -v b="$(sed 's/.*"compute_ms":\([0-9.]*\).*/\1/' "$BATS_TEST_TMPDIR/b.json")" \
        'BEGIN { d = b - a - 0.067344; exit !(d < 1e-6 && d > -1e-6) }'
    # Other models, other plans.
    hash() { grep -o '"models_hash":"[0-9a-f]*"' "$BATS_TEST_TMPDIR/$1.json"; }
    [ "$(hash a)" != "$(hash b)" ]
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

@test "--origin, --host and --run choose the samples, not only the keys" {
    head=device,limit,provider,mask,q_len,kv_len,time_ms,run_uid,host,origin
    printf '%s\n' "$head" >"$csv"
    for q in 512 1024 2048; do
        printf 'gpu-x,,flash,full,%d,4096,%d,a,fast,measured\n' "$q" $((q / 512)) >>"$csv"
        printf 'gpu-x,,flash,full,%d,4096,%d,b,slow,recorded\n' "$q" $((q / 128)) >>"$csv"
    done
    import "$csv"
    for choice in "--host fast:4" "--host slow:16" "--origin measured:4" "--run b:16" ":10"; do
        # shellcheck disable=SC2086
        hcp-plan fit --db "$db" --quiet ${choice%:*}
        run hcp-plan predict --db "$db" --ranks gpu-x --q-len 2048 --kv-len 4096
        [[ "$output" == *": ${choice#*:} ms "* ]]
    done
    run hcp-plan fit --db "$db" --host nobody --json
    [ "$status" -eq 3 ]
    [[ "$output" == "hcp-plan: no measured cell of that kind"* ]]
}

@test "every model that is stored can be used: huge batches and SM counts" {
    printf 'device,limit,provider,mask,q_len,kv_len,time_ms,batch,heads,kv_heads,sm_seen,tile_q,origin\n' >"$csv"
    printf 'gpu-x,,flash,full,%d,4096,%d,1048576,65536,1,2147483647,512,synthetic\n' 512 1 1024 2 2048 4 >>"$csv"
    import "$csv"
    hcp-plan fit --db "$db" --quiet
    run hcp-plan predict --db "$db" --ranks gpu-x --batch 1048576 --heads 65536 --kv-heads 1 --q-len 2048 --kv-len 4096
    [[ "$output" == *": 4 ms "* ]]
}

@test "twenty thousand scattered cells are fitted in a minute of a processor, not in hours" {
    awk 'BEGIN { print "device,limit,provider,mask,q_len,kv_len,time_ms"
        for (q = 1; q <= 100; q++) for (k = 1; k <= 200; k++)
            printf "gpu-x,mps:50,flash,full,%d,%d,%.6f\n", q * 120, k * 60, q * k / 1000 + 0.01 }' >"$csv"
    import "$csv"
    (ulimit -t 60 && hcp-plan fit --db "$db" --quiet)
}

@test "a model fitted while rows came in is never taken for a newer one" {
    head=device,limit,provider,mask,q_len,kv_len,time_ms,run_uid
    rows() { for q in 512 1024 2048 4096; do echo "gpu-x,,flash,full,$q,4096,$((q * $1)),r$1"; done; }
    { echo "$head"; rows 1; } >"$csv"
    import "$csv"
    for i in 2 3 4 5 6 7 8 9 10 11 12; do
        { echo "$head"; rows $i; } >"$csv"
        import "$csv" &
        hcp-plan fit --db "$db" --quiet
        wait
        run hcp-plan predict --db "$db" --ranks gpu-x --q-len 1024 --kv-len 4096
        before=$output
        if [ "$status" -eq 0 ]; then
            hcp-plan fit --db "$db" --quiet
            run hcp-plan predict --db "$db" --ranks gpu-x --q-len 1024 --kv-len 4096
            [ "$output" = "$before" ]
        else
            [[ "$output" == *"samples changed since the fit; run 'hcp-plan fit --db $db'" ]]
        fi
    done
}
