# SPDX-License-Identifier: Apache-2.0
# The table of ring-table.sh, reproduce-n.sh and its summary from the rows of study.sh, read
# twice. given: what a split of given tokens is, 'one alone' if it is not said:
# limits strategy seq_len mask layout measured_ms interval_ms predicted_ms error_%
# of_bound tokens best
function abs(x) { return x < 0 ? -x : x }
function place() { return $1 " " $4 " " $5 " " $3 }

BEGIN { if (given == "") given = "one alone" }

{ group = $1 SUBSEP $3 SUBSEP $4 SUBSEP $5 }

FNR == NR {
    if ($12) best_ms[group] = $6
    else if ($2 == "even") even_ms[group] = $6
    else if ($2 == "given" && given == "one alone") alone_ms[group] = $6
    else if ($2 == "given") given_ms[group] = $6
    else if ($2 == "best") plan_ms[group] = $6
    if ($3 > longest) longest = $3
    next
}

FNR == 1 {
    form = "| %-9s | %7s | %-6s | %-10s | %-12s | %-15s | %11s | %-19s | %12s |"
    form = form " %7s | %9s | %9s | %10s |\n"
    printf form, "limits", "seq_len", "mask", "layout", "strategy", "tokens", \
        "measured_ms", "interval_ms", "predicted_ms", "error_%", \
        "even/this", "this/best", "bound/this"
    line = sprintf(form, "", "", "", "", "", "", "", "", "", "", "", "", "")
    gsub(/ /, "-", line)
    gsub(/-\|-/, " | ", line)
    sub(/^\|-/, "| ", line)
    sub(/-\|\n$/, " |\n", line)
    printf "%s", line
}

{
    strategy = $12 ? "best found" : $2 == "given" ? given : $2
    printf form, $1, $3, $4, $5, strategy, $11, $6, $7, $8, $9, \
        group in even_ms ? sprintf("%.3f", even_ms[group] / $6) : "-", \
        group in best_ms ? sprintf("%.3f", $6 / best_ms[group]) : "-", $10
}

# Equal splits are one measurement: they count once.
$9 != "-" && !((group, $11) in counted) {
    counted[group, $11] = 1
    error = abs($9)
    n_all++
    sum_all += error
    if (error >= worst_all) { worst_all = error; worst_all_at = place() " " $11 }
    if ($3 >= 16384) {
        n_long++
        sum_long += error
        if (error >= worst_long) { worst_long = error; worst_long_at = place() " " $11 }
    }
}

$2 == "best" && !$12 {
    if (group in best_ms) {
        ratio = $6 / best_ms[group]
        if (!($3 in n_ratio)) lengths[++n_lengths] = $3
        n_ratio[$3]++
        if (ratio > worst_ratio[$3]) { worst_ratio[$3] = ratio; ratio_at[$3] = place() }
    }
    least = ""
    if (group in even_ms) least = even_ms[group]
    if (group in alone_ms && (least == "" || alone_ms[group] < least))
        least = alone_ms[group]
    if (least != "") {
        n_safe++
        if ($6 > 1.02 * least)
            unsafe[++n_unsafe] = sprintf("%s: %.3f x", place(), $6 / least)
    }
    if ($3 == longest && $4 == "full" && $10 != "-") {
        n_bound++
        sum_bound += $10
        if (n_bound == 1 || $10 < least_bound) { least_bound = $10; bound_at = place() }
    }
    if (group in given_ms)
        over_given[++n_given] = sprintf("%s: %.3f", place(), given_ms[group] / $6)
    split($1, limit, "/")
    if ((limit[1] == limit[2] || $1 ~ /^all-/) && $4 == "causal" &&
        $5 == "contiguous" && group in even_ms)
        gain[++n_gain] = sprintf("%s: %.3f", place(), even_ms[group] / $6)
}

END {
    print ""
    print "measured_ms: median over passes of the slowest rank; interval_ms: its 95 %"
    print "interval; error_% = 100 (predicted / measured - 1); even/this: gain over the"
    print "even split; this/best: measured / measured of the best split found;"
    print "bound/this: bound / measured." (given != "one alone" ? "" : \
        " One alone: the whole sequence on the rank with the\nlarger limit.")
    print ""
    if (n_all)
        printf "- Prediction error, all %d splits: mean %.1f %%, " \
            "largest %.1f %% (%s)\n", n_all, sum_all / n_all, worst_all, worst_all_at
    if (n_long)
        printf "- Prediction error, %d splits of 16K tokens and more: mean %.1f %%, " \
            "largest %.1f %% (%s)\n", n_long, sum_long / n_long, worst_long, worst_long_at
    for (i = 1; i <= n_lengths; i++)
        printf "- `best` / best found at %d tokens: largest %.3f (%s), of %d\n", \
            lengths[i], worst_ratio[lengths[i]], ratio_at[lengths[i]], n_ratio[lengths[i]]
    printf "- `best` over 1.02 times the even split%s: %d of %d\n", \
        given == "one alone" ? " or one rank alone" : "", n_unsafe, n_safe
    for (i = 1; i <= n_unsafe; i++) printf "  - %s\n", unsafe[i]
    if (n_bound)
        printf "- bound / measured of `best` at %d tokens, full mask: least %.3f (%s), " \
            "mean %.3f\n", longest, least_bound, bound_at, sum_bound / n_bound
    for (i = 1; i <= n_gain; i++)
        printf "- Gain over even on equal limits, causal contiguous: %s\n", gain[i]
    for (i = 1; i <= n_given; i++)
        printf "- Gain over the split of %s: %s\n", given, over_given[i]
}
