// Keys that were written but that this run does not read, and values that work but are seldom
// meant: one warning each, with the place.
#include "braid/train/notes.h"

#include <algorithm>
#include <functional>

#include "base/text.h"
#include "batching/cache_pages.h"
#include "config/origin.h"
#include "host/machine.h"

namespace braid {
namespace {

constexpr double kHighLearningRate = 0.01;

// Adds what is to be said of a key's value.
using NoteKey = std::function<void(const std::string& key, const std::string& text)>;

const YamlNode* node_at(const YamlNode& root, const std::string& path) {
  const YamlNode* node = &root;
  for (const std::string& key : split(path, '.'))
    if (node = node->find(key); node == nullptr) return nullptr;
  return node;
}

// A cache for more than all sequences in flight stays empty beyond them.
void note_cache(const Config& config, const NoteKey& note) {
  const RolloutConfig& rollout = config.rollout;
  const int64_t longest = config.data.max_prompt_length + rollout.max_response_length;
  const int64_t pages = pages_for(longest);
  const int64_t most = rollout.max_concurrent * pages * kPageTokens;
  if (rollout.kv_budget_tokens > most)
    note("rollout.kv_budget_tokens",
         cat(rollout.kv_budget_tokens, ", but rollout.max_concurrent = ", rollout.max_concurrent,
             " sequences of up to ", longest, " tokens take ", most));
}

void note_values(const LoadedConfig& loaded, const RunFacts& run, const BatchArithmetic& arithmetic,
                 std::vector<std::string>* notes) {
  const Config& config = loaded.config;
  const NoteKey note = [&](const std::string& key, const std::string& text) {
    if (!why_unread(key, run).empty()) return;  // which is said already
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
  note_cache(config, note);
  if (config.report.html && !config.log.jsonl)
    note("report.html", "is made of metrics.jsonl, and log.jsonl is false: there will be no page");
  const int64_t cores = processor().cores;
  if (config.train.threads > cores)
    note("train.threads", cat(config.train.threads, " threads on ", cores,
                              " cores wait for each other; 0 takes all cores"));
}

}  // namespace

std::vector<std::string> config_notes(const LoadedConfig& loaded, const RunFacts& run,
                                      const BatchArithmetic& arithmetic) {
  std::vector<std::string> notes = run_key_notes(loaded.resolved, run);
  note_values(loaded, run, arithmetic, &notes);
  return notes;
}

}  // namespace braid
