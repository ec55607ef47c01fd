#include "weights/memory_report.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/text.h"
#include "train/main_gradients.h"

namespace braid::inline weights {
namespace {

std::string mib(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

// Memory that several tensors share counts once, for whom it is asked first.
class Counted {
 public:
  int64_t add(const at::Tensor& tensor) {
    if (!tensor.defined()) return 0;
    const c10::Storage& storage = tensor.storage();
    return known_.insert(storage.unsafeGetStorageImpl()).second
               ? static_cast<int64_t>(storage.nbytes())
               : 0;
  }

 private:
  std::set<const void*> known_;
};

int64_t gradient_bytes(const ModelInstance& role) {
  if (role.gradients) return role.gradients->bytes();
  int64_t bytes = 0;
  for (const auto& [name, parameter] : role.model->trainable_parameters())
    bytes += static_cast<int64_t>(parameter.nbytes());
  return bytes;
}

}  // namespace

MemoryUseOfRank memory_use(const RankModels& models, int64_t held) {
  MemoryUseOfRank use;
  Counted counted;
  int64_t known = 0;
  for (const auto& [name, instance] : models.instances()) {
    int64_t weights = 0;
    for (const auto& [tensor_name, parameter] : instance->model->parameters())
      weights += counted.add(parameter);
    if (instance->shards)
      for (const auto& [unit, slice] : instance->shards->slices()) weights += counted.add(slice);
    if (weights > 0) use.weights.emplace_back("weights of " + name, weights);
    known += weights;
    if (!instance->optimizer) continue;
    for (const at::Tensor& tensor : instance->optimizer->tensors())
      use.optimizer += counted.add(tensor);
    use.gradients += gradient_bytes(*instance);
    if (instance->gradients) known += instance->gradients->bytes();
  }
  use.other = std::max<int64_t>(0, held - known - use.optimizer);
  return use;
}

std::string memory_use_text(const MemoryUseOfRank& use) {
  std::vector<std::string> parts;
  for (const auto& [owner, bytes] : use.weights) parts.push_back(cat(owner, " ", mib(bytes)));
  const auto add = [&](const char* owner, int64_t bytes) {
    if (bytes > 0) parts.push_back(cat(owner, " ", mib(bytes)));
  };
  add("main weights and moments", use.optimizer);
  add("gradients", use.gradients);
  add("KV cache", use.cache);
  add("activations of the longest micro-batch, as far as it came,", use.activations);
  add("other", use.other);
  return join(parts, ", ");
}

std::vector<std::string> keys_that_help(const MemoryUseOfRank& use, const MemoryKeys& keys) {
  int64_t weights = 0;
  for (const auto& [owner, bytes] : use.weights) weights += bytes;
  const int64_t state = use.optimizer + use.gradients;
  std::vector<std::pair<int64_t, std::string>> saved;
  saved.emplace_back(use.activations / 2, "train.micro_tokens");
  saved.emplace_back(use.cache / 2, "rollout.kv_budget_tokens");
  // What remains of a layer's activations is its input, about a tenth.
  if (!keys.recomputes) saved.emplace_back(use.activations * 9 / 10, "train.recompute=true");
  if (keys.copies > 1 && !keys.shards)
    saved.emplace_back(state - state / keys.copies, "zero in the plan");
  if (!keys.adapters) saved.emplace_back(state * 9 / 10, "lora.rank");
  if (!keys.narrow) saved.emplace_back(weights / 2, "model.dtype=bf16");
  std::stable_sort(saved.begin(), saved.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < 3; ++i) out.push_back(saved[i].second);
  return out;
}

}  // namespace braid::inline weights
