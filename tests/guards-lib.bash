# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034 # the harness sets some, tests read others
# What stands between a measurement and a wrong row on a GPU, without one, for the bats files
# of guards.md: the program's own CUDA device, worker and limiter on the fake machine of
# gpu-machine.c, with fakes of NVML, CUPTI and the MPS daemon where the real ones would be
# found.

guards_setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export HCP_DB=$BATS_TEST_TMPDIR/h.db HCP_COOL_WAIT=0 HCP_MPS_WAIT=60
    unset HCP_MPS_CONTROL FAKE_MPS CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
    mkdir lib fake
    ln -s "$top_builddir/tests/.libs/fake-nvml.so" lib/libnvidia-ml.so.1
    ln -s "$top_builddir/tests/.libs/fake-cupti.so" lib/libcupti.so.13
    cp "$top_srcdir/tests/fake-mps-control" fake/nvidia-cuda-mps-control
    chmod 755 fake/nvidia-cuda-mps-control
    export LD_LIBRARY_PATH=$PWD/lib PATH=$PWD/fake:$PATH FAKE_MPS_PID=$PWD/daemon
    # Paths of sockets hold 107 characters.
    TMPDIR=$(mktemp -d /tmp/hcp-guard-XXXXXX)
    export TMPDIR
}
guards_teardown() {
    rm -rf "$TMPDIR"
}

# gpu ARGUMENTS...: hcp-profile run on the fake GPU; $status, $output, $stderr.
gpu() {
    # shellcheck disable=SC2086 # an option, or none
    run --separate-stderr "$top_builddir/tests/gpu-machine" run --device cuda:0 --heads 2 --kv-heads 1 \
        --head-dim 64 --dtype fp32 --causal-lens none $boosted "$@"
    echo "status $status: $stderr" >&2
}
boosted=--no-boosted
# each NAME ARGUMENTS...: the same in the background; then wait, its exit code is in
# NAME.code, its messages in NAME.err, its rows in NAME.db.
each() {
    name=$1
    shift
    (
        set +e
        # shellcheck disable=SC2086
        "$top_builddir/tests/gpu-machine" run --db "$name.db" --device cuda:0 --heads 2 --kv-heads 1 --head-dim 64 \
            --dtype fp32 --causal-lens none $boosted "$@" >/dev/null 2>"$name.err" 3>&-
        echo $? >"$name.code"
    ) 3>&- &
}
one=(--q-lens 128 --kv-lens 512)
two=(--q-lens '128,256' --kv-lens 512)
rows() { # blocks, a JSON object a line
    hcp-profile export --format jsonl "$@" 2>/dev/null | grep '"status":' || true
}
field() { # field NAME: its value in each line
    sed -n 's/.*"'"$1"'":\("\([^"]*\)"\|\([^,}]*\)\).*/\2\3/p'
}
holds() { # holds EXPRESSION: of awk
    awk "BEGIN { exit !($1) }" || {
        echo "not so: $1" >&2
        return 1
    }
}
eventually() { # COMMAND... comes true, within a minute
    for _ in $(seq 600); do
        ! "$@" 2>/dev/null || return 0
        sleep 0.1
    done
    return 1
}
some_rows() {
    [ -n "$(rows)" ]
}
no_daemon() { # none of ours is left, nor its directories
    for _ in $(seq 600); do
        if ! kill -0 "$(cat daemon)" 2>/dev/null && [ -z "$(ls "$TMPDIR")" ]; then return 0; fi
        sleep 0.1
    done
    return 1
}
