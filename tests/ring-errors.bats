#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# What can go wrong with hcp-ring: its message, its exit code, and nothing left behind.

bats_require_minimum_version 1.5.0
load ring-lib

setup_file() {
    export TMPDIR=$BATS_FILE_TMPDIR
    add_models "$TMPDIR/m.db" fp32 1 2 1 32 none,cpu:50
}

setup() {
    long_test
    ring_setup
    shape=(--dtype fp32 --batch 1 --heads 2 --kv-heads 1 --head-dim 32)
    cp "$BATS_FILE_TMPDIR"/m.db .
    plan m.db two.json "2*$cpu" causal zigzag 100,200 "${shape[@]}"
    faulty=$top_builddir/tests/.libs/plugin-faulty.so
    launcher=
}

teardown() {
    [ -z "${launcher:-}" ] || kill -KILL "$launcher" 2>/dev/null || true
}

# refuse CODE PATTERN COMMAND...: ends so, saying so once, without a result.
refuse() {
    local code=$1 text=$2
    shift 2
    run --separate-stderr timeout -k 5 300 "$@"
    if [ "$status" -ne "$code" ] || [[ "$stderr" != *"hcp-ring: "$text* ]] || [ -n "$output" ] ||
        [ "$(grep -c '^hcp-ring: ' <<<"$stderr")" -ne 1 ]; then
        echo "status $status, not $code, or other than '$text':"
        echo "$output"
        echo "$stderr"
        return 1
    fi
}
two() { # two CODE TEXT "OPTIONS OF RANK 0" "OPTIONS OF RANK 1"
    local a b
    read -ra a <<<"$3"
    read -ra b <<<"$4"
    refuse "$1" "$2" mpirun -np 1 hcp-ring "${a[@]}" : -np 1 hcp-ring "${b[@]}"
}
edit() { # edit FILE SED: two.json changed by hand, without its fingerprint
    sed 's/,"fingerprint":"[0-9a-f]*"//'"${2:+;$2}" two.json >"$1"
}

@test "command lines" {
    refuse 2 "give --plan FILE, or --ranks and --seq-len" hcp-ring
    refuse 2 "unrecognized option '--nonsense'" hcp-ring --nonsense
    refuse 2 "'x' is not an option; plans are given with --plan" hcp-ring --plan two.json x
    refuse 2 "--plan has its own ranks and lengths" hcp-ring --plan two.json --seq-len 300
    refuse 2 "--plan has its own ranks" hcp-ring --plan two.json --strategy best
    refuse 2 "--transport 'tcp' is not known; expected nccl, mpi or auto" hcp-ring --plan two.json --transport tcp
    refuse 2 "--kernel and --provider both name a kernel; use one" hcp-ring --plan two.json --kernel a --provider b
    refuse 2 "--plan has its own phase and merge; leave --phase and --merge out" hcp-ring --plan two.json --phase decode
    refuse 2 "--merge is of --phase decode" hcp-ring --ranks "$cpu" --seq-len 1K --merge ring
    refuse 2 "--merge 'x' is not known; expected auto, ring, doubling or gather" hcp-ring --plan two.json --merge x
    refuse 2 "--verify '0' is out of range" hcp-ring --plan two.json --verify=0
    refuse 2 "--timeout '0' is not a time in seconds" hcp-ring --plan two.json --timeout 0
    refuse 2 "--spare-sms" hcp-ring --plan two.json --spare-sms -1
    refuse 2 "--spare-sms" hcp-ring --plan two.json --spare-sms few
    refuse 2 "--sub-blocks '65' is out of range" hcp-ring --plan two.json --sub-blocks 65
    refuse 2 "--buffers '-1'" hcp-ring --plan two.json --buffers -1
    refuse 2 "--local '0' is out of range" hcp-ring --plan two.json --local 0
    refuse 2 "--repeat '0' is out of range" hcp-ring --plan two.json --repeat 0
}

