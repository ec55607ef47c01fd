#include "session/moved_cache.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace braid::inline session {

Status wait_for_all(Transfers& transfers) {
  for (auto& [tensor, pending] : transfers) BRAID_TRY(pending.wait());
  transfers.clear();
  return ok_status();
}

int64_t token_bytes(const Generation& generation) {
  int64_t out = 0;
  for (const KvLayer& layer : generation.room_for(1))
    out += static_cast<int64_t>(layer.keys.nbytes() + layer.values.nbytes());
  return out;
}

at::Tensor flat_cache(const std::vector<KvLayer>& kv) {
  std::vector<at::Tensor> parts;
  for (const KvLayer& layer : kv)
    for (const at::Tensor& tensor : {layer.keys, layer.values}) parts.push_back(tensor.flatten());
  return at::cat(parts);
}

at::Tensor room_for_flat(const Generation& generation, int64_t tokens) {
  const std::vector<KvLayer> one = generation.room_for(1);
  const int64_t numbers = one.front().keys.numel() * 2 * std::ssize(one);
  return at::empty({numbers * tokens}, one.front().keys.options());
}

void fill_cache(const at::Tensor& flat, int64_t begin, int64_t tokens, std::vector<KvLayer>* kv) {
  int64_t at = 0;
  for (KvLayer& layer : *kv)
    for (at::Tensor* tensor : {&layer.keys, &layer.values}) {
      const at::Tensor part = tensor->narrow(0, begin, tokens);
      part.copy_(flat.narrow(0, at, part.numel()).view(part.sizes()));
      at += part.numel();
    }
}

}  // namespace braid::inline session
