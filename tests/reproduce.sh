#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The experiment of the study of heterogeneity-aware context parallelism: two ranks, the
# second throttled, sequence lengths by strategies; and our `best` beside its strategies.
# Its three figures' data as CSV: makespan, speedup over even, error of the prediction.
set -u
# shellcheck source=tests/study.sh
. "$(dirname "$0")/study.sh"

levels=10,20,30,40,50,60,70,80,90
strategies=even,proportional,lut,poly,best
mask=full
layout=''

usage() {
    cat <<TEXT
Usage: $name [OPTION...] [-- HCP-RING-OPTION...]
Runs two ranks, rank 0 at 100 % and rank 1 at each level, and writes makespan.csv,
speedup.csv and prediction.csv. GPUs are limited by MPS, a CPU's cores by a duty cycle.

  --levels LIST    of rank 1 in per cent ($levels)
  --mask MASK      full or causal (full)
  --layout LAYOUT  contiguous, zigzag or striped, of all strategies (hcp-plan's choice)
  --strategies LIST
                   in the figures ($strategies)
TEXT
    study_help
    echo "Lengths: 4K,8K,16K,32K,64K; on a CPU 2K,4K."
}

own_option() {
    case $1 in
    --levels) levels=$2 ;;
    --mask) mask=$2 ;;
    --layout) layout=$2 ;;
    --strategies) strategies=$2 ;;
    *) return 1 ;;
    esac
}
study_options "$@"
shift "$taken"
ring_options=$*
study_begin 4K,8K,16K,32K,64K 2K,4K "$mask" "$layout" / "$@"
case ,$levels, in
*,100,*) study_profile "$levels" ;;
*) study_profile "$levels,100" ;;
esac

# One process a level runs the plans of all lengths and strategies.
one_level() { # LEVEL HCP-RING-OPTION...
    level=$1
    shift
    [ -s "$output/level-$level.txt" ] && return
    missing=0 plans=0
    for n in $lengths; do
        plan=$output/plans/$level-$n.json
        if plan_file "$plan" compare "$slug@$kind:100,$slug@$kind:$level" "$n" \
            --mask "$mask" ${layout:+--layout "$layout"}; then
            plans=$((plans + 1))
            set -- "$@" --plan "$plan"
        else
            missing=$((missing + 1))
        fi
    done
    [ $plans -gt 0 ] && ring_file "level-$level" $missing \
        --local 2 --db "$output/profile.db" --repeat "$repeats" "$@"
}

for level in $(words "$levels"); do
    say "rank 1 at $level %"
    one_level "$level" "$@" || failed "level $level failed"
done
study_planned

for level in $(words "$levels"); do
    ring_rows "$level" "level-$level"
done >"$output/rows.txt"
[ -s "$output/rows.txt" ] || die 1 "nothing was measured"

figure() { # NAME TITLE: NAME.csv
    {
        echo "# $2"
        echo "# rank 0: $slug@$kind:100, rank 1: $slug@$kind:level_percent"
        echo "# $mask mask${layout:+, $layout layout}"
        provenance
        awk -v figure="$1" -v wanted=",$strategies," '
            BEGIN {
                of["makespan"] = "makespan_ms,lo_ms,hi_ms,bound_over_makespan"
                of["speedup"] = "speedup_over_even"
                of["prediction"] = "predicted_ms,makespan_ms,error_percent,rank1_tokens"
                print "level_percent,seq_len,strategy," of[figure]
            }
            FNR == NR { if ($2 == "even") even_ms[$1, $3] = $6; next }
            !index(wanted, "," $2 ",") { next }
            { printf "%s,%s,%s,", $1, $3, $2 }
            figure == "makespan" { sub(/\.\./, ",", $7); print $6 "," $7 "," $10 }
            figure == "speedup" {
                if (($1, $3) in even_ms) printf "%.3f", even_ms[$1, $3] / $6
                print ""
            }
            figure == "prediction" {
                split($11, tokens, "/")
                sub(/^[+]/, "", $9)
                print $8 "," $6 "," $9 "," tokens[2]
            }' "$output/rows.txt" "$output/rows.txt"
    } >"$output/$1.part" && mv "$output/$1.part" "$output/$1.csv"
}
figure makespan 'makespan in ms: the slowest rank of a pass, median and its 95 % interval'
figure speedup 'speedup: makespan of the even split / makespan, both measured'
figure prediction \
    'predicted makespan in ms, error_percent = 100 (predicted / measured - 1)'
say "$output/makespan.csv, speedup.csv and prediction.csv are written"
study_end
