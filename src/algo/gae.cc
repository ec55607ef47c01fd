#include "algo/gae.h"

#include <cstddef>

namespace braid::inline algo {

GaeResult gae(const std::vector<double>& rewards, const std::vector<double>& values,
              const std::vector<int64_t>& begins, double gamma, double lam) {
  GaeResult result{std::vector<double>(values.size()), std::vector<double>(values.size())};
  for (size_t s = 0; s + 1 < begins.size(); ++s) {
    double next_value = 0, next_advantage = 0;
    for (int64_t t = begins[s + 1] - 1; t >= begins[s]; --t) {
      const double delta = rewards[t] + gamma * next_value - values[t];
      next_advantage = delta + gamma * lam * next_advantage;
      next_value = values[t];
      result.advantages[t] = next_advantage;
      result.returns[t] = next_advantage + values[t];
    }
  }
  return result;
}

}  // namespace braid::inline algo
