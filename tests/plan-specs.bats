#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hcp-plan with ranks of data sheets, beside what an H200 was measured to take.

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    hcp-profile import --db h.db nvidia-h200-fa2
    hcp-profile import --db h.db nvidia-h200-decode
    hcp-profile import --db h.db nvidia-h200-linear
    hcp-plan fit --quiet --db h.db
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    export HCP_DB=h.db
    R='nvidia-h200@mps:100,spec:a100'
}

# The first number of that name in one line of JSON: field NAME FILE
field() {
    sed "s/\"$1\":/\n&/" "$2" | sed -n "s/^\"$1\":\([-0-9.e]*\).*/\1/p" | head -n 1
}

holds() { # an awk condition
    awk "BEGIN { exit !($1) }"
}

refused() { # refused CODE TEXT COMMAND...: one line that says so
    local code=$1 text=$2
    shift 2
    run "$@"
    echo "$output"
    [ "$status" -eq "$code" ]
    [[ "$output" == *"$text"* ]]
    [ "$(grep -c '^hcp-plan' <<<"$output")" -eq 1 ]
}

@test "specs lists the table, or the lines of names and aliases; JSON has the numbers" {
    hcp-plan specs >all
    [ "$(wc -l <all)" -gt 28 ]
    grep -q '^a100 ' all
    grep -q 'NVIDIA H20 data sheet' all
    hcp-plan specs spec:l40s nvidia-h100-pcie >two
    [ "$(wc -l <two)" -eq 3 ]
    sed -n 3p two | grep -q '^h100-pcie .* 756.5 .* 2000 '
    hcp-plan specs --json v100 >v.json
    grep -q '"name":"v100","arch":"volta","sms":80,"bf16_tflops":null,"fp16_tflops":125' v.json
    grep -q '"memory_bytes":32000000000,' v.json
    refused 3 "spec:a1000: no such GPU in" hcp-plan specs a1000
    [[ "$output" == *"did you mean a100, a100-40gb"* ]]
}

@test "a split says that it is estimated, from what, within what, and how to measure it" {
    hcp-plan split --ranks "$R" --seq-len 32K --mask causal >out 2>err
    grep -q ', estimated times' out
    grep -q '^spec:a100 is estimated from nvidia-h200@mps:100 (0.315 of its FLOP/s, 0.425 of its bandwidth, 108 SMs by 132), within a factor of 2.7; to measure it, run .hcp-profile run --db h.db. on that machine$' out
    grep -q '^hcp-plan: these times are estimated, not measured' err
    hcp-plan split --ranks "$R" --seq-len 32K --mask causal --json >s.json 2>err
    grep -q '"device":"nvidia-h200","limit":"mps:100",.*"model":"lut"},{' s.json
    grep -q '"source":"estimated","estimated_from":"nvidia-h200@mps:100","measure":"hcp-profile run"}\]' s.json
    grep -q '"source":"estimated","fingerprint"' s.json
    grep -q '^hcp-plan: spec:a100 is estimated from nvidia-h200@mps:100 ' err
    [ "$(wc -l <s.json)" -eq 1 ]
    # As late as the data sheet may be, though the H200 finishes with it.
    lo=$(sed 's/.*"interval_ms":\[\([0-9.]*\),.*/\1/' s.json)
    hi=$(sed 's/.*"interval_ms":\[[0-9.]*,\([0-9.]*\)\].*/\1/' s.json)
    ms=$(field makespan_ms s.json)
    holds "$hi > 2.6 * $ms && $hi < 4 * $ms && $lo > 0.8 * $ms && $lo < $ms"
    # A tenth to a third of the sequence goes to a third of the FLOP/s.
    b=$(sed 's/.*spec:a100","limit":"","tokens":\([0-9]*\).*/\1/' s.json)
    holds "$b > 3277 && $b < 13107"
}

@test "measured ranks alone are planned as ever, with a table or without" {
    hcp-plan split --ranks nvidia-h200@mps:100,nvidia-h200@mps:50 --seq-len 32K --json >a.json 2>err
    [ ! -s err ]
    HCP_SPECS=/nowhere hcp-plan split --ranks nvidia-h200@mps:100,nvidia-h200@mps:50 \
        --seq-len 32K --json >b.json
    cmp a.json b.json
    hcp-plan split --specs "$HCP_SPECS" --ranks nvidia-h200@mps:100,nvidia-h200@mps:50 \
        --seq-len 32K --json >b.json
    cmp a.json b.json
    [[ "$(cat a.json)" != *estimated* ]]
}

