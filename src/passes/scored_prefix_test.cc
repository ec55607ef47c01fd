// What a call gives a sample does not depend on whether it scores it at once, or its beginning
// first, with keys and values kept, and the rest later: to the last bit, on the CPU.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "nn/model.h"
#include "nn/test_models.h"
#include "passes/inference.h"

namespace braid::inline passes {
namespace {

struct Sample {
  std::vector<int32_t> prompt, response;
  int64_t produced = 0;             // new tokens when its beginning is scored
  std::vector<int32_t> pages = {};  // of its keys and values
  int64_t length() const { return std::ssize(prompt) + std::ssize(response); }
  // The last token so far predicts one that is not there yet: its row is of the rest.
  int64_t beginning() const { return std::ssize(prompt) + produced - 1; }
};

// Less than a page, more than one, one that ends with a page, and one without a new token.
std::vector<Sample> some_samples() {
  struct Lengths {
    int32_t prompt, response, produced;
  };
  const std::vector<Lengths> lengths = {{5, 30, 17}, {40, 25, 3}, {20, 50, 13}, {9, 3, 0}};
  std::vector<Sample> out;
  int32_t page = 0;
  for (const Lengths& of : lengths) {
    Sample& sample = out.emplace_back();
    sample.produced = of.produced;
    const auto number = static_cast<int32_t>(out.size());
    for (int32_t i = 0; i < of.prompt + of.response; ++i)
      (i < of.prompt ? sample.prompt : sample.response)
          .push_back((17 * i + 31 * number + i * i) % 90);
    for (int64_t i = 0; i < pages_for(sample.length()); ++i) sample.pages.push_back(page++);
  }
  return out;
}

// Beginnings or the rest of some samples.
ResponseRows pack_some(const std::vector<Sample>& samples, const std::vector<size_t>& which,
                       bool rest) {
  std::vector<std::vector<int32_t>> prompts, responses;
  std::vector<Interval> parts;
  for (const Sample& sample : samples) {
    prompts.push_back(sample.prompt), responses.push_back(sample.response);
    if (!rest) responses.back().resize(sample.produced);
  }
  for (const size_t i : which)
    parts.push_back(rest ? Interval{samples[i].beginning(), samples[i].length()}
                         : Interval{0, samples[i].beginning()});
  ResponseRows out = pack_parts(prompts, responses, which, parts, at::kCPU);
  for (const size_t i : which) out.batch.attention.page_tables.push_back(samples[i].pages);
  return out;
}

class Scorer {
 public:
  Scorer(Model& model, Inferred what) : model_(model), what_(what) {
    const ModelSpec& spec = model.spec();
    for (int64_t layer = 0; layer < spec.layers; ++layer)
      kv_.push_back(allocate_kv(64, spec.kv_heads, spec.head_dim,
                                at::TensorOptions().dtype(model.options().dtype)));
  }
  at::Tensor whole(const std::vector<Sample>& samples) {
    std::vector<std::vector<int32_t>> prompts, responses;
    std::vector<size_t> rows;
    for (const Sample& sample : samples) {
      rows.push_back(prompts.size());
      prompts.push_back(sample.prompt), responses.push_back(sample.response);
    }
    const ResponseRows packed = pack_responses(prompts, responses, rows, at::kCPU, false);
    return infer_hidden(model_, what_, packed, model_.forward(packed.batch, nullptr), 0.7);
  }
  at::Tensor some(const std::vector<Sample>& samples, const std::vector<size_t>& which, bool rest) {
    const ResponseRows packed = pack_some(samples, which, rest);
    return infer_hidden(model_, what_, packed, model_.forward(packed.batch, &kv_), 0.7);
  }

 private:
  Model& model_;
  Inferred what_;
  std::vector<KvLayer> kv_;
};

class EveryFamilyScores : public testing::TestWithParam<const char*> {
 protected:
  void expect_equal_bits(at::ScalarType dtype, bool critic) const {
    const auto loaded =
        load_model(golden_folder(GetParam()), {.model = {.dtype = dtype}, .scalar_head = critic});
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    Model& model = **loaded;
    const at::NoGradGuard no_grad;
    if (critic) model.head_weight().normal_();
    const std::vector<Sample> samples = some_samples();
    Scorer scorer(model, critic ? Inferred::kValues : Inferred::kLogprobs);
    const at::Tensor whole = scorer.whole(samples);
    // Other samples stand beside each other in the beginnings than in the rest.
    std::vector<at::Tensor> begun(samples.size());
    for (const std::vector<size_t>& batch : {std::vector<size_t>{3, 0}, {1}, {2}}) {
      const at::Tensor values = scorer.some(samples, batch, false);
      int64_t at = 0;
      for (const size_t i : batch) {
        begun[i] = values.narrow(0, at, samples[i].produced);
        at += samples[i].produced;
      }
      ASSERT_EQ(at, values.size(0));
    }
    const at::Tensor rest = scorer.some(samples, {0, 1, 2, 3}, true);
    int64_t at = 0, of_rest = 0;
    for (size_t i = 0; i < samples.size(); ++i) {
      const int64_t response = std::ssize(samples[i].response);
      const int64_t left = response - samples[i].produced;
      const at::Tensor joined = at::cat({begun[i], rest.narrow(0, of_rest, left)});
      EXPECT_TRUE(joined.equal(whole.narrow(0, at, response)))
          << dtype << ", sample " << i << (critic ? ", values" : ", log-probs");
      at += response, of_rest += left;
    }
    EXPECT_EQ(at, whole.size(0));
    EXPECT_EQ(of_rest, rest.size(0));
  }
};

TEST_P(EveryFamilyScores, TheSameBitsInTwoPasses) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const bool critic : {false, true}) expect_equal_bits(dtype, critic);
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamilyScores,
                         testing::Values("llama", "llama3", "qwen2", "qwen3", "mistral", "gemma",
                                         "gemma2", "gemma3", "phi3", "phi3-long", "qwen2-mixed",
                                         "gpt2"));

}  // namespace
}  // namespace braid::inline passes
