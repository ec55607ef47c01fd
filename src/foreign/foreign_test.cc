#include "foreign/foreign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "foreign/baselines/baselines.h"
#include "foreign/resolve.h"
#include "foreign/text.h"
#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kVerlScript = R"(
set -x
# how people start it
MODEL=Qwen/Qwen2.5-7B-Instruct
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_batch_size=256 data.max_prompt_length=512 \
    data.max_response_length=1024 \
    actor_rollout_ref.model.path=$MODEL \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \
    actor_rollout_ref.ref.fsdp_config.param_offload=True \
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=5 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
    +actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 \
    trainer.logger='["console"]' \
    trainer.n_gpus_per_node=8 trainer.nnodes=1 $@
)";

constexpr const char* kVerlYaml = R"(
data: {train_batch_size: 512, max_prompt_length: 1024, max_response_length: 2048}
algorithm: {adv_estimator: gae, use_kl_in_reward: true}
actor_rollout_ref:
  model: {path: meta-llama/Llama-2-70b-hf}
  actor:
    strategy: megatron
    ppo_mini_batch_size: 128
    ppo_micro_batch_size_per_gpu: 2
    megatron: {tensor_model_parallel_size: 8, pipeline_model_parallel_size: 4}
  ref:
    log_prob_micro_batch_size_per_gpu: 4
    megatron: {tensor_model_parallel_size: 8, pipeline_model_parallel_size: 4}
  rollout: {tensor_model_parallel_size: 4, gpu_memory_utilization: 0.7, log_prob_micro_batch_size_per_gpu: 4}
critic:
  strategy: fsdp
  model: {path: meta-llama/Llama-2-7b-hf}
  use_dynamic_bsz: true
  ppo_max_token_len_per_gpu: 32768
reward_model: {enable: true, model: {path: meta-llama/Llama-2-7b-hf}, micro_batch_size_per_gpu: 4}
trainer: {nnodes: 8, n_gpus_per_node: 8}
)";

constexpr const char* kOpenRlhf = R"(
ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \
  --ref_num_nodes 1 --ref_num_gpus_per_node 2 --reward_num_nodes 1 --reward_num_gpus_per_node 2 \
  --critic_num_nodes 1 --critic_num_gpus_per_node 4 --actor_num_nodes 1 --actor_num_gpus_per_node 4 \
  --vllm_num_engines 2 --vllm_tensor_parallel_size 2 \
  --pretrain meta-llama/Meta-Llama-3-8B-Instruct --reward_pretrain llama3-8b \
  --micro_train_batch_size 4 --train_batch_size 128 --micro_rollout_batch_size 16 \
  --rollout_batch_size 1024 --max_epochs 1 --prompt_max_len 1024 --generate_max_len 1024 \
  --zero_stage 3 --bf16 --adam_offload --flash_attn --gradient_checkpointing
)";

ImportOptions on(const char* gpu) {
  ImportOptions options;
  options.gpu = gpu;
  return options;
}

Result<ImportedPlan> import_text(const char* framework, const std::string& text,
                                 const std::vector<std::string>& overrides = {}) {
  BRAID_ASSIGN(const Framework* found, find_framework(framework));
  BRAID_ASSIGN(ForeignKeys keys, found->parse(text, "config"));
  BRAID_TRY(add_overrides(overrides, &keys));
  return found->import_keys(keys, on("a100-80g"));
}

const Strategy& strategy(const ExecutionPlan& plan, const char* call) {
  return call_plan(plan, call).strategy;
}

TEST(ForeignText, FlagsTakeValuesOrStandAlone) {
  const ForeignKeys keys =
      foreign::flag_keys({"run", "--a", "1", "--b=2", "--c", "--d", "-3", "--e", ";", "x"});
  EXPECT_EQ(keys, (ForeignKeys{{"a", "1"}, {"b", "2"}, {"c", "true"}, {"d", "-3"}, {"e", "true"}}));
}

TEST(ForeignText, YamlKeepsReferencesAndNulls) {
  const auto keys = foreign::yaml_keys("a: {b: 3}\nc: ${a.b}\nd: null\ne: [1]", "f");
  EXPECT_EQ(*keys, (ForeignKeys{{"a.b", "3"}, {"c", "${a.b}"}, {"d", "null"}, {"e", "[1]"}}));
}

