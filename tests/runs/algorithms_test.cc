// Every trainable algorithm: the identities of a first step, and the commands that
// docs/algorithms.md prints. BRAID_TEST_FULL=1 runs them to their end with three seeds: they learn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "runs/process_testing.h"
#include "session/check_models.h"
#include "session/testing.h"

namespace braid {
namespace {

using testing::HasSubstr;

// Those that learn from rewards of what they generate.
std::vector<std::string> generating_algorithms() {
  std::vector<std::string> out;
  for (const std::string& name : trainable_algorithms()) {
    const Graph graph = *make_graph(default_options(name));
    if (generates(graph) && find_role(graph, RoleId{"teacher"}) == nullptr) out.push_back(name);
  }
  return out;
}

// Those whose loss has a ratio to the policy that generated.
std::vector<std::string> ratio_algorithms() {
  std::vector<std::string> out;
  for (const std::string& name : generating_algorithms())
    if (find_call(*make_graph(default_options(name)), "old_logprob") != nullptr)
      out.push_back(name);
  return out;
}

TEST(Algorithms, TheTrainableOnesAreDerivedFromGraphsAndFunctions) {
  const std::vector<std::string> names = trainable_algorithms();
  const std::set<std::string> all(names.begin(), names.end());
  for (const char* name : {"ppo", "grpo", "dapo", "dr_grpo", "gspo", "cispo", "rloo", "reinforce",
                           "reinforce_plus_plus", "reinforce_plus_plus_baseline", "dpo", "orpo",
                           "online_dpo", "kto", "distill", "remax", "sft", "rm"})
    EXPECT_EQ(all.count(name), 1u) << name;
}

class NamedAlgorithmStep : public testing::TestWithParam<std::string> {};

// No divergence from the reference, ratio 1, sampler and trainer agree; the update changes weights.
TEST_P(NamedAlgorithmStep, TheFirstIsOnPolicy) {
  Config config = tiny_run(GetParam());
  config.train.minibatches = 1;
  if (config.algorithm.kl.coef == 0) config.algorithm.kl.coef = 0.01;  // a reference to compare
  const Program program = program_of(config);
  const auto session = session_of(config, program), before = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_NEAR(row->at("kl/ref_k1"), 0, 1e-6);
  EXPECT_NEAR(row->at("policy/ratio_mean"), 1, 1e-6);
  EXPECT_NEAR(row->at("policy/ratio_max"), 1, 2e-5);
  EXPECT_EQ(row->at("policy/clipfrac"), 0);
  EXPECT_LE(row->at("mismatch/logprob_abs_max"), 1e-5);
  EXPECT_GT(row->at("policy/grad_norm"), 0);
  EXPECT_FALSE(same_weights(*session, *before));
}

INSTANTIATE_TEST_SUITE_P(Names, NamedAlgorithmStep, testing::ValuesIn(ratio_algorithms()));

// The policy is the reference at first: the loss has its known value, and no margin.
TEST(PreferenceStep, TheFirstStartsAtTheReference) {
  for (const char* name : {"dpo", "online_dpo"}) {
    Config config = tiny_run(name);
    config.train.minibatches = 1;
    const Program program = program_of(config);
    const auto session = session_of(config, program), before = session_of(config, program);
    const auto row = session->run_step();
    ASSERT_TRUE(row.ok()) << row.status().message();
    EXPECT_NEAR(row->at("dpo/loss"), std::log(2.0), 1e-6) << name;
    EXPECT_NEAR(row->at("dpo/margin_mean"), 0, 1e-6) << name;
    EXPECT_FALSE(same_weights(*session, *before)) << name;
  }
}

// The baseline is 0 then, and both kinds of samples cost half their weight.
TEST(KtoStep, TheFirstStartsAtTheReference) {
  Config config = tiny_run("kto");
  config.train.minibatches = 1;
  config.rollout.prompts_per_step = 8;
  const Program program = program_of(config);
  const auto session = session_of(config, program), before = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_NEAR(row->at("kto/kl"), 0, 1e-5);
  EXPECT_NEAR(row->at("kto/loss"), 0.5, 1e-6);
  EXPECT_NEAR(row->at("kto/wanted_reward_mean"), 0, 1e-6);
  EXPECT_NEAR(row->at("kto/unwanted_reward_mean"), 0, 1e-6);
  EXPECT_FALSE(same_weights(*session, *before));
  const auto next = session->run_step();
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_NE(next->at("kto/wanted_reward_mean"), 0);
}

// A teacher that is the policy has nothing to teach; another one has, and no reward is needed.
TEST(DistillStep, TheFirstIsOnPolicyAndMovesTowardsTheTeacher) {
  Config config = tiny_run("distill");
  config.reward.clear();
  config.train.minibatches = 1;
  const std::string folder = join_path(testing::TempDir(), cat("teacher-", ::getpid()));
  const auto export_after = [&](const char* name, double lr, int64_t seed) {
    Config other = tiny_run("grpo");
    other.optim.actor.lr = lr;
    other.train.seed = seed;
    const Program program = program_of(other);
    const auto session = session_of(other, program);
    EXPECT_TRUE(session->run_step().ok());
    EXPECT_TRUE(session->export_models(join_path(folder, name)).ok());
    return join_path(folder, cat(name, "/actor"));
  };
  const Program program = program_of(config);
  config.teacher.path = export_after("same", 1e-30, config.train.seed);
  const auto own = session_of(config, program);
  const auto row = own->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_NEAR(row->at("distill/reverse_kl"), 0, 1e-6);
  EXPECT_NEAR(row->at("policy/ratio_mean"), 1, 1e-6);
  EXPECT_EQ(row->at("policy/clipfrac"), 0);
  EXPECT_LE(row->at("mismatch/logprob_abs_max"), 1e-5);
  config.teacher.path = export_after("other", 1e-2, config.train.seed + 1);
  const auto session = session_of(config, program), before = session_of(config, program);
  const auto first = session->run_step();
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_GT(std::abs(first->at("distill/reverse_kl")), 1e-4);
  EXPECT_NEAR(first->at("policy/ratio_mean"), 1, 1e-6);
  EXPECT_FALSE(same_weights(*session, *before));
  config.teacher.path.clear();
  EXPECT_THAT(Session::create(config, program).status().message(), HasSubstr("teacher.path: no"));
}

// All samples of a prompt have the reward of one greedy response, which a step of one sample each
// has too.
TEST(RemaxStep, TheGreedyResponseIsThePrompts) {
  Config config = tiny_run("remax");
  config.rollout.samples_per_prompt = 2;
  const Program program = program_of(config);
  const auto session = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  const SampleStore& store = session->store();
  const TokenLists& greedy = **store.tokens("greedy_ids");
  const at::Tensor worth = *store.reals("greedy_rewards", store.all_rows());
  ASSERT_EQ(store.size(), 8u);
  for (size_t i = 0; i < store.size(); i += 2) {
    EXPECT_EQ(greedy[i], greedy[i + 1]);
    EXPECT_EQ(worth[static_cast<int64_t>(i)].item<float>(),
              worth[static_cast<int64_t>(i + 1)].item<float>());
  }
  EXPECT_NEAR(row->at("reward/greedy_mean"), worth.mean().item<double>(), 1e-6);
  config.rollout.samples_per_prompt = 1;
  const auto single = session_of(config, program);
  ASSERT_TRUE(single->run_step().ok());
  for (size_t i = 0; i < single->store().size(); ++i)
    EXPECT_EQ((**single->store().tokens("greedy_ids"))[i], greedy[2 * i]);
}

constexpr double kLearned = 0.15;  // of the share of digits

class PrintedAlgorithms : public RunProcess {
 protected:
  // The commands of docs/algorithms.md that have KEY=NAME, by those names.
  static std::map<std::string, std::string> commands(const std::string& key) {
    const std::string text = *read_file(std::string(BRAID_SOURCE_DIR) + "/docs/algorithms.md");
    std::map<std::string, std::string> out;
    for (const std::string& line : split(text, '\n'))
      if (line.rfind("build/braid train examples/algorithms/", 0) == 0 &&
          line.find(key + "=") != std::string::npos)
        out[split(line.substr(line.find(key) + key.size() + 1), ' ').front()] =
            line.substr(line.find(' ') + 1);
    return out;
  }

