#include "rollout/engine.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/log.h"
#include "base/text.h"
#include "batching/batch_scheduler.h"
#include "comm/communicator.h"
#include "device/device_copy.h"
#include "device/tensor_memory.h"
#include "nn/shard.h"
#include "rollout/device_draw.h"
#include "rollout/kv_pool.h"
#include "rollout/sampler.h"
#include "rollout/shared_draw.h"

namespace braid::inline rollout {
namespace {

// What the scheduler does not know of a sequence. Tokens 0 .. cached - 1 have their keys in
// `pages`.
struct Sequence {
  Request request;
  Generated progress;
  std::vector<int32_t> pages = {};

  int32_t token(int64_t i) const {
    const auto prompt = static_cast<int64_t>(progress.prompt_ids.size());
    return i < prompt ? progress.prompt_ids[i] : progress.response_ids[i - prompt];
  }
};

int64_t tokens_of(const ScheduledRound& round) {
  int64_t total = 0;
  for (const ScheduledRound::Slice& slice : round.slices) total += slice.tokens;
  return total;
}

// The sequences whose last token a forward computes, and the rows of these tokens.
struct DueTokens {
  std::vector<size_t> running;
  std::vector<int64_t> rows;
};
DueTokens due_tokens(const ScheduledRound& round) {
  DueTokens out;
  int64_t row = 0;
  for (const ScheduledRound::Slice& slice : round.slices) {
    row += slice.tokens;
    if (!slice.due) continue;
    out.rows.push_back(row - 1);
    out.running.push_back(slice.running);
  }
  return out;
}

// Carries out what its scheduler decides. Between two calls a sequence has the pages that the
// scheduler counts for it.
class PagedEngine : public Engine {
 public:
  PagedEngine(Model& model, const EngineOptions& options)
      : model_(model),
        options_(options),
        pool_(model),
        scheduler_({options.max_concurrent, options.max_batch_tokens, options.longest_first}),
        batch_tokens_(options.max_batch_tokens) {}

  Status submit(Request request) override;
  void set_stop_check(StopCheck check) override { stop_check_ = std::move(check); }
  Status round() override;
  Result<std::vector<Generated>> settle() override;
  bool drained() const override { return scheduler_.drained(); }
  Status make_room() override { return provide_pool(page_limit(scheduler_.sequences())); }
  int64_t cache_bytes() const override { return pool_.bytes(page_limit(scheduler_.sequences())); }
  const std::string& shortage() const override { return shortage_; }
  const std::vector<int32_t>* drawn(SampleId sample) const override {
    const auto found = sequences_.find(sample.value);
    return found == sequences_.end() ? nullptr : &found->second.progress.response_ids;
  }
  Result<Exported> export_sequence(SampleId sample, int64_t from) override;
  int64_t cached(SampleId sample) const override;
  std::vector<KvLayer> copy_cache(SampleId sample, int64_t tokens) const override;
  Result<Exported> take_out(SampleId sample) override;
  Status import_sequence(Exported exported) override;
  const EngineStats& stats() const override { return stats_; }

 private:
  Status check(const Request& request) const;
  Status check_cache(const Exported& exported) const;
  int64_t page_limit(int64_t live) const;
  Status provide_pool(int64_t pages);
  void note_longest(const Request& request);
  ScheduledSequence take_in(Request request, Generated progress);
  Sequence& running(size_t index) { return sequences_.at(scheduler_.running()[index].id); }
  const Sequence& running(size_t index) const {
    return sequences_.at(scheduler_.running()[index].id);
  }
  void place(const ScheduledRound& round);
  void give_back(int64_t id);
  EngineBatch make_batch(const ScheduledRound& round) const;
  Result<EngineRound> compute(const ScheduledRound& round, const DueTokens& due);
  Result<EngineRound> compute_alone(const EngineBatch& batch, const DrawTokens& draw);
  std::vector<DrawRow> draw_rows(const DueTokens& due) const;
  at::Tensor own_scores(const DueTokens& due, const at::Tensor& hidden) const;
  Result<DrawnTokens> draw(const DueTokens& due, const at::Tensor& hidden);
  std::vector<Result<SampledToken>> draw_rows_of(const std::vector<DrawRow>& rows,
                                                 const at::Tensor& scores, bool lacks,
                                                 bool* ran_out);
  std::vector<Result<SampledToken>> draw_whole(const std::vector<DrawRow>& rows,
                                               const at::Tensor& own, bool lacks, bool* ran_out);
  void begin_draw(const DueTokens& due);
  void advance(const ScheduledRound& round, const DueTokens& due,
               const std::vector<SampledToken>& drawn);
  Status give_way(int64_t tokens, const std::string& why);
  void note_shortage(const std::string& why, const std::string& goes_on_with);
  void count_pages();
  std::vector<KvLayer> copy_cache(const Sequence& sequence, int64_t from, int64_t to) const;
  Finish finish_of(const Sequence& sequence) const;
  std::vector<Generated> collect_finished();

