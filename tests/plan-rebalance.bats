#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hcp-plan rebalance on traces, and the manual's program that rebalances.

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    hcp-profile import --db h.db nvidia-h200-fa2
    hcp-plan fit --quiet --db h.db
    hcp-plan split --db h.db --seq-len 32K --mask causal --json \
        --ranks 'nvidia-h200@mps:100,nvidia-h200@mps:50,nvidia-h200@mps:50' >plan.json
    # What its ranks take, in hundredths of a millisecond.
    sed 's/"compute_ms":/\n&/g' plan.json | sed -n 's/^"compute_ms":\([0-9.]*\).*/\1/p' >base
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    export HCP_DB=h.db
}

# trace STEPS 'AWK EXPRESSION of step t, rank r and noise n, a factor or a word' >FILE
trace() {
    awk -v steps="$1" '
        { base[NR - 1] = $1 }
        END {
            print "step,rank,ms"
            for (t = 0; t < steps; t++)
                for (r = 0; r < NR; r++) {
                    n = 1 + 0.01 * (((t * 7 + r * 5) * 13 % 19) / 9 - 1)
                    f = '"$2"'
                    print t "," r "," (f + 0 > 0 ? base[r] * f : f)
                }
        }' base
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
}

@test "a step: one move, to what split says of those speeds" {
    trace 40 't >= 20 && r == 1 ? 2 * n : n' >step.csv
    hcp-plan rebalance --plan plan.json --trace step.csv --json --save next.json >out
    cat out
    [ "$(field moves out)" -eq 1 ]
    grep -q '{"step":21,"decision":"move","reason":"gain","changed":1' out
    holds "$(field total_ms out) < 0.95 * $(field stay_total_ms out)"
    hcp-plan split --seq-len 32K --mask causal --layout zigzag --json --time-scale 1=2 \
        --ranks 'nvidia-h200@mps:100,nvidia-h200@mps:50,nvidia-h200@mps:50' >best.json
    holds "$(field makespan_ms next.json) / $(field makespan_ms best.json) < 1.02"
    holds "$(field makespan_ms next.json) / $(field makespan_ms best.json) > 0.98"
    # The saved plan is one that has its factors, and simulate follows it.
    grep -q '"time_scale":[12]\.' next.json
    hcp-plan simulate --plan next.json --json >steps.json
    run hcp-plan rebalance --plan plan.json --trace - <step.csv
    echo "$output"
    [[ "${lines[0]}" == *STEP*DECISION*REASON*SPEEDS*TOKENS* ]]
    [[ "${lines[1]}" == *21*move*gain*\ 1:1.98* ]]
    [[ "$output" == *"40 steps, 1 move: "*" ms with it, "* ]]
}

@test "of 20 alike one was never as fast as the others: it is not taken for one of them" {
    hcp-plan split --seq-len 128K --mask causal --json --ranks '20*nvidia-h200@mps:50' >many.json
    sed 's/"compute_ms":/\n&/g' many.json | sed -n 's/^"compute_ms":\([0-9.]*\).*/\1/p' |
        awk '{ base[NR - 1] = $1 }
            END {
                print "step,rank,ms"
                for (t = 0; t < 12; t++)
                    for (r = 0; r < NR; r++)
                        print t "," r "," base[r] * (1 + 0.01 * (((t * 7 + r * 5) * 13 % 19) / 9 - 1)) * (r == 3 ? 2 : 1)
            }' >many.csv
    hcp-plan rebalance --plan many.json --trace many.csv --json >out
    cat out
    [ "$(field moves out)" -eq 1 ]
    holds "$(field total_ms out) < 0.7 * $(field stay_total_ms out)"
}

