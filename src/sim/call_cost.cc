#include "sim/call_cost.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "pricing/memory.h"
#include "pricing/rl_engine.h"
#include "program/hand_over.h"

namespace braid::inline sim {
namespace {

constexpr double kHeadChunkTokens = 1024;  // head and loss run in chunks of so many tokens

double repeated_share(Recompute recompute, const Efficiency& e) {
  if (recompute == Recompute::kFull) return 1;
  return recompute == Recompute::kSelective ? e.selective_share : 0;
}

double tensor_exchange_s(const PassPrices& prices, OpKind kind) {
  if (kind == OpKind::kAllReduce) return prices.whole_exchange_s;
  return kind == OpKind::kAllToAll ? prices.parts_exchange_s : prices.half_exchange_s;
}

double kept_share(Recompute recompute, const Efficiency& e) {
  if (recompute == Recompute::kFull) return 0;
  return recompute == Recompute::kSelective ? e.mem_selective_share : 1;
}

CollectiveOp collective_of(OpKind kind) {
  if (kind == OpKind::kAllGather) return CollectiveOp::kAllGather;
  if (kind == OpKind::kBroadcast) return CollectiveOp::kBroadcast;
  return kind == OpKind::kAllReduce ? CollectiveOp::kAllReduce : CollectiveOp::kReduceScatter;
}

// The bodies of every stage with the ops around its passes: those of an optimizer step, the
// agreement that ends inference, and of generation a round and its agreement.
std::vector<Expansion> expand_stages(const CallFrame& frame) {
  const Strategy& s = frame.where->strategy;
  Partition nothing;
  nothing.minibatches.emplace_back();
  nothing.minibatches[0].micro_batches.resize(s.dp);
  nothing.minibatches[0].tokens.resize(s.dp);
  std::vector<Expansion> out;
  for (int stage = 0; stage < s.pp; ++stage) {
    const GridPosition at{0, 0, stage};
    const DeviceId rank = frame.where->mesh.devices[mesh_index(s, at)];
    out.push_back(frame.kind == CallKind::kGenerate ? expand(frame, rank, RoundWork{0, 1, true})
                                                    : expand(frame, rank, nothing));
  }
  return out;
}

// Whether two lists of collectives take as long: among as many ranks as far apart.
bool alike(const Expansion& a, const std::vector<InsideOp>& of_a, const Expansion& b,
           const std::vector<InsideOp>& of_b) {
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                    [&](InsideOp one, const InsideOp& other) {
                      const OpGroup &mine = a.groups[one.group], &its = b.groups[other.group];
                      one.group = other.group;
                      return one == other && mine.kind == its.kind && mine.stride == its.stride &&
                             mine.members.size() == its.members.size();
                    });
}

// Layers of a body that are dense: those of a model with experts come first.
int64_t dense_layers(const OpBody& body, const ModelSize& model) {
  return std::max<int64_t>(
      0, std::min(body.layers.end, model.layers - moe_layers(model)) - body.layers.begin);
}

bool alike(const Expansion& a, const OpBody& of_a, const Expansion& b, const OpBody& of_b,
           const ModelSize& model) {
  return of_a.layers.size() == of_b.layers.size() &&
         dense_layers(of_a, model) == dense_layers(of_b, model) &&
         of_a.embedding == of_b.embedding && of_a.head == of_b.head && of_a.stages == of_b.stages &&
         alike(a, of_a.forward, b, of_b.forward) && alike(a, of_a.backward, b, of_b.backward);
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
                             calibration, problem.generate_engine));
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
  cost.scalar_head_ = (spec != nullptr && spec->scalar_head) || !reads_vocabulary(call);
  const ModelShape model = model_shape(problem, call.role);
  const CallPlacement where{plan.mesh, plan.strategy, -1, 0};
  CallFrame frame{CallId{-1}, call.kind, &where, &model};
  frame.reads_vocabulary = reads_vocabulary(call);
  cost.stages_ = std::make_shared<const std::vector<Expansion>>(expand_stages(frame));
  for (int part = 0; part < cost.parts() && call.kind != CallKind::kGenerate; ++part) {
    int like = 0;
    while (like < part && !alike(cost.of_part(like), cost.body_of(like), cost.of_part(part),
                                 cost.body_of(part), cost.model_->spec))
      ++like;
    cost.part_like_.push_back(like);
  }
  cost.kinds_ = model.kinds, cost.trained_share_ = model.trained_share;
  cost.device_ = std::move(kinds.front());
  cost.others_.assign(std::make_move_iterator(kinds.begin() + 1),
                      std::make_move_iterator(kinds.end()));
  cost.widths_ = widths_of(precision_of(*cost.model_, plan.strategy));
  cost.trains_ = call.kind == CallKind::kTrainStep;
  cost.per_node_ = shape.per_node;
  if (!std::is_sorted(plan.mesh.devices.begin(), plan.mesh.devices.end()))
    for (const DeviceId device : plan.mesh.devices)
      cost.nodes_.push_back(node_of(problem.cluster, device));
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
    cost.factor_ *= draws_of(problem, call.name);
  }
  return cost;
}

