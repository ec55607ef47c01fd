// Generations that are handed over, priced: when, and what a step gains by it.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/rng.h"
#include "plan/test_problem.h"
#include "program/program.h"
#include "sim/hand_over_prices.h"
#include "sim/simulate.h"

namespace braid::inline sim {
namespace {

// Replicas with requests of random lengths.
std::vector<ReplicaWork> random_replicas(uint64_t seed, int replicas, int each) {
  RandomStream random(seed, 0);
  std::vector<ReplicaWork> out;
  int32_t row = 0;
  for (int r = 0; r < replicas; ++r) {
    ReplicaWork& work = out.emplace_back();
    work.options.max_concurrent = 3 + static_cast<int64_t>(random.below(4));
    work.options.most_response = 40;
    for (int i = 0; i < each; ++i) {
      work.rows.push_back(row);
      work.requests.push_back({static_cast<int64_t>(1 + random.below(50)),
                               static_cast<int64_t>(1 + random.below(40)), row});
      ++row;
    }
  }
  return out;
}

FusedScoring below_of(int64_t samples) {
  FusedScoring out;
  out.below = samples;
  return out;
}

// Round by round, as the ranks of a job count.
TEST(HandOverPrices, StopsWhereTheCountIsKnown) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const int64_t below = 1 + static_cast<int64_t>(seed % 12);
    const std::vector<ReplicaWork> replicas = random_replicas(seed, 3, 5);
    std::vector<std::vector<int64_t>> left;  // [replica][round]
    for (const ReplicaWork& work : replicas) {
      auto& rounds = left.emplace_back();
      run_batches_until(work.requests, work.options, 100'000,
                        [&](const BatchRound& round) { rounds.push_back(round.unfinished); });
    }
    bool known = false;
    int64_t stop = 0, counted = -1;
    while (!known) {
      ++stop;
      if (stop % kRoundsBetweenTallies != 0) continue;
      known = counted >= 0 && counted <= below;
      counted = 0;
      for (const auto& rounds : left) counted += stop <= std::ssize(rounds) ? rounds[stop - 1] : 0;
    }
    const PricedHandOver priced = hand_overs_of(replicas, below_of(below)).front();
    size_t unfinished = 0;
    for (size_t r = 0; r < replicas.size(); ++r) {
      EXPECT_EQ(priced.rounds[r], std::min<int64_t>(stop, std::ssize(left[r]))) << seed;
      unfinished += stop <= std::ssize(left[r]) ? left[r][stop - 1] : 0;
      EXPECT_EQ(priced.left[r].size(), priced.handed.left[r].size());
    }
    EXPECT_EQ(priced.handed.late.size(), unfinished) << seed;
    EXPECT_LE(unfinished, static_cast<size_t>(below));
  }
}

// What is moved with its cache goes on where it was: the rounds of all parts compute each token
// once.
TEST(HandOverPrices, EveryTokenIsComputedOnce) {
  const std::vector<ReplicaWork> replicas = random_replicas(7, 4, 6);
  const PricedHandOver priced = hand_overs_of(replicas, below_of(8)).front();
  ASSERT_FALSE(priced.handed.moves.empty());
  int64_t decoded = 0, wanted = 0;
  const auto count = [&](const BatchRound& round) { decoded += round.rounds * round.decoding; };
  for (size_t r = 0; r < replicas.size(); ++r) {
    BatchOptions options = replicas[r].options;
    run_batches_until(replicas[r].requests, options, priced.rounds[r], count);
    run_batches(priced.left[r], options, count);
    // The first new token comes with the prompt.
    for (const BatchRequest& request : replicas[r].requests) wanted += request.response - 1;
  }
  EXPECT_EQ(decoded, wanted);
}

