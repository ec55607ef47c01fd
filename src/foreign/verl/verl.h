// verl's configuration (trainer of PPO and its relatives): settings, key table, import and export.
// Internal to foreign/; the interface is foreign.h. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "foreign/settings.h"

namespace braid::inline foreign {

// Sections of the configuration.
inline constexpr char kActor[] = "actor_rollout_ref.actor.";
inline constexpr char kRef[] = "actor_rollout_ref.ref.";
inline constexpr char kRollout[] = "actor_rollout_ref.rollout.";

// What one training backend says of a worker: how it is cut and what leaves the devices. Names
// differ by backend, meanings do not.
struct VerlLayout {
  int64_t tp = 1, pp = 1, vpp = 0, cp = 1, ep = 1;
  int64_t expert_tp = 0;  // 0 = tp
  int64_t shards = -1;    // devices that share one copy; -1 = all
  int64_t copies = 1;     // the other way round: how many copies there are
  bool reshard = true;    // weights are sharded again after a pass
  bool sequence_parallel = true;
  bool fully_sharded = false;  // Megatron's FSDP
  bool offload_weights = false, offload_optimizer = false;
  int64_t first_layers = 0, last_layers = 0;  // of the first and the last stage; 0 = even
  std::string granularity = "null";           // full | selective | null
  std::string fp8 = "null";                   // hybrid | e4m3 | null
  std::string dtype = "bfloat16";
};

// One worker group: how it is sharded and batched. Defaults are verl's.
struct VerlWorker {
  std::string strategy = "fsdp";
  int64_t mini_batch = 256;  // prompts of an optimizer step
  int64_t epochs = 1;
  int64_t micro_batch = 0;  // sequences per device of a forward (and backward)
  bool dynamic = false;     // micro-batches by tokens instead
  int64_t max_tokens = 16384;
  int64_t infer_micro_batch = 0;  // the same for forwards alone
  bool infer_dynamic = false;
  int64_t infer_max_tokens = 16384;
  int64_t ulysses = 1;             // sequence parallelism of FSDP, under its older key
  bool checkpointing = true;       // of FSDP
  bool optimizer_on_host = false;  // Megatron's optimizer that offloads itself
  VerlLayout fsdp, turbo, megatron, veomni, automodel, torchtitan, lite;
  std::string path;

