#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-profile run --linear and show --model; run --batches and what is made of it.

bats_require_minimum_version 1.5.0
load scale

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    command -v sqlite3 >/dev/null || skip "no sqlite3 program"
    export HCP_DB=$BATS_TEST_TMPDIR/h.db
    toy=synthetic:name=toy,tile_q=1
    layer=(--hidden 256 --ffn 512 --heads 4 --kv-heads 2 --head-dim 64)
}

stored() { sql "SELECT count(*) FROM linear" 2>/dev/null || echo 0; }
sql() { sqlite3 "${2-$HCP_DB}" "$1"; }

# SQL over the objects of a JSON array, or over one object: f('name') is a member.
json() { # text, SELECT list
    printf %s "$1" >j.json
    sqlite3 :memory: "WITH t AS (SELECT CASE json_type(readfile('j.json')) WHEN 'array' THEN readfile('j.json')
        ELSE json_array(json(readfile('j.json'))) END AS doc)
        SELECT $(sed -E "s/f\('([a-z0-9_.]+)'\)/json_extract(value, '$.\1')/g" <<<"$2") FROM t, json_each(t.doc)"
}

@test "synthetic: the products of a known model at each limit, with the times planted" {
    run --separate-stderr hcp-profile run --device "$toy" --levels 100,50 --linear --model llama-3-8b
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"2 levels, 168 cells to do"* ]]
    [ "$(sql "SELECT group_concat(n_in || 'x' || n_out, ' ') FROM (SELECT DISTINCT n_in, n_out FROM linear ORDER BY 1, 2)")" = \
        "4096x4096 4096x6144 4096x28672 14336x4096" ]
    [ "$(sql "SELECT group_concat(tokens, ' ') FROM (SELECT DISTINCT tokens FROM linear ORDER BY 1)")" = \
        "1 2 4 8 16 32 64 128 192 256 384 512 768 1024 1536 2048 4096 8192 16384 32768 65536" ]
    [ "$(sql "SELECT count(*) FROM linear WHERE abs(time_ms / ((4e-12 * tokens * n_in * n_out
        + 5e-10 * n_in * n_out + 0.004) * (CASE limiter WHEN 'mps:50' THEN 2 ELSE 1 END)) - 1) < 1e-9")" -eq 168 ]
    [ "$(sql "SELECT DISTINCT library || samples || dtype || sm_seen FROM linear WHERE limiter = 'mps:50'")" = synthetic10bf1666 ]
    [ "$(sql "SELECT count(*) FROM cell")" -eq 0 ]
}

@test "the same command keeps what exists; longer counts are added; --fresh measures anew" {
    hcp-profile run --device "$toy" --levels 50 --linear "${layer[@]}" --max-len 64
    [ "$(sql "SELECT count(*) FROM linear")" -eq 28 ]
    run --separate-stderr hcp-profile run --json --device "$toy" --levels 50 --linear "${layer[@]}" --max-len 64
    [[ "$stderr" == *"0 cells to do, 28 measured before"* ]]
    [[ "$output" == *'"measured":0,"kept":28,'* ]]
    hcp-profile run --device "$toy" --levels 50 --linear "${layer[@]}" --max-len 128
    [ "$(sql "SELECT count(*), count(DISTINCT run_id) FROM linear")" = "32|1" ]
    hcp-profile run --device "$toy" --levels 50 --linear "${layer[@]}" --max-len 128 --fresh
    [ "$(sql "SELECT count(*), count(DISTINCT run_id) FROM linear")" = "64|2" ]
    # Another version of the library: none of its rows are there.
    run --separate-stderr hcp-profile run -n --device "$toy,linear_f=0.005" --levels 50 --linear "${layer[@]}" --max-len 64
    [[ "$stderr" == *"28 cells to do"* ]]
}

@test "killed in its midst, the same command goes on: no product twice, none lost" {
    args=(--device "$toy,delay=21" --levels "50,100" --linear "${layer[@]}" --max-len 128)
    for _ in 1 2 3 4 5; do
        was=$(stored)
        hcp-profile run "${args[@]}" >/dev/null 2>&1 3>&- &
        for _ in $(seq 6000); do # until it has added a row
            [ "$(stored)" -le "$was" ] && kill -0 $! 2>/dev/null || break
            sleep 0.01
        done
        kill -9 $! 2>/dev/null || true
        wait $! || true
    done
    [ "$(stored)" -ge 5 ]
    hcp-profile run "${args[@]}"
    [ "$(sql "SELECT count(*), count(DISTINCT limiter || n_in || '-' || n_out || '-' || tokens) FROM linear")" = "64|64" ]
    [ "$(sql "PRAGMA integrity_check")" = ok ]
}

