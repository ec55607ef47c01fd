// braid profile: measures layers, heads, optimizer, memory and communication of a device with
// the code that trains and samples, and writes a profile for the planner.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <thread>

#include "base/text.h"
#include "braid/engine_options.h"
#include "braid/outputs.h"
#include "comm/world.h"
#include "device/device.h"
#include "device/tensor_memory.h"
#include "host/file.h"
#include "host/hub_cache.h"
#include "launch/own_command.h"
#include "models/size.h"
#include "nn/model.h"
#include "pricing/profile.h"
#include "profile/bench.h"
#include "profile/machine.h"
#include "profile/ranks.h"
#include "rollout/device_draw.h"
#include "rollout/sampler.h"
#include "train/optimizer.h"

namespace braid {
namespace {

using Times = std::vector<LayerTime>;

// Of what times are: layers of this shape, and the share of one of so many tensor-parallel ranks.
struct Shape {
  std::string name;
  int tp = 1;
};

void measure_passes(LayerBench& layers, const ProfileOptions& options, const Shape& shape,
                    Times* times) {
  for (const int64_t tokens : options.tokens)
    for (const int64_t length : options.lengths) {
      if (length > tokens) continue;
      const double context = static_cast<double>(length) / 2, count = static_cast<double>(tokens);
      const double forward = layers.forward_s(tokens, length);
      const double both = layers.train_s(tokens, length);
      times->push_back({ProfileOp::kLayerForward, shape.name, shape.tp, count, context, forward});
      times->push_back({ProfileOp::kLayerBackward, shape.name, shape.tp, count, context,
                        std::max(both - forward, 0.5 * forward)});
    }
}

// The matrix of the head, packed as generation keeps it.
struct Head {
  Head(const ModelSize& size, const ProfileBench& bench)
      : weight_VH(at::rand({size.vocab, size.hidden},
                           at::TensorOptions(bench.dtype).device(bench.device))),
        packed(pack_linear(weight_VH, false)) {}
  at::Tensor logits(const at::Tensor& hidden_NH) const {
    return linear(hidden_NH, weight_VH, {}, &packed).to(at::kFloat);
  }
  at::Tensor hidden(int64_t rows) const {
    return at::rand({rows, weight_VH.size(1)}, weight_VH.options());
  }
  at::Tensor weight_VH;
  PackedLinear packed;
};

// Whether the caches of a decode step fit well; says what is left out.
bool has_room(const LayerBench& layers, int64_t sequences, int64_t context, at::Device device) {
  constexpr double kShare = 0.5;
  const std::optional<int64_t> free = free_tensor_bytes(device);
  const double wanted = layers.cache_bytes(sequences, context);
  if (!free || wanted <= kShare * static_cast<double>(*free)) return true;
  std::fprintf(stderr, "note: %ld sequences of %ld cached tokens are left out: %s of caches\n",
               static_cast<long>(sequences), static_cast<long>(context),
               format_bytes(wanted).c_str());
  return false;
}

void measure_decoding(LayerBench& layers, const Head& head, const ProfileOptions& options,
                      const Shape& shape, Times* times) {
  const at::NoGradGuard no_grad;
  for (const int64_t sequences : options.batches) {
    const at::Tensor hidden_NH = head.hidden(sequences);
    for (const int64_t context : options.contexts) {
      if (!has_room(layers, sequences, context, hidden_NH.device())) continue;
      times->push_back({ProfileOp::kLayerDecode, shape.name, shape.tp,
                        static_cast<double>(sequences), static_cast<double>(context),
                        layers.decode_s(sequences, context, [&] { head.logits(hidden_NH); })});
    }
  }
}

// A token of each row of logits, as generation draws it: on an accelerator there.
void draw_tokens(const at::Tensor& logits_NV) {
  const std::vector<int32_t> nothing;
  const SamplingOptions sampling;
  std::vector<DrawRow> rows;
  for (int64_t i = 0; i < logits_NV.size(0); ++i)
    rows.push_back({&sampling, {&nothing, &nothing, static_cast<uint64_t>(i)}});
  if (!logits_NV.is_cpu()) {
    for (const auto& token : draw_on_device(rows, logits_NV))
      BRAID_CHECK(token.ok(), "logits of a product of finite numbers");
    return;
  }
  const at::Tensor scores = logits_NV.contiguous();
  float* const data = scores.mutable_data_ptr<float>();
  const int64_t vocab = scores.size(1);
  at::parallel_for(0, scores.size(0), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto token = sample_token(data + i * vocab, vocab, sampling, rows[i].context);
      BRAID_CHECK(token.ok(), "logits of a product of finite numbers");
    }
  });
}

