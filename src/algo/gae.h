// Generalized advantage estimation over packed samples. Pure function.
#pragma once

#include <cstdint>
#include <vector>

namespace braid::inline algo {

struct GaeResult {
  std::vector<double> advantages;  // [R]
  std::vector<double> returns;     // [R], advantages + values
};

// delta_t = r_t + gamma V_{t+1} - V_t and A_t = delta_t + gamma lam A_{t+1}, both 0 past the last
// token of a sample (Schulman et al., 2016, eq. 16). `begins` has S + 1 offsets into the tokens.
GaeResult gae(const std::vector<double>& rewards, const std::vector<double>& values,
              const std::vector<int64_t>& begins, double gamma, double lam);

}  // namespace braid::inline algo
