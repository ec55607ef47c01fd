#include "rollout/engine.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "rollout/kv_pool.h"
#include "rollout/sampler.h"

namespace braid {
namespace {

int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

// A request on its way: waiting (no pages) or running. Tokens 0 .. cached - 1 have their keys in
// `pages`.
struct Sequence {
  Request request;
  Generated progress;
  std::vector<int32_t> pages;
  int64_t cached = 0;
  int64_t arrival = 0;

  int64_t tokens() const {
    return static_cast<int64_t>(progress.prompt_ids.size() + progress.response_ids.size());
  }
  int32_t token(int64_t i) const {
    const auto prompt = static_cast<int64_t>(progress.prompt_ids.size());
    return i < prompt ? progress.prompt_ids[i] : progress.response_ids[i - prompt];
  }
  bool decoding() const { return cached > 0 && cached + 1 >= tokens(); }
};

// The part of a sequence that one forward processes.
struct Slice {
  size_t sequence;
  int64_t count;
};

class PagedEngine : public Engine {
 public:
  PagedEngine(Model& model, const EngineOptions& options)
      : model_(model), options_(options), pool_(model) {}

  Status submit(Request request) override;
  void set_stop_check(StopCheck check) override { stop_check_ = std::move(check); }
  Result<std::vector<Generated>> step() override;
  bool drained() const override { return waiting_.empty() && running_.empty(); }
  Result<Exported> export_sequence(SampleId sample) override;
  Status import_sequence(Exported exported) override;
  const EngineStats& stats() const override { return stats_; }

 private:
  int64_t page_limit() const;
  void admit();
  bool waits_for_twin(const Sequence& sequence) const;
  void share_prefix(Sequence& sequence);
  std::vector<Slice> plan_slices();
  bool provide_pages(Sequence& sequence, int64_t tokens);
  void preempt_last();
  void release(Sequence& sequence);
  TokenBatch make_batch(const std::vector<Slice>& slices) const;
  void sample(const std::vector<Slice>& slices, const at::Tensor& hidden);
  Finish finish_of(const Sequence& sequence) const;
  std::vector<Generated> collect_finished();

