#include "rollout/engine.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <deque>
#include <limits>

#include "base/log.h"
#include "base/text.h"
#include "device/device_copy.h"
#include "device/tensor_memory.h"
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

  int64_t tokens() const {
    return static_cast<int64_t>(progress.prompt_ids.size() + progress.response_ids.size());
  }
  int32_t token(int64_t i) const {
    const auto prompt = static_cast<int64_t>(progress.prompt_ids.size());
    return i < prompt ? progress.prompt_ids[i] : progress.response_ids[i - prompt];
  }
  bool decoding() const { return cached > 0 && cached + 1 >= tokens(); }
  int64_t shareable_pages() const {
    return (static_cast<int64_t>(progress.prompt_ids.size()) - 1) / kPageTokens;
  }
  int64_t most_pages() const {
    return pages_for(static_cast<int64_t>(progress.prompt_ids.size()) +
                     request.sampling.max_new_tokens);
  }
};

// The part of a sequence that one forward processes.
struct Slice {
  size_t sequence;
  int64_t count;
};
int64_t tokens_of(const std::vector<Slice>& slices) {
  int64_t total = 0;
  for (const Slice& slice : slices) total += slice.count;
  return total;
}

// The sequences whose last token a forward computes, and the rows of these tokens.
struct DueTokens {
  std::vector<size_t> sequences;
  std::vector<int64_t> rows;
};

class PagedEngine : public Engine {
 public:
  PagedEngine(Model& model, const EngineOptions& options)
      : model_(model), options_(options), pool_(model), batch_tokens_(options.max_batch_tokens) {}

  Status submit(Request request) override;
  void set_stop_check(StopCheck check) override { stop_check_ = std::move(check); }
  Result<std::vector<Generated>> step() override;
  bool drained() const override { return waiting_.empty() && running_.empty(); }
  Status make_room() override { return provide_pool(wanted_pages()); }
  int64_t cache_bytes() const override { return pool_.bytes(wanted_pages()); }
  const std::string& shortage() const override { return shortage_; }
  Result<Exported> export_sequence(SampleId sample) override;
  Status import_sequence(Exported exported) override;
  const EngineStats& stats() const override { return stats_; }

 private:
  bool holds(SampleId sample) const;
  Status check(const Request& request) const;
  Status check_cache(const Exported& exported) const;
  int64_t page_limit(int64_t live) const;
  // For all requests.
  int64_t wanted_pages() const {
    return page_limit(static_cast<int64_t>(waiting_.size() + running_.size()));
  }
  Status provide_pool(int64_t pages);
  Status admit();
  bool waits_for_twin(const Sequence& sequence) const;
  const Sequence* find_donor(const Sequence& sequence) const;
  void share_prefix(const Sequence& donor, Sequence& sequence);
  std::vector<Slice> plan_slices();
  bool provide_pages(Sequence& sequence, int64_t tokens);
  void preempt_last();
  void release(Sequence& sequence);
  EngineBatch make_batch(const std::vector<Slice>& slices) const;
  Result<EngineRound> compute(const std::vector<Slice>& slices, const DueTokens& due);
  Result<EngineRound> compute_alone(const EngineBatch& batch, const DrawTokens& draw);
  DueTokens due_tokens(const std::vector<Slice>& slices) const;
  Result<std::vector<SampledToken>> draw(const DueTokens& due, const at::Tensor& hidden) const;
  void advance(const std::vector<Slice>& slices, const DueTokens& due,
               const std::vector<SampledToken>& drawn);
  Status give_way(const std::vector<Slice>& slices, const std::string& why);
  void note_shortage(const std::string& why, const std::string& goes_on_with);
  void count_pages();
  std::vector<KvLayer> copy_cache(const Sequence& sequence) const;
  Finish finish_of(const Sequence& sequence) const;
  std::vector<Generated> collect_finished();

  Model& model_;
  EngineOptions options_;
  KvPool pool_;
  StopCheck stop_check_;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;  // in order of admission
  EngineStats stats_;
  int64_t longest_pages_ = 1;
  // What there is memory for: of the cache, and in a round.
  int64_t most_pages_ = std::numeric_limits<int64_t>::max();
  int64_t batch_tokens_;
  std::string shortage_;
};