@test "command lines under mpirun: said once, also if it is not rank 0's" {
    refuse 2 "unrecognized option '--nonsense'" mpirun -np 3 hcp-ring --plan two.json --nonsense
    two 2 "unrecognized option '--nonsense'" "--plan two.json" "--plan two.json --nonsense"
    two 2 "unrecognized option '--nonsense'" "--plan two.json --nonsense" "--plan two.json"
    run mpirun -np 2 hcp-ring --version
    [ "$(grep -c '^hcp-ring [0-9]' <<<"$output")" -eq 1 ]
}

@test "as many ranks as the plan has" {
    local use="the plan has 2 ranks and"
    refuse 2 "$use 1 was started; use 'mpirun -np 2 hcp-ring ...' or --local 2" hcp-ring --plan two.json
    refuse 2 "$use 3 were started; use 'mpirun -np 2 hcp-ring ...'" mpirun -np 3 hcp-ring --plan two.json
    run --separate-stderr timeout 300 hcp-ring --local 3 --plan two.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"$use 3 were started"* ]]
}

@test "no mpirun" {
    HCP_MPIRUN=/nonexistent/mpirun refuse 1 \
        "--local: cannot run /nonexistent/mpirun of HCP_MPIRUN; install the package openmpi-bin" \
        hcp-ring --local 2 --plan two.json
}

@test "plan files: missing, damaged, empty, edited" {
    refuse 1 "rank 0 (*): cannot open plan none.json: No such file" hcp-ring --plan none.json
    head -c 200 two.json >cut.json
    refuse 1 "rank 0 (*): cut.json is not a plan: line 1: " mpirun -np 2 hcp-ring --plan cut.json
    echo '[]' >empty.json
    refuse 3 "rank 0 (*): empty.json holds no plan; print one" hcp-ring --plan empty.json
    echo '[{"strategy":"lut","error":"no model"}]' >no-answer.json
    refuse 3 "rank 0 (*): no-answer.json holds no plan" hcp-ring --plan no-answer.json
    echo '{"schema":99}' >future.json
    refuse 1 "rank 0 (*): future.json: not a plan: " hcp-ring --plan future.json
    hcp-plan split --db m.db --ranks "4*$cpu" --tokens 100,100,100,100 --mask causal \
        --layout zigzag "${shape[@]}" --extrapolate --node-ranks 2 --node-gbps 0.001 \
        --double-ring --json >rings.json
    grep -q '"inner_ranks":2' rings.json
    refuse 2 "rank 0 (*): rings of rings have whole blocks; leave --sub-blocks out" \
        mpirun -np 4 hcp-ring --plan rings.json --sub-blocks 2
    refuse 2 "rank 0 (*): rings of rings are run without a barrier and without the rest of a layer" \
        mpirun -np 4 hcp-ring --plan rings.json --barrier
    refuse 2 "rank 0 (*): a plan is for rings of rings, of which search looks at none" \
        mpirun -np 4 hcp-ring search --plan rings.json
    hcp-plan split --db m.db --ranks "2*$cpu" --tokens 100,200 --layout contiguous \
        "${shape[@]}" --extrapolate --json |
        sed 's/,"fingerprint":"[0-9a-f]*"//; s/"phase":"prefill"/"phase":"decode"/;
             s/}$/,"merge":{"schedule":"doubling","bytes":264,"ms":0}}/' >decode.json
    for option in '--buffers 2' '--sub-blocks 1' --barrier '--hidden 64 --ffn 64'; do
        # shellcheck disable=SC2086 # options are words
        refuse 2 "rank 0 (*): in decode KV stays where it is, and a step is of attention alone; leave --buffers" \
            mpirun -np 2 hcp-ring --plan decode.json $option
    done
    refuse 2 "rank 0 (*): the plans are of prefill and of decode; run those of one phase at a time" \
        mpirun -np 2 hcp-ring --plan two.json --plan decode.json
    sed 's/"makespan_ms":[0-9.e-]*/"makespan_ms":1/' two.json >edited.json
    refuse 1 "rank 0 (*): edited.json was changed after it was printed (its fingerprint does not match)" \
        mpirun -np 2 hcp-ring --plan edited.json
    sed 's/"seq_len":300/"seq_len":301/' two.json >edited.json
    refuse 1 "rank 0 (*): edited.json: not a plan: tokens do not add up to seq_len" hcp-ring --plan edited.json
    # Sizes whose product no integer of 64 bits holds.
    hcp-plan split --db m.db --ranks "2*$cpu" --tokens 1G,0 --seq-len 1G --layout contiguous "${shape[@]}" \
        --extrapolate --json |
        sed -E 's/,"fingerprint":"[0-9a-f]*"//; s/"heads":[0-9]+/"heads":268435456/
                s/"(kv_heads|head_dim)":[0-9]+/"\1":16384/g' >edited.json
    refuse 1 "rank 0 (*): cannot allocate * GB for a rank's part (fewer tokens a rank need less): out of" \
        mpirun -np 2 hcp-ring --plan edited.json
    refuse 1 "rank 0 (*): standard input is not a plan: " hcp-ring --plan - </dev/null
}

