#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-ring runs rings of rings, with the right result (their order: test-ring-schedule).

bats_require_minimum_version 1.5.0
load ring-lib

setup_file() {
    export TMPDIR=$BATS_FILE_TMPDIR
    add_models "$TMPDIR/m.db" fp32 1 2 1 32 none 2K
    add_models "$TMPDIR/b.db" bf16 2 4 2 64 none 1K
}

setup() {
    ring_setup
    shape=(--dtype fp32 --batch 1 --heads 2 --kv-heads 1 --head-dim 32)
    cp "$BATS_FILE_TMPDIR"/?.db .
    db=m.db
}

# add NODE_RANKS INNER MASK LAYOUT TOKENS: a plan with two levels, the last one rings.json.
files=()
add() {
    local node=$1 inner=$2 mask=$3 layout=$4 tokens=$5
    n=$(tr -dc , <<<"$tokens" | wc -c)
    n=$((n + 1))
    plan "$db" rings.json "$n*$cpu" "$mask" "$layout" "$tokens" "${shape[@]}" \
        --node-ranks "$node" --node-gbps 0.001 --double-ring
    grep -q "\"inner_ranks\":$inner," rings.json
    cp rings.json "rings${#files[@]}.json"
    files+=("--plan=rings${#files[@]}.json")
}
# run_added [OPTION...]: every row of them compared.
run_added() {
    run --separate-stderr ring "$n" --json "${files[@]}" --verify=1000000 "$@"
    echo "$n ranks, $*: $output $stderr"
    [ "$status" -eq 0 ]
    [ "$(results | grep -c '"verified":true')" -eq "${#files[@]}" ]
}
# levels NODE_RANKS INNER MASK LAYOUT TOKENS [OPTION...]: one alone.
levels() {
    files=()
    add "${@:1:5}"
    run_added "${@:6}"
}

@test "2 nodes of 2, every layout and mask in which all ranks work on all blocks" {
    add 2 2 causal zigzag 200,100,150,50
    add 2 2 causal striped 130,70,200,100
    add 2 2 full contiguous 200,100,150,50
    run_added
}

@test "2 nodes of 4 and 4 of 2" {
    add 4 4 causal zigzag 100,80,60,40,120,90,70,40
    add 2 2 causal zigzag 100,80,60,40,120,90,70,40
    add 4 4 full contiguous 50,60,70,80,90,100,110,40
    run_added
}

@test "few and many buffers, a rank of each node without tokens, several passes" {
    for buffers in 1 2 3 0; do
        levels 2 2 causal zigzag 100,80,60,40,120,90,70,40 --buffers "$((buffers ? buffers : 16))" \
            --repeat 3
    done
    levels 4 4 causal zigzag 100,80,60,40,120,90,70,40 --buffers 2
    levels 4 4 causal zigzag 100,80,60,40,120,90,70,40 --buffers 3
    levels 3 2 causal striped 64,0,40,80,0,100 --buffers 1
    levels 4 3 causal striped 64,0,40,80,100,0,90,30
    ring 8 --plan rings.json --buffers 1 >out 2>&1 && false
    grep -q 'one buffer cannot pass blocks on in a ring of 3 ranks' out
}

@test "16 bits, more than one batch; shares that differ much" {
    long_test
    db=b.db shape=(--dtype bf16 --batch 2 --heads 4 --kv-heads 2 --head-dim 64)
    levels 2 2 causal zigzag 150,2,60,300
    levels 4 4 full contiguous 1,200,3,50,20,7,90,40
}

@test "in text, and beside plans of one ring" {
    levels 2 2 full contiguous 60,50,40,30
    plan m.db one.json "4*$cpu" full contiguous 45,45,45,45 "${shape[@]}"
    run --separate-stderr ring 4 --plan rings.json --plan one.json --plan rings.json --verify
    [ "$status" -eq 0 ]
    echo "$output" >&2
    [ "$(grep -c 'verified' <<<"$output")" -ge 3 ]
}
