// OpenRLHF's arguments beside the fields of a plan: names before and after 0.10.2.
#include "foreign/openrlhf/openrlhf.h"
#include "foreign/shell/shell.h"
#include "foreign/text.h"

namespace braid::inline foreign {
namespace {

using S = OpenRlhfSettings;
using Key = foreign::SettingKey<S>;

// One setting under the names of both generations; "" where one has none.
struct Names {
  const char* newer;
  const char* older;
};

class Rows {
 public:
  template <typename Field>
  void add(const Names& names, const char* ours, Field field) {
    using Value = std::remove_reference_t<decltype(field(std::declval<S&>()))>;
    for (const char* name : {names.older, names.newer})
      if (name[0] != '\0') rows_.push_back({name, ours, std::function<Value&(S&)>(field)});
    if (names.older[0] != '\0' && names.newer[0] != '\0') newer_[names.older] = names.newer;
  }
  const std::vector<Key>& rows() const { return rows_; }
  const ForeignKeys& newer() const { return newer_; }

 private:
  std::vector<Key> rows_;
  ForeignKeys newer_;  // names by their older ones
};

void add_groups(Rows& rows) {
  rows.add({"actor.num_nodes", "actor_num_nodes"}, "update_actor.mesh",
           [](S& s) -> int64_t& { return s.actor.nodes; });
  rows.add({"actor.num_gpus_per_node", "actor_num_gpus_per_node"}, "update_actor.mesh",
           [](S& s) -> int64_t& { return s.actor.per_node; });
  rows.add({"ref.num_nodes", "ref_num_nodes"}, "ref_logprob.mesh",
           [](S& s) -> int64_t& { return s.ref.nodes; });
  rows.add({"ref.num_gpus_per_node", "ref_num_gpus_per_node"}, "ref_logprob.mesh",
           [](S& s) -> int64_t& { return s.ref.per_node; });
  rows.add({"critic.num_nodes", "critic_num_nodes"}, "update_critic.mesh",
           [](S& s) -> int64_t& { return s.critic.nodes; });
  rows.add({"critic.num_gpus_per_node", "critic_num_gpus_per_node"}, "update_critic.mesh",
           [](S& s) -> int64_t& { return s.critic.per_node; });
  rows.add({"reward.num_nodes", "reward_num_nodes"}, "reward.mesh",
           [](S& s) -> int64_t& { return s.reward.nodes; });
  rows.add({"reward.num_gpus_per_node", "reward_num_gpus_per_node"}, "reward.mesh",
           [](S& s) -> int64_t& { return s.reward.per_node; });
  rows.add({"train.colocate_all", "colocate_all_models"}, "placement: colocated",
           [](S& s) -> bool& { return s.colocate_all; });
  rows.add({"train.colocate_actor_ref", "colocate_actor_ref"},
           "ref_logprob.mesh = update_actor.mesh",
           [](S& s) -> bool& { return s.colocate_actor_ref; });
  rows.add({"train.colocate_critic_reward", "colocate_critic_reward"},
           "reward.mesh = update_critic.mesh",
           [](S& s) -> bool& { return s.colocate_critic_reward; });
}

void add_engines(Rows& rows) {
  rows.add({"vllm.num_engines", "vllm_num_engines"}, "generate.dp",
           [](S& s) -> int64_t& { return s.vllm_engines; });
  rows.add({"vllm.tensor_parallel_size", "vllm_tensor_parallel_size"}, "generate.tp",
           [](S& s) -> int64_t& { return s.vllm_tp; });
  rows.add({"vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization"},
           "generate.kv_budget_tokens", [](S& s) -> double& { return s.vllm_memory; });
  rows.add({"train.async_enable", "async_train"}, "staleness",
           [](S& s) -> bool& { return s.async_train; });
}

void add_models(Rows& rows) {
  rows.add({"actor.model_name_or_path", "pretrain"}, "model.size",
           [](S& s) -> std::string& { return s.pretrain; });
  rows.add({"reward.model_name_or_path", "reward_pretrain"}, "reward.size",
           [](S& s) -> std::string& { return s.reward_pretrain; });
  rows.add({"critic.model_name_or_path", "critic_pretrain"}, "critic.size",
           [](S& s) -> std::string& { return s.critic_pretrain; });
  rows.add({"reward.remote_url", "remote_rm_url"}, "reward of type http",
           [](S& s) -> std::string& { return s.remote_reward; });
  rows.add({"train.agent_func_path", "agent_func_path"}, "reward by rules",
           [](S& s) -> std::string& { return s.agent; });
  rows.add({"algo.advantage.estimator", "advantage_estimator"}, "algorithm.name",
           [](S& s) -> std::string& { return s.estimator; });
  rows.add({"algo.kl.init_coef", "init_kl_coef"}, "algorithm.kl.coef",
           [](S& s) -> double& { return s.init_kl_coef; });
  rows.add({"ds.lora.rank", "lora_rank"}, "lora.rank",
           [](S& s) -> int64_t& { return s.lora_rank; });
}

void add_batches(Rows& rows) {
  rows.add({"train.batch_size", "train_batch_size"}, "train.minibatches (their size in sequences)",
           [](S& s) -> int64_t& { return s.train_batch; });
  rows.add({"train.micro_batch_size", "micro_train_batch_size"},
           "update_*.micro_batches (their number)", [](S& s) -> int64_t& { return s.micro_train; });
  rows.add({"rollout.batch_size", "rollout_batch_size"}, "rollout.prompts_per_step",
           [](S& s) -> int64_t& { return s.rollout_batch; });
  rows.add({"rollout.micro_batch_size", "micro_rollout_batch_size"},
           "inference micro_batches (their number)",
           [](S& s) -> int64_t& { return s.micro_rollout; });
  rows.add({"rollout.n_samples_per_prompt", "n_samples_per_prompt"}, "rollout.samples_per_prompt",
           [](S& s) -> int64_t& { return s.samples; });
  rows.add({"train.max_epochs", "max_epochs"}, "train.epochs_per_rollout",
           [](S& s) -> int64_t& { return s.max_epochs; });
  rows.add({"train.dynamic_batch_enable", "use_dynamic_batch"}, "update_*.micro_tokens > 0",
           [](S& s) -> bool& { return s.dynamic; });
  rows.add({"train.max_tokens_per_gpu", "train_max_tokens_per_gpu"}, "update_*.micro_tokens",
           [](S& s) -> int64_t& { return s.train_tokens; });
  rows.add({"rollout.max_tokens_per_gpu", "rollout_max_tokens_per_gpu"}, "inference micro_tokens",
           [](S& s) -> int64_t& { return s.rollout_tokens; });
  rows.add({"", "prompt_max_len"}, "data.max_prompt_length",
           [](S& s) -> int64_t& { return s.prompt_max; });
  rows.add({"rollout.max_new_tokens", "generate_max_len"}, "rollout.max_response_length",
           [](S& s) -> int64_t& { return s.generate_max; });
  rows.add({"data.max_len", ""}, "data.max_prompt_length + rollout.max_response_length",
           [](S& s) -> int64_t& { return s.max_len; });
}

void add_training(Rows& rows) {
  rows.add({"ds.zero_stage", "zero_stage"}, "update_*.zero",
           [](S& s) -> int64_t& { return s.zero_stage; });
  rows.add({"ds.zpg", "zpg"}, "update_*.zero_ranks", [](S& s) -> int64_t& { return s.zpg; });
  rows.add({"ds.tensor_parallel_size", "ds_tensor_parallel_size"}, "update_*.tp",
           [](S& s) -> int64_t& { return s.ds_tp; });
  rows.add({"ds.ring_attn_size", "ring_attn_size"}, "update_*.cp",
           [](S& s) -> int64_t& { return s.ring_attention; });
  rows.add({"actor.gradient_checkpointing_enable", "gradient_checkpointing"}, "update_*.recompute",
           [](S& s) -> bool& { return s.checkpointing; });
  rows.add({"ds.adam_offload", "adam_offload"}, "roles.*.optimizer: host",
           [](S& s) -> bool& { return s.adam_offload; });
  rows.add({"", "ref_reward_offload"}, "roles.reference and reward.weights: host",
           [](S& s) -> bool& { return s.ref_reward_offload; });
  rows.add({"ref.offload", ""}, "roles.reference.weights: host",
           [](S& s) -> bool& { return s.ref_offload; });
  rows.add({"reward.offload", ""}, "roles.reward.weights: host",
           [](S& s) -> bool& { return s.reward_offload; });
  rows.add({"ds.enable_sleep", "deepspeed_enable_sleep"}, "roles.*.weights and optimizer: host",
           [](S& s) -> bool& { return s.deepspeed_sleep; });
}

Rows make_rows() {
  Rows rows;
  add_groups(rows);
  add_engines(rows);
  add_models(rows);
  add_batches(rows);
  add_training(rows);
  return rows;
}

const Rows& all_rows() {
  static const Rows rows = make_rows();
  return rows;
}

// The words behind the trainer's module; all where none is named.
ForeignKeys trainer_flags(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i].find("train_ppo") != std::string::npos && words[i].rfind("--", 0) != 0)
      return foreign::flag_keys({words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end()});
  return foreign::flag_keys(words);
}

