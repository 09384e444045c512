#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-profile diff: what changed is found, what is noise is not called a change.

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    finish=store_b=1e-5,store_f=0.001,merge_b=2e-5,merge_f=0.001
    for seed in 1 2; do
        hcp-profile run --db $seed.db --limits mps:50,mps:100 --max-len 2K \
            --device synthetic:name=toy,noise=0.003,samples=20,seed=$seed,$finish
    done
    cat >link.csv <<'EOF'
device,limit,time_ms,p25_ms,p75_ms,samples,origin,run_uid,kind,bytes,peer_device,peer_limit,transport
toy,mps:100,0.02,0.019,0.021,12,synthetic,l,link,4096,toy,mps:50,nccl
toy,mps:100,0.40,0.399,0.401,12,synthetic,l,link,1048576,toy,mps:50,nccl
EOF
    hcp-profile import --db 1.db link.csv
}

setup() {
    command -v sqlite3 >/dev/null || skip "no sqlite3 program"
    cd "$BATS_TEST_TMPDIR" || return 1
    cp "$BATS_FILE_TMPDIR/1.db" a.db
    cp "$BATS_FILE_TMPDIR/1.db" b.db
    cp "$BATS_FILE_TMPDIR/2.db" seed2.db
    one="limiter = 'mps:100' AND mask = 'full' AND q_len = 1024 AND kv_len = 1024"
    rows=$(($(sqlite3 a.db 'SELECT (SELECT count(*) FROM cell) + (SELECT count(*) FROM finish) + 2')))
}

# differ CODE ARGUMENT...: exit code, nothing on stderr; output in $output.
differ() {
    code=$1
    shift
    run --separate-stderr hcp-profile diff "$@"
    echo "$status: $output $stderr" >&2
    [ "$status" -eq "$code" ]
    [ -z "$stderr" ]
}
scale() { # scale FACTOR WHERE
    sqlite3 b.db "UPDATE cell SET time_ms = time_ms * $1, min_ms = min_ms * $1, p25_ms = p25_ms * $1, \
        p75_ms = p75_ms * $1, max_ms = max_ms * $1, ci_lo_ms = ci_lo_ms * $1, ci_hi_ms = ci_hi_ms * $1 WHERE $2"
}

