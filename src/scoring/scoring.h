// The reward call of one rank: what responses are worth, from the list of rewards and its reward
// models, or from a recorded rollout; penalties; recording. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "config/options.h"
#include "data/tokenizer/tokenizer.h"
#include "inputs/reward_reader.h"
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

// What one rank has found in a reward call and not yet told the others.
struct FoundScores {
  Rows rows;  // that it was asked about
  ScoredSamples scored;
  std::map<size_t, double> of_model;  // by row
};

// Adds what was found of further rows.
void append(const Rows& rows, ScoredSamples scored, FoundScores* found);

// Keeps what was found of the rows that are marked, under the numbers that they have without the
// others.
void retain(const std::vector<bool>& kept, FoundScores* found);

// Of rewards that are roles of the graph, by their place in the list: a number for each row.
using ModelScores = std::map<size_t, std::vector<double>>;

// What training uses of a sample's sum of rewards: clipped, less the penalty of a response that was
// cut off, less the one that grows over the last `overlong_buffer` of `most` tokens (Yu et al.,
// DAPO, 2025, section 3.4, eq. 13).
double penalized(double raw, int64_t tokens, bool truncated, const RewardTotalOptions& options,
                 int64_t most);

// Whether the rewards of the list are asked; a replayed rollout brings their values.
bool asks_rewards(const Config& config, const Graph& graph);

class Scoring {
 public:
  // The rewards and, aligned with them, the models of those of type model that are no role of the
  // graph, and how models read texts. REQUIRES: `config`, the tokenizer (or null) and models whose
  // weights are shared outlive this.
  Scoring(const Config& config, const Tokenizer* tokenizer,
          std::vector<std::unique_ptr<Reward>> rewards, RewardModels models, RewardReaders readers)
      : config_(config),
        tokenizer_(tokenizer),
        rewards_(std::move(rewards)),
        models_(std::move(models)),
        readers_(std::move(readers)) {}

  // Asks the rewards of the list about these rows of step `step` and the responses that `call`
  // reads. `scores` has what reward models
  // that are roles of the graph gave each of the rows. kStopped where a stop signal ended the wait
  // for the others.
  Result<ScoredSamples> score(const Call& call, const SampleStore& store, const Rows& rows,
                              int64_t step, const ModelScores& scores);
  // What the recorded rows, by sample id, say that they are worth.
  static ScoredSamples replayed(const std::map<int64_t, RolloutRow>& recorded,
                                const SampleStore& store, const Rows& rows);

  // Under rollout.record, appends the rows to RUN/rollouts.jsonl as those of step `step`.
  Status record(const Call& call, const ScoredSamples& scored, const SampleStore& store,
                const Rows& rows, int64_t step);

  // Those that are no role of the graph.
  const RewardModels& models() const { return models_; }
  const RewardReaders& readers() const { return readers_; }
  // How a reward model that is a role of the graph reads texts; empty where it reads the policy's
  // ids, and of other roles.
  const std::optional<RewardReader>& reader_of(const std::string& role) const;
  // A store with what the reward model of a call reads of these rows in the place of the policy's
  // ids. REQUIRES: it has a reader.
  Result<SampleStore> as_read_by(const Call& call, const Graph& graph, const SampleStore& store,
                                 const Rows& rows) const;

 private:
  Result<std::vector<RewardSample>> texts(const Call& call, const SampleStore& store,
                                          const Rows& rows) const;
  Result<std::vector<RewardSample>> samples(const Call& call, const SampleStore& store,
                                            const Rows& rows) const;
  void keep_comparable(const SampleStore& store, const Rows& rows, RewardTotals& totals) const;
  Status add_penalties(const Call& call, const SampleStore& store, const Rows& rows,
                       ScoredSamples& scored) const;
  Status open_recorder(const std::string& responses, SampleId first, int64_t step);

  const Config& config_;
  const Tokenizer* tokenizer_;
  std::vector<std::unique_ptr<Reward>> rewards_;
  RewardModels models_;
  RewardReaders readers_;
  std::optional<RolloutRecorder> recorder_;
  int64_t recorded_step_ = -1;  // the last one
  // Of it: fields, and the first of the samples that were written together.
  std::set<std::pair<std::string, SampleId>> recorded_parts_;
};

// The mean of squares, by which reward/raw_std is known once the whole step is.
inline constexpr const char* kRawSquares = "reward/raw_squares";

// Answers of the list that did not come in time, or were errors.
struct RewardFailures {
  int64_t timeouts = 0, errors = 0;
};

// reward/*: means of what was found; and of a whole step, failures and who was left out.
void note_rewards(const ScoredSamples& scored, Metrics& metrics);
void note_failures(const RewardFailures& failures, const std::vector<bool>& kept, Metrics& metrics);

}  // namespace braid::inline scoring
