#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-profile run, adaptive: stops at its target, within its time, and goes on from any
# interruption to the same cells.

bats_require_minimum_version 1.5.0
load scale

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export HCP_DB=$BATS_TEST_TMPDIR/h.db
    # Like a large GPU: tiles, whole waves of 32 heads on its SMs, launches, noise of 1 %.
    toy=synthetic:name=toy,a=2.7e-8,b=1e-5,c=2e-6,f=0.006,tile_q=128,tile_kv=64,waves=1
    noisy=$toy,noise=0.01
}

rows() { # rows [FILTER...]: stored blocks, one JSON object a line
    hcp-profile export --format jsonl "$@" 2>/dev/null | grep '"kv_len":[1-9]' || true
}
identities() {
    rows "$@" | sed 's/.*"limit":\("[^"]*"\).*"mask":\("[^"]*"\),"q_len":\([0-9]*\),"kv_len":\([0-9]*\).*/\1 \2 \3 \4/' | sort
}
refuse() { # refuse STATUS WORDS COMMAND...
    run --separate-stderr "${@:3}"
    [ "$status" -eq "$1" ]
    [[ "$stderr" == *"$2"* ]]
}
# Median and 90th percentile of predictions on mps:P of cells over 0.1 ms that no sweep
# has seen, in whole tiles, in per cent.
true_error() { # true_error PERCENT
    lens() {
        awk -v seed="$1" 'BEGIN { srand(seed); for (i = 0; i < 10; i++)
            printf "%s%d", i ? "," : "", 128 * int(exp(log(3) + rand() * log(170))) }'
    }
    hcp-profile run --db truth.db --device "$toy" --levels "$1" --q-lens "$(lens 1)" \
        --kv-lens "$(lens 2)" --causal-lens "$(lens 3)" >/dev/null 2>&1
    hcp-profile export --db truth.db --limit "mps:$1" 2>/dev/null |
        awk -F, '/^toy/ && $13 > 0.1 { print $11 "," $12 "," $10, $13 }' >truth
    (echo q_len,kv_len,mask && cut -d' ' -f1 truth) >cells.csv
    hcp-plan predict --ranks "toy@mps:$1" --cells cells.csv --json 2>/dev/null |
        sed 's/},{/}\n{/g' | sed 's/.*"predicted_ms":\([^,]*\),.*/\1/' >predicted
    [ "$(wc -l <predicted)" -eq "$(wc -l <truth)" ]
    paste -d' ' truth predicted |
        awk '{ e = 100 * ($3 / $2 - 1); print e < 0 ? -e : e }' | sort -g |
        awk '{ e[NR] = $1 } END { print NR, e[int((NR + 1) / 2)], e[int(0.9 * NR)] }'
}

@test "stops at the target, far short of the grid, and predicts cells never swept" {
    run --separate-stderr hcp-profile run --device "$noisy" --adaptive
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"cells where an exhaustive grid takes 1400; held-out error of the worst level "*"of the exhaustive grid's "* ]]
    [[ "$stderr" != *"target missed"* ]]
    n=$(rows | wc -l)
    [ "$n" -gt 250 ]
    [ "$n" -lt 470 ] # a third
    command -v hcp-plan >/dev/null || skip "no hcp-plan here"
    hcp-plan fit >/dev/null 2>&1
    for percent in 10 100; do
        read -r cells median p90 <<<"$(true_error $percent)"
        echo "mps:$percent: $cells cells, median $median %, p90 $p90 %" >&2
        [ "$cells" -ge 60 ]
        awk -v m="$median" -v p="$p90" 'BEGIN { exit !(m <= 2 && p <= 5) }'
    done
}

