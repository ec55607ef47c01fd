// compile(plan, problem): walks the calls in the graph's order and appends to the list of every
// rank what it has to do, which makes all lists projections of one sequence.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "plan/validate.h"
#include "program/body_groups.h"
#include "program/compile_to_price.h"
#include "program/early_update.h"
#include "program/exchange.h"
#include "program/expand.h"
#include "program/fused.h"
#include "program/hand_over.h"
#include "program/local_parts.h"
#include "program/lower.h"
#include "program/placement.h"
#include "program/residency.h"
#include "program/scored_prefixes.h"
#include "program/streamed_update.h"
#include "program/weight_sync.h"

namespace braid::inline program {
namespace {

class PlanCompiler {
 public:
  // `only`: the rank whose list is compiled; none: all. `messages` may be null.
  PlanCompiler(const ExecutionPlan& plan, const PlanningProblem& problem,
               const std::vector<int32_t>& steps, std::optional<DeviceId> only,
               const MessagesOf* messages)
      : plan_(plan), problem_(problem), steps_(steps), only_(only), messages_(messages) {
    place_calls(plan, problem, &program_);
    program_.staleness = steps.empty() ? plan.staleness : 0;
    program_.predicts_lengths = steps.empty() && plan.fusion.predicted_lengths;
    const size_t ranks = plan.devices, calls = problem.graph.calls.size();
    program_.ranks.resize(ranks);
    last_.assign(calls, std::vector<int32_t>(ranks, -1));
    shared_at_ = last_;
    begun_.assign(calls, std::vector<std::vector<InstructionId>>(ranks));
    arrivals_.assign(calls, std::vector<std::vector<InstructionId>>(ranks));
    copy_ready_.assign(program_.copies.size(), std::vector<std::vector<InstructionId>>(ranks));
    copy_reads_ = copy_ready_;
    live_.assign(program_.copies.size(), false);
    used_.assign(ranks, -1);
    used_before_.assign(ranks, -1);
    waits_ = waited_for(problem.graph);
    std::vector<CallId> order;
    for (size_t i = 0; i < calls; ++i) order.push_back(CallId{static_cast<int32_t>(i)});
    shares_ = shares_before(problem.graph, order);
    shared_ = shared_before(problem.graph);
  }

  Program compile() {
    const std::vector<CallId> order = order_of_calls(program_, waits_);
    for (size_t place = 0; place < order.size(); ++place) {
      const std::vector<CallId> together = run_here(order[place]);
      // Of calls that this one comes before, too.
      for (size_t i = place; i < static_cast<size_t>(order[place].value); ++i)
        share_before(CallId{static_cast<int32_t>(i)}, order[place]);
      if (!together.empty()) run_all(together);
    }
    // What is made ahead becomes known when the step ends.
    for (const CallId before : shares_.back()) share(before, last_call());
    return std::move(program_);
  }

  // Two calls that are fused run where the second one stands.
  Status fuse(const std::array<CallId, 2>& pair) {
    for (int32_t i = pair[0].value + 1; i <= pair[1].value; ++i)
      if (std::find(waits_[i].begin(), waits_[i].end(), pair[0]) != waits_[i].end())
        return invalid_input(cat("fusion.train_schedules: ", call(CallId{i}).name, " waits for ",
                                 call(pair[0]).name,
                                 ", so the updates cannot run together; set it "
                                 "false"));
    BRAID_ASSIGN(FusedCalls fused, fuse_calls(program_, plan_.fusion, problem_, pair));
    program_.fused.push_back(std::move(fused));
    return ok_status();
  }

  // The generation is handed over when few of its samples are left.
  Status fuse_scoring() {
    FusedScoring fused;
    for (size_t i = 0; i < program_.graph.calls.size(); ++i)
      if (program_.graph.calls[i].kind == CallKind::kGenerate)
        fused.generate = CallId{static_cast<int32_t>(i)};
    fused.scorers = early_scorers(program_.graph, fused.generate, program_.calls);
    fused.below = plan_.fusion.migrate_below_samples;
    fused.most = plan_.fusion.migrate_to_samples;
    fused.cache = plan_.fusion.migrate_cache;
    fused.again = plan_.fusion.migrate_again_below;
    if (fused.scorers.empty())
      return invalid_input(
          "fusion.migrate_below_samples: no call can score samples before all are there: one that "
          "only reads prompts and responses, and not under ZeRO-3; set it to 0");
    fused.prefixes = plan_.fusion.scored_prefixes;
    fused.pre_copy = plan_.fusion.pre_copy_below_samples;
    program_.scoring = std::move(fused);
    return ok_status();
  }

