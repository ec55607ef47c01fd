// Every trainable algorithm: the identities of a first step, and the commands that
// docs/algorithms.md prints. BRAID_TEST_FULL=1 runs them to their end with three seeds: they learn.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "nn/model.h"
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
  const std::vector<std::pair<const char*, double>> losses = {
      {"sigmoid", std::log(2.0)}, {"ipo", 25}, {"hinge", 1}, {"robust", std::log(2.0)}};
  for (const char* name : {"dpo", "online_dpo"})
    for (const auto& [loss, value] : losses) {
      SCOPED_TRACE(cat(name, " ", loss));
      Config config = tiny_run(name);
      config.train.minibatches = 1;
      config.algorithm.preference_loss = loss;
      config.algorithm.beta = 0.1;  // ipo: (1 / (2 beta))^2
      if (config.algorithm.preference_loss == "robust") config.algorithm.label_smoothing = 0.1;
      const Program program = program_of(config);
      const auto session = session_of(config, program), before = session_of(config, program);
      const auto row = session->run_step();
      ASSERT_TRUE(row.ok()) << row.status().message();
      EXPECT_NEAR(row->at("dpo/loss"), value, 1e-5);
      EXPECT_NEAR(row->at("dpo/margin_mean"), 0, 1e-6);
      EXPECT_FALSE(same_weights(*session, *before));
    }
}

// A run that begins at the weights of a policy, whose scores are all 0 at first.
TEST(RewardModelStep, TheFirstStartsAtScoresOfZero) {
  const std::string folder = join_path(testing::TempDir(), cat("policy-", ::getpid()));
  ASSERT_TRUE(make_folder(folder).ok());
  const Config policy = tiny_run("sft");
  const Program program = program_of(policy);
  ASSERT_TRUE(session_of(policy, program)->export_models(folder).ok());
  double squares = 0;  // of the scores of a step
  for (const char* loss : {"pairwise", "cross_entropy", "squared_error"}) {
    SCOPED_TRACE(loss);
    Config config = tiny_run("rm");
    config.algorithm.reward_loss = loss;
    config.model.path = join_path(folder, "actor");
    config.model.config.clear();
    config.train.minibatches = 1;
    config.optim.reward.lr = 1e-3;
    if (config.algorithm.reward_loss == "squared_error") {
      config.data.train = cat(BRAID_SOURCE_DIR, "/examples/algorithms/scores.jsonl");
      config.data.shuffle = false;
      for (const double score : {1.0, 0.833, 0.833, 0.333}) squares += score * score / 4;
    }
    const Program of_rewards = program_of(config);
    const auto session = session_of(config, of_rewards), before = session_of(config, of_rewards);
    const auto row = session->run_step();
    ASSERT_TRUE(row.ok()) << row.status().message();
    EXPECT_EQ(row->at("rm/score_mean"), 0);
    EXPECT_NEAR(row->at("rm/loss"), squares > 0 ? squares : std::log(2.0), 1e-6);
    EXPECT_FALSE(same_weights(*session, *before));
    const auto next = session->run_step();
    ASSERT_TRUE(next.ok()) << next.status().message();
    EXPECT_NE(next->at("rm/score_mean"), 0);
  }
}

