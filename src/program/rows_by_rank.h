// Which rows of a step's samples each rank has to do with in a call: of samples that are there
// (samples/call_rows.h), or of drawn ones (sim/priced_rows.h). All ranks say the same. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/exchange.h"

namespace braid::inline program {

class RowsByRank {
 public:
  virtual ~RowsByRank() = default;
  virtual size_t samples() const = 0;
  // In step `step`, [rank]: the rows whose results of the call, or a part of it, the rank has.
  virtual std::vector<SampleRows> written_by_rank(CallId call, int64_t step, SamplePart part) = 0;
  // Likewise the rows that it must have of what the call reads.
  virtual std::vector<SampleRows> read_by_rank(CallId call, int64_t step, SamplePart part) = 0;
  // Of a call that passes samples: the rows about which each rank says what its model gave.
  virtual std::vector<SampleRows> told_by_rank(CallId call, int64_t step) = 0;
};

}  // namespace braid::inline program