  // An update begins when the samples of its first mini-batches are scored.
  Status begin_early() {
    BRAID_ASSIGN(program_.early_update, early_update(program_, plan_.fusion.train_beside_scoring,
                                                     problem_.workload.minibatches));
    return ok_status();
  }

  Status stream_update() { return program::stream_update(plan_, problem_, &program_); }

  Status score_beginnings() const { return check_beginnings(program_); }

  // The copy of the generation is there when a step begins.
  Status sync_beside_training() {
    BRAID_ASSIGN(program_.synced_copy, copy_to_sync(program_));
    live_[program_.synced_copy] = true;
    return ok_status();
  }

 private:
  const Call& call(CallId id) const { return program_.graph.calls[id.value]; }
  CallId last_call() const { return CallId{static_cast<int32_t>(program_.graph.calls.size()) - 1}; }
  const CallPlacement& placement(CallId id) const { return program_.calls[id.value]; }

  std::vector<CallId> run_here(CallId id) const {
    const PlaceInPair place = place_in_pair(program_, id);
    if (place.entry < 0) return {id};
    if (!place.second()) return {};
    return {program_.fused[place.entry].calls[0], id};
  }

  void run_all(const std::vector<CallId>& together) {
    for (const CallId id : together) share_before(id, together.back());
    if (call(together.front()).kind == CallKind::kTrainStep) score_others();
    for (const CallId id : brought_before(together)) {
      bring_state(id);
      bring_weights(id);
    }
    run_parts(together);
    for (const CallId id : together)
      if (!ends_with_share(call(id))) exchange_after(id, id);
    if (program_.synced_copy >= 0 && contains(together, update_of_synced_copy(program_))) {
      fill_copy(together.back(), program_.synced_copy);
      synced_ = true;
    }
    for (const CallId id : put_away_after(together))
      if (!scores_beside(program_, id)) put_away(id);
  }

  void run_parts(const std::vector<CallId>& together) {
    const CallId id = together.front();
    if (program_.scoring.is_on() && id == program_.scoring.generate) return run_handed_over(id);
    const std::vector<SamplePart> parts = parts_of_call(program_, id);
    if (scores_beside(program_, id))
      return run(together, parts_scored_for(program_, id, SamplePart::kEarly).back());
    if (!begins_early(program_, id)) return run(together, parts.back());
    for (const SamplePart part : parts) run(together, part);
  }

  // Before the first update of the step: what is scored beside one, whose samples are settled.
  void score_others() {
    if (others_scored_) return;
    others_scored_ = true;
    if (!program_.early_update.is_on()) return;
    const CallId update = program_.early_update.update;
    const std::vector<CallId>& scorers = program_.early_update.scorers;
    for (const SamplePart part : parts_of_call(program_, update)) {
      if (part == SamplePart::kEarly) continue;
      for (const CallId id : scorers) run({id}, parts_scored_for(program_, id, part).back());
      for (const CallId id : scorers)
        exchange(exchanged_after(program_.graph, shared_, id, update), id, id, update, part);
    }
    for (const CallId id : scorers) put_away(id);
  }

  // The generation until few samples are left, and from there on; in between what has finished goes
  // to those who score it, perhaps while others generate until fewer are. Weights that come from
  // other ranks are there before, since those may still generate.
  void run_handed_over(CallId generate) {
    const std::vector<CallId>& scorers = program_.scoring.scorers;
    for (const CallId scorer : scorers)
      if (const int32_t copy = placement(scorer).copy; !program_.copies[copy].home) {
        bring_state(scorer);
        bring_weights(scorer);
      }
    const std::vector<SamplePart> parts = parts_of_call(program_, generate);
    run({generate}, parts.front());
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      hand_over(generate, parts[i]);
      for (const CallId scorer : scorers) exchange_finished(generate, scorer, parts[i]);
      const StreamedUpdate& streamed = program_.scoring.streamed;
      if (streamed.is_on())
        for (const CallId reader : {streamed.reward, streamed.update})
          exchange_finished(generate, reader, parts[i]);
      run({generate}, parts[i + 1]);
      for (const CallId scorer : scorers) {
        bring_state(scorer);
        run({scorer}, parts[i]);
        for (auto& arriving : arrivals_[scorer.value]) arriving.clear();
      }
      if (streamed.is_on()) train_finished(streamed, parts[i]);
    }
  }

