#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hcp-plan split --phase decode and transition on what an H200 was measured to take.

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    hcp-profile import --db h.db nvidia-h200-decode
    hcp-profile import --db h.db nvidia-h200-links
    hcp-profile import --db h.db nvidia-h200-fa2
    hcp-plan fit --quiet --db h.db
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    export HCP_DB=h.db
    R='nvidia-h200@mps:100,nvidia-h200@mps:10'
    D=(--phase decode --ranks "$R" --batch 8 --seq-len 64K)
}

# The first number of that name in one line of JSON: field NAME FILE
field() {
    sed "s/\"$1\":/\n&/" "$2" | sed -n "s/^\"$1\":\([-0-9.e]*\).*/\1/p" | head -n 1
}

holds() { # an awk condition
    awk "BEGIN { exit !($1) }"
}

equal() { # two numbers, or awk expressions, but for rounding
    awk "BEGIN { r = ($1) / ($2); exit !(r > 1 - 1e-9 && r < 1 + 1e-9) }"
}

refused() { # refused CODE TEXT COMMAND...: one line that says so
    local code=$1 text=$2
    shift 2
    run "$@"
    echo "$output"
    [ "$status" -eq "$code" ]
    [[ "$output" == *"$text"* ]]
    [ "$(grep -c '^hcp-plan' <<<"$output")" -eq 1 ]
}

@test "shares follow measured bandwidth; the step is what predict says, and the merge" {
    hcp-plan split "${D[@]}" --link-alpha-us 10 --link-gbps 100 --json >d.json
    grep -q '"phase":"decode"' d.json
    grep -q '"mask":"full","layout":"contiguous"' d.json
    grep -q '"source":"interpolated"' d.json
    a=$(field tokens d.json)
    b=$((65536 - a))
    hcp-plan predict --phase decode --batch 8 --ranks nvidia-h200@mps:100 --q-len 1 \
        --kv-len "$a" --json >a.json
    hcp-plan predict --phase decode --batch 8 --ranks nvidia-h200@mps:10 --q-len 1 \
        --kv-len "$b" --json >b.json
    ta=$(field predicted_ms a.json)
    tb=$(field predicted_ms b.json)
    # 8 * 32 rows of 129 floats, in one round.
    grep -q '"merge":{"schedule":"doubling","bytes":132096,' d.json
    equal "($ta > $tb ? $ta : $tb) + 0.01 + 132096 / 100e6" "$(field makespan_ms d.json)"
    # 841 against 4541 GB/s: a sixth of the keys, give or take, both as long.
    holds "$b / 65536 > 0.12 && $b / 65536 < 0.18"
    holds "$ta / $tb > 0.97 && $ta / $tb < 1.03"
    holds "$(field gain_over_even d.json) > 2.8"
    holds "$(field makespan_ms d.json) < $(field drop_ms d.json)"
    holds "$(field bound_ms d.json) < $(field makespan_ms d.json)"
    # Prefill shares are others: there a tenth of the SMs does a tenth.
    hcp-plan split --ranks "$R" --seq-len 64K --json >p.json
    holds "$(field tokens p.json) > $a + 1000"
}

@test "a plan as text says shares, step, merge, gain" {
    run hcp-plan split "${D[@]}" --link nccl
    [ "$status" -eq 0 ]
    for text in KV_TOKENS "for a decode step of a layer, batch 8, cuda-decode kernel" \
        "merge by doubling" "even split" "no split is below" fingerprint; do
        [[ "$output" == *"$text"* ]]
    done
    run hcp-plan split --phase decode --ranks nvidia-h200@mps:100 --seq-len 64K
    [[ "$output" == *"nothing to merge"* ]]
    run hcp-plan compare "${D[@]}"
    [ "$status" -eq 0 ]
    for s in even nominal proportional lut poly best; do
        [[ "$output" == *"$s"* ]]
    done
    [[ "$output" == *"decode of batch 8"*"times faster than even"* ]]
}

@test "the schedule follows alpha and beta, and --merge" {
    four=(--phase decode --batch 64 --seq-len 64K --json
        --ranks '2*nvidia-h200@mps:100,2*nvidia-h200@mps:10')
    hcp-plan split "${four[@]}" --link-alpha-us 20 --link-gbps 300 >latency.json
    grep -q '"schedule":"gather"' latency.json
    hcp-plan split "${four[@]}" --link-alpha-us 1 --link-gbps 20 >speed.json
    grep -q '"schedule":"ring"' speed.json
    hcp-plan split "${four[@]}" --link-alpha-us 10 --link-gbps 300 --merge doubling >own.json
    grep -q '"schedule":"doubling"' own.json
    holds "$(field ms own.json) == $(field doubling_ms own.json)"
}

