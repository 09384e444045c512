#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031,SC2001 # bats and the harness set these
# hcp-profile link between two CPU ranks of this host, and what it refuses.

bats_require_minimum_version 1.5.0
load scale

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export HCP_DB=$BATS_TEST_TMPDIR/l.db
    unset HCP_LINK HCP_MPIRUN
    # Not a rank of whatever runs the tests.
    for v in $(env | sed -n 's/^\(\(OMPI_COMM\|PMI\|PMIX\|SLURM\)_[A-Z_]*\)=.*/\1/p'); do unset "$v"; done
    link=(hcp-profile link --devices cpu '--sizes=4K,64K,1M' --limits 100/100)
}
with_mpi() {
    [ -x "$top_builddir/profiler/hcp-link" ] || skip "built without MPI"
    command -v mpirun >/dev/null || skip "no mpirun"
    for program in sqlite3 pgrep; do
        command -v $program >/dev/null || skip "no $program program"
    done
    # What MPI keeps is no leak of ours.
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
}
rows() { # SQL columns and the rest
    sqlite3 "$HCP_DB" "SELECT $1 FROM link ${2-}"
}
refuse() { # CODE WORDS COMMAND...: this exit code, these words on stderr
    code=$1 words=$2
    shift 2
    run --separate-stderr "$@"
    echo "status $status: $stderr" >&2
    [ "$status" -eq "$code" ]
    [[ "$stderr" == *"$words"* ]]
}
as_ranks() { # N COMMAND...
    n=$1
    shift
    timeout 300 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        mpirun -np "$n" "$@" 3>&-
}
ranks_of_this_test() { # their process ids
    local p
    for p in $(pgrep -x hcp-link || true); do
        ! grep -qz "^HCP_DB=$HCP_DB$" "/proc/$p/environ" 2>/dev/null || echo "$p"
    done
}
no_ranks_left() { # nor their keepers; zombies do not count
    for _ in $(seq 600); do
        left=0
        for p in $(pgrep '^hcp-link' || true); do
            grep -q '^State:.*Z' "/proc/$p/status" 2>/dev/null || ! grep -qz "^HCP_DB=$HCP_DB$" "/proc/$p/environ" 2>/dev/null || left=1
        done
        [ $left -eq 1 ] || return 0
        sleep 0.1
    done
    return 1
}

@test "two ranks: a row a size with its provenance, and the fit" {
    with_mpi
    run --separate-stderr "${link[@]}"
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"cpu and cpu over mpi, 1 pair of limits, 3 sizes from 4096 to 1048576 bytes"* ]]
    [[ "${lines[0]}" == DEVICE_A*LIMIT_A*DEVICE_B*LIMIT_B*TRANSPORT*BYTES*TIME_MS*GB_PER_S*SAMPLES ]]
    [ "$(grep -c 'cpu:100 .*cpu:100 .*mpi ' <<<"$output")" -eq 4 ] # three sizes and the fit
    [[ "$output" == *ALPHA_US*BETA_GB_PER_S*HOLDOUT* ]]
    no_ranks_left
    [ "$(rows bytes 'ORDER BY bytes' | xargs)" = "4096 65536 1048576" ]
    [ "$(rows "count(*)" "WHERE time_ms > 0 AND p25_ms <= time_ms AND time_ms <= p75_ms AND samples >= 6")" -eq 3 ]
    [ "$(rows "DISTINCT transport || '/' || same_host || '/' || limiter_a || '/' || limiter_b")" = mpi/1/cpu:100/cpu:100 ]
    [ "$(rows "DISTINCT transport_version <> ''")" = 1 ]
    [ "$(rows "DISTINCT host" "JOIN run ON run.id = run_id")" = "$(rows "DISTINCT host_b")" ]
}

