# SPDX-License-Identifier: Apache-2.0
# Kernels of users: the template, hcp-profile conform, hcp-provider(7).
check_LTLIBRARIES += tests/plugin-template.la
tests_plugin_template_la_SOURCES = kernels/plugin-template.c
tests_plugin_template_la_CPPFLAGS = $(plugin_cppflags)
tests_plugin_template_la_LDFLAGS = $(plugin_ldflags)
tests_plugin_template_la_LIBADD = $(LIBM)
$(tests_plugin_template_la_OBJECTS): tests/include/hcp/provider.h

provider_scripts = tests/provider-conform.bats tests/provider-man.sh
dist_check_SCRIPTS += $(provider_scripts)
TESTS += $(provider_scripts)
EXTRA_DIST += tests/provider-installed.sh tests/fa3/cuda_runtime_api.h \
	tests/fa3/cutlass/numeric_types.h tests/fa3/flash.h tests/fa3/tile_size.h
