#include "rollout/shared_draw.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/rng.h"
#include "comm/communicator.h"
#include "nn/shard.h"
#include "rollout/token_weights.h"

namespace braid::inline rollout {
namespace {

constexpr int64_t kNucleus = 256;  // candidates of each rank for top-p
constexpr int64_t kMostCandidates = 1024;

// Places in what a rank tells of its sums (batching/sampling_messages.h).
constexpr int64_t kBlockSum = 0, kWeightSum = 1, kPositive = 2;
// And of what it found: the token or -1, its weight, whether no order of additions changes it.
constexpr int64_t kToken = 0, kWeight = 1, kSure = 2;

bool truncates(const SamplingOptions& options) { return options.top_k > 0 || options.top_p < 1; }

}  // namespace

SamplingNeeds sampling_needs(const std::vector<DrawRow>& rows) {
  SamplingNeeds out{0, false};
  for (const DrawRow& row : rows) {
    const SamplingOptions& options = *row.options;
    if (options.temperature == 0) continue;
    if (!truncates(options)) out.scans = true;
    const int64_t wanted = options.top_k > 0 ? options.top_k : options.top_p < 1 ? kNucleus : 0;
    if (wanted <= kMostCandidates) out.candidates = std::max(out.candidates, wanted);
  }
  return out;
}

std::optional<at::Tensor> gather_logits(const at::Tensor& own, int64_t vocab,
                                        const TensorParallelGroup& group, bool lacks) {
  if (lacks) own.mutable_data_ptr<float>()[0] = kLacksInLogits;
  const at::Tensor whole = gather_columns(own, vocab, group);
  const float* const first = whole.const_data_ptr<float>();
  for (int rank = 0; rank < group.tp_size; ++rank)
    if (first[units_of_rank(vocab, {rank, group.tp_size}).begin] == kLacksInLogits)
      return std::nullopt;
  return whole;
}

SharedDraw::SharedDraw(std::vector<DrawRow> rows, int64_t vocab, const TensorParallelGroup& group)
    : rows_(std::move(rows)), vocab_(vocab), group_(group), needs_(sampling_needs(rows_)) {
  const IndexRange own = units_of_rank(vocab, group);
  begin_ = own.begin, end_ = own.end;
}

bool SharedDraw::draws_from_candidates(int64_t row) const {
  return options(row).temperature != 0 && truncates(options(row));
}
bool SharedDraw::fails(int64_t row) const {
  const float* top = tops_.const_data_ptr<float>() + row * kTopNumbers;
  return top[1] > 0 || !std::isfinite(top[0]);
}
double SharedDraw::unit(int64_t row) const {
  const SamplingContext& context = rows_[row].context;
  return random_unit(options(row).seed, context.sample, context.response_ids->size());
}
float* SharedDraw::weights(int64_t row) const {
  return weights_.mutable_data_ptr<float>() + row * (end_ - begin_);
}
double SharedDraw::told(int64_t rank, int64_t row, int64_t number) const {
  const int64_t each = sum_numbers(needs_);
  return all_sums_
      .const_data_ptr<double>()[(rank * static_cast<int64_t>(rows_.size()) + row) * each + number];
}

// Everything before the first message: memory that is not there is then not missed in between.
void SharedDraw::allocate() {
  const auto rows = static_cast<int64_t>(rows_.size());
  const auto f64 = at::TensorOptions(at::kDouble);
  weights_ = at::empty({rows, end_ - begin_});
  tops_ = at::empty({rows, kTopNumbers});
  lanes_ = at::empty({rows, kWeightLanes});
  all_lanes_ = at::empty({group_.tp_size, rows, kWeightLanes});
  sums_ = at::empty({rows, sum_numbers(needs_)}, f64);
  all_sums_ = at::empty({group_.tp_size, rows, sum_numbers(needs_)}, f64);
  found_ = at::empty({rows, kFoundNumbers}, f64);
  all_found_ = at::empty({group_.tp_size, rows, kFoundNumbers}, f64);
  drawn_.assign(rows, SampledToken());
}

std::vector<Result<SampledToken>> SharedDraw::run(const at::Tensor& logits, bool lacks) {
  constexpr int64_t kSteps = 9;
  lacks_ = lacks;
  for (; steps_ < kSteps; ++steps_) step(steps_, logits);
  if (!unsure_.empty()) gather(logits);
  if (lacks_ && !told_)
    drawn_.assign(rows_.size(), Status(Code::kOutOfMemory, "memory ran out behind a draw"));
  return drawn_;
}

// With the first number of the first row: sum of blocks, token that was found.
void SharedDraw::tell_shortage(const at::Tensor& numbers, double what) {
  static_assert(kBlockSum == 0 && kToken == 0);
  if (!lacks_) return;
  numbers.mutable_data_ptr<double>()[0] = what;
  told_ = true;
}

bool SharedDraw::told_shortage() const {
  const auto rows = static_cast<int64_t>(rows_.size());
  for (int64_t rank = 0; rank < group_.tp_size; ++rank) {
    const double* const found = all_found_.const_data_ptr<double>() + rank * rows * kFoundNumbers;
    if (told(rank, 0, kBlockSum) == kLacksInSums) return true;
    if (needs_.scans && found[kToken] == kLacksInFound) return true;
  }
  return false;
}

void SharedDraw::each_row(void (SharedDraw::*act)(int64_t row)) {
  at::parallel_for(0, std::ssize(rows_), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) (this->*act)(row);
  });
}

