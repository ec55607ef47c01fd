// State that rests in host memory between its uses: copied there once, and again where it has
// changed; brought back before a use, and freed after. The tensors keep their places and shapes and
// are without memory while they are away. Not thread-safe.
//
// It comes in pieces: memory for all that begin_load() names is there at once, its values arrive
// one unit after another beside what the caller does (on an accelerator on a stream of their own).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "device/copy_thread.h"
#include "device/device_copy.h"

namespace braid::inline weights {

class HostState {
 public:
  HostState() = default;
  // Of the memory of these tensors, which must be theirs alone, each with the unit of a model
  // (nn/decoder.h) that uses it first. It stays until the first offload(). `copies` does the copies
  // within host memory; null: begin_load() does. REQUIRES: it outlives this.
  explicit HostState(const std::vector<std::pair<int64_t, at::Tensor>>& tensors,
                     CopyThread* copies = nullptr);

  // Whether nothing is away; it may be on its way.
  bool here() const;
  // Begins to bring what units [begin, end) use, and all of it. Nothing where that has begun.
  void begin_load(int64_t begin, int64_t end);
  void begin_load();
  // Until what a unit uses has its values, and until all that has begun has. An accelerator waits
  // in place of the caller.
  void wait(int64_t unit);
  void wait();
  // Nothing where it is away. `changed`: since it was loaded.
  void offload(bool changed);

 private:
  struct Piece {
    at::Tensor bytes;         // a view of all of a storage
    std::set<int64_t> units;  // that use it
    at::Tensor copy = {};     // on the host; undefined until the first offload
    bool here = true;
    bool coming = false;       // here, but nobody has waited for its values
    int64_t number = 0;        // of the copy on the thread; 0: none
    StartedCopy started = {};  // to an accelerator
  };

  void begin_load(Piece& piece);
  void wait(Piece& piece);

  CopyThread* copies_ = nullptr;
  int64_t coming_ = 0;         // how many are
  std::vector<Piece> pieces_;  // in the order of their units
};

}  // namespace braid::inline weights