  Model& model_;
  EngineOptions options_;
  KvPool pool_;
  StopCheck stop_check_;
  BatchScheduler scheduler_;
  std::unordered_map<int64_t, Sequence> sequences_;         // by sample
  std::map<std::vector<int32_t>, int64_t> prompt_numbers_;  // the scheduler's groups
  EngineStats stats_;
  int64_t longest_pages_ = 1;
  // What there is memory for: of the cache, and in a round.
  int64_t most_pages_ = std::numeric_limits<int64_t>::max();
  int64_t batch_tokens_;
  std::string shortage_;
  // What was computed and does not count yet.
  struct OpenRound {
    const ScheduledRound* round = nullptr;  // the scheduler's last
    DueTokens due;
    EngineRound computed;
  };
  std::optional<OpenRound> open_;
  // The draw of the open round, where its ranks tell each other parts of it.
  std::optional<SharedDraw> shared_draw_;
  bool has_logits_ = false;  // those of the open round were gathered
};

Status PagedEngine::check(const Request& request) const {
  const ModelSpec& spec = model_.spec();
  const auto prompt = static_cast<int64_t>(request.prompt_ids.size());
  const int64_t new_tokens = request.sampling.max_new_tokens;
  if (sequences_.count(request.sample.value) > 0)
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

// The cache holds this request alone, whatever else it holds.
void PagedEngine::note_longest(const Request& request) {
  const auto prompt = static_cast<int64_t>(request.prompt_ids.size());
  longest_pages_ = std::max(longest_pages_, pages_for(prompt + request.sampling.max_new_tokens));
}

// A sequence of this engine from here on, as the scheduler is told of it.
ScheduledSequence PagedEngine::take_in(Request request, Generated progress) {
  if (sequences_.empty()) prompt_numbers_.clear();
  ScheduledSequence out;
  out.id = request.sample.value;
  out.prompt = static_cast<int64_t>(request.prompt_ids.size());
  out.response = request.sampling.max_new_tokens;
  const auto numbers = static_cast<int64_t>(prompt_numbers_.size());
  out.group = prompt_numbers_.emplace(request.prompt_ids, numbers).first->second;
  out.expected = request.expected_tokens;
  out.produced = static_cast<int64_t>(progress.response_ids.size());
  sequences_.emplace(out.id, Sequence{std::move(request), std::move(progress)});
  return out;
}

Status PagedEngine::submit(Request request) {
  BRAID_TRY(check(request).at(cat("sample ", request.sample)));
  note_longest(request);
  Generated progress;
  progress.sample = request.sample;
  progress.prompt_ids = request.prompt_ids;
  scheduler_.submit(take_in(std::move(request), std::move(progress)));
  return ok_status();
}

int64_t PagedEngine::page_limit(int64_t live) const {
  const int64_t wanted = std::min(
      most_pages_,
      std::max(pool_.capacity(), std::min(options_.max_concurrent, live) * longest_pages_));
  if (options_.kv_budget_tokens == 0) return wanted;
  return std::min(wanted, options_.kv_budget_tokens / kPageTokens);
}

// Gives the sequences of a round their pages, and takes those of others.
void PagedEngine::place(const ScheduledRound& round) {
  for (const ScheduledRound::Admission& admission : round.admitted) {
    if (admission.donor < 0) continue;
    const std::vector<int32_t>& donor = sequences_.at(admission.donor).pages;
    std::vector<int32_t>& pages = sequences_.at(admission.id).pages;
    pages.assign(donor.begin(), donor.begin() + admission.pages);
    for (const int32_t page : pages) pool_.share(page);
    stats_.shared_prompt_tokens += admission.pages * kPageTokens;
  }
  for (const int64_t id : round.preempted) give_back(id);
  stats_.preemptions += static_cast<int64_t>(round.preempted.size());
  for (const ScheduledSequence& s : scheduler_.running()) {
    std::vector<int32_t>& pages = sequences_.at(s.id).pages;
    while (static_cast<int64_t>(pages.size()) < s.pages) pages.push_back(pool_.take());
  }
  const auto live = static_cast<int64_t>(scheduler_.running().size() + round.preempted.size());
  stats_.peak_concurrent = std::max(stats_.peak_concurrent, live);
}

void PagedEngine::give_back(int64_t id) {
  std::vector<int32_t>& pages = sequences_.at(id).pages;
  for (const int32_t page : pages) pool_.release(page);
  pages.clear();
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
      break;
    }
    if (pages <= longest_pages_)
      return Status(Code::kOutOfMemory, cat("the KV cache of one sequence, ", pages * kPageTokens,
                                            " tokens", missing.empty() ? "" : ": ", missing));
    const bool enough = pool_.capacity() >= std::max(longest_pages_, pages / 2);
    most_pages_ = enough ? pool_.capacity() : std::max(longest_pages_, pages / 2);
    pages = most_pages_;
    note_shortage(missing, cat("a KV cache of ", pages * kPageTokens, " tokens"));
  }
  scheduler_.set_capacity(pool_.capacity());
  return ok_status();
}

EngineBatch PagedEngine::make_batch(const ScheduledRound& round) const {
  const int64_t total = tokens_of(round);
  EngineBatch out;
  for (const ScheduledRound::Slice& slice : round.slices)
    (scheduler_.running()[slice.running].decoding() ? out.decoding : out.prefill_tokens) +=
        slice.tokens;
  TokenBatch& batch = out.tokens;
  batch.tokens_T = at::empty({total}, at::kLong);
  batch.positions_T = at::empty({total}, at::kLong);
  batch.attention.query_begin.push_back(0);
  int64_t* tokens = batch.tokens_T.mutable_data_ptr<int64_t>();
  int64_t* positions = batch.positions_T.mutable_data_ptr<int64_t>();
  int64_t row = 0;
  for (const ScheduledRound::Slice& slice : round.slices) {
    const Sequence& sequence = running(slice.running);
    const int64_t cached = scheduler_.running()[slice.running].cached;
    for (int64_t i = 0; i < slice.tokens; ++i, ++row) {
      tokens[row] = sequence.token(cached + i);
      positions[row] = cached + i;
    }
    batch.attention.query_begin.push_back(static_cast<int32_t>(row));
    batch.attention.cached.push_back(static_cast<int32_t>(cached));
    batch.attention.page_tables.push_back(sequence.pages);
  }
  batch.tokens_T = to_device(batch.tokens_T, model_.options().device);
  batch.positions_T = to_device(batch.positions_T, model_.options().device);
  return out;
}

Result<EngineRound> PagedEngine::compute_alone(const EngineBatch& batch, const DrawTokens& draw) {
  EngineRound out;
  try {
    BRAID_ASSIGN(DrawnTokens drawn, draw(model_.forward(batch.tokens, &pool_.layers())));
    out.drawn = std::move(drawn.tokens);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    out.ran_out = true;
    out.why = what_ran_out(error);
  }
  return out;
}

Result<EngineRound> PagedEngine::compute(const ScheduledRound& round, const DueTokens& due) {
  const DrawTokens draw_due = [&](const at::Tensor& hidden) { return draw(due, hidden); };
  EngineBatch batch = make_batch(round);
  batch.sampling = sampling_needs(draw_rows(due));
  begin_draw(due);
  if (options_.ranks == nullptr) return compute_alone(batch, draw_due);
  return options_.ranks->round(model_, batch, pool_.layers(), static_cast<int64_t>(due.rows.size()),
                               draw_due);
}

// Memory was not there for a round of so many tokens: later ones are smaller. Where one token is
// too much, half of the cache makes room, and all sequences begin again.
Status PagedEngine::give_way(int64_t tokens, const std::string& why) {
  const int64_t pages = pool_.capacity();
  if (tokens > 1) {
    batch_tokens_ = tokens / 2;
    scheduler_.set_batch_tokens(batch_tokens_);
    note_shortage(why, cat("at most ", batch_tokens_, " tokens in a round"));
    return ok_status();
  }
  if (pages <= longest_pages_)
    return {Code::kOutOfMemory, cat(why.empty() ? "on another rank" : why,
                                    ", with one token in a round of generation")};
  const std::vector<int64_t> preempted = scheduler_.preempt_all();
  for (const int64_t id : preempted) give_back(id);
  stats_.preemptions += static_cast<int64_t>(preempted.size());
  pool_.clear();
  scheduler_.set_capacity(0);
  most_pages_ = std::max(longest_pages_, pages / 2);
  batch_tokens_ = options_.max_batch_tokens;
  scheduler_.set_batch_tokens(batch_tokens_);
  note_shortage(why, cat("a KV cache of ", most_pages_ * kPageTokens, " tokens"));
  return ok_status();
}

std::vector<DrawRow> PagedEngine::draw_rows(const DueTokens& due) const {
  std::vector<DrawRow> out;
  for (const size_t index : due.running) {
    const Sequence& sequence = running(index);
    const Generated& progress = sequence.progress;
    out.push_back({&sequence.request.sampling,
                   {&progress.prompt_ids, &progress.response_ids,
                    static_cast<uint64_t>(progress.sample.value)}});
  }
  return out;
}

void PagedEngine::begin_draw(const DueTokens& due) {
  const TensorParallelGroup& group = model_.options().tensor_parallel;
  shared_draw_.reset();
  has_logits_ = false;
  if (!due.rows.empty() && shares_draws(model_.spec().vocab, group.tp_size))
    shared_draw_.emplace(draw_rows(due), model_.spec().vocab, group);
}

// This rank's logits of the due rows; without hidden states zeros, on the host.
at::Tensor PagedEngine::own_scores(const DueTokens& due, const at::Tensor& hidden) const {
  const auto count = static_cast<int64_t>(due.rows.size());
  if (!hidden.defined()) {
    const TensorParallelGroup& group = model_.options().tensor_parallel;
    return at::zeros({count, units_of_rank(model_.spec().vocab, group).size()});
  }
  std::vector<int64_t> rows = due.rows;
  const at::Tensor index =
      to_device(at::from_blob(rows.data(), {count}, at::kLong), hidden.device());
  return own_logits(model_, hidden.index_select(0, index));
}

// What was gathered before is not gathered again.
std::vector<Result<SampledToken>> PagedEngine::draw_whole(const std::vector<DrawRow>& rows,
                                                          const at::Tensor& own, bool lacks,
                                                          bool* ran_out) {
  const int64_t vocab = model_.spec().vocab;
  std::vector<Result<SampledToken>> drawn(rows.size(), SampledToken());
  if (has_logits_) {
    drawn.assign(rows.size(), Status(Code::kOutOfMemory, "memory ran out behind a draw"));
    return drawn;
  }
  const std::optional<at::Tensor> scores =
      gather_logits(own, vocab, model_.options().tensor_parallel, lacks);
  has_logits_ = true;
  *ran_out = !scores.has_value();
  if (*ran_out) return drawn;
  float* data = scores->mutable_data_ptr<float>();
  at::parallel_for(0, std::ssize(rows), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      drawn[i] = sample_token(data + i * vocab, vocab, *rows[i].options, rows[i].context);
  });
  return drawn;
}