Status PagedEngine::check(const Request& request) const {
  const ModelSpec& spec = model_.spec();
  const auto prompt = static_cast<int64_t>(request.prompt_ids.size());
  const int64_t new_tokens = request.sampling.max_new_tokens;
  if (holds(request.sample))
    return invalid_input(
        "this engine holds a sample of that id already; ids key the random numbers and must "
        "differ");
  if (prompt == 0) return invalid_input("the prompt is empty; give at least one token");
  for (const int32_t id : request.prompt_ids)
    if (id < 0 || id >= spec.vocab)
      return invalid_input(
          cat("token id ", id, " is outside of the vocabulary of ", spec.vocab, " tokens"));
  BRAID_TRY(check_sampling(request.sampling, spec.vocab));
  if (spec.max_positions > 0 && prompt + new_tokens > spec.max_positions)
    return invalid_input(cat("prompt of ", prompt, " and up to ", new_tokens,
                             " new tokens exceed the model's ", spec.max_positions,
                             " positions; shorten the prompt or lower the response length"));
  const int64_t need = pages_for(prompt + new_tokens) * kPageTokens;
  if (options_.kv_budget_tokens > 0 && need > options_.kv_budget_tokens)
    return invalid_input(cat("needs a KV cache of ", need,
                             " tokens; raise rollout.kv_budget_tokens from ",
                             options_.kv_budget_tokens));
  return ok_status();
}

bool PagedEngine::holds(SampleId sample) const {
  const auto is_it = [&](const Sequence& s) { return s.request.sample == sample; };
  return std::any_of(waiting_.begin(), waiting_.end(), is_it) ||
         std::any_of(running_.begin(), running_.end(), is_it);
}

Status PagedEngine::submit(Request request) {
  BRAID_TRY(check(request).at(cat("sample ", request.sample)));
  Sequence sequence;
  sequence.progress.sample = request.sample;
  sequence.progress.prompt_ids = request.prompt_ids;
  sequence.request = std::move(request);
  longest_pages_ = std::max(longest_pages_, sequence.most_pages());
  waiting_.push_back(std::move(sequence));
  return ok_status();
}

int64_t PagedEngine::page_limit(int64_t live) const {
  const int64_t wanted = std::min(
      most_pages_,
      std::max(pool_.capacity(), std::min(options_.max_concurrent, live) * longest_pages_));
  if (options_.kv_budget_tokens == 0) return wanted;
  return std::min(wanted, options_.kv_budget_tokens / kPageTokens);
}

// True while a running sequence is computing the same prompt: waiting lets this one share its
// pages.
bool PagedEngine::waits_for_twin(const Sequence& sequence) const {
  for (const Sequence& other : running_)
    if (other.cached < sequence.shareable_pages() * kPageTokens &&
        other.progress.prompt_ids == sequence.progress.prompt_ids)
      return true;
  return false;
}

// A running sequence with the same prompt whose full prompt pages are computed, or null. The last
// prompt token is always computed anew, as its hidden state gives the first token.
const Sequence* PagedEngine::find_donor(const Sequence& sequence) const {
  const int64_t full = sequence.shareable_pages();
  if (full == 0) return nullptr;
  for (const Sequence& other : running_)
    if (other.cached >= full * kPageTokens &&
        other.progress.prompt_ids == sequence.progress.prompt_ids)
      return &other;
  return nullptr;
}

void PagedEngine::share_prefix(const Sequence& donor, Sequence& sequence) {
  const int64_t full = sequence.shareable_pages();
  sequence.pages.assign(donor.pages.begin(), donor.pages.begin() + full);
  for (const int32_t page : sequence.pages) pool_.share(page);
  sequence.cached = full * kPageTokens;
  stats_.shared_prompt_tokens += sequence.cached;
}

void PagedEngine::note_shortage(const std::string& why, const std::string& goes_on_with) {
  ++stats_.cuts;
  if (!why.empty()) shortage_ = why;
  if (options_.ranks == nullptr || options_.ranks->leads())
    log_warning(cat("generation: out of memory (", why.empty() ? "on another rank" : why,
                    "); it goes on with ", goes_on_with));
}