// Rows of a decode step take their logits and draw from them, after all layers.
void measure_drawing(LayerBench& layers, const Head& head, const ProfileOptions& options,
                     const Shape& shape, const ProfileBench& bench, Times* times) {
  const at::NoGradGuard no_grad;
  for (const int64_t rows : options.batches) {
    const at::Tensor hidden_NH = head.hidden(rows);
    times->push_back(
        {ProfileOp::kHeadForward, shape.name, shape.tp, static_cast<double>(rows), 0,
         mean_s(
             bench, [&] { draw_tokens(head.logits(hidden_NH)); }, [&] { layers.pass(rows); })});
  }
}

// Passes of training take log-probabilities and entropy.
void measure_head(const Head& head, const ProfileOptions& options, const Shape& shape,
                  const ProfileBench& bench, Times* times) {
  const at::Tensor weight_VH = head.weight_VH.detach().requires_grad_(true);
  const HeadOptions chunks{.chunk_rows = head_chunk_rows(bench.device)};
  for (const int64_t rows : options.tokens) {
    const at::Tensor targets_N = at::zeros({rows}, weight_VH.options().dtype(at::kLong));
    const at::Tensor hidden_NH = head.hidden(rows).requires_grad_(true);
    const auto forward = [&] { return head_logprobs(hidden_NH, weight_VH, targets_N, chunks); };
    const double both = mean_s(bench, [&] { forward().logprobs_N.sum().backward(); });
    const double alone = mean_s(bench, [&] {
      const at::NoGradGuard no_grad;
      forward();
    });
    const double count = static_cast<double>(rows);
    if (std::count(options.batches.begin(), options.batches.end(), rows) == 0)
      times->push_back({ProfileOp::kHeadForward, shape.name, shape.tp, count, 0, alone});
    times->push_back({ProfileOp::kHeadBackward, shape.name, shape.tp, count, 0,
                      std::max(both - alone, 0.5 * alone)});
  }
}

// What a chunk of logits and the gradient of the matrix take, by entry of the vocabulary.
double head_bytes(const ModelSize& size, const ProfileBench& bench) {
  const at::TensorOptions options = at::TensorOptions(bench.dtype).device(bench.device);
  const HeadOptions chunks{.chunk_rows = head_chunk_rows(bench.device)};
  const int64_t rows = 4 * chunks.chunk_rows;  // several chunks
  const at::Tensor weight_VH = at::rand({size.vocab, size.hidden}, options).requires_grad_(true);
  const at::Tensor hidden_NH = at::rand({rows, size.hidden}, options).requires_grad_(true);
  const at::Tensor targets_N = at::zeros({rows}, options.dtype(at::kLong));
  const auto pass = [&] {
    head_logprobs(hidden_NH, weight_VH, targets_N, chunks).logprobs_N.sum().backward();
  };
  pass();  // the matrix's gradient stays
  const PeakMeter meter(bench.device);
  pass();
  return static_cast<double>(meter.most_bytes()) / static_cast<double>(size.vocab);
}

// Only where tensors of the device are counted.
void measure_memory(LayerBench& layers, const ProfileOptions& options, const ModelSize& size,
                    const ProfileBench& bench, Profile* profile) {
  if (held_tensor_bytes(bench.device) == 0 || size.experts > 0) return;
  const int64_t tokens = *std::max_element(options.tokens.begin(), options.tokens.end());
  const int64_t length = *std::min_element(options.lengths.begin(), options.lengths.end());
  profile->efficiencies = layers.memory(tokens, std::min(tokens, length));
  profile->efficiencies["mem_logit_bytes"] = 0;
  profile->efficiencies["mem_head_bytes"] = head_bytes(size, bench);
}

void measure_optimizer(LayerBench& layers, const ProfileBench& bench, const Shape& shape,
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
  times->push_back({ProfileOp::kOptimizer, shape.name, shape.tp, count, 0,
                    std::max(both - filling, 0.1 * both)});
}

// Each number once; where none is said, those that suit the device. A GPU takes passes in which it
// has work for all its units, and more sequences at once.
void choose_sizes(bool processor, ProfileOptions* options) {
  const auto choose = [&](std::vector<int64_t>* sizes, std::vector<int64_t> here,
                          std::vector<int64_t> on_gpu) {
    if (sizes->empty()) *sizes = processor ? std::move(here) : std::move(on_gpu);
    const std::set<int64_t> once(sizes->begin(), sizes->end());
    sizes->assign(once.begin(), once.end());
  };
  choose(&options->tokens, {64, 256, 1024}, {256, 2048, 8192, 16384});
  choose(&options->lengths, {64, 256, 1024}, {64, 512, 4096});
  choose(&options->batches, {1, 4, 16, 64}, {1, 16, 64, 256, 1024});
  choose(&options->contexts, {128, 512, 2048}, {128, 1024, 4096});
  choose(&options->tp, {}, {});
}

bool divides(const ModelSize& size, int64_t tp) {
  return size.experts == 0 && size.heads % tp == 0 && size.intermediate % tp == 0 &&
         (size.kv_heads % tp == 0 || tp % size.kv_heads == 0);
}

