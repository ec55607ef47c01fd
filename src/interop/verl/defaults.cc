// What verl's own configuration files say where a user says nothing.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "interop/resolve.h"
#include "interop/verl/verl.h"

namespace braid {
namespace {

// verl/trainer/config: values that follow other keys, as those files write them.
const ForeignKeys& followers() {
  static const ForeignKeys keys = {
      {"actor_rollout_ref.ref.log_prob_use_dynamic_bsz",
       "${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}"},
      {"actor_rollout_ref.ref.log_prob_max_token_len_per_gpu",
       "${oc.select:actor_rollout_ref.actor.ppo_max_token_len_per_gpu,16384}"},
      {"actor_rollout_ref.rollout.log_prob_use_dynamic_bsz",
       "${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}"},
      {"actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu",
       "${oc.select:actor_rollout_ref.actor.ppo_max_token_len_per_gpu,16384}"},
      {"critic.use_dynamic_bsz", "${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}"},
      {"critic.forward_max_token_len_per_gpu", "${.ppo_max_token_len_per_gpu}"},
      {"critic.forward_micro_batch_size_per_gpu",
       "${oc.select:.ppo_micro_batch_size_per_gpu,null}"},
      {"reward_model.use_dynamic_bsz", "${critic.use_dynamic_bsz}"},
      {"reward_model.forward_max_token_len_per_gpu", "${critic.forward_max_token_len_per_gpu}"}};
  return keys;
}

std::vector<foreign::UnplannedKey> unplanned_keys() {
  const std::string actor = "actor_rollout_ref.actor.", rollout = "actor_rollout_ref.rollout.";
  std::vector<foreign::UnplannedKey> out = {
      {"critic.ppo_mini_batch_size", "${actor_rollout_ref.actor.ppo_mini_batch_size}"},
      {"critic.ppo_epochs", "${actor_rollout_ref.actor.ppo_epochs}"},
      {"critic.ulysses_sequence_parallel_size", "1"},
      {"reward_model.ulysses_sequence_parallel_size", "1"},
      {"actor_rollout_ref.ref.ulysses_sequence_parallel_size",
       "${actor_rollout_ref.actor.ulysses_sequence_parallel_size}"},
      {"reward_model.enable_resource_pool", "false"},
      {"actor_rollout_ref.model.enable_activation_offload", "false"},
      {actor + "fsdp_config.reshard_after_forward", "true"},
      {actor + "fsdp_config.offload_policy", "false"},
      {rollout + "data_parallel_size", "1"},
      {rollout + "expert_parallel_size", "1"},
      {rollout + "pipeline_model_parallel_size", "1"},
      {rollout + "free_cache_engine", "true"},
      {rollout + "enforce_eager", "false"},
      {rollout + "enable_chunked_prefill", "true"},
      {rollout + "dtype", "bfloat16"}};
  const std::array<const char*, 4> workers = {"actor_rollout_ref.actor", "actor_rollout_ref.ref",
                                              "critic", "reward_model"};
  for (const char* worker : workers) {
    const std::string group = cat(worker, ".megatron.");
    out.push_back({group + "context_parallel_size", "1"});
    out.push_back({group + "expert_model_parallel_size", "1"});
    out.push_back({group + "expert_tensor_parallel_size", "null"});
    out.push_back({group + "grad_offload", "false"});
    out.push_back({group + "sequence_parallel", "true"});
    out.push_back({group + "use_distributed_optimizer", "true"});
  }
  return out;
}

// verl's older keys count the sequences of all devices, the newer ones those of one.
Status split_total_micro_batches(int64_t devices, ForeignKeys* keys,
                                 std::vector<std::string>* notes) {
  const std::string per_device = "_per_gpu", word = "micro_batch_size";
  for (const foreign::SettingKey<VerlSettings>& entry : verl_table()) {
    const std::string key = entry.key;
    if (key.find(word) == std::string::npos) continue;
    const std::string total = key.substr(0, key.size() - per_device.size());
    const auto stated = keys->find(total);
    const auto own = keys->find(key);
    if (stated == keys->end() || stated->second == "null") continue;
    if (own != keys->end() && own->second != "null") continue;
    int64_t sequences = 0;
    if (!parse_int(stated->second, &sequences) || sequences < 1)
      return invalid_input(
          cat(total, ": must be a whole number from 1, is '", stated->second, "'"));
    const int64_t each = std::max<int64_t>(1, sequences / std::max<int64_t>(1, devices));
    (*keys)[key] = cat(each);
    notes->push_back(cat(total, "=", sequences, " is ", key, "=", each));
  }
  return ok_status();
}

// The configuration file that the command names.
void add_named_config(ForeignKeys* keys, std::vector<std::string>* notes) {
  const auto found = keys->find(kVerlConfigName);
  if (found == keys->end()) return;
  const std::string name = found->second;
  if (name.rfind("ppo_megatron_trainer", 0) == 0) {
    for (const char* key :
         {"actor_rollout_ref.actor.strategy", "critic.strategy", "reward_model.strategy"})
      keys->emplace(key, "megatron");
  } else if (name != "ppo_trainer" && name != "ppo_trainer.yaml") {
    notes->push_back(cat("what ", name, " says is not known here; planned with verl's own ",
                         "defaults (import the file itself instead)"));
  }
  keys->erase(found);
}

}  // namespace

std::string verl_value(const std::string& key, const std::string& text, const ForeignKeys& keys) {
  const VerlSettings defaults;
  const auto look_up = [&](const std::string& name) -> std::optional<std::string> {
    if (const auto found = keys.find(name); found != keys.end()) return found->second;
    if (const auto found = followers().find(name); found != followers().end()) return found->second;
    return verl_setting(name, defaults);
  };
  return foreign::resolve_reference(text, key, look_up);
}

Result<ForeignKeys> complete_verl_keys(ForeignKeys keys, std::vector<std::string>* notes) {
  add_named_config(&keys, notes);
  ForeignKeys out = keys;
  out.insert(followers().begin(), followers().end());
  for (auto& [key, text] : out)
    if (text.find("${") != std::string::npos) text = verl_value(key, text, keys);
  int64_t nodes = 1, per_node = 8;
  if (const auto found = out.find("trainer.nnodes"); found != out.end())
    parse_int(found->second, &nodes);
  if (const auto found = out.find("trainer.n_gpus_per_node"); found != out.end())
    parse_int(found->second, &per_node);
  BRAID_TRY(split_total_micro_batches(nodes * per_node, &out, notes));
  return out;
}

void note_unplanned_verl(const ForeignKeys& keys, std::vector<std::string>* notes) {
  const auto value_of = [&](const foreign::UnplannedKey& entry) {
    return verl_value(entry.key, entry.planned, keys);
  };
  foreign::note_unplanned(unplanned_keys(), keys, value_of, notes);
}

std::vector<std::pair<std::string, std::string>> print_verl(VerlSettings s) {
  ForeignKeys all;
  for (const foreign::SettingKey<VerlSettings>& entry : verl_table())
    all[entry.key] = *verl_setting(entry.key, s);
  const VerlSettings defaults;
  std::vector<std::pair<std::string, std::string>> out;
  for (const foreign::SettingKey<VerlSettings>& entry : verl_table()) {
    const auto follows = followers().find(entry.key);
    const std::string usual = follows == followers().end()
                                  ? *verl_setting(entry.key, defaults)
                                  : verl_value(entry.key, follows->second, all);
    if (all[entry.key] != usual && all[entry.key] != "null")
      out.emplace_back(entry.key, all[entry.key]);
  }
  return out;
}

std::vector<std::string> verl_unplanned_names() {
  std::vector<std::string> names;
  for (const foreign::UnplannedKey& entry : unplanned_keys()) names.push_back(entry.key);
  const std::string per_device = "_per_gpu", word = "micro_batch_size_per_gpu";
  for (const foreign::SettingKey<VerlSettings>& entry : verl_table())
    if (const std::string key = entry.key; key.find(word) != std::string::npos)
      names.push_back(key.substr(0, key.size() - per_device.size()));
  return names;
}

}  // namespace braid
