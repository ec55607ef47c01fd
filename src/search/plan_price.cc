#include "search/plan_price.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "cost/memory.h"
#include "cost/predict_generate.h"
#include "cost/predict_train.h"

namespace braid::planner {
namespace {

constexpr double kGib = 1073741824.0;
constexpr double kMasterAndMoments = 12;    // bytes per parameter of Adam in 32 bit
constexpr double kLogitChunkTokens = 1024;  // heads run in chunks of so many tokens

StatedRecompute stated(Recompute recompute) {
  if (recompute == Recompute::kFull) return StatedRecompute::kFull;
  return recompute == Recompute::kSelective ? StatedRecompute::kSelective : StatedRecompute::kNone;
}

TrainLayout train_layout(const MeshShape& shape, const Strategy& s) {
  TrainLayout layout;
  layout.dp = s.dp;
  layout.tp = s.tp;
  layout.pp = s.pp;
  layout.vpp = s.interleave;
  layout.zero_stage = s.zero_stage;
  layout.gpus_per_node = shape.per_node;
  layout.nic_gbps_per_gpu = shape.nic_gbps_per_gpu;
  layout.sequence_parallel = s.sequence_parallel;
  return layout;
}

double sequence_tokens(const Workload& work) {
  return mean_tokens(work.prompt) + mean_tokens(work.response);
}

// Standard deviation of the length of one sequence, prompts taken as equal.
double length_deviation(const LengthDistribution& lengths) {
  if (lengths.kind == LengthDistribution::Kind::kFixed) return 0;
  const double mean = mean_tokens(lengths);
  if (lengths.samples.empty()) return mean * std::sqrt(std::exp(lengths.sigma * lengths.sigma) - 1);
  double sum = 0;
  for (const int64_t sample : lengths.samples)
    sum += (static_cast<double>(sample) - mean) * (static_cast<double>(sample) - mean);
  return std::sqrt(sum / static_cast<double>(lengths.samples.size()));
}

// Mean length in the fullest of `groups` groups of `each` sequences: the expected largest of normal
// variables is below sqrt(2 ln n) deviations, and no sequence is longer than the longest.
double fullest_mean_tokens(const Workload& work, double each, double groups) {
  const double deviation = length_deviation(work.response);
  const double spread = deviation * std::sqrt(2 * std::log(std::max(1.0, groups)) / each);
  const double longest =
      static_cast<double>(longest_tokens(work.prompt) + longest_tokens(work.response));
  return std::min(std::max(longest, sequence_tokens(work)), sequence_tokens(work) + spread);
}

// Sequences of one micro-batch; `samples` are those of the whole call or mini-batch.
double micro_batch(const Strategy& s, double samples, double tokens) {
  if (s.micro_tokens > 0) return std::max(1.0, static_cast<double>(s.micro_tokens) / tokens);
  return samples / (s.dp * static_cast<double>(s.micro_batches));
}

double speed(const GpuSpec& gpu) { return gpu.bf16_tflops * gpu.sustained_share; }

}  // namespace

MeshShape shape_of(const Cluster& cluster, const DeviceMesh& mesh) {
  MeshShape shape;
  shape.devices = static_cast<int>(mesh.devices.size());
  shape.per_node = std::max(1, shape.devices / nodes_spanned(cluster, mesh));
  const DeviceId* slowest = &mesh.devices.front();
  for (const DeviceId& device : mesh.devices)
    if (speed(gpu_of(cluster, device)) < speed(gpu_of(cluster, *slowest))) slowest = &device;
  shape.gpu = gpu_of(cluster, *slowest);
  shape.nic_gbps_per_gpu = cluster.nodes[node_of(cluster, *slowest)].nic_gbps_per_gpu;
  return shape;
}

Result<CallPricer> CallPricer::make(const PlanningProblem& problem, const Calibration& calibration,
                                    uint64_t seed) {
  CallPricer pricer;
  pricer.problem_ = &problem;
  pricer.timer_ = std::make_shared<CallTimer>(problem, draw_lengths(problem.workload, seed));
  std::set<std::string> seen;
  for (const Node& node : problem.cluster.nodes) {
    if (!seen.insert(node.gpu.key).second) continue;
    for (const auto& [role, model] : problem.models)
      BRAID_TRY(peak_flops(node.gpu, model.precision).status().at(cat("role ", role)));
    BRAID_ASSIGN(DeviceModel train,
                 make_device(node.gpu, Precision::kBf16, problem.train_engine, calibration));
    BRAID_ASSIGN(DeviceModel generate,
                 make_device(node.gpu, Precision::kBf16, problem.generate_engine, calibration));
    pricer.engines_.push_back({node.gpu.key, std::move(train), std::move(generate)});
  }
  return pricer;
}

const CallPricer::Engines& CallPricer::engines_of(const GpuSpec& gpu) const {
  for (const Engines& engines : engines_)
    if (engines.gpu == gpu.key) return engines;
  BRAID_CHECK(false, cat("no device ", gpu.key, " in the problem's cluster"));
}

DeviceModel CallPricer::device(const DeviceModel& engine, const RoleModel& model) const {
  DeviceModel device = engine;
  device.precision = model.precision;
  return device;
}

Result<CallPrice> CallPricer::price(const Call& call, const DeviceMesh& mesh,
                                    const Strategy& strategy) const {
  const MeshShape shape = shape_of(problem_->cluster, mesh);
  const bool generates = call.kind == CallKind::kGenerate;
  CallPrice price;
  if (generates) {
    BRAID_ASSIGN(price, generate_price(call, shape, strategy));
  } else if (call.kind == CallKind::kTrainStep) {
    BRAID_ASSIGN(price, train_price(call, shape, strategy));
  } else {
    BRAID_ASSIGN(price, infer_price(call, shape, strategy));
  }
  const CallPlan plan{call.name, mesh, strategy};
  const Engines& engines = engines_of(shape.gpu);
  const CallCost cost = CallCost::make(
      call, plan, *problem_,
      device(generates ? engines.generate : engines.train, model_of(*problem_, call.role)));
  price.time = timer_->time(call, plan, cost);
  return price;
}

Result<CallPrice> CallPricer::generate_price(const Call& call, const MeshShape& shape,
                                             const Strategy& s) const {
  const RoleModel& model = model_of(*problem_, call.role);
  const Workload& load = problem_->workload;
  GenerateWork work;
  work.prompt_len = mean_tokens(load.prompt);
  work.output_len = mean_tokens(load.response);
  work.max_output_len = static_cast<double>(longest_tokens(load.response));
  work.requests = static_cast<double>(call_samples(*problem_, call));
  const double each = std::ceil(work.requests / s.dp);
  const double most = s.max_concurrent > 0 ? static_cast<double>(s.max_concurrent) : kMostSequences;
  work.concurrency = s.dp * std::min(each, most);
  GenerateLayout layout;
  layout.replicas = s.dp;
  layout.tp = s.tp;
  layout.pp = s.pp;
  layout.weight_bytes = precision_bytes(model.precision);
  layout.gpus_per_node = shape.per_node;
  if (kv_capacity_tokens(model.size, layout, shape.gpu) < work.prompt_len + work.output_len)
    return Status(Code::kInfeasible, cat("weights and the cache of one sequence do not fit on ",
                                         s.tp * s.pp, " x ", shape.gpu.key));
  const MemoryParts parts =
      generate_memory(model.size, layout, work, engines_of(shape.gpu).generate.efficiency);
  CallPrice price;
  price.weight_bytes = parts.weights;
  // As the simulated engine: its prefill is chunked, whatever the number of sequences.
  const double prefilled = work.concurrency / s.dp * work.prompt_len;
  const double chunk = static_cast<double>(SimOptions().generate_batch_tokens);
  price.transient_bytes =
      parts.kv_cache / kShareForCache + parts.activations * chunk / std::max(1.0, prefilled);
  return price;
}

Result<CallPrice> CallPricer::train_price(const Call& call, const MeshShape& shape,
                                          const Strategy& s) const {
  const RoleModel& model = model_of(*problem_, call.role);
  const Workload& load = problem_->workload;
  TrainWork work;
  work.global_batch = static_cast<double>(minibatch_samples(*problem_));
  work.seq_len = fullest_mean_tokens(load, work.global_batch / s.dp, s.dp);
  work.micro_batch = micro_batch(s, work.global_batch, work.seq_len);
  work.seq_len = fullest_mean_tokens(load, work.micro_batch, work.global_batch / work.micro_batch);
  work.recompute = stated(s.recompute);
  work.lora = model.trainable.lora;
  const TrainLayout layout = train_layout(shape, s);
  BRAID_TRY(validate_train(model.size, layout, work));
  TrainMemoryWork memory;
  memory.optimizer = {precision_bytes(model.precision), kMasterAndMoments, 0,
                      model.trainable.lora ? static_cast<double>(model.trainable.lora_rank) : 0};
  const MemoryParts parts =
      train_memory(model.size, layout, work, memory, engines_of(shape.gpu).train.efficiency);
  CallPrice price;
  price.weight_bytes = parts.weights;
  price.optimizer_bytes = parts.optimizer;
  price.transient_bytes =
      parts.gradients +
      std::max(parts.activations + parts.logits + parts.gathered, parts.step_buffers);
  return price;
}

Result<CallPrice> CallPricer::infer_price(const Call& call, const MeshShape& shape,
                                          const Strategy& s) const {
  const RoleModel& model = model_of(*problem_, call.role);
  TrainWork work;
  work.global_batch = static_cast<double>(call_samples(*problem_, call));
  work.seq_len = fullest_mean_tokens(problem_->workload, work.global_batch / s.dp, s.dp);
  work.micro_batch = micro_batch(s, work.global_batch, work.seq_len);
  const TrainLayout layout = train_layout(shape, s);
  BRAID_TRY(validate_train(model.size, layout, work));
  const Efficiency& e = engines_of(shape.gpu).train.efficiency;
  TrainMemoryWork memory;
  memory.optimizer = {precision_bytes(model.precision), 0, 0, 1};  // frozen: weights alone
  const MemoryParts parts = train_memory(model.size, layout, work, memory, e);
  const double tokens =
      work.micro_batch * fullest_mean_tokens(problem_->workload, work.micro_batch,
                                             work.global_batch / work.micro_batch);
  const LayerKind kind = model.size.experts > 0 ? LayerKind::kMoe : LayerKind::kDense;
  CallPrice price;
  price.weight_bytes = parts.weights;
  price.transient_bytes =
      parts.gathered +
      tokens * activation_bytes_per_token(model.size, kind, s.tp, s.sequence_parallel) +
      std::min(tokens, kLogitChunkTokens) * static_cast<double>(model.size.vocab) / s.tp *
          e.mem_logit_bytes;
  return price;
}

double CallPricer::capacity_bytes(const GpuSpec& gpu) const {
  const Efficiency& e = engines_of(gpu).train.efficiency;
  double bytes = usable_bytes(gpu.hbm_bytes, e);
  if (problem_->memory_limit_gib > 0) bytes = std::min(bytes, problem_->memory_limit_gib * kGib);
  return bytes / std::sqrt(e.mem_reserve_factor) - e.mem_fixed_gib * kGib;
}

double CallPricer::host_copy_s(double bytes, const GpuSpec& gpu) const {
  return braid::host_copy_s(bytes, engines_of(gpu).train);
}

}  // namespace braid::planner
