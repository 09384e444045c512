#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# For make installcheck: the commands of hcp-provider(7) that bring the template to life,
# taken from the page, work with what is installed: its header, its examples, its
# programs. Environment as of plan-installed.sh.
set -eu
: "${bindir:?}" "${libdir:?}" "${pkgconfigdir:?}" "${prefix:?}" "${CC:?}" "${page:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

sed -n '/^\.Ss From the template/,/^\.Ss The functions/p' "$page" |
    sed -n '/^\.Bd/,/^\.Ed/p' | grep -v '^\.' | sed 's/\\e/\\/g' >"$tmp/commands"
test "$(grep -c . "$tmp/commands")" -ge 6

# The programs as the page calls them.
mkdir "$tmp/bin" "$tmp/dir"
pkg_config=$(command -v "${PKG_CONFIG:-pkg-config}")
printf '#!/bin/sh\nPKG_CONFIG_PATH=%s exec %s --define-variable=prefix=%s "$@"\n' \
    "$pkgconfigdir" "$pkg_config" "${DESTDIR-}$prefix" >"$tmp/bin/pkg-config"
printf '#!/bin/sh\nexec %s -Wall -Wextra -Werror "$@"\n' "$CC" >"$tmp/bin/cc"
chmod +x "$tmp/bin/pkg-config" "$tmp/bin/cc"
PATH=$tmp/bin:$bindir:$PATH
LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PATH LD_LIBRARY_PATH

if ! (cd "$tmp/dir" && sh -eu "$tmp/commands") >"$tmp/out" 2>"$tmp/err"; then
    cat "$tmp/commands" "$tmp/err" >&2
    echo "installcheck: the commands of hcp-provider(7) fail" >&2
    exit 1
fi
# This kernel and none in its place: cases that passed, none failed, rows under its name.
grep -q 'my-kernel  *1\.0  *quick  *[1-9][0-9]*  *[0-9]*  *0 ' "$tmp/out"
hcp-profile export --db "$tmp/dir/my.db" --provider my-kernel --format jsonl >"$tmp/rows"
test "$(grep -c '"status":"ok"' "$tmp/rows")" -ge 3
test -f "$(pkg-config --variable=examplesdir libhcpplan)/plugin-fa3.cpp"

if command -v g++ >/dev/null; then # a plug-in may be C++
    printf '#include <hcp/provider.h>
const hcp_provider *hcp_provider_get(uint32_t) { return nullptr; }\n' >"$tmp/none.cpp"
    # shellcheck disable=SC2046  # a list of flags
    g++ -Wall -Wextra -Werror -shared -fPIC $(pkg-config --cflags libhcpplan) \
        -o "$tmp/none.so" "$tmp/none.cpp"
    if hcp-profile conform --device cpu --kernel "$tmp/none.so" 2>"$tmp/err"; then
        echo "installcheck: a plug-in without a provider was checked" >&2
        exit 1
    fi
    grep -q 'does not serve provider ABI 1' "$tmp/err"
fi
echo "provider: the template builds against the installed header, conforms and is timed"
