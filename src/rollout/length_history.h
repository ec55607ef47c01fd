// How long the responses to prompts were when they were drawn before: what the engine is told to
// expect, and what replicas are given their samples by. What is drawn does not depend on it. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>

#include "base/json.h"
#include "base/status.h"

namespace braid::inline rollout {

class LengthHistory {
 public:
  // A response of `tokens` tokens to the prompt of this record of the data.
  void note(int64_t prompt, int64_t tokens);

  // Mean of the prompt's last responses, newer ones weighing more; for a prompt that is new, the
  // mean over all prompts; 0 before anything was noted.
  int64_t expected(int64_t prompt) const;
  bool is_empty() const { return noted_ == 0; }

  // All of it, for checkpoints, and from that. Errors: something is missing or of another form.
  Json json() const;
  Status load(const Json& json);

 private:
  std::map<int64_t, double> means_;  // by prompt
  double sum_ = 0;
  int64_t noted_ = 0;
};

}  // namespace braid::inline rollout
