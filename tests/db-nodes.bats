#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# Profiles of many machines: one command for all of them (%h), one file in the end.

bats_require_minimum_version 1.5.0
load scale

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    # 64 machines of one kind: each its own host, device and run, times of its own.
    for i in $(seq -w 64); do
        {
            echo 'device,limit,provider,mask,q_len,kv_len,time_ms,run_uid,host,device_uuid,samples_ms,samples'
            for limit in mps:50 mps:100; do
                for n in 128 512 2048; do
                    echo "toy,$limit,flash,full,$n,$n,1.$i,run-$i,node$i,GPU-$i,1.$i;1.$i,2"
                done
            done
        } | hcp-profile import --db node$i.db -
    done
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    unset HCP_DB
    nodes=$BATS_FILE_TMPDIR
}

@test "%h in --db and HCP_DB is the host name, %% a percent sign" {
    host=$(uname -n)
    run hcp-profile run --db 'p-%h.db' --device synthetic:name=toy --levels 50 --max-len 512
    [ "$status" -eq 0 ]
    [ -s "p-$host.db" ]
    sqlite3 "p-$host.db" 'SELECT host FROM run' | grep -qx "$host"
    hcp-profile show --db 'p-%h.db' | grep -q toy
    HCP_DB='p-%h.db' hcp-profile show | grep -q toy
    hcp-profile export --db 'p-%h.db' -o all.csv
    hcp-profile import --db '100%%.db' all.csv
    [ -s "100%.db" ]
    hcp-profile check --no-device --db '100%%.db' | grep -q toy
    # What a message says can be typed: there the percent sign is one.
    said=$(hcp-plan predict --db '100%%.db' --ranks toy@mps:50 --q-len 512 --kv-len 512 2>&1) || true
    [[ "$said" == *"'hcp-plan fit --db 100%.db'"* ]]
    hcp-plan fit --db 100%.db
    hcp-plan predict --db '100%%.db' --ranks toy@mps:50 --q-len 512 --kv-len 512 >/dev/null
    hcp-plan fit --db 'p-%h.db'
    hcp-plan predict --db 'p-%h.db' --ranks toy@mps:50 --q-len 512 --kv-len 512 >/dev/null
    run hcp-plan predict --db 'p-%x.db' --ranks toy@mps:50 --q-len 512 --kv-len 512
    [ "$status" -eq 2 ]
    run hcp-plan fit --db 'p-%x.db'
    [ "$status" -eq 2 ]
    [[ "$output" == *"'%x' is not known; %h is the host name"* ]]
    hcp-profile merge --db 'all-%h.db' "p-$host.db"
    [ -s "all-$host.db" ]
    # A file that is named by itself is not a pattern.
    cp "p-$host.db" 'p-%h.db'
    hcp-profile check --no-device 'p-%h.db' | head -n 1 | grep -qx 'p-%h.db'
    hcp-profile merge 'm-%h.db' 'p-%h.db'
    [ -s 'm-%h.db' ]
}

@test "anything else after a % is refused" {
    for name in 'p-%H.db' 'p-%.db' 'p-%'; do
        run --separate-stderr hcp-profile run --db "$name" --device synthetic:name=toy --levels 50 --max-len 512
        [ "$status" -eq 2 ]
        [[ "$stderr" == *"database '$name': '%"*"' is not known; %h is the host name, %% a percent sign" ]]
    done
    run hcp-profile show --db "%h$(printf '%5000s' x)"
    [ "$status" -eq 2 ]
    [[ "$output" == *"the database name is longer than 4095 bytes" ]]
    [ -z "$(find . -name '*.db')" ]
}

@test "64 machines: every row once, a few transactions a file" {
    run hcp-profile merge all.db "$nodes"/node*.db
    [ "$status" -eq 0 ]
    # bytes 24..27 of the file: the transactions it has seen
    [ "$(od -An -tu1 -j24 -N4 all.db | awk '{ print (($1 * 256 + $2) * 256 + $3) * 256 + $4 }')" -lt 200 ]
    [ "$(grep -c ': 6 kept, 0 skipped (already there), 0 in conflict -> all.db$' <<<"$output")" -eq 64 ]
    [ "$(hcp-profile export --db all.db | grep -vc '^#')" -eq $((64 * 6 + 1)) ]
    [ "$(sqlite3 all.db 'SELECT count(*) FROM run')" -eq 64 ]
    [ "$(sqlite3 all.db 'SELECT count(*) FROM device')" -eq 64 ]
    [ "$(sqlite3 all.db 'SELECT count(*) FROM sample')" -eq $((64 * 12)) ]
    hcp-profile show --db all.db --cells --json | grep -o '"time_ms":[0-9.]*' | sort -u | wc -l | grep -qx 64
}