  // Runs commands, in the full tier to their end with three seeds, whose runs `check` sees.
  static void run_all(const std::map<std::string, std::string>& lines,
                      const std::function<void(const std::string& run)>& check) {
    for (const auto& [name, line] : lines) {
      if (!full_tier()) {
        run(line, cat("printed-", name), "train.total_steps=1");
        continue;
      }
      for (const int seed : {1, 2, 3}) {
        const std::string learning = cat("learning-", name, "-", seed);
        run(line, learning, cat("train.seed=", seed));
        SCOPED_TRACE(learning);
        check(learning);
      }
    }
  }

  static void run(const std::string& line, const std::string& name, const std::string& more) {
    const CommandOutcome outcome =
        run_braid(cat(line, " run.dir=", folder_, " run.name=", name, " train.threads=1 ", more));
    ASSERT_EQ(outcome.exit_code, 0) << line << "\n" << outcome.output;
  }
};

// How much higher a metric is in the last few steps than in the first.
double gain(const std::vector<Json>& rows, const char* metric) {
  constexpr size_t kSteps = 5;
  double first = 0, last = 0;
  for (size_t i = 0; i < kSteps; ++i) {
    first += rows.at(i)[metric].get<double>() / kSteps;
    last += rows.at(rows.size() - 1 - i)[metric].get<double>() / kSteps;
  }
  return last - first;
}

// Its mean over the last few steps.
double last(const std::vector<Json>& rows, const char* metric) {
  constexpr size_t kSteps = 5;
  double sum = 0;
  for (size_t i = 0; i < kSteps; ++i) sum += rows.at(rows.size() - 1 - i)[metric].get<double>();
  return sum / kSteps;
}

TEST_F(PrintedAlgorithms, RunAsPrintedAndLearn) {
  const std::map<std::string, std::string> lines = commands("toy.yaml algorithm.name");
  for (const std::string& name : generating_algorithms())
    EXPECT_EQ(lines.count(name), name == "ppo" ? 0u : 1u) << name << " has no printed command";
  run_all(lines, [](const std::string& run) {
    EXPECT_GT(gain(metrics(run), "reward/raw_mean"), kLearned);
  });
}

// PPO with a reference that follows the policy.
TEST_F(PrintedAlgorithms, AMovingReferenceLetsThePolicyLearn) {
  const std::map<std::string, std::string> lines = commands("reference.ema");
  ASSERT_EQ(lines.size(), 1u);
  run_all(lines, [](const std::string& run) {
    EXPECT_GT(gain(metrics(run), "reward/raw_mean"), kLearned);
    EXPECT_TRUE(path_exists(path(run + "/checkpoints")));
  });
}

// PPO whose policy is its critic too.
TEST_F(PrintedAlgorithms, ATrunkOfActorAndCriticLearns) {
  const std::map<std::string, std::string> lines = commands("critic.shared_trunk");
  ASSERT_EQ(lines.size(), 1u);
  run_all(lines, [](const std::string& run) {
    EXPECT_GT(gain(metrics(run), "reward/raw_mean"), kLearned);
    EXPECT_LT(gain(metrics(run), "critic/loss"), 0);
  });
}

// Preferences of the data: the policy comes to give the chosen response more than the rejected one.
TEST_F(PrintedAlgorithms, PreferencesAreLearnt) {
  std::map<std::string, std::string> lines = commands("preferences.yaml algorithm.name");
  ASSERT_EQ(lines.size(), 3u);
  for (const auto& [name, line] : lines) {
    const std::string metric = name + "/accuracy";
    run_all({{name, line}},
            [&](const std::string& run) { EXPECT_GT(last(metrics(run), metric.c_str()), 0.9); });
  }
}

// The teacher is what the command before trains.
TEST_F(PrintedAlgorithms, TheTeacherIsApproached) {
  const std::string text = *read_file(std::string(BRAID_SOURCE_DIR) + "/docs/algorithms.md");
  const std::string line = "train examples/algorithms/distill.yaml";
  ASSERT_THAT(text, HasSubstr("build/braid " + line + "\n"));
  const std::string teach = commands("toy.yaml algorithm.name").at("grpo");
  run(teach, "teacher", full_tier() ? "" : "train.total_steps=1");
  run_all({{"distill", cat(line, " teacher.path=", path("teacher/export/actor"))}},
          [&](const std::string& run) {
            const std::vector<Json> rows = metrics(run);
            const double end = last(rows, "distill/reverse_kl");
            EXPECT_LT(end, 0.5 * (end - gain(rows, "distill/reverse_kl")));
          });
}

// The shipped example is GRPO's loss: the same bytes of weights and the same metrics.
TEST_F(PrintedAlgorithms, TheExampleOfAnOwnLossIsGrpo) {
  const std::string library = path("grpo.so");
  ASSERT_TRUE(make_folder(folder_).ok());
  const CommandOutcome built = run_braid(cat("build-loss examples/own_loss/grpo.cc -o ", library));
  ASSERT_EQ(built.exit_code, 0) << built.output;
  const std::string line =
      "train examples/algorithms/toy.yaml algorithm.name=grpo algorithm.kl.coef=0.01";
  const std::string few = "train.total_steps=2 checkpoint.every_steps=0 ";
  run(line, "grpo-builtin", few);
  run(line, "grpo-own", cat(few, "algorithm.loss=", library));
  EXPECT_EQ(*read_file(path("grpo-builtin/export/actor/model.safetensors")),
            *read_file(path("grpo-own/export/actor/model.safetensors")));
  const auto own = metrics("grpo-own"), builtin = metrics("grpo-builtin");
  ASSERT_EQ(own.size(), 2u);
  for (size_t step = 0; step < own.size(); ++step)
    for (const char* name : {"policy/loss", "policy/clipfrac", "policy/grad_norm", "kl/ref_k3"})
      EXPECT_EQ(own[step].at(name), builtin[step].at(name)) << name;
  EXPECT_EQ(own[0].at("own/ratio_mean"), own[0].at("policy/ratio_mean"));
  run(line, "grpo-own-advantages", cat(few, "algorithm.advantages=", library));
  EXPECT_NEAR(metrics("grpo-own-advantages")[0].at("policy/loss").get<double>(),
              builtin[0].at("policy/loss").get<double>(), 1e-6);
  const CommandOutcome refused = run_braid(
      cat("train examples/algorithms/preferences.yaml algorithm.name=dpo algorithm.loss=", library,
          " run.dir=", folder_, " run.name=none"));
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.output, HasSubstr("algorithm.loss: dpo has no loss over log-probs"));
}

// What nobody trains is refused before anything is read.
TEST_F(PrintedAlgorithms, OneThatNobodyKnowsNamesThoseThatTrain) {
  const CommandOutcome outcome =
      run_braid("train examples/algorithms/toy.yaml algorithm.name=remix run.dir=" + folder_ +
                " run.name=none");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("did you mean 'remax'?"));
  EXPECT_THAT(outcome.output, HasSubstr("reinforce_plus_plus_baseline"));
}

}  // namespace
}  // namespace braid
