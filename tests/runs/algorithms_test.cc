// Every trainable algorithm that generates: the identities of a first step, and the commands that
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

std::vector<std::string> generating_algorithms() {
  std::vector<std::string> out;
  for (const std::string& name : trainable_algorithms())
    if (generates(*make_graph(default_options(name)))) out.push_back(name);
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
                           "online_dpo", "sft", "rm"})
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

constexpr double kLearned = 0.15;  // of the share of digits

class PrintedAlgorithms : public RunProcess {
 protected:
  // The commands of docs/algorithms.md that end in KEY=NAME, by those names.
  static std::map<std::string, std::string> commands(const std::string& key) {
    const std::string text = *read_file(std::string(BRAID_SOURCE_DIR) + "/docs/algorithms.md");
    std::map<std::string, std::string> out;
    for (const std::string& line : split(text, '\n'))
      if (line.rfind("build/braid train examples/algorithms/", 0) == 0 &&
          line.find(key + "=") != std::string::npos)
        out[line.substr(line.find(key) + key.size() + 1)] = line.substr(line.find(' ') + 1);
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

// Preferences of the data: the policy comes to give the chosen response more than the rejected one.
TEST_F(PrintedAlgorithms, PreferencesAreLearnt) {
  std::map<std::string, std::string> lines = commands("preferences.yaml algorithm.name");
  ASSERT_EQ(lines.size(), 2u);
  for (const auto& [name, line] : lines) {
    const std::string metric = name == "orpo" ? "orpo/accuracy" : "dpo/accuracy";
    run_all({{name, line}},
            [&](const std::string& run) { EXPECT_GT(last(metrics(run), metric.c_str()), 0.9); });
  }
}

// What a plan has no steps for yet is refused before anything is read.
TEST_F(PrintedAlgorithms, OneThatIsOnlyPlannedNamesThoseThatTrain) {
  const CommandOutcome outcome =
      run_braid("train examples/algorithms/toy.yaml algorithm.name=remax run.dir=" + folder_ +
                " run.name=none");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("remax can be planned and simulated, but not trained"));
  EXPECT_THAT(outcome.output, HasSubstr("reinforce_plus_plus_baseline"));
}

}  // namespace
}  // namespace braid
