#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hcp-plan disaggregate on what an H200 was measured to take, whole and a tenth of it.

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    for profile in decode links fa2 linear; do
        hcp-profile import --db h.db nvidia-h200-$profile
    done
    hcp-plan fit --quiet --db h.db
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    export HCP_DB=h.db
    R='nvidia-h200@mps:100,nvidia-h200@mps:10'
    A=(--ranks "$R" --batch 8 --seq-len 64K --steps 500 --layers 32 --link-gbps 150)
}

# The first number of that name in JSON: field NAME FILE [of what comes after TEXT]
field() {
    sed "${3:+s/.*$3//;} s/\"$1\":/\n&/" "$2" | sed -n "s/^\"$1\":\([-0-9.e]*\).*/\1/p" | head -n 1
}

holds() { # an awk condition
    awk "BEGIN { exit !($(tr '\n' ' ' <<<"$1")) }"
}

equal() { # two numbers, or awk expressions, but for rounding
    awk "BEGIN { r = ($1) / ($2); exit !(r > 1 - 1e-9 && r < 1 + 1e-9) }"
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

@test "the fast rank prefills, the slow one decodes: times are those of predict" {
    hcp-plan disaggregate "${A[@]}" --json >a.json
    grep -q '"decision":"disaggregate","objective":"throughput"' a.json
    hcp-plan predict --ranks nvidia-h200@mps:100 --q-len 64K --kv-len 64K --json >p.json
    hcp-plan predict --phase decode --batch 8 --ranks nvidia-h200@mps:10 --q-len 1 \
        --kv-len 64K --json >d.json
    p=$(field predicted_ms p.json)
    d=$(field predicted_ms d.json)
    D='"disaggregated":{'
    equal "$(field ttft_ms a.json "$D")" "32 * 8 * $p" # eight prompts, one by one
    equal "$(field step_ms a.json "$D")" "32 * $d"
    bytes=$((2 * 8 * 8 * 128 * 2 * 32 * 65536))
    [ "$(field move_bytes a.json "$D")" -eq "$bytes" ]
    equal "$(field move_ms a.json "$D")" "$bytes / 150e6"
    equal "$(field latency_ms a.json "$D")" "32 * 8 * $p + $bytes / 150e6 + 500 * 32 * $d"
    holds "$(field period_ms a.json "$D") == $(field ttft_ms a.json "$D")"
    equal "$(field requests_per_s a.json "$D")" "8000 / $(field period_ms a.json "$D")"
    equal "$(field gain_over_colocated a.json)" \
        "$(field period_ms a.json '"colocated":{') / $(field period_ms a.json "$D")"
    grep -q '"rank":0,[^}]*"role":"prefill","colocated_role":"both","disaggregated_role":"prefill","prefill_tokens":65536,"decode_tokens":0' a.json
    grep -q '"moves":\[{"from":0,"to":1,"tokens":65536,' a.json
    # Both plans are plan files.
    sed 's/.*"prefill":{"ranks":\[0\],"plan"://; s/},"decode":{.*//' a.json >prefill.json
    hcp-plan simulate --plan prefill.json --json >p.json 2>note
    equal "$(field makespan_ms p.json)" "$p"
    sed 's/.*"decode":{"ranks":\[1\],"plan"://; s/}}$//' a.json >decode.json
    refused 2 "decode.json is a plan of decode" hcp-plan simulate --plan decode.json
    [ ! -s note ] # fingerprints are theirs
}

@test "it turns where it says it does" {
    hcp-plan disaggregate "${A[@]}" --json >a.json
    below=$(field below_gbps a.json)
    low=$(field below_steps a.json)
    high=$(field above_steps a.json)
    holds "$below > 0.1 && $below < 150 && $low > 1 && $low < 500 && $high > 500"
    # There both take equally long.
    hcp-plan disaggregate "${A[@]}" --transfer-gbps "$below" --json >b.json
    holds "1 - $(field period_ms b.json '"colocated":{') /
        $(field period_ms b.json '"disaggregated":{') < 1e-5"
    holds "$(field period_ms b.json '"colocated":{') /
        $(field period_ms b.json '"disaggregated":{') - 1 < 1e-5"
    for slower in "--transfer-gbps $(awk "BEGIN { print $below * 0.99 }")" "--steps $low" \
        "--steps $high"; do
        # shellcheck disable=SC2086  # an option and its value
        hcp-plan disaggregate "${A[@]}" $slower --json | grep -q '"decision":"colocate"'
    done
    for faster in "--transfer-gbps $(awk "BEGIN { print $below * 1.01 }")" \
        "--steps $((low + 1))" "--steps $((high - 1))"; do
        # shellcheck disable=SC2086
        hcp-plan disaggregate "${A[@]}" $faster --json | grep -q '"decision":"disaggregate"'
    done
    run hcp-plan disaggregate "${A[@]}" --transfer-gbps "$(awk "BEGIN { print $below / 2 }")"
    [ "$status" -eq 0 ]
    [[ "$output" == *"do not disaggregate: period of a stream"* ]]
    [[ "$output" == *"GB/s of transfers and more"* ]]
    [[ "$output" == *"attention and merge alone"* ]]
}

@test "one batch alone is colocated; KV that is streamed hides behind prefill" {
    hcp-plan disaggregate "${A[@]}" --objective latency --json >l.json
    grep -q '"decision":"colocate","objective":"latency"' l.json
    grep -q '"turns":{"below_gbps":null,"above_gbps":null' l.json
    hcp-plan disaggregate "${A[@]}" --transfer-alpha-us 10 --json >a.json
    hcp-plan disaggregate "${A[@]}" --transfer-alpha-us 10 --stream-kv --json >s.json
    D='"disaggregated":{'
    equal "$(field exposed_ms a.json "$D")" "$(field move_ms a.json "$D")"
    # 256 pieces, each with its start-up time; the last one is seen.
    equal "$(field move_ms s.json "$D")" "$(field move_ms a.json "$D") + 255 * 0.01"
    awk "BEGIN { r = $(field exposed_ms s.json "$D") / ($(field move_ms s.json "$D") / 256)
        exit !(r > 1 - 1e-6 && r < 1 + 1e-6) }"
}

