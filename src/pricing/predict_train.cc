#include "pricing/predict_train.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "pricing/widths.h"

namespace braid::inline pricing {
namespace {

// Everything that the parts of a step share.
struct Step {
  const ModelSize& model;
  const TrainLayout& layout;
  const TrainStepWork& work;
  const DeviceModel& device;
  double micro_batches = 1;
  double tokens = 0;  // of one micro-batch on one device
  double context = 0;
  double repeated = 0;  // share of the forward pass computed again in the backward pass
  NumberWidths widths = {};

  bool lora() const { return work.lora_rank > 0; }
};

double repeated_share(StatedRecompute recompute, const Efficiency& e) {
  switch (recompute) {
    case StatedRecompute::kNone:
      return 0;
    case StatedRecompute::kSelective:
      return e.selective_share;
    case StatedRecompute::kFull:
      return 1;
    case StatedRecompute::kUnknown:
      return e.unknown_share;
  }
  return 0;
}

Step make_step(const ModelSize& model, const TrainLayout& layout, const TrainStepWork& work,
               const DeviceModel& device) {
  Step step{model, layout, work, device};
  step.micro_batches = std::max(1.0, work.global_batch / (work.micro_batch * layout.dp));
  step.tokens = work.micro_batch * work.seq_len / layout.cp;
  step.context = mean_causal_context(model, work.seq_len);
  step.repeated = repeated_share(work.recompute, device.efficiency);
  step.widths = widths_of(device.precision);
  return step;
}

CollectiveGroup group(const Step& step, int members, int stride) {
  return make_group(step.device.gpu, members, stride, step.layout.gpus_per_node,
                    step.layout.nic_gbps_per_gpu);
}

LayerPass layer_pass(const Step& step, LayerKind kind) {
  LayerPass pass;
  pass.kind = kind;
  pass.tokens = step.tokens;
  pass.context = step.context;
  pass.tp = step.layout.tp;
  pass.ep = step.layout.ep;
  pass.sequence_parallel = step.layout.sequence_parallel;
  pass.frozen = step.lora();
  pass.fused = step.work.fused;
  pass.graphs = step.work.graphs;
  pass.loops_experts = step.work.loops_experts;
  return pass;
}

struct LayerCost {
  double forward_s = 0;   // computation
  double backward_s = 0;  // computation, recomputation included
  double exchange_forward_s = 0;
  double exchange_backward_s = 0;
};

double tensor_exchange_s(const Step& step) {
  if (step.layout.tp == 1) return 0;
  const double bytes = step.tokens * step.model.hidden * step.widths.activation;
  const CollectiveGroup tp = group(step, step.layout.tp, 1);
  const double reduce = 2 * exchange_s(CollectiveOp::kReduceScatter, bytes, tp, step.device);
  return 2 * reduce * step.device.efficiency.tp_exposed;  // after attention and after the MLP
}

double context_s(const Step& step) {
  const TrainLayout& l = step.layout;
  return context_exchange_s(step.model, step.tokens, l.tp, group(step, l.cp, l.tp), step.device);
}

double experts_s(const Step& step) {
  const TrainLayout& l = step.layout;
  return expert_exchange_s(step.model, step.tokens, l.tp, group(step, l.ep, 1), step.device);
}

LayerCost layer_time(const Step& step, LayerKind kind) {
  const LayerPass pass = layer_pass(step, kind);
  const double lora = step.lora() ? step.device.efficiency.lora_factor : 1;
  LayerCost time;
  time.forward_s = layer_forward_s(step.model, pass, step.device) * lora;
  time.backward_s =
      layer_backward_s(step.model, pass, step.device) * lora + step.repeated * time.forward_s;
  const double experts = kind == LayerKind::kMoe ? experts_s(step) : 0;
  time.exchange_forward_s = tensor_exchange_s(step) + context_s(step) + experts;
  const bool full = step.work.recompute == StatedRecompute::kFull;
  time.exchange_backward_s =
      tensor_exchange_s(step) * (full ? 2 : 1) + 2 * context_s(step) + experts * (full ? 2 : 1);
  return time;
}

LayerCost mean_layer_time(const Step& step) {
  const double sparse = static_cast<double>(moe_layers(step.model)),
               dense = step.model.layers - sparse;
  LayerCost sum;
  const auto add = [&](LayerKind kind, double layers) {
    if (layers <= 0) return;
    const LayerCost time = layer_time(step, kind);
    const double share = layers / step.model.layers;
    sum.forward_s += share * time.forward_s;
    sum.backward_s += share * time.backward_s;
    sum.exchange_forward_s += share * time.exchange_forward_s;
    sum.exchange_backward_s += share * time.exchange_backward_s;
  };
  add(LayerKind::kDense, dense);
  add(LayerKind::kMoe, sparse + step.model.mtp_layers);
  return sum;
}

double embedding_s(const Step& step, bool backward) {
  return embedding_forward_s(step.model, step.tokens, step.device) +
         (backward ? embedding_backward_s(step.model, step.tokens, step.lora(), step.device) : 0);
}

double head_s(const Step& step, bool backward) {
  const double loss = step.work.policy_loss ? step.device.efficiency.rl_loss_factor : 1;
  const double heads = loss * (1 + step.model.mtp_layers);
  const double forward = head_forward_s(step.model, step.tokens, step.layout.tp, step.device);
  const double back =
      backward ? head_backward_s(step.model, step.tokens, step.layout.tp, step.lora(), step.device)
               : 0;
  return heads * (forward + back);
}

// Layers of the fullest stage, and of the last one, which also holds the head.
struct StageLayers {
  double fullest = 0;
  double last = 0;
};
StageLayers stage_layers(const Step& step) {
  const double chunks = step.layout.pp * step.layout.vpp;
  const double layers = static_cast<double>(step.model.layers);
  if (step.layout.pp == 1) return {layers, layers};
  if (std::fmod(layers, chunks) == 0) return {layers / step.layout.pp, layers / step.layout.pp};
  const double fullest = std::ceil(layers / step.layout.pp);
  return {fullest, std::max(0.0, std::floor(layers / step.layout.pp))};
}

double pipeline_send_s(const Step& step) {
  if (step.layout.pp == 1) return 0;
  const double shard = step.layout.sequence_parallel ? step.layout.tp : 1;
  const double bytes = step.tokens * step.model.hidden * step.widths.activation / shard;
  const CollectiveGroup stages =
      group(step, step.layout.pp, step.layout.tp * step.layout.cp * step.layout.dp);
  const bool inside = stages.per_domain == step.layout.pp;
  return send_s(bytes, inside, stages, step.device.efficiency) * step.device.efficiency.pp_exposed;
}

// Parameters of the model that one device of a replica computes with.
struct Held {
  double shared = 0;   // replicated over dp x cp
  double experts = 0;  // replicated over dp x cp x tp / ep
};
Held held_parameters(const Step& step) {
  const double routed = static_cast<double>(routed_expert_params(step.model));
  const double rest = static_cast<double>(total_params(step.model)) - routed;
  return {rest / (step.layout.tp * step.layout.pp), routed / (step.layout.pp * step.layout.ep)};
}

// Those of them that get gradients.
Held trained_parameters(const Step& step) {
  const Held held = held_parameters(step);
  const Trainable trainable{step.lora(), static_cast<int64_t>(step.work.lora_rank)};
  const double share = trainable_fraction(step.model, trainable);
  return {share * held.shared, share * held.experts};
}

double sharded_exchange_s(const Step& step, CollectiveOp op, double bytes_per_parameter,
                          const Held& held) {
  const TrainLayout& l = step.layout;
  const CollectiveGroup all = group(step, l.dp * l.cp, l.tp);
  const int expert_copies = std::max(1, l.dp * l.cp * l.tp / l.ep);
  const CollectiveGroup copies = group(step, expert_copies, l.ep);
  return exchange_s(op, held.shared * bytes_per_parameter, all, step.device) +
         (held.experts > 0 ? exchange_s(op, held.experts * bytes_per_parameter, copies, step.device)
                           : 0);
}

// Gradient reduction and weight gathers that computation does not hide. ZeRO-1 and plain data
// parallelism communicate once per step, behind the last micro-batch; FSDP in every micro-batch.
double gradient_exchange_s(const Step& step, double compute_s) {
  const TrainLayout& l = step.layout;
  if (l.dp * l.cp == 1) return 0;
  const Held trained = trained_parameters(step);
  const Efficiency& e = step.device.efficiency;
  const double reduce =
      sharded_exchange_s(step, CollectiveOp::kReduceScatter, step.work.reduce_bytes, trained);
  if (l.zero_stage < 2) {
    const double gather =
        sharded_exchange_s(step, CollectiveOp::kAllGather, step.widths.gathered, trained);
    const double window = compute_s / step.micro_batches;
    const double total = reduce + gather;
    return e.dp_exposed * std::min(total, window) + std::max(0.0, total - window);
  }
  const double gather = sharded_exchange_s(step, CollectiveOp::kAllGather, step.widths.gathered,
                                           held_parameters(step));
  const double per_batch = reduce + gather * (l.zero_stage == 3 ? 2 : 1);
  const double total = per_batch * step.micro_batches;
  return e.fsdp_exposed * std::min(total, compute_s) + std::max(0.0, total - compute_s);
}

double step_optimizer_s(const Step& step) {
  const Held trained = trained_parameters(step);
  const TrainLayout& l = step.layout;
  const double copies = l.zero_stage >= 1 ? l.dp * l.cp : 1;
  const double expert_copies = l.zero_stage >= 1 ? std::max(1, l.dp * l.cp * l.tp / l.ep) : 1;
  return optimizer_s(trained.shared / copies + trained.experts / expert_copies, kAdamTraffic,
                     step.device);
}

// Weights in for each pass, gradients out and what was trained in over the host link, and the
// optimizer at host memory speed.
double offload_s(const Step& step) {
  if (!step.work.offload_states) return 0;
  constexpr double kHostOptimizerBytesPerSecond = 15e9;  // per device of a node
  const auto shard = [&](const Held& all) {
    return (all.shared + all.experts) /
           (step.layout.zero_stage >= 1 ? step.layout.dp * step.layout.cp : 1);
  };
  const double held = shard(held_parameters(step)), trained = shard(trained_parameters(step));
  return host_copy_s(2 * (held + trained) * step.widths.gathered, step.device) +
         trained * kAdamTraffic / kHostOptimizerBytesPerSecond;
}

}  // namespace

Status validate_train(const ModelSize& model, const TrainLayout& layout,
                      const TrainStepWork& work) {
  if (work.seq_len <= 0) return invalid_input("seq_len must be above 0");
  if (work.micro_batch <= 0 || work.global_batch <= 0)
    return invalid_input("micro_batch and global_batch must be above 0");
  if (layout.pp > model.layers)
    return invalid_input(cat("pp ", layout.pp, " exceeds the ", model.layers, " layers"));
  if (layout.ep > 1 && model.experts == 0)
    return invalid_input("ep above 1 needs a model with experts");
  if (layout.ep > 1 && layout.ep > model.experts)
    return invalid_input(cat("ep ", layout.ep, " exceeds the ", model.experts, " experts"));
  return ok_status();
}

TrainTime train_step_time(const ModelSize& model, const TrainLayout& layout,
                          const TrainStepWork& work, const DeviceModel& device) {
  const Step step = make_step(model, layout, work, device);
  const LayerCost layer = mean_layer_time(step);
  const StageLayers layers = stage_layers(step);
  const double per_layer = layer.forward_s + layer.backward_s,
               exchange = layer.exchange_forward_s + layer.exchange_backward_s;
  const double embedding = embedding_s(step, true), head = head_s(step, true);
  const double first_and_last = step.layout.pp == 1 ? embedding + head : head;
  const double slowest = std::max(layers.fullest * (per_layer + exchange) + embedding,
                                  layers.last * (per_layer + exchange) + first_and_last);
  const double share = exchange / (per_layer + exchange);
  const double jitter =
      1 + device.efficiency.pipeline_jitter * std::log2(static_cast<double>(layout.pp));
  TrainTime time;
  const double steady = step.micro_batches * slowest * jitter;
  const double mean_stage = (model.layers * (per_layer + exchange) + embedding + head) / layout.pp;
  time.exchange_s = steady * share + 2 * layout.vpp * pipeline_send_s(step) * step.micro_batches;
  time.compute_s = steady * (1 - share);
  time.bubble_s = (layout.pp - 1.0) / layout.vpp * mean_stage * jitter;
  time.gradient_s = gradient_exchange_s(step, time.compute_s);
  time.optimizer_s = step_optimizer_s(step) + offload_s(step);
  time.host_s = device.efficiency.step_host_s;
  time.total_s = time.compute_s + time.bubble_s + time.exchange_s + time.gradient_s +
                 time.optimizer_s + time.host_s;
  return time;
}

double inference_pass_s(const ModelSize& model, const TrainLayout& layout,
                        const TrainStepWork& work, const DeviceModel& device) {
  const Step step = make_step(model, layout, work, device);
  const LayerCost layer = mean_layer_time(step);
  const double per_stage = (model.layers * (layer.forward_s + layer.exchange_forward_s) +
                            embedding_s(step, false) + head_s(step, false)) /
                           layout.pp;
  const double compute = (step.micro_batches + layout.pp - 1) * per_stage;
  if (layout.zero_stage < 3 || layout.dp == 1) return compute;
  const Held held = held_parameters(step);
  const double gather = step.micro_batches * sharded_exchange_s(step, CollectiveOp::kAllGather,
                                                                step.widths.gathered, held);
  return compute + device.efficiency.fsdp_exposed * std::min(gather, compute) +
         std::max(0.0, gather - compute);
}

}  // namespace braid::inline pricing
