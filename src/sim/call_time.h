// How long one call takes by itself under a strategy on a mesh: the same passes, messages between
// stages, reductions and rounds of generation as in the simulation of a step (sim/call_work.h),
// without the tasks, ports and memory of other calls. What is left out is waiting of its messages
// for each other. Keeps what calls have in common, so an object belongs to one thread.
#pragma once

#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "sim/call_work.h"
#include "sim/work_cuts.h"

namespace braid::inline sim {

// A pipeline stage of a call, all data-parallel ranks together.
struct StageTime {
  double start_s = 0;  // its devices may be taken so much later than the first stage's
  double end_s = 0;    // of its last pass, when all stages could begin at 0
  // Its passes alone; of training the least that any replica and optimizer step has of them, times
  // the steps.
  double busy_s = 0;
};

struct CallTime {
  double total_s = 0;             // from the begin of the first stage to the end of the last
  bool joint = false;             // all stages end together, whichever began late
  std::vector<StageTime> stages;  // by pipeline stage
  // Of a generation: the longest response, drawn alone. No replica that draws it takes less,
  // whatever else it is given.
  double longest_alone_s = 0;
};

// Schedules that strategies have in common. One is valid until the next is asked for.
class ScheduleMemo {
 public:
  const Schedule& of(const Strategy& strategy, CallKind kind, int64_t micro_batches);

 private:
  static constexpr int64_t kMostOps = 1 << 20;  // 16 MiB
  using Key = std::tuple<CallKind, PipelineOrder, int, int, int64_t>;
  std::map<Key, Schedule> known_;
  int64_t ops_ = 0;
};

// Prices of micro-batches that strategies have in common.
class PassMemo {
 public:
  struct Hash {
    size_t operator()(const MicroBatch& batch) const {
      return std::hash<double>()(batch.tokens) * 31 + std::hash<double>()(batch.context);
    }
  };
  using Table = std::unordered_map<MicroBatch, PassPrices, Hash>;
  // Of a call; null where none can be kept. Valid until the next is asked for.
  Table* of(const CallCost& cost);

 private:
  static constexpr size_t kMost = 1 << 16;  // 10 MiB
  std::map<PassKey, Table> known_;
};

class CallTimer {
 public:
  // `problem` must outlive the timer.
  CallTimer(const PlanningProblem& problem, SampleLengths lengths)
      : problem_(&problem), lengths_(lengths), cuts_(problem, std::move(lengths)) {}

  // REQUIRES: the plan of the call is valid; `cost` is CallCost::make(call, plan, ...).
  CallTime time(const Call& call, const CallPlan& plan, const CallCost& cost);

  // Scheduling rounds of a generation: one step, or several that differ where it leaves samples to
  // the next (sim/carried_steps.h), whose mean counts.
  using Rounds = std::vector<RoundGroup>;
  struct Generation {
    std::vector<std::vector<Rounds>> steps;  // by replica, those with the same requests once
    Rounds longest;                          // of the longest response alone
    int64_t pages = 0;                       // that the cache of a replica has at most
  };
  const Generation& rounds(const Call& call, const Strategy& strategy);

 private:
  std::vector<Rounds> waiting_rounds(const Call& call, const Strategy& strategy) const;
  Rounds longest_rounds(const Call& call, const Strategy& strategy) const;
  Generation carried_rounds(const Call& call, const Strategy& strategy) const;
  CallTime generate_time(const Call& call, const CallCost& cost);
  CallTime infer_time(const Call& call, const CallPlan& plan, const CallCost& cost);
  CallTime train_time(const Call& call, const CallPlan& plan, const CallCost& cost);

  struct RoundsKey {
    int dp = 1;
    int64_t max_concurrent = 0, kv_budget_tokens = 0, samples = 0, carried_steps = 0;
    friend auto operator<=>(const RoundsKey&, const RoundsKey&) = default;
  };
  const PlanningProblem* problem_;
  SampleLengths lengths_;
  WorkCuts cuts_;
  ScheduleMemo schedules_;
  PassMemo passes_;
  std::map<RoundsKey, Generation> rounds_;
};

}  // namespace braid::inline sim
