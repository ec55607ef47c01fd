// Steps that leave samples to newer weights, beside an independent reference: an engine that is
// given, sample by sample, the weights which are said to have drawn its tokens.
#include "session/carried_samples.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include <set>
#include <stdexcept>

#include "comm/rank_testing.h"
#include "session/steps_ahead.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

using testing::HasSubstr;
using Row = std::map<std::string, double>;

constexpr int64_t kCarryingSteps = 5;

Config carrying_run(const std::string& algorithm = "grpo", double in_flight = 1.5,
                    int64_t carried_steps = 1) {
  Config config = tiny_run(algorithm);
  config.train.threads = 1;
  config.train.total_steps = kCarryingSteps;
  carry_samples(&config);
  config.rollout.in_flight = in_flight;
  config.rollout.carried_steps = carried_steps;
  return config;
}

// Whose samples are drawn so many steps ahead, too.
Config carrying_ahead(int64_t staleness, double in_flight = 1.5, int64_t carried_steps = 1,
                      const std::string& algorithm = "grpo") {
  Config config = carrying_run(algorithm, in_flight, carried_steps);
  config.plan.staleness = staleness;
  return config;
}

Program carrying_program(const Config& config) {
  return *compile(*generated_ahead(*configured_graph(config), config.plan.staleness));
}

// The tensors are the session's own, and change.
CheckpointState saved(const Session& session) {
  CheckpointState out = *session.save_state();
  for (auto& [group, slices] : out.tensors)
    for (SavedSlice& slice : slices) slice.values = slice.values.clone();
  return out;
}

std::vector<at::Tensor> policy_weights(const Session& session) {
  std::vector<at::Tensor> out;
  for (const auto& [name, tensor] : session.roles().at("actor").model->parameters())
    out.push_back(tensor.detach().clone());
  return out;
}

// Samples that a step has learnt from, and what their tokens were drawn with.
struct LearntSample {
  StoredSample sample;
  std::vector<int32_t> prompt, response;
  std::vector<float> logprobs;
  bool truncated = false;
};

std::vector<LearntSample> learnt_by(const Session& session) {
  std::vector<LearntSample> out;
  const SampleStore& store = session.store();
  for (const size_t row : store.all_rows()) {
    const at::Tensor logprobs = store.reals("sampler_logprobs", {row})->contiguous();
    const float* const first = logprobs.const_data_ptr<float>();
    out.push_back({store.sample(row), (**store.tokens("prompt_ids"))[row],
                   (**store.tokens("response_ids"))[row],
                   std::vector<float>(first, first + logprobs.numel()),
                   store.reals("truncated", {row})->item<float>() != 0});
  }
  return out;
}

struct CarryingRun {
  std::vector<std::vector<at::Tensor>> versions;  // the policy's weights before each step
  std::vector<std::vector<LearntSample>> steps;
  std::vector<Row> rows;
};

CarryingRun run_of(Session& session) {
  CarryingRun out;
  for (int64_t step = 0; step < kCarryingSteps; ++step) {
    out.versions.push_back(policy_weights(session));
    const auto row = session.run_step();
    EXPECT_EQ(row.status().message(), "");
    if (!row.ok()) break;
    out.rows.push_back(*row);
    out.steps.push_back(learnt_by(session));
  }
  return out;
}

CarryingRun run_of(const Config& config) {
  return run_of(*session_of(config, carrying_program(config)));
}

// The next tokens of a sample, alone in an engine of the model, until it has so many.
Generated drawn_on(Model& model, const Config& config, Generated progress, size_t tokens) {
  const auto engine = std::move(Engine::create(model, {})).value();
  Request request;
  request.sample = progress.sample;
  request.prompt_ids = progress.prompt_ids;
  request.sampling.max_new_tokens = config.rollout.max_response_length;
  request.sampling.seed = static_cast<uint64_t>(config.train.seed);
  for (const int64_t id : model.spec().eos_ids)
    request.sampling.stop_tokens.push_back(static_cast<int32_t>(id));
  const SampleId sample = progress.sample;
  const Status given = progress.response_ids.empty()
                           ? engine->submit(request)
                           : engine->import_sequence({request, std::move(progress), {}});
  EXPECT_EQ(given.message(), "");
  while (!engine->drained()) {
    if (engine->produced(sample).value_or(0) == static_cast<int64_t>(tokens))
      return std::move(engine->take_out(sample)->progress);
    auto finished = engine->step();
    EXPECT_EQ(finished.status().message(), "");
    if (!finished->empty()) return std::move(finished->front());
  }
  ADD_FAILURE() << "no token of sample " << sample;
  return {};
}

