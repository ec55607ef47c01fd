#include "program/fused.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"
#include "fuse/fuse.h"
#include "program/fused_order.h"

namespace braid::inline program {
namespace {

// Times and memory of a problem are whole numbers up to this.
constexpr double kScale = 1000;
// Activations of a layer that are kept, over those of its input (Korthikanti et al., arXiv
// 2205.05198: 34 bytes of 2), unless the backward computes them again.
constexpr double kKeptLayer = 17;

// Devices by node: devices that share a stage of any call are one.
class Nodes {
 public:
  explicit Nodes(size_t devices) : parent_(devices) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int32_t find(int32_t device) {
    while (parent_[device] != device) device = parent_[device] = parent_[parent_[device]];
    return device;
  }
  void join(int32_t a, int32_t b) { parent_[find(a)] = find(b); }

 private:
  std::vector<int32_t> parent_;
};

DeviceId device_at(const CallPlacement& where, int dp_rank, int stage, int i) {
  const Strategy& s = where.strategy;
  return where.mesh.devices[mesh_index(s, {dp_rank, i % s.tp, stage, i / s.tp})];
}

int width(const Strategy& s) { return s.cp * s.tp; }

// GEMMs of a token with the parameters that a rank has of a part, and activations that its
// forward leaves there.
struct PartWork {
  double passes = 0, activations = 0;
};

PartWork part_work(const CallPlacement& where, const ModelShape& model, int part) {
  const Strategy& s = where.strategy;
  const Interval layers = part_layers(s, model.layers, part);
  const bool last = part == s.pp * s.interleave - 1;
  PartWork out;
  for (const TensorKind& kind : model.kinds) {
    const bool end = kind.layer_begin == kind.layer_end;
    const int64_t times =
        end ? (kind.last && last ? 1 : 0)
            : std::max<int64_t>(0, std::min<int64_t>(kind.layer_end, layers.end) -
                                       std::max<int64_t>(kind.layer_begin, layers.begin));
    const double used = kind.routed && model.experts > 0
                            ? static_cast<double>(model.routes) / static_cast<double>(model.experts)
                            : 1;
    out.passes += used * static_cast<double>(times * kind.elements) / s.tp;
  }
  const double kept = s.recompute == Recompute::kFull ? 1 : kKeptLayer;
  out.activations = kept * static_cast<double>(layers.size() * model.hidden) / s.tp;
  return out;
}

// What the passes of one call cost, per stage of its pipeline.
Pipeline pipeline_of(const Program& program, CallId id, const PlanningProblem& problem) {
  const Call& call = program.graph.calls[id.value];
  const CallPlacement& where = program.calls[id.value];
  const Strategy& s = where.strategy;
  const auto model = std::find_if(program.models.begin(), program.models.end(),
                                  [&](const ModelShape& other) { return other.role == call.role; });
  const double samples =
      static_cast<double>(call_samples(problem, call)) /
      static_cast<double>(std::max<int64_t>(1, problem.workload.minibatches) * s.dp * s.cp);
  const double tokens =
      samples / static_cast<double>(s.micro_batches) *
      (mean_tokens(problem.workload.prompt) + mean_tokens(problem.workload.response));
  const double again = s.recompute == Recompute::kFull ? 1 : 0;
  const double gradients = model->trained_share < 1 ? 1 : 2;  // adapters leave those of weights out
  Pipeline out;
  out.name = call.name;
  out.micro_batches = static_cast<int32_t>(s.micro_batches);
  for (int part = 0; part < s.pp * s.interleave; ++part) {
    const PartWork work = part_work(where, *model, part);
    out.forward.push_back(tokens * work.passes);
    out.backward.push_back((gradients + again) * tokens * work.passes);
    out.memory.push_back(tokens * work.activations);
  }
  return out;
}

double largest_number(const std::array<Pipeline, 2>& models,
                      std::vector<double> Pipeline::*numbers) {
  double most = 0;
  for (const Pipeline& model : models)
    for (const double number : model.*numbers) most = std::max(most, number);
  return std::max(most, 1e-9);
}

void round_numbers(std::array<Pipeline, 2>* models) {
  const double time = kScale / largest_number(*models, &Pipeline::forward);
  const double memory = kScale / largest_number(*models, &Pipeline::memory);
  for (Pipeline& model : *models)
    for (size_t i = 0; i < model.forward.size(); ++i) {
      const double forward = std::max(1.0, std::round(time * model.forward[i]));
      model.backward[i] = std::round(model.backward[i] / model.forward[i] * forward);
      model.forward[i] = forward;
      model.memory[i] = std::max(1.0, std::round(memory * model.memory[i]));
    }
}

// Replicas of a call that run the same passes at the same time, and where.
struct Copies {
  int call = 0;
  std::vector<int> dp_ranks;
  std::vector<int32_t> nodes;  // by part
};

// One group: its nodes in the order in which the first call's replicas pass them.
struct Group {
  std::vector<int32_t> nodes;
  std::vector<Copies> copies;
};

class Grouping {
 public:
  Grouping(const Program& program, const std::array<CallId, 2>& calls)
      : program_(program), calls_(calls), nodes_(program.ranks.size()), groups_(nodes_) {
    for (const CallId id : calls) join_stages(id);
    groups_ = nodes_;
    for (const CallId id : calls) join_replicas(id);
  }