@test "times go with FLOP/s, SMs and bandwidth of the sheet; an alias is the same GPU" {
    printf '%s\n' \
        'h200 hopper 132 990 990 67 4800 141 - - nvidia-h200 the kin' \
        'same hopper 132 990 990 67 4800 141 - - alias as the kin' \
        'half hopper 132 495 495 33 4800 141 - - - half the FLOP/s' >own.txt
    ask() { hcp-plan predict --specs own.txt --q-len "$2" --kv-len 64K --ranks "$1" --json 2>/dev/null; }
    ask nvidia-h200@mps:100 16K >m.json
    ask spec:same@mps:100 16K >s.json
    ask spec:alias@mps:100 16K >a.json
    ask spec:half@mps:100 16K >h.json
    m=$(field predicted_ms m.json) s=$(field predicted_ms s.json) h=$(field predicted_ms h.json)
    [ "$s" = "$(field predicted_ms a.json)" ]
    holds "$s / $m > 1 - 1e-9 && $s / $m < 1 + 1e-9"
    holds "$h / $m > 1.98 && $h / $m < 2"
    grep -q '"source":"estimated","model":"lut","estimated_from":"nvidia-h200@mps:100","measure":"hcp-profile run --db h.db --limits mps:100 --provider flash"' s.json
    # Decode reads memory: FLOP/s count for a little.
    dec() { hcp-plan predict --specs own.txt --phase decode --batch "$2" --q-len 1 --kv-len 64K --ranks "$1" --json 2>/dev/null; }
    for batch in 8 16; do # measured, and between measured ones
        dec nvidia-h200@mps:100 $batch >m.json
        dec spec:half@mps:100 $batch >h.json
        holds "$(field predicted_ms h.json) / $(field predicted_ms m.json) < 1.05"
        holds "$(field predicted_ms h.json) / $(field predicted_ms m.json) > 1"
    done
}

@test "fewer SMs under a limit: slower, from the level nearest to it" {
    last=0
    for limit in '' @mps:80 @mps:50 @green:20 @mps:10; do
        hcp-plan predict --ranks "spec:h100$limit" --q-len 8K --kv-len 8K --json >p.json 2>err
        ms=$(field predicted_ms p.json)
        holds "$ms > $last"
        last=$ms
        case $limit in
        @mps:50) grep -q '"estimated_from":"nvidia-h200@mps:50"' p.json ;;
        @green:20) grep -q 'from nvidia-h200@mps:20 (.* 20 SMs by 26)' err ;;
        esac
    done
    refused 2 "h100 has 132 SMs; write green:N" hcp-plan predict --ranks spec:h100@green:133 --q-len 1K --kv-len 1K
    refused 2 "a GPU is limited by mps:PERCENT or green:SMS" \
        hcp-plan predict --ranks spec:h100@cpu:50 --q-len 1K --kv-len 1K
}

@test "compare, simulate, decode, transition and documents take them, too" {
    hcp-plan compare --ranks "$R" --seq-len 32K >out 2>err
    [ "$(grep -c ' estimated ' out)" -ge 5 ]
    grep -q 'within a factor of 2.7' out
    hcp-plan split --ranks "$R" --seq-len 64K --json >p.json 2>err
    hcp-plan simulate --plan p.json --json >sim.json 2>err
    grep -q 'spec:a100 is estimated' err
    [ "$(field makespan_ms sim.json)" = "$(field makespan_ms p.json)" ]
    grep -q '"source":"estimated"' sim.json
    printf 'q_len,kv_len,mask\n1024,1024,full\n' >cells.csv
    hcp-plan predict --ranks spec:a100 --cells cells.csv --json 2>err >c.json
    grep -q '"source":"estimated".*"estimated_from":"nvidia-h200@mps:100","measure":"hcp-profile run --db h.db"' c.json
    hcp-plan split --ranks "$R" --seq-len 64K --phase decode --batch 8 --json >d.json 2>err
    grep -q '"source":"estimated","estimated_from":"nvidia-h200@mps:100","measure":"hcp-profile run --phase decode --batch 8"}' d.json
    hcp-plan transition --from p.json --to d.json --json >t.json 2>err
    grep -q '"source":"estimated"' t.json
    hcp-plan split --ranks "$R" --documents 16K,3000,500 --mask causal --json >docs.json 2>err
    grep -q '"source":"estimated","estimated_from"' docs.json
    grep -q '"source":"estimated","fingerprint"' docs.json
}

@test "a plan of data sheets is checked against its table when it is read again" {
    hcp-plan split --ranks "$R" --seq-len 32K --json >p.json 2>err
    sed 's/^a100 \(.*\) 2039 /a100 \1 1039 /' "$HCP_SPECS" >slow.txt
    hcp-plan split --specs slow.txt --ranks "$R" --seq-len 32K --json >q.json 2>err
    a=$(sed 's/.*"models_hash":"\([0-9a-f]*\)".*/\1/' p.json)
    b=$(sed 's/.*"models_hash":"\([0-9a-f]*\)".*/\1/' q.json)
    [ -n "$a" ] && [ "$a" != "$b" ]
}

