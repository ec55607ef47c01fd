// Times the bare list of matrix multiplications of one RLHF step, nothing else: the floor that a
// step is compared with. Usage: matmul_list grpo|ppo tiny|small [f32|bf16] [threads] [shape], where
// a shape is prompts x samples x prompt tokens x response tokens, such as 8x4x64x128. Prints one
// JSON object: seconds of generation, inference and training with the default library (at::linear,
// at::mm), with oneDNN on packed weights and with GEMMs of our own, and the sum with the fastest
// one for each part.
//
// Without a shape it is that of ../shared/peers: 32 responses of 128 tokens after prompts of 64,
// grpo's in groups of 4. Weights of different layers are different memory, taken in turn, so that
// they come from memory as in a model. Generation counts prompts once per group, inference and
// training once per sample. Training counts dx and dw of every matrix.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nn/kernels/choice.h"

namespace braid {
namespace {

struct Workload {
  int64_t hidden, layers, qkv, intermediate;
  int64_t prompts, samples;  // groups, and responses of each
  int64_t prompt_tokens, response_tokens;
  int64_t inferences;  // forwards over all tokens without gradient
  int64_t trained_models;
  int64_t responses() const { return prompts * samples; }
  int64_t all_tokens() const { return responses() * (prompt_tokens + response_tokens); }
};

Workload workload_of(const std::string& algorithm, const std::string& preset) {
  Workload work{};
  const bool tiny = preset == "tiny", ppo = algorithm == "ppo";
  work.hidden = tiny ? 256 : 512;
  work.layers = tiny ? 4 : 8;
  work.qkv = 2 * work.hidden;  // as many query heads as hidden, half as many keys and values
  work.intermediate = tiny ? 688 : 1376;
  work.prompts = ppo ? 32 : 8, work.samples = ppo ? 1 : 4;
  work.prompt_tokens = 64, work.response_tokens = 128;
  work.inferences = ppo ? 3 : 1;  // reference; value and reward
  work.trained_models = ppo ? 2 : 1;
  return work;
}

bool read_shape(const std::string& text, Workload* work) {
  long long numbers[4];
  char rest = 0;
  const int count = std::sscanf(text.c_str(), "%lldx%lldx%lldx%lld%c", &numbers[0], &numbers[1],
                                &numbers[2], &numbers[3], &rest);
  if (count != 4 || *std::min_element(numbers, numbers + 4) < 1) return false;
  work->prompts = numbers[0], work->samples = numbers[1];
  work->prompt_tokens = numbers[2], work->response_tokens = numbers[3];
  return true;
}

constexpr std::array kPackers = {MatrixLibrary::kPacked, MatrixLibrary::kOwn};

struct PackedMatrix {
  at::Tensor forward, transpose;
};

struct Matrix {
  at::Tensor weight;
  std::map<MatrixLibrary, PackedMatrix> packed;
};

std::vector<Matrix> matrices_of(const Workload& work, at::ScalarType dtype) {
  std::vector<Matrix> out;
  const auto add = [&](int64_t rows, int64_t columns) {
    const at::Tensor weight = (at::randn({rows, columns}) * 0.02).to(dtype);
    Matrix matrix{weight, {}};
    for (const MatrixLibrary library : kPackers)
      if (has_library(library, dtype))
        matrix.packed[library] = {pack_weight(weight, library), pack_weight(weight.t(), library)};
    out.push_back(std::move(matrix));
  };
  for (int64_t layer = 0; layer < work.layers; ++layer) {
    add(work.qkv, work.hidden);
    add(work.hidden, work.hidden);
    add(2 * work.intermediate, work.hidden);
    add(work.hidden, work.intermediate);
  }
  return out;
}

// The median of seven runs, as of the engine's steps: both see the machine's slow moments.
double seconds_of(int64_t repeats, const std::function<void()>& run) {
  run();
  std::array<double, 7> seconds{};
  for (double& entry : seconds) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t r = 0; r < repeats; ++r) run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    entry = took.count() / static_cast<double>(repeats);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// One pass over all matrices with `rows` rows: forward, input gradients or weight gradients.
class Passes {
 public:
  Passes(const std::vector<Matrix>& matrices, at::ScalarType dtype)
      : matrices_(matrices), dtype_(dtype) {}

