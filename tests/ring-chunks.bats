#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-ring runs plans of chunks: keys and values stay where a chunk's split has put them,
# each chunk's queries see all of them, and what travels is what the planner counts with.

bats_require_minimum_version 1.5.0
load ring-lib

setup_file() {
    export TMPDIR=$BATS_FILE_TMPDIR
    add_models "$TMPDIR/m.db" fp32 1 4 2 32 none 1K
}

setup() {
    ring_setup
    cp "$BATS_FILE_TMPDIR/m.db" .
    shape=(--dtype fp32 --heads 4 --kv-heads 2 --head-dim 32)
}

# planned FILE RANKS OPTION...: as hcp-plan prints it
planned() {
    hcp-plan split --db m.db --ranks "$2*$cpu" --mask causal "${shape[@]}" --extrapolate --json "${@:3}" >"$1"
}

# by_hand FILE LAYOUT SPLIT...: chunks of these tokens on the ranks (40,0,7), without a word
# of times; dtype and heads are those of $hand.
hand='"dtype":"fp32","heads":4,"kv_heads":2,"head_dim":32'
by_hand() {
    awk -v device="$cpu" -v layout="$2" -v shape="$hand" -v list="${*:3}" '
        function run(r, at, len) {
            if (len > 0) runs[r] = runs[r] (runs[r] ? "," : "") "[" at + 0 "," len "]"
        }
        BEGIN {
            stripes = 3
            n_chunks = split(list, chunk, " ")
            n = split(chunk[1], q, ",")
            for (k = 1; k <= n_chunks; k++) {
                split(chunk[k], q, ",")
                front = from = offset
                back = 0
                split("", runs)
                for (r = 1; r <= n; r++) back += q[r]
                tokens = back
                back += offset
                for (t = 0; t < (layout == "striped" ? stripes : 1); t++)
                    for (r = 1; r <= n; r++) {
                        part = q[r] - (layout == "zigzag" ? int(q[r] / 2) : 0)
                        if (layout == "striped") part = int(q[r] / stripes) + (t < q[r] % stripes)
                        run(r, front, part)
                        front += part
                        if (layout == "zigzag") { back -= int(q[r] / 2); run(r, back, int(q[r] / 2)) }
                    }
                out = out sprintf("%s{\"offset\":%d,\"tokens\":%d,\"layout\":\"%s\",\"ranks\":[",
                    (k > 1 ? "," : ""), offset, tokens, layout)
                for (r = 1; r <= n; r++) {
                    out = out sprintf("%s{\"rank\":%d,\"tokens\":%d,\"resident\":%d,\"segments\":[%s]}",
                        (r > 1 ? "," : ""), r - 1, q[r], held[r], runs[r])
                    held[r] += q[r]
                }
                out = out "]}"
                offset += tokens
            }
            printf "{\"schema\":1,\"seq_len\":%d,\"mask\":\"causal\",\"ranks\":[", offset
            for (r = 1; r <= n; r++)
                printf "%s{\"rank\":%d,\"device\":\"%s\",\"tokens\":%d}", (r > 1 ? "," : ""),
                    r - 1, device, held[r]
            printf "],\"chunks\":[%s],\"stripes\":%d,\"buffers\":2,%s}\n", out, stripes, shape
        }' >"$1"
}

# Every number of that name in $2, a line each.
fields() {
    sed "s/\"$1\":/\n&/g" <<<"$2" | sed -n "s/^\"$1\":\([-0-9.e]*\).*/\1/p"
}

# proven N FILE [OPTION...]: every row of every chunk is right, and all KV at the end.
proven() {
    local n=$1 file=$2 tokens
    tokens=$(sed 's/.*"seq_len":\([0-9]*\).*/\1/' "$file")
    run --separate-stderr ring "$n" --json --plan "$file" --verify=1000000 "${@:3}"
    echo "$n ranks, $file, ${*:3}: $output $stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *'"verified":true,'*'"chunks":['* ]]
    [[ "$output" != *'"verified":false'* ]]
    [ "$(fields rows_compared "$output" | awk '{ n += $1 } END { print n }')" -eq $((4 * tokens)) ]
    [ "$(fields tokens_compared "$output" | awk '{ n += $1 } END { print n }')" -eq "$tokens" ]
}

