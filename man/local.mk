# SPDX-License-Identifier: Apache-2.0
# dist_man_MANS grows by a line a page.
dist_man_MANS += man/hcp-db.5
dist_man_MANS += man/hcp-profile.1
dist_man_MANS += man/hcp-plan.1
dist_man_MANS += man/libhcpplan.3
dist_man_MANS += man/hcp-provider.7
if HAVE_MPI
dist_man_MANS += man/hcp-ring.1
endif
