#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154,SC2030,SC2031 # bats and the harness set these
# Rows of text format 3: topology, interference, drift, linear; boosted times, channels,
# copies by copy engines. In, out, shown, merged.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    unset HCP_DB
}

# One or two rows of each, as JSON lines, with run_uid "r-1" unless $1 is another.
rows() {
    sed "s/UID/${1-r-1}/" <<'EOF'
{"kind":"topology","device":"gpu-x","device_uuid":"GPU-1","host":"left","peer_device":"gpu-x","peer_uuid":"GPU-2","peer_host":"left","connection":"nvlink","links":18,"detail":"NVSwitch, \"one\" hop","run_uid":"UID"}
{"kind":"topology","device":"gpu-x","device_uuid":"GPU-1","host":"left","peer_device":"gpu-y","peer_host":"right","connection":"network","run_uid":"UID"}
{"kind":"interference","device":"gpu-x","limit":"mps:50","provider":"cudnn","provider_version":"9.14","mask":"full","q_len":4096,"kv_len":8192,"peer_device":"gpu-x","peer_limit":"mps:10","transport":"nccl","transport_version":"2.28.9","channels":4,"bytes":33554432,"alone_ms":2,"beside_ms":2.5,"transfer_alone_ms":0.10000000000000002,"transfer_beside_ms":0.15,"wait_ms":0.02,"samples":30,"sm_seen":66,"sm_count":132,"host":"left","run_uid":"UID"}
{"kind":"interference","device":"gpu-x","provider":"cudnn","mask":"causal","q_len":4096,"kv_len":4096,"peer_device":"gpu-x","transport":"copy","bytes":33554432,"alone_ms":2,"beside_ms":2,"host":"left","run_uid":"UID"}
{"kind":"drift","device":"gpu-x","limit":"mps:50","provider":"cudnn","mask":"full","q_len":4096,"kv_len":8192,"first_ms":2,"last_ms":2.0500000000000003,"first_sm_clock_mhz":1980,"last_sm_clock_mhz":1935,"seconds":481.5,"measured_at":"2026-11-30T06:00:00Z","host":"left","run_uid":"UID"}
{"kind":"linear","device":"gpu-x","limit":"mps:50","library":"cublas","library_version":"13.0.2","dtype":"bf16","tokens":4096,"n_in":4096,"n_out":14336,"time_ms":1.5,"p25_ms":1.4,"p75_ms":1.6,"samples":20,"sm_clock_mhz":1755,"sm_seen":66,"sm_count":132,"host":"left","run_uid":"UID"}
{"kind":"linear","device":"gpu-x","library":"openblas","dtype":"fp32","tokens":1,"n_in":64,"n_out":64,"time_ms":0.001,"host":"left","run_uid":"UID"}
{"kind":"link","device":"gpu-x","peer_device":"gpu-x","transport":"copy","bytes":4096,"time_ms":0.01,"host":"left","run_uid":"UID"}
{"kind":"link","device":"gpu-x","peer_device":"gpu-x","transport":"nccl","channels":4,"bytes":4096,"time_ms":0.03,"host":"left","run_uid":"UID"}
{"kind":"link","device":"gpu-x","peer_device":"gpu-x","transport":"nccl","bytes":4096,"time_ms":0.02,"host":"left","run_uid":"UID"}
{"kind":"store","device":"gpu-x","limit":"mps:50","provider":"cudnn","q_len":64,"time_ms":0.5,"provider_version":"9.14","host":"left","run_uid":"UID"}
{"device":"gpu-x","limit":"mps:50","provider":"cudnn","mask":"full","q_len":4096,"kv_len":8192,"time_ms":2,"boosted_ms":1.8,"host":"left","run_uid":"UID"}
EOF
}