TEST(ForeignText, ReferencesAreResolvedByNamePlaceAndDefault) {
  const ForeignKeys keys = {{"a.b", "3"},        {"a.c.d", "${..b}"}, {"a.c.e", "${.d}"},
                            {"n", "null"},       {"loop", "${loop}"}, {"f", "${a.c.e}"},
                            {"g.h", "${.i}/end"}};
  const auto value = [&](const std::string& text, const std::string& key = "x") {
    return foreign::resolve_reference(text, key, [&](const std::string& name) {
      const auto found = keys.find(name);
      return found == keys.end() ? std::nullopt : std::optional(found->second);
    });
  };
  EXPECT_EQ(value("${f}"), "3");
  EXPECT_EQ(value("${.d}", "a.c.x"), "3");
  EXPECT_EQ(value("x-${a.b}-${a.b}"), "x-3-3");
  EXPECT_EQ(value("${oc.select:a.b,7}"), "3");
  EXPECT_EQ(value("${oc.select:a.z, 7}"), "7");
  EXPECT_EQ(value("${oc.select:n,\"~/m\"}"), "~/m");
  EXPECT_EQ(value("${oc.select:a.z}"), "null");
  EXPECT_EQ(value("${oc.select:.d,9}", "a.c.x"), "3");
  EXPECT_EQ(value("${nowhere}"), "${nowhere}");
  EXPECT_THAT(value("${loop}"), HasSubstr("${"));
}

TEST(Verl, ScriptBecomesTheCoLocatedPlan) {
  const auto imported = import_text("verl", kVerlScript);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const ExecutionPlan& plan = imported->plan;
  EXPECT_EQ(imported->problem.workload.minibatches, 4);
  EXPECT_EQ(imported->problem.workload.samples_per_prompt, 5);
  EXPECT_EQ(imported->problem.models.at("actor").spec.name, "qwen2.5-7b");
  EXPECT_EQ(strategy(plan, "generate").tp, 2);
  EXPECT_EQ(strategy(plan, "generate").dp, 4);
  EXPECT_EQ(strategy(plan, "update_actor").zero_stage, 3);
  EXPECT_EQ(strategy(plan, "update_actor").micro_batches, 5);  // 64 x 5 / 8 = 40 sequences, 8 each
  EXPECT_EQ(strategy(plan, "old_logprob").micro_batches, 10);  // 160 sequences, 16 each
  EXPECT_EQ(strategy(plan, "update_actor").recompute, Recompute::kFull);
  EXPECT_EQ(role_plan(plan, RoleId{"actor"}).optimizer, Residency::kHost);
  EXPECT_EQ(role_plan(plan, RoleId{"actor"}).weights, Residency::kDevice);
  EXPECT_EQ(role_plan(plan, RoleId{"reference"}).weights, Residency::kHost);
  EXPECT_THAT(imported->notes, Contains(HasSubstr("response lengths are not known")));
}

TEST(Verl, KvBudgetIsWhatTheMemoryShareLeavesBesideTheWeights) {
  const auto imported = import_text("verl", kVerlScript);
  const ModelSize& size = imported->problem.models.at("actor").spec;
  const double room = 0.6 * find_gpu("a100-80g")->hbm_bytes - 2.0 * total_params(size) / 2;
  const double per_token = kv_bytes_per_token(size, 2) / 2;
  EXPECT_NEAR(strategy(imported->plan, "generate").kv_budget_tokens, room / per_token, 1);
}

TEST(Verl, MegatronYamlBecomesPipelines) {
  const auto imported = import_text("verl", kVerlYaml);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const Strategy& update = strategy(imported->plan, "update_actor");
  EXPECT_EQ(update.tp, 8);
  EXPECT_EQ(update.pp, 4);
  EXPECT_EQ(update.dp, 2);
  EXPECT_EQ(update.zero_stage, 1);
  EXPECT_EQ(strategy(imported->plan, "ref_logprob").pp, 4);
  EXPECT_EQ(strategy(imported->plan, "update_critic").zero_stage, 3);
  EXPECT_EQ(strategy(imported->plan, "update_critic").micro_tokens, 32768);
  EXPECT_EQ(call_plan(imported->plan, "reward").mesh.devices.size(), 64u);
}

TEST(Verl, ExportOfAnImportIsTheSameConfiguration) {
  for (const char* text : {kVerlScript, kVerlYaml}) {
    const auto imported = import_text("verl", text);
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    const Framework& verl = **find_framework("verl");
    const ExportedConfig exported = verl.export_plan(imported->problem, imported->plan);
    EXPECT_THAT(exported.not_expressed, IsEmpty());
    const auto again =
        verl.import_keys(*verl.parse(config_text(verl, exported), "export"), on("a100-80g"));
    ASSERT_TRUE(again.ok()) << again.status().message();
    ExecutionPlan second = again->plan;  // the share of memory is printed in hundredths
    for (CallPlan& call : second.calls)
      if (call.call == "generate")
        call.strategy.kv_budget_tokens = strategy(imported->plan, "generate").kv_budget_tokens;
    EXPECT_THAT(diff(imported->plan, second), IsEmpty());
    EXPECT_EQ(again->problem, imported->problem);
  }
}