@test "plans of different ranks or shapes" {
    plan m.db three.json "3*$cpu" causal zigzag 100,100,100 "${shape[@]}"
    plan m.db half.json "$cpu,$cpu@cpu:50" causal zigzag 100,200 "${shape[@]}"
    add_models m.db fp32 1 4 1 32
    plan m.db four.json "2*$cpu" causal zigzag 100,200 --dtype fp32 --heads 4 --kv-heads 1 --head-dim 32
    for other in three half; do
        refuse 2 "rank 0 (*): the plans are for different ranks, or for another order of" \
            mpirun -np 2 hcp-ring --plan two.json --plan $other.json
    done
    refuse 2 "rank 0 (*): the plans are for different shapes; run those of one shape" \
        mpirun -np 2 hcp-ring --plan two.json --plan four.json
}

@test "devices and limits that are not here" {
    edit h200.json 's/"device":"[^"]*"/"device":"nvidia-h200"/'
    refuse 1 "rank 0 (*): the plan gives this rank a 'nvidia-h200'; * has the CPU '$cpu' and *; start the rank on its own kind of machine, or run the plan on any with --any-device" \
        mpirun -np 2 hcp-ring --plan h200.json
    run ring 2 --plan h200.json --any-device
    [ "$status" -eq 0 ]
    edit sheet.json 's/"device":"[^"]*"/"device":"spec:a100"/'
    refuse 1 "rank 0 (*): the plan gives this rank 'spec:a100', a GPU by its data sheet, which no machine says it has; profile the machine ('hcp-profile run') and plan with its device, or run the plan on any with --any-device" \
        mpirun -np 2 hcp-ring --plan sheet.json
    run ring 2 --plan sheet.json --any-device
    [ "$status" -eq 0 ]
    refuse 2 "rank 0 (*): rank 1, 'spec:a100', is a GPU by its data sheet, of which hcp-ring knows no times; profile the machine" \
        mpirun -np 2 hcp-ring --ranks "$cpu,spec:a100" --seq-len 256
    edit green.json 's/"limit":""/"limit":"green:24"/2'
    refuse 1 "rank 1 (*): the limit 'green:24' is not one of a CPU" \
        mpirun -np 2 hcp-ring --plan green.json
    edit mps.json 's/"limit":""/"limit":"mps:50"/2'
    refuse 1 "rank 1 (*): the limit 'mps:50' is not one of a CPU" mpirun -np 2 hcp-ring --plan mps.json
    edit none.json 's/"limit":""/"limit":"cpu:0"/'
    refuse 2 "rank 0 (*): limit 'cpu:0': " mpirun -np 2 hcp-ring --plan none.json
    plan m.db half.json "$cpu@cpu:50" causal zigzag 100 "${shape[@]}"
    refuse 1 "rank 0 (*): limit cpu:50: only under a launcher, *use hcp-ring --local 1" hcp-ring --plan half.json
}

