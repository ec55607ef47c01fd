// Pages of the KV cache: reference-counted numbers and the tensors they index. Not thread-safe.
// Invariant: a page is free or held by at least one sequence; a page held by several is full and
// never written again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/model.h"

namespace braid::inline rollout {

class KvPool {
 public:
  explicit KvPool(const Model& model);

  // Memory for this many pages in all, with the contents of today, for grow(). Nothing changes
  // where it is not there.
  std::vector<KvLayer> room_for(int64_t pages) const;
  // Makes it the pool's. REQUIRES: nothing was written since room_for().
  void grow(std::vector<KvLayer> room);
  // Gives all memory back. REQUIRES: every page is free.
  void clear();
  // Of so many pages of all layers.
  int64_t bytes(int64_t pages) const;
  int64_t capacity() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

  // REQUIRES: free_pages() > 0.
  int32_t take();
  void share(int32_t page) { ++references_[page]; }
  void release(int32_t page);

  const std::vector<KvLayer>& layers() const { return layers_; }

 private:
  std::vector<KvLayer> layers_;
  std::vector<int32_t> references_;
  std::vector<int32_t> free_;
  at::TensorOptions options_;
  int64_t kv_heads_, head_dim_;
};

}  // namespace braid::inline rollout
