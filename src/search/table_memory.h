// Memory that a partial plan leaves on runs of devices, for checking many candidates against it.
// Not thread-safe: keeps a cache for the plan it was last given.
#pragma once

#include <cstdint>
#include <vector>

#include "search/table_bound.h"

namespace braid::table {

class MemoryRoom {
 public:
  explicit MemoryRoom(const Model& model);

  // Looks at another plan from now on; it must stay as it is while fits() is called.
  void look_at(const PartialPlan& plan);

  // Whether a candidate of an open call has room beside the assigned calls; exact for these calls
  // together.
  bool fits(const Candidate& candidate);

 private:
  // On the fullest device of a run, by two measures that peak at different devices.
  struct Use {
    int64_t plan = -1;           // which look_at the entry belongs to
    int64_t resident_bytes = 0;  // static parts of the assigned calls
    int64_t peak_bytes = 0;      // and the largest transient part among them
  };
  Use measure(const Candidate& candidate) const;

  int64_t capacity_bytes_;
  std::vector<const Candidate*> assigned_;
  int64_t plans_ = 0;
  std::vector<Use> cache_;  // by Candidate::devices_id
};

}  // namespace braid::table