Strategy without_batches(Strategy strategy) {
  const Strategy usual;
  strategy.micro_batches = usual.micro_batches, strategy.micro_tokens = usual.micro_tokens;
  strategy.in_order = usual.in_order, strategy.schedule = usual.schedule;
  strategy.kv_budget_tokens = usual.kv_budget_tokens;
  strategy.max_concurrent = usual.max_concurrent;
  return strategy;
}

CallCost CallCost::with(const Strategy& strategy) const {
  CallCost out = *this;
  out.strategy_ = strategy;
  return out;
}

MicroBatch CallCost::micro_batch(const std::vector<PackedLength>& lengths) const {
  MicroBatch batch;
  double weighted = 0;
  const auto attended = [&](double tokens) {
    return tokens * mean_causal_context(model_->spec, tokens);
  };
  for (const PackedLength& length : lengths) {
    const auto tokens = static_cast<double>(length.tokens),
               shared = static_cast<double>(length.shared);
    batch.tokens += tokens - shared;
    weighted += attended(tokens) - attended(shared);
  }
  if (batch.tokens > 0) batch.context = weighted / batch.tokens;
  batch.tokens /= strategy_.cp;
  return batch;
}

CollectiveGroup CallCost::group(int members, int stride) const {
  return make_group(links_, members, apart(members, stride), per_node_, nic_gbps_);
}

// How far apart the members of a group lie on the cluster whose places in the mesh are `stride`
// apart: as far there, unless devices of a node are not next to each other in the mesh. Of all such
// groups the one on the most nodes counts.
int CallCost::apart(int members, int stride) const {
  size_t most = 1;
  for (size_t first = 0; first < nodes_.size(); ++first) {
    const size_t block = static_cast<size_t>(members) * stride;
    if (first % block >= static_cast<size_t>(stride)) continue;
    std::set<int> nodes;
    for (size_t at = first; at < std::min(first + block, nodes_.size()); at += stride)
      nodes.insert(nodes_[at]);
    most = std::max(most, nodes.size());
  }
  const int of_one_node = std::max(1, members / static_cast<int>(most));
  const int as_in_order = std::clamp(per_node_ / std::max(stride, 1), 1, members);
  return nodes_.empty() || of_one_node >= as_in_order ? stride : per_node_ / of_one_node;
}

LayerPass CallCost::layer_pass(const MicroBatch& batch, LayerKind kind) const {
  LayerPass pass;
  pass.kind = kind;
  pass.tokens = batch.tokens;
  pass.context = batch.context;
  pass.tp = any_body().shards;
  pass.ep = any_body().expert_parts;
  pass.sequence_parallel = any_body().sequence_sharded;
  pass.frozen = model_->trainable.lora;
  return pass;
}

// A collective of a layer over a kind of group, or nullptr.
const InsideOp* CallCost::exchange_inside(GroupKind over) const {
  for (const Expansion& stage : *stages_)
    for (const OpBody& body : stage.bodies)
      for (const InsideOp& inside : body.forward)
        if (stage.groups[inside.group].kind == over && !inside.at_end) return &inside;
  return nullptr;
}