// A step that memory ran out in is begun again: what it has done is done again alike.
void SharedDraw::step(int64_t number, const at::Tensor& logits) {
  Communicator& group = *group_.communicator;
  switch (number) {
    case 0:
      allocate();
      for (int64_t row = 0; row < std::ssize(rows_); ++row)
        measure(row, logits.const_data_ptr<float>() + row * (end_ - begin_));
      return;
    case 1:
      return wait_or_throw(group.all_reduce(tops_, Reduce::kMax, "largest logits of a draw"));
    case 2:
      return each_row(&SharedDraw::weigh_row);
    case 3:
      return wait_or_throw(group.all_gather(all_lanes_, lanes_, "open blocks of a draw"));
    case 4:
      return each_row(&SharedDraw::sum_row);
    case 5:
      tell_shortage(sums_, kLacksInSums);
      return wait_or_throw(group.all_gather(all_sums_, sums_, "sums of a draw"));
    case 6:
      return needs_.scans ? each_row(&SharedDraw::scan) : void();
    case 7:
      if (!needs_.scans) return;
      tell_shortage(found_, kLacksInFound);
      return wait_or_throw(group.all_gather(all_found_, found_, "tokens of a draw"));
    default:
      unsure_.clear();
      ran_out_ = told_shortage();
      if (ran_out_) return;
      for (int64_t row = 0; row < std::ssize(rows_); ++row) conclude(row);
  }
}

void SharedDraw::measure(int64_t row, const float* logits) {
  float* const own = weights(row);
  const int64_t count = end_ - begin_;
  std::copy(logits, logits + count, own);
  shape_logits(own, begin_, count, options(row), rows_[row].context);
  const float top = largest_logit(own, count);
  float* const told = tops_.mutable_data_ptr<float>() + row * kTopNumbers;
  told[0] = std::isnan(top) ? -std::numeric_limits<float>::infinity() : top;
  told[1] = std::isnan(top) || top > std::numeric_limits<float>::max() ? 1 : 0;
}

// The best token of a greedy row stands in its place of the sum of weights.
void SharedDraw::weigh_row(int64_t row) {
  float* const own = weights(row);
  const int64_t count = end_ - begin_;
  const SamplingOptions& with = options(row);
  const float top = fails(row) ? 0 : tops_.const_data_ptr<float>()[row * kTopNumbers];
  double* const sums = sums_.mutable_data_ptr<double>() + row * sum_numbers(needs_);
  if (with.temperature == 0) {
    const float* const best = std::find(own, own + count, top);
    sums[kPositive] = best == own + count ? -1.0 : static_cast<double>(begin_ + (best - own));
  }
  weigh(own, begin_, count, vocab_, top, with.temperature == 0 ? 1 : with.temperature);
  WeightLanes lanes{};
  const int64_t open = std::max(begin_, end_ / kWeightBlock * kWeightBlock);
  if (end_ < vocab_) sum_blocks(own + (open - begin_), open, end_, vocab_, &lanes);
  std::copy(lanes.begin(), lanes.end(), lanes_.mutable_data_ptr<float>() + row * kWeightLanes);
}

void SharedDraw::sum_row(int64_t row) {
  const float* const own = weights(row);
  const int64_t count = end_ - begin_;
  const SamplingOptions& with = options(row);
  double* const sums = sums_.mutable_data_ptr<double>() + row * sum_numbers(needs_);
  WeightLanes lanes{};
  if (group_.tp_rank > 0) {
    const float* before = all_lanes_.const_data_ptr<float>() +
                          ((group_.tp_rank - 1) * std::ssize(rows_) + row) * kWeightLanes;
    std::copy(before, before + kWeightLanes, lanes.begin());
  }
  sums[kBlockSum] = sum_blocks(own, begin_, end_, vocab_, &lanes);
  if (with.temperature == 0) return;
  if (draws_from_candidates(row)) return choose(row);
  const auto least = static_cast<float>(with.min_p);
  sums[kWeightSum] = 0;
  for (int64_t i = 0; i < count; ++i)
    if (own[i] >= least) sums[kWeightSum] += own[i];
  sums[kPositive] = 0;
}

