// What StepPrices has of weights that are slices (ZeRO-3) outside of passes.
#include "program/placement.h"
#include "sim/step_prices.h"

namespace braid::inline sim {

StepPrices::SliceGather StepPrices::gathered(int32_t copy, DeviceId rank) const {
  const WeightCopy& of = program_.copies[copy];
  const CallCost& cost = this->cost(user_of(program_, copy));
  SliceGather out;
  int64_t last = 0;
  double seconds = 0;
  for (const int64_t bytes : gathered_weights(*find_shape(program_, of.role), of.layout, rank)) {
    if (bytes == 0) continue;
    if (bytes != last) seconds = cost.gather_slices_s(static_cast<double>(last = bytes));
    out.bytes += static_cast<double>(bytes), out.seconds += seconds;
  }
  return out;
}

}  // namespace braid::inline sim
