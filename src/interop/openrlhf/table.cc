// OpenRLHF's arguments beside the fields of a plan.
#include "interop/openrlhf/openrlhf.h"
#include "interop/shell.h"
#include "interop/text.h"

namespace braid {
namespace {

using Key = foreign::SettingKey<OpenRlhfSettings>;
using S = OpenRlhfSettings;

// NOLINT(size) in the body: a table is one expression.
std::vector<Key> make_table() {  // NOLINT(size)
  return {
      {"actor_num_nodes", "update_actor.mesh", +[](S& s) -> int64_t& { return s.actor.nodes; }},
      {"actor_num_gpus_per_node", "update_actor.mesh",
       +[](S& s) -> int64_t& { return s.actor.per_node; }},
      {"ref_num_nodes", "ref_logprob.mesh", +[](S& s) -> int64_t& { return s.ref.nodes; }},
      {"ref_num_gpus_per_node", "ref_logprob.mesh",
       +[](S& s) -> int64_t& { return s.ref.per_node; }},
      {"critic_num_nodes", "update_critic.mesh", +[](S& s) -> int64_t& { return s.critic.nodes; }},
      {"critic_num_gpus_per_node", "update_critic.mesh",
       +[](S& s) -> int64_t& { return s.critic.per_node; }},
      {"reward_num_nodes", "reward.mesh", +[](S& s) -> int64_t& { return s.reward.nodes; }},
      {"reward_num_gpus_per_node", "reward.mesh",
       +[](S& s) -> int64_t& { return s.reward.per_node; }},
      {"vllm_num_engines", "generate.dp", +[](S& s) -> int64_t& { return s.vllm_engines; }},
      {"vllm_tensor_parallel_size", "generate.tp", +[](S& s) -> int64_t& { return s.vllm_tp; }},
      {"vllm_gpu_memory_utilization", "generate.kv_budget_tokens",
       +[](S& s) -> double& { return s.vllm_memory; }},
      {"colocate_all_models", "placement: colocated",
       +[](S& s) -> bool& { return s.colocate_all; }},
      {"colocate_actor_ref", "ref_logprob.mesh = update_actor.mesh",
       +[](S& s) -> bool& { return s.colocate_actor_ref; }},
      {"colocate_critic_reward", "reward.mesh = update_critic.mesh",
       +[](S& s) -> bool& { return s.colocate_critic_reward; }},
      {"pretrain", "model.size", +[](S& s) -> std::string& { return s.pretrain; }},
      {"reward_pretrain", "reward.size", +[](S& s) -> std::string& { return s.reward_pretrain; }},
      {"critic_pretrain", "critic.size", +[](S& s) -> std::string& { return s.critic_pretrain; }},
      {"remote_rm_url", "reward of type http",
       +[](S& s) -> std::string& { return s.remote_reward; }},
      {"advantage_estimator", "algorithm.name", +[](S& s) -> std::string& { return s.estimator; }},
      {"init_kl_coef", "algorithm.kl.coef", +[](S& s) -> double& { return s.init_kl_coef; }},
      {"train_batch_size", "train.minibatches (their size in sequences)",
       +[](S& s) -> int64_t& { return s.train_batch; }},
      {"micro_train_batch_size", "update_*.micro_batches (their number)",
       +[](S& s) -> int64_t& { return s.micro_train; }},
      {"rollout_batch_size", "rollout.prompts_per_step",
       +[](S& s) -> int64_t& { return s.rollout_batch; }},
      {"micro_rollout_batch_size", "inference micro_batches (their number)",
       +[](S& s) -> int64_t& { return s.micro_rollout; }},
      {"n_samples_per_prompt", "rollout.samples_per_prompt",
       +[](S& s) -> int64_t& { return s.samples; }},
      {"max_epochs", "train.epochs_per_rollout", +[](S& s) -> int64_t& { return s.max_epochs; }},
      {"prompt_max_len", "data.max_prompt_length", +[](S& s) -> int64_t& { return s.prompt_max; }},
      {"generate_max_len", "rollout.max_response_length",
       +[](S& s) -> int64_t& { return s.generate_max; }},
      {"zero_stage", "update_*.zero", +[](S& s) -> int64_t& { return s.zero_stage; }},
      {"ds_tensor_parallel_size", "update_*.tp", +[](S& s) -> int64_t& { return s.ds_tp; }},
      {"ring_attn_size", "none", +[](S& s) -> int64_t& { return s.ring_attention; }},
      {"lora_rank", "lora.rank", +[](S& s) -> int64_t& { return s.lora_rank; }},
      {"gradient_checkpointing", "update_*.recompute",
       +[](S& s) -> bool& { return s.checkpointing; }},
      {"adam_offload", "roles.*.optimizer: host", +[](S& s) -> bool& { return s.adam_offload; }},
      {"ref_reward_offload", "roles.reference and reward.weights: host",
       +[](S& s) -> bool& { return s.ref_reward_offload; }},
      {"deepspeed_enable_sleep", "roles.*.weights and optimizer: host",
       +[](S& s) -> bool& { return s.deepspeed_sleep; }},
      {"async_train", "staleness", +[](S& s) -> bool& { return s.async_train; }},
  };
}

Result<ForeignKeys> parse_openrlhf(std::string_view text, const std::string& where) {
  if (foreign::looks_like_yaml(text)) return foreign::yaml_keys(text, where);
  BRAID_ASSIGN(const std::vector<std::string> words, foreign::shell_words(text).at(where));
  const ForeignKeys keys = foreign::flag_keys(words);
  if (keys.empty())
    return invalid_input(cat(where,
                             ": holds no OpenRLHF arguments (YAML, or --key value words such "
                             "as --actor_num_nodes 1)"));
  return keys;
}

std::vector<ForeignKeyInfo> openrlhf_info() { return foreign::table_info(openrlhf_table()); }

}  // namespace

const std::vector<Key>& openrlhf_table() {
  static const std::vector<Key> table = make_table();
  return table;
}

Framework openrlhf_framework() {
  return {"openrlhf",    parse_openrlhf, import_openrlhf,          export_openrlhf,
          openrlhf_info, openrlhf_moves, openrlhf_unplanned_names, "--"};
}

}  // namespace braid
