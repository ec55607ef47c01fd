// Where the roles of a session come from, what they share and what is exported of them.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "config/load.h"
#include "host/file.h"
#include "nn/model_share.h"
#include "plan/make_problem.h"
#include "scoring/evaluate.h"
#include "session/session.h"
#include "test_paths.h"

namespace braid::inline session {
namespace {

using testing::HasSubstr;

const std::string kModel = std::string(BRAID_SOURCE_DIR) + "/examples/quickstart/model";

class RolesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(make_folder(folder_).ok());
    base_ = write_model("base", false, 1);
    scorer_ = write_model("scorer", true, 2);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A two-layer checkpoint with the quickstart's tokenizer.
  std::string write_model(const std::string& name, bool scalar_head, uint64_t seed,
                          int64_t vocab = 0) {
    const std::string path = join_path(folder_, name);
    ModelSpec spec = *parse_model_spec(*read_file(kModel + "/config.json"), "config.json");
    Json config = *parse_json(*read_file(kModel + "/config.json"), "config.json");
    config["num_hidden_layers"] = spec.layers = 2;
    if (vocab > 0) config["vocab_size"] = spec.vocab = vocab;
    spec.scalar_head = scalar_head;
    if (scalar_head) spec.architecture = "LlamaForSequenceClassification";
    const std::string source = join_path(folder_, name + "-source");
    std::filesystem::copy(kModel, source);
    EXPECT_TRUE(write_file_atomic(join_path(source, "config.json"), config.dump()).ok());
    ModelOptions options;
    options.seed = seed;
    const auto model = make_model(spec, options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    if (scalar_head) {
      const at::NoGradGuard no_grad;
      (*model)->head_weight().normal_(0, 0.1);
    }
    const Status saved = save_model(**model, path, {.source_folder = source});
    EXPECT_TRUE(saved.ok()) << saved.message();
    return path;
  }

  Config config_for(const std::string& algorithm) {
    Config config;
    config.algorithm = default_options(algorithm);
    config.model.path = base_;
    config.data.train = "task:sort_digits";
    config.rollout.prompts_per_step = 4;
    config.rollout.samples_per_prompt = algorithm == "grpo" ? 2 : 1;
    config.rollout.max_response_length = 6;
    config.train.threads = 2;
    config.optim.actor.lr = config.optim.critic.lr = config.optim.reward.lr = 1e-2;
    RewardConfig rule;
    rule.type = "rule";
    rule.rule = "digit_share";
    config.reward = {rule};
    return config;
  }
  RewardConfig model_reward(const std::string& path, const std::string& name = "learnt") {
    RewardConfig reward;
    reward.name = name;
    reward.type = "model";
    reward.path = path;
    return reward;
  }

  std::unique_ptr<Session> session_of(const Config& config, int steps) {
    auto session = Session::create(config, *compile(*make_graph(config.algorithm)));
    EXPECT_TRUE(session.ok()) << session.status().message();
    if (!session.ok()) return nullptr;
    for (int step = 0; step < steps; ++step) {
      row_ = (*session)->run_step().value();
      if (step == 0) first_ = row_;
    }
    return std::move(session).value();
  }
  std::string failure(const Config& config) {
    return Session::create(config, *compile(*make_graph(config.algorithm))).status().message();
  }
  std::unique_ptr<Model> load(const std::string& path) {
    auto model = load_model(path, {});
    EXPECT_TRUE(model.ok()) << model.status().message();
    return std::move(model).value();
  }

  std::string folder_ =
      cat(testing::TempDir(), "/braid_roles_",
          testing::UnitTest::GetInstance()->current_test_info()->name(), "_", ::getpid());
  std::string base_, scorer_;
  std::map<std::string, double> first_, row_;
};

at::Tensor hidden(Model& model) {
  const at::NoGradGuard no_grad;
  return model.forward(pack_sequences({{1, 5, 6, 7}, {1, 9}}, at::kCPU), nullptr);
}

Model& model_of(const Session& session, const std::string& role) {
  return *session.roles().at(role).model;
}

const void* weight_address(const Session& session, const std::string& role) {
  for (const auto& [name, tensor] : model_of(session, role).parameters())
    if (name == "model.layers.1.mlp.down_proj.weight") return tensor.const_data_ptr();
  return nullptr;
}

TEST_F(RolesTest, LoraRolesShareOneBaseThatNeverChanges) {
  Config config = config_for("ppo");
  config.lora.rank = 4;
  const auto session = session_of(config, 3);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(weight_address(*session, "actor"), weight_address(*session, "reference"));
  EXPECT_EQ(weight_address(*session, "actor"), weight_address(*session, "critic"));
  EXPECT_TRUE(at::equal(hidden(model_of(*session, "reference")), hidden(*load(base_))));
  EXPECT_FALSE(at::equal(hidden(model_of(*session, "actor")), hidden(*load(base_))));
  EXPECT_FALSE(at::equal(hidden(model_of(*session, "critic")), hidden(*load(base_))));
  EXPECT_NEAR(first_.at("kl/ref_k1"), 0, 1e-6);
  EXPECT_GT(row_.at("kl/ref_k3"), 1e-6);
}

TEST_F(RolesTest, LoraExportsLoadMergedAndAsAdapters) {
  Config config = config_for("ppo");
  config.lora.rank = 4;
  const auto session = session_of(config, 2);
  ASSERT_NE(session, nullptr);
  const std::string out = join_path(folder_, "export");
  ASSERT_TRUE(make_folder(out).ok());
  const Status exported = session->export_models(out);
  ASSERT_TRUE(exported.ok()) << exported.message();
  for (const std::string role : {"actor", "critic"}) {
    const at::Tensor expected = hidden(model_of(*session, role));
    EXPECT_TRUE(hidden(*load(join_path(out, role))).allclose(expected, 1e-4, 1e-4)) << role;
    const auto adapted = load(join_path(out, role + "-adapter"));
    EXPECT_TRUE(at::equal(hidden(*adapted), expected)) << role;
    EXPECT_TRUE(at::equal(adapted->head_weight(), model_of(*session, role).head_weight())) << role;
  }
  config.model.path = join_path(out, "actor-adapter");
  EXPECT_THAT(failure(config), HasSubstr("holds adapters only"));
}

TEST_F(RolesTest, LoraTrainsEveryRole) {
  for (const char* algorithm : {"sft", "rm", "grpo"}) {
    Config config = config_for(algorithm);
    config.lora.rank = 2;
    const auto session = session_of(config, 2);
    ASSERT_NE(session, nullptr);
    const std::string role = std::string(algorithm) == "rm" ? "reward" : "actor";
    const auto before = load(base_)->parameters();
    const auto after = model_of(*session, role).parameters();
    for (size_t i = 0; i + 1 < before.size(); ++i)
      EXPECT_TRUE(at::equal(before[i].second, after[i].second)) << before[i].first;
    for (const auto& [name, tensor] : model_of(*session, role).trainable_parameters())
      EXPECT_GT(tensor.abs().max().item<float>(), 0) << algorithm << " " << name;
  }
}

// Until the actor changes, its weights are the reference's; then the reference keeps what they
// were.
TEST_F(RolesTest, TheReferenceIsTheActorUntilItChanges) {
  for (const char* algorithm : {"ppo", "grpo"})
    for (const char* offload : {"auto", "off"}) {
      Config config = config_for(algorithm);
      config.train.offload = offload;
      const auto session = session_of(config, 0);
      ASSERT_NE(session, nullptr);
      EXPECT_EQ(weight_address(*session, "actor"), weight_address(*session, "reference"));
      ASSERT_TRUE(session->run_step().ok());
      EXPECT_NE(weight_address(*session, "actor"), weight_address(*session, "reference"));
      EXPECT_TRUE(at::equal(hidden(model_of(*session, "reference")), hidden(*load(base_))));
      EXPECT_FALSE(at::equal(hidden(model_of(*session, "actor")), hidden(*load(base_))));
    }
}

// Of whole trainings, of adapters and of a role that follows, in both types.
TEST_F(RolesTest, BytesOfACheckpointAreKnownWithoutIt) {
  for (const char* algorithm : {"ppo", "grpo", "rm"})
    for (const char* dtype : {"f32", "bf16"})
      for (const int64_t rank : {0, 2}) {
        SCOPED_TRACE(cat(algorithm, " ", dtype, ", lora ", rank));
        Config config = config_for(algorithm);
        config.model.dtype = dtype;
        config.lora.rank = rank;
        config.optim.critic.name = "sgd";
        const bool follows = rank == 0 && config.algorithm.name == "grpo";
        config.algorithm.kl.coef = follows ? 0.01 : config.algorithm.kl.coef;
        config.reference.ema = follows ? 0.5 : 0;
        config.reference.sync_every = follows ? 1 : 0;
        const auto graph = configured_graph(config);
        ASSERT_TRUE(graph.ok()) << graph.status().message();
        const auto session = Session::create(config, *compile(*graph));
        ASSERT_TRUE(session.ok()) << session.status().message();
        const auto state = (*session)->save_state();
        ASSERT_TRUE(state.ok()) << state.status().message();
        int64_t bytes = 0;
        for (const auto& [group, slices] : state->tensors)
          for (const SavedSlice& slice : slices)
            bytes += static_cast<int64_t>(slice.values.nbytes());
        EXPECT_EQ(*(*session)->saved_bytes(), bytes);
      }
}

// A checkpoint changes the actor too: the reference of a continued run is the initial policy.
TEST_F(RolesTest, TheReferenceOfAContinuedRunIsTheInitialActor) {
  const Config config = config_for("ppo");
  const auto first = session_of(config, 1), second = session_of(config, 0);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  ASSERT_TRUE(second->load_state(*first->save_state()).ok());
  EXPECT_TRUE(at::equal(hidden(model_of(*second, "reference")), hidden(*load(base_))));
  EXPECT_TRUE(at::equal(hidden(model_of(*second, "actor")), hidden(model_of(*first, "actor"))));
}

// Memory of this process that no file backs, in bytes.
int64_t anonymous_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("Anonymous:", 0) == 0) return std::stoll(line.substr(10)) * 1024;
  return -1;
}

