// Models on the test device against the CPU: kernels, loading, forward and backward, generation.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/model.h"
#include "nn/model_share.h"
#include "nn/parallel_testing.h"
#include "nn/test_models.h"
#include "rollout/engine.h"
#include "test_device.h"

namespace braid {
namespace {

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const ModelFamily& family : model_families()) names.push_back(family.name);
  return names;
}

at::Tensor on_cpu(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().to(at::kCPU) : tensor;
}

TestBatch batch_on(at::Device device, const ModelSpec& spec) {
  TestBatch batch = make_batch(spec, 5);
  for (at::Tensor* tensor : {&batch.tokens.tokens_T, &batch.tokens.positions_T, &batch.targets_T,
                             &batch.weights_T, &batch.entropy_weights_T})
    *tensor = tensor->to(device);
  return batch;
}

struct Computed {
  at::Tensor loss, outputs;
  double terms = 0;  // of the loss
  std::map<std::string, at::Tensor> gradients;
};

Computed compute(Model& model) {
  const TestBatch batch = batch_on(model.options().device, model.spec());
  const TestLoss result = loss_of(model, model.forward(batch.tokens, nullptr), batch);
  result.loss.backward();
  Computed out{on_cpu(result.loss), on_cpu(result.outputs), result.terms, {}};
  for (const auto& [name, parameter] : model.trainable_parameters())
    out.gradients[name] = on_cpu(parameter.grad());
  return out;
}

// The same weights on the CPU and on the device.
void expect_same(const std::string& family, ModelOptions options, double tolerance) {
  SCOPED_TRACE(cat(family, " ", options.dtype));
  const auto here = small_model(family, options);
  options.device = tested_device();
  const auto there = small_model(family, options);
  randomize(*here);
  {
    const at::NoGradGuard no_grad;
    const auto from = by_name(*here);
    for (const auto& [name, parameter] : there->parameters()) {
      ASSERT_EQ(parameter.device(), options.device) << name;
      parameter.copy_(from.at(name));
    }
    there->weights_changed();
  }
  const Computed expected = compute(*here), actual = compute(*there);
  EXPECT_LE(relative_error(actual.loss, expected.loss, expected.terms), tolerance);
  EXPECT_LE(relative_error(actual.outputs, expected.outputs, 0), tolerance);
  const double floor = 1e-4 * global_norm(*here);
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients)
    EXPECT_LE(relative_error(actual.gradients.at(name), gradient, floor), tolerance) << name;
}

class EveryFamily : public testing::TestWithParam<std::string> {};

TEST_P(EveryFamily, ComputesTheNumbersOfTheCpu) {
  expect_same(GetParam(), {}, 1e-5);
  expect_same(GetParam(),
              {.kept = KeptActivations::kInputs, .lora = {.rank = 2, .targets = {"all-linear"}}},
              1e-5);
}

TEST_P(EveryFamily, ComputesTheNumbersOfTheCpuIn16Bits) {
  expect_same(GetParam(), {.dtype = at::kBFloat16}, 3e-2);
}

INSTANTIATE_TEST_SUITE_P(All, EveryFamily, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param; });

class DeviceFolders : public FolderTest {};

// Loading gives the device the checkpoint's bits, saving gives them back.
TEST_F(DeviceFolders, LoadingAndSavingKeepEveryBit) {
  const at::Device device = install_test_device();
  for (const bool scalar : {false, true}) {
    const std::string folder = golden_folder("qwen2");
    const auto here = load_model(folder, {{}, scalar});
    const auto there = load_model(folder, {{.device = device}, scalar});
    ASSERT_TRUE(here.ok() && there.ok()) << there.status().message();
    const std::string saved = join_path(folder_, scalar ? "score" : "language");
    ASSERT_EQ(save_model(**there, saved, {.source_folder = folder}).message(), "");
    const auto again = load_model(saved, {{}, scalar});
    ASSERT_TRUE(again.ok()) << again.status().message();
    const auto loaded = by_name(**there), back = by_name(**again);
    for (const auto& [name, tensor] : by_name(**here)) {
      EXPECT_EQ(loaded.at(name).device(), device) << name;
      EXPECT_TRUE(at::equal(on_cpu(loaded.at(name)), tensor)) << name;
      EXPECT_TRUE(at::equal(back.at(name), tensor)) << name;
    }
  }
}

