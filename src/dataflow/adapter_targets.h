// Which linear modules get a LoRA adapter. Pure; thread-safe.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace braid::inline dataflow {

inline constexpr const char* kAllLinear = "all-linear";  // every linear layer but lm_head
inline constexpr const char* kLmHeadModule = "lm_head";

// Whether PEFT would put an adapter on the module: a target is its name or its last components.
inline bool is_adapter_target(const std::string& module, const std::string& target) {
  if (module == target) return true;
  const std::string end = "." + target;
  return module.size() > end.size() &&
         module.compare(module.size() - end.size(), end.size(), end) == 0;
}

// Whether any of lora.targets means the module.
inline bool is_adapted(const std::string& module, const std::vector<std::string>& targets) {
  return std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
    return (target == kAllLinear && module != kLmHeadModule) || is_adapter_target(module, target);
  });
}

}  // namespace braid::inline dataflow