@test "memory: caps bind, and by how much they fall short" {
    hcp-plan split "${D[@]}" --layers 32 --memory 80G,8G --json >m.json
    b=$(sed 's/.*"rank":1,//' m.json | sed 's/.*"tokens":\([0-9]*\).*/\1/')
    # 2 * 8 * 8 * 128 * 2 * 32 bytes a token, two partial results: a tile more is too much.
    holds "$b * 1048576 + 2 * 132096 <= 8 * 2^30 && ($b + 64) * 1048576 + 2 * 132096 > 8 * 2^30"
    refused 3 "bytes more on rank 0 would do" hcp-plan split "${D[@]}" --layers 32 --memory 40G,8G
    more=$(sed 's/.*batch 8); \([0-9]*\) bytes.*/\1/' <<<"$output")
    hcp-plan split "${D[@]}" --layers 32 --memory "$((40 * 1073741824 + more)),8G"
    refused 3 "bytes more on rank 0 would do" \
        hcp-plan split "${D[@]}" --layers 32 --memory "$((40 * 1073741824 + more - 1)),8G"
    # A known model brings heads, layers and weights, not its linear layers.
    hcp-plan split "${D[@]}" --model llama-3-8b --json >w.json
    grep -q '"layers":32' w.json
    grep -q '"weight_bytes":13958643712' w.json
    [ "$(grep -c linear_ w.json)" -eq 0 ]
}

@test "what decode is not" {
    refused 2 "no queries apart from KV" hcp-plan split "${D[@]}" --joint
    refused 2 "contiguous shares" hcp-plan split "${D[@]}" --layout zigzag
    refused 2 "no linear work" hcp-plan split "${D[@]}" --linear-us 1
    refused 2 "no nodes" hcp-plan split "${D[@]}" --node-ranks 1
    refused 2 "no barrier" hcp-plan split "${D[@]}" --barrier
    refused 2 "add --phase decode" hcp-plan split --ranks "$R" --seq-len 64K --merge ring
    refused 2 "expected ring, doubling or gather" hcp-plan split "${D[@]}" --merge tree
    refused 3 "no steps round a ring" hcp-plan simulate "${D[@]}"
    refused 3 "--limits mps:100 --phase decode --batch 100" \
        hcp-plan split --phase decode --ranks "$R" --batch 100 --seq-len 64K
    refused 3 "--phase decode' on that machine" \
        hcp-plan split --phase decode --ranks nvidia-h200@mps:50 --seq-len 64K
    hcp-plan split "${D[@]}" --json >d.json
    refused 2 "d.json is a plan of decode" hcp-plan simulate --plan d.json
}

@test "transition: what to move, what it takes, from how many steps on it pays" {
    hcp-plan split --ranks "$R" --seq-len 64K --mask causal --layout zigzag --json >p.json
    hcp-plan split "${D[@]}" --layers 32 --link-alpha-us 10 --link-gbps 50 --json >d.json
    hcp-plan transition --from p.json --to d.json --json >t.json
    grep -q '"decision":"open"' t.json
    a=$(field tokens p.json)
    b=$(field tokens d.json)
    holds "$(field move_tokens t.json) == $a - $b"
    holds "$(field move_bytes t.json) == ($a - $b) * 1048576"
    equal "0.01 + ($a - $b) * 1048576 / 50e6" "$(field move_ms t.json)"
    # A step where it is, and after.
    hcp-plan split "${D[@]}" --tokens "$a,$((65536 - a))" --link-alpha-us 10 --link-gbps 50 \
        --json >s.json
    equal "32 * $(field makespan_ms s.json)" "$(field stay_ms t.json)"
    equal "32 * $(field makespan_ms d.json)" "$(field step_ms t.json)"
    even=$(field break_even_steps t.json)
    equal "$(field move_ms t.json) / ($(field stay_ms t.json) - $(field step_ms t.json))" "$even"
    # It turns there.
    less=$(awk "BEGIN { printf \"%d\", $even }")
    hcp-plan transition --from p.json --to d.json --steps "$less" --json >less.json
    grep -q '"decision":"stay"' less.json
    grep -q '"moves":\[\]' less.json
    hcp-plan transition --from p.json --to d.json --steps $((less + 1)) --json >more.json
    grep -q '"decision":"move"' more.json
    grep -q '"moves":\[{"from":0,"to":1,"tokens":'$((a - b)) more.json
    run hcp-plan transition --from p.json --to d.json --steps "$less"
    [[ "$output" == *"do not move: over $less steps"* ]]
    run hcp-plan transition --from p.json --to d.json --steps $((less + 1))
    [[ "$output" == *"move: "* ]]
    # Over a slower link later; measured; a link of its own.
    hcp-plan transition --from p.json --to d.json --link-gbps 5 --json >slow.json
    holds "$(field break_even_steps slow.json) > 9 * $even"
    hcp-plan transition --from p.json --to d.json --link nccl --json >nccl.json
    holds "$(field move_ms nccl.json) < $(field move_ms t.json)"
    echo 'link 0 1 10 5' >net
    hcp-plan transition --from p.json --to d.json --links net --json >net.json
    equal "$(field move_ms net.json)" "$(field move_ms slow.json)"
    # Between decode plans: of another batch; the same shares are nothing to do.
    hcp-plan transition --from d.json --to d.json --steps 1000 >none
    grep -q 'do not move: the shares are the same' none
    # KV of eight sequences that does not fit where that of one was.
    hcp-plan split "${D[@]}" --layers 32 --memory 58G,80G --json >tight.json
    run hcp-plan transition --from p.json --to tight.json
    [ "$status" -eq 0 ]
    [[ "$output" == *"move: KV does not fit where it is"* ]]
}

