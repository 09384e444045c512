#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The interface of libhcpplan is what its header says, and its walls hold: names, needed
# libraries, and no program that links GSL and CUDA both.
set -u
: "${top_srcdir:?}" "${top_builddir:?}"
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
lib=$top_builddir/planner/.libs/libhcpplan.so

echo 1..4
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

LC_ALL=C
export LC_ALL
sort "$top_srcdir/planner/hcpplan.sym" >"$tmp/list"
nm -D --defined-only "$lib" | awk '$2 ~ /[TDBRVW]/ {sub(/@.*/, "", $3); print $3}' |
    sort >"$tmp/library"
# Function names of declarations: HCP_API up to the parenthesis.
tr '\n' ' ' <"$top_srcdir/planner/hcpplan.h" | tr ';' '\n' |
    sed -n 's/.*HCP_API [^(]*[ *]\(hcp_[a-z0-9_]*\)(.*/\1/p' | sort >"$tmp/header"
diff "$tmp/list" "$tmp/library" >"$tmp/bad"
check "exported names are those of hcpplan.sym" "$tmp/bad"
diff "$tmp/list" "$tmp/header" >"$tmp/bad"
check "hcpplan.sym is what hcpplan.h declares" "$tmp/bad"

readelf -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' |
    grep -v -e '^libsqlite3\.so' -e '^libm\.so' -e '^libc\.so' -e '^ld-linux' \
        -e '^libasan' -e '^libubsan' -e '^libtsan' -e '^libgcc_s' >"$tmp/bad"
check "libhcpplan needs sqlite3, libm and libc only" "$tmp/bad"

: >"$tmp/bad"
for program in "$top_builddir"/planner/hcp-plan "$top_builddir"/profiler/hcp-profile \
    "$top_builddir"/executor/hcp-ring; do
    dir=$(dirname "$program")
    base=$(basename "$program")
    for file in "$dir/.libs/$base" "$program"; do
        test -f "$file" || continue
        readelf -d "$file" >"$tmp/dynamic" 2>/dev/null || continue # a libtool script
        nm -D "$file" >"$tmp/names" 2>/dev/null
        nm "$file" >>"$tmp/names" 2>/dev/null
        gsl=$(grep -c -e 'libgsl' "$tmp/dynamic")
        cuda=$(grep -c -e 'libcuda' -e 'libcudart' -e 'libnccl' -e 'libcupti' "$tmp/dynamic")
        cuda=$((cuda + $(grep -ci ' t cudaMalloc' "$tmp/names")))
        if test "$gsl" -gt 0 && test "$cuda" -gt 0; then
            echo "$file links GSL and CUDA" >>"$tmp/bad"
        fi
    done
done
check "no program links GSL and CUDA both" "$tmp/bad"
