#include "passes/generation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "rollout/stop_strings.h"

namespace braid::inline passes {

SamplingOptions Generation::sampling(const Model& model) const {
  SamplingOptions out;
  if (greedy_) {
    out.temperature = 0;
  } else {
    out.temperature = options_.temperature;
    out.top_p = options_.top_p;
    out.top_k = options_.top_k;
    out.min_p = options_.min_p;
    out.repetition_penalty = options_.repetition_penalty;
  }
  out.min_new_tokens = options_.min_response_length;
  out.max_new_tokens = options_.max_response_length;
  out.ignore_eos = options_.ignore_eos;
  out.seed = static_cast<uint64_t>(seed_);
  for (const int64_t id : model.spec().eos_ids) out.stop_tokens.push_back(static_cast<int32_t>(id));
  return out;
}

int64_t Generation::drawn_for(const SampleStore& store, size_t row) const {
  const StoredSample& sample = store.sample(row);
  return greedy_ ? first_.at(sample.group.value) : sample.id.value;
}

Status Generation::replay(const SampleStore& store, int64_t step) {
  if (!file_) {
    BRAID_ASSIGN(file_, RolloutReplay::open(options_.replay));
  }
  BRAID_ASSIGN(const TokenLists* prompts, store.tokens("prompt_ids"));
  std::map<int64_t, RolloutRow>& replayed = replayed_[responses_];
  replayed.clear();
  for (const size_t row : rows_) {
    const SampleId id = store.sample(row).id;
    BRAID_ASSIGN(RolloutRow recorded,
                 file_->find(step, id, greedy_ ? responses_ : std::string(), (*prompts)[row]));
    Generated& sample = finished_[id.value];
    sample.response_ids = recorded.response_ids;
    sample.logprobs = recorded.logprobs;
    sample.finish = recorded.truncated ? Finish::kLength : Finish::kStop;
    replayed[id.value] = std::move(recorded);
  }
  return ok_status();
}

Status Generation::submit(const SampleStore& store) {
  const SamplingOptions drawn = sampling(*model_);
  BRAID_ASSIGN(const TokenLists* prompts, store.tokens("prompt_ids"));
  std::vector<Engine::Exported> begun;  // by earlier weights
  for (const size_t row : rows_) {
    const SampleId id = store.sample(row).id;
    if (drawn_for(store, row) != id.value) continue;
    Request request{id, (*prompts)[row], drawn, predicted(row)};
    const auto earlier = earlier_.find(id.value);
    if (earlier == earlier_.end() || earlier->second.response_ids.empty()) {
      BRAID_TRY(engine_->submit(std::move(request)));
    } else if (earlier->second.finish == Finish::kRunning) {
      begun.push_back({std::move(request), std::move(earlier->second), {}});
    } else {
      finished_[id.value] = std::move(earlier->second);
    }
  }
  earlier_.clear();
  // Each comes before all that wait, so the first one last.
  for (auto each = begun.rbegin(); each != begun.rend(); ++each)
    BRAID_TRY(engine_->import_sequence(std::move(*each)));
  return ok_status();
}

Status Generation::begin(const Call& call, Model& model, std::unique_ptr<EngineRanks> ranks,
                         const SampleStore& store, const Rows& rows, int64_t step,
                         std::vector<int64_t> predicted) {
  call_ = &call;
  responses_ = store.responses_of(call);
  greedy_ = call.function == "greedy";
  model_ = &model;
  rows_ = rows;
  predicted_ = std::move(predicted);
  finished_.clear();
  engine_.reset();
  ranks_ = std::move(ranks);
  const bool replays = !options_.replay.empty();
  first_.clear();
  for (const size_t row : rows_) {
    const StoredSample& sample = store.sample(row);
    if (greedy_) first_.emplace(sample.group.value, sample.id.value);
  }
  if (replays) return replay(store, step);
  EngineOptions options;
  options.kv_budget_tokens = options_.kv_budget_tokens;
  options.max_concurrent = options_.max_concurrent;
  options.longest_first = !predicted_.empty();
  options.ranks = ranks_.get();
  BRAID_ASSIGN(engine_, Engine::create(model, options));
  if (!options_.stop.empty()) {
    if (tokenizer_ == nullptr)
      return invalid_input("rollout.stop: stop strings need a tokenizer; set tokenizer.path");
    engine_->set_stop_check(stop_at_strings(*tokenizer_, options_.stop));
  }
  return submit(store);
}

Status Generation::round() { return drained() ? ok_status() : engine_->round(); }

Status Generation::settle() {
  if (drained()) return ok_status();
  BRAID_ASSIGN(std::vector<Generated> finished, engine_->settle());
  for (Generated& sample : finished) finished_[sample.sample.value] = std::move(sample);
  return ok_status();
}

Status Generation::make_room() { return engine_ ? engine_->make_room() : ok_status(); }

void Generation::abandon() {
  engine_.reset();
  ranks_.reset();
  finished_.clear();
  if (model_ != nullptr) model_->rest();
  model_ = nullptr;
}

const Generated* Generation::finished(const SampleStore& store, size_t row) const {
  const auto found = finished_.find(engine_ ? drawn_for(store, row) : store.sample(row).id.value);
  return found == finished_.end() ? nullptr : &found->second;
}

int64_t Generation::left(const SampleStore& store) const {
  return std::count_if(rows_.begin(), rows_.end(),
                       [&](size_t row) { return finished(store, row) == nullptr; });
}

SampleProgress Generation::progress(const SampleStore& store, size_t row) const {
  SampleProgress out;
  const Generated* const done = finished(store, row);
  out.finished = done != nullptr;
  out.produced = out.finished ? static_cast<int64_t>(done->response_ids.size())
                              : engine_->produced(store.sample(row).id).value_or(0);
  return out;
}

const std::vector<int32_t>& Generation::drawn(const SampleStore& store, size_t row) const {
  const std::vector<int32_t>* const tokens = engine_->drawn(store.sample(row).id);
  BRAID_CHECK(tokens != nullptr, cat("this rank does not generate row ", row));
  return *tokens;
}

Result<Engine::Exported> Generation::give(const SampleStore& store, size_t row, int64_t from) {
  std::erase(rows_, row);
  return engine_->export_sequence(store.sample(row).id, from);
}

int64_t Generation::cached(const SampleStore& store, size_t row) const {
  return engine_ ? engine_->cached(store.sample(row).id) : 0;
}

std::vector<KvLayer> Generation::copy_cache(const SampleStore& store, size_t row,
                                            int64_t tokens) const {
  return engine_->copy_cache(store.sample(row).id, tokens);
}

Status Generation::take(const SampleStore& store, size_t row, Generated progress,
                        std::vector<KvLayer> kv) {
  rows_.push_back(row);
  std::sort(rows_.begin(), rows_.end());
  Request request{store.sample(row).id, progress.prompt_ids, sampling(*model_), predicted(row)};
  return engine_->import_sequence({std::move(request), std::move(progress), std::move(kv)});
}

Result<std::map<int64_t, Generated>> Generation::leave(const SampleStore& store, const Rows& rows) {
  std::map<int64_t, Generated> out;
  for (const size_t row : rows) {
    const SampleId id = store.sample(row).id;
    if (auto done = finished_.extract(id.value); !done.empty()) {
      out.insert(std::move(done));
    } else {
      BRAID_ASSIGN(Engine::Exported unfinished, engine_->take_out(id));
      out[id.value] = std::move(unfinished.progress);
    }
  }
  forget(rows);
  return out;
}

std::vector<KvLayer> Generation::room_for(int64_t tokens) const {
  const ModelOptions& options = model_->options();
  const auto of = at::TensorOptions().dtype(options.dtype).device(options.device);
  const int64_t heads = model_->local_spec().kv_heads, width = model_->spec().head_dim;
  std::vector<KvLayer> out;
  const LayerRange held = model_->ranges().front();
  for (int64_t layer = held.begin; layer < held.end; ++layer)
    out.push_back({at::empty({tokens, heads, width}, of), at::empty({tokens, heads, width}, of)});
  return out;
}

void Generation::forget(const Rows& rows) {
  const std::set<size_t> gone(rows.begin(), rows.end());
  std::erase_if(rows_, [&](size_t row) { return gone.count(row) > 0; });
}

Status Generation::write(SampleStore& store, const Rows& rows) {
  TokenLists responses;
  std::vector<float> logprobs, truncated;
  for (const size_t row : rows) {
    const Generated* const done = finished(store, row);
    BRAID_CHECK(done != nullptr, "a sample is written that has not finished");
    const Generated& sample = *done;
    logprobs.insert(logprobs.end(), sample.logprobs.begin(), sample.logprobs.end());
    truncated.push_back(sample.finish == Finish::kLength ? 1 : 0);
    responses.push_back(sample.response_ids);
  }
  BRAID_TRY(store.put_tokens(responses_, rows, std::move(responses)));
  for (const Field& field : call_->writes) {
    if (field.type == FieldType::kReal)
      BRAID_TRY(store.put_reals(field.name, rows, at::tensor(logprobs)));
    if (field.type == FieldType::kFlag)
      BRAID_TRY(store.put_reals(field.name, rows, at::tensor(truncated)));
  }
  forget(rows);
  return ok_status();
}

Status Generation::finish(SampleStore& store) {
  BRAID_TRY(write(store, Rows(rows_)));
  engine_.reset();
  ranks_.reset();
  finished_.clear();
  model_->rest();  // updates pack anew: after them the weights are others
  model_ = nullptr;
  return ok_status();
}

}  // namespace braid::inline passes