  Model& model_;
  EngineOptions options_;
  KvPool pool_;
  StopCheck stop_check_;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;  // in order of admission
  EngineStats stats_;
  int64_t arrivals_ = 0;
  int64_t longest_pages_ = 1;
};

Status PagedEngine::submit(Request request) {
  const int64_t prompt = static_cast<int64_t>(request.prompt_ids.size());
  const int64_t longest = prompt + request.sampling.max_new_tokens;
  const std::string where = cat("sample ", request.sample);
  if (prompt == 0)
    return invalid_input(cat(where, ": the prompt is empty; give at least one token"));
  for (const int32_t id : request.prompt_ids)
    if (id < 0 || id >= model_.spec().vocab)
      return invalid_input(
          cat(where, ": token id ", id, " is outside of the vocabulary of ", model_.spec().vocab));
  if (model_.spec().max_positions > 0 && longest > model_.spec().max_positions)
    return invalid_input(cat(where, ": prompt of ", prompt, " and up to ",
                             request.sampling.max_new_tokens, " new tokens exceed the model's ",
                             model_.spec().max_positions, " positions; lower the response length"));
  if (options_.kv_budget_tokens > 0 && pages_for(longest) * kPageTokens > options_.kv_budget_tokens)
    return invalid_input(cat(where, ": needs a KV cache of ", pages_for(longest) * kPageTokens,
                             " tokens; raise rollout.kv_budget_tokens from ",
                             options_.kv_budget_tokens));
  longest_pages_ = std::max(longest_pages_, pages_for(longest));
  Sequence sequence;
  sequence.progress.sample = request.sample;
  sequence.progress.prompt_ids = request.prompt_ids;
  sequence.request = std::move(request);
  sequence.arrival = arrivals_++;
  waiting_.push_back(std::move(sequence));
  return ok_status();
}

int64_t PagedEngine::page_limit() const {
  if (options_.kv_budget_tokens > 0) return options_.kv_budget_tokens / kPageTokens;
  const auto live = static_cast<int64_t>(waiting_.size() + running_.size());
  return std::max(pool_.capacity(), std::min(options_.max_concurrent, live) * longest_pages_);
}

// True while a running sequence is computing the same prompt: waiting one step lets this one share
// its pages.
bool PagedEngine::waits_for_twin(const Sequence& sequence) const {
  for (const Sequence& other : running_)
    if (other.cached < static_cast<int64_t>(other.progress.prompt_ids.size()) &&
        other.progress.prompt_ids.size() > kPageTokens &&
        other.progress.prompt_ids == sequence.progress.prompt_ids)
      return true;
  return false;
}

// Takes over the full prompt pages of a running sequence with the same prompt; the last token is
// always computed.
void PagedEngine::share_prefix(Sequence& sequence) {
  const auto prompt = static_cast<int64_t>(sequence.progress.prompt_ids.size());
  const int64_t full = (prompt - 1) / kPageTokens;
  if (full == 0) return;
  for (const Sequence& other : running_) {
    if (other.cached < full * kPageTokens ||
        other.progress.prompt_ids != sequence.progress.prompt_ids)
      continue;
    sequence.pages.assign(other.pages.begin(), other.pages.begin() + full);
    for (const int32_t page : sequence.pages) pool_.share(page);
    sequence.cached = full * kPageTokens;
    stats_.shared_prompt_tokens += sequence.cached;
    return;
  }
}

void PagedEngine::admit() {
  pool_.grow(page_limit());
  if (options_.longest_first)
    std::stable_sort(waiting_.begin(), waiting_.end(), [](const Sequence& a, const Sequence& b) {
      return a.request.expected_tokens > b.request.expected_tokens;
    });
  // Pages that running sequences still need for the tokens they already have.
  int64_t promised = 0;
  for (const Sequence& s : running_)
    promised += pages_for(s.tokens()) - static_cast<int64_t>(s.pages.size());
  size_t next = 0;
  while (next < waiting_.size() &&
         static_cast<int64_t>(running_.size()) < options_.max_concurrent) {
    if (waits_for_twin(waiting_[next])) {
      ++next;
      continue;
    }
    // One page beyond the present tokens, so that a fresh sequence can decode before it competes
    // for pages.
    const int64_t need = pages_for(waiting_[next].tokens() + 1);
    if (!running_.empty() && pool_.free_pages() - promised < need) break;
    Sequence sequence = std::move(waiting_[next]);
    waiting_.erase(waiting_.begin() + static_cast<int64_t>(next));
    share_prefix(sequence);
    promised += need - static_cast<int64_t>(sequence.pages.size());
    running_.push_back(std::move(sequence));
  }
  stats_.peak_concurrent = std::max(stats_.peak_concurrent, static_cast<int64_t>(running_.size()));
}

void PagedEngine::release(Sequence& sequence) {
  for (const int32_t page : sequence.pages) pool_.release(page);
  sequence.pages.clear();
  sequence.cached = 0;
}

// The youngest running sequence gives its pages back and waits at the front; its tokens stay and
// are recomputed.
void PagedEngine::preempt_last() {
  release(running_.back());
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
  ++stats_.preemptions;
}

bool PagedEngine::provide_pages(Sequence& sequence, int64_t tokens) {
  while (static_cast<int64_t>(sequence.pages.size()) < pages_for(tokens)) {
    if (pool_.free_pages() == 0) return false;
    sequence.pages.push_back(pool_.take());
  }
  return true;
}

// Decodes first (one token each), then prefills, within max_batch_tokens; older sequences take
// pages first.
std::vector<Slice> PagedEngine::plan_slices() {
  std::vector<Slice> slices;
  int64_t room = options_.max_batch_tokens;
  for (const bool decode : {true, false})
    for (size_t i = 0; i < running_.size() && room > 0; ++i) {
      if (running_[i].decoding() != decode) continue;
      const int64_t count = std::min(room, running_[i].tokens() - running_[i].cached);
      while (!provide_pages(running_[i], running_[i].cached + count) && i + 1 < running_.size()) {
        preempt_last();
        std::erase_if(slices,
                      [&](const Slice& slice) { return slice.sequence >= running_.size(); });
      }
      if (static_cast<int64_t>(running_[i].pages.size()) < pages_for(running_[i].cached + count)) {
        preempt_last();  // itself: the youngest, and still no room
        break;
      }
      slices.push_back({i, count});
      room -= count;
    }
  return slices;
}

TokenBatch PagedEngine::make_batch(const std::vector<Slice>& slices) const {
  int64_t total = 0;
  for (const Slice& slice : slices) total += slice.count;
  TokenBatch batch;
  batch.tokens_T = at::empty({total}, at::kLong);
  batch.positions_T = at::empty({total}, at::kLong);
  batch.attention.window = model_.spec().sliding_window;
  batch.attention.query_begin.push_back(0);
  int64_t* tokens = batch.tokens_T.mutable_data_ptr<int64_t>();
  int64_t* positions = batch.positions_T.mutable_data_ptr<int64_t>();
  int64_t row = 0;
  for (const Slice& slice : slices) {
    const Sequence& sequence = running_[slice.sequence];
    for (int64_t i = 0; i < slice.count; ++i, ++row) {
      tokens[row] = sequence.token(sequence.cached + i);
      positions[row] = sequence.cached + i;
    }
    batch.attention.query_begin.push_back(static_cast<int32_t>(row));
    batch.attention.cached.push_back(static_cast<int32_t>(sequence.cached));
    batch.attention.page_tables.push_back(sequence.pages);
  }
  batch.tokens_T = batch.tokens_T.to(model_.options().device);
  batch.positions_T = batch.positions_T.to(model_.options().device);
  return batch;
}

void PagedEngine::sample(const std::vector<Slice>& slices, const at::Tensor& hidden) {
  std::vector<int64_t> rows;
  std::vector<size_t> due;
  int64_t row = 0;
  for (const Slice& slice : slices) {
    Sequence& sequence = running_[slice.sequence];
    (sequence.decoding() ? stats_.decode_tokens : stats_.prefill_tokens) += slice.count;
    row += slice.count;
    sequence.cached += slice.count;
    if (sequence.cached < sequence.tokens()) continue;
    rows.push_back(row - 1);
    due.push_back(slice.sequence);
  }
  if (due.empty()) return;
  const at::Tensor index =
      at::from_blob(rows.data(), {static_cast<int64_t>(rows.size())}, at::kLong)
          .to(hidden.device());
  const at::Tensor scores = logits(model_, hidden.index_select(0, index)).to(at::kCPU).contiguous();
  float* data = scores.mutable_data_ptr<float>();
  const int64_t vocab = scores.size(1);
  std::vector<SampledToken> drawn(due.size());
  at::parallel_for(0, static_cast<int64_t>(due.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Sequence& sequence = running_[due[i]];
      const SamplingContext context{&sequence.progress.prompt_ids, &sequence.progress.response_ids,
                                    static_cast<uint64_t>(sequence.progress.sample.value)};
      drawn[i] = sample_token(data + i * vocab, vocab, sequence.request.sampling, context);
    }
  });
  for (size_t i = 0; i < due.size(); ++i) {
    Sequence& sequence = running_[due[i]];
    sequence.progress.response_ids.push_back(drawn[i].token);
    sequence.progress.logprobs.push_back(drawn[i].logprob);
    sequence.progress.finish = finish_of(sequence);
  }
}

Finish PagedEngine::finish_of(const Sequence& sequence) const {
  const SamplingOptions& sampling = sequence.request.sampling;
  const int32_t last = sequence.progress.response_ids.back();
  const auto count = static_cast<int64_t>(sequence.progress.response_ids.size());
  const auto& stops = sampling.stop_tokens;
  if (!sampling.ignore_eos && std::find(stops.begin(), stops.end(), last) != stops.end())
    return Finish::kStop;
  if (count >= sampling.min_new_tokens && stop_check_ && stop_check_(sequence.progress))
    return Finish::kStop;
  return count >= sampling.max_new_tokens ? Finish::kLength : Finish::kRunning;
}

std::vector<Generated> PagedEngine::collect_finished() {
  std::vector<Generated> finished;
  std::vector<Sequence> kept;
  for (Sequence& sequence : running_) {
    if (sequence.progress.finish == Finish::kRunning) {
      kept.push_back(std::move(sequence));
      continue;
    }
    release(sequence);
    finished.push_back(std::move(sequence.progress));
  }
  running_ = std::move(kept);
  return finished;
}

Result<std::vector<Generated>> PagedEngine::step() {
  const at::NoGradGuard no_grad;
  admit();
  const std::vector<Slice> slices = plan_slices();
  stats_.peak_pages = std::max(stats_.peak_pages, pool_.capacity() - pool_.free_pages());
  if (slices.empty()) return std::vector<Generated>{};
  ++stats_.steps;
  const at::Tensor hidden = model_.forward(make_batch(slices), &pool_.layers());
  sample(slices, hidden);
  return collect_finished();
}

Result<Engine::Exported> PagedEngine::export_sequence(SampleId sample) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [&](const Sequence& s) { return s.progress.sample == sample; });
  if (found == running_.end())
    return not_found(cat("sample ", sample, " is not running in this engine"));
  Exported out{found->request, found->progress, {}};
  for (const KvLayer& layer : pool_.layers()) {
    KvLayer copy;
    for (const auto& [from, to] :
         {std::pair(&layer.keys, &copy.keys), std::pair(&layer.values, &copy.values)}) {
      *to = at::empty({found->cached, from->size(2), from->size(3)}, from->options());
      for (int64_t begin = 0; begin < found->cached; begin += kPageTokens) {
        const int64_t count = std::min(kPageTokens, found->cached - begin);
        to->narrow(0, begin, count)
            .copy_(from->select(0, found->pages[begin / kPageTokens]).narrow(0, 0, count));
      }
    }
    out.kv.push_back(std::move(copy));
  }
  release(*found);
  running_.erase(found);
  return out;
}

