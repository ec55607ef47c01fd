// Times the generation of few sequences beside reading the weights as often, with each matrix
// library in turn in one process. Usage: decode_bench [tiny|small] [f32|bf16] [sequences] [tokens]
// [threads] [rounds] [libraries, such as own,packed; "chosen" is the engine's choice]. Prints one
// line for each library: the median over the rounds of its seconds and of their ratio to the
// reading, which is measured in the same round (every thread adds up its part of the matrices, as
// many times as there are steps), and how far logits of a sequence are from the first library's, as
// a relative L2 distance.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "models/spec.h"
#include "nn/kernels/choice.h"
#include "nn/model.h"
#include "rollout/engine.h"

namespace braid {
namespace {

struct Options {
  std::string preset = "small", dtype = "f32";
  int64_t sequences = 8, tokens = 896, threads = 2, rounds = 3;
  std::vector<std::string> libraries = {"default", "packed", "own", "chosen"};
};

constexpr int64_t kPromptTokens = 8;

ModelSpec spec_of(const Options& options) {
  const bool tiny = options.preset == "tiny";
  return parse_model_spec(
             cat(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512,
 "hidden_size": )",
                 tiny ? 256 : 512, R"(, "intermediate_size": )", tiny ? 688 : 1376,
                 R"(, "num_hidden_layers": )", tiny ? 4 : 8,
                 R"(, "num_attention_heads": 8, "num_key_value_heads": 4,
 "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
 "tie_word_embeddings": true, "torch_dtype": "float32"})"),
             options.preset)
      .value();
}

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The matrices that every decode step multiplies by.
std::vector<at::Tensor> matrices_of(const Model& model) {
  std::vector<at::Tensor> out;
  for (const auto& [name, tensor] : model.parameters())
    if (tensor.dim() == 2) out.push_back(tensor.detach());
  return out;
}

// Sixteen sums at once, so that memory and not the addition sets the pace.
uint64_t sum_words(const uint64_t* words, int64_t count) {
  uint64_t sums[16] = {};
  for (int64_t i = 0; i + 16 <= count; i += 16)
    for (int lane = 0; lane < 16; ++lane) sums[lane] += words[i + lane];
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

double reading_s(const std::vector<at::Tensor>& matrices, int64_t times) {
  std::vector<uint64_t> sums(at::get_num_threads());
  const double seconds = seconds_of([&] {
    for (int64_t time = 0; time < times; ++time)
      for (const at::Tensor& matrix : matrices) {
        const auto words = static_cast<int64_t>(matrix.nbytes() / sizeof(uint64_t));
        const auto* data = static_cast<const uint64_t*>(matrix.const_data_ptr());
        at::parallel_for(0, words, words / at::get_num_threads() + 1,
                         [&](int64_t begin, int64_t end) {
                           sums[at::get_thread_num()] += sum_words(data + begin, end - begin);
                         });
      }
  });
  volatile uint64_t kept = 0;
  for (const uint64_t sum : sums) kept = kept + sum;
  return seconds;
}

double generation_s(Model& model, const Options& options) {
  model.weights_changed();
  const auto engine = Engine::create(model, {}).value();
  for (int64_t s = 0; s < options.sequences; ++s) {
    Request request;
    request.sample = SampleId{s};
    for (int64_t i = 0; i < kPromptTokens; ++i)
      request.prompt_ids.push_back(static_cast<int32_t>((31 * s + 7 * i) % 512));
    request.sampling.max_new_tokens = options.tokens;
    request.sampling.ignore_eos = true;
    BRAID_CHECK(engine->submit(std::move(request)).ok(), "a request of the benchmark");
  }
  return seconds_of([&] {
    while (!engine->drained()) BRAID_CHECK(engine->step().ok(), "a step of the benchmark");
  });
}

// Sets the library for all shapes of the type so far; false where this machine lacks it.
bool choose(const std::string& library, const std::string& dtype) {
  std::string chosen;
  for (const std::string& line : split(matrix_choices(), '\n')) {
    const size_t end = line.rfind(' ');
    if (line.rfind(dtype + " ", 0) == 0) chosen += line.substr(0, end + 1) + library + "\n";
  }
  return set_matrix_choices(chosen).ok();
}

// Logits of one whole sequence.
at::Tensor sequence_logits(Model& model) {
  model.weights_changed();
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 64; ++i) tokens.push_back(37 * i % 512);
  const TokenBatch batch = pack_sequences({tokens}, model.options().device);
  return logits(model, model.forward(batch, nullptr)).to(at::kDouble);
}

