// The search space over execution plans: per model function call the options that survive pruning,
// each a range of devices and a strategy with its price; per role what may move to host memory.
// Immutable after make_plan_space(), so threads share one.
//
// The evaluator that the search minimizes (search/evaluate.h) grows with every duration and
// with every byte: calls start in the order of the graph as soon as what they read and their
// devices are free. Pruning drops option B of a call for an option A on the same devices when no
// plan can lose by it: A frees no device later than B whenever it gets them and its fields, needs
// no more optimizer and transient bytes, and
//   * both have the same parameter layout,
//   * or the call is the only one of its role and shares no weights (none move), and A also needs
//   no
//     more weight bytes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "search/moves.h"
#include "search/price.h"
#include "search/strategies.h"

namespace braid::inline search {

// A pipeline stage of an option (StageTime, in microseconds): the devices of stage i are the i-th
// run of devices / pp.
struct StageSpan {
  int64_t end_us = 0;   // of the stage, when all stages begin at 0
  int64_t need_us = 0;  // at least so long from when its devices are free to its end
  friend bool operator==(const StageSpan&, const StageSpan&) = default;
};

// A strategy on the devices first .. end-1.
struct PlanOption {
  int32_t first = 0, end = 0;
  int32_t strategy = 0;  // index into CallSpace::strategies
  int32_t layout = 0;    // equal numbers within a role: the same slices on the same devices
  int32_t tp = 1, pp = 1, interleave = 1, shards = 1;
  int32_t replicas = 1;  // dp: parts that the samples of its call are divided into
  bool joint = false;    // its stages end together, with the last
  int32_t spans = 0;     // of its stages: index of the first in PlanSpace::spans
  int32_t rates = 0;     // of its devices: index into PlanSpace::rates
  int64_t time_us = 0;   // when all its devices are free at once
  int64_t area_us = 0;   // device time that it takes at least
  // To bring slices together where its weights go elsewhere, or come from elsewhere (CallPrice).
  int64_t gather_us = 0, arrive_us = 0;
  double weight_bytes = 0, optimizer_bytes = 0, transient_bytes = 0;  // per device
  int32_t devices() const { return end - first; }
};

inline bool overlap(const PlanOption& a, const PlanOption& b) {
  return a.first < b.end && b.first < a.end;
}

// Where a role's state is while no call of the role runs; neutral: all of it on its devices.
struct Stay {
  bool weights_on_host = false;
  bool optimizer_on_host = false;
  bool after_each_call = false;  // weights leave after each call of the role, else after the last
  bool prefetch = false;  // the way back overlaps the call before; not priced by the evaluator
  friend bool operator==(const Stay&, const Stay&) = default;
};

struct CallSpace {
  CallId call;             // in the graph
  int role = 0;            // index into PlanSpace::roles
  std::vector<int> after;  // earlier indices into PlanSpace::calls that must have ended
  double input_bytes = 0;  // sample fields that are sent to it, all samples
  std::vector<Strategy> strategies;
  std::vector<PlanOption> options;  // by ascending time
  // Of a training call: device time of the passes alone, of the option with least, also of those
  // that were pruned.
  int64_t least_work_us = 0;
  // Of a generation: the least that an option takes, whichever of its replicas draws which sample.
  int64_t least_drawn_us = 0;
};

struct RoleSpace {
  RoleId role;
  bool trained = false;
  int home = 0;              // the call whose layout the weights live in: training, else the first
  std::vector<int> calls;    // indices into PlanSpace::calls, ascending
  int shares = -1;           // role whose frozen base weights these are
  bool copies_stay = false;  // in other layouts than the home's: training does not change them
  // What moves when the layout changes: of a layer, and of the model's two ends.
  int64_t layers = 0;
  double layer_bytes = 0, first_bytes = 0, last_bytes = 0;
  std::vector<Stay> stays;
};

// A list of rewards without a model of its own, which ranks of the generation ask. In their lists
// it stands between calls: what stands behind it there waits until all scores that it reads have
// come.
struct RewardStop {
  int generation = 0;       // that it stands beside: of each replica the first device of the last
                            // stage asks, or one for all
  bool one_rank = false;    // asks for all replicas
  std::vector<int> scores;  // calls that it waits for, the generation aside
  int before = 0;           // the next call in the lists
};

// Rates that weights and fields move at, bytes/s of one device: the slowest among the nodes of the
// meshes that take part, as a rate for each pair of devices would cost the search too much.
struct MoveRates {
  double inside = 1;   // of a node
  double network = 1;  // between nodes
  double host = 1;     // between a device and its host
  double latency_s = 0;
  int32_t rack = -1;  // the NVLink domain that spans all these nodes, if one does
  friend bool operator==(const MoveRates&, const MoveRates&) = default;
};
MoveRates slower(const MoveRates& a, const MoveRates& b);
double rate_between_nodes(const MoveRates& rates);

struct PlanSpace {
  const PlanningProblem* problem = nullptr;
  const CallPricer* pricer = nullptr;
  FurtherAxes axes;                                   // SpaceOptions::axes
  std::function<bool(const CallPlan&)> allowed;       // SpaceOptions::allowed
  std::function<bool(const RolePlan&)> allowed_role;  // SpaceOptions::allowed_role
  std::vector<CallSpace> calls;  // those that use a model, in the order of the graph
  std::vector<RoleSpace> roles;
  // Runs of calls that start only when all calls of the runs before have ended; makespans add up.
  std::vector<std::vector<int>> segments;
  std::vector<int> segment_of;  // per call
  std::vector<RewardStop> reward_stops;
  std::vector<StageSpan> spans;         // of all options; those of one strategy share them
  std::vector<double> capacity_bytes;   // per device, less the margin
  std::vector<double> whole_bytes;      // per device, with nothing left over
  std::vector<int32_t> capacity_steps;  // devices at which the capacity differs from the one before
  std::vector<int32_t> node_of;         // per device
  std::vector<MoveRates> rates;         // of the options' meshes, each once
  std::shared_ptr<MoveMemo> moves;
  int64_t fixed_us = 0;    // on the host, once per step, before the first call
  int64_t enumerated = 0;  // options priced before pruning, all meshes

