// What one model function call costs under one strategy on a mesh: seconds and bytes as in the
// simulation of a step with the same response lengths (sim/call_time.h, call_memory.h). The cheap
// evaluator of the search composes these; the simulator has the last word. Keeps what calls have in
// common, so an object belongs to one thread at a time.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/execution_plan.h"
#include "sim/call_memory.h"

namespace braid::inline search {

struct CallPrice {
  CallTime time;  // of the call alone, all optimizer steps of a training call
  // Bytes per device, of the fullest pipeline stage.
  double weight_bytes = 0;     // in the layout of this call
  double optimizer_bytes = 0;  // master weights and moments; training
  double transient_bytes = 0;  // gradients, activations, logits, KV cache: while the call runs
  // Seconds in which ranks that share slices of the weights (ZeRO-3) bring them together where
  // weights move to another layout, and what comes where they move to this one.
  double gather_s = 0, arrive_s = 0;
  bool timed = true;  // else memory alone
  // The least that a device needs to run the call, whatever else is in the plan.
  double least_bytes() const { return weight_bytes + transient_bytes; }
};

// What CallPricer::price() may be asked.
struct PriceQuestion {
  const Call* call = nullptr;
  const DeviceMesh* mesh = nullptr;
  Strategy strategy;
  double most_bytes = HUGE_VAL;
};

// Prices the calls of one problem. The problem must outlive it.
class CallPricer {
 public:
  // Response lengths are drawn by the seed. Errors: a device that does not support a model's
  // precision.
  static Result<CallPricer> make(const PlanningProblem& problem, const Calibration& calibration,
                                 uint64_t seed = 0);

  const PlanningProblem& problem() const { return *problem_; }
  // Errors: what the cost model refuses, such as weights that do not fit. Prices on runs of devices
  // are remembered: spaces that are restricted differently have most of their options in common.
  // What takes more than `most_bytes` of a device at least is not timed.
  Result<CallPrice> price(const Call& call, const DeviceMesh& mesh, const Strategy& strategy,
                          double most_bytes = HUGE_VAL) const;

  // Makes price() know the answers, each list in a thread of its own. What they are does not depend
  // on the lists; the work that questions have in common is done once for each list.
  void price_ahead(const std::vector<std::vector<PriceQuestion>>& lists) const;

  // Bytes of a device that a plan may fill: what the driver and libraries leave, or the problem's
  // limit if that is lower; of that a share; less the allocator's reserve and workspaces.
  double capacity_bytes(const GpuSpec& gpu, double share = 1) const;
  // Tokens of cache that a replica has room for where it alone fills so many bytes of its devices.
  double cache_tokens(const Call& call, const DeviceMesh& mesh, const Strategy& strategy,
                      double bytes) const;
  // Seconds to move bytes between a device and its host.
  double host_copy_s(double bytes, const GpuSpec& gpu) const;
  const Efficiency& train_efficiency(const GpuSpec& gpu) const {
    return engines_of(gpu).train.efficiency;
  }

 private:
  // Devices with the efficiencies of the engine that trains and of the one that generates.
  struct Engines {
    GpuSpec gpu;
    DeviceModel train, generate;
  };
  // By call, first device, devices and all that a strategy says.
  using PriceKey = std::pair<std::string, std::vector<int64_t>>;
  static PriceKey key_of(const Call& call, const DeviceMesh& run, const Strategy& strategy);
  const Engines& engines_of(const GpuSpec& gpu) const;
  DeviceModel device(const DeviceModel& engine, Precision precision) const;
  Result<CallPrice> new_price(const Call& call, const DeviceMesh& mesh, const Strategy& strategy,
                              double most_bytes) const;
  CallCost cost(const Call& call, const CallPlan& plan, const MeshShape& shape) const;
  CallCost new_cost(const Call& call, const CallPlan& plan, const MeshShape& shape) const;
  void price_slices(const Call& call, const CallPlan& plan, const CallCost& cost,
                    CallPrice* price) const;
  // Whether an engine of this layout holds weights and one sequence.
  Status check_serving(const CallCost& cost, const GpuSpec& gpu) const;

  // What is kept, anew.
  void forget();
  // The answer, if it is known.
  const Result<CallPrice>* known(const PriceKey& key, double most_bytes) const;

  const PlanningProblem* problem_ = nullptr;
  SampleLengths lengths_;
  std::vector<Engines> engines_;
  std::shared_ptr<CallTimer> timer_;
  std::shared_ptr<CallMeter> meter_;
  std::shared_ptr<std::map<PriceKey, Result<CallPrice>>> known_;
  // By strategies without_batches(): those of a few layouts, as one comes after the other.
  static constexpr size_t kMostCosts = 64;
  std::shared_ptr<std::map<PriceKey, CallCost>> costs_;
  // Bytes of the gathers that ranks of each stage take part in, by role and layout.
  struct SliceBytes {
    std::vector<int64_t> gathered, arriving;
  };
  std::shared_ptr<std::map<PriceKey, std::vector<SliceBytes>>> slices_;
  std::shared_ptr<std::vector<CallPricer>> others_;  // of further threads
};

}  // namespace braid::inline search
