#include "sim/call_time.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/carried_steps.h"

namespace braid::inline sim {
namespace {

using Kind = ScheduleOp::Kind;
using Batches = std::vector<MicroBatch>;

// When the passes of one replica run: per stage, from the times at which the stages are free.
struct Passage {
  std::vector<double> first_s, last_s, busy_s;  // begin of the first pass, end of the last
};

// Seconds of the passes of a replica and of the messages between its stages.
class PipelineTimes {
 public:
  // `known`: prices of its micro-batches so far; null: none are kept.
  PipelineTimes(const CallCost& cost, PassMemo::Table* known)
      : cost_(cost), known_(known), stages_(cost.strategy().pp) {
    for (int part = 0; part < cost.parts(); ++part) {
      const int like = cost.part_like(part);
      column_of_.push_back(like < part ? column_of_[like] : std::ssize(columns_));
      if (like == part) columns_.push_back(part);
    }
  }

  // Messages between the stages of a plan.
  void on(const PlanningProblem& problem, const CallPlan& plan) {
    forward_lag_.resize(stages_);
    backward_lag_.resize(stages_);
    for (int stage = 0; stage < stages_ && stages_ > 1; ++stage) {
      forward_lag_[stage] = lag(problem, plan, stage, (stage + 1) % stages_);
      backward_lag_[stage] = lag(problem, plan, stage, (stage + stages_ - 1) % stages_);
    }
  }

  void set(const Batches& batches) {
    kinds_.clear(), kind_of_.clear();
    forward_s_.clear(), backward_s_.clear();
    for (const MicroBatch& batch : batches) {
      if (kinds_.empty() || !(kinds_.back().batch == batch)) add_kind(batch);
      kind_of_.push_back(kinds_.size() - 1);
    }
  }

  // Of an op that reads what part `before` made, if that is not negative.
  double pass_s(const ScheduleOp& op) const {
    const size_t part = static_cast<size_t>(op.chunk) * stages_ + op.stage;
    const size_t at = kind_of_[op.micro_batch] * columns_.size() + column_of_[part];
    return op.kind == Kind::kForward ? forward_s_[at] : backward_s_[at];
  }
  double lag_s(const ScheduleOp& op, int32_t before) const {
    const int from = before % stages_;
    if (from == op.stage) return 0;
    const Lag& lag = op.kind == Kind::kForward ? forward_lag_[from] : backward_lag_[from];
    return lag.latency_s + lag.s_per_byte * kinds_[kind_of_[op.micro_batch]].stage_bytes;
  }

 private:
  struct BatchKind {
    MicroBatch batch;
    double stage_bytes = 0;
  };
  struct Lag {
    double latency_s = 0, s_per_byte = 0;
  };

  // The first tensor-parallel rank's link stands for all, as in the simulation.
  Lag lag(const PlanningProblem& problem, const CallPlan& plan, int from, int to) const {
    constexpr double kBytes = 1e9;
    const auto device = [&](int stage) {
      return plan.mesh.devices[mesh_index(plan.strategy, {0, 0, stage})];
    };
    const Efficiency& e = cost_.device().efficiency;
    const double none = link_time(problem.cluster, device(from), device(to), 0, e).seconds;
    const double some = link_time(problem.cluster, device(from), device(to), kBytes, e).seconds;
    return {none, (some - none) / kBytes};
  }

  PassPrices prices_of(const MicroBatch& batch) const {
    if (known_ == nullptr) return cost_.pass_prices(batch);
    const auto [found, fresh] = known_->try_emplace(batch);
    if (fresh) found->second = cost_.pass_prices(batch);
    return found->second;
  }

  void add_kind(const MicroBatch& batch) {
    const PassPrices prices = prices_of(batch);
    for (const int part : columns_) {
      forward_s_.push_back(batch.tokens > 0 ? cost_.forward_s(prices, part) : 0);
      backward_s_.push_back(batch.tokens > 0 ? cost_.backward_s(prices, part) : 0);
    }
    kinds_.push_back({batch, cost_.stage_bytes(batch)});
  }

  const CallCost& cost_;
  PassMemo::Table* known_;
  int stages_;
  std::vector<Lag> forward_lag_, backward_lag_;  // by sending stage
  std::vector<int> columns_;                     // parts of which no earlier one takes as long
  std::vector<int64_t> column_of_;               // by part: of the one that takes as long
  std::vector<BatchKind> kinds_;                 // micro-batches that follow each other and differ
  std::vector<size_t> kind_of_;                  // by micro-batch
  std::vector<double> forward_s_, backward_s_;   // [kind][column]
};

// Runs every stage as far as its inputs allow until nothing moves (schedule/schedule.h, replay).
class PipelineRun {
 public:
  explicit PipelineRun(const PipelineTimes& times) : times_(times) {}

