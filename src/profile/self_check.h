// Does this machine compute what Braid promises? A tiny random model is trained and sampled from,
// in about a second. Not thread-safe.
#pragma once

#include <string>
#include <vector>

namespace braid::inline profile {

struct SelfTestResult {
  std::string name;  // what was checked
  bool passed = false;
  std::string detail;  // numbers, or what went wrong
};

// Forward and backward (a gradient step lowers the loss), sampler against trainer (log-probs within
// 1e-5), and batch invariance (samples one by one and all at once have the same bits).
std::vector<SelfTestResult> run_self_test();

}  // namespace braid::inline profile
