#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every test that guards.md names is there, under that name. TAP.
set -u
echo 1..2
table=${top_srcdir:?}/tests/guards.md
missing=$(grep -E '^\| .*\.(bats|c) \|' "$table" | while IFS='|' read -r _ guard file name _; do
    file=$(echo "$file" | tr -d ' ')
    name=$(echo "$name" | sed 's/^ *//; s/ *$//')
    case $file in
    *.bats) grep -qF "@test \"$name\" {" "$top_srcdir/tests/$file" ;;
    *) grep -q "^static void $name(void \*\*state)" "$top_srcdir/tests/$file" ;;
    esac || echo "#$guard: $file: $name"
done)
if [ -z "$missing" ]; then echo 'ok 1 - every test of the table is there'; else
    echo 'not ok 1 - every test of the table is there'
    echo "$missing"
fi
n=$(grep -cE '^\| .*\.(bats|c) \|' "$table")
if [ "$n" -gt 60 ]; then echo "ok 2 - $n guards"; else echo "not ok 2 - only $n guards were read"; fi