// All ranks of the replica get equally many. With fewer than wanted, sequences wait.
Status PagedEngine::provide_pool(int64_t pages) {
  while (pages > pool_.capacity()) {
    std::vector<KvLayer> room;
    std::string missing;
    try {
      room = pool_.room_for(pages);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      missing = what_ran_out(error);
    }
    bool lacks = !missing.empty();
    if (options_.ranks != nullptr) {
      BRAID_ASSIGN(lacks, options_.ranks->any(lacks, "room for the KV cache"));
    }
    if (!lacks) {
      pool_.grow(std::move(room));
      return ok_status();
    }
    if (pages <= longest_pages_)
      return Status(Code::kOutOfMemory, cat("the KV cache of one sequence, ", pages * kPageTokens,
                                            " tokens", missing.empty() ? "" : ": ", missing));
    const bool enough = pool_.capacity() >= std::max(longest_pages_, pages / 2);
    most_pages_ = enough ? pool_.capacity() : std::max(longest_pages_, pages / 2);
    pages = most_pages_;
    note_shortage(missing, cat("a KV cache of ", pages * kPageTokens, " tokens"));
  }
  return ok_status();
}

// Moves waiting sequences to running_ while the pages for the tokens that they have, and for one
// more, are free. The first is always admitted: check() made sure that it fits alone.
Status PagedEngine::admit() {
  BRAID_TRY(make_room());
  if (options_.longest_first)
    std::stable_sort(waiting_.begin(), waiting_.end(), [](const Sequence& a, const Sequence& b) {
      return a.request.expected_tokens > b.request.expected_tokens;
    });
  int64_t promised = 0;  // pages that running sequences still need for the tokens they have
  for (const Sequence& s : running_)
    promised += pages_for(s.tokens()) - static_cast<int64_t>(s.pages.size());
  size_t next = 0;
  while (next < waiting_.size() &&
         static_cast<int64_t>(running_.size()) < options_.max_concurrent) {
    if (waits_for_twin(waiting_[next])) {
      ++next;
      continue;
    }
    const Sequence* donor = find_donor(waiting_[next]);
    const int64_t need = pages_for(waiting_[next].tokens() + 1) -
                         (donor == nullptr ? 0 : waiting_[next].shareable_pages());
    if (!running_.empty() && pool_.free_pages() - promised < need) break;
    Sequence sequence = std::move(waiting_[next]);
    waiting_.erase(waiting_.begin() + static_cast<int64_t>(next));
    if (donor != nullptr) share_prefix(*donor, sequence);
    promised += need;
    running_.push_back(std::move(sequence));
  }
  stats_.peak_concurrent = std::max(stats_.peak_concurrent, static_cast<int64_t>(running_.size()));
  return ok_status();
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

// Decodes first (one token each), then prefills, within batch_tokens_; older sequences take
// pages first.
std::vector<Slice> PagedEngine::plan_slices() {
  std::vector<Slice> slices;
  int64_t room = batch_tokens_;
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

EngineBatch PagedEngine::make_batch(const std::vector<Slice>& slices) const {
  const int64_t total = tokens_of(slices);
  EngineBatch out;
  for (const Slice& slice : slices) {
    (running_[slice.sequence].decoding() ? out.decoding : out.prefill_tokens) += slice.count;
  }
  TokenBatch& batch = out.tokens;
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
  batch.tokens_T = to_device(batch.tokens_T, model_.options().device);
  batch.positions_T = to_device(batch.positions_T, model_.options().device);
  return out;
}

Result<EngineRound> PagedEngine::compute_alone(const EngineBatch& batch, const DrawTokens& draw) {
  EngineRound out;
  try {
    BRAID_ASSIGN(out.drawn, draw(model_.forward(batch.tokens, &pool_.layers())));
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    out.ran_out = true;
    out.why = what_ran_out(error);
  }
  return out;
}

Result<EngineRound> PagedEngine::compute(const std::vector<Slice>& slices, const DueTokens& due) {
  const DrawTokens draw_due = [&](const at::Tensor& hidden) { return draw(due, hidden); };
  const EngineBatch batch = make_batch(slices);
  if (options_.ranks == nullptr) return compute_alone(batch, draw_due);
  return options_.ranks->round(model_, batch, pool_.layers(), static_cast<int64_t>(due.rows.size()),
                               draw_due);
}

// Memory was not there for a round of these slices: later ones are smaller. Where one token is too
// much, half of the cache makes room, and all sequences begin again.
Status PagedEngine::give_way(const std::vector<Slice>& slices, const std::string& why) {
  const int64_t tokens = tokens_of(slices), pages = pool_.capacity();
  if (tokens > 1) {
    batch_tokens_ = tokens / 2;
    note_shortage(why, cat("at most ", batch_tokens_, " tokens in a round"));
    return ok_status();
  }
  if (pages <= longest_pages_)
    return {Code::kOutOfMemory, cat(why.empty() ? "on another rank" : why,
                                    ", with one token in a round of generation")};
  while (!running_.empty()) preempt_last();
  pool_.clear();
  most_pages_ = std::max(longest_pages_, pages / 2);
  batch_tokens_ = options_.max_batch_tokens;
  note_shortage(why, cat("a KV cache of ", most_pages_ * kPageTokens, " tokens"));
  return ok_status();
}

// Draws the next token of each due sequence from the logits of its row of `hidden`.
Result<std::vector<SampledToken>> PagedEngine::draw(const DueTokens& due,
                                                    const at::Tensor& hidden) const {
  const auto count = static_cast<int64_t>(due.rows.size());
  if (count == 0) return std::vector<SampledToken>();
  std::vector<int64_t> rows = due.rows;
  const at::Tensor index =
      to_device(at::from_blob(rows.data(), {count}, at::kLong), hidden.device());
  const at::Tensor scores = to_host(logits(model_, hidden.index_select(0, index))).contiguous();
  float* data = scores.mutable_data_ptr<float>();
  const int64_t vocab = scores.size(1);
  std::vector<SampledToken> drawn(due.rows.size());
  std::vector<Status> failed(due.rows.size());
  at::parallel_for(0, count, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Sequence& sequence = running_[due.sequences[i]];
      const SamplingContext context{&sequence.progress.prompt_ids, &sequence.progress.response_ids,
                                    static_cast<uint64_t>(sequence.progress.sample.value)};
      const auto token = sample_token(data + i * vocab, vocab, sequence.request.sampling, context);
      failed[i] = token.status();
      if (token.ok()) drawn[i] = *token;
    }
  });
  for (size_t i = 0; i < due.rows.size(); ++i) {
    const Generated& progress = running_[due.sequences[i]].progress;
    BRAID_TRY(failed[i].at(
        cat("sample ", progress.sample, ", new token ", progress.response_ids.size())));
  }
  return drawn;
}

