# SPDX-License-Identifier: Apache-2.0
kernel_tests = tests/test-geometry tests/test-merge tests/test-runtime tests/test-kernels \
	tests/test-conformance \
	tests/test-attention tests/test-plugin tests/test-preference
if HAVE_CMOCKA
check_PROGRAMS += $(kernel_tests)
TESTS += $(kernel_tests)
endif

tests_test_geometry_SOURCES = tests/test-geometry.c
tests_test_geometry_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_geometry_LDADD = kernels/libhcpgeometry.la $(CMOCKA_LIBS)

tests_test_merge_SOURCES = tests/test-merge.c
tests_test_merge_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_merge_LDADD = kernels/libhcpkernels.la $(CMOCKA_LIBS) $(LIBM)

tests_test_runtime_SOURCES = tests/test-runtime.c
tests_test_runtime_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_runtime_LDADD = kernels/libhcpkernels.la $(CMOCKA_LIBS)

tests_test_attention_SOURCES = tests/test-attention.c tests/faulty-provider.c \
	tests/faulty-provider.h
tests_test_attention_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_attention_LDADD = kernels/libhcpkernels.la $(CMOCKA_LIBS) $(LIBM)

tests_test_conformance_SOURCES = tests/test-conformance.c tests/faulty-provider.c \
	tests/faulty-provider.h
tests_test_conformance_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_conformance_LDADD = kernels/libhcpkernels.la $(CMOCKA_LIBS) $(LIBM)

# Counts what run() allocates, of our own objects only.
tests_test_kernels_SOURCES = tests/test-kernels.c tests/faulty-provider.c tests/faulty-provider.h
tests_test_kernels_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_kernels_LDADD = kernels/libhcpkernels.la $(CMOCKA_LIBS) $(LIBM)
tests_test_kernels_LDFLAGS = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign

tests_test_plugin_SOURCES = tests/test-plugin.c
tests_test_plugin_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_plugin_LDADD = kernels/libhcpkernels.la $(CMOCKA_LIBS)

tests_test_preference_SOURCES = tests/test-preference.c
tests_test_preference_CFLAGS = $(AM_CFLAGS) $(CMOCKA_CFLAGS)
tests_test_preference_LDADD = kernels/libhcpkernels.la $(CMOCKA_LIBS)

# Plug-ins see the header where it is installed, and nothing else of ours.
# -rpath makes libtool build a shared object although it is not installed.
check_LTLIBRARIES += tests/plugin-example.la tests/plugin-bad.la tests/plugin-nosymbol.la
plugin_cppflags = -I$(top_builddir)/tests/include
plugin_ldflags = -module -avoid-version -shared -rpath /nowhere
tests_plugin_example_la_SOURCES = tests/plugin-example.c
tests_plugin_example_la_CPPFLAGS = $(plugin_cppflags)
tests_plugin_example_la_LDFLAGS = $(plugin_ldflags)
tests_plugin_example_la_LIBADD = $(LIBM)
tests_plugin_bad_la_SOURCES = tests/plugin-bad.c
tests_plugin_bad_la_CPPFLAGS = $(plugin_cppflags)
tests_plugin_bad_la_LDFLAGS = $(plugin_ldflags)
tests_plugin_nosymbol_la_SOURCES = tests/plugin-nosymbol.c
tests_plugin_nosymbol_la_CPPFLAGS = $(plugin_cppflags)
tests_plugin_nosymbol_la_LDFLAGS = $(plugin_ldflags)

tests/plugin_example_la-plugin-example.lo tests/plugin_bad_la-plugin-bad.lo: \
	tests/include/hcp/provider.h
tests/include/hcp/provider.h: kernels/provider.h
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp -f $(srcdir)/kernels/provider.h $@
CLEANFILES += tests/include/hcp/provider.h
