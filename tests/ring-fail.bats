#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-ring --rebalance goes on without a rank whose device or kernel has failed, with the right
# result; --fail rehearses that. Of GPUs and NCCL, ring-queued.sh tests how a pass is left.

bats_require_minimum_version 1.5.0
load ring-lib

setup_file() {
    rehearsal_models
}

setup() {
    rehearsal_setup
    faulty=$top_builddir/tests/.libs/plugin-faulty.so
}

common=(--warm-up 0 --max-time 500 --timeout 300 --db m.db --rebalance --extrapolate)

# without N OPTION...: a run of plan.json on N ranks, of 6 passes, that ends well.
without() {
    local n=$1
    shift
    run --separate-stderr timeout -k 5 600 mpirun -np "$n" hcp-ring "${common[@]}" --plan plan.json \
        --repeat 6 --json "$@"
    well
}

# What $output of such a run is in any case: every phase has all tokens and none on a rank that has
# failed by then, passes add up to 6, and what was looked at is proven.
well() {
    local i first=0 line
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [ "$(wc -l <<<"$output")" -eq 1 ]
    mapfile -t phases < <(sed 's/"failures":.*//; s/{"first_pass":/\n&/g' <<<"$output" | tail -n +2)
    mapfile -t failures < <(sed 's/.*"failures":\[//; s/{"rank":[0-9]*,"pass":/\n&/g' <<<"$output" |
        tail -n +2)
    [[ "$output" == *"\"moves\":$((${#phases[@]} - 1)),"* ]]
    for line in "${phases[@]}"; do
        [[ "$line" == *"\"first_pass\":$first,"* ]]
        [[ "$line" != *'"verified":false'* ]]
        [ "$(tokens "$line" | awk '{ for (i = 1; i <= NF; i++) n += $i; print n }')" -eq "$len" ]
        first=$((first + $(value passes "$line")))
    done
    [ "$first" -eq 6 ]
    [ "$(sed 's/.*"pass_ms":\[\([^]]*\)\].*/\1/; s/,/\n/g' <<<"$output" | wc -l)" -eq 6 ]
    for line in "${failures[@]}"; do
        i=$(value rank "$line")
        [ "$(tokens "${phases[-1]}" | cut -d ' ' -f $((i + 1)))" -eq 0 ]
        [[ "$line" == *'"recovered_ms":'[0-9]* ]]
        grep -q "^hcp-ring: rank $i failed (.*; going on without it$" <<<"$stderr"
        # The library's list is all that it had.
        [ "$(recomputed "$line" | awk '{ n += $3 } END { print n + 0 }')" -eq "$(value lost_tokens "$line")" ]
    done
    [ "$(grep -c '^hcp-ring: ' <<<"$stderr")" -eq "${#failures[@]}" ]
}

value() { # of a whole number, the first of its name
    grep -o "\"$1\":[0-9]*" <<<"$2" | head -n 1 | cut -d : -f 2
}

recomputed() { # of a failure by its line: "RANK OFFSET LENGTH", a line each
    sed 's/.*"recompute":\[\([^]]*\)\].*/\1/; s/},/\n/g' <<<"$1" | sed 's/[^0-9,]//g; y/,/ /'
}

# failed RANK PASS DURING [TEXT]: one of the failures is this one.
failed() {
    printf '%s\n' "${failures[@]}" |
        grep -F "{\"rank\":$1,\"pass\":$2,\"during\":\"$3\",\"error\":\"${4-cannot compute a block: }" \
            >/dev/null
}

verified() { # every plan that ran was proven
    [ "$(grep -o '"verified":true' <<<"$output" | wc -l)" -eq "${#phases[@]}" ]
}

@test "first and last of two, at the first pass and later: the other runs alone" {
    len=600
    plan m.db plan.json "2*$cpu" causal zigzag 300,300 "${shape[@]}"
    for at in 0@0 1@0:1 0@4:1 1@5; do
        without 2 --fail $at --verify=64
        [ "${#failures[@]}" -eq 1 ]
        failed "${at%@*}" "$(sed 's/.*@//; s/:.*//' <<<$at)" pass
        [ "$(value lost_tokens "${failures[0]}")" -eq 300 ]
        [ "${#phases[@]}" -eq 2 ]
        [[ "${phases[1]}" == *'"reason":"failed"'* ]]
        verified
    done
    nothing_left
}

