#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# Bad input and bad files: exit code, one line that says what, where and what next,
# and nothing changed.

setup() {
    db=$BATS_TEST_TMPDIR/h.db
    csv=$BATS_TEST_TMPDIR/in.csv
    head='device,limit,provider,mask,q_len,kv_len,time_ms'
    row='nvidia-h200,mps:50,flash,full,1024,2048,1.5'
    unset HCP_DB
}

# refuse CODE WORDS COMMAND...: one line on stderr with these words, nothing on stdout.
refuse() {
    code=$1 words=$2
    shift 2
    run --separate-stderr "$@"
    echo "status $status: $stderr" >&2
    [ "$status" -eq "$code" ]
    [ -z "$output" ]
    [[ "$stderr" == *"$words"* ]]
    [ "$code" -eq 2 ] || [ "${#stderr_lines[@]}" -eq 1 ]
}

# bad WORDS LINE...: a file of these lines is refused whole; the good first row too.
bad() {
    words=$1
    shift
    printf '%s\n' "$@" >"$csv"
    rm -f "$db"
    refuse 1 "$words" hcp-profile import --db "$db" "$csv"
    [ ! -e "$db" ]
    [[ "$stderr" == *"$csv"* ]]
}

bats_require_minimum_version 1.5.0

@test "a missing column" {
    bad "in.csv:1: column 'time_ms' is missing; required are device, limit, provider, mask, q_len, kv_len, time_ms" \
        "${head%,time_ms}" "${row%,1.5}"
}
@test "a missing column beside kind: other rows have no mask" {
    bad "in.csv:1: column 'limit' is missing; required are device, limit" "device,kind,q_len,time_ms" "gpu-x,store,4,1"
    [[ "$stderr" != *"limit, provider"* ]]
}
@test "a column in another spelling" {
    bad "column 'limit' is missing; required are device, limit, provider, mask, q_len, kv_len, time_ms; there is, but not known: ' limit', ' mask'" \
        "device, limit,provider, mask,q_len,kv_len,time_ms" "$row"
}
@test "line ends of an old Mac, a JSON array" {
    bad "in.csv:1: lines end with a lone carriage return" "$head"$'\r'"$row"$'\r'
    bad "is a JSON array; expected CSV or JSON lines, one object a line" '[{"device":"gpu-x"}]'
}
@test "an unknown column" {
    bad "in.csv:1: unknown column 'colour', 'taste'; hcp-db(5) lists the columns, --ignore-unknown leaves" \
        "$head,colour,taste" "$row,red,sweet"
}
@test "a column twice" { bad "in.csv:1: column 'mask' is there twice" "$head,mask" "$row,full"; }
@test "rows of other kinds: what they need, what they cannot have" {
    k='kind,device,limit,provider,q_len,time_ms,bytes,transport,peer_device,peer_limit,mask,same_host'
    store='store,gpu-x,,cudnn,64,1.5,,,,,,'
    link='link,gpu-x,,,,1.5,4096,mpi,gpu-y,mps:50,,'
    printf '%s\n' "$k" "$store" "$link" >"$csv"
    hcp-profile import --db "$db" "$csv"
    bad "in.csv:2: column kind: kind 'stare' is not known; expected one of: cell copy store merge link" "$k" "${store/store/stare}"
    bad "in.csv:2: column provider: is empty; a value is required" "$k" "${store/cudnn/}"
    bad "in.csv:2: column mask: does not apply to a row of this kind; leave it empty" "$k" "${store%,}full,"
    bad "in.csv:2: column transport: does not apply to a row of this kind" "$k" "${store/1.5,,/1.5,,mpi}"
    bad "in.csv:3: time_ms 0 is not a time" "$k" "$store" "${store/1.5/0}"
    bad "in.csv:2: column q_len" "$k" "${store/64/0}"
    bad "in.csv:2: column bytes: is empty; a value is required" "$k" "${link/4096/}"
    bad "in.csv:2: column peer_device: is empty" "$k" "${link/gpu-y/}"
    bad "in.csv:2: transport 'tcp' is not known; expected one of: nccl mpi" "$k" "${link/mpi/tcp}"
    bad "in.csv:2: limit 'mps:500'" "$k" "${link/mps:50/mps:500}"
    bad "in.csv:2: same_host 2 is out of range; expected 0 to 1" "$k" "${link}2"
    bad "in.csv:2: column provider: does not apply" "$k" "${link/gpu-x,,/gpu-x,,cudnn}"
    bad "in.csv:2: column transport: does not apply" "$head,transport" "$row,mpi"
    bad "in.csv:2: column same_host: does not apply" "$head,gb_per_s,kind,same_host" "gpu-x,,,,,,,100,copy,1"
    bad "is in profile format 5, this program knows up to 4; use a newer hcp" "# hcp profile, format 5; columns" "$k" "$store"
}
@test "zero time" { bad "in.csv:3: time_ms 0 is not a time; expected milliseconds above zero" "$head" "$row" "${row%1.5}0"; }
@test "negative time" { bad "in.csv:3: time_ms -1.5 is not a time" "$head" "$row" "${row%1.5}-1.5"; }
@test "NaN time" { bad "in.csv:3: column time_ms: 'nan' is not a finite decimal number" "$head" "$row" "${row%1.5}nan"; }
@test "infinite time" { bad "in.csv:3: column time_ms: 'inf' is not a finite decimal number" "$head" "$row" "${row%1.5}inf"; }
@test "no time" { bad "in.csv:3: time_ms is missing" "$head" "$row" "${row%1.5}"; }
@test "text for a time" { bad "in.csv:3: column time_ms: 'fast' is not a finite decimal number" "$head" "$row" "${row%1.5}fast"; }
@test "utilisation over 1: seconds for milliseconds" {
    bad "in.csv:3: utilisation is 46.3: 2.291e+04 TFLOP/s where the hardware's peak is 494.7; is time_ms in milliseconds" \
        "$head,sm_seen,sm_count" "$row,66,132" "${row%1.5}0.0015,66,132"
}
@test "utilisation over 1: a device nobody knows, seconds for milliseconds" {
    bad "in.csv:2: utilisation is 1.1: 2.291e+04 TFLOP/s where the hardware's peak is 2e+04; is time_ms in milliseconds" \
        "$head" "my-gpu,,flash,full,1024,2048,0.0015"
}
@test "times that are none" {
    bad "in.csv:2: time_ms 1e+308 is out of range; expected 1e-09 to 1e+09 milliseconds" "$head" "${row%1.5}1e308"
    bad "in.csv:2: time_ms 1e-300 is out of range" "$head" "${row%1.5}1e-300"
    bad "in.csv:2: time_ms -0 is not a time" "$head" "${row%1.5}-0"
}
@test "utilisation over 1: the file's own peak" {
    bad "in.csv:2: utilisation is 2" "$head,peak_tflops" "${row/nvidia-h200/my-gpu},10"
}
@test "decimal comma" {
    bad "in.csv:2: 8 fields where the header has 7; is there a decimal comma? numbers have a point" \
        "$head" "${row/1.5/1,5}"
    bad "in.csv:2: column time_ms: number '1,5' has a decimal comma; write a decimal point" \
        "$head" "${row/1.5/\"1,5\"}"
}
@test "semicolons and tabs" {
    bad "in.csv:1: fields are separated by ';'; expected commas" "${head//,/;}" "${row//,/;}"
    bad "in.csv:1: fields are separated by tabs; expected commas" "${head//,/$'\t'}" "${row//,/$'\t'}"
}
@test "too few fields" { bad "in.csv:3: 6 fields where the header has 7" "$head" "$row" "${row%,*}"; }
@test "empty file, comments only, header only" {
    bad "is empty; expected CSV or JSON lines" ""
    bad "is empty; expected a CSV file whose first row names the columns" "# nothing"
    bad "has no rows: nothing to read" "$head"
}
@test "lengths" {
    bad "in.csv:2: column q_len: q_len '0' is out of range; allowed: 1 to 1073741824" "$head" "${row/1024/0}"
    bad "in.csv:2: column q_len: q_len '-1' is not a whole number" "$head" "${row/1024/-1}"
    bad "in.csv:2: column q_len: q_len '1099511627776' is out of range" "$head" "${row/1024/1099511627776}"
    bad "in.csv:2: column kv_len: is empty; a value is required" "$head" "${row/2048/}"
    bad "in.csv:2: column kv_len: kv_len '1e3' is not a whole number" "$head" "${row/2048/1e3}"
}
@test "tiles that no kernel has" {
    bad "in.csv:2: column tile_q: tile_q '1073741824' is out of range; allowed: 1 to 1048576" "$head,tile_q" "$row,1073741824"
    bad "in.csv:2: column tile_kv: tile_kv '0' is out of range" "$head,tile_kv" "$row,0"
}
@test "words and names" {
    bad "in.csv:2: mask 'band' is not known; expected full or causal" "$head" "${row/full/band}"
    bad "in.csv:2: device 'NVIDIA H200': 'N' is not allowed" "$head" "${row/nvidia-h200/NVIDIA H200}"
    bad "in.csv:2: limit 'mps:0': '0' is not a level; write mps:N with N from 1 to 100 (% of the SMs)" "$head" "${row/mps:50/mps:0}"
    bad "in.csv:2: limit 'mps:101': '101' is not a level" "$head" "${row/mps:50/mps:101}"
    bad "in.csv:2: limit 'mps:abc': 'abc' is not a level" "$head" "${row/mps:50/mps:abc}"
    bad "in.csv:2: heads 30 is not a multiple of kv_heads 8" "$head,heads" "$row,30"
    bad "in.csv:2: origin 'guessed' is not known; expected measured, recorded or synthetic" "$head,origin" "$row,guessed"
}
@test "columns that contradict each other" {
    bad "in.csv:2: min_ms 2 is above time_ms 1.5" "$head,min_ms" "$row,2"
    bad "in.csv:2: samples is 4 but samples_ms has 2 values" "$head,samples,samples_ms" "$row,4,1;2"
    bad "in.csv:2: time_ms 1.5 is outside its samples_ms (2 to 3)" "$head,samples_ms" "$row,2;3"
    bad "in.csv:2: sm_seen 140 is more than sm_count 132" "$head,sm_seen,sm_count" "$row,140,132"
    bad "in.csv:3: the same cell as line 2 with other values" "$head,run_uid" "$row,r" "${row%1.5}2.5,r"
    bad "in.csv:2: column gb_per_s: does not apply to a row of this kind" "$head,gb_per_s" "$row,5"
    printf '%s\n' "$head,run_uid,host" "$row,r,a" "${row/1024/64},r,b" >"$csv"
    refuse 1 "has host 'a', this row says 'b'" hcp-profile import --db "$db" "$csv"
    refuse 3 "no rows of" hcp-profile show --db "$db"
}
@test "broken quoting" {
    bad "in.csv:2: a quoted field does not end" "$head" "\"$row"
    bad "in.csv:2: 'x' after a closing quote" "$head" "\"nvidia-h200\"x${row#nvidia-h200}"
    bad "in.csv:2: a quote inside an unquoted field" "$head" "nvidia\"${row#nvidia}"
}
@test "not text" {
    head -c 4096 /dev/zero >"$csv"
    refuse 1 "is a binary file; expected CSV or JSON lines in UTF-8" hcp-profile import --db "$db" "$csv"
    printf '\xff\xfed\0e\0v\0' >"$csv"
    refuse 1 "is UTF-16; expected CSV or JSON lines in UTF-8" hcp-profile import --db "$db" "$csv"
    bad "in.csv:2: host is not one line of UTF-8 text" "$head,host" "$row,"$'k\xf6ln'
}
@test "JSON lines" {
    good='{"device":"gpu-x","limit":"","provider":"flash","mask":"full","q_len":1,"kv_len":1,"time_ms":1}'
    bad "in.csv:2: " "$good" "${good%\}}"
    mv "$csv" "$BATS_TEST_TMPDIR/in.jsonl"; csv=$BATS_TEST_TMPDIR/in.jsonl
    bad "in.jsonl:2: " "$good" "${good%\}}"
    bad "in.jsonl:1: unknown column 'colour'" "${good/\"limit\"/\"colour\"}"
    bad "in.jsonl:1: column kv_len: is empty; a value is required" "${good/,\"kv_len\":1/}"
    bad "in.jsonl:1: time_ms 0 is not a time" "${good/time_ms\":1/time_ms\":0}"
    bad "in.jsonl:1: column q_len: q_len '1.5' is not a whole number" "${good/q_len\":1/q_len\":1.5}"
    bad "in.jsonl:1: column time_ms: an array; expected a value" "${good/time_ms\":1/time_ms\":[1]}"
    bad "in.jsonl:1: not an object; expected one JSON object a line" "[1]"
}
@test "a newer text format" {
    bad "is in profile format 9, this program knows up to 4; use a newer hcp" "# hcp profile, format 9" "$head" "$row"
}
@test "no such file, no such recorded machine" {
    refuse 1 "cannot read './none.csv': No such file or directory" hcp-profile import --db "$db" ./none.csv
    refuse 1 "no recorded machine 'nvidia-l40s'; there are: nvidia-h200" hcp-profile import --db "$db" nvidia-l40s
    [ ! -e "$db" ]
}
@test "a bad file leaves a database with rows as it was" {
    hcp-profile import --db "$db" nvidia-h200-sdpa
    cp "$db" "$db.before"
    printf '%s\n' "$head" "$row" "${row%1.5}0" >"$csv"
    refuse 1 "in.csv:3: time_ms 0" hcp-profile import --db "$db" "$csv"
    cmp "$db" "$db.before"
}

