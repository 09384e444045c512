#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# For make installcheck: the example of libhcpplan(3), taken from the page itself, builds
# against the installed library with what pkg-config says, and plans with the installed
# programs' database. Environment: bindir libdir pkgconfigdir, DESTDIR included; prefix;
# DESTDIR; CC; CFLAGS; page.
set -eu
: "${bindir:?}" "${libdir:?}" "${pkgconfigdir:?}" "${prefix:?}" "${CC:?}" "${page:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

# The n-th program of the page.
example()
{
    sed -n '/^\.Sh EXAMPLES/,/^\.Sh ERRORS/p' "$page" |
        awk -v n="$1" '/^\.Bd/ { seen++; on = 1 } /^\.Ed/ { on = 0 }
            on && seen == n && !/^\./' | sed 's/\\e/\\/g'
}
example 1 >"$tmp/example.c"
example 2 >"$tmp/rebalance.c"
PKG_CONFIG_PATH=$pkgconfigdir${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH LD_LIBRARY_PATH
flags=$(${PKG_CONFIG:-pkg-config} --define-variable=prefix="${DESTDIR-}$prefix" \
    --define-variable=libdir="$libdir" --cflags --libs libhcpplan)
# shellcheck disable=SC2086  # lists of flags
$CC ${CFLAGS-} -std=c17 -Wall -Wextra -Werror -o "$tmp/example" "$tmp/example.c" $flags
# shellcheck disable=SC2086
$CC ${CFLAGS-} -std=c17 -Wall -Wextra -Werror -o "$tmp/rebalance" "$tmp/rebalance.c" $flags
# A C++ executor can include the header.
if command -v g++ >/dev/null; then
    # shellcheck disable=SC2086
    echo '#include <hcpplan.h>
int main() { return hcp_plan_version() == HCP_PLAN_VERSION ? 0 : 1; }' |
        g++ -Wall -Wextra -Werror -o "$tmp/cxx" -x c++ - $flags
    "$tmp/cxx"
fi
"$bindir/hcp-profile" import --db "$tmp/h.db" nvidia-h200-fa2
"$bindir/hcp-profile" import --db "$tmp/h.db" nvidia-h200-decode
"$bindir/hcp-plan" fit --quiet --db "$tmp/h.db"
"$tmp/example" "$tmp/h.db" nvidia-h200@mps:100 nvidia-h200@mps:10 >"$tmp/out"
grep -q '^rank 1: [0-9]* tokens' "$tmp/out"
sed -n 3p "$tmp/out" >"$tmp/plan.json"
grep -q '^equal shares: [0-9.]* ms' "$tmp/out"
grep -q '^gain by late KV: 1' "$tmp/out"
grep -q '^decode: 0[.0-9]* ms a step, 0[.0-9]* of it to merge by doubling' "$tmp/out"
grep -q '^messages of the merge: 2$' "$tmp/out"
grep -q '^move: pays after ' "$tmp/out"
grep -q '^a100 by nvidia-h200: [0-9.]* ms (.* to be measured by .hcp-profile run' "$tmp/out"
grep -q '^rank [01] sends rank [01] [0-9]* tokens' "$tmp/out"
grep -q '^disaggregate: a batch every [0-9]* ms if ranks do both' "$tmp/out"
grep -q '^rank 1: prefills 0 tokens, decodes with 32768' "$tmp/out"
grep -q '^in chunks: [0-9.]* ms; in one step: [0-9.]* ms' "$tmp/out"
"$bindir/hcp-plan" simulate --db "$tmp/h.db" --plan "$tmp/plan.json" >/dev/null
if "$tmp/example" "$tmp/h.db" nvidia-l40s 2>"$tmp/err"; then
    echo "installcheck: an unknown device was planned for" >&2
    exit 1
fi
grep -q "no profile for 'nvidia-l40s'" "$tmp/err"
"$tmp/rebalance" "$tmp/h.db" nvidia-h200@mps:100 nvidia-h200@mps:50 >"$tmp/out"
grep -q '^step 2[1-9]: gain, ' "$tmp/out"
grep -q '^step 30: failed, ' "$tmp/out"
grep -q '^rank 0 recomputes [0-9]* tokens from [0-9]*$' "$tmp/out"
echo "libhcpplan: the manual's example builds and runs against the installed library"
