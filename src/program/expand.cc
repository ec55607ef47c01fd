#include "program/expand.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "pricing/own_engine.h"
#include "program/fused.h"
#include "program/placement.h"
#include "program/tensor_exchanges.h"

namespace braid::inline program {
namespace {

using Kind = ScheduleOp::Kind;

// What stages tell each other of a sequence: its token and the log-prob, in f64.
constexpr double kTokenBytes = 16;
// Of an update: the squares of gradients; what ranks decide alike (refusal, divergence and its
// count, memory), in f64. Of a round: largest and smallest hash, and memory, in i64. Of inference:
// memory, in i32.
constexpr double kSquaresBytes = 8, kUpdateAgreementBytes = 32, kRoundAgreementBytes = 24,
                 kInferAgreementBytes = 4;

// Part `rank` of `count` of a slice.
Interval part_of(const Interval& slice, int rank, int count) {
  return {slice.begin + run_begin(slice.size(), rank, count),
          slice.begin + run_begin(slice.size(), rank + 1, count)};
}

int32_t layers_in(const TensorKind& kind, const Interval& layers) {
  return static_cast<int32_t>(
      std::max<int64_t>(0, std::min<int64_t>(kind.layer_end, layers.end) -
                               std::max<int64_t>(kind.layer_begin, layers.begin)));
}

NumberWidths widths_of_call(const CallFrame& frame) {
  const auto& precision = frame.where->strategy.precision;
  return precision ? widths_of(*precision) : frame.model->widths;
}

ParamLayout whole(const CallFrame& frame) {
  ParamLayout layout = param_layout(frame.where->mesh, frame.where->strategy);
  layout.sharded = false;
  return layout;
}

GridPosition position_of(const CallFrame& frame, DeviceId rank) {
  const GridPosition at = position_in(*frame.where, rank);
  BRAID_CHECK(at.dp_rank >= 0, "the rank is not in the mesh of the call");
  return at;
}

class Expander {
 public:
  explicit Expander(const CallFrame& frame)
      : frame_(frame),
        s_(frame.where->strategy),
        model_(*frame.model),
        widths_(widths_of_call(frame)),
        trained_(trained_parts(*frame.model)),
        whole_(whole(frame)) {}

  Expander& at(const GridPosition& at) {
    out_.call = frame_.call, out_.at = at;
    out_.rank = frame_.where->mesh.devices[mesh_index(s_, at)];
    held_at_ = {copy_rank(s_, at), at.tp_rank, at.stage};
    for (int chunk = 0; chunk < s_.interleave; ++chunk) add_body(chunk);
    return *this;
  }

  Expansion infer(const Partition& partition) {
    minibatch_ = 0;
    pass(partition, 0);
    // A replica that has nothing of the early part is not there.
    const auto over = ends_alike(frame_);
    if (over && !(frame_.early && out_.ops.empty()))
      collective(OpKind::kAgree, group(*over), kInferAgreementBytes, -1);
    return std::move(out_);
  }

  Expansion train(const Partition& partition) {
    for (size_t i = 0; i < partition.minibatches.size(); ++i) {
      begin_minibatch(i, partition.minibatches[i].begun);
      pass(partition, i);
      if (!partition.minibatches[i].goes_on) finish_minibatch();
    }
    return std::move(out_);
  }

