#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# What hcp-ring says of a good run, in JSON, text and the database; questions and search.

bats_require_minimum_version 1.5.0
load ring-lib

setup_file() {
    export TMPDIR=$BATS_FILE_TMPDIR
    add_models "$TMPDIR/m.db" fp32 1 2 1 32 none,cpu:50 2K
}

setup() {
    ring_setup
    shape=(--dtype fp32 --batch 1 --heads 2 --kv-heads 1 --head-dim 32)
    cp "$BATS_FILE_TMPDIR/m.db" .
    ranks=$cpu,$cpu@cpu:50
    question=(--ranks "$ranks" --seq-len 1K --mask causal --layout zigzag --db m.db "${shape[@]}")
}

value() { # value KEY TEXT: the first in the text
    grep -o '"'"$1"'":[^],}]*' <<<"$2" | head -n 1 | cut -d: -f2- | tr -d '"'
}
of_rank() { # of_rank N: what $line says of it
    sed 's/{"rank":/\n&/g' <<<"$line" | grep '^{"rank":'"$1",
}
holds() { # holds EXPRESSION NAME=VALUE...: arithmetic of awk
    local args=() pair
    for pair in "${@:2}"; do
        args+=(-v "$pair")
    done
    awk "${args[@]}" "BEGIN { exit !($1) }"
}

@test "--json: every member, numbers that are consistent" {
    plan m.db plan.json "3*$cpu" causal zigzag 100,0,200 "${shape[@]}" --sub-blocks 2
    run --separate-stderr ring 3 --json --plan plan.json --verify
    echo "$stderr"
    [ "$status" -eq 0 ]
    [ "$(wc -l <<<"$output")" -eq 1 ]
    line=$output
    for key in schema fingerprint strategy seq_len mask layout tokens makespan_ms interval_ms min_ms repeats \
        predicted_ms predicted_interval_ms prediction_error bound_ms efficiency predicted_even_ms transport \
        transport_version buffers sub_blocks barrier provider kernel verified max_error ranks; do
        [[ "$line" == *"\"$key\":"* ]]
    done
    for key in rank device limit host tokens compute_ms wait_ms transfer_ms total_ms predicted_compute_ms \
        predicted_ms max_error error_bound single_device_error lse_error rows_compared; do
        [ "$(grep -o "\"$key\":" <<<"${line#*\"ranks\":}" | wc -l)" -eq 3 ]
    done
    [[ "$line" == *'"seq_len":300,"mask":"causal","layout":"zigzag","tokens":[100,0,200],'* ]]
    [[ "$line" == *'"transport":"mpi",'*'"buffers":2,"sub_blocks":2,"barrier":false,"provider":"cpu-blas",'* ]]
    [ "$(grep -o '"fingerprint":"[0-9a-f]*"' plan.json)" = "$(grep -o '"fingerprint":"[0-9a-f]*"' <<<"$line")" ]
    most=0 worst=0
    for rank in 0 1 2; do
        one=$(of_rank $rank)
        total=$(value total_ms "$one") worst_here=$(value max_error "$one")
        holds 'c >= 0 && w >= 0 && x >= 0 && t - c - w < 1e-6 && c + w - t < 1e-6' t="$total" \
            c="$(value compute_ms "$one")" w="$(value wait_ms "$one")" x="$(value transfer_ms "$one")"
        holds 'p >= c' p="$(value predicted_ms "$one")" c="$(value predicted_compute_ms "$one")"
        holds 'e <= b' e="$worst_here" b="$(value error_bound "$one")"
        most=$(awk -v a="$most" -v b="$total" 'BEGIN { print (a > b ? a : b) }')
        worst=$(awk -v a="$worst" -v b="$worst_here" 'BEGIN { print (a > b ? a : b) }')
    done
    # One pass: its makespan is the slowest rank's, and the interval is that.
    ms=$(sed 's/.*"makespan_ms":\([^,]*\).*/\1/' <<<"$line")
    holds 'a > 0 && a / b < 1.0001 && b / a < 1.0001' a="$ms" b="$most"
    holds 'a == b' a="$(sed 's/.*"min_ms":\([^,]*\).*/\1/' <<<"$line")" b="$ms"
    holds 'e / w < 1.0001 && w / e < 1.0001' w="$worst" e="$(sed 's/.*"max_error":\([^,]*\),"ranks".*/\1/' <<<"$line")"
    bound=$(sed 's/.*"bound_ms":\([^,]*\).*/\1/' <<<"$line")
    holds 'd < 1e-9 && d > -1e-9' d="$(awk -v b="$bound" -v m="$ms" -v e="$(sed 's/.*"efficiency":\([^,]*\).*/\1/' <<<"$line")" 'BEGIN { print e - b / m }')"
    # The rank without tokens.
    [[ "$(of_rank 1)" == *'"tokens":0,"compute_ms":0,"wait_ms":0,"transfer_ms":0,"total_ms":0,'* ]]
    # What was predicted is what the plan says.
    [ "$(grep -o '"makespan_ms":[^,]*' plan.json | cut -d: -f2)" = "$(grep -o '"predicted_ms":[^,]*' <<<"$line" | head -n 1 | cut -d: -f2)" ]
}