// The copy that a reference becomes lies in a file: it takes no memory of the process's own.
TEST_F(RolesTest, AnOffloadedReferenceTakesNoMemoryOfItsOwn) {
  ModelSpec spec = *parse_model_spec(*read_file(kModel + "/config.json"), "config.json");
  spec.layers = 2;
  spec.intermediate = 32768;
  const auto actor = make_model(spec, {});
  ASSERT_TRUE(actor.ok()) << actor.status().message();
  int64_t bytes = 0;
  for (const auto& [name, tensor] : (*actor)->parameters())
    bytes += static_cast<int64_t>(tensor.nbytes());
  ASSERT_GT(bytes, int64_t{32} << 20);
  const at::Tensor expected = hidden(**actor);
  const int64_t before = anonymous_bytes();
  if (before < 0) GTEST_SKIP() << "the system does not tell";
  const auto reference = offload_model(**actor, "");
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  EXPECT_TRUE(at::equal(hidden(**reference), expected));
  (*reference)->rest();
  EXPECT_LT(anonymous_bytes() - before, bytes / 4);
}

const void* first_weight(const Model& model) {
  return model.parameters()[0].second.const_data_ptr();
}

// Whoever has loaded the reward models; each folder is loaded once.
TEST_F(RolesTest, EvaluationSharesRewardModels) {
  Config config = config_for("ppo");
  config.reward = {model_reward(scorer_, "a"), config.reward[0], model_reward(scorer_, "b")};
  const auto session = session_of(config, 0);
  ASSERT_NE(session, nullptr);
  ASSERT_EQ(session->reward_models().size(), 3u);
  EXPECT_EQ(session->reward_models()[1], nullptr);
  const auto alone = load_reward_models(config, {});
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  EXPECT_EQ(first_weight(*(*alone)[0]), first_weight(*(*alone)[2]));
  config.data.eval = "task:reverse:8";
  const auto report = [&](const RewardModels& models) {
    const auto evaluator = Evaluator::create(config);
    EXPECT_TRUE(evaluator.ok()) << evaluator.status().message();
    return (*evaluator)->run(model_of(*session, "actor"), models)->metrics;
  };
  const auto metrics = report(session->reward_models());
  EXPECT_EQ(metrics, report(*load_reward_models(config, {})));
  EXPECT_EQ(metrics.at("eval/a_mean"), metrics.at("eval/b_mean"));
}

