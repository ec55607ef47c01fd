// braid profile: measures layers, heads, optimizer, memory and communication of this machine with
// the code that trains and samples, and writes a profile for the planner.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/text.h"
#include "braid/engine_options.h"
#include "braid/outputs.h"
#include "comm/world.h"
#include "device/device.h"
#include "device/tensor_memory.h"
#include "host/file.h"
#include "host/hub_cache.h"
#include "host/machine.h"
#include "launch/own_command.h"
#include "models/size.h"
#include "nn/model.h"
#include "pricing/profile.h"
#include "profile/bench.h"
#include "profile/ranks.h"
#include "rollout/sampler.h"
#include "train/optimizer.h"

namespace braid {
namespace {

// Rates of the machine that the roofline of other models starts from.
GpuSpec measure_machine(const ProfileBench& bench) {
  GpuSpec gpu = find_gpu("this-machine").value();
  const Processor cpu = processor();
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(bench.device);
  gpu.name = cpu.model.empty() ? gpu.name : cpu.model;
  gpu.source = cat("measured by braid profile with ", at::get_num_threads(), " threads");
  gpu.unsure = false;
  const int64_t sharing = bench.everyone == nullptr ? 1 : bench.everyone->size();
  gpu.hbm_bytes = static_cast<double>(machine_memory().total_bytes / sharing);
  constexpr int64_t kSide = 1536, kCopied = int64_t{1} << 25;
  const at::Tensor a = at::rand({kSide, kSide}, options), b = at::rand({kSide, kSide}, options);
  gpu.bf16_tflops = 2.0 * kSide * kSide * kSide / mean_s(bench, [&] { at::mm(a, b); }) / 1e12;
  const at::Tensor from = at::ones({kCopied}, options);
  at::Tensor to = at::empty({kCopied}, options);
  gpu.hbm_gbytes_per_s = 2.0 * 4 * kCopied / mean_s(bench, [&] { to.copy_(from); }) / 1e9;
  const at::Tensor host = at::ones({kCopied}, at::kFloat);
  gpu.pcie_gbytes_per_s = 4.0 * kCopied / mean_s(bench, [&] { to.copy_(host); }) / 1e9;
  return gpu;
}

using Times = std::vector<LayerTime>;

void measure_passes(LayerBench& layers, const ProfileOptions& options, const std::string& shape,
                    Times* times) {
  for (const int64_t tokens : options.tokens)
    for (const int64_t length : options.lengths) {
      if (length > tokens) continue;
      const double context = static_cast<double>(length) / 2, count = static_cast<double>(tokens);
      const double forward = layers.forward_s(tokens, length);
      const double both = layers.train_s(tokens, length);
      times->push_back({ProfileOp::kLayerForward, shape, 1, count, context, forward});
      times->push_back({ProfileOp::kLayerBackward, shape, 1, count, context,
                        std::max(both - forward, 0.5 * forward)});
    }
}

// The matrix of the head, packed as generation keeps it.
struct Head {
  Head(const ModelSize& size, const ProfileBench& bench)
      : weight_VH(at::rand({size.vocab, size.hidden},
                           at::TensorOptions(at::kFloat).device(bench.device))),
        packed(pack_linear(weight_VH, false)) {}
  at::Tensor logits(const at::Tensor& hidden_NH) const {
    return linear(hidden_NH, weight_VH, {}, &packed);
  }
  at::Tensor hidden(int64_t rows) const {
    return at::rand({rows, weight_VH.size(1)}, weight_VH.options());
  }
  at::Tensor weight_VH;
  PackedLinear packed;
};

void measure_decoding(LayerBench& layers, const Head& head, const ProfileOptions& options,
                      const std::string& shape, Times* times) {
  const at::NoGradGuard no_grad;
  for (const int64_t sequences : options.batches) {
    const at::Tensor hidden_NH = head.hidden(sequences);
    for (const int64_t context : options.contexts)
      times->push_back({ProfileOp::kLayerDecode, shape, 1, static_cast<double>(sequences),
                        static_cast<double>(context),
                        layers.decode_s(sequences, context, [&] { head.logits(hidden_NH); })});
  }
}

// A token of each row of logits, as generation draws it.
void draw_tokens(const at::Tensor& logits_NV) {
  const at::Tensor scores = logits_NV.to(at::kCPU, at::kFloat).contiguous();
  float* const data = scores.mutable_data_ptr<float>();
  const int64_t vocab = scores.size(1);
  const std::vector<int32_t> nothing;
  at::parallel_for(0, scores.size(0), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const SamplingContext context{&nothing, &nothing, static_cast<uint64_t>(i)};
      const auto token = sample_token(data + i * vocab, vocab, SamplingOptions(), context);
      BRAID_CHECK(token.ok(), "logits of a product of finite numbers");
    }
  });
}