  Expansion round(const RoundWork& round) {
    run_ = OpKind::kRound;
    const double rows = static_cast<double>(round.due < 0 ? round.decoding : round.due);
    const std::vector<int64_t> whole = {round.decoding + round.prefill_tokens};
    for (int chunk = 0; chunk < s_.interleave; ++chunk) {
      micro_batch_ = 0;
      for (const int64_t tokens : round.batches.empty() ? whole : round.batches) {
        run_part({Kind::kForward, out_.at.stage, 0, chunk}, static_cast<double>(tokens));
        ++micro_batch_;
      }
    }
    micro_batch_ = 0;
    if (out_.at.stage == s_.pp - 1) {
      const int32_t computed = last();
      Op& sample = append(OpKind::kSample);
      sample.after[0] = computed;
      if (s_.tp > 1) {
        sample.group = group(GroupKind::kTensor);
        out_.sampling = list_draw({sample.group, s_.tp}, vocabulary(), round.sampling);
        for (const InsideOp& inside : out_.sampling) sample.bytes += bytes_of(inside, rows);
      }
    }
    const int32_t replica = group(GroupKind::kReplica);
    if (s_.pp > 1) collective(OpKind::kBroadcast, replica, rows * kTokenBytes, -1);
    run_ = OpKind::kAgree;
    if (round.agrees && s_.tp * s_.pp > 1)
      collective(OpKind::kAgree, replica, kRoundAgreementBytes, -1);
    return std::move(out_);
  }

 private:
  void begin_minibatch(size_t minibatch, bool begun) {
    minibatch_ = static_cast<int32_t>(minibatch);
    run_ = OpKind::kPasses;
    if (!begun) append(OpKind::kZero).what = gradients();
  }
  // Nothing where the rank has fewer micro-batches.
  void pass_one(const Partition& partition, const ScheduleOp& op) {
    const auto& tokens = partition.minibatches[minibatch_].tokens[out_.at.dp_rank];
    if (op.micro_batch >= static_cast<int64_t>(tokens.size())) return;
    micro_batch_ = op.micro_batch;
    run_part(op, static_cast<double>(tokens[op.micro_batch]) / s_.cp);
    micro_batch_ = -1;
  }
  void finish_minibatch() {
    finish_gradients();
    update();
  }

  Op& append(OpKind kind) {
    Op op;
    op.kind = kind, op.run = run_;
    op.minibatch = minibatch_, op.micro_batch = micro_batch_;
    op.version = std::max(0, minibatch_);
    out_.ops.push_back(op);
    return out_.ops.back();
  }
  int32_t last() const { return static_cast<int32_t>(out_.ops.size()) - 1; }

  int32_t group(GroupKind kind) {
    OpGroup group = group_of(frame_, kind, out_.at);
    const auto found = std::find(out_.groups.begin(), out_.groups.end(), group);
    const auto index = static_cast<int32_t>(found - out_.groups.begin());
    if (found == out_.groups.end()) out_.groups.push_back(std::move(group));
    return index;
  }

  Op& collective(OpKind kind, int32_t group, double bytes, int32_t what) {
    const int32_t before = last();
    Op& op = append(kind);
    op.group = group, op.bytes = bytes, op.what = what;
    op.after[0] = before;
    return op;
  }

  // Ranks that hold the same parameters, and of them those that ZeRO shards over: one grid for all
  // tensors, or one for the routed experts and one for the others.
  struct Grid {
    bool routed = false, others = true;  // what is in it
    GroupKind copies = GroupKind::kData, shards = GroupKind::kData, across = GroupKind::kAcross;
    int ranks = 1;  // that ZeRO shards over
    bool has(const TensorKind& kind) const { return kind.routed ? routed : others; }
  };
  std::vector<Grid> grids() const {
    const bool part = zero_ranks(s_) < dense_copies(s_);
    Grid all{true,
             true,
             GroupKind::kData,
             part ? GroupKind::kShards : GroupKind::kData,
             GroupKind::kAcross,
             zero_ranks(s_)};
    const bool routes = std::any_of(model_.kinds.begin(), model_.kinds.end(),
                                    [](const TensorKind& kind) { return kind.routed; });
    if (!routes || !own_expert_grid(s_)) return {all};
    all.routed = false;
    return {all,
            {true, false, GroupKind::kExpertData,
             part ? GroupKind::kExpertShards : GroupKind::kExpertData, GroupKind::kExpertAcross,
             expert_zero_ranks(s_)}};
  }
  // Ranks that ZeRO shards over; 1 without it.
  int shards() const { return s_.zero_stage > 0 ? zero_ranks(s_) : 1; }
  // The whole slice of a tensor, or what this rank owns of it.
  Interval slice_of(const TensorKind& kind, bool owned) const {
    const Interval slice = held_elements(kind, whole_, held_at_);
    if (!owned) return slice;
    if (!kind.routed || !own_expert_grid(s_))
      return part_of(slice, held_at_.dp_rank % zero_ranks(s_), zero_ranks(s_));
    const int block = (held_at_.dp_rank * s_.tp + held_at_.tp_rank) / (s_.ep * expert_tp(s_));
    return part_of(slice, block % expert_zero_ranks(s_), expert_zero_ranks(s_));
  }