@test "export, import, export: byte for byte, CSV and JSON lines" {
    rows >in.jsonl
    run hcp-profile import --db 1.db in.jsonl
    [ "$output" = "in.jsonl: 12 new, 0 already there -> 1.db" ]
    run hcp-profile import --db 1.db in.jsonl
    [ "$output" = "in.jsonl: 0 new, 12 already there -> 1.db" ]
    hcp-profile import --db 1.db nvidia-h200-sdpa
    hcp-profile export --db 1.db -o 1.csv
    hcp-profile export --db 1.db -o 1.jsonl
    hcp-profile import --db 2.db 1.csv
    hcp-profile import --db 3.db 1.jsonl
    hcp-profile export --db 2.db | cmp - 1.csv
    hcp-profile export --db 3.db | cmp - 1.csv
    hcp-profile export --db 2.db -o 2.jsonl
    cmp 1.jsonl 2.jsonl
    [ "$(head -1 1.csv)" = "# hcp profile, format 3; columns: hcp-db(5)" ]
    [ "$(grep -vc '^#' 1.csv)" -eq $((180 + 12 + 1)) ]
    grep -q '"last_ms":2.0500000000000003' 1.jsonl
    grep -q '"NVSwitch, ""one"" hop"' 1.csv
    for column in $(grep -v '^#' 1.csv | head -1 | tr , ' '); do
        grep -q "^\.It $column\( \|$\)" "$top_srcdir/man/hcp-db.5" || { echo "$column"; false; }
    done
}

@test "the oldest format that has what the rows need is written" {
    rows >in.jsonl
    while IFS= read -r row; do
        rm -f one.db
        hcp-profile import --db one.db - <<<"$row"
        want=3
        [[ "$row" != *'"transport":"nccl","bytes"'* ]] || want=2
        [ "$(hcp-profile export --db one.db | head -1)" = "# hcp profile, format $want; columns: hcp-db(5)" ] ||
            { echo "$row"; false; }
    done <in.jsonl
    hcp-profile import --db old.db nvidia-h200-sdpa
    [ "$(hcp-profile export --db old.db | head -1)" = "# hcp profile, format 1; columns: hcp-db(5)" ]
    ! hcp-profile export --db old.db | grep -E 'boosted_ms|channels|peer|n_in'
}

@test "a file without run_uid is the run that older programs made of it" {
    # The names that formats 1 and 2 gave: rows imported by them must not count twice.
    printf '%s\n' 'device,limit,provider,mask,q_len,kv_len,time_ms' 'gpu-x,,flash,full,1,2,3' >1.csv
    printf '%s\n' 'kind,transport,peer_device,peer_limit,bytes,device,limit,provider,q_len,time_ms,mask,kv_len,gb_per_s' \
        'store,,,,,gpu-x,mps:50,cudnn,64,0.3,,,' 'link,nccl,gpu-y,mps:10,4096,gpu-x,mps:100,,,0.0125,,,' \
        'copy,,,,,gpu-x,mps:50,,,,,,99.5' 'cell,,,,,gpu-x,mps:50,cudnn,64,1,full,64,' >2.csv
    hcp-profile import --db 1.db 1.csv
    hcp-profile import --db 2.db 2.csv
    hcp-profile export --db 1.db | grep -q "recorded-60937868045cb251"
    hcp-profile export --db 2.db | grep -q "recorded-d925d1a38355de63"
}

@test "rows without run_uid: the same rows are the same run" {
    rows '' | sed 's/"last_ms":2.05[0-9]*/"last_ms":2.1/' >in.jsonl
    hcp-profile import --db 1.db in.jsonl
    tac in.jsonl | hcp-profile import --db 1.db - | grep -q ': 0 new, 12 already there'
    sed 's/"n_out":14336/"n_out":14337/' in.jsonl | hcp-profile import --db 1.db - | grep -q ': 12 new'
}

