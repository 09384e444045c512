#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-ring --rebalance: the plan changes in the middle of a run, with the right result.
# What ranks are heard to take is what models say and --slow, so that no noise of a busy machine
# decides; where it is measured, no test looks at what is decided.

bats_require_minimum_version 1.5.0
load ring-lib

setup_file() {
    rehearsal_models
}

setup() {
    rehearsal_setup
}

# phases: those of $output, one a line; the first line is the rest.
phases() {
    sed 's/{"first_pass":/\n&/g' <<<"$output"
}

# rebalanced RANKS SLOW OPTION...: a run of $plan that changes at least once and is proven
# each time; every phase has all tokens, and the passes add up.
rebalanced() {
    local n=$1 slow=$2 line first=0 sum t
    shift 2
    run --separate-stderr timeout -k 5 600 mpirun -np "$n" hcp-ring --warm-up 0 --db m.db --plan plan.json \
        --rebalance --extrapolate --repeat 24 --max-time 500 --slow "$slow" --verify=64 --json "$@"
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [ "$(wc -l <<<"$output")" -eq 1 ]
    mapfile -t lines < <(phases)
    [ "${#lines[@]}" -ge 3 ]
    [[ "${lines[0]}" == *"\"moves\":$((${#lines[@]} - 2)),"* ]]
    for line in "${lines[@]:1}"; do
        [[ "$line" == *"\"first_pass\":$first,"* ]]
        [[ "$line" == *'"verified":true'* ]]
        sum=0
        for t in $(tokens "$line"); do
            sum=$((sum + t))
        done
        [ "$sum" -eq "$len" ]
        first=$((first + $(sed 's/.*"passes":\([0-9]*\),.*/\1/' <<<"$line")))
    done
    [ "$first" -eq 24 ]
    [ "$(grep -o '"fingerprint":"[0-9a-f]*"' <<<"$output" | sort -u | wc -l)" -ge 2 ]
}

@test "a rank gets slower: tokens leave it, the result is right before and after" {
    len=800
    plan m.db plan.json "2*$cpu" full contiguous 400,400 "${shape[@]}"
    rebalanced 2 1:6:100
    # At the end it has a small part of what it had.
    read -ra last <<<"$(tokens "${lines[-1]}")"
    [ "${last[1]}" -lt 200 ]
    [[ "${lines[2]}" == *'"reason":"gain"'* ]]
    for key in before_ms stay_ms margin_ms gain_ms move_ms saved_ms makespan_ms predicted_ms; do
        [[ "${lines[2]}" == *"\"$key\":"[0-9-]* ]]
    done
    nothing_left
}

@test "a causal mask in zigzag, four ranks, pieces; one of them without tokens" {
    long_test
    len=1200
    plan m.db plan.json "4*$cpu" causal zigzag 400,400,0,400 "${shape[@]}"
    rebalanced 4 0:5:100 --sub-blocks 2
    plan m.db plan.json "3*$cpu" causal contiguous 500,400,300 "${shape[@]}"
    rebalanced 3 2:4:100 --barrier
}

@test "in text; what a change costs can forbid it" {
    len=800
    plan m.db plan.json "2*$cpu" full contiguous 400,400 "${shape[@]}"
    run --separate-stderr ring 2 --db m.db --plan plan.json --rebalance --repeat 16 --slow 1:4:100
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    grep -q '^PASS PASSES MEASURED_MS .* REASON TOKENS' <<<"$output"
    grep -q ' gain ' <<<"$output"
    grep -Eq '^16 passes, [1-9] changes? of the plan$' <<<"$output"
    run --separate-stderr ring 2 --db m.db --plan plan.json --rebalance --repeat 8 --slow 1:4:50 --move-ms 1e9
    [ "$status" -eq 0 ]
    grep -q '^8 passes, 0 changes of the plan$' <<<"$output"
    grep -q '^at the end speeds have changed, and the plan has not: cost$' <<<"$output"
    cmp m.db "$BATS_FILE_TMPDIR/m.db" # nothing is stored
}

@test "asked of the library on every rank, without a plan file" {
    long_test
    run --separate-stderr ring 2 --db m.db --ranks "2*$cpu" --seq-len 1K --mask full "${shape[@]}" \
        --extrapolate --rebalance --repeat 12 --slow 0:3:100 --json
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *'"reason":"gain"'* ]]
}

@test "by measured times: every plan that runs is proven, whatever is decided" {
    plan m.db plan.json "2*$cpu" full contiguous 400,400 "${shape[@]}"
    unset HCP_REHEARSE
    run --separate-stderr ring 2 --db m.db --plan plan.json --rebalance --repeat 16 --slow 1:4:50 --verify=64 --json
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [ "$(grep -o '"first_pass"' <<<"$output" | wc -l)" -eq "$(grep -o '"verified":true' <<<"$output" | wc -l)" ]
}

@test "what does not go together is refused, and by all" {
    plan m.db plan.json "2*$cpu" full contiguous 400,400 "${shape[@]}"
    refuse() { # refuse TEXT OPTION...
        local text=$1
        shift
        run --separate-stderr ring 2 "$@"
        echo "$stderr"
        [ "$status" -ne 0 ]
        [[ "$stderr" == *"$text"* ]]
    }
    refuse 'give --db FILE' --plan plan.json --rebalance
    refuse '--slow, --fail and --move-ms are of --rebalance' --plan plan.json --slow 0:1:2
    refuse 'expected RANK:PASS:FACTOR' --plan plan.json --db m.db --rebalance --slow 0:1
    refuse 'a factor in 1..1000' --plan plan.json --db m.db --rebalance --slow 0:1:0.5
    refuse 'there is no rank 2' --plan plan.json --db m.db --rebalance --slow 2:1:2
    refuse "--move-ms '-1'" --plan plan.json --db m.db --rebalance --move-ms -1
    refuse 'starts from one plan' --plan plan.json --plan plan.json --db m.db --rebalance
    hcp-plan split --db m.db --ranks "2*$cpu" --seq-len 1000 --tokens 500,500 --kv-tokens 400,600 \
        --layout contiguous --extrapolate --json "${shape[@]}" >joint.json
    refuse 'without --joint, --links and --documents' --plan joint.json --db m.db --rebalance
    hcp-profile import --db other.db nvidia-h200-fa2 >/dev/null 2>&1
    refuse 'no profile for' --plan plan.json --db other.db --rebalance
    nothing_left
}
