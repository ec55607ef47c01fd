// Ranks that hold equal parts of a model's tensors, of which one reads the files for all.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "base/status.h"

namespace braid::inline nn {

class SliceSharing {
 public:
  virtual ~SliceSharing() = default;

  // Whether this rank reads.
  virtual bool reads() const = 0;
  // All of the ranks call it for the same tensors in the same order, each with memory of equal size
  // and type on the host. `values` becomes what the rank that reads has; `own` says whether its
  // reading failed. Errors: that failure, and that the ranks cannot communicate.
  virtual Status share(const std::string& tensor, const Status& own, const at::Tensor& values) = 0;
};

}  // namespace braid::inline nn
