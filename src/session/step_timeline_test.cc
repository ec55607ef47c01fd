#include "session/step_timeline.h"

#include <gtest/gtest.h>

#include <set>

#include "session/testing.h"

namespace braid::inline session {
namespace {

std::vector<int64_t> recorded_of(int64_t total, int64_t wanted) {
  Config config;
  config.train.total_steps = total;
  config.report.recorded_steps = wanted;
  std::vector<int64_t> out;
  for (int64_t step = 0; step < total; ++step)
    if (is_recorded(config, step)) out.push_back(step);
  return out;
}

TEST(StepTimeline, RecordsSoManyStepsAndTheLast) {
  EXPECT_EQ(recorded_of(3, 32), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(recorded_of(10, 3), (std::vector<int64_t>{0, 4, 8, 9}));
  EXPECT_EQ(recorded_of(5, 0), std::vector<int64_t>());
  EXPECT_LE(recorded_of(100'000, 32).size(), 33u);
}

TEST(StepTimeline, KeepsTheMostOfAnOwner) {
  const Program program = program_of(tiny_run("grpo"));
  StepTimeline timeline(program, 0);
  timeline.begin_step(true);
  for (const int64_t bytes : {3, 7, 5, 0}) timeline.hold("activations", bytes);
  const Json record = timeline.take();
  EXPECT_EQ(record["memory"], Json({{"activations", 7}}));
  EXPECT_EQ(record["spans"], Json::array());
  EXPECT_TRUE(timeline.take().is_null()) << "it was taken";
}

TEST(StepTimeline, AStepThatIsNotRecordedHasNothing) {
  const Program program = program_of(tiny_run("grpo"));
  StepTimeline timeline(program, 0);
  timeline.begin_step(false);
  timeline.enter(0);
  timeline.hold("samples", 1);
  EXPECT_TRUE(timeline.take().is_null());
  StepTimeline far(program, kMostRecordedRanks);
  far.begin_step(true);
  EXPECT_FALSE(far.on());
}

TEST(StepTimeline, LengthsAreSpreadOverAllOfThem) {
  EXPECT_EQ(length_quantiles({3, 1, 2}), (std::vector<int64_t>{1, 2, 3}));
  std::vector<int64_t> many;
  for (int64_t i = 0; i < 5000; ++i) many.push_back(4999 - i);
  const std::vector<int64_t> shown = length_quantiles(many);
  ASSERT_EQ(shown.size(), 200u);
  EXPECT_EQ(shown.front(), 0);
  EXPECT_EQ(shown.back(), 4999);
  EXPECT_NEAR(static_cast<double>(shown[100]), 2512, 1);
}

// What a session says of a step that it ran: every call of the graph that computes, in order, and
// who held memory.
TEST(StepRecord, HasTheCallsOfTheStepAndItsMemory) {
  Config config = tiny_run("ppo");
  config.train.total_steps = 4;
  config.report.recorded_steps = 2;
  const auto session = session_of(config, program_of(config));
  std::vector<Json> records;
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(session->run_step().ok());
    records.push_back(session->step_record());
  }
  EXPECT_TRUE(records[1].is_null()) << "steps 0, 2 and 3 are recorded";
  const Json& record = records[0];
  ASSERT_EQ(record["ranks"].size(), 1u);
  EXPECT_EQ(record["step"], 0);
  EXPECT_EQ(record["responses"].size(), 4u);
  const Json& rank = record["ranks"][0];
  std::set<std::string> calls;
  double end = 0;
  for (const Json& span : rank["spans"]) {
    calls.insert(span[0].get<std::string>());
    EXPECT_GE(span[2].get<double>(), end) << "spans of a rank overlap";
    EXPECT_GE(span[3], span[2]);
    end = span[3];
  }
  int64_t rounds = 0;
  for (const Json& span : rank["spans"]) rounds += span[0] == "generate" && span[1] == "round";
  EXPECT_EQ(rounds, 1) << "all rounds of a generation are one span";
  for (const char* call : {"generate", "update_actor", "update_critic"})
    EXPECT_EQ(calls.count(call), 1u) << call;
  for (const char* owner :
       {"weights of actor", "weights of critic", "gradients", "optimizer", "KV cache", "samples"})
    EXPECT_GT(rank["memory"].value(owner, int64_t{0}), 0) << owner;
  int64_t actor = 0;
  for (const auto& [name, weight] : session->roles().at("actor").model->parameters())
    actor += static_cast<int64_t>(weight.nbytes());
  EXPECT_EQ(rank["memory"]["weights of actor"], actor);
}

}  // namespace
}  // namespace braid::inline session
