#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# Transfers one way beside those of both ways at once: in, out, shown, checked, compared,
# merged, and never taken for each other.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    unset HCP_DB
}

# x sends to y in half the time of both at once, y to x in a quarter.
rows() {
    echo 'kind,device,limit,peer_device,peer_limit,transport,bytes,time_ms,one_way,run_uid'
    for size in 1000000 2000000 4000000 8000000; do
        awk -v b=$size 'BEGIN {
            printf "link,gpu-x,mps:50,gpu-y,,nccl,%d,%.6f,,r\n", b, 0.04 + b / 10e6
            printf "link,gpu-x,mps:50,gpu-y,,nccl,%d,%.6f,1,r\n", b, 0.02 + b / 20e6
            printf "link,gpu-y,,gpu-x,mps:50,nccl,%d,%.6f,1,r\n", b, 0.01 + b / 40e6
        }'
    done
}

@test "export, import, export: format 4, and older ones where no row is one way" {
    rows >in.csv
    run hcp-profile import --db 1.db in.csv
    [ "$output" = "in.csv: 12 new, 0 already there -> 1.db" ]
    run hcp-profile import --db 1.db in.csv
    [ "$output" = "in.csv: 0 new, 12 already there -> 1.db" ]
    hcp-profile export --db 1.db -o 1.csv
    hcp-profile export --db 1.db -o 1.jsonl
    [ "$(head -1 1.csv)" = "# hcp profile, format 4; columns: hcp-db(5)" ]
    [ "$(grep -c '"one_way":1' 1.jsonl)" -eq 8 ]
    for from in 1.csv 1.jsonl; do
        rm -f 2.db
        hcp-profile import --db 2.db $from
        hcp-profile export --db 2.db | cmp - 1.csv
        [ "$(sqlite3 2.db "SELECT group_concat(n) FROM (SELECT count(*) AS n FROM link GROUP BY one_way, device_a_id)")" = 4,4,4 ]
    done
    for column in $(grep -v '^#' 1.csv | head -1 | tr , ' '); do
        grep -q "^\.It $column\( \|$\)" "$top_srcdir/man/hcp-db.5" || { echo "$column"; false; }
    done
    # Without them the file is one that older programs read, column by column.
    grep -v ',1,r$' in.csv >both.csv
    hcp-profile import --db both.db both.csv
    hcp-profile export --db both.db >both-out.csv
    [ "$(head -1 both-out.csv)" = "# hcp profile, format 2; columns: hcp-db(5)" ]
    ! grep one_way both-out.csv
}

@test "files without the column are of both ways at once; 0 says the same" {
    rows | grep -v ',1,r$' >both.csv
    cut -d, -f 1-8,10 both.csv >old.csv
    sed 's/,,r$/,0,r/' both.csv >zero.csv
    for from in both old zero; do
        hcp-profile import --db $from.db $from.csv
        hcp-profile export --db $from.db >$from.out
        cmp both.out $from.out
    done
    for wrong in 2 -1 yes; do
        sed "s/,,r$/,$wrong,r/" both.csv >wrong.csv
        run hcp-profile import --db wrong.db wrong.csv
        [ "$status" -eq 1 ]
        [[ "$output" == *"wrong.csv:2: column one_way: "* ]]
        [ ! -e wrong.db ]
    done
    # Of a kind of row that has no such thing.
    run hcp-profile import --db wrong.db - <<<'{"kind":"topology","device":"x","peer_device":"y","connection":"pcie","one_way":1,"run_uid":"r"}'
    [ "$status" -eq 1 ]
    [[ "$output" == *"column one_way: does not apply to a row of this kind"* ]]
}

@test "recorded links are what they were" {
    hcp-profile import --db r.db nvidia-h200-links
    hcp-profile export --db r.db -o r.csv
    [ "$(head -1 r.csv)" = "# hcp profile, format 3; columns: hcp-db(5)" ]
    ! grep -q one_way r.csv "$top_srcdir/db/profiles/nvidia-h200-links.csv"
    hcp-profile import --db r.db r.csv | grep -q ': 0 new, 158 already there'
    [ "$(sqlite3 r.db "SELECT count(*) FROM link WHERE one_way IS NOT NULL")" -eq 0 ]
}

