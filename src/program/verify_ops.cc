#include "program/verify_ops.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "program/verify_meetings.h"
#include "program/verify_sums.h"

namespace braid::inline program {
namespace {

Status wrong(const Expansion& e, size_t op, const std::string& what) {
  return invalid_input(
      cat("rank ", e.rank, ", op ", op, " (", op_kind_name(e.ops[op].kind), "): ", what));
}

Status left_out(const Expansion& e, int32_t minibatch, const std::string& what) {
  return invalid_input(cat("rank ", e.rank, ", mini-batch ", minibatch, ": ", what));
}

// One rank of each stage of a rank's pipeline, in the order of the stages.
std::vector<DeviceId> pipeline_of(const CallFrame& frame, const GridPosition& at) {
  const Strategy& s = frame.where->strategy;
  std::vector<DeviceId> out;
  GridPosition place = at;
  for (place.stage = 0; place.stage < s.pp; ++place.stage)
    out.push_back(frame.where->mesh.devices[mesh_index(s, place)]);
  return out;
}

// The passes of one rank, what they hold, and the messages between them and other stages. Of a
// round of generation the mini-batch is -1.
class Passes {
 public:
  // `batches`: micro-batches of each mini-batch, from `first` on.
  Passes(const Expansion& e, bool trains, int32_t first, std::vector<int64_t> batches)
      : e_(e), trains_(trains), first_(first), batches_(std::move(batches)) {}

  Status verify() {
    for (size_t i = 0; i < e_.ops.size(); ++i) {
      const OpKind kind = e_.ops[i].kind;
      if (kind == OpKind::kForward) BRAID_TRY(forward(i));
      if (kind == OpKind::kLoss) BRAID_TRY(loss(i));
      if (kind == OpKind::kBackward) BRAID_TRY(backward(i));
      if (kind == OpKind::kSend) BRAID_TRY(send(i));
      if (kind == OpKind::kReceive) BRAID_TRY(receive(i));
    }
    return all_there();
  }

 private:
  // Mini-batch, micro-batch, and the body, part or cut.
  using Place = std::tuple<int32_t, int32_t, int32_t>;
  using Places = std::map<Place, int32_t>;  // to the op there

  Place place(const Op& op) const { return {op.minibatch, op.micro_batch, op.body}; }
  int32_t parts() const {
    return static_cast<int32_t>(e_.bodies.size()) * e_.bodies.front().stages;
  }
  // Whether a micro-batch comes over a cut of the model in a message.
  bool is_sent(int32_t cut) const {
    return e_.bodies.front().stages > 1 && cut > 0 && cut < parts();
  }
  static int32_t at(const Places& places, const Place& place) {
    const auto found = places.find(place);
    return found == places.end() ? -1 : found->second;
  }
  bool waits(size_t op, int32_t before) const {
    const auto& after = e_.ops[op].after;
    return std::find(after.begin(), after.end(), before) != after.end();
  }
  Status waits_for(size_t op, int32_t before, const char* what) const {
    if (before < 0) return wrong(e_, op, cat("before ", what));
    return waits(op, before) ? ok_status() : wrong(e_, op, cat("does not wait for ", what));
  }
  static bool add(Places* places, const Place& place, size_t op) {
    return places->emplace(place, static_cast<int32_t>(op)).second;
  }

  Status forward(size_t i) {
    const Op& op = e_.ops[i];
    if (!add(&forwards_, place(op), i)) return wrong(e_, i, "passes again");
    if (op.holds != (trains_ ? 1 : 0)) return wrong(e_, i, "does not keep its activations");
    const int32_t part = e_.bodies[op.body].part;
    if (!is_sent(part)) return ok_status();
    return waits_for(i, at(activations_in_, {op.minibatch, op.micro_batch, part}),
                     "the activation that it reads");
  }
  Status loss(size_t i) {
    if (!add(&losses_, place(e_.ops[i]), i)) return wrong(e_, i, "occurs again");
    if (at(forwards_, place(e_.ops[i])) < 0) return wrong(e_, i, "before its forward");
    return ok_status();
  }
  Status backward(size_t i) {
    const Op& op = e_.ops[i];
    if (at(forwards_, place(op)) < 0) return wrong(e_, i, "before its forward");
    if (!add(&backwards_, place(op), i)) return wrong(e_, i, "passes again");
    if (op.holds != -1) return wrong(e_, i, "does not free its activations");
    if (e_.bodies[op.body].head) return waits_for(i, at(losses_, place(op)), "the loss");
    const int32_t cut = e_.bodies[op.body].part + 1;
    if (!is_sent(cut)) return ok_status();
    return waits_for(i, at(gradients_in_, {op.minibatch, op.micro_batch, cut}),
                     "the gradient that it begins with");
  }

