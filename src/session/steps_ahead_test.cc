// Sessions whose generation works ahead, beside an independent reference: synchronous sessions, of
// which one samples with older weights what another learns from.
#include "session/steps_ahead.h"

#include <gmock/gmock.h>

#include "comm/rank_testing.h"
#include "samples/rollout_file.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

using testing::HasSubstr;

constexpr int64_t kSteps = 5;

// Decoupled PPO by groups: the present policy's log-probs, weighted by the sampler's.
Config stale_run(const std::string& name, const std::string& algorithm = "grpo") {
  Config config = tiny_run(algorithm);
  config.run.name = cat("stale-", ::getpid(), "-", name);
  config.run.overwrite = true;
  config.algorithm.tis_cap = 2;
  config.train.threads = 1;
  config.train.total_steps = kSteps;
  config.rollout.max_response_length = 12;
  return config;
}

// The tensors are the session's own, and change.
CheckpointState copied(const CheckpointState& state) {
  CheckpointState out = state;
  for (auto& [group, slices] : out.tensors)
    for (SavedSlice& slice : slices) slice.values = slice.values.clone();
  return out;
}

using Row = std::map<std::string, double>;

struct Learnt {
  CheckpointState state;
  std::vector<Row> rows;
};

// Each step learns from what the weights of `staleness` steps before it have sampled.
Learnt reference(int64_t staleness, const std::string& algorithm = "grpo") {
  std::vector<CheckpointState> versions;
  Learnt out;
  {
    const Config config = stale_run("first", algorithm);
    versions.push_back(copied(*session_of(config, program_of(config))->save_state()));
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    Config samples = stale_run(cat("samples-", step), algorithm);
    samples.rollout.record = true;
    samples.checkpoint.allow = {"rollout.replay"};
    CheckpointState older = versions[std::max<int64_t>(0, step - staleness)];
    older.numbers["step"] = step;
    older.numbers["cursor"] = step * samples.rollout.prompts_per_step;
    const auto sampler = session_of(samples, program_of(samples));
    EXPECT_EQ(sampler->load_state(older).message(), "");
    EXPECT_EQ(sampler->run_step().status().message(), "");
    Config learns = stale_run("learns", algorithm);
    learns.rollout.replay = join_path(join_path(samples.run.dir, samples.run.name), kRolloutFile);
    learns.checkpoint.allow = {"rollout.replay"};
    const auto learner = session_of(learns, program_of(learns));
    EXPECT_EQ(learner->load_state(versions.back()).message(), "");
    const auto row = learner->run_step();
    EXPECT_EQ(row.status().message(), "");
    out.rows.push_back(*row);
    versions.push_back(copied(*learner->save_state()));
  }
  out.state = versions.back();
  return out;
}

void expect_same_tensors(const CheckpointState& a, const CheckpointState& b) {
  for (const auto& [group, tensors] : b.tensors) {
    ASSERT_EQ(a.tensors.count(group), 1u) << group;
    const auto& other = a.tensors.at(group);
    ASSERT_EQ(other.size(), tensors.size()) << group;
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(at::equal(other[i].values, tensors[i].values)) << group << tensors[i].tensor;
  }
}

// What the reference reports of its samples and updates is what the run does.
void expect_same_rows(const std::vector<Row>& a, const std::vector<Row>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t step = 0; step < a.size(); ++step)
    for (const auto& [name, value] : timeless(b[step])) {
      if (name == "data/prompts_seen" || name == "data/epoch") continue;  // more were drawn
      ASSERT_EQ(a[step].count(name), 1u) << name;
      EXPECT_EQ(a[step].at(name), value) << name << " of step " << step;
    }
}

Program program_ahead(const Config& config, int64_t steps) {
  return *compile(*generated_ahead(*make_graph(config.algorithm), steps));
}

std::vector<Row> run_steps(Session& session, int64_t steps) {
  std::vector<Row> out;
  for (int64_t step = 0; step < steps; ++step) {
    const auto row = session.run_step();
    EXPECT_EQ(row.status().message(), "");
    if (!row.ok()) break;
    out.push_back(*row);
  }
  return out;
}

TEST(StepsAhead, LearnFromWhatOlderWeightsHaveSampled) {
  std::vector<CheckpointState> learnt;
  for (const int64_t staleness : {1, 2}) {
    const Learnt expected = reference(staleness);
    const Config config = stale_run("ahead");
    const auto session = session_of(config, program_ahead(config, staleness));
    const std::vector<Row> rows = run_steps(*session, kSteps);
    expect_same_tensors(*session->save_state(), expected.state);
    expect_same_rows(rows, expected.rows);
    for (int64_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(rows[step].at("staleness/max"), std::min(step, staleness));
      EXPECT_EQ(rows[step].at("staleness/mean"), std::min(step, staleness));
    }
    learnt.push_back(copied(*session->save_state()));
  }
  const auto weights = [](const CheckpointState& state) {
    return state.tensors.at("actor.weights").front().values;
  };
  EXPECT_FALSE(at::equal(weights(learnt[0]), weights(learnt[1])));
}

// With a critic, whose values are those of the step that learns, and without groups' means.
TEST(StepsAhead, OtherAlgorithmsLearnFromOlderSamplesToo) {
  for (const std::string algorithm : {"ppo", "rloo"}) {
    SCOPED_TRACE(algorithm);
    const Learnt expected = reference(1, algorithm);
    const Config config = stale_run("ahead", algorithm);
    const auto session = session_of(config, program_ahead(config, 1));
    const std::vector<Row> rows = run_steps(*session, kSteps);
    expect_same_tensors(*session->save_state(), expected.state);
    expect_same_rows(rows, expected.rows);
    EXPECT_EQ(rows.back().at("staleness/max"), 1);
  }
}