// Handed over again: fewer replicas go on each time, of those that did, with all that is left; and
// the rounds of all parts still compute each token once.
TEST(HandOverPrices, FewerGoOnEachTime) {
  int64_t moved_again = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<ReplicaWork> replicas = random_replicas(seed, 6, 6);
    // All that a replica goes on with has a place, so that no cache is computed again.
    for (ReplicaWork& work : replicas) work.options.max_concurrent = 6;
    FusedScoring scoring = below_of(18);
    scoring.again = {9, 3};
    const std::vector<PricedHandOver> priced = hand_overs_of(replicas, scoring);
    ASSERT_EQ(priced.size(), 3u);
    size_t finished = 0;
    for (size_t at = 0; at < priced.size(); ++at) {
      const HandOver& handed = priced[at].handed;
      EXPECT_LE(handed.late.size(), static_cast<size_t>(at == 0 ? 18 : scoring.again[at - 1]));
      finished += handed.early.size();
      EXPECT_EQ(finished + handed.late.size(), 36u);
      for (size_t r = 0; at > 0 && r < replicas.size(); ++r)
        EXPECT_LE(handed.goes_on[r], priced[at - 1].handed.goes_on[r]);
      if (at > 0) moved_again += std::ssize(handed.moves);
    }
    int64_t decoded = 0, wanted = 0;
    const auto count = [&](const BatchRound& round) { decoded += round.rounds * round.decoding; };
    for (size_t r = 0; r < replicas.size(); ++r) {
      const BatchOptions& options = replicas[r].options;
      run_batches_until(replicas[r].requests, options, priced[0].rounds[r], count);
      for (size_t at = 1; at < priced.size(); ++at)
        run_batches_until(priced[at - 1].left[r], options, priced[at].rounds[r], count);
      run_batches(priced.back().left[r], options, count);
      for (const BatchRequest& request : replicas[r].requests) wanted += request.response - 1;
    }
    EXPECT_EQ(decoded, wanted) << seed;
  }
  EXPECT_GT(moved_again, 0);
}

// New tokens and their log-probs go with every sample, the cache where it moves.
TEST(HandOverPrices, MessagesOfASample) {
  EXPECT_EQ(moved_sample(10, 0, 64), (std::vector<double>{84}));
  EXPECT_EQ(moved_sample(10, 30, 64), (std::vector<double>{84, 1920}));
  const std::vector<ReplicaWork> replicas = random_replicas(7, 4, 6);
  FusedScoring scoring = below_of(8);
  const PricedHandOver with = hand_overs_of(replicas, scoring).front();
  scoring.cache = false;
  const PricedHandOver without = hand_overs_of(replicas, scoring).front();
  ASSERT_FALSE(with.moved.empty());
  ASSERT_EQ(with.moved.size(), without.moved.size());
  int64_t produced = 0;
  for (size_t i = 0; i < with.moved.size(); ++i) {
    EXPECT_GT(with.moved[i].cached, 0);
    EXPECT_EQ(without.moved[i].cached, 0);
    EXPECT_EQ(without.moved[i].produced, with.moved[i].produced);
    produced += with.moved[i].produced;
  }
  EXPECT_GT(produced, 0);
}

// Round by round, as the ranks of a job tell each other how far they are and copy at the next
// count, if that is not low enough for the hand-over; and what moves then is the rest of the
// caches.
TEST(HandOverPrices, CachesAreCopiedAhead) {
  int64_t copied = 0, at_once = 0, in_vain = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<ReplicaWork> replicas = random_replicas(seed, 4, 6);
    FusedScoring scoring = below_of(6);
    const PricedHandOver without = hand_overs_of(replicas, scoring).front();
    scoring.pre_copy = 10;
    const PricedHandOver with = hand_overs_of(replicas, scoring).front();
    EXPECT_EQ(without.copied.told_after, -1);
    EXPECT_EQ(with.rounds, without.rounds);
    EXPECT_EQ(with.handed.late, without.handed.late);
    EXPECT_EQ(std::count(with.handed.goes_on.begin(), with.handed.goes_on.end(), true),
              std::count(without.handed.goes_on.begin(), without.handed.goes_on.end(), true));
    const std::vector<CacheCopy>& copies = with.copied.decided.copies;
    if (copies.empty()) {
      EXPECT_EQ(with.handed, without.handed);
      ++at_once;
      continue;
    }
    const int64_t sent = with.copied.told_after + kRoundsBetweenTallies;
    EXPECT_EQ(with.copied.told_after % kRoundsBetweenTallies, 0);
    for (size_t r = 0; r < replicas.size(); ++r) {
      EXPECT_LE(with.copied.rounds[r], sent);
      EXPECT_LE(with.copied.rounds[r], with.rounds[r]);
    }
    std::map<int32_t, int64_t> of_row;
    for (const CacheCopy& copy : copies) of_row[copy.row] = copy.tokens;
    copied += std::ssize(copies), in_vain += std::ssize(copies);
    for (size_t i = 0; i < with.moved.size(); ++i) {
      const SampleMove& move = with.handed.moves[i];
      if (move.copied == 0) continue;
      EXPECT_EQ(move.copied, of_row.at(move.row));
      EXPECT_GT(with.moved[i].cached, 0);  // at least the rounds between
      --in_vain;
      for (size_t j = 0; j < without.moved.size(); ++j) {
        const bool same = without.handed.moves[j].row == move.row;
        EXPECT_TRUE(!same || with.moved[i].cached == without.moved[j].cached - move.copied);
      }
    }
  }
  EXPECT_GT(copied, in_vain);
  EXPECT_GT(in_vain, 0);
  EXPECT_GT(at_once, 0);
}

