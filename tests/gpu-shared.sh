# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Sourced by GPU tests of two ranks, with $gpus (the names of the host's GPUs, a line each) and
# $slug (of the first): $shared is 1 if there is one GPU of that name, for both ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
shared=0
: "${gpus:=}" "${slug:=}"
[ "$(printf '%s\n' "$gpus" | grep -cx "$slug")" -ge 2 ] || shared=1

# COMMAND...: two processes of it, as ranks of two hosts where they share a GPU.
two() {
    # shellcheck disable=SC2016  # each rank's own number
    if [ "$shared" -eq 1 ]; then
        mpirun --bind-to none -np 2 sh -c 'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK exec "$@"' sh "$@"
    else
        mpirun --bind-to none -np 2 "$@"
    fi
}

ring() { # HCP-RING-OPTION...
    two timeout 120 hcp-ring "$@"
}
