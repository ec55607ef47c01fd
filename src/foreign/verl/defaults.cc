// The configuration that verl composes from what a user sets.
#include <algorithm>

#include "base/text.h"
#include "foreign/resolve.h"
#include "foreign/verl/verl.h"

namespace braid::inline foreign {
namespace {

using Notes = std::vector<std::string>;

// verl's older keys count the sequences of all devices, the newer ones those of one.
Status split_total_micro_batches(int64_t devices, ForeignKeys* keys, Notes* notes) {
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

// What verl's recipes say in files of their own.
const ForeignKeys& asynchronous(bool fully) {
  static const ForeignKeys one_step = {{"rollout.nnodes", "1"},
                                       {"rollout.n_gpus_per_node", "8"},
                                       {"algorithm.rollout_correction.bypass_mode", "True"}};
  static const ForeignKeys all = {{"rollout.nnodes", "1"},
                                  {"rollout.n_gpus_per_node", "8"},
                                  {"data.gen_batch_size", "1"},
                                  {"async_training.trigger_parameter_sync_step", "4"},
                                  {"async_training.require_batches", "1"},
                                  {"algorithm.rollout_correction.bypass_mode", "True"}};
  return fully ? all : one_step;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

std::string taken(const char* key, ForeignKeys* keys) {
  const auto found = keys->find(key);
  if (found == keys->end()) return "";
  std::string value = found->second;
  keys->erase(found);
  return value;
}

void set_strategies(const std::string& strategy, ForeignKeys* keys) {
  for (const char* worker : {"actor_rollout_ref.actor", "critic", "reward_model"})
    keys->emplace(cat(worker, ".strategy"), strategy);
}

// The configuration file that the command names, or its program's own.
void add_named_config(ForeignKeys* keys, Notes* notes) {
  const std::string module = taken(kVerlModule, keys), name = taken(kVerlConfigName, keys);
  taken(kVerlConfigPath, keys);
  const bool fully = has(name, "fully_async") || has(module, "fully_async");
  const bool one_step = has(name, "one_step_off") || has(module, "one_step_off");
  if (has(name, "megatron")) set_strategies("megatron", keys);
  const bool critic = std::any_of(keys->begin(), keys->end(), [](const auto& entry) {
    return entry.first.rfind("critic.", 0) == 0;
  });
  const auto estimator = keys->find("algorithm.adv_estimator");
  const bool estimates = estimator != keys->end() && estimator->second != "null";
  // A recipe's own trainer that says nothing of a critic has none.
  if (!module.empty() && !has(module, "main_ppo") && !critic && !estimates) {
    (*keys)["algorithm.adv_estimator"] = "grpo";
    notes->push_back(cat(module, " says neither an estimator nor a critic; planned as GRPO"));
  }
  if (fully || one_step)
    for (const auto& [key, value] : asynchronous(fully)) keys->emplace(key, value);
  if (!name.empty() && !is_known_verl_config(name))
    notes->push_back(cat("what ", name, " says is not known here; planned with verl's own ",
                         "defaults (import the file itself instead)"));
}

// model_engine chooses the backend of every worker that does not say its own.
Status add_backend(ForeignKeys* keys) {
  const std::vector<std::string> known = {"dp",     "fsdp",      "fsdp2",      "megatron",
                                          "veomni", "automodel", "torchtitan", "mlite"};
  for (const char* key : {"actor_rollout_ref.actor.model_engine", "actor@actor_rollout_ref.actor"})
    if (const auto found = keys->find(key); found != keys->end())
      keys->emplace("model_engine",
                    found->second == "mlite_actor" ? std::string("mlite") : found->second);
  const auto found = keys->find("model_engine");
  if (found == keys->end()) return ok_status();
  const std::string engine = found->second;
  if (std::find(known.begin(), known.end(), engine) == known.end())
    return invalid_input(cat("model_engine: '", engine, "' is not known",
                             did_you_mean(engine, known), "; known: ", join(known, ", ")));
  set_strategies(engine == "dp" ? "fsdp" : engine, keys);
  return ok_status();
}

// One teacher may have any name; of several the first stands for all.
void name_teacher(ForeignKeys* keys, Notes* notes) {
  const std::string group = "distillation.teacher_models.", one = group + "teacher_model.";
  std::string first;
  ForeignKeys renamed;
  for (const auto& [key, value] : *keys) {
    if (key.rfind(group, 0) != 0) continue;
    const std::string name = key.substr(group.size(), key.find('.', group.size()) - group.size());
    if (first.empty()) first = name;
    if (name == first)
      renamed[one + key.substr(std::min(key.size(), group.size() + name.size() + 1))] = value;
    if (name != first && key == cat(group, name, ".model_path"))
      notes->push_back(cat(key, "=", value, ": planned as the teacher ", first));
  }
  for (const auto& [key, value] : renamed) keys->emplace(key, value);
}

}  // namespace

bool is_known_verl_config(const std::string& name) {
  const std::string base = name.substr(0, std::min(name.find(".yaml"), name.size()));
  for (const char* known :
       {"ppo_trainer", "ppo_megatron_trainer", "dapo_trainer", "dapo_megatron_trainer",
        "fully_async_ppo_trainer", "fully_async_ppo_megatron_trainer", "one_step_off_ppo_trainer",
        "one_step_off_ppo_megatron_trainer"})
    if (base == known) return true;
  return false;
}

std::string verl_value(const std::string& key, const std::string& text, const ForeignKeys& keys) {
  const VerlSettings defaults;
  const ForeignKeys& followers = verl_generations().back().defaults;
  const auto look_up = [&](const std::string& name) -> std::optional<std::string> {
    if (const auto found = keys.find(name); found != keys.end()) return found->second;
    if (const auto found = followers.find(name); found != followers.end()) return found->second;
    return verl_setting(name, defaults);
  };
  return foreign::resolve_reference(text, key, look_up);
}

Result<ForeignKeys> complete_verl_keys(ForeignKeys keys, const VerlGeneration& generation,
                                       Notes* notes) {
  add_named_config(&keys, notes);
  BRAID_TRY(add_backend(&keys));
  name_teacher(&keys, notes);
  ForeignKeys out = keys;
  out.insert(generation.defaults.begin(), generation.defaults.end());
  const ForeignKeys stated = out;
  for (auto& [key, text] : out)
    if (text.find("${") != std::string::npos) text = verl_value(key, text, stated);
  int64_t nodes = 1, per_node = 8;
  if (const auto found = out.find("trainer.nnodes"); found != out.end())
    parse_int(found->second, &nodes);
  if (const auto found = out.find("trainer.n_gpus_per_node"); found != out.end())
    parse_int(found->second, &per_node);
  constexpr int64_t kMost = 1 << 20;
  nodes = std::clamp<int64_t>(nodes, 1, kMost), per_node = std::clamp<int64_t>(per_node, 1, kMost);
  BRAID_TRY(split_total_micro_batches(nodes * per_node, &out, notes));
  return out;
}

std::vector<std::pair<std::string, std::string>> print_verl(VerlSettings s) {
  // Names that an older or another version has for what the others print.
  const std::vector<std::string> skipped = {
      "critic.model.fsdp_config.*", "critic.fsdp_config.*", "reward.*",       "rollout.*",
      "async_training.*",           "trainer.v1.*",         "distillation.*", "model_engine"};
  const auto skip = [&](const std::string& key) {
    return std::any_of(skipped.begin(), skipped.end(),
                       [&](const std::string& pattern) { return foreign::matches(pattern, key); });
  };
  ForeignKeys all;
  for (const foreign::SettingKey<VerlSettings>& entry : verl_table())
    all[entry.key] = *verl_setting(entry.key, s);
  const VerlSettings defaults;
  const ForeignKeys& followers = verl_generations().back().defaults;
  std::vector<std::pair<std::string, std::string>> out;
  for (const foreign::SettingKey<VerlSettings>& entry : verl_table()) {
    if (skip(entry.key)) continue;
    const auto follows = followers.find(entry.key);
    const std::string usual = follows == followers.end()
                                  ? *verl_setting(entry.key, defaults)
                                  : verl_value(entry.key, follows->second, all);
    if (all[entry.key] != usual && all[entry.key] != "null")
      out.emplace_back(entry.key, all[entry.key]);
  }
  return out;
}

}  // namespace braid::inline foreign
