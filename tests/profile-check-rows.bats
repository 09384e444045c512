#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-profile check on rows that are no cells: topology, interference, drift, linear.

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    cat >rows.jsonl <<'EOF'
{"device":"toy","limit":"mps:50","provider":"cudnn","mask":"full","q_len":1024,"kv_len":1024,"time_ms":2,"ci_lo_ms":1.99,"ci_hi_ms":2.01,"samples":20,"sm_seen":66,"sm_count":132,"run_uid":"r"}
{"device":"toy","limit":"mps:50","provider":"cudnn","mask":"full","q_len":2048,"kv_len":2048,"time_ms":8,"ci_lo_ms":7.99,"ci_hi_ms":8.01,"samples":20,"sm_seen":66,"sm_count":132,"run_uid":"r"}
{"device":"toy","limit":"mps:50","provider":"cudnn","mask":"causal","q_len":1024,"kv_len":1024,"time_ms":1,"ci_lo_ms":0.99,"ci_hi_ms":1.01,"samples":20,"sm_seen":66,"sm_count":132,"run_uid":"r"}
{"device":"toy","limit":"mps:50","provider":"cudnn","mask":"causal","q_len":2048,"kv_len":2048,"time_ms":4,"ci_lo_ms":3.99,"ci_hi_ms":4.01,"samples":20,"sm_seen":66,"sm_count":132,"run_uid":"r"}
{"kind":"link","device":"toy","limit":"mps:50","peer_device":"toy","peer_limit":"mps:50","transport":"nccl","bytes":4096,"time_ms":0.02,"run_uid":"r"}
{"kind":"link","device":"toy","limit":"mps:50","peer_device":"toy","peer_limit":"mps:50","transport":"nccl","channels":4,"bytes":65536,"time_ms":0.01,"run_uid":"r"}
{"kind":"link","device":"toy","peer_device":"toy","transport":"copy","bytes":65536,"time_ms":0.01,"run_uid":"r"}
{"kind":"topology","device":"toy","peer_device":"toy","connection":"nvlink","links":18,"run_uid":"r"}
{"kind":"interference","device":"toy","limit":"mps:50","provider":"cudnn","mask":"full","q_len":2048,"kv_len":2048,"peer_device":"toy","peer_limit":"mps:50","transport":"nccl","bytes":4096,"alone_ms":8,"beside_ms":9,"transfer_alone_ms":0.02,"transfer_beside_ms":0.03,"sm_seen":66,"sm_count":132,"run_uid":"r"}
{"kind":"drift","device":"toy","limit":"mps:50","provider":"cudnn","mask":"full","q_len":1024,"kv_len":1024,"first_ms":2,"last_ms":2.01,"first_sm_clock_mhz":1980,"last_sm_clock_mhz":1965,"seconds":300,"measured_at":"2026-11-30T06:00:00Z","run_uid":"r"}
{"kind":"linear","device":"toy","limit":"mps:50","library":"cublas","tokens":1024,"n_in":4096,"n_out":4096,"time_ms":1,"p25_ms":0.99,"p75_ms":1.01,"sm_seen":66,"sm_count":132,"run_uid":"r"}
{"kind":"linear","device":"toy","limit":"mps:50","library":"cublas","tokens":2048,"n_in":4096,"n_out":4096,"time_ms":2,"p25_ms":1.99,"p75_ms":2.01,"sm_seen":66,"sm_count":132,"run_uid":"r"}
{"device":"toy","limit":"mps:50","provider":"cudnn","mask":"full","q_len":1024,"kv_len":2048,"time_ms":4,"ci_lo_ms":3.99,"ci_hi_ms":4.01,"samples":20,"sm_seen":66,"sm_count":132,"run_uid":"r"}
{"device":"toy","limit":"mps:50","provider":"cudnn","mask":"full","q_len":2048,"kv_len":1024,"time_ms":4,"ci_lo_ms":3.99,"ci_hi_ms":4.01,"samples":20,"sm_seen":66,"sm_count":132,"run_uid":"r"}
EOF
    hcp-profile import --db clean.db rows.jsonl
}

setup() {
    command -v sqlite3 >/dev/null || skip "no sqlite3 program"
    cd "$BATS_TEST_TMPDIR" || return 1
    unset HCP_DB
    cp "$BATS_FILE_TMPDIR/clean.db" x.db
}

# Findings of x.db, a line each; not fitted aside.
found() {
    hcp-profile check x.db --no-device | grep -E '^(error|warning|note) ' |
        grep -v '^note *no-model: ' || true
}
# planted SEVERITY CODE WORDS SQL: this finding with these words, and no other.
planted() {
    sqlite3 x.db "PRAGMA foreign_keys = ON;$4"
    said=$(found)
    echo "$said" >&2
    [ "$(wc -l <<<"$said")" -eq 1 ]
    [[ "$said" =~ ^$1\ *$2:\  ]]
    [[ "$said" == *"$3"* ]]
    cp "$BATS_FILE_TMPDIR/clean.db" x.db
}

