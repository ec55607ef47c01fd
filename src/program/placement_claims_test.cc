// Claims about placements that the lists show: who is in the collectives of a role, and how many
// bytes bring the weights of a step to those who generate.
#include "plan/placement.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "base/contains.h"
#include "base/text.h"
#include "plan/test_problem.h"
#include "program/expand.h"
#include "program/partition.h"
#include "program/program.h"

namespace braid::inline program {
namespace {

// Data parallel on the devices of the placement, in parts of tp where these allow it.
ExecutionPlan placed_plan(const PlanningProblem& problem, const std::string& placement,
                          int tp = 1) {
  const CallMeshes meshes = *placement_meshes(placement, problem);
  ExecutionPlan plan = uniform_plan(problem, 1, 1, 1);
  for (CallPlan& entry : plan.calls) {
    entry.mesh = meshes.at(entry.call);
    const int devices = static_cast<int>(entry.mesh.devices.size());
    entry.strategy.tp = devices % tp == 0 ? tp : 1;
    entry.strategy.dp = devices / entry.strategy.tp;
  }
  return plan;
}

Partition partition_of(const Program& program, const PlanningProblem& problem, CallId id) {
  std::vector<PartitionSample> samples;
  const Call& call = program.graph.calls[id.value];
  for (int64_t i = 0; i < call_samples(problem, call); ++i)
    samples.push_back({SampleId{i}, GroupId{i}, 100 + i % 7, 50 + i % 11, true});
  PartitionOptions options;
  options.trains = call.kind == CallKind::kTrainStep;
  options.minibatches = problem.workload.minibatches;
  return partition_samples(samples, program.calls[id.value].strategy, options);
}

TEST(Placements, OnlyDevicesOfARoleAreInItsCollectives) {
  for (const char* algorithm : {"ppo", "grpo"})
    for (const std::string& placement : placement_names()) {
      SCOPED_TRACE(cat(algorithm, " ", placement));
      const PlanningProblem problem = make_test_problem({.algorithm = algorithm});
      const auto program = compile(placed_plan(problem, placement), problem);
      ASSERT_TRUE(program.ok()) << program.status().message();
      int collectives = 0;
      for (const RankProgram& rank : program->ranks)
        for (const Instruction& i : rank.instructions) {
          if (i.kind != OpKind::kReduce && i.kind != OpKind::kAgree && i.kind != OpKind::kAllGather)
            continue;
          if (i.detail < 0) continue;
          ++collectives;
          for (const DeviceId member : program->groups[i.detail].members)
            EXPECT_TRUE(contains(program->calls[i.call.value].mesh.devices, member));
        }
      EXPECT_GT(collectives, 0);
    }
}

// Also inside calls: tensor parallel sums, gathers of slices, gradients.
TEST(Placements, OnlyDevicesOfACallAreInTheGroupsOfItsBody) {
  for (const std::string& placement : placement_names())
    for (const int tp : {1, 2})
      for (const int zero : {0, 3}) {
        SCOPED_TRACE(cat(placement, " tp ", tp, " zero ", zero));
        const PlanningProblem problem = make_test_problem();
        ExecutionPlan plan = placed_plan(problem, placement, tp);
        for (CallPlan& entry : plan.calls)
          if (find_call(problem.graph, entry.call)->kind != CallKind::kGenerate &&
              entry.strategy.dp > 1)
            entry.strategy.zero_stage = zero;
        const auto program = compile(plan, problem);
        ASSERT_TRUE(program.ok()) << program.status().message();
        int groups = 0;
        for (const Call& call : problem.graph.calls) {
          if (!uses_model(call) || call.kind == CallKind::kGenerate) continue;
          const CallId id{static_cast<int32_t>(&call - problem.graph.calls.data())};
          const Partition partition = partition_of(*program, problem, id);
          const std::vector<DeviceId>& mesh = program->calls[id.value].mesh.devices;
          for (const DeviceId rank : mesh)
            for (const OpGroup& group : expand(*program, id, rank, partition).groups) {
              groups += group.members.size() > 1;
              for (const DeviceId member : group.members) EXPECT_TRUE(contains(mesh, member));
            }
        }
        EXPECT_GT(groups, 0);
      }
}

// Two bytes of each parameter to each of the replicas that generate, whatever they come from: whole
// copies, slices or parts of another tensor parallel size.
TEST(Placements, EachCopyGetsEachParameterOnce) {
  for (const char* algorithm : {"ppo", "grpo"})
    for (const auto& [zero, tp] : {std::pair(0, 1), std::pair(3, 1), std::pair(3, 2)}) {
      SCOPED_TRACE(cat(algorithm, " zero ", zero, " tp ", tp));
      const PlanningProblem problem = make_test_problem({.algorithm = algorithm});
      ExecutionPlan plan = placed_plan(problem, "disaggregated", tp);
      for (CallPlan& entry : plan.calls)
        if (find_call(problem.graph, entry.call)->kind == CallKind::kTrainStep &&
            entry.mesh.devices.size() > 1) {
          entry.strategy = {};
          entry.strategy.dp = static_cast<int>(entry.mesh.devices.size());
          entry.strategy.zero_stage = zero;
        }
      const Program program = *compile(plan, problem);
      std::map<std::string, double> bytes;
      for (const Reallocation& each : program.reallocations)
        for (const Message& message : each.messages)
          bytes[program.copies[each.copy].role.value] += message.bytes;
      const auto replicas = static_cast<double>(plan.calls.front().strategy.dp);
      for (const RoleSpec& spec : problem.graph.roles) {
        double parameters = 0;
        for (const TensorKind& kind : tensor_kinds(model_of(problem, spec.role).spec, &spec))
          parameters += static_cast<double>(kind.elements * (kind.layer_end > kind.layer_begin
                                                                 ? kind.layer_end - kind.layer_begin
                                                                 : 1));
        const double wanted = spec.trained ? 2 * parameters * replicas : 0;
        // Norms are not cut: each rank of a part has them.
        EXPECT_NEAR(bytes[spec.role.value], wanted, (tp > 1 ? 1e-4 : 1e-6) * wanted + 1)
            << spec.role;
      }
    }
}

// Where only adapters train, only they travel: 2 r (d_in + d_out) bytes of each matrix.
TEST(Placements, OfAdaptersTheCopiesGetThemAlone) {
  PlanningProblem problem = make_test_problem({.algorithm = "grpo"});
  constexpr int64_t kRank = 128;
  problem.models["actor"].trainable = {true, kRank};
  const ExecutionPlan plan = placed_plan(problem, "disaggregated");
  const Program program = *compile(plan, problem);
  double bytes = 0;
  for (const Reallocation& each : program.reallocations)
    for (const Message& message : each.messages) bytes += message.bytes;
  const ModelSize& size = problem.models["actor"].spec;  // llama2-7b: as many keys as queries
  const int64_t sides = size.layers * (4 * 2 * size.hidden + 3 * (size.hidden + size.intermediate));
  const double wanted = 2.0 * kRank * static_cast<double>(sides) * plan.calls.front().strategy.dp;
  EXPECT_NEAR(bytes, wanted, 1e-6 * wanted);
}

}  // namespace
}  // namespace braid::inline program
