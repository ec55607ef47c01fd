#include "foreign/convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "config/load.h"
#include "dataflow/graph.h"

namespace braid::inline foreign {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ConvertOptions options_for(const std::string& framework, const std::string& algorithm = "") {
  return {framework, algorithm, algorithm_names()};
}

// The conversion of a YAML text, whose result is a configuration that Braid reads.
struct Converted {
  Conversion conversion;
  std::string text;
  Config config;
};

Converted convert(const std::string& framework, const std::string& yaml,
                  const std::string& algorithm = "") {
  Converted out;
  const ConvertOptions options = options_for(framework, algorithm);
  const auto keys = trl_configuration(yaml, "a.yaml");
  EXPECT_TRUE(keys.ok()) << keys.status().message();
  auto conversion = convert_config(*keys, options);
  EXPECT_TRUE(conversion.ok()) << conversion.status().message();
  if (!conversion.ok()) return out;
  out.conversion = std::move(conversion).value();
  out.text = conversion_text(out.conversion, options, "a.yaml");
  ConfigSources sources;
  sources.files = {{"out.yaml", out.text}};
  sources.algorithms = options.algorithms;
  const auto loaded = load_config(sources);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message() << "\n" << out.text;
  if (loaded.ok()) out.config = loaded->config;
  // Every key is somewhere: behind a value, or in a note.
  for (const auto& [key, value] : *keys) {
    const bool of_hydra = key.starts_with("hydra.") || key.ends_with("_target_");
    if (of_hydra) continue;
    EXPECT_THAT(out.text, HasSubstr(key));
  }
  return out;
}

std::string why(const std::vector<Conversion::Note>& notes, const std::string& key) {
  for (const Conversion::Note& note : notes)
    if (note.key == key) return note.why;
  return "(none)";
}

constexpr const char* kTrl = R"(
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
dataset_name: problems.jsonl
num_generations: 8
max_completion_length: 256
per_device_train_batch_size: 4
steps_per_generation: 16
gradient_accumulation_steps: 8
num_iterations: 2
max_steps: 100
learning_rate: 2.0e-6
beta: 0.04
epsilon: 0.2
epsilon_high: 0.28
scale_rewards: none
loss_type: dr_grpo
lr_scheduler_type: cosine
bf16: false
use_vllm: true
reward_funcs: [accuracy]
log_completions: true
my_own_key: 3
)";

TEST(Convert, OfTrlIsAConfiguration) {
  const Converted out = convert("trl", kTrl);
  const Config& config = out.config;
  EXPECT_EQ(config.algorithm.name, "grpo");
  EXPECT_EQ(config.rollout.prompts_per_step, 8);  // 4 x 16 completions of 8 each
  EXPECT_EQ(config.rollout.samples_per_prompt, 8);
  EXPECT_EQ(config.train.minibatches, 2);
  EXPECT_EQ(config.train.epochs_per_rollout, 2);
  EXPECT_EQ(config.train.total_steps, 25);  // of 4 optimizer steps each
  EXPECT_EQ(config.optim.actor.lr, 2e-6);
  EXPECT_EQ(config.algorithm.kl.coef, 0.04);
  EXPECT_EQ(config.algorithm.clip_high, 0.28);
  EXPECT_EQ(config.algorithm.clip_low, 0.2);
  EXPECT_EQ(config.algorithm.loss_agg, "constant_norm");
  EXPECT_EQ(config.algorithm.loss_norm_tokens, 256);
  EXPECT_EQ(config.algorithm.normalize_advantages, "none");
  EXPECT_EQ(config.model.dtype, "f32");
  EXPECT_TRUE(config.train.recompute);  // TRL's default, not ours
  EXPECT_THAT(out.text, HasSubstr("default of trl: gradient_checkpointing"));
  EXPECT_THAT(why(out.conversion.left_out, "use_vllm"), HasSubstr("one engine"));
  EXPECT_THAT(why(out.conversion.to_decide, "reward_funcs"),
              HasSubstr("such as {name: NAME, type: python, path"));
  ASSERT_EQ(out.conversion.unknown.size(), 1u);
  EXPECT_EQ(out.conversion.unknown[0].key, "my_own_key");
}

