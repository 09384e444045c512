#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hcp-provider(7) says what the header says, and its example of FlashAttention-3 compiles:
# here against stand-ins (tests/fa3) for the headers of FlashAttention, CUTLASS and CUDA,
# which declare the names that the example uses and have nothing behind them.
program=hcp-provider
# shellcheck source=tests/man.sh
. "${top_srcdir:?}/tests/man.sh"
page=$top_srcdir/man/hcp-provider.7
header=$top_srcdir/kernels/provider.h
fa3=$top_srcdir/kernels/plugin-fa3.cpp

echo 1..5
names() {
    grep -o -E 'HCP_(CAP|RC)_[A-Z0-9_]+' "$1" | sort -u
}
names "$header" >"$tmp/header"
names "$page" | comm -3 "$tmp/header" - >"$tmp/bad"
test "$(wc -l <"$tmp/header")" -ge 14 || echo "too few names in the header" >>"$tmp/bad"
check "every capability and code is in the page, and no other" "$tmp/bad"

sed -n '/^typedef struct hcp_provider {/,/^}/s/.*(\*\([a-z_]*\))(.*/\1/p' "$header" |
    sort >"$tmp/functions"
sed -n '/^\.Ss The functions/,/^\.Ss The problem/s/^\.It Fn //p' "$page" | sort |
    comm -3 "$tmp/functions" - >"$tmp/bad"
test "$(wc -l <"$tmp/functions")" -ge 6 || echo "too few functions in the header" >>"$tmp/bad"
check "every function of the table is in the page, and no other" "$tmp/bad"

if command -v g++ >/dev/null; then
    g++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -DFA3_VERSION='"3.0.0"' \
        -I"$top_builddir/tests/include" -I"$top_srcdir/tests/fa3" "$fa3" 2>"$tmp/bad"
    # Rows must say which FlashAttention was timed.
    if g++ -std=c++17 -fsyntax-only -I"$top_builddir/tests/include" \
        -I"$top_srcdir/tests/fa3" "$fa3" 2>/dev/null; then
        echo "compiles without FA3_VERSION" >>"$tmp/bad"
    fi
    check "the FlashAttention-3 example compiles (stand-in headers, syntax only)" "$tmp/bad"
else
    n=$((n + 1))
    echo "ok $n - the FlashAttention-3 example compiles # SKIP no g++"
fi

: >"$tmp/bad"
commits=$(cat "$page" "$fa3" | grep -o -E '\b0[0-9a-f]{6}\b' | sort | uniq -c)
test "$(echo "$commits" | wc -l)" = 1 || echo "commits: $commits" >"$tmp/bad"
check "page and example speak of one commit" "$tmp/bad"

check_mandoc "$page"