// Half an all-reduce: a reduce-scatter or an all-gather, which take as long.
double CallCost::half_exchange_s(double tokens) const {
  const InsideOp* const inside = exchange_inside(GroupKind::kTensor);
  if (inside == nullptr) return 0;
  const CollectiveGroup neighbours = group(strategy_.tp, 1);
  return slowest([&](const DeviceModel& device) {
    return braid::exchange_s(CollectiveOp::kReduceScatter, tokens * inside->bytes_per_token,
                             neighbours, device) *
           device.efficiency.tp_exposed;
  });
}

// An all-reduce as a profile has it; else both of its halves.
double CallCost::whole_exchange_s(double tokens) const {
  const InsideOp* const inside = exchange_inside(GroupKind::kTensor);
  if (inside == nullptr) return 0;
  if (device_.profile == nullptr || !others_.empty()) return 2 * half_exchange_s(tokens);
  const CollectiveGroup neighbours = group(strategy_.tp, 1);
  const auto measured = profiled_collective_s(
      *device_.profile, {"all_reduce", strategy_.tp, neighbours.members <= neighbours.per_domain,
                         tokens * inside->bytes_per_token, 0});
  return measured ? *measured * device_.efficiency.tp_exposed : 2 * half_exchange_s(tokens);
}

// An all-to-all of the terms, which are then added in the order of the ranks.
double CallCost::parts_exchange_s(double tokens) const {
  const InsideOp* const inside = exchange_inside(GroupKind::kTensor);
  if (inside == nullptr) return 0;
  const CollectiveGroup neighbours = group(strategy_.tp, 1);
  const double bytes = tokens * inside->bytes_per_token;
  return slowest([&](const DeviceModel& device) {
    return braid::exchange_s(CollectiveOp::kAllToAll, bytes, neighbours, device) *
               device.efficiency.tp_exposed +
           additions_s(bytes, strategy_.tp, device);
  });
}

double CallCost::context_exchange_s(double tokens) const {
  const InsideOp* const inside = exchange_inside(GroupKind::kContext);
  if (inside == nullptr) return 0;
  const CollectiveGroup ring = group(strategy_.cp, strategy_.tp);
  return slowest([&](const DeviceModel& device) {
    return braid::exchange_s(CollectiveOp::kAllGather, tokens * inside->bytes_per_token, ring,
                             device) *
           device.efficiency.cp_exposed;
  });
}

double CallCost::expert_exchange_s(double tokens) const {
  const InsideOp* const inside = exchange_inside(GroupKind::kExperts);
  if (inside == nullptr) return 0;
  const CollectiveGroup parts = group(strategy_.ep, expert_tp(strategy_));
  return slowest([&](const DeviceModel& device) {
    return braid::exchange_s(CollectiveOp::kAllToAll, tokens * inside->bytes_per_token, parts,
                             device) *
           device.efficiency.ep_exposed;
  });
}

double CallCost::collective_s(CollectiveOp op, double bytes, const OpGroup& over) const {
  const CollectiveGroup members = group(static_cast<int>(over.members.size()), over.stride);
  return slowest(
      [&](const DeviceModel& device) { return braid::exchange_s(op, bytes, members, device); });
}

