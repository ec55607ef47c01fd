// The reward call of one rank: what responses are worth, from the list of rewards and its reward
// models, or from a recorded rollout; penalties; recording. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "config/options.h"
#include "data/tokenizer/tokenizer.h"
#include "reward/reward.h"
#include "samples/rollout_file.h"
#include "samples/sample_store.h"
#include "weights/load_models.h"

namespace braid::inline scoring {

// What the reward call found, per row.
struct ScoredSamples {
  std::vector<double> raw;    // weighted sum of the list; NaN where the sample was dropped
  std::vector<double> total;  // after clipping and penalties: what training uses
  std::vector<bool> kept;     // false: failed under on_error: drop, no reward applies, or alone
  std::map<std::string, std::vector<double>> by_name;
  int64_t timeouts = 0, errors = 0;
};

// Whether the rewards of the list are asked; a replayed rollout brings their values.
bool asks_rewards(const Config& config, const Graph& graph);

class Scoring {
 public:
  // The rewards and, aligned with them, the models of those of type model that are no role of the
  // graph. REQUIRES: `config`, the tokenizer (or null) and models whose weights are shared outlive
  // this.
  Scoring(const Config& config, const Tokenizer* tokenizer,
          std::vector<std::unique_ptr<Reward>> rewards, RewardModels models)
      : config_(config),
        tokenizer_(tokenizer),
        rewards_(std::move(rewards)),
        models_(std::move(models)) {}

  // Asks the rewards of the list about these rows of step `step`. `scores` has what a reward model
  // that is a role of the graph gave each row; empty where there is none. kStopped where a stop
  // signal ended the wait for them.
  Result<ScoredSamples> score(const SampleStore& store, const Rows& rows, int64_t step,
                              const std::map<size_t, double>& scores);
  // What the recorded rows, by sample id, say that they are worth.
  static ScoredSamples replayed(const std::map<int64_t, RolloutRow>& recorded,
                                const SampleStore& store, const Rows& rows);

  // Under rollout.record, appends the rows to RUN/rollouts.jsonl as those of step `step`.
  Status record(const ScoredSamples& scored, const SampleStore& store, const Rows& rows,
                int64_t step);

  // Those that are no role of the graph.
  const RewardModels& models() const { return models_; }

 private:
  Result<std::vector<RewardSample>> samples(const SampleStore& store, const Rows& rows) const;
  void keep_comparable(const SampleStore& store, const Rows& rows, RewardTotals& totals) const;
  Status add_penalties(const SampleStore& store, const Rows& rows, ScoredSamples& scored) const;

  const Config& config_;
  const Tokenizer* tokenizer_;
  std::vector<std::unique_ptr<Reward>> rewards_;
  RewardModels models_;
  std::optional<RolloutRecorder> recorder_;
  int64_t recorded_step_ = -1;  // the last one
};

// reward/*: means of what was found, and failures.
void note_rewards(const ScoredSamples& scored, Metrics& metrics);

}  // namespace braid::inline scoring
