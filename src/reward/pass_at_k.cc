#include "reward/pass_at_k.h"

namespace braid::inline reward {

double pass_at_k(int64_t n, int64_t c, int64_t k) {
  if (n - c < k) return 1;
  // C(n - c, k) / C(n, k) as a product of factors below 1: nothing overflows.
  double all_wrong = 1;
  for (int64_t i = n - c + 1; i <= n; ++i)
    all_wrong *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - all_wrong;
}

std::vector<int64_t> reported_k(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t k = 1; k < n; k *= 2) out.push_back(k);
  out.push_back(n);
  return out;
}

}  // namespace braid::inline reward