@test "--dry-run lists and counts the products, and stores nothing" {
    run --separate-stderr hcp-profile run -n --device "$toy" --levels 50 --linear "${layer[@]}" --tokens 1,1K
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"1 level, 8 cells to do"* ]]
    [[ "${lines[0]}" == *N_IN*N_OUT*TOKENS*EXPECTED_MS* ]]
    [ "${#lines[@]}" -eq 9 ]
    [ ! -e "$HCP_DB" ]
}

@test "a product that fails has no row, and is measured again by the same command" {
    run --separate-stderr hcp-profile run --device "$toy,fail_q=64" --levels 50 --linear "${layer[@]}" --max-len 128
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"4 products failed; the same command measures them again: synthetic failure"* ]]
    [ "$(sql "SELECT count(*), sum(tokens = 64) FROM linear")" = "28|0" ]
    hcp-profile run --device "$toy" --levels 50 --linear "${layer[@]}" --max-len 128
    [ "$(sql "SELECT count(*), sum(tokens = 64) FROM linear")" = "32|4" ]
}

@test "this CPU: checked and timed with OpenBLAS in bf16 and fp32, more tokens take longer" {
    long_test
    for dtype in bf16 fp32; do
        run --separate-stderr hcp-profile run --device cpu --levels 100 --linear "${layer[@]}" \
            --dtype $dtype --tokens 1,32,512 --preset quick
        [ "$status" -eq 0 ]
        [[ "$stderr" == *"kernel openblas "* ]]
        [ "$(sql "SELECT count(*), min(samples) >= 3 FROM linear WHERE library = 'openblas' AND dtype = '$dtype'")" = "12|1" ]
        [ "$(sql "SELECT count(*) FROM linear a JOIN linear b USING (n_in, n_out, dtype)
            WHERE dtype = '$dtype' AND a.tokens = 1 AND b.tokens = 512 AND b.time_ms > 4 * a.time_ms")" -eq 4 ]
    done
}

@test "show --model: a layer's time at token counts that were and were not measured" {
    hcp-profile run --device "$toy" --levels 100 --linear --model llama-3-8b --max-len 8K
    run --separate-stderr hcp-profile show --model llama-3-8b --tokens 5000,8K,16K --json
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"rows left out in turn: predicted from their neighbours within 0.0 % median"* ]]
    [ "$(json "$output" "group_concat(f('source'), ' ')")" = "interpolated measured extrapolated" ]
    [ "$(json "$output" "max(abs(f('layer_ms') / ((4e-12 * f('tokens') + 5e-10) * 218103808 + 0.016) - 1)) < 1e-9")" -eq 1 ]
    [ "$(json "$output" "max(abs((f('qkv_ms') + f('out_ms') + f('up_ms') + f('down_ms')) / f('layer_ms') - 1)) < 1e-12")" -eq 1 ]
    [ "$(json "$output" "max(abs(f('model_ms') / f('layer_ms') - 32)) < 1e-9")" -eq 1 ]
    run --separate-stderr hcp-profile show --model llama-3-8b --tokens 100
    [[ "${lines[1]}" == *interpolated*SYNTHETIC* ]]
    # mistral-7b has the same layer; qwen's was not measured.
    hcp-profile show --model mistral-7b --tokens 100
    run -3 --separate-stderr hcp-profile show --model qwen2.5-7b
    [[ "$stderr" == *"run --linear"* ]]
}

@test "show --model: a layer of which a product is missing names it and the command" {
    hcp-profile run --device "$toy" --levels 100 --linear --model llama-3-8b --tokens 128
    sql "DELETE FROM linear WHERE n_out = 6144"
    run -3 --separate-stderr hcp-profile show --model llama-3-8b
    [[ "$stderr" == *"no linear row of qkv, 4096 to 6144, bf16, for 'toy@mps:100'"*"--linear --model llama-3-8b --dtype bf16 --limits mps:100"* ]]
}