@test "noise and swings move nothing; what a move costs decides, and how many steps are left" {
    trace 60 '1 + 3 * (n - 1)' >noise.csv
    run hcp-plan rebalance --plan plan.json --trace noise.csv
    [ "$output" = "60 steps, 0 moves" ]
    [ "$(hcp-plan rebalance --plan plan.json --trace noise.csv --all | grep -c ' keep ')" -eq 60 ]
    trace 90 't > 20 && r == 2 && int(t / 4) % 2 ? 2.5 * n : n' >swing.csv
    hcp-plan rebalance --plan plan.json --trace swing.csv --move-ms 200 --json >out
    [ "$(field moves out)" -eq 0 ]
    grep -q '"reason":"wait"' out
    hcp-plan rebalance --plan plan.json --trace step.csv --move-ms 60 --steps 40 --json >out
    [ "$(field moves out)" -eq 1 ]
    hcp-plan rebalance --plan plan.json --trace step.csv --move-ms 6000 --steps 40 --json >out
    [ "$(field moves out)" -eq 0 ]
    grep -q '"reason":"cost"' out
    # At once, where changes are known to last.
    hcp-plan rebalance --plan plan.json --trace step.csv --move-ms 60 --expected-steps 500 --json >out
    grep -q '{"step":21,"decision":"move"' out
    hcp-plan rebalance --plan plan.json --trace step.csv --min-gain 0.9 --json >out
    [ "$(field moves out)" -eq 0 ]
    grep -q '"reason":"small"' out
}

@test "keys and values that move cost their bytes over the link" {
    hcp-plan rebalance --plan plan.json --trace step.csv --expected-steps 500 --json \
        --move-kv --link-gbps 10 --link-alpha-us 0 --move-ms 1 >out
    sed 's/{"step":/\n&/g' out | grep '"decision":"move"' >move
    bytes=$(field move_bytes move)
    [ "$bytes" -eq $(($(field move_tokens move) * 2 * 8 * 128 * 2)) ]
    holds "$(field cost_ms move) - (1 + $bytes / 1e7) < 1e-9 && $bytes > 0"
}

@test "a rank that fails: who computes again what it had" {
    trace 30 't >= 25 && r == 0 ? "failed" : n' >fail.csv
    hcp-plan rebalance --plan plan.json --trace fail.csv --json >out
    cat out
    grep -q '{"step":25,"decision":"move","reason":"failed","changed":0,"failed":1' out
    lost=$(sed 's/{"step":25,/\n&/' out | sed -n 's/.*"lost_tokens":\([0-9]*\).*/\1/p' | tail -n 1)
    [ "$lost" -eq "$(field tokens plan.json)" ]
    sum=$(grep -o '"lost_by":0,"rank":[12],"offset":[0-9]*,"length":[0-9]*' out |
        awk -F: '{ s += $NF } END { print s }')
    [ "$sum" -eq "$lost" ]
    # Not heard of, or without a time: the same.
    for gone in '/^2[5-9],0,/d' 's/failed//' 's/failed/nan/'; do
        sed "$gone" fail.csv | hcp-plan rebalance --plan plan.json --trace - --json | cmp - out
    done
    hcp-plan split --seq-len 32K --mask causal --max-tokens 20K --json \
        --ranks 'nvidia-h200@mps:100,nvidia-h200@mps:50' >caps.json
    printf 'step,rank,ms\n0,0,5\n0,1,5\n1,0,5\n' >gone.csv
    run hcp-plan rebalance --plan caps.json --trace gone.csv
    echo "$output"
    [[ "$output" == *stuck*failed* ]]
    [[ "$output" == *"the others cannot hold the sequence"* ]]
}