// Keys and values that a decode step reads, in the mean over the steps.
double mean_cache_bytes(const Model& model, const Options& options) {
  const ModelSpec& spec = model.spec();
  const int64_t of_token = 2 * spec.layers * spec.kv_heads * spec.head_dim *
                           static_cast<int64_t>(c10::elementSize(model.options().dtype));
  const double tokens = kPromptTokens + 0.5 * static_cast<double>(options.tokens + 1);
  return static_cast<double>(options.sequences * of_token) * tokens;
}

struct Measured {
  std::vector<double> seconds, readings, ratios;
  at::Tensor logits;

  void add(double generation, double reading) {
    seconds.push_back(generation);
    readings.push_back(reading);
    ratios.push_back(generation / reading);
  }
};

void print_library(const Options& options, const std::string& library, const Measured& measured,
                   const at::Tensor& reference) {
  const double off = ((measured.logits - reference).norm() / reference.norm()).item<double>();
  std::printf("| %s %s, %lld x %lld | %s | %.2f | %.2f | %.2f | %.1e |\n", options.preset.c_str(),
              options.dtype.c_str(), static_cast<long long>(options.sequences),
              static_cast<long long>(options.tokens), library.c_str(), median(measured.seconds),
              median(measured.readings), median(measured.ratios), off);
}

int run(const Options& options) {
  at::set_num_threads(static_cast<int>(options.threads));
  const at::NoGradGuard no_grad;
  ModelOptions model_options;
  model_options.dtype = options.dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  const auto model = make_model(spec_of(options), model_options).value();
  const std::vector<at::Tensor> matrices = matrices_of(*model);
  int64_t bytes = 0;
  for (const at::Tensor& matrix : matrices) bytes += static_cast<int64_t>(matrix.nbytes());
  Options warm = options;
  warm.tokens = 8;
  generation_s(*model, warm);
  const std::string chosen = matrix_choices();
  std::map<std::string, Measured> results;
  for (int64_t round = 0; round < options.rounds; ++round)
    for (const std::string& library : options.libraries) {
      const bool there =
          library == "chosen" ? set_matrix_choices(chosen).ok() : choose(library, options.dtype);
      if (!there) continue;
      Measured& measured = results[library];
      const double reading = reading_s(matrices, options.tokens);
      measured.add(generation_s(*model, options), reading);
      measured.logits = sequence_logits(*model);
    }
  std::printf(
      "%.1f MB of matrices, read at %.1f GB/s; beside them a step reads %.1f MB of keys and values "
      "on average\n",
      static_cast<double>(bytes) / 1e6,
      static_cast<double>(bytes * options.tokens) / median(results[options.libraries[0]].readings) /
          1e9,
      mean_cache_bytes(*model, options) / 1e6);
  std::printf(
      "| model, sequences x tokens | library | generation, s | reading, s | ratio | "
      "logits, from the first library's |\n|---|---|---|---|---|---|\n");
  for (const auto& [library, measured] : results)
    print_library(options, library, measured, results[options.libraries[0]].logits);
  return 0;
}

Options parse(const std::vector<std::string>& words) {
  Options options;
  if (!words.empty()) options.preset = words[0];
  if (words.size() > 1) options.dtype = words[1];
  int64_t* const numbers[] = {&options.sequences, &options.tokens, &options.threads,
                              &options.rounds};
  for (size_t i = 2; i < words.size() && i < 6; ++i) *numbers[i - 2] = std::stoll(words[i]);
  if (words.size() > 6) options.libraries = split(words[6], ',');
  return options;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) { return braid::run(braid::parse({argv + 1, argv + argc})); }
