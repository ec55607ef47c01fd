// pass@k: the chance that at least one of k samples of a prompt is right. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace braid::inline reward {

// Unbiased estimate from n samples of which c are right: 1 - C(n - c, k) / C(n, k) (Chen et al.,
// "Evaluating large language models trained on code", 2021, section 2.1). REQUIRES: 1 <= k <= n,
// 0 <= c <= n.
double pass_at_k(int64_t n, int64_t c, int64_t k);

// The k that are worth reporting for n samples: powers of two below n, and n.
std::vector<int64_t> reported_k(int64_t n);

}  // namespace braid::inline reward
