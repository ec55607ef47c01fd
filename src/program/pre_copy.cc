#include "program/pre_copy.h"

namespace braid::inline program {

PreCopy pre_copy(const std::vector<SampleProgress>& samples, const std::vector<int64_t>& cached,
                 const std::vector<SampleRows>& owned, const ReplicaLimits& limits, int64_t below) {
  const HandOver would_be = hand_over(samples, owned, limits, {}, below);
  PreCopy out;
  out.chosen.assign(samples.size(), -1);
  for (size_t replica = 0; replica < would_be.left.size(); ++replica)
    for (const int32_t row : would_be.left[replica])
      out.chosen[row] = static_cast<int32_t>(replica);
  for (const SampleMove& move : would_be.moves)
    if (cached[move.row] > 0)
      out.copies.push_back({move.row, move.from, move.to, cached[move.row]});
  return out;
}

}  // namespace braid::inline program
