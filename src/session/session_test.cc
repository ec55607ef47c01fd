#include "session/session.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "host/file.h"
#include "host/testing.h"
#include "session/testing.h"
#include "test_paths.h"

namespace braid::inline session {
namespace {

using testing::HasSubstr;

class EveryAlgorithm : public testing::TestWithParam<const char*> {};

// Identity: the first step has no divergence from the reference, a ratio of 1, and sampler and
// trainer agree.
TEST_P(EveryAlgorithm, FirstStepIsOnPolicy) {
  Config config = tiny_run(GetParam());
  config.train.minibatches = 1;
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_NEAR(row->at("kl/ref_k1"), 0, 1e-6);
  EXPECT_NEAR(row->at("policy/ratio_mean"), 1, 1e-6);
  EXPECT_LE(row->at("mismatch/logprob_abs_max"), 1e-5);
  // With the sampler's log-probs in place of recomputed ones the ratio is 1 to 2e-5.
  EXPECT_LE(std::expm1(row->at("mismatch/logprob_abs_max")), 2e-5);
}

// Gradients of the first step by role and tensor: with beta1 = 0 they are AdamW's first moments.
std::map<std::string, at::Tensor> first_gradients(Config config, int64_t micro_tokens) {
  config.train.micro_tokens = micro_tokens;
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  const auto row = session->run_step();
  EXPECT_TRUE(row.ok()) << row.status().message();
  std::map<std::string, at::Tensor> out;
  for (const auto& [role, state] : session->roles()) {
    if (!state.optimizer) continue;
    for (const StateSlice& moment : state.optimizer->slices())
      if (moment.state == "exp_avg") out[role + "/" + moment.name] = moment.values;
  }
  return out;
}

// The gradient does not depend on the cut into micro-batches: one sample at a time, two, all packed
// into one forward.
TEST_P(EveryAlgorithm, GradientDoesNotDependOnMicroBatches) {
  Config config = tiny_run(GetParam());
  config.train.minibatches = 1;
  config.rollout.ignore_eos = true;  // so that every sequence has the length that packs in pairs
  config.data.train = join_path(testing::TempDir(), cat("equal-", ::getpid(), ".jsonl"));
  std::string lines;
  for (const char* digits : {"3142", "9071", "5566", "2804"})
    lines += cat("{\"prompt\": \"sort ", digits, "=\"}\n");
  ASSERT_TRUE(write_file_atomic(config.data.train, lines).ok());
  for (OptimizerConfig* optim : {&config.optim.actor, &config.optim.critic}) {
    optim->betas = {0, 0.999};
    optim->max_grad_norm = 0;
  }
  const Program program = program_of(config);
  const auto probe = session_of(config, program);
  ASSERT_TRUE(probe->run_step().ok());
  const auto length = static_cast<int64_t>((**probe->store().tokens("prompt_ids"))[0].size() + 6);
  const auto packed = first_gradients(config, 1 << 20);
  ASSERT_FALSE(packed.empty());
  for (const int64_t tokens : {length, 2 * length}) {
    const auto cut = first_gradients(config, tokens);
    for (const auto& [name, expected] : packed) {
      const double error = at::linalg_vector_norm(cut.at(name) - expected).item<double>();
      EXPECT_LE(error, 1e-5 * at::linalg_vector_norm(expected).item<double>()) << name;
    }
  }
}

// Scores are the same bits, gradients equal to rounding, whichever samples of a group meet.
TEST(SharedPrompts, ComputeWhatWholeSamplesDo) {
  Config config = tiny_run("grpo");
  config.train.minibatches = 1;
  config.rollout.samples_per_prompt = 4;
  config.optim.actor.betas = {0, 0.999};
  config.optim.actor.max_grad_norm = 0;
  const auto logprobs = [&](const char* share) {
    Config one = config;
    one.train.share_prompts = share;
    const Program program = program_of(one);
    const auto session = session_of(one, program);
    EXPECT_TRUE(session->run_step().ok());
    return *session->store().reals("ref_logprobs", session->store().all_rows());
  };
  EXPECT_TRUE(at::equal(logprobs("auto"), logprobs("never")));
  for (const int64_t micro_tokens : {40, 1 << 20}) {
    config.train.share_prompts = "never";
    const auto whole = first_gradients(config, micro_tokens);
    config.train.share_prompts = "auto";
    const auto shared = first_gradients(config, micro_tokens);
    ASSERT_FALSE(whole.empty());
    for (const auto& [name, expected] : whole) {
      const double error = at::linalg_vector_norm(shared.at(name) - expected).item<double>();
      EXPECT_LE(error, 1e-5 * at::linalg_vector_norm(expected).item<double>()) << name;
    }
  }
}

// Recorded rollouts give the same losses, gradients and weights as generating did.
TEST_P(EveryAlgorithm, ReplayOfARecordedRunGivesTheSameBits) {
  Config config = tiny_run(GetParam());
  config.rollout.record = true;
  const Program program = program_of(config);
  const auto recorded = session_of(config, program);
  config.rollout.record = false;
  config.rollout.replay = join_path(join_path(config.run.dir, config.run.name), kRolloutFile);
  const auto replayed = session_of(config, program);
  std::vector<std::map<std::string, double>> rows;
  for (int step = 0; step < 2; ++step) rows.push_back(*recorded->run_step());
  for (int step = 0; step < 2; ++step) {
    const auto row = replayed->run_step();
    ASSERT_TRUE(row.ok()) << row.status().message();
    EXPECT_EQ(timeless(*row), timeless(rows[step]));
  }
  EXPECT_TRUE(same_weights(*recorded, *replayed));
}

// Half a run, its state in another session, the other half: the bits of a whole run, for all state.
TEST_P(EveryAlgorithm, StateContinuesBitForBit) {
  Config config = tiny_run(GetParam());
  config.train.epochs_per_rollout = 2;
  if (config.algorithm.kl.in == "reward") config.algorithm.kl.controller = "adaptive";
  config.optim.actor.schedule = "cosine";
  const Program program = program_of(config);
  const auto whole = session_of(config, program), first = session_of(config, program),
             second = session_of(config, program);
  ASSERT_TRUE(first->run_step().ok());
  const Status loaded = second->load_state(*first->save_state());
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  std::map<std::string, double> expected, row;
  for (int step = 0; step < 2; ++step) expected = *whole->run_step();
  row = *second->run_step();
  EXPECT_EQ(timeless(row), timeless(expected));
  EXPECT_TRUE(same_weights(*whole, *second));
  EXPECT_EQ(second->save_state()->numbers, whole->save_state()->numbers);
}

TEST_P(EveryAlgorithm, SameSeedGivesTheSameBits) {
  const Config config = tiny_run(GetParam());
  const Program program = program_of(config);
  const auto first = session_of(config, program), second = session_of(config, program);
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(first->run_step().ok());
    ASSERT_TRUE(second->run_step().ok());
  }
  EXPECT_TRUE(same_weights(*first, *second));
}

// Every order of the calls that respects their dependencies gives the same weights.
TEST_P(EveryAlgorithm, PermutedProgramGivesTheSameBits) {
  const Config config = tiny_run(GetParam());
  const Program program = program_of(config);
  const auto waits = dependencies(program.graph);
  std::vector<CallId> order;  // always the last call that is ready
  while (order.size() < waits.size())
    for (int32_t i = static_cast<int32_t>(waits.size()) - 1; i >= 0; --i) {
      const auto done = [&](CallId id) {
        return std::find(order.begin(), order.end(), id) != order.end();
      };
      if (done(CallId{i}) || !std::all_of(waits[i].begin(), waits[i].end(), done)) continue;
      order.push_back(CallId{i});
      break;
    }
  const auto permuted = reorder(program, order);
  ASSERT_TRUE(permuted.ok()) << permuted.status().message();
  ASSERT_NE(*permuted, program);
  const auto first = session_of(config, program), second = session_of(config, *permuted);
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(first->run_step().ok());
    ASSERT_TRUE(second->run_step().ok());
  }
  EXPECT_TRUE(same_weights(*first, *second));
}

