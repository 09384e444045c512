#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The recorded H200s that ship with the project: fitted, they predict cells that were
# measured beside them or on another H200, on and off their grids.

bats_require_minimum_version 1.5.0

setup_file() {
    for name in nvidia-h200 nvidia-h200-cudnn; do
        hcp-profile import --db "$BATS_FILE_TMPDIR/$name.db" $name
        hcp-plan fit --db "$BATS_FILE_TMPDIR/$name.db" --json >"$BATS_FILE_TMPDIR/$name.json" 2>/dev/null
    done
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
}

# errors PROFILE CELLS LEVEL TILE: relative error in %, a line a cell: over 0.1 ms, inside
# the measured lengths, in multiples of TILE tokens
errors() {
    grep -v '^#' "$top_srcdir/tests/data/$2.csv" | awk -F, -v limit="mps:$3" -v tile="$4" '
        NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next }
        $c["limit"] == limit && $c["kv_len"] && $c["time_ms"] > 0.1 && $c["q_len"] % tile == 0 && $c["kv_len"] % tile == 0 {
            print $c["q_len"] "," $c["kv_len"] "," $c["mask"] "," $c["time_ms"] }' |
        sort -u -t, -k1,3 >measured
    { echo q_len,kv_len,mask; cut -d, -f1-3 measured; } |
        hcp-plan predict --db "$BATS_FILE_TMPDIR/$1.db" --extrapolate --ranks "nvidia-h200@mps:$3" --cells - |
        tail -n +2 | paste -d, - measured |
        awk -F, '$7 != "extrapolated" { e = 100 * ($4 / $11 - 1); print (e < 0 ? -e : e) }' |
        sort -n
}

# quantile PERCENT of standard input, sorted
quantile() {
    awk -v p="$1" '{ v[NR] = $1 } END { i = int(NR * p / 100) + 1; if (i > NR) i = NR; print v[i] }'
}

# within MEDIAN P90 LEAST: what `errors` wrote holds these, in at least so many cells
within() {
    n=$(wc -l <errors)
    median=$(quantile 50 <errors)
    p90=$(quantile 90 <errors)
    echo "# mps:$level: $n cells, median $median %, 90th percentile $p90 %" >&3
    [ "$n" -ge "$3" ]
    awk -v m="$median" -v p="$p90" -v M="$1" -v P="$2" 'BEGIN { exit !(m <= M && p <= P) }'
}

@test "every limit is fitted; cuDNN's tile is found from the waves, ours is told" {
    for name in nvidia-h200 nvidia-h200-cudnn; do
        [ "$(grep -o '"limit": *"mps:[0-9]*"' "$BATS_FILE_TMPDIR/$name.json" | sort -u | wc -l)" -eq 10 ]
    done
    run hcp-plan fit --db "$BATS_FILE_TMPDIR/nvidia-h200-cudnn.db"
    [ "$(grep -c '^nvidia-h200 .* 128x1 ' <<<"$output")" -eq 10 ]
    run hcp-plan fit --db "$BATS_FILE_TMPDIR/nvidia-h200.db"
    [ "$(grep -c '^nvidia-h200 .* cuda-wgmma .* 128x176 ' <<<"$output")" -eq 10 ]
}

@test "cells that were measured beside the profile and left out of it are predicted" {
    for level in 10 20 30 40 50 60 70 80 90 100; do
        errors nvidia-h200 h200-wgmma-heldout $level 1 >errors
        cat errors >>all
        # 3.2 % and 6.8 % of all SMs, where power decides the clocks most
        if [ $level -lt 100 ]; then within 2 5 10; else within 3.5 7 10; fi
    done
    sort -n all >errors
    level=all
    within 0.5 3 107
}

@test "cells of another H200 are predicted" {
    for level in 10 20 30 40 50 60 70 80; do
        errors nvidia-h200-cudnn h200-cudnn-heldout $level 128 >errors
        within 3 8 10
    done
}

@test "one rank at a tenth of the SMs: an uneven split, five times faster than even" {
    for name in nvidia-h200 nvidia-h200-cudnn; do
        run hcp-plan split --json --db "$BATS_FILE_TMPDIR/$name.db" --ranks nvidia-h200@mps:100,nvidia-h200@mps:10 \
            --seq-len 64K --mask causal --layout zigzag
        [ "$status" -eq 0 ]
        gain=$(grep -o '"gain_over_even":[0-9.]*' <<<"$output" | cut -d: -f2)
        awk -v g="$gain" 'BEGIN { exit !(g > 4 && g < 6) }'
    done
}

# The columns that README.md shows and rounding leaves alone, of standard input
shown() {
    awk '/^STRATEGY .* GAIN /, NF < 9 { if (NF >= 9 && $1 != "STRATEGY") printf "%s %.1f %.1f %.1f %s %s %s\n", $1, $2, $5, $6, $7, $9, $10 }'
}

@test "README.md shows what compare says of the recorded H200" {
    hcp-plan compare --db "$BATS_FILE_TMPDIR/nvidia-h200.db" --ranks nvidia-h200@mps:100,nvidia-h200@mps:10 \
        --seq-len 64K --mask causal | shown >said
    shown <"$top_srcdir/README.md" >written
    [ "$(wc -l <said)" -eq 6 ]
    diff written said
}

@test "links: curves to 10 %, and to that of what another pair of cards took" {
    export HCP_DB=l.db
    hcp-profile import nvidia-h200-links
    run hcp-profile show --links
    [ "$(grep -c ' nccl' <<<"$output")" -eq 6 ]
    awk '/ nccl/ { split($11, e, "/"); if (e[2] > 10) exit 1 }' <<<"$output"
    [[ "$(hcp-profile show --topology)" == *"nvlink"*"18 NVLinks through NVSwitch"* ]]
    hcp-profile check --no-device >said || [ $? -eq 1 ]
    run ! grep -q 'link-not-monotone' said # the steps are none
    # The same sizes on another pair of cards. Others are between sizes; of two full cards
    # those over the step, which the curve has between 128 and 184 MiB, are left out.
    for file in nvidia-h200-links nvidia-h200; do
        awk -F, '$1 == "device" { for (i = 1; i <= NF; i++) c[$i] = i; next }
            /^[^#]/ && $c["kind"] == "link" && $c["transport"] == "nccl" && (!c["channels"] || $c["channels"] == "") {
                print $c["peer_limit"], $c["bytes"], $c["time_ms"] }' "$HCP_PROFILES/$file.csv" | sort -k1,1 -k2,2n >"$file"
    done
    awk 'NR == FNR { n[$1]++; x[$1, n[$1]] = $2; y[$1, n[$1]] = $3; next }
        !n[$1] || $1 == "mps:100" && $2 > 134217728 && $2 < 192937984 { next }
        { for (i = 1; x[$1, i + 1] < $2; i++); t = y[$1, i] + (y[$1, i + 1] - y[$1, i]) * ($2 - x[$1, i]) / (x[$1, i + 1] - x[$1, i])
          e = t / $3 - 1; if (e < 0) e = -e; seen++; if (e > 0.07) bad++ }
        END { print seen " sizes, " bad + 0 " beyond 7 %"; exit !(seen == 52 && bad == 0) }' nvidia-h200-links nvidia-h200
}