// Compares with the weights that are said to have drawn them; returns how many samples several
// have drawn.
int expect_tokens_of_versions(const Config& config, const CarryingRun& run) {
  const auto other = session_of(config, carrying_program(config));
  Model& model = *other->roles().at("actor").model;
  std::map<int64_t, Generated> drawn;
  int continued = 0;
  for (size_t version = 0; version < run.versions.size(); ++version) {
    const at::NoGradGuard no_grad;
    const auto parameters = model.parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
      at::Tensor(parameters[i].second).copy_(run.versions[version][i]);
    model.rest();
    for (const std::vector<LearntSample>& step : run.steps)
      for (const LearntSample& learnt : step) {
        const auto part = learnt.sample.drawn.find(static_cast<int64_t>(version));
        if (part == learnt.sample.drawn.end()) continue;
        Generated& progress = drawn[learnt.sample.id.value];
        progress.sample = learnt.sample.id;
        progress.prompt_ids = learnt.prompt;
        const size_t tokens = progress.response_ids.size() + part->second;
        progress = drawn_on(model, config, std::move(progress), tokens);
      }
    model.rest();
  }
  for (const std::vector<LearntSample>& step : run.steps)
    for (const LearntSample& learnt : step) {
      const Generated& progress = drawn[learnt.sample.id.value];
      EXPECT_EQ(progress.response_ids, learnt.response) << learnt.sample.id;
      EXPECT_EQ(progress.logprobs, learnt.logprobs) << learnt.sample.id;
      EXPECT_EQ(progress.finish == Finish::kLength, learnt.truncated) << learnt.sample.id;
      continued += learnt.sample.drawn.size() > 1 ? 1 : 0;
    }
  return continued;
}

TEST(CarriedSamples, TokensAreThoseOfTheWeightsThatAreSaidToHaveDrawnThem) {
  const Config config = carrying_run("grpo", 1.5, 2);
  EXPECT_GT(expect_tokens_of_versions(config, run_of(config)), 0);  // else no step left anything
  const Config ahead = carrying_ahead(1);
  EXPECT_GT(expect_tokens_of_versions(ahead, run_of(ahead)), 0);
}

// In whole groups, each once, as many as a step takes, none left behind for longer than allowed.
// `first_begun`: the first prompts of the data are the first that are begun, as on one replica.
void expect_none_lost(const Config& config, const CarryingRun& run, bool first_begun = true) {
  const int64_t prompts = config.rollout.prompts_per_step, ahead = config.plan.staleness,
                carried_steps = config.rollout.carried_steps;
  std::set<int64_t> seen;
  double oldest = 0;
  for (int64_t step = 0; step < kCarryingSteps; ++step) {
    std::map<int64_t, int> groups;
    int64_t oldest_here = 0;
    for (const LearntSample& learnt : run.steps[step]) {
      ++groups[learnt.sample.group.value];
      ASSERT_FALSE(learnt.sample.drawn.empty());
      oldest_here = std::max(oldest_here, step - learnt.sample.drawn.begin()->first);
    }
    EXPECT_EQ(std::ssize(groups), prompts);
    for (const auto& [group, samples] : groups) {
      EXPECT_EQ(samples, config.rollout.samples_per_prompt);
      EXPECT_TRUE(seen.insert(group).second) << group;
    }
    const Row& row = run.rows[step];
    EXPECT_EQ(row.at("staleness/max"), static_cast<double>(oldest_here));
    const int64_t flying = prompts_in_flight(config.rollout);
    EXPECT_EQ(row.at("rollout/carried_samples"),
              static_cast<double>((flying - prompts) * config.rollout.samples_per_prompt));
    const int64_t generations = std::min(step + 1 + ahead, config.train.total_steps);
    EXPECT_EQ(row.at("data/prompts_seen"),
              static_cast<double>(flying + prompts * (generations - 1)));
    oldest = std::max(oldest, row.at("staleness/max"));
    // What is not taken by now was begun `carried_steps` generations ago at most; the first ones
    // have the same weights.
    const bool binds = first_begun && step >= ahead + carried_steps;
    const int64_t begun = binds ? prompts * (step + 1 - carried_steps) : 0;
    for (int64_t group = 0; group < begun; ++group)
      EXPECT_EQ(seen.count(group), 1u) << group << " after step " << step;
  }
  EXPECT_GT(oldest, static_cast<double>(ahead));
  EXPECT_LE(oldest, static_cast<double>(ahead + carried_steps));
}

TEST(CarriedSamples, NoneIsLostNorOlderThanAllowed) {
  for (const int64_t carried_steps : {1, 2, 3}) {
    SCOPED_TRACE(carried_steps);
    const Config config = carrying_run("grpo", 2, carried_steps);
    expect_none_lost(config, run_of(config));
  }
}

TEST(CarriedSamples, NoneIsLostNorOlderThanAllowedWhereTheyAreDrawnAhead) {
  for (const auto& [staleness, carried_steps] : {std::pair{1, 1}, {1, 2}, {2, 1}}) {
    SCOPED_TRACE(cat(staleness, ", ", carried_steps));
    const Config config = carrying_ahead(staleness, 2, carried_steps);
    expect_none_lost(config, run_of(config));
  }
}