PassPrices CallCost::pass_prices(const MicroBatch& batch) const {
  PassPrices prices = prices_on(device_, batch);
  prices.tokens = batch.tokens;
  prices.half_exchange_s = half_exchange_s(batch.tokens);
  prices.whole_exchange_s = whole_exchange_s(batch.tokens);
  prices.parts_exchange_s = parts_exchange_s(batch.tokens);
  prices.context_exchange_s = context_exchange_s(batch.tokens);
  prices.expert_exchange_s = expert_exchange_s(batch.tokens);
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

std::optional<PassKey> CallCost::pass_key() const {
  if (!others_.empty() || !nodes_.empty()) return std::nullopt;
  return PassKey{model_,
                 device_.gpu.key,
                 device_.precision,
                 any_body().recompute,
                 scalar_head_,
                 trains_,
                 any_body().sequence_sharded,
                 strategy_.tp,
                 strategy_.cp,
                 strategy_.ep,
                 expert_tp(strategy_),
                 per_node_,
                 links_.nvlink_domain_gpus,
                 nic_gbps_};
}

PassPrices CallCost::prices_on(const DeviceModel& device, const MicroBatch& batch) const {
  const ModelSize& m = model_->spec;
  const Efficiency& e = device.efficiency;
  const double lora = model_->trainable.lora ? e.lora_factor : 1;
  const OpBody& body = any_body();
  const double repeated = repeated_share(body.recompute, e);
  PassPrices prices;
  for (const LayerKind kind : {LayerKind::kDense, LayerKind::kMoe}) {
    const bool sparse = kind == LayerKind::kMoe;
    if ((sparse ? moe_layers(m) : m.layers - moe_layers(m)) == 0) continue;
    const LayerPass pass = layer_pass(batch, kind);
    const double forward = layer_forward_s(m, pass, device) * lora;
    (sparse ? prices.sparse_forward_s : prices.dense_forward_s) = forward;
    if (!trains_) continue;
    (sparse ? prices.sparse_backward_s : prices.dense_backward_s) =
        layer_backward_s(m, pass, device) * lora + repeated * forward;
  }
  prices.embedding_forward_s = embedding_forward_s(m, batch.tokens, device);
  if (trains_)
    prices.embedding_backward_s =
        embedding_backward_s(m, batch.tokens, model_->trainable.lora, device);
  if (scalar_head_) return prices;
  // A policy loss costs no more here: rl_train_factor was fitted to whole updates, loss included.
  prices.head_forward_s = head_forward_s(m, batch.tokens, body.shards, device);
  if (trains_)
    prices.head_backward_s =
        head_backward_s(m, batch.tokens, body.shards, model_->trainable.lora, device);
  return prices;
}

// Gathers and reductions of a body's layers among copies: one after the other they take
// as long as one of all their bytes.
double CallCost::data_s(const Expansion& e, const std::vector<InsideOp>& inside) const {
  double seconds = 0;
  for (const InsideOp& op : inside)
    if (among_copies(e.groups[op.group].kind))
      seconds += collective_s(collective_of(op.kind), op.times * op.bytes, e.groups[op.group]);
  return seconds;
}

// What computation does not hide of the communication beside it.
double CallCost::with_gathers(double compute_s, double exchange_s) const {
  return compute_s + device_.efficiency.fsdp_exposed * std::min(exchange_s, compute_s) +
         std::max(0.0, exchange_s - compute_s);
}

double CallCost::compute_s(const PassPrices& prices, const OpBody& body, bool forward) const {
  const auto dense = static_cast<double>(dense_layers(body, model_->spec));
  const double sparse = static_cast<double>(body.layers.size()) - dense;
  const auto& p = prices;
  if (forward)
    return dense * p.dense_forward_s + sparse * p.sparse_forward_s +
           (body.embedding ? p.embedding_forward_s : 0) + (body.head ? p.head_forward_s : 0);
  return dense * p.dense_backward_s + sparse * p.sparse_backward_s +
         (body.embedding ? p.embedding_backward_s : 0) + (body.head ? p.head_backward_s : 0);
}

// The exchange at the ends of the model is in their prices, which were fitted with it.
double CallCost::pass_s(const PassPrices& prices, const Expansion& e, const OpBody& body,
                        bool forward) const {
  const std::vector<InsideOp>& inside = forward ? body.forward : body.backward;
  double compute = compute_s(prices, body, forward);
  for (const InsideOp& op : inside) {
    if (op.at_end) continue;
    const GroupKind over = e.groups[op.group].kind;
    if (over == GroupKind::kTensor) compute += op.times * tensor_exchange_s(prices, op.kind);
    if (over == GroupKind::kContext) compute += op.times * prices.context_exchange_s;
    if (over == GroupKind::kExperts) compute += op.times * prices.expert_exchange_s;
  }
  const double jitter = 1 + device_.efficiency.pipeline_jitter * std::log2(body.stages);
  return factor_ * jitter * with_gathers(compute, data_s(e, inside));
}

double CallCost::stage_bytes(const MicroBatch& batch) const {
  return batch.tokens * static_cast<double>(model_->spec.hidden) * widths_.activation /
         (any_body().sequence_sharded ? any_body().shards : 1);
}

double CallCost::op_s(const Expansion& e, const Op& op, const PassPrices& prices,
                      double* window_s) const {
  switch (op.kind) {
    case OpKind::kForward:
    case OpKind::kBackward:
      return prices.tokens <= 0 ? 0
                                : pass_s(prices, e, e.bodies[op.body], op.kind == OpKind::kForward);
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter:
      return reduction_s(e, op, window_s);
    case OpKind::kUpdate:
      return update_s(e, op);
    case OpKind::kAllGather:
      return return_s(e, op);
    case OpKind::kAgree:
      return trains_ ? 0 : agreement_s(e, op);
    default:
      return 0;
  }
}

double CallCost::agreement_s(const Expansion& e, const Op& op) const {
  return factor_ * collective_s(CollectiveOp::kAllReduce, op.bytes, e.groups[op.group]);
}

double CallCost::agreements_s(int stage) const {
  double seconds = 0;
  for (const Op& op : (*stages_)[stage].ops)
    if (op.kind == OpKind::kAgree && !trains_) seconds += agreement_s((*stages_)[stage], op);
  return seconds;
}

double CallCost::tally_s(int64_t bytes) const {
  const CollectiveGroup all = group(dense_copies(strategy_) * strategy_.tp * strategy_.pp, 1);
  return slowest([&](const DeviceModel& device) {
    return braid::exchange_s(CollectiveOp::kAllReduce, static_cast<double>(bytes), all, device);
  });
}

double CallCost::gather_slices_s(double bytes) const {
  const CollectiveGroup sharers = group(zero_ranks(strategy_), strategy_.tp);
  return slowest([&](const DeviceModel& device) {
    return braid::exchange_s(CollectiveOp::kAllGather, bytes, sharers, device);
  });
}

// The factor was fitted to whole updates (calibrate/predict_rl.cc), this exchange and the window of
// an update by itself included.
double CallCost::reduction_s(const Expansion& e, const Op& op, double* window_s) const {
  const OpGroup& over = e.groups[op.group];
  const double total = collective_s(collective_of(op.kind), op.bytes, over);
  if (!among_copies(over.kind)) return factor_ * total;
  const double window = window_s == nullptr ? 0 : *window_s / factor_;
  const double hidden = std::min(total, window);
  if (window_s != nullptr) *window_s -= factor_ * hidden;
  return factor_ * (device_.efficiency.dp_exposed * hidden + total - hidden);
}

double CallCost::exposed_reduce_s(int stage, double window_s) const {
  double seconds = 0;
  for (const Op& op : (*stages_)[stage].ops)
    if (op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduceScatter)
      seconds += reduction_s((*stages_)[stage], op, &window_s);
  return seconds;
}

double CallCost::return_s(const Expansion& e, const Op& op) const {
  return collective_s(CollectiveOp::kAllGather, op.bytes, e.groups[op.group]) *
         device_.efficiency.dp_exposed * factor_;
}

double CallCost::gather_s(int stage) const {
  double seconds = 0;
  for (const Op& op : (*stages_)[stage].ops)
    if (op.kind == OpKind::kAllGather) seconds += return_s((*stages_)[stage], op);
  return seconds;
}

double CallCost::update_s(const Expansion& e, const Op& op) const {
  const double trained = elements_of(e, op.what, TensorState::kMain) * trained_share_;
  return factor_ * slowest([&](const DeviceModel& device) {
           return optimizer_s(trained, kAdamTraffic, device);
         });
}

double CallCost::optimizer_step_s(int stage) const {
  for (const Op& op : (*stages_)[stage].ops)
    if (op.kind == OpKind::kUpdate) return update_s((*stages_)[stage], op);
  return 0;
}

// Trained numbers of a state that an op of the stage names.
double CallCost::held_state(int stage, OpKind kind, TensorState state) const {
  for (const Op& op : (*stages_)[stage].ops)
    if (op.kind == kind) return elements_of((*stages_)[stage], op.what, state) * trained_share_;
  return 0;
}

void RoundGroup::add(const BatchRound& round) {
  rounds += round.rounds;
  decoding = round.decoding;
  drawing += round.due > 0 ? round.rounds : 0;
  drawn += static_cast<double>(round.rounds * round.due);
  cached_tokens += static_cast<double>(round.cached_tokens);
  prefill_tokens += static_cast<double>(round.prefill_tokens);
  pages = std::max(pages, round.pages);
}

double CallCost::step_host_s() const {
  return factor_ * slowest([](const DeviceModel& device) { return device.efficiency.step_host_s; });
}

// Prefill and decode share a forward. With pipeline stages several batches are in flight: every
// stage reads its weights once for each of them, so a round takes as long as a small batch takes
// through the whole model, and where rounds follow each other the pipeline fills in each of them.
double CallCost::rounds_s(const BatchRound& round) const {
  RoundGroup group;
  group.add(round);
  return rounds_s(group);
}

// A decode step grows linearly with the context, so rounds are priced at their mean.
double CallCost::rounds_s(const RoundGroup& group) const {
  return factor_ * slowest([&](const DeviceModel& device) { return rounds_on_s(device, group); });
}

double CallCost::rounds_on_s(const DeviceModel& device, const RoundGroup& group) const {
  const ModelSize& m = model_->spec;
  const Efficiency& e = device.efficiency;
  const double stages = any_body().stages;
  double rows = static_cast<double>(group.decoding);
  if (e.decode_fill > 0) rows += group.prefill_tokens / static_cast<double>(group.rounds);
  const double batches = std::clamp(std::floor(rows / e.decode_batch_rows), 1.0, stages);
  const double fill = 1 + e.decode_fill * (batches - 1) / stages;
  double seconds = 0;
  if (group.decoding > 0) {
    DecodeStep step;
    step.sequences = static_cast<double>(group.decoding) / batches;
    step.context = group.cached_tokens / static_cast<double>(group.rounds * group.decoding);
    step.tp = any_body().shards;
    step.weight_bytes = widths_.weight;
    step.kv_bytes = widths_.cache;
    step.spans_domains = this->group(step.tp, 1).per_domain < step.tp;
    seconds += static_cast<double>(group.rounds) * decode_step_s(m, step, device);
  }
  seconds += static_cast<double>(group.rounds) *
             hand_on_s(device, (static_cast<double>(group.decoding) +
                                group.prefill_tokens / static_cast<double>(group.rounds)) /
                                   batches);
  double draws = 0;
  if (group.drawing > 0) {
    const auto rounds = static_cast<double>(group.drawing);
    draws = rounds * draw_s(device, group.drawn / rounds);
  }
  if (group.prefill_tokens > 0)
    seconds +=
        prefill_s(m, group.prefill_tokens, prompt_tokens_, any_body().shards, device) / batches;
  return fill * seconds + draws;
}

// Published decode steps have in them what their ranks send; of Braid's own engine passes alone are
// measured, on one device (pricing/own_engine.h).
bool CallCost::lists_messages(const DeviceModel& device) {
  return device.efficiency.decode_fill > 0;
}

// Hidden states of a batch on their way through the stages.
double CallCost::hand_on_s(const DeviceModel& device, double tokens) const {
  if (strategy_.pp == 1 || !lists_messages(device)) return 0;
  const int apart = mesh_index(strategy_, {0, 0, 1}) - mesh_index(strategy_, {0, 0, 0});
  const CollectiveGroup pair = group(2, apart);
  double seconds = 0;
  for (const Expansion& stage : *stages_)
    for (const Op& op : stage.ops)
      if (op.kind == OpKind::kSend)
        seconds += send_s(tokens * op.bytes, pair.per_domain > 1, pair, device.efficiency);
  return seconds;
}

// What ranks send to draw a token for each row: with the logits of all of them, once for a round.
double CallCost::draw_s(const DeviceModel& device, double rows) const {
  if (!lists_messages(device)) return 0;
  const Expansion& last = stages_->back();
  double seconds = 0;
  const auto add = [&](OpKind kind, double bytes, const OpGroup& over) {
    seconds += braid::exchange_s(collective_of(kind), bytes,
                                 group(static_cast<int>(over.members.size()), over.stride), device);
  };
  for (const InsideOp& inside : last.sampling)
    add(inside.kind, inside.times * bytes_of(inside, rows), last.groups[inside.group]);
  for (const Op& op : last.ops)
    if (op.kind == OpKind::kBroadcast) add(op.kind, rows * op.bytes, last.groups[op.group]);
  return seconds;
}

double CallCost::activation_bytes(const MicroBatch& batch, int part) const {
  const Efficiency& e = device_.efficiency;
  const ModelSize& m = model_->spec;
  const OpBody& body = body_of(part);
  const LayerKind kind = m.experts > 0 ? LayerKind::kMoe : LayerKind::kDense;
  const double layer =
      e.mem_fused_factor *
      activation_bytes_per_token(m, kind, body.shards, body.sequence_sharded, widths_.activation);
  const double input = widths_.activation * static_cast<double>(m.hidden) /
                       (body.sequence_sharded ? body.shards : 1);
  const double kept = kept_share(body.recompute, e);
  const auto layers = static_cast<double>(body.layers.size());
  return batch.tokens * layers * (kept * layer + (kept < 1 ? input : 0));
}

double CallCost::working_bytes(const MicroBatch& batch) const {
  const Efficiency& e = device_.efficiency;
  const ModelSize& m = model_->spec;
  const OpBody& body = any_body();
  const LayerKind kind = m.experts > 0 ? LayerKind::kMoe : LayerKind::kDense;
  const double layer =
      batch.tokens * e.mem_fused_factor *
      activation_bytes_per_token(m, kind, body.shards, body.sequence_sharded, widths_.activation);
  const double kept = trains_ ? kept_share(body.recompute, e) : 1;
  return (e.mem_work_layers * (1 - kept) + e.mem_work_share) * layer;
}

double CallCost::logit_bytes(const MicroBatch& batch) const {
  if (scalar_head_) return 0;
  const Efficiency& e = device_.efficiency;
  const double tokens = std::min(batch.tokens, kHeadChunkTokens);
  const double entries = static_cast<double>(model_->spec.vocab) / any_body().shards;
  // What a profile measured of the head comes while no layer is worked on.
  if (e.mem_logit_bytes <= 0)
    return std::max(0.0, entries * e.mem_head_bytes - working_bytes(batch));
  return entries * tokens * (e.mem_logit_bytes + widths_.extra_logit);
}

// Two blocks with prefetching, the ends of the model, and the block whose gradients are being
// reduced (pricing/memory.cc).
double CallCost::gathered_bytes(int stage) const {
  const Expansion& e = (*stages_)[stage];
  const bool gathers =
      std::any_of(e.bodies.front().forward.begin(), e.bodies.front().forward.end(),
                  [&](const InsideOp& op) { return among_copies(e.groups[op.group].kind); });
  if (!gathers) return 0;
  double block = 0, ends = 0;
  for (const TensorKind& kind : kinds_) {
    const auto elements =
        static_cast<double>(kind.elements) / (kind.routed ? any_body().expert_parts : 1);
    if (kind.layer_end == model_->spec.layers) block += elements;
    const bool end =
        (kind.first && e.bodies.front().embedding) || (kind.last && e.bodies.back().head);
    if (end) ends += elements;
  }
  const double reduced = trains_ && !model_->trainable.lora ? block * widths_.reduced : 0;
  return ((2 * block + ends) * widths_.gathered + reduced) / any_body().shards;
}

double CallCost::gradient_bytes(int stage) const {
  return held_state(stage, OpKind::kZero, TensorState::kGradients) *
         std::max(widths_.least_gradient, device_.efficiency.mem_gradient_bytes);
}

double CallCost::optimizer_bytes(int stage) const {
  return held_state(stage, OpKind::kUpdate, TensorState::kMain) * widths_.optimizer;
}

double CallCost::packed_bytes(size_t mesh_index, bool several_passes) const {
  const Efficiency& e = device_.efficiency;
  const double share = trains_ ? e.mem_packed_train_share : e.mem_packed_share;
  return several_passes && packs() ? share * weight_bytes(mesh_index) : 0;
}

double CallCost::weight_bytes(size_t mesh_index) const {
  return held_parameters(kinds_, layout_, model_->spec.layers, mesh_index) * widths_.weight;
}

double CallCost::cache_bytes_per_token() const {
  const ModelSize& m = model_->spec;
  const auto parts = static_cast<double>(kv_cache_parts(m, any_body().shards) * any_body().stages);
  return kv_bytes_per_token(m, widths_.cache) / parts;
}

double CallCost::prefill_bytes(double tokens) const {
  const ModelSize& m = model_->spec;
  const double width =
      3.0 * static_cast<double>(m.intermediate) + 4.0 * static_cast<double>(m.hidden);
  return device_.efficiency.mem_prefill_factor * tokens * widths_.activation * width /
         any_body().shards;
}

}  // namespace braid::inline sim
