// The steps of a generation that leaves samples for the next step (rollout.in_flight), by the
// rounds of the engine's scheduler: in each of them a replica goes on until it has the groups that
// are taken of it (program/carried_groups.h). What is carried is computed anew, prompt and tokens
// so far. Not thread-safe; the functions are pure.
#pragma once

#include <optional>
#include <vector>

#include "plan/problem.h"
#include "sim/call_cost.h"
#include "sim/simulate.h"

namespace braid::inline sim {

// One replica.
class CarriedReplica {
 public:
  // A generation of a problem with `replicas` of an engine, whose cache holds any request.
  // REQUIRES: prompts of a step and in flight divide into the replicas; both references outlive
  // this.
  CarriedReplica(const PlanningProblem& problem, const Call& call, int64_t replicas,
                 const BatchOptions& engine)
      : work_(problem.workload), call_(call), replicas_(replicas), engine_(engine) {}

  // Requests of this replica that come beside those that it has left, as far as they find a place:
  // in the first step twice, as more are in flight than a step takes.
  void fetch(const std::vector<BatchRequest>& requests);
  // Those of which tokens are missing.
  std::vector<BatchRequest> unfinished() const;
  // Generates until the step has its part, which leaves. Returns the rounds.
  std::vector<BatchRound> run();

  // New tokens of what the last step has left.
  double carried_tokens() const;

 private:
  int64_t copies() const;
  std::optional<std::vector<bool>> taken() const;

  const Workload& work_;
  const Call& call_;
  const int64_t replicas_;
  const BatchOptions engine_;
  int64_t step_ = 0;
  std::vector<BatchRequest> requests_;  // in flight, in the order of the data
  std::vector<int64_t> begun_;  // of each of them the step that drew its first token; -1: none has
};

// A step of a replica.
struct CarriedStep {
  std::vector<BatchRequest> requests;  // that it begins with and that have not finished
  std::vector<BatchRound> rounds;
  int64_t pages() const;  // that its cache has at most
};

// Steps in a row, in which as many samples come, with the same lengths in another order: the first
// ones, to which nothing or little was carried, and then those that repeat themselves.
struct CarriedSteps {
  std::vector<CarriedStep> first, usual;
  const CarriedStep& fullest() const;
};
// REQUIRES: the call carries samples.
CarriedSteps carrying_steps(const PlanningProblem& problem, const Call& call,
                            const Strategy& strategy, int replica, const SampleLengths& lengths,
                            const BatchOptions& engine);

// Seconds of rounds in a row, with the agreements after them.
double rounds_seconds(const CallCost& cost, const std::vector<BatchRound>& rounds);
// Of steps that end when all replicas have ended, their mean: [replica][step].
double mean_seconds(const std::vector<std::vector<double>>& seconds);

}  // namespace braid::inline sim
