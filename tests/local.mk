# SPDX-License-Identifier: Apache-2.0
# Each area registers its tests in a file of its own.
include tests/kernels.mk
include tests/provider.mk
include tests/cuda.mk
include tests/db.mk
include tests/fit.mk
include tests/plan.mk
include tests/profile.mk
include tests/ring.mk
include tests/linear.mk
include tests/bench.mk
include tests/build.mk

# Everything speaks TAP; `make check` reads it through automake's TAP driver.
TEST_EXTENSIONS = .bats .sh
TAP_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
LOG_DRIVER = $(TAP_DRIVER)
LOG_COMPILER = $(SHELL) $(top_srcdir)/tests/unit.sh
EXTRA_DIST += tests/unit.sh
SH_LOG_DRIVER = $(TAP_DRIVER)
SH_LOG_COMPILER = $(SHELL)
BATS_LOG_DRIVER = $(TAP_DRIVER)
if HAVE_BATS
BATS_LOG_COMPILER = $(BATS)
AM_BATS_LOG_FLAGS = --tap
else
BATS_LOG_COMPILER = $(SHELL) -c 'echo "1..0 \# SKIP bats is not installed"'
endif
AM_TESTS_ENVIRONMENT = \
	CMOCKA_MESSAGE_OUTPUT=TAP; export CMOCKA_MESSAGE_OUTPUT; \
	srcdir='$(srcdir)'; export srcdir; \
	top_srcdir='$(abs_top_srcdir)'; export top_srcdir; \
	top_builddir='$(abs_top_builddir)'; export top_builddir; \
	HCP_PROFILES='$(abs_top_srcdir)/db/profiles'; export HCP_PROFILES; \
	HCP_MODELS='$(abs_top_srcdir)/db/models.txt'; export HCP_MODELS; \
	HCP_SPECS='$(abs_top_srcdir)/db/specs.txt'; export HCP_SPECS; \
	PATH='$(abs_top_builddir)/profiler:$(abs_top_builddir)/planner:$(abs_top_builddir)/executor:'"$$PATH"; export PATH;

# For .ci/run, which runs a part of them in some builds.
.PHONY: list-tests
list-tests:
	@echo $(TESTS)
