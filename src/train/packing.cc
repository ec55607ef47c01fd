#include "train/packing.h"

namespace braid {

std::vector<std::vector<size_t>> pack_micro_batches(const std::vector<int64_t>& token_counts,
                                                    int64_t micro_tokens) {
  std::vector<std::vector<size_t>> micro_batches;
  int64_t filled = 0;
  for (size_t sample = 0; sample < token_counts.size(); ++sample) {
    if (micro_batches.empty() || filled + token_counts[sample] > micro_tokens) {
      micro_batches.emplace_back();
      filled = 0;
    }
    micro_batches.back().push_back(sample);
    filled += token_counts[sample];
  }
  return micro_batches;
}

}  // namespace braid
