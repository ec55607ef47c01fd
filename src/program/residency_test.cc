// State in host memory and copies of weights leave a device when all that reads them has ended.
#include "program/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "program/local_parts.h"
#include "program/program.h"

namespace braid::inline program {
namespace {

using testing::HasSubstr;

// Generation on the second half of a node with weights that training keeps on the first.
ExecutionPlan generation_apart(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  for (CallPlan& call : plan.calls)
    call.mesh = *contiguous_mesh(problem.cluster, call.call == "generate" ? 4 : 0, 4);
  plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kHost}};
  return plan;
}

// Instructions of a rank that an instruction waits for, directly or not.
std::set<int32_t> ancestors(const RankProgram& rank, int32_t index) {
  std::set<int32_t> out;
  for (const InstructionId before : rank.instructions[index].after) {
    out.insert(before.value);
    out.merge(ancestors(rank, before.value));
  }
  return out;
}

// Whether `instruction` reads the weights that a role's offload frees, or brings them.
bool touches_home(const Program& program, const Instruction& instruction, const RoleState& state,
                  DeviceId rank) {
  if (instruction.kind == OpKind::kLoad) return program.states[instruction.detail] == state;
  if (instruction.kind != OpKind::kReallocate) return false;
  const RoleId& role = program.copies[program.reallocations[instruction.detail].copy].role;
  return role == state.role &&
         std::any_of(program.copies.begin(), program.copies.end(), [&](const WeightCopy& copy) {
           return copy.home && copy.role == role && place_in_mesh(copy.layout, rank);
         });
}

TEST(Residency, WeightsLeaveAfterTheMessagesThatReadThem) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo"});
  ExecutionPlan plan = generation_apart(problem);
  for (const OffloadTiming timing :
       {OffloadTiming::kAfterEachCall, OffloadTiming::kAfterLastCall}) {
    plan.roles[0].timing = timing;
    const Program program = *compile(plan, problem);
    int checked = 0;
    for (size_t r = 0; r < program.ranks.size(); ++r) {
      const RankProgram& rank = program.ranks[r];
      for (size_t i = 0; i < rank.instructions.size(); ++i) {
        if (rank.instructions[i].kind != OpKind::kOffload) continue;
        const RoleState& state = program.states[rank.instructions[i].detail];
        if (state.optimizer) continue;
        const std::set<int32_t> waits = ancestors(rank, static_cast<int32_t>(i));
        for (int32_t before = 0; before < static_cast<int32_t>(i); ++before) {
          if (!touches_home(program, rank.instructions[before], state,
                            DeviceId{static_cast<int>(r)}))
            continue;
          EXPECT_EQ(waits.count(before), 1U) << "offload " << i << " does not wait for " << before;
          ++checked;
        }
      }
    }
    EXPECT_GE(checked, 8);  // on each of four devices the load and messages
  }
}

// A device that passes weights on keeps its copy until they have left.
TEST(Residency, CopiesAreReleasedAfterTheMessagesThatReadThem) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo", .nodes = 4});
  ExecutionPlan plan = uniform_plan(problem, 4, 2, 1);
  for (CallPlan& call : plan.calls) {
    const bool generates = call.call == "generate";
    call.mesh = *contiguous_mesh(problem.cluster, generates ? 8 : 0, generates ? 24 : 8);
    if (generates) call.strategy.dp = 3, call.strategy.tp = 8;
  }
  const Program program = *compile(plan, problem);
  int checked = 0;
  for (const RankProgram& rank : program.ranks)
    for (size_t i = 0; i < rank.instructions.size(); ++i) {
      if (rank.instructions[i].kind != OpKind::kRelease) continue;
      const std::set<int32_t> waits = ancestors(rank, static_cast<int32_t>(i));
      for (int32_t before = 0; before < static_cast<int32_t>(i); ++before) {
        const Instruction& filled = rank.instructions[before];
        if (filled.kind != OpKind::kReallocate ||
            program.reallocations[filled.detail].copy != rank.instructions[i].detail)
          continue;
        EXPECT_EQ(waits.count(before), 1U);
        ++checked;
      }
    }
  EXPECT_GT(checked, 0);
}

// A load begins when the same state has left the device before.
TEST(Residency, StateComesBackAfterItHasLeft) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo", .devices = 1});
  ExecutionPlan plan = trivial_plan(problem);
  plan.roles = {{RoleId{"actor"}, Residency::kHost}};
  plan.roles[0].timing = OffloadTiming::kAfterEachCall, plan.roles[0].prefetch = true;
  const Program program = *compile(plan, problem);
  const RankProgram& rank = program.ranks[0];
  int32_t left = -1, loads = 0;
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    const OpKind kind = rank.instructions[i].kind;
    if (kind == OpKind::kOffload) left = static_cast<int32_t>(i);
    if (kind != OpKind::kLoad) continue;
    if (left >= 0) {
      EXPECT_EQ(ancestors(rank, static_cast<int32_t>(i)).count(left), 1U);
    }
    ++loads;
  }
  // Those of generate, old_logprob, update_actor a few layers at a time.
  EXPECT_EQ(loads, 3 * kLoadRuns);
}