@test "the same file twice, and by two ways: nothing counts twice" {
    hcp-profile merge all.db "$nodes"/node0*.db >/dev/null
    hcp-profile export --db all.db >all.csv
    cp "$nodes/node01.db" copy.db
    hcp-profile merge twice.db "$nodes"/node0*.db "$nodes/node01.db" copy.db >/dev/null
    hcp-profile export --db twice.db | cmp - all.csv
    # x has 1 to 6, y has 4 to 9: 4 to 6 come by both.
    hcp-profile merge x.db "$nodes"/node0[1-6].db >/dev/null
    hcp-profile merge y.db "$nodes"/node0[4-9].db >/dev/null
    run hcp-profile merge z.db y.db x.db
    [ "${lines[0]}" = "y.db: 36 kept, 0 skipped (already there), 0 in conflict -> z.db" ]
    [ "${lines[1]}" = "x.db: 18 kept, 18 skipped (already there), 0 in conflict -> z.db" ]
    hcp-profile export --db z.db | cmp - all.csv
    # In a circle.
    hcp-profile merge x.db z.db >/dev/null
    hcp-profile merge z.db x.db | grep -q 'x.db: 0 kept, 54 skipped'
    hcp-profile export --db x.db | cmp - all.csv
    # As text, too.
    hcp-profile import --db z.db all.csv | grep -q ': 0 new, 54 already there'
}

@test "conflicts are listed with both values, five of each file unless all are asked for" {
    cp "$nodes/node01.db" a.db
    sqlite3 a.db "UPDATE cell SET time_ms = 1.25, note = 'again' WHERE limiter = 'mps:50' AND q_len = 512; DELETE FROM sample WHERE cell_id = (SELECT id FROM cell WHERE limiter = 'mps:50' AND q_len = 512)"
    cp "$nodes/node01.db" all.db
    run hcp-profile merge all.db a.db
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 2 ]
    [ "${lines[0]}" = "a.db: 0 kept, 5 skipped (already there), 1 in conflict (the stored values stay) -> all.db" ]
    [[ "${lines[1]}" == "  cell, device toy, limit mps:50, provider flash, "*", mask full, q_len 512, kv_len 512, run_uid run-01, device_uuid GPU-01: time_ms 1.01, not 1.25; note nothing, not again; samples_ms 2 values, not 0 values" ]]
    hcp-profile export --db "$nodes/node01.db" >1.csv
    hcp-profile export --db all.db | cmp - 1.csv
    json=$(hcp-profile merge all.db a.db --json)
    [[ "$json" == '[{"file":"a.db","kept":0,"skipped":5,"conflicts":1,"models_not_merged":0,"conflict_rows":[{"row":{"kind":"cell","device":"toy","limit":"mps:50",'*'"q_len":512,"kv_len":512,"run_uid":"run-01","device_uuid":"GPU-01"},"differ":[{"column":"time_ms","stored":1.01,"other":1.25},{"column":"note","stored":null,"other":"again"},'* ]]
    sqlite3 a.db "UPDATE cell SET time_ms = 1.5; DELETE FROM sample"
    run hcp-profile merge all.db a.db
    [ "${#lines[@]}" -eq 7 ]
    [ "${lines[6]}" = "  and 1 more; --conflicts lists them" ]
    run hcp-profile merge --conflicts all.db a.db
    [ "${#lines[@]}" -eq 7 ]
    [[ "${lines[6]}" == "  cell, "* ]]
}

