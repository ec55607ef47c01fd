// verl's configuration (trainer of PPO and its relatives): settings, key table, import and export.
// Internal to plan/; the interface is foreign.h. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/foreign_settings.h"

namespace braid {

// One worker group: how it is sharded and batched. Defaults are verl's.
struct VerlWorker {
  std::string strategy = "fsdp";  // fsdp | fsdp2 | megatron
  int64_t mini_batch = 256;       // prompts of an optimizer step
  int64_t epochs = 1;
  int64_t micro_batch = 0;  // sequences per device of a forward (and backward)
  bool dynamic = false;     // micro-batches by tokens instead
  int64_t max_tokens = 16384;
  int64_t infer_micro_batch = 0;  // the same for forwards alone
  bool infer_dynamic = false;
  int64_t infer_max_tokens = 16384;
  bool offload_weights = false, offload_optimizer = false;
  int64_t shard_size = -1;  // devices that share one copy under FSDP; -1 = all
  int64_t sequence_parallel = 1;
  int64_t tp = 1, pp = 1, vpp = 0;  // megatron
  bool checkpointing = true;
  std::string path;
};

struct VerlSettings {
  int64_t train_batch_size = 1024, max_prompt_length = 512, max_response_length = 512;
  std::string adv_estimator = "gae";
  bool kl_in_reward = false, kl_loss = false;
  int64_t lora_rank = 0;
  VerlWorker actor, ref, critic, reward;
  bool reward_enabled = false;
  std::string engine = "vllm";
  int64_t samples = 1, gen_tp = 2, max_num_seqs = 1024;
  double memory_share = 0.5;
  int64_t nnodes = 1, n_gpus_per_node = 8;
  bool balance_batch = true;
};

const std::vector<foreign::SettingKey<VerlSettings>>& verl_table();
Result<ImportedPlan> import_verl(const ForeignKeys& keys, const ImportOptions& options);
ExportedConfig export_verl(const PlanningProblem& problem, const ExecutionPlan& plan);
Framework verl_framework();

}  // namespace braid