std::vector<Result<SampledToken>> PagedEngine::draw_rows_of(const std::vector<DrawRow>& rows,
                                                            const at::Tensor& scores, bool lacks,
                                                            bool* ran_out) {
  const bool whole = model_.options().tensor_parallel.tp_size == 1;
  if (whole && !scores.is_cpu() && draws_on_device(rows)) return draw_on_device(rows, scores);
  const at::Tensor own = to_host(scores).contiguous();
  return shared_draw_ ? shared_draw_->run(own, lacks) : draw_whole(rows, own, lacks, ran_out);
}

// Draws the next token of each due sequence from the logits of its row of `hidden`.
Result<DrawnTokens> PagedEngine::draw(const DueTokens& due, const at::Tensor& hidden) {
  DrawnTokens out;
  if (due.rows.empty()) return out;
  const bool lacks = !hidden.defined();
  const std::vector<Result<SampledToken>> drawn =
      draw_rows_of(draw_rows(due), own_scores(due, hidden), lacks, &out.ran_out);
  if (shared_draw_)
    out.gathered_rows = shared_draw_->gathered_rows(), out.ran_out = shared_draw_->ran_out();
  if (out.ran_out) return out;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const Generated& progress = running(due.running[i]).progress;
    BRAID_TRY(drawn[i].status().at(
        cat("sample ", progress.sample, ", new token ", progress.response_ids.size())));
    out.tokens.push_back(*drawn[i]);
  }
  return out;
}

