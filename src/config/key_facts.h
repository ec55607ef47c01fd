// What is declared of a configuration key in the same line as its name, field and meaning: the
// values that it takes, what it is to a plan, when a run reads it, and whether it may differ when a
// run goes on. A key inherits from its group what it does not say itself. Values; thread-safe.
#pragma once

#include <optional>

#include "config/allowed.h"

namespace braid::inline config {

// What a key is to the time and memory of a step.
enum class PlanEffect {
  kPriced,     // part of what is planned for
  kNoCost,     // no step is slower or larger for it
  kNotPriced,  // it counts, and the planner does not know how much
};

// When `braid train` reads a key; plan/run_keys.cc has the reason for each where it does not.
enum class ReadIf {
  kAlways,
  kPlanning,  // never: 'braid plan' and 'braid simulate' do
  kPlan,      // a plan is stated or searched
  kPlanMemory,
  kPrices,
  kAdapters,
  kTrainedAdapters,
  kWithoutModelPath,
  kReference,
  kTeacher,
  kCritic,
  kCriticSource,
  kGivenSamples,
  kGeneration,
  kEvaluation,
  kKl,
  kKlEstimate,
  kAdaptiveKl,
  kDiscounts,
  kTokenRewards,
  kPolicyLoss,  // an update by advantages of tokens
  kNormalization,
  kClippedLoss,
  kConstantNorm,
  kPreferencesOrLabels,
  kPairs,
  kLabels,
  kRewardModel,
  kOptimizer,
  kCpu,
  kSkipping,
  kTensorParallel,
  kOverlong,
  kDraws,
  kCarried,
  kResuming,
  kTrackers,
};

namespace key {

struct Meaning {
  PlanEffect effect;
  const char* why;  // "" where it is priced
};

inline constexpr Meaning priced{PlanEffect::kPriced, ""};
constexpr Meaning no_cost(const char* why) { return {PlanEffect::kNoCost, why}; }
constexpr Meaning not_priced(const char* why) { return {PlanEffect::kNotPriced, why}; }

inline constexpr Meaning of_the_result = no_cost("changes what is learned, not what a step costs");
inline constexpr Meaning of_the_data =
    no_cost("says what the data are; their lengths are those of workload");
inline constexpr Meaning of_the_files = no_cost("says where files are");
inline constexpr Meaning beside_the_step = not_priced("happens beside the steps that are priced");
inline constexpr Meaning changes_lengths = not_priced(
    "lengths of responses are those of workload.response_length; state there what they become");
inline constexpr Meaning chosen_by_plan = not_priced(
    "the plan has its own; fix it under the same name as parallel.CALL.NAME, with --keep");

inline constexpr ReadIf read_always = ReadIf::kAlways;
inline constexpr ReadIf read_by_planning = ReadIf::kPlanning;
constexpr ReadIf read_if(ReadIf when) { return when; }

struct FreeOnResume {};
struct Secret {};
struct File {};
// It changes what is written, how fast or in how much memory, or how long the run is, but no number
// of a step: a run may go on with another value.
inline constexpr FreeOnResume free_on_resume;
inline constexpr Secret secret;  // never written to a run's folder
inline constexpr File file;      // names a file or folder: the same by another path is the same

}  // namespace key

struct KeyFacts {
  Allowed allowed;
  std::optional<key::Meaning> plan;
  std::optional<ReadIf> read;
  bool free_on_resume = false, secret = false, file = false;

  constexpr void add(const Allowed& value) { allowed = value; }
  constexpr void add(const key::Meaning& value) { plan = value; }
  constexpr void add(ReadIf value) { read = value; }
  constexpr void add(key::FreeOnResume) { free_on_resume = true; }
  constexpr void add(key::Secret) { secret = true; }
  constexpr void add(key::File) { file = true; }

  // With what the group says of all its keys.
  constexpr KeyFacts within(const KeyFacts& group) const {
    KeyFacts out = *this;
    if (!out.plan) out.plan = group.plan;
    if (!out.read) out.read = group.read;
    out.free_on_resume |= group.free_on_resume;
    return out;
  }
};

template <typename... Traits>
constexpr KeyFacts key_facts(const Traits&... traits) {
  KeyFacts out;
  (out.add(traits), ...);
  return out;
}

}  // namespace braid::inline config