// What a framework's words become, and that they are written again.
void expect_algorithm(const char* name, const std::string& text,
                      const std::vector<std::string>& words, const std::string& algorithm) {
  SCOPED_TRACE(cat(name, " ", join(words, " ")));
  const auto imported = import_text(name, text, words);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->problem.graph.name, algorithm);
  EXPECT_THAT(imported->notes, Not(Contains(HasSubstr("nearest graph"))));
  const Framework& framework = **find_framework(name);
  const ExportedConfig exported = framework.export_plan(imported->problem, imported->plan);
  const auto again = framework.import_keys(
      *framework.parse(config_text(framework, exported), "export"), on("a100-80g"));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->problem.graph, imported->problem.graph);
}

TEST(Verl, AlgorithmsKeepTheirNames) {
  const std::string estimator = "algorithm.adv_estimator=";
  const std::string loss = "actor_rollout_ref.actor.policy_loss.loss_mode=";
  for (const char* name : {"rloo", "remax", "reinforce_plus_plus", "reinforce_plus_plus_baseline"})
    for (const char* in_reward : {"True", "False"})
      expect_algorithm(
          "verl", kVerlScript,
          {estimator + name, cat("algorithm.use_kl_in_reward=", in_reward),
           cat("actor_rollout_ref.actor.use_kl_loss=", *in_reward == 'T' ? "False" : "True")},
          name);
  expect_algorithm("verl", kVerlScript, {estimator + "grpo_vectorized"}, "grpo");
  for (const char* name : {"gspo", "cispo"}) {
    expect_algorithm("verl", kVerlScript, {loss + name}, name);
    expect_algorithm("verl", kVerlScript, {estimator + name}, name);
  }
  expect_algorithm("verl", kVerlScript, {"algorithm.filter_groups.enable=True"}, "dapo");
  expect_algorithm("verl", kVerlScript, {loss + "vanilla"}, "grpo");
}

TEST(Verl, WhatIsNoAlgorithmHereIsTheNearestGraph) {
  for (const auto& [theirs, ours] :
       {std::pair("opo", "grpo"), std::pair("reinforce", "reinforce")}) {
    const auto imported =
        import_text("verl", kVerlScript, {cat("algorithm.adv_estimator=", theirs)});
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    EXPECT_EQ(imported->problem.graph.name, ours);
    EXPECT_THAT(imported->notes, Contains(HasSubstr(": the nearest graph")));
  }
}

TEST(OpenRlhf, AlgorithmsKeepTheirNames) {
  for (const auto& [theirs, ours] :
       {std::pair("group_norm", "grpo"), std::pair("dr_grpo", "dr_grpo"), std::pair("rloo", "rloo"),
        std::pair("reinforce", "reinforce_plus_plus"),
        std::pair("reinforce_baseline", "reinforce_plus_plus_baseline")})
    expect_algorithm("openrlhf", kOpenRlhf, {cat("advantage_estimator=", theirs)}, ours);
}

// Frameworks that cannot say an algorithm say so.
TEST(Frameworks, AlgorithmsThatTheyLackAreLost) {
  for (const auto& [framework, text, algorithm] :
       {std::tuple("verl", kVerlScript, "reinforce"), std::tuple("verl", kVerlScript, "dpo"),
        std::tuple("openrlhf", kOpenRlhf, "gspo")}) {
    auto imported = import_text(framework, text);
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    imported->problem.graph.name = algorithm;
    EXPECT_THAT(
        (*find_framework(framework))->export_plan(imported->problem, imported->plan).not_expressed,
        Contains(HasSubstr(cat("graph ", algorithm))));
  }
}

TEST(Verl, BalanceIsOnUnlessSwitchedOff) {
  const auto balanced = import_text("verl", kVerlScript);
  const auto in_order = import_text("verl", kVerlScript, {"trainer.balance_batch=False"});
  ASSERT_TRUE(balanced.ok() && in_order.ok());
  EXPECT_FALSE(strategy(balanced->plan, "update_actor").in_order);
  EXPECT_TRUE(strategy(in_order->plan, "update_actor").in_order);
  EXPECT_TRUE(strategy(in_order->plan, "old_logprob").in_order);
  EXPECT_FALSE(strategy(in_order->plan, "generate").in_order);
  const Framework& verl = **find_framework("verl");
  EXPECT_THAT(config_text(verl, verl.export_plan(in_order->problem, in_order->plan)),
              HasSubstr("trainer.balance_batch=False"));
}

