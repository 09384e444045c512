#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-ring runs steps of decode: partial results are merged as the plan says, and right.

bats_require_minimum_version 1.5.0
load ring-lib

setup_file() {
    export TMPDIR=$BATS_FILE_TMPDIR
    local raw=$TMPDIR/raw.db
    hcp-profile run --db "$raw" --device "synthetic:name=$(cpu_device),a=2e-6,b=1e-4,c=5e-5,f=0.02" \
        --limits none,cpu:50 --dtype fp32 --batch 3 --heads 4 --kv-heads 2 --head-dim 32 \
        --phase decode --q-lens 1 --kv-lens 64,256,1K,2K >/dev/null 2>&1
    hcp-profile export --db "$raw" --format csv 2>/dev/null | sed 's/,synthetic,fp32,/,cpu-blas,fp32,/' |
        hcp-profile import --db "$TMPDIR/d.db" - >/dev/null 2>&1
    hcp-plan fit --quiet --db "$TMPDIR/d.db"
}

setup() {
    ring_setup
    cp "$BATS_FILE_TMPDIR/d.db" .
    shape=(--db d.db --phase decode --batch 3 --heads 4 --kv-heads 2 --head-dim 32 --dtype fp32)
}

decode_plan() { # decode_plan FILE N TOKENS [OPTION...]
    local file=$1 n=$2 tokens=$3
    shift 3
    hcp-plan split "${shape[@]}" --ranks "$n*$cpu" --tokens "$tokens" --seq-len $((${tokens//,/+})) \
        --extrapolate --json "$@" >"$file"
}

search() { # search N OPTION...
    timeout -k 5 600 mpirun -np "$1" hcp-ring search --warm-up 0 --repeat 3 --max-time 0.01 "${@:2}"
}

@test "every schedule, batches, shared KV heads, ranks without tokens: all ranks have the result" {
    for tokens in 500,0,524 100,0,37,300,13 10,20,30,40,50,850; do
        n=$(tr -cd , <<<"$tokens" | wc -c)
        files=()
        for merge in ring doubling gather; do
            decode_plan $merge.json $((n + 1)) $tokens --merge $merge
            files+=(--plan $merge.json)
        done
        run --separate-stderr ring $((n + 1)) --verify --json "${files[@]}"
        echo "$output$stderr"
        [ "$status" -eq 0 ]
        [ "$(grep -o '"verified":true' <<<"$output" | wc -l)" -eq 3 ]
        # Three batches of four heads on each rank with tokens, none on the others.
        with=$(tr , '\n' <<<"$tokens" | grep -vcx 0)
        [ "$(grep -o '"rows_compared":12' <<<"$output" | wc -l)" -eq $((3 * with)) ]
        [ "$(grep -o '"rows_compared":0' <<<"$output" | wc -l)" -eq $((3 * (n + 1 - with))) ]
        for merge in ring doubling gather; do
            [[ "$output" == *'"phase":"decode","batch":3,"merge":"'$merge'","predicted_merge_ms":'* ]]
        done
    done
    decode_plan one.json 2 0,300
    run --separate-stderr ring 2 --verify --plan one.json
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *"decode of batch 3, 300 keys, nothing to merge: measured"*"verified: 12 rows"* ]]
    run --separate-stderr ring 2 --json --plan one.json
    [[ "$output" == *'"merge":"none"'*'"ranks":[{"rank":0'*'"compute_ms":0,"wait_ms":0,"transfer_ms":0,"total_ms":0'* ]]
}

@test "a question, its strategies, text; the database stays as it is" {
    before=$(cksum d.db)
    run --separate-stderr ring 2 "${shape[@]}" --ranks "$cpu,$cpu" --seq-len 1K --strategy even,best \
        --merge gather --verify
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    [ "$(grep -cE '^(even|best) +1024' <<<"$output")" -eq 2 ]
    [ "$(grep -c '^verified: 24 rows' <<<"$output")" -eq 2 ]
    [ "$(cksum d.db)" = "$before" ]
    run --separate-stderr ring 2 "${shape[@]}" --ranks "$cpu,$cpu" --seq-len 1K --layout zigzag
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"a decode plan has contiguous shares"* ]]
}

