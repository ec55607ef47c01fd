// Claims about placements that the lists show: who is in the collectives of a role, and how many
// bytes bring the weights of a step to those who generate.
#include "plan/placement.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "base/contains.h"
#include "base/text.h"
#include "plan/test_problem.h"
#include "program/program.h"

namespace braid::inline program {
namespace {

ExecutionPlan placed_plan(const PlanningProblem& problem, const std::string& placement) {
  const CallMeshes meshes = *placement_meshes(placement, problem);
  ExecutionPlan plan = uniform_plan(problem, 1, 1, 1);
  for (CallPlan& entry : plan.calls) {
    entry.mesh = meshes.at(entry.call);
    entry.strategy.dp = static_cast<int>(entry.mesh.devices.size());
  }
  return plan;
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

// Two bytes of each parameter to each of the replicas that generate, whatever they come from: whole
// copies or slices.
TEST(Placements, EachCopyGetsEachParameterOnce) {
  for (const char* algorithm : {"ppo", "grpo"})
    for (const int zero : {0, 3}) {
      SCOPED_TRACE(cat(algorithm, " zero ", zero));
      const PlanningProblem problem = make_test_problem({.algorithm = algorithm});
      ExecutionPlan plan = placed_plan(problem, "disaggregated");
      for (CallPlan& entry : plan.calls)
        if (find_call(problem.graph, entry.call)->kind == CallKind::kTrainStep &&
            entry.mesh.devices.size() > 1)
          entry.strategy.zero_stage = zero;
      const Program program = *compile(plan, problem);
      std::map<std::string, double> bytes;
      for (const Reallocation& each : program.reallocations)
        for (const Message& message : each.messages)
          bytes[program.copies[each.copy].role.value] += message.bytes;
      const auto replicas = static_cast<double>(plan.calls.front().mesh.devices.size());
      for (const RoleSpec& spec : problem.graph.roles) {
        double parameters = 0;
        for (const TensorKind& kind : tensor_kinds(model_of(problem, spec.role).size, &spec))
          parameters += static_cast<double>(kind.elements * (kind.layer_end > kind.layer_begin
                                                                 ? kind.layer_end - kind.layer_begin
                                                                 : 1));
        const double wanted = spec.trained ? 2 * parameters * replicas : 0;
        EXPECT_NEAR(bytes[spec.role.value], wanted, 1e-6 * wanted + 1) << spec.role;
      }
    }
}

}  // namespace
}  // namespace braid::inline program
