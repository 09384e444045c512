#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hcp-plan(1) and libhcpplan(3) say what the programs and the header say: every option of
# --help is in the page and the other way round, every JSON key printed is described,
# every function of the header has its prototype, and the examples of the page run.
set -u
: "${top_srcdir:?}" "${top_builddir:?}"
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
page=$top_srcdir/man/hcp-plan.1
LC_ALL=C
export LC_ALL
unset HCP_DB

echo 1..5
n=0
check() # name, file with what is wrong (empty: nothing)
{
    n=$((n + 1))
    if test -s "$2"; then
        echo "not ok $n - $1"
        sed 's/^/# /' "$2"
    else
        echo "ok $n - $1"
    fi
}

for c in fit predict split compare simulate; do
    hcp-plan $c --help
done | grep -o -e '--[a-z][a-z-]*' | sort -u >"$tmp/help"
sed -n '/^\.Sh EXAMPLES/q;p' "$page" | grep '^\.\(It\|Fl\|Op\)' |
    grep -o -e '-[a-z][a-z]*[a-z-]*' | sed -n 's/^-\([a-z-][a-z-]*\)$/-\1/p' |
    sed 's/^-*/--/' | grep -e '--..' | sort -u >"$tmp/page"
comm -23 "$tmp/help" "$tmp/page" >"$tmp/bad"
grep -v -x -F -e '--version' "$tmp/page" | comm -13 "$tmp/help" - >>"$tmp/bad"
check "options of --help and of the page are the same" "$tmp/bad"

# The examples, as a reader would type them, in an empty directory.
mkdir "$tmp/dir"
sed -n '/^\.Sh EXAMPLES/,/^\.Sh SEE/p' "$page" | sed -n '/^\.Bd/,/^\.Ed/p' | grep -v '^\.' |
    sed -e 's/\\e/\\/g' -e 's/^\$ //' >"$tmp/examples"
echo "set -e" | cat - "$tmp/examples" >"$tmp/run"
if (cd "$tmp/dir" && sh "$tmp/run") >"$tmp/said" 2>"$tmp/complained" &&
    test "$(grep -c hcp-plan "$tmp/examples")" -ge 6; then
    : >"$tmp/bad"
else
    cat "$tmp/complained" "$tmp/examples" >"$tmp/bad"
fi
check "the page's examples run" "$tmp/bad"

: >"$tmp/json"
(
    cd "$tmp/dir" || exit 1
    r='nvidia-h200@mps:100,nvidia-h200@mps:10'
    hcp-plan split --db h.db --ranks $r --seq-len 8K --layout striped --mask causal \
        --max-tokens 8K --json
    hcp-plan simulate --db h.db --ranks $r --seq-len 8K --json
    hcp-plan predict --db h.db --ranks $r --q-len 512 --kv-len 512 --json
    hcp-plan fit --db h.db --json
) >"$tmp/json" 2>"$tmp/complained"
sed -n '/^\.Sh JSON/,/^\.Sh THE RING/p' "$page" | grep '^\.\(It \)\{0,1\}Cm' | tr ' ' '\n' |
    sort -u >"$tmp/described"
grep -o '"[a-z_]*":' "$tmp/json" | tr -d '":' | sort -u | comm -23 - "$tmp/described" \
    >"$tmp/bad"
test -s "$tmp/json" || echo "nothing printed" >"$tmp/bad"
check "every JSON key is described" "$tmp/bad"

sort "$top_srcdir/planner/hcpplan.sym" >"$tmp/functions"
sed -n 's/^\.F[no] \(hcp_[a-z_]*\).*/\1/p' "$top_srcdir/man/libhcpplan.3" | sort -u |
    comm -3 "$tmp/functions" - >"$tmp/bad"
check "libhcpplan(3) has every function, and no other" "$tmp/bad"

if command -v mandoc >/dev/null; then
    mandoc -T lint "$page" "$top_srcdir/man/libhcpplan.3" 2>&1 |
        grep -v 'referenced manual not found' >"$tmp/bad"
    check "mandoc has nothing to say" "$tmp/bad"
else
    echo "ok 5 - mandoc has nothing to say # SKIP no mandoc"
fi
