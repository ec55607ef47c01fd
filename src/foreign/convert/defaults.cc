// Defaults of the frameworks: TRL 1.9, verl of August 2026 and OpenRLHF of August 2026, as their
// sources have them.
#include "foreign/convert/convert.h"

namespace braid::inline foreign {
namespace {

struct ForeignDefault {
  const char* framework;
  const char* algorithms;  // of ours, between blanks; "" = all
  const char* key;
  const char* value;
};

// clang-format off
constexpr ForeignDefault kDefaults[] = {
    {"trl", " grpo rloo ", "max_completion_length", "256"},
    {"trl", " grpo ", "num_generations", "8"},
    {"trl", " rloo ", "num_generations", "2"},
    {"trl", " ppo ", "response_length", "53"},
    {"trl", " online_dpo ", "max_new_tokens", "64"},
    {"trl", " online_dpo ", "rollout.samples_per_prompt", "2"},
    {"trl", " distill ", "max_new_tokens", "128"},
    {"trl", " grpo rloo ", "temperature", "1"},
    {"trl", " online_dpo distill ", "temperature", "0.9"},
    {"trl", " ppo ", "temperature", "0.7"},
    {"trl", "", "per_device_train_batch_size", "8"},
    {"trl", "", "gradient_accumulation_steps", "1"},
    {"trl", " grpo ", "beta", "0"},
    {"trl", " rloo ", "beta", "0.05"},
    {"trl", " dpo kto orpo online_dpo ", "beta", "0.1"},
    {"trl", " grpo rloo ", "epsilon", "0.2"},
    {"trl", " grpo rloo ", "num_iterations", "1"},
    {"trl", " grpo ", "loss_type", "dapo"},
    {"trl", " grpo ", "scale_rewards", "group"},
    {"trl", " rloo ", "normalize_advantages", "false"},
    {"trl", " dpo ", "label_smoothing", "0"},
    {"trl", " ppo ", "num_ppo_epochs", "4"},
    {"trl", " ppo ", "num_mini_batches", "1"},
    {"trl", " ppo ", "kl_coef", "0.05"},
    {"trl", " ppo ", "cliprange", "0.2"},
    {"trl", " ppo ", "cliprange_value", "0.2"},
    {"trl", " ppo ", "gamma", "1"},
    {"trl", " ppo ", "lam", "0.95"},
    {"trl", " ppo ", "whiten_rewards", "false"},
    {"trl", " ppo ", "vf_coef", "0.1"},
    {"trl", " ppo ", "learning_rate", "3e-6"},
    {"trl", " online_dpo ", "learning_rate", "5e-7"},
    {"trl", " sft ", "learning_rate", "2e-5"},
    {"trl", " rm ", "learning_rate", "1e-4"},
    {"trl", " grpo rloo dpo kto orpo ", "learning_rate", "1e-6"},
    {"trl", " distill ", "learning_rate", "5e-5"},
    {"trl", "", "lr_scheduler_type", "linear"},
    {"trl", "", "weight_decay", "0"},
    {"trl", "", "max_grad_norm", "1"},
    {"trl", "", "bf16", "true"},
    {"trl", "", "gradient_checkpointing", "true"},
    {"trl", " sft ", "shuffle_dataset", "false"},
    {"trl", "", "num_train_epochs", "3"},
    {"verl", "", "algorithm.adv_estimator", "gae"},
    {"verl", "", "algorithm.use_kl_in_reward", "false"},
    {"verl", "", "actor_rollout_ref.actor.use_kl_loss", "false"},
    {"verl", "", "actor_rollout_ref.actor.kl_loss_coef", "0.001"},
    {"verl", "", "actor_rollout_ref.actor.kl_loss_type", "low_var_kl"},
    {"verl", "", "algorithm.kl_ctrl.type", "fixed"},
    {"verl", "", "algorithm.kl_ctrl.kl_coef", "0.001"},
    {"verl", "", "algorithm.kl_penalty", "kl"},
    {"verl", "", "algorithm.norm_adv_by_std_in_grpo", "true"},
    {"verl", "", "distillation.enabled", "false"},
    {"verl", "", "actor_rollout_ref.actor.fsdp_config.dtype", "bfloat16"},
    {"verl", "", "data.train_batch_size", "1024"},
    {"verl", "", "data.max_prompt_length", "512"},
    {"verl", "", "data.max_response_length", "512"},
    {"verl", "", "actor_rollout_ref.rollout.n", "1"},
    {"verl", "", "actor_rollout_ref.rollout.temperature", "1"},
    {"verl", "", "actor_rollout_ref.actor.ppo_mini_batch_size", "256"},
    {"verl", "", "actor_rollout_ref.actor.ppo_epochs", "1"},
    {"verl", "", "actor_rollout_ref.actor.clip_ratio_low", "0.2"},
    {"verl", "", "actor_rollout_ref.actor.clip_ratio_high", "0.2"},
    {"verl", "", "actor_rollout_ref.actor.clip_ratio_c", "3"},
    {"verl", "", "actor_rollout_ref.actor.loss_agg_mode", "token-mean"},
    {"verl", "", "actor_rollout_ref.actor.entropy_coeff", "0"},
    {"verl", "", "actor_rollout_ref.actor.grad_clip", "1"},
    {"verl", "", "actor_rollout_ref.actor.optim.lr", "1e-6"},
    {"verl", "", "actor_rollout_ref.actor.optim.weight_decay", "0.01"},
    {"verl", "", "actor_rollout_ref.actor.optim.lr_scheduler_type", "constant"},
    {"verl", " ppo ", "algorithm.gamma", "1"},
    {"verl", " ppo ", "algorithm.lam", "1"},
    {"verl", " ppo ", "critic.optim.lr", "1e-5"},
    {"verl", " ppo ", "critic.optim.weight_decay", "0.01"},
    {"verl", " ppo ", "critic.cliprange_value", "0.5"},
    {"verl", " ppo ", "critic.grad_clip", "1"},
    {"verl", "", "trainer.total_epochs", "30"},
    {"openrlhf", "", "algo.advantage.estimator", "gae"},
    {"openrlhf", "", "algo.kl.use_loss", "false"},
    {"openrlhf", "", "algo.kl.init_coef", "0.01"},
    {"openrlhf", "", "algo.kl.estimator", "k1"},
    {"openrlhf", "", "rollout.batch_size", "1024"},
    {"openrlhf", "", "rollout.n_samples_per_prompt", "1"},
    {"openrlhf", "", "rollout.temperature", "1"},
    {"openrlhf", "", "train.batch_size", "128"},
    {"openrlhf", "", "train.max_epochs", "1"},
    {"openrlhf", "", "train.seed", "42"},
    {"openrlhf", "", "ds.param_dtype", "bf16"},
    {"openrlhf", "", "data.input_key", "input"},
    {"openrlhf", "", "actor.eps_clip", "0.2"},
    {"openrlhf", "", "reward.clip_range", "[-10, 10]"},
    {"openrlhf", "", "actor.adam.lr", "1e-6"},
    {"openrlhf", "", "actor.adam.betas", "[0.9, 0.95]"},
    {"openrlhf", "", "actor.adam.weight_decay", "0"},
    {"openrlhf", "", "actor.lr_scheduler", "cosine_with_min_lr"},
    {"openrlhf", "", "actor.min_lr_ratio", "0.1"},
    {"openrlhf", "", "actor.lr_warmup_ratio", "0.03"},
    {"openrlhf", "", "actor.max_norm", "1"},
    {"openrlhf", " ppo ", "algo.advantage.lambd", "1"},
    {"openrlhf", " ppo ", "algo.advantage.gamma", "1"},
    {"openrlhf", " ppo ", "critic.value_clip", "0.5"},
    {"openrlhf", " ppo ", "critic.adam.lr", "9e-6"},
    {"openrlhf", " ppo ", "critic.adam.betas", "[0.9, 0.95]"},
    {"openrlhf", " ppo ", "critic.lr_scheduler", "cosine_with_min_lr"},
    {"openrlhf", " ppo ", "critic.min_lr_ratio", "0.1"},
    {"openrlhf", " ppo ", "critic.lr_warmup_ratio", "0.03"},
    {"openrlhf", " ppo ", "critic.max_norm", "1"},
    {"openrlhf", "", "train.num_episodes", "1"},
};
// clang-format on

}  // namespace

std::vector<std::pair<std::string, std::string>> foreign_defaults(const std::string& framework,
                                                                  const std::string& algorithm) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const ForeignDefault& entry : kDefaults) {
    const std::string of = entry.algorithms;
    if (framework == entry.framework && (of.empty() || of.find(" " + algorithm + " ") != of.npos))
      out.emplace_back(entry.key, entry.value);
  }
  return out;
}

}  // namespace braid::inline foreign
