#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# What a sweep has measured survives: a kill at any moment, a full disk, a file that may
# only be read, another sweep into the same file.

bats_require_minimum_version 1.5.0
load scale

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export HCP_DB=$BATS_TEST_TMPDIR/h.db
    toy=synthetic:name=toy,noise=0.01,a=2.7e-8,b=1e-5,c=2e-6,f=0.006,waves=1
    shape=(--q-lens '128,256' --kv-lens '128,256' --causal-lens '128,256')
}
rows() { # rows FILE: blocks, a JSON object a line
    hcp-profile export --db "$1" --format jsonl 2>/dev/null | grep '"status":' || true
}
# What makes two sweeps the same: identities, times and samples, not when or by which run.
cells() { # cells FILE
    hcp-profile export --db "$1" --format jsonl 2>/dev/null | grep -e '"status":' -e '"kind":' |
        sed -e 's/"run_uid":"[^"]*",*//; s/"measured_at":"[^"]*",*//' | grep -v '"kind":"drift"' | sort
}
# whole FILE: no half row, nothing twice.
whole() {
    [ "$(sqlite3 "$1" "PRAGMA integrity_check")" = ok ] &&
        [ "$(sqlite3 "$1" "SELECT count(*) FROM cell c WHERE status <> 'ok' OR time_ms IS NULL OR samples <>
            (SELECT count(*) FROM sample s WHERE s.cell_id = c.id)")" = 0 ] &&
        [ "$(sqlite3 "$1" "SELECT count(*) FROM (SELECT 1 FROM cell GROUP BY limiter, mask, q_len, kv_len
            HAVING count(*) > 1)")" = 0 ]
}

# chain NAME MOMENTS LAST_MS DEVICE ARGUMENTS...: kills the sweep at so many random moments
# of its first LAST_MS ms, and looks at the file after each; a sweep that is done begins
# anew. Then it goes on to its end, which must be that of a sweep that nobody killed.
chain() {
    name=$1 moments=$2 last_ms=$3 device=$4
    shift 4
    set -e
    hcp-profile run --db "$name-whole.db" --device "$toy" "$@" >/dev/null 2>&1
    cells "$name-whole.db" >"$name-whole"
    RANDOM=$((moments + last_ms))
    while [ "$moments" -gt 0 ]; do
        hcp-profile run --db "$name.db" --device "$device" "$@" >/dev/null 2>&1 &
        pid=$!
        sleep "$(printf '0.%03d' $((RANDOM % last_ms)))"
        kill -9 $pid 2>/dev/null || true
        code=0
        wait $pid 2>/dev/null || code=$?
        if [ "$code" -eq 137 ]; then # it was still running
            moments=$((moments - 1))
            echo . >>"$name.killed"
        fi
        [ -s "$name.db" ] || continue # killed before it made one
        cells "$name.db" >"$name.now"
        whole "$name.db"
        if [ -e "$name.before" ]; then [ -z "$(comm -23 "$name.before" "$name.now")" ]; fi
        mv "$name.now" "$name.before"
        if cmp -s "$name.before" "$name-whole"; then
            echo . >>"$name.rounds"
            rm "$name.db" "$name.before"
        fi
    done
    hcp-profile run --db "$name.db" --device "$toy" "$@" >/dev/null 2>&1
    cells "$name.db" >"$name.now"
    cmp "$name.now" "$name-whole"
    echo yes >"$name.done"
}

@test "SIGKILL at 200 random moments: no finished cell lost, no half row, the same cells in the end" {
    n=$(awk -v s="${HCP_TEST_SCALE:-1}" 'BEGIN { print int(50 * s) }')
    # One transaction a cell; some cells a transaction; adaptive; with finish passes.
    (chain one "$n" 500 "$toy,delay=25" --levels 50,100 "${shape[@]}") 3>&- &
    (chain many "$n" 90 "$toy,delay=2" --levels 10,20,50,100 "${shape[@]}") 3>&- &
    (chain adaptive "$n" 900 "$toy,delay=22" --levels 50 --max-len 8K --adaptive) 3>&- &
    (
        toy=$toy,store_b=1e-5,merge_b=2e-5
        chain finish "$n" 250 "$toy,delay=21" --levels 50 --q-lens 512,1K --kv-lens 128,256 --causal-lens 512
    ) 3>&- &
    wait
    for name in one many adaptive finish; do
        echo "# $name: $(wc -l <$name.killed) killed, $(cat $name.rounds 2>/dev/null | wc -l) rounds" >&3
        [ -e $name.done ]
        [ "$(wc -l <$name.killed)" -eq "$n" ]
    done
}