TEST_F(DeviceFolders, AdaptersAreExportedMergedAndAlone) {
  const ModelOptions options{.device = install_test_device(), .lora = {.rank = 2}};
  auto model = load_model(golden_folder("llama"), {options, false});
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const bool merge : {true, false}) {
    const std::string to = join_path(folder_, merge ? "merged" : "adapters");
    const Status saved =
        save_model(**model, to, {.source_folder = golden_folder("llama"), .merge_adapters = merge});
    EXPECT_EQ(saved.message(), "");
    const auto again = load_model(to, {{.device = options.device}, false});
    EXPECT_TRUE(again.ok()) << again.status().message();
  }
}

at::Tensor hidden_of(Model& model) {
  const at::NoGradGuard no_grad;
  return on_cpu(model.forward(batch_on(model.options().device, model.spec()).tokens, nullptr));
}

// Frozen weights leave the device while the model rests, and come back to compute the same bits.
TEST(DeviceOffload, FreesTheDeviceBetweenUses) {
  for (const char* family : {"llama", "gpt2", "gemma", "gemma2", "gemma3", "phi3", "qwen3"}) {
    const auto source = small_model(family, {.device = install_test_device()});
    const at::Tensor expected = hidden_of(*source), head = on_cpu(source->head_weight());
    int64_t bytes = 0;
    for (const auto& [name, tensor] : source->parameters()) bytes += tensor.nbytes();
    const int64_t before = test_device_counts().bytes_in_use;
    const auto frozen = offload_model(*source, "");
    ASSERT_TRUE(frozen.ok()) << frozen.status().message();
    EXPECT_EQ(test_device_counts().bytes_in_use, before);
    {
      const at::NoGradGuard no_grad;
      for (const auto& [name, tensor] : source->parameters()) tensor.zero_();
      source->weights_changed();
    }
    for (int use = 0; use < 2; ++use) {
      EXPECT_TRUE(at::equal(hidden_of(**frozen), expected)) << family;
      EXPECT_TRUE(at::equal(on_cpu((*frozen)->head_weight()), head)) << family;
      EXPECT_GE(test_device_counts().bytes_in_use, before + bytes);
      (*frozen)->rest();
      EXPECT_LT(test_device_counts().bytes_in_use, before + bytes);
    }
    EXPECT_TRUE((*frozen)->trainable_parameters().empty());
  }
}

std::vector<Generated> generate(Model& model, const EngineOptions& options) {
  auto engine = Engine::create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  for (int64_t i = 0; i < 6; ++i) {
    Request request;
    request.sample = SampleId{i};
    for (int64_t t = 0; t < 3 + 13 * i; ++t)
      request.prompt_ids.push_back(static_cast<int32_t>((7 * i + 5 * t) % model.spec().vocab));
    request.sampling.max_new_tokens = 9;
    request.sampling.temperature = i % 2 == 0 ? 1 : 0;
    EXPECT_EQ((*engine)->submit(std::move(request)).message(), "");
  }
  std::vector<Generated> out(6);
  while (!(*engine)->drained()) {
    auto finished = (*engine)->step();
    EXPECT_TRUE(finished.ok()) << finished.status().message();
    if (!finished.ok()) break;
    for (Generated& sample : *finished) out[sample.sample.value] = std::move(sample);
  }
  return out;
}

// Continuous batching with a page pool so short that sequences are put off and computed again.
TEST(DeviceGeneration, DrawsTheTokensOfTheCpu) {
  const at::Device device = tested_device();
  for (const char* family : {"qwen3", "gpt2"}) {
    const auto here = small_model(family), there = small_model(family, {.device = device});
    const EngineOptions options{
        .kv_budget_tokens = 192, .max_concurrent = 4, .max_batch_tokens = 32};
    const auto expected = generate(*here, options), actual = generate(*there, options);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(actual[i].response_ids, expected[i].response_ids) << family << " sample " << i;
      EXPECT_THAT(actual[i].logprobs,
                  testing::Pointwise(testing::FloatNear(1e-5F), expected[i].logprobs));
    }
  }
}

}  // namespace
}  // namespace braid
