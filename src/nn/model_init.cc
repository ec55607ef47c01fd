// Initial weights: each tensor is a function of (seed, its name), whatever range of layers is
// built.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "base/name_seed.h"
#include "device/device_copy.h"
#include "nn/decoder.h"
#include "nn/unit_writer.h"

namespace braid::inline nn {

namespace {

constexpr double kInitStd = 0.02;  // transformers' initializer_range

at::Tensor random_normal(at::IntArrayRef shape, double std, uint64_t seed) {
  return at::empty(shape, at::kFloat).normal_(0, std, at::detail::createCPUGenerator(seed));
}

void place(const at::Tensor& values, at::Tensor& tensor) {
  tensor.copy_(to_device(values, tensor.device()));
}

// Random tensors are drawn whole, so that the values do not depend on who holds them.
void init_tensor(const TensorSpec& spec, const TensorShard& shard, double residual_std,
                 uint64_t seed, at::Tensor& tensor) {
  switch (spec.init) {
    case TensorSpec::Init::kZero:
      tensor.zero_();
      return;
    case TensorSpec::Init::kOne:
      tensor.fill_(1);
      return;
    case TensorSpec::Init::kNormal:
      place(take_shard(random_normal(shard.whole, kInitStd, seed), shard), tensor);
      return;
    case TensorSpec::Init::kResidualNormal:
      place(take_shard(random_normal(shard.whole, residual_std, seed), shard), tensor);
      return;
  }
}

}  // namespace

void init_weights(Decoder& decoder) {
  const at::NoGradGuard no_grad;
  const ModelSpec& spec = decoder.spec();
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(spec.layers));
  const auto specs = decoder.tensors();
  size_t next = 0;
  UnitWriter writer(decoder, true);
  decoder.visit_base([&](const std::string& name, at::Tensor& tensor) {
    BRAID_CHECK(specs[next].name == name, "tensors come in the order of model_tensors()");
    writer.enter(name);
    init_tensor(specs[next++], decoder.shards().at(name), residual_std,
                name_seed(decoder.options().seed, name), tensor);
  });
}

void init_adapters(Decoder& decoder) {
  const at::NoGradGuard no_grad;
  UnitWriter writer(decoder, false);
  decoder.visit_adapters([&](const std::string& name, at::Tensor& tensor) {
    writer.enter(name);
    if (name.find(".lora_B.") != std::string::npos) {
      tensor.zero_();
      return;
    }
    const TensorShard& shard = decoder.shards().at(name);
    const double bound = 1 / std::sqrt(static_cast<double>(shard.whole[1]));
    auto generator = at::detail::createCPUGenerator(name_seed(decoder.options().seed, name));
    const at::Tensor whole = at::empty(shard.whole, at::kFloat).uniform_(-bound, bound, generator);
    place(take_shard(whole, shard), tensor);
  });
}

}  // namespace braid::inline nn
