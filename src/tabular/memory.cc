#include "tabular/memory.h"

#include <algorithm>

namespace braid::tabular {

MemoryRoom::MemoryRoom(const Model& model)
    : capacity_bytes_(model.problem->device_memory_bytes),
      capacity_area_((capacity_bytes_ / kAreaBytes + 1) * model.problem->num_devices),
      cache_(model.num_intervals) {}

void MemoryRoom::look_at(const PartialPlan& plan, int except_call) {
  ++looks_;
  others_.clear();
  static_area_ = transient_area_ = 0;
  for (int c = 0; c < static_cast<int>(plan.calls.size()); ++c) {
    if (c == except_call) continue;
    const CallBounds& call = plan.calls[c];
    static_area_ += call.static_area;
    transient_area_ = std::max(transient_area_, call.transient_area);
    if (call.first_device < call.end_device) others_.push_back(&call);
  }
}

bool MemoryRoom::fits(const Group& group) {
  const CallBounds& call = group.bounds;
  const int64_t area =
      static_area_ + call.static_area + std::max(transient_area_, call.transient_area);
  if (area > capacity_area_) return false;
  if (group.devices_id < 0) return true;
  Use& use = cache_[group.devices_id];
  if (use.look != looks_) use = measure(call.first_device, call.end_device);
  // With static part s and transient part t on a device that holds S and at most T more: S + s +
  // max(T, t).
  return use.peak_bytes + call.static_bytes <= capacity_bytes_ &&
         use.resident_bytes + call.peak_bytes <= capacity_bytes_;
}

MemoryRoom::Use MemoryRoom::measure(int32_t first_device, int32_t end_device) const {
  Use use;
  use.look = looks_;
  const auto look = [&](int32_t device) {
    int64_t resident = 0;
    int64_t transient = 0;
    for (const CallBounds* call : others_) {
      if (device < call->first_device || device >= call->end_device) continue;
      resident += call->static_bytes;
      transient = std::max(transient, call->transient_bytes);
    }
    use.resident_bytes = std::max(use.resident_bytes, resident);
    use.peak_bytes = std::max(use.peak_bytes, resident + transient);
  };
  // The largest sets of calls on a device of the run are found at its first device and at first
  // devices inside it.
  look(first_device);
  for (const CallBounds* call : others_)
    if (call->first_device > first_device && call->first_device < end_device)
      look(call->first_device);
  return use;
}

}  // namespace braid::tabular
