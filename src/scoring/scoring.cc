#include "scoring/scoring.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/run_folder.h"
#include "config/algorithm_traits.h"
#include "data/response_text.h"
#include "host/file.h"
#include "plan/make_problem.h"
#include "reward/batches.h"
#include "scoring/score_context.h"
#include "scoring/score_samples.h"

namespace braid::inline scoring {

namespace {

template <typename T>
void keep_places(const std::vector<size_t>& places, std::vector<T>* values) {
  if (values->empty()) return;
  std::vector<T> kept;
  for (const size_t place : places) kept.push_back((*values)[place]);
  *values = std::move(kept);
}

}  // namespace

void append(const Rows& rows, ScoredSamples scored, FoundScores* found) {
  const auto add = [](auto* to, const auto& more) {
    to->insert(to->end(), more.begin(), more.end());
  };
  ScoredSamples& all = found->scored;
  const size_t before = found->rows.size();
  add(&found->rows, rows);
  add(&all.raw, scored.raw), add(&all.total, scored.total), add(&all.kept, scored.kept);
  for (auto& [name, values] : scored.by_name) {
    all.by_name[name].resize(before, std::nan(""));
    add(&all.by_name[name], values);
  }
  for (auto& [name, values] : all.by_name) values.resize(found->rows.size(), std::nan(""));
  all.timeouts += scored.timeouts, all.errors += scored.errors;
}

void retain(const std::vector<bool>& kept, FoundScores* found) {
  std::vector<size_t> numbers(kept.size(), 0), places;
  size_t left = 0;
  for (size_t row = 0; row < kept.size(); ++row) {
    numbers[row] = left;
    if (kept[row]) ++left;
  }
  Rows rows;
  for (size_t i = 0; i < found->rows.size(); ++i) {
    if (!kept[found->rows[i]]) continue;
    rows.push_back(numbers[found->rows[i]]);
    places.push_back(i);
  }
  found->rows = std::move(rows);
  ScoredSamples& scored = found->scored;
  keep_places(places, &scored.raw);
  keep_places(places, &scored.total);
  keep_places(places, &scored.kept);
  for (auto& [name, values] : scored.by_name) keep_places(places, &values);
  std::map<size_t, double> of_model;
  for (const auto& [row, value] : found->of_model)
    if (kept[row]) of_model[numbers[row]] = value;
  found->of_model = std::move(of_model);
}

bool asks_rewards(const Config& config, const Graph& graph) {
  return generates(graph) && config.rollout.replay.empty();
}

// What is known of rows beside whether they were cut.
Result<std::vector<RewardSample>> Scoring::texts(const Call& call, const SampleStore& store,
                                                 const Rows& rows) const {
  BRAID_ASSIGN(const TokenLists* prompts, store.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store.tokens(store.responses_of(call)));
  std::vector<RewardSample> out;
  for (const size_t row : rows) {
    RewardSample sample;
    sample.sample_id = store.sample(row).id.value;
    sample.group = store.sample(row).group.value;
    sample.prompt = store.sample(row).prompt;
    sample.messages = store.sample(row).messages;
    sample.prompt_ids = (*prompts)[row];
    sample.response_ids = (*responses)[row];
    sample.extra = store.sample(row).extra;
    if (tokenizer_ != nullptr) {
      BRAID_ASSIGN(sample.response,
                   response_text(*tokenizer_, sample.response_ids, config_.rollout.stop));
    }
    out.push_back(std::move(sample));
  }
  return out;
}

Result<std::vector<RewardSample>> Scoring::samples(const Call& call, const SampleStore& store,
                                                   const Rows& rows) const {
  BRAID_ASSIGN(std::vector<RewardSample> out, texts(call, store, rows));
  BRAID_ASSIGN(const at::Tensor truncated, store.reals(store.cut_flag_of(call), rows));
  for (size_t i = 0; i < out.size(); ++i)
    out[i].truncated = truncated[static_cast<int64_t>(i)].item<float>() != 0;
  return out;
}

const std::optional<RewardReader>& Scoring::reader_of(const std::string& role) const {
  static const std::optional<RewardReader> kNone;
  const std::optional<size_t> index =
      is_reward_role(role) ? reward_model_index(config_, role) : std::nullopt;
  return index && *index < readers_.size() ? readers_[*index] : kNone;
}

Result<SampleStore> Scoring::as_read_by(const Call& call, const Graph& graph,
                                        const SampleStore& store, const Rows& rows) const {
  BRAID_ASSIGN(std::vector<RewardSample> samples, texts(call, store, rows));
  BRAID_ASSIGN(samples, as_read(reader_of(call.role.value), std::move(samples)));
  return store_as_read(graph, store, rows, store.responses_of(call), std::move(samples));
}

// Where samples are compared within their group, one that is alone there cannot be.
void Scoring::keep_comparable(const SampleStore& store, const Rows& rows,
                              RewardTotals& totals) const {
  if (!compares_groups(config_.algorithm)) return;
  std::vector<int64_t> groups;
  for (const size_t row : rows) groups.push_back(store.sample(row).group.value);
  const int64_t dropped = drop_short_groups(groups, 2, &totals.kept);
  if (dropped > 0)
    log_warning(cat(dropped, dropped == 1 ? " group has" : " groups have",
                    " one sample left, which has nothing to be compared with; left out"));
}

Result<ScoredSamples> Scoring::score(const Call& call, const SampleStore& store, const Rows& rows,
                                     int64_t step, const ModelScores& scores) {
  BRAID_ASSIGN(const std::vector<RewardSample> asked, samples(call, store, rows));
  BRAID_ASSIGN(RewardOutcomes outcomes,
               collect_outcomes(rewards_, config_.reward, asked, score_context(config_, step)));
  for (size_t i = 0; i < models_.size(); ++i) {
    if (!models_[i]) continue;
    BRAID_ASSIGN(const std::vector<RewardSample> read, as_read(readers_[i], asked));
    outcomes.outcomes[i] = score_samples(*models_[i], read, config_.train);
  }
  for (const auto& [entry, values] : scores) outcomes.outcomes[entry] = score_outcomes(values);
  BRAID_ASSIGN(RewardTotals totals, apply_policies(config_.reward, outcomes, asked));
  keep_comparable(store, rows, totals);
  ScoredSamples scored;
  scored.raw = std::move(totals.total);
  scored.kept = std::move(totals.kept);
  scored.by_name = std::move(totals.by_name);
  scored.timeouts = totals.timeouts;
  scored.errors = totals.errors;
  BRAID_TRY(add_penalties(call, store, rows, scored));
  return scored;
}

double penalized(double raw, int64_t tokens, bool truncated, const RewardTotalOptions& options,
                 int64_t most) {
  double value = raw;
  if (options.clip > 0) value = std::clamp(value, -options.clip, options.clip);
  if (truncated) value -= options.missing_eos_penalty;
  const auto buffer = static_cast<double>(options.overlong_buffer);
  const double over = static_cast<double>(tokens - most) + buffer;
  if (buffer > 0 && over > 0) value -= options.overlong_penalty * std::min(over / buffer, 1.0);
  return value;
}

Status Scoring::add_penalties(const Call& call, const SampleStore& store, const Rows& rows,
                              ScoredSamples& scored) const {
  BRAID_ASSIGN(const at::Tensor truncated, store.reals(store.cut_flag_of(call), rows));
  const std::vector<int64_t> lens = store.lens_of(call);
  for (size_t i = 0; i < rows.size(); ++i)
    scored.total.push_back(penalized(scored.raw[i], lens[rows[i]],
                                     truncated[static_cast<int64_t>(i)].item<float>() != 0,
                                     config_.reward_total, config_.rollout.max_response_length));
  return ok_status();
}

ScoredSamples Scoring::replayed(const std::map<int64_t, RolloutRow>& recorded,
                                const SampleStore& store, const Rows& rows) {
  ScoredSamples scored;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RolloutRow& row = recorded.at(store.sample(rows[i]).id.value);
    scored.raw.push_back(row.raw_reward);
    scored.total.push_back(row.reward.value_or(std::nan("")));
    scored.kept.push_back(row.reward.has_value());
    for (const auto& [name, value] : row.reward_values) {
      std::vector<double>& values = scored.by_name[name];
      values.resize(rows.size(), std::nan(""));
      values[i] = value;
    }
  }
  return scored;
}

