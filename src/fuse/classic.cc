#include "fuse/classic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fuse/greedy.h"
#include "fuse/list_rule.h"

namespace braid::inline fuse {
namespace {

Pipeline even_stages(std::string name, std::vector<int32_t> nodes, int32_t micro_batches,
                     const EvenStage& stage) {
  const size_t count = nodes.size();
  Pipeline pipeline;
  pipeline.name = std::move(name);
  pipeline.stages = std::move(nodes);
  pipeline.micro_batches = micro_batches;
  pipeline.forward.assign(count, stage.forward);
  pipeline.backward.assign(count, stage.backward);
  if (stage.weight > 0) pipeline.weight.assign(count, stage.weight);
  pipeline.memory.assign(count, stage.memory);
  return pipeline;
}

// The list schedule of 1F1B's quotas: backwards, then forwards.
FusedOrder listed(const PipelineProblem& problem) {
  const OpGraph graph = compile_ops(problem);
  ListRule rule;
  rule.patience.assign(graph.nodes, 0);
  rule.quota.assign(graph.num_holders, 1);
  for (const OpClass& one : graph.classes) {
    static constexpr double kOrder[] = {1, 0, 2};  // forward, backward, weight gradient
    rule.priority.push_back(kOrder[static_cast<size_t>(one.kind)]);
    const int32_t stages = problem.pipelines[one.pipeline].num_stages();
    if (one.kind == PassKind::kForward) rule.quota[one.holder] = stages - one.stage;
  }
  ListSimulator simulator(graph);
  const ListOutcome outcome = simulator.run(rule, std::numeric_limits<double>::infinity());
  BRAID_CHECK(outcome.missing == 0, "a classic schedule does not fit into the memory limit");
  return to_ops(graph, simulator.order());
}

}  // namespace

PipelineProblem even_pipeline_problem(int32_t stages, int32_t chunks, int32_t micro_batches,
                                      const EvenStage& stage) {
  std::vector<int32_t> nodes;
  for (int32_t part = 0; part < stages * chunks; ++part) nodes.push_back(part % stages);
  PipelineProblem problem;
  problem.nodes = stages;
  problem.pipelines = {even_stages("model", std::move(nodes), micro_batches, stage)};
  return problem;
}

PipelineProblem bidirectional_problem(int32_t stages, int32_t micro_batches,
                                      const EvenStage& stage) {
  std::vector<int32_t> down, up;
  for (int32_t s = 0; s < stages; ++s) {
    down.push_back(s);
    up.push_back(stages - 1 - s);
  }
  PipelineProblem problem;
  problem.nodes = stages;
  problem.pipelines = {even_stages("down", down, micro_batches / 2, stage),
                       even_stages("up", up, micro_batches / 2, stage)};
  return problem;
}

FusedOrder pipeline_order(const Schedule& schedule) {
  FusedOrder order(schedule.per_stage.size());
  for (size_t node = 0; node < order.size(); ++node)
    for (const ScheduleOp& op : schedule.per_stage[node])
      order[node].push_back(
          {0, op.micro_batch, op.chunk * schedule.stages + op.stage,
           op.kind == ScheduleOp::Kind::kForward ? PassKind::kForward : PassKind::kBackward});
  return order;
}

FusedOrder zero_bubble_h1(int32_t stages, int32_t micro_batches) {
  FusedOrder order(stages);
  for (int32_t s = 0; s < stages; ++s) {
    int32_t forwards = 0, weights = 0;
    const auto add = [&](PassKind kind, int32_t k) { order[s].push_back({0, k, s, kind}); };
    while (forwards < std::min(stages - s, micro_batches)) add(PassKind::kForward, forwards++);
    for (int32_t k = 0; k < micro_batches; ++k) {
      add(PassKind::kBackward, k);
      // Held back by s micro-batches: as many as the first stage then has in flight.
      if (k >= s) add(PassKind::kWeight, weights++);
      if (forwards < micro_batches) add(PassKind::kForward, forwards++);
    }
    while (weights < micro_batches) add(PassKind::kWeight, weights++);
  }
  return order;
}

FusedOrder one_f_one_b_of_all(const PipelineProblem& problem) { return listed(problem); }

ClassOrder class_order(const OpGraph& graph, const FusedOrder& order) {
  ClassOrder classes(order.size());
  for (size_t node = 0; node < order.size(); ++node)
    for (const PipelineOp& op : order[node])
      for (const int32_t c : graph.of_node[node]) {
        const OpClass& one = graph.classes[c];
        if (one.pipeline == op.pipeline && one.stage == op.stage && one.kind == op.kind)
          classes[node].push_back(c);
      }
  return classes;
}

ClassOrder published_annealing(const OpGraph& graph, const AnnealingOptions& options,
                               RandomStream& random) {
  ClassOrder order = greedy_order(graph), best = order;
  double present = earliest_starts(graph, order).makespan, shortest = present;
  double temperature = options.first_temperature;
  const double ratio = std::pow(options.last_temperature / options.first_temperature,
                                1.0 / double(std::max<int64_t>(options.steps, 1)));
  for (int64_t step = 0; step < options.steps; ++step, temperature *= ratio) {
    auto& list = order[random.below(order.size())];
    if (list.size() < 2) continue;
    const size_t at = random.below(list.size() - 1);
    if (list[at] == list[at + 1]) continue;
    std::swap(list[at], list[at + 1]);
    const double makespan = earliest_starts(graph, order).makespan;
    const double increase = makespan - present;
    if (makespan < 0 || (increase > 0 && random.unit() >= std::exp(-increase / temperature))) {
      std::swap(list[at], list[at + 1]);
      continue;
    }
    present = makespan;
    if (present >= shortest) continue;
    shortest = present;
    best = order;
  }
  return best;
}

}  // namespace braid::inline fuse
