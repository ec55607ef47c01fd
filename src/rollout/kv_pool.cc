#include "rollout/kv_pool.h"

namespace braid::inline rollout {

namespace {

int64_t held_layers(const Model& model) {
  int64_t count = 0;
  for (const LayerRange& range : model.ranges()) count += range.end - range.begin;
  return count;
}

}  // namespace

KvPool::KvPool(const Model& model)
    : layers_(held_layers(model)),
      options_(at::TensorOptions().dtype(model.options().dtype).device(model.options().device)),
      kv_heads_(model.local_spec().kv_heads),
      head_dim_(model.spec().head_dim) {}

std::vector<KvLayer> KvPool::room_for(int64_t pages) const {
  const int64_t old = capacity();
  std::vector<KvLayer> out;
  for (const KvLayer& layer : layers_) {
    out.push_back(allocate_kv(pages, kv_heads_, head_dim_, options_));
    if (old == 0) continue;
    out.back().keys.narrow(0, 0, old).copy_(layer.keys);
    out.back().values.narrow(0, 0, old).copy_(layer.values);
  }
  return out;
}

void KvPool::grow(std::vector<KvLayer> room) {
  const int64_t old = capacity(), pages = room.front().keys.size(0);
  layers_ = std::move(room);
  references_.resize(pages, 0);
  for (int64_t page = pages - 1; page >= old; --page) free_.push_back(static_cast<int32_t>(page));
}

void KvPool::clear() {
  BRAID_CHECK(free_pages() == capacity(), "pages of the KV cache are in use");
  layers_.assign(layers_.size(), KvLayer());
  references_.clear();
  free_.clear();
}

int64_t KvPool::bytes(int64_t pages) const {
  const auto layers = static_cast<int64_t>(layers_.size());
  const auto number = static_cast<int64_t>(options_.dtype().itemsize());
  return 2 * layers * pages * kPageTokens * kv_heads_ * head_dim_ * number;
}

int32_t KvPool::take() {
  BRAID_CHECK(!free_.empty(), "no free KV page");
  const int32_t page = free_.back();
  free_.pop_back();
  references_[page] = 1;
  return page;
}

void KvPool::release(int32_t page) {
  BRAID_CHECK(references_[page] > 0, "page released twice");
  if (--references_[page] == 0) free_.push_back(page);
}

}  // namespace braid::inline rollout