  // What of that is worth what, and the gradients of it.
  void train_finished(const StreamedUpdate& streamed, SamplePart part) {
    run({streamed.reward}, part);
    run({streamed.advantages}, part);
    std::vector<CallId> scorers = program_.scoring.scorers;
    scorers.push_back(streamed.advantages);
    for (const CallId scorer : scorers)
      exchange_of_part(scorer, streamed.update, part, scorer,
                       [&](DeviceId device) { return end_on(scorer, device.value); });
    run({streamed.update}, part);
    for (const CallId id : {streamed.reward, streamed.update})
      for (auto& arriving : arrivals_[id.value]) arriving.clear();
  }

  void hand_over(CallId generate, SamplePart part) {
    handed_.resize(program_.ranks.size(), -1);
    for (const DeviceId rank : compiled(all_ranks())) {
      Instruction handed{OpKind::kHandOver, generate, ExitCondition::kNone,
                         end_on(generate, rank.value)};
      handed.part = part;
      handed_[rank.value] = append(rank, std::move(handed)).value;
    }
  }

  std::vector<DeviceId> all_ranks() const {
    std::vector<DeviceId> out;
    for (size_t rank = 0; rank < program_.ranks.size(); ++rank)
      out.push_back(DeviceId{static_cast<int32_t>(rank)});
    return out;
  }

  // What a generation has finished when it is handed over.
  void exchange_finished(CallId generate, CallId reader, SamplePart part) {
    exchange_of_part(generate, reader, part, generate, [&](DeviceId device) {
      return std::vector<InstructionId>{InstructionId{handed_[device.value]}};
    });
  }

  using WaitsOf = std::function<std::vector<InstructionId>(DeviceId)>;
  // What goes from one call to another in a part that is of a hand-over.
  void exchange_of_part(CallId producer, CallId reader, SamplePart part, CallId place,
                        const WaitsOf& waits) {
    Exchange out{producer, reader, exchanged_fields(program_.graph, producer, reader), {}};
    for (const std::string& field : streamed_fields(program_, producer, reader, part))
      out.fields.push_back(field);
    const bool begun = producer == program_.scoring.generate &&
                       scores_beginnings(program_, reader) && part == begun_part(program_);
    if (begun) out.fields.emplace_back(kBegunIds);
    out.part = part;
    out.members = exchange_members(program_, producer, reader);
    add_exchange(std::move(out), place, waits);
  }

  // The calls that a select may run again, itself included.
  std::vector<CallId> repeated_with(CallId select) const {
    std::vector<CallId> out;
    for (int32_t i = fetch_of(program_.graph, select).value; i <= select.value; ++i)
      out.push_back(CallId{i});
    return out;
  }

  // Weights of calls that may run again come before the first of them, and leave after the last:
  // nothing moves them between.
  std::vector<CallId> brought_before(const std::vector<CallId>& together) const {
    const CallId select = select_around(program_.graph, together.front());
    if (select.value < 0) return together;
    const std::vector<CallId> repeated = repeated_with(select);
    return repeated.front() == together.front() ? repeated : std::vector<CallId>{};
  }
  std::vector<CallId> put_away_after(const std::vector<CallId>& together) const {
    const CallId select = select_around(program_.graph, together.front());
    if (select.value < 0) return together;
    return select == together.front() ? repeated_with(select) : std::vector<CallId>{};
  }

  // Those of some devices whose lists are compiled.
  std::vector<DeviceId> compiled(const std::vector<DeviceId>& devices) const {
    if (!only_) return devices;
    const bool here = std::find(devices.begin(), devices.end(), *only_) != devices.end();
    return here ? std::vector<DeviceId>{*only_} : std::vector<DeviceId>{};
  }

  InstructionId append(DeviceId device, Instruction instruction) {
    auto& list = program_.ranks[device.value].instructions;
    list.push_back(std::move(instruction));
    return InstructionId{static_cast<int32_t>(list.size()) - 1};
  }

  // Memory of a device is free for the next when its last call with a model has ended.
  std::vector<InstructionId> after_model(DeviceId device, bool one_earlier) const {
    const int32_t at = (one_earlier ? used_before_ : used_)[device.value];
    return at < 0 ? std::vector<InstructionId>{} : std::vector<InstructionId>{InstructionId{at}};
  }

  std::vector<RoleId> roles_of(CallId id) const { return used_roles(program_.graph, call(id)); }
  const RoleId& role_of_copy(CallId id) const { return program_.copies[placement(id).copy].role; }