  // Each stage from free_s on.
  Passage run(const Schedule& schedule, const std::vector<double>& free_s) {
    const int stages = schedule.stages;
    schedule_ = &schedule;
    next_.assign(stages, 0);
    out_ = {std::vector<double>(stages, -1), free_s, std::vector<double>(stages, 0)};
    for (auto& kind : done_s_)
      kind.assign(static_cast<size_t>(stages) * schedule_->chunks * schedule_->micro_batches, -1);
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages; ++stage) moved |= advance(stage);
      for (int stage = stages - 1; stage >= 0; --stage) moved |= advance(stage);
    }
    return std::move(out_);
  }

 private:
  // When an op of a part ended; negative before.
  double& done_s(const ScheduleOp& op, int32_t part) {
    return done_s_[static_cast<int>(op.kind)]
                  [static_cast<size_t>(part) * schedule_->micro_batches + op.micro_batch];
  }

  bool advance(int stage) {
    const auto& ops = schedule_->per_stage[stage];
    const size_t begin = next_[stage];
    for (; next_[stage] < ops.size(); ++next_[stage]) {
      const ScheduleOp& op = ops[next_[stage]];
      const int32_t before = waits_for_part(*schedule_, op);
      double start = out_.last_s[stage];
      if (before >= 0) {
        const double input = done_s(op, before);
        if (input < 0) break;
        start = std::max(start, input + times_.lag_s(op, before));
      }
      const double seconds = times_.pass_s(op);
      if (out_.first_s[stage] < 0) out_.first_s[stage] = start;
      out_.last_s[stage] = start + seconds;
      out_.busy_s[stage] += seconds;
      done_s(op, op.chunk * schedule_->stages + stage) = start + seconds;
    }
    return next_[stage] > begin;
  }

  const Schedule* schedule_ = nullptr;  // of the run
  const PipelineTimes& times_;
  std::vector<size_t> next_;  // by stage: the op that comes next
  std::vector<double> done_s_[2];
  Passage out_;
};

// One optimizer step of all replicas, the stages free at different times.
struct StepTime {
  double agreed_s = 0;            // gradients of all stages are reduced
  std::vector<StageTime> stages;  // only start_s, and busy_s of the replica with least
};

class TrainTimes {
 public:
  TrainTimes(const Call& call, const CallPlan& plan, const CallCost& cost,
             const PlanningProblem& problem, WorkCuts* cuts, ScheduleMemo* schedules,
             PassMemo::Table* known)
      : call_(call),
        cost_(cost),
        s_(plan.strategy),
        cuts_(cuts),
        schedules_(schedules),
        times_(cost, known) {
    times_.on(problem, plan);
    const Batches first = cuts->micro_batches(call, cost, 0).front();
    const Schedule& schedule = schedules->of(s_, CallKind::kTrainStep, std::ssize(first));
    times_.set(first);
    for (int stage = 0; stage < s_.pp; ++stage) {
      const auto& ops = schedule.per_stage[stage];
      reduce_s_.push_back(
          cost.exposed_reduce_s(stage, ops.empty() ? 0 : times_.pass_s(ops.back())));
      update_s_.push_back(cost.optimizer_step_s(stage) + cost.step_host_s() + cost.gather_s(stage));
    }
  }

  const std::vector<double>& update_s() const { return update_s_; }

  const std::vector<Batches>& batches(int64_t part) const {
    return cuts_->micro_batches(call_, cost_, part);
  }

  // Equal replicas are run once.
  StepTime step(const std::vector<Batches>& batches, const std::vector<double>& free_s) {
    StepTime out;
    std::vector<double> ends;
    std::vector<Passage> passages;
    for (size_t dp_rank = 0; dp_rank < batches.size(); ++dp_rank) {
      if (dp_rank > 0 && batches[dp_rank] == batches[dp_rank - 1]) continue;
      times_.set(batches[dp_rank]);
      const Schedule& schedule =
          schedules_->of(s_, CallKind::kTrainStep, std::ssize(batches[dp_rank]));
      passages.push_back(run_.run(schedule, free_s));
      double end = 0;
      for (int stage = 0; stage < s_.pp; ++stage)
        end = std::max(end, passages.back().last_s[stage] + reduce_s_[stage]);
      ends.push_back(end);
      out.agreed_s = std::max(out.agreed_s, end);
    }
    out.stages.resize(s_.pp);
    for (int stage = 0; stage < s_.pp; ++stage) {
      StageTime& at = out.stages[stage];
      at.start_s = at.busy_s = HUGE_VAL;
      for (size_t i = 0; i < passages.size(); ++i) {
        at.start_s = std::min(at.start_s,
                              std::max(0.0, passages[i].first_s[stage]) + out.agreed_s - ends[i]);
        at.busy_s = std::min(at.busy_s, passages[i].busy_s[stage]);
      }
    }
    return out;
  }