// The composed configuration that verl prints, cut to what matters here.
constexpr const char* kComposed = R"(
actor_rollout_ref:
  actor:
    strategy: fsdp
    ppo_mini_batch_size: 256
    ppo_micro_batch_size: null
    ppo_micro_batch_size_per_gpu: null
    use_dynamic_bsz: true
    ppo_max_token_len_per_gpu: 8192
    use_kl_loss: true
    fsdp_config: {param_offload: false, optimizer_offload: false, fsdp_size: -1}
  ref:
    strategy: ${actor_rollout_ref.actor.strategy}
    log_prob_micro_batch_size_per_gpu: null
    log_prob_use_dynamic_bsz: ${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}
    log_prob_max_token_len_per_gpu: ${oc.select:actor_rollout_ref.actor.ppo_max_token_len_per_gpu,16384}
  rollout:
    name: vllm
    tensor_model_parallel_size: 2
    log_prob_use_dynamic_bsz: ${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}
    log_prob_max_token_len_per_gpu: ${oc.select:actor_rollout_ref.actor.ppo_max_token_len_per_gpu,16384}
    'n': 1
  model: {path: Qwen/Qwen2.5-7B}
data: {train_batch_size: 1024, max_prompt_length: 512, max_response_length: 512}
critic:
  strategy: fsdp
  model: {path: Qwen/Qwen2.5-7B, tokenizer_path: '${oc.select:actor_rollout_ref.model.path,"~/m"}'}
  ppo_mini_batch_size: ${oc.select:actor_rollout_ref.actor.ppo_mini_batch_size,256}
  ppo_micro_batch_size: null
  ppo_micro_batch_size_per_gpu: ${oc.select:.ppo_micro_batch_size,null}
  use_dynamic_bsz: ${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}
  ppo_max_token_len_per_gpu: 32768
  forward_max_token_len_per_gpu: ${.ppo_max_token_len_per_gpu}
  forward_micro_batch_size_per_gpu: ${oc.select:.ppo_micro_batch_size_per_gpu,null}
algorithm: {adv_estimator: gae}
trainer: {nnodes: 1, n_gpus_per_node: 8}
)";

TEST(Verl, ComposedConfigurationIsReadAsItStands) {
  const auto imported = import_text("verl", kComposed);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(strategy(imported->plan, "update_actor").micro_tokens, 8192);
  EXPECT_EQ(strategy(imported->plan, "old_logprob").micro_tokens, 8192);
  EXPECT_EQ(strategy(imported->plan, "ref_logprob").micro_tokens, 8192);
  EXPECT_EQ(strategy(imported->plan, "update_critic").micro_tokens, 32768);
  EXPECT_EQ(strategy(imported->plan, "values").micro_tokens, 32768);
}

TEST(Verl, FollowersChangeWithTheKeyThatTheyFollow) {
  const auto imported =
      import_text("verl", kComposed,
                  {"actor_rollout_ref.actor.use_dynamic_bsz=False",
                   "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
                   "critic.ppo_micro_batch_size_per_gpu=8",
                   "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32",
                   "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=64"});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(strategy(imported->plan, "update_actor").micro_batches, 2);  // 256 / 8 = 32, 16 each
  EXPECT_EQ(strategy(imported->plan, "update_critic").micro_batches, 4);
  EXPECT_EQ(strategy(imported->plan, "values").micro_batches, 16);  // 1024 / 8 = 128, 8 each
  EXPECT_EQ(strategy(imported->plan, "old_logprob").micro_batches, 4);
  EXPECT_EQ(strategy(imported->plan, "ref_logprob").micro_batches, 2);
}

TEST(Verl, ASwitchOfTheActorSwitchesTheOthersToo) {
  const auto imported =
      import_text("verl", kVerlScript, {"actor_rollout_ref.actor.use_dynamic_bsz=True"});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  for (const char* call : {"update_actor", "old_logprob", "ref_logprob"})
    EXPECT_EQ(strategy(imported->plan, call).micro_tokens, 16384) << call;
}

TEST(Verl, TotalsOfAllDevicesAreDividedByThem) {
  const auto imported = import_text("verl", kVerlScript,
                                    {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null",
                                     "actor_rollout_ref.actor.ppo_micro_batch_size=32"});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(strategy(imported->plan, "update_actor").micro_batches, 10);  // 40 sequences, 4 each
}

constexpr const char* kMegatronScript = R"(
python3 -m verl.trainer.main_ppo --config-path=config CONFIG algorithm.adv_estimator=gae
  data.train_batch_size=1024 data.max_prompt_length=1024 data.max_response_length=512
  actor_rollout_ref.model.path=meta-llama/Llama-3.1-8B-Instruct
  actor_rollout_ref.actor.ppo_mini_batch_size=256
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4
  actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8
  critic.model.path=meta-llama/Llama-3.1-8B-Instruct critic.ppo_micro_batch_size_per_gpu=4
  critic.megatron.tensor_model_parallel_size=4 critic.megatron.pipeline_model_parallel_size=2
  trainer.n_gpus_per_node=8 trainer.nnodes=2
)";

std::string megatron_script(const std::string& config) {
  std::string text = kMegatronScript;
  return text.replace(text.find("CONFIG"), 6, config);
}