  // The next call that uses the weights of a role.
  std::optional<CallId> next_call(CallId id, const RoleId& role) const {
    for (int32_t i = id.value + 1; i < static_cast<int32_t>(last_.size()); ++i) {
      const std::vector<RoleId> used = roles_of(CallId{i});
      if (std::find(used.begin(), used.end(), role) != used.end()) return CallId{i};
    }
    return std::nullopt;
  }

  int32_t step_of(CallId id) const { return steps_.empty() ? 0 : steps_[id.value]; }

  int32_t home_copy(const RoleId& role) const { return program::home_copy(program_, role); }

  int32_t state_index(const RoleState& state) {
    const auto found = std::find(program_.states.begin(), program_.states.end(), state);
    if (found == program_.states.end()) program_.states.push_back(state);
    return static_cast<int32_t>(std::find(program_.states.begin(), program_.states.end(), state) -
                                program_.states.begin());
  }

  // Whether weights in host memory go back after this call: no later one of its step uses them.
  bool last_use(CallId id, const RolePlan& role) const {
    if (role.timing == OffloadTiming::kAfterEachCall) return true;
    for (auto next = next_call(id, role.role); next; next = next_call(*next, role.role))
      if (step_of(*next) == step_of(id)) return false;
    return true;
  }

  // Weights that are prefetched come a few layers at a time.
  void load(CallId id, const RoleId& role, bool optimizer, bool prefetch) {
    const int32_t copy = home_copy(role), state = state_index({role, optimizer});
    const ParamLayout layout = program_.copies[copy].layout;
    for (const DeviceId device : compiled(layout.mesh.devices)) {
      auto after = after_model(device, prefetch);
      if (const auto left = offloaded_.find(std::pair(state, device)); left != offloaded_.end())
        after.push_back(left->second);
      std::vector<Interval> runs = {{}};
      if (prefetch && !optimizer)
        runs = load_runs(layout, model_of(problem_, role).spec.layers, device);
      for (const Interval& layers : runs)
        copy_ready_[copy][device.value].push_back(
            append(device, {OpKind::kLoad, id, ExitCondition::kNone, after, state, layers}));
    }
  }

  // Weights leave when they have come and all that is read from them has been sent.
  void offload(CallId id, const RoleId& role, bool optimizer) {
    const int32_t copy = home_copy(role), state = state_index({role, optimizer});
    for (const DeviceId device : compiled(program_.copies[copy].layout.mesh.devices)) {
      auto after = after_model(device, false);
      if (!optimizer) take(&copy_ready_[copy][device.value], &after);
      if (!optimizer) take(&copy_reads_[copy][device.value], &after);
      offloaded_[std::pair(state, device)] =
          append(device, {OpKind::kOffload, id, ExitCondition::kNone, std::move(after), state});
    }
  }

  static void take(std::vector<InstructionId>* from, std::vector<InstructionId>* to) {
    to->insert(to->end(), from->begin(), from->end());
    from->clear();
  }

  void bring_state(CallId id) {
    for (const RoleId& used : roles_of(id)) {
      const RolePlan role = role_plan(plan_, used);
      if (role.weights == Residency::kHost && loaded_.insert(used).second)
        load(id, used, false, role.prefetch);
      if (role.optimizer == Residency::kHost && call(id).kind == CallKind::kTrainStep)
        load(id, used, true, role.prefetch);
    }
  }

  // A copy in another layout than the home's is filled before its first use since the weights
  // changed.
  void bring_weights(CallId id) {
    const int32_t index = placement(id).copy;
    if (index >= 0 && !program_.copies[index].home) fill_copy(id, index);
  }

  void fill_copy(CallId id, int32_t index) {
    if (live_[index]) return;
    live_[index] = true;
    const WeightCopy& copy = program_.copies[index];
    if (!changes(program_.graph, copy.role)) return;
    const WeightCopy& home = program_.copies[home_copy(copy.role)];
    const RoleModel& model = model_of(problem_, copy.role);
    ReallocationOptions options;
    // Where the tensors are not known, adapters count as a share of the weights.
    const bool share = model.trainable.lora && !model.knows_tensors();
    options.bytes_per_parameter = precision_bytes(model.precision) *
                                  (share ? trainable_fraction(model.spec, model.trainable) : 1);
    const auto plan = [&] {
      return plan_reallocation(changed_kinds(problem_, copy.role), model.spec.layers, home.layout,
                               copy.layout, problem_.cluster, options);
    };
    reallocate(
        id,
        {index,
         {},
         messages_ == nullptr ? plan() : (*messages_)(copy.role, home.layout, copy.layout, plan)});
  }