 private:
  const Call& call_;
  const CallCost& cost_;
  const Strategy& s_;
  WorkCuts* cuts_;
  ScheduleMemo* schedules_;
  PipelineTimes times_;
  PipelineRun run_{times_};
  std::vector<double> reduce_s_, update_s_;  // by stage
};

std::vector<RoundGroup> group_rounds(const std::vector<BatchRound>& rounds) {
  std::map<int64_t, RoundGroup> groups;
  int64_t before = 0;
  for (const BatchRound& round : rounds) {
    RoundGroup& group = groups[round.decoding];
    group.add(round);
    group.agreements += agreements_in(before, round.rounds, round.due);
    before += round.rounds;
  }
  std::vector<RoundGroup> out;
  for (const auto& [decoding, group] : groups) out.push_back(group);
  return out;
}

bool ends_together(const CallCost& cost) {
  const std::vector<Op>& ops = cost.stage(0).ops;
  return !ops.empty() && ops.back().kind == OpKind::kAgree;
}

}  // namespace

const Schedule& ScheduleMemo::of(const Strategy& s, CallKind kind, int64_t micro_batches) {
  const Key key{kind, s.schedule, s.pp, s.interleave, micro_batches};
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  ops_ += 2 * micro_batches * s.pp * s.interleave;
  if (ops_ > kMostOps) known_.clear(), ops_ = 0;
  return known_.emplace(key, schedule_of(s, kind, micro_batches)).first->second;
}

PassMemo::Table* PassMemo::of(const CallCost& cost) {
  const std::optional<PassKey> key = cost.pass_key();
  if (!key) return nullptr;
  size_t kept = 0;
  for (const auto& [other, table] : known_) kept += table.size();
  if (kept > kMost) known_.clear();
  return &known_[*key];
}

const CallTimer::Generation& CallTimer::rounds(const Call& call, const Strategy& strategy) {
  const RoundsKey key{strategy.dp, strategy.max_concurrent, strategy.kv_budget_tokens,
                      call_samples(*problem_, call), call.carried_steps};
  const auto found = rounds_.find(key);
  if (found != rounds_.end()) return found->second;
  Generation out;
  if (call.carried_steps > 0) {
    out = carried_rounds(call, strategy);
  } else {
    out.steps = {waiting_rounds(call, strategy)};
    out.longest = longest_rounds(call, strategy);
    for (const Rounds& replica : out.steps.front())
      for (const RoundGroup& group : replica) out.pages = std::max(out.pages, group.pages);
  }
  return rounds_.emplace(key, std::move(out)).first->second;
}

CallTimer::Generation CallTimer::carried_rounds(const Call& call, const Strategy& strategy) const {
  const BatchOptions engine = batch_options(*problem_, strategy, SimOptions());
  Generation out;
  for (int replica = 0; replica < strategy.dp; ++replica) {
    const CarriedSteps steps = carrying_steps(*problem_, call, strategy, replica, lengths_, engine);
    out.pages = std::max(out.pages, steps.fullest().pages());
    out.steps.resize(steps.usual.size());
    for (size_t step = 0; step < steps.usual.size(); ++step)
      out.steps[step].push_back(group_rounds(steps.usual[step].rounds));
  }
  return out;
}

std::vector<CallTimer::Rounds> CallTimer::waiting_rounds(const Call& call,
                                                         const Strategy& strategy) const {
  const BatchOptions engine = batch_options(*problem_, strategy, SimOptions());
  const int64_t samples = call_samples(*problem_, call);
  std::vector<Rounds> replicas;
  std::vector<BatchRequest> before;
  for (const SampleRows& rows : partition_requests(samples, strategy)) {
    auto requests = requests_of(*problem_, lengths_, samples, rows);
    if (requests.empty() || same_work(requests, before)) continue;
    std::vector<BatchRound> rounds;
    run_batches(requests, engine, [&](const BatchRound& round) { rounds.push_back(round); });
    replicas.push_back(group_rounds(rounds));
    before = std::move(requests);
  }
  return replicas;
}

