#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What plans are worth on this machine: for pairs of limits, lengths, masks and layouts
# every strategy's split measured beside the best split that `hcp-ring search` finds.
# Writes table.md: the table, and what it says in a few lines.
set -u
# shellcheck source=tests/study.sh
. "$(dirname "$0")/study.sh"

limits=100/100,100/50,100/20,100/10,50/100,20/100,10/100
cases=full/contiguous,causal/contiguous,causal/zigzag

usage() {
    cat <<TEXT
Usage: $name [OPTION...] [-- HCP-RING-OPTION...]
Searches the best split of two ranks under each pair of limits and writes table.md.

  --limits LIST    pairs A/B: rank 0 at A %, rank 1 at B %
                   ($limits)
  --cases LIST     pairs MASK/LAYOUT ($cases)
TEXT
    study_help
    echo "Lengths: 4K,16K,64K; on a CPU 2K,4K."
}

own_option() {
    case $1 in
    --limits) limits=$2 ;;
    --cases) cases=$2 ;;
    *) return 1 ;;
    esac
}
study_options "$@"
shift "$taken"
for pair in $(words "$limits,$cases"); do
    case $pair in
    ?*/?*) ;;
    *) die 2 "'$pair' is not a pair with a / between; see $name --help" ;;
    esac
done
ring_options=$*
study_begin 4K,16K,64K 2K,4K "$cases" / "$@"
study_profile "$(printf '%s' "$limits" | tr / , | tr , '\n' | sort -un | paste -sd, -)"

# The faster rank alone: what leaving the other one out costs.
alone() { # A B TOKENS
    if [ "$1" -ge "$2" ]; then echo "$3,0"; else echo "0,$3"; fi
}

# One process a pair of limits searches all lengths, masks and layouts.
one_pair() { # A B HCP-RING-OPTION...
    a=$1 b=$2
    shift 2
    [ -s "$output/pair-$a-$b.txt" ] && return
    ranks=$slug@$kind:$a,$slug@$kind:$b
    missing=0 plans=0
    for n in $lengths; do
        n=$(tokens_of "$n")
        for case in $(words "$cases"); do
            plan=$output/plans/$a-$b-$n-${case%/*}-${case#*/}
            if plan_file "$plan.json" compare "$ranks" "$n" --mask "${case%/*}" \
                --layout "${case#*/}"; then
                plans=$((plans + 1))
                set -- "$@" --plan "$plan.json"
            else
                missing=$((missing + 1))
                continue
            fi
            plan_file "$plan-alone.json" split "$ranks" "$n" --mask "${case%/*}" \
                --layout "${case#*/}" --tokens "$(alone "$a" "$b" "$n")" &&
                set -- "$@" --plan "$plan-alone.json"
        done
    done
    [ $plans -gt 0 ] && ring_file "pair-$a-$b" $missing \
        search --local 2 --db "$output/profile.db" --repeat "$repeats" "$@"
}

for pair in $(words "$limits"); do
    say "limits $pair"
    one_pair "${pair%/*}" "${pair#*/}" "$@" || failed "limits $pair failed"
done
study_planned

for pair in $(words "$limits"); do
    ring_rows "$pair" "pair-${pair%/*}-${pair#*/}"
done >"$output/rows.txt"
[ -s "$output/rows.txt" ] || die 1 "nothing was measured"

{
    echo "# Two ranks: plans and the best split found by measuring"
    echo
    provenance | sed 's/^# /- /'
    echo
    awk -f "${0%/*}/ring-table.awk" "$output/rows.txt" "$output/rows.txt"
} >"$output/table.part" && mv "$output/table.part" "$output/table.md"
say "$output/table.md is written"
study_end