@test "database missing, empty, foreign, not one, truncated, newer" {
    refuse 1 "no profile database '$db'; make one with 'hcp-profile run --db $db' or 'hcp-profile import --db $db NAME'" \
        hcp-profile show --db "$db"
    refuse 1 "no profile database" hcp-profile export --db "$db"
    : >"$db"
    refuse 1 "'$db' is empty" hcp-profile show --db "$db"
    hcp-profile import --db "$db" nvidia-h200-sdpa # an empty file becomes a database
    cp "$db" "$db.good"
    truncate -s 20000 "$db"
    refuse 1 "'$db' is damaged" hcp-profile show --db "$db"
    refuse 1 "'$db' is damaged" hcp-profile import --db "$db" nvidia-h200-sdpa
    [ "$(stat -c %s "$db")" -eq 20000 ]
    # bytes 60..63: user_version; 68..71: application_id
    cp "$db.good" "$db"
    printf '\0\0\0\x63' | dd of="$db" bs=1 seek=60 conv=notrunc status=none
    refuse 1 "has schema version 99, this program knows versions up to " hcp-profile show --db "$db"
    refuse 1 "use a newer hcp" hcp-profile import --db "$db" nvidia-h200-sdpa
    cp "$db.good" "$db"
    printf '\x0f\x05\x51\x11' | dd of="$db" bs=1 seek=68 conv=notrunc status=none
    refuse 1 "is an SQLite database of another program" hcp-profile show --db "$db"
    printf '%s\n' "$head" >"$db"
    refuse 1 "is not a profile database (not an SQLite file); a CSV or JSON lines file is read by 'hcp-profile import" \
        hcp-profile show --db "$db"
    refuse 1 "is not a regular file" hcp-profile show --db /dev/null
    refuse 1 "is not a regular file" hcp-profile import --db "$BATS_TEST_TMPDIR" nvidia-h200-sdpa
}