# What man hcp-plan says about blocks, for a plan in a file: of every chunk and rank the
# blocks and bytes that it receives and those that it sends, with so many bytes a token.
messages() { # messages FILE BYTES
    sed 's/{"offset":/\n&/g' "$1" | grep '^{"offset":' | while read -r chunk; do
        sed 's/{"rank":/\n&/g' <<<"$chunk" |
            sed -n 's/.*"rank":[0-9]*,"tokens":\([0-9]*\),"resident":\([0-9]*\).*/\1 \2/p' |
            awk -v layout="$(sed 's/.*"layout":"\([a-z]*\)".*/\1/' <<<"$chunk")" -v bytes="$2" '
            function works(i, j) { # of rank i on the block of rank j
                if (q[i] == 0) return 0
                if (i == j || old[j] > 0 || (j < i && q[j] > 0)) return 1
                return layout == "zigzag" && q[i] > 1 && q[j] > 0
            }
            { q[NR] = $1; old[NR] = $2; if ($1 + $2 > 0) ring[++m] = NR }
            END {
                for (j = 1; j <= m; j++) {
                    for (far = m - 1; far > 0 && !works(ring[(j + far - 1) % m + 1], ring[j]); far--);
                    for (h = 0; h < far; h++) {
                        a = ring[(j + h - 1) % m + 1]; b = ring[(j + h) % m + 1]
                        size = bytes * (q[ring[j]] + old[ring[j]])
                        out[a]++; out_bytes[a] += size; in_[b]++; in_bytes[b] += size
                    }
                }
                for (i = 1; i <= NR; i++) print in_[i] + 0, in_bytes[i] + 0, out[i] + 0, out_bytes[i] + 0
            }'
    done
}

# What ran did, likewise.
moved() {
    paste -d' ' <(fields received_blocks "$output") <(fields received_bytes "$output") \
        <(fields sent_blocks "$output") <(fields sent_bytes "$output")
}

@test "the planner's chunks, every layout, 1 to 4 ranks: right, and its messages" {
    for n in 1 2 3 4; do
        for layout in contiguous zigzag; do
            # 300 is no multiple of the tile, nor of its half.
            planned p.json $n --seq-len 1000 --chunk-len 300 --layout $layout --link-gbps 10
            proven $n p.json
            [ "$(fields offset "$output" | paste -sd' ')" = "0 300 600 900" ]
            messages p.json 512 >want
            moved | diff - want
            [ "$(wc -l <want)" -eq $((4 * n)) ]
        done
    done
    [ "$(awk '{ n += $1 } END { print n }' want)" -ge 6 ]
    planned p.json 3 --seq-len 700 --chunk-len 300 --layout striped --stripes 3 --tile 16
    proven 3 p.json
}

@test "uneven chunks, ranks without queries or without anything, single tokens" {
    for layout in contiguous zigzag striped; do
        by_hand p.json $layout 100,37,0 0,1,0 33,0,150 0,0,129 1,1,1 7,210,0
        proven 3 p.json
        messages p.json 512 >want
        [ $layout = striped ] || moved | diff - want
        by_hand p.json $layout 0,5,0,0 0,60,0,3 90,0,0,0 0,0,0,1 17,13,0,64
        proven 4 p.json
        messages p.json 512 >want
        [ $layout = striped ] || moved | diff - want
    done
    by_hand p.json zigzag 63 1 200 3
    proven 1 p.json
    [ "$(moved | sort -u)" = "0 0 0 0" ]
    by_hand p.json contiguous 0,77 80,0 1,0 0,130
    proven 2 p.json
    hand='"dtype":"bf16","heads":4,"kv_heads":1,"head_dim":64'
    by_hand p.json zigzag 100,37,0 33,0,150 20,129,5
    proven 3 p.json
    messages p.json 256 >want
    moved | diff - want
}

