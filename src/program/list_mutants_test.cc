// Lists with one fault, drawn at random: verify() refuses them, or what they say is the same.
#include "program/list_mutants.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <tuple>

#include "base/testing.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "program/verify_circles.h"

namespace braid::inline program {
namespace {

struct MutantCase {
  std::string name;
  int devices = 2;
  std::function<void(ExecutionPlan*)> change;
  std::function<void(TestProblem*)> sizes = [](TestProblem*) {};
  int64_t carried_steps = 0;  // for which a generation may leave samples to newer weights
};

CallPlan& call_of(ExecutionPlan* plan, const std::string& name) {
  return *std::find_if(plan->calls.begin(), plan->calls.end(),
                       [&](const CallPlan& each) { return each.call == name; });
}

void layout(ExecutionPlan* plan, const std::string& call, std::vector<int> devices, int dp, int tp,
            int pp) {
  CallPlan& entry = call_of(plan, call);
  entry.mesh = {};
  for (const int device : devices) entry.mesh.devices.push_back(DeviceId{device});
  entry.strategy = {};
  entry.strategy.dp = dp, entry.strategy.tp = tp, entry.strategy.pp = pp;
  if (pp > 1) entry.strategy.micro_batches = 4;
}

// Two of four ranks generate for later steps, and score; the others train.
void work_ahead(ExecutionPlan* plan) {
  layout(plan, "generate", {2, 3}, 2, 1, 1);
  layout(plan, "ref_logprob", {2, 3}, 1, 2, 1);
  for (const char* call : {"old_logprob", "update_actor"}) layout(plan, call, {0, 1}, 1, 1, 2);
  plan->staleness = 1;
}

std::vector<MutantCase> mutant_cases() {
  return {
      {"four ranks, weights that come over beside training", 4,
       [](ExecutionPlan* plan) {
         for (CallPlan& call : plan->calls) layout(plan, call.call, {2, 3}, 2, 1, 1);
         layout(plan, "update_actor", {0, 1}, 1, 2, 1);
         layout(plan, "update_critic", {0, 1}, 2, 1, 1);
         plan->fusion.sync_beside_training = true;
       }},
      {"two ranks, pipelines and shards", 2,
       [](ExecutionPlan* plan) {
         layout(plan, "old_logprob", {0, 1}, 1, 1, 2);
         layout(plan, "update_actor", {0, 1}, 1, 1, 2);
         layout(plan, "values", {0, 1}, 1, 2, 1);
         call_of(plan, "update_critic").strategy.zero_stage = 1;
       }},
      {"three ranks, roles apart, host memory", 3,
       [](ExecutionPlan* plan) {
         for (const char* call : {"generate", "old_logprob"}) layout(plan, call, {0, 1}, 2, 1, 1);
         layout(plan, "ref_logprob", {2}, 1, 1, 1);
         layout(plan, "reward", {2}, 1, 1, 1);
         layout(plan, "update_actor", {0, 1}, 1, 1, 2);
         layout(plan, "values", {2}, 1, 1, 1);
         layout(plan, "update_critic", {1, 2}, 2, 1, 1);
         plan->roles = {{RoleId{"reference"}, Residency::kHost}};
       }},
      {"four ranks, tensor parallelism and pipelines", 4,
       [](ExecutionPlan* plan) {
         layout(plan, "generate", {0, 1, 2, 3}, 2, 2, 1);
         layout(plan, "update_actor", {0, 1, 2, 3}, 1, 2, 2);
         layout(plan, "update_critic", {0, 1, 2, 3}, 2, 1, 2);
         call_of(plan, "update_critic").strategy.zero_stage = 1;
         call_of(plan, "values").strategy.zero_stage = 0;
       }},
      {"two ranks, prompts that are drawn again", 2,
       [](ExecutionPlan* plan) {
         layout(plan, "generate", {0, 1}, 1, 2, 1);
         layout(plan, "update_actor", {0, 1}, 1, 1, 2);
       },
       [](TestProblem* sizes) {
         sizes->algorithm = "grpo", sizes->samples = 4, sizes->dynamic_sampling = true;
       }},
      {"two ranks, updates that are fused", 2,
       [](ExecutionPlan* plan) {
         layout(plan, "update_actor", {0, 1}, 1, 1, 2);
         layout(plan, "update_critic", {1, 0}, 1, 1, 2);
         plan->fusion.train_schedules = true, plan->fusion.units = 4;
       }},
      {"four ranks, a generation that is handed over", 4,
       [](ExecutionPlan* plan) {
         layout(plan, "generate", {0, 1, 2, 3}, 4, 1, 1);
         layout(plan, "values", {0, 1, 2, 3}, 2, 2, 1);
         plan->fusion.migrate_below_samples = 8;
       }},
      {"four ranks, beginnings that are scored while the rest is generated", 4,
       [](ExecutionPlan* plan) {
         layout(plan, "generate", {0, 1, 2, 3}, 4, 1, 1);
         layout(plan, "values", {0, 1, 2, 3}, 2, 2, 1);
         plan->fusion.migrate_below_samples = 8, plan->fusion.scored_prefixes = true;
       }},
      {"four ranks, an update that begins early", 4,
       [](ExecutionPlan* plan) {
         for (const char* call : {"generate", "ref_logprob"}) layout(plan, call, {2, 3}, 2, 1, 1);
         for (const char* call : {"old_logprob", "update_actor"})
           layout(plan, call, {0, 1}, 1, 1, 2);
         plan->fusion.train_beside_scoring = 1;
       },
       [](TestProblem* sizes) { sizes->algorithm = "grpo", sizes->samples = 4; }},
      {"four ranks, an update that begins early behind a generation that is handed over", 4,
       [](ExecutionPlan* plan) {
         for (const char* call : {"generate", "ref_logprob"}) layout(plan, call, {2, 3}, 2, 1, 1);
         for (const char* call : {"old_logprob", "update_actor"})
           layout(plan, call, {0, 1}, 1, 1, 2);
         plan->fusion.train_beside_scoring = 1;
         plan->fusion.migrate_below_samples = 8;
       },
       [](TestProblem* sizes) { sizes->algorithm = "grpo", sizes->samples = 4; }},
      {"four ranks, an update that begins beside the generation", 4,
       [](ExecutionPlan* plan) {
         for (const char* call : {"generate", "ref_logprob"}) layout(plan, call, {2, 3}, 2, 1, 1);
         for (const char* call : {"old_logprob", "update_actor"})
           layout(plan, call, {0, 1}, 1, 1, 2);
         plan->fusion.migrate_below_samples = 8, plan->fusion.train_beside_generation = true;
       },
       [](TestProblem* sizes) {
         sizes->algorithm = "grpo", sizes->samples = 4, sizes->looks_at_groups = true;
       }},
      {"four ranks, a generation that is handed over again", 4,
       [](ExecutionPlan* plan) {
         layout(plan, "generate", {0, 1, 2, 3}, 4, 1, 1);
         layout(plan, "values", {0, 1, 2, 3}, 2, 2, 1);
         plan->fusion.migrate_below_samples = 8;
         plan->fusion.migrate_again_below = {4, 2};
       }},
      {"four ranks, a generation that works ahead", 4, work_ahead,
       [](TestProblem* sizes) { sizes->algorithm = "grpo", sizes->samples = 4; }},
      {"four ranks, a generation that works ahead and leaves samples to the next", 4, work_ahead,
       [](TestProblem* sizes) { sizes->algorithm = "grpo", sizes->samples = 4; }, 1},
      {"two ranks, a generation that leaves samples to the next step", 2,
       [](ExecutionPlan* plan) {
         layout(plan, "generate", {0, 1}, 2, 1, 1);
         layout(plan, "ref_logprob", {0, 1}, 1, 2, 1);
         layout(plan, "update_actor", {0, 1}, 1, 1, 2);
       },
       [](TestProblem* sizes) { sizes->algorithm = "grpo", sizes->samples = 4; }, 1},
  };
}

Program program_of(const MutantCase& test) {
  TestProblem sizes;
  sizes.devices = test.devices, sizes.actor = sizes.critic = "qwen2.5-0.5b";
  sizes.prompts = 16, sizes.minibatches = 2;
  test.sizes(&sizes);
  PlanningProblem problem = make_test_problem(sizes);
  if (test.carried_steps > 0) problem.graph = *carried_over(problem.graph, test.carried_steps);
  ExecutionPlan plan = uniform_plan(problem, test.devices, 1, 1);
  test.change(&plan);
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << test.name << ": " << program.status().message();
  return *program;
}

// What arrives on each rank in a reallocation, whoever sends it and in whatever order.
using Arriving = std::multiset<std::tuple<int32_t, int32_t, int64_t, int64_t, int64_t, int64_t>>;
std::vector<Arriving> arriving(const Program& program) {
  std::vector<Arriving> out;
  for (const Reallocation& each : program.reallocations) {
    out.emplace_back();
    for (const Message& message : each.messages)
      for (const MessagePart& part : message.parts)
        out.back().insert({message.to.value, part.item, part.layers.begin, part.layers.end,
                           part.units.begin, part.units.end});
  }
  return out;
}

// The instructions of each rank, in whatever order.
std::vector<std::multiset<std::tuple<OpKind, int32_t, int32_t>>> done_by_ranks(
    const Program& program) {
  std::vector<std::multiset<std::tuple<OpKind, int32_t, int32_t>>> out;
  for (const RankProgram& rank : program.ranks) {
    out.emplace_back();
    for (const Instruction& i : rank.instructions)
      out.back().insert({i.kind, i.call.value, i.detail});
  }
  return out;
}

// By rank and instruction: all that it waits for, also through others.
std::vector<std::vector<std::set<int32_t>>> waited_through(const Program& program) {
  std::vector<std::vector<std::set<int32_t>>> out;
  for (const RankProgram& rank : program.ranks) {
    auto& waits = out.emplace_back(rank.instructions.size());
    for (size_t i = 0; i < waits.size(); ++i)
      for (const auto* list : {&rank.instructions[i].after, &rank.instructions[i].within})
        for (const InstructionId before : *list) {
          waits[i].insert(before.value);
          waits[i].insert(waits[before.value].begin(), waits[before.value].end());
        }
  }
  return out;
}

// Of every plan 200 random mutants; in the full tier all that there are. What is not refused sends
// the same to every rank, lets calls that do not wait for each other change places, or leaves out a
// wait that others imply.
TEST(ListMutants, AreRefusedOrDoTheSame) {
  std::map<Mutation, int> drawn, passed;
  for (const MutantCase& test : mutant_cases()) {
    SCOPED_TRACE(test.name);
    const Program program = program_of(test);
    const std::vector<Partition> partitions = drawn_partitions(program, 16, 2);
    const MutantSites sites(program, ops_of(program, partitions));
    for (const Mutant& mutant : sites.draw(full_tier() ? 1000000 : 200, 27)) {
      ++drawn[mutant.mutation];
      if (!refusal(program, mutant, partitions).empty()) continue;
      ++passed[mutant.mutation];
      EXPECT_FALSE(mutant.change_ops) << mutant.what << ": ops are never the same";
      const Program other = mutant.lists(program);
      const bool implied = mutant.mutation == Mutation::kDropAfter &&
                           waited_through(other) == waited_through(program);
      EXPECT_TRUE(implied || mutant.mutation == Mutation::kSwapMessages ||
                  mutant.mutation == Mutation::kRedirectReceive ||
                  mutant.mutation == Mutation::kSwapCalls)
          << mutant.what;
      EXPECT_EQ(arriving(other), arriving(program)) << mutant.what;
      EXPECT_EQ(done_by_ranks(other), done_by_ranks(program)) << mutant.what;
      EXPECT_EQ(other.exchanges, program.exchanges) << mutant.what;
    }
  }
  int all = 0;
  for (int m = 0; m < kMutations; ++m) {
    const auto mutation = static_cast<Mutation>(m);
    EXPECT_GT(drawn[mutation], 20) << mutation_name(mutation);
    std::string key = mutation_name(mutation);
    std::replace(key.begin(), key.end(), ' ', '_');
    RecordProperty(key, cat(drawn[mutation], ", not refused ", passed[mutation]));
    all += drawn[mutation];
  }
  RecordProperty("inputs", all);
}

// What verify() says of the program with one instruction that is about another entry, call or part
// of its samples.
int redirected(const Program& program, size_t rank, size_t i, int* refused) {
  int tried = 0;
  const Instruction& whole = program.ranks[rank].instructions[i];
  const auto attempt = [&](const std::function<void(Instruction*)>& change) {
    Program other = program;
    change(&other.ranks[rank].instructions[i]);
    ++tried;
    *refused += verify(other).ok() ? 0 : 1;
  };
  const auto entries =
      static_cast<int32_t>(std::max({program.reallocations.size(), program.exchanges.size(),
                                     program.groups.size(), program.copies.size()}));
  for (int32_t detail = -1; detail <= entries; ++detail)
    if (detail != whole.detail) attempt([&](Instruction* each) { each->detail = detail; });
  for (int32_t call = 0; call < std::ssize(program.graph.calls); ++call)
    if (CallId{call} != whole.call && !stands_between_calls(whole.kind))
      attempt([&](Instruction* each) { each->call = CallId{call}; });
  for (const SamplePart part : {SamplePart::kAll, SamplePart::kEarly, SamplePart::kLate})
    if (part != whole.part && starts_call(whole.kind))
      attempt([&](Instruction* each) { each->part = part; });
  return tried;
}

// Ops that only bodies of calls have.
TEST(EveryInstruction, OfABodyAloneIsRefusedInAList) {
  const Program program = program_of(mutant_cases().front());
  for (const OpKind kind :
       {OpKind::kForward, OpKind::kBackward, OpKind::kLoss, OpKind::kSend, OpKind::kReceive,
        OpKind::kBroadcast, OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllToAll,
        OpKind::kNorm, OpKind::kZero, OpKind::kSample}) {
    Program other = program;
    other.ranks[1].instructions.back().kind = kind;
    EXPECT_FALSE(verify(other).ok()) << op_kind_name(kind);
    EXPECT_THAT(verify_circles(other).message(), testing::HasSubstr("no instruction of a list"));
  }
}

// Kind by kind: an instruction that is left out, that stands before the one before it, or that is
// about something else.
TEST(EveryInstruction, IsMissedMovedAndRedirected) {
  struct Counts {
    int missing = 0, moved = 0, passed = 0, redirected = 0, refused = 0;
  };
  std::map<OpKind, Counts> counts;
  for (const MutantCase& test : mutant_cases()) {
    SCOPED_TRACE(test.name);
    const Program program = program_of(test);
    for (size_t rank = 0; rank < program.ranks.size(); ++rank)
      for (size_t i = 0; i < program.ranks[rank].instructions.size(); ++i) {
        const Instruction& whole = program.ranks[rank].instructions[i];
        Counts& kind = counts[whole.kind];
        Program other = program;
        erase_instruction(&other, rank, i);
        ++kind.missing;
        // A copy that one rank has may stay: that takes memory, in runtime and simulator alike.
        const bool may_stay = whole.kind == OpKind::kRelease &&
                              program.calls[whole.call.value].mesh.devices.size() == 1;
        EXPECT_EQ(verify(other).ok(), may_stay)
            << "without " << op_kind_name(whole.kind) << ", rank " << rank << ", " << i;
        kind.redirected += redirected(program, rank, i, &kind.refused);
        if (i == 0) continue;
        other = program;
        swap_neighbours(&other.ranks[rank].instructions, i - 1);
        ++kind.moved;
        if (!verify(other).ok()) continue;
        ++kind.passed;
        const Instruction& before = program.ranks[rank].instructions[i - 1];
        const bool calls = whole.kind == OpKind::kCall && before.kind == OpKind::kCall;
        EXPECT_TRUE(stands_between_calls(whole.kind) || stands_between_calls(before.kind) ||
                    (calls && whole.call != before.call))  // neither waits for the other
            << op_kind_name(whole.kind) << " before " << op_kind_name(before.kind);
      }
  }
  for (const OpKind kind :
       {OpKind::kCall, OpKind::kPasses, OpKind::kReduce, OpKind::kRound, OpKind::kAgree,
        OpKind::kUpdate, OpKind::kAllGather, OpKind::kRegionBegin, OpKind::kRegionEnd,
        OpKind::kReallocate, OpKind::kShare, OpKind::kExchange, OpKind::kLoad, OpKind::kOffload,
        OpKind::kRelease, OpKind::kTally, OpKind::kHandOver, OpKind::kRepeat}) {
    const Counts& n = counts[kind];
    EXPECT_GT(n.missing, 0) << op_kind_name(kind);
    EXPECT_GT(n.redirected, 0) << op_kind_name(kind);
    EXPECT_TRUE(n.passed == 0 || stands_between_calls(kind) || kind == OpKind::kCall);
    EXPECT_EQ(n.refused, n.redirected) << op_kind_name(kind);
  }
}

}  // namespace
}  // namespace braid::inline program
