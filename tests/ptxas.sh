#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The one performance test that needs no GPU: no CUDA kernel may spill registers, and
# ptxas may not have serialised wgmma (its C75xx remarks). Reads the reports that the
# .cu.o rule leaves beside the objects.
set -u
cd "${top_builddir:-.}" || exit 1
reports=$(find . -name '*.ptxas' | sort)
if [ -z "$reports" ]; then
    echo '1..0 # SKIP no CUDA objects in this build'
    exit 0
fi
n=0
for r in $reports; do
    n=$((n + 1))
    bad=$(grep -E '[^0-9][1-9][0-9]* bytes spill|C75[0-9][0-9]' "$r")
    if ! grep -q 'Used [0-9]* registers' "$r"; then
        echo "not ok $n - $r: holds no report; rebuild with -Xptxas -v"
    elif [ -n "$bad" ]; then
        echo "not ok $n - $r"
        echo "$bad" | sed 's/^/# /'
    else
        echo "ok $n - $r: no spills"
    fi
done
echo "1..$n"