  // Who has a part of the copy, and who sends; where weights are slices, all who gather them.
  std::vector<DeviceId> reallocation_members(const Reallocation& reallocation) const {
    const WeightCopy& copy = program_.copies[reallocation.copy];
    const ParamLayout& home = program_.copies[home_copy(copy.role)].layout;
    std::set<DeviceId> out(copy.layout.mesh.devices.begin(), copy.layout.mesh.devices.end());
    for (const Message& message : reallocation.messages) out.insert(message.from);
    if (home.sharded) out.insert(home.mesh.devices.begin(), home.mesh.devices.end());
    return {out.begin(), out.end()};
  }

  void reallocate(CallId id, Reallocation reallocation) {
    const auto entry = static_cast<int32_t>(program_.reallocations.size());
    const WeightCopy& copy = program_.copies[reallocation.copy];
    const int32_t home = home_copy(copy.role);
    reallocation.members = reallocation_members(reallocation);
    for (const DeviceId device : compiled(reallocation.members)) {
      const bool reads = place_in_mesh(program_.copies[home].layout, device).has_value();
      const bool fills = place_in_mesh(copy.layout, device).has_value();
      std::vector<InstructionId> after;
      if (reads) after = weights_ready(copy.role, device);
      // Room for weights is there when what ran before has ended.
      if (fills)
        for (const InstructionId end : after_model(device, false)) after.push_back(end);
      const InstructionId at =
          append(device, {OpKind::kReallocate, id, ExitCondition::kNone, std::move(after), entry});
      if (reads) copy_reads_[home][device.value].push_back(at);
      if (fills) copy_ready_[reallocation.copy][device.value].push_back(at);
    }
    program_.reallocations.push_back(std::move(reallocation));
  }

  // What a sender of weights waits for: their way back from the host and training earlier in the
  // step.
  std::vector<InstructionId> weights_ready(const RoleId& role, DeviceId sender) const {
    std::vector<InstructionId> after = copy_ready_[home_copy(role)][sender.value];
    for (int32_t i = 0; i < std::ssize(last_); ++i)
      if (changes(call(CallId{i}), role) && last_[i][sender.value] >= 0)
        after.push_back(InstructionId{last_[i][sender.value]});
    return after;
  }

  void run(const std::vector<CallId>& together, SamplePart part) {
    std::vector<BodyGroups> groups;
    for (const CallId id : together) groups.push_back(body_groups(id, &program_));
    for (const DeviceId device : compiled(placement(together.front()).mesh.devices)) {
      std::vector<std::vector<Instruction>> bodies;
      for (size_t i = 0; i < together.size(); ++i)
        bodies.push_back(body_on(together[i], groups[i], device, part));
      append_body(device, bodies.size() == 1
                              ? std::move(bodies[0])
                              : fuse_regions({bodies[0], bodies[1]},
                                             place_in_pair(program_, together.front()).entry));
    }
    for (const CallId id : together)
      for (const RoleId& role : roles_of(id))
        if (changes(call(id), role) && !ends_before_update(program_, id, part)) forget_copies(role);
  }

  // The call's instructions on a rank, the first with what it waits for.
  std::vector<Instruction> body_on(CallId id, const BodyGroups& groups, DeviceId device,
                                   SamplePart part) {
    const bool left = id == program_.scoring.generate;
    const bool handed = of_hand_over(program_, id, part);
    std::vector<Instruction> body =
        lower(call(id), id, part, handed && (left || is_streamed(program_, id)));
    const CallPlacement& where = placement(id);
    const bool other_copy = where.copy >= 0 && !program_.copies[where.copy].home;
    for (Instruction& instruction : body)
      if (other_copy && (instruction.kind == OpKind::kCall || instruction.kind == OpKind::kRound))
        instruction.detail = where.copy;
    if (body.back().kind == OpKind::kRepeat)
      body.back().detail = last_[fetch_of(program_.graph, id).value][device.value];
    add_groups(program_, id, groups, device, &body);
    add_waits(id, device, &body.front());
    // What a generation that is handed over has left is generated, what it has finished is scored.
    if (program_.scoring.is_on() && (left ? part != SamplePart::kEarly : handed))
      body.front().after.push_back(InstructionId{handed_[device.value]});
    return body;
  }