@test "a random prompt on four ranks; buffers as the plan has them; a layer around it" {
    long_test
    RANDOM=${HCP_TEST_SEED:-1}
    for buffers in 0 2 3; do
        splits=()
        for _ in 1 2 3 4 5 6; do
            splits+=("$((RANDOM % 90)),$((RANDOM % 3 * 40)),$((RANDOM % 60 + 1)),$((RANDOM % 2 * 71))")
        done
        layout=$(echo zigzag . contiguous striped | cut -d' ' -f $((buffers + 1)))
        by_hand p.json "$layout" "${splits[@]}"
        sed -i "s/\"buffers\":2/\"buffers\":$buffers/" p.json
        echo "${splits[*]}"
        proven 4 p.json
    done
    by_hand p.json contiguous 40,50,60 0,30,0 80,0,33
    proven 3 p.json --hidden 64 --ffn 96
    [[ "$output" == *'"layer":"hidden 64, ffn 96"'* ]]
    # Nobody has linear work of no tokens.
    sed 's/{"layout"/\n&/g; s/{"offset"/\n&/g' <<<"$output" | sed -n 3p | sed 's/{"rank":/\n&/g' |
        grep '"tokens":0,' >idle
    [ "$(grep -c '"linear_ms":0,' idle)" -eq 2 ]
}

@test "times of chunks, ranks and all of it beside what was predicted" {
    planned p.json 2 --seq-len 600 --chunk-len 250 --layers 3 --chunk-fixed 2ms --link-gbps 1
    run --separate-stderr ring 2 --plan p.json --json --repeat 3
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    grep -o '"fingerprint":"[0-9a-f]*"' p.json | diff - <(grep -o '"fingerprint":"[0-9a-f]*"' <<<"$output")
    plan=$(cat p.json)
    sum() { awk '{ s += $1 } END { printf "%.5g\n", s }'; }
    # A plan has of each chunk the layer, then its ranks; a result all of it, then its chunks.
    fields predicted_ms "$plan" >want
    [ "$(wc -l <want)" -eq 9 ]
    fields predicted_ms "$output" | sed 1d | diff - want
    [ "$(fields predicted_ms "$output" | head -n 1 | sum)" = "$(awk 'NR % 3 == 1' want | sum)" ]
    [ "$(fields predicted_step_ms "$output")" = "$(fields step_ms "$plan")" ]
    [ "$(fields predicted_total_ms "$output")" = "$(fields total_ms "$plan")" ]
    [ "$(fields predicted_longest_step_ms "$output")" = "$(fields longest_step_ms "$plan")" ]
    [[ "$output" == *'"layers":3,'*'"step_fixed_ms":2,"step_budget_ms":null,'* ]]
    # Measured: the sum of the chunks' layers, three of which and 2 ms are a step.
    fields makespan_ms "$output" >makespan
    [ "$(wc -l <makespan)" -eq 4 ]
    [ "$(head -n 1 makespan | sum)" = "$(sed 1d makespan | sum)" ]
    [ "$(fields step_ms "$output" | sum)" = "$(sed 1d makespan | awk '{ print 3 * $1 + 2 }' | sum)" ]
    [ "$(fields total_ms "$output" | head -n 1 | sum)" = "$(fields step_ms "$output" | sum)" ]
    [ "$(fields repeats "$output" | sort -u)" = 3 ]
    [ "$(fields rank "$output" | wc -l)" -eq 8 ]
    [ "$(fields wait_ms "$output" | wc -l)" -eq 6 ]
    # No budget that this CPU meets.
    sed 's/"step_budget_ms":null/"step_budget_ms":1e-3/; s/,"fingerprint":"[0-9a-f]*"//' p.json >tight.json
    before=$(cksum m.db)
    run --separate-stderr ring 2 --plan tight.json --db m.db
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *CHUNK*RANK*LAYOUT*KV_TOKENS*PREDICTED_C*TOTAL_MS*PREDICTED_MS* ]]
    [ "$(grep -c '^ *[0-9] *all .* 250 \|^ *2 *all .* 100 ' <<<"$output")" -eq 3 ]
    [[ "$output" == *"600 tokens in 3 chunks: a layer measured "*" ms in all, predicted "*" of the bound "* ]]
    [[ "$output" == *"steps of 3 layers and 2 ms: "*" in all, the longest "*" (predicted "* ]]
    [[ "$output" == *"; 3 above the budget of 0.001"* ]]
    [ "$(cksum m.db)" = "$before" ] # nothing is stored
    # What is run is not what was predicted.
    run --separate-stderr ring 2 --plan p.json --json --hidden 32 --ffn 32
    [ "$status" -eq 0 ]
    [[ "$output" == *'"predicted_ms":null,"prediction_error":null'*'"predicted_total_ms":null'* ]]
}