@test "conflicts of other kinds of rows, and of rings" {
    cat >rows.jsonl <<'EOF'
{"kind":"link","device":"toy","limit":"mps:50","peer_device":"toy","transport":"nccl","channels":4,"bytes":4096,"time_ms":0.02,"run_uid":"r"}
{"kind":"store","device":"toy","provider":"cudnn","q_len":64,"time_ms":0.5,"run_uid":"r"}
{"kind":"copy","device":"toy","gb_per_s":900,"bytes":4096,"run_uid":"r"}
{"kind":"linear","device":"toy","library":"cublas","tokens":64,"n_in":64,"n_out":64,"time_ms":0.1,"run_uid":"r"}
EOF
    hcp-profile import --db a.db rows.jsonl
    sed 's/:0.02,/:0.03,/; s/:0.5,/:0.6,/; s/:900,/:800,/; s/:0.1,/:0.2,/' rows.jsonl | hcp-profile import --db b.db -
    "$top_builddir/tests/ring-rows" a.db
    "$top_builddir/tests/ring-rows" b.db
    sqlite3 b.db "UPDATE ring_run SET makespan_ms = 2.125 WHERE uid = 'ring-a'"
    run hcp-profile merge a.db b.db
    [ "${lines[0]}" = "b.db: 0 kept, 1 skipped (already there), 5 in conflict (the stored values stay) -> a.db" ]
    [[ "$output" == *"  link, device toy, limit mps:50, peer_device toy, transport nccl, channels 4, bytes 4096, run_uid r: time_ms 0.02, not 0.03"* ]]
    [[ "$output" == *"  store, device toy, provider cudnn, "*"q_len 64, run_uid r: time_ms 0.5, not 0.6"* ]]
    [[ "$output" == *"  copy, device toy, bytes 4096, run_uid r: gb_per_s 900, not 800"* ]]
    [[ "$output" == *"  linear, device toy, library cublas, dtype bf16, tokens 64, n_in 64, n_out 64, run_uid r: time_ms 0.1, not 0.2"* ]]
    [[ "$output" == *"  ring, uid ring-a: makespan_ms 2, not 2.125"* ]]
}

# Four files that cannot be merged, beside two that can.
bad_ones() {
    cp "$nodes"/node0[12].db .
    head -c 20000 node01.db >cut.db
    sqlite3 alien.db 'CREATE TABLE t (x)'
    cp node01.db newer.db
    sqlite3 newer.db 'PRAGMA user_version = 99'
    cp node02.db liar.db # run-02 of another machine
    sqlite3 liar.db "UPDATE run SET host = 'elsewhere'"
}

@test "files that cannot be read: each is named, and nothing is merged" {
    bad_ones
    run --separate-stderr hcp-profile merge all.db node01.db cut.db alien.db newer.db none.db node02.db
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    [ ! -e all.db ]
    for words in "'cut.db' is damaged" "'alien.db' is an SQLite database of another program" \
        "'newer.db' has schema version 99" "no profile database 'none.db'"; do
        [[ "$stderr" == *"hcp-profile: $words"* ]]
    done
    [ "${stderr_lines[4]}" = "4 of 6 databases cannot be read; nothing was merged (--keep-going merges the others)" ]
    [ "${#stderr_lines[@]}" -eq 5 ]
}

@test "--keep-going merges the others, and ends with 1" {
    bad_ones
    run --separate-stderr hcp-profile merge --keep-going all.db node01.db cut.db alien.db newer.db none.db node02.db liar.db
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "node01.db: 6 kept, 0 skipped (already there), 0 in conflict -> all.db" ]
    [ "${lines[1]}" = "node02.db: 6 kept, 0 skipped (already there), 0 in conflict -> all.db" ]
    [ "${#lines[@]}" -eq 2 ]
    [ "${#stderr_lines[@]}" -eq 5 ]
    [[ "${stderr_lines[4]}" == *"run 'run-02' in 'all.db' has host 'node02', this row says 'elsewhere'"* ]]
    hcp-profile merge want.db node01.db node02.db
    hcp-profile export --db want.db >want.csv
    hcp-profile export --db all.db | cmp - want.csv
    # The same again changes nothing: mended files can be added by the same command.
    cp "$nodes/node03.db" none.db
    run --separate-stderr hcp-profile merge -k all.db node01.db none.db liar.db --json
    [ "$status" -eq 1 ]
    [[ "$output" == '[{"file":"node01.db","kept":0,"skipped":6,'*'{"file":"none.db","kept":6,'*'{"file":"liar.db","error":"run '\''run-02'\'''* ]]
}

@test "a file that stops the merge half way: those before it are in, it is not" {
    bad_ones
    run --separate-stderr hcp-profile merge all.db node02.db liar.db node01.db
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$stderr" == *"has host 'node02', this row says 'elsewhere'"* ]]
    [ "$(hcp-profile export --db all.db | grep -vc '^#')" -eq 7 ]
}

@test "a database that another process has locked" {
    full_test
    cp "$nodes"/node0[12].db .
    mkfifo ready said
    sqlite3 node02.db <said 3>&- &
    exec 7>said
    printf '%s\n' 'BEGIN EXCLUSIVE;' '.shell echo ready >ready' >&7
    read -r _ <ready
    run --separate-stderr hcp-profile merge -k all.db node01.db node02.db
    exec 7>&- # it ends
    [ "$status" -eq 1 ]
    [ "${lines[0]}" = "node01.db: 6 kept, 0 skipped (already there), 0 in conflict -> all.db" ]
    [[ "$stderr" == *"'node02.db' is locked by another process; wait for it to end and repeat the command" ]]
}