void SharedDraw::choose(int64_t row) {
  const float* const own = weights(row);
  const int64_t count = end_ - begin_;
  double* const sums = sums_.mutable_data_ptr<double>() + row * sum_numbers(needs_);
  sums[kWeightSum] = 0;
  sums[kPositive] =
      static_cast<double>(std::count_if(own, own + count, [](float weight) { return weight > 0; }));
  const std::vector<WeighedToken> best = heaviest(own, begin_, count, needs_.candidates);
  for (int64_t i = 0; i < needs_.candidates; ++i) {
    const bool there = i < std::ssize(best);
    sums[kSumNumbers + 2 * i] = there ? static_cast<double>(best[i].token) : -1;
    sums[kSumNumbers + 2 * i + 1] = there ? best[i].weight : 0;
  }
}

// Of the whole row, of what min-p keeps of it.
double SharedDraw::sum_of(int64_t row) const {
  const bool kept = options(row).min_p > 0 && !draws_from_candidates(row);
  double sum = 0;
  for (int64_t rank = 0; rank < group_.tp_size; ++rank)
    sum += told(rank, row, kept ? kWeightSum : kBlockSum);
  return sum;
}

// Two orders of additions of the row's weights give sums that are no further apart.
double SharedDraw::doubt(int64_t row) const {
  double sum = 0;
  for (int64_t rank = 0; rank < group_.tp_size; ++rank) sum += told(rank, row, kBlockSum);
  return 4 * static_cast<double>(vocab_) * std::numeric_limits<double>::epsilon() * sum;
}

// The first token at which the running sum of weights passes the target, or the last with a weight,
// if it is here. The sum of all weights may be below that of the blocks, which are rounded to f32.
void SharedDraw::scan(int64_t row) {
  double* const found = found_.mutable_data_ptr<double>() + row * kFoundNumbers;
  std::fill(found, found + kFoundNumbers, -1.0);
  if (fails(row) || options(row).temperature == 0 || draws_from_candidates(row)) return;
  const double target = unit(row) * sum_of(row), apart = doubt(row);
  double below = 0, behind = 0;
  for (int64_t rank = 0; rank < group_.tp_rank; ++rank) below += told(rank, row, kWeightSum);
  for (int64_t rank = group_.tp_rank + 1; rank < group_.tp_size; ++rank)
    behind += told(rank, row, kWeightSum);
  const bool first = below == 0;
  if (!first && below > target + apart) return;
  const auto least = static_cast<float>(options(row).min_p);
  const float* const own = weights(row);
  double before = below;
  bool any = false;
  for (int64_t i = 0; i < end_ - begin_; ++i) {
    if (own[i] == 0 || own[i] < least) continue;
    before = below, below += own[i];
    const bool opens = first && !any;
    any = true;
    found[kToken] = static_cast<double>(begin_ + i), found[kWeight] = own[i];
    found[kSure] = below > target + apart && (opens || before < target - apart) ? 1 : 0;
    if (below > target - apart) return;
  }
  // All here are below the target: another rank has it, unless this is the last weight.
  if (behind > 0)
    found[kToken] = -1;
  else if (any)
    found[kSure] = 1;
}

namespace {

// What is kept of a row's candidates, and its sum.
struct Kept {
  bool sure = true;
  std::vector<WeighedToken> tokens;
  double sum = 0;
};

// How many of the tokens, heaviest first, are needed to reach a weight: all of them where they are
// the `last` ones, whatever they weigh.
size_t nucleus(const std::vector<WeighedToken>& tokens, double wanted, double apart, bool last,
               bool* sure) {
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (last && i + 1 == tokens.size()) return tokens.size();
    sum += tokens[i].weight;
    if (sum < wanted - apart) continue;
    *sure = sum > wanted + apart;
    return i + 1;
  }
  *sure = false;
  return tokens.size();
}

Kept keep(std::vector<WeighedToken> tokens, double sum, double apart, const SamplingOptions& with) {
  Kept out;
  if (with.top_k > 0) {
    sum = 0;
    for (const WeighedToken& each : tokens) sum += each.weight;
  }
  if (with.top_p < 1)
    tokens.resize(nucleus(tokens, with.top_p * sum, apart, with.top_k > 0, &out.sure));
  const auto least = static_cast<float>(with.min_p);
  std::erase_if(tokens, [&](const WeighedToken& each) { return each.weight < least; });
  for (const WeighedToken& each : tokens) out.sum += each.weight;
  out.tokens = std::move(tokens);
  return out;
}