  Status send(size_t i) {
    const Op& op = e_.ops[i];
    const bool forwards = op.channel == Channel::kActivations;
    if (!add(forwards ? &activations_out_ : &gradients_out_, {op.minibatch, op.micro_batch, op.cut},
             i))
      return wrong(e_, i, "sends again");
    if (e_.bodies[op.body].part + (forwards ? 1 : 0) != op.cut)
      return wrong(e_, i, "sends what its part of the model does not give");
    return waits_for(i, at(forwards ? forwards_ : backwards_, place(op)), "what it sends");
  }
  Status receive(size_t i) {
    const Op& op = e_.ops[i];
    const bool forwards = op.channel == Channel::kActivations;
    if (!add(forwards ? &activations_in_ : &gradients_in_, {op.minibatch, op.micro_batch, op.cut},
             i))
      return wrong(e_, i, "receives again");
    return e_.bodies[op.body].part + (forwards ? 0 : 1) == op.cut
               ? ok_status()
               : wrong(e_, i, "receives what its part of the model does not take");
  }

  Status all_there() const {
    for (size_t m = 0; m < batches_.size(); ++m)
      for (int64_t k = 0; k < batches_[m]; ++k)
        for (size_t body = 0; body < e_.bodies.size(); ++body)
          BRAID_TRY(all_there(first_ + static_cast<int32_t>(m), static_cast<int32_t>(k),
                              static_cast<int32_t>(body)));
    return ok_status();
  }
  Status all_there(int32_t minibatch, int32_t micro_batch, int32_t body) const {
    const Place here{minibatch, micro_batch, body};
    const int32_t part = e_.bodies[body].part;
    const auto lacks = [&](const char* what) {
      return left_out(
          e_, minibatch,
          cat("micro-batch ", micro_batch, " does not pass part ", part, " of the model ", what));
    };
    const auto sends = [&](const Places& sent, int32_t cut) {
      return !is_sent(cut) || at(sent, {minibatch, micro_batch, cut}) >= 0;
    };
    if (at(forwards_, here) < 0) return lacks("forward");
    if (!sends(activations_out_, part + 1)) return lacks("on, forward");
    if (!trains_) return ok_status();
    if (at(backwards_, here) < 0) return lacks("backward");
    return sends(gradients_out_, part) ? ok_status() : lacks("on, backward");
  }