@test "transports, kernels and buffers" {
    if grep -q '^#define HAVE_NCCL' "$top_builddir/config.h"; then
        refuse 1 "rank 0 (" mpirun -np 2 hcp-ring --plan two.json --transport nccl
    else
        refuse 1 "rank 0 (*): this build has no NCCL" mpirun -np 2 hcp-ring --plan two.json --transport nccl
    fi
    refuse 1 "rank 0 (*): no kernel for this plan: no kernel 'cudnn' here; there is: cpu-blas" \
        mpirun -np 2 hcp-ring --plan two.json --provider cudnn
    refuse 1 "rank 0 (*): kernel plug-in './none.so': No such file" mpirun -np 2 hcp-ring --plan two.json --kernel ./none.so
    plan m.db three.json "3*$cpu" causal zigzag 100,100,100 "${shape[@]}"
    refuse 2 "rank 0 (*): one buffer cannot pass blocks on in a ring of 3 ranks; use --buffers 2 or more" \
        mpirun -np 3 hcp-ring --plan three.json --buffers 1
    # A shape that the kernel does not do is not the ring's to find out in the middle.
    add_models m.db fp16 1 2 1 32
    plan m.db half.json "2*$cpu" causal zigzag 100,200 --dtype fp16 --heads 2 --kv-heads 1 --head-dim 32
    refuse 1 "rank 0 (*): no kernel for this plan: *no fp16" \
        mpirun -np 2 hcp-ring --plan half.json --kernel "$top_builddir/tests/.libs/plugin-example.so"
}

@test "questions without an answer" {
    local ask=(mpirun -np 2 hcp-ring --ranks "2*$cpu")
    refuse 1 "rank 0 (*): no profile database 'none.db'; make one with" "${ask[@]}" --seq-len 512 --db none.db "${shape[@]}"
    [ ! -e none.db ]
    refuse 3 "rank 0 (*): no profile for '$cpu' (rank 0; bf16" "${ask[@]}" --seq-len 512 --db m.db
    refuse 3 "rank 0 (*): this needs block times outside the measured lengths" "${ask[@]}" --seq-len 1000K --db m.db "${shape[@]}"
    refuse 2 "rank 0 (*): --strategy 'fastest' is not known; expected even, nominal," \
        "${ask[@]}" --seq-len 512 --db m.db "${shape[@]}" --strategy fastest
    refuse 3 "rank 0 (*): no profile for 'toaster'" mpirun -np 2 hcp-ring --ranks toaster,toaster --seq-len 512 --db m.db "${shape[@]}"
    hcp-profile run --db new.db --device "synthetic:name=$cpu" --limits none --max-len 512 "${shape[@]}" >/dev/null 2>&1
    refuse 3 "rank 0 (*): " mpirun -np 2 hcp-ring --ranks "2*$cpu" --seq-len 512 --db new.db "${shape[@]}" # not fitted
    [[ "$stderr" == *"hcp-plan fit"* ]]
}

@test "ranks that do not agree: plans, options, number of plans, kernels" {
    plan m.db other.json "2*$cpu" causal zigzag 101,199 "${shape[@]}"
    plan m.db three.json "3*$cpu" causal zigzag 100,100,120 "${shape[@]}"
    local no="the ranks do not agree: " a="--plan two.json"
    two 1 "${no}plan fingerprint * on rank 0, but * on rank 1; load the same models or give all ranks the same plan file" "$a" "--plan other.json"
    two 1 "${no}plan fingerprint *; tokens 300 on rank 0, but 320 on rank 1; ranks 2 on rank 0, but 3 on rank 1; load" "$a" "--plan three.json"
    two 1 "${no}some have 1 plans, some 2; give all ranks the same plan files" "$a" "$a --plan other.json"
    two 1 "${no}plan fingerprint " "$a --plan other.json" "--plan other.json --plan two.json"
    two 1 "${no}options *seed 1, passes 10 on rank 0, but *seed 2, passes 10 on rank 1; give all ranks the same options" "$a" "$a --seed 2"
    two 1 "${no}options *passes 10 on rank 0, but *passes 5 on rank 1" "$a" "$a --repeat 5"
    two 1 "${no}options *passes 10 on rank 0, but *verify, passes 10 on rank 1" "$a" "$a --verify"
    two 1 "${no}options *search, passes 10 on rank 0, but *" "search $a" "$a"
    two 1 "${no}*sub-blocks 1, * on rank 0, but *sub-blocks 2, * on rank 1" "$a" "$a --sub-blocks 2"
    two 1 "${no}options *transport auto, * on rank 0, but *transport mpi, * on rank 1" "$a" "$a --transport mpi"
    two 1 "${no}kernel cpu-blas on rank 0, but plugin-faulty.so on rank 1; give all ranks the same kernel" "$a" "$a --kernel $faulty"
    two 1 "rank 1 (*): cannot open plan none.json" "$a" "--plan none.json"
    nothing_left
}

