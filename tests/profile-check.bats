#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# hcp-profile check: every fault planted in a clean profile is found, and nothing else.

bats_require_minimum_version 1.5.0
load scale

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    hcp-profile run --db clean.db --limits mps:50,mps:100,none --max-len 2K --device \
        synthetic:name=toy,noise=0.001,store_b=1e-5,store_f=0.001,merge_b=2e-5,merge_f=0.001
    cat >link.csv <<'EOF'
device,limit,sm_seen,sm_count,time_ms,p25_ms,p75_ms,samples,origin,run_uid,kind,bytes,peer_device,peer_limit,transport,same_host
toy,mps:100,132,132,0.02,0.019,0.021,12,synthetic,l,link,4096,toy,mps:100,nccl,1
toy,mps:100,132,132,0.04,0.039,0.041,12,synthetic,l,link,65536,toy,mps:100,nccl,1
toy,mps:100,132,132,0.30,0.299,0.301,12,synthetic,l,link,1048576,toy,mps:100,nccl,1
EOF
}

setup() {
    command -v sqlite3 >/dev/null || skip "no sqlite3 program"
    cd "$BATS_TEST_TMPDIR" || return 1
    unset HCP_DB
    cp "$BATS_FILE_TMPDIR/clean.db" x.db
    one="limiter = 'mps:100' AND mask = 'full' AND q_len = 1024 AND kv_len = 1024"
    code=0
}