@test "write-ahead logging switched on by another program" {
    command -v sqlite3 >/dev/null || skip "no sqlite3 program"
    hcp-profile import --db "$db" nvidia-h200-sdpa
    sqlite3 "$db" 'PRAGMA journal_mode=wal'
    # in use there: both go on
    sqlite3 "$db" 'BEGIN' 'SELECT count(*) FROM cell' ".shell hcp-profile show --db $db >$db.out" 'COMMIT'
    grep -q nvidia-h200 "$db.out"
    hcp-profile show --db "$db" >/dev/null
    [ "$(sqlite3 "$db" 'PRAGMA journal_mode')" = delete ]
}

@test "read-only file and directory" {
    [ "$(id -u)" -ne 0 ] || command -v setpriv >/dev/null || skip "root may write anywhere and there is no setpriv"
    as_user=()
    [ "$(id -u)" -ne 0 ] || as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    dir=$(mktemp -d /tmp/hcp-ro-XXXXXX)
    bin=$(command -v hcp-profile)
    chmod 755 "$dir"
    "${as_user[@]}" "$bin" --version >/dev/null || skip "an ordinary user cannot run programs here"
    cp "$HCP_PROFILES/nvidia-h200-sdpa.csv" "$dir/p.csv"
    hcp-profile import --db "$dir/h.db" "$dir/p.csv"
    chmod 444 "$dir/h.db"
    chmod 777 "$dir"
    refuse 1 "cannot write '$dir/h.db': Permission denied; make it writable or give another --db" \
        "${as_user[@]}" "$bin" import --db "$dir/h.db" "$dir/p.csv"
    chmod 666 "$dir/h.db"
    chmod 555 "$dir"
    refuse 1 "its directory '$dir' is not writable (Permission denied)" \
        "${as_user[@]}" "$bin" import --db "$dir/h.db" "$dir/p.csv"
    run "${as_user[@]}" "$bin" show --db "$dir/h.db" # reading needs neither
    [ "$status" -eq 0 ]
    chmod 755 "$dir"
    rm -r "$dir"
}