  // Bodies and what happens inside of them.
  void add_body(int chunk) {
    OpBody body;
    body.part = chunk * s_.pp + out_.at.stage;
    body.layers = part_layers(s_, model_.layers, body.part);
    body.embedding = body.part == 0;
    body.head = body.part == s_.pp * s_.interleave - 1;
    body.trains = frame_.kind == CallKind::kTrainStep;
    body.recompute = s_.recompute;
    body.shards = s_.tp, body.sequence_sharded = s_.sequence_parallel, body.stages = s_.pp;
    body.expert_parts = s_.ep;
    if (s_.tp > 1) add_tensor_parallel(&body);
    if (s_.cp > 1) add_context_parallel(&body);
    if (s_.ep > 1) add_expert_parallel(&body);
    if (shards() > 1 && s_.zero_stage >= 2) add_data_parallel(&body);
    out_.bodies.push_back(std::move(body));
  }

  void add_tensor_parallel(OpBody* body) {
    const double hidden = static_cast<double>(model_.hidden) * widths_.activation;
    list_tensor_exchanges(
        {group(GroupKind::kTensor), s_.tp, s_.sequence_parallel, model_.reduction,
         widths_.activation, hidden},
        trained_, frame_.kind != CallKind::kGenerate && frame_.reads_vocabulary && vocabulary() > 0,
        body);
  }

  // Tokens of the vocabulary; 0 without a language model's head.
  int64_t vocabulary() const {
    for (const TensorKind& kind : model_.kinds)
      if (kind.last && kind.units > 1) return kind.units;
    return 0;
  }

  // Keys and values of the other ranks' tokens; the backward also sums their gradients (Liu et al.,
  // "Ring Attention with Blockwise Transformers", arXiv 2310.01889).
  void add_context_parallel(OpBody* body) {
    const auto layers = static_cast<double>(body->layers.size());
    const double bytes = static_cast<double>(model_.cached) / s_.tp * widths_.activation * s_.cp;
    const int32_t ring = group(GroupKind::kContext);
    if (layers == 0) return;
    body->forward.push_back({OpKind::kAllGather, ring, layers, 0, bytes});
    body->backward.push_back({OpKind::kAllGather, ring, layers, 0, bytes});
    body->backward.push_back({OpKind::kReduceScatter, ring, layers, 0, bytes});
  }

  // Tokens to the ranks of their experts and back.
  void add_expert_parallel(OpBody* body) {
    double times = 0;
    for (const TensorKind& kind : model_.kinds)
      if (kind.routed) times += 2 * layers_in(kind, body->layers);
    if (times == 0) return;
    const double bytes =
        static_cast<double>(model_.routes * model_.hidden) / s_.tp * widths_.activation;
    const double again = s_.recompute == Recompute::kFull ? 2 : 1;
    const int32_t parts = group(GroupKind::kExperts);
    body->forward.push_back({OpKind::kAllToAll, parts, times, 0, bytes});
    body->backward.push_back({OpKind::kAllToAll, parts, again * times, 0, bytes});
  }

