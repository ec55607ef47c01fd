// For indexed writes whose places all differ.
#pragma once

#include <ATen/Context.h>

namespace braid::inline nn {

// libtorch's deterministic indexing sorts first, since two numbers might go to one place. While
// this lives it does not. Not thread-safe: the switch is the process's.
class AnyOrder {
 public:
  AnyOrder()
      : deterministic_(at::globalContext().deterministicAlgorithms()),
        warns_(at::globalContext().deterministicAlgorithmsWarnOnly()) {
    at::globalContext().setDeterministicAlgorithms(false, warns_);
  }
  ~AnyOrder() { at::globalContext().setDeterministicAlgorithms(deterministic_, warns_); }
  AnyOrder(const AnyOrder&) = delete;
  AnyOrder& operator=(const AnyOrder&) = delete;

 private:
  bool deterministic_, warns_;
};

}  // namespace braid::inline nn