@test "the same file: 0" {
    differ 0 a.db b.db
    [[ "$output" == *"device, driver, CUDA, kernel and tool version, clocks, power: the same"* ]]
    [[ "$output" == *"$rows rows in both, 0 of them changed beyond noise; 0 only in A, 0 only in B" ]]
    differ 0 a.db a.db
}
@test "the same machine twice: noise is no change" {
    differ 0 a.db seed2.db
    [[ "$output" == *"$((rows - 2)) rows in both, 0 of them changed beyond noise; 2 only in A, 0 only in B" ]]
    [[ "$output" =~ toy@mps:100\ +synthetic\ prefill\ bf16\ 32/8x128\ b1\ full\ +40\ +0\ +0\ +0\ +[01]\.[0-9]{4} ]]
    # without a tolerance a few of the 95 % intervals miss each other
    differ 1 --tolerance 0 a.db seed2.db
}
@test "one cell that is slower, one that is faster" {
    scale 1.2 "$one"
    differ 1 a.db b.db
    [[ "$output" =~ toy@mps:100\ +synthetic\ prefill\ bf16\ 32/8x128\ b1\ full\ +1024\ +1024\ +[0-9.]+\ +[0-9.]+\ +1\.2000 ]]
    [[ "$output" == *"$rows rows in both, 1 of them changed beyond noise; "* ]]
    differ 0 --tolerance 25 a.db b.db
    scale 0.5 "limiter = 'mps:50' AND mask = 'causal' AND q_len = 2048"
    differ 1 a.db b.db --json
    # the largest first, twice as fast is more than a fifth slower
    [[ "$output" == *'"beyond_noise":2,'* ]]
    [[ "$output" == *'"changes":[{"what":"cell","device":"toy","limit":"mps:50","provider":"synthetic","dtype":"bf16","phase":"prefill","batch":1,"heads":32,"kv_heads":8,"head_dim":128,"mask":"causal","q_len":2048,"kv_len":2048,'*'"ratio":0.5},{"what":"cell","device":"toy","limit":"mps:100",'*'"ratio":1.2'* ]]
}
@test "a change inside the intervals is noise, however large" {
    scale 1.2 "$one"
    sqlite3 b.db "UPDATE cell SET ci_lo_ms = time_ms / 1.3 WHERE $one"
    differ 0 a.db b.db
    sqlite3 a.db "UPDATE cell SET ci_lo_ms = NULL, ci_hi_ms = NULL" # the quartiles are asked then
    sqlite3 b.db "UPDATE cell SET ci_lo_ms = NULL, ci_hi_ms = NULL"
    differ 1 a.db b.db
    sqlite3 b.db "UPDATE cell SET p25_ms = time_ms / 1.3 WHERE $one"
    differ 0 a.db b.db
}
@test "finish passes and transfers, in either order of the ends" {
    sqlite3 b.db "UPDATE finish SET time_ms = time_ms * 2, p25_ms = p25_ms * 2, p75_ms = p75_ms * 2 WHERE limiter = 'mps:50' AND kind = 'merge' AND q_len = 512;
        UPDATE link SET limiter_a = 'mps:50', limiter_b = 'mps:100';
        UPDATE link SET time_ms = 0.1, p25_ms = 0.1, p75_ms = 0.1 WHERE bytes = 1048576"
    differ 1 a.db b.db
    [[ "$output" =~ toy@mps:50\ +synthetic\ prefill\ bf16\ 32/8x128\ b1\ merge\ +512\ +[0-9.]+\ +[0-9.]+\ +2\.0000 ]]
    [[ "$output" =~ toy@mps:100,toy@mps:50\ +nccl\ +link\ +1048576\ +0\.40000\ +0\.10000\ +0\.2500 ]]
    [[ "$output" == *"$rows rows in both, 2 of them changed beyond noise; 0 only in A, 0 only in B" ]]
    differ 1 --json a.db b.db
    [[ "$output" == *'"kind":"merge","q_len":512,'* ]]
    [[ "$output" == *'"what":"link","device":"toy","limit":"mps:100","peer_device":"toy","peer_limit":"mps:50","one_way":false,"transport":"nccl","channels":null,"bytes":1048576,"a_ms":0.4,'*'"b_ms":0.1,'*'"ratio":0.25}'* ]]
}
@test "cells of one side only" {
    sqlite3 b.db "DELETE FROM cell WHERE limiter = 'mps:50'"
    sqlite3 a.db "DELETE FROM cell WHERE $one"
    differ 0 a.db b.db
    [[ "$output" == *"; 45 only in A, 1 only in B" ]]
    sqlite3 b.db "UPDATE cell SET status = 'failed' WHERE $one" # a failed cell is none
    differ 0 a.db b.db
    [[ "$output" == *"; 45 only in A, 0 only in B" ]]
}
@test "several runs of a cell: the median, with the widest interval" {
    hcp-profile merge c.db a.db seed2.db >/dev/null
    differ 0 a.db c.db
    [[ "$output" == *"$rows rows in both, 0 of them"* ]]
}
@test "facts that changed" {
    sqlite3 a.db "UPDATE run SET driver = '580.1', cuda_version = '13.0'; UPDATE cell SET sm_clock_mhz = 1980, power_w = 600"
    sqlite3 b.db "UPDATE run SET driver = '590.2', cuda_version = '13.0'; UPDATE cell SET sm_clock_mhz = 1755, power_w = 690; UPDATE cell SET provider_version = '9.9'"
    differ 0 a.db b.db
    [[ "$output" == *"toy driver: A 580.1, B 590.2"* ]]
    [[ "$output" == *"toy synthetic version: A a1e-09 b1e-06 c2e-07 f0.01, B 9.9"* ]]
    [[ "$output" == *"toy@mps:50 synthetic causal sm_clock_mhz: A 1980, B 1755"* ]]
    [[ "$output" == *"toy@mps:100 synthetic full power_w: A 600, B 690"* ]]
    [[ "$output" != *"CUDA version"* ]]
    differ 0 --json a.db b.db
    [[ "$output" == *'"facts":[{"device":"toy","fact":"driver","a":"580.1","b":"590.2"},'* ]]
    [[ "$output" == *'"a_sm_clock_mhz":1980,"b_sm_clock_mhz":1755,"a_power_w":600,"b_power_w":690'* ]]
}
@test "the worst ten, or all" {
    scale 1.5 "mask = 'full'"
    differ 1 a.db b.db
    [ "$(grep -c ' 1\.5000$' <<<"$output")" -eq 12 ] # two groups, ten cells
    [[ "$output" == *"the worst of them (--all: every one)"* ]]
    differ 1 --all a.db b.db
    [ "$(grep -c ' 1\.5000$' <<<"$output")" -eq 82 ]
    differ 1 --json a.db b.db
    [ "$(grep -o '"a_ms"' <<<"$output" | wc -l)" -eq 10 ]
    differ 1 --all --json a.db b.db
    [ "$(grep -o '"a_ms"' <<<"$output" | wc -l)" -eq 80 ]
}
@test "text, JSON lines, names and standard input are profiles too" {
    hcp-profile export --db a.db -o a.csv
    hcp-profile export --db a.db -o a.jsonl
    export TMPDIR=$PWD/tmp
    mkdir tmp
    for b in a.csv a.jsonl; do differ 0 a.db $b; done
    differ 0 a.csv a.jsonl
    run hcp-profile diff - a.db <a.csv
    [ "$status" -eq 0 ]
    differ 0 nvidia-h200 nvidia-h200
    [[ "$output" == *"621 rows in both, "* ]]
    [ -z "$(ls tmp)" ] # nothing is left behind
    cp a.db extensionless
    differ 0 extensionless a.csv
    cmp a.db "$BATS_FILE_TMPDIR/1.db" # nothing was written
}
@test "trouble: 2, and nothing in common: 3" {
    refuse() {
        run --separate-stderr hcp-profile diff "${@:3}"
        echo "$status: $stderr" >&2
        [ "$status" -eq "$1" ]
        [ -z "$output" ]
        [[ "$stderr" == *"$2"* ]]
    }
    refuse 2 "give two profiles" a.db
    refuse 2 "'c.db' is one too many" a.db b.db c.db
    refuse 2 "--tolerance 'much' is not a percentage" a.db b.db --tolerance much
    refuse 2 "cannot read './none.db': No such file or directory" a.db ./none.db
    refuse 2 "no recorded machine 'none'; there are: nvidia-h200" none b.db
    head -c 20000 a.db >cut.db
    refuse 2 "'cut.db' is damaged" cut.db b.db
    echo 'a,b' >bad.csv
    refuse 2 "bad.csv:1: " a.db bad.csv
    TMPDIR=/nowhere refuse 2 "cannot make a temporary file in '/nowhere'" nvidia-h200 b.db
    refuse 3 "no row in common" a.db nvidia-h200
    run bash -c 'hcp-profile diff a.db b.db >/dev/full'
    [ "$status" -eq 2 ]
}

