#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hcp-ring(1) says what the program says: every option of --help is in the page and the
# other way round, every column and JSON key printed is described, its examples run.
if awk -v s="${HCP_TEST_SCALE:-1}" 'BEGIN { exit !(s < 1) }'; then
    echo "1..0 # SKIP HCP_TEST_SCALE is $HCP_TEST_SCALE" # long, and the same in every build
    exit 0
fi
program=hcp-ring
# shellcheck source=tests/man.sh
. "${top_srcdir:?}/tests/man.sh"

if ! test -x "$top_builddir/executor/hcp-ring"; then
    echo "1..0 # SKIP built without MPI"
    exit 0
fi
# What MPI keeps is no leak of ours; ring-leak.sh looks for those.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
echo 1..5
check_options '' search transition
if command -v mpirun >/dev/null; then
    check_examples 5
    (
        cd "$tmp/dir" || exit 1
        set -- --local 2 --repeat 1 --warm-up 0 --no-store --plan plan.json
        hcp-ring "$@"
        hcp-ring search "$@"
        hcp-ring "$@" --verify=8 --json >json
        hcp-ring search "$@" --json >>json
        hcp-ring --local 2 --repeat 1 --warm-up 0 --plan decode.json --json >>json
        hcp-ring transition --local 2 --repeat 1 --from prefill.json --to decode.json --moves moves.json
        hcp-ring transition --local 2 --repeat 1 --from prefill.json --to decode.json --moves moves.json --verify --json >>json
        hcp-ring --local 2 --repeat 1 --warm-up 0 --plan documents.json --json >>json
        hcp-ring --local 2 --repeat 1 --warm-up 0 --plan chunks.json
        hcp-ring --local 2 --repeat 1 --warm-up 0 --plan chunks.json --verify=8 --json >>json
        export HCP_REHEARSE=1 # or a busy machine might change nothing
        rehearse() { # the same in text and JSON
            hcp-ring --local 2 --db h.db --plan plan.json --rebalance --repeat 20 --max-time 500 \
                --slow 1:3:500 "$@"
        }
        rehearse
        rehearse --json >>json
        hcp-ring --local 2 --db h.db --plan plan.json --rebalance --repeat 3 --fail 1@1 --json >>json
        hcp-ring --local 2 --repeat 1 --warm-up 0 --plan joint.json
        hcp-ring --local 2 --repeat 1 --warm-up 0 --plan joint.json --json >>json
        hcp-ring "$@" --hidden 64 --ffn 128
        hcp-ring "$@" --hidden 64 --ffn 128 --json >>json
    ) >"$tmp/tables" 2>"$tmp/complained"
    grep -E '^(RANK|STRATEGY|PASS|CHUNK) ' "$tmp/tables" | tr 'A-Z ' 'a-z\n' | grep . |
        sort -u >"$tmp/columns"
    sed -n '/^\.Sh OUTPUT/,/^\.Sh JSON/s/^\.It //p' "$page" |
        sed 's/ , /\n/g' >"$tmp/items"
    grep -v -x -F -f "$tmp/items" "$tmp/columns" >"$tmp/bad"
    test "$(wc -l <"$tmp/columns")" -ge 20 ||
        cat "$tmp/complained" "$tmp/columns" >>"$tmp/bad"
    check "every column is described" "$tmp/bad"
    sed -n '/^\.Sh JSON/,/^\.Sh VERIF/p' "$page" | grep '^\.\(It \)\{0,1\}Cm' |
        tr ' ' '\n' | sort -u >"$tmp/items"
    grep -o '"[a-z_]*":' "$tmp/dir/json" | tr -d '":' | sort -u >"$tmp/keys"
    comm -23 "$tmp/keys" "$tmp/items" >"$tmp/bad"
    # All that is described is printed, but for what only a failure has.
    comm -13 "$tmp/keys" "$tmp/items" |
        grep -v -x -e '[,:;]' -e .It -e '\.*Cm' -e search -e failure >>"$tmp/bad"
    check "every JSON key is described" "$tmp/bad"
else
    for what in "the page's examples run" "every column is described" \
        "every JSON key is described"; do
        n=$((n + 1))
        echo "ok $n - $what # SKIP mpirun is not installed"
    done
fi
check_mandoc "$page"