  // ZeRO-3 brings the weights of a layer for its forward, and again for its backward; those of a
  // tied embedding at both ends of the model.
  void add_data_parallel(OpBody* body) {
    const double layers = std::max(1.0, static_cast<double>(body->layers.size()));
    const auto flows = layer_flows(*body, trained_);
    const auto left = static_cast<double>(
        std::count_if(flows.begin(), flows.end(), [](const LayerFlow& f) { return f.output; }));
    for (const Grid& grid : grids()) {
      if (grid.ranks == 1) continue;
      const auto add = [&](std::vector<InsideOp>* list, OpKind kind, double bytes) {
        list->push_back({kind, group(grid.shards), layers, bytes / layers, 0});
      };
      const double of_layers = elements_of(model_.kinds, grid, body->layers),
                   first = body->embedding ? elements_of_end(grid, &TensorKind::first) : 0,
                   last = body->head ? elements_of_end(grid, &TensorKind::last) : 0;
      if (of_layers + first + last == 0) continue;
      const double gathered = widths_.gathered;
      if (s_.zero_stage == 3)
        add(&body->forward, OpKind::kAllGather, (first + of_layers + last) * gathered);
      if (s_.zero_stage == 3 && body->trains)
        add(&body->backward, OpKind::kAllGather, (of_layers * left / layers + last) * gathered);
      if (body->trains)
        add(&body->backward, OpKind::kReduceScatter,
            trained_elements(*body, grid) * widths_.reduced);
    }
  }

  // Parameters on this tensor-parallel rank: of layers, and of what an end of the model holds.
  double held(const TensorKind& kind) const {
    return static_cast<double>(held_elements(kind, whole_, held_at_).size());
  }
  double elements_of(const std::vector<TensorKind>& kinds, const Grid& grid,
                     const Interval& layers) const {
    double sum = 0;
    for (const TensorKind& kind : kinds)
      if (grid.has(kind)) sum += held(kind) * layers_in(kind, layers);
    return sum;
  }
  double elements_of_end(const Grid& grid, bool TensorKind::*end) const {
    double sum = 0;
    for (const TensorKind& kind : model_.kinds)
      if (grid.has(kind) && kind.*end) sum += held(kind);
    return sum;
  }
  // What training changes of a body.
  double trained_elements(const OpBody& body, const Grid& grid) const {
    const bool adapters = knows_adapters(model_);
    const std::vector<TensorKind>& kinds = adapters ? model_.changed : model_.kinds;
    double sum = elements_of(kinds, grid, body.layers);
    for (const TensorKind& kind : kinds)
      if (grid.has(kind) && ((kind.first && body.embedding) || (kind.last && body.head)))
        sum += held(kind);
    return adapters ? sum : sum * model_.trained_share;
  }

  // Forwards and backwards of one mini-batch, and the messages between stages.
  void pass(const Partition& partition, size_t minibatch) {
    const auto& batches = partition.minibatches[minibatch].micro_batches[out_.at.dp_rank];
    if (frame_.fused != nullptr) {
      BRAID_CHECK(std::ssize(batches) <= s_.micro_batches, "more micro-batches than are fused");
      for (const ScheduleOp& op : fused_ops(frame_, out_.rank)) pass_one(partition, op);
      return;
    }
    const Schedule schedule = schedule_of(s_, frame_.kind, static_cast<int64_t>(batches.size()));
    for (const ScheduleOp& op : schedule.per_stage[out_.at.stage]) pass_one(partition, op);
  }

  void run_part(const ScheduleOp& op, double tokens) {
    const bool forward = op.kind == Kind::kForward;
    const OpBody& body = out_.bodies[op.chunk];
    const int parts = s_.pp * s_.interleave;
    const double rows = s_.sequence_parallel ? std::ceil(tokens / s_.tp) : tokens;
    const double bytes = rows * static_cast<double>(model_.hidden) * widths_.activation;
    // A part takes its input from the cut before it, forward, and from the cut after it, backward.
    const int in = forward ? body.part : body.part + 1, out = forward ? body.part + 1 : body.part;
    const int32_t input = message(OpKind::kReceive, forward, op.chunk, in, bytes);
    int32_t loss = -1;
    if (!forward && in == parts) {
      Op& entry = append(OpKind::kLoss);
      entry.body = op.chunk;
      loss = last();
    }
    Op& entry = append(forward ? OpKind::kForward : OpKind::kBackward);
    entry.body = op.chunk;
    entry.after[0] = std::max(input, loss);
    if (body.trains) entry.holds = forward ? 1 : -1;
    message(OpKind::kSend, forward, op.chunk, out, bytes);
  }

