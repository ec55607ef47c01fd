#include "sim/carried_time.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "program/partition.h"
#include "sim/call_work.h"
#include "sim/carried_steps.h"

namespace braid::inline sim {
namespace {

// The steps of one replica.
class ReplicaSteps {
 public:
  ReplicaSteps(const PlanningProblem& problem, const Call& call, const CallCost& cost, int replica)
      : problem_(problem),
        cost_(cost),
        replica_(replica),
        engine_(batch_options(problem, cost.strategy(), {})),
        carried_(problem, call, cost.strategy().dp, engine_) {}

  // Seconds of a step that waits for all that it fetches.
  double wait(int64_t step, uint64_t seed) const {
    std::vector<BatchRound> rounds;
    run_batches(fetched(step, seed), engine_,
                [&](const BatchRound& round) { rounds.push_back(round); });
    return rounds_seconds(cost_, rounds);
  }

  // Seconds of a step, which leaves what it does not take. REQUIRES: steps come in their order.
  double carry(int64_t step, uint64_t seed) {
    carried_.fetch(fetched(step, seed));
    if (step == 0) carried_.fetch(fetched(-1, seed));
    return rounds_seconds(cost_, carried_.run());
  }
  double carried_tokens() const { return carried_.carried_tokens(); }

 private:
  // The replica's part of what a step fetches that waits for all.
  std::vector<BatchRequest> fetched(int64_t step, uint64_t seed) const {
    const SampleLengths lengths =
        draw_lengths(problem_.workload, seed + static_cast<uint64_t>(step));
    const auto samples = static_cast<int64_t>(lengths.prompt.size());
    const SampleRows rows = partition_requests(samples, cost_.strategy())[replica_];
    std::vector<BatchRequest> out = requests_of(problem_, lengths, samples, rows);
    for (BatchRequest& request : out) request.group += step * problem_.workload.prompts;
    return out;
  }

  const PlanningProblem& problem_;
  const CallCost& cost_;
  const int replica_;
  const BatchOptions engine_;
  CarriedReplica carried_;
};

CarriedTime mean_time(std::vector<ReplicaSteps> replicas, int64_t first,
                      const CarriedOptions& options) {
  CarriedTime out;
  for (int64_t step = 0; step < first + options.steps; ++step) {
    double carrying_s = 0, waiting_s = 0, tokens = 0;
    for (ReplicaSteps& replica : replicas) {
      carrying_s = std::max(carrying_s, replica.carry(step, options.seed));
      tokens += replica.carried_tokens();
    }
    if (step < first) continue;
    for (const ReplicaSteps& replica : replicas)
      waiting_s = std::max(waiting_s, replica.wait(step, options.seed));
    const auto share = 1 / static_cast<double>(options.steps);
    out.carrying_s += share * carrying_s;
    out.waiting_s += share * waiting_s;
    out.carried_tokens += share * tokens;
  }
  return out;
}

}  // namespace

Result<CarriedTime> carried_time(const Program& program, const PlanningProblem& problem,
                                 const Calibration& calibration, const CarriedOptions& options) {
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    const Call& call = program.graph.calls[i];
    if (call.carried_steps == 0) continue;
    const CallId id{static_cast<int32_t>(i)};
    BRAID_ASSIGN(const CallCost cost, CallCost::make(program, id, problem, calibration));
    std::vector<ReplicaSteps> replicas;
    for (int replica = 0; replica < cost.strategy().dp; ++replica)
      replicas.emplace_back(problem, call, cost, replica);
    return mean_time(std::move(replicas), call.carried_steps, options);
  }
  BRAID_CHECK(false, "the graph carries samples");
}

}  // namespace braid::inline sim
