#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# What comes in, goes out and is shown.

bats_require_minimum_version 1.5.0

setup() {
    db=$BATS_TEST_TMPDIR/h.db
    csv=$BATS_TEST_TMPDIR/in.csv
    head='device,limit,provider,mask,q_len,kv_len,time_ms'
    row='gpu-x,mps:50,flash,full,1024,2048,1.5'
    unset HCP_DB
}

import() { hcp-profile import --db "$db" "$@"; }
# One field of the first exported row, by name.
field() {
    hcp-profile export --db "$db" | grep -v '^#' |
        awk -F, -v n="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == n) c = i } NR == 2 { print $c }'
}

@test "required columns alone: the rest has design.md's defaults" {
    printf '%s\n%s\n' "$head" "$row" >"$csv"
    run import "$csv"
    [ "$status" -eq 0 ]
    [ "$output" = "$csv: 1 new, 0 already there -> $db" ]
    [ "$(field heads)/$(field kv_heads) $(field head_dim) $(field dtype) $(field batch)" = "32/8 128 bf16 1" ]
    [ "$(field phase) $(field origin) $(field status)" = "prefill recorded ok" ]
    [[ "$(field run_uid)" == recorded-* ]]
    [ "$(field time_ms)" = 1.5 ]
}

@test "the same file twice: nothing new" {
    import nvidia-h200-sdpa
    run import nvidia-h200-sdpa
    [ "$status" -eq 0 ]
    [[ "$output" == *": 0 new, 180 already there -> $db" ]]
}

@test "CRLF, byte-order mark, quotes, another row order: the same run" {
    printf '%s,note\n%s,"a ""b"", c"\n%s\n' "$head" "$row" "${row/1024/64},"  >"$csv"
    import "$csv"
    printf '\xef\xbb\xbf%s,note\r\n%s,\r\n%s,"a ""b"", c"\r\n' "$head" "\"gpu-x\"${row#gpu-x}" "$row" |
        sed 's/x",mps:50,flash,full,1024/x",mps:50,flash,full,64/' >"$csv"
    run import "$csv"
    [[ "$output" == *": 0 new, 2 already there"* ]]
    hcp-profile export --db "$db" | grep -F '"a ""b"", c"'
}

@test "export, import, export: byte for byte, CSV and JSON lines, raw samples too" {
    for name in fa2 cudnn919 sdpa; do import "nvidia-h200-$name"; done
    printf '%s,samples_ms,samples,host,note,error,status\n%s,0.1;0.30000000000000004;7,3,ä,"a,b ""c""",,\n' \
        "$head" "gpu-x,,flash,full,1,2,0.1" >"$csv"
    printf '%s\n' 'gpu-x,cpu:50,flash,full,1,2,,,,,,out of memory,failed' >>"$csv"
    import "$csv"
    cd "$BATS_TEST_TMPDIR"
    hcp-profile export --db "$db" >1.csv
    hcp-profile export --db "$db" --format jsonl -o 1.jsonl
    hcp-profile import --db 2.db 1.csv
    hcp-profile import --db 3.db - <1.jsonl
    hcp-profile export --db 2.db -o 2.csv
    hcp-profile export --db 3.db -o 3.csv
    hcp-profile export --db 2.db -o 2.jsonl
    cmp 1.csv 2.csv
    cmp 1.csv 3.csv
    cmp 1.jsonl 2.jsonl
    grep -q ',0.1;0.30000000000000004;7,cell,' 1.csv
    grep -q '"samples_ms":\[0.1,0.30000000000000004,7\]' 1.jsonl
    [ "$(grep -vc '^#' 1.csv)" -eq $((1100 + 288 + 180 + 2 + 1)) ]
}

@test "every column name of the export is known to the import and to hcp-db(5)" {
    import nvidia-h200-sdpa
    for column in $(hcp-profile export --db "$db" | grep -v '^#' | head -1 | tr , ' '); do
        grep -q "^\.It $column\( \|$\)" "$top_srcdir/man/hcp-db.5" || { echo "$column"; false; }
    done
}

@test "provenance comments stay with the run" {
    import nvidia-h200-fa2
    hcp-profile export --db "$db" | grep -q '^# run h200-fa2-rectangles-2026-11-29: .*driver 580.159'
}

@test "recorded profiles: counts, origin, bandwidth" {
    for name in fa2 cudnn919 sdpa; do import "nvidia-h200-$name"; done
    run hcp-profile show --db "$db" --json
    [ "$status" -eq 0 ]
    [[ "$output" != *'"origin":"measured"'* ]]
    [[ "$output" == *'"provider":"flash"'*'"median_tflops"'* ]]
    run hcp-profile show --db "$db" --limit mps:100 --provider flash
    [ "${#lines[@]}" -eq 2 ]
    [[ "${lines[1]}" == *recorded* ]]
    [[ "${lines[1]}" == *" 132 "*" 118 "*" 4179 "* ]]
    run hcp-profile show --db "$db" --cells --provider flash --limit mps:10 --mask causal
    [ "${#lines[@]}" -eq $((10 + 4 + 1)) ]
}

