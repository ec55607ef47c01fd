// Both generations of keys of verl and OpenRLHF, backends, jobs with devices of their own, and the
// account of every key.
#include <gmock/gmock.h>

#include <set>

#include "base/text.h"
#include "foreign/foreign.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr const char* kVerlWords =
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 "
    "data.max_prompt_length=1024 data.max_response_length=3072 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.use_dynamic_bsz=True "
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192 actor_rollout_ref.rollout.n=8 "
    "actor_rollout_ref.rollout.name=vllm trainer.nnodes=2 trainer.n_gpus_per_node=8 ";

constexpr const char* kOpenRlhfWords =
    "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 8 "
    "--ref.num_nodes 1 --ref.num_gpus_per_node 8 --vllm.num_engines 4 "
    "--vllm.tensor_parallel_size 2 --train.colocate_all --vllm.gpu_memory_utilization 0.6 "
    "--actor.model_name_or_path Qwen/Qwen3-8B --train.batch_size 128 --rollout.batch_size 64 "
    "--rollout.n_samples_per_prompt 8 --data.max_len 5120 --rollout.max_new_tokens 4096 "
    "--ds.zero_stage 3 --ds.ring_attn_size 2 --algo.advantage.estimator group_norm "
    "--reward.remote_url rule.py --train.dynamic_batch_enable --train.max_tokens_per_gpu 16384 "
    "--ds.packing_samples --logger.wandb.key x --vllm.enforce_eager --ds.adam_offload ";

Result<ImportedPlan> imported(const char* name, const std::string& text,
                              ImportOptions options = {}) {
  options.gpu = "h200";
  BRAID_ASSIGN(const Framework* framework, find_framework(name));
  BRAID_ASSIGN(const ForeignKeys keys, framework->parse(text, "words"));
  return framework->import_keys(keys, options);
}

ImportedPlan verl(const std::string& more, const std::string& model = "Qwen/Qwen3-30B-A3B") {
  const auto plan =
      imported("verl", cat(kVerlWords, "actor_rollout_ref.model.path=", model, " ", more));
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : ImportedPlan();
}

const Strategy& update_of(const ImportedPlan& plan) {
  return call_plan(plan.plan, "update_actor").strategy;
}

TEST(VerlBackends, MegatronCutsAsItsKeysSay) {
  const std::string group = "actor_rollout_ref.actor.megatron.";
  const ImportedPlan plan =
      verl(cat("model_engine=megatron ", group, "tensor_model_parallel_size=2 ", group,
               "pipeline_model_parallel_size=2 ", group, "context_parallel_size=2 ", group,
               "expert_model_parallel_size=8 ", group, "expert_tensor_parallel_size=1"));
  const Strategy& s = update_of(plan);
  EXPECT_EQ(std::make_tuple(s.dp, s.tp, s.pp, s.cp, s.ep, s.expert_tp),
            std::make_tuple(2, 2, 2, 2, 8, 1));
  EXPECT_EQ(s.micro_tokens, 2 * 8192) << "of the ranks that share a sequence";
  EXPECT_EQ(s.zero_stage, 1);
  EXPECT_EQ(plan.problem.train_engine, "megatron");
  EXPECT_THAT(plan.keys.unknown, IsEmpty());
}

TEST(VerlBackends, UlyssesIsContextParallelismUnderEitherKey) {
  for (const char* key : {"actor_rollout_ref.actor.ulysses_sequence_parallel_size=4",
                          "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=4"}) {
    const Strategy s = update_of(verl(key, "Qwen/Qwen3-8B"));
    EXPECT_EQ(s.cp, 4) << key;
    EXPECT_EQ(s.dp, 4) << key;
    EXPECT_EQ(s.zero_stage, 3) << key;
  }
}

TEST(VerlBackends, ShardsOverPartOfTheDevices) {
  const Strategy s = update_of(verl("actor_rollout_ref.actor.fsdp_config.fsdp_size=8"));
  EXPECT_EQ(s.zero_ranks, 8);
  EXPECT_EQ(s.dp, 16);
}

