/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "planner/plan.h"

/* Structs of the interface as they begin, and how much room an answer needs. */

void hcp_shape_init(hcp_shape *shape)
{
    *shape = (hcp_shape){sizeof *shape, "bf16", 1, 32, 8, 128, "prefill"};
}

void hcp_rank_init(hcp_rank *rank)
{
    memset(rank, 0, sizeof *rank);
    rank->size = sizeof *rank;
}

void hcp_question_init(hcp_question *question)
{
    memset(question, 0, sizeof *question);
    question->size = sizeof *question;
    question->strategy = HCP_STRATEGY_BEST;
    question->stripes = 8;
    question->buffers = 2;
    question->sub_blocks = 1;
    question->layers = 1;
}

void hcp_plan_init(hcp_plan *plan, hcp_plan_rank *ranks, size_t ranks_capacity,
                   hcp_segment *segments, size_t segments_capacity)
{
    memset(plan, 0, sizeof *plan);
    plan->size = sizeof *plan;
    plan->ranks = ranks;
    plan->ranks_capacity = ranks_capacity;
    plan->segments = segments;
    plan->segments_capacity = segments_capacity;
}

size_t hcp_workspace_bytes(size_t n_ranks)
{
    return n_ranks < 1 || n_ranks > HCP_PLAN_MAX_RANKS ? 0 : scratch_bytes(n_ranks);
}

size_t hcp_segments_max(size_t n_ranks, hcp_layout layout, int32_t stripes)
{
    size_t striped = stripes > 0 ? (size_t)stripes : 1;

    switch (layout) {
    case HCP_LAYOUT_CONTIGUOUS:
        return n_ranks;
    case HCP_LAYOUT_ZIGZAG:
        return 2 * n_ranks;
    case HCP_LAYOUT_STRIPED:
        return n_ranks * striped;
    default:
        return n_ranks * (striped > 2 ? striped : 2);
    }
}
