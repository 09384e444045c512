#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-profile link --beside between two CPU ranks of this host, and what it refuses.

bats_require_minimum_version 1.5.0
load scale

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export HCP_DB=$BATS_TEST_TMPDIR/b.db
    unset HCP_LINK HCP_MPIRUN
    # Not a rank of whatever runs the tests.
    for v in $(env | sed -n 's/^\(\(OMPI_COMM\|PMI\|PMIX\|SLURM\)_[A-Z_]*\)=.*/\1/p'); do unset "$v"; done
    beside=(hcp-profile link --beside --devices cpu --limits 100/100)
}
with_mpi() {
    [ -x "$top_builddir/profiler/hcp-link" ] || skip "built without MPI"
    command -v mpirun >/dev/null || skip "no mpirun"
    command -v sqlite3 >/dev/null || skip "no sqlite3 program"
    # What MPI keeps is no leak of ours.
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
}
rows() { # SQL columns and the rest
    sqlite3 "$HCP_DB" "SELECT $1 FROM interference ${2-}"
}
refuse() { # CODE WORDS COMMAND...: this exit code, these words on stderr
    code=$1 words=$2
    shift 2
    run --separate-stderr "$@"
    echo "status $status: $stderr" >&2
    [ "$status" -eq "$code" ]
    [[ "$stderr" == *"$words"* ]]
}

@test "a row for each end and block, with its times and provenance; a line for each fit" {
    with_mpi
    run --separate-stderr "${beside[@]}" --lens 32,256 --heads 8 --kv-heads 2 --head-dim 64
    echo "$stderr" "$output" >&2
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"cpu and cpu over mpi, 1 pair of limits, 4 blocks beside a transfer"* ]]
    [[ "${lines[0]}" == DEVICE*LIMIT*PEER_DEVICE*PEER_LIMIT*TRANSPORT*MASK*Q_LEN*KV_LEN*BYTES*ALONE_MS*BESIDE_MS*WAIT_US*TRANSFER_ALONE_MS*TRANSFER_BESIDE_MS*SAMPLES ]]
    [[ "$output" == *BLOCKS*SLOWDOWN*TRANSFER_SLOWDOWN*OVERHEAD_US*MAX_ERROR_%* ]]
    [ "$(grep -c 'cpu:100 .*cpu:100 .*mpi ' <<<"$output")" -eq 10 ] # 2 ends of 4 blocks, 2 fits
    [ "$(rows "count(*)" "WHERE alone_ms > 0 AND beside_ms > 0 AND transfer_alone_ms > 0 AND transfer_beside_ms > 0 AND wait_ms >= 0 AND samples >= 3")" -eq 8 ]
    [ "$(rows "DISTINCT mask || q_len || '/' || kv_len || '/' || bytes" "ORDER BY 1" | xargs)" = "causal256/256/131072 causal32/32/16384 full256/256/131072 full32/32/16384" ]
    [ "$(rows "DISTINCT provider || ' ' || dtype || ' ' || phase || ' ' || heads || ' ' || kv_heads || ' ' || head_dim || ' ' || limiter_a || ' ' || limiter_b || ' ' || transport")" = "cpu-blas bf16 prefill 8 2 64 cpu:100 cpu:100 mpi" ]
    [ "$(rows "DISTINCT provider_version <> '' AND transport_version <> '' AND sm_seen = 1 AND channels IS NULL AND measured_at <> ''")" = 1 ]
    [ "$(rows "DISTINCT r.host = host_b" "JOIN run r ON r.id = run_id")" = 1 ]
    # The ends are one machine under one limit: two runs, so that neither row is lost.
    [ "$(rows "count(DISTINCT run_id)")" -eq 2 ]
    # A block of 64 times the pairs takes longer, alone and beside its transfer, and sizes
    # were not measured.
    [ "$(rows "count(*)" "a JOIN interference b USING (mask, limiter_a, device_a_id) WHERE a.q_len < b.q_len AND a.alone_ms < b.alone_ms AND a.beside_ms < b.beside_ms AND a.rowid % 2 = b.rowid % 2")" -gt 0 ]
    [ "$(sqlite3 "$HCP_DB" "SELECT count(*) FROM link")" -eq 0 ]
}

@test "a transfer is really beside the block: a large one outlasts a short block" {
    full_test
    with_mpi
    run --separate-stderr "${beside[@]}" --lens 1,512 --mask causal --heads 2 --kv-heads 2 --head-dim 256 --dtype fp32
    echo "$stderr" "$output" >&2
    [ "$status" -eq 0 ]
    [ "$(rows "DISTINCT bytes" "ORDER BY 1" | xargs)" = "4096 2097152" ]
    # A block of one token takes microseconds; waiting for a byte of data is no wait_ms.
    [ "$(rows "count(*)" "WHERE q_len = 1 AND beside_ms < transfer_beside_ms")" -ge 1 ]
}