  bool megatron_like() const { return strategy == "megatron" || strategy == "mlite"; }
  // Of the backend in use.
  const VerlLayout& layout() const;
  VerlLayout& layout();
};

// Devices that a part of the job has to itself.
struct VerlPool {
  int64_t nodes = 0, per_node = 8;
  int64_t devices() const { return nodes * per_node; }
};

// An engine that answers requests.
struct VerlEngine {
  std::string name = "vllm";
  int64_t tp = 2, dp = 1, pp = 1, ep = 1, expert_tp = 0;
  int64_t max_num_seqs = 256, max_batched_tokens = 8192;
  double memory_share = 0.5;
  std::string quantization = "null";
};

struct VerlSettings {
  int64_t train_batch_size = 1024, gen_batch_size = 0;
  int64_t max_prompt_length = 512, max_response_length = 512;
  int64_t prompt_length = 512, response_length = 512, max_model_len = 0;  // of the engine
  std::string adv_estimator = "gae";
  std::string loss_mode = "vanilla";
  std::string critic_enabled = "null";  // null: as the estimator needs
  bool kl_in_reward = false, kl_loss = false, filter_groups = false, bypass = false;
  int64_t lora_rank = 0, megatron_lora_rank = 0;
  VerlWorker actor, ref, critic, reward;
  std::string model_engine = "dp";
  bool reward_enabled = false, reward_apart = false;
  VerlEngine rollout, reward_engine;
  int64_t samples = 1;
  VerlPool trainer{1, 8}, rollout_pool, reward_pool;
  bool balance_batch = true;
  std::string trainer_mode = "sync";  // sync | colocate_async | separate_async
  bool one_step_off = false, fully_async = false;
  int64_t sync_every = 4, collected_batches = 1;
  bool distils = false;
  VerlPool teacher_pool;
  std::string teacher_path;
  VerlEngine teacher;
};

// Arguments that are no keys of the configuration, kept among them until they are complete: the
// configuration file that the command names and its folder, and the module that it starts.
inline constexpr const char* kVerlConfigName = "--config-name";
inline constexpr const char* kVerlConfigPath = "--config-path";
inline constexpr const char* kVerlModule = "-m";
// Whether what a configuration file of this name says is known without it.
bool is_known_verl_config(const std::string& name);

const std::vector<foreign::SettingKey<VerlSettings>>& verl_table();
// What becomes of keys that no table reads.
const foreign::KeyKnowledge& verl_knowledge();

// A setting as text ("null" for numbers without a value); nothing for keys that the table does not
// have.
std::optional<std::string> verl_setting(const std::string& key, VerlSettings settings);

// One generation of verl: since which version, and what its files say where no key is stated.
struct VerlGeneration {
  std::string since;
  ForeignKeys defaults;  // those that differ from the newest, and all that follow other keys
};
// By version, newest last.
const std::vector<VerlGeneration>& verl_generations();
struct VerlVersion {
  const VerlGeneration* generation = nullptr;
  std::string told;  // "verl 0.9 (stated)"
};
// The stated version's generation; otherwise that of the newest key that is set, or the newest.
// Errors: a version that is no number such as 0.7, or before the first.
Result<VerlVersion> verl_version(const ForeignKeys& keys, const std::string& stated);

// The value `text` of `key` with references resolved by `keys`, then by verl's own defaults.
std::string verl_value(const std::string& key, const std::string& text, const ForeignKeys& keys);

// The keys as verl composes them: what the named configuration file and the backend say, the
// defaults of the generation, references resolved, micro-batches of all devices as those of one.
// Errors: such a total that is no number, an unknown backend.
Result<ForeignKeys> complete_verl_keys(ForeignKeys keys, const VerlGeneration& generation,
                                       std::vector<std::string>* notes);

// Every key whose value differs from what verl takes without it.
std::vector<std::pair<std::string, std::string>> print_verl(VerlSettings settings);

// Refuses what verl stops at: a share of memory outside (0, 1], micro-batches of training on
// `devices` without a size or that do not divide. Inference without a size takes that of training,
// with a note.
Status check_verl(const PlanningProblem& problem, int64_t devices, VerlSettings* settings,
                  std::vector<std::string>* notes);
// Refuses words that a key does not know, such as a strategy.
Status check_verl_words(const VerlSettings& settings);

// The calls of the job: its estimator's, a reward model's and a teacher's, with the samples that a
// step generates. Errors: an estimator that is not known.
Result<Graph> verl_graph(const VerlSettings& settings, std::vector<std::string>* notes);

// Prompts of a step that the engines generate for: whole generation batches where groups are
// filtered, as few as could suffice; otherwise those that train.
int64_t generated_verl_prompts(const VerlSettings& settings);

// Where each part of the job runs, and the cluster that it needs: the trainer's nodes, then those
// of rollouts, of the reward model and of the teacher, as far as they have their own.
struct VerlPlacement {
  Cluster cluster;
  DeviceMesh trainer, rollout, reward, teacher;
};
Result<VerlPlacement> place_verl(const VerlSettings& settings, const ImportOptions& options);

// The strategy of a call of training or inference on `devices`.
Strategy verl_worker_strategy(const VerlWorker& worker, const PlanningProblem& problem,
                              const Call& call, int64_t devices);

Result<ImportedPlan> import_verl(const ForeignKeys& keys, const ImportOptions& options);
ExportedConfig export_verl(const PlanningProblem& problem, const ExecutionPlan& plan);
// What is worth trying instead of these keys.
std::vector<KeyMove> verl_moves(const ForeignKeys& keys);
// From 0.7 on model_engine chooses the backend, which the workers' strategies alone do not.
std::vector<std::string> verl_beside(const ForeignKeys& keys);
Framework verl_framework();

}  // namespace braid::inline foreign
