// Reward models with a tokenizer of their own read texts, not the policy's ids. Immutable;
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/options.h"
#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "reward/reward.h"

namespace braid::inline inputs {

class RewardReader {
 public:
  // Of a reward of type model whose folder has another tokenizer than the policy's: one that gives
  // an id of the policy's another token, or none. Empty where it means the same by all of them, or
  // where one of the two has no tokenizer. `date` is what a chat template sees as today (""
  // = the day of this process). Errors name the reward.
  static Result<std::optional<RewardReader>> load(const RewardConfig& reward,
                                                  const std::optional<Tokenizer>& policy,
                                                  const std::string& date);

  // "token 8 is '3' here and '7' there".
  const std::string& difference() const { return difference_; }

  // The sample with the ids that the model reads in the place of the policy's. A conversation is
  // rendered with the response as the assistant's answer by the model's chat template, and has no
  // special tokens but those that this writes; a text is prompt and response, with the special
  // tokens that the tokenizer adds: what `braid score` makes of {"messages"} and {"text"}. Where
  // prompt and response meet is of no matter to the score: prompt_ids are what the ids have in
  // common with those of the prompt alone. Errors name reward and sample: a template that refuses
  // the conversation, more tokens than the model has positions.
  Result<RewardSample> read(RewardSample sample) const;

 private:
  RewardReader(std::string name, Tokenizer own, Tokenizer policy)
      : name_(std::move(name)), own_(std::move(own)), policy_(std::move(policy)) {}
  Result<std::vector<int32_t>> conversation_ids(const RewardSample& sample, bool answered) const;
  Result<std::vector<int32_t>> text_ids(const RewardSample& sample, bool answered) const;
  Status read_limits(const std::string& folder);

  std::string name_, date_, difference_;
  Tokenizer own_, policy_;
  int64_t positions_ = 0;  // most tokens of a sample; 0: no limit
};

// Aligned with the list of rewards; empty for those that read the policy's ids or none.
using RewardReaders = std::vector<std::optional<RewardReader>>;

Result<RewardReaders> load_reward_readers(const Config& config,
                                          const std::optional<Tokenizer>& policy);

// That readers can read the first line of the data with an answer.
Status check_reward_texts(const RewardReaders& readers, const DataSet& data);

// The samples as the model of a reader reads them; as they are without one.
Result<std::vector<RewardSample>> as_read(const std::optional<RewardReader>& reader,
                                          std::vector<RewardSample> samples);

}  // namespace braid::inline inputs