@test "a harder target takes more cells, and one out of reach the whole grid" {
    noisy=$toy,noise=0.03
    hcp-profile run --db a.db --device "$noisy" --levels 50 --target-error 5%,12%
    hcp-profile run --db b.db --device "$noisy" --levels 50 --target-error 0.8%,2%
    run --separate-stderr hcp-profile run --db c.db --device "$noisy" --levels 50 --target-error 0.01%
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"toy@mps:50 full: target missed: held-out error "*"all cells there are"* ]]
    a=$(rows --db a.db | wc -l) b=$(rows --db b.db | wc -l) c=$(rows --db c.db | wc -l)
    echo "$a $b $c" >&2
    [ "$a" -lt "$b" ]
    [ "$b" -lt "$c" ]
    [ "$c" -eq 140 ]
}

@test "named lengths, recorded and synthetic machines are swept whole, unless asked" {
    hcp-profile run --db a.db --device "$toy" --levels 50
    [ "$(rows --db a.db | wc -l)" -eq 140 ]
    lens=128,256,512,1K,2K,4K,8K
    hcp-profile run --db b.db --device "$toy" --levels 50 --q-lens $lens --kv-lens $lens --causal-lens none
    [ "$(rows --db b.db | wc -l)" -eq 49 ]
    hcp-profile run --db c.db --device "$toy" --levels 50 --q-lens $lens --kv-lens $lens \
        --causal-lens none --adaptive
    [ "$(rows --db c.db | wc -l)" -lt 40 ]
    hcp-profile run --db d.db --device "$toy" --levels 50 --preset thorough --exhaustive
    [ "$(rows --db d.db | wc -l)" -eq 380 ]
    shape=(--heads 2 --kv-heads 1 --head-dim 64 --dtype fp32)
    run --separate-stderr hcp-profile run --dry-run --device cpu --limits cpu:100 "${shape[@]}"
    [ "$(grep -c candidate <<<"$output")" -gt 10 ]
    run --separate-stderr hcp-profile run --dry-run --device cpu --limits cpu:100 "${shape[@]}" --exhaustive
    [ "$(grep -c candidate <<<"$output")" -eq 0 ]
}

@test "a small grid is measured whole" {
    hcp-profile run --device "$toy" --levels 50 --max-len 512 --adaptive
    [ "$(rows | wc -l)" -eq 15 ]
}

@test "presets: targets, and lengths half-way for thorough" {
    for preset in quick standard thorough; do
        hcp-profile run --json --db $preset.db --device "$noisy" --levels 50,100 --preset $preset >$preset
    done
    grep -q '"target_median":0.05,"target_p90":0.12' quick
    grep -q '"target_median":0.02,"target_p90":0.05' standard
    grep -q '"target_median":0.01,"target_p90":0.025' thorough
    grep -q '"cells":380' thorough
    [ "$(rows --db quick.db | wc -l)" -le "$(rows --db standard.db | wc -l)" ]
    [ "$(rows --db standard.db | wc -l)" -le "$(rows --db thorough.db | wc -l)" ]
}

@test "--json: both errors for each mask, and what is estimated" {
    run --separate-stderr hcp-profile run --json --device "$noisy" --levels 50 --adaptive
    [ "$status" -eq 0 ]
    [[ "$output" == *'"spared":'*'"adaptive":{"target_median":0.02,"target_p90":0.05,"full":{"met":true,"heldout":{"cells":'*'"exhaustive":{"cells":'*'"exhaustive_estimated":false,"left_out":{"cells":'*'"causal":{"met":true'* ]]
}

@test "the same seed chooses the same cells, and nothing is left the second time" {
    for db in a b; do
        hcp-profile run --db $db.db --device "$noisy" --levels 50,100 --adaptive --seed 3
        hcp-profile export --db $db.db | grep -v '^#' | cut -d, -f1-18 >$db.csv
    done
    cmp a.csv b.csv # in the order of measurement
    run --separate-stderr hcp-profile run --db a.db --device "$noisy" --levels 50,100 --adaptive --seed 3
    [ "$status" -eq 0 ]
    [[ "$stderr" == *" 0 cells to do"* ]]
    [ "$(rows --db a.db | wc -l)" -eq "$(($(wc -l <b.csv) - 1))" ]
}

