// OpenRLHF's arguments (train_ppo_ray): settings, key table, import and export. Internal to
// foreign/; the interface is foreign.h. Pure.
#pragma once

#include <string>
#include <vector>

#include "foreign/settings.h"

namespace braid::inline foreign {

// Devices of one model's group.
struct OpenRlhfGroup {
  int64_t nodes = 1, per_node = 8;
};

struct OpenRlhfSettings {
  OpenRlhfGroup actor, ref, critic, reward;
  int64_t vllm_engines = 0, vllm_tp = 1;
  double vllm_memory = 0.95;
  bool colocate_all = false, colocate_actor_ref = false, colocate_critic_reward = false;
  std::string pretrain, reward_pretrain, critic_pretrain, remote_reward, agent;
  std::string estimator = "gae";
  double init_kl_coef = 0.01;
  int64_t train_batch = 128, micro_train = 4, rollout_batch = 1024, micro_rollout = 8;
  int64_t samples = 1, max_epochs = 1;
  bool dynamic = false;                              // micro-batches by tokens
  int64_t train_tokens = 16192, rollout_tokens = 0;  // of one device; 0 = train_tokens
  int64_t prompt_max = 1024, generate_max = 1024;
  int64_t max_len = 0;  // of prompt and response together; 0 = not said
  int64_t zero_stage = 2, zpg = 1, ds_tp = 1, ring_attention = 1;
  int64_t lora_rank = 0;
  bool checkpointing = false, adam_offload = false, ref_reward_offload = false;
  bool ref_offload = false, reward_offload = false;
  bool deepspeed_sleep = false, async_train = false;
};

// What both know by names of their own; each name stands once.
struct OpenRlhfEstimator {
  const char* theirs;
  const char* ours;
};
inline constexpr OpenRlhfEstimator kOpenRlhfEstimators[] = {
    {"gae", "ppo"},
    {"group_norm", "grpo"},
    {"dr_grpo", "dr_grpo"},
    {"rloo", "rloo"},
    {"reinforce", "reinforce_plus_plus"},
    {"reinforce_baseline", "reinforce_plus_plus_baseline"}};

const std::vector<foreign::SettingKey<OpenRlhfSettings>>& openrlhf_table();
Result<ImportedPlan> import_openrlhf(const ForeignKeys& keys, const ImportOptions& options);
ExportedConfig export_openrlhf(const PlanningProblem& problem, const ExecutionPlan& plan);
// Devices of all groups together; 0 for an unknown estimator.
int64_t openrlhf_devices(const OpenRlhfSettings& settings);
// What is worth trying instead of these keys.
std::vector<KeyMove> openrlhf_moves(const ForeignKeys& keys);
// What becomes of keys that no table reads.
const foreign::KeyKnowledge& openrlhf_knowledge();
// Whether a key is written as since 0.10.2: "actor.num_nodes", not "actor_num_nodes".
bool is_newer_openrlhf_key(const std::string& key);
// The name since 0.10.2 of a key from before; the key itself where it has none.
std::string newer_openrlhf_key(const std::string& older);
Framework openrlhf_framework();

}  // namespace braid::inline foreign