SampledToken with_logprob(int64_t token, double weight, double sum) {
  return {static_cast<int32_t>(token), static_cast<float>(std::log(weight) - std::log(sum))};
}

}  // namespace

// What the first rank that found a token says; false where none did, or it is not sure.
bool SharedDraw::takes_found(int64_t row) {
  for (int64_t rank = 0; rank < group_.tp_size; ++rank) {
    const double* const found =
        all_found_.const_data_ptr<double>() + (rank * std::ssize(rows_) + row) * kFoundNumbers;
    if (found[kToken] < 0) continue;
    drawn_[row] = with_logprob(static_cast<int64_t>(found[kToken]), found[kWeight], sum_of(row));
    return found[kSure] > 0;
  }
  return false;
}

void SharedDraw::conclude(int64_t row) {
  if (fails(row)) {
    const float* top = tops_.const_data_ptr<float>() + row * kTopNumbers;
    drawn_[row] = no_distribution(top[1] > 0 ? std::numeric_limits<float>::infinity() : top[0]);
  } else if (options(row).temperature == 0) {
    for (int64_t rank = group_.tp_size; rank-- > 0;)
      if (const double token = told(rank, row, kPositive); token >= 0)
        drawn_[row] =
            SampledToken{static_cast<int32_t>(token), static_cast<float>(-std::log(sum_of(row)))};
  } else if (draws_from_candidates(row)) {
    if (!takes_candidate(row)) unsure_.push_back(row);
  } else if (!takes_found(row)) {
    unsure_.push_back(row);
  }
}

// Of a row the candidates of all ranks before which no other token comes, in the order of
// truncation.
std::vector<WeighedToken> SharedDraw::candidates(int64_t row, int64_t* positive) const {
  std::vector<WeighedToken> out;
  WeighedToken least{vocab_, 0};  // what no rank has told comes behind it
  *positive = 0;
  for (int64_t rank = 0; rank < group_.tp_size; ++rank) {
    const auto here = static_cast<int64_t>(told(rank, row, kPositive));
    *positive += here;
    for (int64_t i = 0; i < std::min(here, needs_.candidates); ++i)
      out.push_back({static_cast<int64_t>(told(rank, row, kSumNumbers + 2 * i)),
                     static_cast<float>(told(rank, row, kSumNumbers + 2 * i + 1))});
    if (here > needs_.candidates && needs_.candidates > 0) least = std::min(least, out.back());
  }
  std::sort(out.begin(), out.end());
  std::erase_if(out, [&](const WeighedToken& each) { return least < each; });
  return out;
}

bool SharedDraw::takes_candidate(int64_t row) {
  const SamplingOptions& with = options(row);
  int64_t positive = 0;
  std::vector<WeighedToken> all = candidates(row, &positive);
  if (with.top_k > 0) {
    if (with.top_k > std::ssize(all) || with.top_k >= positive) return false;
    all.resize(with.top_k);
  }
  const double slack = with.top_p < 1 ? doubt(row) : 0;
  Kept kept = keep(std::move(all), sum_of(row), slack, with);
  if (!kept.sure || kept.tokens.empty()) return false;
  std::sort(kept.tokens.begin(), kept.tokens.end(),
            [](const WeighedToken& a, const WeighedToken& b) { return a.token < b.token; });
  const double target = unit(row) * kept.sum;
  double below = 0;
  WeighedToken drawn;
  for (const WeighedToken& each : kept.tokens) {
    const double before = below;
    drawn = each, below += each.weight;
    if (below <= target - slack) continue;
    const bool opens = before == 0 || before < target - slack;
    if (slack > 0 && (below <= target + slack || !opens)) return false;
    break;
  }
  drawn_[row] = with_logprob(drawn.token, drawn.weight, kept.sum);
  return true;
}

// Of all ranks, of the rows that nobody is sure of.
void SharedDraw::gather(const at::Tensor& logits) {
  const at::Tensor part = logits.index_select(0, at::tensor(unsure_, at::kLong));
  const std::optional<at::Tensor> whole = gather_logits(part, vocab_, group_, lacks_);
  const std::vector<int64_t> rows = std::exchange(unsure_, {});
  told_ = told_ || lacks_;
  gathered_ = std::ssize(rows);
  ran_out_ = !whole.has_value();
  if (ran_out_) return;
  float* const data = whole->mutable_data_ptr<float>();
  for (int64_t i = 0; i < gathered_; ++i)
    drawn_[rows[i]] =
        sample_token(data + i * vocab_, vocab_, options(rows[i]), rows_[rows[i]].context);
}

}  // namespace braid::inline rollout
