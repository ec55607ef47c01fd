#include "sim/slice_prices.h"

#include "program/placement.h"
#include "sim/step_prices.h"

namespace braid::inline sim {

SliceGather slice_gather(const std::vector<int64_t>& bytes, const CallCost& user) {
  SliceGather out;
  int64_t last = 0;
  double seconds = 0;
  for (const int64_t each : bytes) {
    if (each == 0) continue;
    if (each != last) seconds = user.gather_slices_s(static_cast<double>(last = each));
    out.bytes += static_cast<double>(each), out.seconds += seconds;
  }
  return out;
}

SliceGather StepPrices::gathered(int32_t copy, DeviceId rank) const {
  const WeightCopy& of = program_.copies[copy];
  return slice_gather(gathered_weights(*find_shape(program_, of.role), of.layout, rank),
                      cost(user_of(program_, copy)));
}

SliceGather StepPrices::gathered_arrivals(int32_t entry, DeviceId rank) const {
  const int32_t copy = program_.reallocations[entry].copy;
  const WeightCopy& to = program_.copies[copy];
  return slice_gather(gathered_where_they_come(*find_shape(program_, to.role), to.layout, rank),
                      cost(user_of(program_, copy)));
}

}  // namespace braid::inline sim