  // The message over a cut of the model, or -1 where both sides are this stage or an end.
  int32_t message(OpKind kind, bool forward, int chunk, int cut, double bytes) {
    const int parts = s_.pp * s_.interleave;
    if (cut == 0 || cut == parts || s_.pp == 1) return -1;
    const int32_t computed = last();
    const int mine = out_.bodies[chunk].part;
    const int other = mine == cut ? cut - 1 : cut;
    GridPosition peer = out_.at;
    peer.stage = other % s_.pp;
    Op& op = append(kind);
    op.channel = forward ? Channel::kActivations : Channel::kGradients;
    op.peer = frame_.where->mesh.devices[mesh_index(s_, peer)];
    op.body = chunk, op.cut = cut, op.bytes = bytes;
    if (kind == OpKind::kSend) op.after[0] = computed;
    return last();
  }

  // State of this rank: slices of a filter's kinds.
  template <typename Filter>
  int32_t slices(std::initializer_list<TensorState> states, bool owned, const Filter& filter) {
    std::vector<TensorSlice> list;
    for (const TensorState state : states)
      for (size_t item = 0; item < model_.kinds.size(); ++item) {
        const TensorKind& kind = model_.kinds[item];
        if (!filter(kind)) continue;
        const Interval elements = slice_of(kind, owned);
        for (const Interval& layers : held_layers(kind, whole_, model_.layers, out_.at.stage))
          list.push_back({frame_.where->copy, state, static_cast<int32_t>(item), layers, elements});
      }
    const auto found = std::find(out_.tensors.begin(), out_.tensors.end(), list);
    const auto index = static_cast<int32_t>(found - out_.tensors.begin());
    if (found == out_.tensors.end()) out_.tensors.push_back(std::move(list));
    return index;
  }
  bool owns_part() const { return shards() > 1; }
  static bool every(const TensorKind&) { return true; }
  int32_t gradients() { return slices({TensorState::kGradients}, shards_gradients(), every); }
  bool shards_gradients() const { return shards() > 1 && s_.zero_stage >= 2; }

  // What training changes of an entry of the tensors whose kinds the filter takes.
  template <typename Filter>
  double trained_elements(int32_t what, TensorState state, bool owned, const Filter& filter) const {
    if (!knows_adapters(model_))
      return braid::elements_of(out_, what, state) * model_.trained_share;
    double sum = 0;
    for (const TensorKind& kind : model_.changed) {
      if (!filter(kind)) continue;
      for (const Interval& layers : held_layers(kind, whole_, model_.layers, out_.at.stage))
        sum += static_cast<double>(slice_of(kind, owned).size() * layers.size());
    }
    return sum;
  }

  template <typename Filter>
  void reduce(OpKind kind, GroupKind over, bool owned, const Filter& filter) {
    const int32_t what = slices({TensorState::kGradients}, owned, filter);
    if (out_.tensors[what].empty()) return;
    const double elements = trained_elements(what, TensorState::kGradients, owned, filter);
    collective(kind, group(over), elements * widths_.reduced, what);
  }

  // Sums the gradients of every tensor over the ranks that have a part of it.
  void finish_gradients() {
    const bool owned = shards_gradients();
    if (s_.tp > 1)
      reduce(OpKind::kAllReduce, GroupKind::kTensor, owned, [&](const TensorKind& kind) {
        // Tokens are shared out, or heads; an adapter's halves meet in the sum.
        return is_partial(model_, kind, s_.sequence_parallel);
      });
    if (group_of(frame_, GroupKind::kShared, out_.at).members.size() > 1)
      reduce(OpKind::kAllReduce, GroupKind::kShared, owned, [&](const TensorKind& kind) {
        return kind.units > 1 && kind.units < s_.tp && !kind.routed;
      });
    if (s_.pp > 1 && (out_.at.stage == 0 || out_.at.stage == s_.pp - 1))
      reduce(OpKind::kAllReduce, GroupKind::kEnds, owned,
             [](const TensorKind& kind) { return kind.first && kind.last; });
    run_ = OpKind::kReduce;
    for (const Grid& grid : grids()) reduce_copies(grid);
  }