@test "show --links: each way has a line of its own, and says so" {
    rows | hcp-profile import --db 1.db -
    run hcp-profile show --db 1.db --links
    echo "$output"
    [ "${#lines[@]}" -eq 4 ]
    [[ "${lines[0]}" == A*B*ONE_WAY*TRANSPORT*HOSTS*ROWS* ]]
    [[ "${lines[1]}" =~ ^gpu-x@mps:50\ +gpu-y\ +no\ +nccl\ +-\ +4\ .*\ 40.00\ +10.00\ +0.0/0.0 ]]
    [[ "${lines[2]}" =~ ^gpu-x@mps:50\ +gpu-y\ +yes\ +nccl\ +-\ +4\ .*\ 20.00\ +20.00\ +0.0/0.0 ]]
    [[ "${lines[3]}" =~ ^gpu-y\ +gpu-x@mps:50\ +yes\ +nccl\ +-\ +4\ .*\ 10.00\ +40.00\ +0.0/0.0 ]]
    run hcp-profile show --db 1.db --links --json
    [[ "$output" == *'"device_b":"gpu-y","limit_b":"","one_way":false,"transport":'*'"device_b":"gpu-y","limit_b":"","one_way":true,"transport":'*'"device_b":"gpu-x","limit_b":"mps:50","one_way":true,"transport":'* ]]
    run hcp-profile show --db 1.db --links --cells
    [ "${#lines[@]}" -eq 13 ]
    [ "$(grep -c ' yes  *nccl ' <<<"$output")" -eq 8 ]
    [ "$(hcp-profile show --db 1.db --links --cells --json | grep -o '"one_way":true' | wc -l)" -eq 8 ]
}

@test "check: ways are covered apart, and a fault of one names the command that mends it" {
    rows | hcp-profile import --db 1.db -
    run hcp-profile check 1.db --no-device
    echo "$output"
    [ "$(grep -c '^gpu-[xy].* yes  *nccl  *4 ' <<<"$output")" -eq 2 ]
    [ "$(grep -c '^gpu-x@mps:50  *gpu-y  *no  *nccl  *4 ' <<<"$output")" -eq 1 ]
    [[ "$output" != *link-not-monotone* ]]
    [[ "$(hcp-profile check 1.db --no-device --json)" == *'"links":[{'*'"one_way":false,'*'"one_way":true,'*'"one_way":true,'* ]]
    # More bytes in less time than one way, of both ways at once or of the other way.
    sqlite3 1.db "UPDATE link SET time_ms = 0.001 WHERE one_way = 1 AND limiter_a = '' AND bytes = 4000000"
    run hcp-profile check 1.db --no-device
    [ "$(grep -c link-not-monotone <<<"$output")" -eq 1 ]
    [[ "$output" == *"link-not-monotone"*"gpu-y,gpu-x@mps:50 nccl one way: 4000000 bytes: 0.001 ms is faster than the 0.06 ms of 2000000 bytes"* ]]
    [[ "$output" == *"hcp-profile link --one-way --db 1.db --limits none/mps:50 --transport nccl"* ]]
}

@test "check: what was measured one way alone is no link of a ring" {
    hcp-profile run --db 1.db --device synthetic:name=gpu-x --limits none --max-len 2K 2>/dev/null
    sqlite3 1.db "UPDATE run SET origin = 'measured'"
    said() {
        hcp-profile check 1.db --no-device --json | grep -o "\"code\":\"$1\"[^{]*\"text\":\"[^\"]*\"" | grep -o 'text.*'
    }
    [ "$(said no-link)" = 'text":"no transfer was measured: hcp-plan has to be told with --link"' ]
    rows | grep -v ',,r$' | hcp-profile import --db 1.db -
    [ "$(said no-link)" = 'text":"transfers were measured one way only, not as in a ring: hcp-plan has to be told with --link"' ]
    [ -z "$(said link-missing)" ]
    rows | hcp-profile import --db 1.db -
    [ -z "$(said no-link)" ]
    # The whole device is an end of what was measured one way only.
    [ "$(said link-missing)" = 'text":"no transfer of gpu-x by nccl under none"' ]
}

@test "diff: each way is compared with itself" {
    rows >a.csv
    awk -F, -v OFS=, '$9 == 1 && $3 == "" { $8 *= 3 } 1' a.csv >b.csv
    hcp-profile import --db a.db a.csv
    hcp-profile import --db b.db b.csv
    run hcp-profile diff a.db b.db
    echo "$output"
    [ "$(grep -c '^gpu-y,gpu-x@mps:50 .* one way .* 3\.0000' <<<"$output")" -ge 4 ]
    [[ "$output" =~ gpu-x@mps:50,gpu-y\ +nccl\ +one\ way\ +4\ +0\ +0\ +0 ]]
    [[ "$output" =~ gpu-x@mps:50,gpu-y\ +nccl\ +link\ +4\ +0\ +0\ +0 ]]
    run hcp-profile diff a.db b.db --json
    [[ "$output" == *'{"what":"link","device":"gpu-y","limit":"","peer_device":"gpu-x","peer_limit":"mps:50","one_way":true,"transport":"nccl",'*'"ratio":3'* ]]
}

@test "merge: each way once" {
    rows >all.csv
    rows | grep -v ',1,r$' | hcp-profile import --db a.db -
    hcp-profile import --db b.db all.csv
    run hcp-profile merge c.db a.db b.db
    [ "${lines[0]}" = "a.db: 4 kept, 0 skipped (already there), 0 in conflict -> c.db" ]
    [ "${lines[1]}" = "b.db: 8 kept, 4 skipped (already there), 0 in conflict -> c.db" ]
    hcp-profile export --db b.db >b.out
    hcp-profile export --db c.db | cmp - b.out
}
