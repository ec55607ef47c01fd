#include "config/foreign_key_table.h"

#include <map>
#include <optional>

#include "base/text.h"

namespace braid {
namespace {

// The first number in the tree whose key has one of the names, wherever it stands.
std::optional<double> number_of(const YamlNode& node, const std::vector<std::string>& names) {
  for (const auto& [key, value] : node.map) {
    double number = 0;
    for (const std::string& name : names)
      if (key == name && parse_double(value.scalar, &number)) return number;
    if (const auto below = number_of(value, names)) return below;
  }
  return std::nullopt;
}

std::optional<double> group_size(const YamlNode& root) {
  return number_of(root, {"num_generations", "n_samples_per_prompt", "samples_per_prompt", "n",
                          "num_generations_per_prompt", "group_size"});
}

std::optional<double> prompts(const YamlNode& root) {
  return number_of(
      root, {"rollout_batch_size", "prompts_per_step", "num_prompts_per_step", "train_batch_size"});
}

std::string no_conversion(const std::string&, const YamlNode&) { return ""; }
std::string switched_on(const std::string&, const YamlNode&) { return "true"; }
std::string every_step(const std::string&, const YamlNode&) { return "1"; }

std::string choose(const std::map<std::string, std::string>& choices, const std::string& value) {
  const auto found = choices.find(value);
  return found == choices.end() ? "" : found->second;
}

// -1, null and None switch things off there, 0 does here.
std::string zero_is_off(const std::string& value, const YamlNode&) {
  return value == "-1" || value == "null" || value == "None" || value == "none" ? "0" : value;
}

// Completions per optimizer batch (TRL) to prompts per rollout.
std::string completions_to_prompts(const std::string& value, const YamlNode& root) {
  double completions = 0;
  const auto group = group_size(root);
  if (!parse_double(value, &completions)) return "";
  completions *= number_of(root, {"gradient_accumulation_steps"}).value_or(1);
  if (!group) return cat(format_double(completions), " / samples_per_prompt");
  return format_double(completions / *group);
}

// A mini-batch's size in prompts (verl) to the number of mini-batches.
std::string prompts_to_minibatches(const std::string& value, const YamlNode& root) {
  double size = 0;
  const auto all = prompts(root);
  if (!parse_double(value, &size) || size <= 0) return "";
  return all ? format_double(*all / size) : cat("prompts_per_step / ", value);
}

// A mini-batch's size in sequences to the number of mini-batches.
std::string sequences_to_minibatches(const std::string& value, const YamlNode& root) {
  double size = 0;
  const auto all =
      number_of(root, {"rollout_batch_size", "prompts_per_step", "num_prompts_per_step"});
  if (!parse_double(value, &size) || size <= 0) return "";
  const auto grouped = root.find("rollout") == nullptr
                           ? std::optional<double>()
                           : number_of(*root.find("rollout"), {"batch_size"});
  if (!all && !grouped) return cat("prompts_per_step * samples_per_prompt / ", value);
  return format_double((all ? *all : *grouped) * group_size(root).value_or(1) / size);
}

std::string sequences_to_tokens(const std::string& value, const YamlNode&) {
  return cat(value, " * (max_prompt_length + max_response_length)");
}

std::string completions_to_steps(const std::string& value, const YamlNode&) {
  return "train.total_episodes: " + value;
}

std::string epochs_to_steps(const std::string& value, const YamlNode&) {
  return cat(value, " * lines of data.train / rollout.prompts_per_step");
}

std::string ratio_to_warmup(const std::string& value, const YamlNode& root) {
  double ratio = 0;
  const auto steps = number_of(root, {"total_steps", "max_steps", "total_training_steps"});
  if (!parse_double(value, &ratio)) return "";
  return steps ? format_double(static_cast<double>(static_cast<int64_t>(ratio * *steps)))
               : cat(value, " * optimizer steps");
}

std::string both_clips(const std::string& value, const YamlNode&) {
  return cat("algorithm.clip_low: ", value, "' and 'algorithm.clip_high: ", value);
}

std::string estimator_to_algorithm(const std::string& value, const YamlNode&) {
  return choose({{"gae", "ppo"},
                 {"grpo", "grpo"},
                 {"group_norm", "grpo"},
                 {"rloo", "rloo"},
                 {"remax", "remax"},
                 {"reinforce_plus_plus", "reinforce_pp"},
                 {"reinforce", "reinforce_pp"},
                 {"dr_grpo", "dr_grpo"}},
                value);
}

std::string kl_estimator(const std::string& value, const YamlNode&) {
  return choose(
      {{"kl", "k1"}, {"k1", "k1"}, {"mse", "k2"}, {"k2", "k2"}, {"low_var_kl", "k3"}, {"k3", "k3"}},
      value);
}

std::string kl_in_loss(const std::string& value, const YamlNode&) {
  return value == "true" || value == "True" ? "loss" : "reward";
}

std::string kl_in_reward(const std::string& value, const YamlNode&) {
  return value == "true" || value == "True" ? "reward" : "loss";
}

std::string schedule(const std::string& value, const YamlNode&) {
  return choose({{"constant", "constant"},
                 {"constant_with_warmup", "constant"},
                 {"linear", "linear"},
                 {"cosine", "cosine"},
                 {"cosine_with_min_lr", "cosine"}},
                value);
}

std::string loss_aggregation(const std::string& value, const YamlNode&) {
  return choose({{"token-mean", "token_mean"},
                 {"dapo", "token_mean"},
                 {"bnpo", "token_mean"},
                 {"seq-mean-token-mean", "seq_mean_token_mean"},
                 {"grpo", "seq_mean_token_mean"},
                 {"seq-mean-token-sum", "seq_mean_token_sum"},
                 {"seq-mean-token-sum-norm", "constant_norm"},
                 {"dr_grpo", "constant_norm"}},
                value);
}

std::string dtype(const std::string& value, const YamlNode&) {
  return choose({{"true", "bf16"},
                 {"false", "f32"},
                 {"bfloat16", "bf16"},
                 {"float32", "f32"},
                 {"bf16", "bf16"},
                 {"fp32", "f32"}},
                value);
}

std::string truncation(const std::string& value, const YamlNode&) {
  return choose({{"error", "error"},
                 {"left", "truncate_left"},
                 {"true", "drop"},
                 {"True", "drop"},
                 {"false", "error"}},
                value);
}

std::string to_chat(const std::string& value, const YamlNode&) {
  return value == "false" || value == "False" ? "text" : "chat";
}

std::string reward_model(const std::string& value, const YamlNode&) {
  return cat("reward: [{type: model, path: ", value, "}]");
}
std::string reward_url(const std::string& value, const YamlNode&) {
  return cat("reward: [{type: http, url: \"", value, "\"}]");
}
std::string reward_function(const std::string& value, const YamlNode&) {
  return cat("reward: [{type: python, path: ", value, ", function: compute_score}]");
}

std::string resume(const std::string& value, const YamlNode&) {
  const std::string known =
      choose({{"disable", "none"}, {"auto", "auto"}, {"true", "auto"}, {"false", "none"}}, value);
  return known.empty() ? value : known;
}

std::string clip_range(const std::string& value, const YamlNode&) {
  const std::vector<std::string> parts = split(value, ' ');
  std::string last = parts.back();
  while (!last.empty() && (last.back() == ']' || last.back() == ')')) last.pop_back();
  return last;
}

std::string group_normalization(const std::string& value, const YamlNode&) {
  return choose({{"true", "group"},
                 {"True", "group"},
                 {"group", "group"},
                 {"batch", "batch"},
                 {"false", "none"},
                 {"none", "none"}},
                value);
}

std::string two_betas(const std::string& value, const YamlNode& root) {
  const auto first = number_of(root, {"adam_beta1"}), second = number_of(root, {"adam_beta2"});
  if (!first && !second) return value;
  return cat("[", format_double(first.value_or(0.9)), ", ", format_double(second.value_or(0.999)),
             "]");
}

// clang-format off
constexpr ForeignKey kForeignKeys[] = {
  // Batches.
  {"data.train_batch_size", "verl", "rollout.prompts_per_step", "prompts of one rollout"},
  {"trainer.train_batch_size", "SkyRL", "rollout.prompts_per_step", "prompts of one rollout"},
  {"num_prompts_per_step", "NeMo-RL", "rollout.prompts_per_step", "prompts of one rollout"},
  {"rollout_batch_size", "OpenRLHF", "rollout.prompts_per_step", "prompts of one rollout"},
  {"gen_batch_size", "verl", "rollout.prompts_per_step", "prompts of one rollout"},
  {"train_batch_size", "OpenRLHF", "train.minibatches", "a count of optimizer steps per epoch; OpenRLHF's is the size of one in sequences", sequences_to_minibatches},
  {"mini_batch_size", "TRL PPO", "train.minibatches", "a count of optimizer steps per epoch; TRL's is the size of one in sequences", sequences_to_minibatches},
  {"per_device_train_batch_size", "TRL", "rollout.prompts_per_step", "prompts of one rollout; TRL's counts completions of one device and micro-batch", completions_to_prompts},
  {"generation_batch_size", "TRL", "rollout.prompts_per_step", "prompts of one rollout; TRL's counts completions", completions_to_prompts},
  {"batch_size", "TRL PPO", "rollout.prompts_per_step", "prompts of one rollout; TRL's counts completions", completions_to_prompts},
  {"gradient_accumulation_steps", "TRL", "train.micro_tokens", "tokens of one forward and backward; micro-batches follow from it, results do not depend on it", no_conversion},
  {"steps_per_generation", "TRL", "train.minibatches", "optimizer steps per epoch over one rollout"},
  {"num_mini_batches", "TRL PPO", "train.minibatches", "optimizer steps per epoch over one rollout"},
  {"ppo_n_minibatches", "AReaL", "train.minibatches", "optimizer steps per epoch over one rollout"},
  {"ppo_mini_batch_size", "verl", "train.minibatches", "a count of optimizer steps per epoch; verl's is the size of one in prompts", prompts_to_minibatches},
  {"train_global_batch_size", "NeMo-RL", "train.minibatches", "a count of optimizer steps per epoch; NeMo-RL's is the size of one in sequences", sequences_to_minibatches},
  {"ppo_micro_batch_size", "verl", "train.micro_tokens", "tokens, not sequences", sequences_to_tokens},
  {"ppo_micro_batch_size_per_gpu", "verl", "train.micro_tokens", "tokens, not sequences", sequences_to_tokens},
  {"log_prob_micro_batch_size_per_gpu", "verl", "train.micro_tokens", "tokens, not sequences", sequences_to_tokens},
  {"log_prob_micro_batch_size", "verl", "train.micro_tokens", "tokens, not sequences", sequences_to_tokens},
  {"micro_train_batch_size", "OpenRLHF", "train.micro_tokens", "tokens, not sequences", sequences_to_tokens},
  {"micro_rollout_batch_size", "OpenRLHF", "rollout.max_concurrent", "sequences in flight"},
  {"local_rollout_forward_batch_size", "TRL PPO", "rollout.max_concurrent", "sequences in flight"},
  {"max_num_seqs", "verl", "rollout.max_concurrent", "sequences in flight"},
  {"ppo_max_token_len_per_gpu", "verl", "train.micro_tokens", "tokens of one forward and backward"},
  {"log_prob_max_token_len_per_gpu", "verl", "train.micro_tokens", "tokens of one forward and backward"},
  {"max_tokens_per_mb", "AReaL", "train.micro_tokens", "tokens of one forward and backward"},
  {"max_tokens_per_gpu", "slime", "train.micro_tokens", "tokens of one forward and backward"},
  {"train_max_tokens_per_gpu", "OpenRLHF", "train.micro_tokens", "tokens of one forward and backward"},
  {"use_dynamic_bsz", "verl", "", "micro-batches are always cut by tokens (train.micro_tokens)"},
  {"use_dynamic_batch", "OpenRLHF", "", "micro-batches are always cut by tokens (train.micro_tokens)"},
  {"use_remove_padding", "verl", "", "sequences are always packed without padding"},
  {"packing_samples", "OpenRLHF", "", "sequences are always packed without padding"},
  {"padding_free", "TRL", "", "sequences are always packed without padding"},
  // Rollout.
  {"n", "verl", "rollout.samples_per_prompt", "responses per prompt"},
  {"num_generations", "TRL", "rollout.samples_per_prompt", "responses per prompt"},
  {"num_generations_per_prompt", "NeMo-RL", "rollout.samples_per_prompt", "responses per prompt"},
  {"n_samples_per_prompt", "OpenRLHF", "rollout.samples_per_prompt", "responses per prompt"},
  {"group_size", "AReaL", "rollout.samples_per_prompt", "responses per prompt"},
  {"max_completion_length", "TRL", "rollout.max_response_length", "tokens"},
  {"max_new_tokens", "TRL, AReaL", "rollout.max_response_length", "tokens"},
  {"response_length", "TRL PPO, verl", "rollout.max_response_length", "tokens"},
  {"data.max_response_length", "verl", "rollout.max_response_length", "tokens"},
  {"generate_max_len", "OpenRLHF", "rollout.max_response_length", "tokens"},
  {"rollout_max_response_len", "slime", "rollout.max_response_length", "tokens"},
  {"min_new_tokens", "TRL", "rollout.min_response_length", "tokens"},
  {"prompt_max_len", "OpenRLHF", "data.max_prompt_length", "tokens"},
  {"prompt_length", "verl", "data.max_prompt_length", "tokens"},
  {"temperature", "TRL, verl, OpenRLHF", "rollout.temperature", "at least 0.01"},
  {"top_p", "TRL, verl, OpenRLHF", "rollout.top_p", "1 = off"},
  {"top_k", "TRL, verl", "rollout.top_k", "0 = off", zero_is_off},
  {"min_p", "TRL", "rollout.min_p", "0 = off"},
  {"repetition_penalty", "TRL, verl", "rollout.repetition_penalty", "1 = off"},
  {"stop_token", "TRL PPO", "rollout.stop", "list of strings; the model's own end of sequence always counts", no_conversion},
  {"do_sample", "verl, transformers", "rollout.temperature", "training always samples", no_conversion},
  {"val_kwargs.temperature", "verl", "eval.temperature", "0 = greedy"},
  {"val_kwargs.n", "verl", "eval.samples_per_prompt", "responses per prompt"},
  {"eval_temperature", "OpenRLHF", "eval.temperature", "0 = greedy"},
  {"eval_n_samples_per_prompt", "OpenRLHF", "eval.samples_per_prompt", "responses per prompt"},
  {"num_generations_eval", "TRL", "eval.samples_per_prompt", "responses per prompt"},
  {"gpu_memory_utilization", "verl", "rollout.kv_budget_tokens", "tokens of the KV cache, not a share of memory", no_conversion},
  {"vllm_gpu_memory_utilization", "TRL, OpenRLHF", "rollout.kv_budget_tokens", "tokens of the KV cache, not a share of memory", no_conversion},
  {"use_vllm", "TRL", "", "sampler and trainer are one engine"},
  {"vllm_mode", "TRL", "", "sampler and trainer are one engine"},
  {"vllm_num_engines", "OpenRLHF", "", "sampler and trainer are one engine"},
  {"vllm_sync_backend", "OpenRLHF", "", "sampler and trainer share their weights"},
  {"vllm_importance_sampling_correction", "TRL", "", "sampler and trainer are one engine; mismatch/logprob_abs_max shows how well they agree"},
  {"vllm_importance_sampling_cap", "TRL", "algorithm.tis_cap", "0 = off"},
  {"vllm_importance_sampling_clip_max", "TRL", "algorithm.tis_cap", "0 = off"},
  {"vllm_is_truncated_threshold", "OpenRLHF", "algorithm.tis_cap", "0 = off"},
  {"rollout_is_threshold", "verl", "algorithm.tis_cap", "0 = off"},
  {"tis_imp_ratio_cap", "verl", "algorithm.tis_cap", "0 = off", zero_is_off},
  {"tis_clip", "slime", "algorithm.tis_cap", "0 = off"},
  {"param_offload", "verl", "train.offload", "what leaves memory while it rests", no_conversion},
  {"ref_reward_offload", "OpenRLHF", "train.offload", "what leaves memory while it rests", no_conversion},
  {"enable_vllm_is_correction", "OpenRLHF", "", "sampler and trainer are one engine; mismatch/logprob_abs_max shows how well they agree"},
  {"enable_prefix_caching", "OpenRLHF, verl", "", "samples of one prompt always share its cache"},
  {"enforce_eager", "verl, OpenRLHF", "", "there are no captured graphs"},
  {"free_cache_engine", "verl", "", "the cache is freed after every rollout"},
  // Algorithm.
  {"adv_estimator", "verl", "algorithm.name", "ppo | grpo", estimator_to_algorithm},
  {"advantage_estimator", "OpenRLHF, slime", "algorithm.name", "ppo | grpo", estimator_to_algorithm},
  {"lambd", "OpenRLHF", "algorithm.lam", "GAE lambda"},
  {"gae_lambda", "AReaL", "algorithm.lam", "GAE lambda"},
  {"lam", "TRL PPO", "algorithm.lam", "GAE lambda"},
  {"gamma", "TRL PPO, OpenRLHF", "algorithm.gamma", "discount per token"},
  {"discount", "AReaL", "algorithm.gamma", "discount per token"},
  {"cliprange", "TRL PPO", "algorithm.clip_low and algorithm.clip_high", "distance of the ratio from 1", both_clips},
  {"clip_ratio", "verl", "algorithm.clip_low and algorithm.clip_high", "distance of the ratio from 1", both_clips},
  {"eps_clip", "OpenRLHF, AReaL, slime", "algorithm.clip_low and algorithm.clip_high", "distance of the ratio from 1", both_clips},
  {"epsilon", "TRL", "algorithm.clip_low and algorithm.clip_high", "distance of the ratio from 1; epsilon_high overrides the second", both_clips},
  {"eps_clip_low_high", "OpenRLHF", "algorithm.clip_low and algorithm.clip_high", "distances of the ratio from 1, one key each", no_conversion},
  {"epsilon_high", "TRL", "algorithm.clip_high", "distance of the ratio from 1"},
  {"clip_ratio_low", "verl", "algorithm.clip_low", "distance of the ratio from 1"},
  {"clip_ratio_high", "verl", "algorithm.clip_high", "distance of the ratio from 1"},
  {"eps_clip_high", "slime", "algorithm.clip_high", "distance of the ratio from 1"},
  {"clip_ratio_c", "verl", "algorithm.dual_clip", "above 1; 0 = off"},
  {"c_clip", "AReaL", "algorithm.dual_clip", "above 1; 0 = off"},
  {"delta", "TRL", "algorithm.dual_clip", "above 1; 0 = off", zero_is_off},
  {"dual_clip", "OpenRLHF", "algorithm.dual_clip", "above 1; 0 = off", zero_is_off},
  {"cliprange_value", "TRL PPO, verl", "algorithm.value_clip", "distance from the old value; 0 = off"},
  {"value_clip", "OpenRLHF", "algorithm.value_clip", "distance from the old value; 0 = off"},
  {"vf_coef", "TRL PPO", "algorithm.critic_coef", "the critic has its own optimizer: optim.critic"},
  {"entropy_coeff", "verl", "algorithm.entropy_coef", "weight of the entropy bonus; 0 = off"},
  {"entropy_coef", "TRL", "algorithm.entropy_coef", "weight of the entropy bonus; 0 = off"},
  {"entropy_loss_coef", "OpenRLHF", "algorithm.entropy_coef", "weight of the entropy bonus; 0 = off", zero_is_off},
  {"beta", "TRL", "algorithm.kl.coef", "with algorithm.kl.in: loss; 0 = off"},
  {"kl_coef", "TRL PPO, verl", "algorithm.kl.coef", "0 = off"},
  {"kl_ctl", "AReaL", "algorithm.kl.coef", "0 = off"},
  {"init_kl_coef", "OpenRLHF", "algorithm.kl.coef", "0 = off"},
  {"kl_loss_coef", "verl, slime", "algorithm.kl.coef", "with algorithm.kl.in: loss; 0 = off"},
  {"use_kl_loss", "verl, OpenRLHF, slime", "algorithm.kl.in", "reward | loss", kl_in_loss},
  {"use_kl_in_reward", "verl", "algorithm.kl.in", "reward | loss; algorithm.kl.coef: 0 for neither", kl_in_reward},
  {"kl_estimator", "TRL PPO, OpenRLHF, AReaL", "algorithm.kl.estimator", "k1 | k2 | k3", kl_estimator},
  {"kl_loss_type", "verl, slime", "algorithm.kl.estimator", "k1 | k2 | k3", kl_estimator},
  {"kl_penalty", "verl", "algorithm.kl.estimator", "k1 | k2 | k3", kl_estimator},
  {"kl_ctrl.type", "verl", "algorithm.kl.controller", "fixed | adaptive"},
  {"target_kl", "verl", "algorithm.kl.target", "KL per sequence of the adaptive controller"},
  {"kl_target", "OpenRLHF", "algorithm.kl.target", "KL per sequence of the adaptive controller; it needs algorithm.kl.controller: adaptive"},
  {"kl_horizon", "OpenRLHF", "algorithm.kl.horizon", "sequences"},
  {"kl_ctrl.horizon", "verl", "algorithm.kl.horizon", "sequences"},
  {"loss_type", "TRL", "algorithm.loss_agg", "how token losses are averaged", loss_aggregation},
  {"loss_agg_mode", "verl", "algorithm.loss_agg", "how token losses are averaged", loss_aggregation},
  {"importance_sampling_level", "TRL", "algorithm.ratio_level", "token | sequence"},
  {"scale_rewards", "TRL", "algorithm.normalize_advantages", "batch | group | none", group_normalization},
  {"norm_adv_by_std_in_grpo", "verl", "algorithm.normalize_advantages", "batch | group | none", group_normalization},
  {"whiten_rewards", "TRL PPO", "algorithm.whiten_rewards", "true or false"},
  {"missing_eos_penalty", "TRL PPO", "reward_total.missing_eos_penalty", "subtracted from the reward of a truncated response", zero_is_off},
  {"reward_clip_range", "OpenRLHF", "reward_total.clip", "one bound for both sides", clip_range},
  {"reward_clip", "AReaL", "reward_total.clip", "one bound for both sides"},
  {"overlong_buffer_len", "OpenRLHF", "reward_total.overlong_buffer", "tokens"},
  {"overlong_buffer.len", "verl", "reward_total.overlong_buffer", "tokens"},
  {"overlong_penalty_factor", "OpenRLHF", "reward_total.overlong_penalty", "penalty at the longest response"},
  {"overlong_buffer.penalty_factor", "verl", "reward_total.overlong_penalty", "penalty at the longest response"},
  {"freezing_actor_steps", "OpenRLHF", "critic.warmup_steps", "steps in which only the critic is trained", zero_is_off},
  {"critic_warmup", "verl", "critic.warmup_steps", "steps in which only the critic is trained"},
  {"ppo_epochs", "verl", "train.epochs_per_rollout", "passes over one rollout"},
  {"num_ppo_epochs", "TRL PPO", "train.epochs_per_rollout", "passes over one rollout"},
  {"num_iterations", "TRL", "train.epochs_per_rollout", "passes over one rollout"},
  {"max_epochs", "OpenRLHF", "train.epochs_per_rollout", "passes over one rollout"},
  // Optimizer.
  {"learning_rate", "TRL", "optim.ROLE.lr", "learning rate"},
  {"actor_learning_rate", "OpenRLHF", "optim.actor.lr", "learning rate"},
  {"critic_learning_rate", "OpenRLHF", "optim.critic.lr", "learning rate"},
  {"lr", "verl, OpenRLHF, AReaL", "optim.ROLE.lr", "learning rate"},
  {"weight_decay", "TRL, verl", "optim.ROLE.weight_decay", "decoupled"},
  {"l2", "OpenRLHF", "optim.ROLE.weight_decay", "decoupled"},
  {"adam_beta1", "TRL", "optim.actor.betas", "two numbers", two_betas},
  {"adam_beta2", "TRL", "optim.actor.betas", "two numbers", two_betas},
  {"adam_betas", "OpenRLHF", "optim.ROLE.betas", "two numbers"},
  {"betas", "verl, OpenRLHF", "optim.ROLE.betas", "two numbers"},
  {"adam_epsilon", "TRL", "optim.ROLE.eps", "added to the denominator"},
  {"max_grad_norm", "TRL", "optim.ROLE.max_grad_norm", "global norm; 0 = off"},
  {"grad_clip", "verl", "optim.ROLE.max_grad_norm", "global norm; 0 = off"},
  {"clip_grad", "verl", "optim.ROLE.max_grad_norm", "global norm; 0 = off"},
  {"max_norm", "OpenRLHF", "optim.ROLE.max_grad_norm", "global norm; 0 = off"},
  {"gradient_clipping", "AReaL", "optim.ROLE.max_grad_norm", "global norm; 0 = off"},
  {"lr_scheduler_type", "TRL, verl, AReaL", "optim.ROLE.schedule", "constant | linear | cosine", schedule},
  {"lr_scheduler", "OpenRLHF", "optim.ROLE.schedule", "constant | linear | cosine", schedule},
  {"warmup_style", "verl", "optim.ROLE.schedule", "constant | linear | cosine", schedule},
  {"min_lr_ratio", "verl, AReaL", "optim.ROLE.min_lr_ratio", "floor as a share of lr"},
  {"warmup_steps", "TRL", "optim.ROLE.warmup_steps", "optimizer steps"},
  {"lr_warmup_steps", "verl", "optim.ROLE.warmup_steps", "optimizer steps", zero_is_off},
  {"warmup_ratio", "TRL", "optim.ROLE.warmup_steps", "optimizer steps, not a share of them", ratio_to_warmup},
  {"lr_warmup_ratio", "OpenRLHF", "optim.ROLE.warmup_steps", "optimizer steps, not a share of them", ratio_to_warmup},
  {"lr_warmup_steps_ratio", "verl", "optim.ROLE.warmup_steps", "optimizer steps, not a share of them", ratio_to_warmup},
  // Run.
  {"max_steps", "TRL", "train.total_steps", "rollouts; TRL's counts optimizer steps"},
  {"total_training_steps", "verl", "train.total_steps", "rollouts", zero_is_off},
  {"max_num_steps", "NeMo-RL", "train.total_steps", "rollouts"},
  {"num_rollout", "slime", "train.total_steps", "rollouts"},
  {"total_episodes", "TRL PPO", "train.total_episodes", "sequences in all", completions_to_steps},
  {"num_episodes", "OpenRLHF", "train.total_steps", "rollouts, not epochs over the data", epochs_to_steps},
  {"num_train_epochs", "TRL", "train.total_steps", "rollouts, not epochs over the data", epochs_to_steps},
  {"total_epochs", "verl", "train.total_steps", "rollouts, not epochs over the data", epochs_to_steps},
  {"seed", "TRL, OpenRLHF", "train.seed", "of sampling, initial weights and order; data.seed for the data"},
  {"full_determinism", "TRL, verl, OpenRLHF", "", "runs are always deterministic for a seed and thread count"},
  {"output_dir", "TRL", "run.dir", "results go to run.dir/run.name"},
  {"save_path", "OpenRLHF", "run.dir", "results go to run.dir/run.name"},
  {"run_name", "TRL", "run.name", "results go to run.dir/run.name"},
  {"experiment_name", "verl", "run.name", "results go to run.dir/run.name"},
  {"wandb_project", "OpenRLHF", "log.wandb", "name of the project"},
  {"wandb_run_name", "OpenRLHF", "run.name", "results go to run.dir/run.name"},
  {"project_name", "verl", "run.dir", "results go to run.dir/run.name"},
  {"logger", "verl", "log.tensorboard", "log.console, log.jsonl, log.tensorboard; log.wandb and log.mlflow name a project", no_conversion},
  {"report_to", "TRL", "log.tensorboard", "log.console, log.jsonl, log.tensorboard; log.wandb and log.mlflow name a project", no_conversion},
  {"use_wandb", "OpenRLHF", "log.wandb", "name of the project", no_conversion},
  {"use_tensorboard", "OpenRLHF", "log.tensorboard", "event files are in the run's folder", switched_on},
  {"logging_steps", "TRL, OpenRLHF", "", "every step is logged"},
  {"log_completions", "TRL", "log.samples_every", "steps between rows of samples.jsonl", every_step},
  {"save_steps", "TRL, OpenRLHF", "checkpoint.every_steps", "steps; 0 = only at the end", zero_is_off},
  {"save_freq", "verl", "checkpoint.every_steps", "steps; 0 = only at the end", zero_is_off},
  {"save_total_limit", "TRL", "checkpoint.keep_last", "checkpoints"},
  {"max_ckpt_num", "OpenRLHF", "checkpoint.keep_last", "checkpoints"},
  {"max_actor_ckpt_to_keep", "verl", "checkpoint.keep_last", "checkpoints"},
  {"ckpt_path", "OpenRLHF", "checkpoint.dir", "folder"},
  {"default_local_dir", "verl", "checkpoint.dir", "folder"},
  {"resume_from_checkpoint", "TRL", "checkpoint.resume", "auto | none | PATH", resume},
  {"resume_mode", "verl", "checkpoint.resume", "auto | none | PATH", resume},
  {"resume_from_path", "verl", "checkpoint.resume", "auto | none | PATH", resume},
  {"load_checkpoint", "OpenRLHF", "checkpoint.resume", "auto | none | PATH", resume},
  {"eval_steps", "TRL, OpenRLHF", "eval.every_steps", "steps; 0 = off", zero_is_off},
  {"test_freq", "verl", "eval.every_steps", "steps; 0 = off", zero_is_off},
  {"val_period", "NeMo-RL", "eval.every_steps", "steps; 0 = off", zero_is_off},
  {"val_before_train", "verl", "eval.at_start", "true or false"},
  {"eval_on_start", "TRL", "eval.at_start", "true or false"},
  {"val_at_start", "NeMo-RL", "eval.at_start", "true or false"},
  // Models and data.
  {"model_name_or_path", "TRL", "model.path", "Hugging Face folder on this machine"},
  {"sft_model_path", "TRL PPO", "model.path", "Hugging Face folder on this machine"},
  {"pretrain", "OpenRLHF", "model.path", "Hugging Face folder on this machine"},
  {"critic_pretrain", "OpenRLHF", "critic.path", "Hugging Face folder on this machine"},
  {"actor_rollout_ref.model.path", "verl", "model.path", "Hugging Face folder on this machine"},
  {"critic.model.path", "verl", "critic.path", "Hugging Face folder on this machine"},
  {"reward_model.model.path", "verl", "reward", "an entry of the list", reward_model},
  {"reward_model_path", "TRL PPO", "reward", "an entry of the list", reward_model},
  {"reward_pretrain", "OpenRLHF", "reward", "an entry of the list", reward_model},
  {"remote_rm_url", "OpenRLHF", "reward", "an entry of the list", reward_url},
  {"remote_url", "OpenRLHF", "reward", "an entry of the list", reward_url},
  {"custom_reward_function.path", "verl", "reward", "an entry of the list", reward_function},
  {"custom_reward_function.name", "verl", "reward", "'function' of the entry of type python", no_conversion},
  {"reward_funcs", "TRL", "reward", "entries of type python", reward_function},
  {"reward_weights", "TRL", "reward", "'weight' of each entry", no_conversion},
  {"train_files", "verl", "data.train", "JSONL file (convert parquet first)"},
  {"val_files", "verl", "data.eval", "JSONL file (convert parquet first)"},
  {"prompt_data", "OpenRLHF", "data.train", "JSONL file"},
  {"eval_dataset", "OpenRLHF, TRL", "data.eval", "JSONL file"},
  {"dataset_name", "TRL", "data.train", "JSONL file"},
  {"input_key", "OpenRLHF", "data.prompt_key", "name of a field"},
  {"label_key", "OpenRLHF", "data.label_key", "name of a field"},
  {"input_template", "OpenRLHF", "data.prompt_template", "with {prompt} for the prompt"},
  {"apply_chat_template", "OpenRLHF, slime", "data.prompt_format", "text | chat", to_chat},
  {"truncation", "verl", "data.overlong", "error | drop | truncate_left", truncation},
  {"filter_overlong_prompts", "verl", "data.overlong", "error | drop | truncate_left", truncation},
  {"shuffle_dataset", "TRL", "data.shuffle", "true or false"},
  {"bf16", "TRL, OpenRLHF", "model.dtype", "f32 | bf16 (f32 master weights)", dtype},
  {"torch_dtype", "TRL, transformers", "model.dtype", "f32 | bf16 (f32 master weights)", dtype},
  {"dtype", "verl, TRL", "model.dtype", "f32 | bf16 (f32 master weights)", dtype},
  {"gradient_checkpointing", "TRL, OpenRLHF", "train.recompute", "true or false"},
  {"enable_gradient_checkpointing", "verl", "train.recompute", "true or false"},
  {"lora_rank", "verl, OpenRLHF", "lora.rank", "0 = train all weights"},
  {"lora_r", "TRL", "lora.rank", "0 = train all weights"},
  {"lora_alpha", "TRL, verl, OpenRLHF", "lora.alpha", "the update is scaled by alpha / rank"},
  {"target_modules", "verl, OpenRLHF", "lora.targets", "list of layer names"},
  {"lora_target_modules", "TRL", "lora.targets", "list of layer names"},
  {"lora_dropout", "TRL, OpenRLHF", "lora.dropout", "share left out in training"},
  {"use_dora", "TRL", "", "DoRA is not supported; LoRA is (lora.rank)"},
  {"use_rslora", "TRL", "", "the update is scaled by alpha / rank; set lora.alpha"},
  {"mask_truncated_completions", "TRL", "algorithm.mask_truncated", "true or false"},
  {"overlong_filtering", "NeMo-RL", "algorithm.mask_truncated", "true or false"},
  {"mask_truncated_samples", "rLLM", "algorithm.mask_truncated", "true or false"},
  {"reward_manager.name", "verl", "reward", "'signature' of the entry of type python: verl, or verl_batch for a batch manager's function", no_conversion},
  {"reward_kwargs", "verl", "reward", "'kwargs' of the entry of type python", no_conversion},
  {"tensor_model_parallel_size", "verl", "", "one process computes a model whole; train.threads sets its threads"},
  {"vllm_tensor_parallel_size", "TRL, OpenRLHF", "", "one process computes a model whole; train.threads sets its threads"},
  {"n_gpus_per_node", "verl", "", "a run is one process on one device (device)"},
  {"nnodes", "verl", "", "a run is one process on one device (device)"},
  {"actor_num_gpus_per_node", "OpenRLHF", "", "a run is one process on one device (device)"},
  {"actor_num_nodes", "OpenRLHF", "", "a run is one process on one device (device)"},
  {"zero_stage", "OpenRLHF", "", "a run is one process on one device (device)"},
  {"deepspeed", "TRL", "", "a run is one process on one device (device)"},
  {"fsdp", "TRL", "", "a run is one process on one device (device)"},
  {"colocate_all_models", "OpenRLHF", "", "a run is one process on one device (device)"},
  // OpenRLHF's names since its command line has groups.
  {"rollout.batch_size", "OpenRLHF", "rollout.prompts_per_step", "prompts of one rollout"},
  {"train.batch_size", "OpenRLHF", "train.minibatches", "a count of optimizer steps per epoch; OpenRLHF's is the size of one in sequences", sequences_to_minibatches},
  {"train.micro_batch_size", "OpenRLHF", "train.micro_tokens", "tokens, not sequences", sequences_to_tokens},
  {"rollout.micro_batch_size", "OpenRLHF", "rollout.max_concurrent", "sequences in flight"},
  {"eval.n_samples_per_prompt", "OpenRLHF", "eval.samples_per_prompt", "responses per prompt"},
  {"eval.steps", "OpenRLHF", "eval.every_steps", "steps; 0 = off", zero_is_off},
  {"eval.dataset", "OpenRLHF", "data.eval", "JSONL file"},
  {"data.prompt_dataset", "OpenRLHF", "data.train", "JSONL file"},
  {"data.max_len", "OpenRLHF", "data.max_prompt_length", "tokens of the prompt alone; rollout.max_response_length for the rest", no_conversion},
  {"actor.model_name_or_path", "OpenRLHF", "model.path", "Hugging Face folder on this machine"},
  {"critic.model_name_or_path", "OpenRLHF", "critic.path", "Hugging Face folder on this machine"},
  {"reward.model_name_or_path", "OpenRLHF", "reward", "an entry of the list", reward_model},
  {"reward.clip_range", "OpenRLHF", "reward_total.clip", "one bound for both sides", clip_range},
  {"advantage.estimator", "OpenRLHF", "algorithm.name", "ppo | grpo", estimator_to_algorithm},
  {"advantage.is_correction_enable", "OpenRLHF", "algorithm.tis_cap", "0 = off", no_conversion},
  {"kl.init_coef", "OpenRLHF", "algorithm.kl.coef", "0 = off"},
  {"kl.use_loss", "OpenRLHF", "algorithm.kl.in", "reward | loss", kl_in_loss},
  {"kl.estimator", "OpenRLHF", "algorithm.kl.estimator", "k1 | k2 | k3", kl_estimator},
  {"kl.target", "OpenRLHF", "algorithm.kl.target", "KL per sequence of the adaptive controller"},
  {"kl.horizon", "OpenRLHF", "algorithm.kl.horizon", "sequences"},
  {"dynamic_filtering_enable", "OpenRLHF", "", "groups without signal are counted (adv/zero_std_frac), not drawn again"},
  {"gradient_checkpointing_enable", "OpenRLHF", "train.recompute", "true or false"},
  {"ckpt.path", "OpenRLHF", "checkpoint.dir", "folder"},
  {"ckpt.save_hf", "OpenRLHF", "checkpoint.hf_every_steps", "steps between exports; 0 = only at the end", no_conversion},
  {"param_dtype", "OpenRLHF", "model.dtype", "f32 | bf16 (f32 master weights)", dtype},
  {"lora.rank", "OpenRLHF", "lora.rank", "0 = train all weights"},
  {"lora.alpha", "OpenRLHF", "lora.alpha", "the update is scaled by alpha / rank"},
  {"wandb.project", "OpenRLHF", "log.wandb", "name of the project"},
  {"wandb.run_name", "OpenRLHF", "run.name", "results go to run.dir/run.name"},
  {"vllm.num_engines", "OpenRLHF", "", "sampler and trainer are one engine"},
  {"vllm.sync_backend", "OpenRLHF", "", "sampler and trainer share their weights"},
  {"vllm.tensor_parallel_size", "OpenRLHF", "", "one process computes a model whole; train.threads sets its threads"},
  {"enable_sleep", "OpenRLHF", "", "models that rest leave memory by train.offload"},
  {"attn_implementation", "OpenRLHF, transformers", "", "there is one attention kernel for sampling and training"},
  {"colocate_all", "OpenRLHF", "", "a run is one process on one device (device)"},
  {"colocate_actor_ref", "OpenRLHF", "", "a run is one process on one device (device)"},
  {"num_nodes", "OpenRLHF", "", "a run is one process on one device (device)"},
  {"num_gpus_per_node", "OpenRLHF", "", "a run is one process on one device (device)"},
  {"optim", "TRL", "", "the optimizer is AdamW; its numbers are in the group optim"},
};
// clang-format on

}  // namespace

const std::vector<ForeignKey>& foreign_key_table() {
  static const std::vector<ForeignKey> table(std::begin(kForeignKeys), std::end(kForeignKeys));
  return table;
}

}  // namespace braid
