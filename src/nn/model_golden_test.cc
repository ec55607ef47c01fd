// Every family against what transformers computed (tools/make_model_goldens.py).
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "host/file.h"
#include "nn/model.h"
#include "test_paths.h"

namespace braid::inline nn {
namespace {

constexpr double kTolerance = 2e-4;
constexpr int64_t kLogitStride = 20;  // of "every_20th"

std::string model_folder(const std::string& name) {
  return cat(BRAID_SOURCE_DIR, "/tests/data/models/", name);
}

// The prompts with their expected values; never empty.
std::vector<Json> golden(const std::string& name) {
  const auto text = read_file(join_path(model_folder(name), "golden.json"));
  EXPECT_TRUE(text.ok()) << text.status().message();
  const Json parsed = *parse_json(*text, name);
  const auto prompts = parsed.at("prompts").get<std::vector<Json>>();
  EXPECT_EQ(prompts.size(), 2u);
  return prompts;
}

std::unique_ptr<Model> load_case(const std::string& name, const LoadOptions& options = {}) {
  auto model = load_model(model_folder(name), options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

at::Tensor all_logits(Model& model, const std::vector<int32_t>& ids) {
  return logits(model, model.forward(pack_sequences({ids}, at::kCPU), nullptr));
}

void expect_row(const at::Tensor& row, const Json& expected, int64_t stride) {
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(row[static_cast<int64_t>(i) * stride].item<double>(), expected[i].get<double>(),
                kTolerance);
}

std::vector<int32_t> greedy(Model& model, std::vector<int32_t> ids, size_t tokens) {
  const size_t prompt = ids.size();
  while (ids.size() < prompt + tokens)
    ids.push_back(all_logits(model, ids)[-1].argmax().item<int32_t>());
  return {ids.begin() + static_cast<int64_t>(prompt), ids.end()};
}

void expect_golden_logits(Model& model, const std::string& name) {
  const at::NoGradGuard no_grad;
  for (const Json& entry : golden(name)) {
    const auto ids = entry.at("ids").get<std::vector<int32_t>>();
    const at::Tensor logits = all_logits(model, ids);
    ASSERT_EQ(entry.at("every_20th").size(), ids.size());
    for (size_t t = 0; t < ids.size(); ++t)
      expect_row(logits[static_cast<int64_t>(t)], entry.at("every_20th")[t], kLogitStride);
    ASSERT_EQ(static_cast<int64_t>(entry.at("last").size()), logits.size(1));
    expect_row(logits[-1], entry.at("last"), 1);
    EXPECT_EQ(greedy(model, ids, 32), entry.at("greedy").get<std::vector<int32_t>>());
  }
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, LogitsAndGreedyContinuation) {
  const auto model = load_case(GetParam());
  expect_golden_logits(*model, GetParam());
}

TEST_P(Golden, ScalarHead) {
  const std::string name = cat(GetParam(), "-score");
  const auto model = load_case(name);
  const at::NoGradGuard no_grad;
  for (const Json& entry : golden(name)) {
    const auto ids = entry.at("ids").get<std::vector<int32_t>>();
    const at::Tensor hidden = model->forward(pack_sequences({ids}, at::kCPU), nullptr);
    ASSERT_EQ(entry.at("values").size(), ids.size());
    expect_row(scalar_outputs(*model, hidden), entry.at("values"), 1);
  }
}

TEST_P(Golden, PackedSequencesDoNotSeeEachOther) {
  const auto model = load_case(GetParam());
  const at::NoGradGuard no_grad;
  const std::vector<int32_t> a = {9, 8, 7, 100, 3}, b = {11, 12, 13, 14, 15, 16, 17};
  const at::Tensor packed = model->forward(pack_sequences({a, b}, at::kCPU), nullptr);
  const at::Tensor alone = model->forward(pack_sequences({b}, at::kCPU), nullptr);
  EXPECT_TRUE(packed.narrow(0, 5, 7).equal(alone));
}

INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         testing::Values("llama", "llama3", "qwen2", "qwen3", "mistral", "gemma",
                                         "gemma2", "gemma3", "phi3", "phi3-long", "qwen2-mixed",
                                         "gpt2"));

TEST(GoldenLora, PeftAdapterGivesTheSameLogits) {
  const auto lora = read_lora_options(model_folder("llama-lora"));
  ASSERT_TRUE(lora.ok()) << lora.status().message();
  LoadOptions options;
  options.model.lora = *lora;
  const auto model = load_case("llama", options);
  const Status loaded = load_adapters(*model, model_folder("llama-lora"));
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  expect_golden_logits(*model, "llama-lora");
  model->set_adapters(false);
  expect_golden_logits(*model, "llama");
}

}  // namespace
}  // namespace braid::inline nn