// Of a pair of two responses that are alike the odds are too: the loss is the negative
// log-likelihood and beta log 2, and what is learnt is the response alone.
TEST(OrpoStep, APairOfOneResponseIsLearntAsItIs) {
  const std::string data = join_path(testing::TempDir(), cat("alike-", ::getpid(), ".jsonl"));
  const std::string row =
      R"({"prompt": "sort 3142=", "chosen": "1234", "rejected": "1234", "response": "1234"})";
  ASSERT_TRUE(write_file_atomic(data, row + "\n").ok());
  std::map<std::string, double> found;
  for (const char* name : {"orpo", "sft"}) {
    Config config = tiny_run(name);
    config.data.train = data;
    config.train.minibatches = 1;
    const auto first = session_of(config, program_of(config))->run_step();
    ASSERT_TRUE(first.ok()) << first.status().message();
    found.insert(first->begin(), first->end());
  }
  EXPECT_EQ(found.at("orpo/margin_mean"), 0);
  EXPECT_NEAR(found.at("orpo/loss"), found.at("sft/loss") + AlgorithmOptions().beta * std::log(2.0),
              1e-6);
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

// What the policy finds likeliest behind the prompt and `tokens` so far.
int32_t likeliest(const Session& session, std::vector<int32_t> tokens) {
  const at::NoGradGuard no_grad;
  Model& model = *session.roles().at("actor").model;
  const at::Tensor hidden_TH =
      model.forward(pack_sequences({std::move(tokens)}, at::kCPU), nullptr);
  return logits(model, hidden_TH.slice(0, -1)).argmax().item<int32_t>();
}

// All samples of a prompt have the reward of one greedy response, which a step of one sample each
// has too.
TEST(RemaxStep, TheGreedyResponseIsThePrompts) {
  Config config = tiny_run("remax");
  config.rollout.samples_per_prompt = 2;
  const Program program = program_of(config);
  const auto session = session_of(config, program), before = session_of(config, program);
  const auto row = session->run_step();
  ASSERT_TRUE(row.ok()) << row.status().message();
  const SampleStore& store = session->store();
  const TokenLists& prompts = **store.tokens("prompt_ids");
  const TokenLists& greedy = **store.tokens("greedy_ids");
  const at::Tensor worth = *store.reals("greedy_rewards", store.all_rows());
  ASSERT_EQ(store.size(), 8u);
  for (size_t i = 0; i < store.size(); i += 2) {
    EXPECT_EQ(greedy[i], greedy[i + 1]);
    ASSERT_FALSE(greedy[i].empty());
    std::vector<int32_t> tokens = prompts[i];
    for (const int32_t token : greedy[i]) {
      EXPECT_EQ(token, likeliest(*before, tokens)) << "behind " << tokens.size() << " tokens";
      tokens.push_back(token);
    }
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
  // The commands of docs/algorithms.md that have this text, without the program.
  static std::vector<std::string> printed(const std::string& part) {
    const std::string text = *read_file(std::string(BRAID_SOURCE_DIR) + "/docs/algorithms.md");
    std::vector<std::string> out;
    for (const std::string& line : split(text, '\n'))
      if (line.starts_with("build/braid train examples/algorithms/") &&
          line.find(part) != std::string::npos)
        out.push_back(line.substr(line.find(' ') + 1));
    return out;
  }

  static std::string value_in(const std::string& line, const std::string& key) {
    return split(line.substr(line.find(key) + key.size() + 1), ' ').front();
  }
  static std::string name_in(const std::string& line) { return value_in(line, "algorithm.name"); }

  // Those that have KEY=NAME, by those names.
  static std::map<std::string, std::string> commands(const std::string& key) {
    std::map<std::string, std::string> out;
    for (const std::string& line : printed(key + "=")) out[value_in(line, key)] = line;
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
double last(const std::vector<Json>& rows, const char* metric, size_t steps = 5) {
  double sum = 0;
  for (size_t i = 0; i < steps; ++i) sum += rows.at(rows.size() - 1 - i)[metric].get<double>();
  return sum / static_cast<double>(steps);
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
  const std::vector<std::string> lines = printed("preferences.yaml");
  ASSERT_EQ(lines.size(), 7u);  // five of dpo
  for (const std::string& line : lines) {
    const std::string name = name_in(line), metric = name + "/accuracy";
    run_all({{cat(name, "-", std::hash<std::string>()(line)), line}},
            [&](const std::string& run) { EXPECT_GT(last(metrics(run), metric.c_str()), 0.9); });
  }
}

// Reward models: of pairs, of responses that are wanted or not, of scores.
TEST_F(PrintedAlgorithms, RewardsAreLearnt) {
  const std::map<std::string, std::string> lines = commands("algorithm.reward_loss");
  ASSERT_EQ(lines.size(), 3u);
  for (const auto& [loss, line] : lines)
    run_all({{"rm-" + loss, line}}, [&, loss = loss](const std::string& run) {
      const std::vector<Json> rows = metrics(run);
      if (loss != "squared_error") {
        // Of five steps of 64 rows a share of 0.9 has a standard error of 0.017, of twenty 0.008.
        EXPECT_GT(last(rows, "rm/accuracy", 20), 0.9);
        return;
      }
      const double end = last(rows, "rm/error_abs_mean");
      EXPECT_LT(end, 0.5 * (end - gain(rows, "rm/error_abs_mean")));
    });
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

// The sum of two reward models, which other commands train.
TEST_F(PrintedAlgorithms, TwoRewardModelsTeachAPolicy) {
  const std::string line = "train examples/algorithms/reward_models.yaml";
  ASSERT_EQ(printed("reward_models.yaml"), std::vector<std::string>{line});
  const std::map<std::string, std::string> models = commands("algorithm.reward_loss");
  const std::string few = full_tier() ? "" : "train.total_steps=1";
  run(models.at("pairwise"), "reward_model", few);
  run(models.at("squared_error"), "score_model", few);
  std::string config = *read_file(BRAID_SOURCE_DIR "/examples/algorithms/reward_models.yaml");
  const std::string of_models = "runs/algorithms";
  for (size_t at = config.find(of_models); at != std::string::npos; at = config.find(of_models))
    config.replace(at, of_models.size(), folder_);
  ASSERT_TRUE(write_file_atomic(path("reward_models.yaml"), config).ok());
  run_all({{"reward_models", "train " + path("reward_models.yaml")}}, [](const std::string& run) {
    const std::vector<Json> rows = metrics(run);
    EXPECT_GT(gain(rows, "reward/raw_mean"), kLearned);
    for (const Json& row : rows)
      EXPECT_NEAR(
          row["reward/raw_mean"].get<double>(),
          0.5 * row["reward/pairs_mean"].get<double>() + row["reward/scores_mean"].get<double>(),
          1e-4);
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
