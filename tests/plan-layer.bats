#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hcp-plan split with measured linear work that has steps: a machine on which products take the
# time of whole 640 tokens, attention that of whole 128.

bats_require_minimum_version 1.5.0
load scale

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    hcp-profile run --db steps.db --device "synthetic:name=g,tile_q=128" --limits mps:100,mps:50 --max-len 8K
    cp steps.db few.db
    hcp-profile run --db steps.db --device "synthetic:name=g,tile_q=640" --linear --hidden 4096 --ffn 14336 \
        --limits mps:100,mps:50 --tokens "$(seq -s, 128 128 8192)"
    hcp-profile run --db few.db --device "synthetic:name=g,tile_q=640" --linear --hidden 4096 --ffn 14336 \
        --limits mps:100,mps:50 --tokens 1K,2K,4K,8K
    hcp-plan fit --quiet --db steps.db
    hcp-plan fit --quiet --db few.db
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    layer=(--hidden 4096 --ffn 14336 --extrapolate)
}

split() { # OPTION...
    hcp-plan split --db steps.db "${layer[@]}" "$@"
}
makespan() { # of a plan in JSON
    sed 's/"makespan_ms":/\n&/' | sed -n 's/^"makespan_ms":\([-0-9.e]*\).*/\1/p' | head -n 1
}
tokens() {
    grep -o '"tokens":[0-9]*' | cut -d: -f2 | paste -sd, -
}

# All ways to give N ranks TILES tiles, a line each.
all_splits() { # N TILES TILE
    awk -v n="$1" -v tiles="$2" -v tile="$3" '
        function go(i, left, text,  k) {
            if (i == n) { print text left * tile; return }
            for (k = 0; k <= left; k++) go(i + 1, left - k, text k * tile ",")
        }
        BEGIN { go(1, tiles, "") }'
}

# exhaustive RANKS TOKENS TILE OPTION...: the plan is as fast as the fastest of all splits.
exhaustive() {
    local ranks=$1 length=$2 tile=$3 n plan best
    shift 3
    n=$(tr -dc , <<<"$ranks" | wc -c)
    set -- --ranks "$ranks" --seq-len "$length" "$@" --json
    plan=$(split "$@" | makespan)
    best=$(all_splits $((n + 1)) $((length / tile)) "$tile" | while read -r t; do
        split "$@" --tokens "$t" | makespan
    done | sort -g | head -n 1)
    echo "$*: planned $plan, the fastest of all $best"
    awk -v a="$plan" -v b="$best" 'BEGIN { exit !(b > 0 && a / b < 1 + 1e-9 && a / b > 1 - 1e-9) }'
}

@test "no split in whole tiles is faster than the plan, which is predicted as it would be" {
    exhaustive g@mps:50,g@mps:100 2048 128 --mask causal --layout contiguous
    exhaustive g@mps:100,g@mps:50 3072 128 --mask causal --layout contiguous
    exhaustive g@mps:100,g@mps:50 2560 128 --mask full
}

@test "nor where they are longer, capped or three" {
    long_test
    exhaustive g@mps:50,g@mps:100 5120 128 --mask causal --layout contiguous
    exhaustive g@mps:100,g@mps:50 8192 128 --mask causal --layout contiguous
    exhaustive g@mps:50,g@mps:100 4096 128 --mask causal --layout contiguous --max-tokens 1=2304
    exhaustive g@mps:100,g@mps:100,g@mps:50 1536 128 --mask causal --layout contiguous
}

