#include "program/early_update.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/contains.h"
#include "base/text.h"

namespace braid::inline program {
namespace {

bool writes_one_of(const Call& call, const std::vector<std::string>& names) {
  return std::any_of(call.writes.begin(), call.writes.end(),
                     [&](const Field& field) { return contains(names, field.name); });
}

bool share_devices(const CallPlacement& a, const CallPlacement& b) {
  return std::any_of(a.mesh.devices.begin(), a.mesh.devices.end(),
                     [&](DeviceId device) { return contains(b.mesh.devices, device); });
}

// The only call that reads what another writes, if it is an update; else why it is none.
struct OnlyReader {
  std::optional<CallId> update;
  std::string why;
};

OnlyReader only_reader(const Graph& graph, CallId scorer) {
  OnlyReader out;
  for (int32_t i = 0; i < std::ssize(graph.calls); ++i) {
    const Call& call = graph.calls[i];
    if (!writes_one_of(graph.calls[scorer.value], call.reads)) continue;
    if (call.kind != CallKind::kTrainStep)
      return {std::nullopt, cat("is read by ", call.name, ", which looks at all samples")};
    if (out.update)
      return {std::nullopt,
              cat("is read by ", graph.calls[out.update->value].name, " and ", call.name)};
    out.update = CallId{i};
  }
  if (!out.update) out.why = "is read by no update";
  return out;
}

// Why a call cannot score samples beside an update; "": it can.
std::string why_not(const Program& program, CallId scorer, CallId update) {
  const CallPlacement &scores = program.calls[scorer.value], &learns = program.calls[update.value];
  const std::string& name = program.graph.calls[update.value].name;
  if (share_devices(scores, learns)) return cat("shares devices with ", name);
  if (passes_meet(scores.strategy, false)) return "meets in its passes (zero 3 or ep)";
  return scores.samples == learns.samples ? "" : cat("has other samples than ", name);
}

// The infer calls that read what data and the generation of their samples, if any, give.
std::vector<CallId> scoring_calls(const Graph& graph) {
  const CallKind gives = generates(graph) ? CallKind::kGenerate : CallKind::kFetch;
  std::set<int32_t> found;
  for (int32_t i = 0; i < std::ssize(graph.calls); ++i) {
    if (graph.calls[i].kind != gives) continue;
    for (const CallId call : reading_given(graph, CallId{i})) found.insert(call.value);
  }
  std::vector<CallId> out;
  for (const int32_t call : found) out.push_back(CallId{call});
  return out;
}

}  // namespace

bool may_score_beside_update(const Graph& graph) {
  const std::vector<CallId> scorers = scoring_calls(graph);
  return std::any_of(scorers.begin(), scorers.end(),
                     [&](CallId call) { return only_reader(graph, call).update.has_value(); });
}

bool scores_beside(const Program& program, CallId call) {
  return program.early_update.is_on() && contains(program.early_update.scorers, call);
}

Result<EarlyUpdate> early_update(const Program& program, int64_t minibatches, int64_t all) {
  EarlyUpdate out;
  out.minibatches = minibatches;
  out.parts = (all + minibatches - 1) / minibatches;
  if (out.parts < 2 || out.parts > kMostPartsOfUpdate)
    return invalid_input(
        cat("fusion.train_beside_scoring: ", minibatches, " of ", all,
            " mini-batches (train.minibatches) at a time are ", out.parts,
            " parts, which must be 2 to ", kMostPartsOfUpdate, "; set it to ",
            out.parts > kMostPartsOfUpdate
                ? cat("at least ", (all + kMostPartsOfUpdate - 1) / kMostPartsOfUpdate, ", or to 0")
                : std::string("0")));
  std::string reasons;
  for (const CallId call : scoring_calls(program.graph)) {
    const OnlyReader reader = only_reader(program.graph, call);
    std::string why = reader.update ? why_not(program, call, *reader.update) : reader.why;
    if (why.empty() && out.update.value >= 0 && out.update != *reader.update)
      why = "is of another update than the first";
    if (why.empty()) {
      out.update = *reader.update;
      out.scorers.push_back(call);
    } else {
      reasons += cat(reasons.empty() ? "" : "; ", program.graph.calls[call.value].name, " ", why);
    }
  }
  if (!out.scorers.empty()) return out;
  return invalid_input(
      cat("fusion.train_beside_scoring: no call can score samples beside an update",
          reasons.empty() ? "" : ": ", reasons, "; set it to 0"));
}

std::vector<SamplePart> parts_scored_for(const Program& program, CallId scorer, SamplePart part) {
  const int64_t last = hand_overs_of(program, scorer) + static_cast<int64_t>(part);
  std::vector<SamplePart> out;
  for (int64_t each = part == SamplePart::kEarly ? 1 : last; each <= last; ++each)
    out.push_back(static_cast<SamplePart>(each));
  return out;
}

std::vector<SamplePart> parts_given(const Program& program, const Exchange& exchange) {
  if (exchange.part != SamplePart::kAll && begins_early(program, exchange.consumer) &&
      scores_beside(program, exchange.producer))
    return parts_scored_for(program, exchange.producer, exchange.part);
  return {exchange.part};
}

SamplePart exchanged_part(const Program& program, CallId producer, CallId reader, SamplePart part) {
  if (begins_early(program, reader) && scores_beside(program, producer)) return part;
  const bool finished =
      of_hand_over(program, producer, part) && of_hand_over(program, reader, part);
  return finished ? part : SamplePart::kAll;
}

std::vector<SampleRows> scored_in_parts(const std::vector<SampleRows>& minibatches,
                                        const EarlyUpdate& early, int64_t samples) {
  std::vector<SampleRows> out(early.parts);
  std::vector<bool> taken(samples, false);
  const auto take = [&](int32_t row, SampleRows* part) {
    if (!taken[row]) part->push_back(row);
    taken[row] = true;
  };
  const int64_t count = std::min(std::ssize(minibatches), (early.parts - 1) * early.minibatches);
  for (int64_t i = 0; i < count; ++i)
    for (const int32_t row : minibatches[i]) take(row, &out[i / early.minibatches]);
  for (int32_t row = 0; row < samples; ++row) take(row, &out.back());
  for (SampleRows& rows : out) std::sort(rows.begin(), rows.end());
  return out;
}

std::optional<size_t> end_of_part(const EarlyUpdate& early, SamplePart part) {
  const auto number = static_cast<int64_t>(part);
  if (number == early.parts) return std::nullopt;
  return static_cast<size_t>(number * early.minibatches);
}

Partition part_of_update(const Partition& whole, const EarlyUpdate& early, SamplePart part) {
  const size_t count = whole.minibatches.size();
  const auto begin = static_cast<size_t>((static_cast<int64_t>(part) - 1) * early.minibatches);
  const size_t end = std::min(count, end_of_part(early, part).value_or(count));
  Partition out;
  std::vector<std::set<int32_t>> owned(whole.owned.size());
  for (size_t i = begin; i < end; ++i) {
    const MiniBatch& batch = out.minibatches.emplace_back(whole.minibatches[i]);
    for (size_t rank = 0; rank < owned.size(); ++rank)
      for (const SampleRows& rows : batch.micro_batches[rank])
        owned[rank].insert(rows.begin(), rows.end());
  }
  for (const auto& rows : owned) out.owned.emplace_back(rows.begin(), rows.end());
  return out;
}

Status verify_parts(const std::vector<Instruction>& list) {
  std::map<int32_t, SamplePart> begun;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!starts_call(list[i].kind) || list[i].part == SamplePart::kAll) continue;
    SamplePart& last = begun[list[i].call.value];
    if (static_cast<int>(list[i].part) != static_cast<int>(last) + 1)
      return invalid_input(cat("instruction ", i, " (", op_kind_name(list[i].kind),
                               "): comes before the samples that its call has first"));
    last = list[i].part;
  }
  return ok_status();
}

Status verify_early_update(const Program& program) {
  if (!program.early_update.is_on()) return ok_status();
  if (program.calls.empty()) return invalid_input("an update of one rank begins early");
  const EarlyUpdate& early = program.early_update;
  BRAID_ASSIGN(const EarlyUpdate right,
               early_update(program, early.minibatches, early.parts * early.minibatches));
  return right == program.early_update
             ? ok_status()
             : invalid_input("other calls score beside an update than can");
}

}  // namespace braid::inline program