# ---- blocks beside transfers, linear layers, channels, topology ----
rows() {
    cat <<'EOF'
{"kind":"interference","device":"toy","limit":"mps:50","provider":"cudnn","mask":"full","q_len":4096,"kv_len":4096,"peer_device":"toy","peer_limit":"mps:10","transport":"nccl","channels":4,"bytes":65536,"alone_ms":2,"beside_ms":2.5,"transfer_alone_ms":0.1,"transfer_beside_ms":0.15,"run_uid":"r"}
{"kind":"interference","device":"toy","limit":"mps:50","provider":"cudnn","mask":"full","q_len":4096,"kv_len":4096,"peer_device":"toy","peer_limit":"mps:10","transport":"nccl","channels":4,"bytes":131072,"alone_ms":2,"beside_ms":2.6,"run_uid":"r"}
{"kind":"linear","device":"toy","library":"cublas","library_version":"13.0","tokens":64,"n_in":64,"n_out":128,"time_ms":0.1,"p25_ms":0.099,"p75_ms":0.101,"sm_clock_mhz":1980,"run_uid":"r"}
{"kind":"linear","device":"toy","library":"cublas","library_version":"13.0","tokens":64,"n_in":128,"n_out":64,"time_ms":0.1,"p25_ms":0.099,"p75_ms":0.101,"sm_clock_mhz":1980,"run_uid":"r"}
{"kind":"link","device":"toy","peer_device":"toy","transport":"nccl","bytes":4096,"time_ms":0.02,"run_uid":"r"}
{"kind":"link","device":"toy","peer_device":"toy","transport":"nccl","channels":4,"bytes":4096,"time_ms":0.01,"run_uid":"r"}
{"kind":"topology","device":"toy","peer_device":"toy","connection":"nvlink","links":18,"run_uid":"r"}
{"kind":"drift","device":"toy","provider":"cudnn","mask":"full","q_len":64,"kv_len":64,"first_ms":1,"last_ms":1.5,"run_uid":"r"}
EOF
}
@test "blocks beside transfers, linear layers, channels: the same" {
    rows >a.jsonl
    differ 0 a.jsonl a.jsonl
    [[ "$output" =~ toy@mps:50,toy@mps:10\ cudnn\ +prefill\ bf16\ 32/8x128\ b1\ full\ beside\ nccl/4\ +2\ +0\ +0\ +0 ]]
    [[ "$output" =~ toy@mps:50,toy@mps:10\ cudnn\ +prefill\ bf16\ 32/8x128\ b1\ nccl/4\ beside\ full\ +1\ +0\ +0\ +0 ]]
    [[ "$output" =~ toy\ +cublas\ +bf16\ 64x128\ +linear\ +1\ +0\ +0\ +0 ]]
    [[ "$output" =~ toy,toy\ +nccl/4\ +link\ +1\ +0\ +0\ +0 ]]
    # drift is a fact of a run, and not compared
    [[ "$output" == *"7 rows in both, 0 of them changed beyond noise; 0 only in A, 0 only in B" ]]
}
@test "blocks beside transfers, linear layers, channels: what changed" {
    rows >a.jsonl
    sed 's/"beside_ms":2.6/"beside_ms":3/; s/"transfer_beside_ms":0.15/"transfer_beside_ms":0.18/
        s/"n_out":128,"time_ms":0.1,"p25_ms":0.099,"p75_ms":0.101/"n_out":128,"time_ms":0.08,"p25_ms":0.079,"p75_ms":0.081/
        s/"channels":4,"bytes":4096,"time_ms":0.01/"channels":4,"bytes":4096,"time_ms":0.03/
        s/"links":18/"links":4/; s/"13[.]0"/"13.1"/; s/1980/1900/; s/"last_ms":1.5/"last_ms":1.9/' a.jsonl >b.jsonl
    differ 1 a.jsonl b.jsonl
    [[ "$output" == *"toy way to toy: A nvlink by 18 links, B nvlink by 4 links"* ]]
    [[ "$output" == *"toy cublas version: A 13.0, B 13.1"* ]]
    [[ "$output" == *"sm_clock_mhz: A 1980, B 1900"* ]]
    [[ "$output" =~ full\ beside\ nccl/4\ +4096\ +4096\ 131072\ +2\.60000\ +3\.00000\ +1\.1538 ]]
    [[ "$output" =~ nccl/4\ beside\ full\ +4096\ +4096\ +65536\ +0\.15000\ +0\.18000\ +1\.2000 ]]
    [[ "$output" =~ bf16\ 64x128\ +linear\ +64\ +0\.10000\ +0\.08000\ +0\.8000 ]]
    [[ "$output" =~ nccl/4\ +link\ +4096\ +0\.01000\ +0\.03000\ +3\.0000 ]]
    [[ "$output" == *"7 rows in both, 4 of them changed beyond noise; 0 only in A, 0 only in B" ]]
    differ 1 a.jsonl b.jsonl --json
    [[ "$output" == *'{"what":"link","device":"toy","limit":"","peer_device":"toy","peer_limit":"","one_way":false,"transport":"nccl","channels":4,"bytes":4096,"a_ms":0.01,'* ]]
    [[ "$output" == *'{"what":"interference","device":"toy","limit":"mps:50","provider":"cudnn",'*'"mask":"full","peer_device":"toy","peer_limit":"mps:10","transport":"nccl","channels":4,"q_len":4096,"kv_len":4096,"bytes":131072,"a_ms":2.6,'* ]]
    [[ "$output" == *'{"what":"transfer","device":"toy",'*'"bytes":65536,"a_ms":0.15,'* ]]
    [[ "$output" == *'{"what":"linear","device":"toy","limit":"","library":"cublas","dtype":"bf16","n_in":64,"n_out":128,"tokens":64,"a_ms":0.1,'* ]]
}
@test "channels that one file lacks are no match" {
    rows >a.jsonl
    sed 's/"channels":4,//' a.jsonl | sed 's/"bytes":4096,"time_ms":0.01/"bytes":8192,"time_ms":0.01/' >b.jsonl
    differ 0 a.jsonl b.jsonl
    [[ "$output" == *"3 rows in both, 0 of them changed beyond noise; 4 only in A, 4 only in B" ]]
}