@test "a clean file: what it can answer, nothing found" {
    [ -z "$(found)" ]
    run hcp-profile check x.db --no-device
    [ "$status" -eq 0 ]
    [[ "$output" == *"toy@mps:50 toy@mps:50 no      nccl         1  4096"* ]]
    [[ "$output" == *"toy@mps:50 toy@mps:50 no      nccl/4       1 65536"* ]]
    [[ "$output" =~ toy@mps:50\ cudnn\ +prefill\ bf16\ 32/8x128\ b1\ toy@mps:50\ nccl\ +1\ 1.125-1.125 ]]
    [[ "$output" =~ toy\ +mps:50\ cublas\ +bf16\ +2\ +1\ 1024-2048 ]]
    json=$(hcp-profile check x.db --no-device --json)
    [[ "$json" == *'"transport":"nccl","channels":4,"rows":1,"bytes_min":65536,'* ]]
    [[ "$json" == *'"interference":[{"device":"toy","limit":"mps:50",'*'"peer_device":"toy","peer_limit":"mps:50","transport":"nccl","channels":null,"rows":1,"factor_min":1.125,"factor_max":1.125}]'* ]]
    [[ "$json" == *'"linear":[{"device":"toy","limit":"mps:50","library":"cublas","dtype":"bf16","rows":2,"layers":1,"tokens_min":1024,"tokens_max":2048}]'* ]]
}

@test "a run that has only rows of these kinds is not empty" {
    for table in topology interference drift linear; do
        cp "$BATS_FILE_TMPDIR/clean.db" x.db
        sqlite3 x.db "INSERT INTO run (uid, origin) VALUES ('s', 'recorded'); UPDATE $table SET run_id = 2"
        [[ "$(found)" != *empty-run* ]]
    done
    sqlite3 x.db "INSERT INTO run (uid, origin) VALUES ('t', 'recorded')"
    found | grep -q '^note *empty-run: run t has no rows$'
}

@test "coverage: what is missing, and the command" {
    planted note no-topology "no row says how their devices are connected; run: hcp-profile link --db x.db" \
        "DELETE FROM topology; UPDATE run SET origin = 'measured', tool_version = '$(hcp-profile --version | grep -o '[0-9.]*' | head -1)'; UPDATE cell SET method = 'event', measured_at = 'x'"
    planted note no-interference "no block was measured beside a transfer: what one costs the other is not known; run: hcp-profile link --beside --db x.db" \
        "DELETE FROM interference"
    planted note no-linear "whole layers have no answer; run: hcp-profile run --linear --model NAME --db x.db" "DELETE FROM linear"
    planted note interference-missing "no block of cudnn on toy beside a transfer by nccl under mps:50; run: hcp-profile link --beside --db x.db --transport nccl --provider cudnn --limits mps:50/mps:100" \
        "UPDATE interference SET limiter_a = 'mps:20', limiter_b = 'mps:100', sm_seen = 26"
    planted note linear-missing "no linear layer of toy in bf16 under mps:50; run: hcp-profile run --linear --model NAME --db x.db --limits mps:50" \
        "UPDATE linear SET limiter = 'mps:100', sm_seen = 132"
    planted note linear-missing "in bf16 under mps:50; run: hcp-profile run --linear --model NAME --db x.db --device cpu --limits mps:50" \
        "UPDATE linear SET limiter = 'cpu:20', library = 'openblas'"
}

@test "copies and set channels count for no coverage of NCCL's own choice" {
    planted note link-missing "no transfer of toy by nccl under mps:50; run: hcp-profile link --db x.db --transport nccl --limits none/mps:50" \
        "UPDATE link SET limiter_a = '', limiter_b = '' WHERE channels IS NULL AND transport = 'nccl'"
}

@test "channels are lines of their own: more bytes in less time is no fault" {
    # clean.db has 65536 bytes by 4 channels faster than 4096 by NCCL's own choice.
    planted warning link-not-monotone "toy@mps:50,toy@mps:50 nccl: 65536 bytes: 0.01 ms is faster than the 0.02 ms of 4096 bytes" \
        "UPDATE link SET channels = NULL WHERE channels = 4"
    sqlite3 x.db "INSERT INTO link (run_id, device_a_id, device_b_id, limiter_a, limiter_b, transport, channels, bytes, time_ms) SELECT run_id, device_a_id, device_b_id, limiter_a, limiter_b, transport, channels, 131072, 0.001 FROM link WHERE channels = 4"
    found | grep -q '^warning link-not-monotone: toy@mps:50,toy@mps:50 nccl/4: 131072 bytes: .*DELETE FROM link WHERE id IN (4).* && hcp-profile link --db x.db --limits mps:50/mps:50 --transport nccl --channels 4$'
    hcp-profile check x.db --no-device --json | grep -q '"code":"link-not-monotone",.*"transport":"nccl","channels":4,"rows":1,"cells":\[{"bytes":131072}\]'
}