@test "limits: goodput, and what there is where none keeps them" {
    A=(--ranks "2*nvidia-h200@mps:100,2*nvidia-h200@mps:10" --batch 8 --seq-len 64K
        --steps 500 --layers 32 --link-gbps 150)
    hcp-plan disaggregate "${A[@]}" --json >a.json
    t=$(field ttft_ms a.json '"disaggregated":{')
    less=$(awk "BEGIN { print $t * 0.99 }")
    hcp-plan disaggregate "${A[@]}" --ttft-ms "$less" --json >b.json
    holds "$(field ttft_ms b.json '"colocated":{') <= $less"
    grep -q '"disaggregated":null' b.json ||
        holds "$(field ttft_ms b.json '"disaggregated":{') <= $less"
    refused 3 "the least TTFT is" hcp-plan disaggregate "${A[@]}" --ttft-ms 1
    refused 3 "the least decode step" hcp-plan disaggregate "${A[@]}" --tpot-ms 0.001
}

@test "memory: one batch, or two of a stream; weights once" {
    # 32 layers of 8 sequences: 64 KiB * 16 a token; two batches need 128 GiB apart.
    hcp-plan disaggregate "${A[@]}" --memory 130G --json >a.json
    grep -q '"decision":"disaggregate"' a.json
    grep -q '"memory_bytes":137438953472' a.json
    hcp-plan disaggregate "${A[@]}" --memory 120G --json >b.json
    grep -q '"decision":"colocate"' b.json
    grep -q '"disaggregated":null' b.json
    grep -q '"gain_over_colocated":null' b.json
    hcp-plan disaggregate "${A[@]}" --memory 120G --objective latency --json >c.json
    [ "$(grep -c '"disaggregated":null' c.json)" -eq 0 ]
    refused 3 "short by" hcp-plan disaggregate "${A[@]}" --memory 20G
    # A known model: heads, layers, weights, and linear work of both phases as measured.
    run hcp-plan disaggregate --ranks "$R" --batch 8 --seq-len 32K --steps 200 --mask causal \
        --link nccl --model llama-3-8b --memory 140G
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"32 layers"* && "$output" != *"merge alone"* ]]
    hcp-plan disaggregate --ranks "$R" --batch 8 --seq-len 32K --steps 200 --model llama-3-8b \
        --json >m.json
    hcp-plan disaggregate --ranks "$R" --batch 8 --seq-len 32K --steps 200 --layers 32 \
        --json >n.json
    holds "$(field step_ms m.json) > $(field step_ms n.json) + 32 * 0.05"
    refused 3 "linear work of 100000 tokens" hcp-plan disaggregate --ranks "$R" --batch 100000 \
        --seq-len 32K --steps 200 --model llama-3-8b
}

