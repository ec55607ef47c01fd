// The execution plan: which call runs on which devices with which parallelization, placed and kept
// in memory how. Plain values; a person edits the YAML form, the search proposes them, compile()
// turns one into a program. Invariants are those of validate().
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cluster/cluster.h"
#include "cluster/gpu.h"

namespace braid::inline plan {

// Activation checkpointing: what the backward pass computes again instead of keeping it
// (Korthikanti et al., arXiv 2205.05198).
enum class Recompute { kNone, kSelective, kFull };

// The order of forwards and backwards over pipeline stages (schedule/schedule.h).
enum class PipelineOrder {
  kOneForwardOneBackward,  // interleaved where interleave > 1
  kAllForwardFirst,        // GPipe
};

// How one call is cut over the devices of its mesh; dp * cp * tp * pp = devices of the mesh.
// Coordinates: tensor-parallel ranks are neighbours in the mesh, then context parallel, then data
// parallel, pipeline stages outermost. Routed experts have a grid of their own over the dp * cp *
// tp devices of a stage: expert_tp ranks are neighbours, then ep, then copies.
struct Strategy {
  int dp = 1;  // generate: replicas of the engine
  int tp = 1;
  int pp = 1;
  int cp = 1;          // devices that share the tokens of each sequence; train and infer
  int ep = 1;          // parts that the routed experts of a layer are partitioned into
  int expert_tp = 0;   // devices that share one expert; 0 = tp
  int interleave = 1;  // virtual pipeline stages of one stage
  bool sequence_parallel = false;  // needs tp > 1
  int zero_stage = 0;  // train: 0..3 over dp; infer: 0 or 3 (weights gathered layer by layer)
  int zero_ranks = 0;  // of dp x cp, that share what ZeRO shards (hybrid sharding); 0 = all
  Recompute recompute = Recompute::kNone;  // train
  int64_t micro_batches = 1;     // of one mini-batch (train) or of the call (infer) per dp rank
  int64_t micro_tokens = 0;      // > 0: token budget of a micro-batch in place of micro_batches
  bool in_order = false;         // train, infer: cuts sequences in order; false: balances tokens
  int64_t kv_budget_tokens = 0;  // generate, per replica; 0 = what memory leaves
  int64_t max_concurrent = 0;    // generate, sequences per replica; 0 = as many as fit
  PipelineOrder schedule = PipelineOrder::kOneForwardOneBackward;  // train, pp > 1
  // Layers of each of the pp * interleave parts, in the model's order; empty = even runs.
  std::vector<int64_t> stage_layers = {};
  std::optional<Precision> precision;  // of the call's GEMMs and weights; absent = the role's
  friend bool operator==(const Strategy&, const Strategy&) = default;
};
// Devices that hold or share the same dense parameters of a stage.
inline int dense_copies(const Strategy& s) { return s.dp * s.cp; }
// Devices over which ZeRO shards.
inline int zero_ranks(const Strategy& s) {
  return s.zero_ranks > 0 ? s.zero_ranks : dense_copies(s);
}
inline int expert_tp(const Strategy& s) { return s.expert_tp > 0 ? s.expert_tp : s.tp; }
// Devices that share what ZeRO shards of routed experts.
inline int expert_zero_ranks(const Strategy& s) {
  return std::max(1, zero_ranks(s) * s.tp / (s.ep * expert_tp(s)));
}

struct CallPlan {
  std::string call;  // name in the graph; calls without a model need none
  DeviceMesh mesh;
  Strategy strategy;
  friend bool operator==(const CallPlan&, const CallPlan&) = default;
};

// Where a role's state is while no call uses it.
enum class Residency {
  kDevice,  // stays
  kHost,    // moved to host memory after its last call, back before its next
};

// When state that lives in host memory leaves the devices again.
enum class OffloadTiming { kAfterLastCall, kAfterEachCall };

struct RolePlan {
  RoleId role;
  Residency weights = Residency::kDevice;
  Residency optimizer = Residency::kDevice;  // master weights and moments; trained roles
  OffloadTiming timing = OffloadTiming::kAfterLastCall;  // of the role in the step
  // The way back overlaps the call before, and layer by layer its own; false: it starts with its
  // own, which waits for all of it.
  bool prefetch = false;
  friend bool operator==(const RolePlan&, const RolePlan&) = default;
};

// The most units of a fused order's search: each takes a few tenths of a second.
inline constexpr int64_t kMaxFusionUnits = 10'000;

// fusion.migrate_below_samples: auto, the number with which a step is fastest (search/migration.h);
// and how often a plan may hand its generation over.
inline constexpr int64_t kAutoMigration = -1, kMostHandOvers = 8;

// Fused schedules (program/fused.h), a generation that is handed over (program/hand_over.h), which
// replica draws which sample, an update that begins early (program/early_update.h), and weights
// that come over early (program/weight_sync.h).
struct Fusion {
  bool train_schedules = false;       // fuse the pipelines of two train calls
  int64_t migrate_below_samples = 0;  // hand it over when at most so many are left; 0: off
  int64_t seed = 1, units = 16;       // of the search for the order (fuse/fuse.h)
  // Replicas go on with at most so many each; 0: with as many as each had at the begin.
  int64_t migrate_to_samples = 0;
  bool migrate_cache = true;  // false: only tokens move, and keys and values are computed again
  // Replicas of a generation are given samples by the lengths that are predicted from earlier
  // responses to their prompts, the longest first; false: in order.
  bool predicted_lengths = false;
  // An update begins when the samples of so many of its mini-batches are scored, and goes on when
  // those of as many others are; 0: when all are.
  int64_t train_beside_scoring = 0;
  // Numbers of samples at which a generation that was handed over is again, descending: the list of
  // migrate_below_samples behind its first.
  std::vector<int64_t> migrate_again_below = {};
  // Ranks that are free when a generation is handed over for the last time also score what there is
  // of the samples that are left, keep keys and values, and score the rest at the end.
  bool scored_prefixes = false;
  // The weights that the next generation has in another layout come over when its update has ended,
  // beside other updates, which come behind it; false: when the next step begins.
  bool sync_beside_training = false;
  // Caches of samples that will move are copied when at most so many are left, more than
  // migrate_below_samples; 0: they move when the generation is handed over.
  int64_t pre_copy_below_samples = 0;
  // The first mini-batch of the update begins with groups that have finished when a generation is
  // handed over (program/streamed_update.h).
  bool train_beside_generation = false;
  friend bool operator==(const Fusion&, const Fusion&) = default;
};

struct ExecutionPlan {
  std::string graph;  // name of the graph that it is for
  int devices = 1;    // of the cluster that it is for
  std::vector<CallPlan> calls;
  std::vector<RolePlan> roles;
  Fusion fusion;
  int64_t staleness = 0;  // steps that rollouts may be older than the weights that learn from them
  friend bool operator==(const ExecutionPlan&, const ExecutionPlan&) = default;
};
std::ostream& operator<<(std::ostream& out, const ExecutionPlan& plan);

}  // namespace braid::inline plan
