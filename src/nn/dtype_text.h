// Names of the types of weights in config.json. Pure function.
#pragma once

#include <ATen/core/Tensor.h>

namespace braid::inline nn {

// "bfloat16" or "float16"; of every other type "float32".
inline const char* dtype_text(at::ScalarType type) {
  if (type == at::kBFloat16) return "bfloat16";
  return type == at::kHalf ? "float16" : "float32";
}

}  // namespace braid::inline nn