// Rows of a decode step take their logits and draw from them, after all layers.
void measure_drawing(LayerBench& layers, const Head& head, const ProfileOptions& options,
                     const std::string& shape, const ProfileBench& bench, Times* times) {
  const at::NoGradGuard no_grad;
  for (const int64_t rows : options.batches) {
    const at::Tensor hidden_NH = head.hidden(rows);
    times->push_back(
        {ProfileOp::kHeadForward, shape, 1, static_cast<double>(rows), 0,
         mean_s(
             bench, [&] { draw_tokens(head.logits(hidden_NH)); }, [&] { layers.pass(rows); })});
  }
}

// Passes of training take log-probabilities and entropy.
void measure_head(const Head& head, const ProfileOptions& options, const std::string& shape,
                  const ProfileBench& bench, Times* times) {
  const at::Tensor weight_VH = head.weight_VH.detach().requires_grad_(true);
  for (const int64_t rows : options.tokens) {
    const at::Tensor targets_N = at::zeros({rows}, weight_VH.options().dtype(at::kLong));
    const at::Tensor hidden_NH = head.hidden(rows).requires_grad_(true);
    const auto forward = [&] { return head_logprobs(hidden_NH, weight_VH, targets_N, {}); };
    const double both = mean_s(bench, [&] { forward().logprobs_N.sum().backward(); });
    const double alone = mean_s(bench, [&] {
      const at::NoGradGuard no_grad;
      forward();
    });
    const double count = static_cast<double>(rows);
    if (std::count(options.batches.begin(), options.batches.end(), rows) == 0)
      times->push_back({ProfileOp::kHeadForward, shape, 1, count, 0, alone});
    times->push_back(
        {ProfileOp::kHeadBackward, shape, 1, count, 0, std::max(both - alone, 0.5 * alone)});
  }
}

// What a chunk of logits and the gradient of the matrix take, by entry of the vocabulary.
double head_bytes(const ModelSize& size, const ProfileBench& bench) {
  const at::TensorOptions options = at::TensorOptions(bench.dtype).device(bench.device);
  constexpr int64_t kRows = 1024;  // several chunks
  const at::Tensor weight_VH = at::rand({size.vocab, size.hidden}, options).requires_grad_(true);
  const at::Tensor hidden_NH = at::rand({kRows, size.hidden}, options).requires_grad_(true);
  const at::Tensor targets_N = at::zeros({kRows}, options.dtype(at::kLong));
  head_logprobs(hidden_NH, weight_VH, targets_N, {}).logprobs_N.sum().backward();
  const int64_t before = tensor_bytes();  // with the matrix's gradient
  reset_peak_tensor_bytes();
  head_logprobs(hidden_NH, weight_VH, targets_N, {}).logprobs_N.sum().backward();
  return static_cast<double>(peak_tensor_bytes() - before) / static_cast<double>(size.vocab);
}

// Of host memory alone: only there tensors are counted.
void measure_memory(LayerBench& layers, const ProfileOptions& options, const ModelSize& size,
                    const ProfileBench& bench, Profile* profile) {
  if (!bench.device.is_cpu() || size.experts > 0) return;
  const int64_t tokens = *std::max_element(options.tokens.begin(), options.tokens.end());
  const int64_t length = *std::min_element(options.lengths.begin(), options.lengths.end());
  profile->efficiencies = layers.memory(tokens, std::min(tokens, length));
  profile->efficiencies["mem_logit_bytes"] = 0;
  profile->efficiencies["mem_head_bytes"] = head_bytes(size, bench);
}

void measure_optimizer(LayerBench& layers, const ProfileBench& bench, const std::string& shape,
                       Times* times) {
  const auto parameters = layers.model().trainable_parameters();
  double count = 0;
  for (const auto& [name, parameter] : parameters) count += static_cast<double>(parameter.numel());
  AdamW optimizer(parameters, OptimizerConfig{});
  const auto fill = [&] {
    for (const auto& [name, parameter] : parameters)
      parameter.mutable_grad() = at::zeros_like(parameter);
  };
  const double filling = mean_s(bench, fill);
  const double both = mean_s(bench, [&] {
    fill();
    optimizer.step(1);
  });
  times->push_back(
      {ProfileOp::kOptimizer, shape, 1, count, 0, std::max(both - filling, 0.1 * both)});
}

Status check_counts(const ProfileOptions& options) {
  const std::pair<const char*, const std::vector<int64_t>*> lists[] = {
      {"--tokens", &options.tokens},
      {"--lengths", &options.lengths},
      {"--batches", &options.batches},
      {"--contexts", &options.contexts}};
  for (const auto& [name, values] : lists)
    for (const int64_t value : *values)
      if (value < 1 || value > (int64_t{1} << 20))
        return invalid_input(cat(name, ": ", value, " is not in 1..1048576"));
  if (*std::min_element(options.lengths.begin(), options.lengths.end()) >
      *std::max_element(options.tokens.begin(), options.tokens.end()))
    return invalid_input("--lengths: every sequence is longer than the largest of --tokens");
  return ok_status();
}

struct ProfiledModel {
  ModelSpec spec;
  ModelSize size;
};
Result<ProfiledModel> read_model(const std::string& folder) {
  const std::string file = join_path(folder, "config.json");
  BRAID_ASSIGN(const std::string text, read_file(file));
  ProfiledModel out;
  BRAID_ASSIGN(out.spec, parse_model_spec(text, file));
  BRAID_ASSIGN(out.size, parse_hf_config(text, file));
  return out;
}