TEST(Convert, WhatAnotherKeySaysIsNotLeftToDecide) {
  const Converted out = convert("trl",
                                "model_name_or_path: m\ndataset_name: d.jsonl\nmax_steps: 10\n"
                                "save_strategy: steps\n"
                                "save_steps: 5\nuse_peft: true\nlora_r: 8\n"
                                "report_to: [wandb, tensorboard]\nproject: sorting\n",
                                "sft");
  EXPECT_TRUE(out.conversion.to_decide.empty()) << out.text;
  EXPECT_EQ(conversion_end(out.conversion), "nothing is left to decide");
  EXPECT_EQ(out.config.log.wandb, "sorting");
  EXPECT_TRUE(out.config.log.tensorboard);
  EXPECT_EQ(out.config.lora.rank, 8);
  const Converted unnamed = convert("trl",
                                    "model_name_or_path: m\ndataset_name: d.jsonl\n"
                                    "max_steps: 10\neval_strategy: steps\nreport_to: wandb\n",
                                    "sft");
  EXPECT_THAT(why(unnamed.conversion.to_decide, "eval_strategy"), HasSubstr("eval_steps"));
  EXPECT_THAT(why(unnamed.conversion.to_decide, "report_to"), HasSubstr("log.wandb"));
  EXPECT_EQ(conversion_end(unnamed.conversion), "no key is missing; 2 remarks under \"To decide\"");
}

// Also of a key that a remark of another key is about.
TEST(Convert, TheEndSaysWhatARunStillNeeds) {
  const Converted out =
      convert("trl", "num_generations: 8\nmax_steps: 10\nreward_funcs: [accuracy]\n", "grpo");
  EXPECT_EQ(conversion_end(out.conversion),
            "to decide before a run: model.path, data.train, reward");
  const Converted more = convert("trl", "num_generations: 8\nreward_funcs: [accuracy]\n", "grpo");
  EXPECT_EQ(conversion_end(more.conversion),
            "to decide before a run: model.path, data.train, reward; and 1 remark under "
            "\"To decide\"");
}

TEST(Convert, SeveralFilesAreToBeOneFolder) {
  const Converted out = convert("verl", "data: {train_files: [a.parquet, b.parquet]}\n");
  EXPECT_THAT(why(out.conversion.to_decide, "data.train_files"),
              HasSubstr("put the files into one folder"));
  for (const auto& note : out.conversion.to_decide)
    EXPECT_EQ(note.why.find("no key names the data"), std::string::npos);
}

TEST(Convert, OfTrlNeedsATrainer) {
  const ForeignKeys keys = {{"learning_rate", "1e-6"}};
  EXPECT_THAT(convert_config(keys, options_for("trl")).status().message(),
              HasSubstr("the keys do not say which trainer of TRL they are for; add --algorithm"));
  const Converted dpo = convert("trl",
                                "model_name_or_path: m\ndataset_name: d.jsonl\nbeta: 0.3\n"
                                "per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\n"
                                "loss_type: [ipo]\nmax_steps: 10\n",
                                "dpo");
  EXPECT_EQ(dpo.config.algorithm.name, "dpo");
  EXPECT_EQ(dpo.config.algorithm.beta, 0.3);
  EXPECT_EQ(dpo.config.algorithm.preference_loss, "ipo");
  EXPECT_EQ(dpo.config.rollout.prompts_per_step, 8);
  EXPECT_TRUE(dpo.conversion.to_decide.empty());
  const Converted rm =
      convert("trl", "model_name_or_path: m\ndataset_name: d.jsonl\nmax_steps: 10\n", "rm");
  EXPECT_EQ(rm.config.optim.reward.lr, 1e-4);
}