@test "transition: links measured one way, the sender's; both ways at once where there are none" {
    hcp-plan split --ranks "$R" --seq-len 64K --mask causal --layout zigzag --json >p.json
    hcp-plan split "${D[@]}" --layers 32 --json >d.json
    T=(--from p.json --to d.json)
    hcp-plan transition "${T[@]}" --link nccl --json >both.json
    grep -q '"link_measured":"two-way","link_command":"hcp-profile link --one-way --db h.db --limits mps:100/mps:10 --transport nccl"' both.json
    run hcp-plan transition "${T[@]}" --link nccl
    [[ "$output" == *"link as measured with both ends sending at once; "*"measure it with 'hcp-profile link --one-way --db h.db --limits mps:100/mps:10 --transport nccl'" ]]
    # Rank 0 gives and rank 1 takes: 5 us and 80 GB/s; the other way 40 us and 10 GB/s.
    cp h.db one.db
    {
        echo 'kind,device,limit,peer_device,peer_limit,transport,bytes,time_ms,one_way,run_uid'
        for size in 1048576 268435456 536870912 1073741824 2147483648 4294967296 17179869184; do
            awk -v b=$size 'BEGIN {
                printf "link,nvidia-h200,mps:100,nvidia-h200,mps:10,nccl,%.0f,%.9f,1,way\n", b, 0.005 + b / 80e6
                printf "link,nvidia-h200,mps:10,nvidia-h200,mps:100,nccl,%.0f,%.9f,1,way\n", b, 0.04 + b / 10e6
            }'
        done
    } | hcp-profile import --db one.db -
    hcp-plan transition --db one.db "${T[@]}" --link nccl --json >one.json
    grep -q '"link_measured":"one-way","link_command":null' one.json
    near() { awk "BEGIN { r = ($1) / ($2); exit !(r > 1 - 1e-6 && r < 1 + 1e-6) }"; }
    near "0.005 + $(field move_bytes one.json) / 80e6" "$(field move_ms one.json)"
    [[ "$(hcp-plan transition --db one.db "${T[@]}" --link nccl)" != *"both ends"* ]]
    # Back again, all with the other's numbers: rank 1 gives.
    hcp-plan split "${D[@]}" --layers 32 --tokens "$(field tokens p.json),$((65536 - $(field tokens p.json)))" --json >q.json
    hcp-plan transition --db one.db --from d.json --to q.json --link nccl --steps 1 --json >back.json
    grep -q '"link_measured":"one-way"' back.json
    near "0.04 + $(field move_bytes back.json) / 10e6" "$(field move_ms back.json)"
    # A link for each pair; of the sender again.
    hcp-plan transition --db one.db "${T[@]}" --links nccl --json >links.json
    grep -q '"link_measured":"one-way"' links.json
    holds "$(field move_ms links.json) < 1.001 * $(field move_ms one.json)"
    hcp-plan transition "${T[@]}" --links nccl --json >links.json
    grep -q '"link_measured":"two-way"' links.json
    # Numbers that are given, or of the plan, and shares that stay ask for no link.
    for given in "" "--link-alpha-us 10 --link-gbps 50"; do
        # shellcheck disable=SC2086 # words
        hcp-plan transition "${T[@]}" $given --json >given.json
        grep -q '"link_measured":null,"link_command":null' given.json
    done
    hcp-plan transition --from d.json --to d.json --link nccl --steps 1000 --json >none.json
    grep -q '"link_measured":null' none.json
    # Neither: what is missing is the one way.
    refused 3 "by mpi one way was never measured in 'h.db'; where these devices are, measure it with 'hcp-profile link --one-way --db h.db --limits mps:100/mps:10 --transport mpi'" \
        hcp-plan transition "${T[@]}" --link mpi
    # A ring takes both ways at once alone.
    hcp-plan split --db one.db --ranks "$R" --seq-len 64K --link nccl --json >r1.json
    hcp-plan split --ranks "$R" --seq-len 64K --link nccl --json >r2.json
    cmp r1.json r2.json
    sqlite3 one.db "DELETE FROM link WHERE one_way IS NULL"
    hcp-plan transition --db one.db "${T[@]}" --link nccl --json | cmp - one.json
    for ring in "${R}" "${R} --phase decode --batch 8"; do
        # shellcheck disable=SC2086 # words
        refused 3 "by nccl was never measured in 'one.db'" hcp-plan split --db one.db --seq-len 64K --link nccl --ranks $ring
    done
    # shellcheck disable=SC2086 # words
    refused 3 "by nccl was never measured in 'one.db'" hcp-plan split --db one.db --seq-len 64K --links nccl --ranks $R
}