@test "errors of usage say what to give instead" {
    run -2 --separate-stderr hcp-profile run --device "$toy" --linear
    [[ "$stderr" == *"give --model, or --hidden and --ffn"* ]]
    run -2 --separate-stderr hcp-profile run --device "$toy" --linear --model no-such
    [[ "$stderr" == *"no model 'no-such'"*"llama-3-8b"* ]]
    run -2 --separate-stderr hcp-profile run --device "$toy" --linear --model llama-3-8b --ffn 4
    [[ "$stderr" == *"give --model, or the shape by"* ]]
    run -2 --separate-stderr hcp-profile run --device "$toy" --ffn 4
    [[ "$stderr" == *"are for --linear"* ]]
    run -2 --separate-stderr hcp-profile run --device "$toy" --linear "${layer[@]}" --kv-lens 1K
    [[ "$stderr" == *"--linear measures no attention"* ]]
    run -2 --separate-stderr hcp-profile run --device "$toy" --linear "${layer[@]}" --mlp round
    [[ "$stderr" == *"use gated or plain"* ]]
    run -2 --separate-stderr hcp-profile run --device recorded:nvidia-h200 --linear "${layer[@]}"
    [[ "$stderr" == *"hcp-profile import"* ]]
    run -2 --separate-stderr hcp-profile run --device "$toy" --batches none
    [[ "$stderr" == *"nothing would be measured"* ]]
    run -2 --separate-stderr hcp-profile run --device "$toy" --batches 1,8 --adaptive
    [[ "$stderr" == *"an adaptive sweep has one batch"* ]]
}

@test "--mlp plain: the up projection is as wide as the MLP" {
    hcp-profile run --device "$toy" --levels 100 --linear "${layer[@]}" --mlp plain --tokens 1
    [ "$(sql "SELECT count(*) FROM linear WHERE n_in = 256 AND n_out = 512")" -eq 1 ]
    [ "$(sql "SELECT count(*) FROM linear WHERE n_out = 1024")" -eq 0 ]
}

@test "--model without --linear: attention of that model's heads" {
    hcp-profile run --device "$toy" --levels 100 --model qwen2.5-7b --max-len 256
    [ "$(sql "SELECT DISTINCT heads || '/' || kv_heads || 'x' || head_dim FROM cell")" = 28/4x128 ]
}

@test "--batches: every block with every batch, resumed as one run" {
    run --separate-stderr hcp-profile run --device "$toy" --levels 100 --phase decode --batches 1,8,32 --max-len 16K
    [ "$status" -eq 0 ]
    [ "$(sql "SELECT count(*), count(DISTINCT batch), count(DISTINCT run_id), max(q_len) FROM cell")" = "15|3|1|1" ]
    [ "$(sql "SELECT count(*) FROM cell WHERE abs(time_ms / (batch * (1e-9 * kv_len + 1e-6 + 2e-7 * kv_len) + 0.01) - 1) < 1e-9")" -eq 15 ]
    run --separate-stderr hcp-profile run --device "$toy" --levels 100 --phase decode --batches 1,8,32,64 --max-len 16K
    [[ "$stderr" == *"5 cells to do, 15 measured before"* ]]
    run --separate-stderr hcp-profile run -n --device "$toy" --levels 100 --phase decode --batches 1,8,32,64,128 --max-len 16K
    [[ "${lines[0]}" == *BATCH* ]]
    [ "${#lines[@]}" -eq 6 ]
    # One batch by another name.
    run --separate-stderr hcp-profile run -n --device "$toy" --levels 100 --phase decode --batches 8 --max-len 16K
    [[ "$stderr" == *"0 cells to do, 5 measured before"* ]]
}

@test "--batches: finish passes of each batch" {
    hcp-profile run --device "$toy,merge_f=0.004" --levels 100 --phase decode --batches 2,4 --max-len 2K
    [ "$(sql "SELECT group_concat(batch || kind, ' ') FROM (SELECT batch, kind FROM finish ORDER BY 1)")" = "2merge 4merge" ]
}