@test "a wrong kernel is found, and one bit of what was to stay as it was" {
    plugin=$top_builddir/tests/.libs/plugin-faulty.so
    [ -e "$plugin" ] || skip "no plug-ins"
    by_hand p.json contiguous 60,40 30,50 44,0
    HCP_FAULTY=wrong run --separate-stderr ring 2 --plan p.json --verify --kernel "$plugin"
    echo "$output$stderr"
    [ "$status" -eq 1 ]
    [[ "$output" == *"NOT VERIFIED: chunk 0: rank 0: "*"NOT VERIFIED: chunk 1: rank 1: "* ]]
    [[ "$output" != *"NOT VERIFIED: chunk 2: rank 1: "* ]] # no queries
    [[ "$stderr" == *"verification failed"* ]]
    # What is no number is the largest error, whatever chunks and ranks behind it have.
    HCP_FAULTY=blank:60 run --separate-stderr ring 2 --plan p.json --verify --json --kernel "$plugin"
    echo "$output$stderr"
    [ "$status" -eq 1 ]
    [[ "$output" == *'"verified":false,"max_error":null,"chunks":['*'"max_error":'[0-9]* ]]
    # A partial result of one chunk: rank 1 has 50 queries on the 90 keys of rank 0.
    HCP_FAULTY=lse:50x90 run --separate-stderr ring 2 --plan p.json --verify --kernel "$plugin"
    echo "$output$stderr"
    [ "$status" -eq 1 ]
    [ "$(grep 'NOT VERIFIED: ' <<<"$output" | cut -d: -f 1-3)" = "NOT VERIFIED: chunk 1: rank 1" ]
    # The last bit of a key of chunk 0 on rank 1: no bound of the outputs is that narrow.
    HCP_FAULTY=key:40x40 run --separate-stderr ring 2 --plan p.json --verify --kernel "$plugin"
    echo "$output$stderr"
    [ "$status" -eq 1 ]
    [ "$(grep 'NOT VERIFIED: ' <<<"$output")" = \
        "NOT VERIFIED: KV at the end: rank 1: key of KV head 0, token 60: not what it should be" ]
    HCP_FAULTY=key:40x40 run --separate-stderr ring 2 --plan p.json --verify --json --kernel "$plugin"
    [ "$status" -eq 1 ]
    [[ "$output" == *'"verified":false,'*'"chunks":['* ]]
    [[ "$output" == *'"tokens_compared":90,"failure":"key of KV head 0, token 60'* ]]
    HCP_FAULTY='' run --separate-stderr ring 2 --plan p.json --verify --kernel "$plugin"
    [ "$status" -eq 0 ]
    [[ "$output" == *"verified: "*"; at the end all numbers of the KV of 224 tokens"* ]]
}