@test "disk full: nothing stored, the way out named (file size limit)" {
    hcp-profile import --db "$db" nvidia-h200-sdpa
    cp "$db" "$db.before"
    refuse 1 "cannot write '$db': File too large; what was stored before is intact: free space and repeat the command" \
        env bash -c "trap '' XFSZ; ulimit -f $(($(stat -c %s "$db") / 1024 + 4)); hcp-profile import --db '$db' nvidia-h200-fa2"
    cmp "$db" "$db.before"
}

@test "disk full: a real one" {
    mnt=$BATS_TEST_TMPDIR/mnt
    mkdir "$mnt"
    unshare -rm mount -t tmpfs -o size=256k none "$mnt" 2>/dev/null || skip "no tmpfs can be mounted here"
    cat >"$BATS_TEST_TMPDIR/fill" <<'EOF'
mount -t tmpfs -o size=256k none "$1" &&
    hcp-profile import --db "$1/h.db" nvidia-h200-sdpa >&3 &&
    cp "$1/h.db" "$1/../before.db" &&
    ! hcp-profile import --db "$1/h.db" nvidia-h200-fa2 &&
    cmp "$1/h.db" "$1/../before.db" && exit 7
EOF
    refuse 7 "cannot write '$mnt/h.db': No space left on device; what was stored before is intact" \
        unshare -rm sh "$BATS_TEST_TMPDIR/fill" "$mnt" 3>/dev/null
}

