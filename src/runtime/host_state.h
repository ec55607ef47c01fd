// State that rests in host memory between its uses: copied there once, and again where it has
// changed; brought back before a use, and freed after. The tensors keep their places and shapes and
// are without memory while they are away. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace braid {

class HostState {
 public:
  HostState() = default;
  // Of the memory of these tensors, which must be theirs alone. It stays until the first offload().
  explicit HostState(const std::vector<at::Tensor>& tensors);

  bool here() const { return here_; }
  // Nothing where it is here.
  void load();
  // Nothing where it is away. `changed`: since it was loaded.
  void offload(bool changed);

 private:
  struct Piece {
    at::Tensor bytes;  // a view of all of a storage
    at::Tensor copy;   // on the host; undefined until the first offload
  };
  std::vector<Piece> pieces_;
  bool here_ = true;
};

}  // namespace braid