INSTANTIATE_TEST_SUITE_P(Names, EveryAlgorithm, testing::Values("ppo", "grpo"));

TEST(Session, SupervisedLossFalls) {
  Config config = tiny_run("sft");
  config.rollout.prompts_per_step = 16;
  config.train.minibatches = 1;
  config.train.micro_tokens = 4096;
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  double first = 0, last = 0;
  for (int step = 0; step < 12; ++step) {
    const auto row = session->run_step();
    ASSERT_TRUE(row.ok()) << row.status().message();
    (step == 0 ? first : last) = row->at("sft/loss");
  }
  EXPECT_LT(last, 0.9 * first);
}

TEST(Session, StateOfAnotherRunIsRefused) {
  const Config config = tiny_run("ppo");
  const Program program = program_of(config);
  const CheckpointState state = *session_of(config, program)->save_state();
  Config other = config;
  other.rollout.temperature = 0.5;
  other.log.console = false;  // free to change
  EXPECT_THAT(session_of(other, program)->load_state(state).message(),
              HasSubstr("rollout.temperature was '1', is '0.5' (put them back"));
  other = config;
  other.train.total_steps = 7;
  EXPECT_TRUE(session_of(other, program)->load_state(state).ok());
  CheckpointState lacking = state;
  lacking.tensors.erase("critic.optimizer");
  EXPECT_THAT(session_of(config, program)->load_state(lacking).message(),
              HasSubstr("has no critic.optimizer.safetensors"));
  lacking = state;
  lacking.tensors["actor.weights"].pop_back();
  EXPECT_THAT(session_of(config, program)->load_state(lacking).message(),
              HasSubstr("actor.weights: has no tensor"));
  for (const std::string group : {"actor.weights", "actor.optimizer"}) {
    CheckpointState other = state;
    std::vector<SavedSlice>& slices = other.tensors[group];
    slices.emplace_back("another", slices[0].values);
    EXPECT_THAT(session_of(config, program)->load_state(other).message(),
                HasSubstr("it belongs to another model"));
    slices.pop_back();
    const std::string name = slices[0].tensor;
    slices[0] = SavedSlice(name, at::zeros({6}));
    EXPECT_THAT(session_of(config, program)->load_state(other).message(),
                HasSubstr(cat(group, ": tensor ", name, " is Float[6], the model's is Float")));
    slices.erase(slices.begin());
    EXPECT_THAT(session_of(config, program)->load_state(other).message(),
                HasSubstr(cat(group, ": has no tensor ", name)));
  }
}