@test "results are printed even if they cannot be stored" {
    plan m.db one.json "1*$cpu" causal zigzag 100 "${shape[@]}"
    echo "not a database" >text.db
    for bad in "$PWD/none/x.db:No such file" "text.db:is not a profile database" "tmp:is not a regular file"; do
        run --separate-stderr ring 1 --json --plan one.json --db "${bad%%:*}"
        [ "$status" -eq 1 ]
        [ "$(results | wc -l)" -eq 1 ]
        [[ "$stderr" == *"hcp-ring: rank 0 ("*"${bad#*:}"* ]]
        [ "$(grep -c '^hcp-ring: ' <<<"$stderr")" -eq 1 ]
    done
    [ "$(cat text.db)" = "not a database" ]
    run --separate-stderr bash -c 'timeout 300 hcp-ring --warm-up 0 --plan one.json >/dev/full'
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"No space left on device"* ]]
}

@test "a full and a read-only file system" {
    plan m.db one.json "1*$cpu" causal zigzag 100 "${shape[@]}"
    mkdir small
    unshare -m mount -t tmpfs none small 2>/dev/null || skip "cannot mount a file system here"
    # shellcheck disable=SC2016
    in_small='mount -t tmpfs -o size=$1 none small && cp m.db small && eval "$2" &&
        timeout 300 hcp-ring --warm-up 0 --json --plan one.json --db small/m.db'
    size=$((($(stat -c %s m.db) / 4096 + 2) * 4096))
    run --separate-stderr unshare -m bash -c "$in_small" sh "$size" 'cat /dev/zero >small/rest 2>/dev/null; true'
    [ "$status" -eq 1 ]
    [ "$(results | wc -l)" -eq 1 ]
    [[ "$stderr" == *"hcp-ring: rank 0 ("*"small/m.db"*"No space left"* ]]
    run --separate-stderr unshare -m bash -c "$in_small" sh 4M 'mount -o remount,ro small'
    [ "$status" -eq 1 ]
    [ "$(results | wc -l)" -eq 1 ]
    [[ "$stderr" == *"hcp-ring: rank 0 ("*"small/m.db"*"Read-only"* ]]
    run --separate-stderr unshare -m bash -c "$in_small" sh 4M 'true'
    [ "$status" -eq 0 ]
}

# start N OPTION...: a run without an end, until every rank has computed. start_alone: one
# of which the launcher ends no rank.
start() {
    apart
    in_background "$@"
}
start_alone() {
    apart alone
    in_background "$@"
}
in_background() {
    local n=$1
    shift
    # Job control, or the launcher would never see an interrupt.
    set -m
    timeout -k 5 300 mpirun -np "$n" ./apart hcp-ring --plan ring.json --kernel "$faulty" \
        --repeat 1000000 --max-time 600 "$@" >launcher 2>&1 3>&- &
    launcher=$!
    set +m
    until_computing "$n"
    [ ! -s out ]
}
pid_of() {
    cat "marks/pid-$1"
}
finish() { # the end: no results, nothing left
    status=0
    wait "$launcher" || status=$?
    launcher=
    cat out err launcher
    echo "status $status"
    [ "$status" -ne 124 ]
    [ ! -s out ]
    nothing_left
}
failed() { # failed RANK...: they have ended with exit code 1
    for rank in "$@"; do
        [ "$(cat "code-$rank")" -eq 1 ]
    done
}
said_by() { # what rank N said
    sed -n "s/^hcp-ring: rank $1: //p" err
}

@test "a rank is killed in the middle of a run: the others name it" {
    plan m.db ring.json "3*$cpu" full contiguous 100,200,150 "${shape[@]}"
    start_alone 3
    pid=$(pid_of 1)
    kill -KILL "$pid"
    finish
    failed 0 2
    for rank in 0 2; do
        [[ "$(said_by $rank)" == "rank 1 (pid $pid on "*") ended "* ]]
    done
}

