#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# hcp-plan split, compare, predict, simulate on the recorded H200 profile.

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    hcp-profile import --db h.db nvidia-h200-fa2
    hcp-plan fit --quiet --db h.db
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    export HCP_DB=h.db
    R='nvidia-h200@mps:100,nvidia-h200@mps:10'
}

# A number out of one line of JSON: field NAME FILE
field() {
    sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$2" | head -n 1
}

less_equal() { # A B SLACK
    awk -v a="$1" -v b="$2" -v s="${3:-0}" 'BEGIN { exit !(a <= b * (1 + s)) }'
}

@test "compare prints every strategy, best no slower than any" {
    run hcp-plan compare --ranks "$R" --seq-len 64K --mask causal
    [ "$status" -eq 0 ]
    for s in even nominal proportional lut poly best; do
        [[ "$output" == *"$s"* ]]
    done
    hcp-plan compare --ranks "$R" --seq-len 64K --mask causal --json >c.json
    [ "$(grep -c '"strategy"' c.json)" -eq 6 ]
    best=$(grep '"strategy":"best"' c.json | sed -n 's/.*"makespan_ms":\([0-9.]*\).*/\1/p')
    for s in even nominal proportional lut poly; do
        ms=$(grep "\"strategy\":\"$s\"" c.json | sed -n 's/.*"makespan_ms":\([0-9.]*\).*/\1/p')
        less_equal "$best" "$ms"
    done
    # The slow rank holds a ninth; an even split is more than five times slower.
    even=$(grep '"strategy":"even"' c.json | sed -n 's/.*"makespan_ms":\([0-9.]*\).*/\1/p')
    less_equal "$(awk -v b="$best" 'BEGIN { print 5 * b }')" "$even"
}

@test "split --json has every key of the contract" {
    hcp-plan split --ranks "$R" --seq-len 64K --mask causal --layout zigzag --json >s.json
    for key in schema strategy seq_len mask layout phase ranks rank device limit tokens \
        segments predicted_ms kv_tokens makespan_ms interval_ms bound_ms even_ms drop_ms \
        gain_over_even source fingerprint; do
        grep -q "\"$key\":" s.json
    done
    grep -q '"schema":1,"strategy":"best","seq_len":65536,"mask":"causal","layout":"zigzag","phase":"prefill"' s.json
    less_equal "$(field bound_ms s.json)" "$(field makespan_ms s.json)"
    grep -Eq '"fingerprint":"[0-9a-f]{16}"' s.json
}

@test "the same question gives the same bytes, in a German locale too" {
    hcp-plan split --ranks "$R" --seq-len 50000 --mask causal --json >a.json
    LC_ALL=de_DE.UTF-8 hcp-plan split --ranks "$R" --seq-len 50000 --mask causal --json >b.json
    cmp a.json b.json
}

@test "text of split says what it rests on" {
    run hcp-plan split --ranks "$R" --seq-len 64K --mask causal
    [ "$status" -eq 0 ]
    [[ "${output,,}" == *"predicted_ms"* ]]
    [[ "$output" == *"tile 128"* ]]
    [[ "$output" == *"interpolated times"* ]]
    [[ "$output" == *"fingerprint"* ]]
    run hcp-plan split --ranks "$R" --seq-len 64K --mask causal --layout zigzag
    [[ "$output" == *"tile 256"* ]]
    run hcp-plan split --ranks "$R" --seq-len 64K --mask causal --layout zigzag --tile 128
    [[ "$output" == *"tile 128"* ]]
}

@test "identical devices: zigzag even is as good, contiguous gains half" {
    two='nvidia-h200@mps:100,nvidia-h200@mps:100'
    run hcp-plan split --ranks "$two" --seq-len 64K --mask causal
    [[ "$output" == *"even is as good"* ]]
    hcp-plan split --ranks "$two" --seq-len 64K --mask causal --layout contiguous --json >t.json
    less_equal 1.4 "$(field gain_over_even t.json)"
    grep -q '"decision":"split"' t.json
}

@test "caps are kept, and refused when they cannot be" {
    hcp-plan split --ranks "$R" --seq-len 64K --max-tokens 0=48K --json >m.json
    less_equal "$(field tokens m.json)" 49152
    run hcp-plan split --ranks "$R" --seq-len 64K --max-tokens 30K,20K
    [ "$status" -eq 3 ]
    [[ "$output" == *"short by 14336 tokens"* ]]
    run hcp-plan split --ranks "$R" --seq-len 64K --max-tokens 1,2,3
    [ "$status" -eq 2 ]
    run hcp-plan split --ranks "$R" --seq-len 64K --max-tokens 2=5K
    [ "$status" -eq 2 ]
    run hcp-plan split --ranks "$R" --seq-len 64K --max-tokens 5K,1=5K
    [ "$status" -eq 2 ]
}

@test "linear work shifts shares, is shown, and is in a plan file" {
    two='nvidia-h200@mps:100,nvidia-h200@mps:50'
    hcp-plan split --ranks "$two" --seq-len 16K --layout zigzag --mask causal --json >a.json
    # Ten times as slow in linear work: rank 1 gets less.
    hcp-plan split --ranks "$two" --seq-len 16K --layout zigzag --mask causal \
        --linear-us 0.1:0.4,1:4+30 --json >b.json
    # `field` finds the last rank's.
    less_equal "$(field tokens b.json)" "$(field tokens a.json)" -0.1
    [ "$(grep -c linear a.json)" -eq 0 ]
    grep -q '"linear_before_us":1,"linear_before_fixed_us":0,"linear_after_us":4,"linear_after_fixed_us":30,' b.json
    less_equal "$(field bound_ms b.json)" "$(field makespan_ms b.json)"
    hcp-plan simulate --plan b.json --json >s.json
    [ "$(field makespan_ms s.json)" = "$(field makespan_ms b.json)" ]
    hcp-plan simulate --plan b.json >s.txt
    [ "$(grep -c ' before ' s.txt)" -eq 2 ]
    [ "$(grep -c ' after ' s.txt)" -eq 2 ]
    run hcp-plan split --ranks "$two" --seq-len 16K --linear-us 1:2:3
    [ "$status" -eq 2 ]
    [[ "$output" == *"--linear-us"* ]]
    run hcp-plan split --ranks "$two" --seq-len 16K --linear-us -1
    [ "$status" -eq 2 ]
    run hcp-plan simulate --plan b.json --linear-us 1
    [ "$status" -eq 2 ]
}