@test "cells of an exhaustive sweep count: nothing is measured again" {
    hcp-profile run --device "$noisy" --levels 50
    run --separate-stderr hcp-profile run --device "$noisy" --levels 50 --adaptive
    [ "$status" -eq 0 ]
    [[ "$stderr" == *" 0 cells to do, 140 measured before"* ]]
    [ "$(rows | wc -l)" -eq 140 ]
}

@test "SIGKILL at random moments: no half row, and in the end the same cells" {
    set -- --levels 50,100 --adaptive
    hcp-profile run --db whole.db --device "$noisy" "$@"
    kills=$(awk -v s="${HCP_TEST_SCALE:-1}" 'BEGIN { print int(12 * s) + 4 }') died=0
    for i in $(seq $kills); do
        hcp-profile run --device "$noisy,delay=30" "$@" >/dev/null 2>&1 3>&- &
        pid=$!
        sleep "0.$((RANDOM % 4))$((RANDOM % 10))" # three of these are no sweep, on any machine
        if kill -9 $pid 2>/dev/null; then died=$((died + 1)); fi
        wait $pid || true
        [ "$(rows | grep -vc '"status":"ok"')" -eq 0 ]
        [ "$(rows | grep -c '"samples_ms":\[\([^,]*,\)\{9\}[^,]*\]')" -eq "$(rows | wc -l)" ]
        identities >now
        [ "$(uniq -d <now | wc -l)" -eq 0 ]
        [ ! -e before ] || [ "$(comm -23 before now | wc -l)" -eq 0 ]
        mv now before
    done
    echo "$died of $kills killed" >&2
    [ "$died" -ge 3 ]
    hcp-profile run --device "$noisy" "$@"
    HCP_DB=whole.db identities >whole
    identities >after
    cmp whole after
}

@test "--time-budget: ends in time, says what is known of the target, goes on" {
    long_test
    set -- --levels 10,50,100 --adaptive
    # Cells of 50 s each; none of these seconds passes.
    run --separate-stderr env HCP_TEST_CLOCK=1 "$top_builddir/tests/profile-fixture" run \
        --device "$noisy,delay=50000" "$@" --time-budget 2000s
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    # 2 % and 5 % are met by the starting set, which is not yet enough.
    [[ "$stderr" == *"within the target, which further cells have to confirm: held-out error "*"what --time-budget allowed; the same command goes on"* ]]
    n=$(rows | wc -l)
    [ "$n" -gt 35 ]
    [ "$n" -le 40 ]
    hcp-profile run --device "$noisy" "$@"
    hcp-profile run --db whole.db --device "$noisy" "$@"
    identities >after
    HCP_DB=whole.db identities >whole
    cmp whole after
}

@test "--dry-run: what it begins with, and what it may take" {
    run --separate-stderr hcp-profile run --dry-run --device "$toy" --levels 50 --adaptive
    [ "$status" -eq 0 ]
    [ ! -e "$HCP_DB" ]
    [ "$(grep -c ' next$' <<<"$output")" -lt 40 ]
    [ "$(grep -c ' candidate$' <<<"$output")" -gt 90 ]
    [ "$(grep -c '^toy' <<<"$output")" -eq 140 ]
}

@test "values that mean nothing are refused" {
    for bad in 0 0% -1% 2 100% x 2%,x 2%, ,5% 5%,2% 1%,2%,3% nan inf ''; do
        refuse 2 "--target-error '$bad'" hcp-profile run --device "$toy" --target-error "$bad"
    done
    refuse 2 "--preset 'fast': use quick, standard or thorough" hcp-profile run --device "$toy" --preset fast
    refuse 2 "give --adaptive or --exhaustive, once" hcp-profile run --device "$toy" --adaptive --exhaustive
    refuse 2 "leave out --exhaustive" hcp-profile run --device "$toy" --exhaustive --target-error 2%
    [ ! -e "$HCP_DB" ]
}