@test "a wrong partial result is found on every rank" {
    decode_plan p.json 3 200,100,90
    plugin=$top_builddir/tests/.libs/plugin-faulty.so
    [ -e "$plugin" ] || skip "no plug-ins"
    HCP_FAULTY=wrong run --separate-stderr ring 3 --verify --plan p.json --kernel "$plugin"
    echo "$output$stderr"
    [ "$status" -eq 1 ]
    [ "$(grep -c '^NOT VERIFIED: rank' <<<"$output")" -eq 3 ]
}

@test "search measures every hundredth of two ranks, and moves keys between more" {
    decode_plan p.json 2 512,512 --tile 1
    run --separate-stderr search 2 --plan p.json
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    # 0, 10, 20, 31 .. 1024 keys; 512 is the plan.
    [[ "$output" == *"best found of 101 measured"* ]]
    [[ "$output" == *"x best found"* ]]
    decode_plan q.json 3 400,300,324 --merge ring
    run --separate-stderr search 3 --plan q.json --json
    [ "$status" -eq 0 ]
    [ "$(grep -o '"note":"tried"' <<<"$output" | wc -l)" -ge 3 ]
    # Caps are kept.
    decode_plan c.json 2 512,512 --tile 1 --max-tokens 0=600,1=600
    run --separate-stderr search 2 --plan c.json
    [[ "$output" == *"best found of 17 measured"* ]]
}

@test "ranks that do not agree; one that is killed is named" {
    decode_plan a.json 2 200,100 --merge ring
    decode_plan b.json 2 200,100 --merge gather
    run --separate-stderr mpirun -np 1 hcp-ring --plan a.json : -np 1 hcp-ring --plan b.json
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"the ranks do not agree: "*"merge ring on rank 0, but "*"merge gather on rank 1"* ]]
    plugin=$top_builddir/tests/.libs/plugin-faulty.so
    [ -e "$plugin" ] || skip "no plug-ins"
    apart alone
    timeout -k 5 300 mpirun -np 2 ./apart hcp-ring --plan a.json --kernel "$plugin" --repeat 1000000 \
        --max-time 600 >launcher 2>&1 3>&- &
    launcher=$!
    until_computing 2
    kill -KILL "$(cat marks/pid-1)"
    wait $launcher || true
    cat out err launcher
    [ ! -s out ]
    [ "$(cat code-0)" -eq 1 ]
    grep -q 'hcp-ring: rank 0: .*rank 1' err
    nothing_left
}

# transition_plans: from.json of prefill, to.json of decode, on four ranks, and what to move.
transition_plans() {
    add_models d.db fp32 1 4 2 32 none 256
    plan d.db from.json "4*$cpu" causal zigzag 700,100,0,200 --db d.db "${shape[@]:6}"
    decode_plan to.json 4 310,250,240,200 --layers 3 --link-alpha-us 10 --link-gbps 1
    hcp-plan transition --db d.db --from from.json --to to.json --extrapolate --json >moves.json
}

@test "transition: KV goes where the new plan wants it, by the plan's messages" {
    transition_plans
    run --separate-stderr mpirun -np 4 hcp-ring transition --from from.json --to to.json --moves moves.json \
        --verify --repeat 2 --warm-up 0 --json
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *'"decision":"open","seq_len":1000,"batch":3,"layers":3,"move_tokens":390,"move_bytes":1797120,'* ]]
    [[ "$output" == *'"repeats":2,"predicted_move_ms":1.81712,'*'"verified":true,'* ]]
    [[ "$output" == *'"moves":[{"from":0,"to":1,"tokens":150,"bytes":691200,'*'{"from":0,"to":2,"tokens":240,'* ]]
    [[ "$output" == *'"sent_bytes":1797120,"received_bytes":0,'*'"sent_bytes":0,"received_bytes":691200,'* ]]
    for tokens in 310 250 240 200; do
        [[ "$output" == *'"tokens_compared":'$tokens,* ]]
    done
    [ "$(grep -o '"predicted_stay_ms":[^,]*' <<<"$output" | cut -d: -f2)" = \
        "$(grep -o '"stay_ms":[^,]*' moves.json | cut -d: -f2)" ]
    # Factors of the plan's ranks count where the library is asked, too.
    decode_plan slow.json 4 310,250,240,200 --layers 3 --time-scale 0=3
    hcp-plan transition --db d.db --from from.json --to slow.json --extrapolate --json >slow-moves.json
    run --separate-stderr mpirun -np 4 hcp-ring transition --db d.db --from from.json --to slow.json --extrapolate \
        --repeat 1 --warm-up 0 --json
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    [ "$(grep -o '"predicted_stay_ms":[^,]*' <<<"$output" | cut -d: -f2)" = \
        "$(grep -o '"stay_ms":[^,]*' slow-moves.json | cut -d: -f2)" ]
    [ "$(grep -o '"stay_ms":[^,]*' slow-moves.json)" != "$(grep -o '"stay_ms":[^,]*' moves.json)" ]
    # The library says the same; two ranks that leave the ring; decode to decode.
    decode_plan gather.json 4 500,0,500,0 --merge gather
    run --separate-stderr mpirun -np 4 hcp-ring transition --db d.db --from to.json --to gather.json --extrapolate \
        --link-gbps 2 --verify --repeat 2 --warm-up 0
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *"verified: all numbers of the KV of 1000 tokens, and a decode step"* ]] ||
        [[ "$output" == *"do not move"* ]]
}