@test "rank 0 is killed" {
    plan m.db ring.json "2*$cpu" causal zigzag 100,200 "${shape[@]}"
    start_alone 2
    pid=$(pid_of 0)
    kill -KILL "$pid"
    finish
    failed 1
    [[ "$(said_by 1)" == "rank 0 (pid $pid on "*") ended "* ]]
}

@test "a kernel that dies, and one that fails, on one rank" {
    plan m.db ring.json "3*$cpu" full contiguous 100,200,150 "${shape[@]}"
    for fault in crash fail; do
        apart alone
        HCP_FAULTY=$fault:200 run timeout -k 5 300 mpirun -np 3 ./apart hcp-ring --plan ring.json --kernel "$faulty" \
            --warm-up 0 --repeat 1
        cat out err
        [ ! -s out ]
        failed 0 2
        for rank in 0 2; do
            [[ "$(said_by $rank)" == "rank 1 (pid "*") ended "* ]]
        done
    done
    failed 1
    [[ "$(said_by 1)" == "cannot compute a block: "* ]]
    # The launcher says so as well, unless told not to.
    unset OMPI_MCA_orte_enable_recovery
    HCP_FAULTY=fail:200 run ring 3 --plan ring.json --kernel "$faulty"
    [ "$status" -ne 0 ]
    nothing_left
}

@test "a kernel that fails when search measures for the last time" {
    plan m.db one.json "$cpu" full contiguous 100 "${shape[@]}"
    # Of one rank there is one split: two passes to warm up and one measured, then the
    # same of what is fastest. The fourth run is in there.
    HCP_FAULTY=nth:4 refuse 1 "rank 0: cannot compute a block: " \
        mpirun -np 1 hcp-ring search --plan one.json --kernel "$faulty" --warm-up 0 --repeat 1
    HCP_FAULTY=nth:6 run --separate-stderr mpirun -np 1 hcp-ring search --plan one.json \
        --kernel "$faulty" --warm-up 0 --repeat 1
    [ "$status" -eq 0 ] # five runs are all
}

@test "a rank is stopped: the others give up after --timeout, the launcher ends it" {
    plan m.db ring.json "2*$cpu" full contiguous 100,200 "${shape[@]}"
    apart
    # The other one is patient: whatever this one waits for, it is the one that gives up.
    HCP_FAULTY=stop:200 run timeout -k 5 300 mpirun \
        -np 1 ./apart hcp-ring --plan ring.json --kernel "$faulty" --timeout 2 : \
        -np 1 ./apart hcp-ring --plan ring.json --kernel "$faulty" --timeout 600
    cat out err
    [ "$status" -eq 1 ]
    [ ! -s out ]
    [[ "$(said_by 0)" == "nothing from "*" for 2 s while waiting for "*": giving up (--timeout)" ]]
    nothing_left
}

@test "Ctrl-C: every rank ends" {
    plan m.db ring.json "3*$cpu" causal zigzag 100,200,150 "${shape[@]}"
    unset OMPI_MCA_odls_base_sigkill_timeout
    start 3
    kill -INT "$(pgrep -P "$launcher" mpirun)"
    finish
    [ "$status" -ne 0 ]
}

@test "Ctrl-C: with --local, and a rank that is throttled" {
    plan m.db ring.json "$cpu,$cpu@cpu:50" causal zigzag 100,200 "${shape[@]}"
    unset OMPI_MCA_odls_base_sigkill_timeout
    apart
    set -m
    hcp-ring --local 2 --plan "$PWD/ring.json" --kernel "$faulty" --repeat 1000000 --max-time 600 \
        >out 2>launcher 3>&- &
    launcher=$!
    set +m
    until_computing 2
    kill -INT "$launcher"
    finish
    [ "$status" -ne 0 ]
}

@test "all ranks are signalled, one of them throttled: none blames another" {
    plan m.db ring.json "$cpu,$cpu@cpu:50" causal zigzag 100,200 "${shape[@]}"
    start_alone 2
    kill -TERM "$(pid_of 0)" "$(pid_of 1)"
    finish
    failed 0 1
    [ "$(grep -c '^hcp-ring: rank [01]: stopped by the launcher' err)" -eq 2 ]
}
