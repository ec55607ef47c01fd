#include "interpret/interpreter.h"

#include <gmock/gmock.h>

#include <new>

#include "base/text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"

namespace braid::inline interpret {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Writes down what it is told to do; regions take two rounds.
class Scribe : public Executor {
 public:
  explicit Scribe(const Program& program) : program_(program) {}

  Status execute(const Instruction& i) override {
    const std::string call = program_.graph.calls[i.call.value].name;
    switch (i.kind) {
      case OpKind::kCall:
        if (i.call.value == 0) ++draws_;
        return note("run " + call);
      case OpKind::kRegionBegin:
        rounds_ = 0;
        return note("begin " + call);
      case OpKind::kRegionEnd:
        return note("end " + call);
      case OpKind::kRound:
      case OpKind::kPasses:
        ++rounds_;
        return note(cat(op_kind_name(i.kind), " ", call));
      case OpKind::kUpdate:
      case OpKind::kAllGather:
        return note(cat(op_kind_name(i.kind), " ", call));
      case OpKind::kShare:
      case OpKind::kExchange:
      case OpKind::kReallocate:
        return note(cat(op_kind_name(i.kind), " ", i.detail));
      case OpKind::kLoad:
        return load(i);
      default:
        return ok_status();
    }
  }
  Status begin_ahead(const Instruction& i) override {
    return i.kind == OpKind::kLoad ? load(i) : note(cat("reallocate ahead ", i.detail));
  }
  Status wait_for(const Instruction& i) override {
    return note(cat(i.kind == OpKind::kExchange ? "arrive " : "reallocated ", i.detail));
  }
  bool region_done(const Instruction& end) const override {
    return end.kind == OpKind::kRepeat ? draws_ == 3 : rounds_ == 2;
  }
  Status reopen(const Instruction& i) override {
    rounds_ = 1;
    return note("reopen " + program_.graph.calls[i.call.value].name);
  }
  void passed(size_t next) override {
    last_passed = next;
    passes.push_back(next);
  }

  std::vector<std::string> order;
  size_t last_passed = 0;
  std::vector<size_t> passes;  // all that passed() named
  std::string throws_at;

 private:
  Status note(const std::string& what) {
    order.push_back(what);
    if (what == throws_at) throw std::bad_alloc();
    return ok_status();
  }
  Status load(const Instruction& i) {
    const RoleState& of = program_.states[i.detail];
    return note(cat("load ", of.role, of.optimizer ? " optimizer" : "", " ", i.layers.begin, "-",
                    i.layers.end));
  }