  void add_waits(CallId id, DeviceId device, Instruction* first) {
    const size_t rank = device.value;
    std::vector<InstructionId>& after = first->after;
    if (const auto part = part_arrivals_.find({first->part, device});
        part != part_arrivals_.end() && begins_early(program_, id))
      after.insert(after.end(), part->second.begin(), part->second.end());
    for (const CallId before : waits_[id.value]) {
      // Of another step's call only what it does here: its samples are others.
      const bool samples = step_of(before) == step_of(id);
      const int32_t shared = samples ? shared_at_[before.value][rank] : -1;
      const int32_t end = shared >= 0 ? shared : last_[before.value][rank];
      if (end >= 0) after.push_back(InstructionId{end});
    }
    const auto& arriving = arrivals_[id.value][rank];
    after.insert(after.end(), arriving.begin(), arriving.end());
    if (placement(id).copy >= 0)
      for (const InstructionId ready : copy_ready_[placement(id).copy][rank])
        (comes_within(id, device, ready) ? first->within : after).push_back(ready);
    for (const RoleId& role : roles_of(id)) {
      if (!changes(call(id), role) || ends_before_update(program_, id, first->part)) continue;
      const int32_t home = home_copy(role);
      if (home != placement(id).copy)
        after.insert(after.end(), copy_ready_[home][rank].begin(), copy_ready_[home][rank].end());
      // What is on its way from these weights must have left before they change.
      take(&copy_reads_[home][rank], &after);
    }
  }

  // Calls begin when what they wait for has ended; in a body all follow each other.
  void append_body(DeviceId device, std::vector<Instruction> body) {
    const size_t rank = device.value;
    const bool uses = !roles_of(body.front().call).empty();
    const bool repeats = body.back().kind == OpKind::kRepeat;
    int32_t at = -1;
    for (Instruction& each : body) {
      const CallId id = each.call;
      if (!starts_call(each.kind)) each.after.push_back(InstructionId{at});
      at = append(device, std::move(each)).value;
      last_[id.value][rank] = at;
    }
    // What is repeated uses its memory until it is not.
    if (repeats) used_before_[rank] = used_[rank] = at;
    if (!uses) return;
    used_before_[rank] = used_[rank];
    used_[rank] = at;
  }

  // Whether passes of the call begin before this load of its own has ended: its first layers come
  // first. Calls that are fused, and generations, wait for all.
  bool comes_within(CallId id, DeviceId device, InstructionId ready) const {
    const Instruction& load = program_.ranks[device.value].instructions[ready.value];
    const bool passes = call(id).kind == CallKind::kInfer || call(id).kind == CallKind::kTrainStep;
    if (load.kind != OpKind::kLoad || load.call != id || !passes || run_here(id).size() != 1 ||
        !role_plan(plan_, call(id).role).prefetch)
      return false;
    if (program_.states[load.detail].optimizer) return true;
    const Instruction& before = program_.ranks[device.value].instructions[ready.value - 1];
    return before.kind == OpKind::kLoad && before.call == id && before.detail == load.detail;
  }

  void forget_copies(const RoleId& role) {
    for (size_t i = 0; i < live_.size(); ++i) {
      if (program_.copies[i].role != role || program_.copies[i].home) continue;
      live_[i] = false;
      for (auto& ready : copy_ready_[i]) ready.clear();
    }
  }

  // The shares that stand before a call, beside `next`.
  void share_before(CallId id, CallId next) {
    for (const CallId before : std::exchange(shares_[id.value], {})) share(before, next);
  }

  // What the call found goes to all who go on with its samples, before another call.
  void share(CallId id, CallId next) {
    const int32_t entry = add_share(id, share_members(id), &program_);
    for (const DeviceId rank : compiled(program_.exchanges[entry].members)) {
      std::vector<InstructionId> after = end_on(id, rank.value);
      shared_at_[id.value][rank.value] =
          append(rank, {OpKind::kShare, next, ExitCondition::kNone, std::move(after), entry}).value;
    }
    exchange_after(id, next);
  }

  // All ranks, so that all have the same samples at the end of the step. Where steps overlap, which
  // is priced alone, those of the call and of later ones of its step.
  std::vector<DeviceId> share_members(CallId id) const {
    std::set<DeviceId> out;
    if (steps_.empty()) return all_ranks();
    for (size_t i = id.value; i < steps_.size(); ++i)
      if (steps_[i] == steps_[id.value])
        for (const DeviceId rank : program_.calls[i].mesh.devices) out.insert(rank);
    return {out.begin(), out.end()};
  }

  // What the call ends with on a rank, its share if there is one; nothing where it has no part.
  std::vector<InstructionId> end_on(CallId id, size_t rank) const {
    const int32_t shared = shared_at_[id.value][rank];
    const int32_t end = shared >= 0 ? shared : last_[id.value][rank];
    return end < 0 ? std::vector<InstructionId>{} : std::vector<InstructionId>{InstructionId{end}};
  }