@test "--json: several repetitions, without verification, a plan without predictions" {
    long_test
    plan m.db plan.json "2*$cpu" full contiguous 100,200 "${shape[@]}"
    run --separate-stderr ring 2 --json --plan plan.json --repeat 7
    line=$output
    [[ "$line" == *'"repeats":7,'*'"verified":null,"max_error":null,"ranks"'* ]]
    [[ "$line" != *rows_compared* ]]
    holds 'lo <= m && m <= hi && min <= lo' m="$(sed 's/.*"makespan_ms":\([^,]*\).*/\1/' <<<"$line")" \
        lo="$(sed 's/.*"interval_ms":\[\([^,]*\),.*predicted_interval.*/\1/' <<<"$line")" \
        hi="$(sed 's/.*"interval_ms":\[[^,]*,\([^]]*\)\],"min_ms.*/\1/' <<<"$line")" \
        min="$(sed 's/.*"min_ms":\([^,]*\).*/\1/' <<<"$line")"
    sed 's/,"fingerprint":"[0-9a-f]*"//
        s/"\(predicted_ms\|compute_ms\|makespan_ms\|bound_ms\|even_ms\|drop_ms\)":[^,]*/"\1":null/g
        s/"interval_ms":\[[^]]*\]/"interval_ms":[null,null]/' plan.json >bare.json
    run --separate-stderr ring 2 --json --plan bare.json
    echo "$stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *'"predicted_ms":null,"predicted_interval_ms":[null,null],"prediction_error":null,'* ]]
    run --separate-stderr ring 2 --plan bare.json
    [[ "$output" != *nan* ]]
    [[ "$output" != *predicted\ * ]]
}

@test "text: the ranks, the makespan beside the prediction, what was verified" {
    plan m.db plan.json "$ranks" causal zigzag 100,200 "${shape[@]}"
    run --separate-stderr ring 2 --plan plan.json --verify
    [ "$status" -eq 0 ]
    [[ "${lines[0]}" == RANK*DEVICE*LIMIT*TOKENS*COMPUTE_MS*WAIT_MS*TRANSFER_MS*TOTAL_MS*PREDICTED_MS ]]
    [[ "${lines[2]}" == *"1 $cpu cpu:50"*" 200 "* ]]
    [[ "$output" == *"given, 300 tokens, causal mask, zigzag layout: measured "*" ms (95 %: "*", 1 pass"*"), predicted "* ]]
    [[ "$output" == *"mpi ("*"), kernel cpu-blas"* ]]
    [[ "$output" == *"verified: "*" rows, O within "*" (bound "* ]]
    [ -z "$stderr" ]
}

