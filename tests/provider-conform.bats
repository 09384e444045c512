#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # bats and the harness set these
# hcp-profile conform: the template passes, and what is wrong with a kernel is said.

bats_require_minimum_version 1.5.0
load scale

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    libs=$top_builddir/tests/.libs
    quick=(--device cpu --set quick)
}

# counts KERNEL: sets passed, refused and failed from the report in $output
counts() {
    read -r passed refused failed < <(sed -n \
        "s/^[^ ]* *$1 .* quick *\([0-9]*\) *\([0-9]*\) *\([0-9]*\) .*/\1 \2 \3/p" <<<"$output")
}
refuse() { # CODE WORDS COMMAND...
    code=$1 words=$2
    shift 2
    run --separate-stderr "$@"
    echo "status $status: $stderr" >&2
    [ "$status" -eq "$code" ]
    [[ "$stderr" == *"$words"* ]]
}

@test "the template passes what it takes, and says what it does not take" {
    run --separate-stderr hcp-profile conform --kernel "$libs/plugin-template.so" "${quick[@]}"
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    counts my-kernel
    [ "$passed" -ge 9 ] && [ "$failed" -eq 0 ]
    [[ "$output" == *"my-kernel refused     $refused fp16 "*"takes bf16 and fp32 only"* ]]
    [ -z "$stderr" ]
}

@test "the template on every shape up to 129" {
    full_test
    hcp-profile conform --kernel "$libs/plugin-template.so" --device cpu --set small \
        --json >out
    [ "$(grep -o '"outcome":"passed"' out | wc -l)" -gt 600 ]
    [ "$(grep -c '"outcome":"failed"' out)" -eq 0 ]
    # lengths and diagonals at run time, accumulation, rings
    grep -q '"case":"bf16 12/2 d64 129x300 diag 171 run as 65x127 diag 100","outcome":"passed"' out
    grep -q 'accumulate[a-z -]*","outcome":"passed"' out
    grep -q 'cut in six, permuted[^"]*","outcome":"passed"' out
    grep -q '"passed":[0-9]*,"refused":[0-9]*,"failed":0,' out
}

@test "every kernel of the device" {
    run hcp-profile conform "${quick[@]}"
    [ "$status" -eq 0 ]
    counts cpu-blas
    [ "$passed" -ge 13 ] && [ "$refused" -eq 0 ] && [ "$failed" -eq 0 ]
    [[ "$output" != *OUTCOME* ]] # nothing to tell apart
}

@test "a kernel that is wrong: the case and the error, exit code 1" {
    long_test
    export HCP_FAULTY=wrong
    run --separate-stderr hcp-profile conform "${quick[@]}" --kernel "$libs/plugin-faulty.so"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *" failed      1 bf16 64/8 d128 2x2 diag 0 "*" O is off by "* ]]
    run hcp-profile conform "${quick[@]}" --json --kernel "$libs/plugin-faulty.so"
    [ "$status" -eq 1 ]
    [[ "$output" == *'"outcome":"failed","o_error":'* ]]
}

@test "a kernel that reports an error, and one that crashes" {
    export HCP_FAULTY=fail:64
    refuse 1 "the set ended early: " \
        hcp-profile conform "${quick[@]}" --kernel "$libs/plugin-faulty.so"
    [[ "$stderr" == *"bf16 12/2 d64 64x64"* ]]
    export HCP_FAULTY=crash:64
    refuse 1 "crashed in the case after 'fp32 28/4 d128 65x127 diag 0': Killed" \
        hcp-profile conform "${quick[@]}" --kernel "$libs/plugin-faulty.so"
    export HCP_FAULTY=crash:129
    refuse 1 "crashed in its first case: Killed" \
        hcp-profile conform "${quick[@]}" --kernel "$libs/plugin-faulty.so"
}

@test "a kernel that serves nothing: exit code 3" {
    cc=$(command -v cc || command -v gcc || command -v clang) || skip "no C compiler"
    sed 's/if (p->dtype != HCP_BF16 .*/if (p->size)/; s/"takes bf16 and fp32 only"/"on strike"/' \
        "$top_srcdir/kernels/plugin-template.c" >strike.c
    "$cc" -std=c17 -shared -fPIC -I"$top_builddir/tests/include" -o strike.so strike.c -lm
    run --separate-stderr hcp-profile conform "${quick[@]}" --kernel strike.so
    echo "$status $output"
    [ "$status" -eq 3 ]
    counts my-kernel
    [ "$passed" -le 2 ] && [ "$failed" -eq 0 ] # blocks in which nothing is to be seen
    [[ "$output" == *"my-kernel: on strike"* ]]
}

@test "wrong usage, and what is not there" {
    refuse 2 "--set: 'most' is not quick, small, full or huge" hcp-profile conform --set most
    refuse 2 "'recorded:x' has no kernel to check" hcp-profile conform --device recorded:x
    refuse 2 "--kernel and --provider both name a kernel" \
        hcp-profile conform --kernel a.so --provider b
    refuse 2 "unexpected argument 'x'" hcp-profile conform x
    refuse 1 "no kernel 'nix' on " hcp-profile conform --device cpu --provider nix
    refuse 1 "'./no.so': No such file" hcp-profile conform --device cpu --kernel ./no.so
    [ ! -e hcp.db ]
}