  // The exchanges whose rows are settled by this call, in the order of the readers. They stand
  // beside `place`.
  void exchange_after(CallId id, CallId place) {
    const auto calls = static_cast<int32_t>(program_.graph.calls.size());
    for (int32_t reader = id.value + 1; reader < calls; ++reader)
      for (int32_t producer = 0; producer < calls; ++producer) {
        const CallId from{producer}, to{reader};
        const bool parts = scores_beside(program_, from) && begins_early(program_, to);
        if (exchanged_after(program_.graph, shared_, from, to) == id)
          exchange(id, place, from, to, parts ? SamplePart::kEarly : SamplePart::kAll);
      }
  }

  void exchange(CallId id, CallId place, CallId producer, CallId reader, SamplePart part) {
    Exchange out{producer, reader, exchanged_fields(program_.graph, producer, reader), {}};
    out.part = part;
    out.members = exchange_members(program_, producer, reader);
    add_exchange(std::move(out), place, [&](DeviceId device) {
      std::vector<InstructionId> after = end_on(producer, device.value);
      if (producer != id)
        for (const InstructionId end : end_on(id, device.value)) after.push_back(end);
      return after;
    });
  }

  void add_exchange(Exchange exchange, CallId place, const WaitsOf& waits) {
    if (exchange.fields.empty() || exchange.members.size() < 2) return;
    const auto entry = static_cast<int32_t>(program_.exchanges.size());
    for (const DeviceId device : compiled(exchange.members)) {
      // What the reader lacks may be on its way since an exchange for another.
      std::vector<InstructionId>& begun = begun_[exchange.producer.value][device.value];
      begun.push_back(
          append(device, {OpKind::kExchange, place, ExitCondition::kNone, waits(device), entry}));
      const bool of_part =
          begins_early(program_, exchange.consumer) && exchange.part != SamplePart::kAll;
      auto& arriving = of_part ? part_arrivals_[{exchange.part, device}]
                               : arrivals_[exchange.consumer.value][device.value];
      arriving.insert(arriving.end(), begun.begin(), begun.end());
    }
    program_.exchanges.push_back(std::move(exchange));
  }

  // Whether a later call reads this copy before the weights change.
  bool needed_later(CallId id, int32_t copy) const {
    const RoleId& role = program_.copies[copy].role;
    for (auto next = next_call(id, role); next; next = next_call(*next, role)) {
      if (placement(*next).copy == copy) return true;
      if (changes(call(*next), role)) return false;
    }
    return false;
  }

  void release(CallId id, int32_t index) {
    for (const DeviceId device : compiled(placement(id).mesh.devices)) {
      auto after = after_model(device, false);
      append(device, {OpKind::kRelease, id, ExitCondition::kNone, std::move(after), index});
    }
    live_[index] = false;
    for (auto& ready : copy_ready_[index]) ready.clear();
  }

  void put_away(CallId id) {
    const int32_t index = placement(id).copy;
    if (index < 0) return;
    // What is filled for the next step stays, whoever else reads it in this one.
    const bool kept = index == program_.synced_copy && synced_;
    if (!stays_resident(program_.copies[index], problem_) && !needed_later(id, index) && !kept)
      release(id, index);
    for (const RoleId& used : roles_of(id)) put_away_state(id, used);
  }

  void put_away_state(CallId id, const RoleId& used) {
    const RolePlan role = role_plan(plan_, used);
    if (role.weights == Residency::kHost && last_use(id, role)) {
      offload(id, used, false);
      loaded_.erase(used);
    }
    if (role.optimizer == Residency::kHost && call(id).kind == CallKind::kTrainStep)
      offload(id, used, true);
  }