struct Step {
  double seconds = 0, scored = 0;  // of all, and until the last sample is scored
};

Step step_with(const PlanningProblem& problem, ExecutionPlan plan, int64_t below) {
  plan.fusion.migrate_below_samples = below;
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  const auto trace = simulate(*program, problem, committed_calibration(), {});
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  Step out{trace->step_s, 0};
  for (const CallSummary& call : trace->calls)
    if (program->graph.calls[call.call.value].kind == CallKind::kInfer)
      out.scored = std::max(out.scored, call.end_s);
  return out;
}

// A tight cache preempts alike whether rounds are taken one by one or in a row.
TEST(HandOverPrices, RoundsOneByOneAreThoseInARow) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const ReplicaWork& work : random_replicas(seed, 2, 9)) {
      BatchOptions options = work.options;
      options.kv_budget_tokens = 96 + 32 * static_cast<int64_t>(seed % 5);
      std::array<int64_t, 4> in_a_row = {}, one_by_one = {};
      const auto add_to = [](std::array<int64_t, 4>* sums) {
        return [sums](const BatchRound& round) {
          (*sums)[0] += round.rounds;
          (*sums)[1] += round.prefill_tokens;
          (*sums)[2] += round.rounds * round.decoding;
          (*sums)[3] += round.cached_tokens;
        };
      };
      run_batches(work.requests, options, add_to(&in_a_row));
      run_batches_until(work.requests, options, 100'000, add_to(&one_by_one));
      EXPECT_EQ(in_a_row, one_by_one) << seed;
    }
}

// Eight devices, and responses whose lengths have a tail.
PlanningProblem tail_problem(TestProblem test, int64_t longest) {
  test.actor = test.critic = "qwen2.5-7b";
  test.response_tokens = 256;
  PlanningProblem problem = make_test_problem(test);
  problem.workload.response.kind = LengthDistribution::Kind::kLognormal;
  problem.workload.response.sigma = 1;
  problem.workload.response.longest = longest;
  return problem;
}

// On 8 devices, with room for caches.
ExecutionPlan roomy_plan(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call != "generate") call.strategy.micro_tokens = 8192;
    if (call.call.starts_with("update")) call.strategy.zero_stage = 3;
  }
  return plan;
}

// Lengths with a tail on 8 devices: scoring begins while the tail is generated.
TEST(HandOverPrices, ScoringHidesBehindTheTail) {
  const PlanningProblem problem =
      tail_problem({.gpu = "b200", .prompts = 256, .prompt_tokens = 1024}, 2048);
  const ExecutionPlan plan = roomy_plan(problem);
  const Step apart = step_with(problem, plan, 0);
  Step best = apart;
  for (const int64_t below : {8, 16, 32, 40, 48, 64}) {
    const Step step = step_with(problem, plan, below);
    if (step.scored < best.scored) best = step;
  }
  EXPECT_LT(best.scored, 0.95 * apart.scored);
  EXPECT_LT(best.seconds, apart.seconds);
  std::printf("scored after %.2f s, handed over %.2f s\n", apart.scored, best.scored);
}