  void reduce_copies(const Grid& grid) {
    const auto filter = [&](const TensorKind& kind) { return grid.has(kind); };
    if (shards() == 1) {
      if (group_of(frame_, grid.copies, out_.at).members.size() > 1)
        reduce(OpKind::kAllReduce, grid.copies, false, filter);
      return;
    }
    if (s_.zero_stage == 1 && grid.ranks > 1)
      reduce(OpKind::kReduceScatter, grid.shards, false, filter);
    if (grid.shards != grid.copies && group_of(frame_, grid.across, out_.at).members.size() > 1)
      reduce(OpKind::kAllReduce, grid.across, true, filter);
  }

  void update() {
    run_ = OpKind::kAgree;
    const int32_t everyone = group(GroupKind::kCall);
    const int32_t squares = slices({TensorState::kGradients}, owns_part(), every);
    collective(OpKind::kNorm, everyone, kSquaresBytes, squares);
    collective(OpKind::kAgree, everyone, kUpdateAgreementBytes, -1);
    const int32_t state = slices({TensorState::kMain, TensorState::kMoments, TensorState::kWeights},
                                 owns_part(), every);
    run_ = OpKind::kUpdate;
    append(OpKind::kUpdate).what = state;
    run_ = OpKind::kAllGather;
    if (shards() == 1 || s_.zero_stage == 3) return;
    for (const Grid& grid : grids()) gather_weights(grid);
  }

  // The way back of updated weights.
  void gather_weights(const Grid& grid) {
    const auto filter = [&](const TensorKind& kind) { return grid.has(kind); };
    const int32_t weights = slices({TensorState::kWeights}, false, filter);
    if (out_.tensors[weights].empty() || grid.ranks == 1) return;
    const double elements = trained_elements(weights, TensorState::kWeights, false, filter);
    Op& gather =
        collective(OpKind::kAllGather, group(grid.shards), elements * widths_.gathered, weights);
    gather.version = minibatch_ + 1;
  }