@test "first, middle and last of three, in every step of a pass" {
    long_test
    len=900
    plan m.db plan.json "3*$cpu" full contiguous 300,250,350 "${shape[@]}"
    for at in 0@0 1@0:2 2@1:1 0@3:1 1@3 2@3:2; do
        without 3 --fail $at --verify=64
        [ "${#failures[@]}" -eq 1 ]
        failed "${at%@*}" "$(sed 's/.*@//; s/:.*//' <<<$at)" pass
        verified
    done
}

@test "four ranks: pieces, few buffers, a barrier after every step, striped" {
    long_test
    len=1200
    plan m.db plan.json "4*$cpu" causal striped 300,300,300,300 "${shape[@]}"
    without 4 --fail 2@1:1 --sub-blocks 3 --buffers 2 --verify=64
    failed 2 1 pass
    verified
    without 4 --fail 3@2:2 --barrier --verify=64
    failed 3 2 pass
    verified
    plan m.db plan.json "4*$cpu" full contiguous 300,300,0,600 "${shape[@]}"
    without 4 --fail 0@1:1 --verify=64
    failed 0 1 pass
    # Nothing is asked of a rank without tokens.
    without 4 --fail 2@1
    [ "${#failures[@]}" -eq 0 ]
    [ "${#phases[@]}" -eq 1 ]
}

@test "one after the other, and two at once: the last runs alone; none is left" {
    len=900
    plan m.db plan.json "3*$cpu" full contiguous 300,300,300 "${shape[@]}"
    without 3 --fail 1@1:1 --fail 0@4 --verify=64
    failed 1 1 pass
    failed 0 4 pass
    [ "${#phases[@]}" -eq 3 ]
    verified
    [ "$(tokens "${phases[2]}")" = "0 0 900" ]
    without 3 --fail 2@2 --fail 1@2 --verify=64
    failed 2 2 pass
    failed 1 2 pass
    verified
    [ "$(tokens "${phases[-1]}")" = "900 0 0" ]
    run --separate-stderr ring 3 "${common[@]}" --plan plan.json --repeat 6 --fail 0@1 --fail 1@1 --fail 2@1
    echo "$output $stderr"
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    [[ "$stderr" == *"hcp-ring: rank "*" has failed (cannot compute a block: "*"), and no rank is left"* ]]
    nothing_left
}

@test "the plan, and what is to be recomputed, are the library's for the same trace" {
    len=900
    plan m.db plan.json "3*$cpu" full contiguous 300,250,350 "${shape[@]}"
    without 3 --fail 1@2:1
    compute=$(grep -o '"compute_ms":[0-9.e-]*' plan.json | cut -d : -f 2)
    {
        echo step,rank,ms
        for step in 0 1 2; do
            rank=0
            for ms in $compute; do
                [ $step -eq 2 ] && [ $rank -eq 1 ] && ms=failed
                echo "$step,$rank,$ms"
                rank=$((rank + 1))
            done
        done
    } >trace.csv
    hcp-plan rebalance --db m.db --plan plan.json --extrapolate --trace trace.csv --json >said
    cat said
    proposed=$(sed 's/.*"decision":"move"//' said | grep -o '"tokens":\[[0-9,]*\]' | head -n 1)
    [ "$(tokens "${phases[1]}")" = "$(sed 's/[^0-9,]//g; y/,/ /' <<<"$proposed")" ]
    [ "$(recomputed "${failures[0]}")" = "$(sed 's/.*"recompute":\[\([^]]*\)\].*/\1/; s/},/\n/g' said |
        sed 's/"lost_by":1,//; s/[^0-9,]//g; y/,/ /')" ]
    [ "$(recomputed "${failures[0]}" | wc -l)" -ge 1 ]
}

# Kernels of rank R of three that fail by themselves: per_rank R FAULT OPTION...
per_rank() {
    local rank=$1 fault=$2
    shift 2
    # shellcheck disable=SC2016 # it is the script's
    printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" -ne %s ] || export HCP_FAULTY=%s\nexec hcp-ring "$@"\n' \
        "$rank" "$fault" >faulty-rank
    chmod +x faulty-rank
    run --separate-stderr timeout -k 5 600 mpirun -np 3 ./faulty-rank "${common[@]}" --plan plan.json \
        --kernel "$faulty" --repeat 6 --json "$@"
}

