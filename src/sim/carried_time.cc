#include "sim/carried_time.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "program/carried_groups.h"
#include "program/partition.h"
#include "sim/call_work.h"

namespace braid::inline sim {
namespace {

// A sample in flight.
struct Flying {
  BatchRequest request;
  int64_t begun = -1;  // the step that drew its first token
};

// The steps of one replica.
class ReplicaSteps {
 public:
  ReplicaSteps(const PlanningProblem& problem, const Call& call, const CallCost& cost, int replica)
      : work_(problem.workload),
        problem_(problem),
        call_(call),
        cost_(cost),
        replica_(replica),
        engine_(batch_options(problem, cost.strategy(), {})) {}

  // Seconds of a step that waits for all that it fetches.
  double wait(int64_t step, uint64_t seed) const {
    return seconds([&](const auto& visit) { run_batches(fetched(step, seed), engine_, visit); });
  }

  // Seconds of a step, which leaves what it does not take. REQUIRES: steps come in their order.
  double carry(int64_t step, uint64_t seed) {
    fill(step, seed);
    std::vector<BatchRequest> requests;
    for (const Flying& each : flying_) requests.push_back(each.request);
    std::vector<BatchRequest> progress;
    const auto enough = [&](const std::vector<BatchRequest>& now) {
      return taken(step, now).has_value();
    };
    const double out = seconds([&](const auto& visit) {
      progress = run_batches_until_enough(requests, engine_, enough, visit);
    });
    const std::vector<bool> gone = taken(step, progress).value();
    std::vector<Flying> left;
    for (size_t i = 0; i < flying_.size(); ++i) {
      if (gone[i / copies()]) continue;
      const bool begins = flying_[i].begun < 0 && progress[i].produced > 0;
      left.push_back({progress[i], begins ? step : flying_[i].begun});
    }
    flying_ = std::move(left);
    return out;
  }

  // New tokens of what the last step has left.
  double carried_tokens() const {
    double out = 0;
    for (const Flying& each : flying_) out += static_cast<double>(each.request.produced);
    return out;
  }

 private:
  // Of the rounds that a run of the scheduler visits.
  template <typename Rounds>
  double seconds(const Rounds& rounds) const {
    double out = 0;
    int64_t before = 0;
    rounds([&](const BatchRound& round) {
      const auto agreements = static_cast<double>(agreements_in(before, round.rounds, round.due));
      before += round.rounds;
      out += cost_.rounds_s(round) + agreements * cost_.agreements_s();
    });
    return out;
  }

  int64_t copies() const { return std::max<int64_t>(1, work_.samples_per_prompt); }

  // The replica's part of what a step fetches that waits for all.
  std::vector<BatchRequest> fetched(int64_t step, uint64_t seed) const {
    const SampleLengths lengths = draw_lengths(work_, seed + static_cast<uint64_t>(step));
    const auto samples = static_cast<int64_t>(lengths.prompt.size());
    const SampleRows rows = partition_requests(samples, cost_.strategy())[replica_];
    std::vector<BatchRequest> out = requests_of(problem_, lengths, samples, rows);
    for (BatchRequest& request : out) request.group += step * work_.prompts;
    return out;
  }

  // The first step fetches what is in flight beside those that a step takes, too.
  void fill(int64_t step, uint64_t seed) {
    for (const BatchRequest& request : fetched(step, seed)) flying_.push_back({request});
    if (step > 0) return;
    const int64_t most = work_.prompts_in_flight * copies() / cost_.strategy().dp;
    for (const BatchRequest& request : fetched(-1, seed))
      if (std::ssize(flying_) < most) flying_.push_back({request});
  }

  std::optional<std::vector<bool>> taken(int64_t step,
                                         const std::vector<BatchRequest>& progress) const {
    std::vector<GroupInFlight> groups;
    for (size_t i = 0; i < progress.size(); ++i) {
      if (i % copies() == 0) groups.push_back({.finished = true});
      GroupInFlight& group = groups.back();
      group.finished = group.finished && progress[i].produced == progress[i].response;
      const int64_t begun = flying_[i].begun;
      group.due = group.due || (begun >= 0 && step - begun >= call_.carried_steps);
    }
    return taken_groups(groups, work_.prompts / cost_.strategy().dp);
  }

  const Workload& work_;
  const PlanningProblem& problem_;
  const Call& call_;
  const CallCost& cost_;
  const int replica_;
  const BatchOptions engine_;
  std::vector<Flying> flying_;  // in the order of the data
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
