#include "sim/carried_steps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/rng.h"
#include "program/carried_groups.h"
#include "program/partition.h"
#include "sim/call_work.h"

namespace braid::inline sim {
namespace {

// Steps of one kind, for which samples are carried, may alternate with those that must wait for
// them: a whole number of turns is looked at, of at most so many.
constexpr int64_t kMostCarried = 3;
constexpr int64_t kTurns = 2;
constexpr uint64_t kOrderStream = 0x6361727279;

bool has_finished(const BatchRequest& request) { return request.produced == request.response; }

// The same samples, group by group in another order, as of another step.
SampleLengths reordered(const SampleLengths& lengths, int64_t copies, uint64_t step) {
  std::vector<size_t> order(lengths.prompt.size() / copies);
  std::iota(order.begin(), order.end(), size_t{0});
  RandomStream random(step, kOrderStream);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  SampleLengths out;
  for (const size_t group : order)
    for (size_t i = group * copies; i < (group + 1) * copies; ++i) {
      out.prompt.push_back(lengths.prompt[i]), out.response.push_back(lengths.response[i]);
      if (!lengths.prompt_id.empty()) out.prompt_id.push_back(lengths.prompt_id[i]);
    }
  return out;
}

}  // namespace

int64_t CarriedReplica::copies() const { return std::max<int64_t>(1, work_.samples_per_prompt); }

void CarriedReplica::fetch(const std::vector<BatchRequest>& requests) {
  const auto most = static_cast<size_t>(work_.prompts_in_flight * copies() / replicas_);
  for (const BatchRequest& request : requests) {
    if (requests_.size() == most) break;
    requests_.push_back(request), begun_.push_back(-1);
  }
}

std::vector<BatchRequest> CarriedReplica::unfinished() const {
  std::vector<BatchRequest> out;
  for (const BatchRequest& request : requests_)
    if (!has_finished(request)) out.push_back(request);
  return out;
}

std::vector<BatchRound> CarriedReplica::run() {
  std::vector<BatchRound> rounds;
  const std::vector<BatchRequest> open = unfinished();
  std::vector<size_t> places;
  for (size_t i = 0; i < requests_.size(); ++i)
    if (!has_finished(requests_[i])) places.push_back(i);
  const auto enough = [&](const std::vector<BatchRequest>& now) {
    for (size_t i = 0; i < now.size(); ++i) requests_[places[i]] = now[i];
    return taken().has_value();
  };
  const auto keep = [&](const BatchRound& round) { rounds.push_back(round); };
  if (!taken()) enough(run_batches_until_enough(open, engine_, enough, keep));
  const std::vector<bool> gone = taken().value();
  std::vector<BatchRequest> left;
  std::vector<int64_t> begun;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (gone[i / copies()]) continue;
    left.push_back(requests_[i]);
    begun.push_back(begun_[i] < 0 && requests_[i].produced > 0 ? step_ : begun_[i]);
  }
  requests_ = std::move(left), begun_ = std::move(begun);
  ++step_;
  return rounds;
}

double CarriedReplica::carried_tokens() const {
  double out = 0;
  for (const BatchRequest& request : requests_) out += static_cast<double>(request.produced);
  return out;
}

std::optional<std::vector<bool>> CarriedReplica::taken() const {
  std::vector<GroupInFlight> groups;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (i % copies() == 0) groups.push_back({.finished = true});
    GroupInFlight& group = groups.back();
    group.finished = group.finished && has_finished(requests_[i]);
    group.due = group.due || (begun_[i] >= 0 && step_ - begun_[i] >= call_.carried_steps);
  }
  return taken_groups(groups, work_.prompts / replicas_);
}

int64_t CarriedStep::pages() const {
  int64_t most = 0;
  for (const BatchRound& round : rounds) most = std::max(most, round.pages);
  return most;
}

const CarriedStep& CarriedSteps::fullest() const {
  const CarriedStep* out = &usual.front();
  for (const auto* steps : {&first, &usual})
    for (const CarriedStep& step : *steps)
      if (step.pages() > out->pages()) out = &step;
  return *out;
}

CarriedSteps carrying_steps(const PlanningProblem& problem, const Call& call,
                            const Strategy& strategy, int replica, const SampleLengths& lengths,
                            const BatchOptions& engine) {
  const auto samples = std::ssize(lengths.prompt);
  const SampleRows rows = partition_requests(samples, strategy)[replica];
  const int64_t copies = std::max<int64_t>(1, problem.workload.samples_per_prompt);
  CarriedReplica steps(problem, call, strategy.dp, engine);
  int64_t fetches = 0;
  const auto fetch = [&] {
    const SampleLengths again = reordered(lengths, copies, static_cast<uint64_t>(fetches));
    auto requests = requests_of(problem, again, samples, rows);
    for (BatchRequest& request : requests) request.group += fetches * samples;  // other prompts
    steps.fetch(requests);
    ++fetches;
  };
  const int64_t turn = 1 + std::min(call.carried_steps, kMostCarried);
  CarriedSteps out;
  fetch();  // more are in flight than a step takes
  for (int64_t step = 0; step < (1 + kTurns) * turn; ++step) {
    fetch();
    CarriedStep next{steps.unfinished(), {}};
    next.rounds = steps.run();
    (step < turn ? out.first : out.usual).push_back(std::move(next));
  }
  return out;
}

double rounds_seconds(const CallCost& cost, const std::vector<BatchRound>& rounds) {
  double out = 0;
  int64_t before = 0;
  for (const BatchRound& round : rounds) {
    const auto agreements = static_cast<double>(agreements_in(before, round.rounds, round.due));
    before += round.rounds;
    out += cost.rounds_s(round) + agreements * cost.agreements_s();
  }
  return out;
}

double mean_seconds(const std::vector<std::vector<double>>& seconds) {
  const size_t steps = seconds.front().size();
  double out = 0;
  for (size_t step = 0; step < steps; ++step) {
    double longest = 0;
    for (const std::vector<double>& replica : seconds) longest = std::max(longest, replica[step]);
    out += longest / static_cast<double>(steps);
  }
  return out;
}

}  // namespace braid::inline sim