@test "standard output full" {
    hcp-profile import --db "$db" nvidia-h200-sdpa
    for command in "show" "show --json" "show --cells" "export" "export --json" "merge --db new.db"; do
        cd "$BATS_TEST_TMPDIR"
        # shellcheck disable=SC2086
        run --separate-stderr bash -c "hcp-profile $command $([ "${command%% *}" = merge ] && echo "$db" || echo "--db $db") >/dev/full"
        [ "$status" -eq 1 ]
        [[ "$stderr" == *"No space left on device"* ]]
    done
}

@test "usage errors end with 2" {
    refuse 2 "what to import?" hcp-profile import --db "$db"
    refuse 2 "one file at a time" hcp-profile import --db "$db" a.csv b.csv
    refuse 2 "--format 'xml' is not known" hcp-profile export --format xml
    refuse 2 "limit 'mps:101': '101' is not a level" hcp-profile show --limit mps:101
    refuse 2 "--mask 'band' is not known; expected full or causal" hcp-profile show --mask band
    refuse 2 "--device 'H200'" hcp-profile show --device H200
    refuse 2 "unrecognized option" hcp-profile show --nonsense
    refuse 2 "give the database to add to and at least one to add" hcp-profile merge a.db
    refuse 2 "no command 'frobnicate'" hcp-profile frobnicate
}

@test "merge refuses itself and a bad source before it writes" {
    cd "$BATS_TEST_TMPDIR"
    hcp-profile import --db a.db nvidia-h200-sdpa
    hcp-profile import --db b.db nvidia-h200-fa2
    refuse 2 "'./a.db' is the database to add to; name another" hcp-profile merge a.db ./a.db a.db
    cp a.db before.db
    refuse 1 "no profile database 'none.db'" hcp-profile merge a.db b.db none.db
    cmp a.db before.db
}