TEST(Session, EarlyStopEndsTheEpochsOfTheCallThatAsksForIt) {
  Config config = tiny_run("ppo");
  config.train.epochs_per_rollout = 3;
  config.algorithm.stop_kl = 1e-12;
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  ASSERT_TRUE(session->run_step().ok());
  const Json roles = session->save_state()->numbers["roles"];
  EXPECT_EQ(roles["actor"]["updates"], 1);  // the second sees what the first one moved
  EXPECT_EQ(roles["critic"]["updates"], 6);
}

TEST(Session, CutResponsesAreNotTrainedOnWhereMasked) {
  Config config = tiny_run("grpo");
  config.rollout.ignore_eos = true;  // so that every response is cut
  const Program program = program_of(config);
  const auto changed = [&](bool mask) {
    config.algorithm.mask_truncated = mask;
    const auto session = session_of(config, program), fresh = session_of(config, program);
    const auto row = session->run_step();
    EXPECT_TRUE(row.ok()) << row.status().message();
    EXPECT_EQ(row->at("length/truncated_frac"), 1);
    EXPECT_EQ(row->count("policy/loss"), mask ? 0u : 1u);
    EXPECT_EQ(row->at("policy/kept_samples"), mask ? 0 : 8);
    return !same_weights(*session, *fresh);
  };
  EXPECT_TRUE(changed(false));
  EXPECT_FALSE(changed(true));
}

class Normalized : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Advantages, Normalized, testing::Values("group", "batch", "none"));

TEST_P(Normalized, ASampleThatIsAloneInItsGroupIsLeftOut) {
  Config config = tiny_run("grpo");
  config.algorithm.normalize_advantages = GetParam();
  config.reward = {reward_without_one_of(8)};
  const auto session = session_of(config, program_of(config));
  const auto row = session->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->at("reward/error"), 1);
  EXPECT_EQ(row->at("reward/left_out"), 2);
  EXPECT_EQ(session->store().size(), 6u);
  const std::vector<Json> rows = *session->sample_rows(6);
  for (const Json& sample : rows) {
    const Json parts = {{"third", sample["sample"].get<int64_t>() % 3}};
    EXPECT_EQ(sample["rewards"], parts) << sample.dump();
  }
}

TEST(Session, OnlyTheCriticTrainsDuringItsWarmUp) {
  Config config = tiny_run("ppo");
  config.critic.warmup_steps = 1;
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  for (const int64_t actor_updates : {0, 2}) {
    ASSERT_TRUE(session->run_step().ok());
    EXPECT_EQ(session->save_state()->numbers["roles"]["actor"]["updates"], actor_updates);
  }
  EXPECT_EQ(session->save_state()->numbers["roles"]["critic"]["updates"], 4);
}

