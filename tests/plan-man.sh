#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hcp-plan(1) and libhcpplan(3) say what the programs and the header say: every option of
# --help is in the page and the other way round, every JSON key printed is described,
# every function of the header has its prototype, and the examples of the page run.
program=hcp-plan
# shellcheck source=tests/man.sh
. "${top_srcdir:?}/tests/man.sh"

echo 1..5
check_options fit predict split compare simulate transition specs disaggregate \
    rebalance

check_examples 32

: >"$tmp/json"
(
    cd "$tmp/dir" || exit 1
    r='nvidia-h200@mps:100,nvidia-h200@mps:10'
    hcp-plan split --db h.db --ranks $r --seq-len 8K --layout striped --mask causal \
        --max-tokens 8K --json
    hcp-plan simulate --db h.db --ranks $r --seq-len 8K --json
    echo 'both 0 1 10 50' >pair
    hcp-plan split --db h.db --ranks $r --seq-len 8K --links pair --reorder --json
    hcp-plan simulate --db h.db --ranks $r --seq-len 8K --linear-us 0.1+2:0.5 --json
    hcp-plan split --db h.db --ranks $r --seq-len 8K --linear-us 0.1+2:0.5 --json
    hcp-plan split --db h.db --ranks $r --seq-len 8K --late-kv --json
    hcp-plan simulate --db h.db --ranks $r --seq-len 8K --joint --json
    hcp-plan split --db h.db --ranks $r --seq-len 8K --joint --json
    hcp-plan split --db h.db --ranks $r --seq-len 8K --memory 1G --weights 1=9M --json
    hcp-plan split --db h.db --ranks '4*nvidia-h200@mps:100' --seq-len 8K --node-ranks 2 \
        --double-ring --json
    hcp-plan split --db h.db --ranks $r --seq-len 8K --phase decode --json
    hcp-plan transition --db h.db --from prefill.json --to decode.json --steps 2000 --json
    hcp-plan disaggregate --db h.db --ranks $r --seq-len 8K --batch 8 --steps 500 --json
    hcp-plan split --db h.db --ranks $r --mask causal --documents 8K,300,4000 \
        --memory 1G --weights 1=9M --max-tokens 8K --linear-us 0.1+2:0.5 --json
    sed '/^21,1,/s/,[^,]*$/,failed/' run.csv |
        hcp-plan rebalance --db h.db --plan run.json --trace - --json
    hcp-plan split --db h.db --ranks $r --mask causal --seq-len 8K --chunk-budget 1 \
        --memory 1G --weights 1=9M --max-tokens 8K --linear-us 0.1+2:0.5 --json
    hcp-plan predict --db h.db --ranks $r --q-len 512 --kv-len 512 --json
    hcp-plan specs --json
    hcp-plan predict --db h.db --ranks spec:a100 --q-len 512 --kv-len 512 --json
    hcp-plan split --db h.db --ranks spec:a100,$r --seq-len 8K --json
    hcp-plan fit --db h.db --json
) >"$tmp/json" 2>"$tmp/complained"
sed -n '/^\.Sh JSON/,/^\.Sh THE RING/p' "$page" | grep '^\.\(It \)\{0,1\}Cm' | tr ' ' '\n' |
    sort -u >"$tmp/described"
grep -o '"[a-z_]*":' "$tmp/json" | tr -d '":' | sort -u | comm -23 - "$tmp/described" \
    >"$tmp/bad"
test -s "$tmp/json" || echo "nothing printed" >"$tmp/bad"
check "every JSON key is described" "$tmp/bad"

sort "$top_srcdir/planner/hcpplan.sym" >"$tmp/functions"
sed -n 's/^\.F[no] \(hcp_[a-z_]*\).*/\1/p' "$top_srcdir/man/libhcpplan.3" | sort -u |
    comm -3 "$tmp/functions" - >"$tmp/bad"
check "libhcpplan(3) has every function, and no other" "$tmp/bad"

check_mandoc "$page" "$top_srcdir/man/libhcpplan.3"