// The reference stays the initial policy, in a file or in memory, and the results are the same
// bits.
TEST_F(RolesTest, OffloadingChangesNoBits) {
  Config config = config_for("ppo");
  config.reward = {model_reward(scorer_)};
  const auto filed = session_of(config, 2);
  config.train.offload = "off";
  const auto kept = session_of(config, 2);
  ASSERT_TRUE(filed != nullptr && kept != nullptr);
  for (const std::string role : {"actor", "critic", "reference"})
    EXPECT_TRUE(at::equal(hidden(model_of(*filed, role)), hidden(model_of(*kept, role)))) << role;
  EXPECT_TRUE(at::equal(hidden(model_of(*filed, "reference")), hidden(*load(base_))));
  EXPECT_FALSE(at::equal(hidden(model_of(*filed, "actor")), hidden(*load(base_))));
}

TEST_F(RolesTest, CriticStartsFromPolicyRewardModelPathOrRandom) {
  Config config = config_for("ppo");
  config.reward.push_back(model_reward(scorer_));
  const auto start = [&](const std::string& from, const std::string& path) {
    config.critic.init_from = from;
    config.critic.path = path;
    const auto session = session_of(config, 0);
    return session == nullptr ? at::Tensor() : hidden(model_of(*session, "critic"));
  };
  EXPECT_TRUE(at::equal(start("", ""), hidden(*load(base_))));
  EXPECT_TRUE(at::equal(start("policy", ""), hidden(*load(base_))));
  EXPECT_TRUE(at::equal(start("reward_model", ""), hidden(*load(scorer_))));
  EXPECT_TRUE(at::equal(start("", scorer_), hidden(*load(scorer_))));
  const at::Tensor random = start("random", "");
  EXPECT_FALSE(at::equal(random, hidden(*load(base_))));
  EXPECT_EQ(random.sizes(), hidden(*load(base_)).sizes());
}