@test "--json: one object a pair; what is printed is what is stored" {
    with_mpi
    run --separate-stderr "${link[@]}" --sizes 4K..16K --json
    [ "$status" -eq 0 ]
    [[ "$output" == '[{"schema":1,"device_a":"'*'"limit_a":"cpu:100",'*'"transport":"mpi","channels":null,"transport_version":"'* ]]
    [[ "$output" == *'"rows":[{"bytes":4096,"time_ms":'*'{"bytes":8192,'*'{"bytes":16384,'* ]]
    [[ "$output" == *'"alpha_us":'*'"beta_gb_per_s":'*'"holdout_median":'*'"curve":{"holdout_median":'*'"holdout_p90":'*'"holdout_max":'*'"topology":{"connection":"host","links":0,"detail":"the host'*'"error":null}]' ]]
    # Of one inner size the curve has one error: that of the line between the other two.
    e=$(sed 's/.*"curve":{"holdout_median":\([^,]*\),.*/\1/' <<<"$output")
    awk -v e="$e" -v a="$(rows time_ms "WHERE bytes = 4096")" -v b="$(rows time_ms "WHERE bytes = 8192")" -v c="$(rows time_ms "WHERE bytes = 16384")" \
        'BEGIN { d = (a + (c - a) / 3) / b - 1; if (d < 0) d = -d; exit !(d - e < 1e-6 && e - d < 1e-6) }'
    t=$(sed 's/.*"bytes":8192,"time_ms":\([^,]*\),.*/\1/' <<<"$output")
    awk -v a="$t" -v b="$(rows "printf('%.17g', time_ms)" "WHERE bytes = 8192")" 'BEGIN { exit !(a > 0 && a / b - 1 < 1e-12 && b / a - 1 < 1e-12) }'
}

@test "show --links: the curve with its held-out error, as the report has it" {
    with_mpi
    run --separate-stderr "${link[@]}" --sizes 4K..32K
    [ "$status" -eq 0 ]
    read -r median p90 <<<"$(awk '/ALPHA_US/ { getline; print $(NF - 2), $(NF - 1) }' <<<"$output")"
    hcp-profile show --links | tail -n 1 | grep -q " $median/$p90 measured\$"
    hcp-profile show --links --json >j
    grep -q '"curve":{"bytes":\[4096,8192,16384,32768\],"time_ms":\[' j
    e=$(sed 's/.*"curve":{.*"holdout_p90":\([^,]*\),.*/\1/' j)
    [ "$(awk -v e="$e" 'BEGIN { printf "%.1f", 100 * e }')" = "$p90" ]
    # One size is no curve.
    "${link[@]}" --sizes 4K --db one.db
    hcp-profile show --links --json --db one.db | grep -q '"curve":null'
}

@test "one size alone has no fit: no second table, and why" {
    with_mpi
    run --separate-stderr "${link[@]}" --sizes 4K
    [ "$status" -eq 0 ]
    [ "$(wc -l <<<"$output")" -eq 2 ]
    [[ "$stderr" == *"cpu:100 / cpu:100: no alpha and beta: "*"measure at least two sizes"* ]]
}

@test "sizes are added between those given until the target is met; none unasked" {
    long_test
    with_mpi
    # An error that no machine reaches: whether three sizes would do must not depend on luck.
    run --separate-stderr "${link[@]}" --sizes 4K,64K,16M --target-error 0.01%
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"3 sizes from 4096 to 16777216 bytes and more where the curve asks for them"* ]]
    [ "$(rows "count(*) BETWEEN 4 AND 27 AND count(DISTINCT bytes) = count(*)")" -eq 1 ]
    [ "$(rows "min(bytes) || ' ' || max(bytes)")" = "4096 16777216" ]
    n=$(rows "count(*)")
    [[ "$(grep -A1 ALPHA_US <<<"$output" | tail -n 1)" =~ mpi\ +-\ +$n\  ]]
    # All have their three visits.
    [ "$(rows "min(samples) >= 6")" -eq 1 ]
}

@test "how the devices are connected is stored, once for all pairs of limits" {
    long_test
    with_mpi
    "${link[@]}" --sizes 4K,8K --limits 100/100,100/50
    [ "$(sqlite3 "$HCP_DB" "SELECT count(*) || ' ' || connection || ' ' || links FROM topology")" = "1 host 0" ]
    [[ "$(sqlite3 "$HCP_DB" "SELECT detail FROM topology")" == "the host's memory"* ]]
    [ "$(sqlite3 "$HCP_DB" "SELECT count(*) FROM topology t JOIN link l USING (run_id) WHERE t.device_a_id = l.device_a_id")" -eq 4 ]
}

