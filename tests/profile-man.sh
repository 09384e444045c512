#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hcp-profile(1) says what the program says: every option of --help is in the page and
# the other way round, every column of its tables is explained, its examples run.
if awk -v s="${HCP_TEST_SCALE:-1}" 'BEGIN { exit !(s < 0.2) }'; then
    echo "1..0 # SKIP HCP_TEST_SCALE is $HCP_TEST_SCALE" # its examples measure
    exit 0
fi
program=hcp-profile
# shellcheck source=tests/man.sh
. "${top_srcdir:?}/tests/man.sh"

echo 1..4
check_options devices run conform link show check diff export import merge

cd "$tmp" || exit 99
sed -n 's/^\.It //p' "$page" >items
hcp-profile run --db c.db --device synthetic:name=toy --levels 10 --max-len 256 2>/dev/null |
    head -n 1 | tr 'A-Z ' 'a-z\n' | grep . >columns
hcp-profile devices 2>/dev/null | grep -i -E '^(device|limit) ' |
    sed 's/  */ /g; s/VENDOR.S NAME//; s/WHAT WAS SEEN//' | tr 'A-Z ' 'a-z\n' | grep . >>columns
sed -n '/^\.Ss conform/,/^\.Ss link/s/^\.It //p' "$page" | sed 's/ , /\n/g' >>items
hcp-profile conform --device cpu --set quick 2>/dev/null | head -n 1 |
    tr 'A-Z ' 'a-z\n' | grep . >>columns
sed -n '/^\.Ss link/,/^\.Ss show/s/^\.It //p' "$page" | sed 's/ , /\n/g' >>items
if test -x "$top_builddir/profiler/hcp-link" && command -v mpirun >/dev/null; then
    hcp-profile link --db l.db --devices cpu,cpu --limits 100/100 --sizes 4K,8K 2>/dev/null |
        grep -E '^DEVICE' | tr 'A-Z ' 'a-z\n' | grep . >>columns
    hcp-profile link --db l.db --devices cpu,cpu --limits 100/100 --beside --lens 32 --heads 8 2>/dev/null |
        grep -E '^DEVICE' | tr 'A-Z ' 'a-z\n' | grep . >>columns
fi
sed -n '/^\.Ss check/,/^\.Ss All/s/^\.It //p' "$page" | sed 's/ , /\n/g' >>items
hcp-profile check c.db --no-device | grep '^DEVICE' | tr 'A-Z ' 'a-z\n' | grep . >>columns
hcp-profile diff c.db c.db | grep '^RANK' | tr 'A-Z ' 'a-z\n' | grep . >>columns
# Every finding that check can make is explained, and no other.
sed -n 's/^ *{"\(integrity\|coverage\|staleness\|suspicious\)", "\([a-z-]*\)",.*/\2/p' \
    "$top_srcdir"/db/audit*.c >codes
sed -n 's/.*about_model(m, row, [A-Z_]*, "\([a-z-]*\)".*/\1/p; s/.*\.code = "\([a-z-]*\)".*/\1/p' \
    "$top_srcdir/db/audit-cover.c" >>codes
cat codes >>columns
test "$(wc -l <codes)" -gt 35 || echo "only $(wc -l <codes) findings seen" >>columns
sort -u columns | grep -v -x -F -f items >bad
test "$(wc -l <columns)" -gt 20 || echo "only $(wc -l <columns) columns seen" >bad
check "every column is explained" bad

# The examples, but for those that need a GPU, minutes, or somebody's kernel.
sed -n '/^\.Sh EXAMPLES/,/^\.Sh DIAG/s/^\.Dl //p' "$page" >examples
grep -v -e '--device cuda' -e '--devices cuda' -e 'run --db h.db$' -e 'my-kernel' examples >runnable
: >bad
if test ! -x "$top_builddir/profiler/hcp-link" || ! command -v mpirun >/dev/null; then
    sed -i '/^hcp-profile link/d' runnable
fi
while read -r example; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        sh -c "$example" >said 2>&1 </dev/null && continue 2
        # A machine too busy to hold a limit of its CPU says so.
        hcp-profile show --failed 2>&1 | grep -q 'not proven: the kernel had' || break
        rm -f hcp.db
    done
    { echo "$example" && cat said; } >>bad
done <runnable
test "$(wc -l <runnable)" -ge 6 || echo "only $(wc -l <runnable) examples" >>bad
check "the page's examples run" bad

check_mandoc "$page"