  const CallFrame& frame_;
  const Strategy& s_;
  const ModelShape& model_;
  const NumberWidths widths_;
  const TrainedParts trained_;
  GridPosition held_at_;  // in the grid of the layout
  ParamLayout whole_;     // what tensor parallelism and stages leave to a rank, before ZeRO-3
  Expansion out_;
  OpKind run_ = OpKind::kCall;  // what executes the ops that come next
  int32_t minibatch_ = -1, micro_batch_ = -1;
};

}  // namespace

const std::vector<InsideOp>& inside_of(const Expansion& expansion, const Op& op) {
  if (op.kind == OpKind::kSample) return expansion.sampling;
  const OpBody& body = expansion.bodies[op.body];
  return op.kind == OpKind::kForward ? body.forward : body.backward;
}

double bytes_of(const InsideOp& inside, double tokens) {
  const double bytes = inside.bytes + inside.bytes_per_token * tokens;
  return inside.multiple > 0 ? std::ceil(bytes / inside.multiple) * inside.multiple : bytes;
}

double elements_of(const Expansion& expansion, int32_t what, TensorState state) {
  double sum = 0;
  for (const TensorSlice& slice : expansion.tensors[what])
    if (slice.state == state)
      sum += static_cast<double>(slice.elements.size() * slice.layers.size());
  return sum;
}

bool sums_copies(const Strategy& s) {
  return dense_copies(s) > 1 || dense_copies(s) * s.tp > s.ep * expert_tp(s);
}

std::optional<GroupKind> ends_alike(const CallFrame& frame) {
  const Strategy& s = frame.where->strategy;
  const bool replica = s.tp * s.cp * s.pp > 1, gathers = s.zero_stage == 3 && zero_ranks(s) > 1;
  if (frame.kind == CallKind::kTrainStep || (!replica && !gathers)) return std::nullopt;
  if (!frame.early) return GroupKind::kCall;
  return replica ? std::optional(GroupKind::kReplica) : std::nullopt;
}

Schedule schedule_of(const Strategy& s, CallKind kind, int64_t micro_batches) {
  const auto m = static_cast<int32_t>(micro_batches);
  if (kind != CallKind::kTrainStep) return forward_only(s.pp, s.interleave, m);
  if (s.schedule == PipelineOrder::kAllForwardFirst) return gpipe(s.pp, m);
  return interleaved_one_f_one_b(s.pp, s.interleave, m);
}

GridPosition position_in(const CallPlacement& where, DeviceId rank) {
  const auto& devices = where.mesh.devices;
  const auto found = std::find(devices.begin(), devices.end(), rank);
  if (found == devices.end()) return {-1, -1, -1, -1};
  return grid_position(where.strategy, found - devices.begin());
}

CallFrame call_frame(const Program& program, CallId call, SamplePart part) {
  const Call& entry = program.graph.calls[call.value];
  BRAID_CHECK(!program.calls.empty() && uses_model(entry), "call " + entry.name + " has no model");
  CallFrame out{call, entry.kind, &program.calls[call.value], find_shape(program, entry.role)};
  BRAID_CHECK(out.model != nullptr, "role " + entry.role.value + " has no model");
  out.reads_vocabulary = reads_vocabulary(entry);
  out.early = entry.kind != CallKind::kTrainStep && begins_apart(program, call, part);
  const PlaceInPair place = place_in_pair(program, call);
  if (place.entry >= 0) out.fused = &program.fused[place.entry], out.of_pair = place.of_pair;
  return out;
}

bool reads_vocabulary(const Call& call) {
  return call.kind != CallKind::kInfer || call.function != "values";
}

CallFrame alone(CallFrame frame) {
  frame.fused = nullptr;
  return frame;
}

Expansion expand(const CallFrame& frame, DeviceId rank, const Partition& partition) {
  BRAID_CHECK(frame.kind != CallKind::kGenerate, "generation runs in rounds");
  return frame.kind == CallKind::kTrainStep
             ? Expander(frame).at(position_of(frame, rank)).train(partition)
             : Expander(frame).at(position_of(frame, rank)).infer(partition);
}
Expansion expand(const Program& program, CallId call, DeviceId rank, const Partition& partition,
                 SamplePart part) {
  return expand(call_frame(program, call, part), rank, partition);
}

std::vector<int64_t> cut_round(const std::vector<int64_t>& tokens, int stages) {
  const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
  const auto sequences = static_cast<int64_t>(tokens.size());
  const int64_t batches =
      std::max<int64_t>(1, std::min({int64_t{stages}, sequences, all / kRowsOfPass}));
  std::vector<int64_t> out(batches);
  int64_t sum = 0, batch = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    // A batch ends at its share of the tokens, and where the sequences left are one for each other.
    const bool full = out[batch] > 0 && sum * batches >= all * (batch + 1);
    const bool last_ones = out[batch] > 0 && sequences - i < batches - batch;
    if (batch + 1 < batches && (full || last_ones)) ++batch;
    sum += tokens[i];
    ++out[batch];
  }
  return out;
}

Expansion expand(const CallFrame& frame, DeviceId rank, const RoundWork& round) {
  BRAID_CHECK(frame.kind == CallKind::kGenerate, "only generation runs in rounds");
  return Expander(frame).at(position_of(frame, rank)).round(round);
}
Expansion expand(const Program& program, CallId call, DeviceId rank, const RoundWork& round) {
  return expand(call_frame(program, call), rank, round);
}

}  // namespace braid::inline program
