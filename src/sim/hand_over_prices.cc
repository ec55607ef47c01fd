#include "sim/hand_over_prices.h"

#include <algorithm>

namespace braid::inline sim {
namespace {

// What is left of a replica's requests at each count.
std::vector<int64_t> counts_of(const ReplicaWork& replica) {
  std::vector<int64_t> out;
  int64_t rounds = 0, left = std::ssize(replica.requests);
  run_batches(replica.requests, replica.options, [&](const BatchRound& round) {
    const auto next = [&] { return (std::ssize(out) + 1) * kRoundsBetweenTallies; };
    // Of several rounds in a row requests finish in the last.
    while (next() < rounds + round.rounds) out.push_back(left);
    rounds += round.rounds;
    left = round.unfinished;
    if (next() == rounds) out.push_back(left);
  });
  return out;
}

// What a step's hand-overs have in common.
struct Step {
  const FusedScoring& scoring;
  ReplicaLimits limits;
  size_t samples = 0;
};

// How far all samples are when each replica has made so many rounds, or all of its own.
struct Reached {
  std::vector<SampleProgress> progress;  // by row
  std::vector<BatchRequest> at;
  std::vector<SampleRows> owned;  // by replica
  std::vector<int64_t> rounds;
};

Reached reached_after(const std::vector<ReplicaWork>& replicas, size_t samples, int64_t most) {
  Reached out{std::vector<SampleProgress>(samples), std::vector<BatchRequest>(samples), {}, {}};
  for (const ReplicaWork& replica : replicas) {
    int64_t rounds = 0;
    const std::vector<BatchRequest> reached =
        run_batches_until(replica.requests, replica.options, most,
                          [&](const BatchRound& round) { rounds += round.rounds; });
    out.rounds.push_back(rounds);
    out.owned.push_back(replica.rows);
    for (size_t i = 0; i < replica.rows.size(); ++i) {
      const BatchRequest& request = reached[i];
      out.at[replica.rows[i]] = request;
      out.progress[replica.rows[i]] = {request.prompt, request.produced,
                                       request.produced >= request.response, request.predicted};
    }
  }
  return out;
}

// What is left at each count, over all replicas.
std::vector<int64_t> left_by_count(const std::vector<ReplicaWork>& replicas) {
  std::vector<int64_t> out;
  for (const ReplicaWork& replica : replicas) {
    const std::vector<int64_t> counts = counts_of(replica);
    out.resize(std::max(out.size(), counts.size()), 0);
    for (size_t tally = 0; tally < counts.size(); ++tally) out[tally] += counts[tally];
  }
  return out;
}

// The first count that is at most so; behind all where none is.
size_t first_below(const std::vector<int64_t>& left, int64_t below) {
  return std::find_if(left.begin(), left.end(), [&](int64_t count) { return count <= below; }) -
         left.begin();
}

// A count is read at the next one. With the one that is low enough for copies the ranks begin to
// tell each other how far they are, and they copy when they read the next, where that is not low
// enough for a hand-over.
PricedCopies copies_ahead(const std::vector<ReplicaWork>& replicas, const Step& step,
                          const std::vector<int64_t>& left, size_t handed) {
  PricedCopies out{{}, {}, -1, {}};
  const size_t low = first_below(left, step.scoring.pre_copy);
  if (step.scoring.pre_copy == 0 || low >= handed) return out;
  out.told_after = static_cast<int64_t>(low + 2) * kRoundsBetweenTallies;
  if (low + 1 >= handed) return out;
  const Reached told = reached_after(replicas, step.samples, out.told_after);
  const Reached sent =
      reached_after(replicas, step.samples, out.told_after + kRoundsBetweenTallies);
  const auto cached = [](const Reached& reached, size_t row) {
    return reached.progress[row].finished ? 0 : reached.at[row].cached;
  };
  std::vector<int64_t> known;
  for (size_t row = 0; row < step.samples; ++row) known.push_back(cached(told, row));
  out.decided = pre_copy(told.progress, known, told.owned, step.limits, step.scoring.below);
  out.valid.assign(step.samples, 0);
  for (const CacheCopy& copy : out.decided.copies)
    if (cached(sent, copy.row) >= copy.tokens) out.valid[copy.row] = copy.tokens;
  out.rounds = sent.rounds;
  return out;
}

// What moves with a sample, which then has its cache where it goes on.
MovedSample moved_with(const SampleMove& move, bool with_cache, BatchRequest* at) {
  if (!with_cache) at->cached = 0;
  const int64_t rest = std::max<int64_t>(0, at->cached - move.copied);
  at->cached = move.copied + rest;
  return {at->produced, rest};
}

// The next hand-over, at so many samples left, of the replicas that are `among` those that went on.
PricedHandOver next_of(const std::vector<ReplicaWork>& replicas, const Step& step, int64_t below,
                       const std::vector<bool>& among) {
  const std::vector<int64_t> left = left_by_count(replicas);
  const size_t tally = first_below(left, below);
  const auto most = static_cast<int64_t>(tally + 2) * kRoundsBetweenTallies;
  PricedHandOver out;
  if (among.empty()) out.copied = copies_ahead(replicas, step, left, tally);
  Reached reached = reached_after(replicas, step.samples, most);
  for (size_t row = 0; row < out.copied.valid.size(); ++row) {
    reached.progress[row].chosen = out.copied.decided.chosen[row];
    reached.progress[row].copied = out.copied.valid[row];
  }
  out.rounds = std::move(reached.rounds);
  out.handed = hand_over(reached.progress, reached.owned, step.limits, among);
  for (const SampleMove& move : out.handed.moves)
    out.moved.push_back(moved_with(move, step.scoring.cache, &reached.at[move.row]));
  out.left.resize(replicas.size());
  for (size_t replica = 0; replica < replicas.size(); ++replica)
    for (const int32_t row : out.handed.left[replica]) out.left[replica].push_back(reached.at[row]);
  return out;
}

}  // namespace

std::vector<PricedHandOver> hand_overs_of(std::vector<ReplicaWork> replicas,
                                          const FusedScoring& scoring, const RoomFor& room) {
  Step step{scoring, {}, 0};
  for (const ReplicaWork& replica : replicas) step.samples += replica.rows.size();
  const BatchOptions& engine = replicas.back().options;
  step.limits = going_on({engine.max_concurrent, engine.kv_budget_tokens, engine.most_response},
                         static_cast<int64_t>(step.samples), std::ssize(replicas), scoring.most);
  std::vector<PricedHandOver> out = {next_of(replicas, step, scoring.below, {})};
  for (const int64_t below : scoring.again) {
    for (size_t i = 0; i < replicas.size(); ++i) {
      replicas[i].rows = out.back().handed.left[i];
      replicas[i].requests = out.back().left[i];
      if (room)
        replicas[i].options.kv_budget_tokens = room(static_cast<int>(i), replicas[i].requests);
    }
    const std::vector<bool> among = out.back().handed.goes_on;
    out.push_back(next_of(replicas, step, below, among));
  }
  return out;
}

}  // namespace braid::inline sim
