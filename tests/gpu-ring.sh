#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hcp-ring on two GPUs: results verified in every layout, memory and races of a small run
# under compute-sanitizer. One GPU is shared by both ranks, which NCCL takes for ranks of two
# hosts then. Skips without a GPU. TAP.
set -u
points=9
echo 1..$points
n=0
ok() { # ok STATUS NAME
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
gpus=$(hcp-profile devices --json 2>/dev/null |
    grep -o '"device":"cuda:[0-9]*","name":"[^"]*"' | sort -u | cut -d'"' -f8)
slug=$(printf '%s\n' "$gpus" | head -n 1)
if [ -z "$slug" ] || ! command -v mpirun >/dev/null; then
    while [ $n -lt $points ]; do n=$((n + 1)); echo "ok $n # SKIP no GPU, or no mpirun"; done
    exit 0
fi
# shellcheck source=tests/gpu-shared.sh
. "$(dirname "$0")/gpu-shared.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# The kernel that profiles of this GPU are of.
kernel=${HCP_RING_KERNEL:-$(hcp-profile run --dry-run --db "$dir/none.db" --device cuda:0 --limits none \
    --q-lens 4K --kv-lens 4K --causal-lens none 2>&1 >/dev/null | sed -n 's/.*, kernel \([^ ]*\) .*/\1/p')}
# Any times will do: plans for the whole devices, of given tokens.
hcp-profile run --db "$dir/m.db" --device "synthetic:name=$slug" --limits none --max-len 8K >/dev/null 2>&1
hcp-plan fit --quiet --db "$dir/m.db"
plan() { # MASK LAYOUT TOKENS FILE
    total=$(($(echo "$3" | tr , +)))
    hcp-plan split --db "$dir/m.db" --ranks "$slug,$slug" --seq-len $total --mask "$1" --layout "$2" \
        --tokens "$3" --extrapolate --json >"$dir/$4"
}
for case in full/contiguous causal/contiguous causal/zigzag causal/striped; do
    plan "${case%/*}" "${case#*/}" 3001,1095 a.json
    plan "${case%/*}" "${case#*/}" 77,1300 b.json
    ring --plan "$dir/a.json" --plan "$dir/b.json" --provider "$kernel" \
        --transport nccl --verify --repeat 3 --sub-blocks 2 >"$dir/out" 2>&1
    status=$?
    sed 's/^/# /' "$dir/out"
    ok $status "$case: verified over NCCL, $kernel"
done

# What else a plan can be: a pack of documents, a prompt in chunks; and a rank that is lost.
run() { # NAME HCP-RING-OPTION...
    name=$1
    shift
    ring "$@" --provider "$kernel" --transport nccl --verify >"$dir/out" 2>&1
    status=$?
    sed 's/^/# /' "$dir/out"
    ok $status "$name"
}
hcp-plan split --db "$dir/m.db" --ranks "$slug,$slug" --mask causal --documents 700,6000,90,1100 --extrapolate \
    --json >"$dir/documents.json"
run 'packed documents' --plan "$dir/documents.json" --repeat 3
hcp-plan split --db "$dir/m.db" --ranks "$slug,$slug" --mask causal --seq-len 4096 --chunks 1000,2000,1096 \
    --extrapolate --json >"$dir/chunks.json"
run 'a prompt in chunks' --plan "$dir/chunks.json" --repeat 3
# On one GPU as MPS clients: ranks that take turns on it have not come to an end after that.
lost=$slug,$slug
if [ "$shared" -eq 1 ]; then
    lost=$slug@mps:45,$slug@mps:45
    hcp-profile run --db "$dir/m.db" --device "synthetic:name=$slug" --limits mps:45 --max-len 8K >/dev/null 2>&1
    hcp-plan fit --quiet --db "$dir/m.db"
fi
hcp-plan split --db "$dir/m.db" --ranks "$lost" --seq-len 4096 --mask causal --layout zigzag --tokens 3001,1095 \
    --extrapolate --json >"$dir/lost.json"
run 'a rank is lost in mid-pass, the other goes on' --db "$dir/m.db" --plan "$dir/lost.json" --rebalance \
    --extrapolate --move-ms 1e9 --repeat 8 --fail 1@3:1

# A vendor's library asks for kernels that it does not have and is answered so; that is no
# error of memory. Kernels of ours under racecheck: those of cuDNN are not ours to mend.
plan causal zigzag 160,96 small.json
sanitize() { # TOOL KERNEL
    two timeout 600 compute-sanitizer --tool "$1" --report-api-errors no \
        hcp-ring --plan "$dir/small.json" --provider "$2" --transport nccl --verify --repeat 1 --warm-up 0 \
        --timeout 300 >"$dir/out" 2>&1 &&
        [ "$(grep -cE 'SUMMARY: 0 (errors|hazards)' "$dir/out")" -eq 2 ]
    status=$?
    [ $status -eq 0 ] || sed 's/^/# /' "$dir/out" | head -n 80
    return $status
}
if command -v compute-sanitizer >/dev/null; then
    sanitize memcheck "$kernel"
    ok $? 'memcheck finds nothing'
    sanitize racecheck cuda-reference
    ok $? 'racecheck finds nothing in our kernels'
else
    for tool in memcheck racecheck; do n=$((n + 1)); echo "ok $n # SKIP $tool: no compute-sanitizer"; done
fi
