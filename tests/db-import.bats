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

# Finish and link rows by hand: two of each, in columns of their own order.
other_rows() {
    printf '%s\n' 'kind,transport,peer_device,peer_limit,bytes,device,limit,provider,q_len,time_ms,p25_ms,samples,run_uid,host,peer_host,same_host,peer_sm_seen,peer_sm_count,sm_count,transport_version,device_uuid,peer_uuid,peer_name,note' \
        'store,,,,,gpu-x,mps:50,cudnn,64,0.30000000000000004,0.25,30,f-1,left,,,,,132,,GPU-1,,,' \
        'merge,,,,,gpu-x,,cudnn,4096,0.5,,,f-1,left,,,,,132,,GPU-1,,,' \
        'link,nccl,gpu-y,mps:10,4096,gpu-x,mps:100,,,0.0125,0.0120,,l-1,left,right,0,12,132,132,2.28.9,GPU-1,GPU-2,"Some GPU, big",' \
        'link,mpi,gpu-x,,1073741824,gpu-x,,,,40,,,l-1,left,,1,,,,,,,,' \
        'cell,,,,,gpu-x,mps:50,cudnn,64,1,,,f-1,left,,,,,132,,GPU-1,,,' |
        sed '1s/$/,mask,kv_len/; 2,5s/$/,,/; 6s/$/,full,64/'
}

@test "finish and link rows: export, import, export byte for byte, CSV and JSON lines" {
    cd "$BATS_TEST_TMPDIR"
    other_rows >in.csv
    run hcp-profile import --db 1.db in.csv
    [ "$output" = "in.csv: 5 new, 0 already there -> 1.db" ]
    run hcp-profile import --db 1.db in.csv
    [ "$output" = "in.csv: 0 new, 5 already there -> 1.db" ]
    hcp-profile import --db 1.db nvidia-h200-sdpa
    hcp-profile export --db 1.db >1.csv
    hcp-profile export --db 1.db --format jsonl -o 1.jsonl
    hcp-profile import --db 2.db 1.csv
    hcp-profile import --db 3.db 1.jsonl
    hcp-profile export --db 2.db | cmp - 1.csv
    hcp-profile export --db 3.db | cmp - 1.csv
    hcp-profile export --db 2.db -o 2.jsonl
    cmp 1.jsonl 2.jsonl
    [ "$(head -1 1.csv)" = "# hcp profile, format 2; columns: hcp-db(5)" ]
    grep -q '"time_ms":0.30000000000000004,.*"kind":"store"' 1.jsonl
    grep -q '"kind":"link","bytes":4096,"peer_device":"gpu-y","peer_limit":"mps:10","transport":"nccl"' 1.jsonl
    [ "$(grep -v '^#' 1.csv | awk -F, '{ print gsub(/,/, "") }' | sort -u | wc -l)" -eq 2 ] # one name has a comma
    for column in $(grep -v '^#' 1.csv | head -1 | tr , ' '); do
        grep -q "^\.It $column\( \|$\)" "$top_srcdir/man/hcp-db.5" || { echo "$column"; false; }
    done
    # Filters leave out what cannot match.
    [ "$(hcp-profile export --db 1.db --device gpu-x | grep -vc '^#')" -eq 6 ]
    [ "$(hcp-profile export --db 1.db --device gpu-y | grep -vc '^#')" -eq 2 ]
    [ "$(hcp-profile export --db 1.db --provider cudnn --device gpu-x | grep -vc '^#')" -eq 4 ]
    [ "$(hcp-profile export --db 1.db --mask full --device gpu-x | head -1)" = "# hcp profile, format 1; columns: hcp-db(5)" ]
}

@test "finish and link rows without run_uid: the same rows are the same run" {
    other_rows | sed 's/,f-1,/,,/; s/,l-1,/,,/' >"$csv"
    import "$csv"
    { head -1 "$csv"; sed 1d "$csv" | tac; } | import - | grep -q ': 0 new, 5 already there'
    sed 's/,40,/,41,/' "$csv" | import - | grep -q ': 5 new, 0 already there'
}

