#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans and fingerprints are the same from gcc -O0, gcc -O3 for this processor, clang,
# and under a locale with a decimal comma.
# shellcheck disable=SC2086  # lists of files and flags are meant to split
set -u
: "${top_srcdir:?}" "${top_builddir:?}"
# It compiles by itself: once for all builds is enough.
if awk -v s="${HCP_TEST_SCALE:-1}" 'BEGIN { exit !(s < 1) }'; then
    echo "1..0 # SKIP HCP_TEST_SCALE is $HCP_TEST_SCALE"
    exit 0
fi
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

sources="$top_srcdir/tests/plan-fingerprint.c $top_srcdir/tests/plan-fixture.c
$top_srcdir/tests/decode-reference.c"
for f in models bind bind-missing init api answer strategies strategy-splits round sort solve-equal solve-search solve-exact reach eval memo few \
    tally eval-pieces order links ring rings ring-wide ring-pieces cost layer-cost memory \
    memory-room memory-forward scratch names json plan-write plan-read plan-read-rank json-members plan-check late \
    ring-late joint joint-ring joint-search joint-memory joint-answer \
    decode decode-solve merge moves documents documents-eval documents-search \
    documents-fill documents-exact documents-report documents-write documents-read \
    rescale rebalance rebalance-speed rebalance-decide rebalance-text \
    specs estimate estimate-scale \
    disagg disagg-groups disagg-search disagg-answer disagg-advise \
    chunks chunks-eval chunks-solve chunks-run chunks-exact chunks-report chunks-write \
    chunks-read; do
    sources="$sources $top_srcdir/planner/$f.c"
done
sources="$sources $top_srcdir/kernels/geometry.c"
for f in "$top_srcdir"/fit/model*.c "$top_srcdir"/db/db-*.c; do
    sources="$sources $f"
done
for f in error parse columns peak cell check rows rows-db link link-curve interference merge; do
    sources="$sources $top_srcdir/db/$f.c"
done
flags="-std=gnu17 -D_GNU_SOURCE -ffp-contract=off -w -I$top_srcdir -I$top_builddir"
sqlite_flags=$(${PKG_CONFIG:-pkg-config} --cflags sqlite3 2>/dev/null)
sqlite_libs=$(${PKG_CONFIG:-pkg-config} --libs sqlite3 2>/dev/null) || sqlite_libs=-lsqlite3

echo 1..4
n=0
result() # name, status, reason
{
    n=$((n + 1))
    case $2 in
    0) echo "ok $n - $1" ;;
    77) echo "ok $n - $1 # SKIP $3" ;;
    *) echo "not ok $n - $1"
       echo "# $3" ;;
    esac
}

build() # name, compiler and its flags
{
    name=$1
    shift
    "$@" $flags $sqlite_flags -DHAVE_CONFIG_H -o "$tmp/$name" $sources $sqlite_libs -lm \
        2>"$tmp/$name.err"
}

same() # name of the program, reason
{
    "$tmp/$1" >"$tmp/$1.out" && cmp -s "$tmp/O0.out" "$tmp/$1.out"
}

gcc=$(command -v gcc) || gcc=${CC:-cc}
if build O0 "$gcc" -O0 && "$tmp/O0" >"$tmp/O0.out" && test -s "$tmp/O0.out"; then
    result "gcc -O0 prints $(wc -l <"$tmp/O0.out" | tr -d ' ') plans" 0
else
    result "gcc -O0" 1 "$(head -c 300 "$tmp/O0.err")"
fi
if build O3 "$gcc" -O3 -march=native && same O3; then
    result "gcc -O3 -march=native agrees" 0
else
    result "gcc -O3 -march=native agrees" 1 "differs: $(diff "$tmp/O0.out" "$tmp/O3.out" | head -c 300)"
fi
if ! command -v clang >/dev/null; then
    result "clang agrees" 77 "no clang here"
elif build clang clang -O2 && same clang; then
    result "clang agrees" 0
else
    result "clang agrees" 1 "$(head -c 300 "$tmp/clang.err")"
fi

# A German locale, made here if the system has none.
if locale -a 2>/dev/null | grep -qi '^de_DE.utf-\{0,1\}8$'; then
    :
elif localedef -i de_DE -f UTF-8 "$tmp/de_DE.UTF-8" >/dev/null 2>&1; then
    LOCPATH=$tmp
    export LOCPATH
fi
LC_ALL=de_DE.UTF-8 "$tmp/O0" , >"$tmp/de.out" 2>/dev/null
case $? in
0) if cmp -s "$tmp/O0.out" "$tmp/de.out"; then
       result "a locale with a decimal comma agrees" 0
   else
       result "a locale with a decimal comma agrees" 1 "$(diff "$tmp/O0.out" "$tmp/de.out" | head -c 300)"
   fi ;;
77) result "a locale with a decimal comma agrees" 77 "no German locale and localedef cannot make one" ;;
*) result "a locale with a decimal comma agrees" 1 "the program failed" ;;
esac
