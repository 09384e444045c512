#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The profiler on a real GPU: limits proven, cells stored, a kill survived, nothing
# left behind. Skips without a GPU. TAP.
set -u
echo 1..17
n=0
ok() { # ok STATUS NAME
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
if ! hcp-profile devices --json 2>/dev/null | grep -q '"device": *"cuda:0"'; then
    while [ $n -lt 17 ]; do n=$((n + 1)); echo "ok $n # SKIP no CUDA device"; done
    exit 0
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
HCP_DB=$dir/gpu.db
export HCP_DB
ours() { # MPS processes started with a pipe directory of hcp-profile
    for p in /proc/[0-9]*; do
        grep -q '^nvidia-cuda-mps' "$p/comm" 2>/dev/null &&
            tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -q 'CUDA_MPS_PIPE_DIRECTORY=.*hcp-mps-' &&
            echo "${p#/proc/}"
    done
}
column() { # column NAME: its values, a stored cell a line
    hcp-profile export --format jsonl 2>/dev/null |
        sed -n 's/.*"'"$1"'":\("\([^"]*\)"\|\([^,}]*\)\).*/\2\3/p'
}

hcp-profile devices | sed 's/^/# /'
hcp-profile devices | grep -q '^mps:PCT *yes'
ok $? 'a client under mps:50 is limited'

cells='--device cuda:0 --q-lens 512,4096 --kv-lens 1K,16K --causal-lens 4K'
# shellcheck disable=SC2086
hcp-profile run --limits mps:10,mps:50,mps:100 $cells 2>"$dir/err" >"$dir/out"
ok $? 'three levels, five cells each'
sed 's/^/# /' "$dir/err" "$dir/out"
[ "$(column status | grep -c ok)" -eq 15 ]
ok $? 'fifteen cells are stored'

column sm_seen | sort -n | uniq -c | sed 's/^/# SMs: /'
[ "$(column sm_seen | sort -u | wc -l)" -eq 3 ]
ok $? 'each level saw its own number of SMs'
max=$(column sm_count | sort -n | tail -1)
low=$(column sm_seen | sort -n | head -1)
[ "$low" -gt 0 ] && [ $((low * 10)) -le $((max + 10)) ] &&
    [ "$(column sm_seen | sort -n | tail -1)" -eq "$max" ]
ok $? 'mps:10 saw at most a tenth, mps:100 all'
[ "$(column check_result | grep -c '^passed')" -eq 15 ]
ok $? 'the kernel passed its conformance check first'
column method | sort | uniq -c | sed 's/^/# method: /'
column note | sort | uniq -c | sed 's/^/# note: /'
[ "$(column cupti_ms | grep -c '[0-9]')" -ge 12 ]
ok $? 'CUPTI times stand beside the events'
sleep 1
[ -z "$(ours)" ]
ok $? 'no MPS daemon or server is left'

# SIGKILL in mid-sweep, then the same command again.
set -- --limits mps:20,mps:60 --device cuda:0 --max-len 8K
hcp-profile run "$@" 2>/dev/null >/dev/null &
pid=$!
i=0
while [ "$(column status | grep -c ok)" -lt 25 ] && [ $i -lt 120 ]; do
    sleep 0.5
    i=$((i + 1))
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
before=$(column status | grep -c ok)
echo "# $((before - 15)) cells were stored when it was killed"
sleep 12
[ -z "$(ours)" ]
ok $? 'the guard stopped the daemon of a killed run'
hcp-profile run "$@" 2>"$dir/err" >"$dir/out"
ok $? 'the same command goes on'
sed 's/^/# /' "$dir/err" "$dir/out"
[ -z "$(hcp-profile export --format jsonl |
    sed 's/.*"limit":\("[^"]*"\).*"mask":\("[^"]*"\),"q_len":\([0-9]*\),"kv_len":\([0-9]*\).*/\1 \2 \3 \4/' |
    sort | uniq -d)" ]
ok $? 'no cell was measured twice'
sleep 1
[ -z "$(ours)" ] && [ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'hcp-mps-*' -user "$(id -u)")" ]
ok $? 'no daemon and no directory is left'

# cuDNN writes bf16 and merges nothing: two kinds of passes. A kernel that accumulates has
# what that adds in the place of the merge.
hcp-profile export --format jsonl |
    sed -n 's/.*"limit":"\([^"]*\)".*"q_len":\([0-9]*\),"time_ms":\([^,]*\),.*"kind":"\(store\|merge\)".*/# finish: \1 \4 \2 \3 ms/p'
passes=$(hcp-profile export --format jsonl | grep -c '"kind":"\(store\|merge\)"')
case $(column provider | sort -u) in
cudnn) least=20 ;; # two kinds, at least two lengths, five limits
*) least=10 ;;
esac
[ "$passes" -ge $least ]
ok $? 'finish passes are timed at every limit'

# Two GPUs: NCCL, whole and limited.
if ! command -v mpirun >/dev/null || ! hcp-profile devices --json | grep -q '"device": *"cuda:1"'; then
    ok 0 'transfers between two GPUs # SKIP not two GPUs, or no mpirun'
    ok 0 'channels of NCCL: more of them are faster # SKIP'
    ok 0 'copy engines do not mind a limit # SKIP'
    ok 0 'no MPS daemon or server is left # SKIP'
    exit 0
fi
hcp-profile link --sizes 4K..64M --limits 100/100,100/10,none/none 2>"$dir/err" >"$dir/out"
ok $? 'transfers between two GPUs'
sed 's/^/# /' "$dir/err" "$dir/out"
hcp-profile link --sizes 64M --limits 100/100 --channels 1,4 --db "$dir/c.db" 2>"$dir/err" >"$dir/out"
sed 's/^/# /' "$dir/err" "$dir/out"
awk '$6 == 1 { one = $8 } $6 == 4 { four = $8 } END { exit !(four > 0 && one > 1.5 * four) }' "$dir/out"
ok $? 'channels of NCCL: more of them are faster'
hcp-profile link --sizes 64M --limits 100/100,100/10 --transport copy --db "$dir/c.db" 2>"$dir/err" >"$dir/out"
sed 's/^/# /' "$dir/err" "$dir/out"
awk '$4 == "mps:100" { all = $8 } $4 == "mps:10" { few = $8 } END { exit !(all > 0 && few < 1.1 * all) }' "$dir/out"
ok $? 'copy engines do not mind a limit'
sleep 1
[ -z "$(ours)" ]
ok $? 'no MPS daemon or server is left'
