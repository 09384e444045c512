#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # bats and the harness set these
# hcp-ring runs the blocks of plans with late KV in their order, with the right result.

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

# late FILE SLOTS...: a plan with these slots, its fingerprint taken out.
late() {
    sed 's/"fingerprint":"[0-9a-f]*",//' "$1" | awk -v slots="${*:2}" '
        BEGIN { split(slots, slot, " ") }
        {
            for (i = 1; match($0, /"late_slots":[0-9]+/); i++) {
                printf "%s\"late_slots\":%s", substr($0, 1, RSTART - 1), slot[i]
                $0 = substr($0, RSTART + RLENGTH)
            }
            print
        }'
}

@test "a plan that is made late runs in its order" {
    # Rank 1 makes its keys and values late, and what rank 0 sends could go before.
    plan m.db late.json "4*$cpu" causal contiguous 300,200,300,200 "${shape[@]}" --late-kv \
        --linear-us 0,2:0,0,0 --link-gbps 4
    grep -o '"late_slots":[0-9]' late.json | grep -q '[1-9]'
    run --separate-stderr ring 4 --json --plan late.json --verify
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *'"verified":true'* ]]
    run --separate-stderr ring 4 --plan late.json --verify --sub-blocks 3
    [ "$status" -eq 0 ]
}

@test "every layout and mask, in many orders" {
    long_test
    files=()
    for layout in contiguous zigzag striped; do
        for mask in causal full; do
            plan m.db plan.json "4*$cpu" $mask $layout 300,100,200,250 "${shape[@]}" --late-kv
            for slots in '2 0 1 3' '0 2 0 0' '1 2 2 0' '3 0 2 1'; do
                file=$layout-$mask-${slots// /}.json
                # shellcheck disable=SC2086 # a list
                late plan.json $slots >"$file"
                [ "$(grep -o '"late_slots":[0-9]' "$file" | tr -dc '0-9\n' | tr '\n' ' ')" = "$slots " ]
                files+=(--plan "$file")
            done
        done
    done
    run --separate-stderr ring 4 "${files[@]}" --verify --buffers 0 --json
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [ "$(results | grep -c '"verified":true')" -eq 24 ]
}

@test "a plan in another order: ranks take their places" {
    printf 'both 1 2 2000 0.001\n' >net
    for order in --reorder --fix-order; do
        hcp-plan split --db m.db --ranks "4*$cpu" --seq-len 2000 --tile 16 --mask causal --layout contiguous \
            --links net $order "${shape[@]}" --extrapolate --json >"plan$order.json"
    done
    places=$(grep -o '"given_rank":[0-9]' plan--reorder.json | tr -dc '0-9')
    [ "$places" != 0123 ]
    run --separate-stderr ring 4 --json --plan plan--reorder.json --verify
    echo "$places $output $stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *'"verified":true'* ]]
    run --separate-stderr ring 4 --plan plan--reorder.json --plan plan--fix-order.json
    [ "$status" -ne 0 ]
    [[ "$stderr" == *"or for another order of them"* ]]
}

@test "few buffers are enough, a barrier is refused" {
    plan m.db plan.json "5*$cpu" full contiguous 100,100,100,100,100 "${shape[@]}" --late-kv
    late plan.json 4 0 4 0 4 >late.json
    run --separate-stderr ring 5 --plan late.json --buffers 2 --verify
    echo "$stderr"
    [ "$status" -eq 0 ]
    run --separate-stderr ring 5 --plan plan.json --barrier
    [ "$status" -ne 0 ]
    [[ "$stderr" == *"a plan with late KV has no steps that all ranks share"* ]]
    nothing_left
}