TEST_F(RolesTest, SeveralUsesOfOneRewardModelGiveTheSameNumbers) {
  Config config = config_for("ppo");
  config.lora.rank = 2;
  config.critic.init_from = "reward_model";
  config.reward = {model_reward(scorer_, "a"), model_reward(scorer_, "b")};
  ASSERT_NE(session_of(config, 2), nullptr);
  EXPECT_EQ(row_.at("reward/a_mean"), row_.at("reward/b_mean"));
  config.lora.rank = 0;
  config.critic.init_from = "";
  const double first = first_.at("reward/a_mean");
  ASSERT_NE(session_of(config, 1), nullptr);
  EXPECT_EQ(first_.at("reward/a_mean"), first);  // the same policy scored by the same model
}

// examples/lora, one small step on checkpoints of this test.
TEST_F(RolesTest, LoraExamplesRun) {
  for (const std::string name : {"grpo", "ppo"}) {
    const std::string path = cat(BRAID_SOURCE_DIR, "/examples/lora/", name, ".yaml");
    ConfigSources sources;
    sources.files.emplace_back(path, *read_file(path));
    sources.environment = [](const std::string&) { return std::nullopt; };
    const auto loaded = load_config(sources);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    Config config = loaded->config;
    config.model.path = base_;
    config.rollout.prompts_per_step = 4;
    config.rollout.samples_per_prompt = std::min<int64_t>(config.rollout.samples_per_prompt, 2);
    for (RewardConfig& reward : config.reward)
      if (reward.type == "model") reward.path = scorer_;
    const auto session = session_of(config, 1);
    ASSERT_NE(session, nullptr) << name;
    EXPECT_EQ(weight_address(*session, "actor"), weight_address(*session, "reference"));
    EXPECT_GT(first_.at("policy/lr"), 0) << name;
  }
}

TEST_F(RolesTest, WrongRolesAreNamed) {
  Config config = config_for("ppo");
  config.critic.init_from = "reward_model";
  EXPECT_THAT(failure(config), HasSubstr("critic.init_from: reward_model needs a reward of type"));
  config.critic.init_from = "policies";
  EXPECT_THAT(failure(config), HasSubstr("policy | reward_model | random"));
  config.critic.init_from = "random";
  config.critic.path = scorer_;
  EXPECT_THAT(failure(config), HasSubstr("leave one of them out"));
  config = config_for("ppo");
  config.reward = {model_reward(base_)};
  EXPECT_THAT(failure(config), testing::AllOf(HasSubstr("reward 'learnt'"), HasSubstr(base_),
                                              HasSubstr("has no scalar head")));
  config = config_for("ppo");
  config.reference.path = scorer_;
  EXPECT_THAT(failure(config), HasSubstr("role reference"));
  config.reference.path = write_model("narrow", false, 3, 30);
  EXPECT_THAT(failure(config), testing::AllOf(HasSubstr("narrow"), HasSubstr("vocabulary of 30")));
  config = config_for("ppo");
  config.model = {};
  config.model.config = kModel + "/config.json";
  config.tokenizer.path = kModel;
  config.lora.rank = 2;
  EXPECT_THAT(failure(config), HasSubstr("lora.rank: adapters need trained weights"));
}

}  // namespace
}  // namespace braid::inline session
