#include "profile/self_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>

#include "base/text.h"
#include "models/spec.h"
#include "rollout/engine.h"
#include "samples/response_rows.h"

namespace braid::inline profile {
namespace {

constexpr const char* kTinyModel = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
 "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32"})";
constexpr int kSamples = 5;  // a batch of 5 is one that matrix libraries compute in another way
constexpr double kMismatchLimit = 1e-5;
constexpr double kStepSize = 0.1;

using TokenRows = std::vector<std::vector<int32_t>>;

Result<std::unique_ptr<Model>> tiny_model() {
  BRAID_ASSIGN(const ModelSpec spec, parse_model_spec(kTinyModel, "self-test model"));
  ModelOptions options;
  options.seed = 1;
  return make_model(spec, options);
}

TokenRows prompts() {
  TokenRows out;
  for (int i = 0; i < kSamples; ++i) {
    out.emplace_back();
    for (int j = 0; j < 4 + 3 * i; ++j) out.back().push_back((7 * i + 11 * j + 3) % 128);
  }
  return out;
}

// Generates for the given samples at once; results in the order of `which`.
Result<std::vector<Generated>> generate(Model& model, const std::vector<int>& which) {
  BRAID_ASSIGN(const std::unique_ptr<Engine> engine, Engine::create(model, {}));
  const TokenRows rows = prompts();
  SamplingOptions sampling;
  sampling.max_new_tokens = 12;
  sampling.seed = 5;
  for (const int sample : which)
    BRAID_TRY(engine->submit({SampleId{sample}, rows[sample], sampling, 0}));
  std::vector<Generated> out;
  while (!engine->drained()) {
    BRAID_ASSIGN(std::vector<Generated> finished, engine->step());
    for (Generated& sample : finished) out.push_back(std::move(sample));
  }
  std::sort(out.begin(), out.end(),
            [](const Generated& a, const Generated& b) { return a.sample < b.sample; });
  return out;
}

std::vector<int> all_samples() {
  std::vector<int> out;
  for (int i = 0; i < kSamples; ++i) out.push_back(i);
  return out;
}

// Log-probs [R] of responses, attached to autograd in grad mode.
at::Tensor trainer_logprobs(Model& model, const TokenRows& responses) {
  std::vector<size_t> rows;
  for (size_t i = 0; i < responses.size(); ++i) rows.push_back(i);
  const ResponseRows packed = pack_responses(prompts(), responses, rows, at::kCPU, false);
  const at::Tensor hidden = model.forward(packed.batch, nullptr);
  return head_logprobs(model, at::index_select(hidden, 0, packed.rows_R), packed.targets_R, 1)
      .logprobs_N;
}

Result<SelfTestResult> check_training() {
  BRAID_ASSIGN(const std::unique_ptr<Model> model, tiny_model());
  const TokenRows responses(kSamples, {1, 2, 3, 4});
  const at::Tensor loss = -trainer_logprobs(*model, responses).mean();
  loss.backward();
  const at::NoGradGuard no_grad;
  for (auto& [name, parameter] : model->trainable_parameters())
    if (parameter.grad().defined()) parameter.data().sub_(parameter.grad(), kStepSize);
  model->weights_changed();
  const double before = loss.item<double>();
  const double after = -trainer_logprobs(*model, responses).mean().item<double>();
  return SelfTestResult{"forward and backward", std::isfinite(after) && after < before,
                        cat("loss ", before, " before, ", after, " after a gradient step")};
}

Result<SelfTestResult> check_mismatch() {
  const at::NoGradGuard no_grad;
  BRAID_ASSIGN(const std::unique_ptr<Model> model, tiny_model());
  BRAID_ASSIGN(const std::vector<Generated> samples, generate(*model, all_samples()));
  TokenRows responses;
  std::vector<float> logprobs;
  for (const Generated& sample : samples) {
    responses.push_back(sample.response_ids);
    logprobs.insert(logprobs.end(), sample.logprobs.begin(), sample.logprobs.end());
  }
  const double gap =
      (trainer_logprobs(*model, responses) - at::tensor(logprobs)).abs().max().item<double>();
  return SelfTestResult{"sampler against trainer", gap <= kMismatchLimit,
                        cat("log-probs differ by ", gap, " at most, ", kMismatchLimit, " allowed")};
}

Result<SelfTestResult> check_batch_invariance() {
  const at::NoGradGuard no_grad;
  BRAID_ASSIGN(const std::unique_ptr<Model> model, tiny_model());
  BRAID_ASSIGN(const std::vector<Generated> together, generate(*model, all_samples()));
  int different = 0;
  for (int i = 0; i < kSamples; ++i) {
    BRAID_ASSIGN(const std::vector<Generated> alone, generate(*model, {i}));
    different += alone[0].response_ids != together[i].response_ids ||
                 alone[0].logprobs != together[i].logprobs;
  }
  return SelfTestResult{"batch invariance", different == 0,
                        cat(different, " of ", kSamples, " samples differ when generated alone")};
}

SelfTestResult checked(const char* name, const std::function<Result<SelfTestResult>()>& check) {
  try {
    auto result = check();
    return result.ok() ? *result : SelfTestResult{name, false, result.status().message()};
  } catch (const std::exception& error) {
    return {name, false, first_line(error.what())};
  }
}

}  // namespace

std::vector<SelfTestResult> run_self_test() {
  return {checked("forward and backward", check_training),
          checked("sampler against trainer", check_mismatch),
          checked("batch invariance", check_batch_invariance)};
}

}  // namespace braid::inline profile