// The same seed, twice.
TEST(CarriedSamples, AreTheSameInARunThatIsRepeated) {
  const Config config = carrying_ahead(1);
  const auto one = session_of(config, carrying_program(config)),
             other = session_of(config, carrying_program(config));
  const CarryingRun first = run_of(*one), second = run_of(*other);
  EXPECT_TRUE(same_weights(*one, *other));
  for (int64_t step = 0; step < kCarryingSteps; ++step)
    EXPECT_EQ(timeless(first.rows[step]), timeless(second.rows[step]));
  EXPECT_EQ(one->save_state()->numbers, other->save_state()->numbers);
}

// What a run that has ended leaves, one that goes on learns from first.
TEST(CarriedSamples, StayWhenTheLastStepsDrawNone) {
  Config config = carrying_ahead(2, 1.5, 2);
  config.train.total_steps = 3;
  const auto ended = session_of(config, carrying_program(config));
  std::set<int64_t> seen;
  const auto learn = [&](Session& session, int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) {
      const auto row = session.run_step();
      ASSERT_EQ(row.status().message(), "");
      EXPECT_LE(row->at("staleness/max"), 4);
      for (const LearntSample& learnt : learnt_by(session)) seen.insert(learnt.sample.id.value);
    }
  };
  learn(*ended, 3);
  const CheckpointState state = saved(*ended);
  EXPECT_EQ(state.numbers["steps_ahead"]["steps"].size(), 0u);
  std::vector<int64_t> left;
  for (const Json& each : state.numbers["carried_samples"]["progress"])
    left.push_back(each["sample"].get<int64_t>());
  EXPECT_EQ(left.size(), 4u);  // two prompts of two samples
  config.train.total_steps = 7;
  const auto longer = session_of(config, carrying_program(config));
  ASSERT_EQ(longer->load_state(state).message(), "");
  learn(*longer, 4);
  EXPECT_EQ(seen.size(), 7u * 8);  // each once
  for (const int64_t id : left) EXPECT_EQ(seen.count(id), 1u) << id;
}

TEST(CarriedSamples, ThatAreTooOldAreNotLearntFrom) {
  const Config config = carrying_ahead(1);
  const auto session = session_of(config, carrying_program(config));
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(session->run_step().ok());
  CheckpointState state = saved(*session);
  state.numbers["steps_ahead"]["steps"][0]["counts"]["weights_version"][0] = 0;
  const auto next = session_of(config, carrying_program(config));
  ASSERT_EQ(next->load_state(state).message(), "");
  EXPECT_THAT(next->run_step().status().message(),
              HasSubstr("after step 0, and step 4 may learn from those of step 1 to 3 (staleness "
                        "of the plan and rollout.carried_steps)"));
}

// At every step.
TEST(CarriedSamples, AreSavedWithTheRun) {
  for (const Config& config : {carrying_run("grpo", 2, 2), carrying_run("ppo", 2, 2),
                               carrying_ahead(1, 2, 2), carrying_ahead(2, 2, 1, "ppo")}) {
    const std::string algorithm = config.algorithm.name;
    SCOPED_TRACE(cat(algorithm, ", staleness ", config.plan.staleness));
    const Program program = carrying_program(config);
    const auto whole = session_of(config, program);
    CheckpointState state;
    for (int64_t step = 0; step < kCarryingSteps; ++step) {
      const auto expected = whole->run_step();
      ASSERT_EQ(expected.status().message(), "");
      const auto part = session_of(config, program);
      if (step > 0) {
        ASSERT_EQ(part->load_state(state).message(), "");
      }
      const auto row = part->run_step();
      ASSERT_EQ(row.status().message(), "");
      EXPECT_EQ(timeless(*row), timeless(*expected));
      EXPECT_TRUE(same_weights(*part, *whole));
      EXPECT_EQ(part->save_state()->numbers, whole->save_state()->numbers);
      state = saved(*part);
    }
    EXPECT_EQ(state.numbers["carried_samples"]["progress"].size(), algorithm == "ppo" ? 4u : 8u);
  }
}

// A step that fails when it has left samples, and rollouts ahead were drawn beside it.
TEST(CarriedSamples, StayWhereAStepFails) {
  const Config config = carrying_ahead(1);
  const Program program = carrying_program(config);
  const auto& instructions = program.ranks[0].instructions;
  size_t update = 0;
  while (instructions[update].kind != OpKind::kPasses) ++update;
  const auto whole = session_of(config, program), other = session_of(config, program);
  for (int64_t step = 0; step < kCarryingSteps; ++step) {
    const auto failed = other->run_step([&](size_t index) {
      if (index == update) throw std::runtime_error("stopped here");
    });
    EXPECT_THAT(failed.status().message(), HasSubstr("stopped here"));
    const auto row = whole->run_step(), again = other->run_step();
    ASSERT_EQ(again.status().message(), "");
    EXPECT_EQ(timeless(*again), timeless(*row));
  }
  EXPECT_TRUE(same_weights(*whole, *other));
  EXPECT_EQ(whole->save_state()->numbers, other->save_state()->numbers);
}