@test "a known model's layer is planned from linear rows" {
    cp h.db l.db
    run hcp-plan split --db l.db --ranks "$R" --seq-len 8K --model llama-3-8b
    [ "$status" -eq 3 ]
    [[ "$output" == *"hcp-profile run --db l.db --linear --model llama-3-8b"* ]]
    hcp-profile import --db l.db "${BATS_TEST_DIRNAME}/data/h200-decode-linear.csv"
    hcp-plan split --db l.db --ranks "$R" --seq-len 16K --mask causal --layout zigzag \
        --model llama-3-8b --json >l.json
    grep -q '"source":"interpolated"' l.json
    # Linear work of the fast rank's tokens, exact where the plan stands: as show says.
    n=$(sed -n 's/.*"rank":0,[^{]*"tokens":\([0-9]*\).*/\1/p' l.json)
    want=$(hcp-profile show --db l.db --model llama-3-8b --limit mps:100 --tokens "$n" \
        --json | tr -d '\n' | sed 's/.*"layer_ms": *\([0-9.]*\).*/\1/')
    got=$(sed -n 's/.*"rank":0,[^{]*"linear_before_ms":\([0-9.]*\),"linear_after_ms":\([0-9.]*\)}.*/\1 \2/p' l.json)
    awk -v w="$want" -v g="$got" \
        'BEGIN { split(g, a, " "); d = (a[1] + a[2]) / w - 1; exit !(w > 1 && d * d < 1e-12) }'
    # Its error bar is that of the rows, and part of the interval: wider than with the
    # same linear work as given.
    grep -q '"linear_error":0\.0[2-9]' l.json
    us=$(sed 's/"linear_/\n&/g' l.json | awk -F'[:,]' '/_before_us/ { b = $2 }
        /_before_fixed/ { bf = $2 } /_after_us/ { a = $2 }
        /_after_fixed/ { printf "%s%s+%s:%s+%s", sep, b, bf, a, $2; sep = "," }')
    hcp-plan split --db l.db --ranks "$R" --seq-len 16K --mask causal --layout zigzag \
        --linear-us "$us" --json >given.json
    less_equal "$(field makespan_ms l.json)" "$(field makespan_ms given.json)" 1e-9
    less_equal "$(field makespan_ms given.json)" "$(field makespan_ms l.json)" 1e-9
    run ! grep -q linear_error given.json
    hi() { sed 's/.*"interval_ms":\[[0-9.]*,\([0-9.]*\).*/\1/' "$1"; }
    less_equal "$(hi given.json)" "$(hi l.json)" -0.005
    run hcp-plan split --db l.db --ranks "$R" --seq-len 16K --mask causal --layout zigzag \
        --model llama-3-8b
    [[ "$output" == *"linear work as measured, within "*"% (about 90 % confidence)"* ]]
    # The same layer by its numbers.
    hcp-plan split --db l.db --ranks "$R" --seq-len 16K --mask causal --layout zigzag \
        --hidden 4096 --ffn 14336 --json | cmp - l.json
    # In another order each rank keeps its own curve: as if named in that order, where the
    # plan stands and in the other one.
    hcp-plan split --db l.db --ranks "$R" --seq-len 16K --mask causal --layout contiguous \
        --reorder --model llama-3-8b --json >free.json
    grep -q '"given_rank":1,.*"given_rank":0,' free.json
    hcp-plan split --db l.db --ranks 'nvidia-h200@mps:10,nvidia-h200@mps:100' --seq-len 16K \
        --mask causal --layout contiguous --model llama-3-8b --json >turned.json
    [ "$(grep -o '"\(tokens\|linear_[a-z_]*\|predicted_ms\)":[0-9.e-]*' free.json)" = \
        "$(grep -o '"\(tokens\|linear_[a-z_]*\|predicted_ms\)":[0-9.e-]*' turned.json)" ]
    run hcp-plan split --db l.db --ranks "$R" --tokens 16K,16K --mask causal --model llama-3-8b
    [ "$status" -eq 3 ]
    [[ "$output" == *"16384 tokens on 'nvidia-h200@mps:10' (rank 1) is outside"* ]]
    hcp-plan split --db l.db --ranks "$R" --tokens 16K,16K --mask causal --model llama-3-8b \
        --extrapolate
    run hcp-plan split --db l.db --ranks "$R" --seq-len 8K --model llama-3-8b --linear-us 1
    [ "$status" -eq 2 ]
    run hcp-plan split --db l.db --ranks "$R" --seq-len 8K --model llama-3-8b --ffn 5
    [ "$status" -eq 2 ]
    run hcp-plan split --db l.db --ranks "$R" --seq-len 8K --hidden 4096
    [ "$status" -eq 2 ]
    run hcp-plan split --db l.db --ranks "$R" --seq-len 8K --model none-such
    [ "$status" -eq 2 ]
}

@test "caps in bytes: kept to the byte, of a model's weights and layers, or said what is missing" {
    two='nvidia-h200@mps:100,nvidia-h200@mps:50'
    ask="hcp-plan split --ranks $two --seq-len 16K --layout zigzag --mask causal"
    # 4096 bytes a token and layer: 3000 tokens of 8 layers, and the other's block.
    need=$((8 * 4096 * 3072 + 4096 * (16384 - 3072)))
    $ask --layers 8 --memory 1="$need" --json >m.json
    [ "$(field tokens m.json)" -eq 3072 ]
    [ "$(field memory_bytes m.json)" -eq "$need" ]
    $ask --layers 8 --memory 1=$((need - 1)) --json >less.json
    [ "$(field tokens less.json)" -lt 3072 ]
    grep -q '"layers":8,"activation_bytes":0}' m.json
    hcp-plan simulate --plan m.json --json >s.json
    [ "$(field makespan_ms s.json)" = "$(field makespan_ms m.json)" ]
    run hcp-plan simulate --plan m.json --memory 1G
    [ "$status" -eq 2 ]
    # K M G T, activations, and the table.
    $ask --layers 8 --memory 1G,1G --weights 100M --activation-bytes 16K >m.txt
    grep -q 'MEMORY_GIB OF_GIB' m.txt
    grep -q '1.000' m.txt
    run $ask --layers 32 --memory 1G,512M
    [ "$status" -eq 3 ]
    [[ "$output" == *"short by"*"least is missing on rank "*" bytes beyond its "* ]]
    # So much more, and it is there.
    rank=${output#*missing on rank }
    rank=${rank%% *}
    more=${output#*): }
    more=${more%% bytes*}
    had=$((rank == 0 ? 1 << 30 : 1 << 29))
    other=$((rank == 0 ? 1 << 29 : 1 << 30))
    $ask --layers 32 --memory $rank=$((had + more)),$((1 - rank))=$other >/dev/null
    run $ask --layers 32 --memory $rank=$((had + more - 1)),$((1 - rank))=$other
    [ "$status" -eq 3 ]
    # A model's weights and layers.
    cp h.db w.db
    hcp-profile import --db w.db nvidia-h200-linear
    hcp-plan split --db w.db --ranks "$R" --seq-len 16K --mask causal --model llama-3-8b \
        --memory 80G,80G --json >w.json
    grep -q '"max_bytes":85899345920,"weight_bytes":13958643712,' w.json
    grep -q '"layers":32,' w.json
    hcp-plan split --db w.db --ranks "$R" --seq-len 16K --mask causal --model llama-3-8b \
        --memory 80G,80G --weights 10G --layers 16 --json >w.json
    grep -q '"weight_bytes":10737418240,' w.json
    grep -q '"layers":16,' w.json
    for bad in 80X 1.5G -1 '' 1G, 2048T; do
        run $ask --memory "$bad"
        [ "$status" -eq 2 ]
        [[ "$output" == *--memory* ]]
    done
    run $ask --layers -1
    [ "$status" -eq 2 ]
    run $ask --activation-bytes 5G
    [ "$status" -eq 2 ]
}

@test "what is not measured is refused with the command that helps" {
    run hcp-plan split --ranks 'nvidia-l40s' --seq-len 64K
    [ "$status" -eq 3 ]
    [[ "$output" == *"no profile for 'nvidia-l40s'"*"run 'hcp-profile run --db h.db' on that machine"* ]]
    run hcp-plan split --ranks 'nvidia-h200@mps:15' --seq-len 64K
    [ "$status" -eq 3 ]
    [[ "$output" == *"there is nvidia-h200@mps:10"* ]]
    run hcp-plan split --ranks "$R" --seq-len 64K --heads 16
    [ "$status" -eq 3 ]
    [[ "$output" == *"32/8 heads"* ]]
    run hcp-plan split --ranks "$R" --seq-len 64K --batch 2 # one batch is no answer for another
    [ "$status" -eq 3 ]
    [[ "$output" == *"batch 2) in h.db; run 'hcp-profile run --db h.db --limits mps:100 --batch 2'"* ]]
    run hcp-plan split --ranks "$R" --seq-len 1M --mask causal
    [ "$status" -eq 3 ]
    [[ "$output" == *"outside the measured lengths"*"--limits mps:100 --max-len 1048576"*"--extrapolate"* ]]
    hcp-plan split --ranks "$R" --seq-len 1M --mask causal --extrapolate --json >e.json
    grep -q '"source":"extrapolated"' e.json
    run hcp-plan split --ranks "$R" --seq-len 64K --phase decode
    [ "$status" -eq 3 ]
    [[ "$output" == *"run 'hcp-profile run --db h.db --limits mps:100 --phase decode'"* ]]
}

@test "bad usage says what was expected" {
    for bad in "--seq-len 0" "--seq-len -5" "--seq-len 64Q" "--seq-len 2000000000" \
        "--seq-len 1K --strategy fastest" "--seq-len 1K --tile 0" "--seq-len 1K --buffers 17" \
        "--seq-len 1K --link-gbps 1,5" "--seq-len 1K --layout spiral" "--seq-len 1K extra"; do
        # shellcheck disable=SC2086
        run hcp-plan split --ranks "$R" $bad
        echo "$bad: $output"
        [ "$status" -eq 2 ]
    done
    run hcp-plan split --ranks "$R"
    [ "$status" -eq 2 ]
    [[ "$output" == *"--seq-len is missing"* ]]
    run hcp-plan split --seq-len 1K
    [ "$status" -eq 2 ]
    [[ "$output" == *"--ranks is missing"* ]]
    run hcp-plan split --ranks "nvidia-h200@mps:0" --seq-len 1K
    [ "$status" -eq 2 ]
    run hcp-plan split --db nowhere.db --ranks "$R" --seq-len 1K
    [ "$status" -ne 0 ]
    [[ "$output" == *"nowhere.db"* ]]
}

@test "stale models are refused until fitted again" {
    cp h.db stale.db
    hcp-profile import --db stale.db nvidia-h200-sdpa
    run hcp-plan split --db stale.db --provider flash --ranks "$R" --seq-len 64K
    [ "$status" -eq 3 ]
    [[ "$output" == *"samples changed since the fit; run 'hcp-plan fit --db stale.db'"* ]]
    hcp-plan fit --quiet --db stale.db
    hcp-plan split --db stale.db --provider flash --ranks "$R" --seq-len 64K
    # cudnn is the kernel that is asked for: flash does not step in when it is stale.
    hcp-profile import --db stale.db nvidia-h200-cudnn919
    hcp-plan fit --quiet --db stale.db --provider flash
    run hcp-plan split --db stale.db --ranks "$R" --seq-len 4K
    [ "$status" -eq 3 ]
    [[ "$output" == *"samples changed since the fit"* ]]
    hcp-plan split --db stale.db --ranks "$R" --seq-len 4K --provider flash
}

@test "predict: one block, a list, exact hits, unknown cells" {
    run hcp-plan predict --ranks nvidia-h200@mps:10 --q-len 128 --kv-len 64K --mask full
    [ "$status" -eq 0 ]
    [[ "$output" == *"4.86784 ms"*"measured"* ]]
    hcp-plan predict --ranks nvidia-h200@mps:10 --q-len 1000 --kv-len 3000 --json >p.json
    grep -q '"source": *"interpolated"' p.json
    printf 'q_len,kv_len,mask\n128,65536,full\n1000,1000,causal\n' |
        hcp-plan predict --ranks nvidia-h200@mps:10 --cells - >cells.csv
    [ "$(sed -n 1p cells.csv)" = "q_len,kv_len,mask,predicted_ms,lo_ms,hi_ms,source" ]
    [[ "$(sed -n 2p cells.csv)" == "128,65536,full,4.86784,"*",measured" ]]
    [[ "$(sed -n 3p cells.csv)" == "1000,1000,causal,"*",interpolated" ]]
    printf 'q_len,kv_len,mask\n128,131072,full\n128,128,full\n' >c.csv
    run hcp-plan predict --ranks nvidia-h200@mps:10 --cells c.csv
    [ "$status" -eq 3 ]
    [[ "$output" == *"128,131072,full,,,,outside"*"128,128,full,0."* ]]
    [[ "$output" == *"1 of 2 cells not answered"* ]]
    run hcp-plan predict --ranks nvidia-h200@mps:10 --cells c.csv --extrapolate
    [ "$status" -eq 0 ]
    [[ "$output" == *",extrapolated"* ]]
}

@test "predict: damaged lists" {
    for bad in 'q,kv,mask\n1,1,full\n' '\xef\xbb\xbfq_len,kv_len,mask\n1,1,full\n' '' \
        'q_len,kv_len,mask\n1,1\n' 'q_len,kv_len,mask\n1,1,full,\n' \
        'q_len,kv_len,mask\n0,1,full\n' 'q_len,kv_len,mask\n1,1,half\n' \
        'q_len,kv_len,mask\n1.5,1,full\n'; do
        # shellcheck disable=SC2059
        printf "$bad" >bad.csv
        run hcp-plan predict --ranks nvidia-h200@mps:10 --cells bad.csv
        echo "$bad: $output"
        [ "$status" -eq 2 ]
        [[ "$output" == *"hcp-plan: "* ]]
    done
    run hcp-plan predict --ranks "$R" --cells bad.csv
    [ "$status" -eq 2 ]
    run hcp-plan predict --ranks nvidia-h200@mps:10 --q-len 5
    [ "$status" -eq 2 ]
}

@test "predict: cells from Windows, and as JSON" {
    printf 'q_len,kv_len,mask\r\n4096,4096,full\r\n1000000,128,full\r\n' >cells.csv
    run --separate-stderr hcp-plan predict --ranks nvidia-h200@mps:10 --cells cells.csv
    [ "$status" -eq 3 ]
    [[ "${lines[1]}" == 4096,4096,full,*,measured ]]
    [ "${lines[2]}" = 1000000,128,full,,,,outside ]
    run --separate-stderr hcp-plan predict --json --ranks nvidia-h200@mps:10 --cells cells.csv
    [ "$status" -eq 3 ]
    [[ "$output" == '[{"device":"nvidia-h200","limit":"mps:10","q_len":4096,'*'"predicted_ms":null,"source":"outside"}]' ]]
}

@test "a printed plan is a plan file" {
    hcp-plan split --ranks "$R" --seq-len 64K --mask causal --json >plan.json
    hcp-plan simulate --plan plan.json --json >sim.json
    [ "$(field planned_ms sim.json)" = "$(sed -n 's/.*"makespan_ms": *\([0-9.]*\),.*/\1/p' sim.json)" ]
    hcp-plan simulate --plan - <plan.json | grep -q 'finishes last'
    # A slower link, said on the command line, shows.
    hcp-plan simulate --plan plan.json --link-gbps 1 --json >slow.json
    less_equal "$(field planned_ms slow.json)" "$(sed -n 's/.*"makespan_ms": *\([0-9.]*\),.*/\1/p' slow.json)"
    sed 's/"tokens":/"tokens":1/' plan.json >broken.json
    run hcp-plan simulate --plan broken.json
    [ "$status" -eq 1 ]
    [[ "$output" == *"not a plan: "*"; print one with 'hcp-plan split --json'" ]]
    sed 's/"schema":1/"schema":2/' plan.json >newer.json
    run hcp-plan simulate --plan newer.json
    [ "$status" -eq 1 ]
    [[ "$output" == *"of a newer version"*"in 'schema'"* ]]
    sed 's/"tile":128/"tile":64/' plan.json >edited.json
    run hcp-plan simulate --plan edited.json
    [ "$status" -eq 0 ]
    [[ "$output" == *"changed after it was printed"* ]]
    run hcp-plan simulate --plan plan.json --ranks "$R"
    [ "$status" -eq 2 ]
    for split in '--seq-len 4K' '--layout striped' '--strategy even' '--tile 64'; do
        # shellcheck disable=SC2086
        run hcp-plan simulate --plan plan.json $split
        [ "$status" -eq 2 ]
        [[ "$output" == *"--plan is split already"* ]]
    done
    for option in --late-kv --hidden=4096 --ffn=14336 --mlp=plain; do # it names them, too
        run hcp-plan simulate --plan plan.json $option
        [ "$status" -eq 2 ]
        [[ "$output" == *"${option%=*},"* ]]
    done
    run hcp-plan simulate --plan nowhere.json
    [ "$status" -eq 1 ]
}

@test "an option overrides that part of a plan's ring, no other" {
    hcp-plan split --ranks "$R" --seq-len 8K --buffers 1 --barrier --json >ring.json
    run hcp-plan simulate --plan ring.json --link-gbps 10
    [[ "$output" == *"1 buffer, link 0 us + bytes / 10 GB/s, a barrier after every step"* ]]
    hcp-plan simulate --ranks "$R" --seq-len 8K --buffers 0 | grep -q 'unlimited buffers'
}

@test "a split of one's own: the numbers of a plan" {
    hcp-plan split --ranks "$R" --seq-len 60000 --mask causal --layout zigzag --json >best.json
    tokens=$(grep -o '"tokens":[0-9]*' best.json | cut -d: -f2 | paste -sd,)
    hcp-plan split --ranks "$R" --tokens "$tokens" --mask causal --json >own.json
    grep -q '"strategy":"given","seq_len":60000,"mask":"causal","layout":"zigzag"' own.json
    for key in makespan_ms bound_ms even_ms drop_ms; do
        [ "$(field $key own.json)" = "$(field $key best.json)" ]
    done
    run hcp-plan simulate --plan own.json
    [ "$status" -eq 0 ]
    [[ "$output" != *changed* ]]
    # Not in tiles, and a rank without any.
    run hcp-plan split --ranks "$R" --tokens 4999,0 --seq-len 4999
    [ "$status" -eq 0 ]
    [[ "$output" == *"given: "*"contiguous layout"* ]]
    for bad in '1,2,3' '5000' '4000,x' '4000,-1' '0,0' '4000,' ''; do
        run hcp-plan split --ranks "$R" --tokens "$bad"
        echo "$bad: $output"
        [ "$status" -eq 2 ]
    done
    run hcp-plan split --ranks "$R" --tokens 0,0
    [[ "$output" == *"--tokens gives no rank a token"* ]]
    # A number is read whole or not at all.
    run hcp-plan split --ranks "$R" --tokens 4000,00000000000000000000000001000 --json
    [ "$status" -eq 0 ]
    [[ "$output" == *'"seq_len":5000,'* ]]
    run hcp-plan split --ranks "$R" --tokens "4000,$(printf '%070d' 1000)"
    [ "$status" -eq 2 ]
    [[ "$output" == *"--tokens entry '0000"*"...' is too long"* ]]
    run hcp-plan split --ranks "$R" --tokens 4000,1000 --seq-len 4K
    [ "$status" -eq 2 ]
    [[ "$output" == *"add up to 5000, --seq-len is 4096"* ]]
    run hcp-plan split --ranks "$R" --tokens 4000,1000 --strategy even
    [ "$status" -eq 2 ]
    run hcp-plan split --ranks "$R" --seq-len 4K --strategy given
    [ "$status" -eq 2 ]
    run hcp-plan split --ranks "$R" --tokens 4000,1000 --max-tokens 1=900
    [ "$status" -eq 3 ]
    [[ "$output" == *"rank 1 has 1000 tokens, more than its memory cap of 900"* ]]
}

@test "blocks in pieces hide a slow link" {
    r='2*nvidia-h200@mps:100,2*nvidia-h200@mps:50'
    hcp-plan split --ranks "$r" --seq-len 64K --link-gbps 4 --json >whole.json
    grep -q '"sub_blocks":1' whole.json
    hcp-plan split --ranks "$r" --seq-len 64K --link-gbps 4 --sub-blocks 8 --json >pieces.json
    grep -q '"sub_blocks":8' pieces.json
    less_equal "$(field makespan_ms pieces.json)" "$(field makespan_ms whole.json)" -0.05
    print() { grep -o '"fingerprint":"[0-9a-f]*"' "$1"; }
    [ "$(print pieces.json)" != "$(print whole.json)" ]
    # simulate takes them from the plan, and from the command line.
    hcp-plan simulate --plan pieces.json --json >sim.json
    grep -q '"sub_blocks": *8' sim.json
    run hcp-plan simulate --plan whole.json --sub-blocks 4
    [ "$status" -eq 0 ]
    [[ "$output" == *"2 buffers, blocks in 4 pieces, link 0 us + bytes / 4 GB/s"* ]]
    # A plan from before there were pieces.
    sed 's/"sub_blocks":1,//' whole.json | hcp-plan simulate --plan - --json >old.json
    grep -q '"sub_blocks": *1' old.json
    for bad in 0 65 x; do
        run hcp-plan split --ranks "$r" --seq-len 64K --sub-blocks $bad
        [ "$status" -eq 2 ]
    done
}

@test "--joint: queries and KV split apart" {
    hcp-plan split --ranks "$R" --seq-len 64K --link-gbps 4 --sub-blocks 4 --json >tied.json
    hcp-plan split --ranks "$R" --seq-len 64K --link-gbps 4 --sub-blocks 4 --joint --json >joint.json
    run ! grep -q 'joint\|kv_segments\|tied' tied.json
    grep -q '"joint":true,"tied_ms":[0-9.]*,"gain_over_tied":1\.' joint.json
    [ "$(field tied_ms joint.json)" = "$(field makespan_ms tied.json)" ]
    less_equal "$(field makespan_ms joint.json)" "$(field makespan_ms tied.json)"
    [ "$(grep -o '"kv_segments":\[\[' joint.json | wc -l)" -eq 2 ]
    [ "$(field tokens joint.json)" != "$(field kv_tokens joint.json)" ]
    # The same question, the same plan; a plan file, its steps, and its evaluation.
    hcp-plan split --ranks "$R" --seq-len 64K --link-gbps 4 --sub-blocks 4 --joint --json | cmp - joint.json
    hcp-plan simulate --plan joint.json --json >sim.json
    [ "$(field planned_ms sim.json)" = "$(sed -n 's/.*"makespan_ms": *\([0-9.]*\),.*/\1/p' sim.json)" ]
    [ "$(grep -c '"kv_tokens"' sim.json)" -ge 1 ]
    run hcp-plan simulate --plan joint.json
    [[ "$output" != *changed* ]]
    [[ "$output" == *"blocks in 4 pieces, queries and KV split apart, link 0 us + bytes / 4 GB/s"* ]]
    list() { grep -o "\"$1\":[0-9]*" joint.json | cut -d: -f2 | paste -sd,; }
    hcp-plan split --ranks "$R" --tokens "$(list tokens)" --kv-tokens "$(list kv_tokens)" \
        --link-gbps 4 --sub-blocks 4 --layout contiguous --json >own.json
    [ "$(field makespan_ms own.json)" = "$(field makespan_ms joint.json)" ]
    # Text: a column each, and what it gains.
    run hcp-plan split --ranks "$R" --seq-len 64K --link-gbps 4 --sub-blocks 4 --joint
    [[ "$output" == *"KV_TOKENS"*"KV_SEGMENTS"* ]]
    [[ "$output" == *"queries and KV split apart; with KV where its queries are "*" ms (gain 1."* ]]
    run --separate-stderr hcp-plan compare --ranks "$R" --seq-len 64K --link-gbps 4 --joint
    [ "$status" -eq 0 ]
    [[ "$output" == *"even "*" 32768 32768"*"best "*[0-9]/[0-9]*"queries and KV split apart, which gains 1."* ]]
}

@test "--joint: caps are those of KV, damaged plans are refused" {
    hcp-plan split --ranks "$R" --seq-len 64K --mask causal --joint --max-tokens 0=20K --json >capped.json
    first() { grep -o "\"$1\":[0-9]*" capped.json | head -n 1 | cut -d: -f2; }
    less_equal "$(first kv_tokens)" 20480
    less_equal 40000 "$(first tokens)"
    run hcp-plan split --ranks "$R" --seq-len 64K --joint --max-tokens 30K,20K
    [ "$status" -eq 3 ]
    [[ "$output" == *"short by 14336 tokens"* ]]
    run hcp-plan split --ranks "$R" --tokens 4000,1000 --kv-tokens 2000,3000 --max-tokens 1=900
    [ "$status" -eq 3 ]
    [[ "$output" == *"rank 1 has 3000 tokens' KV, more than its memory cap of 900"* ]]
    for bad in '--kv-tokens 1,2' '--tokens 4K,1K --kv-tokens 4K,2K' '--tokens 4K,1K --kv-tokens 5K' \
        '--tokens 4K,1K --joint'; do
        # shellcheck disable=SC2086
        run hcp-plan split --ranks "$R" $bad
        echo "$bad: $output"
        [ "$status" -eq 2 ]
    done
    run hcp-plan split --ranks "$R" --tokens 4K,1K --kv-tokens 4K,2K
    [[ "$output" == *"--kv-tokens add up to 6144, --tokens to 5120"* ]]
    run hcp-plan split --ranks "257*nvidia-h200@mps:100" --seq-len 64K --joint
    [ "$status" -eq 2 ]
    [[ "$output" == *"up to 256 ranks, not for 257"* ]]
    # Caps in bytes: 4 KB a token and layer, and what is received.
    hcp-plan split --ranks "$R" --seq-len 64K --mask causal --joint --memory 160M,2G --layout contiguous \
        --layers 1 --json >bytes.json
    [[ "$(cat bytes.json)" =~ \"memory_bytes\":([0-9]+) ]]
    less_equal "${BASH_REMATCH[1]}" $((160 * 1024 * 1024))
    list() { grep -o "\"$1\":[0-9]*" bytes.json | cut -d: -f2 | paste -sd,; }
    run hcp-plan split --ranks "$R" --mask causal --layout contiguous --memory 16M,2G \
        --tokens "$(list tokens)" --kv-tokens "$(list kv_tokens)"
    [ "$status" -eq 3 ]
    [[ "$output" == *"rank 0 needs "*" queries, the KV of "*" more than its cap of 16777216"* ]]
    for with in --late-kv '--linear-us 0.1'; do
        # shellcheck disable=SC2086
        run hcp-plan split --ranks "$R" --seq-len 4K --joint $with
        [ "$status" -eq 2 ]
        [[ "$output" == *"leave --l"*" or --joint"* ]]
    done
    run hcp-plan simulate --plan capped.json --joint
    [ "$status" -eq 2 ]
    for edit in 's/"kv_tokens":/"kv_tokens":1/' 's/"joint":true/"joint":false/' \
        's/"kv_segments":\[\[0,/"kv_segments":[[1,/' 's/,"kv_segments":\[[][0-9,]*\]//'; do
        sed "$edit" capped.json >broken.json
        run hcp-plan simulate --plan broken.json
        echo "$edit: $output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"not a plan: "* ]]
    done
}

@test "--link takes the slowest neighbours' times from the database" {
    command -v sqlite3 || skip "no sqlite3 program"
    run hcp-plan split --ranks "$R" --seq-len 64K --link nccl
    [ "$status" -eq 3 ]
    [[ "$output" == *"never measured"*"hcp-profile link --db h.db --limits mps:100/mps:10 --transport nccl"* ]]
    run hcp-plan split --ranks "$R" --seq-len 64K --link smoke
    [ "$status" -eq 2 ]
    [[ "$output" == *"expected nccl or mpi"* ]]
    # One rank has no neighbour.
    hcp-plan split --ranks nvidia-h200@mps:100 --seq-len 8K --link nccl
    # 10 us and 100 GB/s between the wholes, 20 us and 50 GB/s to the tenth.
    cp h.db link.db
    for row in 'mps:100 mps:100 10 100' 'mps:100 mps:10 20 50'; do
        # shellcheck disable=SC2086
        set -- $row
        for bytes in 4096 1048576 268435456; do
            sqlite3 link.db "INSERT INTO link (run_id, device_a_id, device_b_id, limiter_a,
                limiter_b, transport, bytes, time_ms) SELECT min(r.id), min(d.id), min(d.id),
                '$1', '$2', 'nccl', $bytes, $3 / 1e3 + $bytes / ($4 * 1e6)
                FROM run r, device d"
        done
    done
    two='nvidia-h200@mps:100,nvidia-h200@mps:100'
    hcp-plan split --db link.db --ranks "$two" --seq-len 64K --link nccl --json >two.json
    less_equal "$(field link_gbps two.json)" 100.001
    less_equal 99.999 "$(field link_gbps two.json)"
    for ranks in "$two,nvidia-h200@mps:10" "nvidia-h200@mps:10,$two"; do
        hcp-plan split --db link.db --ranks "$ranks" --seq-len 64K --link nccl --json >l.json
        less_equal "$(field link_alpha_us l.json)" 20.001
        less_equal 19.999 "$(field link_alpha_us l.json)"
        less_equal "$(field link_gbps l.json)" 50.001
    done
    hcp-plan split --db link.db --ranks "$R" --seq-len 64K --link nccl --link-gbps 7 \
        --json >l.json
    grep -q '"link_gbps":7' l.json
    less_equal 19.999 "$(field link_alpha_us l.json)"
    run hcp-plan compare --db link.db --ranks "$R" --seq-len 8K --link nccl
    [ "$status" -eq 0 ]
    hcp-plan split --db link.db --ranks "$R" --seq-len 64K --json >no.json
    run hcp-plan simulate --db link.db --plan no.json --link nccl
    [[ "$output" == *"link 20 us + bytes / 50 GB/s"* ]]
    # A plan in an order of its own: the neighbours are those in its ring.
    both='nvidia-h200@mps:100,nvidia-h200@mps:10'
    hcp-plan split --ranks "$both,$both" --seq-len 32K --mask causal --layout contiguous \
        --max-tokens 9K --reorder --json >order.json
    [ "$(grep -o '"limit":"[^"]*"' order.json | uniq | wc -l)" -lt 4 ]
    run hcp-plan simulate --db link.db --plan order.json --link nccl
    [ "$status" -eq 3 ]
    [[ "$output" == *"nvidia-h200@mps:10,nvidia-h200@mps:10 by nccl was never measured"* ]]
    run hcp-plan split --db link.db --ranks "$R" --seq-len 64K --link mpi
    [ "$status" -eq 3 ]
}

@test "--channels takes the links measured with so many" {
    command -v sqlite3 || skip "no sqlite3 program"
    cp h.db channels.db
    pair='nvidia-h200@mps:100,nvidia-h200@mps:100'
    # 300 GB/s by NCCL's choice, 30 with one channel
    for bytes in 4096 1048576 268435456; do
        sqlite3 channels.db "INSERT INTO link (run_id, device_a_id, device_b_id, limiter_a,
            limiter_b, transport, channels, bytes, time_ms) SELECT min(r.id), min(d.id),
            min(d.id), 'mps:100', 'mps:100', 'nccl', c.n, $bytes, 0.01 + $bytes * c.ms
            FROM run r, device d, (SELECT NULL n, 1 / 300e6 ms UNION SELECT 1, 1 / 30e6) c
            GROUP BY c.ms"
    done
    plan=(hcp-plan split --db channels.db --ranks "$pair" --seq-len 64K --json)
    for option in --link --links; do
        "${plan[@]}" $option nccl >auto.json
        "${plan[@]}" $option nccl --channels auto | cmp - auto.json
        "${plan[@]}" $option nccl --channels 1 >one.json
        grep -q '"link_gbps":\(300\|299\.9\)' auto.json
        grep -q '"link_gbps":\(30[,.}]\|29\.9\)' one.json
        run "${plan[@]}" $option nccl --channels 2
        [ "$status" -eq 3 ]
        [[ "$output" == *"by nccl of 2 channels was never measured in 'channels.db'; where these devices are, measure it with 'hcp-profile link --db channels.db --limits mps:100/mps:100 --transport nccl --channels 2'"* ]]
    done
    for other in "--link mpi" "--link-gbps 30" "--links channels.txt"; do
        # shellcheck disable=SC2086 # options and their values
        run "${plan[@]}" $other --channels 2
        [ "$status" -eq 2 ]
        [[ "$output" == *"--channels says which times --link nccl or --links nccl takes; give one of them"* ]]
    done
    for wrong in 0 3 64 few; do
        run "${plan[@]}" --link nccl --channels $wrong
        [ "$status" -eq 2 ]
        [[ "$output" == *"--channels '$wrong' is neither auto nor a power of two up to 32"* ]]
    done
    # Those are NCCL's: of another transport's times there is one kind.
    run "${plan[@]}" --link mpi --links nccl --channels 1
    [[ "$output" == *"by mpi was never measured"*"--transport mpi'"* ]]
}

@test "--link and --links: within a host and between hosts are not one link" {
    command -v sqlite3 || skip "no sqlite3 program"
    cp h.db link.db
    pair='nvidia-h200@mps:100,nvidia-h200@mps:100'
    # 10 us and 300 GB/s within a host
    for bytes in 4096 1048576 268435456; do
        sqlite3 link.db "INSERT INTO link (run_id, device_a_id, device_b_id, limiter_a,
            limiter_b, same_host, transport, bytes, time_ms) SELECT min(r.id), min(d.id),
            min(d.id), 'mps:100', 'mps:100', 1, 'nccl', $bytes, 0.01 + $bytes / 300e6
            FROM run r, device d"
    done
    plan=(hcp-plan split --db link.db --ranks "$pair" --seq-len 64K --json)
    "${plan[@]}" --link nccl >l.json # there is only one kind
    less_equal 299.9 "$(field link_gbps l.json)"
    run "${plan[@]}" --link nccl:between
    [ "$status" -eq 3 ]
    [[ "$output" == *"by nccl between hosts was never measured in 'link.db'; where these devices are, measure it with 'mpirun -np 2 --host A,B hcp-profile link --db link.db --limits mps:100/mps:100 --transport nccl'"* ]]
    # a tenth of it between hosts
    sqlite3 link.db "INSERT INTO link (run_id, device_a_id, device_b_id, limiter_a,
        limiter_b, same_host, host_b, transport, bytes, time_ms) SELECT run_id, device_a_id,
        device_b_id, limiter_a, limiter_b, 0, 'n2', transport, bytes, 10 * time_ms FROM link
        WHERE same_host = 1"
    for option in --link --links; do
        run "${plan[@]}" $option nccl
        [ "$status" -eq 2 ]
        [[ "$output" == *"link nvidia-h200@mps:100,nvidia-h200@mps:100 by nccl in 'link.db' was measured within a host (3 rows) and between hosts (3); say which it is: nccl:within or nccl:between"* ]]
        "${plan[@]}" $option nccl:within >w.json
        "${plan[@]}" $option nccl:between >b.json
        # of the plan, or of each rank
        grep -q '"link_gbps":\(300\|299\.9\)' w.json
        grep -q '"link_gbps":\(30[,.}]\|29\.9\)' b.json
    done
    # Where the ranks are: each pair by what it is, and the slowest neighbours'.
    four=(hcp-plan split --db link.db --ranks '4*nvidia-h200@mps:100' --seq-len 64K --mask causal --layout zigzag)
    speeds() { grep -o '"link_gbps":[0-9.]*,"link_slow' "$1" | sed 's/[^0-9.]//g' | awk '{ printf "%.0f ", $1 }'; }
    "${four[@]}" --links nccl --hosts 2 --json >f.json
    [ "$(speeds f.json)" = "300 30 300 30 " ]
    "${four[@]}" --links nccl --hosts 2*a,b,b --json | cmp - f.json
    "${four[@]}" --links nccl --hosts a,b,a,b --json >f.json
    [ "$(speeds f.json)" = "30 30 30 30 " ]
    "${four[@]}" --links nccl:within --hosts a,b,a,b --json >f.json
    [ "$(speeds f.json)" = "300 300 300 300 " ]
    "${four[@]}" --link nccl --hosts 2 --json >f.json
    less_equal "$(field link_gbps f.json)" 30.1
    "${four[@]}" --link nccl --hosts 4 --json >f.json
    less_equal 299 "$(field link_gbps f.json)"
    for bad in 3:'no whole number of hosts' a,b,c:'names 3 ranks, --ranks has 4' 5*a:'more than 4 ranks' \
        a,,b:'a name that is empty' '2*':'no name after'; do
        run "${four[@]}" --links nccl --hosts "${bad%:*}"
        echo "$bad: $output"
        [ "$status" -eq 2 ]
        [[ "$output" == *"${bad##*:}"* ]]
    done
    run hcp-plan simulate --plan f.json --hosts 2
    [ "$status" -eq 2 ]
    # Ranks on nodes have both, the slower of which may be given.
    nodes=(hcp-plan split --db link.db --ranks '4*nvidia-h200@mps:100' --seq-len 64K --node-ranks 2 --json)
    "${nodes[@]}" --link nccl >n.json
    grep -q '"link_gbps":\(300\|299\.9\)' n.json
    grep -q '"node_gbps":\(30[,.}]\|29\.9\)' n.json
    "${nodes[@]}" --link nccl --node-gbps 6 >n.json
    grep -q '"link_gbps":\(300\|299\.9\)' n.json
    grep -q '"node_gbps":6[,}]' n.json
    sqlite3 link.db 'DELETE FROM link WHERE same_host = 0'
    run "${nodes[@]}" --link nccl
    [ "$status" -eq 3 ]
    [[ "$output" == *"by nccl between hosts was never measured"* ]]
    run "${plan[@]}" --link nccl:beside
    [ "$status" -eq 2 ]
    [[ "$output" == *"expected nccl or mpi, or one of them with :within or :between"* ]]
}

@test "a missing shape names the options that measure it" {
    run hcp-plan split --ranks "$R" --seq-len 8K --kv-heads 4 --dtype fp16 --provider cudnn
    [ "$status" -eq 3 ]
    [[ "$output" == *"'hcp-profile run --db h.db --limits mps:100 --provider cudnn --dtype fp16 --kv-heads 4'"* ]]
}

@test "simulate shows who waits" {
    run hcp-plan simulate --ranks '3*nvidia-h200@mps:100' --seq-len 48K --mask causal \
        --layout contiguous --link-gbps 10 --link-alpha-us 10
    [ "$status" -eq 0 ]
    [[ "${output,,}" == *"wait_ms"* ]]
    [[ "$output" == *"makespan"*"contiguous layout"* ]]
}

@test "a compare row without an answer says why, the others stand" {
    cp h.db nopoly.db
    hcp-plan compare --db nopoly.db --ranks "$R" --seq-len 64K --layout striped --stripes 4 \
        --mask causal
    # 100000 tokens: two halves are measured, the whole on one rank is not.
    run hcp-plan compare --ranks 'nvidia-h200@mps:100,nvidia-h200@mps:100' --seq-len 100000 \
        --mask causal --layout zigzag
    [ "$status" -eq 0 ]
    run hcp-plan compare --ranks "$R" --seq-len 100000 --mask causal --layout zigzag
    [ "$status" -eq 3 ]
    [[ "$output" == *"outside the measured lengths"* ]]
}

@test "best takes a layout whose block times are measured" {
    # Contiguous would be a little faster, with a share longer than anything measured.
    two='nvidia-h200@mps:100,nvidia-h200@mps:50'
    hcp-plan split --ranks "$two" --seq-len 100000 --mask causal --json >auto.json
    grep -q '"layout":"zigzag"' auto.json
    hcp-plan split --ranks "$two" --seq-len 100000 --mask causal --extrapolate --json >any.json
    grep -q '"layout":"contiguous"' any.json
    less_equal "$(field makespan_ms any.json)" "$(field makespan_ms auto.json)"
    run hcp-plan split --ranks "$two" --seq-len 100000 --mask causal --layout contiguous
    [ "$status" -eq 3 ]
}

@test "disk full while printing is an error" {
    [ -w /dev/full ] || skip "no /dev/full"
    run bash -c "hcp-plan split --ranks '$R' --seq-len 64K --json >/dev/full"
    [ "$status" -eq 1 ]
    [[ "$output" == *"cannot write"* ]]
}

@test "help names every command; unknown commands are usage errors" {
    run hcp-plan --help
    [ "$status" -eq 0 ]
    for c in fit predict split compare simulate; do
        [[ "$output" == *"$c"* ]]
        hcp-plan $c --help | grep -q -- --db
    done
    run hcp-plan splt
    [ "$status" -eq 2 ]
}

@test "--reorder, --fix-order and --links" {
    four='2*nvidia-h200@mps:100,2*nvidia-h200@mps:50'
    cat >net <<-end
	# two nodes with a network card each, ranks 0 and 2 on one, 1 and 3 on the other
	share card0 12
	share card1 12
	link * * 25 12 share=card0
	link 1 0-2 25 12 share=card1 overhead_us=5 slowdown=1.1 transfer_slowdown=1.5
	link 3 0-2 25 12 share=card1 overhead_us=5 slowdown=1.1 transfer_slowdown=1.5
	both 0 2 8 150
	both 1 3 8 150
	end
    ask="hcp-plan split --ranks $four --seq-len 32K --mask causal --layout zigzag"
    $ask --json >plain.json
    $ask --links net --json >given.json
    $ask --links net --fix-order --json >fixed.json
    $ask --links net --reorder --json >free.json
    run ! grep -q 'given_rank\|given_order_ms' plain.json
    # A slow network costs; the caller's order is kept unless asked, and the gain is said.
    less_equal "$(field makespan_ms plain.json)" "$(field makespan_ms given.json)" -0.001
    [ "$(field given_order_ms fixed.json)" = "$(field given_order_ms free.json)" ]
    [ "$(field makespan_ms given.json)" = "$(field given_order_ms free.json)" ]
    [ "$(field makespan_ms fixed.json)" = "$(field given_order_ms free.json)" ]
    [ "$(field makespan_ms free.json)" = "$(field any_order_ms fixed.json)" ]
    less_equal "$(field makespan_ms free.json)" "$(field makespan_ms fixed.json)" -0.03
    [ "$(grep -o '"given_rank":[0-9]*' fixed.json | tr -dc '0-9\n' | tr '\n' ' ')" = "0 1 2 3 " ]
    [ "$(grep -o '"given_rank":[0-9]*' free.json | tr -dc '0-9\n' | sort | tr '\n' ' ')" = "0 1 2 3 " ]
    # The plan of the order chosen is that of ranks named in that order.
    hcp-plan simulate --plan free.json --json >sim.json
    less_equal "$(field makespan_ms free.json)" "$(field makespan_ms sim.json)" 1e-12
    less_equal "$(field makespan_ms sim.json)" "$(field makespan_ms free.json)" 1e-12
    grep -o '"given_rank":[0-9]*' free.json >want
    tr -d ' \n' <sim.json | grep -o '"given_rank":[0-9]*' | cmp - want
    hcp-plan simulate --plan free.json | grep -q '^order in the ring, as the ranks were given: [0-9 ]*$'
    # One link for all replaces those of the plan.
    run hcp-plan simulate --plan free.json --link-gbps 200
    [[ "$output" == *"link 0 us + bytes / 200 GB/s"* ]]
    run $ask --links net --reorder
    [ "$status" -eq 0 ]
    [[ "$output" == *"GIVEN_RANK"* && "$output" == *"a link for each pair"* ]]
    run $ask --links net --fix-order
    [[ "$output" == *"order of --ranks kept; another would take"* ]]
}

@test "--late-kv: what it gains, in text, in a plan file and in simulate" {
    ask="hcp-plan split --ranks 4*nvidia-h200@mps:100 --seq-len 32K --mask causal --max-tokens 9K
        --link-gbps 150 --link-alpha-us 10 --linear-us 0.02:0,0.8:0,0.02:0,0.02:0"
    $ask --json >turn.json
    $ask --late-kv --json >late.json
    run ! grep -q 'late_kv\|late_slots\|in_turn_ms' turn.json
    [ "$(field makespan_ms turn.json)" = "$(field in_turn_ms late.json)" ]
    less_equal "$(field makespan_ms late.json)" "$(field in_turn_ms late.json)" -0.1
    less_equal "$(field late_bound_ms late.json)" "$(field makespan_ms late.json)" 1e-12
    grep -q '"late_slots":[1-9]' late.json
    # A plan file is the same plan.
    hcp-plan simulate --plan late.json --json >sim.json
    less_equal "$(field makespan_ms late.json)" "$(field makespan_ms sim.json)" 1e-12
    less_equal "$(field makespan_ms sim.json)" "$(field makespan_ms late.json)" 1e-12
    run $ask --late-kv
    [[ "$output" == *"late KV: of rank 1 by 1; in turn"*"no order of these blocks is below"* ]]
    # In turn there is nothing to gain where nobody is late.
    run hcp-plan split --ranks '2*nvidia-h200@mps:100' --seq-len 16K --late-kv
    [[ "$output" == *"late KV: of no rank"* ]]
    for with in '--sub-blocks 2' --barrier; do # refused in the words of options
        run $ask --late-kv $with
        [ "$status" -eq 2 ]
        [[ "$output" == *"--late-kv is for whole blocks without a barrier; leave --sub-blocks"* ]]
        run hcp-plan simulate --plan late.json $with
        [ "$status" -eq 2 ]
        [[ "$output" == *"late.json has late KV, which is for whole blocks"*"leave --sub-blocks"* ]]
    done
    run hcp-plan split --ranks "$R" --seq-len 4K --node-ranks 1 --late-kv
    [ "$status" -eq 2 ]
    [[ "$output" == *"leave "*"--late-kv and --joint out"* ]]
    grep -q '"late_kv":true,.*"late_slots":1' <(hcp-plan simulate --plan late.json --json | tr -d ' \n')
    run hcp-plan simulate --plan late.json
    [[ "$output" == *"late KV: of rank 1 by 1"* ]]
    run hcp-plan simulate --plan late.json --late-kv
    [ "$status" -eq 2 ]
    for broken in 's/"late_slots":[0-9]*/"late_slots":64/' 's/"sub_blocks":1/"sub_blocks":2/'; do
        sed "$broken" late.json >broken.json
        run hcp-plan simulate --plan broken.json
        [ "$status" -eq 1 ]
        [[ "$output" == *"not a plan"* ]]
    done
    run hcp-plan split --ranks '65*nvidia-h200@mps:100' --seq-len 64K --late-kv
    [ "$status" -eq 2 ]
    [[ "$output" == *"late KV is for up to 64 ranks"* ]]
}

@test "--late-kv answers inside the measured lengths where a faster split is outside" {
    hcp-profile import --db late.db nvidia-h200-cudnn
    hcp-plan fit --quiet --db late.db
    set -- --db late.db --ranks \
        nvidia-h200@mps:100,nvidia-h200@mps:10,nvidia-h200@mps:50 --seq-len 1605 \
        --mask causal --layout contiguous --link-gbps 20 --linear-us 5:0,5:0,1:0
    run hcp-plan split "$@"
    [ "$status" -eq 3 ]
    hcp-plan split "$@" --late-kv --json >late.json
    grep -q '"source":"interpolated"' late.json
    grep -q '"in_turn_ms":null' late.json
    less_equal "$(field makespan_ms late.json)" "$(field drop_ms late.json)" 1e-9
    less_equal "$(field makespan_ms late.json)" "$(makespan "$@" --late-kv --strategy even)" 1e-9
    run hcp-plan split "$@" --late-kv
    [[ "$output" == *"; in turn not known, no order of these blocks is below "* ]]
}

@test "--late-kv --reorder: orders are compared with late keys and values" {
    set -- --ranks '3*nvidia-h200@mps:100,nvidia-h200@mps:50' --seq-len 32K --mask causal \
        --max-tokens 9K --link-gbps 150 --link-alpha-us 10 \
        --linear-us 0.02:0,0.8:0,0.02:0,0.02:0
    hcp-plan split "$@" --late-kv --json >given.json
    hcp-plan split "$@" --late-kv --reorder --json >free.json
    hcp-plan split "$@" --late-kv --fix-order --json >fixed.json
    hcp-plan split "$@" --reorder --json >turn.json
    less_equal "$(field makespan_ms free.json)" "$(field makespan_ms given.json)" 1e-12
    less_equal "$(field makespan_ms free.json)" "$(field makespan_ms turn.json)" 1e-12
    less_equal "$(field in_turn_ms free.json)" "$(field makespan_ms turn.json)" 1e-12
    [ "$(field any_order_ms free.json)" = "$(field makespan_ms free.json)" ]
    [ "$(field any_order_ms fixed.json)" = "$(field makespan_ms free.json)" ]
    [ "$(field given_order_ms fixed.json)" = "$(field makespan_ms fixed.json)" ]
    [ "$(field given_order_ms free.json)" = "$(field makespan_ms fixed.json)" ]
    hcp-plan simulate --plan free.json --json >sim.json
    less_equal "$(field makespan_ms free.json)" "$(field makespan_ms sim.json)" 1e-12
    less_equal "$(field makespan_ms sim.json)" "$(field makespan_ms free.json)" 1e-12
}

@test "what --links cannot read is named by line" {
    ask="hcp-plan split --ranks $R --seq-len 8K --links bad"
    try() { # LINE WHAT
        printf '%s\n' '# comment' "$1" >bad
        run $ask
        [ "$status" -eq 2 ]
        [[ "$output" == *"bad, line 2: "*"$2"* ]]
    }
    try "link 0 2 1 1" "'2'"
    try "link 1-0 0 1 1" "'1-0'"
    try "link 0 1 x 1" "'x'"
    try "link 0 1 1 -3" "'-3'"
    try "link 0 1 1 1 share=card" "'share=card'"
    try "link 0 1 1 1 share=" "'share='"
    try "link 0 1 1 1 slowdown=0.5" "'slowdown=0.5'"
    try "share card" "speed"
    try "cable 0 1 1 1" "'cable'"
    run hcp-plan split --ranks "$R" --seq-len 8K --links nowhere
    [ "$status" -eq 1 ]
    [[ "$output" == *"nowhere"* ]]
    run hcp-plan split --ranks "$R" --seq-len 8K --links nccl
    [ "$status" -eq 3 ]
    [[ "$output" == *"hcp-profile link"* ]]
    run hcp-plan split --ranks "$R" --seq-len 8K --reorder --fix-order
    [ "$status" -eq 2 ]
    run hcp-plan split --ranks "$R" --tokens 4K,4K --reorder
    [ "$status" -eq 2 ]
}

makespan() { # ARGS OF SPLIT
    hcp-plan split --json "$@" | grep -o '"makespan_ms":[0-9.]*' | tr -dc '0-9.'
}

@test "with --reorder, too, best is no slower than another strategy" {
    ranks=''
    for limit in 100 50 50 100 50; do
        ranks="$ranks${ranks:+,}nvidia-h200@mps:$limit"
    done
    for strategy in even proportional lut poly; do
        less_equal "$(makespan --ranks "$ranks" --seq-len 39245 --mask causal \
            --layout contiguous --link-alpha-us 8 --reorder)" \
            "$(makespan --ranks "$ranks" --seq-len 39245 --mask causal \
                --layout contiguous --link-alpha-us 8 --reorder --strategy $strategy)" 1e-9
    done
}

@test "--late-kv is no slower with --reorder, nor best than another strategy" {
    ranks='nvidia-h200@mps:100,nvidia-h200@mps:80,nvidia-h200@mps:10'
    ranks="$ranks,nvidia-h200@mps:60,nvidia-h200@mps:70"
    set -- --ranks "$ranks" --seq-len 64K --layout zigzag --buffers 3 --link-gbps 155 \
        --linear-us 0.5:0.2,5:0.2,5:0.2,0:0.2,0.5:0.2 --extrapolate --late-kv
    less_equal "$(makespan "$@" --reorder)" "$(makespan "$@")" 1e-9
    set -- --ranks '6*nvidia-h200@mps:10' --seq-len 1959 --link-alpha-us 8 --link-gbps 155 \
        --max-tokens 658,852,0,979,1959,1959 --extrapolate --late-kv \
        --linear-us 5:0.2,5:0.2,2+100:0.2,2+100:0.2,5:0.2,5:0.2
    for strategy in even nominal proportional lut poly; do
        less_equal "$(makespan "$@")" "$(makespan "$@" --strategy $strategy)" 1e-9
    done
}

@test "--joint is no slower than other strategies where the best tied split is unmeasured" {
    ranks=''
    hcp-profile import --db j.db nvidia-h200-cudnn
    hcp-plan fit --quiet --db j.db
    for limit in 20 50 60 60 100; do
        ranks="$ranks${ranks:+,}nvidia-h200@mps:$limit"
    done
    set -- --db j.db --ranks "$ranks" --seq-len 13347 --mask causal --layout contiguous \
        --link-gbps 1 --tile 1 --max-tokens 12587
    run hcp-plan split "$@"
    [ "$status" -eq 3 ]
    less_equal "$(makespan "$@" --joint)" "$(makespan "$@" --strategy proportional)" 1e-9
}

@test "a joint plan is exact by the models that predict it alone" {
    hcp-plan split --ranks "$R" --seq-len 8K --link-gbps 5 --joint --json >best.json
    grep -q '"model":"lut"' best.json
    grep -q '"exact":true' best.json
    hcp-plan split --ranks "$R" --seq-len 8K --link-gbps 5 --joint --strategy poly --json |
        grep -q '"exact":false'
}

@test "--links takes what was measured between each pair" {
    hcp-profile import --db l.db nvidia-h200-fa2
    hcp-profile import --db l.db nvidia-h200-links
    hcp-plan fit --quiet --db l.db
    hcp-plan split --db l.db --ranks '2*nvidia-h200@mps:100,nvidia-h200@mps:10' --seq-len 64K \
        --links nccl --mask causal --json >pairs.json
    hcp-plan split --db l.db --ranks '2*nvidia-h200@mps:100' --seq-len 64K --link nccl \
        --mask causal --json >one.json
    hcp-plan split --db l.db --ranks '2*nvidia-h200@mps:100' --seq-len 64K --links nccl \
        --mask causal --json >two.json
    [ "$(field link_gbps one.json)" = "$(field link_gbps two.json)" ] ||
        grep -q "\"link_gbps\":$(grep -o '"link_gbps":[0-9.]*,"models' one.json | tr -dc '0-9.')" two.json
    [ "$(grep -o '"makespan_ms":[0-9.]*' one.json)" = "$(grep -o '"makespan_ms":[0-9.]*' two.json)" ]
    grep -q '"given_rank":2' pairs.json
    run ! grep -q '"link_slowdown":[1-9]' two.json
    # What computing and a transfer cost each other, once it is measured.
    echo '{"kind":"interference","device":"nvidia-h200","limit":"mps:100","provider":"flash","mask":"full","q_len":4096,"kv_len":8192,"peer_device":"nvidia-h200","peer_limit":"mps:100","transport":"nccl","bytes":33554432,"alone_ms":2,"beside_ms":2.5,"transfer_alone_ms":3,"transfer_beside_ms":3.5,"wait_ms":0.02,"samples":30,"sm_seen":132,"sm_count":132,"host":"left","run_uid":"11111111-2222-3333-4444-555555555555"}' >beside.jsonl
    hcp-profile import --db l.db beside.jsonl
    hcp-plan split --db l.db --ranks '2*nvidia-h200@mps:100' --seq-len 64K --links nccl \
        --mask causal --json >beside.json
    less_equal 1.249 "$(field link_slowdown beside.json)"
    less_equal "$(field link_slowdown beside.json)" 1.251
    grep -q '"link_overhead_us":20' beside.json
    less_equal "$(field makespan_ms two.json)" "$(field makespan_ms beside.json)" -0.001
}

@test "--double-ring: rings of rings where they are faster" {
    ask="hcp-plan split --ranks 8*nvidia-h200@mps:100 --seq-len 64K --link-gbps 200"
    $ask --node-ranks 4 --node-gbps 6 --json >one.json
    $ask --node-ranks 4 --node-gbps 6 --double-ring --json >two.json
    grep -q '"rings":"one","inner_ranks":0}' one.json
    run ! grep -q 'two_level' one.json
    grep -q '"node_ranks":4,"node_alpha_us":0,"node_gbps":6,"node_shared_gbps":null,"rings":"best","inner_ranks":4,' two.json
    [ "$(field one_ring_ms two.json)" = "$(field makespan_ms one.json)" ]
    [ "$(field two_level_ms two.json)" = "$(field makespan_ms two.json)" ]
    less_equal "$(field makespan_ms two.json)" "$(field makespan_ms one.json)" -0.3
    # A plan file has it all: what simulate finds is what the plan said.
    hcp-plan simulate --plan two.json --json >sim.json
    [ "$(field makespan_ms sim.json)" = "$(field makespan_ms two.json)" ]
    run $ask --node-ranks 4 --node-gbps 6 --double-ring
    [[ "$output" == *"rings of 4 ranks on every node"*"one ring would take"*"(gain "* ]]
    [[ "$output" == *"nodes of 4 ranks, 0 us + bytes / 6 GB/s between them"* ]]
    # Fast enough between nodes: one ring.
    $ask --node-ranks 4 --node-gbps 200 --double-ring --json >fast.json
    grep -q '"inner_ranks":0,' fast.json
    less_equal "$(field makespan_ms fast.json)" "$(field two_level_ms fast.json)"
    # Not where blocks stop on their way.
    run $ask --node-ranks 4 --node-gbps 6 --double-ring --mask causal --layout contiguous
    [[ "$output" == *"one ring: there are none of rings here"* ]]
    run $ask --double-ring
    [ "$status" -eq 2 ]
    [[ "$output" == *"need --node-ranks"* ]]
    for with in '--sub-blocks 2' --barrier; do
        # shellcheck disable=SC2086 # an option and its value
        run hcp-plan simulate --plan two.json $with
        [ "$status" -eq 2 ]
        [[ "$output" == *"two.json is for rings of rings, which have whole blocks and no barrier; leave --sub-blocks and --barrier out"* ]]
    done
    run $ask --node-ranks 4 --reorder
    [ "$status" -eq 2 ]
    run $ask --node-ranks 4 --node-gbps -1
    [ "$status" -eq 2 ]
    run hcp-plan simulate --plan two.json --node-ranks 4
    [ "$status" -eq 2 ]
}

@test "thousands of ranks: a line for those that are alike" {
    ask="hcp-plan split --ranks 2048*nvidia-h200@mps:100,2048*nvidia-h200@mps:50 --seq-len 16M --extrapolate"
    run $ask --mask causal --layout zigzag
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -lt 20 ]
    [[ "$output" == *"ranks that are alike share a line"* ]]
    # The lines have all ranks and all tokens.
    echo "$output" | awk '/nvidia-h200/ { ranks += $1; tokens += $1 * $5 }
        END { exit !(ranks == 4096 && tokens == 16 * 1048576) }'
    $ask --mask causal --layout zigzag --json >many.json
    [ "$(grep -o '"rank":' many.json | wc -l)" -eq 4096 ]
    run $ask --mask causal --layout contiguous
    [ "${#lines[@]}" -lt 75 ]
    [[ "$output" == *" more ranks"* ]]
}

@test "split --documents says who has what, cuts where that helps, and says where" {
    W='4*nvidia-h200@mps:100'
    D=4096,8192,700,16K,2K,32K,5000
    run hcp-plan split --ranks "$W" --mask causal --documents $D
    [ "$status" -eq 0 ]
    [[ "$output" == *"7 documents, 69188 tokens, causal mask"* ]]
    [[ "$output" == *"document 5 of 32768"* ]]
    [[ "$output" == *"even tokens: "*"whole documents: "* ]]
    hcp-plan split --ranks "$W" --mask causal --documents $D --json >d.json
    grep -q '"schema":1,"documents":7,"tokens":69188,"mask":"causal","phase":"prefill"' d.json
    less_equal "$(field bound_ms d.json)" "$(field makespan_ms d.json)"
    less_equal "$(field makespan_ms d.json)" "$(field even_ms d.json)"
    less_equal 2 "$(field gain_over_whole d.json)" # 32K alone take more than half of it
    # Parts of document 5 cover it once.
    grep -o '\[5,[0-9]*,[0-9]*\]' d.json | tr -d '[]' |
        awk -F, '$2 != end { exit 1 } { end += $3 } END { exit end != 32768 }'
    # The same from a file, by standard input, and with lengths repeated.
    printf '# lengths\n4096 8192,700\n16K 2K\n\n32K, 5000 # end\n' >lengths
    hcp-plan split --ranks "$W" --mask causal --documents lengths --json | cmp - d.json
    hcp-plan split --ranks "$W" --mask causal --documents - --json <lengths | cmp - d.json
    hcp-plan split --ranks "$W" --mask causal --documents 3*500,1000 --json >a.json
    hcp-plan split --ranks "$W" --mask causal --documents 500,500,500,1000 --json | cmp - a.json
}

@test "split --documents: whole ones, cut-gain, unequal ranks and linear work" {
    U='nvidia-h200@mps:100,nvidia-h200@mps:50,nvidia-h200@mps:10'
    hcp-plan split --ranks "$U" --mask causal --documents 9K,8K,3*4K,2000 --json >cut.json
    hcp-plan split --ranks "$U" --mask causal --documents 9K,8K,3*4K,2000 \
        --whole-documents --json >whole.json
    grep -q '"cuts":\[\]' whole.json
    [ "$(field makespan_ms whole.json)" = "$(field whole_ms cut.json)" ]
    less_equal "$(field makespan_ms cut.json)" "$(field makespan_ms whole.json)" 0.0001
    hcp-plan split --ranks "$U" --mask causal --documents 9K,8K,3*4K,2000 --cut-gain 10 \
        --json >ten.json
    grep -q '"cuts":\[\]' ten.json
    grep -q '"uneven":"gain"' ten.json
    # A tenth of the GPU has about a tenth of the area.
    grep -o '"area":[0-9]*' cut.json | cut -d: -f2 |
        awk '{ a[NR] = $1; s += $1 } END { exit !(a[1] > a[2] && a[2] > a[3] && a[3] < 0.15 * s) }'
    # Linear work a token: the rank with the long document gets fewer others.
    hcp-plan split --ranks '2*nvidia-h200@mps:100' --mask causal --documents 16K,40*512 \
        --linear-us 5 --json >linear.json
    hcp-plan split --ranks '2*nvidia-h200@mps:100' --mask causal --documents 16K,40*512 \
        --json >plain.json
    ! cmp -s linear.json plain.json
    less_equal "$(field imbalance linear.json)" 0.02
    run hcp-plan split --ranks "$U" --mask full --documents 9K,8K,3*4K,2000
    [ "$status" -eq 0 ]
    [[ "$output" == *"0 documents cut"*"no document is to be cut"* ]]
}

@test "split --documents: what is wrong, and what to do" {
    fails() { # status, text, arguments
        local want=$1 why=$2
        shift 2
        run hcp-plan split --ranks "$R" "$@"
        [ "$status" -eq "$want" ]
        [ "${#lines[@]}" -le 2 ] # argp adds where help is
        [[ "$output" == *"$why"* ]]
    }
    fails 2 "cannot open 'nosuch'" --documents nosuch
    fails 2 "no length" --documents /dev/null
    fails 2 "--documents" --documents 0
    fails 2 "--documents" --documents 5,4X
    printf '100\n12 what\n' >bad
    fails 2 "bad, line 2" --documents bad
    fails 2 "add up to 300" --documents 100,200 --seq-len 400
    fails 2 "leave --strategy" --documents 100,200 --layout zigzag
    fails 2 "leave --strategy" --documents 100,200 --joint
    fails 2 "leave one out" --documents 100,200 --tokens 100,200
    fails 2 "leave --phase decode out" --documents 100,200 --phase decode
    fails 2 "are the batch" --documents 100,200 --batch 2
    fails 2 "belong to --documents" --seq-len 4K --whole-documents
    fails 2 "not in 0..10" --documents 100 --cut-gain -1
    fails 2 "up to 256 ranks" --documents 100 --ranks '257*nvidia-h200@mps:100'
    fails 3 "short by" --documents 4K,4K --max-tokens 1K
    fails 3 "outside the measured" --documents 4K,9000K
    fails 3 "no rank's memory cap" --documents 4K,1K --max-tokens 4000 --whole-documents
    hcp-plan split --ranks "$R" --documents 4K,4K --mask causal --json >docs.json
    run hcp-plan simulate --plan docs.json
    [ "$status" -ne 0 ]
    [[ "$output" == *"for documents"* ]]
}