TEST(Verl, TheNamedConfigurationChoosesTheBackend) {
  for (const char* config : {"--config-name='ppo_megatron_trainer.yaml'",
                             "--config-name ppo_megatron_trainer", "-cn ppo_megatron_trainer"}) {
    const auto imported = import_text("verl", megatron_script(config));
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    EXPECT_EQ(imported->problem.train_engine, "megatron") << config;
    EXPECT_EQ(strategy(imported->plan, "update_actor").tp, 4);
    EXPECT_EQ(strategy(imported->plan, "update_critic").pp, 2);
    EXPECT_EQ(strategy(imported->plan, "update_critic").recompute, Recompute::kNone);
  }
  const auto fsdp = import_text("verl", megatron_script("--config-name ppo_trainer"));
  ASSERT_TRUE(fsdp.ok()) << fsdp.status().message();
  EXPECT_EQ(strategy(fsdp->plan, "update_actor").zero_stage, 3);
  const auto other = import_text("verl", megatron_script("--config-name mine"));
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_THAT(other->notes, Contains(HasSubstr("what mine says is not known here")));
}

TEST(Verl, MegatronKeysAreOffloadAndRecomputation) {
  const std::string actor = "actor_rollout_ref.actor.megatron.";
  const auto imported =
      import_text("verl", megatron_script("--config-name ppo_megatron_trainer"),
                  {actor + "param_offload=True", "critic.megatron.optimizer_offload=True",
                   actor + "override_transformer_config.recompute_granularity=selective",
                   actor + "context_parallel_size=2", "critic.ppo_mini_batch_size=128",
                   "actor_rollout_ref.rollout.pipeline_model_parallel_size=2"});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(role_plan(imported->plan, RoleId{"actor"}).weights, Residency::kHost);
  EXPECT_EQ(role_plan(imported->plan, RoleId{"critic"}).optimizer, Residency::kHost);
  EXPECT_EQ(strategy(imported->plan, "update_actor").recompute, Recompute::kSelective);
  EXPECT_EQ(strategy(imported->plan, "update_actor").cp, 2);
  EXPECT_EQ(strategy(imported->plan, "generate").pp, 2);
  EXPECT_THAT(imported->keys.not_priced,
              Contains(testing::Field(&KeyReport::Entry::key, "critic.ppo_mini_batch_size")));
  const Framework& verl = **find_framework("verl");
  const std::string text = config_text(verl, verl.export_plan(imported->problem, imported->plan));
  EXPECT_THAT(text, HasSubstr(actor + "param_offload=True"));
  EXPECT_THAT(text, HasSubstr("recompute_granularity=selective"));
  EXPECT_THAT(text, testing::Not(HasSubstr("fsdp_config")));
}

TEST(Verl, ChangesAreShownInItsOwnKeys) {
  const Framework& verl = **find_framework("verl");
  const auto before = import_text("verl", kVerlScript);
  ExecutionPlan better = before->plan;
  for (CallPlan& call : better.calls)
    if (call.call == "generate") call.strategy.tp = 1, call.strategy.dp = 8;
  better.roles.clear();
  const auto lines = diff_keys(verl.export_plan(before->problem, before->plan),
                               verl.export_plan(before->problem, better));
  EXPECT_THAT(lines,
              Contains("actor_rollout_ref.rollout.tensor_model_parallel_size: (unset) -> 1"));
  EXPECT_THAT(lines, Contains("actor_rollout_ref.actor.fsdp_config.optimizer_offload: True -> "
                              "(unset)"));
}

TEST(Verl, ListsWhatItCannotExpress) {
  const PlanningProblem problem = make_test_problem({.nodes = 2});
  const Framework& verl = **find_framework("verl");
  EXPECT_THAT(verl.export_plan(problem, *verl_hybrid_plan(problem)).not_expressed, IsEmpty());
  const auto split = verl.export_plan(problem, *nemo_aligner_plan(problem)).not_expressed;
  EXPECT_THAT(split, Contains(HasSubstr("update_actor: mesh 0-7; every worker runs on all")));
}

TEST(OpenRlhf, GroupsHaveDevicesOfTheirOwn) {
  const auto imported = import_text("openrlhf", kOpenRlhf);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const ExecutionPlan& plan = imported->plan;
  EXPECT_EQ(plan.devices, 16);
  EXPECT_EQ(mesh_text(call_plan(plan, "update_actor").mesh), "0-3");
  EXPECT_EQ(mesh_text(call_plan(plan, "ref_logprob").mesh), "4-5");
  EXPECT_EQ(mesh_text(call_plan(plan, "values").mesh), "6-9");
  EXPECT_EQ(mesh_text(call_plan(plan, "generate").mesh), "12-15");
  EXPECT_EQ(strategy(plan, "update_actor").zero_stage, 3);
  EXPECT_EQ(strategy(plan, "update_actor").micro_batches, 8);  // 128 / 4 = 32 sequences, 4 each
  EXPECT_EQ(imported->problem.workload.minibatches, 8);
  EXPECT_EQ(role_plan(plan, RoleId{"critic"}).optimizer, Residency::kHost);
}