// When it is handed over again every rank but the first that speaks hears of it by a message on its
// links; and the rounds of a replica are those of all its parts.
TEST(HandOverPrices, AgainIsToldByMessages) {
  const PlanningProblem problem =
      tail_problem({.gpu = "b200", .prompts = 256, .prompt_tokens = 1024}, 2048);
  ExecutionPlan plan = roomy_plan(problem);
  SimOptions options;
  options.events = true;
  std::map<int64_t, int64_t> rounds;               // by number of hand-overs
  std::map<int64_t, std::set<int32_t>> receivers;  // of samples, and of what is told
  for (const int64_t hand_overs : {0, 1, 2}) {
    plan.fusion.migrate_below_samples = hand_overs > 0 ? 48 : 0;
    plan.fusion.migrate_again_below.assign(hand_overs > 1 ? 1 : 0, 16);
    const auto program = compile(plan, problem);
    ASSERT_TRUE(program.ok()) << program.status().message();
    const auto trace = simulate(*program, problem, committed_calibration(), options);
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    const auto generates = [&](CallId call) {
      return program->graph.calls[call.value].kind == CallKind::kGenerate;
    };
    for (const CallSummary& call : trace->calls)
      if (generates(call.call)) rounds[hand_overs] = call.rounds;
    for (const TraceEvent& event : trace->events)
      if (event.kind == EventKind::kExchange && event.track == TrackKind::kNvlinkIn &&
          event.device != event.peer && generates(event.call))
        receivers[hand_overs].insert(event.device.value);
  }
  EXPECT_LT(receivers[1].size(), 7u);
  EXPECT_GE(receivers[2].size(), 7u);
  EXPECT_GT(rounds[1], 0.9 * static_cast<double>(rounds[0]));
  EXPECT_GT(rounds[2], 0.9 * static_cast<double>(rounds[0]));
}

// How long the replicas that go on wait for what moves, and the step.
struct Transfer {
  double wait_s = 0, step_s = 0, peak_bytes = 0;
};

Transfer transfer_with(const PlanningProblem& problem, const ExecutionPlan& plan) {
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  SimOptions options;
  options.events = true;
  const auto trace = simulate(*program, problem, committed_calibration(), options);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  // The rounds of a replica that goes on: those before the hand-over and those behind it.
  std::map<int32_t, std::vector<std::pair<double, double>>> rounds;
  for (const TraceEvent& event : trace->events)
    if (event.kind == EventKind::kGenerate)
      rounds[event.device.value].push_back({event.start_s, event.end_s});
  Transfer out{0, trace->step_s, peak_bytes(*trace)};
  for (auto& [device, spans] : rounds) {
    std::sort(spans.begin(), spans.end());
    if (spans.size() > 1 && spans[1].second > spans[1].first)
      out.wait_s = std::max(out.wait_s, spans[1].first - spans[0].second);
  }
  return out;
}

// Over a network that has the time for them copies save nearly all of the wait, and take room where
// they go. Where it has not, the rest waits behind them; within a node there is nothing to save.
TEST(HandOverPrices, CopiesAheadSaveTheWaitForANetwork) {
  PlanningProblem problem = tail_problem(
      {.gpu = "b200", .nodes = 4, .devices = 2, .prompts = 256, .prompt_tokens = 1024}, 2048);
  ExecutionPlan plan = roomy_plan(problem);
  plan.fusion.migrate_below_samples = 32;
  const auto waits = [&](double gbps, int64_t below) {
    for (Node& node : problem.cluster.nodes) node.nic_gbps_per_gpu = gbps;
    plan.fusion.pre_copy_below_samples = below;
    const Transfer out = transfer_with(problem, plan);
    std::printf("%.0f Gb/s, copied at %d: waits %.3f s, step %.3f s\n", gbps,
                static_cast<int>(below), out.wait_s, out.step_s);
    return out;
  };
  const Transfer at_once = waits(50, 0);
  for (const int64_t below : {48, 64}) {
    const Transfer ahead = waits(50, below);
    EXPECT_LT(ahead.wait_s, 0.5 * at_once.wait_s);
    EXPECT_LT(ahead.step_s, at_once.step_s - 0.5 * (at_once.wait_s - ahead.wait_s));
  }
  EXPECT_GT(waits(2, 48).wait_s, waits(2, 0).wait_s);
}

// Where all but the generation is on half of the devices, replicas there have room for their own
// longest sample alone, and may go on with longer ones of the others.
TEST(HandOverPrices, ReplicasHaveRoomForTheLongestThatTheyTake) {
  const PlanningProblem problem =
      tail_problem({.gpu = "a100-40g", .prompts = 32, .prompt_tokens = 64}, 8192);
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call == "generate") continue;
    call.mesh = *contiguous_mesh(problem.cluster, 0, 4);
    call.strategy.dp = 4;
  }
  for (const int64_t below : {4, 8, 16}) {
    plan.fusion.migrate_below_samples = below;
    const auto program = compile(plan, problem);
    ASSERT_TRUE(program.ok()) << program.status().message();
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SimOptions options;
      options.seed = seed;
      EXPECT_TRUE(simulate(*program, problem, committed_calibration(), options).ok()) << seed;
    }
  }
}

}  // namespace
}  // namespace braid::inline sim