@test "two hosts, one of them a pose: rows and topology name both, over TCP" {
    with_mpi
    unshare --uts true 2>/dev/null || skip "may not pose as another host"
    mpirun --version 2>&1 | grep -q 'Open MPI\|OpenRTE' || skip "not Open MPI"
    sh=$(command -v sh)
    run --separate-stderr timeout 300 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,tcp \
        mpirun --oversubscribe --bind-to none -np 1 "${link[@]}" : \
        -np 1 unshare --uts "$sh" -c 'hostname elsewhere && exec "$@"' sh "${link[@]}"
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    [ "$(rows "count(*) || ' ' || same_host || ' ' || host_b")" = "3 0 elsewhere" ]
    [ "$(rows "DISTINCT run.host <> host_b" "JOIN run ON run.id = run_id")" -eq 1 ]
    [ "$(sqlite3 "$HCP_DB" "SELECT connection || ' ' || host_b FROM topology")" = "network elsewhere" ]
}

@test "--one-way: each way alone, rows of the sender, apart from those of both at once" {
    with_mpi
    run --separate-stderr "${link[@]}" --limits none/100 --one-way
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"cpu and cpu over mpi, each way alone, 1 pair of limits, 3 sizes from 4096 to 1048576 bytes"* ]]
    [ "$(grep -c 'none .*cpu:100 yes  *mpi ' <<<"$output")" -eq 4 ] # three sizes and the fit
    [ "$(grep -c 'cpu:100 .*none  *yes  *mpi ' <<<"$output")" -eq 4 ]
    no_ranks_left
    [ "$(rows "limiter_a || '>' || limiter_b || ' ' || group_concat(bytes)" \
        "WHERE one_way = 1 GROUP BY limiter_a ORDER BY limiter_a" | xargs)" = ">cpu:100 4096,65536,1048576 cpu:100> 4096,65536,1048576" ]
    [ "$(rows "count(*)" "WHERE time_ms > 0 AND p25_ms <= time_ms AND time_ms <= p75_ms AND samples >= 6")" -eq 6 ]
    [ "$(rows "count(DISTINCT run_id)")" -eq 1 ]
    [ "$(sqlite3 "$HCP_DB" "SELECT count(*) FROM topology")" -eq 1 ]
    "${link[@]}" --limits none/100
    [ "$(rows "count(*)" "WHERE one_way IS NULL")" -eq 3 ]
    [ "$(rows "count(*)" "WHERE one_way = 1")" -eq 6 ]
    run hcp-profile show --links
    [ "${#lines[@]}" -eq 4 ]
}

@test "--one-way between equal ends: two ways of two runs, one pair; --json names the sender" {
    with_mpi
    run --separate-stderr "${link[@]}" --sizes 4K,8K --one-way --json
    [ "$status" -eq 0 ]
    [ "$(grep -o '"one_way":true' <<<"$output" | wc -l)" -eq 2 ]
    [ "$(grep -o '"rows":\[{"bytes":4096,' <<<"$output" | wc -l)" -eq 2 ]
    [ "$(rows "count(DISTINCT run_id) || ' ' || count(*)")" = "2 4" ]
    for uid in $(grep -o '"run_uid":"[^"]*"' <<<"$output" | cut -d'"' -f4); do
        [ "$(rows "count(*)" "JOIN run ON run.id = run_id WHERE uid = '$uid'")" -eq 2 ]
    done
    run hcp-profile show --links
    [ "${#lines[@]}" -eq 2 ]
    [[ "${lines[1]}" == *" yes "*" mpi "*" 4 "*4096-8192* ]]
    run --separate-stderr "${link[@]}" --limits none/100 --sizes 4K --one-way --json
    [[ "$output" == *'"limit_a":"",'*'"limit_b":"cpu:100","one_way":true,'*'"limit_a":"cpu:100",'*'"limit_b":"","one_way":true,'* ]]
    [[ "$stderr" == *"none / cpu:100, one way: no alpha and beta: "*"cpu:100 / none, one way: no alpha and beta: "* ]]
}