  const Expansion& e_;
  const bool trains_;
  const int32_t first_;
  const std::vector<int64_t> batches_;
  Places forwards_, losses_, backwards_;
  Places activations_in_, activations_out_, gradients_in_, gradients_out_;
};

// The position of a rank in the grid of the call's layout.
GridPosition place_in(const ParamLayout& layout, const CallFrame& frame, const Expansion& e) {
  return grid_position(layout_grid(layout), mesh_index(frame.where->strategy, e.at));
}

// Where a rank keeps slices of its weights (ZeRO-3), every pass of a body gathers what it uses.
Status verify_gathers(const CallFrame& frame, const Expansion& e) {
  const ParamLayout layout = param_layout(frame.where->mesh, frame.where->strategy);
  ParamLayout whole = layout;
  whole.sharded = false;
  const GridPosition at = place_in(layout, frame, e);
  for (const OpBody& body : e.bodies)
    for (const TensorKind& kind : frame.model->kinds) {
      if (!uses(body, kind, {kind.layer_begin, kind.layer_end})) continue;
      if (held_elements(kind, layout, at) == held_elements(kind, whole, at)) continue;
      for (const auto* inside : {&body.forward, &body.backward})
        if ((inside == &body.forward || body.trains) &&
            inside_over(e, *inside, OpKind::kAllGather, kind) == nullptr)
          return invalid_input(cat("rank ", e.rank, ": passes of part ", body.part,
                                   " of the model do not gather the weights of ", kind.name));
    }
  return ok_status();
}

// The instruction that must execute an op of an optimizer step, in their order.
int run_number(const Expansion& e, const Op& op) {
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter:
      return among_copies(e.groups[op.group].kind) ? 1 : 0;
    case OpKind::kNorm:
    case OpKind::kAgree:
      return 2;
    case OpKind::kUpdate:
      return 3;
    case OpKind::kAllGather:
      return 4;
    default:
      return 0;
  }
}

// The frame of each optimizer step: zero, passes, norm, agreement, update. Of one that is made in
// parts the first has its begin, the last its end.
Status verify_step_order(const Expansion& e, int32_t minibatch, const MiniBatch& batch) {
  int stage = batch.begun ? 1 : 0;  // ops of the frame so far
  const int end = batch.goes_on ? 1 : 4;
  int run = 0;
  static constexpr OpKind kRuns[] = {OpKind::kPasses, OpKind::kReduce, OpKind::kAgree,
                                     OpKind::kUpdate, OpKind::kAllGather};
  static constexpr OpKind kFrame[] = {OpKind::kZero, OpKind::kNorm, OpKind::kAgree,
                                      OpKind::kUpdate};
  for (size_t i = 0; i < e.ops.size(); ++i) {
    const Op& op = e.ops[i];
    if (op.minibatch != minibatch) continue;
    const bool frame = std::find(std::begin(kFrame), std::end(kFrame), op.kind) != std::end(kFrame);
    if (frame && (stage == end || op.kind != kFrame[stage]))
      return wrong(e, i, "is out of its place");
    if (frame) ++stage;
    if (run_number(e, op) < run || stage == 0) return wrong(e, i, "is out of its place");
    run = run_number(e, op);
    if (op.run != kRuns[run])
      return wrong(
          e, i,
          cat("is executed by ", op_kind_name(op.run), " and not by ", op_kind_name(kRuns[run])));
    const bool after_update = stage == 4 && op.kind != OpKind::kUpdate;
    if (op.version != minibatch + (after_update ? 1 : 0))
      return wrong(e, i, "does not read the weights of the last update");
  }
  if (stage < end) return left_out(e, minibatch, cat("no ", op_kind_name(kFrame[stage])));
  return ok_status();
}

// Weights of each tensor kind in an entry of the expansion's tensors.
void add_weights(const Expansion& e, int32_t what, std::vector<int64_t>* of_kind) {
  for (const TensorSlice& slice : e.tensors[what])
    if (slice.state == TensorState::kWeights)
      (*of_kind)[slice.item] += slice.elements.size() * slice.layers.size();
}

// What ranks update in parts reaches all that hold it (ZeRO-3 leaves it in parts).
Status verify_return(const CallFrame& frame, const Expansion& e, int32_t minibatch) {
  const ParamLayout layout = param_layout(frame.where->mesh, frame.where->strategy);
  const GridPosition at = place_in(layout, frame, e);
  const size_t kinds = frame.model->kinds.size();
  std::vector<int64_t> updated(kinds), gathered(kinds);
  for (const Op& op : e.ops) {
    if (op.minibatch != minibatch) continue;
    if (op.kind == OpKind::kUpdate) add_weights(e, op.what, &updated);
    if (op.kind == OpKind::kAllGather) add_weights(e, op.what, &gathered);
  }
  for (size_t i = 0; i < kinds; ++i) {
    const TensorKind& kind = frame.model->kinds[i];
    int64_t held = 0;
    for (const Interval& run : held_layers(kind, layout, frame.model->layers, at.stage))
      held += run.size() * held_elements(kind, layout, at).size();
    if (std::max(updated[i], gathered[i]) < held)
      return left_out(e, minibatch,
                      cat("updated weights of ", kind.name, " do not arrive from other ranks"));
  }
  return ok_status();
}

// Collectives outside of passes, and draws, read what the ops before them gave.
Status verify_waits(const Expansion& e) {
  for (size_t i = 1; i < e.ops.size(); ++i) {
    const Op& op = e.ops[i];
    const bool reads = op.group >= 0 || op.kind == OpKind::kSample;
    if (reads && op.after[0] != static_cast<int32_t>(i) - 1)
      return wrong(e, i, "does not wait for the op before it");
  }
  return ok_status();
}

// The end of an inference call: its ranks agree once, where what one gave is of use to others.
Status verify_end(const CallFrame& frame, const Expansion& e) {
  const auto over = ends_alike(frame);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    if (e.ops[i].run != OpKind::kCall) return wrong(e, i, "is not executed by the call");
    if (e.ops[i].kind != OpKind::kAgree) continue;
    if (!over || i + 1 < e.ops.size()) return wrong(e, i, "is out of its place");
    if (e.groups[e.ops[i].group].kind != *over)
      return wrong(e, i, cat("is not over the ", group_kind_name(*over), " group"));
  }
  const bool agrees = !e.ops.empty() && e.ops.back().kind == OpKind::kAgree;
  const bool absent = frame.early && e.ops.empty();
  return agrees || absent || !over ? ok_status()
                                   : left_out(e, 0, "the ranks do not agree at its end");
}

