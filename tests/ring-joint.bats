#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-ring runs plans that split queries and KV apart, with the right result.

bats_require_minimum_version 1.5.0
load ring-lib

setup_file() {
    export TMPDIR=$BATS_FILE_TMPDIR
    add_models "$TMPDIR/m.db" fp32 1 2 1 32 none 2K
}

setup() {
    ring_setup
    shape=(--dtype fp32 --batch 1 --heads 2 --kv-heads 1 --head-dim 32)
    cp "$BATS_FILE_TMPDIR/m.db" .
}

# add RANKS MASK LAYOUT QUERIES KV: that split is to be run.
splits=()
add() {
    local n=$1 mask=$2 layout=$3 queries=$4 kv=$5
    plan m.db "joint${#splits[@]}.json" "$n*$cpu" "$mask" "$layout" "$queries" "${shape[@]}" --kv-tokens "$kv"
    splits+=("$kv")
}
# run_added RANKS [OPTION...]: runs them in one process a rank, every row compared.
run_added() {
    local n=$1 i files=() lines
    shift
    for i in "${!splits[@]}"; do
        files+=(--plan "joint$i.json")
    done
    run --separate-stderr ring "$n" --json "${files[@]}" --verify=1000000 "$@"
    echo "$n ranks, KV ${splits[*]}, $*: $output $stderr"
    [ "$status" -eq 0 ]
    mapfile -t lines < <(results)
    [ "${#lines[@]}" -eq "${#splits[@]}" ]
    for i in "${!splits[@]}"; do
        [[ "${lines[i]}" == *'"verified":true'* ]]
        [[ "${lines[i]}" == *'"kv_tokens":['"${splits[i]}"']'* ]]
    done
}
# joint RANKS MASK LAYOUT QUERIES KV [OPTION...]: both, for one alone.
joint() {
    splits=()
    add "${@:1:5}"
    run_added "$1" "${@:6}"
    mv joint0.json joint.json
}

@test "every layout and mask: KV elsewhere than its queries" {
    for layout in contiguous zigzag striped; do
        add 3 causal $layout 300,100,200 100,350,150
    done
    add 3 full contiguous 300,100,200 100,350,150
    run_added 3
    run_added 3 --sub-blocks 3
}

@test "ranks without KV, without queries, without either" {
    add 4 causal zigzag 200,0,150,100 0,250,200,0
    add 4 causal contiguous 0,0,300,77 177,200,0,0
    add 4 causal striped 0,450,0,0 100,0,0,350
    add 4 full contiguous 150,0,250,0 0,0,0,400
    run_added 4
    run_added 4 --sub-blocks 2
    joint 3 causal zigzag 1,499,0 250,1,249
}

@test "random splits, few buffers, a barrier, 16 bits" {
    long_test
    RANDOM=${HCP_TEST_SEED:-1}
    for round in 1 2 3 4 5 6; do
        for list in queries kv; do
            left=600 tokens=()
            for _ in 1 2 3 4; do
                share=$((RANDOM % 4 == 0 ? 0 : RANDOM % (left + 1)))
                tokens+=("$share")
                left=$((left - share))
            done
            printf -v $list '%s,' "${tokens[@]}" "$left"
        done
        layout=$(echo contiguous zigzag striped | cut -d' ' -f $((round % 3 + 1)))
        # shellcheck disable=SC2154 # queries and kv: printf -v
        joint 5 causal "$layout" "${queries%,}" "${kv%,}" --buffers $((1 + round % 3 > 1 ? 2 : 0)) \
            --sub-blocks $((round % 2 * 3 + 1))
    done
    joint 4 causal zigzag 200,0,150,100 50,250,100,50 --barrier
    add_models "$TMPDIR/b.db" bf16 2 4 2 64 none 1K
    shape=(--dtype bf16 --batch 2 --heads 4 --kv-heads 2 --head-dim 64)
    mv "$TMPDIR/b.db" m.db
    joint 3 causal zigzag 200,120,80 0,300,100 --sub-blocks 2
}

@test "blocks have the length of their KV: bytes that travel" {
    # Rank 0 keeps nothing: nothing is sent out of it but what it passes on.
    joint 2 full contiguous 100,300 0,400
    steps=$(sed 's/{"rank":/\n&/g' <<<"$output" | grep '^{"rank":1')
    [[ "$steps" == *'"ready_ms":null'* ]]
    # A plan whose KV does not add up, and one from another question, are refused.
    sed 's/"kv_tokens":400/"kv_tokens":401/' joint.json >broken.json
    run --separate-stderr ring 2 --plan broken.json
    [ "$status" -ne 0 ]
    [[ "$stderr" == *"kv_tokens do not add up"* ]]
}

@test "the library's own joint plan, the table, the database, search" {
    q=(--ranks "3*$cpu" --seq-len 2K --mask causal "${shape[@]}" --link-gbps 0.3 --sub-blocks 4)
    run --separate-stderr ring 3 --db m.db "${q[@]}" --joint --verify
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *KV_TOKENS* ]]
    [[ "$output" == *"verified: "* ]]
    sqlite3 m.db 'select note from ring_run' | grep -q '; KV [0-9]*/[0-9]*/[0-9]*$'
    hcp-plan split --db m.db "${q[@]}" --joint --json >joint.json
    hcp-plan split --db m.db "${q[@]}" --json >tied.json
    run --separate-stderr ring 3 --plan joint.json --plan tied.json
    [ "$status" -eq 0 ]
    [[ "$output" =~ [0-9]+/[0-9]+/[0-9]+' KV '[0-9]+/[0-9]+/[0-9]+ ]]
    kv=$(grep -o '"kv_tokens":[0-9]*' joint.json | cut -d: -f2 | paste -sd,)
    run --separate-stderr timeout 600 mpirun -np 3 hcp-ring search --plan joint.json --warm-up 0 --repeat 1 \
        --max-time 0.01 --json
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [ "$(grep -o '"kv_tokens":\[[0-9,]*\]' <<<"$output" | sort -u)" = "\"kv_tokens\":[$kv]" ]
    nothing_left
}

@test "--channels is NCCL's" {
    plan m.db joint.json "2*$cpu" full contiguous 100,300 "${shape[@]}" --kv-tokens 200,200
    run --separate-stderr ring 2 --plan joint.json --channels 4 --transport mpi
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"--channels are NCCL's; --transport mpi has none"* ]]
    run --separate-stderr ring 2 --plan joint.json --channels 4
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"these ranks use MPI"* ]]
    for bad in 0 3 64 x; do
        run --separate-stderr hcp-ring --plan joint.json --channels $bad
        [ "$status" -eq 2 ]
        [[ "$stderr" == *"'$bad' is neither auto nor a power of two up to 32"* ]]
    done
    run --separate-stderr ring 2 --plan joint.json --channels auto
    [ "$status" -eq 0 ]
    run --separate-stderr hcp-ring --plan joint.json --joint
    [ "$status" -eq 2 ]
    nothing_left
}