// A recorded rollout of one step with the rewards of one sample replaced.
std::string replay_with_reward(const Config& config, double reward) {
  Config recording = config;
  recording.rollout.record = true;
  const Program program = program_of(recording);
  EXPECT_TRUE(session_of(recording, program)->run_step().ok());
  const std::string folder = join_path(config.run.dir, config.run.name);
  std::vector<Json> lines = read_rows(join_path(folder, kRolloutFile));
  lines[1]["rewards"] = reward;
  std::string text;
  for (const Json& line : lines) text += line.dump() + "\n";
  const std::string path = join_path(folder, "changed.jsonl");
  EXPECT_TRUE(write_file_atomic(path, text).ok());
  return path;
}

TEST(Session, UpdateThatIsNotFiniteStopsAndLeavesItsBatch) {
  Config config = tiny_run("ppo");
  config.train.minibatches = 1;
  config.rollout.replay = replay_with_reward(config, 1e30);  // its square is no longer a float
  const Program program = program_of(config);
  const auto session = session_of(config, program), untouched = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_EQ(row.status().code(), Code::kStopped);
  EXPECT_THAT(row.status().message(), HasSubstr("critic is not finite in step 0"));
  EXPECT_THAT(row.status().message(), HasSubstr("train.on_nonfinite: stop"));
  EXPECT_TRUE(same_weights(*session, *untouched));
  const std::string path =
      join_path(join_path(config.run.dir, config.run.name), "nonfinite_step_0.jsonl");
  const std::vector<Json> lines = read_rows(path);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1]["call"], "update_critic");
  EXPECT_EQ(lines[1]["prompt_ids"], Json((**session->store().tokens("prompt_ids"))[1]));
  EXPECT_EQ(lines[1]["response_ids"].size(), lines[1]["fields"]["returns"].size());
}

TEST(Session, UpdateThatIsNotFiniteIsSkippedUpToTheLimit) {
  Config config = tiny_run("ppo");
  config.train.minibatches = 1;
  config.train.epochs_per_rollout = 3;
  config.train.on_nonfinite = "skip";
  config.rollout.replay = replay_with_reward(config, 1e30);
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row->at("critic/skipped"), 1);
  EXPECT_EQ(row->at("policy/skipped"), 0);
  const CheckpointState state = *session->save_state();
  EXPECT_EQ(state.numbers["roles"]["critic"]["updates"], 0);
  EXPECT_EQ(state.numbers["roles"]["critic"]["skipped"], 3);
  EXPECT_EQ(state.numbers["roles"]["actor"]["updates"], 3);
  config.train.max_skipped_steps = 2;
  const Status stopped = session_of(config, program)->run_step().status();
  EXPECT_EQ(stopped.code(), Code::kStopped);
  EXPECT_THAT(stopped.message(), HasSubstr("3 in a row, train.max_skipped_steps is 2"));
}

// With a finite loss but an infinite number among the gradients, the update is refused as well.
TEST(Session, GradientThatIsNotFiniteIsRefused) {
  Config config = tiny_run("sft");
  config.train.minibatches = 1;
  const Program program = program_of(config);
  const auto session = session_of(config, program), untouched = session_of(config, program);
  auto [name, parameter] = session->roles().at("actor").model->parameters().front();
  parameter.mutable_grad() = at::full_like(parameter, INFINITY);  // backward adds to it
  const Status stopped = session->run_step().status();
  EXPECT_EQ(stopped.code(), Code::kStopped);
  EXPECT_THAT(stopped.message(), HasSubstr("the gradient norm of actor is not finite in step 0"));
  EXPECT_TRUE(same_weights(*session, *untouched));
  const std::string folder = join_path(config.run.dir, config.run.name);
  EXPECT_TRUE(path_exists(join_path(folder, "nonfinite_step_0.jsonl")));
}

TEST(Session, MissingPartsAreNamed) {
  Config config = tiny_run("ppo");
  config.reward.clear();
  const Program program = program_of(config);
  EXPECT_NE(Session::create(config, program).status().message().find("reward: the list is empty"),
            std::string::npos);
  config = tiny_run("ppo");
  config.model.config = "";
  EXPECT_NE(Session::create(config, program).status().message().find("model.path: no model given"),
            std::string::npos);
  config = tiny_run("ppo");
  config.data.train = "/no/such/file.jsonl";
  EXPECT_NE(Session::create(config, program).status().message().find("/no/such/file.jsonl"),
            std::string::npos);
}