CallTimer::Rounds CallTimer::longest_rounds(const Call& call, const Strategy& strategy) const {
  const int64_t samples = call_samples(*problem_, call);
  SampleRows rows(static_cast<size_t>(samples));
  std::iota(rows.begin(), rows.end(), 0);
  const auto requests = requests_of(*problem_, lengths_, samples, rows);
  if (requests.empty()) return {};
  const BatchRequest longest =
      *std::max_element(requests.begin(), requests.end(),
                        [](const auto& a, const auto& b) { return a.response < b.response; });
  std::vector<BatchRound> rounds;
  run_batches({longest}, batch_options(*problem_, strategy, SimOptions()),
              [&](const BatchRound& round) { rounds.push_back(round); });
  return group_rounds(rounds);
}

CallTime CallTimer::generate_time(const Call& call, const CallCost& cost) {
  CallTime out;
  out.joint = true;
  const Generation& generation = rounds(call, cost.strategy());
  const auto seconds = [&](const Rounds& replica) {
    double sum = 0;
    for (const RoundGroup& group : replica)
      sum += cost.rounds_s(group) + static_cast<double>(group.agreements) * cost.agreements_s();
    return sum;
  };
  for (const std::vector<Rounds>& step : generation.steps) {
    double longest_s = 0;
    for (const Rounds& replica : step) longest_s = std::max(longest_s, seconds(replica));
    out.total_s += longest_s / static_cast<double>(generation.steps.size());
  }
  out.longest_alone_s =
      generation.longest.empty() ? out.total_s : std::min(seconds(generation.longest), out.total_s);
  out.stages.assign(cost.strategy().pp, {0, out.total_s, out.total_s});
  return out;
}

CallTime CallTimer::infer_time(const Call& call, const CallPlan& plan, const CallCost& cost) {
  const Strategy& s = plan.strategy;
  PipelineTimes times(cost, passes_.of(cost));
  times.on(*problem_, plan);
  PipelineRun run(times);
  CallTime out;
  out.stages.resize(s.pp);
  Batches before;
  for (const Batches& batches : cuts_.micro_batches(call, cost, 0)) {
    if (!before.empty() && batches == before) continue;
    times.set(batches);
    const Schedule& schedule = schedules_.of(s, CallKind::kInfer, std::ssize(batches));
    const Passage passage = run.run(schedule, std::vector<double>(s.pp, 0));
    for (int stage = 0; stage < s.pp; ++stage) {
      StageTime& at = out.stages[stage];
      at.end_s = std::max(at.end_s, passage.last_s[stage]);
      at.busy_s = std::max(at.busy_s, passage.busy_s[stage]);
      out.total_s = std::max(out.total_s, at.end_s);
    }
    before = batches;
  }
  if (!ends_together(cost)) return out;
  out.joint = true;
  out.total_s += cost.agreements_s();
  for (StageTime& stage : out.stages) stage.end_s = out.total_s;
  return out;
}

// Optimizer steps after the first begin where the one before ended on each stage, so a mini-batch
// that comes again takes the same time; the first one has no update before it.
CallTime CallTimer::train_time(const Call& call, const CallPlan& plan, const CallCost& cost) {
  const Workload& work = problem_->workload;
  const int64_t parts = std::max<int64_t>(1, work.minibatches);
  const int64_t steps = parts * std::max<int64_t>(1, work.epochs);
  TrainTimes times(call, plan, cost, *problem_, &cuts_, &schedules_, passes_.of(cost));
  CallTime out;
  out.joint = true;
  std::vector<double> of_part(parts, -1);
  std::vector<Batches> before;
  for (int64_t step = 0; step < steps; ++step) {
    double& known = of_part[step % parts];
    if (known < 0) {
      std::vector<Batches> batches = times.batches(step % parts);
      const bool again = step > 1 && batches == before;
      const StepTime taken =
          again ? StepTime{of_part[step - 1], {}}
                : times.step(batches, step == 0 ? std::vector<double>(plan.strategy.pp, 0)
                                                : times.update_s());
      if (step == 0) out.stages = taken.stages;
      for (size_t i = 0; i < taken.stages.size(); ++i)
        out.stages[i].busy_s = std::min(out.stages[i].busy_s, taken.stages[i].busy_s);
      if (step > 0) known = taken.agreed_s;
      out.total_s += taken.agreed_s;
      before = std::move(batches);
    } else {
      out.total_s += known;
    }
  }
  out.total_s += *std::max_element(times.update_s().begin(), times.update_s().end());
  for (StageTime& stage : out.stages) {
    stage.end_s = out.total_s;
    stage.busy_s *= static_cast<double>(steps);
  }
  return out;
}

CallTime CallTimer::time(const Call& call, const CallPlan& plan, const CallCost& cost) {
  if (call.kind == CallKind::kGenerate) return generate_time(call, cost);
  return call.kind == CallKind::kTrainStep ? train_time(call, plan, cost)
                                           : infer_time(call, plan, cost);
}

}  // namespace braid::inline sim
