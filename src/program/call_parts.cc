#include "program/call_parts.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/contains.h"
#include "base/status.h"
#include "base/text.h"
#include "program/scored_prefixes.h"
#include "program/streamed_update.h"

namespace braid::inline program {
namespace {

// Of an update whose mini-batches are others than those that were scored in parts, the last part
// has all.
Partition part_of_early(const Program& program, const Partition& whole, CallId call,
                        SamplePart part, bool permuted_anew) {
  if (!permuted_anew) return part_of_update(whole, program.early_update, part);
  if (part == parts_of_call(program, call).back()) return whole;
  return {{}, std::vector<SampleRows>(whole.owned.size())};
}

Partition part_of_streamed(const Program& program, const Partition& whole,
                           const PartitionedCall& call, SamplePart part, const StepParts& step) {
  const bool early = ends_before_update(program, call.call, part);
  if (step.at_once) return early ? Partition{{}, std::vector<SampleRows>(call.strategy.dp)} : whole;
  const StreamedSamples samples{whole, call.samples, call.strategy, call.options};
  return step.again && !early ? partition_again(program, samples, step.handed)
                              : partition_streamed(program, samples, part, step.handed);
}

// Of a scorer that scores beginnings, in the part that has them or what is after them; none where
// it has whole samples.
std::optional<Partition> part_with_prefixes(const Program& program, const PartitionedCall& call,
                                            SamplePart part, const StepParts& step,
                                            const FreeRanks& free) {
  const PrefixPart what = prefix_part(program, call.call, part);
  if (what == PrefixPart::kNone) return std::nullopt;
  const std::vector<int64_t> prefixes =
      prefixes_scored(program, call.call, call.samples, step.handed);
  if (prefixes.empty()) return std::nullopt;
  const SamplePart begun = begun_part(program);
  Partition beginnings = partition_beginnings(call.samples, prefixes, call.strategy, call.options,
                                              free, step.handed, begun);
  if (what == PrefixPart::kRest)
    return partition_rest(beginnings.owned, call.samples, prefixes, call.strategy, call.options);
  return with_beginnings(
      partition_scored(call.samples, call.strategy, call.options, free, step.handed, part),
      beginnings);
}

// Of a call that runs in parts, whose ranks keep what they were given.
Partition part_of_given(const Program& program, const PartitionedCall& call, SamplePart part,
                        const StepParts& step, const std::vector<SampleRows>& given) {
  if (prefix_part(program, call.call, part) == PrefixPart::kRest)
    if (const auto prefixes = prefixes_scored(program, call.call, call.samples, step.handed);
        !prefixes.empty())
      return partition_rest(given, call.samples, prefixes, call.strategy, call.options);
  return partition_shares(given, call.samples, call.strategy, call.options);
}

// Of a scorer whose generation was handed over: of what is left then, where an update begins early
// the rows of one of its parts.
Partition part_of_handed(const Program& program, const PartitionedCall& call, SamplePart part,
                         const StepParts& step) {
  const bool known = static_cast<size_t>(part) <= step.handed.size() ||
                     std::ssize(step.handed) == program.scoring.hand_overs();
  BRAID_CHECK(known, cat("part ", static_cast<int>(part), " of ",
                         program.graph.calls[call.call.value].name, " is known after hand-over ",
                         static_cast<int>(part), ", and there were ", step.handed.size()));
  const CallPlacement& generate = program.calls[program.scoring.generate.value];
  const FreeRanks free = free_ranks(program.calls[call.call.value], generate, step.handed);
  if (auto cut = part_with_prefixes(program, call, part, step, free)) return *std::move(cut);
  if (!scores_beside(program, call.call) || of_hand_over(program, call.call, part))
    return partition_scored(call.samples, call.strategy, call.options, free, step.handed, part);
  const SampleRows left = scored_last(free, step.handed);
  const SampleRows& wanted = step.scored[hand_over_of(part) - step.handed.size()];
  SampleRows rows;
  std::set_intersection(left.begin(), left.end(), wanted.begin(), wanted.end(),
                        std::back_inserter(rows));
  return partition_rows(call.samples, rows, call.strategy, call.options);
}

// The numbers that rows have once those that are not marked were dropped.
class Renumbering {
 public:
  explicit Renumbering(const std::vector<bool>& kept) {
    int32_t next = 0;
    for (const bool stays : kept) numbers_.push_back(stays ? next++ : -1);
  }

  bool drops() const { return contains(numbers_, -1); }
  void renumber(SampleRows* rows) const {
    for (int32_t& row : *rows) row = numbers_[row];
    std::erase(*rows, -1);
  }
  void renumber(std::vector<SampleMove>* moves) const {
    for (SampleMove& move : *moves) move.row = numbers_[move.row];
    std::erase_if(*moves, [](const SampleMove& move) { return move.row < 0; });
  }

 private:
  SampleRows numbers_;
};

}  // namespace

StepParts retained(StepParts step, const std::vector<bool>& kept) {
  const Renumbering left(kept);
  for (HandOver& handed : step.handed) {
    for (size_t i = handed.late.size(); i-- > 0;)
      if (!kept[handed.late[i]]) handed.produced.erase(handed.produced.begin() + i);
    for (SampleRows* rows : {&handed.early, &handed.late}) left.renumber(rows);
    for (SampleRows& rows : handed.finished) left.renumber(&rows);
    for (SampleRows& rows : handed.left) left.renumber(&rows);
    left.renumber(&handed.moves);
  }
  for (SampleRows& rows : step.scored) left.renumber(&rows);
  for (auto& [part, shares] : step.given)
    for (SampleRows& rows : shares) left.renumber(&rows);
  step.permuted_anew |= left.drops() && !step.scored.empty();
  step.at_once |= left.drops();
  return step;
}

std::vector<SampleRows> scored_in_parts(const Program& program, const PartitionedCall& update,
                                        int64_t samples) {
  return scored_in_parts(partition_minibatches(update.samples, update.options),
                         program.early_update, samples);
}

Partition partition_part(const Program& program, const PartitionedCall& call, SamplePart part,
                         const StepParts& step, const Partition* whole) {
  Partition anew;
  if (whole == nullptr && (begins_early(program, call.call) || is_streamed(program, call.call)))
    anew = partition_samples(call.samples, call.strategy, call.options);
  const Partition& all = whole == nullptr ? anew : *whole;
  if (begins_early(program, call.call))
    return part_of_early(program, all, call.call, part, step.permuted_anew);
  if (is_streamed(program, call.call)) return part_of_streamed(program, all, call, part, step);
  if (const auto given = step.given.find({call.call, part}); given != step.given.end())
    return part_of_given(program, call, part, step, given->second);
  if (hand_overs_of(program, call.call) > 0) return part_of_handed(program, call, part, step);
  return partition_rows(call.samples, step.scored[static_cast<size_t>(part) - 1], call.strategy,
                        call.options);
}

}  // namespace braid::inline program
