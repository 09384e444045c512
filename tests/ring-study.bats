#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2016 # bats sets these; backquotes are text
# reproduce.sh, ring-table.sh and reproduce-n.sh on CPU ranks: everything but the numbers. The profile is
# a synthetic machine's with this CPU's name, so nothing has to be measured first.

bats_require_minimum_version 1.5.0
load scale

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    [ -x "$top_builddir/executor/hcp-ring" ] || skip "built without MPI"
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    # What MPI keeps is no leak of ours.
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
    slug=$(hcp-profile devices 2>/dev/null | awk '$1 == "cpu" { print $2; exit }')
    [ -n "$slug" ]
    hcp-profile run --db p.db --limits cpu:100,cpu:50 --heads 2 --kv-heads 1 \
        --head-dim 64 --dtype fp32 --q-lens 16,64,256 --kv-lens 16,64,256 \
        --causal-lens 16,64,256 >/dev/null 2>&1 \
        --device "synthetic:name=$slug,tile_q=1,tile_kv=1,a=5e-6,b=0,c=0,f=0"
}

study() { # SCRIPT OPTIONS...
    local script=$1
    shift
    sh "$top_srcdir/tests/$script" --device cpu --db p.db --output out --repeats 3 "$@" \
        -- --provider cpu-blas --warm-up 0
}

@test "reproduce.sh: three files, a level that fails, and the same command again" {
    long_test
    run -1 --separate-stderr study reproduce.sh --levels 50,30 --lengths 192,256 \
        --plan "--buffers 0"
    [[ $stderr == *"level 30 failed"* ]]
    for figure in makespan speedup prediction; do
        [ "$(grep -c '^50,' out/$figure.csv)" -eq 10 ]
        [ "$(grep -c '^[^#l5]' out/$figure.csv)" -eq 0 ]
        grep -q '^# hcp-ring .*, kernel cpu-blas, transport mpi' out/$figure.csv
    done
    [ "$(grep -c '^50,192,even,1.000$' out/speedup.csv)" -eq 1 ]
    awk -F, '/^50,/ && !($4 > 0 && $5 <= $4 && $4 <= $6) { exit 1 }' out/makespan.csv
    # What the plan gives rank 1, from the measured time and the error: times below 100 ms
    # have three digits after the point, errors one.
    awk -F, '/^50,/ { ratio = $4 / $5 }
        /^50,/ && ($7 <= 0 || $7 >= $2) { exit 1 }
        /^50,/ { most = ratio * (0.001 + 0.0006 / $4 + 0.0006 / $5) + 0.0006 }
        /^50,/ && (ratio - 1 - $6 / 100) ^ 2 > most ^ 2 { exit 1 }' \
        out/prediction.csv
    grep -q "^# profile: p.db, given; hcp-plan options: --buffers 0$" out/speedup.csv
    cp out/level-50.txt kept
    run -1 study reproduce.sh --levels 50,30 --lengths 192,256 \
        --plan "--buffers 0"
    cmp kept out/level-50.txt
    run -2 study reproduce.sh --levels 50 --lengths 192
}

@test "ring-table.sh: every strategy, one rank alone and the best found" {
    long_test
    study ring-table.sh --limits 100/50,50/100 --lengths 256 \
        --cases full/contiguous,causal/zigzag
    for strategy in even nominal proportional lut poly best 'one alone' 'best found'; do
        [ "$(grep -c "^| [150/]* *| *256 |.* | $strategy *|" out/table.md)" -eq 4 ]
    done
    [ "$(grep -c '| one alone  *| 256/0 ' out/table.md)" -eq 2 ]
    [ "$(grep -c '| one alone  *| 0/256 ' out/table.md)" -eq 2 ]
    # Nothing is faster than the best found, which is in the table once a group.
    awk -F'|' '$6 ~ /best found/ { n++; if ($13 != 1) exit 1 }
        $13 ~ /^ *[0-9]/ && $13 < 1 { exit 1 } END { exit n != 4 }' out/table.md
    grep -q '^- Prediction error, all ' out/table.md
    grep -q '^- `best` / best found at 256 tokens: largest [0-9.]* (.*), of 4$' \
        out/table.md
    grep -q '^- `best` over 1.02 times .*: [0-4] of 4$' out/table.md
}

@test "reproduce-n.sh: three ranks, links, a verified run, equal areas and what best gains" {
    study reproduce-n.sh --ranks 3 --scenarios all-100,middle-50 --lengths 256 --verify 192 \
        --cases full/contiguous,causal/contiguous
    for strategy in even nominal proportional lut poly best; do
        [ "$(grep -c "^| [a-z]*-[150]* *| *256 |.* | $strategy *|" out/table.md)" -eq 4 ]
    done
    grep -q '^| all-100 *| *256 | causal | contiguous | equal areas  *| 148/61/47 ' out/table.md
    [ "$(grep -c 'equal areas  *|' out/table.md)" -eq 1 ]
    grep -q '^- middle-50: limits 100/50/100 %$' out/table.md
    [ "$(grep -c '^- verified, 192 tokens: ' out/table.md)" -eq 2 ]
    grep -q '^| cpu,cpu  *| mpi  *| *[0-9.]* | *[0-9.]* |$' out/table.md
    grep -q '^- Gain over the split of equal areas: all-100 causal contiguous 256: [0-9.]*$' out/table.md
    run -2 study reproduce-n.sh --ranks 3 --scenarios fast-10
    [[ $output == *"'fast-10' is no scenario"* ]]
    run -2 study reproduce-n.sh --ranks 1
    [[ $output == *"--ranks 1: two ranks or more"* ]]
}
