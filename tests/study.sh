# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by reproduce.sh and ring-table.sh: options, the profile, plans and rings of a
# study on two ranks. What is finished lies in the output directory and is not done again.
LC_ALL=C
export LC_ALL
name=${0##*/}
failures=0

say() { printf '%s: %s\n' "$name" "$*" >&2; }
die() { # STATUS TEXT
    status=$1
    shift
    say "$*"
    exit "$status"
}
failed() { # TEXT: the study goes on, and ends with 1
    failures=$((failures + 1))
    say "$*"
}

# ---- options ----

device='' given_db='' lengths='' repeats=10 budget='' output='' shape=''
plan_options='' plans_only=''
study_help() {
    cat <<'TEXT'
  --device NAME    cpu, or a GPU by the name plans have (nvidia-h200); otherwise the
                   first GPU, else the CPU
  --db FILE        profile to plan with (it is copied); otherwise one is measured first
  --budget TIME    for measuring it, as 'hcp-profile run --time-budget' (10m, CPU 5m)
  --lengths LIST   tokens, separated by commas
  --repeats N      measured passes of a plan (10)
  --shape OPTIONS  heads, head dim, dtype and batch as hcp-plan's options, one word
                   (GPU: none; CPU: --heads 2 --kv-heads 1 --head-dim 64 --dtype fp32)
  --plan OPTIONS   more of hcp-plan's options, one word: '--link nccl --extrapolate'
  --plans-only     make the plans, which needs no GPU but a --device and a --db, and stop
  --output DIR     where everything goes; the same command goes on there after a stop
  --help
Options after -- are hcp-ring's: -- --transport mpi --warm-up 0.05
TEXT
}

# 1: not an option that all studies have.
study_option() { # NAME VALUE
    case $1 in
    --device) device=$2 ;;
    --db) given_db=$2 ;;
    --lengths) lengths=$2 ;;
    --repeats) repeats=$2 ;;
    --budget) budget=$2 ;;
    --shape) shape=$2 ;;
    --plan) plan_options=$2 ;;
    --output) output=$2 ;;
    *) return 1 ;;
    esac
}

# ARGUMENT...: up to --, which is taken too; $taken says how many that were. The study has
# usage() and its own options in own_option NAME VALUE, 1 if it is none of them.
study_options() {
    taken=$#
    while [ $# -gt 0 ]; do
        case $1 in
        --help | -h)
            usage
            exit 0
            ;;
        --)
            shift
            break
            ;;
        --plans-only)
            plans_only=1
            shift
            continue
            ;;
        --*=*)
            option=${1%%=*}
            value=${1#*=}
            shift
            ;;
        --*)
            [ $# -ge 2 ] || die 2 "$1 needs a value; see $name --help"
            option=$1
            value=$2
            shift 2
            ;;
        *) die 2 "'$1' is not an option; see $name --help" ;;
        esac
        own_option "$option" "$value" || study_option "$option" "$value" ||
            die 2 "$option is not known; see $name --help"
    done
    taken=$((taken - $#))
}

words() { printf '%s' "$1" | tr ',' ' '; }

# ---- the machine ----

# kind (mps or cpu), slug, described: from the device that is asked for.
find_device() {
    for program in hcp-profile hcp-plan hcp-ring; do
        command -v $program >/dev/null ||
            die 1 "$program is not in PATH; install it, or add the build's directories"
    done
    kind=mps slug=$device described=$device
    case $device in
    '' | cpu)
        hcp-profile devices >"$output/devices.txt" 2>"$output/devices.err" ||
            die 1 "hcp-profile devices failed: $(tail -n 1 "$output/devices.err")"
        found=$(awk -v want="$device" '
            $1 == "DEVICE" { devices = $2 == "NAME"; next }
            devices && $1 ~ (want == "" ? "^(cpu|cuda:[0-9]+)$" : "^cpu$") {
                if (line == "" || line ~ /^cpu/) line = $0
                of_name[$2]++
            }
            END {
                if (line == "") exit 1
                $0 = line
                printf "%s %s %d x", $1, $2, of_name[$2]
                for (i = 3; i <= NF - 2; i++) printf " %s", $i
                if ($(NF - 1) != "-") printf ", driver %s", $(NF - 1)
            }' "$output/devices.txt") || die 1 "hcp-profile devices names no device"
        case $found in cpu*) kind=cpu ;; esac
        slug=${found#* }
        described=$slug
        slug=${slug%% *}
        ;;
    *)
        if command -v nvidia-smi >/dev/null; then
            described="$slug, $(nvidia-smi --query-gpu=name,driver_version \
                --format=csv,noheader 2>/dev/null | sort | uniq -c |
                awk '{ $1 = $1; printf "%s%s", n++ ? "; " : "", $0 }')"
        fi
        ;;
    esac
}