TEST(OpenRlhf, ColocationSharesDevices) {
  const auto all = import_text("openrlhf", kOpenRlhf, {"colocate_all_models=true"});
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->plan.devices, 4);
  const auto some = import_text("openrlhf", kOpenRlhf,
                                {"colocate_actor_ref=true", "colocate_critic_reward=true"});
  ASSERT_TRUE(some.ok()) << some.status().message();
  EXPECT_EQ(some->plan.devices, 12);
  EXPECT_EQ(call_plan(some->plan, "reward").mesh, call_plan(some->plan, "values").mesh);
}

TEST(OpenRlhf, ExportOfAnImportIsTheSameConfiguration) {
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{}, {"colocate_all_models=true"}, {"colocate_actor_ref=true"}}) {
    const auto imported = import_text("openrlhf", kOpenRlhf, overrides);
    ASSERT_TRUE(imported.ok()) << imported.status().message();
    const Framework& framework = **find_framework("openrlhf");
    const ExportedConfig exported = framework.export_plan(imported->problem, imported->plan);
    EXPECT_THAT(exported.not_expressed, IsEmpty());
    const auto again = framework.import_keys(
        *framework.parse(config_text(framework, exported), "export"), on("a100-80g"));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->problem, imported->problem);
    EXPECT_EQ(strategy(again->plan, "update_actor"), strategy(imported->plan, "update_actor"));
    EXPECT_EQ(again->plan.roles, imported->plan.roles);
    for (const CallPlan& call : imported->plan.calls)
      EXPECT_EQ(call_plan(again->plan, call.call).mesh, call.mesh) << call.call;
  }
}

TEST(OpenRlhf, AsyncTrainingIsOneStepOfStaleness) {
  const auto imported = import_text("openrlhf", kOpenRlhf, {"async_train=true"});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->plan.staleness, 1);
}

TEST(Frameworks, EveryBaselineExportsToAReadableConfiguration) {
  const PlanningProblem problem = make_test_problem({.nodes = 2});
  for (const Framework& framework : frameworks())
    for (const Baseline& baseline : baselines()) {
      const ExportedConfig exported = framework.export_plan(problem, *baseline.make(problem));
      EXPECT_FALSE(exported.keys.empty());
      std::set<std::string> known;
      for (const ForeignKeyInfo& row : framework.table()) known.insert(row.key);
      for (const auto& [key, value] : exported.keys) EXPECT_EQ(known.count(key), 1u) << key;
    }
}

TEST(Frameworks, MovesAreOfTheTableAndSomeOfEveryKeyAreLegal) {
  for (const auto& [name, text] : {std::pair("verl", kVerlYaml), std::pair("verl", kVerlScript),
                                   std::pair("openrlhf", kOpenRlhf)}) {
    const Framework& framework = **find_framework(name);
    std::set<std::string> known, keys_moved, legal;
    for (const ForeignKeyInfo& row : framework.table()) known.insert(row.key);
    const ForeignKeys keys = *framework.parse(text, "config");
    for (const KeyMove& move : framework.tunable(keys)) {
      ForeignKeys changed = keys;
      for (const auto& [key, value] : move) {
        EXPECT_EQ(known.count(key), 1u) << key;
        keys_moved.insert(key);
        changed[key] = value;
      }
      const auto imported = framework.import_keys(changed, on("a100-80g"));
      for (const auto& [key, value] : move)
        if (imported.ok()) legal.insert(key);
      EXPECT_THAT(imported.status().message(), testing::Not(HasSubstr("must be a whole number")));
    }
    EXPECT_EQ(keys_moved, legal);
  }
}

TEST(Frameworks, MovesCoverLayoutsAndMicroBatches) {
  const auto moved = [](const char* framework, const std::string& text) {
    const Framework& found = **find_framework(framework);
    std::set<std::string> keys;
    for (const KeyMove& move : found.tunable(*found.parse(text, "config")))
      for (const auto& [key, value] : move) keys.insert(key);
    return keys;
  };
  const auto megatron = moved("verl", megatron_script("--config-name ppo_megatron_trainer"));
  for (const char* key : {"actor_rollout_ref.actor.megatron.tensor_model_parallel_size",
                          "actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size",
                          "actor_rollout_ref.ref.megatron.pipeline_model_parallel_size",
                          "critic.ppo_micro_batch_size_per_gpu",
                          "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"})
    EXPECT_EQ(megatron.count(key), 1u) << key;
  const auto fsdp = moved("verl", kComposed);
  EXPECT_EQ(fsdp.count("critic.model.enable_gradient_checkpointing"), 1u);
  EXPECT_EQ(fsdp.count("actor_rollout_ref.actor.strategy"), 1u);
  EXPECT_EQ(moved("openrlhf", kOpenRlhf).count("ds_tensor_parallel_size"), 1u);
}