// All slices count as cached, and the due sequences have one more token.
void PagedEngine::advance(const ScheduledRound& round, const DueTokens& due,
                          const std::vector<SampledToken>& drawn) {
  for (const ScheduledRound::Slice& slice : round.slices)
    (scheduler_.running()[slice.running].decoding() ? stats_.decode_tokens
                                                    : stats_.prefill_tokens) += slice.tokens;
  scheduler_.advance(round);
  for (size_t i = 0; i < drawn.size(); ++i) {
    Sequence& sequence = running(due.running[i]);
    sequence.progress.response_ids.push_back(drawn[i].token);
    sequence.progress.logprobs.push_back(drawn[i].logprob);
    sequence.progress.finish = finish_of(sequence);
    if (sequence.progress.finish != Finish::kRunning) scheduler_.end(due.running[i]);
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
  for (const ScheduledSequence& s : scheduler_.running()) {
    if (!s.ended()) continue;
    give_back(s.id);
    const auto found = sequences_.find(s.id);
    finished.push_back(std::move(found->second.progress));
    sequences_.erase(found);
  }
  scheduler_.retire();
  return finished;
}

void PagedEngine::count_pages() {
  stats_.held_pages = pool_.capacity() - pool_.free_pages();
  stats_.peak_pages = std::max(stats_.peak_pages, stats_.held_pages);
}

Status PagedEngine::round() {
  const at::NoGradGuard no_grad;
  BRAID_CHECK(!open_, "the round before is not settled");
  BRAID_TRY(make_room());
  const ScheduledRound& round = scheduler_.next_round();
  place(round);
  count_pages();
  if (round.slices.empty()) return ok_status();
  ++stats_.steps;
  OpenRound open{&round, due_tokens(round), {}};
  BRAID_ASSIGN(open.computed, compute(round, open.due));
  open_ = std::move(open);
  return ok_status();
}

Result<std::vector<Generated>> PagedEngine::settle() {
  if (!open_) return std::vector<Generated>{};
  OpenRound open = std::move(*open_);
  open_.reset();
  if (options_.ranks != nullptr) BRAID_TRY(options_.ranks->agree(&open.computed));
  if (open.computed.ran_out) {
    BRAID_TRY(give_way(tokens_of(*open.round), open.computed.why));
    return std::vector<Generated>{};
  }
  advance(*open.round, open.due, open.computed.drawn);
  std::vector<Generated> finished = collect_finished();
  count_pages();
  return finished;
}

// Of the pages that have these tokens, which begin within the first.
std::vector<KvLayer> PagedEngine::copy_cache(const Sequence& sequence, int64_t from,
                                             int64_t to) const {
  const int64_t first = from / kPageTokens, begin = from - first * kPageTokens;
  const std::vector<int32_t> pages(sequence.pages.begin() + first, sequence.pages.end());
  std::vector<KvLayer> copies;
  for (const KvLayer& layer : pool_.layers()) {
    const KvLayer read = read_kv(layer, pages, to - first * kPageTokens);
    copies.push_back(
        {read.keys.narrow(0, begin, to - from), read.values.narrow(0, begin, to - from)});
  }
  return copies;
}

int64_t PagedEngine::cached(SampleId sample) const {
  for (const ScheduledSequence& s : scheduler_.running())
    if (s.id == sample.value) return s.cached;
  return 0;
}

std::vector<KvLayer> PagedEngine::copy_cache(SampleId sample, int64_t tokens) const {
  BRAID_CHECK(!open_, "a round is not settled");
  if (tokens == 0 || cached(sample) < tokens) return {};
  return copy_cache(sequences_.at(sample.value), 0, tokens);
}

Result<Engine::Exported> PagedEngine::export_sequence(SampleId sample, int64_t from) {
  BRAID_CHECK(!open_, "a round is not settled");
  std::vector<KvLayer> cache;
  if (const int64_t cached = this->cached(sample); cached > from)
    cache = copy_cache(sequences_.at(sample.value), from, cached);
  BRAID_ASSIGN(Exported out, take_out(sample));
  out.kv = std::move(cache);
  return out;
}

Result<Engine::Exported> PagedEngine::take_out(SampleId sample) {
  BRAID_CHECK(!open_, "a round is not settled");
  const auto found = sequences_.find(sample.value);
  if (found == sequences_.end()) return not_found(cat("sample ", sample, " is not in this engine"));
  Exported out;
  give_back(sample.value);
  scheduler_.remove(sample.value);
  count_pages();
  out.request = std::move(found->second.request);
  out.progress = std::move(found->second.progress);
  sequences_.erase(found);
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
  BRAID_CHECK(!open_, "a round is not settled");
  const std::string where = cat("sample ", exported.progress.sample);
  BRAID_TRY(check(exported.request).at(where));
  BRAID_TRY(check_cache(exported).at(where));
  note_longest(exported.request);
  const int64_t tokens = exported.kv.empty() ? 0 : exported.kv[0].keys.size(0);
  if (tokens > 0) BRAID_TRY(provide_pool(page_limit(scheduler_.sequences() + 1)));
  const ScheduledSequence taken =
      take_in(std::move(exported.request), std::move(exported.progress));
  if (tokens == 0 || !scheduler_.has_place(tokens)) {
    scheduler_.submit_first(taken);
    return ok_status();
  }
  scheduler_.resume(taken, tokens);
  place({});
  const std::vector<int32_t>& pages = sequences_.at(taken.id).pages;
  const AttentionBatch target{{0, static_cast<int32_t>(tokens)}, {0}, {pages}, 0};
  for (size_t layer = 0; layer < exported.kv.size(); ++layer)
    store_kv(exported.kv[layer].keys, exported.kv[layer].values, target, pool_.layers()[layer]);
  count_pages();
  return ok_status();
}

}  // namespace

std::optional<int64_t> Engine::produced(SampleId sample) const {
  const std::vector<int32_t>* const tokens = drawn(sample);
  return tokens == nullptr ? std::nullopt : std::optional(static_cast<int64_t>(tokens->size()));
}

Result<std::vector<Generated>> Engine::step() {
  BRAID_TRY(round());
  return settle();
}

Result<std::unique_ptr<Engine>> Engine::create(Model& model, const EngineOptions& options) {
  if (model.spec().scalar_head)
    return invalid_input("a model with a scalar head cannot generate; give a language model");
  const LayerRange range = model.ranges().front();
  const bool whole = range.begin == 0 && range.end == model.spec().layers;
  if (!whole && options.ranks == nullptr)
    return invalid_input(cat("layers ", range.begin, " to ", range.end, " of ", model.spec().layers,
                             " cannot generate; give the whole model"));
  if (options.max_concurrent < 1 || options.max_batch_tokens < 1 || options.kv_budget_tokens < 0)
    return invalid_input(
        "rollout.max_concurrent and the batch limit must be at least 1, the KV budget at least 0");
  return std::unique_ptr<Engine>(std::make_unique<PagedEngine>(model, options));
}

}  // namespace braid::inline rollout
