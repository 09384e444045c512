#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hcp-plan split --chunk-budget, --chunk-len and --chunks on what an H200 was measured to
# take.

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    hcp-profile import --db h.db nvidia-h200
    hcp-profile import --db h.db nvidia-h200-linear
    hcp-plan fit --quiet --db h.db
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    export HCP_DB=h.db
    R='nvidia-h200@mps:100,nvidia-h200@mps:10'
    C=(split --ranks "$R" --mask causal --layers 32)
}

# Every number of that name, a line each: fields NAME FILE
fields() {
    sed "s/\"$1\":/\n&/g" "$2" | sed -n "s/^\"$1\":\([-0-9.e]*\).*/\1/p"
}

field() { # the first one
    fields "$1" "$2" | head -n 1
}

holds() { # an awk condition
    awk "BEGIN { exit !($1) }"
}

refused() { # refused CODE TEXT OPTION...: one line that says so
    local code=$1 text=$2
    shift 2
    run hcp-plan split --ranks "$R" "$@"
    echo "$output"
    [ "$status" -eq "$code" ]
    [[ "$output" == *"$text"* ]]
    [ "$(grep -c '^hcp-plan' <<<"$output")" -eq 1 ]
}

@test "chunks under a budget: no step is longer, and they shrink as keys grow" {
    hcp-plan "${C[@]}" --seq-len 48K --chunk-budget 50ms --json >b.json
    grep -q '"schema":1,"seq_len":49152,"mask":"causal","phase":"prefill","step_budget_ms":50,' b.json
    [ "$(fields step_ms b.json | awk '$1 > 50' | wc -l)" -eq 0 ]
    [ "$(fields offset b.json | wc -l)" -ge 8 ]
    # But for the first, which is what is left over.
    sed 's/{"offset"/\n&/g' b.json | sed -n 's/^{"offset":[0-9]*,"tokens":\([0-9]*\).*/\1/p' >tokens
    sed 1d tokens | awk 'NR > 1 && $1 > last + 128 { bad = 1 } { last = $1 } END { exit bad }'
    [ "$(awk '{ s += $1 } END { print s }' tokens)" -eq 49152 ]
    holds "$(field total_ms b.json) > 0 && $(fields over_whole b.json) >= 1"
    holds "$(field gain_over_even b.json) > 2"
    # Units, and what a step takes beside its layers.
    hcp-plan "${C[@]}" --seq-len 48K --chunk-budget 0.05s --json | cmp - b.json
    hcp-plan "${C[@]}" --seq-len 48K --chunk-budget 50000us --json | cmp - b.json
    hcp-plan "${C[@]}" --seq-len 48K --chunk-budget 50 --chunk-fixed 20ms --json >f.json
    holds "$(fields offset f.json | wc -l) > $(fields offset b.json | wc -l)"
    hcp-plan "${C[@]}" --seq-len 48K --chunk-budget 50 --chunk-len 4K --json >m.json
    [ "$(sed 's/{"offset"/\n&/g' m.json | sed -n 's/^{"offset":[0-9]*,"tokens":\([0-9]*\).*/\1/p' |
        awk '$1 > 4096' | wc -l)" -eq 0 ]
    run hcp-plan "${C[@]}" --seq-len 48K --chunk-budget 50
    [[ "$output" == *"OVER_BUDGET_FROM"*"49152 tokens in "*" chunks of "*"of 50 ms; the smallest"* ]]
    [[ "$output" == *"in one step: "*"even split, chunks of "* ]]
}

@test "chunks of a length and of one's own: an even one is chunks of the same" {
    hcp-plan "${C[@]}" --seq-len 20000 --chunk-len 4K --json >l.json
    [ "$(fields offset l.json | tr '\n' ' ')" = "0 4096 8192 12288 16384 " ]
    grep -q '"step_budget_ms":null' l.json
    [ "$(field even_len l.json)" -eq 4096 ]
    hcp-plan "${C[@]}" --chunks 4096,3*4K,3616 --json >c.json
    grep -q '"given":1' c.json
    holds "$(field total_ms c.json) < 1.001 * $(field total_ms l.json)"
    echo '4*4096 3616 # mine' >mine
    hcp-plan "${C[@]}" --chunks mine --json | cmp - c.json
    run hcp-plan "${C[@]}" --chunks mine --chunk-budget 1ms
    [ "$status" -eq 0 ]
    [[ "$output" == *"5 over it"* ]]
    hcp-plan "${C[@]}" --seq-len 8K --chunk-len 2K --layout striped --stripes 3 --json >s.json
    [ "$(grep -o '"layout":"striped"' s.json | wc -l)" -eq 4 ]
}

