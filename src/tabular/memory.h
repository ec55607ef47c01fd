// Memory that a partial plan leaves on runs of devices and on all of them together, for checking
// many candidates of one call against it. Not thread-safe: keeps a cache for the plan it was last
// given.
#pragma once

#include <cstdint>
#include <vector>

#include "tabular/groups.h"

namespace braid::tabular {

class MemoryRoom {
 public:
  explicit MemoryRoom(const Model& model);

  // Looks at the other calls of a plan from now on: at what they need at least, on the devices that
  // they surely take. The plan must stay as it is while fits() is called.
  void look_at(const PartialPlan& plan, int except_call);

  // Whether candidates of the call may have room; exact where their devices are known and all calls
  // on these are assigned.
  bool fits(const Group& group);

 private:
  // On the fullest device of a run, by two measures that peak at different devices.
  struct Use {
    int64_t look = -1;           // which look_at the entry belongs to
    int64_t resident_bytes = 0;  // static parts of the other calls
    int64_t peak_bytes = 0;      // and the largest transient part among them
  };
  Use measure(int32_t first_device, int32_t end_device) const;

  int64_t capacity_bytes_;
  int64_t capacity_area_;
  int64_t static_area_ = 0;     // of the other calls
  int64_t transient_area_ = 0;  // the largest of them
  std::vector<const CallBounds*> others_;
  int64_t looks_ = 0;
  std::vector<Use> cache_;  // by Candidate::devices_id
};

}  // namespace braid::tabular
