#include "program/scored_prefixes.h"

#include <algorithm>

#include "base/contains.h"
#include "program/early_update.h"

namespace braid::inline program {

Field begun_field() { return {kBegunIds, FieldType::kTokens, FieldShape::kPerToken, kBegunLens}; }

bool scores_beginnings(const Program& program, CallId call) {
  if (!program.scoring.prefixes || !contains(program.scoring.scorers, call)) return false;
  const std::vector<Field>& writes = program.graph.calls[call.value].writes;
  const bool of_tokens = std::all_of(writes.begin(), writes.end(), [](const Field& field) {
    return field.shape == FieldShape::kPerToken;
  });
  return of_tokens && !program.calls[call.value].strategy.sequence_parallel &&
         !scores_beside(program, call);
}

Status check_beginnings(const Program& program) {
  for (const CallId call : program.scoring.scorers)
    if (scores_beginnings(program, call)) return ok_status();
  return invalid_input(
      "fusion.scored_prefixes: no call can score the beginnings of samples: one that says "
      "something of each token (log-probs, values), without sequence_parallel, and not beside an "
      "update (train_beside_scoring); set it false");
}

SamplePart begun_part(const Program& program) {
  return static_cast<SamplePart>(program.scoring.hand_overs());
}

PrefixPart prefix_part(const Program& program, CallId call, SamplePart part) {
  if (!scores_beginnings(program, call) || part < begun_part(program)) return PrefixPart::kNone;
  return part == begun_part(program) ? PrefixPart::kBeginnings : PrefixPart::kRest;
}

std::vector<int64_t> prefixes_scored(const Program& program, CallId call,
                                     const std::vector<PartitionSample>& samples,
                                     const std::vector<HandOver>& handed) {
  const CallPlacement& generate = program.calls[program.scoring.generate.value];
  for (const std::vector<bool>& ranks : free_ranks(program.calls[call.value], generate, handed))
    if (!contains(ranks, true)) return {};
  std::vector<int64_t> out(samples.size());
  const HandOver& last = handed.back();
  for (size_t i = 0; i < last.late.size(); ++i)
    out[last.late[i]] = samples[last.late[i]].prompt + last.produced[i] - 1;
  return out;
}

std::vector<PartitionSample> samples_of_part(std::vector<PartitionSample> samples,
                                             const std::vector<int64_t>& prefixes,
                                             PrefixPart part) {
  if (part == PrefixPart::kNone || prefixes.empty()) return samples;
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

bool is_cached(const SampleRows& rows, const std::vector<int64_t>& prefixes) {
  return !prefixes.empty() &&
         std::any_of(rows.begin(), rows.end(), [&](int32_t row) { return prefixes[row] > 0; });
}

Partition partition_beginnings(const std::vector<PartitionSample>& samples,
                               const std::vector<int64_t>& prefixes, const Strategy& strategy,
                               PartitionOptions options, const FreeRanks& free,
                               std::vector<HandOver> handed, SamplePart part) {
  options.share_prompts = false;
  handed.back().early = handed.back().late;
  std::vector<PartitionSample> begun = samples_of_part(samples, prefixes, PrefixPart::kBeginnings);
  // A prompt of one token to which none has come is scored whole at the end: it weighs nothing
  // here, since its response is not known yet, and who has it must be the same later.
  for (const int32_t row : handed.back().late)
    if (prefixes[row] == 0) begun[row].prompt = begun[row].response = 0;
  Partition out = partition_scored(begun, strategy, options, free, handed, part);
  for (std::vector<SampleRows>& of_rank : out.minibatches.front().micro_batches)
    for (SampleRows& rows : of_rank)
      std::erase_if(rows, [&](int32_t row) { return prefixes[row] == 0; });
  return out;
}

Partition with_beginnings(Partition plain, const Partition& begun) {
  const MiniBatch& from = begun.minibatches.front();
  MiniBatch& to = plain.minibatches.front();
  for (size_t rank = 0; rank < from.tokens.size(); ++rank) {
    const auto& rows = from.micro_batches[rank];
    const auto& tokens = from.tokens[rank];
    to.micro_batches[rank].insert(to.micro_batches[rank].end(), rows.begin(), rows.end());
    to.tokens[rank].insert(to.tokens[rank].end(), tokens.begin(), tokens.end());
  }
  plain.begun = begun.owned;
  return plain;
}

Partition partition_rest(const std::vector<SampleRows>& begun,
                         const std::vector<PartitionSample>& samples,
                         const std::vector<int64_t>& prefixes, const Strategy& strategy,
                         PartitionOptions options) {
  options.share_prompts = false;
  Partition out = partition_shares(begun, samples, strategy, options);
  const auto rest = samples_of_part(samples, prefixes, PrefixPart::kRest);
  for (int rank = 0; rank < strategy.dp; ++rank) set_lengths(rest, rank, false, &out);
  return out;
}

std::vector<SampleRows> rows_read(const Partition& partition) {
  std::vector<SampleRows> out = partition.owned;
  for (size_t rank = 0; rank < partition.begun.size(); ++rank) {
    const SampleRows& begun = partition.begun[rank];
    out[rank].insert(out[rank].end(), begun.begin(), begun.end());
    std::sort(out[rank].begin(), out[rank].end());
  }
  return out;
}

}  // namespace braid::inline program