  double forward(int64_t rows, MatrixLibrary library) const {
    return time(rows, [&](const Matrix& m) {
      const at::Tensor x = input(rows, m.weight.size(1));
      return library == MatrixLibrary::kDefault ? at::linear(x, m.weight)
                                                : packed_gemm(x, m.packed.at(library).forward, {});
    });
  }
  double input_gradient(int64_t rows, MatrixLibrary library) const {
    return time(rows, [&](const Matrix& m) {
      const at::Tensor grad = input(rows, m.weight.size(0));
      return library == MatrixLibrary::kDefault
                 ? at::mm(grad, m.weight)
                 : packed_gemm(grad, m.packed.at(library).transpose, {});
    });
  }
  double weight_gradient(int64_t rows) const {
    return time(rows, [&](const Matrix& m) {
      return at::mm(input(rows, m.weight.size(0)).t(), input(rows, m.weight.size(1)));
    });
  }

 private:
  template <typename Gemm>
  double time(int64_t rows, const Gemm& gemm) const {
    return seconds_of(rows < 256 ? 8 : 1, [&] {
      for (const Matrix& matrix : matrices_) gemm(matrix);
    });
  }
  at::Tensor input(int64_t rows, int64_t width) const {
    at::Tensor& x = inputs_[{rows, width}];
    if (!x.defined()) x = at::randn({rows, width}).to(dtype_);
    return x;
  }

  const std::vector<Matrix>& matrices_;
  at::ScalarType dtype_;
  mutable std::map<std::pair<int64_t, int64_t>, at::Tensor> inputs_;
};

struct Parts {
  double generation = 0, inference = 0, training = 0;
  double sum() const { return generation + inference + training; }
};

// Rows of one GEMM in passes over all tokens: large enough that only the rate matters.
constexpr int64_t kRows = 1536;

Parts parts_of(const Workload& work, const Passes& passes, MatrixLibrary library) {
  const double blocks = static_cast<double>(work.all_tokens()) / kRows;
  const auto prompt_tokens = static_cast<double>(work.prompts * work.prompt_tokens);
  const double forward = passes.forward(kRows, library);
  Parts parts;
  parts.generation =
      passes.forward(work.responses(), library) * static_cast<double>(work.response_tokens) +
      forward * prompt_tokens / kRows;
  parts.inference = forward * blocks * static_cast<double>(work.inferences);
  parts.training =
      (forward + passes.input_gradient(kRows, library) + passes.weight_gradient(kRows)) * blocks *
      static_cast<double>(work.trained_models);
  return parts;
}

void print_parts(const char* name, const Parts& parts) {
  std::printf(
      "\"%s\": {\"generation_s\": %.4f, \"inference_s\": %.4f, \"training_s\": %.4f, "
      "\"step_s\": %.4f}, ",
      name, parts.generation, parts.inference, parts.training, parts.sum());
}

int usage() {
  std::fprintf(stderr,
               "usage: matmul_list grpo|ppo tiny|small [f32|bf16] [threads] [8x4x64x128]\n");
  return 2;
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 2) return usage();
  const at::NoGradGuard no_grad;
  at::set_num_threads(words.size() > 3 ? std::stoi(words[3]) : 2);
  const at::ScalarType dtype = words.size() > 2 && words[2] == "bf16" ? at::kBFloat16 : at::kFloat;
  Workload work = workload_of(words[0], words[1]);
  if (words.size() > 4 && !read_shape(words[4], &work)) return usage();
  const std::vector<Matrix> matrices = matrices_of(work, dtype);
  const Passes passes(matrices, dtype);
  std::printf("{\"workload\": \"%s %s\", ", words[0].c_str(), words[1].c_str());
  Parts best = parts_of(work, passes, MatrixLibrary::kDefault);
  print_parts("default", best);
  for (const MatrixLibrary library : kPackers) {
    if (!has_library(library, dtype)) continue;
    const Parts parts = parts_of(work, passes, library);
    print_parts(library == MatrixLibrary::kOwn ? "own" : "packed", parts);
    best = {std::min(best.generation, parts.generation), std::min(best.inference, parts.inference),
            std::min(best.training, parts.training)};
  }
  print_parts("fastest", best);
  std::printf("\"threads\": %d}\n", at::get_num_threads());
  return 0;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) { return braid::run({argv + 1, argv + argc}); }