@test "a budget that cannot be met: from where on, by how much, on which rank" {
    run hcp-plan "${C[@]}" --seq-len 48K --chunk-budget 8ms
    [ "$status" -eq 3 ]
    [[ "$output" =~ "from "([0-9]+)" resident tokens on no chunk meets the budget of 8 ms: the smallest, of 128, takes "([0-9.]+)" ms, "([0-9.]+)" ms more, on rank 0" ]]
    from=${BASH_REMATCH[1]}
    holds "$from > 4096 && $from < 49152"
    holds "${BASH_REMATCH[2]} - 8 < 1.01 * ${BASH_REMATCH[3]} + 0.001"
    hcp-plan "${C[@]}" --seq-len "$from" --chunk-budget 8ms --json >at.json
    holds "$(field longest_step_ms at.json) <= 8"
}

@test "memory caps are of all that accumulates, linear work is measured" {
    hcp-plan "${C[@]}" --seq-len 16K --chunk-len 2K --max-tokens 0=8K --json >cap.json
    [ "$(sed 's/{"rank"/\n&/g' cap.json | sed -n 's/^{"rank":0,"device".*"tokens":\([0-9]*\).*/\1/p')" -le 8192 ]
    refused 3 "caps are short by 8384 tokens" --mask causal --seq-len 16K --chunk-len 2K \
        --max-tokens 4000
    hcp-plan split --ranks 'nvidia-h200@mps:100,nvidia-h200@mps:50' --mask causal --layers 2 \
        --seq-len 16K --chunk-budget 20ms --linear-us 0.5:1 --json >lin.json
    hcp-plan split --ranks 'nvidia-h200@mps:100,nvidia-h200@mps:50' --mask causal --layers 2 \
        --seq-len 16K --chunk-budget 20ms --json >att.json
    holds "$(field total_ms lin.json) > 1.5 * $(field total_ms att.json)"
    hcp-plan split --ranks "$R" --mask causal --seq-len 16K --chunk-budget 200ms \
        --model llama-3-8b --json >model.json
    grep -q '"layers":32' model.json
    grep -q '"linear_after_us":' model.json
}

@test "what is wrong, and what to do" {
    refused 2 "causal" --seq-len 8K --mask full --chunk-budget 5
    refused 2 "is no time" --mask causal --seq-len 8K --chunk-budget fast
    refused 2 "is no time" --mask causal --seq-len 8K --chunk-budget 0
    refused 2 "not in 0..1e9" --mask causal --seq-len 8K --chunk-budget -3ms
    refused 2 "--chunk-len" --mask causal --seq-len 8K --chunk-len 0
    refused 2 "belongs to --chunk-budget" --seq-len 8K --chunk-fixed 3
    refused 2 "leave --tokens" --mask causal --chunk-budget 5 --seq-len 8K --tokens 4K,4K
    refused 2 "leave --strategy" --mask causal --chunk-budget 5 --seq-len 8K --barrier
    refused 2 "leave --strategy" --mask causal --chunk-budget 5 --seq-len 8K --joint
    refused 2 "leave --phase decode out" --mask causal --chunk-budget 5 --seq-len 8K --phase decode
    refused 2 "--chunks: length '0' is out of range" --mask causal --chunks 0,5
    refused 2 "--chunks: cannot open 'none'" --mask causal --chunks none
    refused 2 "leave --batch out" --mask causal --chunk-budget 5 --seq-len 8K --batch 2
    refused 2 "--layers 0 is none" --mask causal --chunk-budget 5 --seq-len 8K --layers 0
    refused 2 "leave --chunk-len out" --mask causal --chunks 4K,4K --chunk-len 4K
    refused 2 "add up to 8192, --seq-len is 4096" --mask causal --chunks 4K,4K --seq-len 4K
    refused 2 "up to 64 ranks" --mask causal --seq-len 8K --chunk-len 4K \
        --ranks '65*nvidia-h200@mps:100'
    refused 3 "--extrapolate" --mask causal --seq-len 4M --chunk-budget 1000
    hcp-plan "${C[@]}" --seq-len 8K --chunk-len 4K --json >chunks.json
    run hcp-plan simulate --plan chunks.json
    [ "$status" -ne 0 ]
    [[ "$output" == *"hcp-plan:"* ]]
    run hcp-plan "${C[@]}" --seq-len 8K --chunk-len 4K --json
    [ "$(wc -l <<<"$output")" -eq 1 ]
}