@test "--one-way: sizes are added to each way; the budget is for both" {
    long_test
    with_mpi
    run --separate-stderr "${link[@]}" --sizes 4K,64K,16M --limits none/100 --one-way --target-error 0.01%
    [ "$status" -eq 0 ]
    for end in "" cpu:100; do
        [ "$(rows "count(*) BETWEEN 4 AND 27 AND count(DISTINCT bytes) = count(*) AND max(bytes) = 16777216" \
            "WHERE limiter_a = '$end'")" -eq 1 ]
    done
    run --separate-stderr "${link[@]}" --db few.db --sizes 4K,64M,128M --limits none/100 --one-way --time-budget 0.01s
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"none / cpu:100, one way: "*" left out by --time-budget"* ]]
    [ "$(sqlite3 few.db "SELECT group_concat(n) FROM (SELECT count(*) < 3 AND min(bytes) = 4096 AS n FROM link GROUP BY limiter_a)")" = 1,1 ]
}

@test "--one-way, started by mpirun, between two hosts: each way is of a run of its sender's host" {
    with_mpi
    run --separate-stderr as_ranks 2 "${link[@]}" --sizes 4K,8K --one-way
    [ "$status" -eq 0 ]
    [ "$(rows "count(*)")" -eq 4 ]
    unshare --uts true 2>/dev/null || skip "may not pose as another host"
    mpirun --version 2>&1 | grep -q 'Open MPI\|OpenRTE' || skip "not Open MPI"
    rm "$HCP_DB"
    sh=$(command -v sh)
    link+=(--one-way)
    run --separate-stderr timeout 300 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,tcp \
        mpirun --oversubscribe --bind-to none -np 1 "${link[@]}" : \
        -np 1 unshare --uts "$sh" -c 'hostname elsewhere && exec "$@"' sh "${link[@]}"
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    here=$(rows "DISTINCT host_b" "WHERE host_b <> 'elsewhere'")
    [ "$(rows "run.host || '>' || host_b || ' ' || count(*)" "JOIN run ON run.id = run_id GROUP BY run.id ORDER BY host_b = 'elsewhere' DESC" | xargs)" = \
        "$here>elsewhere 3 elsewhere>$here 3" ]
    [[ "$(hcp-profile show --links)" == *" yes "*" between "*6* ]]
}

@test "each run stays beside the others" {
    long_test
    with_mpi
    "${link[@]}" --sizes 4K,8K
    "${link[@]}" --sizes 4K,8K
    [ "$(rows "count(*)")" -eq 4 ]
    [ "$(rows "count(DISTINCT run_id)")" -eq 2 ]
}

@test "pairs of limits: bare percentages, full limits, none; the throttled rank ends" {
    long_test
    with_mpi
    run --separate-stderr "${link[@]}" --sizes 4K,8K --limits 100/50,none/cpu:100
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    [ "$(rows "DISTINCT limiter_a || '/' || limiter_b" "ORDER BY 1" | xargs)" = "/cpu:100 cpu:100/cpu:50" ]
    no_ranks_left
}

@test "--time-budget leaves out what does not fit, smallest first, and says so" {
    with_mpi
    run --separate-stderr "${link[@]}" --sizes 4K,64M,128M --time-budget 0.01s
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"cpu:100 / cpu:100: "*" left out by --time-budget"* ]]
    [ "$(rows "min(bytes)")" -eq 4096 ]
    [ "$(rows "count(*)")" -lt 3 ]
}

@test "started by mpirun: the two ranks are the ends, rank 0 stores and reports once" {
    with_mpi
    run --separate-stderr as_ranks 2 "${link[@]}"
    echo "$stderr" >&2
    [ "$status" -eq 0 ]
    [ "$(grep -c '^DEVICE_A' <<<"$output")" -eq 2 ] # sizes and fit
    [ "$(rows "count(*)")" -eq 3 ]
    no_ranks_left
}

@test "started by mpirun: what cannot be" {
    long_test
    with_mpi
    refuse 2 "started as one of 3 ranks; a link has two" as_ranks 3 "${link[@]}"
    refuse 2 "one pair a command under a launcher" as_ranks 2 "${link[@]}" --limits 100/100,100/50
    refuse 2 "under a launcher give --devices" as_ranks 2 hcp-profile link
}

@test "Ctrl-C ends the ranks" {
    long_test
    with_mpi
    env --default-signal=INT "${link[@]}" --sizes 4K..256M --limits 100/20,100/100 >out 2>err 3>&- &
    pid=$!
    for _ in $(seq 1200); do # both ranks are there
        [ "$(ranks_of_this_test | wc -l)" -lt 2 ] || break
        sleep 0.1
    done
    kill -INT $pid
    code=0
    wait $pid || code=$?
    cat err
    [ "$code" -eq 130 ]
    grep -q 'hcp-profile: stopped' err
    no_ranks_left
}

