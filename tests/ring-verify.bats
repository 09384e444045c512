#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-ring --verify on CPU ranks: what the ring computes is attention, whatever the split.

bats_require_minimum_version 1.5.0
load ring-lib

setup() {
    ring_setup
    seed=${HCP_TEST_SEED:-1}
    RANDOM=$seed
    # HCP_TEST_SCALE: more or fewer random splits.
    rounds=$(awk -v s="${HCP_TEST_SCALE:-1}" 'BEGIN { n = int(2 * s + 0.5); print n < 1 ? 1 : n }')
}

random() { # random LO HI: sets $value
    value=$(($1 + (RANDOM * 32768 + RANDOM) % ($2 - $1 + 1)))
}

# split N LENGTH: random shares of N ranks into $tokens; a fifth of the ranks gets none.
split() {
    local left=$2 share list=() r
    for ((r = 1; r < $1; r++)); do
        random 0 $((2 * left / ($1 - r + 1)))
        share=$((RANDOM % 5 == 0 ? 0 : value > left ? left : value))
        left=$((left - share))
        list+=("$share")
    done
    list+=("$left")
    random 0 $(($1 - 1)) # the rest is not always the last rank's
    share=${list[value]} list[value]=$left list[$1 - 1]=$share
    tokens=$(IFS=, && echo "${list[*]}")
}

