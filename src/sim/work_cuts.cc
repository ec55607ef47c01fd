#include "sim/work_cuts.h"

#include <algorithm>

namespace braid {
namespace {

using Tokens = std::vector<int64_t>;

constexpr size_t kMostKept = size_t{1} << 20;  // micro-batches: 16 MiB

int64_t cut_at(int64_t size, int64_t k, int64_t count) { return size * k / count; }

std::vector<Tokens> pick(const Tokens& tokens, const std::vector<SampleRows>& bins) {
  std::vector<Tokens> out;
  for (const auto& bin : bins) {
    out.emplace_back();
    for (const int32_t item : bin) out.back().push_back(tokens[item]);
  }
  return out;
}

// Runs of about equal numbers, in order.
std::vector<Tokens> runs(const Tokens& tokens, int64_t count) {
  const auto all = static_cast<int64_t>(tokens.size());
  std::vector<Tokens> out(count);
  for (int64_t k = 0; k < count; ++k)
    out[k].assign(tokens.begin() + cut_at(all, k, count),
                  tokens.begin() + cut_at(all, k + 1, count));
  return out;
}

// One part by rank. It consists of a run of every rank's sequences in order, which is how a rank
// that keeps its sequences would cut them.
std::vector<Tokens> part_by_rank(const SampleLengths& lengths, const Strategy& strategy,
                                 int64_t samples, const WorkShare& share) {
  const auto all = static_cast<int64_t>(lengths.prompt.size());
  Tokens tokens;
  std::vector<Tokens> in_order;
  std::vector<int64_t> room;
  for (int rank = 0; rank < strategy.dp; ++rank) {
    const int64_t first = cut_at(samples, rank, strategy.dp);
    const int64_t each = cut_at(samples, rank + 1, strategy.dp) - first;
    const int64_t begin = first + cut_at(each, share.part, share.parts),
                  end = first + cut_at(each, share.part + 1, share.parts);
    in_order.emplace_back();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t sample = i * all / samples;
      in_order.back().push_back(lengths.prompt[sample] + lengths.response[sample]);
    }
    tokens.insert(tokens.end(), in_order.back().begin(), in_order.back().end());
    room.push_back(end - begin);
  }
  return strategy.in_order ? in_order : pick(tokens, deal_evenly(tokens, room));
}

}  // namespace

std::vector<std::vector<int64_t>> cut_by_number(const std::vector<int64_t>& tokens, int64_t count,
                                                bool in_order) {
  if (in_order || count == 1) return runs(tokens, count);
  const auto all = static_cast<int64_t>(tokens.size());
  std::vector<int64_t> room;
  for (int64_t k = 0; k < count; ++k)
    room.push_back(cut_at(all, k + 1, count) - cut_at(all, k, count));
  return pick(tokens, deal_evenly(tokens, room));
}

std::vector<std::vector<int64_t>> cut_by_tokens(const std::vector<int64_t>& tokens,
                                                int64_t budget) {
  std::vector<Tokens> out;
  int64_t filled = 0;
  for (const int64_t length : tokens) {
    if (out.empty() || filled + length > budget) {
      out.emplace_back();
      filled = 0;
    }
    out.back().push_back(length);
    filled += length;
  }
  return out;
}

const std::vector<MicroBatch>& WorkCuts::micro_batches(const CallCost& cost,
                                                       const SampleLengths& lengths,
                                                       int64_t samples, const WorkShare& share) {
  const Strategy& s = cost.strategy();
  const int groups = s.interleave > 1 ? s.pp : 1;
  const BatchKey key{{s.dp, samples, share.parts, s.in_order},
                     share.part,
                     share.dp_rank,
                     s.cp,
                     s.micro_tokens,
                     s.micro_batches,
                     groups,
                     &cost.model()};
  const auto found = batches_.find(key);
  if (found != batches_.end()) return found->second;
  const Tokens& tokens = this->share(lengths, s, samples, share);
  const auto most = std::max<int64_t>(1, static_cast<int64_t>(tokens.size()));
  auto pieces =
      s.micro_tokens > 0
          ? cut_by_tokens(tokens, s.micro_tokens)
          : cut_by_number(tokens, std::clamp<int64_t>(s.micro_batches, 1, most), s.in_order);
  if (pieces.size() % groups != 0)
    pieces = cut_by_number(
        tokens, static_cast<int64_t>((pieces.size() + groups - 1) / groups * groups), s.in_order);
  std::vector<MicroBatch> batches;
  for (const Tokens& piece : pieces) batches.push_back(cost.micro_batch(piece));
  kept_ += batches.size();
  if (kept_ > kMostKept) {
    batches_.clear();
    kept_ = batches.size();
  }
  return batches_.emplace(key, std::move(batches)).first->second;
}

const std::vector<int64_t>& WorkCuts::share(const SampleLengths& lengths, const Strategy& strategy,
                                            int64_t samples, const WorkShare& share) {
  auto& shares = shares_[{strategy.dp, samples, share.parts, strategy.in_order}];
  if (shares.empty())
    for (int64_t part = 0; part < share.parts; ++part)
      for (Tokens& tokens : part_by_rank(lengths, strategy, samples, {0, part, share.parts}))
        shares.push_back(std::move(tokens));
  return shares[share.part * strategy.dp + share.dp_rank];
}

}  // namespace braid
