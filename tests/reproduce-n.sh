#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rings of N ranks on N devices of one host (four, eight GPUs): all equal, one slow, half
# of them, a ramp; every strategy's split measured beside its prediction and its bound, and
# under a causal mask with contiguous shards on equal devices also the split that makes all
# ranks busy for as long, which a ring of more than two does not want. Before them the
# links of all pairs of devices and a short run that verifies the results. Writes table.md.
set -u
# shellcheck source=tests/study.sh
. "$(dirname "$0")/study.sh"

ranks=4
scenarios=all-100,last-10,last-25,last-50,first-10,middle-10,half-50,ramp
cases=full/contiguous,causal/contiguous,causal/zigzag
verify=2K

usage() {
    cat <<TEXT
Usage: $name [OPTION...] [-- HCP-RING-OPTION...]
Runs rings of N ranks on N devices and writes table.md: measured and predicted makespan,
gain over even, share of the bound. GPUs are limited by MPS, a CPU's cores by a duty cycle.

  --ranks N        ranks, each on a device of its own ($ranks)
  --scenarios LIST all-P: every rank at P %; first-P, middle-P, last-P: that one at P %;
                   half-P: the second half; ramp: from 100 down to 30 %
                   ($scenarios)
  --cases LIST     pairs MASK/LAYOUT ($cases)
  --verify N       tokens of the run that is verified ($verify)
TEXT
    study_help
    echo "Lengths: 16K,64K,256K; on a CPU 2K,4K."
}

own_option() {
    case $1 in
    --ranks) ranks=$2 ;;
    --scenarios) scenarios=$2 ;;
    --cases) cases=$2 ;;
    --verify) verify=$2 ;;
    *) return 1 ;;
    esac
}
study_options "$@"
shift "$taken"
case $ranks in
'' | *[!0-9]* | [01]) die 2 "--ranks $ranks: two ranks or more make a ring" ;;
esac
for case in $(words "$cases"); do
    case $case in
    full/?* | causal/?*) ;;
    *) die 2 "'$case' is not a pair MASK/LAYOUT; see $name --help" ;;
    esac
done

# The limits of all ranks in per cent, a line a rank.
levels_of() { # SCENARIO
    awk -v name="$1" -v n="$ranks" 'BEGIN {
        split(name, part, "-")
        kind = part[1]
        slow = kind == "ramp" && part[2] == "" ? 30 : part[2]
        if (kind !~ /^(all|first|middle|last|half|ramp)$/ || slow !~ /^[1-9][0-9]*$/ || slow > 100)
            exit 1
        for (i = 0; i < n; i++) {
            at = 100
            if (kind == "all" || (kind == "first" && i == 0) ||
                (kind == "middle" && i == int(n / 2)) || (kind == "last" && i == n - 1) ||
                (kind == "half" && i >= n - int(n / 2)))
                at = slow
            if (kind == "ramp") # in tens, which profiles have
                at = n == 1 ? 100 : 10 * int((100 - (100 - slow) * i / (n - 1)) / 10 + 0.5)
            print at
        }
    }'
}
all_levels=
for scenario in $(words "$scenarios"); do
    levels=$(levels_of "$scenario") || die 2 "'$scenario' is no scenario; see $name --help"
    all_levels="$all_levels $levels"
done
all_levels=$(for level in $all_levels; do echo "$level"; done | sort -un | paste -sd, -)

ring_options=$*
study_begin 16K,64K,256K 2K,4K "$ranks" "$scenarios" "$cases" "$verify" / "$@"
study_profile "$all_levels"

ranks_of() { # SCENARIO: as hcp-plan has them
    levels_of "$1" | sed "s/^/$slug@$kind:/" | paste -sd, -
}

# Equal areas under the causal mask: the boundary after k of n ranks is at sqrt(k / n) of
# the sequence, here in whole tiles.
equal_areas() { # TOKENS
    awk -v s="$1" -v n="$ranks" 'BEGIN {
        tile = s >= 256 * n ? 128 : 1
        for (k = 1; k <= n; k++) {
            end = k == n ? s : tile * int(s * sqrt(k / n) / tile + 0.5)
            printf "%s%d", (k > 1 ? "," : ""), end - from
            from = end
        }
    }'
}

# ---- links ----