// A step that is begun again is written again. A step may write several times: what other calls
// wrote, and what it drew later.
Status Scoring::open_recorder(const std::string& responses, SampleId first, int64_t step) {
  const std::pair<std::string, SampleId> part(responses, first);
  const bool again =
      step < recorded_step_ || (step == recorded_step_ && recorded_parts_.count(part) > 0);
  if (step != recorded_step_ || again) recorded_parts_.clear();
  recorded_parts_.insert(part);
  recorded_step_ = step;
  if (recorder_ && !again) return ok_status();
  const std::string folder = run_folder(config_);
  BRAID_TRY(make_folder(folder));
  BRAID_ASSIGN(recorder_, RolloutRecorder::open(join_path(folder, kRolloutFile), step));
  return ok_status();
}

Status Scoring::record(const Call& call, const ScoredSamples& scored, const SampleStore& store,
                       const Rows& rows, int64_t step) {
  if (!config_.rollout.record) return ok_status();
  const std::string field = store.responses_of(call);
  BRAID_TRY(open_recorder(field, store.sample(rows.front()).id, step));
  const bool drawn = field == "response_ids";  // from a distribution of which there are log-probs
  BRAID_ASSIGN(const TokenLists* prompts, store.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store.tokens(field));
  at::Tensor logprobs_R;
  if (drawn) {
    BRAID_ASSIGN(logprobs_R, store.reals("sampler_logprobs", rows));
  }
  BRAID_ASSIGN(const at::Tensor truncated_S, store.reals(store.cut_flag_of(call), rows));
  const float* logprob = drawn ? logprobs_R.const_data_ptr<float>() : nullptr;
  std::vector<RolloutRow> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    const StoredSample& sample = store.sample(rows[i]);
    RolloutRow row;
    row.step = step;
    row.sample = sample.id;
    row.prompt_ids = (*prompts)[rows[i]];
    row.response_ids = (*responses)[rows[i]];
    if (!drawn) row.responses = field;
    if (drawn) row.logprobs.assign(logprob, logprob + row.response_ids.size());
    if (drawn) logprob += row.response_ids.size();
    row.truncated = truncated_S[static_cast<int64_t>(i)].item<float>() != 0;
    if (scored.kept[i]) row.reward = scored.total[i];
    row.raw_reward = scored.raw[i];
    for (const auto& [name, values] : scored.by_name) row.reward_values[name] = values[i];
    row.prompt = sample.prompt;
    row.extra = sample.extra;
    out.push_back(std::move(row));
  }
  return recorder_->append(out);
}

void note_rewards(const ScoredSamples& scored, Metrics& metrics) {
  Metric raw;
  for (size_t i = 0; i < scored.raw.size(); ++i) {
    if (!scored.kept[i]) continue;
    raw.add(scored.raw[i]);
    metrics[kRawSquares].add(scored.raw[i] * scored.raw[i]);
  }
  for (const char* name : {"reward/raw_mean", "reward/raw_max", "reward/raw_min"})
    metrics[name].merge(raw);
  for (const auto& [name, values] : scored.by_name)
    for (const double value : values)
      if (std::isfinite(value)) metrics["reward/" + name + "_mean"].add(value);
}

void note_failures(const RewardFailures& failures, const std::vector<bool>& kept,
                   Metrics& metrics) {
  metrics["reward/timeout"].add(static_cast<double>(failures.timeouts));
  metrics["reward/error"].add(static_cast<double>(failures.errors));
  metrics["reward/left_out"].add(static_cast<double>(std::count(kept.begin(), kept.end(), false)));
}

}  // namespace braid::inline scoring