TEST(StepsAhead, OfZeroAreTheSynchronousRun) {
  const Config config = stale_run("sync");
  const Program program = program_ahead(config, 0);
  EXPECT_EQ(program, program_of(config));
  const Learnt expected = reference(0);
  const auto session = session_of(config, program);
  const std::vector<Row> rows = run_steps(*session, kSteps);
  expect_same_tensors(*session->save_state(), expected.state);
  expect_same_rows(rows, expected.rows);
}

// At every step, also where the last ones need no more rollouts.
TEST(StepsAhead, AreSavedWithTheRun) {
  const Config config = stale_run("saved");
  const Program program = program_ahead(config, 2);
  const auto whole = session_of(config, program);
  const std::vector<Row> rows = run_steps(*whole, kSteps);
  const CheckpointState end = copied(*whole->save_state());
  CheckpointState state;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto part = session_of(config, program);
    if (step > 0) {
      ASSERT_EQ(part->load_state(state).message(), "");
    }
    const std::vector<Row> own = run_steps(*part, 1);
    expect_same_rows(own, {rows[step]});
    EXPECT_EQ(own[0].at("data/prompts_seen"), rows[step].at("data/prompts_seen"));
    state = copied(*part->save_state());
  }
  expect_same_tensors(state, end);
  EXPECT_EQ(state.numbers["steps_ahead"]["steps"].size(), 0u);
}

TEST(StepsAhead, GoOnWithTheirStalenessAlone) {
  const Config config = stale_run("other");
  const auto session = session_of(config, program_ahead(config, 2));
  run_steps(*session, 1);
  const CheckpointState state = copied(*session->save_state());
  for (const int64_t other : {0, 1}) {
    const auto next = session_of(config, program_ahead(config, other));
    EXPECT_THAT(next->load_state(state).message(), HasSubstr("go on with a plan of staleness 2"));
  }
}

TEST(StepsAhead, SamplesThatAreTooOldAreNotLearntFrom) {
  const Config config = stale_run("old");
  const Program program = program_ahead(config, 1);
  const auto session = session_of(config, program);
  run_steps(*session, 2);
  CheckpointState state = copied(*session->save_state());
  Json& versions = state.numbers["steps_ahead"]["steps"][0]["counts"]["weights_version"];
  ASSERT_EQ(versions[0], 1);
  versions[0] = 0;
  const auto next = session_of(config, program);
  ASSERT_EQ(next->load_state(state).message(), "");
  EXPECT_THAT(next->run_step().status().message(),
              HasSubstr("was drawn with the weights of after step 0, and step 3 may learn from "
                        "those of step 1 to 2"));
}

TEST(StepsAhead, AreNotReadFromAFile) {
  Config config = stale_run("replayed");
  config.rollout.replay = "rollouts.jsonl";
  EXPECT_THAT(Session::create(config, program_ahead(config, 1)).status().message(),
              HasSubstr("rollout.replay"));
}

TEST(StepsAhead, SayWhatNothingCorrects) {
  Config config = stale_run("uncorrected");
  const Graph graph = program_ahead(config, 1).graph;
  EXPECT_EQ(uncorrected_text(config, graph), "");
  config.algorithm.tis_cap = 0;
  EXPECT_THAT(uncorrected_text(config, graph), HasSubstr("algorithm.tis_cap"));
  EXPECT_EQ(uncorrected_text(config, program_of(config).graph), "");
  config.algorithm.icepop_high = 5;
  EXPECT_EQ(uncorrected_text(config, graph), "");
}

// Generation on one rank; what else there is on the other, or on the first where it scores.
RANK_TEST(StepsAheadOfRanks, LearnFromWhatOlderWeightsHaveSampled, 2) {
  for (const char* scoring : {"0", "1"}) {
    const std::string one = ", dp: 1, micro_tokens: 40}\n";
    const std::string plan =
        cat("graph: grpo\ndevices: 1x2\nstaleness: 1\ncalls:\n  generate: {mesh: \"1\", dp: 1}\n",
            "  old_logprob: {mesh: \"", scoring, "\"", one, "  ref_logprob: {mesh: \"", scoring,
            "\"", one, "  update_actor: {mesh: \"0\"", one);
    const Config config = stale_run(cat("rank-", world.global_rank()));
    auto session = Session::create(config, program_under(config, plan), &world);
    ASSERT_EQ(session.status().message(), "");
    if (world.global_rank() != 0) {
      ASSERT_EQ((*session)->follow().message(), "");
      continue;
    }
    const std::vector<Row> rows = run_steps(**session, kSteps);
    const auto state = (*session)->save_state();
    ASSERT_EQ(state.status().message(), "");
    const CheckpointState end = copied(*state);
    ASSERT_EQ((*session)->dismiss().message(), "");
    const Learnt expected = reference(1);
    expect_same_tensors(end, expected.state);
    expect_same_rows(rows, expected.rows);
    EXPECT_EQ(rows.back().at("staleness/max"), 1);
    EXPECT_EQ(rows.back().at("staleness/age_1_frac"), 1);
  }
}

}  // namespace
}  // namespace braid::inline session
