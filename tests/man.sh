# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by the tests that hold a program and its manual page together; $program names
# both. TAP; the plan is the test's.
set -u
: "${top_srcdir:?}" "${top_builddir:?}" "${program:?}"
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
page=$top_srcdir/man/$program.1
LC_ALL=C
export LC_ALL
unset HCP_DB

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

check_options() # commands: the options of their --help and of the page
{
    for command in "$@"; do
        # shellcheck disable=SC2086 # '' is the program without a command
        $program $command --help
    done | grep -o -e '--[a-z][a-z-]*' | sort -u >"$tmp/help"
    sed -e '/^\.Sh EXAMPLES/q' -e '/^\.Bd/,/^\.Ed/d' -e '/^\.Bl/d' "$page" | tr ' ' '\n' |
        grep -x -e '-[a-z?][a-z-]*' | sed 's/^/-/' | grep -e '--..' | sort -u >"$tmp/page"
    comm -23 "$tmp/help" "$tmp/page" >"$tmp/bad"
    grep -v -x -F -e '--version' "$tmp/page" | comm -13 "$tmp/help" - >>"$tmp/bad"
    test -s "$tmp/help" || echo "no options seen" >>"$tmp/bad"
    check "options of --help and of the page are the same" "$tmp/bad"
}

displayed_examples() # as a reader would type them
{
    sed -n '/^\.Sh EXAMPLES/,/^\.Sh SEE/p' "$page" | sed -n '/^\.Bd/,/^\.Ed/p' |
        grep -v '^\.' | sed -e 's/\\e/\\/g' -e 's/^\$ //'
}

check_examples() # the least there are: all displayed ones, in the directory $tmp/dir
{
    mkdir -p "$tmp/dir"
    displayed_examples >"$tmp/examples"
    echo "set -e" | cat - "$tmp/examples" >"$tmp/run"
    if (cd "$tmp/dir" && sh "$tmp/run") >"$tmp/said" 2>"$tmp/complained" </dev/null &&
        test "$(grep -c "$program" "$tmp/examples")" -ge "$1"; then
        : >"$tmp/bad"
    else
        cat "$tmp/complained" "$tmp/examples" >"$tmp/bad"
    fi
    check "the page's examples run" "$tmp/bad"
}

check_mandoc() # pages
{
    if command -v mandoc >/dev/null; then
        mandoc -T lint "$@" 2>&1 |
            grep -v -e 'referenced manual' -e 'outdated mandoc.db' >"$tmp/bad"
        check "mandoc has nothing to say" "$tmp/bad"
    else
        n=$((n + 1))
        echo "ok $n - mandoc has nothing to say # SKIP no mandoc"
    fi
}