DueTokens PagedEngine::due_tokens(const std::vector<Slice>& slices) const {
  DueTokens out;
  int64_t row = 0;
  for (const Slice& slice : slices) {
    const Sequence& sequence = running_[slice.sequence];
    row += slice.count;
    if (sequence.cached + slice.count < sequence.tokens()) continue;
    out.rows.push_back(row - 1);
    out.sequences.push_back(slice.sequence);
  }
  return out;
}

// All slices count as cached, and the due sequences have one more token.
void PagedEngine::advance(const std::vector<Slice>& slices, const DueTokens& due,
                          const std::vector<SampledToken>& drawn) {
  for (const Slice& slice : slices) {
    Sequence& sequence = running_[slice.sequence];
    (sequence.decoding() ? stats_.decode_tokens : stats_.prefill_tokens) += slice.count;
    sequence.cached += slice.count;
  }
  for (size_t i = 0; i < drawn.size(); ++i) {
    Sequence& sequence = running_[due.sequences[i]];
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

void PagedEngine::count_pages() {
  stats_.held_pages = pool_.capacity() - pool_.free_pages();
  stats_.peak_pages = std::max(stats_.peak_pages, stats_.held_pages);
}

Result<std::vector<Generated>> PagedEngine::step() {
  const at::NoGradGuard no_grad;
  BRAID_TRY(admit());
  const std::vector<Slice> slices = plan_slices();
  count_pages();
  if (slices.empty()) return std::vector<Generated>{};
  ++stats_.steps;
  const DueTokens due = due_tokens(slices);
  BRAID_ASSIGN(const EngineRound round, compute(slices, due));
  if (round.ran_out) {
    BRAID_TRY(give_way(slices, round.why));
    return std::vector<Generated>{};
  }
  advance(slices, due, round.drawn);
  std::vector<Generated> finished = collect_finished();
  count_pages();
  return finished;
}

std::vector<KvLayer> PagedEngine::copy_cache(const Sequence& sequence) const {
  std::vector<KvLayer> copies;
  for (const KvLayer& layer : pool_.layers())
    copies.push_back(read_kv(layer, sequence.pages, sequence.cached));
  return copies;
}

Result<Engine::Exported> PagedEngine::export_sequence(SampleId sample) {
  const auto is_wanted = [&](const Sequence& s) { return s.progress.sample == sample; };
  const auto running = std::find_if(running_.begin(), running_.end(), is_wanted);
  if (running != running_.end()) {
    Exported out{running->request, running->progress, {}};
    if (running->cached > 0) out.kv = copy_cache(*running);
    release(*running);
    running_.erase(running);
    count_pages();
    return out;
  }
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), is_wanted);
  if (waiting == waiting_.end()) return not_found(cat("sample ", sample, " is not in this engine"));
  Exported out{std::move(waiting->request), std::move(waiting->progress), {}};
  waiting_.erase(waiting);
  return out;
}

