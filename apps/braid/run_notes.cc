// Keys that were written but that this run does not read, and values that work but are seldom
// meant: one warning each, with the place.
#include "run_notes.h"

#include <algorithm>

#include "base/text.h"
#include "config/algorithm_traits.h"
#include "config/origin.h"
#include "host/machine.h"

namespace braid {
namespace {

constexpr double kHighLearningRate = 0.01;

bool has_role(const Graph& graph, const std::string& name) {
  return std::any_of(graph.roles.begin(), graph.roles.end(),
                     [&](const RoleSpec& role) { return role.role.value == name; });
}

bool trains(const Graph& graph, const std::string& name) {
  return std::any_of(graph.roles.begin(), graph.roles.end(),
                     [&](const RoleSpec& role) { return role.role.value == name && role.trained; });
}

const YamlNode* node_at(const YamlNode& root, const std::string& path) {
  const YamlNode* node = &root;
  for (const std::string& key : split(path, '.'))
    if (node = node->find(key); node == nullptr) return nullptr;
  return node;
}

// The first key at or below a path that somebody wrote; null for none.
const YamlNode* written_below(const YamlNode& node, const std::string& path, std::string* key) {
  if (node.kind == YamlNode::Kind::kMap) {
    for (const auto& [name, child] : node.map)
      if (const YamlNode* found = written_below(child, cat(path, ".", name), key)) return found;
    return nullptr;
  }
  const bool list = node.kind == YamlNode::Kind::kList;
  const bool empty = list ? node.list.empty() : node.scalar.empty();
  if (!is_written(node) || empty) return nullptr;
  *key = path;
  return &node;
}

// Keys (or groups of keys) and why this run does not read them; "" = it does.
std::vector<std::pair<std::string, std::string>> unread_keys(const LoadedConfig& loaded,
                                                             const Graph& graph) {
  const Config& config = loaded.config;
  std::vector<std::pair<std::string, std::string>> out;
  const auto add = [&](bool unread, const std::string& why, std::vector<std::string> keys) {
    for (std::string& key : keys)
      if (unread) out.emplace_back(std::move(key), why);
  };
  const std::string& name = config.algorithm.name;
  add(!has_role(graph, "critic"), cat(name, " has no critic"),
      {"critic", "optim.critic", "algorithm.lam", "algorithm.value_clip",
       "algorithm.critic_coef"});
  const AlgorithmTraits traits = algorithm_traits(name);
  add(!traits.discounts, cat(name, " discounts no rewards"), {"algorithm.gamma"});
  add(!traits.rewards_tokens, cat(name, " has no rewards per token"), {"algorithm.whiten_rewards"});
  add(!trains(graph, "actor"), cat(name, " trains no policy"), {"optim.actor", "lora.export_as"});
  add(!trains(graph, "reward"), cat(name, " trains no reward model"), {"optim.reward"});
  add(!has_role(graph, "reference"), "no reference model is loaded", {"reference"});
  const bool samples = generates(graph);
  add(!samples, cat(name, " generates nothing"),
      {"reward", "reward_total", "rollout.samples_per_prompt", "rollout.max_response_length",
       "rollout.min_response_length", "rollout.temperature", "rollout.top_p", "rollout.top_k",
       "rollout.min_p", "rollout.repetition_penalty", "rollout.stop", "rollout.ignore_eos",
       "rollout.max_concurrent", "rollout.kv_budget_tokens", "rollout.longest_first",
       "rollout.record", "rollout.replay", "algorithm.kl", "algorithm.mask_truncated"});
  add(config.lora.rank == 0, "lora.rank is 0",
      {"lora.alpha", "lora.dropout", "lora.targets", "lora.export_as"});
  add(!config.model.path.empty(), "model.path is set, and its config.json counts",
      {"model.config"});
  return out;
}

void note_values(const LoadedConfig& loaded, const BatchArithmetic& arithmetic,
                 std::vector<std::string>* notes) {
  const Config& config = loaded.config;
  const auto note = [&](const std::string& key, const std::string& text) {
    const YamlNode* node = node_at(loaded.resolved, key);
    const bool placed = node != nullptr && is_written(*node);
    notes->push_back(cat(placed ? cat(node->origin, ": ") : "", key, ": ", text));
  };
  for (const auto& [role, optim] : {std::make_pair("actor", &config.optim.actor),
                                    std::make_pair("critic", &config.optim.critic),
                                    std::make_pair("reward", &config.optim.reward)}) {
    if (optim->lr > kHighLearningRate)
      note(cat("optim.", role, ".lr"),
           cat(format_double(optim->lr),
               " is far above what trains language models (1e-6 to 1e-3); "
               "the weights may become useless"));
    if (optim->warmup_steps > 0 && optim->warmup_steps >= arithmetic.optimizer_steps)
      note(cat("optim.", role, ".warmup_steps"),
           cat(optim->warmup_steps, " is not less than the run's ", arithmetic.optimizer_steps,
               " optimizer steps, so the learning rate never reaches optim.", role, ".lr"));
  }
  if (config.critic.warmup_steps >= config.train.total_steps)
    note("critic.warmup_steps", cat(config.critic.warmup_steps, " of ", config.train.total_steps,
                                    " steps: the policy is never trained"));
  if (config.rollout.max_concurrent > 8 * std::max<int64_t>(arithmetic.sequences_per_step, 32) &&
      config.rollout.kv_budget_tokens == 0)
    note("rollout.max_concurrent", cat(config.rollout.max_concurrent, ", but a step has only ",
                                       arithmetic.sequences_per_step, " sequences"));
  const int64_t cores = processor().cores;
  if (config.train.threads > cores)
    note("train.threads", cat(config.train.threads, " threads on ", cores,
                              " cores wait for each other; 0 takes all cores"));
}

}  // namespace

std::vector<std::string> config_notes(const LoadedConfig& loaded, const Graph& graph,
                                      const BatchArithmetic& arithmetic) {
  std::vector<std::string> notes;
  for (const auto& [path, why] : unread_keys(loaded, graph)) {
    const YamlNode* node = node_at(loaded.resolved, path);
    std::string key;
    const YamlNode* written = node == nullptr ? nullptr : written_below(*node, path, &key);
    if (written != nullptr) notes.push_back(cat(written->origin, ": ", key, " is not read: ", why));
  }
  note_values(loaded, arithmetic, &notes);
  return notes;
}

}  // namespace braid