// An algorithm is data and math: what executes its calls knows none by name.
class Executing : public testing::TestWithParam<const char*> {};

TEST_P(Executing, NamesNoAlgorithm) {
  const std::string folder = cat(BRAID_SOURCE_DIR, "/src/", GetParam());
  const auto names = list_folder(folder);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    const bool for_tests =
        name.find("_test.cc") != std::string::npos || name.find("testing.h") != std::string::npos;
    if (for_tests) continue;
    const std::string text = *read_file(join_path(folder, name));
    std::vector<std::string> algorithms = {"PPO", "GRPO"};
    for (const std::string& known : algorithm_names())
      algorithms.push_back(known.size() < 3 ? cat("\"", known, "\"") : known);
    for (const std::string& algorithm : algorithms)
      EXPECT_EQ(text.find(algorithm), std::string::npos) << name << " contains " << algorithm;
  }
}

INSTANTIATE_TEST_SUITE_P(Rooms, Executing,
                         testing::Values("interpret", "samples", "weights", "passes", "scoring",
                                         "identity", "session", "run"));

TEST(SampleStore, RefusesUndeclaredAndUnproducedFields) {
  SampleStore store(*make_graph(default_options("grpo")));
  store.begin({{SampleId{0}, GroupId{0}, "", {}, {}}});
  EXPECT_NE(store.reals("nonsense", {0}).status().message().find("not declared"),
            std::string::npos);
  EXPECT_NE(store.reals("rewards", {0}).status().message().find("before it is produced"),
            std::string::npos);
  EXPECT_FALSE(store.put_tokens("rewards", {0}, {{1}}).ok());
}

// As a checkpoint within a step keeps them.
TEST(SampleStore, WhatEachRewardGaveIsKeptWithItsSample) {
  SampleStore store(*make_graph(default_options("grpo")));
  store.begin({{SampleId{4}, GroupId{0}, "", {}, {}}, {SampleId{5}, GroupId{0}, "", {}, {}}});
  EXPECT_TRUE(parse_sample(sample_json(store.sample(1)))->rewards.is_null());
  store.set_rewards(store.all_rows(), {{"a", {0.5, 2}}, {"b", {1, std::nan("")}}});
  store.retain({false, true});
  const Json parts = {{"a", 2}, {"b", nullptr}};
  EXPECT_EQ(parse_sample(sample_json(store.sample(0)))->rewards, parts);
}

// A rank holds the values of its own rows: they come back in the order that is asked for, and a row
// that nobody wrote is an error.
TEST(SampleStore, HoldsValuesOfSomeRows) {
  SampleStore store(*make_graph(default_options("grpo")));
  store.begin({{SampleId{4}, GroupId{0}, "", {}, {}},
               {SampleId{5}, GroupId{0}, "", {}, {}},
               {SampleId{6}, GroupId{1}, "", {}, {}}});
  ASSERT_TRUE(store.put_tokens("response_ids", {2, 0}, {{7, 8}, {9}}).ok());
  EXPECT_EQ(store.response_lens(), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(store.counts("groups"), (std::vector<int64_t>{0, 0, 1}));
  EXPECT_THAT(store.put_reals("response_lens", {0}, at::tensor({1.0f})).message(),
              HasSubstr("holds counts"));
  store.set_counts("response_lens", {1, 5, 2});  // as other ranks said
  EXPECT_EQ(store.response_lens(), (std::vector<int64_t>{1, 5, 2}));
  ASSERT_TRUE(store.put_reals("old_logprobs", {2, 0}, at::tensor({1.0f, 2.0f, 3.0f})).ok());
  EXPECT_TRUE(at::equal(*store.reals("old_logprobs", {0, 2}), at::tensor({3.0f, 1.0f, 2.0f})));
  EXPECT_THAT(store.reals("old_logprobs", {0, 1}).status().message(),
              HasSubstr("of sample 5 is read where it was not produced"));
  store.retain({false, false, true});
  EXPECT_EQ(store.sample(0).id, SampleId{6});
  EXPECT_TRUE(at::equal(*store.reals("old_logprobs", {0}), at::tensor({1.0f, 2.0f})));
}

}  // namespace
}  // namespace braid::inline session