Status PagedEngine::import_sequence(Exported exported) {
  Sequence sequence;
  sequence.request = std::move(exported.request);
  sequence.progress = std::move(exported.progress);
  sequence.arrival = arrivals_++;
  longest_pages_ = std::max(
      longest_pages_, pages_for(sequence.tokens() + sequence.request.sampling.max_new_tokens));
  const int64_t tokens = exported.kv.empty() ? 0 : exported.kv[0].keys.size(0);
  if (options_.kv_budget_tokens == 0)
    pool_.grow(pool_.capacity() + longest_pages_);
  else
    pool_.grow(page_limit());
  if (pool_.free_pages() < pages_for(tokens) ||
      static_cast<int64_t>(running_.size()) >= options_.max_concurrent) {
    waiting_.push_front(
        std::move(sequence));  // no room for its cache: it is recomputed when admitted
    return ok_status();
  }
  provide_pages(sequence, tokens);
  AttentionBatch target{{0, static_cast<int32_t>(tokens)}, {0}, {sequence.pages}, 0};
  for (size_t layer = 0; layer < exported.kv.size(); ++layer)
    store_kv(exported.kv[layer].keys, exported.kv[layer].values, target, pool_.layers()[layer]);
  sequence.cached = tokens;
  running_.push_back(std::move(sequence));
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(Model& model, const EngineOptions& options) {
  if (model.spec().scalar_head)
    return invalid_input("a model with a scalar head cannot generate; give a language model");
  if (options.max_concurrent < 1 || options.max_batch_tokens < 1)
    return invalid_input("rollout.max_concurrent and the batch limit must be at least 1");
  return std::unique_ptr<Engine>(std::make_unique<PagedEngine>(model, options));
}

}  // namespace braid