bool starts_training(const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (word.find("train_ppo") != std::string::npos && word.find("openrlhf") != std::string::npos)
      return true;
  return false;
}

ForeignKeys openrlhf_launch_keys(const std::vector<std::string>& words) {
  return starts_training(words) ? trainer_flags(words) : ForeignKeys();
}

Result<ForeignKeys> parse_openrlhf(std::string_view text, const std::string& where) {
  if (foreign::looks_like_yaml(text)) return foreign::yaml_keys(text, where);
  BRAID_ASSIGN(const std::vector<std::string> words, foreign::shell_words(text).at(where));
  const ForeignKeys keys = trainer_flags(words);
  if (keys.empty())
    return invalid_input(cat(where,
                             ": holds no OpenRLHF arguments (YAML, or --key value words such "
                             "as --actor.num_nodes 1)"));
  return keys;
}

std::vector<ForeignKeyInfo> openrlhf_info() { return foreign::table_info(openrlhf_table()); }

std::vector<foreign::KeyFamily> not_priced() {
  return {{"*vllm*enforce_eager", "generation is planned with captured graphs"},
          {"enforce_eager", "generation is planned with captured graphs"},
          {"*enable_prefix_caching", "prompts of a group are planned with a shared cache"},
          {"*load_in_4bit", "weights are planned in 16 bit"},
          {"*packing_samples", "sequences are planned packed, without padding"},
          {"*overlap_comm", "overlap is that of the calibration"},
          {"*deepcompile", "kernels are those of the calibration"},
          {"*use_liger_kernel", "kernels are those of the calibration"},
          {"*experts_implementation", "kernels are those of the calibration"},
          {"*gradient_checkpointing_*reentrant", "recomputation costs the same either way"},
          {"*grad_accum_dtype", "gradients are planned in the engine's width"},
          {"*enable_ema", "a moving average of the weights is not planned"},
          {"*async_queue_size", "rollouts are planned one step ahead"},
          {"*partial_rollout_enable", "rollouts are planned whole"},
          {"partial_rollout", "rollouts are planned whole"},
          {"*vllm_generate_batch_size", "one round of rollouts is planned"},
          {"*dynamic_filtering*", "groups that are drawn again are not known"},
          {"*freezing_steps", "the first steps alone differ"}};
}

