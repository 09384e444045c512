# SPDX-License-Identifier: Apache-2.0
if HAVE_CMOCKA
check_PROGRAMS += tests/test-db tests/test-db-merge tests/test-db-open tests/test-db-versions tests/test-cli \
	tests/test-db-rows tests/test-db-kinds tests/test-link
TESTS += tests/test-db tests/test-db-merge tests/test-db-open tests/test-db-versions tests/test-cli \
	tests/test-db-rows tests/test-db-kinds tests/test-link
tests_test_db_SOURCES = tests/test-db.c tests/db-fixture.h
tests_test_db_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS) $(SQLITE_CFLAGS)
tests_test_db_LDADD = db/libhcpdb.la $(CMOCKA_LIBS) $(SQLITE_LIBS)
tests_test_db_merge_SOURCES = tests/test-db-merge.c tests/db-fixture.h
tests_test_db_merge_CFLAGS = $(tests_test_db_CFLAGS)
tests_test_db_merge_LDADD = $(tests_test_db_LDADD)
tests_test_db_rows_SOURCES = tests/test-db-rows.c tests/db-fixture.h
tests_test_db_rows_CFLAGS = $(tests_test_db_CFLAGS)
tests_test_db_rows_LDADD = $(tests_test_db_LDADD)
tests_test_db_kinds_SOURCES = tests/test-db-kinds.c tests/db-fixture.h
tests_test_db_kinds_CFLAGS = $(tests_test_db_CFLAGS)
tests_test_db_kinds_LDADD = $(tests_test_db_LDADD)
tests_test_link_SOURCES = tests/test-link.c tests/db-fixture.h
tests_test_link_CFLAGS = $(tests_test_db_CFLAGS)
tests_test_link_LDADD = $(tests_test_db_LDADD) $(LIBM)
tests_test_db_open_SOURCES = tests/test-db-open.c tests/db-file-fixture.h
tests_test_db_open_CFLAGS = $(tests_test_db_CFLAGS)
tests_test_db_open_LDADD = $(tests_test_db_LDADD)
tests_test_db_versions_SOURCES = tests/test-db-versions.c tests/db-file-fixture.h
tests_test_db_versions_CFLAGS = $(tests_test_db_CFLAGS)
tests_test_db_versions_LDADD = $(tests_test_db_LDADD)
tests_test_cli_SOURCES = tests/test-cli.c
tests_test_cli_CFLAGS = $(tests_test_db_CFLAGS) $(JANSSON_CFLAGS)
tests_test_cli_LDADD = db/libhcpcli.la db/libhcpdb.la $(CMOCKA_LIBS)
endif
if HAVE_CMOCKA
check_PROGRAMS += tests/test-interference
TESTS += tests/test-interference
tests_test_interference_SOURCES = tests/test-interference.c tests/db-fixture.h
tests_test_interference_CFLAGS = $(tests_test_db_CFLAGS)
tests_test_interference_LDADD = $(tests_test_db_LDADD) $(LIBM)
endif
check_PROGRAMS += tests/ring-rows
tests_ring_rows_SOURCES = tests/ring-rows.c
tests_ring_rows_LDADD = db/libhcpdb.la
dist_check_SCRIPTS += tests/db-import.bats tests/db-kinds.bats tests/db-ways.bats tests/db-nodes.bats tests/db-errors.bats
TESTS += tests/db-import.bats tests/db-kinds.bats tests/db-ways.bats tests/db-nodes.bats tests/db-errors.bats