# Findings of x.db, a line each, without the three that a new file has: not fitted, no link, no linear layers.
found() {
    run --separate-stderr hcp-profile check x.db --no-device
    echo "$status: $output $stderr" >&2
    # said, not tested: errexit does not reach into $(found)
    [ "$status" -eq "$code" ] && [ -z "$stderr" ] || echo "status $status, $stderr"
    grep -E '^(error|warning|note) ' <<<"$output" | grep -v -E '^note *no-(model|link|linear): ' || true
}
# planted SEVERITY CODE WORDS SQL: this finding with these words, and no other.
planted() {
    sqlite3 x.db "${keys-PRAGMA foreign_keys = ON;}$4"
    code=0
    [ "$1" != error ] || code=1
    said=$(found)
    [ "$(wc -l <<<"$said")" -eq 1 ]
    [[ "$said" =~ ^$1\ *$2:\  ]]
    [[ "$said" == *"$3"* ]]
    [ "$(hcp-profile check x.db --no-device --json | grep -o '"code":"[^"]*"' | grep -v -e no-model -e no-link -e no-linear)" = "\"code\":\"$2\"" ]
}

@test "a clean file" {
    [ -z "$(found)" ]
    run hcp-profile check x.db --no-device
    [[ "$output" == *"0 errors, 0 warnings, 1 note" ]]
    [[ "$output" == *"no-model: 3 of 3 keys have no model: no plan can use them; run: hcp-plan fit --db x.db"* ]]
    hcp-plan fit --db x.db >/dev/null
    run hcp-profile check --strict --no-device --db x.db
    [ "$status" -eq 0 ]
    [[ "$output" == *"0 errors, 0 warnings, 0 notes" ]]
    [[ "$output" =~ toy\ +mps:50\ +synthetic\ +prefill\ bf16\ 32/8x128\ b1\ full\ +[0-9]+\ +0\ +128-2048\ +128-2048\ +[1-9][0-9]*\ fitted\ +SYNTHETIC ]]
}

# ---- suspicious ----

@test "utilisation over 1" {
    planted error utilisation "toy@mps:100 synthetic prefill bf16 32/8x128 b1: full 1024x1024: " \
        "UPDATE cell SET peak_tflops = 100 WHERE $one"
    [[ "$said" == *"hcp-profile run --db x.db --device synthetic:name=toy --limits mps:100 --q-lens 1024 --kv-lens 1024 --causal-lens none" ]]
    # the command that is named mends it
    eval "${said##*run: }"
    code=0
    [ -z "$(found)" ]
}
@test "utilisation over 1: seconds read as milliseconds, on a device nobody knows" {
    sqlite3 x.db "UPDATE run SET origin = 'recorded'; UPDATE cell SET time_ms = time_ms / 1000, \
        min_ms = min_ms / 1000, max_ms = max_ms / 1000, p25_ms = p25_ms / 1000, p75_ms = p75_ms / 1000, \
        ci_lo_ms = ci_lo_ms / 1000, ci_hi_ms = ci_hi_ms / 1000; DELETE FROM sample"
    code=1
    said=$(found)
    [ "$(grep -c '^error   utilisation: .*is time_ms in milliseconds' <<<"$said")" -eq 3 ]
}
scaled() {
    echo "UPDATE cell SET time_ms = time_ms * $1, min_ms = min_ms * $1, p25_ms = p25_ms * $1, \
        p75_ms = p75_ms * $1, max_ms = max_ms * $1, ci_lo_ms = ci_lo_ms * $1, ci_hi_ms = ci_hi_ms * $1 WHERE $one"
}
@test "a block faster than a smaller one, or slower than a larger one" {
    planted warning not-monotone "beyond both intervals; run: sqlite3 x.db 'PRAGMA foreign_keys=ON; DELETE FROM cell WHERE id IN (" \
        "$(scaled 0.5)"
    eval "${said##*run: }"
    [ -z "$(found)" ]
    cp "$BATS_FILE_TMPDIR/clean.db" x.db
    planted warning not-monotone "full 1024x1024: 0.04" "$(scaled 4)"
    [[ "$said" == *" ms is slower than the "*" ms of the larger "*" --q-lens 1024 --kv-lens 1024 --causal-lens none" ]]
    eval "${said##*run: }"
    [ -z "$(found)" ]
}
@test "a block of the other mask, limit or run is no neighbour" {
    planted note empty-run "" "INSERT INTO run (uid, origin) VALUES ('other', 'synthetic')"
    sqlite3 x.db "INSERT INTO cell (run_id, device_id, limiter, provider, dtype, phase, batch, heads, kv_heads, \
        head_dim, mask, q_len, kv_len, status, time_ms, ci_lo_ms, ci_hi_ms, samples) SELECT r.id, device_id, \
        limiter, provider, dtype, phase, batch, heads, kv_heads, head_dim, mask, q_len, kv_len, status, \
        time_ms / 2, ci_lo_ms / 2, ci_hi_ms / 2, 10 FROM cell, run r WHERE r.uid = 'other' AND $one"
    [ -z "$(found)" ]
}
@test "clocks that drift; a reason that is known is none to warn" {
    sqlite3 x.db "UPDATE cell SET sm_clock_mhz = 1980"
    [ -z "$(found)" ]
    planted warning clock-drift "full 1024x1024: the SM clock was 1500 MHz, of other rows up to 1980" \
        "UPDATE cell SET sm_clock_mhz = 1500 WHERE $one"
    planted note power-capped "the software power cap (0x4), a fact of large blocks; SM clock 1500 MHz" \
        "UPDATE cell SET throttle_reasons = 4 WHERE $one"
}
@test "throttled rows: the bits in words" {
    sqlite3 x.db "UPDATE cell SET throttle_reasons = 1 WHERE $one" # idle
    [ -z "$(found)" ]
    planted warning throttled "under software thermal slowdown (0x20) at 88 C" \
        "UPDATE cell SET throttle_reasons = 0x20, temperature_c = 88 WHERE $one"
    planted warning throttled "software power cap hardware slowdown hardware thermal slowdown hardware power brake (0xcc)" \
        "UPDATE cell SET throttle_reasons = 0xcc WHERE $one"
    run hcp-profile check x.db --no-device --strict
    [ "$status" -eq 1 ]
}
@test "noise" {
    planted warning noisy "its median is sure to 10.0 % only" \
        "UPDATE cell SET ci_lo_ms = time_ms * 0.9, ci_hi_ms = time_ms * 1.1 WHERE $one"
    planted note noisy "its median is sure to 3.0 % only" \
        "UPDATE cell SET ci_lo_ms = time_ms * 0.97, ci_hi_ms = time_ms * 1.03 WHERE $one"
}
@test "few samples, many outliers" {
    planted warning few-samples "full 1024x1024: 2 samples; run: sqlite3 x.db " \
        "DELETE FROM sample WHERE seq > 1 AND cell_id = (SELECT id FROM cell WHERE $one); UPDATE cell SET samples = 2 WHERE $one"
    planted note few-samples "9 samples" "DELETE FROM sample; UPDATE cell SET samples = 9 WHERE $one"
    planted warning outliers "5 of 10 samples are outliers" "UPDATE cell SET samples = 10, outliers = 5 WHERE $one"
    planted note outliers "2 of 10 samples" "UPDATE cell SET samples = 10, outliers = 2 WHERE $one"
}
@test "CUPTI and events disagree, or its records are lost" {
    at="limiter = 'mps:50' AND mask = 'full' AND q_len = 2048 AND kv_len = 2048"
    planted warning cupti "toy@mps:50 synthetic prefill bf16 32/8x128 b1: full 2048x2048: synthetic +100.0 % from the kernel time of CUPTI" \
        "UPDATE cell SET cupti_ms = time_ms / 2 WHERE $at"
    planted note cupti "+11.1 % from" "UPDATE cell SET cupti_ms = time_ms * 0.9 WHERE $at"
    planted note cupti-lost "no cross-check" \
        "UPDATE cell SET cupti_ms = NULL, note = 'CUPTI lost records: 2 kernels of 3 runs' WHERE $at"
}
@test "a limit that was not proven, or did not hold" {
    planted error limit-not-proven "toy@mps:50 synthetic prefill bf16 32/8x128 b1: full 128x128: mps:50 gave 132 of 132 SMs: the limit did not hold" \
        "UPDATE cell SET sm_seen = 132 WHERE limiter = 'mps:50' AND mask = 'full' AND q_len = 128 AND kv_len = 128"
    planted error limit-not-proven "mps:100 gave 131 of 132 SMs" \
        "UPDATE cell SET sm_seen = 66 WHERE limiter = 'mps:50'; UPDATE cell SET sm_seen = 131 WHERE $one"
    sqlite3 x.db "UPDATE cell SET sm_seen = 132 WHERE $one; UPDATE run SET origin = 'measured'"
    planted warning limit-not-proven "mps:100 and no count of the SMs that were seen: nothing proves the limit" \
        "UPDATE cell SET sm_seen = NULL WHERE $one; UPDATE run SET tool_version = NULL"
}
@test "a limit of a transfer that did not hold" {
    hcp-profile import --db x.db "$BATS_FILE_TMPDIR/link.csv" >/dev/null
    sqlite3 x.db "PRAGMA foreign_keys = ON; DELETE FROM cell WHERE limiter <> 'mps:100'; DELETE FROM finish WHERE limiter <> 'mps:100'"
    planted error limit-not-proven "toy@mps:100,toy@mps:100 nccl: 65536 bytes: mps:100 gave 66 of 132 SMs: the limit did not hold; run: sqlite3 x.db 'PRAGMA foreign_keys=ON; DELETE FROM link WHERE id IN (2)' && hcp-profile link --db x.db" \
        "UPDATE link SET sm_seen_a = 66 WHERE bytes = 65536"
}
@test "a limiter that is not ours" {
    planted error foreign-limiter "toy synthetic prefill bf16 32/8x128 b1: full 1024x1024: the whole device, but 66 of its 132 SMs were seen" \
        "UPDATE cell SET sm_seen = 66 WHERE limiter = '' AND mask = 'full' AND q_len = 1024 AND kv_len = 1024"
    cp "$BATS_FILE_TMPDIR/clean.db" x.db
    planted warning foreign-limiter "speaks of an MPS daemon: left over MPS daemon, default active thread percentage 50" \
        "UPDATE cell SET note = 'left over MPS daemon, default active thread percentage 50' WHERE $one"
}
@test "finish passes and transfers that get faster as they grow" {
    planted warning finish-not-monotone "toy@mps:50 synthetic prefill bf16 32/8x128 b1: store of 1024 rows: 0" \
        "UPDATE finish SET time_ms = time_ms / 4, p25_ms = p25_ms / 4, p75_ms = p75_ms / 4 WHERE limiter = 'mps:50' AND kind = 'store' AND q_len = 1024"
    cp "$BATS_FILE_TMPDIR/clean.db" x.db
    hcp-profile import --db x.db "$BATS_FILE_TMPDIR/link.csv" >/dev/null
    sqlite3 x.db "PRAGMA foreign_keys = ON; DELETE FROM cell WHERE limiter <> 'mps:100'; DELETE FROM finish WHERE limiter <> 'mps:100'"
    [ -z "$(found)" ]
    planted warning link-not-monotone "toy@mps:100,toy@mps:100 nccl: 65536 bytes: 0.01 ms is faster than the 0.02 ms of 4096 bytes" \
        "UPDATE link SET time_ms = 0.01, p25_ms = 0.009, p75_ms = 0.011 WHERE bytes = 65536"
    [[ "$said" == *"run: sqlite3 x.db 'PRAGMA foreign_keys=ON; DELETE FROM link WHERE id IN (2)' && hcp-profile link --db x.db --limits mps:100/mps:100 --transport nccl" ]]
}

@test "a step in a link's curve is none of its faults, an odd size beside it is" {
    head -n 1 "$BATS_FILE_TMPDIR/link.csv" >step.csv
    for row in '8388608 0.15' '16777216 0.27' '33554432 0.53' '34603008 0.29' '67108864 0.54'; do
        # shellcheck disable=SC2086
        set -- $row
        echo "toy,mps:100,132,132,$2,$2,$2,12,synthetic,l,link,$1,toy,mps:100,nccl,1" >>step.csv
    done
    hcp-profile import --db x.db step.csv >/dev/null
    sqlite3 x.db "PRAGMA foreign_keys = ON; DELETE FROM cell WHERE limiter <> 'mps:100'; DELETE FROM finish WHERE limiter <> 'mps:100'"
    [ -z "$(found)" ]
    planted warning link-not-monotone "34603008 bytes: 0.29 ms is faster than the 0.8 ms of 33554432 bytes" \
        "UPDATE link SET time_ms = 0.8, p25_ms = 0.8, p75_ms = 0.8 WHERE bytes = 33554432"
}

# ---- coverage ----

@test "failed cells, and failed ones that another run has measured" {
    planted warning failed-cells "causal 1024x1024: failed: out of memory; run: hcp-profile run --db x.db --device synthetic:name=toy --limits mps:100 --q-lens none --causal-lens 1024 --retry-failed" \
        "UPDATE cell SET status = 'failed', error = 'out of memory', time_ms = NULL, min_ms = NULL, p25_ms = NULL, \
        p75_ms = NULL, max_ms = NULL, ci_lo_ms = NULL, ci_hi_ms = NULL, samples = NULL WHERE limiter = 'mps:100' AND mask = 'causal' AND q_len = 1024; \
        DELETE FROM sample"
    eval "${said##*run: }"
    [ -z "$(found)" ]
}
@test "a mask is missing; one length answers for all" {
    planted warning no-causal "causal sequences have no answer; run: hcp-profile run --db x.db --device synthetic:name=toy --limits mps:50 --q-lens none --max-len 2048" \
        "DELETE FROM cell WHERE limiter = 'mps:50' AND mask = 'causal'"
    eval "${said##*run: }"
    [ -z "$(found)" ]
    planted warning no-full "have no answer" "DELETE FROM cell WHERE limiter = 'mps:50' AND mask = 'full'"
    cp "$BATS_FILE_TMPDIR/clean.db" x.db
    planted warning one-length "full: all cells have one q_len; nothing tells how time grows" \
        "DELETE FROM cell WHERE limiter = 'mps:50' AND mask = 'full' AND q_len <> 1024"
    cp "$BATS_FILE_TMPDIR/clean.db" x.db
    planted warning one-length "causal: all cells have one length" \
        "DELETE FROM cell WHERE limiter = 'mps:50' AND mask = 'causal' AND q_len <> 2048"
}
@test "holes of the grid, shorter limits: the command fills them" {
    planted note grid-holes "1 of the " "DELETE FROM cell WHERE $one"
    [[ "$said" == *" rectangles of its lengths are not measured under mps:100; run: hcp-profile run --db x.db --device synthetic:name=toy --limits mps:100 --q-lens 128,256,384,512,768,1024,1536,2048 --kv-lens 128,256,512,1024,2048 --causal-lens none" ]]
    eval "${said##*run: }"
    [ -z "$(found)" ]
    planted note shorter "full: lengths end at 1536, under other limits at 2048; run: hcp-profile run --db x.db --device synthetic:name=toy --limits mps:50 --max-len 2048" \
        "DELETE FROM cell WHERE limiter = 'mps:50' AND mask = 'full' AND max(q_len, kv_len) = 2048"
    eval "${said##*run: }"
    [ -z "$(found)" ]
}
@test "green contexts and MPS: a command for each" {
    sqlite3 x.db "UPDATE cell SET limiter = 'green:66', sm_seen = 66 WHERE limiter = 'mps:50'; \
        UPDATE finish SET limiter = 'green:66' WHERE limiter = 'mps:50'; \
        DELETE FROM cell WHERE limiter <> '' AND mask = 'full' AND q_len = 1024 AND kv_len = 1024"
    said=$(found)
    [ "$(grep -c "^note    grid-holes: " <<<"$said")" -eq 2 ]
    [[ "$said" == *" --limits mps:100 --q-lens "* && "$said" == *" --limits green:66 --q-lens "* ]]
    cp "$BATS_FILE_TMPDIR/clean.db" x.db
    sqlite3 x.db "UPDATE cell SET limiter = 'green:66', sm_seen = 66 WHERE limiter = 'mps:50'; \
        UPDATE finish SET limiter = 'green:66' WHERE limiter = 'mps:50'"
    hcp-profile import --db x.db "$BATS_FILE_TMPDIR/link.csv" >/dev/null
    said=$(found)
    grep -q ' --limits mps:100/none$' <<<"$said"
    grep -q ' --limits green:66/green:66$' <<<"$said"
}
@test "finish passes that are missing" {
    planted warning no-finish "no finish pass is stored under this limit, but under " \
        "DELETE FROM finish WHERE limiter = 'mps:50'"
    planted warning no-finish "the kernel needs finish passes (out bf16) and none is stored: plans leave their time out" \
        "DELETE FROM finish; UPDATE cell SET provider_config = 'engine 2, out bf16' WHERE $one"
}
@test "transfers that are missing" {
    hcp-profile import --db x.db "$BATS_FILE_TMPDIR/link.csv" >/dev/null
    said=$(found)
    [[ "$said" == "note    link-missing: no transfer of toy by nccl under none,mps:50; run: hcp-profile link --db x.db --transport nccl --limits mps:100/none,mps:100/mps:50" ]]
    cp "$BATS_FILE_TMPDIR/clean.db" x.db
    run hcp-profile check x.db --no-device
    [[ "$output" != *no-link* ]] # computed machines have none
    sqlite3 x.db "UPDATE run SET origin = 'recorded'"
    hcp-profile check x.db --no-device |
        grep '^note    no-link: no transfer was measured: hcp-plan has to be told with --link; run: hcp-profile link --db x.db$'
}

# ---- integrity ----

@test "half rows" {
    planted error half-row "full 1024x1024: says 10 samples and has 9; run: sqlite3 x.db 'PRAGMA foreign_keys=ON; DELETE FROM cell WHERE id IN (" \
        "DELETE FROM sample WHERE seq = 9 AND cell_id = (SELECT id FROM cell WHERE $one)"
    eval "${said##*run: }"
    code=0
    [ -z "$(found)" ]
    sqlite3 x.db "UPDATE run SET origin = 'measured', tool_version = NULL"
    planted warning half-row "is called measured and lacks method measured_at" \
        "UPDATE cell SET method = NULL, measured_at = NULL WHERE $one"
}
@test "times out of order" {
    planted error contradiction "full 1024x1024: its times are out of order: min " "UPDATE cell SET min_ms = 2 * time_ms WHERE $one"
}
@test "rows without a run: the command removes them, samples too" {
    n=$(sqlite3 x.db 'SELECT count(*) FROM sample')
    keys=''
    planted error orphan "1 row of cell points to no run; run: sqlite3 x.db " "UPDATE cell SET run_id = 99 WHERE $one"
    eval "${said##*run: }"
    [ "$(sqlite3 x.db 'SELECT count(*) FROM sample')" -eq $((n - 10)) ]
    code=0
    [[ "$(found)" == "note    grid-holes: "* ]]
}
@test "a run without rows, half a ring" {
    planted note empty-run "run other has no rows" "INSERT INTO run (uid, origin) VALUES ('other', 'synthetic')"
    planted error half-ring "ring r1 has 0 tokens on its ranks, its sequence is 4096" \
        "DELETE FROM run WHERE uid = 'other'; INSERT INTO ring_run (uid, strategy, mask, layout, provider, dtype, batch, heads, \
        kv_heads, head_dim, seq_len, makespan_ms, origin) VALUES ('r1', 'even', 'full', 'contiguous', 'x', 'bf16', 1, 1, 1, 64, 4096, 1, 'synthetic')"
    eval "${said##*run: }"
    code=0
    [ -z "$(found)" ]
}
@test "an index that does not match its table" {
    sqlite3 x.db "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'cell_identity'" \
        "INSERT INTO sqlite_schema VALUES ('index', 'cell_identity', 'cell', (SELECT rootpage FROM sqlite_schema WHERE name = 'run'), 'x')" || true
    run --separate-stderr hcp-profile check x.db --no-device
    [ "$status" -eq 1 ]
    [[ "$output$stderr" == *"x.db"*"damaged"* || "$output" == *"error   damaged: "* || "$stderr" == *"malformed"* ]]
}

# ---- staleness ----

other="INSERT INTO run (uid, origin, driver, cuda_version, tool_version) SELECT 'other', origin"
@test "rows of one key from different drivers, CUDAs, tools, kernels" {
    base="UPDATE run SET driver = '580.1', cuda_version = '13.0', tool_version = '0.1.0'; "
    move="; UPDATE cell SET run_id = (SELECT id FROM run WHERE uid = 'other') WHERE $one"
    planted warning mixed-driver "2 drivers: " "$base $other, '590.2', '13.0', '0.1.0' FROM run $move"
    [[ "$said" == *"580.1"*"590.2"* || "$said" == *"590.2"*"580.1"* ]]
    [[ "$said" == *"run: hcp-profile run --db NEW.db --device synthetic:name=toy --limits mps:100" ]]
    planted warning mixed-cuda "2 CUDA versions: " "UPDATE run SET driver = '580.1'; UPDATE run SET cuda_version = '12.9' WHERE uid = 'other'"
    planted note mixed-tool "2 tool versions: " "UPDATE run SET cuda_version = '13.0'; UPDATE run SET tool_version = '0.2.0' WHERE uid = 'other'"
    planted warning mixed-kernel "2 kernel versions: " "UPDATE run SET tool_version = '0.2.0'; UPDATE cell SET provider_version = '9.9' WHERE $one"
    planted error mixed-origin "computed rows beside measured ones: " \
        "UPDATE cell SET provider_version = '9.9', measured_at = '2026-01-01T00:00:00Z', method = 'event'; UPDATE run SET origin = 'measured' WHERE uid = 'other'"
}
@test "what all limits of a key have in common is one line; JSON has them apart" {
    sqlite3 x.db "UPDATE run SET driver = '580.1'; $other, '590.2', NULL, NULL FROM run;
        UPDATE cell SET run_id = (SELECT id FROM run WHERE uid = 'other') WHERE q_len = 1024 AND kv_len = 1024;
        UPDATE cell SET throttle_reasons = 4 WHERE q_len = 1024 AND kv_len = 1024"
    said=$(found)
    [ "$(wc -l <<<"$said")" -eq 2 ]
    [[ "$said" == "warning mixed-driver: toy synthetic prefill bf16 32/8x128 b1: under mps:50 mps:100 whole: 2 drivers: "*"; run: hcp-profile run --db NEW.db --device synthetic:name=toy --limits mps:50,mps:100,none"$'\n'* ]]
    [[ "$said" == *$'\n'"note    power-capped: toy synthetic prefill bf16 32/8x128 b1: 6 rows under mps:50 mps:100 whole; whole: 2 rows, the worst "* ]]
    [ "$(hcp-profile check x.db --no-device --json | grep -o '"code":"mixed-driver"' | wc -l)" -eq 3 ]
    sqlite3 x.db "UPDATE cell SET run_id = (SELECT min(id) FROM run) WHERE limiter = 'mps:100'"
    found | grep '^warning mixed-driver: .*: under mps:50 whole: .* --limits mps:50,none$'
}
@test "a device that is another one of the same name" {
    planted error mixed-device "toy is the name of different devices: " \
        "INSERT INTO device (slug, name, sm_count) VALUES ('toy', 'Toy 2', 132); UPDATE cell SET device_id = (SELECT id FROM device WHERE name = 'Toy 2') WHERE $one"
}
@test "models of samples that have changed since, models without coefficients" {
    hcp-plan fit --db x.db >/dev/null
    sqlite3 x.db "UPDATE cell SET time_ms = time_ms * 1.0000001 WHERE limiter = 'mps:50' AND mask = 'full' AND q_len = 1024 AND kv_len = 1024"
    said=$(found)
    [ "$(grep -c '^warning stale-model: toy@mps:50 synthetic prefill bf16 32/8x128 b1: the [lutpoy]* model is of other samples than are stored now; it refuses to answer; run: hcp-plan fit --db x.db$' <<<"$said")" -eq 2 ]
    [ "$(wc -l <<<"$said")" -eq 2 ]
    hcp-plan fit --db x.db >/dev/null
    [ -z "$(found)" ]
    sqlite3 x.db "UPDATE finish SET time_ms = time_ms * 1.0000001 WHERE limiter = 'mps:50' AND q_len = 512"
    [ "$(found | grep -c '^warning stale-model: toy@mps:50 ')" -eq 2 ]
    hcp-plan fit --db x.db >/dev/null
    planted error half-model "the lut model has no coefficients" \
        "DELETE FROM model_array WHERE model_id = (SELECT min(id) FROM model WHERE kind = 'lut')"
}
@test "this machine's device, driver and kernel" {
    long_test
    rm x.db
    hcp-profile run --db x.db --device cpu --levels 100 --heads 2 --kv-heads 1 --head-dim 64 --dtype fp32 --max-len 128 >/dev/null
    sqlite3 x.db 'DELETE FROM drift' # of a machine that tests keep busy
    run hcp-profile check x.db
    [ "$status" -eq 0 ]
    [[ "$output" != *"-here: "* ]]
    sqlite3 x.db "UPDATE cell SET provider_version = 'old'; UPDATE run SET tool_version = '0.0.1'"
    run hcp-profile check x.db
    [[ "$output" == *"warning kernel-here: "*" old was measured, this machine has "*"; run: hcp-profile run --db x.db --device cpu --limits cpu:100 --provider "* ]]
    [[ "$output" == *"note    tool-here: "*"measured by version 0.0.1, this is "* ]]
    run hcp-profile check x.db --no-device
    [[ "$output" != *"kernel-here: "* ]]
}

# ---- files ----

@test "recorded machines have no errors" {
    for name in nvidia-h200 nvidia-h200-cudnn nvidia-h200-fa2 nvidia-h200-cudnn919 nvidia-h200-sdpa; do
        rm -f x.db
        hcp-profile import --db x.db $name >/dev/null
        run hcp-profile check x.db --no-device
        [ "$status" -eq 0 ]
        [[ "$output" == *"0 errors, "* ]]
    done
}
@test "the report is the same in a German locale" {
    german=$(locale -a | grep -i -m 1 '^de_.*utf') || skip "no German locale here"
    sqlite3 x.db "UPDATE cell SET ci_lo_ms = time_ms * 0.9, ci_hi_ms = time_ms * 1.1 WHERE $one"
    hcp-profile check x.db --no-device >c.txt
    LC_ALL=$german hcp-profile check x.db --no-device | cmp - c.txt
}
@test "JSON: keys, and numbers that are numbers" {
    sqlite3 x.db "UPDATE cell SET ci_lo_ms = time_ms * 0.9, ci_hi_ms = time_ms * 1.1 WHERE $one"
    hcp-profile check x.db --no-device --json |
        grep -F '"schema":1,"db":"x.db","errors":0,"warnings":1,"notes":1,"coverage":[{"device":"toy","limit":"mps:50",'
    hcp-profile check x.db --no-device --json |
        grep -F '"rows":1,"cells":[{"mask":"full","q_len":1024,"kv_len":1024}],"text":"its median is sure to 10.0 % only","command":"sqlite3 x.db '
}
@test "missing, empty, foreign, truncated: a message and 1" {
    for name in none.db empty.db text.db other.db notables.db cut.db; do
        case $name in
        none.db) words="no profile database 'none.db'" ;;
        empty.db) : >empty.db && words="'empty.db' is empty" ;;
        text.db) echo 'a,b' >text.db && words="is not a profile database (not an SQLite file)" ;;
        other.db) sqlite3 other.db 'CREATE TABLE t (x)' && words="is an SQLite database of another program" ;;
        notables.db) sqlite3 notables.db 'CREATE TABLE t (x); PRAGMA application_id = 0x68637064; PRAGMA user_version = 4' && words="has the mark of a profile database but no table 'device'" ;;
        cut.db) head -c 20000 x.db >cut.db && words="'cut.db' is damaged" ;;
        esac
        run --separate-stderr hcp-profile check $name --no-device
        echo "$name: $status $stderr" >&2
        [ "$status" -eq 1 ]
        [ -z "$output" ]
        [[ "$stderr" == "hcp-profile: "*"$words"* ]]
        [ "${#stderr_lines[@]}" -eq 1 ]
    done
}
@test "bytes flipped anywhere: found or not, never a crash" {
    long_test
    size=$(stat -c %s x.db)
    RANDOM=${HCP_TEST_SEED:-1} # others by hand: what a build fails on must fail again
    for i in $(seq 60); do
        cp x.db y.db
        for _ in 1 2 3; do
            printf "\\x$(printf %02x $((RANDOM % 256)))" |
                dd of=y.db bs=1 seek=$(((RANDOM * 32768 + RANDOM) % size)) conv=notrunc status=none
        done
        run timeout 300 hcp-profile check y.db --no-device --json
        echo "$i: $status $output" >&2
        [ "$status" -le 1 ]
    done
}
@test "usage" {
    run hcp-profile check x.db y.db
    [ "$status" -eq 2 ]
    [[ "$output" == *"one file at a time; 'y.db' is one too many"* ]]
    run bash -c 'hcp-profile check x.db --no-device >/dev/full'
    [ "$status" -eq 1 ]
    cp x.db hcp.db
    hcp-profile check --no-device | grep -q '^hcp.db$'
    HCP_DB=x.db hcp-profile check --no-device | grep -q '^x.db$'
    cmp x.db "$BATS_FILE_TMPDIR/clean.db" # nothing was written
}