@test "what a row needs, what it cannot have" {
    bad() {
        printf '%s\n' "$2" >bad.jsonl
        run hcp-profile import --db bad.db bad.jsonl
        echo "$output"
        [ "$status" -eq 1 ]
        [[ "$output" == *"bad.jsonl:1: $1"* ]]
        [ ! -e bad.db ]
    }
    rows >in.jsonl
    row() { sed -n "$1p" in.jsonl | sed "s/$2/$3/"; }
    bad "column connection: is empty; a value is required" "$(row 1 '"connection":"nvlink",')"
    bad "connection 'wire' is not known; expected one of: nvlink pcie host network" "$(row 1 nvlink wire)"
    bad "column limit: does not apply to a row of this kind" "$(row 1 '"links"' '"limit":"mps:5","links"')"
    bad "column beside_ms: is empty" "$(row 3 '"beside_ms":2.5,')"
    bad "channels are of nccl, not of transport 'mpi'" "$(row 3 '"nccl"' '"mpi"')"
    bad "column time_ms: does not apply" "$(row 3 '"samples"' '"time_ms":1,"samples"')"
    bad "last_ms 0 is not a time" "$(row 5 '2.0500000000000003' 0)"
    bad "column bytes: does not apply" "$(row 5 '"seconds"' '"bytes":1,"seconds"')"
    bad "column n_in: n_in '0' is out of range" "$(row 6 '"n_in":4096' '"n_in":0')"
    bad "column library: is empty" "$(row 6 '"library":"cublas",')"
    bad "utilisation is 1.6: 3.207e+04 TFLOP/s where the hardware's peak is 2e+04" \
        "$(row 6 '"time_ms":1.5,"p25_ms":1.4,"p75_ms":1.6' '"time_ms":0.015' | sed 's/,"sm_seen":66//')"
    bad "column provider: does not apply" "$(row 7 '"library"' '"provider":"x","library"')"
    bad "column boosted_ms: does not apply" "$(row 8 '"bytes"' '"boosted_ms":1,"bytes"')"
    bad "column samples_ms: does not apply" "$(row 8 '"bytes"' '"samples_ms":[1],"bytes"')"
    bad "column kind: kind 'pair' is not known; expected one of: cell copy store merge link topology interference drift linear" \
        "$(row 8 '"link"' '"pair"')"
    bad "boosted_ms -1 is not a time" "$(row 12 '"boosted_ms":1.8' '"boosted_ms":-1')"
    bad "column n_out: does not apply" '{"kind":"copy","device":"gpu-x","gb_per_s":9,"n_out":3}'
}

@test "filters: rows that cannot match are left out of an export" {
    rows | hcp-profile import --db 1.db -
    n() { hcp-profile export --db 1.db "$@" | grep -vc '^#'; }
    [ "$(n --limit mps:10)" -eq 4 ]        # the header; topology has no limits
    [ "$(n --provider cudnn)" -eq 6 ]      # interference, drift, store, cell
    [ "$(n --dtype fp32)" -eq 2 ]          # one GEMM
    [ "$(n --mask causal)" -eq 2 ]         # one block beside a transfer
    [ "$(n --device gpu-y)" -eq 2 ]        # one pair
    run hcp-profile export --db 1.db --status failed
    [ "$status" -eq 3 ] || [ "$status" -eq 2 ]
}