@test "a kernel that returns an error: in a pass, in warming up, in the proof" {
    len=300
    plan m.db plan.json "3*$cpu" full contiguous 100,100,100 "${shape[@]}"
    # Three blocks a pass, two passes to warm up, then the proof with one more run to compare.
    for case in 2:warm-up 6:warm-up 7:proof 9:proof 11:pass 12:pass; do
        per_rank 1 "nth:${case%:*}" --verify=64
        well
        [ "${#failures[@]}" -eq 1 ]
        failed 1 0 "${case#*:}" "cannot compute a block: device error"
        [[ "${phases[-1]}" == *'"verified":true'* ]]
    done
    per_rank 0 nth:8
    well
    failed 0 0 pass
    nothing_left
}

@test "no memory for a new ring: at the start, and when the plan changes" {
    len=300
    plan m.db plan.json "3*$cpu" full contiguous 100,100,100 "${shape[@]}"
    per_rank 2 memory:100
    well
    failed 2 0 setup ""
    [[ "${failures[0]}" == *'out of memory'* ]]
    [ "$(tokens "${phases[1]}" | cut -d ' ' -f 3)" -eq 0 ]
    # It has other shares after a failure, and no memory for those: all of what both had goes to
    # the last.
    last=$(tokens "${phases[1]}" | cut -d ' ' -f 2)
    per_rank 2 "memory:$last" --fail 1@1
    well
    failed 1 1 pass
    failed 2 1 setup ""
    [ "$(tokens "${phases[-1]}")" = "300 0 0" ]
    [ "$(recomputed "${failures[0]}")" = "0 100 100" ]
    [ "$(recomputed "${failures[1]}")" = "0 200 100" ]
    # Of a change that should pay nothing is lost: the plan that ran runs on.
    plan m.db plan.json "3*$cpu" full contiguous 150,150,0 "${shape[@]}"
    per_rank 2 none --slow 0:1:100
    [ "$status" -eq 0 ]
    get=$(sed 's/{"first_pass":/\n&/g' <<<"$output" | tail -n +3 | head -n 1)
    get=$(tokens "$get" | cut -d ' ' -f 3)
    [ "$get" -gt 0 ]
    per_rank 2 "memory:$get" --slow 0:1:100
    well
    failed 2 "$(value first_pass "${phases[1]}")" setup ""
    [ "$(value lost_tokens "${failures[0]}")" -eq 0 ]
    [ "$(tokens "${phases[2]}")" = "150 150 0" ]
}

@test "in text" {
    len=600
    plan m.db plan.json "2*$cpu" full contiguous 300,300 "${shape[@]}"
    run --separate-stderr ring 2 "${common[@]}" --plan plan.json --repeat 6 --fail 1@3:1 --verify=64
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    grep -q '^6 passes, 1 change of the plan$' <<<"$output"
    grep -q '^rank 1 failed (pass 3): cannot compute a block: ' <<<"$output"
    grep -Eq '^  300 tokens to recompute: 300\+300 by rank 0; passes went on [0-9.]+ ms later$' <<<"$output"
    grep -q '^verified from pass 3 on: ' <<<"$output"
    run --separate-stderr ring 2 "${common[@]}" --plan plan.json --repeat 6 --fail 1@0
    [ "$status" -eq 0 ]
    run ! grep -qi 'nan' <<<"$output"
    cmp m.db "$BATS_FILE_TMPDIR/m.db" # nothing is stored
    # A change of speed that was not worth one is in the plan that a failure asks for.
    plan m.db plan.json "3*$cpu" full contiguous 200,200,200 "${shape[@]}"
    slow=(--plan plan.json --move-ms 1e6 --slow 0:1:5)
    run --separate-stderr ring 3 "${common[@]}" "${slow[@]}" --repeat 6
    echo "$output $stderr"
    grep -q '^at the end speeds have changed, and the plan has not: cost' <<<"$output"
    run --separate-stderr ring 3 "${common[@]}" "${slow[@]}" --repeat 6 --fail 1@5
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    grep -q '^6 passes, 1 change of the plan$' <<<"$output"
    run ! grep -q '^at the end' <<<"$output"
    plan m.db plan.json "2*$cpu" full contiguous 300,300 "${shape[@]}"
    run --separate-stderr ring 2 "${common[@]}" --plan plan.json --repeat 1 --fail 1@0
    [ "$status" -eq 0 ]
    grep -q '^1 pass, 1 change of the plan$' <<<"$output"
}