@test "drift: beyond noise and 1 %" {
    planted warning drift "full 1024x1024: the first cell of run r took 2 ms, 300 s later at its end 2.04 ms: +2.0 %, where 1.0 % is noise; SM clock 1980, then 1965 MHz; run: hcp-profile run --db NEW.db --limits mps:50 --provider cudnn" \
        "UPDATE drift SET last_ms = 2.04"
    planted warning drift "1.9 ms: -5.0 %, where 1.0 % is noise; run:" \
        "UPDATE drift SET last_ms = 1.9, first_sm_clock_mhz = NULL, seconds = NULL"
    planted error drift "+15.0 %" "UPDATE drift SET last_ms = 2.3"
    # within the interval of the cell itself
    sqlite3 x.db "UPDATE cell SET ci_lo_ms = 1.97, ci_hi_ms = 2.03 WHERE id = 1; UPDATE drift SET last_ms = 2.05"
    [ -z "$(found)" ]
}

@test "a first tenth of a second that was slower than the rest" {
    planted note boosted-slower "full 1024x1024: 2.2 ms in the first 0.1 s after idle clocks, 2 ms sustained" \
        "UPDATE cell SET boosted_ms = 2.2 WHERE id = 1"
    sqlite3 x.db "UPDATE cell SET boosted_ms = 0.9 * time_ms"
    [ -z "$(found)" ]
}

@test "interference that cannot be" {
    planted warning faster-beside "toy@mps:50,toy@mps:50 nccl cudnn prefill bf16 32/8x128 b1: full 2048x2048: the block took 8 ms alone and 7 ms beside a transfer; run: sqlite3 x.db 'PRAGMA foreign_keys=ON; DELETE FROM interference WHERE id IN (1)' && hcp-profile link --beside --db x.db --limits mps:50/mps:50 --transport nccl --provider cudnn --mask full --lens 2048" \
        "UPDATE interference SET beside_ms = 7"
    planted warning faster-beside "the transfer took 0.02 ms alone and 0.01 ms beside the block" \
        "UPDATE interference SET transfer_beside_ms = 0.01"
    planted note alone-differs "alone_ms is 6.8 ms, the cell of the same block 8 ms" "UPDATE interference SET alone_ms = 6.8"
    planted warning alone-differs "alone_ms is 5 ms" "UPDATE interference SET alone_ms = 5"
    planted error limit-not-proven "mps:50 gave 132 of 132 SMs: the limit did not hold; run: sqlite3 x.db 'PRAGMA foreign_keys=ON; DELETE FROM interference" \
        "UPDATE interference SET sm_seen = 132"
    sqlite3 x.db "UPDATE interference SET channels = 4, beside_ms = 7"
    found | grep -q -e 'nccl/4 cudnn .* --transport nccl --channels 4 --provider cudnn'
}

@test "GEMMs that cannot be" {
    planted note linear-not-monotone "toy@mps:50 cublas bf16: 2048 tokens: 4096x4096: 0.9 ms is faster than the 1 ms of 1024 tokens, beyond the quartiles of both" \
        "UPDATE linear SET time_ms = 0.9, p25_ms = 0.89, p75_ms = 0.91 WHERE tokens = 2048"
    planted warning linear-not-monotone "DELETE FROM linear WHERE id IN (2)' && hcp-profile run --linear --model NAME --db x.db --limits mps:50" \
        "UPDATE linear SET time_ms = 0.5, p25_ms = 0.49, p75_ms = 0.51 WHERE tokens = 2048"
    planted error limit-not-proven "toy@mps:50 cublas bf16: 1024 tokens: mps:50 gave 20 of 132 SMs" \
        "UPDATE linear SET sm_seen = 20 WHERE tokens = 1024"
    planted error utilisation "4096x4096: 1.145e+04 TFLOP/s is 1.15 times the peak of the SMs it ran on" \
        "UPDATE linear SET time_ms = 0.003, p25_ms = 0.003, p75_ms = 0.003 WHERE tokens = 1024"
    planted error contradiction "4096x4096: its times are out of order: p25 1.5, median 1, p75 1.01 ms" \
        "UPDATE linear SET p25_ms = 1.5 WHERE tokens = 1024"
    sqlite3 x.db "UPDATE linear SET sm_seen = 20 WHERE tokens = 1024"
    hcp-profile check x.db --no-device --json | grep -q '"provider":"cublas",.*"cells":\[{"tokens":1024}\]'
}