@test "show marks what was not measured" {
    printf '%s,origin\n%s,synthetic\n' "$head" "$row" | import -
    run hcp-profile show --db "$db"
    [[ "${lines[1]}" == *SYNTHETIC* ]]
    run hcp-profile show --db "$db" --cells
    [[ "${lines[1]}" == *SYNTHETIC* ]]
    run hcp-profile show --db "$db" --origin measured
    [ "$status" -eq 3 ]
    [[ "$output" == *"no rows of '$db' match"* ]]
}

@test "show --failed: what failed and why" {
    import nvidia-h200-sdpa
    run --separate-stderr hcp-profile show --db "$db" --failed
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    [ "$stderr" = "no failed cell in '$db' among the rows asked for" ]
    printf '%s,status,error,run_uid\n%s,ok,,r\n%s,failed,out of memory,r\n' "$head" "$row" "gpu-x,,flash,causal,64,64," |
        import -
    run hcp-profile show --db "$db" --failed
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 2 ]
    [[ "${lines[0]}" == DEVICE*Q_LEN*KV_LEN*ERROR ]]
    [[ "${lines[1]}" == gpu-x*whole*flash*causal*64*64*r*"out of memory" ]]
    run hcp-profile show --db "$db" --failed --device nvidia-h200
    [ "$output" = "no failed cell in '$db' among the rows asked for" ]
    [ "$(hcp-profile show --db "$db" --failed --device nvidia-h200 --json 2>/dev/null)" = "[]" ]
    [[ "$(hcp-profile show --db "$db" --failed --json)" == '[{'*'"error":"out of memory"'* ]]
}

@test "merge keeps both machines, counts no run twice, says what it did" {
    cd "$BATS_TEST_TMPDIR"
    hcp-profile import --db a.db nvidia-h200-fa2
    hcp-profile import --db b.db nvidia-h200-sdpa
    hcp-profile import --db b.db nvidia-h200-fa2
    run hcp-profile merge a.db b.db
    [ "$status" -eq 0 ]
    [ "$output" = "b.db: 180 kept, 1100 skipped (already there), 0 in conflict -> a.db" ]
    run hcp-profile merge --db a.db b.db --json
    [ "$output" = '[{"file":"b.db","kept":0,"skipped":1280,"conflicts":0,"models_not_merged":0}]' ]
    hcp-profile export --db a.db >a.csv
    hcp-profile export --db b.db | cmp - a.csv
}

@test "a conflicting row is counted, the stored one stays" {
    cd "$BATS_TEST_TMPDIR"
    printf '%s,run_uid\n%s,r1\n' "$head" "$row" | hcp-profile import --db a.db -
    printf '%s,run_uid\n%s,r1\n' "$head" "${row%1.5}2.5" | hcp-profile import --db b.db -
    run hcp-profile merge a.db b.db
    [[ "$output" == "b.db: 0 kept, 0 skipped (already there), 1 in conflict (the stored values stay) -> a.db" ]]
    hcp-profile export --db a.db | grep -q ',1.5,'
}

@test "merging thousands of rows takes seconds" {
    cd "$BATS_TEST_TMPDIR"
    awk -v head="$head" 'BEGIN { print head ",run_uid,samples_ms"
        for (i = 1; i <= 5000; i++) print "gpu-x,mps:50,flash,full," i ",64,1,big,1;1;1;1;1" }' |
        hcp-profile import --db big.db -
    SECONDS=0
    run hcp-profile merge new.db big.db
    [ "$SECONDS" -lt 10 ]
    [[ "$output" == "big.db: 5000 kept"* ]]
}

@test "HCP_DB and the default name" {
    cd "$BATS_TEST_TMPDIR"
    hcp-profile import nvidia-h200-sdpa
    [ -s hcp.db ]
    HCP_DB=e.db hcp-profile import nvidia-h200-sdpa
    HCP_DB=e.db hcp-profile show | grep -q nvidia-h200
    [ -s e.db ]
}

@test "--ignore-unknown leaves other columns out" {
    printf '%s,colour\n%s,red\n' "$head" "$row" >"$csv"
    run import --ignore-unknown "$csv"
    [ "$status" -eq 0 ]
    [[ "$output" == *": 1 new"* ]]
}

@test "conversion of the recorded data is repeatable" {
    [ -x "$top_srcdir/db/profiles/convert-recorded" ]
    out=$(printf '%s\n' '{"pct": 10, "sm": 12, "kernel": "flash", "q": 512, "kv": 256, "causal": false, "ms": 0.11459, "mn": 0.11184, "p75": 0.11584, "n": 30}' |
        "$top_srcdir/db/profiles/convert-recorded" fa2 | tail -1)
    [[ "$out" == nvidia-h200,mps:10,flash,bf16,prefill,1,32,8,128,full,512,256,0.11459,0.11184,0.11584,,30,event,cold,12,132,pytorch-2.11,128,64,recorded,* ]]
}