@test "a plan in an order of its own is what it says, within its error" {
    # Lines and shares of these do not come to rest, and no split can be asked for in its order.
    args=(--seq-len 8K --mask causal --layout contiguous)
    split --ranks g@mps:100,g@mps:100,g@mps:50 "${args[@]}" --reorder --json >plan.json
    [ "$(grep -o '"given_rank":[0-9]' plan.json | cut -d: -f2 | tr -d '\n')" = 012 ]
    split --ranks g@mps:100,g@mps:100,g@mps:50 "${args[@]}" --tokens "$(tokens <plan.json)" --json >same.json
    read -r low high < <(sed -n 's/.*"interval_ms":\[\([0-9.]*\),\([0-9.]*\)\].*/\1 \2/p' plan.json)
    echo "planned $(makespan <plan.json), $low to $high, is $(makespan <same.json)"
    awk -v is="$(makespan <same.json)" -v low="$low" -v high="$high" -v plan="$(makespan <plan.json)" 'BEGIN {
        exit !(low <= is && is <= high && (is > plan * 1.03 || is < plan / 1.03)) }'
}

# "STRATEGY MAKESPAN EVEN DROP" of each plan that compare prints, -1 where one is not known.
compared() { # OPTION...
    hcp-plan compare --db steps.db "${layer[@]}" "$@" --json | sed 's/null/-1/g' | awk '
        function value(key,  n) {
            n = length(key) + 3
            return match($0, "\"" key "\":\"?[^,\"]*") ? substr($0, RSTART + n, RLENGTH - n) : -1
        }
        /"makespan_ms"/ { name = value("strategy"); sub(/^"/, "", name)
            print name, value("makespan_ms"), value("even_ms"), value("drop_ms") }'
}

@test "the best is slower than no rival, and what an even split and fewer ranks take is what they would" {
    for ask in "3*g@mps:50 --seq-len 7777 --mask full --sub-blocks 2" \
        "g@mps:50,g@mps:100 --seq-len 5120 --mask causal --layout contiguous" \
        "3*g@mps:100 --seq-len 2048 --mask causal --layout striped" \
        "g@mps:100,g@mps:100,g@mps:50,g@mps:100 --seq-len 8K --mask full --max-tokens 0=2048 --reorder" \
        "g@mps:50,g@mps:100,g@mps:50 --seq-len 8K --mask full --layout contiguous --late-kv --link-gbps 50"; do
        # shellcheck disable=SC2086 # words
        compared --ranks $ask >rows
        echo "$ask"
        cat rows
        [ "$(wc -l <rows)" -eq 6 ]
        awk '{ ms[$1] = $2; even[$1] = $3; drop[$1] = $4 }
            function below(a, b) { return a > 0 && a < b * (1 - 1e-9) }
            END {
                for (k in ms) bad = bad || below(ms[k], ms["best"])
                bad = bad || below(even["best"], ms["best"]) || below(drop["best"], ms["best"])
                bad = bad || below(ms["even"], even["best"]) || below(even["best"], ms["even"])
                bad = bad || drop["best"] <= 0
                exit bad
            }' rows
    done
}

@test "numbers of tokens far from measured ones are named with the command that measures them" {
    ask=(--db few.db "${layer[@]}" --ranks g@mps:100,g@mps:50 --seq-len 8K --mask causal --layout contiguous)
    hcp-plan split "${ask[@]}" >text
    cat text
    [ "$(grep -c 'for a finer plan: hcp-profile run' text)" -eq 1 ]
    command=$(sed -n 's/.*for a finer plan: //p' text)
    [[ "$command" == *"--db "*"few.db --linear --hidden 4096 --ffn 14336 "*" --limits mps:100,mps:50 --tokens "* ]]
    hcp-plan split "${ask[@]}" --json >before.json
    eval "$command --device synthetic:name=g,tile_q=640"
    hcp-plan split "${ask[@]}" >text
    cat text
    run ! grep finer text
    # Both are asked what they take on the machine that is known everywhere.
    ask[1]=steps.db
    was=$(hcp-plan split "${ask[@]}" --tokens "$(tokens <before.json)" --json | makespan)
    ask[1]=few.db
    hcp-plan split "${ask[@]}" --json >after.json
    ask[1]=steps.db
    is=$(hcp-plan split "${ask[@]}" --tokens "$(tokens <after.json)" --json | makespan)
    echo "before $was, after $is"
    awk -v a="$is" -v b="$was" 'BEGIN { exit !(a <= b) }'
    # Where all are measured nothing is said.
    ask[1]=steps.db
    hcp-plan split "${ask[@]}" >text
    run ! grep finer text
}

@test "the command measures about the tokens of every rank, in the plan's own type" {
    hcp-profile run --db half.db --device "synthetic:name=g,tile_q=128" --limits mps:100,mps:50 --max-len 8K \
        --dtype fp16
    hcp-profile run --db half.db --device "synthetic:name=g,tile_q=640" --linear --hidden 4096 --ffn 14336 \
        --limits mps:100,mps:50 --tokens 1K,2K,4K,8K --dtype fp16
    hcp-plan fit --quiet --db half.db
    ask=(--db half.db "${layer[@]}" --ranks 4*g@mps:100,3*g@mps:50 --dtype fp16)
    hcp-plan split "${ask[@]}" --seq-len 40K --max-tokens 1=5120,2=4608,5=1536 >text
    cat text
    command=$(sed -n 's/.*for a finer plan: //p' text)
    [[ "$command" == *" --dtype fp16 --limits mps:100,mps:50 --tokens "* ]]
    list=${command##* --tokens }
    # Whole GEMM tiles about each share, once each and in order.
    awk '$1 ~ /^[0-9]+$/ && $4 > 0 { print int(($4 + 127) / 128) * 128 }' text >middles
    [ "$(sort -u middles | wc -l)" -ge 4 ]
    while read -r n; do
        [[ ",$list," == *",$n,"* ]]
    done <middles
    [ "$(tr , '\n' <<<"$list")" = "$(tr , '\n' <<<"$list" | sort -nu)" ]
    eval "$command --device synthetic:name=g,tile_q=640"
    hcp-plan split "${ask[@]}" --seq-len 40K --tokens "$(awk '$1 ~ /^[0-9]+$/ { print $4 }' text | paste -sd,)" >text
    cat text
    run ! grep finer text
}

@test "shares beyond the measured numbers are said to be so" {
    ask=(--db few.db "${layer[@]}" --ranks g@mps:100 --mask causal)
    run -0 hcp-plan split "${ask[@]}" --seq-len 9K
    [[ "$output" == *"linear work of 9216 tokens lies above the most measured, 8192; for a finer plan: "* ]]
    run -0 hcp-plan split "${ask[@]}" --seq-len 512
    [[ "$output" == *"linear work of 512 tokens lies below the fewest measured, 1024; for a finer plan: "* ]]
}

@test "decode and plans without measured linear work say nothing of the kind" {
    run -0 hcp-plan split --db steps.db --ranks g@mps:100,g@mps:50 --seq-len 8K --linear-us 1
    [[ "$output" != *finer* ]]
    run -0 hcp-plan split --db few.db "${layer[@]}" --ranks g@mps:100,g@mps:50 --seq-len 8K --json
    [[ "$output" != *finer* ]]
}

# Layers of 8K tokens on two H200s at 50 and 100 %, contiguous: 3456/4736 took 3.945 ms and
# 3584/4608 3.754, the best split found by measuring (executor/h200-layers-and-joint.md).
@test "an H200's steps: with products measured every 128 tokens the plan is the best split found" {
    ask=(--db h.db --ranks nvidia-h200@mps:50,nvidia-h200@mps:100 --seq-len 8K --mask causal
        --model llama-3-8b --link nccl --layout contiguous --extrapolate --json)
    hcp-profile import --db h.db nvidia-h200
    hcp-profile import --db h.db "${BATS_TEST_DIRNAME}/data/h200-linear-steps.csv"
    hcp-plan fit --quiet --db h.db
    hcp-plan split "${ask[@]}" >plan.json
    [ "$(tokens <plan.json)" = 3584,4608 ]
    within() { # TOKENS MS PART
        awk -v is="$(hcp-plan split "${ask[@]}" --tokens "$1" | makespan)" -v ms="$2" -v part="$3" 'BEGIN {
            print is, ms; exit !(is / ms < 1 + part && is / ms > 1 - part) }'
    }
    within 3584,4608 3.754 0.02
    within 3456,4736 3.945 0.02
}
