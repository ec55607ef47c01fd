// What a plan may have beside devices, layouts and residency: which of it plans of a problem could
// have, its words, edits of it, and how fast a step with it could be. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/execution_plan.h"
#include "plan/problem.h"
#include "search/space.h"

namespace braid::inline search {

struct PlanParts {
  bool fused_training = true, hand_over = true;
  int64_t staleness = 0;  // that rollouts may have; 0: none
  bool predicted_lengths = true;
  bool train_beside_scoring = true;
  bool sync_beside_training = true;
};

inline constexpr const char* kFusedUpdates = "fused updates";
inline constexpr const char* kHandOver = "a hand-over";
inline constexpr const char* kPredicted = "predicted lengths";
inline constexpr const char* kBesideScoring = "training beside scoring";
inline constexpr const char* kSyncBeside = "weights that come over beside training";
inline constexpr const char* kAhead = "rollouts ahead";

// Share of a step that parts have to save before a plan with them is proposed.
inline constexpr double kLeastGainOfParts = 0.01;
// By how much a step is shorter than another, in percent, to a tenth.
double percent_less(double step_s, double than_s);
// Hand-overs that searches and edits try are eighths of the samples, up to half.
inline constexpr int kHandOverParts = 8;

int64_t samples_of(const PlanningProblem& problem);

// The parts that plans of a problem could have, with rollouts so far ahead at most.
PlanParts parts_of(const PlanningProblem& problem, int64_t staleness);
bool has_parts(const PlanningProblem& problem);

// In the order in which they are searched (search/whole.h): "fused updates".
std::vector<std::string> part_names(const PlanParts& parts);

// What a plan has beside devices, layouts and residency, in words: "fused updates and rollouts 1
// step ahead"; "" for nothing.
std::string parts_text(const ExecutionPlan& plan);

// The numbers of fusion.train_beside_scoring that are tried: mini-batches that are scored before an
// update begins; none: an epoch has one.
std::vector<int64_t> numbers_beside_scoring(const PlanningProblem& problem);

// The numbers of fusion.pre_copy_below_samples that are tried with a hand-over.
std::vector<int64_t> numbers_of_pre_copies(const Fusion& fusion);

// Without it and what goes with it.
Fusion without_hand_over(Fusion fusion);

// Legal edits of a plan's parts beside layouts, of those that are allowed: other numbers of a
// hand-over, or none; of one that is there how many samples a replica goes on with, whether
// caches move, and ahead, whether beginnings are scored, and whether the update begins beside it;
// fusing the updates as they lie, or not, or in another order; predicted lengths or not; an update
// that begins while samples are scored (without the fusions that exclude it), or not; weights that
// come over beside training or not; and rollouts ahead (without fusion) or not.
std::vector<ExecutionPlan> part_edits(const ExecutionPlan& plan, const PlanningProblem& problem,
                                      const PlanParts& parts);

// Whether a plan has only parts that are allowed.
bool allows(const PlanParts& parts, const ExecutionPlan& plan);

// No plan of the space takes less by the simulator, whichever of these parts it has. Calls that
// score may hide behind a generation or an update, and updates fill each other's gaps; but no call
// is shorter than alone, updates begin when all is generated, but for a first mini-batch, and their
// passes need their device time. With predicted lengths a generation has other samples on its
// replicas; the longest response is on one of them. With staleness generation and updates are side
// by side.
int64_t whole_bound_us(const PlanSpace& space, const PlanParts& parts);

}  // namespace braid::inline search