  std::vector<Group> groups() {
    std::map<int32_t, Group> found;
    for (int c = 0; c < 2; ++c)
      for (int dp_rank = 0; dp_rank < where(c).strategy.dp; ++dp_rank) {
        const DeviceId first = device_at(where(c), dp_rank, 0, 0);
        add(c, dp_rank, &found[groups_.find(first.value)]);
      }
    std::vector<Group> out;
    for (auto& [root, group] : found) out.push_back(std::move(group));
    return out;
  }

  int32_t node(DeviceId device) { return nodes_.find(device.value); }

 private:
  const CallPlacement& where(int c) const { return program_.calls[calls_[c].value]; }

  void join_stages(CallId id) {
    const CallPlacement& where = program_.calls[id.value];
    for (int dp_rank = 0; dp_rank < where.strategy.dp; ++dp_rank)
      for (int stage = 0; stage < where.strategy.pp; ++stage)
        for (int i = 1; i < width(where.strategy); ++i)
          nodes_.join(device_at(where, dp_rank, stage, i).value,
                      device_at(where, dp_rank, stage, 0).value);
  }
  void join_replicas(CallId id) {
    const CallPlacement& where = program_.calls[id.value];
    for (int dp_rank = 0; dp_rank < where.strategy.dp; ++dp_rank)
      for (int stage = 1; stage < where.strategy.pp; ++stage)
        groups_.join(device_at(where, dp_rank, stage, 0).value,
                     device_at(where, dp_rank, 0, 0).value);
  }

  void add(int c, int dp_rank, Group* group) {
    const Strategy& s = where(c).strategy;
    Copies one{c, {dp_rank}, {}};
    for (int part = 0; part < s.pp * s.interleave; ++part) {
      const int32_t root = node(device_at(where(c), dp_rank, part % s.pp, 0));
      const auto known = std::find(group->nodes.begin(), group->nodes.end(), root);
      one.nodes.push_back(static_cast<int32_t>(known - group->nodes.begin()));
      if (known == group->nodes.end()) group->nodes.push_back(root);
    }
    for (Copies& other : group->copies)
      if (other.call == c && other.nodes == one.nodes) {
        other.dp_ranks.push_back(dp_rank);
        return;
      }
    group->copies.push_back(std::move(one));
  }

