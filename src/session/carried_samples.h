// The samples that a generation leaves for the next one (rollout.in_flight). A replica's generation
// ends when enough of its groups have finished for its part of the step that learns from them
// (program/carried_groups.h); the others wait with their tokens, the log-probs under which these
// were drawn, and which weights drew how many of them, and newer weights go on with them. No sample
// becomes older than most_age(), also where it is drawn ahead of the step that learns from it
// (session/steps_ahead.h). Each replica keeps the samples that it has begun; all ranks know which
// these are, and what was left, once the generation's share has come to settle(). A step that fails
// leaves what was carried to it as it was. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "passes/generation.h"
#include "samples/sample_store.h"
#include "session/call_samples.h"
#include "session/step_context.h"

namespace braid::inline session {

class CarriedSamples {
 public:
  // REQUIRES: the program's generation carries samples, of as many prompts on each replica
  // (validate()), and all outlive this.
  CarriedSamples(const StepContext& step, const CallSamples& samples, Generation& generation);

  // Prompts that a step fetches beside those that were carried to it.
  int64_t lacking() const;
  // What was carried joins what the step has fetched: of each replica the former, then the latter.
  void join();

  // On the ranks that generate.
  void begin_generation();
  // Whether this replica has what the step takes of it.
  bool enough() const { return taken().has_value(); }
  // What the step does not take leaves the generation. REQUIRES: enough().
  Status end_generation();
  // The rows of this rank that the step takes, until settle().
  const Rows& own_taken() const { return own_taken_; }
  // Samples that the step takes.
  int64_t samples_taken() const;

  // On all ranks: tells them what each replica has left, and keeps the rows that the step takes.
  Status settle();
  // What was drawn is kept for the step that learns from it: what it left is carried to the next.
  void end_turn() { waiting_ = std::move(left_); }

  // What waits for the next step, also where the present one is `open` and has left it: of all
  // ranks together, on the first. And takes it from what that gave, on any rank in whole.
  Result<Json> save(bool open);
  Status load(bool open, const Json& json);

 private:
  struct Samples {
    explicit Samples(const Program& program) : store(program.graph) {}
    SampleStore store;
    std::map<int64_t, Generated> progress;  // of those that this rank draws, by sample id
  };
  SampleStore part_of(const SampleStore& store, int64_t replica) const;
  int64_t oldest_version(size_t row) const;
  std::optional<std::vector<bool>> taken() const;  // of the own rows
  void note_drawn();
  int64_t words_of_row() const;
  void say(int32_t* words) const;
  std::vector<bool> hear(const int32_t* words);
  Result<std::vector<bool>> tell();  // which rows the step takes
  void note_metrics(const std::vector<bool>& kept) const;

  const Call& call() const { return step_.call(generate_); }
  SampleStore& store() const { return samples_.store(call()); }

  const StepContext& step_;
  const CallSamples& samples_;
  Generation& generation_;
  const CallId generate_;
  const int64_t replicas_;
  Samples waiting_;  // carried to the step
  Samples left_;     // that the step has left
  Rows own_;         // of the open generation
  Rows own_taken_;
};

}  // namespace braid::inline session
