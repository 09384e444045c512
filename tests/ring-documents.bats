#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-ring runs plans of packed documents: each sees itself alone, cut ones go from rank to
# rank.

bats_require_minimum_version 1.5.0
load ring-lib

setup_file() {
    export TMPDIR=$BATS_FILE_TMPDIR
    add_models "$TMPDIR/m.db" fp32 1 4 2 32 none,cpu:50
}

setup() {
    ring_setup
    cp "$BATS_FILE_TMPDIR/m.db" .
}

pack() { # pack FILE RANKS MASK LENGTHS [OPTION...]
    hcp-plan split --db m.db --ranks "$2" --mask "$3" --documents "$4" --heads 4 --kv-heads 2 --head-dim 32 \
        --dtype fp32 --cut-gain 0 --tile 16 --extrapolate --json "${@:5}" >"$1"
}
cuts() { # documents that a plan cuts
    sed 's/.*"cut_documents":\([0-9]*\).*/\1/' "$1"
}

@test "whole and cut documents, both masks, a rank without any: every document is right" {
    pack one.json "4*$cpu" causal 1000
    pack long.json "4*$cpu" causal 700,30,650,1,90,8*17
    pack many.json "2*$cpu,2*$cpu@cpu:50" causal 500,300,20,1,77,130,64*5
    pack full.json "4*$cpu" full 500,300,20,1,77,130
    pack few.json "4*$cpu" full 300,20
    [ "$(cuts one.json)" -eq 1 ]
    [ "$(cuts long.json)" -ge 1 ]
    [ "$(cuts full.json)" -eq 0 ]
    # A document on three ranks or more: its keys and values are passed on.
    [ "$(grep -o '"received_tokens":[0-9]*' one.json | grep -vc ':0$')" -ge 2 ]
    for file in one long full few; do
        run --separate-stderr ring 4 --verify --json --plan $file.json
        echo "$output$stderr"
        [ "$status" -eq 0 ]
        [[ "$output" == *'"verified":true'* ]]
        [[ "$output" == *'"documents":'*'"cut_documents":'"$(cuts $file.json)"* ]]
        [ "$(grep -o '"fingerprint":"[0-9a-f]*"' $file.json)" = "$(grep -o '"fingerprint":"[0-9a-f]*"' <<<"$output")" ]
        [ "$(grep -o '"makespan_ms":[^,]*' $file.json | cut -d: -f2)" = \
            "$(grep -o '"predicted_ms":[^,]*' <<<"$output" | head -n 1 | cut -d: -f2)" ]
    done
    # Two without tokens, which are not in the ring.
    [ "$(grep -o '"rows_compared":0' <<<"$output" | wc -l)" -eq 2 ]
    run --separate-stderr ring 4 --verify --plan many.json --plan one.json
    echo "$output$stderr"
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"the plans are for different ranks"* ]]
    run --separate-stderr ring 4 --verify --plan many.json
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *"70 documents of 1348 tokens, $(cuts many.json) cut, causal mask: measured "*"verified: "* ]]
}

@test "layers around it; nothing is stored; a wrong kernel is found" {
    pack p.json "2*$cpu" causal 300,100,200
    before=$(cksum m.db)
    run --separate-stderr ring 2 --plan p.json --db m.db --hidden 64 --ffn 96 --verify
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *LINEAR_MS*verified:* ]]
    [ "$(cksum m.db)" = "$before" ]
    plugin=$top_builddir/tests/.libs/plugin-faulty.so
    [ -e "$plugin" ] || skip "no plug-ins"
    pack cut.json "2*$cpu" causal 600,7 # wrong where it merges
    HCP_FAULTY=wrong run --separate-stderr ring 2 --verify --plan cut.json --kernel "$plugin"
    echo "$output$stderr"
    [ "$status" -eq 1 ]
    [[ "$output" == *"NOT VERIFIED: rank 1: "* ]]
}

@test "what is refused" {
    pack p.json "2*$cpu" causal 300,100,200
    refuse() { # refuse CODE TEXT FILE OPTION...
        run --separate-stderr ring 2 --plan "${@:3}"
        echo "$stderr"
        [ "$status" -eq "$1" ]
        [[ "$stderr" == *"$2"* ]]
        [ -z "$output" ]
    }
    for option in '--buffers 2' '--sub-blocks 2' --barrier; do
        # shellcheck disable=SC2086 # options are words
        refuse 2 "leave --buffers, --sub-blocks and --barrier out" p.json $option
    done
    run --separate-stderr mpirun -np 2 hcp-ring search --plan p.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"a plan is of documents"*"leave search out"* ]]
    sed 's/"makespan_ms":[0-9.e-]*/"makespan_ms":1/' p.json >edited.json
    refuse 1 "edited.json was changed after it was printed" edited.json
    sed 's/,"fingerprint":"[0-9a-f]*"//; s/"documents":3/"documents":4/' p.json >edited.json
    refuse 1 "print a plan with 'hcp-plan split --documents --json'" edited.json
    pack q.json "2*$cpu" causal 300,101,200
    run --separate-stderr mpirun -np 1 hcp-ring --plan p.json : -np 1 hcp-ring --plan q.json
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"the ranks do not agree: plan fingerprint "* ]]
}
