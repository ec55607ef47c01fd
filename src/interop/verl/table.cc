// verl's keys beside the fields of a plan.
#include "interop/shell.h"
#include "interop/text.h"
#include "interop/verl/verl.h"

namespace braid {
namespace {

using Key = foreign::SettingKey<VerlSettings>;
using S = VerlSettings;

// NOLINT(size) in the body: a table is one expression.
std::vector<Key> make_table() {  // NOLINT(size)
  return {
      {"data.train_batch_size", "rollout.prompts_per_step",
       +[](S& s) -> int64_t& { return s.train_batch_size; }},
      {"data.max_prompt_length", "data.max_prompt_length",
       +[](S& s) -> int64_t& { return s.max_prompt_length; }},
      {"data.max_response_length", "rollout.max_response_length",
       +[](S& s) -> int64_t& { return s.max_response_length; }},
      {"algorithm.adv_estimator", "algorithm.name",
       +[](S& s) -> std::string& { return s.adv_estimator; }},
      {"algorithm.use_kl_in_reward", "algorithm.kl.in: reward",
       +[](S& s) -> bool& { return s.kl_in_reward; }},
      {"actor_rollout_ref.model.path", "model.size",
       +[](S& s) -> std::string& { return s.actor.path; }},
      {"actor_rollout_ref.model.lora_rank", "lora.rank",
       +[](S& s) -> int64_t& { return s.lora_rank; }},
      {"actor_rollout_ref.model.enable_gradient_checkpointing", "update_actor.recompute",
       +[](S& s) -> bool& { return s.actor.checkpointing; }},
      {"actor_rollout_ref.actor.strategy", "update_actor.zero and tp, pp",
       +[](S& s) -> std::string& { return s.actor.strategy; }},
      {"actor_rollout_ref.actor.use_kl_loss", "algorithm.kl.in: loss",
       +[](S& s) -> bool& { return s.kl_loss; }},
      {"actor_rollout_ref.actor.ppo_mini_batch_size", "train.minibatches (their number)",
       +[](S& s) -> int64_t& { return s.actor.mini_batch; }},
      {"actor_rollout_ref.actor.ppo_epochs", "train.epochs_per_rollout",
       +[](S& s) -> int64_t& { return s.actor.epochs; }},
      {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
       "update_actor.micro_batches (their number)",
       +[](S& s) -> int64_t& { return s.actor.micro_batch; }},
      {"actor_rollout_ref.actor.use_dynamic_bsz", "update_actor.micro_tokens > 0",
       +[](S& s) -> bool& { return s.actor.dynamic; }},
      {"actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "update_actor.micro_tokens",
       +[](S& s) -> int64_t& { return s.actor.max_tokens; }},
      {"actor_rollout_ref.actor.ulysses_sequence_parallel_size", "none",
       +[](S& s) -> int64_t& { return s.actor.sequence_parallel; }},
      {"actor_rollout_ref.actor.fsdp_config.param_offload", "roles.actor.weights: host",
       +[](S& s) -> bool& { return s.actor.offload_weights; }},
      {"actor_rollout_ref.actor.fsdp_config.optimizer_offload", "roles.actor.optimizer: host",
       +[](S& s) -> bool& { return s.actor.offload_optimizer; }},
      {"actor_rollout_ref.actor.fsdp_config.fsdp_size", "none",
       +[](S& s) -> int64_t& { return s.actor.shard_size; }},
      {"actor_rollout_ref.actor.megatron.tensor_model_parallel_size", "update_actor.tp",
       +[](S& s) -> int64_t& { return s.actor.tp; }},
      {"actor_rollout_ref.actor.megatron.pipeline_model_parallel_size", "update_actor.pp",
       +[](S& s) -> int64_t& { return s.actor.pp; }},
      {"actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size",
       "update_actor.interleave", +[](S& s) -> int64_t& { return s.actor.vpp; }},
      {"actor_rollout_ref.actor.megatron.param_offload", "roles.actor.weights: host",
       +[](S& s) -> bool& { return s.actor.mcore_offload_weights; }},
      {"actor_rollout_ref.actor.megatron.optimizer_offload", "roles.actor.optimizer: host",
       +[](S& s) -> bool& { return s.actor.mcore_offload_optimizer; }},
      {"actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity",
       "update_actor.recompute", +[](S& s) -> std::string& { return s.actor.granularity; }},
      {"actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
       "ref_logprob.micro_batches (their number)",
       +[](S& s) -> int64_t& { return s.ref.infer_micro_batch; }},
      {"actor_rollout_ref.ref.log_prob_use_dynamic_bsz", "ref_logprob.micro_tokens > 0",
       +[](S& s) -> bool& { return s.ref.infer_dynamic; }},
      {"actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", "ref_logprob.micro_tokens",
       +[](S& s) -> int64_t& { return s.ref.infer_max_tokens; }},
      {"actor_rollout_ref.ref.fsdp_config.param_offload", "roles.reference.weights: host",
       +[](S& s) -> bool& { return s.ref.offload_weights; }},
      {"actor_rollout_ref.ref.megatron.tensor_model_parallel_size", "ref_logprob.tp",
       +[](S& s) -> int64_t& { return s.ref.tp; }},
      {"actor_rollout_ref.ref.megatron.pipeline_model_parallel_size", "ref_logprob.pp",
       +[](S& s) -> int64_t& { return s.ref.pp; }},
      {"actor_rollout_ref.ref.megatron.param_offload", "roles.reference.weights: host",
       +[](S& s) -> bool& { return s.ref.mcore_offload_weights; }},
      {"actor_rollout_ref.rollout.name", "plan.generate_engine",
       +[](S& s) -> std::string& { return s.engine; }},
      {"actor_rollout_ref.rollout.n", "rollout.samples_per_prompt",
       +[](S& s) -> int64_t& { return s.samples; }},
      {"actor_rollout_ref.rollout.tensor_model_parallel_size", "generate.tp",
       +[](S& s) -> int64_t& { return s.gen_tp; }},
      {"actor_rollout_ref.rollout.gpu_memory_utilization", "generate.kv_budget_tokens",
       +[](S& s) -> double& { return s.memory_share; }},
      {"actor_rollout_ref.rollout.max_num_seqs", "generate.max_concurrent",
       +[](S& s) -> int64_t& { return s.max_num_seqs; }},
      {"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
       "old_logprob.micro_batches (their number)",
       +[](S& s) -> int64_t& { return s.actor.infer_micro_batch; }},
      {"actor_rollout_ref.rollout.log_prob_use_dynamic_bsz", "old_logprob.micro_tokens > 0",
       +[](S& s) -> bool& { return s.actor.infer_dynamic; }},
      {"actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu", "old_logprob.micro_tokens",
       +[](S& s) -> int64_t& { return s.actor.infer_max_tokens; }},
      {"critic.model.path", "critic.size", +[](S& s) -> std::string& { return s.critic.path; }},
      {"critic.model.enable_gradient_checkpointing", "update_critic.recompute",
       +[](S& s) -> bool& { return s.critic.checkpointing; }},
      {"critic.strategy", "update_critic.zero and tp, pp",
       +[](S& s) -> std::string& { return s.critic.strategy; }},
      {"critic.ppo_micro_batch_size_per_gpu", "update_critic.micro_batches (their number)",
       +[](S& s) -> int64_t& { return s.critic.micro_batch; }},
      {"critic.use_dynamic_bsz", "update_critic.micro_tokens > 0",
       +[](S& s) -> bool& { return s.critic.dynamic; }},
      {"critic.ppo_max_token_len_per_gpu", "update_critic.micro_tokens",
       +[](S& s) -> int64_t& { return s.critic.max_tokens; }},
      {"critic.forward_micro_batch_size_per_gpu", "values.micro_batches (their number)",
       +[](S& s) -> int64_t& { return s.critic.infer_micro_batch; }},
      {"critic.forward_max_token_len_per_gpu", "values.micro_tokens",
       +[](S& s) -> int64_t& { return s.critic.infer_max_tokens; }},
      {"critic.model.fsdp_config.param_offload", "roles.critic.weights: host",
       +[](S& s) -> bool& { return s.critic.offload_weights; }},
      {"critic.model.fsdp_config.optimizer_offload", "roles.critic.optimizer: host",
       +[](S& s) -> bool& { return s.critic.offload_optimizer; }},
      {"critic.megatron.tensor_model_parallel_size", "update_critic.tp",
       +[](S& s) -> int64_t& { return s.critic.tp; }},
      {"critic.megatron.pipeline_model_parallel_size", "update_critic.pp",
       +[](S& s) -> int64_t& { return s.critic.pp; }},
      {"critic.megatron.virtual_pipeline_model_parallel_size", "update_critic.interleave",
       +[](S& s) -> int64_t& { return s.critic.vpp; }},
      {"critic.megatron.param_offload", "roles.critic.weights: host",
       +[](S& s) -> bool& { return s.critic.mcore_offload_weights; }},
      {"critic.megatron.optimizer_offload", "roles.critic.optimizer: host",
       +[](S& s) -> bool& { return s.critic.mcore_offload_optimizer; }},
      {"critic.megatron.override_transformer_config.recompute_granularity",
       "update_critic.recompute", +[](S& s) -> std::string& { return s.critic.granularity; }},
      {"reward_model.enable", "reward of type model",
       +[](S& s) -> bool& { return s.reward_enabled; }},
      {"reward_model.model.path", "reward.size",
       +[](S& s) -> std::string& { return s.reward.path; }},
      {"reward_model.micro_batch_size_per_gpu", "reward.micro_batches (their number)",
       +[](S& s) -> int64_t& { return s.reward.infer_micro_batch; }},
      {"reward_model.use_dynamic_bsz", "reward.micro_tokens > 0",
       +[](S& s) -> bool& { return s.reward.infer_dynamic; }},
      {"reward_model.forward_max_token_len_per_gpu", "reward.micro_tokens",
       +[](S& s) -> int64_t& { return s.reward.infer_max_tokens; }},
      {"reward_model.model.fsdp_config.param_offload", "roles.reward.weights: host",
       +[](S& s) -> bool& { return s.reward.offload_weights; }},
      {"reward_model.strategy", "reward.zero and tp, pp",
       +[](S& s) -> std::string& { return s.reward.strategy; }},
      {"reward_model.megatron.tensor_model_parallel_size", "reward.tp",
       +[](S& s) -> int64_t& { return s.reward.tp; }},
      {"reward_model.megatron.pipeline_model_parallel_size", "reward.pp",
       +[](S& s) -> int64_t& { return s.reward.pp; }},
      {"reward_model.megatron.param_offload", "roles.reward.weights: host",
       +[](S& s) -> bool& { return s.reward.mcore_offload_weights; }},
      {"trainer.balance_batch", "in_order: false of all calls but generate",
       +[](S& s) -> bool& { return s.balance_batch; }},
      {"trainer.nnodes", "cluster.nodes", +[](S& s) -> int64_t& { return s.nnodes; }},
      {"trainer.n_gpus_per_node", "cluster.gpus_per_node",
       +[](S& s) -> int64_t& { return s.n_gpus_per_node; }},
  };
}

Result<ForeignKeys> parse_verl(std::string_view text, const std::string& where) {
  if (foreign::looks_like_yaml(text)) return foreign::yaml_keys(text, where);
  BRAID_ASSIGN(const std::vector<std::string> words, foreign::shell_words(text).at(where));
  ForeignKeys keys = foreign::assignment_keys(words);
  for (size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == kVerlConfigName || words[i] == "-cn") keys[kVerlConfigName] = words[i + 1];
  if (keys.empty())
    return invalid_input(cat(where,
                             ": holds no verl configuration (YAML, or key=value words such "
                             "as data.train_batch_size=256)"));
  return keys;
}

std::vector<ForeignKeyInfo> verl_info() { return foreign::table_info(verl_table()); }

}  // namespace

const std::vector<Key>& verl_table() {
  static const std::vector<Key> table = make_table();
  return table;
}

std::optional<std::string> verl_setting(const std::string& key, VerlSettings settings) {
  for (const Key& entry : verl_table()) {
    if (key != entry.key) continue;
    const std::string text =
        std::visit([&](auto field) { return foreign::setting_text(field(settings)); }, entry.field);
    const bool unset = text == "0" && key.find("micro_batch_size") != std::string::npos;
    return unset || text.empty() ? "null" : text;
  }
  return std::nullopt;
}

Framework verl_framework() {
  return {"verl",    parse_verl, import_verl,          export_verl,
          verl_info, verl_moves, verl_unplanned_names, ""};
}

}  // namespace braid
