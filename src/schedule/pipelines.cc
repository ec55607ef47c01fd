#include "schedule/pipelines.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"

namespace braid::inline schedule {
namespace {

constexpr double kRounding = 1e-9;
constexpr double kMaxNumber = 1e15;  // sums of so many ops stay exact to a millionth of an op

Status check_numbers(const std::vector<double>& values, const char* key, size_t stages) {
  if (values.size() != stages)
    return invalid_input(cat("'", key, "' has ", values.size(), " numbers for ", stages,
                             " stages; give one number, or one per stage"));
  for (size_t s = 0; s < values.size(); ++s) {
    if (!(values[s] >= 0))
      return invalid_input(cat("'", key, "' of stage ", s, " is ", format_double(values[s]),
                               "; it must not be negative"));
    if (!(values[s] <= kMaxNumber))
      return invalid_input(cat("'", key, "' of stage ", s, " is ", format_double(values[s]),
                               "; the most is 1e15: choose a larger unit"));
  }
  return ok_status();
}

Status check_pipeline(const PipelineProblem& problem, const Pipeline& pipeline) {
  if (pipeline.stages.empty())
    return invalid_input("'stages' is empty; list the node of each stage");
  for (size_t s = 0; s < pipeline.stages.size(); ++s)
    if (pipeline.stages[s] < 0 || pipeline.stages[s] >= problem.nodes)
      return invalid_input(cat("stage ", s, " is on node ", pipeline.stages[s],
                               ", which does not exist; nodes are 0 to ", problem.nodes - 1));
  if (pipeline.micro_batches < 1)
    return invalid_input(
        cat("'micro_batches' is ", pipeline.micro_batches, "; it must be at least 1"));
  const size_t stages = pipeline.stages.size();
  BRAID_TRY(check_numbers(pipeline.forward, "forward", stages));
  BRAID_TRY(check_numbers(pipeline.backward, "backward", stages));
  if (pipeline.split_backward()) BRAID_TRY(check_numbers(pipeline.weight, "weight", stages));
  return check_numbers(pipeline.memory, "memory", stages);
}

Status check_size(const PipelineProblem& problem) {
  int64_t stages = 0;
  for (const Pipeline& pipeline : problem.pipelines) stages += pipeline.num_stages();
  if (stages > kMaxPipelineStages)
    return invalid_input(cat("the pipelines have ", stages, " stages together; at most ",
                             kMaxPipelineStages,
                             " are supported: leave out copies that lie alike"));
  const int64_t ops = num_ops(problem);
  if (ops <= kMaxPipelineOps) return ok_status();
  return invalid_input(cat("the pipelines have ", ops, " ops (stages x micro-batches x passes); ",
                           "at most ", kMaxPipelineOps,
                           " are supported: lower micro_batches, a schedule for some hundred "
                           "micro-batches repeats itself anyway"));
}

// One micro-batch holds the activations of all its stages on a node before it releases the first.
Status check_memory_limit(const PipelineProblem& problem) {
  if (!problem.memory_limit) return ok_status();
  const double limit = *problem.memory_limit;
  if (!(limit >= 0) || !std::isfinite(limit))
    return invalid_input(cat("'memory_limit' is ", format_double(limit),
                             "; it must be a number that is not negative, or null"));
  for (const Pipeline& pipeline : problem.pipelines) {
    std::vector<double> held(problem.nodes, 0);
    for (int32_t s = 0; s < pipeline.num_stages(); ++s)
      held[pipeline.stages[s]] += pipeline.memory[s];
    const auto most = std::max_element(held.begin(), held.end());
    if (*most > limit * (1 + kRounding))
      return {Code::kInfeasible,
              cat("one micro-batch of pipeline '", pipeline.name, "' takes ", format_double(*most),
                  " on node ", most - held.begin(), ", more than memory_limit ",
                  format_double(limit), "; raise the limit to at least that")};
  }
  return ok_status();
}

// A take or a release of one micro-batch's activations.
struct MemoryEvent {
  double time = 0;
  bool take = false;
  size_t holder = 0;  // of `holders`
};

// The activations of one stage on one node, and how many micro-batches hold them.
struct Holder {
  double memory = 0;
  int64_t alive = 0;
};

double peak_of(std::vector<MemoryEvent> events, std::vector<Holder> holders) {
  std::sort(events.begin(), events.end(), [](const MemoryEvent& a, const MemoryEvent& b) {
    return a.time != b.time ? a.time < b.time : a.take < b.take;
  });
  double peak = 0;
  for (const MemoryEvent& event : events) {
    holders[event.holder].alive += event.take ? 1 : -1;
    double held = 0;  // summed anew, so that rounding does not pile up over the ops
    for (const Holder& holder : holders) held += double(holder.alive) * holder.memory;
    peak = std::max(peak, held);
  }
  return peak;
}

double peak_of_node(const PipelineProblem& problem, const std::vector<TimedPipelineOp>& ops) {
  std::vector<MemoryEvent> events;
  std::vector<Holder> holders;
  std::map<std::pair<int32_t, int32_t>, size_t> holder_of;
  for (const TimedPipelineOp& timed : ops) {
    const Pipeline& pipeline = problem.pipelines[timed.op.pipeline];
    const auto [found, is_new] =
        holder_of.try_emplace({timed.op.pipeline, timed.op.stage}, holders.size());
    if (is_new) holders.push_back({pipeline.memory[timed.op.stage], 0});
    const PassKind last = pipeline.split_backward() ? PassKind::kWeight : PassKind::kBackward;
    if (timed.op.kind == PassKind::kForward) events.push_back({timed.start, true, found->second});
    if (timed.op.kind == last) events.push_back({timed.end, false, found->second});
  }
  return peak_of(std::move(events), std::move(holders));
}

// Where each op of the problem ran: [pipeline][kind][stage * micro_batches + micro_batch].
class EndTimes {
 public:
  explicit EndTimes(const PipelineProblem& problem) : problem_(problem) {
    for (const Pipeline& pipeline : problem.pipelines)
      ends_.emplace_back(
          3, std::vector<double>(size_t(pipeline.num_stages()) * pipeline.micro_batches, -1));
  }
  double& operator()(const PipelineOp& op) {
    return ends_[op.pipeline][static_cast<size_t>(op.kind)]
                [size_t(op.stage) * problem_.pipelines[op.pipeline].micro_batches + op.micro_batch];
  }

