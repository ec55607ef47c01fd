#include "sim/scored_prefixes.h"

#include <algorithm>

namespace braid::inline sim {
namespace {

SamplePart part_of_last(const Program& program) {
  return static_cast<SamplePart>(program.scoring.hand_overs());
}

// The beginnings of what is left, on the ranks that are free behind the last hand-over.
Partition beginnings(const Program& program, const PartitionedCall& call, StepParts step,
                     const std::vector<int64_t>& prefixes) {
  const std::vector<PartitionSample> samples =
      samples_of_part(call.samples, prefixes, PrefixPart::kBeginnings);
  step.handed.back().early = step.handed.back().late;
  return partition_part(program, {call.call, samples, call.strategy, call.options},
                        part_of_last(program), step);
}

// The micro-batches of both, one after the other.
void append(const MiniBatch& from, MiniBatch* to) {
  for (size_t rank = 0; rank < from.tokens.size(); ++rank) {
    const auto& rows = from.micro_batches[rank];
    const auto& tokens = from.tokens[rank];
    to->micro_batches[rank].insert(to->micro_batches[rank].end(), rows.begin(), rows.end());
    to->tokens[rank].insert(to->tokens[rank].end(), tokens.begin(), tokens.end());
  }
}

// The samples of each rank with other lengths.
Partition cut_again(const std::vector<PartitionSample>& samples, const PartitionedCall& call,
                    Partition partition) {
  MiniBatch& all = partition.minibatches.front();
  all.micro_batches = cut_shares(partition.owned, samples, call.strategy, call.options);
  for (size_t rank = 0; rank < all.tokens.size(); ++rank) {
    all.tokens[rank].resize(all.micro_batches[rank].size());
    set_lengths(samples, static_cast<int>(rank), call.options.share_prompts, &partition);
  }
  return partition;
}

}  // namespace

PrefixPart prefix_part(const Program& program, SamplePart part) {
  const SamplePart last = part_of_last(program);
  if (part == last) return PrefixPart::kBeginnings;
  return part > last ? PrefixPart::kRest : PrefixPart::kNone;
}

std::vector<int64_t> prefixes_scored(ScoredPrefixes how,
                                     const std::vector<PartitionSample>& samples,
                                     const std::vector<PricedHandOver>& handed,
                                     const FreeRanks& free) {
  for (const std::vector<bool>& ranks : free)
    if (std::find(ranks.begin(), ranks.end(), true) == ranks.end()) return {};
  std::vector<int64_t> out(samples.size());
  const PricedHandOver& last = handed.back();
  for (size_t replica = 0; replica < last.left.size(); ++replica)
    for (size_t i = 0; i < last.left[replica].size(); ++i) {
      const int32_t row = last.handed.left[replica][i];
      const int64_t known =
          how == ScoredPrefixes::kFree ? samples[row].response : last.left[replica][i].produced;
      out[row] = samples[row].prompt + known - 1;
    }
  return out;
}

std::vector<PartitionSample> samples_of_part(std::vector<PartitionSample> samples,
                                             const std::vector<int64_t>& prefixes,
                                             PrefixPart part) {
  if (part == PrefixPart::kNone) return samples;
  for (size_t row = 0; row < samples.size(); ++row) {
    PartitionSample& sample = samples[row];
    const int64_t prefix = prefixes[row];
    if (prefix == 0) continue;
    const int64_t rest = sample.prompt + sample.response - prefix;
    sample.prompt = part == PrefixPart::kRest ? 0 : std::min(sample.prompt, prefix);
    sample.response = part == PrefixPart::kRest ? rest : prefix - sample.prompt;
  }
  return samples;
}

void add_prefixes(const SampleRows& rows, const std::vector<int64_t>& prefixes,
                  std::vector<PackedLength>* lengths) {
  for (size_t i = 0; i < rows.size(); ++i) {
    (*lengths)[i].tokens += prefixes[rows[i]];
    (*lengths)[i].shared += prefixes[rows[i]];
  }
}

Partition partition_with_prefixes(const Program& program, const PartitionedCall& call,
                                  SamplePart part, const StepParts& step,
                                  const CallPrefixes& prefixes, Partition plain) {
  const PrefixPart what = prefix_part(program, part);
  const bool free = prefixes.how == ScoredPrefixes::kFree;
  if (what == PrefixPart::kNone || (what == PrefixPart::kBeginnings && free)) return plain;
  const std::vector<PartitionSample> rest = samples_of_part(call.samples, prefixes.tokens, what);
  if (free)
    return partition_part(program, {call.call, rest, call.strategy, call.options}, part, step);
  Partition begun = beginnings(program, call, step, prefixes.tokens);
  if (what == PrefixPart::kBeginnings) {
    append(begun.minibatches.front(), &plain.minibatches.front());
    return plain;
  }
  return cut_again(rest, call, std::move(begun));
}

}  // namespace braid::inline sim
