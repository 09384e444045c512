# SPDX-License-Identifier: Apache-2.0
# SQLite side: no other library, so that libhcpplan can hold it.
noinst_LTLIBRARIES += db/libhcpdb.la
db_libhcpdb_la_SOURCES = db/error.c db/error.h db/parse.c db/parse.h db/db.h \
	db/db-internal.h db/columns.h db/columns.c db/peak.c db/cell.c db/check.c db/db-open.c \
	db/db-sql.c db/rows.c db/rows-db.c db/db-put.c db/db-read.c db/db-model.c db/db-run.c \
	db/db-bandwidth.c db/db-finish.c db/db-link.c db/interference.h db/interference.c db/db-topology.c db/db-interference.c db/db-drift.c \
	db/db-linear.c db/db-ring.c db/link.c db/link-curve.c db/merge.c
db_libhcpdb_la_SOURCES += db/layer.h db/layer.c db/layer-table.c db/linear.c
nodist_db_libhcpdb_la_SOURCES = db/schema-sql.h
db_libhcpdb_la_CFLAGS = $(AM_CFLAGS) $(SQLITE_CFLAGS)
db_libhcpdb_la_LIBADD = $(SQLITE_LIBS) $(LIBM)

# What is wrong with a profile, and what changed between two: for programs only.
noinst_LTLIBRARIES += db/libhcpaudit.la
db_libhcpaudit_la_SOURCES = db/audit.h db/audit-internal.h db/audit.c db/audit-rules.c db/audit-rows.c \
	db/audit-mend.c db/audit-cover.c db/compare.h db/compare.c
db_libhcpaudit_la_CFLAGS = $(AM_CFLAGS) $(SQLITE_CFLAGS)
db_libhcpaudit_la_LIBADD = db/libhcpdb.la $(SQLITE_LIBS) $(LIBM)

# Command line side: options, tables, JSON, CSV.
noinst_LTLIBRARIES += db/libhcpcli.la
db_libhcpcli_la_SOURCES = db/cli.h db/cli.c db/cli-shape.c db/cli-main.c db/cli-table.c db/cli-json.c \
	db/cli-filter.c db/cli-db.c db/csv.h db/csv.c db/text.h db/text-internal.h db/text-columns.c db/text-row.c \
	db/text-load.c db/text-json.c db/text-write.c db/text-open.c \
	db/text-store.c
db_libhcpcli_la_CFLAGS = $(AM_CFLAGS) $(SMARTCOLS_CFLAGS) $(JANSSON_CFLAGS) $(SQLITE_CFLAGS)
db_libhcpcli_la_LIBADD = db/libhcpdb.la $(SMARTCOLS_LIBS) $(JANSSON_LIBS)

# The steps of the schema as C strings, comments and all.
BUILT_SOURCES += db/schema-sql.h
CLEANFILES += db/schema-sql.h
EXTRA_DIST += db/schema.sql db/schema-2.sql db/schema-3.sql db/schema-4.sql
db/schema-sql.h: $(srcdir)/db/schema.sql $(srcdir)/db/schema-2.sql \
	$(srcdir)/db/schema-3.sql $(srcdir)/db/schema-4.sql
	$(AM_V_GEN)$(MKDIR_P) db && for step in schema schema-2 schema-3 schema-4; do \
	echo "static const char hcp_$${step}_sql[] =" | tr - _; \
	$(SED) -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $(srcdir)/db/$$step.sql; echo ';'; \
	done >$@.tmp && mv $@.tmp $@
# BUILT_SOURCES serve `make all` only; this serves `make db/libhcpdb.la` too.
$(db_libhcpdb_la_OBJECTS): db/schema-sql.h

# Recorded machines, installed as pkgdatadir/profiles/NAME.csv.
profilesdir = $(pkgdatadir)/profiles
dist_profiles_DATA = db/profiles/nvidia-h200.csv db/profiles/nvidia-h200-fa2.csv \
	db/profiles/nvidia-h200-cudnn.csv db/profiles/nvidia-h200-cudnn919.csv \
	db/profiles/nvidia-h200-sdpa.csv db/profiles/nvidia-h200-links.csv \
	db/profiles/nvidia-h200-linear.csv db/profiles/nvidia-h200-decode.csv
EXTRA_DIST += db/profiles/convert-recorded

# Shapes of known models, with where each is from.
dist_pkgdata_DATA = db/models.txt

# Data sheets of GPUs that nobody has profiled: planner/specs.h.
dist_pkgdata_DATA += db/specs.txt