@test "--json: one object a pair, both ends in it; the fit is that of what is stored" {
    long_test
    with_mpi
    run --separate-stderr "${beside[@]}" --lens 64 --mask full --json
    [ "$status" -eq 0 ]
    echo "$output" >&2
    [[ "$output" == '[{"schema":1,"transport":"mpi","transport_version":"'*'","dtype":"bf16","heads":32,"kv_heads":8,"head_dim":128,"sides":[{"device":"'*'"limit":"cpu:100","provider":"cpu-blas",'* ]]
    [[ "$output" == *'"rows":[{"mask":"full","q_len":64,"kv_len":64,"bytes":262144,"alone_ms":'*'}],"slowdown":'*'"transfer_slowdown":'*'"overhead_us":'*'"max_error":'*'"error":null}]' ]]
    # overhead_us of one block is its wait, stored in ms; the ends come in the order of rows.
    said=$(grep -o '"overhead_us":[^,]*' <<<"$output" | cut -d: -f2 | xargs)
    stored=$(rows "printf('%.17g', 1e3 * wait_ms)" "ORDER BY id" | xargs)
    awk -v a="$said" -v b="$stored" 'BEGIN { split(a, x, " "); split(b, y, " ")
        for (i = 1; i <= 2; i++) if (x[i] == "" || (x[i] - y[i]) ^ 2 > 1e-12 * y[i] ^ 2) exit 1 }'
}

@test "pairs of limits: both ends have rows of their own" {
    full_test
    with_mpi
    run --separate-stderr "${beside[@]}" --lens 32 --mask causal --heads 4 --kv-heads 4 --head-dim 64 --limits 100/50,none/100
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    [ "$(rows "limiter_a || '/' || limiter_b" "ORDER BY 1" | xargs)" = "/cpu:100 cpu:100/ cpu:100/cpu:50 cpu:50/cpu:100" ]
}

@test "--time-budget leaves out the long blocks, and says so" {
    full_test
    with_mpi
    run --separate-stderr "${beside[@]}" --lens 16,256,512 --mask full --time-budget 0.01s
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"cpu:100 / cpu:100: 2 blocks left out by --time-budget"* ]]
    [ "$(rows "DISTINCT q_len")" -eq 16 ]
    [ "$(rows "count(*)")" -eq 2 ]
}

@test "started by mpirun: rank 0 stores and reports once" {
    long_test
    with_mpi
    run --separate-stderr timeout 300 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -np 2 "${beside[@]}" --lens 32 --mask full 3>&-
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    [ "$(grep -c '^DEVICE' <<<"$output")" -eq 2 ] # rows and fits
    [ "$(rows "count(*)")" -eq 2 ]
}

@test "a kernel that is not there, or computes something else, is not timed" {
    long_test
    with_mpi
    refuse 1 "no kernel for this shape: " "${beside[@]}" --lens 32 --provider nosuch
    refuse 1 "none.so" "${beside[@]}" --lens 32 --kernel ./none.so
    [ "$(rows "count(*)")" -eq 0 ]
    wrong=$top_builddir/tests/.libs/plugin-faulty.so
    small=(--heads 8 --kv-heads 2 --head-dim 64)
    [ -e "$wrong" ] || skip "no faulty plug-in"
    HCP_FAULTY=wrong refuse 1 "rank 0 (cpu, " "${beside[@]}" --lens 32 "${small[@]}" --kernel "$wrong"
    # An error while blocks are measured ends both ranks.
    HCP_FAULTY=fail:48 refuse 1 "the ranks ended before they were done" "${beside[@]}" --lens 48 "${small[@]}" \
        --mask full --dtype fp32 --kernel "$wrong"
    [[ "$stderr" == *"rank "*" (cpu, "*"run"* ]]
    [ "$(rows "count(*)")" -eq 0 ]
}

@test "arguments that cannot be" {
    with_mpi
    export HCP_DB=no.db
    refuse 2 "--lens goes with --beside" hcp-profile link --devices cpu --lens 64
    refuse 2 "--kernel goes with --beside" hcp-profile link --devices cpu --kernel my.so
    refuse 2 "--sizes does not go with --beside" "${beside[@]}" --sizes 4K
    refuse 2 "--target-error does not go with --beside" "${beside[@]}" --target-error 5%
    refuse 2 "--mask 'full,half': a list of full and causal is expected" "${beside[@]}" --mask full,half
    refuse 2 "--lens" "${beside[@]}" --lens 4X
    refuse 2 "--lens: more than 16 blocks; give fewer lengths, or one --mask" "${beside[@]}" --lens 1,2,3,4,5,6,7,8,9
    refuse 2 "12 query heads cannot share 8 KV heads evenly" "${beside[@]}" --heads 12
    refuse 2 "--dtype 'int8' is not known" "${beside[@]}" --dtype int8
    refuse 2 "--head-dim" "${beside[@]}" --head-dim 0
    [ ! -e no.db ]
    refuse 2 "must be of one version" as_link '{"dtype":"bf16"}'
}
as_link() { # the last argument of hcp-link
    env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$top_builddir/profiler/hcp-link" mpi - both 4096 - - - - cpu - - - cpu - - - "$1"
}

@test "a build without MPI says so and how to get it" {
    [ ! -x "$top_builddir/profiler/hcp-link" ] || skip "built with MPI"
    refuse 1 "built without MPI; install libopenmpi-dev (or libmpich-dev) and configure again" hcp-profile link --beside
}