@test "show --finish" {
    run hcp-profile show --db "$db" --finish
    [ "$status" -eq 1 ]
    other_rows | import -
    run hcp-profile show --db "$db" --finish
    [ "${#lines[@]}" -eq 3 ]
    [[ "${lines[0]}" == DEVICE*LIMIT*KERNEL*SHAPE*KIND*Q_LEN*TIME_MS*ORIGIN*RUN ]]
    [[ "${lines[1]}" == gpu-x*mps:50*cudnn*"prefill bf16 32/8x128 b1"*store*64*0.30000*0.25000*30*recorded*f-1 ]] ||
        [[ "${lines[2]}" == gpu-x*mps:50*cudnn*"prefill bf16 32/8x128 b1"*store*64*0.30000*0.25000*30*recorded*f-1 ]]
    [[ "$(hcp-profile show --db "$db" --finish --limit '' --json)" == '[{"device":"gpu-x","limit":"",'*'"kind":"merge","q_len":4096,"time_ms":0.5,"p25_ms":null,'* ]]
    run hcp-profile show --db "$db" --finish --provider flash
    [ "$status" -eq 3 ]
    [[ "$output" == *"no rows of '$db' match; add some with 'hcp-profile run'"* ]]
}

@test "show --links: the fit of each pair, whichever end comes first; --cells every row" {
    {
        echo 'kind,device,limit,peer_device,peer_limit,transport,bytes,time_ms,run_uid'
        # 10 us and 50 GB/s, one of the sizes 10 % slower in one of the orders
        echo 'link,gpu-x,mps:50,gpu-y,,nccl,1000000,0.03,a'
        echo 'link,gpu-y,,gpu-x,mps:50,nccl,2000000,0.05,a'
        echo 'link,gpu-x,mps:50,gpu-y,,nccl,50000000,1.01,a'
        echo 'link,gpu-x,mps:50,gpu-y,,mpi,50000000,9,a'
    } >"$csv"
    import "$csv"
    run hcp-profile show --db "$db" --links
    [ "${#lines[@]}" -eq 3 ]
    [[ "${lines[0]}" == A*B*TRANSPORT*HOSTS*ROWS*BYTES*ALPHA_US*GB/S*HOLDOUT_MEDIAN/MAX_%*ORIGIN ]]
    [[ "${lines[1]}" == gpu-x@mps:50*gpu-y*mpi*1*50000000-50000000*-*recorded ]]
    [[ "${lines[2]}" == gpu-x@mps:50*gpu-y*nccl*3*1000000-50000000*10.00*50.00*0.0/0.0*recorded ]]
    run hcp-profile show --db "$db" --links --json
    [[ "$output" == *'"transport":"mpi","rows":1,'*'"channels":null,"alpha_us":null,"gb_per_s":null,'* ]]
    [[ "$output" == *'"transport":"nccl","rows":3,"bytes_min":1000000,"bytes_max":50000000,"channels":null,"alpha_us":'*'"sizes":3,"holdout_median":'* ]]
    run hcp-profile show --db "$db" --links --cells
    [ "${#lines[@]}" -eq 5 ]
    run hcp-profile show --db "$db" --links --device gpu-z
    [ "$status" -eq 3 ]
    [[ "$output" == *"add some with 'hcp-profile link'"* ]]
}

@test "show --links: within a host and between two, each with a fit of its own" {
    {
        echo 'kind,device,limit,peer_device,peer_limit,transport,bytes,time_ms,same_host,host,peer_host,run_uid'
        for size in 1000000 2000000 4000000 8000000; do
            # 5 us and 200 GB/s within, which one names; 20 us and 10 GB/s between
            echo "link,gpu-x,,gpu-x,,nccl,$size,$(awk "BEGIN { printf \"%.6f\", 0.005 + $size / 200000000 }"),1,,,a"
            echo "link,gpu-x,,gpu-x,,nccl,$size,$(awk "BEGIN { printf \"%.6f\", 0.02 + $size / 10000000 }"),,n1,n2,b"
        done
    } >"$csv"
    import "$csv"
    run hcp-profile show --db "$db" --links
    [ "${#lines[@]}" -eq 3 ]
    [[ "${lines[1]}" =~ nccl\ +within\ +4\ .*\ 5.00\ +200.00\ .*recorded ]]
    [[ "${lines[2]}" =~ nccl\ +between\ +4\ .*\ 20.00\ +10.00\ .*recorded ]]
    run hcp-profile show --db "$db" --links --json
    [[ "$output" == *'"hosts":"within","origin"'*'"hosts":"between","origin"'* ]]
    run hcp-profile check --db "$db" --no-device
    [[ "$output" != *link-* ]]
}