@test "linear work is the kin's, scaled; --memory spec is what the sheet says" {
    hcp-plan split --ranks "$R" --seq-len 16K --mask causal --model llama-3-8b --json >l.json 2>err
    before=$(sed 's/.*spec:a100//' l.json | sed 's/.*"linear_before_us":\([0-9.e-]*\).*/\1/')
    kin=$(field linear_before_us l.json)
    holds "$before > 2.5 * $kin && $before < 4 * $kin" # a third of the FLOP/s
    error=$(sed 's/.*spec:a100//' l.json | sed 's/.*"linear_error":\([0-9.e-]*\).*/\1/')
    holds "$error > 1.7"
    refused 3 "has the linear work of its kin, scaled: no linear row" \
        hcp-plan split --ranks "spec:a100@mps:50" --seq-len 16K --model llama-3-8b
    hcp-plan split --ranks "$R" --seq-len 32K --layers 32 --memory spec --json >m.json 2>err
    grep -q '"device":"spec:a100".*"max_bytes":80000000000,' m.json
    grep -q '"device":"nvidia-h200".*"max_bytes":141000000000,.*"device":"spec:a100"' m.json
    hcp-plan split --ranks "$R" --seq-len 32K --memory 0,spec --json >m.json 2>err
    [ "$(grep -o max_bytes m.json | wc -l)" -eq 1 ]
    # Keys and values of 512K tokens in 32 layers are 64 GiB: 24 GB hold no half of them.
    refused 3 "the memory caps are short by" hcp-plan split --ranks '2*spec:l4' --seq-len 512K --layers 32 \
        --memory spec --extrapolate
    printf 'x hopper 132 990 990 67 4800 141 - - - no kin\n' >x.txt
    refused 3 "'nvidia-h200' (rank 0) is not in the table of data sheets" \
        hcp-plan split --specs x.txt --ranks "$R" --seq-len 8K --memory spec
}

@test "what is wrong is said with what to do" {
    refused 3 "did you mean h100, h100-nvl, h100-pcie?; 'hcp-plan specs' lists them" \
        hcp-plan split --ranks spec:h1000 --seq-len 8K
    refused 3 "the data sheet in $HCP_SPECS has no bf16 FLOP/s; ask for another --dtype" \
        hcp-plan split --ranks spec:v100 --seq-len 8K
    refused 3 "no measured kin of 'spec:v100' (rank 0; fp16, 32/8 heads" \
        hcp-plan split --ranks spec:v100 --dtype fp16 --seq-len 8K
    refused 3 "'spec:a100' is a data sheet, whose transfers nobody has measured; give --link-alpha-us" \
        hcp-plan split --ranks "$R" --seq-len 8K --link nccl
    refused 3 "'spec:a100' is a data sheet, whose transfers nobody has measured" \
        hcp-plan split --ranks "$R" --seq-len 8K --links nccl
    refused 1 "cannot read the table of data sheets 'nowhere.txt'" \
        hcp-plan split --specs nowhere.txt --ranks "$R" --seq-len 8K
    refused 1 "cannot read the table of data sheets '/': Is a directory" hcp-plan specs --specs /
    refused 3 "no such GPU in $HCP_SPECS; 'hcp-plan specs' lists them; for another, add a line to a copy of that file" \
        hcp-plan specs nowhere
    HCP_SPECS=gone.txt refused 1 "give it with --specs FILE, or set HCP_SPECS" \
        hcp-plan split --ranks "$R" --seq-len 8K
    printf '# mine\nmine hopper 132 990 990 67 fast 141 - - - x\n' >bad.txt
    refused 2 "bad.txt:2: mem_gbps: 'fast' is not a finite decimal number; a line is: name arch" \
        hcp-plan specs --specs bad.txt
    refused 2 "device 'Spec:a100': 'S' is not allowed" hcp-plan split --ranks Spec:a100 --seq-len 8K
    refused 3 "no such GPU" hcp-plan split --ranks spec:h300z --seq-len 8K
    rm -f e.db
    hcp-profile import --db e.db nvidia-h200-fa2
    refused 3 "its kin 'nvidia-h200' is measured but not fitted; run 'hcp-plan fit --db e.db'" \
        hcp-plan split --db e.db --ranks spec:a100 --seq-len 8K
    hcp-plan fit --quiet --db e.db
    sqlite3 e.db "UPDATE cell SET time_ms = 1.01 * time_ms WHERE limiter = 'mps:100'"
    refused 3 "rank 0, 'spec:a100': samples of its kin 'nvidia-h200@mps:100' changed since the fit; run 'hcp-plan fit --db e.db'" \
        hcp-plan split --db e.db --ranks spec:a100 --seq-len 8K
    # A profile of the data sheet itself cannot be.
    sed 's/^nvidia-h200,/spec:a100,/' "$HCP_PROFILES/nvidia-h200-sdpa.csv" >sheet.csv
    run hcp-profile import --db e.db sheet.csv
    [ "$status" -ne 0 ]
}