@test "two sweeps into one file at once, of other limits and of the same: all complete" {
    for i in 1 2 3; do
        levels=10,20,30
        [ $i -ne 2 ] || levels=40,50,60
        # the third goes on with the run of the first, which has not ended
        for _ in $(seq 3000); do
            if [ $i -lt 3 ] || rows h.db | grep -q 'mps:[123]'; then break; fi
            sleep 0.02
        done
        (
            set +e
            hcp-profile run --device "$toy,delay=15" --levels $levels "${shape[@]}" >/dev/null 2>$i.err 3>&-
            echo $? >$i.code
        ) 3>&- &
    done
    wait
    cat ./*.err >&2
    for i in 1 2 3; do [ "$(cat $i.code)" -eq 0 ]; done
    [ "$(sqlite3 h.db 'PRAGMA integrity_check')" = ok ]
    [ "$(sqlite3 h.db 'SELECT count(*) FROM (SELECT DISTINCT limiter, mask, q_len, kv_len FROM cell)')" -eq 36 ]
    [ "$(sqlite3 h.db "SELECT count(*) FROM cell WHERE status <> 'ok'")" -eq 0 ]
    [ "$(sqlite3 h.db 'SELECT count(*) FROM cell')" -eq 36 ] # of two runs, none twice
    [ "$(sqlite3 h.db 'SELECT count(*) FROM run')" -eq 2 ]
    grep ' 18 cells to do$' 1.err
    grep ' measured before$' 3.err
    # and a sweep of its own has the same times
    hcp-profile run --db alone.db --device "$toy" --levels 10,20,30,40,50,60 "${shape[@]}"
    [ "$(cells h.db | uniq)" = "$(cells alone.db)" ]
}

@test "an export into a pager that nobody scrolls does not stop a sweep" {
    sql="INSERT INTO sample SELECT (SELECT min(id) FROM cell), 1000 + value, 1.2345678 FROM generate_series(1, 20000)"
    hcp-profile run --device "$toy" --levels 10 "${shape[@]}"
    sqlite3 h.db "UPDATE cell SET samples = samples + 20000 WHERE id = (SELECT min(id) FROM cell); $sql"
    [ "$(hcp-profile export | wc -c)" -gt 70000 ] # more than a pipe takes
    mkfifo pager
    hcp-profile export >pager 3>&- &
    exec 7<pager
    read -r -u 7 line
    [[ "$line" == '# hcp profile, format '* ]]
    timeout 120 hcp-profile run --device "$toy" --levels 20 "${shape[@]}"
    exec 7<&-
    [ "$(sqlite3 h.db "SELECT count(*) FROM cell WHERE limiter = 'mps:20'")" -gt 0 ]
}

@test "two sweeps of this CPU into one file at once: both complete" {
    long_test
    for i in 1 2; do
        (
            set +e
            hcp-profile run --device cpu --limits cpu:100 --heads 2 --kv-heads 1 --head-dim 64 --dtype fp32 \
                --q-lens "6$i,12$i" --kv-lens 64 --causal-lens none --warm-up 0.01 >/dev/null 2>$i.err 3>&-
            echo $? >$i.code
        ) 3>&- &
    done
    wait
    cat ./*.err >&2
    [ "$(cat 1.code 2.code | paste -sd' ')" = '0 0' ]
    [ "$(rows h.db | grep -c '"status":"ok"')" -eq 4 ]
}

@test "disk full in mid-sweep: a clear error, the file intact, the same command goes on" {
    long_test
    mnt=$BATS_TEST_TMPDIR/mnt
    mkdir "$mnt"
    unshare -rm mount -t tmpfs -o size=256k none "$mnt" 2>/dev/null || skip "no tmpfs can be mounted here"
    cat >fill <<'EOF'
mount -t tmpfs -o size=256k none "$1" || exit 9
hcp-profile run --db "$1/h.db" --device "$2,delay=21" --levels 50,20,10 --exhaustive >out 2>err
echo $? >code
cp "$1/h.db" h.db
EOF
    unshare -rm sh fill "$mnt" "$toy"
    cat err >&2
    [ "$(cat code)" -eq 1 ]
    grep "cannot write '$mnt/h.db': .*No space left on device.*; what was stored before is intact" err
    whole h.db
    n=$(rows h.db | wc -l)
    [ "$n" -gt 5 ]
    run --separate-stderr hcp-profile run --device "$toy" --levels 50,20,10 --exhaustive
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"$n measured before"* ]]
    whole h.db
}

@test "a file that becomes read-only: a clear error, and not a byte of it changes" {
    [ "$(id -u)" -ne 0 ] || command -v setpriv >/dev/null || skip "root may write anywhere and there is no setpriv"
    as_user=()
    [ "$(id -u)" -ne 0 ] || as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    dir=$(mktemp -d /tmp/hcp-ro-XXXXXX)
    bin=$(command -v hcp-profile)
    chmod 777 "$dir"
    "${as_user[@]}" "$bin" --version >/dev/null || skip "an ordinary user cannot run programs here"
    hcp-profile run --db "$dir/h.db" --device "$toy" --levels 20 "${shape[@]}"
    chmod 444 "$dir/h.db"
    before=$(sha256sum <"$dir/h.db")
    run --separate-stderr "${as_user[@]}" "$bin" run --db "$dir/h.db" --device "$toy" --levels 50 "${shape[@]}"
    after=$(sha256sum <"$dir/h.db") left=$(ls "$dir")
    rm -r "$dir"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"cannot write '$dir/h.db': Permission denied; make it writable or give another --db"* ]]
    [ "$before" = "$after" ]
    [ "$left" = h.db ]
}