@test "decode: a batch that was not measured is answered from its neighbours, and the fit says how well" {
    hcp-profile run --device "$toy,sms=16" --levels 10,100 --phase decode --batches 1,8,16,64 --max-len 64K
    run --separate-stderr hcp-plan fit
    [ "$status" -eq 0 ]
    [[ "$stderr" != *"no causal squares"* ]]
    [[ "$output" == *"batches of decode left out, answered from their neighbours:"* ]]
    [ "$(grep -c "1024-65536" <<<"$output")" -ge 4 ]
    fit=$(hcp-plan fit --json 2>/dev/null)
    [ "$(json "$fit" "count(f('batch_holdout.p90')), max(f('batch_holdout.p90')) < 1e-6")" = "4|1" ]
    [ "$(json "$fit" "sum(f('batch') = 8 AND f('batch_holdout.batch_below') = 1 AND f('batch_holdout.batch_above') = 16)")" -eq 2 ]
    # alpha and bandwidth as planted: 2.01e-7 ms a key of 4096 bytes is 20,378 GB/s, a tenth of it at 10 %.
    [[ "$output" == *"decode as alpha + bytes of keys and values / bandwidth:"* ]]
    [ "$(json "$fit" "sum(abs(f('bandwidth.gb_per_s') / (CASE f('limit') WHEN 'mps:10' THEN 2037.8 ELSE 20378 END) - 1) < 0.01)")" -eq 8 ]
    [ "$(json "$fit" "max(f('bandwidth.holdout_max')) < 0.01")" -eq 1 ]
    predict=(hcp-plan predict --ranks toy@mps:10 --phase decode --q-len 1 --json)
    for batch in 5 12 40; do
        p=$("${predict[@]}" --batch $batch --kv-len 10000)
        [ "$(json "$p" "f('source')")" = interpolated ]
        [ "$(json "$p" "abs(f('predicted_ms') / (10 * ($batch * (2.01e-7 * 10000 + 1e-6) + 0.01)) - 1) < 0.005")" -eq 1 ]
    done
    [ "$(json "$("${predict[@]}" --batch 8 --kv-len 8K)" "f('source')")" = measured ]
    run -3 --separate-stderr "${predict[@]}" --batch 128 --kv-len 8K
    [[ "$stderr" == *"batch 128 of full q_len 1, kv_len 8192 on 'toy@mps:10' is outside the measured batches"*"--phase decode --batch 128"* ]]
    [ "$(json "$("${predict[@]}" --batch 128 --kv-len 8K --extrapolate)" "f('source')")" = extrapolated ]
}

@test "show: what decode reads a second beside what a copy moves" {
    hcp-profile import nvidia-h200-sdpa
    [ "$(json "$(hcp-profile show --phase decode --json)" "min(f('decode_gb_per_s') / f('copy_gb_per_s')) > 0.7
        AND max(f('decode_gb_per_s') / f('copy_gb_per_s')) < 1.1")" -eq 1 ]
    [ "$(json "$(hcp-profile show --phase prefill --json)" "count(f('decode_gb_per_s'))")" -eq 0 ]
}

@test "an H200: batches and lengths of decode that the fit has not seen, errors and bars" {
    hcp-profile import --db all.db "$top_srcdir/tests/data/h200-decode-linear.csv"
    cp all.db some.db
    sql "DELETE FROM cell WHERE batch IN (4, 24) OR kv_len IN (3072, 12288, 49152)" some.db
    hcp-plan fit --quiet --db some.db
    for limit in mps:10 mps:100; do
        for batch in 1 4 8 24 64; do
            sql "SELECT '1,' || kv_len || ',full,' || time_ms FROM cell WHERE limiter = '$limit' AND batch = $batch
                AND (batch IN (4, 24) OR kv_len IN (3072, 12288, 49152))" all.db | tr '|' , >true.csv
            { echo q_len,kv_len,mask; cut -d, -f1-3 true.csv; } |
                hcp-plan predict --db some.db --ranks nvidia-h200@$limit --phase decode --batch $batch --cells - |
                tail -n +2 | paste -d, - true.csv >>answers
        done
    done
    # Columns: q_len,kv_len,mask,predicted,lo,hi,source,q_len,kv_len,mask,measured.
    awk -F, '{ e = $4 / $11 - 1; print (e < 0 ? -e : e), ($11 >= $5 && $11 <= $6) }' answers | sort -g >errors
    [ "$(wc -l <errors)" -eq 58 ]
    awk 'NR == 29 { exit !($1 <= 0.02) }' errors
    awk 'NR == 53 { exit !($1 <= 0.08) }' errors
    [ "$(grep -c '1$' errors)" -ge 52 ] # nine in ten inside their bars
    run ! grep -v interpolated answers
}

@test "an H200: token counts of llama-3-8b's layer that the rows left out" {
    hcp-profile import --db all.db "$top_srcdir/tests/data/h200-decode-linear.csv"
    cp all.db some.db
    counts=48,96,320,640,1280,3072,6144
    sql "DELETE FROM linear WHERE tokens IN ($counts)" some.db
    show=(hcp-profile show --model llama-3-8b --limit mps:100 --tokens "$counts" --json)
    "${show[@]}" --db all.db >all.json 2>/dev/null
    "${show[@]}" --db some.db >some.json 2>/dev/null
    [ "$(sqlite3 :memory: "SELECT count(*), max(abs(json_extract(s.value, '$.layer_ms') / json_extract(a.value, '$.layer_ms') - 1)) < 0.05,
        sum(json_extract(s.value, '$.source') = 'interpolated') FROM json_each(readfile('all.json')) a
        JOIN json_each(readfile('some.json')) s USING (key)")" = "7|1|7" ]
}