  const ExecutionPlan& plan_;
  const PlanningProblem& problem_;
  const std::vector<int32_t>& steps_;
  const std::optional<DeviceId> only_;
  const MessagesOf* const messages_;
  Program program_;
  std::vector<std::vector<CallId>> waits_;
  std::vector<std::vector<CallId>> shares_;      // [call]: whose shares stand before it
  std::vector<int32_t> shared_;                  // [call]: before which its share stands
  std::vector<std::vector<int32_t>> last_;       // [call][rank]
  std::vector<std::vector<int32_t>> shared_at_;  // likewise: shares
  std::vector<std::vector<std::vector<InstructionId>>> begun_;     // [producer][rank]: exchanges
  std::vector<std::vector<std::vector<InstructionId>>> arrivals_;  // [reader][rank]
  // Scores of a part of the samples of an early update.
  std::map<std::pair<SamplePart, DeviceId>, std::vector<InstructionId>> part_arrivals_;
  bool others_scored_ = false;  // by those who score beside an update
  std::vector<std::vector<std::vector<InstructionId>>> copy_ready_;  // [copy][rank]
  std::vector<std::vector<std::vector<InstructionId>>> copy_reads_;  // [copy][rank]: that read it
  std::vector<bool> live_;                                           // copies filled now
  bool synced_ = false;      // the copy that the next step begins with is filled
  std::set<RoleId> loaded_;  // roles whose weights are back from the host now
  std::map<std::pair<int32_t, DeviceId>, InstructionId> offloaded_;  // the last of a state
  std::vector<int32_t> handed_;              // [rank]: where the generation was last handed over
  std::vector<int32_t> used_, used_before_;  // [rank]: ends of the last two calls with a model
};

Result<Program> compile_lists(const ExecutionPlan& plan, const PlanningProblem& problem,
                              const std::vector<int32_t>& steps, std::optional<DeviceId> only,
                              const MessagesOf* messages = nullptr) {
  BRAID_CHECK(steps.empty() || steps.size() == problem.graph.calls.size(), "a step for every call");
  BRAID_TRY(verify(problem.graph));
  BRAID_TRY(validate(plan, problem));
  // Steps that are unrolled overlap as they are.
  if (steps.empty() && plan.staleness > 0 && steps_ahead(problem.graph) == 0) {
    PlanningProblem ahead = problem;
    BRAID_ASSIGN(ahead.graph, generated_ahead(problem.graph, plan.staleness,
                                              apart_from_generation(plan, problem)));
    return compile_lists(plan, ahead, steps, only, messages);
  }
  PlanCompiler compiler(plan, problem, steps, only, messages);
  if (plan.fusion.train_schedules) {
    std::vector<CallId> trains;
    for (size_t i = 0; i < problem.graph.calls.size(); ++i)
      if (problem.graph.calls[i].kind == CallKind::kTrainStep)
        trains.push_back(CallId{static_cast<int32_t>(i)});
    for (size_t i = 0; i + 1 < trains.size(); i += 2)
      BRAID_TRY(compiler.fuse({trains[i], trains[i + 1]}));
  }
  if (plan.fusion.migrate_below_samples == kAutoMigration)
    return invalid_input(
        "fusion.migrate_below_samples: auto: nobody has chosen a number for these lists");
  if (plan.fusion.migrate_below_samples > 0) {
    BRAID_CHECK(steps.empty(), "a generation is handed over within one step");
    BRAID_TRY(compiler.fuse_scoring());
  }
  if (plan.fusion.train_beside_generation) BRAID_TRY(compiler.stream_update());
  if (plan.fusion.train_beside_scoring > 0) {
    if (!steps.empty())
      return invalid_input(
          "fusion.train_beside_scoring: is priced in one step, and several are unrolled; set it to "
          "0");
    BRAID_TRY(compiler.begin_early());
  }
  if (plan.fusion.scored_prefixes) BRAID_TRY(compiler.score_beginnings());
  if (plan.fusion.sync_beside_training) {
    if (!steps.empty())
      return invalid_input(
          "fusion.sync_beside_training: is priced in one step, and several are unrolled; set it "
          "false");
    BRAID_TRY(compiler.sync_beside_training());
  }
  return compiler.compile();
}

}  // namespace

Result<Program> compile(const ExecutionPlan& plan, const PlanningProblem& problem,
                        const std::vector<int32_t>& steps) {
  BRAID_ASSIGN(Program program, compile_lists(plan, problem, steps, {}));
  BRAID_TRY(verify(program));
  return program;
}

Result<Program> compile_to_price(const ExecutionPlan& plan, const PlanningProblem& problem,
                                 const MessagesOf& messages) {
  return compile_lists(plan, problem, {}, {}, messages ? &messages : nullptr);
}

Result<Program> compile_rank(const ExecutionPlan& plan, const PlanningProblem& problem,
                             DeviceId rank) {
  if (rank.value < 0 || rank.value >= plan.devices)
    return invalid_input(cat("rank ", rank, ": the plan is for ", plan.devices, " devices"));
  BRAID_ASSIGN(Program program, compile_lists(plan, problem, {}, rank));
  BRAID_TRY(verify_list(program, rank));
  return program;
}

}  // namespace braid::inline program