// NOLINT(size) in the body: a table is one expression.
std::vector<foreign::KeyFamily> without_effect() {  // NOLINT(size)
  const char* learnt = "what is learnt, not what it costs";
  const char* data = "what sequences hold, not how long they are";
  const char* saved = "what is logged, saved, evaluated or resumed between steps";
  const char* loaded = "how weights are read and stored";
  std::vector<foreign::KeyFamily> out;
  const auto add = [&](const char* why, std::initializer_list<const char*> patterns) {
    for (const char* pattern : patterns) out.push_back({pattern, why});
  };
  add(learnt, {"*.adam.*",
               "*.muon.*",
               "*.lr*",
               "*learning_rate",
               "*lr_scheduler*",
               "*lr_warmup*",
               "*min_lr*",
               "*.optim*",
               "*l2",
               "adam_betas",
               "*eps_clip*",
               "*dual_clip",
               "*value_clip",
               "*.clip_range",
               "reward_clip_range",
               "*lambd",
               "*gamma",
               "*kl*",
               "*is_correction*",
               "enable_vllm_is_correction",
               "vllm_is_truncated_threshold",
               "*policy_loss_type",
               "*entropy*",
               "*aux_loss_coef",
               "*no_std_norm",
               "no_advantage_std_norm",
               "*normalize*",
               "*overlong*",
               "*stop_properly*",
               "*ema_beta",
               "*max_norm",
               "*lora.alpha",
               "*lora.dropout",
               "*lora.target_modules",
               "lora_alpha",
               "lora_dropout",
               "target_modules",
               "*temperature",
               "*top_p",
               "*freeze_*",
               "*seed",
               "*full_determinism*"});
  add(data, {"data.*", "*prompt_data*", "prompt_split", "prompt_probs", "input_key", "label_key",
             "input_template", "apply_chat_template", "max_samples", "*num_episodes", "*image_key",
             "*max_images*", "dataloader_num_workers", "disable_fast_tokenizer"});
  add(saved,
      {"ckpt.*", "logger.*", "eval.*", "eval_*", "save_*", "ckpt_*", "load_checkpoint",
       "logging_steps", "max_ckpt_*", "disable_ds_ckpt", "use_wandb", "wandb_*", "use_tensorboard",
       "best_metric_key", "*use_universal_ckpt", "*save_value_network", "use_ms", "*local_rank"});
  add(loaded, {"*value_head_prefix", "*param_dtype", "bf16", "*flash_attn", "*attn_implementation",
               "*sync_backend", "*sync_with_ray", "*enable_sleep", "*ring_attn_head_stride",
               "ring_head_stride", "*ref_mode", "*trust_remote_code"});
  return out;
}

