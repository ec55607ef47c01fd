#include "sim/call_cost.h"

#include <algorithm>
#include <cmath>

#include "cost/memory.h"

namespace braid {
namespace {

constexpr double kHeadChunkTokens = 1024;  // head and loss run in chunks of so many tokens

double repeated_share(Recompute recompute, const Efficiency& e) {
  if (recompute == Recompute::kFull) return 1;
  return recompute == Recompute::kSelective ? e.selective_share : 0;
}

double kept_share(Recompute recompute, const Efficiency& e) {
  if (recompute == Recompute::kFull) return 0;
  return recompute == Recompute::kSelective ? e.mem_selective_share : 1;
}

}  // namespace

Result<CallCost> CallCost::make(const Program& program, CallId id, const PlanningProblem& problem,
                                const Calibration& calibration) {
  const Call& call = program.graph.calls[id.value];
  const CallPlacement& where = program.calls[id.value];
  std::vector<DeviceModel> kinds;
  for (const GpuSpec& gpu : shape_of(problem.cluster, where.mesh).kinds) {
    BRAID_ASSIGN(DeviceModel device,
                 make_device(gpu, precision_of(model_of(problem, call.role), where.strategy),
                             call.kind == CallKind::kGenerate ? problem.generate_engine
                                                              : problem.train_engine,
                             calibration));
    kinds.push_back(std::move(device));
  }
  return make(call, {call.name, where.mesh, where.strategy}, problem, std::move(kinds));
}

CallCost CallCost::make(const Call& call, const CallPlan& plan, const PlanningProblem& problem,
                        std::vector<DeviceModel> kinds) {
  const MeshShape shape = shape_of(problem.cluster, plan.mesh);
  BRAID_CHECK(kinds.size() == shape.kinds.size(), "a device model for every kind of the mesh");
  CallCost cost;
  cost.model_ = &model_of(problem, call.role);
  cost.strategy_ = plan.strategy;
  cost.layout_ = param_layout(plan.mesh, plan.strategy);
  const RoleSpec* spec = find_role(problem.graph, call.role);
  cost.scalar_head_ = spec != nullptr && spec->scalar_head;
  cost.kinds_ = tensor_kinds(cost.model_->size, cost.scalar_head_);
  for (const TensorKind& kind : cost.kinds_)
    (kind.routed ? cost.routed_kinds_ : cost.shared_kinds_).push_back(kind);
  cost.device_ = std::move(kinds.front());
  cost.others_.assign(std::make_move_iterator(kinds.begin() + 1),
                      std::make_move_iterator(kinds.end()));
  cost.widths_ = widths_of(precision_of(*cost.model_, plan.strategy));
  cost.trains_ = call.kind == CallKind::kTrainStep;
  cost.per_node_ = shape.per_node;
  cost.nic_gbps_ = shape.nic_gbps_per_gpu;
  cost.links_ = shape.links;
  cost.prompt_tokens_ = mean_tokens(problem.workload.prompt);
  if (braid::generates(problem.graph)) {
    double Efficiency::*const factor =
        call.kind == CallKind::kGenerate
            ? &Efficiency::rl_generate_factor
            : (cost.trains_ ? &Efficiency::rl_train_factor : &Efficiency::rl_infer_factor);
    cost.factor_ =
        cost.slowest([&](const DeviceModel& device) { return device.efficiency.*factor; });
  }
  return cost;
}

MicroBatch CallCost::micro_batch(const std::vector<int64_t>& lengths) const {
  MicroBatch batch;
  double weighted = 0;
  for (const int64_t length : lengths) {
    const auto tokens = static_cast<double>(length);
    batch.tokens += tokens;
    weighted += tokens * mean_causal_context(model_->size, tokens);
  }
  if (batch.tokens > 0) batch.context = weighted / batch.tokens;
  batch.tokens /= strategy_.cp;
  return batch;
}

CollectiveGroup CallCost::group(int members, int stride) const {
  return make_group(links_, members, stride, per_node_, nic_gbps_);
}

LayerPass CallCost::layer_pass(const MicroBatch& batch, LayerKind kind) const {
  LayerPass pass;
  pass.kind = kind;
  pass.tokens = batch.tokens;
  pass.context = batch.context;
  pass.tp = strategy_.tp;
  pass.ep = strategy_.ep;
  pass.sequence_parallel = strategy_.sequence_parallel;
  pass.frozen = model_->trainable.lora;
  return pass;
}

// After attention and after the MLP: an all-reduce, or a reduce-scatter and an all-gather.
double CallCost::tensor_exchange_s(const MicroBatch& batch) const {
  if (strategy_.tp == 1) return 0;
  const double bytes = batch.tokens * static_cast<double>(model_->size.hidden) * widths_.activation;
  const CollectiveGroup neighbours = group(strategy_.tp, 1);
  return slowest([&](const DeviceModel& device) {
    return 4 * braid::exchange_s(CollectiveOp::kReduceScatter, bytes, neighbours, device) *
           device.efficiency.tp_exposed;
  });
}

double CallCost::context_exchange_s(const MicroBatch& batch) const {
  if (strategy_.cp == 1) return 0;
  const CollectiveGroup ring = group(strategy_.cp, strategy_.tp);
  return slowest([&](const DeviceModel& device) {
    return braid::context_exchange_s(model_->size, batch.tokens, strategy_.tp, ring, device);
  });
}

double CallCost::expert_exchange_s(const MicroBatch& batch) const {
  if (strategy_.ep == 1) return 0;
  const CollectiveGroup parts = group(strategy_.ep, expert_tp(strategy_));
  return slowest([&](const DeviceModel& device) {
    return braid::expert_exchange_s(model_->size, batch.tokens, strategy_.tp, parts, device);
  });
}

double CallCost::collective_s(CollectiveOp op, double bytes, const CollectiveGroup& among) const {
  return slowest(
      [&](const DeviceModel& device) { return braid::exchange_s(op, bytes, among, device); });
}

double CallCost::sharded_exchange_s(CollectiveOp op, const Held& parameters, double bytes) const {
  const Strategy& s = strategy_;
  double seconds = collective_s(op, parameters.shared * bytes, group(zero_ranks(s), s.tp));
  if (parameters.routed > 0)
    seconds += collective_s(op, parameters.routed * bytes,
                            group(expert_zero_ranks(s), s.ep * expert_tp(s)));
  return seconds;
}

double CallCost::shards_reduce_s(const Held& parameters) const {
  const int ranks = zero_ranks(strategy_), groups = dense_copies(strategy_) / ranks;
  if (groups == 1) return 0;
  return collective_s(CollectiveOp::kAllReduce, shard_of(parameters) * widths_.reduced,
                      group(groups, strategy_.tp * ranks));
}

double CallCost::shard_of(const Held& parameters) const {
  return parameters.shared / zero_ranks(strategy_) +
         parameters.routed / expert_zero_ranks(strategy_);
}

PassPrices CallCost::pass_prices(const MicroBatch& batch) const {
  PassPrices prices = prices_on(device_, batch);
  for (const DeviceModel& other : others_) {
    const PassPrices its = prices_on(other, batch);
    for (double PassPrices::*price :
         {&PassPrices::dense_forward_s, &PassPrices::dense_backward_s,
          &PassPrices::sparse_forward_s, &PassPrices::sparse_backward_s,
          &PassPrices::embedding_forward_s, &PassPrices::embedding_backward_s,
          &PassPrices::head_forward_s, &PassPrices::head_backward_s})
      prices.*price = std::max(prices.*price, its.*price);
  }
  return prices;
}

PassPrices CallCost::prices_on(const DeviceModel& device, const MicroBatch& batch) const {
  const ModelSize& m = model_->size;
  const Efficiency& e = device.efficiency;
  const double lora = model_->trainable.lora ? e.lora_factor : 1;
  const double repeated = repeated_share(strategy_.recompute, e);
  const double tensor = tensor_exchange_s(batch), context = context_exchange_s(batch);
  const double experts = expert_exchange_s(batch);
  const double exchanges_back = strategy_.recompute == Recompute::kFull ? 2 : 1;
  PassPrices prices;
  for (const LayerKind kind : {LayerKind::kDense, LayerKind::kMoe}) {
    const bool sparse = kind == LayerKind::kMoe;
    if ((sparse ? moe_layers(m) : m.layers - moe_layers(m)) == 0) continue;
    const LayerPass pass = layer_pass(batch, kind);
    const double forward = layer_forward_s(m, pass, device) * lora;
    const double exchange = tensor + (sparse ? experts : 0);
    (sparse ? prices.sparse_forward_s : prices.dense_forward_s) = forward + exchange + context;
    if (!trains_) continue;
    const double backward = layer_backward_s(m, pass, device) * lora + repeated * forward;
    (sparse ? prices.sparse_backward_s : prices.dense_backward_s) =
        backward + exchanges_back * exchange + 2 * context;
  }
  prices.embedding_forward_s = embedding_forward_s(m, batch.tokens, device);
  if (trains_)
    prices.embedding_backward_s =
        embedding_backward_s(m, batch.tokens, model_->trainable.lora, device);
  if (scalar_head_) return prices;
  // A policy loss costs no more here: rl_train_factor was fitted to whole updates, loss included.
  prices.head_forward_s = head_forward_s(m, batch.tokens, strategy_.tp, device);
  if (trains_)
    prices.head_backward_s =
        head_backward_s(m, batch.tokens, strategy_.tp, model_->trainable.lora, device);
  return prices;
}

CallCost::LayerCounts CallCost::layers_of(int part) const {
  const ModelSize& m = model_->size;
  const Interval layers = layers_of_part(m.layers, parts(), part);
  const int64_t dense_layers = m.layers - moe_layers(m);
  const auto dense =
      static_cast<double>(std::max<int64_t>(0, std::min(layers.end, dense_layers) - layers.begin));
  return {dense, static_cast<double>(layers.size()) - dense};
}

double CallCost::gathers_of_part_s(int part) const {
  if (!layout_.sharded) return 0;
  return sharded_exchange_s(CollectiveOp::kAllGather, held(part % strategy_.pp),
                            widths_.gathered / strategy_.interleave);
}

// What computation does not hide of the communication beside it.
double CallCost::with_gathers(double compute_s, double exchange_s) const {
  return compute_s + device_.efficiency.fsdp_exposed * std::min(exchange_s, compute_s) +
         std::max(0.0, exchange_s - compute_s);
}

double CallCost::forward_s(const PassPrices& prices, int part) const {
  const LayerCounts layers = layers_of(part);
  const double compute = layers.dense * prices.dense_forward_s +
                         layers.sparse * prices.sparse_forward_s +
                         (has_embedding(part) ? prices.embedding_forward_s : 0) +
                         (has_head(part) ? prices.head_forward_s : 0);
  const double jitter = 1 + device_.efficiency.pipeline_jitter * std::log2(strategy_.pp);
  return factor_ * jitter * with_gathers(compute, gathers_of_part_s(part));
}

double CallCost::backward_s(const PassPrices& prices, int part) const {
  const LayerCounts layers = layers_of(part);
  const double compute = layers.dense * prices.dense_backward_s +
                         layers.sparse * prices.sparse_backward_s +
                         (has_embedding(part) ? prices.embedding_backward_s : 0) +
                         (has_head(part) ? prices.head_backward_s : 0);
  double exchange = gathers_of_part_s(part);
  if (strategy_.zero_stage >= 2 && zero_ranks(strategy_) > 1)
    exchange += sharded_exchange_s(CollectiveOp::kReduceScatter, trained(part % strategy_.pp),
                                   widths_.reduced / strategy_.interleave);
  const double jitter = 1 + device_.efficiency.pipeline_jitter * std::log2(strategy_.pp);
  return factor_ * jitter * with_gathers(compute, exchange);
}

double CallCost::stage_bytes(const MicroBatch& batch) const {
  return batch.tokens * static_cast<double>(model_->size.hidden) * widths_.activation /
         (strategy_.sequence_parallel ? strategy_.tp : 1);
}

CallCost::Held CallCost::held(int stage) const {
  ParamLayout whole = layout_;
  whole.sharded = false;
  const size_t index = mesh_index(strategy_, {0, 0, stage});
  const int64_t layers = model_->size.layers;
  return {held_parameters(shared_kinds_, whole, layers, index),
          held_parameters(routed_kinds_, whole, layers, index)};
}

CallCost::Held CallCost::trained(int stage) const {
  const Held all = held(stage);
  const double share = trainable_fraction(model_->size, model_->trainable);
  return {share * all.shared, share * all.routed};
}

double CallCost::exposed_reduce_s(int stage, double window_s) const {
  if (dense_copies(strategy_) == 1) return 0;
  const Held parameters = trained(stage);
  double total = strategy_.zero_stage == 0 ? 0 : shards_reduce_s(parameters);
  if (strategy_.zero_stage < 2)
    total += sharded_exchange_s(
        strategy_.zero_stage == 0 ? CollectiveOp::kAllReduce : CollectiveOp::kReduceScatter,
        parameters, widths_.reduced);
  // The factor was fitted to whole updates (cost/predict_rl.cc), this exchange and the window of an
  // update by itself included.
  const double window = window_s / factor_;
  return factor_ *
         (device_.efficiency.dp_exposed * std::min(total, window) + std::max(0.0, total - window));
}

double CallCost::gather_s(int stage) const {
  return sharded_exchange_s(CollectiveOp::kAllGather, trained(stage), widths_.gathered) *
         device_.efficiency.dp_exposed * factor_;
}

double CallCost::optimizer_step_s(int stage) const {
  const Held parameters = trained(stage);
  const double updated =
      strategy_.zero_stage >= 1 ? shard_of(parameters) : parameters.shared + parameters.routed;
  return factor_ * slowest([&](const DeviceModel& device) {
           return optimizer_s(updated, kAdamTraffic, device);
         });
}

double CallCost::step_host_s() const {
  return factor_ * slowest([](const DeviceModel& device) { return device.efficiency.step_host_s; });
}

// Prefill and decode share a forward. With pipeline stages that many batches are in flight: every
// stage reads its weights once for each of them, so a round takes as long as a small batch takes
// through the whole model.
double CallCost::rounds_s(const BatchRound& round) const {
  return rounds_s(RoundGroup{round.rounds, round.decoding, static_cast<double>(round.cached_tokens),
                             static_cast<double>(round.prefill_tokens), round.pages});
}

// A decode step grows linearly with the context, so rounds are priced at their mean.
double CallCost::rounds_s(const RoundGroup& group) const {
  return factor_ * slowest([&](const DeviceModel& device) { return rounds_on_s(device, group); });
}

double CallCost::rounds_on_s(const DeviceModel& device, const RoundGroup& group) const {
  const ModelSize& m = model_->size;
  const double batches =
      std::clamp(static_cast<double>(group.decoding), 1.0, static_cast<double>(strategy_.pp));
  double seconds = 0;
  if (group.decoding > 0) {
    DecodeStep step;
    step.sequences = static_cast<double>(group.decoding) / batches;
    step.context = group.cached_tokens / static_cast<double>(group.rounds * group.decoding);
    step.tp = strategy_.tp;
    step.weight_bytes = widths_.weight;
    step.kv_bytes = widths_.cache;
    step.spans_domains = this->group(strategy_.tp, 1).per_domain < strategy_.tp;
    seconds += static_cast<double>(group.rounds) * decode_step_s(m, step, device);
  }
  if (group.prefill_tokens > 0)
    seconds += prefill_s(m, group.prefill_tokens, prompt_tokens_, strategy_.tp, device) / batches;
  return seconds;
}

double CallCost::activation_bytes(const MicroBatch& batch, int part) const {
  const Efficiency& e = device_.efficiency;
  const ModelSize& m = model_->size;
  const LayerKind kind = m.experts > 0 ? LayerKind::kMoe : LayerKind::kDense;
  const double layer = e.mem_fused_factor * activation_bytes_per_token(m, kind, strategy_.tp,
                                                                       strategy_.sequence_parallel,
                                                                       widths_.activation);
  const double input = widths_.activation * static_cast<double>(m.hidden) /
                       (strategy_.sequence_parallel ? strategy_.tp : 1);
  const double kept = kept_share(strategy_.recompute, e);
  const auto layers = static_cast<double>(layers_of_part(m.layers, parts(), part).size());
  return batch.tokens * layers * (kept * layer + (kept < 1 ? input : 0));
}

double CallCost::working_bytes(const MicroBatch& batch) const {
  const Efficiency& e = device_.efficiency;
  const ModelSize& m = model_->size;
  const LayerKind kind = m.experts > 0 ? LayerKind::kMoe : LayerKind::kDense;
  const double layer = batch.tokens * e.mem_fused_factor *
                       activation_bytes_per_token(m, kind, strategy_.tp,
                                                  strategy_.sequence_parallel, widths_.activation);
  const double kept = trains_ ? kept_share(strategy_.recompute, e) : 1;
  return (e.mem_work_layers * (1 - kept) + 0.5) * layer;
}

double CallCost::logit_bytes(const MicroBatch& batch) const {
  if (scalar_head_) return 0;
  const double tokens = std::min(batch.tokens, kHeadChunkTokens);
  return tokens * static_cast<double>(model_->size.vocab) / strategy_.tp *
         (device_.efficiency.mem_logit_bytes + widths_.extra_logit);
}

// Two blocks with prefetching, the ends of the model, and the block whose gradients are being
// reduced (cost/memory.cc).
double CallCost::gathered_bytes(int stage) const {
  if (!layout_.sharded) return 0;
  double block = 0, ends = 0;
  for (const TensorKind& kind : kinds_) {
    const auto elements = static_cast<double>(kind.elements) / (kind.routed ? strategy_.ep : 1);
    if (kind.layer_end == model_->size.layers) block += elements;
    if ((kind.first && stage == 0) || (kind.last && stage == strategy_.pp - 1)) ends += elements;
  }
  const double reduced = trains_ && !model_->trainable.lora ? block * widths_.reduced : 0;
  return ((2 * block + ends) * widths_.gathered + reduced) / strategy_.tp;
}

double CallCost::gradient_bytes(int stage) const {
  const Held parameters = trained(stage);
  const double kept =
      strategy_.zero_stage >= 2 ? shard_of(parameters) : parameters.shared + parameters.routed;
  return kept * std::max(widths_.least_gradient, device_.efficiency.mem_gradient_bytes);
}

double CallCost::optimizer_bytes(int stage) const {
  const Held parameters = trained(stage);
  return widths_.optimizer *
         (strategy_.zero_stage >= 1 ? shard_of(parameters) : parameters.shared + parameters.routed);
}

double CallCost::weight_bytes(size_t mesh_index) const {
  return held_parameters(kinds_, layout_, model_->size.layers, mesh_index) * widths_.weight;
}

double CallCost::cache_bytes_per_token() const {
  const ModelSize& m = model_->size;
  const auto parts = static_cast<double>(kv_cache_parts(m, strategy_.tp) * strategy_.pp);
  return kv_bytes_per_token(m, widths_.cache) / parts;
}

double CallCost::prefill_bytes(double tokens) const {
  const ModelSize& m = model_->size;
  const double width =
      3.0 * static_cast<double>(m.intermediate) + 4.0 * static_cast<double>(m.hidden);
  return device_.efficiency.mem_prefill_factor * tokens * widths_.activation * width / strategy_.tp;
}

}  // namespace braid