# After the options: the output directory, the device and what follows from it.
study_begin() { # DEFAULT-LENGTHS-GPU DEFAULT-LENGTHS-CPU SETTINGS...
    [ -n "$output" ] || output=${name%.sh}.out
    mkdir -p "$output/plans" || die 1 "cannot make $output"
    find_device
    gpu_lengths=$1 cpu_lengths=$2
    shift 2
    if [ "$kind" = cpu ]; then
        [ -n "$lengths" ] || lengths=$cpu_lengths
        [ -n "$shape" ] || shape='--heads 2 --kv-heads 1 --head-dim 64 --dtype fp32'
        [ -n "$budget" ] || budget=5m
    fi
    [ -n "$lengths" ] || lengths=$gpu_lengths
    [ -n "$budget" ] || budget=10m
    lengths=$(words "$lengths")
    settings="$name $slug $given_db $lengths / $repeats $shape $plan_options $*"
    if [ -e "$output/settings" ]; then
        [ "$(cat "$output/settings")" = "$settings" ] ||
            die 2 "$output holds a run with other options; give another --output"
    else
        printf '%s\n' "$settings" >"$output/settings" || die 1 "cannot write in $output"
    fi
}

tokens_of() { # LENGTH: 4K is 4096
    case $1 in
    *[Kk]) echo $((${1%[Kk]} * 1024)) ;;
    *[Mm]) echo $((${1%[Mm]} * 1048576)) ;;
    *) echo $(($1)) ;;
    esac
}

# The profile of all these levels, fitted, in $output/profile.db; rings are added to it.
study_profile() { # LEVELS
    [ -e "$output/fitted" ] && return
    if [ -n "$given_db" ]; then
        cp "$given_db" "$output/profile.part" || die 1 "cannot copy $given_db"
        mv "$output/profile.part" "$output/profile.db"
        profile_from="${given_db##*/}, given"
    else
        longest=0
        for n in $lengths; do
            n=$(tokens_of "$n")
            [ "$n" -le "$longest" ] || longest=$n
        done
        one=cuda:0
        [ "$kind" = mps ] || one=cpu
        say "measuring $slug at $1 %, up to $longest tokens, for at most $budget"
        # shellcheck disable=SC2086 # options are words
        hcp-profile run --db "$output/profile.db" --device $one --levels "$1" \
            --max-len "$longest" --time-budget "$budget" $shape >"$output/profile.txt" ||
            say "the profile is not complete (see $output/profile.txt); going on with it"
        profile_from="measured before, $budget at most"
    fi
    hcp-plan fit --db "$output/profile.db" >"$output/fit.txt" ||
        say "not everything is fitted (see $output/fit.txt); going on with what is"
    printf '%s\n' "$profile_from" >"$output/profile-from"
    : >"$output/fitted"
}

# ---- plans and rings ----