foreign::KeyKnowledge make_knowledge() {
  foreign::KeyKnowledge knowledge;
  for (const Key& entry : openrlhf_table()) knowledge.read.insert(entry.key);
  knowledge.not_priced = not_priced();
  knowledge.without_effect = without_effect();
  return knowledge;
}

}  // namespace

const std::vector<Key>& openrlhf_table() { return all_rows().rows(); }

std::string newer_openrlhf_key(const std::string& older) {
  const auto found = all_rows().newer().find(older);
  return found == all_rows().newer().end() ? older : found->second;
}

const foreign::KeyKnowledge& openrlhf_knowledge() {
  static const foreign::KeyKnowledge knowledge = make_knowledge();
  return knowledge;
}

bool is_newer_openrlhf_key(const std::string& key) { return key.find('.') != std::string::npos; }

Framework openrlhf_framework() {
  const auto no_keys = +[](const std::string&) { return ForeignKeys(); };
  const auto nothing = +[](const ForeignKeys&) { return std::vector<std::string>(); };
  return {"openrlhf",
          parse_openrlhf,
          import_openrlhf,
          export_openrlhf,
          openrlhf_info,
          openrlhf_moves,
          openrlhf_launch_keys,
          nothing,
          nothing,
          no_keys,
          nothing,
          "--"};
}

}  // namespace braid::inline foreign