Status PagedEngine::check_cache(const Exported& exported) const {
  if (exported.kv.empty()) return ok_status();
  const ModelSpec& spec = model_.local_spec();
  const int64_t tokens = exported.kv[0].keys.size(0);
  const auto known = static_cast<int64_t>(exported.progress.prompt_ids.size() +
                                          exported.progress.response_ids.size());
  bool fits = exported.kv.size() == pool_.layers().size() && tokens < known;
  for (const KvLayer& layer : exported.kv)
    for (const at::Tensor* tensor : {&layer.keys, &layer.values})
      fits = fits && tensor->sizes() == at::IntArrayRef({tokens, spec.kv_heads, spec.head_dim});
  if (!fits) return invalid_input("the imported KV cache does not have this model's shape");
  return ok_status();
}

Status PagedEngine::import_sequence(Exported exported) {
  const std::string where = cat("sample ", exported.progress.sample);
  BRAID_TRY(check(exported.request).at(where));
  BRAID_TRY(check_cache(exported).at(where));
  Sequence sequence;
  sequence.request = std::move(exported.request);
  sequence.progress = std::move(exported.progress);
  longest_pages_ = std::max(longest_pages_, sequence.most_pages());
  BRAID_TRY(provide_pool(page_limit(static_cast<int64_t>(waiting_.size() + running_.size()) + 1)));
  const int64_t tokens = exported.kv.empty() ? 0 : exported.kv[0].keys.size(0);
  const bool room = pool_.free_pages() >= pages_for(tokens) &&
                    static_cast<int64_t>(running_.size()) < options_.max_concurrent;
  if (tokens == 0 || !room) {
    waiting_.push_front(std::move(sequence));
    return ok_status();
  }
  provide_pages(sequence, tokens);
  const AttentionBatch target{{0, static_cast<int32_t>(tokens)}, {0}, {sequence.pages}, 0};
  for (size_t layer = 0; layer < exported.kv.size(); ++layer)
    store_kv(exported.kv[layer].keys, exported.kv[layer].values, target, pool_.layers()[layer]);
  sequence.cached = tokens;
  running_.push_back(std::move(sequence));
  count_pages();
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(Model& model, const EngineOptions& options) {
  if (model.spec().scalar_head)
    return invalid_input("a model with a scalar head cannot generate; give a language model");
  const LayerRange range = model.ranges().front();
  const bool whole = range.begin == 0 && range.end == model.spec().layers;
  if ((!whole && options.ranks == nullptr) || model.ranges().size() > 1)
    return invalid_input(cat("layers ", range.begin, " to ", range.end, " of ", model.spec().layers,
                             " cannot generate; give the whole model"));
  if (options.max_concurrent < 1 || options.max_batch_tokens < 1 || options.kv_budget_tokens < 0)
    return invalid_input(
        "rollout.max_concurrent and the batch limit must be at least 1, the KV budget at least 0");
  return std::unique_ptr<Engine>(std::make_unique<PagedEngine>(model, options));
}

}  // namespace braid