@test "transition: what does not pay stays; wrong steps, files and options are refused" {
    long_test
    transition_plans
    run --separate-stderr mpirun -np 4 hcp-ring transition --db d.db --from from.json --to to.json --extrapolate --steps 1
    [ "$status" -eq 0 ]
    [[ "$output" == "do not move: it does not pay; "* ]]
    run --separate-stderr mpirun -np 4 hcp-ring transition --db d.db --from to.json --to to.json --extrapolate --json
    [ "$status" -eq 0 ]
    [[ "$output" == *'"decision":"stay"'*'"move_ms":null,'* ]]
    plugin=$top_builddir/tests/.libs/plugin-faulty.so
    if [ -e "$plugin" ]; then
        HCP_FAULTY=wrong run --separate-stderr mpirun -np 4 hcp-ring transition --from from.json --to to.json \
            --moves moves.json --verify --repeat 1 --kernel "$plugin"
        [ "$status" -eq 1 ]
        [[ "$output" == *"NOT VERIFIED: rank 0: a decode step: "* ]]
    fi
    refuse() { # refuse CODE TEXT OPTION...
        run --separate-stderr mpirun -np 4 hcp-ring transition "${@:3}"
        echo "$stderr"
        [ "$status" -eq "$1" ]
        [[ "$stderr" == *"$2"* ]]
        [ -z "$output" ]
    }
    sed 's/"from":0,"to":1/"from":0,"to":3/' moves.json >bad.json
    refuse 1 "does not make the shares of --from those of --to" --from from.json --to to.json --moves bad.json
    sed 's/\[\[850,150\]\]/[[849,150]]/' moves.json >bad.json
    refuse 1 "would be on no rank or on two" --from from.json --to to.json --moves bad.json
    sed 's/\[\[850,150\]\]/[[850,151]]/' moves.json >bad.json
    refuse 1 "a segment outside the sequence" --from from.json --to to.json --moves bad.json
    sed 's/"move_bytes":1797120/"move_bytes":7/' moves.json >bad.json
    refuse 1 "or so many bytes" --from from.json --to to.json --moves bad.json
    sed 's/"decision":"open"/"decision":"stay"/' moves.json >bad.json
    refuse 1 "not what it decides to move" --from from.json --to to.json --moves bad.json
    sed 's/"bytes":691200/"bytes":691201/' moves.json >bad.json
    refuse 1 "bytes that are not those" --from from.json --to to.json --moves bad.json
    sed 's/\[\[850,150\]\]/[[600,50],[850,100]]/' moves.json >bad.json
    refuse 1 "not on the rank that sends it" --from from.json --to to.json --moves bad.json
    refuse 1 "bad.json is for another plan than that of --from" --from to.json --to to.json --moves bad.json
    echo '{"schema":1' >bad.json
    refuse 1 "bad.json is not what to move" --from from.json --to to.json --moves bad.json
    refuse 1 "cannot open none.json" --from from.json --to to.json --moves none.json
    refuse 2 "--to is a plan of prefill" --db d.db --from from.json --to from.json
    refuse 2 "give --from and --to" --from from.json
    refuse 2 "leave --plan, --ranks, --strategy and --seq-len out" --from from.json --to to.json --plan to.json
    refuse 2 "--moves is an answer" --from from.json --to to.json --moves moves.json --steps 3
    refuse 1 "no profile database" --from from.json --to to.json
    run --separate-stderr mpirun -np 2 hcp-ring --plan to.json --from from.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"are of 'hcp-ring transition'"* ]]
}
