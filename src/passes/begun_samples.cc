#include "passes/begun_samples.h"

#include <ATen/ops/cat.h>

#include <utility>

#include "base/text.h"
#include "batching/cache_pages.h"

namespace braid::inline passes {
namespace {

SampleRows as_sample_rows(const Rows& rows) { return {rows.begin(), rows.end()}; }

// Page numbers for sequences of so many tokens, one after another.
std::vector<std::vector<int32_t>> numbered_pages(const std::vector<int64_t>& tokens) {
  std::vector<std::vector<int32_t>> out;
  int32_t next = 0;
  for (const int64_t length : tokens) {
    std::vector<int32_t>& pages = out.emplace_back();
    for (int64_t i = 0; i < pages_for(length); ++i) pages.push_back(next++);
  }
  return out;
}

}  // namespace

void BegunSamples::begin(BegunPart part) {
  part_ = std::move(part);
  batches_.clear();
  if (part_.part == PrefixPart::kBeginnings) begun_[part_.call].clear();
}

bool BegunSamples::cached(const Rows& rows) const {
  return part_.part != PrefixPart::kNone && is_cached(as_sample_rows(rows), part_.prefixes);
}

Result<const ResponseRows*> BegunSamples::packed(int32_t micro_batch, const Rows& rows) {
  if (const auto found = batches_.find(micro_batch); found != batches_.end())
    return &found->second.packed;
  const SampleStore& store = *part_.store;
  BRAID_ASSIGN(const TokenLists* prompts, store.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store.tokens(rests() ? part_.responses : kBegunIds));
  std::vector<Interval> parts;
  std::vector<int64_t> tokens;
  for (const size_t row : rows) {
    const int64_t all = std::ssize((*prompts)[row]) + std::ssize((*responses)[row]),
                  prefix = part_.prefixes[row];
    BRAID_CHECK(prefix < all, cat("row ", row, " has ", all, " tokens, and ", prefix,
                                  " of them are to be scored ahead"));
    parts.push_back(rests() ? Interval{prefix, all} : Interval{0, prefix});
    tokens.push_back(parts.back().end);
  }
  Batch& batch = batches_[micro_batch];
  batch.rows = rows;
  batch.packed = pack_parts(*prompts, *responses, rows, parts, part_.model->options().device);
  batch.packed.batch.attention.page_tables = numbered_pages(tokens);
  return &batch.packed;
}

const std::vector<KvLayer>& BegunSamples::caches(int32_t micro_batch) {
  Batch& batch = batches_.at(micro_batch);
  if (batch.pool == nullptr) {
    auto pool = std::make_unique<KvPool>(*part_.model);
    pool->grow(pool->room_for(page_count(batch.packed.batch.attention)));
    batch.pool = std::move(pool);
    if (rests()) bring_beginnings(micro_batch);
  }
  return batch.pool->layers();
}

void BegunSamples::bring_beginnings(int32_t micro_batch) {
  const Batch& batch = batches_.at(micro_batch);
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const int64_t prefix = part_.prefixes[batch.rows[i]];
    if (prefix == 0) continue;
    AttentionBatch target;
    target.query_begin = {0, static_cast<int32_t>(prefix)};
    target.cached = {0};
    target.page_tables = {pages(micro_batch)[i]};
    const std::vector<KvLayer>& kv = begun_.at(part_.call).at(sample(batch.rows[i])).kv;
    for (size_t layer = 0; layer < kv.size(); ++layer)
      store_kv(kv[layer].keys, kv[layer].values, target, batch.pool->layers()[layer]);
  }
}

at::Tensor BegunSamples::take_values(int32_t micro_batch, const at::Tensor& values) {
  const Batch& batch = batches_.at(micro_batch);
  const std::vector<int64_t> lens =
      part_.store->counts(rests() ? part_.store->sizes_of(part_.responses) : kBegunLens);
  const std::vector<int64_t> prompts = part_.store->prompt_lens();
  std::vector<at::Tensor> joined;
  int64_t next = 0;
  for (const size_t row : batch.rows) {
    // Of those of the response that the beginning predicts.
    const int64_t before = std::max<int64_t>(0, part_.prefixes[row] + 1 - prompts[row]);
    const int64_t count = rests() ? lens[row] - before : before;
    const at::Tensor own = values.narrow(0, next, count);
    next += count;
    if (!rests()) {
      begun_[part_.call][sample(row)].values = own;
      continue;
    }
    if (before > 0) joined.push_back(begun_.at(part_.call).at(sample(row)).values);
    joined.push_back(own);
  }
  BRAID_CHECK(next == values.size(0), cat("a call gave ", values.size(0), " values, not ", next));
  return rests() ? at::cat(joined) : at::Tensor();
}

void BegunSamples::end_batch(int32_t micro_batch) {
  const auto found = batches_.find(micro_batch);
  if (found == batches_.end()) return;
  const Batch& batch = found->second;
  for (size_t i = 0; i < batch.rows.size() && !rests(); ++i) {
    std::vector<KvLayer>& kv = begun_[part_.call][sample(batch.rows[i])].kv;
    kv.clear();
    for (const KvLayer& layer : batch.pool->layers())
      kv.push_back(read_kv(layer, pages(micro_batch)[i], part_.prefixes[batch.rows[i]]));
  }
  batches_.erase(found);
}

void BegunSamples::end() {
  batches_.clear();
  if (rests()) begun_.erase(part_.call);
}

void BegunSamples::clear() {
  batches_.clear();
  begun_.clear();
}

}  // namespace braid::inline passes