@test "a rank that is killed: an error, nothing stored, nobody left" {
    long_test
    with_mpi
    "${link[@]}" --sizes 4K..256M --limits 100/20 >out 2>err 3>&- &
    pid=$!
    rank=
    for _ in $(seq 1200); do
        rank=$(ranks_of_this_test | tail -n 1)
        [ -z "$rank" ] || break
        sleep 0.1
    done
    [ -n "$rank" ]
    sleep 0.5
    kill -9 "$rank"
    code=0
    wait $pid || code=$?
    cat err
    [ "$code" -eq 1 ]
    grep -q 'the ranks ended before they were done' err
    [ "$(rows "count(*)")" -eq 0 ]
    no_ranks_left
}

@test "arguments that cannot be" {
    with_mpi
    export HCP_DB=no.db
    refuse 2 "'100' is not a pair; write A/B" hcp-profile link --devices cpu --limits 100
    refuse 2 "'200' is no limit; write cpu:PCT, PCT or none" hcp-profile link --devices cpu --limits 100/200
    refuse 2 "'mps:50' is not a limit of cpu" hcp-profile link --devices cpu --limits 100/mps:50
    refuse 2 "'4X' is not a number of bytes" hcp-profile link --devices cpu --sizes 4K,4X
    refuse 2 "'1M..4K' is an empty range" hcp-profile link --devices cpu --sizes 1M..4K
    refuse 2 "the ends of a link are cuda:N or cpu" hcp-profile link --devices cpu,gpu0
    refuse 2 "nccl moves data between two GPUs, not cpu and cpu" hcp-profile link --devices cpu,cpu --transport nccl
    refuse 2 "use nccl, mpi or copy" hcp-profile link --transport tcp
    refuse 2 "copy moves data between two GPUs, not cpu and cpu" hcp-profile link --devices cpu,cpu --transport copy
    refuse 2 "'3' is neither auto nor a power of two up to 32" hcp-profile link --channels 1,3
    refuse 2 "'64' is neither auto nor a power of two up to 32" hcp-profile link --channels 64
    refuse 2 "--channels are NCCL's; --transport mpi has none" hcp-profile link --devices cpu --channels 2
    refuse 2 "'150%' is not an error between 0 and 100 %" hcp-profile link --devices cpu --target-error 150%
    refuse 2 "is not a time" hcp-profile link --time-budget soon
    refuse 2 "unexpected argument 'cpu'" hcp-profile link cpu
    refuse 2 "--one-way does not go with --beside" hcp-profile link --devices cpu --one-way --beside
    [ ! -e no.db ]
}

@test "programs that are not there" {
    with_mpi
    refuse 1 "cannot run ./nompirun of HCP_MPIRUN; install the package" env HCP_MPIRUN=./nompirun "${link[@]}"
    refuse 1 "HCP_LINK=./nolink: No such file or directory; name the program hcp-link in it, or unset it" env HCP_LINK=./nolink "${link[@]}"
    refuse 1 "the ranks ended before they were done" env HCP_LINK=/bin/false "${link[@]}"
    refuse 2 "is started by 'hcp-profile link'" "$top_builddir/profiler/hcp-link"
}

@test "an installed tree: hcp-link is found below libexec" {
    with_mpi
    mkdir -p at/bin at/libexec/hcp
    cp "$top_builddir/profiler/hcp-profile" at/bin/
    run --separate-stderr at/bin/hcp-profile link --db none.db --devices cpu --sizes 4K --limits 100/100
    # Unless this very version is installed already.
    [ "$status" -eq 0 ] || [[ "$stderr" == *"hcp-link is neither beside hcp-profile nor in /"*"; install it again"* ]]
    cp "$top_builddir/profiler/hcp-link" at/libexec/hcp/
    at/bin/hcp-profile link --devices cpu --sizes 4K --limits 100/100
    [ "$(rows "count(*)")" -eq 1 ]
}

@test "a build without MPI says so and how to get it" {
    [ ! -x "$top_builddir/profiler/hcp-link" ] || skip "built with MPI"
    refuse 1 "built without MPI; install libopenmpi-dev (or libmpich-dev) and configure again" hcp-profile link
}