TEST(VerlBackends, VeomniAndOthersHaveGroupsOfTheirOwn) {
  const std::string actor = "actor_rollout_ref.actor.";
  const Strategy veomni =
      update_of(verl(cat("model_engine=veomni ", actor, "veomni.ulysses_parallel_size=2 ", actor,
                         "veomni.expert_parallel_size=8")));
  EXPECT_EQ(std::make_tuple(veomni.cp, veomni.ep, veomni.zero_stage), std::make_tuple(2, 8, 3));
  const Strategy automodel = update_of(verl(
      cat("model_engine=automodel ", actor, "automodel.tp_size=2 ", actor, "automodel.cp_size=2")));
  EXPECT_EQ(std::make_tuple(automodel.tp, automodel.cp, automodel.dp), std::make_tuple(2, 2, 4));
  EXPECT_THAT(imported("verl", cat(kVerlWords, "model_engine=megatrn")).status().message(),
              HasSubstr("did you mean 'megatron'?"));
}

TEST(VerlVersions, AreStatedOrRecognisedAndChangeDefaults) {
  const ImportedPlan newest = verl("trainer.use_v1=True"), older = verl("model_engine=dp");
  EXPECT_THAT(newest.version, HasSubstr("0.9"));
  EXPECT_THAT(older.version, HasSubstr("0.7"));
  EXPECT_EQ(call_plan(newest.plan, "generate").strategy.max_concurrent, 256);
  EXPECT_EQ(call_plan(older.plan, "generate").strategy.max_concurrent, 1024);
  ImportOptions options;
  options.version = "0.5";
  const std::string text = cat(kVerlWords, "actor_rollout_ref.model.path=qwen3-8b");
  EXPECT_THAT(imported("verl", text, options)->version, HasSubstr("0.5 (stated)"));
  options.version = "soon";
  EXPECT_THAT(imported("verl", text, options).status().message(), HasSubstr("such as 0.7"));
}

TEST(VerlPools, RolloutsHaveDevicesOfTheirOwn) {
  const ImportedPlan plan = verl(
      "rollout.nnodes=1 rollout.n_gpus_per_node=4 data.gen_batch_size=1 "
      "async_training.trigger_parameter_sync_step=2 async_training.require_batches=2",
      "Qwen/Qwen3-8B");
  EXPECT_EQ(plan.plan.devices, 20);
  EXPECT_EQ(call_plan(plan.plan, "generate").mesh.devices.size(), 4u);
  EXPECT_EQ(call_plan(plan.plan, "update_actor").mesh.devices.size(), 16u);
  EXPECT_EQ(plan.plan.staleness, 1);
  EXPECT_EQ(plan.problem.workload.prompts, 32 * 2 * 2);
}

TEST(VerlFilteredGroups, ArePricedForWhatTheyGenerate) {
  const ImportedPlan plain = verl(""),
                     filtered = verl(
                         "data.gen_batch_size=192 algorithm.filter_groups.enable=True "
                         "algorithm.filter_groups.max_num_gen_batches=10");
  const auto samples = [](const ImportedPlan& plan, const char* call) {
    return call_samples(plan.problem, *find_call(plan.problem.graph, call));
  };
  EXPECT_EQ(samples(plain, "generate"), 64 * 8);
  EXPECT_EQ(samples(filtered, "generate"), 192 * 8);
  EXPECT_EQ(samples(filtered, "old_logprob"), 64 * 8);
  EXPECT_EQ(filtered.problem.workload.prompts, 64);
  EXPECT_THAT(filtered.keys.read, Contains("data.gen_batch_size"));
  EXPECT_THAT(filtered.notes, Contains(HasSubstr("priced for 192 generated prompts, of which 64")));
  // As many batches as could suffice.
  const ImportedPlan small = verl("data.gen_batch_size=48 algorithm.filter_groups.enable=True");
  EXPECT_EQ(samples(small, "generate"), 96 * 8);
  // Nothing is filtered: all that is drawn trains.
  const ImportedPlan all = verl("data.gen_batch_size=192");
  EXPECT_EQ(all.problem.workload.prompts, 192);
  EXPECT_THAT(all.notes, Contains(HasSubstr("nothing is filtered")));
}