Status check_shares(const ProfileOptions& options, const ModelSize& size) {
  for (const int64_t tp : options.tp) {
    if (tp > 1 && divides(size, tp)) continue;
    std::vector<std::string> possible;
    for (int64_t other = 2; other <= size.heads; ++other)
      if (divides(size, other)) possible.push_back(cat(other));
    return invalid_input(cat(
        "--tp: ", tp,
        possible.empty() ? " cannot be measured: this model is measured whole"
                         : cat(" is not a number of ranks that share the ", size.heads, " heads, ",
                               size.kv_heads, " key-value heads and ", size.intermediate,
                               " columns of the MLP evenly; such are ", join(possible, ", "))));
  }
  return ok_status();
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

Result<ModelSpec> read_model(const std::string& folder) {
  const std::string file = join_path(folder, "config.json");
  BRAID_ASSIGN(const std::string text, read_file(file));
  return parse_model_spec(text, file);
}

// What one of `tp` tensor-parallel ranks computes of a model: its heads, columns and entries of the
// vocabulary. REQUIRES: divides().
ModelSpec share_of(ModelSpec model, int64_t tp) {
  model.heads /= tp;
  model.kv_heads = std::max<int64_t>(1, model.kv_heads / tp);
  model.intermediate /= tp;
  model.vocab = (model.vocab + tp - 1) / tp;  // the largest share
  return model;
}

// Layers and head of a model, or of the share of one of several ranks. What these send each other
// is not in it.
void measure_layers(LayerBench& layers, const ModelSize& size, const ProfileOptions& options,
                    const Shape& shape, const ProfileBench& bench, Times* times) {
  measure_passes(layers, options, shape, times);
  const Head head(size, bench);
  measure_decoding(layers, head, options, shape, times);
  measure_drawing(layers, head, options, shape, bench, times);
  measure_head(head, options, shape, bench, times);
}

Status measure_whole(const ProfileOptions& options, const ModelSpec& model,
                     const ProfileBench& bench, Profile* profile) {
  const Shape shape{layer_shape(model)};
  BRAID_ASSIGN(LayerBench layers, LayerBench::make(model, bench));
  measure_layers(layers, model, options, shape, bench, &profile->layers);
  measure_optimizer(layers, bench, shape, &profile->layers);
  measure_memory(layers, options, model, bench, profile);
  return ok_status();
}

Status measure_share(const ProfileOptions& options, const ModelSpec& model, int64_t tp,
                     const ProfileBench& bench, Times* times) {
  const ModelSpec share = share_of(model, tp);
  BRAID_ASSIGN(LayerBench layers, LayerBench::make(share, bench));
  measure_layers(layers, share, options, {layer_shape(model), static_cast<int>(tp)}, bench, times);
  return ok_status();
}

Result<Profile> measure(const ProfileOptions& options, const ModelSpec& model,
                        const ProfileBench& bench) {
  Profile profile;
  profile.engine = "braid";
  profile.precision = bench.dtype == at::kBFloat16 ? Precision::kBf16 : Precision::kF32;
  const MachineRates rates = measure_rates(bench);
  profile.gpu = measured_device(bench, rates);
  if (bench.everyone == nullptr || bench.everyone->index() == 0)
    std::printf("%s (%s): GEMMs %.4g TFLOP/s, memory %.4g GB/s, host copies %.4g GB/s\n",
                profile.gpu.key.c_str(), profile.gpu.name.c_str(), rates.matmul_tflops,
                rates.memory_gbytes_per_s, rates.host_copy_gbytes_per_s);
  BRAID_TRY(measure_whole(options, model, bench, &profile));
  for (const int64_t tp : options.tp)
    BRAID_TRY(measure_share(options, model, tp, bench, &profile.layers));
  return profile;
}

Status keep_profile(const Profile& profile, const std::string& path) {
  BRAID_TRY(write_file_atomic(path, profile_json(profile).dump(1) + "\n"));
  std::printf("%-16s%6s%10s%10s%14s\n", "operation", "tp", "tokens", "context", "us");
  for (const LayerTime& time : profile.layers)
    std::printf("%-16s%6d%10.0f%10.0f%14.1f\n", profile_op_name(time.op), time.tp, time.tokens,
                time.context, time.seconds * 1e6);
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
Status profile_as_rank(const ProfileOptions& options, const ModelSpec& model, ProfileBench bench,
                       World& world) {
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

Status run_profile(ProfileOptions options) {
  BRAID_ASSIGN(const ProfileBench bench, make_bench(options));
  choose_sizes(bench.device.is_cpu(), &options);
  BRAID_TRY(check_counts(options));
  BRAID_TRY(check_outputs({{"--out", options.out}}));
  BRAID_ASSIGN(const ModelSpec model, read_model(options.model));
  BRAID_TRY(check_shares(options, model));
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