@test "show: every kind, as table and JSON" {
    for what in topology interference drift linear; do
        run hcp-profile show --db none.db --$what
        [ "$status" -eq 1 ]
    done
    rows | hcp-profile import --db 1.db -
    run hcp-profile show --db 1.db --topology
    [ "${#lines[@]}" -eq 3 ]
    [[ "${lines[0]}" == A*UUID_A*HOST_A*B*UUID_B*HOST_B*BY*LINKS*DETAIL*ORIGIN*RUN ]]
    [[ "${lines[1]}" == gpu-x*GPU-1*left*gpu-x*GPU-2*left*nvlink*18*'NVSwitch, "one" hop'*recorded*r-1 ]]
    [[ "${lines[2]}" == gpu-x*GPU-1*left*gpu-y*right*network*recorded*r-1 ]]
    run hcp-profile show --db 1.db --interference
    [ "${#lines[@]}" -eq 3 ]
    [[ "${lines[1]}" == gpu-x*cudnn*"prefill bf16 32/8x128 b1"*causal*4096*4096*gpu-x*copy*33554432*2.00000*2.00000*1.000*recorded*r-1 ]]
    [[ "${lines[2]}" == gpu-x@mps:50*cudnn*full*4096*8192*gpu-x@mps:10*nccl/4*2.00000*2.50000*1.250*0.10000*0.15000*1.500*30*66*recorded*r-1 ]]
    run hcp-profile show --db 1.db --drift
    [[ "${lines[1]}" == gpu-x*mps:50*cudnn*full*4096*8192*2.00000*2.05000*+2.50*1980*1935*48[12]*recorded*r-1 ]]
    run hcp-profile show --db 1.db --linear
    [ "${#lines[@]}" -eq 3 ]
    [[ "${lines[2]}" == gpu-x*mps:50*cublas*bf16*4096*14336*4096*1.50000*1.40000*1.60000*20*320.7*1755*66*recorded*r-1 ]]
    [[ "$(hcp-profile show --db 1.db --topology --json)" == '[{"device":"gpu-x","device_uuid":"GPU-1","host":"left","peer_device":"gpu-x","peer_uuid":"GPU-2","peer_host":"left","connection":"nvlink","links":18,'*'"links":null,"detail":null,'* ]]
    [[ "$(hcp-profile show --db 1.db --interference --limit mps:50 --json)" == '[{"device":"gpu-x","limit":"mps:50",'*'"peer_limit":"mps:10","transport":"nccl","channels":4,"bytes":33554432,"alone_ms":2,"beside_ms":2.5,"factor":1.25,'*'"transfer_factor":1.4'* ]]
    [[ "$(hcp-profile show --db 1.db --interference --limit '' --json)" == '[{"device":"gpu-x","limit":"",'*'"channels":null,'*'"transfer_alone_ms":null,"transfer_beside_ms":null,"transfer_factor":null,'* ]]
    [[ "$(hcp-profile show --db 1.db --drift --json)" == *'"first_ms":2,"last_ms":2.0500000000000003,"change":0.025'*'"seconds":481.5,'* ]]
    [[ "$(hcp-profile show --db 1.db --linear --json)" == *'"library":"cublas","library_version":"13.0.2","dtype":"bf16","tokens":4096,"n_in":4096,"n_out":14336,"time_ms":1.5,'* ]]
    [[ "$(hcp-profile show --db 1.db --cells --json)" == *'"boosted_ms":1.8,'* ]]
    run hcp-profile show --db 1.db --drift --limit mps:20
    [ "$status" -eq 3 ]
    [[ "$output" == *"no rows of '1.db' match; add some with 'hcp-profile run'"* ]]
    run hcp-profile show --db 1.db --drift --linear
    [ "$status" -eq 2 ]
}

@test "show --links: copies and set channels are not mixed with NCCL's own choice" {
    rows | hcp-profile import --db 1.db -
    run hcp-profile show --db 1.db --links
    [ "${#lines[@]}" -eq 4 ]
    [[ "${lines[1]}" == gpu-x*gpu-x*copy*1*4096-4096* ]]
    [[ "${lines[2]}" == gpu-x*gpu-x*"nccl "*1*4096-4096* ]]
    [[ "${lines[3]}" == gpu-x*gpu-x*nccl/4*1*4096-4096* ]]
    [[ "$(hcp-profile show --db 1.db --links --json)" == *'"channels":null'*'"channels":4'* ]]
    [[ "$(hcp-profile show --db 1.db --links --cells --json)" == *'"channels":4,'* ]]
}

@test "merge: every kind once, conflicts stay as stored" {
    rows | hcp-profile import --db a.db -
    rows | sed 's/"last_ms":2.05[0-9]*/"last_ms":3/; s/"links":18/"links":4/; s/"beside_ms":2.5/"beside_ms":9/; s/"samples":20/"samples":21/' |
        hcp-profile import --db b.db -
    run hcp-profile merge c.db a.db
    [ "${lines[0]}" = "a.db: 12 kept, 0 skipped (already there), 0 in conflict -> c.db" ]
    run hcp-profile merge c.db a.db b.db
    [ "${lines[0]}" = "a.db: 0 kept, 12 skipped (already there), 0 in conflict -> c.db" ]
    [[ "$output" == *"b.db: 0 kept, 8 skipped (already there), 4 in conflict (the stored values stay) -> c.db"* ]]
    hcp-profile export --db a.db >a.csv
    hcp-profile export --db c.db | cmp - a.csv
}