@test "what is wrong with a trace, a plan or an option is said" {
    hcp() { hcp-plan rebalance --plan plan.json --trace bad.csv "$@"; }
    wrong() { # wrong TEXT LINES: below the header
        printf 'step,rank,ms\n%b' "$2" >bad.csv
        refused 2 "$1" hcp
    }
    wrong 'line 2: the rank is none' '0,3,1\n'
    wrong 'line 2: expected step,rank,ms' '0,1\n'
    wrong 'line 2: the time is neither' '0,1,-2\n'
    wrong 'line 2: the time is neither' '0,1,fast\n'
    wrong 'line 2: the step is not' 'x,1,1\n'
    wrong 'line 3: steps are to ascend' '4,1,1\n3,1,1\n'
    wrong 'rank 1 comes twice in step 4' '4,1,1\n4,1,2\n'
    wrong 'line 2: a zero byte' '0,0,1\0000,1\n'
    wrong 'no steps' ''
    printf 'step,rank,ms\n0,0,failed\n0,1,9\n0,2,9\n' >bad.csv
    run hcp # nobody could have stayed at any time
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${lines[${#lines[@]} - 1]}" = '1 steps, 1 move' ]
    : >bad.csv
    refused 2 'the trace is empty' hcp
    echo 'rank,step,ms' >bad.csv
    refused 2 'expected the header' hcp
    refused 1 'cannot open nowhere' hcp-plan rebalance --plan plan.json --trace nowhere
    refused 2 '--plan and --trace are needed' hcp-plan rebalance --plan plan.json
    refused 2 '--move-kv' hcp-plan rebalance --plan plan.json --trace step.csv --link-gbps 5
    refused 2 "--false-alarms '0'" hcp-plan rebalance --plan plan.json --trace step.csv --false-alarms 0
    refused 2 'and the trace has step 30' hcp-plan rebalance --plan plan.json --trace step.csv --steps 30
    refused 3 'nothing was proposed' hcp-plan rebalance --plan plan.json --trace noise.csv --save x.json
    refused 1 'cannot write' hcp-plan rebalance --plan plan.json --trace step.csv --save no/x.json
    hcp-plan split --seq-len 32K --joint --ranks 'nvidia-h200@mps:100,nvidia-h200@mps:50' --json >joint.json
    refused 2 'without --joint' hcp-plan rebalance --plan joint.json --trace step.csv
    echo 'both 0 1 10 50' >pair
    hcp-plan split --seq-len 32K --links pair --ranks 'nvidia-h200@mps:100,nvidia-h200@mps:50' --json >links.json
    refused 2 'without --links' hcp-plan rebalance --plan links.json --trace step.csv
    refused 2 "'0' is not in 0.001..1000" hcp-plan split --seq-len 8K --ranks nvidia-h200@mps:50 --time-scale 0
}

@test "--time-scale: a rank that takes twice its time, in plans and what reads them" {
    hcp-plan split --seq-len 32K --ranks nvidia-h200@mps:50 --json >one.json
    hcp-plan split --seq-len 32K --ranks nvidia-h200@mps:50 --time-scale 2 --json >two.json
    holds "$(field makespan_ms two.json) == 2 * $(field makespan_ms one.json)"
    [ "$(field time_scale two.json)" = 2 ]
    run ! grep time_scale one.json
    [ "$(field models_hash one.json)" = "$(field models_hash two.json)" ]
    hcp-plan simulate --plan two.json --json >steps.json
    holds "$(field makespan_ms steps.json) == $(field makespan_ms two.json)"
    refused 2 '--time-scale out' hcp-plan simulate --plan one.json --time-scale 2
}

@test "the program of libhcpplan(3) that rebalances" {
    command -v "${CC:-cc}" >/dev/null || skip "no compiler"
    [ -e "$top_builddir/planner/.libs/libhcpplan.so" ] || skip "no shared library"
    nm -D "$top_builddir/planner/.libs/libhcpplan.so" | grep -q __asan && skip "a build with sanitizers"
    sed -n '/^\.Sh EXAMPLES/,/^\.Sh ERRORS/p' "$top_srcdir/man/libhcpplan.3" |
        awk '/^\.Bd/ { seen++ } seen == 2 && !/^\./' | sed 's/\\e/\\/g' >example.c
    grep -q hcp_rebalance_create example.c
    "${CC:-cc}" -std=c17 -Wall -Wextra -Werror -I"$top_srcdir/planner" -o example example.c \
        "$top_builddir/planner/.libs/libhcpplan.so"
    LD_LIBRARY_PATH=$top_builddir/planner/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        ./example h.db nvidia-h200@mps:100 nvidia-h200@mps:50 >out
    cat out
    grep -q '^step 2[1-9]: gain, then [0-9.]* ms a step$' out
    grep -q '^step 30: failed, ' out
    grep -q '^rank 0 recomputes [0-9]* tokens from [0-9]*$' out
    grep -q '^rank 1: 0 tokens$' out
}