// Whether two optimizer steps do the same beside their passes, so that one of them need be looked
// at.
bool same_sums(const Expansion& e, int32_t a, int32_t b) {
  const auto next = [&](size_t* i, int32_t minibatch) {
    while (*i < e.ops.size() && (e.ops[*i].minibatch != minibatch || e.ops[*i].what < 0)) ++*i;
    return *i < e.ops.size() ? &e.ops[(*i)++] : nullptr;
  };
  for (size_t i = 0, j = 0;;) {
    const Op *left = next(&i, a), *right = next(&j, b);
    if (left == nullptr || right == nullptr) return left == right;
    if (left->kind != right->kind || left->group != right->group || left->what != right->what)
      return false;
  }
}

Status verify_updates(const CallFrame& frame, const Expansion& e,
                      const std::vector<MiniBatch>& minibatches) {
  for (int32_t m = 0; m < std::ssize(minibatches); ++m) {
    BRAID_TRY(verify_step_order(e, m, minibatches[m]));
    if (minibatches[m].goes_on) continue;
    if (m > 0 && same_sums(e, m - 1, m)) continue;
    BRAID_TRY(verify_return(frame, e, m));
    BRAID_TRY(verify_sums(frame, e, m));
  }
  return ok_status();
}

Status verify_meetings(const CallFrame& frame, const Expansion& own, const OpsOfRank& ops) {
  const std::vector<DeviceId> pipeline = pipeline_of(frame, own.at);
  BRAID_TRY(verify_messages(own, pipeline, ops));
  BRAID_TRY(verify_groups(own, ops));
  return pipeline.size() > 1 ? verify_no_circle(pipeline, ops) : ok_status();
}

// Hands out lists of all ranks.
class AllOps {
 public:
  explicit AllOps(const std::vector<Expansion>& ranks) {
    for (const Expansion& e : ranks) by_rank_[e.rank] = &e;
  }
  const Expansion& operator()(DeviceId rank) const { return *by_rank_.at(rank); }

 private:
  std::map<DeviceId, const Expansion*> by_rank_;
};

// Makes the lists of ranks that are asked for, each once.
class MadeOps {
 public:
  explicit MadeOps(std::function<Expansion(DeviceId)> make) : make_(std::move(make)) {}
  const Expansion& operator()(DeviceId rank) {
    const auto found = made_.find(rank);
    return found != made_.end() ? found->second : made_.emplace(rank, make_(rank)).first->second;
  }
  Expansion take(DeviceId rank) {
    (*this)(rank);
    return std::move(made_.at(rank));
  }

 private:
  std::function<Expansion(DeviceId)> make_;
  std::map<DeviceId, Expansion> made_;
};

}  // namespace

