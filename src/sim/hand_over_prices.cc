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

// The next hand-over, at so many samples left, of the replicas that are `among` those that went on.
PricedHandOver next_of(const std::vector<ReplicaWork>& replicas, const Step& step, int64_t below,
                       const std::vector<bool>& among) {
  std::vector<std::vector<int64_t>> counts;
  size_t longest = 0;
  for (const ReplicaWork& replica : replicas) {
    counts.push_back(counts_of(replica));
    longest = std::max(longest, counts.back().size());
  }
  const auto left_at = [&](size_t tally) {
    int64_t sum = 0;
    for (const auto& of_replica : counts)
      if (tally < of_replica.size()) sum += of_replica[tally];
    return sum;
  };
  size_t tally = 0;
  while (tally < longest && left_at(tally) > below) ++tally;
  const auto most = static_cast<int64_t>(tally + 2) * kRoundsBetweenTallies;
  PricedHandOver out;
  std::vector<SampleProgress> progress(step.samples);
  std::vector<SampleRows> owned;
  std::vector<BatchRequest> at(step.samples);
  for (const ReplicaWork& replica : replicas) {
    int64_t rounds = 0;
    const std::vector<BatchRequest> reached =
        run_batches_until(replica.requests, replica.options, most,
                          [&](const BatchRound& round) { rounds += round.rounds; });
    out.rounds.push_back(rounds);
    owned.push_back(replica.rows);
    for (size_t i = 0; i < replica.rows.size(); ++i) {
      const BatchRequest& request = reached[i];
      at[replica.rows[i]] = request;
      progress[replica.rows[i]] = {request.prompt, request.produced,
                                   request.produced >= request.response, request.predicted};
    }
  }
  out.handed = hand_over(progress, owned, step.limits, among);
  for (const SampleMove& move : out.handed.moves)
    if (!step.scoring.cache) at[move.row].cached = 0;
  out.left.resize(replicas.size());
  for (size_t replica = 0; replica < replicas.size(); ++replica)
    for (const int32_t row : out.handed.left[replica]) out.left[replica].push_back(at[row]);
  for (const SampleMove& move : out.handed.moves)
    out.moved.push_back({at[move.row].produced, at[move.row].cached});
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
