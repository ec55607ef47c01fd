// Classic pipeline schedules as orders of pipeline problems, and the published annealing of fused
// ones: what the search is compared with. Pure.
#pragma once

#include <cstdint>

#include "base/rng.h"
#include "fuse/op_graph.h"
#include "schedule/schedule.h"

namespace braid::inline fuse {

// Times of one micro-batch on one stage, alike for all stages.
struct EvenStage {
  double forward = 1;
  double backward = 2;
  double weight = 0;  // above 0: the backward is split, and this comes on top of `backward`
  double memory = 1;
};

// One pipeline over `stages` nodes; with chunks > 1 stage c * stages + s lies on node s.
PipelineProblem even_pipeline_problem(int32_t stages, int32_t chunks, int32_t micro_batches,
                                      const EvenStage& stage);

// The same model twice, in opposite directions, each with half of the micro-batches (Chimera, Li
// and Hoefler, arXiv 2107.06925). REQUIRES: an even number of micro-batches.
PipelineProblem bidirectional_problem(int32_t stages, int32_t micro_batches,
                                      const EvenStage& stage);

// A schedule of one pipeline (GPipe, 1F1B, interleaved) as an order of even_pipeline_problem.
FusedOrder pipeline_order(const Schedule& schedule);

// ZB-H1 (Qi et al., arXiv 2401.10241, §2.2) of even_pipeline_problem with split backwards: 1F1B,
// whose stage s holds its weight gradients back by s micro-batches and fills the bubble at the end
// with them. At most `stages` micro-batches are alive on a node.
FusedOrder zero_bubble_h1(int32_t stages, int32_t micro_batches);

// 1F1B of every pipeline at once, backwards first: Chimera's schedule on bidirectional_problem.
FusedOrder one_f_one_b_of_all(const PipelineProblem& problem);

// The order of classes behind an order of ops. REQUIRES: an order of the graph's problem.
ClassOrder class_order(const OpGraph& graph, const FusedOrder& order);

// The published annealing's first phase (RLHFuse, arXiv 2409.13221, and its public solver): from
// the greedy order, random neighbours of different pipeline or pass change places, the whole
// schedule is evaluated, and a longer one is taken with probability exp(-increase / temperature).
struct AnnealingOptions {
  int64_t steps = 0;
  double first_temperature = 10;
  double last_temperature = 1e-3;
};
ClassOrder published_annealing(const OpGraph& graph, const AnnealingOptions& options,
                               RandomStream& random);

}  // namespace braid::inline fuse
