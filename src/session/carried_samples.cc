#include "session/carried_samples.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "comm/rank_texts.h"
#include "comm/transfer_audit.h"
#include "program/carried_groups.h"
#include "program/partition.h"
#include "samples/drawn_groups.h"
#include "session/open_step.h"
#include "session/steps_ahead.h"

namespace braid::inline session {
namespace {

constexpr const char* kCarriedStore = "samples";
constexpr const char* kProgress = "progress";

CallId carrying_call(const Program& program) {
  for (size_t i = 0; i < program.graph.calls.size(); ++i)
    if (program.graph.calls[i].carried_steps > 0) return CallId{static_cast<int32_t>(i)};
  BRAID_CHECK(false, "a generation carries samples");
}

int64_t replicas_of(const Program& program) {
  return program.calls.empty() ? 1 : program.calls[carrying_call(program).value].strategy.dp;
}

// Log-probs survive as text, bit for bit.
Json generated_json(const std::map<int64_t, Generated>& progress) {
  Json out = Json::array();
  for (const auto& [id, each] : progress)
    out.push_back({{"sample", id},
                   {"response_ids", each.response_ids},
                   {"logprobs", each.logprobs},
                   {"finish", static_cast<int>(each.finish)}});
  return out;
}

Status read_generated(const Json& list, std::map<int64_t, Generated>* progress) {
  for (const Json& json : list) {
    Generated each;
    BRAID_ASSIGN(each.sample.value, json_field<int64_t>(json, "sample"));
    BRAID_ASSIGN(each.response_ids, json_field<std::vector<int32_t>>(json, "response_ids"));
    BRAID_ASSIGN(each.logprobs, json_field<std::vector<float>>(json, "logprobs"));
    BRAID_ASSIGN(const int finish, json_field<int>(json, "finish"));
    each.finish = static_cast<Finish>(finish);
    (*progress)[each.sample.value] = std::move(each);
  }
  return ok_status();
}

}  // namespace

CarriedSamples::CarriedSamples(const StepContext& step, const CallSamples& samples,
                               Generation& generation)
    : step_(step),
      samples_(samples),
      generation_(generation),
      generate_(carrying_call(step.program)),
      replicas_(replicas_of(step.program)),
      waiting_(step.program),
      left_(step.program) {
  const RolloutConfig& rollout = step.config.rollout;
  BRAID_CHECK(
      rollout.prompts_per_step % replicas_ == 0 && prompts_in_flight(rollout) % replicas_ == 0,
      "replicas have equally many prompts");
}

int64_t CarriedSamples::lacking() const {
  return prompts_in_flight(step_.config.rollout) - count_groups(waiting_.store.counts("groups"));
}

int64_t CarriedSamples::samples_taken() const {
  return step_.config.rollout.prompts_per_step * step_.config.rollout.samples_per_prompt;
}

SampleStore CarriedSamples::part_of(const SampleStore& store, int64_t replica) const {
  const auto rows = static_cast<int64_t>(store.size());
  std::vector<bool> kept(store.size(), false);
  const int64_t end = run_begin(rows, replica + 1, replicas_);
  for (int64_t row = run_begin(rows, replica, replicas_); row < end; ++row) kept[row] = true;
  SampleStore out = store;
  out.retain(kept);
  return out;
}

void CarriedSamples::join() {
  left_ = Samples(step_.program);
  own_.clear();
  own_taken_.clear();
  SampleStore all(step_.program.graph);
  for (int64_t replica = 0; replica < replicas_; ++replica) {
    all.append(part_of(waiting_.store, replica));
    all.append(part_of(store(), replica));
  }
  store() = std::move(all);
  samples_.rows(call()).forget();
}

void CarriedSamples::begin_generation() {
  own_ = samples_.rows(call()).mine(generate_, step_.position.step, step_.rank());
  generation_.go_on_with(waiting_.progress);
}

// Of a sample without a token the present one.
int64_t CarriedSamples::oldest_version(size_t row) const {
  const std::map<int64_t, int64_t>& drawn = store().sample(row).drawn;
  return drawn.empty() ? step_.position.step : drawn.begin()->first;
}

std::optional<std::vector<bool>> CarriedSamples::taken() const {
  const SampleStore& store = this->store();
  const int64_t too_old = samples_.learning_step(call()) - most_age(step_.program);
  std::vector<GroupInFlight> groups;
  std::vector<size_t> group_of;  // by own row
  for (size_t i = 0; i < own_.size(); ++i) {
    if (i == 0 || store.sample(own_[i]).group != store.sample(own_[i - 1]).group)
      groups.push_back({.finished = true});
    GroupInFlight& group = groups.back();
    group.finished = group.finished && generation_.progress(store, own_[i]).finished;
    group.due = group.due || oldest_version(own_[i]) <= too_old;
    group_of.push_back(groups.size() - 1);
  }
  const auto taken = taken_groups(groups, step_.config.rollout.prompts_per_step / replicas_);
  if (!taken) return std::nullopt;
  std::vector<bool> out;
  for (const size_t group : group_of) out.push_back((*taken)[group]);
  return out;
}

// What the present weights have drawn of each sample.
void CarriedSamples::note_drawn() {
  for (const size_t row : own_) {
    int64_t before = 0;
    for (const auto& [version, tokens] : store().sample(row).drawn) before += tokens;
    const int64_t now = generation_.progress(store(), row).produced;
    if (now > before) store().note_drawn(row, step_.position.step, now - before);
  }
}

Status CarriedSamples::end_generation() {
  const std::vector<bool> kept = taken().value();
  note_drawn();
  Rows others;
  for (size_t i = 0; i < own_.size(); ++i) (kept[i] ? own_taken_ : others).push_back(own_[i]);
  BRAID_ASSIGN(left_.progress, generation_.leave(store(), others));
  return ok_status();
}

// Of each row a replica says whether the step takes it, then the tokens that each version of the
// weights has drawn of it, the present one first.
int64_t CarriedSamples::words_of_row() const { return 2 + most_age(step_.program); }

void CarriedSamples::say(int32_t* words) const {
  if (!samples_.rows(call()).leads_replica(generate_, step_.rank())) return;
  const int64_t each = words_of_row();
  for (const size_t row : own_taken_) words[each * row] = 1;
  for (const size_t row : own_)
    for (const auto& [version, tokens] : store().sample(row).drawn) {
      const int64_t age = step_.position.step - version;
      BRAID_CHECK(age >= 0 && 1 + age < each, "samples are carried too long");
      words[each * row + 1 + age] = static_cast<int32_t>(tokens);
    }
}

std::vector<bool> CarriedSamples::hear(const int32_t* words) {
  const int64_t each = words_of_row();
  std::vector<bool> kept;
  for (const size_t row : store().all_rows()) {
    const int32_t* const said = words + each * row;
    kept.push_back(said[0] > 0);
    std::map<int64_t, int64_t> drawn;
    for (int64_t age = 0; 1 + age < each; ++age)
      if (said[1 + age] > 0) drawn[step_.position.step - age] = said[1 + age];
    store().set_drawn(row, std::move(drawn));
  }
  return kept;
}

// In one sum. No rank has failed: what fetched the samples has said so, and a generation that fails
// ends its rank.
Result<std::vector<bool>> CarriedSamples::tell() {
  const auto rows = static_cast<int64_t>(store().size());
  const at::Tensor words = at::zeros({words_of_row() * rows}, at::kInt);
  auto* const said = words.mutable_data_ptr<int32_t>();
  say(said);
  if (Communicator* everyone = step_.exchange.everyone(); everyone != nullptr) {
    const RanksTalk talk;
    BRAID_TRY(everyone->all_reduce(words, Reduce::kSum, "what a generation has left").wait());
  }
  return hear(said);
}

void CarriedSamples::note_metrics(const std::vector<bool>& kept) const {
  if (step_.rank() != 0) return;
  Metrics& metrics = samples_.metrics(call());
  double carried = 0, tokens = 0;
  for (const size_t row : store().all_rows()) {
    const std::map<int64_t, int64_t>& drawn = store().sample(row).drawn;
    if (kept[row]) {
      metrics["rollout/continued_frac"].add(drawn.size() > 1 ? 1 : 0);
      continue;
    }
    ++carried;
    for (const auto& [version, count] : drawn) tokens += static_cast<double>(count);
  }
  metrics["rollout/carried_samples"].add(carried);
  metrics["rollout/carried_tokens"].add(tokens);
}

Status CarriedSamples::settle() {
  BRAID_ASSIGN(const std::vector<bool> kept, tell());
  note_metrics(kept);
  std::vector<bool> others = kept;
  others.flip();
  left_.store = store();
  left_.store.retain(others);
  for (const Field& field : call().writes) left_.store.drop(field.name);
  store().retain(kept);
  samples_.exchange(call()).holdings().retain(kept);
  samples_.rows(call()).forget();
  std::vector<int64_t> versions;
  for (const size_t row : store().all_rows()) versions.push_back(oldest_version(row));
  store().set_counts(kWeightsVersion, std::move(versions));
  return ok_status();
}

Result<Json> CarriedSamples::save(bool open) {
  Samples& of = open ? left_ : waiting_;
  std::map<int64_t, Generated> progress = of.progress;
  const auto hear = [&](const std::string& text) -> Status {
    BRAID_ASSIGN(const Json list, parse_json(text, "what a rank carries"));
    return read_generated(list, &progress);
  };
  BRAID_TRY(merge_to_first(step_.exchange.everyone(),
                           {[&] { return generated_json(progress).dump(); }, hear},
                           "what is carried"));
  if (step_.rank() != 0) return Json();
  BRAID_TRY(step_.reader.read(of.store.all_rows(), of.store).at("data.train"));
  NamedTensors none;
  Json out = {{kProgress, generated_json(progress)}};
  BRAID_ASSIGN(out[kCarriedStore], store_json(of.store, none));
  out[kCarriedStore]["counts"] = Json::object();  // they follow from what is there
  return out;
}

Status CarriedSamples::load(bool open, const Json& json) {
  Samples read(step_.program);
  BRAID_ASSIGN(const Json samples, json_field<Json>(json, kCarriedStore));
  BRAID_ASSIGN(const Json progress, json_field<Json>(json, kProgress));
  BRAID_TRY(load_store(samples, {}, read.store));
  BRAID_TRY(read_generated(progress, &read.progress));
  if (read.store.size() > 0) {
    BRAID_ASSIGN(const TokenLists* prompts, read.store.tokens("prompt_ids"));
    for (const size_t row : read.store.all_rows())
      if (const auto found = read.progress.find(read.store.sample(row).id.value);
          found != read.progress.end())
        found->second.prompt_ids = (*prompts)[row];
  }
  (open ? left_ : waiting_) = std::move(read);
  return ok_status();
}

}  // namespace braid::inline session