  const Program& program_;
  int rounds_ = 0, draws_ = 0;
};

// The call that runs first from the first line on that begins so; "" for none.
std::string next_call(const std::vector<std::string>& order, const std::string& begin) {
  bool found = false;
  for (const std::string& line : order) {
    found = found || line.rfind(begin, 0) == 0;
    const bool runs = line.rfind("run ", 0) == 0 || line.rfind("begin ", 0) == 0;
    if (found && runs) return line.substr(line.find(' ') + 1);
  }
  return "";
}

CallId call_of(const Program& program, const std::string& name) {
  for (size_t i = 0; i < program.graph.calls.size(); ++i)
    if (program.graph.calls[i].name == name) return CallId{static_cast<int32_t>(i)};
  ADD_FAILURE() << name;
  return CallId{0};
}

constexpr auto kNoTimer = [](const Call&, double) {};

Program sft_program() {
  const PlanningProblem problem = make_test_problem({.algorithm = "sft", .devices = 2});
  const auto program = compile(uniform_plan(problem, 2, 1, 1), problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *program;
}

TEST(Interpret, RepeatsARegionUntilItIsDone) {
  const Program program = sft_program();
  Scribe scribe(program);
  std::vector<size_t> seen;
  ASSERT_TRUE(run_list(program, 1, scribe, kNoTimer, [&](size_t at) { seen.push_back(at); }).ok());
  const std::string fetch = program.graph.calls[0].name, update = program.graph.calls[1].name;
  EXPECT_THAT(scribe.order, ElementsAre("run " + fetch, "share 0", "begin " + update,
                                        "passes " + update, "update " + update, "passes " + update,
                                        "update " + update, "end " + update));
  const size_t count = program.ranks[1].instructions.size();
  EXPECT_EQ(scribe.last_passed, count);
  EXPECT_EQ(seen.back(), count - 1);
}

// Calls with regions of their own, as often as the select says; weights come once.
TEST(Interpret, RepeatsCallsUntilThereAreEnoughSamples) {
  const PlanningProblem problem =
      make_test_problem({.algorithm = "grpo", .devices = 2, .dynamic_sampling = true});
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  for (CallPlan& call : plan.calls)
    if (call.call == "generate") call.strategy.dp = 1, call.strategy.tp = 2;
  plan.roles = {{RoleId{"reference"}, Residency::kHost}};
  const auto program = compile(plan, problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  Scribe scribe(*program);
  ASSERT_TRUE(run_list(*program, 1, scribe, kNoTimer).ok());
  std::vector<std::string> calls, moves;
  for (const std::string& line : scribe.order) {
    if (line.rfind("run ", 0) == 0 || line.rfind("begin ", 0) == 0) calls.push_back(line);
    if (line.rfind("reallocate ", 0) == 0) moves.push_back(line);
    if (line.rfind("load ", 0) != 0) continue;
    EXPECT_GE(calls.size(), 9u) << "beside what may run again";
  }
  const std::vector<std::string> draw = {"run fetch", "begin generate", "run select"};
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(calls.at(i), draw[i % 3]);
  EXPECT_EQ(calls.at(9), "run old_logprob");
  EXPECT_EQ(std::count(moves.begin(), moves.end(), "reallocate 0"), 1);
}

// A load begins with the first call before which all that it waits for has ended, and again at its
// own place, where it has begun.
TEST(Interpret, LoadsPassBesideCallsBeforeTheirs) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo", .devices = 1});
  ExecutionPlan plan = trivial_plan(problem);
  plan.roles = {{RoleId{"reference"}, Residency::kHost}};
  for (const bool prefetch : {false, true}) {
    plan.roles[0].prefetch = prefetch;
    const auto program = compile(plan, problem);
    ASSERT_TRUE(program.ok()) << program.status().message();
    Scribe scribe(*program);
    ASSERT_TRUE(run_list(*program, 0, scribe, kNoTimer).ok());
    // The call that begins next: after generate has ended.
    EXPECT_EQ(next_call(scribe.order, "load reference 0-"), prefetch ? "reward" : "ref_logprob");
  }
}

// Weights for a layout of their own go beside the calls before, from the first on whose ranks they
// wait for nothing: where they arrive, when what ran there has ended.
TEST(Interpret, MessagesOfWeightsPassBesideCallsBeforeTheirs) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo", .devices = 4});
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  for (CallPlan& call : plan.calls) {
    const int first = call.call == "update_actor" || call.call == "ref_logprob" ? 0 : 2;
    call.mesh.devices = {DeviceId{first}, DeviceId{first + 1}};
    if (call.call == "old_logprob") call.strategy.dp = 1, call.strategy.tp = 2;
  }
  const auto program = compile(plan, problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const int32_t copy = program->calls[call_of(*program, "old_logprob").value].copy;
  size_t entry = 0;
  while (program->reallocations[entry].copy != copy) ++entry;
  for (const size_t rank : {0, 2}) {
    Scribe scribe(*program);
    ASSERT_TRUE(run_list(*program, rank, scribe, kNoTimer).ok());
    // The senders begin at once; on the receivers generation takes the memory first.
    EXPECT_EQ(next_call(scribe.order, cat("reallocate ahead ", entry)),
              rank == 0 ? program->graph.calls[0].name : "reward")
        << rank;
  }
}

// Where passed() said that the first update was done.
TEST(Interpret, GoesOnWithinARegion) {
  const Program program = sft_program();
  const auto& list = program.ranks[0].instructions;
  size_t after_update = 0;
  while (list[after_update].kind != OpKind::kUpdate) ++after_update;
  Scribe scribe(program);
  ASSERT_TRUE(run_list(program, 0, scribe, kNoTimer, {}, after_update + 1).ok());
  const std::string update = program.graph.calls[1].name;
  EXPECT_THAT(scribe.order, ElementsAre("reopen " + update, "passes " + update, "update " + update,
                                        "end " + update));
}

// An update is done when its weights are with all who hold them: what fails before leaves a step
// that cannot go on after it.
TEST(Interpret, AnUpdateEndsWithTheWayOfItsWeights) {
  const PlanningProblem problem = make_test_problem({.algorithm = "sft", .devices = 2});
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  for (CallPlan& call : plan.calls) call.strategy.zero_stage = 1;
  const auto program = compile(plan, problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const auto& list = program->ranks[0].instructions;
  size_t update = 0;
  while (list[update].kind != OpKind::kUpdate) ++update;
  ASSERT_EQ(list[update + 1].kind, OpKind::kAllGather);
  Scribe scribe(*program);
  ASSERT_TRUE(run_list(*program, 0, scribe, kNoTimer).ok());
  EXPECT_EQ(std::count(scribe.passes.begin(), scribe.passes.end(), update + 1), 0);
  EXPECT_EQ(std::count(scribe.passes.begin(), scribe.passes.end(), update + 2), 2);
}

TEST(Interpret, ExceptionsNameTheInstruction) {
  const Program program = sft_program();
  Scribe scribe(program);
  scribe.throws_at = "run " + program.graph.calls[0].name;
  const Status failed = run_list(program, 0, scribe, kNoTimer);
  EXPECT_EQ(failed.code(), Code::kOutOfMemory);
  EXPECT_THAT(failed.message(), HasSubstr("instruction 0: out of memory"));
}

Program fused_program() {
  const PlanningProblem problem = make_test_problem({.algorithm = "ppo",
                                                     .actor = "qwen2.5-0.5b",
                                                     .critic = "qwen2.5-0.5b",
                                                     .devices = 4,
                                                     .prompts = 32,
                                                     .minibatches = 2,
                                                     .prompt_tokens = 128,
                                                     .response_tokens = 128});
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  for (CallPlan& call : plan.calls)
    if (call.call.rfind("update_", 0) == 0)
      call.strategy.dp = 1, call.strategy.pp = 4, call.strategy.micro_batches = 4;
  plan.fusion.train_schedules = true;
  plan.fusion.units = 2;
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->fused.size(), 1u);
  return *program;
}

// What a scribe wrote down of the two calls, critic and actor.
std::vector<std::string> of_updates(const std::vector<std::string>& order) {
  std::vector<std::string> out;
  for (const std::string& line : order)
    if (line.find(" update_") != std::string::npos) out.push_back(line);
  return out;
}

TEST(Interpret, FusedCallsShareARegion) {
  const Program program = fused_program();
  Scribe scribe(program);
  ASSERT_TRUE(run_list(program, 0, scribe, kNoTimer).ok());
  EXPECT_THAT(of_updates(scribe.order),
              ElementsAre("begin update_critic", "begin update_actor", "passes update_critic",
                          "update update_critic", "update update_actor", "passes update_critic",
                          "update update_critic", "update update_actor", "end update_critic",
                          "end update_actor"));
}

// One has made its update and the other has not: both are opened again before their passes.
TEST(Interpret, FusedCallsGoOnTogether) {
  const Program program = fused_program();
  const auto& list = program.ranks[0].instructions;
  size_t passes = 0, update = 0;
  while (list[passes].kind != OpKind::kPasses) ++passes;
  while (list[update].kind != OpKind::kUpdate) ++update;
  Scribe whole(program);
  ASSERT_TRUE(run_list(program, 0, whole, kNoTimer).ok());
  EXPECT_GE(std::count(whole.passes.begin(), whole.passes.end(), passes), 4);
  EXPECT_EQ(std::count(whole.passes.begin(), whole.passes.end(), update + 1), 0);
  Scribe scribe(program);
  ASSERT_TRUE(run_list(program, 0, scribe, kNoTimer, {}, passes).ok());
  EXPECT_THAT(of_updates(scribe.order),
              ElementsAre("reopen update_critic", "reopen update_actor", "passes update_critic",
                          "update update_critic", "update update_actor", "end update_critic",
                          "end update_actor"));
}

}  // namespace
}  // namespace braid::inline interpret