TEST(Verl, MicroBatchesByNumberAreOnlyOfferedWithANumber) {
  const Framework& verl = **find_framework("verl");
  for (const KeyMove& move : verl.tunable(*verl.parse(kComposed, "config")))
    for (const auto& [key, value] : move)
      if (key.find("use_dynamic_bsz") != std::string::npos) {
        EXPECT_EQ(value, "True") << key;
      }
}

TEST(OpenRlhf, EnginesMoveTogetherOnTheDevicesThatTheyShare) {
  const Framework& framework = **find_framework("openrlhf");
  const ForeignKeys keys = *framework.parse(cat(kOpenRlhf, " --colocate_all_models"), "config");
  std::set<std::string> widths;
  for (const KeyMove& move : framework.tunable(keys)) {
    ForeignKeys changed = keys;
    for (const auto& [key, value] : move) changed[key] = value;
    if (framework.import_keys(changed, on("a100-80g")).ok() && move.size() == 2)
      widths.insert(move.at("vllm_tensor_parallel_size"));
  }
  EXPECT_EQ(widths, (std::set<std::string>{"1", "2", "4"}));
}

struct BadCase {
  const char* framework;
  std::string text;
  const char* message;
};
class BadForeign : public testing::TestWithParam<BadCase> {};
TEST_P(BadForeign, ErrorNamesTheKeyAndTheRemedy) {
  const auto imported = import_text(GetParam().framework, GetParam().text);
  EXPECT_EQ(exit_code(imported.status().code()), 2);
  EXPECT_THAT(imported.status().message(), HasSubstr(GetParam().message));
}
std::string verl_with(const char* more) { return cat("data.train_batch_size=64 ", more); }
std::string micro(const char* value) {
  return cat(" actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=", value);
}
INSTANTIATE_TEST_SUITE_P(
    Cases, BadForeign,
    testing::Values(
        BadCase{"verl", "hello", "holds no verl configuration"},
        BadCase{"verl", verl_with(""), "actor_rollout_ref.model.path: is missing"},
        BadCase{"verl", verl_with("actor_rollout_ref.model.path=nobody/knows-9b"),
                "neither a folder with a config.json nor a known model"},
        BadCase{"verl", verl_with("actor_rollout_ref.rollout.n=five"), "must be a whole number"},
        BadCase{"verl", verl_with("actor_rollout_ref.rollout.n=$N"), "is not resolved here"},
        BadCase{"verl", verl_with("algorithm.adv_estimator=gea"), "known: gae, grpo"},
        BadCase{"verl", verl_with("actor_rollout_ref.actor.use_kl_loss=maybe"), "True or False"},
        BadCase{"verl", cat(kVerlScript, " actor_rollout_ref.rollout.tensor_model_parallel_size=3"),
                "call generate: dp x tp x pp"},
        BadCase{"verl", cat(kVerlScript, " actor_rollout_ref.actor.ppo_mini_batch_size=60"),
                "nearest legal values: 32 and 64"},
        BadCase{"verl", cat(kVerlScript, " trainer.nnodes=0"), "number of nodes"},
        BadCase{"verl", cat(kVerlScript, " actor_rollout_ref.rollout.n=99999999999"),
                "at most 1048576 sequences of a step"},
        BadCase{"verl", cat(kVerlScript, micro("null")), "set actor_rollout_ref.actor.ppo_micro_"},
        BadCase{"verl", cat(kVerlScript, micro("-4")), "must be at least 1, is -4"},
        BadCase{"verl", cat(kVerlScript, micro("7")), "nearest legal values: 5 and 8"},
        BadCase{"verl",
                cat(kVerlScript, " actor_rollout_ref.actor.ulysses_sequence_parallel_size=3"),
                "actor_rollout_ref.actor.ulysses_sequence_parallel_size: 3 must divide the"},
        BadCase{"verl", cat(kVerlScript, " actor_rollout_ref.actor.strategy=fsd"),
                "did you mean 'fsdp'?"},
        BadCase{"verl", cat(kVerlScript, " actor_rollout_ref.rollout.name=vlm"),
                "known: vllm, sglang"},
        BadCase{"verl", cat(kVerlScript, " actor_rollout_ref.rollout.gpu_memory_utilization=1.5"),
                "must be above 0 and at most 1, is 1.5"},
        BadCase{"verl", cat(kVerlScript, " actor_rollout_ref.rollout.gpu_memory_utilization=nan"),
                "gpu_memory_utilization"},
        BadCase{"verl", cat(kVerlScript, " actor_rollout_ref.rollout.gpu_memory_utilization=0"),
                "must be above 0"},
        BadCase{"verl", "data: [", "not valid YAML"},
        BadCase{"openrlhf", "hello", "holds no OpenRLHF arguments"},
        BadCase{"openrlhf", "--zero_stage 3", "pretrain: is missing"},
        BadCase{"openrlhf", "--pretrain llama3-8b --zero_stage three", "must be a whole number"},
        BadCase{"openrlhf", "--pretrain llama3-8b --vllm_tensor_parallel_size 0",
                "vllm_tensor_parallel_size must be 1 to"},
        BadCase{"openrlhf", cat(kOpenRlhf, " --train_batch_size 100"), "nearest legal values: 64"},
        BadCase{"openrlhf", cat(kOpenRlhf, " --colocate_all_models --vllm_num_engines 4"),
                "must equal the actor's 1 x 4 = 4 devices; set vllm_num_engines 2"},
        BadCase{"openrlhf", cat(kOpenRlhf, " --vllm_gpu_memory_utilization 1.2"),
                "must be above 0 and at most 1, is 1.2"},
        BadCase{"openrlhf", cat(kOpenRlhf, " --zero_stage 4"), "must be 0, 1, 2 or 3"},
        BadCase{"openrlhf", cat(kOpenRlhf, " \"${EXTRA[@]}\""), "config: the array '${EXTRA[@]}'"},
        BadCase{"trlx", "x", "known: verl, openrlhf"}));