  int num_calls() const { return static_cast<int>(calls.size()); }
  int num_coordinates() const { return num_calls() + static_cast<int>(roles.size()); }
  int32_t num_devices() const { return static_cast<int32_t>(capacity_bytes.size()); }
};

// The evaluator's memory is that of the simulator within this factor: options that need up to so
// much of a device are kept, for bounds.
inline constexpr double kMemoryDoubt = 1.03;
int64_t to_us(double seconds);

// At which fields travel from the devices of one option to those of another.
double field_rate(const PlanSpace& space, const PlanOption& from, const PlanOption& to);

struct SpaceOptions {
  bool prune = true;                    // drop dominated options; false for tests
  double margin = 0;                    // share of every device's memory that stays free
  const ExecutionPlan* only = nullptr;  // if given, the space holds the options of this plan alone
  // Options that may be chosen, if given. Must be a condition on the mesh and one on the strategy.
  std::function<bool(const CallPlan&)> allowed;
  // Runs of devices that calls may have beside those of candidate_meshes().
  std::vector<DeviceMesh> meshes = {};
  // Where a role may rest while no call of it runs, if given; on its devices it always may.
  std::function<bool(const RolePlan&)> allowed_role = {};
  FurtherAxes axes = {};  // that layouts and edits of plans may have, too
  int threads = 1;        // that price options; changes speed only
};

// Builds and prunes the space. kInfeasible when a call has no option that fits into a device even
// alone (not asked of `only`); the message names the call and what it needs. `problem` and `pricer`
// must outlive the space.
Result<PlanSpace> make_plan_space(const PlanningProblem& problem, const CallPricer& pricer,
                                  const SpaceOptions& options = {});

// A value for every coordinate: calls first, then roles.
using Choice = std::vector<int>;
ExecutionPlan plan_of(const PlanSpace& space, const Choice& choice);

// The longest call at its least: no plan of the space takes less, however calls overlap.
int64_t longest_call_us(const PlanSpace& space);

// The choice that a plan on runs of devices is; what the space lacks of it is added. Errors: what
// the pricer refuses.
Result<Choice> include_plan(PlanSpace& space, const ExecutionPlan& plan);
Stay stay_of(const RolePlan& role);
// Devices whose numbers follow one another.
bool is_run(const DeviceMesh& mesh);

}  // namespace braid::inline search
