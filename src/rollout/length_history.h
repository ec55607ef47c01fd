// How long the responses to prompts were when they were drawn before: what the engine is told to
// expect. Only the order of admission depends on it. Not thread-safe.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace braid::inline rollout {

class LengthHistory {
 public:
  // A response of `tokens` tokens to this prompt.
  void note(const std::vector<int32_t>& prompt_ids, int64_t tokens);

  // Mean of the prompt's last responses, newer ones weighing more; for a prompt that is new, the
  // mean over all prompts; 0 before anything was noted.
  int64_t expected(const std::vector<int32_t>& prompt_ids) const;

 private:
  // By a hash of the prompt: two prompts that share one share their lengths, which costs speed
  // alone.
  std::unordered_map<uint64_t, double> means_;
  double sum_ = 0;
  int64_t noted_ = 0;
};

}  // namespace braid::inline rollout