TEST(Frameworks, MisspeltKeysAreUnknown) {
  const auto imported =
      import_text("verl", cat(kVerlScript, " actor_rollout_ref.rollout.tensor_model_parallel_siz=4",
                              " actor_rollout_ref.rollout.max_num_seq=64"));
  ASSERT_TRUE(imported.ok());
  EXPECT_THAT(imported->keys.unknown,
              ElementsAre("actor_rollout_ref.rollout.max_num_seq",
                          "actor_rollout_ref.rollout.tensor_model_parallel_siz"));
}

TEST(Frameworks, OverridesOfKeysThatNothingKnowsAreRefused) {
  const Framework& verl = **find_framework("verl");
  const auto checked = [&](const std::string& override) {
    const auto imported = import_text("verl", kVerlScript, {override});
    return check_override_names(imported->keys, {override}, verl);
  };
  for (const char* known : {"+trainer.nnodes=1", "critic.ppo_epochs=2", "trainer.save_freq=5",
                            "actor_rollout_ref.actor.ppo_micro_batch_size=8"})
    EXPECT_TRUE(checked(known).ok()) << known;
  EXPECT_THAT(checked("trainer.nnodess=2").message(), HasSubstr("did you mean 'trainer.nnodes'?"));
  EXPECT_THAT(checked("foo.bar=1").message(), testing::AllOf(HasSubstr("unknown key 'foo.bar'"),
                                                             HasSubstr("the nearest key is '")));
}

TEST(Frameworks, StatedLengthsMayNotExceedWhatTheConfigurationAllows) {
  const Framework& verl = **find_framework("verl");
  const ForeignKeys keys = *verl.parse(kVerlScript, "f");  // at most 1024 tokens
  const auto message = [&](const LengthDistribution& lengths) {
    ImportOptions options = on("a100-80g");
    options.response = lengths;
    return verl.import_keys(keys, options).status().message();
  };
  LengthDistribution lengths;
  lengths.mean = 1500;
  EXPECT_THAT(message(lengths),
              HasSubstr("a mean of 1500 is above data.max_response_length = 1024"));
  lengths.mean = 500, lengths.longest = 2000;
  EXPECT_THAT(message(lengths), HasSubstr("longest 2000 is above"));
  lengths.longest = 0, lengths.kind = LengthDistribution::Kind::kEmpirical;
  lengths.samples = {100, 1025};
  EXPECT_THAT(message(lengths), HasSubstr("length 2 of the file (1025 tokens) is above"));
  lengths.longest = 1024;
  EXPECT_EQ(message(lengths), "");
}

TEST(Frameworks, TheCatalogueEntryOfANameIsNoted) {
  const auto imported =
      import_text("verl", kVerlScript, {"actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct"});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_THAT(imported->notes,
              Contains("actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct is planned as "
                       "qwen2.5-7b"));
}

TEST(Frameworks, TheDeviceMustBeNamed) {
  const Framework& verl = **find_framework("verl");
  EXPECT_THAT(verl.import_keys(*verl.parse(kVerlScript, "f"), on("")).status().message(),
              HasSubstr("name it with --gpu, such as h100-80g"));
}

}  // namespace
}  // namespace braid::inline foreign
