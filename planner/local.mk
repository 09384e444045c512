# SPDX-License-Identifier: Apache-2.0
PLAN_SOURCES = planner/hcpplan.h planner/plan.h planner/cost.h planner/json-in.h \
	planner/links.h planner/memory.h planner/ring.h planner/models.c planner/bind.h \
	planner/bind.c planner/bind-missing.c planner/init.c planner/api.c planner/answer.c planner/decision.h \
	planner/strategies.h planner/strategies.c planner/strategy-splits.c planner/round.c \
	planner/sort.c planner/solve.h planner/solve-equal.c planner/solve-search.c \
	planner/solve-exact.c planner/reach.c planner/order.c planner/links.c planner/eval.c \
	planner/memo.c planner/few.c planner/tally.c planner/ring.c planner/rings.c \
	planner/ring-wide.c planner/ring-lanes.h planner/ring-pieces.c planner/eval-pieces.c \
	planner/cost.c planner/layer-cost.c planner/memory.c planner/memory-room.c \
	planner/memory-forward.c planner/scratch.c planner/names.c planner/json.c \
	planner/plan-write.c planner/plan-read.h planner/plan-read.c planner/plan-read-rank.c \
	planner/json-members.h planner/json-members.c planner/plan-check.c planner/late.c \
	planner/ring-late.c planner/joint.h planner/joint.c planner/joint-ring.c \
	planner/joint-search.c planner/joint-memory.c planner/joint-answer.c planner/decode.h \
	planner/decode.c planner/decode-solve.c planner/merge.c planner/moves.c \
	planner/json-out.h planner/hash.h planner/carve.h planner/documents.h \
	planner/documents.c planner/documents-eval.c planner/documents-search.c \
	planner/documents-fill.c planner/documents-exact.c planner/documents-report.c \
	planner/documents-write.c planner/documents-read.c planner/rescale.c \
	planner/rebalance.h planner/rebalance.c planner/rebalance-speed.c \
	planner/rebalance-decide.c planner/rebalance-text.c planner/specs.h planner/specs.c \
	planner/estimate.c planner/estimate-scale.c planner/moves.h planner/disagg.h \
	planner/disagg.c planner/disagg-groups.c planner/disagg-search.c \
	planner/disagg-answer.c planner/disagg-advise.c planner/chunks.h planner/chunks.c \
	planner/chunks-eval.c planner/chunks-solve.c planner/chunks-run.c \
	planner/chunks-exact.c planner/chunks-report.c planner/chunks-write.c \
	planner/chunks-read.c

# All of it but the export list: the library is made of this, and unit tests that look
# inside link it.
noinst_LTLIBRARIES += planner/libhcpplancore.la
planner_libhcpplancore_la_SOURCES = $(PLAN_SOURCES)

lib_LTLIBRARIES += planner/libhcpplan.la
include_HEADERS += planner/hcpplan.h
pkgconfig_DATA += planner/libhcpplan.pc
EXTRA_DIST += planner/hcpplan.sym

# Version: code changed, interface as before: C:R+1:A. Interface added: C+1:0:A+1.
# Interface changed or removed: C+1:0:0.
planner_libhcpplan_la_SOURCES =
planner_libhcpplan_la_LDFLAGS = -version-info 1:0:0 -no-undefined \
	-export-symbols $(srcdir)/planner/hcpplan.sym
planner_libhcpplan_la_LIBADD = planner/libhcpplancore.la fit/libhcpmodel.la \
	kernels/libhcpgeometry.la db/libhcpdb.la $(SQLITE_LIBS) $(LIBM)
EXTRA_planner_libhcpplan_la_DEPENDENCIES = planner/hcpplan.sym

# The only binary that links GSL; no CUDA in it.
bin_PROGRAMS += planner/hcp-plan
planner_hcp_plan_SOURCES = planner/hcp-plan.c planner/commands.h planner/cmd-fit.c \
	planner/options.h planner/options.c planner/per-rank.c planner/layer-measured.h \
	planner/layer-measured.c planner/session.c planner/session-layer.c \
	planner/session-link.c planner/move-link.c planner/hosts.c \
	planner/links-file.c planner/text.c planner/text-decode.c \
	planner/cmd-split.c planner/cmd-compare.c planner/cmd-predict.c planner/cmd-simulate.c planner/plan-file.c planner/cmd-transition.c \
	planner/documents-session.c planner/documents-list.c planner/documents-text.c \
	planner/specs-session.c planner/cmd-specs.c \
	planner/cmd-disaggregate.c planner/disagg-text.c \
	planner/cmd-rebalance.c planner/rebalance-trace.h planner/rebalance-trace.c \
	planner/rebalance-replay.h planner/rebalance-replay.c \
	planner/chunks-session.c planner/chunks-text.c
planner_hcp_plan_CFLAGS = $(AM_CFLAGS) $(SMARTCOLS_CFLAGS) $(JANSSON_CFLAGS) $(GSL_CFLAGS)
planner_hcp_plan_LDADD = planner/libhcpplan.la fit/libhcpdecode.la fit/libhcpfit.la fit/libhcpmodel.la db/libhcpcli.la db/libhcpdb.la \
	$(GSL_LIBS) $(LIBM)
