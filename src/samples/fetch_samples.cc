#include "samples/fetch_samples.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/name_seed.h"
#include "base/text.h"
#include "program/partition.h"

namespace braid::inline samples {
namespace {

const Call& fetching_call(const Graph& graph) {
  for (const Call& call : graph.calls)
    if (call.kind == CallKind::kFetch) return call;
  BRAID_CHECK(false, "a graph fetches its samples");
}

bool writes_field(const Call& call, const std::string& name) {
  return std::any_of(call.writes.begin(), call.writes.end(),
                     [&](const Field& field) { return field.name == name; });
}

// Of the second sample of a pair the response that was rejected.
const std::vector<int32_t>& response_of(const DataRecord& record, bool rejected) {
  return rejected ? record.rejected_ids : record.response_ids;
}

int64_t learned_of(const DataRecord& record, int64_t response) {
  if (record.learned.empty()) return response;
  return std::accumulate(record.learned.begin(), record.learned.end(), int64_t{0});
}

// Equal for equal prompts.
int64_t digest_of(const std::vector<int32_t>& ids) {
  const std::string_view bytes(reinterpret_cast<const char*>(ids.data()),
                               ids.size() * sizeof(int32_t));
  return static_cast<int64_t>(name_seed(ids.size(), bytes));
}

// For each sample another one before it, whose prompt is another where there is such a one: TRL's
// KTO shifts the completions of a batch so.
std::vector<size_t> mismatched(const std::vector<int64_t>& prompts) {
  const size_t samples = prompts.size();
  std::vector<size_t> out;
  for (size_t i = 0; i < samples; ++i) {
    size_t back = 1;
    while (back < samples && prompts[(i + samples - back) % samples] == prompts[i]) ++back;
    out.push_back((i + samples - (back < samples ? back : 1)) % samples);
  }
  return out;
}

}  // namespace

// By row; empty where the fetch writes no such field.
struct SampleReader::Told {
  std::vector<int64_t> prompt_lens, response_lens, learned, mismatched_lens;
  std::vector<size_t> mismatched;  // the rows whose responses they are compared with
};

SampleReader::SampleReader(const Graph& graph, const DataSet& data, const RolloutConfig& options,
                           int64_t rank, int64_t ranks)
    : fetch_(fetching_call(graph)),
      data_(data),
      rank_(rank),
      ranks_(ranks),
      pairs_(fetch_.function == "pairs"),
      answered_(writes_field(fetch_, "response_ids")),
      compares_(writes_field(fetch_, "mismatched_ids")),
      masks_(writes_field(fetch_, "loss_mask")),
      copies_(pairs_ ? 2 : (answered_ ? 1 : options.samples_per_prompt)) {
  for (const Field& field : fetch_.writes)
    if (field.type != FieldType::kCount) fields_.insert(field.name);
}

bool SampleReader::needed_by(const Call& call) const {
  // Rewards are given the texts.
  return call.kind == CallKind::kReward ||
         std::any_of(call.reads.begin(), call.reads.end(),
                     [&](const std::string& field) { return fields_.count(field) > 0; });
}

// Of a record as many numbers as of any other.
std::vector<int32_t> SampleReader::told_of(const DataRecord& record) const {
  std::vector<int32_t> out;
  const auto tell = [&](int64_t number) { out.push_back(static_cast<int32_t>(number)); };
  tell(std::ssize(record.prompt_ids));
  if (compares_) {
    const int64_t digest = digest_of(record.prompt_ids);
    tell(digest), tell(digest >> 32);  // its halves
  }
  for (int64_t k = 0; answered_ && k < copies_; ++k) {
    tell(std::ssize(response_of(record, pairs_ && k == 1)));
    if (masks_) tell(learned_of(record, out.back()));
  }
  return out;
}

Result<std::vector<int32_t>> SampleReader::read_share(int64_t cursor, int64_t prompts) {
  prompts_ = prompts;
  if (compares_ && prompts_ * copies_ < 2)
    return invalid_input(
        "rollout.prompts_per_step: a step of one sample has no completion of another prompt, which "
        "the baseline is estimated with; use 2 or more");
  records_.clear();
  std::vector<int32_t> out;
  const int64_t end = run_begin(prompts_, rank_ + 1, ranks_);
  for (int64_t p = run_begin(prompts_, rank_, ranks_); p < end; ++p) {
    BRAID_ASSIGN(const DataRecord* record, record_at(cursor + p));
    const std::vector<int32_t> told = told_of(*record);
    out.insert(out.end(), told.begin(), told.end());
  }
  return out;
}

Result<SampleReader::Told> SampleReader::all_told(
    const std::vector<std::vector<int32_t>>& told) const {
  std::vector<int32_t> numbers;
  for (const std::vector<int32_t>& of_rank : told)
    numbers.insert(numbers.end(), of_rank.begin(), of_rank.end());
  if (std::ssize(numbers) != prompts_ * told_numbers(fetch_, copies_))
    return Status{Code::kUnavailable, "what the ranks have read of the data: damaged"};
  Told out;
  std::vector<int64_t> digests;
  for (auto at = numbers.begin(); at != numbers.end();) {
    out.prompt_lens.insert(out.prompt_lens.end(), copies_, *at++);
    if (compares_) {
      const int64_t low = *at++ & int64_t{0xFFFFFFFF}, high = *at++;
      digests.insert(digests.end(), copies_, high << 32 | low);
    }
    for (int64_t k = 0; answered_ && k < copies_; ++k) {
      out.response_lens.push_back(*at++);
      if (masks_) out.learned.push_back(*at++);
    }
  }
  if (compares_) out.mismatched = mismatched(digests);
  for (const size_t other : out.mismatched) out.mismatched_lens.push_back(out.response_lens[other]);
  return out;
}

std::vector<StoredSample> SampleReader::samples_of(int64_t cursor, const Told& told) const {
  std::vector<StoredSample> out;
  for (int64_t row = 0; row < prompts_ * copies_; ++row) {
    StoredSample& sample = out.emplace_back();
    sample.group = GroupId{cursor + row / copies_};
    sample.id = SampleId{sample.group.value * copies_ + row % copies_};
    sample.here = false;
    if (compares_)
      sample.mismatched = cursor + static_cast<int64_t>(told.mismatched[row]) / copies_;
  }
  return out;
}

Status SampleReader::begin(int64_t cursor, const std::vector<std::vector<int32_t>>& told,
                           SampleStore& store) {
  BRAID_ASSIGN(Told all, all_told(told));
  store.begin(samples_of(cursor, all));
  // Where one rank has all rows, they follow from the tokens.
  if (ranks_ > 1) {
    store.set_counts(kPromptLens, std::move(all.prompt_lens));
    if (answered_) store.set_counts("response_lens", std::move(all.response_lens));
    if (masks_) store.set_counts(kLearnedTokens, std::move(all.learned));
    if (compares_) store.set_counts("mismatched_lens", std::move(all.mismatched_lens));
  }
  Rows share(run_begin(prompts_, rank_ + 1, ranks_) * copies_ -
             run_begin(prompts_, rank_, ranks_) * copies_);
  std::iota(share.begin(), share.end(), run_begin(prompts_, rank_, ranks_) * copies_);
  // Also where it is empty: the fields are there on all ranks.
  const Status filled = fill(share, store);
  records_.clear();
  return filled;
}

Status SampleReader::read(const Rows& rows, SampleStore& store) {
  std::set<GroupId> lacking;
  for (const size_t row : rows)
    if (!store.sample(row).here) lacking.insert(store.sample(row).group);
  if (lacking.empty()) return ok_status();
  Rows wanted;
  for (const size_t row : store.all_rows())
    if (!store.sample(row).here && lacking.count(store.sample(row).group) > 0)
      wanted.push_back(row);
  const Status filled = fill(wanted, store);
  records_.clear();
  return filled;
}

Result<const DataRecord*> SampleReader::record_at(int64_t position) {
  const auto known = records_.find(position);
  if (known != records_.end()) return &known->second;
  BRAID_ASSIGN(DataRecord record, data_.at(position));
  ++records_read_;
  return &(records_[position] = std::move(record));
}

Status SampleReader::fill(const Rows& rows, SampleStore& store) {
  TokenLists prompts, responses, others;
  std::vector<float> mask;            // of all response tokens, one sample after another
  std::vector<float> wanted, scores;  // of each sample
  for (const size_t row : rows) {
    const StoredSample& sample = store.sample(row);
    BRAID_ASSIGN(const DataRecord* record, record_at(sample.group.value));
    prompts.push_back(record->prompt_ids);
    responses.push_back(response_of(*record, pairs_ && sample.id.value % copies_ == 1));
    wanted.push_back(record->unwanted ? 0.0f : 1.0f);
    scores.push_back(static_cast<float>(record->score));
    mask.insert(mask.end(), record->learned.begin(), record->learned.end());
    if (record->learned.empty()) mask.resize(mask.size() + responses.back().size(), 1.0f);
    if (compares_) {
      BRAID_ASSIGN(const DataRecord* other, record_at(sample.mismatched));
      others.push_back(other->response_ids);
    }
  }
  for (const size_t row : rows) {
    const DataRecord& record = records_.at(store.sample(row).group.value);
    store.put_texts(row, record.prompt, record.extra, record.conversation);
  }
  BRAID_TRY(store.put_tokens("prompt_ids", rows, std::move(prompts)));
  if (!answered_) return ok_status();
  if (compares_) BRAID_TRY(store.put_tokens("mismatched_ids", rows, std::move(others)));
  BRAID_TRY(store.put_tokens("response_ids", rows, std::move(responses)));
  if (writes_field(fetch_, "wanted"))
    BRAID_TRY(store.put_reals("wanted", rows, at::tensor(wanted)));
  if (writes_field(fetch_, "score")) BRAID_TRY(store.put_reals("score", rows, at::tensor(scores)));
  return masks_ ? store.put_reals("loss_mask", rows, at::tensor(mask)) : ok_status();
}

void note_bad_rows(const Config& config, const DataSet& data, const RunPosition& position,
                   DataCheck& check) {
  const int64_t per_step = config.rollout.prompts_per_step;
  const int64_t more = position.step > 0 ? 0 : prompts_in_flight(config.rollout) - per_step;
  for (const BadRow& row : check.take_bad_rows()) {
    const int64_t ahead = data.next_position(row.index, position.cursor) - position.cursor;
    const int64_t step = position.step + std::max<int64_t>(0, ahead - more) / per_step + 1;
    log_warning(cat("data.train: ", row.message, "; ",
                    config.algorithm.dynamic_sampling
                        ? "the run is saved and ends before the step that draws it"
                    : step > config.train.total_steps
                        ? "no step of this run needs it"
                        : cat("step ", step, " of ", config.train.total_steps,
                              " is the first that needs it; the run is saved and ends before it")));
  }
}

}  // namespace braid::inline samples