@test "disaggregate and rebalance say which way their transfers were measured" {
    A=(--ranks "$R" --batch 8 --seq-len 64K --steps 500 --layers 32 --extrapolate)
    hcp-plan disaggregate "${A[@]}" --link-gbps 150 --json >given.json
    grep -q '"link_measured":null' given.json
    hcp-plan disaggregate "${A[@]}" --link-gbps 150 --transfer nccl --json >both.json
    grep -q '"link_measured":"two-way","link_command":"hcp-profile link --one-way ' both.json
    [[ "$(hcp-plan disaggregate "${A[@]}" --link-gbps 150 --transfer nccl)" == *"both ends sending at once"* ]]
    hcp-plan split --ranks "$R" --seq-len 64K --layers 32 --json >run.json
    { echo step,rank,ms; for step in 1 2 3; do echo "$step,0,10"; echo "$step,1,10"; done; } >trace.csv
    hcp-plan rebalance --plan run.json --trace trace.csv --move-kv --link nccl --json >moved.json
    grep -q '"link_measured":"two-way","link_command":"hcp-profile link --one-way ' moved.json
    [[ "$(hcp-plan rebalance --plan run.json --trace trace.csv --move-kv --link nccl)" == *"both ends sending at once"* ]]
    cp h.db ways.db
    sqlite3 ways.db "INSERT INTO run (uid, origin) VALUES ('ways', 'recorded');
        INSERT INTO link (run_id, device_a_id, device_b_id, limiter_a, limiter_b, transport, channels, bytes, time_ms, one_way)
        SELECT (SELECT id FROM run WHERE uid = 'ways'), device_a_id, device_b_id, limiter_a, limiter_b, transport, channels, bytes, min(time_ms), 1
        FROM link GROUP BY 2, 3, 4, 5, 6, 7, 8;
        INSERT OR IGNORE INTO link (run_id, device_a_id, device_b_id, limiter_a, limiter_b, transport, channels, bytes, time_ms, one_way)
        SELECT run_id, device_b_id, device_a_id, limiter_b, limiter_a, transport, channels, bytes, time_ms, 1 FROM link WHERE one_way = 1"
    hcp-plan disaggregate --db ways.db "${A[@]}" --link-gbps 150 --transfer nccl --json | grep -q '"link_measured":"one-way","link_command":null'
    hcp-plan rebalance --db ways.db --plan run.json --trace trace.csv --move-kv --link nccl --json | grep -q '"link_measured":"one-way"'
}

@test "transition: files and options that do not belong together" {
    hcp-plan split --ranks "$R" --seq-len 64K --json >p.json
    hcp-plan split "${D[@]}" --json >d.json
    refused 2 "--from and --to are needed" hcp-plan transition --from p.json
    refused 2 "p.json is a plan of prefill" hcp-plan transition --from d.json --to p.json
    refused 1 "cannot open nope.json" hcp-plan transition --from nope.json --to d.json
    hcp-plan split --ranks "$R" --seq-len 32K --json >short.json
    refused 2 "32768 and 65536 tokens" hcp-plan transition --from short.json --to d.json
    hcp-plan split --ranks nvidia-h200@mps:10,nvidia-h200@mps:100 --seq-len 64K --json >turned.json
    refused 2 "rank 0 is 'nvidia-h200@mps:10'" hcp-plan transition --from turned.json --to d.json
    hcp-plan split --ranks nvidia-h200@mps:100 --seq-len 64K --json >one.json
    refused 2 "the plans have 1 and 2 ranks" hcp-plan transition --from one.json --to d.json
    refused 2 "--steps" hcp-plan transition --from p.json --to d.json --steps 0
    refused 2 "--link-gbps" hcp-plan transition --from p.json --to d.json --link-gbps -3
    refused 2 "is not an option" hcp-plan transition p.json d.json
    printf 'share a 5\nlink 0 1 10 5 share=a\n' >net
    refused 2 "share nothing" hcp-plan transition --from p.json --to d.json --links net
    sed 's/"schedule":"doubling"/"schedule":"none"/; s/,"fingerprint":"[0-9a-f]*"//' d.json >bad.json
    refused 1 "not a plan" hcp-plan transition --from p.json --to bad.json
}