# All pairs of GPUs; those of a CPU are all alike.
measure_links() {
    [ -e "$output/links.txt" ] && return
    links=$output/links.db
    pairs=cpu,cpu
    [ "$kind" = cpu ] || pairs=$(awk -v n="$ranks" 'BEGIN {
        for (a = 0; a < n; a++) for (b = a + 1; b < n; b++) print "cuda:" a ",cuda:" b }')
    for pair in $pairs; do
        one=$output/link-$(printf '%s' "$pair" | tr ',:' '--')
        [ -s "$one.txt" ] && continue
        say "link $pair"
        hcp-profile link --db "$links" --devices "$pair" --limits 100/100 \
            --time-budget 5s >"$one.part" 2>"$one.err" </dev/null || return 1
        mv "$one.part" "$one.txt"
        rm -f "$one.err"
    done
    for pair in $pairs; do
        one=$output/link-$(printf '%s' "$pair" | tr ',:' '--').txt
        awk -v pair="$pair" '
            /ALPHA_US/ { for (i = 1; i <= NF; i++) at[$i] = i; n = NF; next }
            n && NF == n && !done++ {
                if (!header++)
                    printf "| %-15s | %-9s | %8s | %8s |\n| %s | %s | %s | %s |\n", "pair", "transport",
                        "alpha_us", "GB/s", "---------------", "---------", "--------", "--------"
                printf "| %-15s | %-9s | %8s | %8s |\n", pair, $at["TRANSPORT"], $at["ALPHA_US"], $at["BETA_GB_PER_S"]
            }' "$one"
    done | awk '!/^\| (pair|---)/ || NR <= 2' >"$output/links.part"
    [ -s "$output/links.part" ] || return 1
    mv "$output/links.part" "$output/links.txt"
}
[ -n "$plans_only" ] || measure_links || failed "links failed: $(cat "$output"/link-*.err | tail -n 1)"

# ---- rings ----

# One process a scenario runs the plans of all lengths, masks and layouts.
one_scenario() { # SCENARIO HCP-RING-OPTION...
    scenario=$1
    shift
    [ -s "$output/ring-$scenario.txt" ] && return
    missing=0 plans=0
    for n in $lengths; do
        n=$(tokens_of "$n")
        for case in $(words "$cases"); do
            plan=$output/plans/$scenario-$n-${case%/*}-${case#*/}
            if plan_file "$plan.json" compare "$(ranks_of "$scenario")" "$n" \
                --mask "${case%/*}" --layout "${case#*/}"; then
                plans=$((plans + 1))
                set -- "$@" --plan "$plan.json"
            else
                missing=$((missing + 1))
                continue
            fi
            case $scenario/$case in
            all-*/causal/contiguous)
                plan_file "$plan-areas.json" split "$(ranks_of "$scenario")" "$n" --mask causal \
                    --layout contiguous --tokens "$(equal_areas "$n")" &&
                    set -- "$@" --plan "$plan-areas.json"
                ;;
            esac
        done
    done
    [ $plans -gt 0 ] && ring_file "ring-$scenario" $missing \
        --local "$ranks" --db "$output/profile.db" --repeat "$repeats" "$@"
}

# `best` of the first scenario at a small length, compared with attention on one device.
verify_ring() {
    [ -s "$output/verify.txt" ] && return
    first=${scenarios%%,*}
    n=$(tokens_of "$verify")
    for case in $(words "$cases"); do
        plan=$output/plans/verify-${case%/*}-${case#*/}.json
        plan_file "$plan" split "$(ranks_of "$first")" "$n" --mask "${case%/*}" \
            --layout "${case#*/}" --extrapolate || return 1
        set -- "$@" --plan "$plan"
    done
    ring_file verify 0 --local "$ranks" --no-store --repeat 3 --verify "$@"
}

say "verifying $verify tokens"
verify_ring "$@" || failed "the verified run failed"
for scenario in $(words "$scenarios"); do
    say "$scenario: $(levels_of "$scenario" | paste -sd/ -)"
    one_scenario "$scenario" "$@" || failed "$scenario failed"
done
study_planned

for scenario in $(words "$scenarios"); do
    ring_rows "$scenario" "ring-$scenario"
done >"$output/rows.txt"
[ -s "$output/rows.txt" ] || die 1 "nothing was measured"

{
    echo "# $ranks ranks: plans and what they took"
    echo
    provenance | sed 's/^# /- /'
    for scenario in $(words "$scenarios"); do
        echo "- $scenario: limits $(levels_of "$scenario" | paste -sd/ -) %"
    done
    if [ -s "$output/verify.txt" ]; then
        echo
        sed -n "s/^verified: /- verified, $verify tokens: /p" "$output/verify.txt"
    fi
    echo
    if [ -s "$output/links.txt" ]; then
        echo "Links, both ends sending at once:"
        echo
        cat "$output/links.txt"
        echo
    fi
    awk -v given='equal areas' -f "${0%/*}/ring-table.awk" "$output/rows.txt" "$output/rows.txt"
} >"$output/table.part" && mv "$output/table.part" "$output/table.md"
say "$output/table.md is written"
study_end