TEST(CarriedSamples, AreOfOneConfiguration) {
  const Config config = carrying_run("grpo", 1.5, 2);
  const auto session = session_of(config, carrying_program(config));
  ASSERT_TRUE(session->run_step().ok());
  const CheckpointState state = saved(*session);
  for (const Config& other : {carrying_run("grpo", 1.5, 1), carrying_run("grpo", 2, 2)})
    EXPECT_THAT(
        session_of(other, carrying_program(other))->load_state(state).message(),
        HasSubstr(other.rollout.carried_steps == 1 ? "rollout.carried_steps was '2', is '1'"
                                                   : "rollout.in_flight was '1.5', is '2'"));
}

TEST(CarriedSamples, AreNoneByDefault) {
  Config config = carrying_run("grpo", 1);
  const Program program = carrying_program(config);
  EXPECT_EQ(program, program_of(config));
  EXPECT_EQ(most_age(program), 0);
  const Graph ahead = *generated_ahead(*configured_graph(config), 1);
  EXPECT_EQ(ahead, *generated_ahead(*make_graph(config.algorithm), 1));
  const auto session = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_EQ(row.status().message(), "");
  EXPECT_EQ(row->count("rollout/carried_samples") + row->count("staleness/max"), 0u);
  EXPECT_FALSE(session->save_state()->numbers.contains("carried_samples"));
  for (const Json& sample : *session->sample_rows(8)) EXPECT_FALSE(sample.contains("drawn"));
}

TEST(CarriedSamples, AreShownWithWhatDrewThem) {
  const Config config = carrying_run();
  const auto session = session_of(config, carrying_program(config));
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(session->run_step().ok());
  for (const Json& sample : *session->sample_rows(8)) {
    size_t tokens = 0;
    for (const Json& part : sample["drawn"]) tokens += part[1].get<size_t>();
    EXPECT_EQ(tokens, sample["response_ids"].size());
  }
}

// Under a plan of that staleness, which the configuration does not say.
void expect_replicas_keep_theirs(World& world, Config config, const std::string& plan,
                                 int64_t staleness) {
  config.rollout.max_concurrent = 3;
  config.run.name = cat("carried-rank-", world.global_rank());
  auto session = Session::create(config, program_under(config, plan), &world);
  ASSERT_EQ(session.status().message(), "");
  if (world.global_rank() != 0) {
    ASSERT_EQ((*session)->follow().message(), "");
    return;
  }
  const CarryingRun run = run_of(**session);
  ASSERT_EQ((*session)->dismiss().message(), "");
  config.plan.staleness = staleness;
  expect_none_lost(config, run, false);
  EXPECT_GT(expect_tokens_of_versions(config, run), 0);
}

// As each of two replicas that draw ahead does, beside a rank that trains.
RANK_TEST(CarriedSamplesOfRanks, StayWithTheirReplicaWhereTheyAreDrawnAhead, 3) {
  const std::string plan =
      "graph: grpo\ndevices: 1x3\nstaleness: 1\ncalls:\n  generate: {mesh: \"1,2\", dp: 2}\n"
      "  old_logprob: {mesh: \"0\", dp: 1, micro_tokens: 40}\n"
      "  ref_logprob: {mesh: \"1\", dp: 1, micro_tokens: 40}\n"
      "  update_actor: {mesh: \"0\", dp: 1, micro_tokens: 40}\n";
  Config config = carrying_ahead(1);
  config.plan.staleness = 0;  // the plan says it
  expect_replicas_keep_theirs(world, config, plan, 1);
}

// Each of two replicas leaves samples; what trains is on one rank, what scores on the other.
RANK_TEST(CarriedSamplesOfRanks, StayWithTheirReplica, 2) {
  const std::string plan =
      "graph: grpo\ndevices: 1x2\ncalls:\n  generate: {mesh: all, dp: 2}\n"
      "  old_logprob: {mesh: \"1\", dp: 1, micro_tokens: 40}\n"
      "  ref_logprob: {mesh: \"1\", dp: 1, micro_tokens: 40}\n"
      "  update_actor: {mesh: \"0\", dp: 1, micro_tokens: 40}\n";
  Config config = carrying_run("grpo", 1.5, 2);
  expect_replicas_keep_theirs(world, config, plan, 0);
}

}  // namespace
}  // namespace braid::inline session
