# SPDX-License-Identifier: Apache-2.0
# What `make bench-chart` draws: latency and memory of hcp_plan_split() against the number
# of ranks. gnuplot -e "data='latency.csv'; picture='latency.svg'" planner/latency.gp
if (!exists("data")) data = "latency.csv"
if (!exists("picture")) picture = "latency.svg"
set terminal svg size 760,460 font "sans,12"
set output picture
set datafile separator ","
set key top left autotitle columnhead
set logscale xy 2
set logscale y 10
set logscale y2 10
set format x "%.0f"
set xlabel "ranks"
set ylabel "us a decision (median)"
set y2label "bytes"
set ytics nomirror
set y2tics
set grid xtics ytics
plot data using 1:2 with linespoints, \
     data using 1:3 with linespoints, \
     data using 1:4 with linespoints, \
     data using 1:5 with linespoints, \
     data using 1:6 with linespoints, \
     data using 1:7 axes x1y2 with lines dashtype 2, \
     data using 1:8 axes x1y2 with lines dashtype 3