@test "what is refused" {
    planned p.json 2 --seq-len 500 --chunk-len 250 --tile 16
    refuse() { # refuse CODE TEXT OPTION...
        run --separate-stderr ring 2 "${@:3}"
        echo "$stderr"
        [ "$status" -eq "$1" ]
        [[ "$stderr" == *"$2"* ]]
        [ -z "$output" ]
    }
    for option in '--buffers 2' '--sub-blocks 2' --barrier; do
        # shellcheck disable=SC2086 # options are words
        refuse 2 "in whole blocks; leave --buffers, --sub-blocks and --barrier out" --plan p.json $option
    done
    refuse 2 "leave --rebalance out" --plan p.json --rebalance --db m.db
    run --separate-stderr mpirun -np 2 hcp-ring search --plan p.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"a plan is of chunks"*"leave search out"* ]]
    run --separate-stderr mpirun -np 2 hcp-ring transition --from p.json --to p.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"a plan of chunks is run alone"* ]]
    plan m.db one.json "2*$cpu" causal zigzag 300,200 "${shape[@]}"
    refuse 2 "a plan of chunks is run alone" --plan p.json --plan one.json
    refuse 2 "a plan of chunks is run alone" --plan one.json --plan p.json
    refuse 2 "--plan has its own phase" --plan p.json --phase decode
    # Ranks.
    run --separate-stderr ring 3 --plan p.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"the plan has 2 ranks and 3 were started"* ]]
    planned q.json 2 --seq-len 500 --chunk-len 240 --tile 16
    run --separate-stderr mpirun -np 1 hcp-ring --plan p.json : -np 1 hcp-ring --plan q.json
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"the ranks do not agree: plan fingerprint "* ]]
    # Files.
    sed 's/"total_ms":[0-9.e-]*/"total_ms":1/' p.json >bad.json
    refuse 1 "bad.json was changed after it was printed" --plan bad.json
    by_hand p.json contiguous 60,40 30,50
    sed 's/"offset":100/"offset":101/' p.json >bad.json
    refuse 1 "does not begin where the one before ends" --plan bad.json
    sed 's/"seq_len":180/"seq_len":190/' p.json >bad.json
    refuse 1 "chunks do not reach the end of the prompt" --plan bad.json
    sed 's/"resident":60/"resident":59/' p.json >bad.json
    refuse 1 "what is resident on a rank is not what earlier chunks left" --plan bad.json
    sed 's/\[100,30\]/[101,30]/' p.json >bad.json
    refuse 1 "segments are not those of the layout" --plan bad.json
    sed 's/"tokens":30,/"tokens":31,/' p.json >bad.json
    refuse 1 "more tokens than their chunk" --plan bad.json
    for text in '{"chunks":[1,2]}' '{"object":"list","chunks":[{"id":"x"}]}' '{"schema":1,"chunks":null}'; do
        echo "$text" >bad.json
        refuse 1 "bad.json: not a plan of chunks: " --plan bad.json
        [[ "$stderr" == *"print a plan with 'hcp-plan split --chunk-len --json'"* ]]
    done
    sed 's/"dtype":"fp32"/"dtype":"int4"/' p.json >bad.json
    refuse 1 "dtype 'int4' of the plan is not known" --plan bad.json
    # Sizes whose product no integer of 64 bits holds.
    huge=2147483647
    hand="\"dtype\":\"fp32\",\"heads\":$huge,\"kv_heads\":$huge,\"head_dim\":$huge" by_hand bad.json \
        contiguous 60,40
    refuse 1 " GB for the keys and values of the prompt (fewer tokens a rank need less): out of memory" \
        --plan bad.json
    by_hand p.json zigzag 60,40,5 30,50,6
    sed -i 's/"buffers":2/"buffers":1/' p.json
    run --separate-stderr ring 3 --plan p.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"one buffer cannot pass blocks on in a ring of 3 ranks"* ]]
    nothing_left
}
