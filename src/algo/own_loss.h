// What a loss or advantages of your own see and give: 'braid build-loss FILE.cc' puts this text
// beside FILE.cc as braid_loss.h, and makes FILE.so of both (docs/own_losses.md). Tensors are
// packed over the response tokens of all samples, one after another: R tokens, S samples.
#pragma once

#include <ATen/ATen.h>

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace braid::inline algo {

struct OwnLossInput {
  at::Tensor logprobs_R;      // of the policy in training, attached to autograd
  at::Tensor old_logprobs_R;  // of the policy that generated
  at::Tensor ref_logprobs_R;  // of the reference; undefined where none is loaded
  at::Tensor advantages_R;
  at::Tensor mask_R;                   // 1 for the tokens that count: all of these
  std::vector<int64_t> response_lens;  // [S]
  double clip_low = 0, clip_high = 0;  // algorithm.clip_low, clip_high
};

struct OwnLoss {
  at::Tensor losses_R;  // of each token; algorithm.loss_agg says how they become one number
  std::map<std::string, at::Tensor> metrics = {};  // of any size; their means are shown
};

struct OwnAdvantagesInput {
  at::Tensor rewards_S;
  at::Tensor old_logprobs_R;
  at::Tensor ref_logprobs_R;           // undefined where no reference is loaded
  std::vector<int64_t> response_lens;  // [S]
  std::vector<int64_t> groups;         // [S] equal for samples of one prompt
};

struct OwnAdvantages {
  at::Tensor advantages_R;
  std::map<std::string, at::Tensor> metrics = {};
};

// Another number means other structs than those above.
inline constexpr int kOwnLossVersion = 1;

// Whether a loss holds something constant that its log-probs are in (detach()): its gradient is
// then not the slope of its value, and is not compared with it.
enum class OwnGradient { kOfTheValue, kWithConstants };

struct OwnLossEntry {
  int version = kOwnLossVersion;
  const char* torch = TORCH_VERSION;
  OwnLoss (*loss)(const OwnLossInput&) = nullptr;
  OwnGradient gradient = OwnGradient::kOfTheValue;
};

struct OwnAdvantagesEntry {
  int version = kOwnLossVersion;
  const char* torch = TORCH_VERSION;
  OwnAdvantages (*advantages)(const OwnAdvantagesInput&) = nullptr;
};

}  // namespace braid::inline algo

// Once in a file: the function that algorithm.loss, and that algorithm.advantages, means by it.
#define BRAID_LOSS(function) \
  extern "C" const ::braid::OwnLossEntry braid_own_loss_entry = {.loss = (function)}
#define BRAID_LOSS_WITH_CONSTANTS(function)                       \
  extern "C" const ::braid::OwnLossEntry braid_own_loss_entry = { \
      .loss = (function), .gradient = ::braid::OwnGradient::kWithConstants}
#define BRAID_ADVANTAGES(function)                                                         \
  extern "C" const ::braid::OwnAdvantagesEntry braid_own_advantages_entry = {.advantages = \
                                                                                 (function)}