Status verify_ops_of(const CallFrame& frame, DeviceId rank, const Partition& partition,
                     const OpsOfRank& ops) {
  const Expansion& own = ops(rank);
  const bool trains = frame.kind == CallKind::kTrainStep;
  std::vector<int64_t> batches;
  for (const MiniBatch& minibatch : partition.minibatches)
    batches.push_back(std::ssize(minibatch.micro_batches[own.at.dp_rank]));
  BRAID_TRY(Passes(own, trains, 0, std::move(batches)).verify());
  if (!trains) BRAID_TRY(verify_end(frame, own));
  BRAID_TRY(verify_gathers(frame, own));
  BRAID_TRY(verify_waits(own));
  if (trains) BRAID_TRY(verify_updates(frame, own, partition.minibatches));
  return verify_meetings(frame, own, ops);
}

Status verify_ops(const CallFrame& frame, const std::vector<Expansion>& ranks,
                  const Partition& partition) {
  BRAID_CHECK(ranks.size() == frame.where->mesh.devices.size(), "the lists of all ranks");
  const AllOps ops(ranks);
  for (const Expansion& e : ranks) BRAID_TRY(verify_ops_of(frame, e.rank, partition, ops));
  return ok_status();
}

PartitionShape shape_of(const Partition& partition) {
  PartitionShape out;
  for (const MiniBatch& minibatch : partition.minibatches) {
    out.emplace_back();
    for (const auto& micro_batches : minibatch.micro_batches)
      out.back().push_back(static_cast<int32_t>(micro_batches.size()));
    if (minibatch.begun || minibatch.goes_on)
      out.push_back({minibatch.begun ? -2 : -1, minibatch.goes_on ? -2 : -1});
  }
  return out;
}

Result<Expansion> verified_ops(const CallFrame& frame, DeviceId rank, const Partition& partition,
                               VerifiedShapes* verified, const ChangeOps& change) {
  MadeOps ops([&](DeviceId of) {
    Expansion e = expand(frame, of, partition);
    if (change) change(&e);
    return e;
  });
  PartitionShape shape = shape_of(partition);
  if (verified != nullptr && verified->count(shape) == 0) {
    BRAID_TRY(verify_ops_of(frame, rank, partition, std::ref(ops)));
    verified->insert(std::move(shape));
  }
  return ops.take(rank);
}

Status verify_round_of(const CallFrame& frame, DeviceId rank, const RoundWork& round,
                       const OpsOfRank& ops) {
  const Strategy& s = frame.where->strategy;
  const Expansion& own = ops(rank);
  const int64_t batches = std::max<int64_t>(1, std::ssize(round.batches));
  BRAID_TRY(Passes(own, false, -1, {batches}).verify());
  BRAID_TRY(verify_waits(own));
  BRAID_TRY(verify_meetings(frame, own, ops));
  const auto expect = [&](OpKind kind, int64_t number) {
    const auto count = std::count_if(own.ops.begin(), own.ops.end(),
                                     [&](const Op& op) { return op.kind == kind; });
    if (count == number) return ok_status();
    return left_out(own, 0, cat(count, " times ", op_kind_name(kind), " in a round, not ", number));
  };
  for (size_t i = 0; i < own.ops.size(); ++i)
    if (own.ops[i].run != (own.ops[i].kind == OpKind::kAgree ? OpKind::kAgree : OpKind::kRound))
      return wrong(own, i, cat("is executed by ", op_kind_name(own.ops[i].run)));
  BRAID_TRY(expect(OpKind::kForward, batches * s.interleave));
  BRAID_TRY(expect(OpKind::kSample, own.at.stage == s.pp - 1 ? 1 : 0));
  BRAID_TRY(expect(OpKind::kBroadcast, s.pp > 1 ? 1 : 0));
  return expect(OpKind::kAgree, round.agrees && s.tp * s.pp > 1 ? 1 : 0);
}

Status verify_round_of(const CallFrame& frame, DeviceId rank, const RoundWork& round) {
  MadeOps ops([&](DeviceId of) { return expand(frame, of, round); });
  return verify_round_of(frame, rank, round, std::ref(ops));
}

Status verify_round(const CallFrame& frame, const std::vector<Expansion>& ranks,
                    const RoundWork& round) {
  const AllOps ops(ranks);
  for (const Expansion& e : ranks) BRAID_TRY(verify_round_of(frame, e.rank, round, ops));
  return ok_status();
}

}  // namespace braid::inline program