 private:
  const PipelineProblem& problem_;
  std::vector<std::vector<std::vector<double>>> ends_;
};

bool exists(const PipelineProblem& problem, const PipelineOp& op) {
  if (op.pipeline < 0 || size_t(op.pipeline) >= problem.pipelines.size()) return false;
  const Pipeline& pipeline = problem.pipelines[op.pipeline];
  if (op.stage < 0 || op.stage >= pipeline.num_stages()) return false;
  if (op.micro_batch < 0 || op.micro_batch >= pipeline.micro_batches) return false;
  return op.kind != PassKind::kWeight || pipeline.split_backward();
}

// What an op waits for, if anything.
std::optional<PipelineOp> waits_for(const PipelineProblem& problem, const PipelineOp& op) {
  PipelineOp before = op;
  const bool last_stage = op.stage + 1 == problem.pipelines[op.pipeline].num_stages();
  switch (op.kind) {
    case PassKind::kForward:
      if (op.stage == 0) return std::nullopt;
      --before.stage;
      break;
    case PassKind::kBackward:
      if (last_stage) {
        before.kind = PassKind::kForward;
      } else {
        ++before.stage;
      }
      break;
    case PassKind::kWeight:
      before.kind = PassKind::kBackward;
      break;
  }
  return before;
}

Status verify_node(const PipelineProblem& problem, const PipelineTimeline& timeline, int32_t node,
                   EndTimes& ends, double scale) {
  double free_at = 0;
  for (const TimedPipelineOp& timed : timeline[node]) {
    if (!exists(problem, timed.op))
      return invalid_input(cat("node ", node, " runs an op that the problem does not have"));
    const std::string name = describe(problem, timed.op);
    if (problem.pipelines[timed.op.pipeline].stages[timed.op.stage] != node)
      return invalid_input(cat(name, " runs on node ", node));
    if (ends(timed.op) >= 0) return invalid_input(cat(name, " runs twice"));
    ends(timed.op) = timed.end;
    if (!nearly_equal(timed.end - timed.start, duration(problem, timed.op), scale))
      return invalid_input(cat(name, " runs for ", format_double(timed.end - timed.start),
                               ", not for ", format_double(duration(problem, timed.op))));
    if (timed.start < free_at && !nearly_equal(timed.start, free_at, scale))
      return invalid_input(cat(name, " starts at ", format_double(timed.start),
                               " while the node is busy until ", format_double(free_at)));
    free_at = timed.end;
  }
  return ok_status();
}

Status verify_waits(const PipelineProblem& problem, const PipelineTimeline& timeline,
                    EndTimes& ends, double scale) {
  for (const auto& ops : timeline)
    for (const TimedPipelineOp& timed : ops) {
      const std::optional<PipelineOp> before = waits_for(problem, timed.op);
      if (!before) continue;
      const std::vector<int32_t>& nodes = problem.pipelines[timed.op.pipeline].stages;
      const double lag = nodes[before->stage] == nodes[timed.op.stage] ? 0 : problem.communication;
      const double earliest = ends(*before) + lag;
      if (timed.start < earliest && !nearly_equal(timed.start, earliest, scale))
        return invalid_input(cat(describe(problem, timed.op), " starts at ",
                                 format_double(timed.start), " but its input is there at ",
                                 format_double(earliest)));
    }
  return ok_status();
}

}  // namespace

Status check_problem(const PipelineProblem& problem) {
  if (problem.nodes < 1 || problem.nodes > kMaxPipelineNodes)
    return invalid_input(
        cat("'nodes' is ", problem.nodes, "; it must be 1 to ", kMaxPipelineNodes));
  if (problem.pipelines.empty())
    return invalid_input("'pipelines' is empty; list at least one pipeline");
  if (!(problem.communication >= 0) || problem.communication > kMaxNumber)
    return invalid_input(
        cat("'communication' is ", format_double(problem.communication), "; it must be 0 to 1e15"));
  for (size_t p = 0; p < problem.pipelines.size(); ++p) {
    const Pipeline& pipeline = problem.pipelines[p];
    BRAID_TRY(
        check_pipeline(problem, pipeline).at(cat("pipelines[", p, "] '", pipeline.name, "'")));
  }
  BRAID_TRY(check_size(problem));
  return check_memory_limit(problem);
}

int64_t num_ops(const PipelineProblem& problem) {
  int64_t ops = 0;
  for (const Pipeline& pipeline : problem.pipelines)
    ops += int64_t(pipeline.stages.size()) * pipeline.micro_batches *
           (pipeline.split_backward() ? 3 : 2);
  return ops;
}

double duration(const PipelineProblem& problem, const PipelineOp& op) {
  const Pipeline& pipeline = problem.pipelines[op.pipeline];
  const std::vector<double>* const times[] = {&pipeline.forward, &pipeline.backward,
                                              &pipeline.weight};
  return (*times[static_cast<size_t>(op.kind)])[op.stage];
}

PipelineProblem with_split_backward(PipelineProblem problem) {
  for (Pipeline& pipeline : problem.pipelines) {
    if (pipeline.split_backward()) continue;
    for (double& time : pipeline.backward) time /= 2;
    pipeline.weight = pipeline.backward;
  }
  return problem;
}

std::string describe(const PipelineProblem& problem, const PipelineOp& op) {
  static const char* const kNames[] = {"forward", "backward", "weight gradient"};
  const Pipeline& pipeline = problem.pipelines[op.pipeline];
  return cat(kNames[static_cast<size_t>(op.kind)], " of micro-batch ", op.micro_batch, " of '",
             pipeline.name, "', stage ", op.stage, " (node ", pipeline.stages[op.stage], ")");
}

std::vector<double> peak_memory(const PipelineProblem& problem, const PipelineTimeline& timeline) {
  std::vector<double> peaks;
  for (const auto& ops : timeline) peaks.push_back(peak_of_node(problem, ops));
  return peaks;
}

Status verify(const PipelineProblem& problem, const PipelineTimeline& timeline) {
  if (timeline.size() != size_t(problem.nodes))
    return invalid_input(
        cat("schedule of ", timeline.size(), " nodes for a problem of ", problem.nodes));
  const double scale = makespan(timeline);
  EndTimes ends(problem);
  int64_t ops = 0;
  for (int32_t node = 0; node < problem.nodes; ++node) {
    BRAID_TRY(verify_node(problem, timeline, node, ends, scale));
    ops += int64_t(timeline[node].size());
  }
  if (ops != num_ops(problem))
    return invalid_input(cat("schedule of ", ops, " ops for a problem of ", num_ops(problem)));
  BRAID_TRY(verify_waits(problem, timeline, ends, scale));
  if (!problem.memory_limit) return ok_status();
  const std::vector<double> peaks = peak_memory(problem, timeline);
  const auto most = std::max_element(peaks.begin(), peaks.end());
  if (*most <= *problem.memory_limit || nearly_equal(*most, *problem.memory_limit, *most))
    return ok_status();
  return invalid_input(cat("node ", most - peaks.begin(), " holds ", format_double(*most),
                           ", more than the memory limit of ",
                           format_double(*problem.memory_limit)));
}

double makespan(const PipelineTimeline& timeline) {
  double end = 0;
  for (const auto& ops : timeline)
    for (const TimedPipelineOp& timed : ops) end = std::max(end, timed.end);
  return end;
}

bool nearly_equal(double a, double b, double scale) {
  return std::abs(a - b) <= kRounding * std::max(std::abs(scale), 1e-300);
}

}  // namespace braid::inline schedule