# hcp-plan's answer in a file of its own; says why there is none.
plan_file() { # FILE COMMAND RANKS LENGTH OPTIONS...
    plan_to=$1
    plan_command=$2
    plan_ranks=$3
    plan_length=$4
    shift 4
    [ -s "$plan_to" ] && return
    # shellcheck disable=SC2086 # options are words
    if hcp-plan "$plan_command" --db "$output/profile.db" --ranks "$plan_ranks" \
        --seq-len "$plan_length" $shape $plan_options "$@" --json \
        >"$plan_to.part" 2>"$plan_to.err"; then
        rm -f "$plan_to.err"
        mv "$plan_to.part" "$plan_to"
        ! grep -q '"error":' "$plan_to" ||
            say "not all strategies have a plan: see $plan_to"
    else
        say "no plan for $plan_ranks at $plan_length tokens: $(tail -n 1 "$plan_to.err")"
        [ -n "$given_db" ] || rm -f "$output/fitted" # then more is measured next time
        return 1
    fi
}

# hcp-ring over two ranks, its table in NAME.txt; says why there is none. Where plans are
# missing it goes to NAME.partial, which counts until there is a whole one.
ring_file() { # NAME MISSING OPTIONS...
    ring_to=$output/$1
    ring_missing=$2
    shift 2
    [ -z "$plans_only" ] || return "$((ring_missing > 0))"
    if ! hcp-ring "$@" >"$ring_to.part" 2>"$ring_to.err" </dev/null; then
        say "hcp-ring failed: $(grep '^hcp-ring: [^-]' "$ring_to.err" | paste -sd'|' -)" \
            "(see $ring_to.err)"
        return 1
    fi
    if [ "$ring_missing" -gt 0 ]; then
        mv "$ring_to.part" "$ring_to.partial"
        return 1
    fi
    rm -f "$ring_to.partial"
    mv "$ring_to.part" "$ring_to.txt"
}

# hcp-ring's table, a line a ring, words separated by spaces:
# tag strategy seq_len mask layout measured_ms interval_ms predicted_ms error_% of_bound
# tokens best (1: the best found by search)
ring_rows() { # TAG NAME
    for rows_of in "$output/$2.txt" "$output/$2.partial" /dev/null; do
        [ ! -e "$rows_of" ] || break
    done
    awk -v tag="$1" '
        $1 == "STRATEGY" { for (i = 1; i <= NF; i++) at[$i] = i; n = at["TOKENS"]; next }
        n && (NF < n || $at["MEASURED_MS"] !~ /^[0-9.]+$/) { n = 0 }
        n {
            print tag, $1, $at["SEQ_LEN"], $at["MASK"], $at["LAYOUT"], $at["MEASURED_MS"],
                $at["INTERVAL_MS"], $at["PREDICTED_MS"], $at["ERROR_%"], $at["OF_BOUND"],
                $at["TOKENS"], / best found of /
        }' "$rows_of"
}

# Where the numbers come from, as lines that begin with "# ".
provenance() {
    means=$(cat "$output"/*.txt "$output"/*.partial 2>/dev/null |
        sed -n 's/^\([a-z]* ([^)]*)\), kernel \(.*\)/kernel \2, transport \1/p' |
        sort | uniq -c | sort -rn | sed 's/^ *[0-9]* //; q')
    cat <<TEXT
# device: $described
# $(hcp-ring --version), ${means:-nothing was measured}
# shape: ${shape:-32 query heads, 8 KV heads, head dim 128, bf16, batch 1}
# measured: median of at most $repeats passes${ring_options:+; $ring_options}
# profile: $(cat "$output/profile-from")${plan_options:+; hcp-plan options: $plan_options}
# date: $(date -u +%Y-%m-%dT%H:%M:%SZ)
TEXT
}

# After --plans-only: all that could be planned is.
study_planned() {
    [ -z "$plans_only" ] || study_end
}

study_end() {
    [ $failures -eq 0 ] ||
        die 1 "$failures of the study's parts failed; the same command tries them again"
    exit 0
}