@test "the same numbers in a German locale" {
    long_test
    plan m.db plan.json "2*$cpu" causal zigzag 100,200 "${shape[@]}"
    locale -a | grep -qi '^de_DE.utf-\?8$' || skip "no locale de_DE.UTF-8"
    LC_ALL=de_DE.UTF-8 run --separate-stderr ring 2 --json --plan plan.json --warm-up 0.1 --max-time 2.5
    [ "$status" -eq 0 ]
    [[ "$output" =~ \"makespan_ms\":[0-9]+\.[0-9]+,\"interval_ms\" ]]
}

@test "standard input is one rank's plan; an array of plans is several" {
    long_test
    plan m.db one.json "1*$cpu" causal zigzag 100 "${shape[@]}"
    run --separate-stderr ring 1 --json --plan - <one.json
    [ "$status" -eq 0 ]
    [[ "$output" == '{"schema":1,'*'"tokens":[100],'*'"transport":"",'* ]]
    hcp-plan compare --db m.db --ranks "2*$cpu" --seq-len 1K --mask causal --json "${shape[@]}" >array.json
    run --separate-stderr ring 2 --json --plan array.json
    [ "$status" -eq 0 ]
    [ "$(results | sed 's/.*"strategy":"\([a-z]*\)".*/\1/' | xargs)" = "even nominal proportional lut poly best" ]
    plan m.db two.json "2*$cpu" full contiguous 100,50 "${shape[@]}"
    run --separate-stderr ring 2 --plan array.json --plan two.json
    [ "$(grep -c zigzag <<<"$output")" -eq 6 ]
    [ "$(grep -c '^given .* 150 full .* 100/50' <<<"$output")" -eq 1 ]
    [ ! -e hcp.db ] # plan files, no --db: nothing is stored
}

@test "a question: every strategy, and what lands in the database" {
    run --separate-stderr ring 2 --json "${question[@]}" --strategy all --verify
    [ "$status" -eq 0 ]
    [ "$(results | sed 's/.*"strategy":"\([a-z]*\)".*/\1/' | xargs)" = "even nominal proportional lut poly best" ]
    [ "$(results | grep -c '"verified":true')" -eq 6 ]
    # As the planner says: two ranks ask the library, and get what the command prints.
    hcp-plan split --db m.db --ranks "$ranks" --seq-len 1K --mask causal --layout zigzag --json "${shape[@]}" >best.json
    line=$(results | grep '"strategy":"best"')
    [ "$(grep -o '"fingerprint":"[0-9a-f]*"' best.json)" = "$(grep -o '"fingerprint":"[0-9a-f]*"' <<<"$line")" ]
    run --separate-stderr hcp-profile show --rings --json --db m.db
    [ "$status" -eq 0 ]
    rings=$(sed 's/{"uid"/\n&/g' <<<"$output" | grep '^{"uid"')
    [ "$(wc -l <<<"$rings")" -eq 6 ]
    row=$(grep '"strategy":"best"' <<<"$rings")
    for key in makespan_ms predicted_ms min_ms bound_ms efficiency max_error; do
        a=$(sed 's/.*"transport":/&/; s/^\(.*\)"ranks":.*/\1/; s/.*"'$key'":\([^,}]*\).*/\1/' <<<"$row")
        b=$(sed 's/"ranks":.*//; s/.*"'$key'":\([^,}]*\).*/\1/' <<<"$line")
        holds 'a == b || (a / b < 1.000001 && b / a < 1.000001)' a="$a" b="$b"
    done
    [[ "$row" == *'"mask":"causal","layout":"zigzag"'*'"transport":"mpi","provider":"cpu-blas"'*'"seq_len":1024'*'"repeats":1'* ]]
    [ "$(grep -o '"limit":"[^"]*"' <<<"$row" | xargs)" = "limit: limit:cpu:50" ]
    [ "$(grep -o '"tokens":[0-9]*' <<<"$row" | xargs)" = \
        "$(sed 's/.*"tokens":\[\([0-9]*\),\([0-9]*\)\].*/tokens:\1 tokens:\2/' <<<"$line")" ]
}

@test "--no-store; a plan file with --db; a database made for it" {
    long_test
    rings() {
        hcp-profile show --rings --json --db "$1" | grep -o '"uid"' | wc -l
    }
    run ring 2 "${question[@]}" --no-store
    [ "$status" -eq 0 ]
    [ "$(rings m.db)" -eq 0 ]
    plan m.db plan.json "2*$cpu" causal zigzag 100,200 "${shape[@]}"
    run ring 2 --plan plan.json --db new.db
    [ "$status" -eq 0 ]
    [ "$(rings new.db)" -eq 1 ]
    run ring 2 --plan plan.json --db new.db
    [ "$(rings new.db)" -eq 2 ]
    run ring 2 --plan plan.json --db other.db --no-store
    [ ! -e other.db ]
    # Of one rank there is one split, and the best found is the given: one row.
    plan m.db one.json "$cpu" full contiguous 100 "${shape[@]}"
    run mpirun -np 1 hcp-ring search --warm-up 0 --repeat 1 --plan one.json --db m.db
    [ "$status" -eq 0 ]
    [ "$(grep -c 'best found' <<<"$output")" -eq 2 ]
    [ "$(rings m.db)" -eq 1 ]
}

@test "--any-device: rows have the device and limit that ran, and no predictions" {
    long_test
    add_models other.db fp32 1 2 1 32 mps:50
    hcp-profile export --db other.db --format csv | sed "s/$cpu/other-gpu/g" | hcp-profile import --db gpu.db -
    hcp-plan fit --quiet --db gpu.db
    plan gpu.db plan.json "2*other-gpu@mps:50" full contiguous 100,200 "${shape[@]}"
    run --separate-stderr ring 2 --plan plan.json --db rows.db --any-device --provider cpu-blas
    [ "$status" -eq 0 ]
    run hcp-profile show --rings --json --db rows.db
    [ "$(grep -o '"predicted_ms":[^,}]*' <<<"$output" | sort -u)" = '"predicted_ms":null' ]
    [ "$(grep -o '"limit":"[^"]*"' <<<"$output" | sort -u)" = '"limit":""' ]
    [[ "$output" == *'"device":"'"$cpu"'"'* ]]
}

@test "options that change the plan are said, and stored" {
    long_test
    plan m.db plan.json "3*$cpu" causal zigzag 100,100,100 "${shape[@]}"
    run --separate-stderr ring 3 --json --plan plan.json --db x.db --buffers 0 --sub-blocks 3 --barrier --seed 5
    [ "$status" -eq 0 ]
    [[ "$output" == *'"buffers":0,"sub_blocks":3,"barrier":true,'* ]]
    run hcp-profile show --rings --json --db x.db
    [[ "$output" == *'"buffers":0,"sub_blocks":3,"barrier":true,'* ]]
}

@test "search: finds a split as fast as any given, and says how they compare" {
    run --separate-stderr timeout -k 5 600 mpirun -np 2 hcp-ring search --warm-up 0 --repeat 3 \
        "${question[@]}" --strategy even,best --json
    echo "$stderr"
    [ "$status" -eq 0 ]
    # The given, what was tried, and the best found comes last.
    notes=$(results | sed 's/.*"note":"\([^"]*\)"}.*/\1/')
    [ "$(grep -c 'x best found$' <<<"$notes")" -eq 2 ]
    [[ "$(tail -n 1 <<<"$notes")" == "best found of "*" measured" ]]
    best=$(results | tail -n 1 | sed 's/.*"makespan_ms":\([^,]*\).*/\1/')
    while read -r ms; do
        holds 'best <= ms' best="$best" ms="$ms"
    done < <(results | grep 'x best found"' | sed 's/.*"makespan_ms":\([^,]*\).*/\1/')
    while read -r ratio; do
        holds 'r >= 1' r="$ratio"
    done < <(sed -n 's/x best found$//p' <<<"$notes")
    n=$(sed -n 's/^best found of \([0-9]*\) measured$/\1/p' <<<"$notes")
    [ "$n" -ge 4 ]
    # Every split measured adds up, and none was measured twice.
    [ "$(results | sed 's/.*"tokens":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/' | awk '{ print $1 + $2 }' | sort -u)" = 1024 ]
    [ "$(results | grep '"note":"tried"' | sed 's/.*"tokens":\(\[[^]]*\]\).*/\1/' | sort | uniq -d | wc -l)" -eq 0 ]
}

@test "a capped plan: run as it is, refused with more to hold, kept by the search" {
    # 256 bytes a token and layer: 256 tokens of 4 layers, and the other rank's block.
    cap=$((256 * 4 * 256 + 256 * 768))
    hcp-plan split --db m.db --ranks "2*$cpu" --seq-len 1K --layout zigzag --mask causal \
        --tile 32 --layers 4 --memory 1=$cap --json "${shape[@]}" >capped.json
    grep -q '"memory_bytes":'$cap'}' capped.json
    run --separate-stderr ring 2 --json --plan capped.json --verify
    [ "$status" -eq 0 ]
    [[ "$output" == *'"tokens":[768,256],'*'"verified":true,'* ]]
    run --separate-stderr ring 2 --plan capped.json --sub-blocks 4
    [ "$status" -eq 3 ]
    [[ "$stderr" == *"--sub-blocks 4 the plan does not keep within its caps: rank 1 needs 524288 bytes"* ]]
    run --separate-stderr ring 2 --plan capped.json --buffers 1 --barrier
    [ "$status" -eq 0 ]
    run --separate-stderr timeout -k 5 600 mpirun -np 2 hcp-ring search --warm-up 0 --repeat 1 \
        --json --plan capped.json
    [ "$status" -eq 0 ]
    [ "$(results | grep -c tokens)" -gt 2 ]
    [ "$(results | sed 's/.*"tokens":\[[0-9]*,\([0-9]*\)\].*/\1/' | sort -n | tail -n 1)" -eq 256 ]
}

@test "whole layers: products around the ring, as planned, checked, in every way of running" {
    hcp-plan split --db m.db --ranks "2*$cpu" --seq-len 1K --layout zigzag --mask causal \
        --linear-us 0.5+40:2 --json "${shape[@]}" >layer.json
    layer=(--hidden 96 --ffn 160)
    for way in "" "--sub-blocks 3" --barrier; do
        # shellcheck disable=SC2086 # options
        run --separate-stderr ring 2 --json --plan layer.json "${layer[@]}" $way --verify --db none.db
        echo "$stderr"
        [ "$status" -eq 0 ]
        line=$output
        [[ "$line" == *'"layer":"hidden 96, ffn 160",'*'"verified":true,'* ]]
        for rank in 0 1; do
            one=$(of_rank $rank)
            linear=$(value linear_ms "$one") ready=$(value ready_ms "$one")
            # Steps begin after what makes the rank's own keys and values, and the pass
            # ends after what follows the last one.
            last=$(grep -o '"fin_ms":[^}]*' <<<"$one" | tail -n 1 | cut -d: -f2)
            holds 'l > 0 && c > l && r > 0 && t > f' l="$linear" c="$(value compute_ms "$one")" \
                r="$ready" t="$(value total_ms "$one")" f="$last"
            holds 'p == 0.04 + 0.0025 * n' p="$(value predicted_linear_ms "$one")" \
                n="$(value tokens "$one")"
        done
    done
    [ ! -e none.db ] # rows are of attention
    # What is predicted of whole layers is no prediction of attention, and the other way.
    run --separate-stderr ring 2 --json --plan layer.json "${layer[@]}"
    [ "$(value predicted_ms "$output")" != null ]
    [ "$(value bound_ms "$output")" != null ]
    run --separate-stderr ring 2 --json --plan layer.json
    [[ "$output" == *'"predicted_ms":null,'*'"bound_ms":null,'* && "$output" != *linear_ms* ]]
    plan m.db plain.json "3*$cpu" causal zigzag 400,0,112 "${shape[@]}"
    run --separate-stderr ring 3 --json --plan plain.json "${layer[@]}" --mlp plain
    [[ "$output" == *'"predicted_ms":null,'*'"layer":"hidden 96, ffn 160, plain",'* ]]
    line=$output
    holds 'none == 0 && some > 0' none="$(value linear_ms "$(of_rank 1)")" \
        some="$(value linear_ms "$(of_rank 2)")" # no tokens, no products
    run --separate-stderr ring 2 --plan layer.json "${layer[@]}"
    [[ "${lines[0]}" == *"LINEAR_MS PREDICTED_L" ]]
    # A model's heads must be the plan's.
    run --separate-stderr ring 2 --plan layer.json --model llama-3-8b
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"llama-3-8b has 32/8 heads x 128, the plan 2/1 x 32"* ]]
    run ring 2 --plan layer.json --hidden 96
    [ "$status" -eq 2 ]
    run ring 2 --plan layer.json --model llama-3-8b --ffn 5
    [ "$status" -eq 2 ]
    run --separate-stderr timeout -k 5 600 mpirun -np 2 hcp-ring search --warm-up 0 --repeat 1 \
        --json --plan layer.json "${layer[@]}" --db m.db
    [ "$status" -eq 0 ]
    [ "$(results | grep -c '"predicted_linear_ms"')" -gt 2 ]
}

@test "search of a plan file without models, in text" {
    plan m.db plan.json "2*$cpu" causal contiguous 400,112 "${shape[@]}"
    run --separate-stderr timeout -k 5 600 mpirun -np 2 hcp-ring search --warm-up 0 --repeat 3 --plan plan.json --verify
    echo "$stderr"
    [ "$status" -eq 0 ]
    [[ "${lines[0]}" == STRATEGY*NOTE ]]
    [ "$(grep -c '400/112 .*x best found' <<<"$output")" -eq 1 ]
    [ "$(grep -c 'best found of [0-9]* measured' <<<"$output")" -eq 1 ]
}

@test "search: plans of equal tokens that are run differently are not one measurement" {
    plan m.db whole.json "2*$cpu" full contiguous 32,32 "${shape[@]}"
    plan m.db pieces.json "2*$cpu" full contiguous 32,32 --sub-blocks 2 --tile 16 "${shape[@]}"
    run --separate-stderr timeout -k 5 600 mpirun -np 2 hcp-ring search --warm-up 0 --repeat 1 --json \
        --plan whole.json --plan pieces.json
    echo "$stderr"
    [ "$status" -eq 0 ]
    [ "$(results | grep 'x best found"' | grep -o '"sub_blocks":[0-9]*' | xargs)" = "sub_blocks:1 sub_blocks:2" ]
}

@test "a plan file without its fingerprint has one" {
    plan m.db plan.json "2*$cpu" causal zigzag 100,200 "${shape[@]}"
    sed 's/,"fingerprint":"[0-9a-f]*"//' plan.json >bare.json
    run --separate-stderr ring 2 --plan bare.json --json
    [ "$status" -eq 0 ]
    [ "$(value fingerprint "$output")" = "$(value fingerprint "$(cat plan.json)")" ]
}

@test "--local: says what it sets, and gives the same" {
    long_test
    plan m.db plan.json "2*$cpu" causal zigzag 100,200 "${shape[@]}"
    unset "${!OMPI_@}"
    run --separate-stderr timeout 600 hcp-ring --local 2 --plan plan.json --json --warm-up 0 --repeat 1
    echo "$stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == '{"schema":1,'* ]]
    [[ "$stderr" == "hcp-ring: --local 2: mpirun -np 2"* ]]
    [ "$(id -u)" -ne 0 ] || [[ "$stderr" == *"--allow-run-as-root (user id 0)"* ]]
    run --separate-stderr timeout 600 hcp-ring search --local=2 --plan plan.json --warm-up 0 --repeat 1
    [ "$status" -eq 0 ]
    [[ "$output" == *"best found of "* ]]
    nothing_left
}

@test "a rank 0 without tokens does not run ahead of the others while they warm up" {
    long_test
    plugin=$top_builddir/tests/.libs/plugin-faulty.so
    [ -e "$plugin" ] || skip "no plug-ins"
    # Rank 0 asks for passes for a tenth of a second, about as long as rank 1 computes one: it
    # is to compute some, not as many as rank 0 can ask for until then.
    big=(--dtype fp32 --batch 1 --heads 8 --kv-heads 4 --head-dim 64)
    add_models big.db fp32 1 8 4 64 none 2K
    plan big.db plan.json "2*$cpu" full contiguous 0,512 "${big[@]}"
    HCP_FAULTY=nth:40 run --separate-stderr timeout 600 hcp-ring --local 2 --plan plan.json \
        --kernel "$plugin" --repeat 2 --timeout 300
    echo "$stderr"
    [ "$status" -eq 0 ]
}

@test "search of a plan file with a database that is not there yet: made for the results" {
    plan m.db plan.json "2*$cpu" full contiguous 100,156 "${shape[@]}"
    run --separate-stderr timeout -k 5 600 hcp-ring search --local 2 --plan plan.json --db new.db --repeat 1 --warm-up 0
    echo "$stderr"
    [ "$status" -eq 0 ]
    [ "$(hcp-profile show --db new.db --rings --json | grep -o '"makespan_ms"' | wc -l)" -ge 1 ]
}
