// verl's configuration (trainer of PPO and its relatives): settings, key table, import and export.
// Internal to plan/; the interface is foreign.h. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/settings.h"

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
  bool offload_weights = false, offload_optimizer = false;  // of FSDP
  bool mcore_offload_weights = false, mcore_offload_optimizer = false;
  int64_t shard_size = -1;  // devices that share one copy under FSDP; -1 = all
  int64_t sequence_parallel = 1;
  int64_t tp = 1, pp = 1, vpp = 0;  // megatron
  bool checkpointing = true;        // of FSDP
  std::string granularity;          // what megatron recomputes: full | selective | nothing
  std::string path;
};

inline VerlWorker verl_critic() {
  VerlWorker critic;
  critic.max_tokens = 32768;
  return critic;
}

struct VerlSettings {
  int64_t train_batch_size = 1024, max_prompt_length = 512, max_response_length = 512;
  std::string adv_estimator = "gae";
  bool kl_in_reward = false, kl_loss = false;
  int64_t lora_rank = 0;
  VerlWorker actor, ref, critic = verl_critic(), reward;
  bool reward_enabled = false;
  std::string engine = "vllm";
  int64_t samples = 1, gen_tp = 2, max_num_seqs = 1024;
  double memory_share = 0.5;
  int64_t nnodes = 1, n_gpus_per_node = 8;
  bool balance_batch = true;
};

// The argument that names a configuration file, kept among the keys until they are complete.
inline constexpr const char* kVerlConfigName = "--config-name";

const std::vector<foreign::SettingKey<VerlSettings>>& verl_table();

// A setting as text ("null" for micro-batches without a size); nothing for keys that the table does
// not have.
std::optional<std::string> verl_setting(const std::string& key, VerlSettings settings);

// The value `text` of `key` with references resolved by `keys`, then by verl's own defaults.
std::string verl_value(const std::string& key, const std::string& text, const ForeignKeys& keys);

// The keys as verl composes them: the defaults of the named configuration file, the keys that
// follow others, references resolved, micro-batches of all devices as those of one. Errors: such a
// total that is no number.
Result<ForeignKeys> complete_verl_keys(ForeignKeys keys, std::vector<std::string>* notes);

// "not planned: KEY=VALUE" for keys that change speed or memory and that a plan does not say.
void note_unplanned_verl(const ForeignKeys& keys, std::vector<std::string>* notes);
std::vector<std::string> verl_unplanned_names();

// Every key whose value differs from what verl takes without it.
std::vector<std::pair<std::string, std::string>> print_verl(VerlSettings settings);

// Refuses what verl stops at: an unknown strategy or engine, a share of memory outside (0, 1],
// micro-batches of training without a size or that do not divide. Inference without a size takes
// that of training, with a note.
Status check_verl(const PlanningProblem& problem, VerlSettings* settings,
                  std::vector<std::string>* notes);

Result<ImportedPlan> import_verl(const ForeignKeys& keys, const ImportOptions& options);
ExportedConfig export_verl(const PlanningProblem& problem, const ExecutionPlan& plan);
// What is worth trying instead of these keys.
std::vector<KeyMove> verl_moves(const ForeignKeys& keys);
Framework verl_framework();

}  // namespace braid
