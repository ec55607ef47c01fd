#include "config/algorithm_options.h"

namespace braid {

AlgorithmOptions default_options(const std::string& name) {
  AlgorithmOptions options;
  options.name = name;
  if (name == "grpo") {
    options.normalize_advantages = "group";
    options.kl.coef = 0.001;
    options.kl.estimator = "k3";
    options.kl.in = "loss";
  }
  return options;
}

}  // namespace braid