@test "show --rings: predicted beside measured" {
    "$top_builddir/tests/ring-rows" "$db"
    run hcp-profile show --db "$db" --rings
    [ "${#lines[@]}" -eq 3 ]
    [[ "${lines[0]}" == WHEN*SEQ_LEN*MASK*LAYOUT*STRATEGY*RANKS*TOKENS*MAKESPAN_MS*PREDICTED_MS*ERROR_%*TO_BOUND*TRANSPORT*ORIGIN ]]
    [[ "${lines[1]}" == 2026-11-29T12:00:00Z*1000*causal*zigzag*best*"toy-cpu,2*toy-cpu@cpu:50"*600,200,200*2.0000*2.5000*+25.0*1.250*mpi*measured ]]
    [[ "${lines[2]}" == *2.0000*1.250*mpi*measured ]]
    [[ "${lines[2]}" != *+* ]]
    run hcp-profile show --db "$db" --rings --json
    [[ "$output" == '[{"uid":"ring-a",'*'"predicted_ms":2.5,'*'"error":0.25,'*'"ranks":[{"device":"toy-cpu","limit":"",'*'"tokens":600,'* ]]
    [[ "$output" == *'{"uid":"ring-b",'*'"predicted_ms":null,'*'"error":null,'* ]]
    [[ "$(hcp-profile show --db "$db" --rings --run ring-b)" == *2.0000* ]]
    [ "$(hcp-profile show --db "$db" --rings --limit cpu:50 --device toy-cpu --json | grep -o ring- | wc -l)" -eq 2 ]
    for none in "--limit cpu:10" "--mask full" "--dtype bf16" "--run x" "--heads 8"; do
        # shellcheck disable=SC2086 # two words
        run hcp-profile show --db "$db" --rings $none
        [ "$status" -eq 3 ]
    done
    [[ "$output" == *"add some with 'hcp-ring' or 'hcp-profile merge'"* ]]
    run hcp-profile show --db "$db" --rings --links
    [ "$status" -eq 2 ]
}

@test "merge takes finish and link rows along" {
    cd "$BATS_TEST_TMPDIR"
    other_rows | hcp-profile import --db a.db -
    run hcp-profile merge new.db a.db
    [ "$output" = "a.db: 5 kept, 0 skipped (already there), 0 in conflict -> new.db" ]
    hcp-profile export --db a.db >a.csv
    hcp-profile export --db new.db | cmp - a.csv
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
    [ "$output" = '[{"file":"b.db","kept":0,"skipped":1280,"conflicts":0,"models_not_merged":0,"conflict_rows":[]}]' ]
    hcp-profile export --db a.db >a.csv
    hcp-profile export --db b.db | cmp - a.csv
}

@test "a conflicting row is counted, the stored one stays" {
    cd "$BATS_TEST_TMPDIR"
    printf '%s,run_uid\n%s,r1\n' "$head" "$row" | hcp-profile import --db a.db -
    printf '%s,run_uid\n%s,r1\n' "$head" "${row%1.5}2.5" | hcp-profile import --db b.db -
    run hcp-profile merge a.db b.db
    [ "${lines[0]}" = "b.db: 0 kept, 0 skipped (already there), 1 in conflict (the stored values stay) -> a.db" ]
    [ "${lines[1]}" = "  cell, device gpu-x, limit mps:50, provider flash, dtype bf16, phase prefill, batch 1, heads 32, kv_heads 8, head_dim 128, mask full, q_len 1024, kv_len 2048, run_uid r1: time_ms 1.5, not 2.5" ]
    hcp-profile export --db a.db | grep -q ',1.5,'
}

@test "merging thousands of rows takes a few transactions" {
    cd "$BATS_TEST_TMPDIR"
    awk -v head="$head" 'BEGIN { print head ",run_uid,samples_ms"
        for (i = 1; i <= 5000; i++) print "gpu-x,mps:50,flash,full," i ",64,1,big,1;1;1;1;1" }' |
        hcp-profile import --db big.db -
    run hcp-profile merge new.db big.db
    # bytes 24..27 of the file: the transactions it has seen
    [ "$(od -An -tu1 -j24 -N4 new.db | awk '{ print (($1 * 256 + $2) * 256 + $3) * 256 + $4 }')" -lt 10 ]
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
