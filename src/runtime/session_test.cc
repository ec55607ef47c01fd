#include "runtime/session.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "host/file.h"

namespace braid {
namespace {

const std::string kModel = std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model";

// A tiny run on the generated task with a rule reward; minutes of nothing, seconds of everything.
Config tiny(const std::string& algorithm) {
  Config config;
  config.algorithm = default_options(algorithm);
  config.model.config = kModel + "/config.json";
  config.tokenizer.path = kModel;
  config.data.train = "task:sort_digits";
  config.rollout.prompts_per_step = 4;
  config.rollout.samples_per_prompt = algorithm == "grpo" ? 2 : 1;
  config.rollout.max_response_length = 6;
  config.train.minibatches = 2;
  config.train.micro_tokens = 40;
  config.train.threads = 2;
  config.optim.actor.lr = 1e-3;
  RewardConfig reward;
  reward.type = "rule";
  reward.rule = "digit_share";
  config.reward = {reward};
  return config;
}

Program program_of(const Config& config) { return *compile(*make_graph(config.algorithm)); }

std::unique_ptr<Session> session_of(const Config& config, const Program& program) {
  auto session = Session::create(config, program);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(session).value();
}

bool same_weights(const Session& a, const Session& b) {
  for (const auto& [role, state] : a.roles()) {
    const auto left = state.model->parameters(), right = b.roles().at(role).model->parameters();
    for (size_t i = 0; i < left.size(); ++i)
      if (!at::equal(left[i].second, right[i].second)) return false;
  }
  return true;
}

class EveryAlgorithm : public testing::TestWithParam<const char*> {};

// Identity: the first step has no divergence from the reference, a ratio of 1, and sampler and
// trainer agree.
TEST_P(EveryAlgorithm, FirstStepIsOnPolicy) {
  Config config = tiny(GetParam());
  config.train.minibatches = 1;
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_NEAR(row->at("kl/ref_k1"), 0, 1e-6);
  EXPECT_NEAR(row->at("policy/ratio_mean"), 1, 1e-6);
  EXPECT_LE(row->at("mismatch/logprob_abs_max"), 1e-5);
}

TEST_P(EveryAlgorithm, SameSeedGivesTheSameBits) {
  const Config config = tiny(GetParam());
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
  const Config config = tiny(GetParam());
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
  Config config = tiny("sft");
  config.algorithm.name = "sft";
  config.rollout.prompts_per_step = 16;
  config.train.minibatches = 1;
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

TEST(Session, MissingPartsAreNamed) {
  Config config = tiny("ppo");
  config.reward.clear();
  const Program program = program_of(config);
  EXPECT_NE(Session::create(config, program).status().message().find("reward: the list is empty"),
            std::string::npos);
  config = tiny("ppo");
  config.model.config = "";
  EXPECT_NE(Session::create(config, program).status().message().find("model.path: no model given"),
            std::string::npos);
  config = tiny("ppo");
  config.data.train = "/no/such/file.jsonl";
  EXPECT_NE(Session::create(config, program).status().message().find("/no/such/file.jsonl"),
            std::string::npos);
}

// An algorithm is data and math: the interpreter knows none by name.
TEST(Runtime, NamesNoAlgorithm) {
  const std::string folder = std::string(BRAID_SOURCE_DIR) + "/src/runtime";
  const auto names = list_folder(folder);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    if (name.find("_test.cc") != std::string::npos) continue;
    const std::string text = *read_file(join_path(folder, name));
    for (const char* algorithm : {"ppo", "grpo", "PPO", "GRPO", "rloo", "dpo"})
      EXPECT_EQ(text.find(algorithm), std::string::npos) << name << " contains " << algorithm;
  }
}

TEST(SampleStore, RefusesUndeclaredAndUnproducedFields) {
  SampleStore store(*make_graph(default_options("grpo")));
  store.begin({{SampleId{0}, GroupId{0}, "", {}}});
  EXPECT_NE(store.reals("nonsense").status().message().find("not declared"), std::string::npos);
  EXPECT_NE(store.reals("rewards").status().message().find("before it is produced"),
            std::string::npos);
  EXPECT_FALSE(store.put_tokens("rewards", {{1}}).ok());
}

}  // namespace
}  // namespace braid
