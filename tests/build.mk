# SPDX-License-Identifier: Apache-2.0
dist_check_SCRIPTS += tests/recorded-h200.bats
TESTS += tests/recorded-h200.bats
EXTRA_DIST += tests/data/h200-cudnn-heldout.csv tests/data/h200-wgmma-heldout.csv
