#include "search/table_memory.h"

#include <algorithm>

namespace braid::table {

MemoryRoom::MemoryRoom(const Model& model)
    : capacity_bytes_(model.problem->device_memory_bytes), cache_(model.num_intervals) {}

void MemoryRoom::look_at(const PartialPlan& plan) {
  ++plans_;
  assigned_.clear();
  for (size_t c = 0; c < plan.calls.size(); ++c)
    if (plan.calls[c].assigned) assigned_.push_back(&plan.chosen[c]);
}

bool MemoryRoom::fits(const Candidate& candidate) {
  Use& use = cache_[candidate.devices_id];
  if (use.plan != plans_) use = measure(candidate);
  // With static part s and peak p on a device that holds S and at most T more: S + s + max(T, p -
  // s).
  return use.peak_bytes + candidate.static_bytes <= capacity_bytes_ &&
         use.resident_bytes + candidate.peak_bytes <= capacity_bytes_;
}

MemoryRoom::Use MemoryRoom::measure(const Candidate& candidate) const {
  Use use{.plan = plans_};
  const auto look = [&](int32_t device) {
    int64_t resident = 0;
    int64_t transient = 0;
    for (const Candidate* call : assigned_) {
      if (device < call->first_device || device >= call->end_device) continue;
      resident += call->static_bytes;
      transient = std::max(transient, call->peak_bytes - call->static_bytes);
    }
    use.resident_bytes = std::max(use.resident_bytes, resident);
    use.peak_bytes = std::max(use.peak_bytes, resident + transient);
  };
  // The largest sets of calls on a device of the run are found at its first device and at first
  // devices inside it.
  look(candidate.first_device);
  for (const Candidate* call : assigned_)
    if (call->first_device > candidate.first_device && call->first_device < candidate.end_device)
      look(call->first_device);
  return use;
}

}  // namespace braid::table