# Adds a plan to $plans, random of kind in what is not given.
plans=() specs=()
add() { # add RANKS MASK LAYOUT TOKENS [OPTION...]
    local file=p${#plans[@]}.json
    specs+=("$*")
    plan m.db "$file" "$@" "${shape[@]}"
    plans+=(--plan "$file")
}
all_masks() { # all_masks RANKS TOKENS [OPTION...]
    local ranks=$1 layout
    shift
    for layout in contiguous zigzag striped; do
        add "$ranks" causal "$layout" "$@"
    done
    add "$ranks" full contiguous "$@"
}

# Runs the plans in one process a rank, comparing every row with fp64, and counts them.
verify() { # verify N [OPTION...]
    local n=$1 rows=0 want=0 i lines spec
    shift
    run --separate-stderr ring "$n" --json --verify=1000000 "${plans[@]}" "$@"
    mapfile -t lines < <(results)
    for i in "${!specs[@]}"; do
        read -ra spec <<<"${specs[i]}"
        rows=$(grep -o '"rows_compared":[0-9]*' <<<"${lines[i]-}" | awk -F: '{ n += $2 } END { print n + 0 }')
        want=$((${spec[3]//,/+}))
        want=$((want * shape_heads * shape_batch))
        if [[ "${lines[i]-}" != *'"verified":true'* ]] || [ "$rows" -ne "$want" ]; then
            echo "seed $seed, plan ${specs[i]}, options $*: $rows rows of $want: ${lines[i]-}"
            cut -c1-2000 "p$i.json"
            echo "$stderr"
            return 1
        fi
    done
    echo "status $status: $stderr"
    [ "$status" -eq 0 ]
    plans=() specs=()
}

shape() { # shape DTYPE BATCH HEADS KV_HEADS HEAD_DIM
    shape_batch=$2 shape_heads=$3
    shape=(--dtype "$1" --batch "$2" --heads "$3" --kv-heads "$4" --head-dim "$5")
    add_models m.db "$@"
}

random_splits() { # random_splits N [LONGEST]
    local round most=${2:-400}
    for round in $(seq "$rounds"); do
        for mask in causal:contiguous causal:zigzag causal:striped full:contiguous full:zigzag full:striped; do
            random 1 "$most"
            split "$1" "$value"
            random 1 4
            sub_blocks=$value
            buffers=$((RANDOM % 3))
            add "$1*$cpu" "${mask%:*}" "${mask#*:}" "$tokens" --sub-blocks "$sub_blocks" \
                --buffers "$((buffers == 1 ? 3 : buffers))" --tile "$((1 + RANDOM % 64))"
        done
    done
}

@test "random uneven splits, every layout and mask, 2 ranks, fp32 and bf16" {
    shape fp32 1 2 1 32
    random_splits 2
    verify 2
    shape bf16 1 2 1 32
    random_splits 2
    verify 2
}

@test "random uneven splits, every layout and mask, 3 ranks, fp32 and bf16" {
    full_test
    shape bf16 1 4 2 16
    random_splits 3
    verify 3
    shape fp32 1 4 2 16
    random_splits 3
    verify 3
}

@test "random uneven splits, every layout and mask, 4 ranks, fp32 and bf16" {
    full_test
    shape fp32 1 2 2 64
    random_splits 4
    verify 4
    shape bf16 1 2 2 64
    random_splits 4
    verify 4
}

@test "random uneven splits, every layout and mask, 7 ranks, fp32 and bf16" {
    long_test
    shape fp32 1 3 1 16
    random_splits 7 300
    verify 7
    shape bf16 1 3 1 16
    random_splits 7 300
    verify 7
}

@test "several heads of one KV head, several KV heads, a batch of 2" {
    long_test
    for dtype in fp32 bf16; do
        shape "$dtype" 2 6 3 24
        all_masks "3*$cpu" 65,130,31
        all_masks "3*$cpu" 0,130,1
        verify 3
    done
}

@test "ranks without tokens: first, in the middle, last, all but one" {
    long_test
    shape fp32 1 2 1 32
    for tokens in 0,90,61 90,0,61 90,61,0 0,151,0 0,0,151 151,0,0; do
        all_masks "3*$cpu" "$tokens"
    done
    verify 3
    for tokens in 0,0,90,61 90,0,0,61 0,90,0,61; do
        all_masks "4*$cpu" "$tokens"
    done
    verify 4 --sub-blocks 3
}

@test "one rank, with and without a launcher" {
    shape bf16 1 2 1 32
    all_masks "1*$cpu" 301
    all_masks "1*$cpu" 1
    kept=("${plans[@]}")
    verify 1
    run --separate-stderr hcp-ring --repeat 1 --warm-up 0 --verify --json "${kept[@]}"
    [ "$status" -eq 0 ]
    [ "$(results | grep -c '"verified":true')" -eq 8 ]
}

@test "sequences shorter than the ring, and one token a rank" {
    long_test
    shape fp32 1 2 1 32
    for tokens in 1,0,0,0 0,0,0,1 1,1,1,0 0,2,1,0 1,1,1,1; do
        all_masks "4*$cpu" "$tokens"
    done
    verify 4
    for tokens in 1,0,0,0,0,0,1 0,1,1,0,1,0,0; do
        all_masks "7*$cpu" "$tokens" --sub-blocks 4
    done
    verify 7
}

@test "sub-blocks 1 to 4, as many buffers as there are and few, and a barrier after each step" {
    long_test
    shape fp32 1 2 1 32
    for options in "--sub-blocks 1 --buffers 0" "--sub-blocks 2 --buffers 2" "--sub-blocks 3 --buffers 3" \
        "--sub-blocks 4 --buffers 2 --transport mpi" "--barrier" "--barrier --sub-blocks 3 --transport mpi"; do
        all_masks "4*$cpu" 129,257,1,70 --tile 32
        read -ra words <<<"$options"
        verify 4 "${words[@]}"
    done
    all_masks "2*$cpu" 129,70 # one is enough where nothing is passed on
    verify 2 --buffers 1
}

@test "other inputs, and a kernel that merges what it cannot accumulate" {
    long_test
    plugin=$top_builddir/tests/.libs/plugin-example.so
    for dtype in fp32 bf16; do
        shape "$dtype" 1 2 1 32
        all_masks "3*$cpu" 65,0,44
        all_masks "3*$cpu" 30,40,51 --sub-blocks 2
        verify 3 --seed 77 --kernel "$plugin"
    done
}

@test "verification can fail: a wrong kernel is found, in text and JSON" {
    plugin=$top_builddir/tests/.libs/plugin-faulty.so
    shape fp32 1 2 1 32
    add "3*$cpu" causal zigzag 65,0,44
    HCP_FAULTY=wrong run --separate-stderr ring 3 --verify "${plans[@]}" --kernel "$plugin"
    [ "$status" -eq 1 ]
    [[ "$output" == *"NOT VERIFIED: rank 0: "*"NOT VERIFIED: rank 2: "* ]]
    [[ "$output" != *"NOT VERIFIED: rank 1: "* ]] # computes nothing
    [[ "$stderr" == *"verification failed"* ]]
    HCP_FAULTY=wrong run --separate-stderr ring 3 --verify --json "${plans[@]}" --kernel "$plugin"
    [ "$status" -eq 1 ]
    [[ "$output" == *'"verified":false'*'"failure":'* ]]
    # What is no number is the largest error, whatever the ranks behind it have.
    plan m.db two.json "2*$cpu" full contiguous 65,44 "${shape[@]}"
    HCP_FAULTY=blank:65 run --separate-stderr ring 2 --verify --json --plan two.json --kernel "$plugin"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *'"verified":false,"max_error":null,'*'"max_error":null,'*'"max_error":'[0-9]* ]]
    # Not asked, nobody looks; and the plug-in without its fault is right.
    HCP_FAULTY=wrong run ring 3 "${plans[@]}" --kernel "$plugin"
    [ "$status" -eq 0 ]
    HCP_FAULTY='' run ring 3 --verify "${plans[@]}" --kernel "$plugin"
    [ "$status" -eq 0 ]
    [[ "$output" == *"verified: "* ]]
}

@test "verification can fail: one rank's partial results, right alone, wrong where they are merged" {
    long_test
    plugin=$top_builddir/tests/.libs/plugin-faulty.so
    shape fp32 1 2 1 32
    add "3*$cpu" full contiguous 50,40,61
    add "3*$cpu" full contiguous 50,60,41
    # Only a call of 50 queries on 40 keys has the fault: the single pass has not.
    HCP_FAULTY=lse:50x40 run --separate-stderr ring 3 --verify "${plans[@]}" --kernel "$plugin"
    [ "$status" -eq 1 ]
    [ "$(grep -c 'NOT VERIFIED: ' <<<"$output")" -eq 1 ]
    [[ "$output" == *"NOT VERIFIED: rank 0: head "* ]]
    [ "$(grep -c '^verified: ' <<<"$output")" -eq 1 ] # the second plan has no such call
}