  const Program& program_;
  const std::array<CallId, 2>& calls_;
  Nodes nodes_, groups_;
};

PipelineProblem problem_of_group(const Group& group, const std::array<Pipeline, 2>& models) {
  PipelineProblem problem;
  problem.nodes = static_cast<int32_t>(group.nodes.size());
  for (const Copies& copies : group.copies) {
    Pipeline pipeline = models[copies.call];
    pipeline.stages = copies.nodes;
    problem.pipelines.push_back(std::move(pipeline));
  }
  return problem;
}

Result<FusedOrder> solve(const PipelineProblem& problem, const Fusion& fusion) {
  FuseOptions options;
  options.objective = FuseObjective::kMemory;
  options.seed = fusion.seed;
  options.units.max_units = fusion.units;
  BRAID_ASSIGN(const FuseResult result, fuse_pipelines(problem, options));
  FusedOrder order;
  for (const auto& node : result.timeline) {
    order.emplace_back();
    for (const TimedPipelineOp& op : node) order.back().push_back(op.op);
  }
  return order_of_messages(problem, order);
}

ScheduleOp pass_of(const PipelineOp& op, int pp) {
  const auto kind =
      op.kind == PassKind::kForward ? ScheduleOp::Kind::kForward : ScheduleOp::Kind::kBackward;
  return {kind, op.stage % pp, op.micro_batch, op.stage / pp};
}

// Every rank's stages lie on its node, with as many micro-batches as its call has.
Status verify_places(const Program& program, const FusedCalls& fused, int c) {
  const CallPlacement& where = program.calls[fused.calls[c].value];
  const Strategy& s = where.strategy;
  for (const DeviceId device : where.mesh.devices) {
    const GridPosition at = position_in(where, device);
    const auto wrong = [&](const char* what) {
      return invalid_input(cat("fused order: rank ", device, ": ", what));
    };
    const auto& copies = fused.pipelines[c];
    const int32_t copy =
        at.dp_rank < std::ssize(copies) ? copies[at.dp_rank] : std::ssize(copies) - 1;
    if (std::ssize(copies) != s.dp || copy < 0 || copy >= std::ssize(fused.problem.pipelines))
      return wrong("its replica has no pipeline");
    const Pipeline& pipeline = fused.problem.pipelines[copy];
    if (pipeline.micro_batches != s.micro_batches || pipeline.num_stages() != s.pp * s.interleave)
      return wrong("its pipeline is not that of its call");
    for (int chunk = 0; chunk < s.interleave; ++chunk)
      if (pipeline.stages[chunk * s.pp + at.stage] != fused.nodes[device.value])
        return wrong("its stage lies on another node");
  }
  return ok_status();
}

}  // namespace

Result<FusedCalls> fuse_calls(const Program& program, const Fusion& fusion,
                              const PlanningProblem& problem, const std::array<CallId, 2>& calls) {
  FusedCalls out;
  out.calls = calls;
  std::array<Pipeline, 2> models = {pipeline_of(program, calls[0], problem),
                                    pipeline_of(program, calls[1], problem)};
  round_numbers(&models);
  Grouping grouping(program, calls);
  const std::vector<Group> groups = grouping.groups();
  out.problem = problem_of_group(groups.front(), models);
  for (int c = 0; c < 2; ++c)
    out.pipelines[c].assign(program.calls[calls[c].value].strategy.dp, -1);
  out.nodes.assign(program.ranks.size(), -1);
  for (const Group& group : groups) {
    if (problem_of_group(group, models) != out.problem)
      return invalid_input(
          cat("fusion.train_schedules: the stages of ", models[0].name, " and ", models[1].name,
              " do not meet alike on all devices; give both calls the same devices and let the "
              "larger tp x pp be a multiple of the smaller"));
    for (size_t i = 0; i < group.copies.size(); ++i)
      for (const int dp_rank : group.copies[i].dp_ranks)
        out.pipelines[group.copies[i].call][dp_rank] = static_cast<int32_t>(i);
    for (size_t device = 0; device < out.nodes.size(); ++device) {
      const auto node = std::find(group.nodes.begin(), group.nodes.end(),
                                  grouping.node(DeviceId{static_cast<int32_t>(device)}));
      if (node != group.nodes.end())
        out.nodes[device] = static_cast<int32_t>(node - group.nodes.begin());
    }
  }
  BRAID_ASSIGN(out.order, solve(out.problem, fusion));
  return out;
}

std::vector<FusedPass> fused_passes(const Program& program, const FusedCalls& fused,
                                    DeviceId rank) {
  std::vector<FusedPass> out;
  std::array<GridPosition, 2> at;
  for (int c = 0; c < 2; ++c) {
    at[c] = position_in(program.calls[fused.calls[c].value], rank);
    BRAID_CHECK(at[c].dp_rank >= 0, "fused calls have the same devices");
  }
  for (const PipelineOp& op : fused.order[fused.nodes[rank.value]])
    for (int c = 0; c < 2; ++c) {
      const int pp = program.calls[fused.calls[c].value].strategy.pp;
      if (op.pipeline == fused.pipelines[c][at[c].dp_rank] && op.stage % pp == at[c].stage)
        out.push_back({c, pass_of(op, pp)});
    }
  return out;
}

std::vector<ScheduleOp> fused_ops(const CallFrame& frame, DeviceId rank) {
  const FusedCalls& fused = *frame.fused;
  const GridPosition at = position_in(*frame.where, rank);
  const int pp = frame.where->strategy.pp;
  std::vector<ScheduleOp> out;
  for (const PipelineOp& op : fused.order[fused.nodes[rank.value]])
    if (op.pipeline == fused.pipelines[frame.of_pair][at.dp_rank] && op.stage % pp == at.stage)
      out.push_back(pass_of(op, pp));
  return out;
}

bool is_of_pass(const Op& op, const ScheduleOp& pass) {
  if (op.micro_batch != pass.micro_batch || op.body != pass.chunk) return false;
  const bool message = op.kind == OpKind::kSend || op.kind == OpKind::kReceive;
  const bool forward = message ? op.channel == Channel::kActivations : op.kind == OpKind::kForward;
  return forward == (pass.kind == ScheduleOp::Kind::kForward);
}

bool fits_order(const Partition& partition, const Strategy& strategy) {
  for (const MiniBatch& minibatch : partition.minibatches)
    for (const auto& micro_batches : minibatch.micro_batches)
      if (std::ssize(micro_batches) > strategy.micro_batches) return false;
  return true;
}

Status verify_order(const Program& program, const FusedCalls& fused) {
  for (int c = 0; c < 2; ++c) BRAID_TRY(verify_places(program, fused, c));
  return verify_order(fused.problem, fused.order);
}

}  // namespace braid::inline program