TEST(VerlDistillation, ItsTeacherIsARoleOfItsOwn) {
  const ImportedPlan plan = verl(
      "distillation.enabled=True distillation.n_gpus_per_node=8 distillation.nnodes=1 "
      "distillation.teacher_models.teacher_model.model_path=Qwen/Qwen3-32B "
      "distillation.teacher_models.teacher_model.inference.tensor_model_parallel_size=4");
  EXPECT_EQ(plan.problem.models.at("teacher").spec.name, "qwen3-32b");
  EXPECT_EQ(plan.problem.models.count("reward"), 0u);
  const CallPlan& teacher = call_plan(plan.plan, "teacher_logprob");
  EXPECT_EQ(teacher.strategy.tp, 4);
  EXPECT_EQ(teacher.mesh.devices.size(), 8u);
  const Call* update = find_call(plan.problem.graph, "update_actor");
  EXPECT_THAT(update->reads, Contains("teacher_logprobs"));
  EXPECT_TRUE(verify(plan.problem.graph).ok());
  const ImportedPlan both = verl(
      "distillation.enabled=True reward_model.enable=True "
      "reward_model.model.path=Qwen/Qwen3-4B reward_model.micro_batch_size_per_gpu=4 "
      "distillation.teacher_models.teacher_model.model_path=Qwen/Qwen3-32B");
  EXPECT_EQ(both.problem.models.at("teacher").spec.name, "qwen3-32b");
  EXPECT_EQ(both.problem.models.at("reward").spec.name, "qwen3-4b");
}

TEST(KeyAccount, EveryKeyIsInExactlyOneList) {
  const ImportedPlan plan = verl(
      "trainer.save_freq=5 actor_rollout_ref.model.use_fused_kernels=True "
      "actor_rollout_ref.actor.optim.lr=1e-6 data.max_promt_length=7 my.own=1 "
      "+actor_rollout_ref.rollout.engine_kwargs.vllm.x=1");
  std::multiset<std::string> all(plan.keys.read.begin(), plan.keys.read.end());
  for (const auto* list : {&plan.keys.without_effect, &plan.keys.not_priced})
    for (const KeyReport::Entry& entry : *list) {
      all.insert(entry.key);
      EXPECT_FALSE(entry.why.empty());
    }
  all.insert(plan.keys.unknown.begin(), plan.keys.unknown.end());
  EXPECT_EQ(all.size(), 18u);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  EXPECT_THAT(plan.keys.unknown, UnorderedElementsAre("data.max_promt_length", "my.own"));
}

TEST(KeyAccount, KeysOfWorkersThatDoNotRunHaveNoEffect) {
  const ImportedPlan plan = verl(
      "critic.ppo_micro_batch_size_per_gpu=4 algorithm.adv_estimator=grpo "
      "actor_rollout_ref.actor.use_kl_loss=False "
      "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4");
  for (const char* key : {"critic.ppo_micro_batch_size_per_gpu",
                          "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"})
    EXPECT_THAT(plan.keys.without_effect, Contains(testing::Field(&KeyReport::Entry::key, key)));
}

TEST(ModelSizes, AreStatedByKey) {
  ImportOptions options;
  options.model_sizes = {{"actor_rollout_ref.model.path", "qwen3-4b"}};
  const auto plan =
      imported("verl", cat(kVerlWords, "actor_rollout_ref.model.path=/nobody/knows"), options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->problem.models.at("actor").spec.name, "qwen3-4b");
  EXPECT_THAT(imported("verl", cat(kVerlWords, "actor_rollout_ref.model.path=/nobody/knows"))
                  .status()
                  .message(),
              HasSubstr("--model-size actor_rollout_ref.model.path="));
}