// Actor and reference in host memory, on a device of 24 layers; both come layer by layer.
Program prefetched(const PlanningProblem& problem) {
  ExecutionPlan plan = trivial_plan(problem);
  plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kHost},
                {RoleId{"reference"}, Residency::kHost}};
  for (RolePlan& role : plan.roles)
    role.timing = OffloadTiming::kAfterEachCall, role.prefetch = true;
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *program;
}

Instruction& first_of(Program& program, const std::string& call) {
  for (Instruction& i : program.ranks[0].instructions)
    if (program.graph.calls[i.call.value].name == call &&
        (i.kind == OpKind::kCall || i.kind == OpKind::kRegionBegin))
      return i;
  ADD_FAILURE() << call;
  return program.ranks[0].instructions[0];
}

// Passes wait for their first layers before they begin and for others on their way, updates for
// their optimizer; a generation for all.
TEST(Residency, PassesBeginWhenTheirFirstLayersAreThere) {
  const PlanningProblem problem =
      make_test_problem({.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 1});
  Program program = prefetched(problem);
  const auto& list = program.ranks[0].instructions;
  EXPECT_TRUE(first_of(program, "generate").within.empty());
  for (const char* call : {"old_logprob", "ref_logprob", "update_actor"}) {
    const Instruction& first = first_of(program, call);
    const bool trains = first.kind == OpKind::kRegionBegin;
    int64_t next = 3;  // layers 0 to 3 come before
    ASSERT_EQ(first.within.size(), kLoadRuns - 1 + (trains ? 1 : 0)) << call;
    for (const InstructionId load : first.within) {
      const Instruction& i = list[load.value];
      if (program.states[i.detail].optimizer) continue;
      EXPECT_EQ(i.layers.begin, next);
      next = i.layers.end;
    }
    EXPECT_EQ(next, 24);
  }
}

TEST(Residency, VerifyFindsLoadsThatAreMissingOrNotAwaited) {
  const PlanningProblem problem =
      make_test_problem({.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 1});
  const Program program = prefetched(problem);
  const auto& list = program.ranks[0].instructions;
  const auto error_with = [&](const auto& change) {
    Program changed = program;
    change(changed);
    return verify(changed).message();
  };
  EXPECT_EQ(error_with([](Program&) {}), "");
  for (const char* call : {"old_logprob", "update_actor"}) {
    EXPECT_THAT(error_with([&](Program& p) { first_of(p, call).within.pop_back(); }),
                HasSubstr("does not wait for instruction"));
    EXPECT_THAT(error_with([&](Program& p) { first_of(p, call).after.clear(); }),
                HasSubstr("does not wait for instruction"));
  }
  EXPECT_THAT(error_with([&](Program& p) {
                std::swap(first_of(p, "generate").within, first_of(p, "generate").after);
              }),
              HasSubstr("which loads nothing"));
  int loads = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind != OpKind::kLoad && list[i].kind != OpKind::kOffload) continue;
    // In its place one that these rules do not look at, so that the others keep their numbers.
    Program other = program;
    other.ranks[0].instructions[i] = {OpKind::kRelease, list[i].call, ExitCondition::kNone, {}, 0};
    EXPECT_FALSE(verify(other).ok()) << i;
    const std::string error = verify_residency(other, 0).message();
    const bool load = list[i].kind == OpKind::kLoad;
    if (load) {
      EXPECT_THAT(error, testing::AnyOf(HasSubstr("rests on the host"), HasSubstr("is away"),
                                        HasSubstr("which loads nothing")))
          << i;
    } else {
      EXPECT_THAT(error, testing::AnyOf(HasSubstr("is there already"), HasSubstr("at the end")))
          << i;
    }
    loads += load ? 1 : 0;
  }
  EXPECT_GE(loads, 4 * kLoadRuns);
  EXPECT_THAT(error_with([&](Program& p) {
                for (Instruction& i : p.ranks[0].instructions)
                  if (i.layers.begin > 0) i.layers.begin -= 1;
              }),
              HasSubstr("that is there already"));
}

// Each stage brings what it has; the ends of the model come with the layers beside them.
TEST(Residency, LoadRunsCoverTheLayersOfADevice) {
  ParamLayout layout;
  layout.mesh.devices = {DeviceId{0}, DeviceId{1}};
  layout.pp = 2, layout.interleave = 2;
  EXPECT_EQ(load_runs(layout, 6, DeviceId{1}), (std::vector<Interval>{{2, 3}, {3, 4}, {5, 6}}));
  layout.interleave = 1;
  EXPECT_EQ(load_runs(layout, 6, DeviceId{0}), (std::vector<Interval>{{0, 1}, {1, 2}, {2, 3}}));
  layout.stage_layers = {20, 4};
  const auto runs = load_runs(layout, 24, DeviceId{0});
  ASSERT_EQ(runs.size(), static_cast<size_t>(kLoadRuns));
  EXPECT_EQ(runs.front(), (Interval{0, 3}));
  EXPECT_EQ(runs.back().end, 20);
}

}  // namespace
}  // namespace braid::inline program
