# SPDX-License-Identifier: Apache-2.0
# Transports and the executor. Under MPI unless said otherwise.