TEST(OpenRlhfFlags, WithDotsMeanWhatTheOldOnesMean) {
  const auto plan = imported("openrlhf", kOpenRlhfWords);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const Strategy& s = update_of(*plan);
  EXPECT_EQ(std::make_tuple(s.dp, s.cp, s.zero_stage), std::make_tuple(4, 2, 3));
  EXPECT_EQ(s.micro_tokens, 2 * 16384);
  EXPECT_EQ(call_plan(plan->plan, "generate").strategy.tp, 2);
  EXPECT_EQ(longest_tokens(plan->problem.workload.response), 4096);
  EXPECT_EQ(longest_tokens(plan->problem.workload.prompt), 1024);
  EXPECT_THAT(plan->keys.unknown, IsEmpty());
  EXPECT_THAT(plan->version, HasSubstr("0.10.2"));
  EXPECT_THAT(imported("openrlhf", "--pretrain qwen3-8b --n_samples_per_prompt 2")->version,
              HasSubstr("before 0.10.2"));
}

TEST(OpenRlhfFlags, AreExportedAsTheyAreSince0102) {
  const auto plan = imported("openrlhf", kOpenRlhfWords);
  const Framework& framework = **find_framework("openrlhf");
  const ExportedConfig exported = framework.export_plan(plan->problem, plan->plan);
  const std::string text = config_text(framework, exported);
  for (const char* flag : {"--vllm.num_engines 4", "--ds.ring_attn_size 2", "--train.colocate_all",
                           "--rollout.max_new_tokens 4096"})
    EXPECT_THAT(text, HasSubstr(flag));
  EXPECT_THAT(text, testing::Not(HasSubstr("_num_nodes")));
  const auto again = imported("openrlhf", text);
  ASSERT_TRUE(again.ok()) << again.status().message() << text;
  EXPECT_EQ(update_of(*again), update_of(*plan));
}

TEST(Launches, OnlyRlTrainingCounts) {
  const Framework& framework = **find_framework("verl");
  EXPECT_THAT(framework.launch_keys({"python3", "-m", "verl.trainer.sft_trainer", "data.x=1"}),
              IsEmpty());
  EXPECT_THAT(framework.launch_keys({"ray", "job", "submit", "--", "python3", "-m", "a.main_ppo",
                                     "actor_rollout_ref.rollout.n=4", "--config-name=mine"}),
              Contains(testing::Pair("actor_rollout_ref.rollout.n", "4")));
  EXPECT_THAT(
      framework.config_files({{"-m", "recipe.mine.main"}, {"--config-name", "mine"}}),
      ElementsAre("recipe/mine/config/mine.yaml", "mine/config/mine.yaml", "config/mine.yaml"));
}

// Where the launch names no configuration file, its program does.
TEST(Launches, AProgramNamesItsConfigurationFile) {
  const Framework& framework = **find_framework("verl");
  EXPECT_THAT(framework.program_files({{"-m", "recipe.mine.main"}}),
              ElementsAre("recipe/mine/main.py", "mine/main.py", "main.py"));
  EXPECT_THAT(framework.program_files({{"-m", "verl.trainer.main_ppo"}}),
              ElementsAre("verl/trainer/main_ppo.py"));
  EXPECT_THAT(framework.program_files({{"-m", "recipe.mine.main"}, {"--config-name", "x"}}),
              IsEmpty());
  EXPECT_EQ(framework.program_keys("import hydra\n@hydra.main(config_path=\"conf\", "
                                   "config_name='mine', version_base=None)\ndef main():\n"),
            (ForeignKeys{{"--config-name", "mine"}, {"--config-path", "conf"}}));
  for (const char* source : {"", "@hydra.main(config_name=name)", "@hydra.main(config_name=\"x",
                             "@hydra.main(version_base=None)", "config_name=\"x\""})
    EXPECT_THAT(framework.program_keys(source), IsEmpty()) << source;
}

}  // namespace
}  // namespace braid::inline foreign