constexpr const char* kVerl = R"(
hydra: {searchpath: [file://config]}
data:
  train_files: [data/train.parquet]
  val_files: data/test.parquet
  train_batch_size: 256
  max_prompt_length: 512
  max_response_length: 1024
actor_rollout_ref:
  model: {path: Qwen/Qwen3-8B, enable_gradient_checkpointing: true}
  actor:
    _target_: verl.workers.config.FSDPActorConfig
    optim: {lr: 2e-6, lr_warmup_steps: 5}
    ppo_mini_batch_size: 64
    ppo_max_token_len_per_gpu: 24576
    use_kl_loss: true
    kl_loss_coef: 0.002
    clip_ratio: 0.3
    profiler: {enable: false, save_path: null}
  ref: {log_prob_max_token_len_per_gpu: 32768}
  rollout: {name: vllm, n: 5, temperature: 0.9, tensor_model_parallel_size: 2}
algorithm: {adv_estimator: grpo, norm_adv_by_std_in_grpo: false}
custom_reward_function: {path: my_reward.py, name: score}
trainer: {total_training_steps: 100, nnodes: 1, n_gpus_per_node: 8, made_up: 1}
)";

TEST(Convert, OfVerlIsAConfiguration) {
  const Converted out = convert("verl", kVerl);
  const Config& config = out.config;
  EXPECT_EQ(config.algorithm.name, "grpo");
  EXPECT_EQ(config.rollout.prompts_per_step, 256);
  EXPECT_EQ(config.rollout.samples_per_prompt, 5);
  EXPECT_EQ(config.rollout.temperature, 0.9);
  EXPECT_EQ(config.train.minibatches, 4);
  // A layout makes a plan, which says for its calls what train.* says without one.
  EXPECT_EQ(config.parallel.find("micro_tokens")->scalar, "24576");
  EXPECT_EQ(config.parallel.find("recompute")->scalar, "full");
  EXPECT_EQ(config.parallel.find("generate")->find("tp")->scalar, "2");
  EXPECT_THAT(out.text, Not(HasSubstr("recompute: true")));
  EXPECT_EQ(config.optim.actor.warmup_steps, 20);    // 5 rollouts of 4 optimizer steps
  EXPECT_EQ(config.optim.actor.weight_decay, 0.01);  // verl's defaults
  EXPECT_EQ(config.model.dtype, "bf16");
  EXPECT_THAT(
      out.text,
      HasSubstr("dtype: bf16  # default of verl: actor_rollout_ref.actor.fsdp_config.dtype"));
  EXPECT_EQ(config.algorithm.dual_clip, 3);
  EXPECT_EQ(config.algorithm.kl.in, "loss");
  EXPECT_EQ(config.algorithm.kl.coef, 0.002);
  EXPECT_EQ(config.algorithm.kl.estimator, "k3");
  EXPECT_EQ(config.algorithm.normalize_advantages, "none");
  EXPECT_EQ(config.algorithm.clip_low, 0.2);  // clip_ratio alone changes nothing in verl
  ASSERT_EQ(config.reward.size(), 1u);
  EXPECT_EQ(config.reward[0].function, "score");
  EXPECT_EQ(config.train.total_steps, 100);
  EXPECT_THAT(why(out.conversion.left_out, "actor_rollout_ref.actor.clip_ratio"),
              HasSubstr("clip_ratio_low and clip_ratio_high are said"));
  EXPECT_THAT(
      why(out.conversion.to_decide, "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu"),
      HasSubstr("train.micro_tokens: 32768, but actor_rollout_ref.actor.ppo_max_token_len_per_gpu "
                "says 24576, which is taken"));
  EXPECT_THAT(why(out.conversion.to_decide, "trainer.n_gpus_per_node"), HasSubstr("cluster"));
  ASSERT_EQ(out.conversion.unknown.size(), 1u);
  EXPECT_EQ(out.conversion.unknown[0].key, "trainer.made_up");
  EXPECT_THAT(join(conversion_warnings(out.conversion), "\n"),
              HasSubstr("unknown key: trainer.made_up=1"));
}

TEST(Convert, WithoutALayoutMicroBatchesAreThoseOfTheRun) {
  const Converted out = convert("verl",
                                "actor_rollout_ref: {model: {enable_gradient_checkpointing: true}, "
                                "actor: {ppo_max_token_len_per_gpu: 9000}}\n");
  EXPECT_EQ(out.config.train.micro_tokens, 9000);
  EXPECT_TRUE(out.config.train.recompute);
  EXPECT_EQ(out.config.parallel.kind, YamlNode::Kind::kNull);
}

// A placement alone makes a plan too, and what is off stays said.
TEST(Convert, APlacementTakesWhatIsSaidOfItsCalls) {
  const Converted out = convert("openrlhf",
                                "pretrain: m\ncolocate_all_models: true\n"
                                "gradient_checkpointing: false\n");
  EXPECT_EQ(out.config.placement.scalar, "colocated");
  EXPECT_EQ(out.config.parallel.find("recompute")->scalar, "none");
}

// Both switches are off there where nobody touches them.
TEST(Convert, OfVerlWithoutAPenaltyHasNone) {
  const Converted out = convert(
      "verl", "algorithm: {adv_estimator: gae}\nactor_rollout_ref: {actor: {clip_ratio_c: 10}}\n");
  EXPECT_EQ(out.config.algorithm.kl.coef, 0);
  EXPECT_EQ(out.config.algorithm.lam, 1);
  EXPECT_EQ(out.config.algorithm.value_clip, 0.5);
  EXPECT_EQ(out.config.optim.critic.lr, 1e-5);
  EXPECT_EQ(out.config.algorithm.dual_clip, 10);
  const Converted in_reward = convert(
      "verl",
      "algorithm: {adv_estimator: gae, use_kl_in_reward: true, kl_ctrl: {kl_coef: 0.01}}\n");
  EXPECT_EQ(in_reward.config.algorithm.kl.coef, 0.01);
  EXPECT_EQ(in_reward.config.algorithm.kl.in, "reward");
  EXPECT_EQ(in_reward.config.algorithm.kl.estimator, "k1");
}

// verl keeps its weights in f32 and computes in bf16 where nobody says otherwise.
TEST(Convert, ThePrecisionOfVerlIsThatOfItsComputation) {
  const auto dtype_of = [](const char* fsdp) {
    return convert("verl", cat("actor_rollout_ref: {actor: {fsdp_config: {", fsdp, "}}}\n"))
        .config.model.dtype;
  };
  EXPECT_EQ(dtype_of("model_dtype: fp32"), "bf16");
  EXPECT_EQ(dtype_of("model_dtype: bf16"), "bf16");
  EXPECT_EQ(dtype_of("dtype: float32"), "f32");
  EXPECT_EQ(dtype_of("model_dtype: fp32, dtype: float32"), "f32");
}

TEST(Convert, OfVerlsDistillation) {
  const Converted out = convert("verl", R"(
distillation:
  enabled: true
  distillation_loss: {loss_mode: k1, use_policy_gradient: true, use_task_rewards: false}
  teacher_models: {teacher_model: {model_path: Qwen/Qwen3-32B}}
actor_rollout_ref: {model: {path: Qwen/Qwen3-8B}}
data: {train_files: d.parquet}
trainer: {total_training_steps: 10}
)");
  EXPECT_EQ(out.config.algorithm.name, "distill");
  EXPECT_EQ(out.config.teacher.path, "Qwen/Qwen3-32B");
  EXPECT_EQ(out.config.algorithm.kl.coef, 1);
  EXPECT_THAT(out.text, Not(HasSubstr("reward: no key says")));
}

TEST(Convert, OfOpenRlhfIsAConfiguration) {
  const Converted out = convert("openrlhf", R"(
actor: {model_name_or_path: m, eps_clip_low_high: [0.2, 0.27], adam: {lr: 5e-7}, zzz: 1}
reward: {remote_url: "http://node7:5000/score"}
data: {prompt_dataset: d.jsonl, apply_chat_template: true}
rollout: {batch_size: 128, n_samples_per_prompt: 8, max_new_tokens: 1024}
train: {batch_size: 512, max_epochs: 1, async_enable: false}
algo: {advantage: {estimator: group_norm}, kl: {use_loss: true, init_coef: 0.001, estimator: k3}}
ds: {zero_stage: 3, param_dtype: bf16}
)");
  const Config& config = out.config;
  EXPECT_EQ(config.algorithm.name, "grpo");
  EXPECT_EQ(config.rollout.prompts_per_step, 128);
  EXPECT_EQ(config.train.minibatches, 2);
  EXPECT_EQ(config.algorithm.clip_high, 0.27);
  EXPECT_EQ(config.algorithm.kl.coef, 0.001);
  EXPECT_EQ(config.algorithm.kl.in, "loss");
  EXPECT_EQ(config.optim.actor.schedule, "cosine");
  EXPECT_EQ(config.optim.actor.min_lr_ratio, 0.1);
  EXPECT_EQ(config.optim.actor.betas, (std::vector<double>{0.9, 0.95}));
  EXPECT_EQ(config.model.dtype, "bf16");
  ASSERT_EQ(config.reward.size(), 1u);
  EXPECT_EQ(config.reward[0].url, "http://node7:5000/score");
  EXPECT_EQ(config.data.prompt_format, "chat");
  ASSERT_EQ(out.conversion.unknown.size(), 1u);
  EXPECT_EQ(out.conversion.unknown[0].key, "actor.zzz");
}

TEST(Convert, OlderNamesOfOpenRlhfWinOverDefaults) {
  const Converted out = convert("openrlhf",
                                "pretrain: m\nrollout_batch_size: 64\ntrain_batch_size: 32\n"
                                "n_samples_per_prompt: 4\nadvantage_estimator: rloo\n");
  EXPECT_EQ(out.config.algorithm.name, "rloo");
  EXPECT_EQ(out.config.rollout.prompts_per_step, 64);
  EXPECT_EQ(out.config.rollout.samples_per_prompt, 4);
  EXPECT_EQ(out.config.train.minibatches, 8);
}

// A configuration is passed on and its warnings land in logs.
TEST(Convert, SecretsAreNotWritten) {
  const std::string key = "0123456789abcdef";
  const auto said = [&](const char* framework, const std::string& yaml) {
    const Converted out = convert(framework, yaml, "ppo");
    const std::string all = out.text + join(conversion_warnings(out.conversion), "\n");
    EXPECT_THAT(all, Not(HasSubstr(key)));
    return all;
  };
  const std::string older = said("openrlhf", cat("use_wandb: ", key, "\nwandb_project: p\n"));
  EXPECT_THAT(older, HasSubstr("#   use_wandb=*** -> "));
  EXPECT_THAT(older, HasSubstr("to decide: use_wandb=***"));
  EXPECT_THAT(older, HasSubstr("wandb: p  # wandb_project"));
  EXPECT_THAT(said("openrlhf", cat("logger: {wandb: {key: ", key, "}}\n")),
              HasSubstr("logger.wandb.key=*** -> "));
  const std::string trl =
      said("trl", cat("max_steps: 1\nhub_token: ", key, "\npush_to_hub_token: ", key,
                      "\nmy_api_key: ", key, "\n"));
  EXPECT_THAT(trl, HasSubstr("hub_token=***"));
  EXPECT_THAT(trl, HasSubstr("unknown key: my_api_key=***"));
  EXPECT_THAT(said("openrlhf", "use_wandb: true\n"), HasSubstr("use_wandb=true"));
  EXPECT_THAT(said("trl", "max_steps: 1\nhub_token: null\neos_token: <|end|>\n"),
              AllOf(HasSubstr("hub_token=null"), HasSubstr("eos_token=<|end|>")));
}

TEST(Convert, AFunctionOfOpenRlhfIsLeftToDecide) {
  const Converted out = convert("openrlhf", "pretrain: m\nremote_rm_url: reward_func.py\n");
  EXPECT_TRUE(out.config.reward.empty());
  EXPECT_THAT(why(out.conversion.to_decide, "remote_rm_url"),
              HasSubstr("reward: an entry of type python, with a function in TRL's form"));
  EXPECT_THAT(out.text, Not(HasSubstr("no key says what scores a response")));
}

// They are sizes of other forwards: one in TRL's dumps would hold generation at 8 at a time.
TEST(Convert, SizesOfOtherForwardsDoNotBoundGeneration) {
  const int64_t usual = Config().rollout.max_concurrent;
  const Converted trl = convert("trl", cat(kTrl, "per_device_eval_batch_size: 8\n"));
  EXPECT_EQ(trl.config.rollout.max_concurrent, usual);
  EXPECT_THAT(why(trl.conversion.left_out, "per_device_eval_batch_size"),
              HasSubstr("rollout.max_concurrent says how many"));
  const Converted ppo =
      convert("trl", "max_steps: 1\nlocal_rollout_forward_batch_size: 64\n", "ppo");
  EXPECT_EQ(ppo.config.rollout.max_concurrent, usual);
  for (const char* key : {"micro_rollout_batch_size: 16\n", "rollout: {micro_batch_size: 16}\n"})
    EXPECT_EQ(convert("openrlhf", key).config.rollout.max_concurrent, usual);
}

TEST(Convert, AdaptersAreThoseOfTrl) {
  const Converted out = convert("trl", "max_steps: 1\nuse_peft: true\nlora_alpha: 8\n", "sft");
  EXPECT_EQ(out.config.lora.rank, 16);
  EXPECT_EQ(out.config.lora.alpha, 8);
  EXPECT_EQ(out.config.lora.dropout, 0.05);
  EXPECT_THAT(out.text, HasSubstr("rank: 16  # use_peft (TRL's default)\n"));
  EXPECT_EQ(convert("trl", "max_steps: 1\nuse_peft: false\n", "sft").config.lora.rank, 0);
}

TEST(Convert, EachNumberNamesTheKeyThatItComesFrom) {
  const Converted both = convert("trl", "max_steps: 1\nadam_beta1: 0.8\nadam_beta2: 0.95\n", "sft");
  EXPECT_THAT(both.text, HasSubstr("- 0.8  # adam_beta1\n"));
  EXPECT_THAT(both.text, HasSubstr("- 0.95  # adam_beta2\n"));
  const Converted one = convert("trl", "max_steps: 1\nadam_beta2: 0.95\n", "sft");
  EXPECT_THAT(one.text, HasSubstr("- 0.9  # default of trl: adam_beta1\n"));
  EXPECT_THAT(one.text, HasSubstr("- 0.95  # adam_beta2\n"));
  // A number that was rounded says so.
  EXPECT_THAT(
      convert("trl", "max_steps: 1\nnum_generations: 8\ngeneration_batch_size: 12\n", "grpo").text,
      HasSubstr("prompts_per_step: 2  # generation_batch_size (each with 8 responses, so 16 "
                "in all)\n"));
}

TEST(Convert, AnEvaluationByALossIsLeftToDecide) {
  const std::string yaml = "max_steps: 100\neval_steps: 20\neval_strategy: steps\n";
  for (const char* algorithm : {"sft", "dpo", "rm"}) {
    const Converted out = convert("trl", yaml, algorithm);
    EXPECT_EQ(out.config.eval.every_steps, 0);
    EXPECT_THAT(
        why(out.conversion.to_decide, "eval_steps"),
        HasSubstr("eval.every_steps: 20, where data.eval has prompts and reward has entries"));
  }
  const std::string off = "max_steps: 100\neval_steps: 20\neval_strategy: 'no'\n";
  const Converted dpo = convert("trl", off, "dpo");
  EXPECT_EQ(why(dpo.conversion.to_decide, "eval_steps"), "(none)");
  EXPECT_EQ(why(convert("openrlhf", "eval_steps: 20\n", "dpo").conversion.to_decide, "eval_steps")
                .rfind("eval.every_steps: 20", 0),
            0u);
}

// `placement: colocated` says it.
TEST(Convert, DevicesOfRolesThatShareAllAreNotLeftToDecide) {
  std::string older = "pretrain: m\n", newer = "actor: {model_name_or_path: m}\n";
  for (const char* role : {"ref", "critic", "reward"}) {
    older += cat(role, "_num_nodes: 1\n", role, "_num_gpus_per_node: 8\n");
    newer += cat(role, ": {num_nodes: 1, num_gpus_per_node: 8}\n");
  }
  const auto to_decide = [](const std::string& yaml) {
    const Converted out = convert("openrlhf", yaml);
    return std::count_if(
        out.conversion.to_decide.begin(), out.conversion.to_decide.end(), [](const auto& note) {
          return note.key.ends_with("num_nodes") || note.key.ends_with("num_gpus_per_node");
        });
  };
  EXPECT_EQ(to_decide(older), 6);
  EXPECT_EQ(to_decide(cat(older, "colocate_all_models: true\n")), 0);
  EXPECT_EQ(to_decide(newer), 6);
  EXPECT_EQ(to_decide(cat(newer, "train: {colocate_all: true}\n")), 0);
}

TEST(Convert, AScriptOfTrlIsNotRead) {
  for (const auto& [name, text] : {std::pair("dpo.py", "from trl import DPOConfig\n"),
                                   std::pair("run.sh", "trl dpo --beta 0.1\n"),
                                   std::pair("run", "#!/bin/bash\ntrl dpo --beta 0.1\n")})
    EXPECT_THAT(
        trl_configuration(text, name).status().message(),
        AllOf(HasSubstr(name), HasSubstr("args.to_json_string()"), HasSubstr("docs/from_trl.md")));
}

// Sizes that a run depends on and that a script seldom says where the framework's are meant.
TEST(Convert, SizesThatNobodyStatesAreThoseOfTheFramework) {
  const Config grpo = convert("trl", "learning_rate: 1.0e-6\n", "grpo").config;
  EXPECT_EQ(grpo.rollout.max_response_length, 256);
  EXPECT_EQ(grpo.rollout.samples_per_prompt, 8);
  EXPECT_EQ(convert("trl", "learning_rate: 1.0e-6\n", "rloo").config.rollout.samples_per_prompt, 2);
  EXPECT_EQ(convert("trl", "learning_rate: 1.0e-6\n", "ppo").config.rollout.max_response_length,
            53);
  const Converted verl = convert("verl", "data: {train_batch_size: 64}\n");
  EXPECT_EQ(verl.config.rollout.max_response_length, 512);
  EXPECT_THAT(verl.text, Not(HasSubstr("samples_per_prompt:"))) << "1 is the usual one";
  // OpenRLHF has no number.
  EXPECT_THAT(convert("openrlhf", "rollout: {batch_size: 8}\n").text,
              HasSubstr("rollout.max_response_length: OpenRLHF takes"));
  EXPECT_THAT(convert("openrlhf", "rollout: {max_new_tokens: 64}\n").text,
              Not(HasSubstr("rollout.max_response_length: OpenRLHF takes")));
}

TEST(Convert, KnowsThreeFrameworks) {
  EXPECT_THAT(convert_config({}, options_for("slime")).status().message(),
              HasSubstr("'slime' is no framework whose configurations are converted; known: trl, "
                        "verl, openrlhf"));
}

}  // namespace
}  // namespace braid::inline foreign
