#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The recorded H200 that ships with the project: fitted, it predicts cells that were
# measured on another H200, on and off its grid.

bats_require_minimum_version 1.5.0

setup_file() {
    export HCP_DB=$BATS_FILE_TMPDIR/h200.db
    hcp-profile import nvidia-h200
    hcp-plan fit --json >"$BATS_FILE_TMPDIR/fit.json" 2>/dev/null
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
}

heldout() {
    grep -v '^#' "$top_srcdir/tests/data/h200-cudnn-heldout.csv"
}

# errors PERCENT: relative error in %, a line a cell: whole tiles, over 0.1 ms, inside the
# measured lengths
errors() {
    heldout | awk -F, -v limit="mps:$1" 'NR > 1 && $2 == limit && $13 > 0.1 &&
        $11 % 128 == 0 && $12 % 128 == 0 { print $11 "," $12 "," $10 "," $13 }' |
        sort -u -t, -k1,3 >measured
    { echo q_len,kv_len,mask; cut -d, -f1-3 measured; } |
        hcp-plan predict --extrapolate --ranks "nvidia-h200@mps:$1" --cells - |
        tail -n +2 | paste -d, - measured |
        awk -F, '$7 != "extrapolated" { e = 100 * ($4 / $11 - 1); print (e < 0 ? -e : e) }' |
        sort -n
}

# quantile PERCENT of standard input, sorted
quantile() {
    awk -v p="$1" '{ v[NR] = $1 } END { i = int(NR * p / 100) + 1; if (i > NR) i = NR; print v[i] }'
}

@test "every limit is fitted, with the tile found from the waves" {
    [ "$(grep -o '"limit": *"mps:[0-9]*"' "$BATS_FILE_TMPDIR/fit.json" | sort -u | wc -l)" -eq 10 ]
    run hcp-plan fit
    [ "$status" -eq 0 ]
    [ "$(grep -c '^nvidia-h200 .* 128x1 ' <<<"$output")" -eq 10 ]
}

@test "cells of another H200 are predicted" {
    for level in 10 20 30 40 50 60 70 80; do
        errors $level >errors
        n=$(wc -l <errors)
        median=$(quantile 50 <errors)
        p90=$(quantile 90 <errors)
        echo "# mps:$level: $n cells, median $median %, 90th percentile $p90 %" >&3
        [ "$n" -ge 10 ]
        awk -v m="$median" -v p="$p90" 'BEGIN { exit !(m <= 3 && p <= 8) }'
    done
}

@test "one rank at a tenth of the SMs: an uneven split, five times faster than even" {
    run hcp-plan split --json --ranks nvidia-h200@mps:100,nvidia-h200@mps:10 \
        --seq-len 64K --mask causal --layout zigzag
    [ "$status" -eq 0 ]
    gain=$(grep -o '"gain_over_even":[0-9.]*' <<<"$output" | cut -d: -f2)
    awk -v g="$gain" 'BEGIN { exit !(g > 4 && g < 6) }'
}

@test "links: curves to 10 %, and to that of what another pair of cards took" {
    export HCP_DB=l.db
    hcp-profile import nvidia-h200-links
    run hcp-profile show --links
    [ "$(grep -c ' nccl' <<<"$output")" -eq 6 ]
    awk '/ nccl/ { split($10, e, "/"); if (e[2] > 10) exit 1 }' <<<"$output"
    [[ "$(hcp-profile show --topology)" == *"nvlink"*"18 NVLinks through NVSwitch"* ]]
    hcp-profile check --no-device >said || [ $? -eq 1 ]
    run ! grep -q 'link-not-monotone' said # the steps are none
    for file in nvidia-h200-links nvidia-h200; do
        awk -F, '$1 == "device" { for (i = 1; i <= NF; i++) c[$i] = i; next }
            /^[^#]/ && $c["kind"] == "link" && $c["transport"] == "nccl" && (!c["channels"] || $c["channels"] == "") {
                print $c["peer_limit"], $c["bytes"], $c["time_ms"] }' "$HCP_PROFILES/$file.csv" | sort -k1,1 -k2,2n >"$file"
    done
    awk 'NR == FNR { n[$1]++; x[$1, n[$1]] = $2; y[$1, n[$1]] = $3; there[$1, $2] = 1; next }
        ($1, $2) in there || !n[$1] { next }
        { for (i = 1; x[$1, i + 1] < $2; i++); t = y[$1, i] + (y[$1, i + 1] - y[$1, i]) * ($2 - x[$1, i]) / (x[$1, i + 1] - x[$1, i])
          e = t / $3 - 1; if (e < 0) e = -e; seen++; if (e > 0.1) bad++ }
        END { print seen " sizes, " bad + 0 " beyond 10 %"; exit !(seen == 20 && bad == 0) }' nvidia-h200-links nvidia-h200
}