@test "what is refused" {
    refused 2 "below 2 ranks" hcp-plan disaggregate --ranks nvidia-h200@mps:100 --batch 8 \
        --seq-len 64K --steps 5
    refused 3 "run --db h.db --limits mps:50 --phase decode --batch 8" hcp-plan disaggregate \
        --ranks nvidia-h200@mps:100,nvidia-h200@mps:50 --batch 8 --seq-len 64K --steps 5
    refused 2 "--steps is missing" hcp-plan disaggregate --ranks "$R" --seq-len 64K
    refused 2 "--seq-len is missing" hcp-plan disaggregate --ranks "$R" --steps 5
    refused 2 "--ranks is missing" hcp-plan disaggregate --seq-len 64K --steps 5
    refused 2 "both phases" hcp-plan disaggregate "${A[@]}" --phase decode
    refused 2 "one link within" hcp-plan disaggregate "${A[@]}" --reorder
    refused 2 "one link within" hcp-plan disaggregate "${A[@]}" --node-ranks 2
    refused 2 "throughput or latency" hcp-plan disaggregate "${A[@]}" --objective cost
    refused 2 "more than --batch" hcp-plan disaggregate "${A[@]}" --prefill-batch 9
    refused 2 "use one of them" hcp-plan disaggregate "${A[@]}" --decode-linear-us 5 \
        --model llama-3-8b
    refused 2 "--decode-linear-us: 'x'" hcp-plan disaggregate "${A[@]}" --decode-linear-us x
    refused 2 "--transfer 'x'" hcp-plan disaggregate "${A[@]}" --transfer x
    refused 2 "--steps" hcp-plan disaggregate "${A[@]}" --steps 0
    refused 2 "--transfer-gbps: 'nan' is not a finite" hcp-plan disaggregate "${A[@]}" \
        --transfer-gbps nan
    refused 2 "257 ranks, more than the 256 that are advised on" hcp-plan disaggregate \
        --ranks '257*nvidia-h200@mps:100' --batch 8 --seq-len 8K --steps 5
    refused 3 "--extrapolate" hcp-plan disaggregate --ranks "$R" --batch 8 --seq-len 1M \
        --steps 5
    refused 3 "was never measured" hcp-plan disaggregate "${A[@]}" --transfer mpi
}

@test "ranks of data sheets: their times, their memory, and what they are estimated from" {
    hcp-plan disaggregate --ranks 'nvidia-h200@mps:100,spec:a100,spec:a100' --batch 8 --seq-len 32K \
        --steps 500 --layers 32 --link-gbps 50 --memory spec --json >s.json 2>s.err
    grep -q '"source":"estimated"' s.json
    # Once a phase, each with the command that would measure it.
    [ "$(grep -c 'hcp-plan: spec:a100.* is estimated from nvidia-h200' s.err)" -eq 2 ]
    grep -q "hcp-profile run --db h.db'" s.err
    grep -q "hcp-profile run --db h.db --phase decode --batch 8'" s.err
    # That a data sheet is left out is a guess as well.
    hcp-plan disaggregate --ranks 'nvidia-h200@mps:100,spec:l4' --batch 8 --seq-len 32K \
        --steps 500 --layers 32 --link-gbps 1 --json >s.json 2>s.err
    grep -q '"device":"spec:l4","limit":"","class":1,"role":"none"' s.json
    grep -q '"n_unknown":[0-9]*,"source":"estimated"' s.json
    hcp-plan disaggregate --ranks 'nvidia-h200@mps:100,spec:a100' --batch 8 --seq-len 32K \
        --steps 500 --layers 32 --link-gbps 50 | grep -q 'is estimated from nvidia-h200'
    # A layer's linear work, of both phases, is that of the kin by its data sheet.
    hcp-plan disaggregate --ranks 'nvidia-h200@mps:100,spec:a100' --batch 8 --seq-len 32K \
        --steps 500 --link-gbps 50 --model llama-3-8b --json >l.json 2>l.err
    holds "$(field step_ms l.json) > 32 * 0.05"
    refused 3 'spec:a1000' hcp-plan disaggregate --ranks 'nvidia-h200@mps:100,spec:a1000' --seq-len 32K --steps 5
}