@test "by measured times; whole layers; asked of the library" {
    long_test
    unset HCP_REHEARSE
    still=(--move-ms 1e9) # a busy machine's times move nothing before a rank fails
    len=900
    plan m.db plan.json "3*$cpu" full contiguous 300,300,300 "${shape[@]}"
    without 3 --fail 0@2:2 --verify=64 "${still[@]}"
    failed 0 2 pass
    without 3 --fail 2@2:1 --hidden 64 --ffn 128 --verify=64 "${still[@]}"
    failed 2 2 pass
    run --separate-stderr ring 3 "${common[@]}" --ranks "3*$cpu" --seq-len 1K --mask full "${shape[@]}" \
        --fail 1@1:1 --repeat 6 --json "${still[@]}"
    len=1024
    well
    failed 1 1 pass
}

@test "rings of rings" {
    long_test
    len=1200
    hcp-plan split --db m.db --ranks "4*$cpu" --tokens 300,300,300,300 --mask causal --layout zigzag \
        "${shape[@]}" --extrapolate --node-ranks 2 --node-gbps 0.001 --double-ring --json >plan.json
    grep -q '"inner_ranks":2' plan.json
    for step in 0 1 2 3; do
        without 4 --fail $step@1:$step --verify=64
        failed $step 1 pass
        verified
    done
}

@test "a process that is killed ends the run, with its message" {
    len=450
    plan m.db plan.json "3*$cpu" full contiguous 100,200,150 "${shape[@]}"
    apart alone
    HCP_FAULTY=crash:200 run timeout -k 5 300 mpirun -np 3 ./apart hcp-ring --plan "$PWD/plan.json" \
        --kernel "$faulty" "${common[@]}" --db "$PWD/m.db" --repeat 6
    cat out err
    [ ! -s out ]
    for rank in 0 2; do
        [ "$(cat code-$rank)" -eq 1 ]
        [[ "$(sed -n "s/^hcp-ring: rank $rank: //p" err)" == "rank 1 (pid "*") ended "* ]]
    done
    nothing_left
}

@test "ranks that do not see the same do not go on" {
    len=600
    plan m.db plan.json "2*$cpu" full contiguous 300,300 "${shape[@]}"
    FORMULA=a=3e-6,b=2e-4,c=5e-5,f=0.02 add_models other.db fp32 1 2 1 32 none 2K
    run --separate-stderr timeout -k 5 600 mpirun \
        -np 1 hcp-ring "${common[@]}" --plan plan.json --repeat 6 --fail 1@2 : \
        -np 1 hcp-ring "${common[@]}" --db other.db --plan plan.json --repeat 6 --fail 1@2
    echo "$output $stderr"
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    [[ "$stderr" == *"ranks 0 and 1 do not see the same after 0 passes"* ]]
}

@test "what does not go together is refused, and by all" {
    plan m.db plan.json "2*$cpu" full contiguous 300,300 "${shape[@]}"
    refuse() { # refuse TEXT OPTION...
        local text=$1
        shift
        run --separate-stderr ring 2 --plan plan.json "$@"
        echo "$stderr"
        [ "$status" -eq 2 ]
        [ -z "$output" ]
        [[ "$stderr" == *"$text"* ]]
    }
    refuse '--slow, --fail and --move-ms are of --rebalance' --fail 0@1
    refuse "--fail '1': expected RANK@PASS or RANK@PASS:STEP" "${common[@]}" --fail 1
    refuse "--fail '1:2': expected RANK@PASS" "${common[@]}" --fail 1:2
    refuse "--fail '@2': expected a rank, a pass from 0 and a step from 0" "${common[@]}" --fail @2
    refuse "--fail '1@-2': expected a rank" "${common[@]}" --fail 1@-2
    refuse "--fail '1@2:': expected a rank" "${common[@]}" --fail 1@2:
    refuse "--fail '1@2:x': expected a rank" "${common[@]}" --fail 1@2:x
    refuse '--fail: there is no rank 2' "${common[@]}" --fail 2@1
    many=()
    for i in $(seq 17); do
        many+=(--fail "1@$i")
    done
    refuse '--fail: at most 16 times' "${common[@]}" "${many[@]}"
    nothing_left
}