Result<Profile> measure(const ProfileOptions& options, const ProfiledModel& model,
                        const ProfileBench& bench) {
  const std::string shape = layer_shape(model.size);
  Profile profile;
  profile.engine = "braid";
  profile.precision = bench.dtype == at::kBFloat16 ? Precision::kBf16 : Precision::kF32;
  profile.gpu = measure_machine(bench);
  BRAID_ASSIGN(LayerBench layers, LayerBench::make(model.spec, model.size, bench));
  measure_passes(layers, options, shape, &profile.layers);
  const Head head(model.size, bench);
  if (bench.device.is_cpu()) measure_decoding(layers, head, options, shape, &profile.layers);
  measure_drawing(layers, head, options, shape, bench, &profile.layers);
  measure_head(head, options, shape, bench, &profile.layers);
  measure_optimizer(layers, bench, shape, &profile.layers);
  measure_memory(layers, options, model.size, bench, &profile);
  return profile;
}

Status keep_profile(const Profile& profile, const std::string& path) {
  BRAID_TRY(write_file_atomic(path, profile_json(profile).dump(1) + "\n"));
  std::printf("matrix products %.4g TFLOP/s, memory %.4g GB/s, host copies %.4g GB/s\n",
              profile.gpu.bf16_tflops, profile.gpu.hbm_gbytes_per_s, profile.gpu.pcie_gbytes_per_s);
  std::printf("%-16s%10s%10s%14s\n", "operation", "tokens", "context", "us");
  for (const LayerTime& time : profile.layers)
    std::printf("%-16s%10.0f%10.0f%14.1f\n", profile_op_name(time.op), time.tokens, time.context,
                time.seconds * 1e6);
  if (!profile.collectives.empty())
    std::printf("%-16s%10s%10s%14s\n", "collective", "ranks", "KiB", "us");
  for (const CollectiveTime& time : profile.collectives)
    std::printf("%-16s%10d%10.0f%14.1f\n", time.op.c_str(), time.members, time.bytes / 1024,
                time.seconds * 1e6);
  for (const auto& [name, value] : profile.efficiencies)
    std::printf("%-24s%12.4g\n", name.c_str(), value);
  std::printf("%zu times written to %s\n", profile.layers.size() + profile.collectives.size(),
              path.c_str());
  return ok_status();
}

// One of the ranks that measure side by side; the first writes what they found.
Status profile_as_rank(const ProfileOptions& options, const ProfiledModel& model,
                       ProfileBench bench, World& world) {
  BRAID_ASSIGN(bench.everyone, world.everyone());
  BRAID_ASSIGN(Profile profile, measure(options, model, bench));
  BRAID_TRY(measure_communication(world, &profile));
  BRAID_TRY(average_over_ranks(world, &profile));
  return world.global_rank() == 0 ? keep_profile(profile, options.out) : ok_status();
}

Result<ProfileBench> make_bench(const ProfileOptions& options) {
  ProfileBench bench{at::Device(at::kCPU), at::kFloat, options.seconds};
  BRAID_ASSIGN(bench.device, parse_device(options.device, "--device"));
  if (options.dtype != "f32" && options.dtype != "bf16")
    return invalid_input(cat("--dtype: '", options.dtype, "' is not f32 or bf16"));
  if (options.dtype == "bf16") bench.dtype = at::kBFloat16;
  if (options.ranks > 1 && !bench.device.is_cpu())
    return invalid_input("--ranks: several ranks communicate over Gloo, between CPUs only");
  return bench;
}

Status run_profile(const ProfileOptions& options) {
  BRAID_TRY(check_counts(options));
  BRAID_TRY(check_outputs({{"--out", options.out}}));
  BRAID_ASSIGN(const ProfileBench bench, make_bench(options));
  BRAID_ASSIGN(const ProfiledModel model, read_model(options.model));
  BRAID_ASSIGN(const auto membership, read_membership(process_environment()));
  if (options.ranks > 1 && !membership) return run_as_ranks(options.ranks);
  const bool alone = !membership || membership->world_size == 1;
  const int64_t threads =
      options.threads > 0 || alone
          ? options.threads
          : threads_per_rank(std::thread::hardware_concurrency(), membership->local_size);
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
  if (alone) {
    BRAID_ASSIGN(const Profile profile, measure(options, model, bench));
    return keep_profile(profile, options.out);
  }
  BRAID_ASSIGN(const std::unique_ptr<World> world, World::join(*membership, {}));
  const Status ended = profile_as_rank(options, model, bench, *world);
  if (!ended.ok()) return world->fail(ended);
  return world->leave();
}

}  // namespace

extern const Command kProfileCommand =
    kProfile.with([](ProfileOptions options, const std::vector<std::string>&) -> Status {
      BRAID_ASSIGN(options.model, locate_model(options.model));
      return run_profile(options);
    });

}  // namespace braid
