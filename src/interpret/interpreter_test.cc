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

  Status share(int32_t entry) override { return note_entry("share", entry); }
  Status begin_exchange(int32_t entry) override { return note_entry("exchange", entry); }
  Status arrive(int32_t entry) override { return note_entry("arrive", entry); }
  Status begin_reallocation(int32_t entry, bool here) override {
    return note_entry(here ? "reallocate" : "reallocate ahead", entry);
  }
  Status reallocated(int32_t entry) override { return note_entry("reallocated", entry); }
  Status run_call(const Call& call) override { return note("run", call); }
  Status begin_region(const Call& call) override {
    rounds_ = 0;
    return note("begin", call);
  }
  Status generate_step(const Call& call) override { return round("round", call); }
  Status run_schedule(const Call& call) override { return round("passes", call); }
  Status reduce(const Call&) override { return ok_status(); }
  Status agree(const Call&) override { return ok_status(); }
  Status optimizer_step(const Call& call) override { return note("update", call); }
  bool region_done(ExitCondition) const override { return rounds_ == 2; }
  Status end_region(const Call& call) override { return note("end", call); }
  void release(int32_t) override {}
  Status begin_load(int32_t state, const Interval& layers) override {
    const RoleState& of = program_.states[state];
    order.push_back(cat("load ", of.role, of.optimizer ? " optimizer" : "", " ", layers.begin, "-",
                        layers.end));
    return ok_status();
  }
  Status offload(int32_t) override { return ok_status(); }
  void passed(size_t next) override { last_passed = next; }
  Status reopen_region(const Call& call) override {
    rounds_ = 1;
    return note("reopen", call);
  }

  std::vector<std::string> order;
  size_t last_passed = 0;
  std::string throws_at;

 private:
  Status note_entry(const std::string& what, int32_t entry) {
    order.push_back(cat(what, " ", entry));
    return ok_status();
  }
  Status note(const std::string& what, const Call& call) {
    order.push_back(cat(what, " ", call.name));
    if (order.back() == throws_at) throw std::bad_alloc();
    return ok_status();
  }
  Status round(const std::string& what, const Call& call) {
    ++rounds_;
    return note(what, call);
  }

  const Program& program_;
  int rounds_ = 0;
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
  EXPECT_THAT(scribe.order,
              ElementsAre("run " + fetch, "begin " + update, "passes " + update, "update " + update,
                          "passes " + update, "update " + update, "end " + update));
  const size_t count = program.ranks[1].instructions.size();
  EXPECT_EQ(scribe.last_passed, count);
  EXPECT_EQ(seen.back(), count - 1);
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
  while (list[after_update].code != OpCode::kOptimizerStep) ++after_update;
  Scribe scribe(program);
  ASSERT_TRUE(run_list(program, 0, scribe, kNoTimer, {}, after_update + 1).ok());
  const std::string update = program.graph.calls[1].name;
  EXPECT_THAT(scribe.order, ElementsAre("reopen " + update, "passes " + update, "update " + update,
                                        "end " + update));
}

TEST(Interpret, ExceptionsNameTheInstruction) {
  const Program program = sft_program();
  Scribe scribe(program);
  scribe.throws_at = "run " + program.graph.calls[0].name;
  const Status failed = run_list(program, 0, scribe, kNoTimer);
  EXPECT_EQ(failed.code(), Code::kOutOfMemory);
  EXPECT_THAT(failed.message(), HasSubstr("instruction 0: out of memory"));
}

// The second one's region follows the first one's.
TEST(Interpret, FusedCallsComeTogether) {
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
  ASSERT_TRUE(program.ok()) << program.status().message();
  ASSERT_EQ(program->fused.size(), 1u);
  Scribe scribe(*program);
  ASSERT_TRUE(run_list(*program, 0, scribe, kNoTimer).ok());
  const auto name = [&](int i) {
    return program->graph.calls[program->fused[0].calls[i].value].name;
  };
  std::erase_if(scribe.order, [](const std::string& line) {
    return line.rfind("arrive", 0) == 0 || line.rfind("exchange", 0) == 0 ||
           line.rfind("share", 0) == 0 || line.rfind("reallocate", 0) == 0;
  });
  const auto at = std::find(scribe.order.begin(), scribe.order.end(), "end " + name(0));
  ASSERT_GE(scribe.order.end() - at, 2);
  EXPECT_EQ(at[1], "begin " + name(1));
  EXPECT_EQ(std::count(scribe.order.begin(), scribe.order.end(), "end " + name(0)), 1);
  EXPECT_EQ(std::count(scribe.order.begin(), scribe.order.end(), "end " + name(1)), 1);
}

}  // namespace
}  // namespace braid::inline interpret
