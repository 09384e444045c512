# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Which tests are left out where tests are to be short, for the bats files. Everything runs
# where HCP_TEST_SCALE is 1 or not set; continuous integration's other builds have less.

# Not below 0.2: long tests of what does not depend on how the program was built.
long_test() {
    at_scale 0.2
}

# Not below 1: longer ones of code that shorter tests go through as well, so that a build
# with sanitizers sees nothing new in them; or that only wait.
full_test() {
    at_scale 1
}

at_scale() { # LEAST
    awk -v s="${HCP_TEST_SCALE:-1}" -v least="$1" 'BEGIN { exit !(s < least) }' || return 0
    skip "HCP_TEST_SCALE is $HCP_TEST_SCALE"
}

# some A B C...: all of them, or the first alone below 1.
some() {
    if awk -v s="${HCP_TEST_SCALE:-1}" 'BEGIN { exit !(s < 1) }'; then
        echo "$1"
    else
        echo "$@"
    fi
}
