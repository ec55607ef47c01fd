// compile(plan, problem): walks the calls in the graph's order and appends to the list of every
// rank what it has to do, which makes all lists projections of one sequence.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "plan/validate.h"
#include "program/fused.h"
#include "program/lower.h"
#include "program/placement.h"
#include "program/residency.h"

namespace braid {
namespace {

class PlanCompiler {
 public:
  PlanCompiler(const ExecutionPlan& plan, const PlanningProblem& problem,
               const std::vector<int32_t>& steps)
      : plan_(plan), problem_(problem), steps_(steps) {
    place_calls(plan, problem, &program_);
    const size_t ranks = plan.devices, calls = problem.graph.calls.size();
    program_.ranks.resize(ranks);
    last_.assign(calls, std::vector<int32_t>(ranks, -1));
    arrivals_.assign(calls, std::vector<std::vector<InstructionId>>(ranks));
    copy_ready_.assign(program_.copies.size(), std::vector<std::vector<InstructionId>>(ranks));
    copy_sends_ = copy_ready_;
    live_.assign(program_.copies.size(), false);
    used_.assign(ranks, -1);
    used_before_.assign(ranks, -1);
    waits_ = dependencies(problem.graph);
  }

  Program compile() {
    for (size_t i = 0; i < problem_.graph.calls.size(); ++i) {
      const CallId id{static_cast<int32_t>(i)};
      if (const std::vector<CallId> together = run_here(id); !together.empty()) run_all(together);
    }
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

 private:
  const Call& call(CallId id) const { return program_.graph.calls[id.value]; }
  const CallPlacement& placement(CallId id) const { return program_.calls[id.value]; }

  std::vector<CallId> run_here(CallId id) const {
    for (const FusedCalls& fused : program_.fused) {
      if (fused.calls[0] == id) return {};
      if (fused.calls[1] == id) return {fused.calls[0], id};
    }
    return {id};
  }

  void run_all(const std::vector<CallId>& together) {
    for (const CallId id : together) {
      bring_state(id);
      bring_weights(id);
    }
    for (const CallId id : together) run(id);
    for (const CallId id : together) send_fields(id);
    for (const CallId id : together) put_away(id);
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

  std::optional<CallId> next_call(CallId id) const {
    for (int32_t i = id.value + 1; i < static_cast<int32_t>(last_.size()); ++i)
      if (call(CallId{i}).role == call(id).role) return CallId{i};
    return std::nullopt;
  }

  int32_t step_of(CallId id) const { return steps_.empty() ? 0 : steps_[id.value]; }

  int32_t home_copy(const RoleId& role) const {
    for (size_t i = 0; i < program_.copies.size(); ++i)
      if (program_.copies[i].home && program_.copies[i].role == role)
        return static_cast<int32_t>(i);
    BRAID_CHECK(false, "role " + role.value + " has no home");
  }

  int32_t state_index(const RoleState& state) {
    const auto found = std::find(program_.states.begin(), program_.states.end(), state);
    if (found == program_.states.end()) program_.states.push_back(state);
    return static_cast<int32_t>(std::find(program_.states.begin(), program_.states.end(), state) -
                                program_.states.begin());
  }

  // Whether weights in host memory go back after this call: no later one of its step uses them.
  bool last_use(CallId id, const RolePlan& role) const {
    if (role.timing == OffloadTiming::kAfterEachCall) return true;
    for (auto next = next_call(id); next; next = next_call(*next))
      if (step_of(*next) == step_of(id)) return false;
    return true;
  }

  // Weights that are prefetched come in runs of layers.
  void load(CallId id, bool optimizer, bool prefetch) {
    const RoleId role = call(id).role;
    const int32_t copy = home_copy(role), state = state_index({role, optimizer});
    const ParamLayout layout = program_.copies[copy].layout;
    for (const DeviceId device : layout.mesh.devices) {
      auto after = after_model(device, prefetch);
      if (const auto left = offloaded_.find(std::pair(state, device)); left != offloaded_.end())
        after.push_back(left->second);
      std::vector<Interval> runs = {{}};
      if (prefetch && !optimizer)
        runs = load_runs(layout, model_of(problem_, role).size.layers, device);
      for (const Interval& layers : runs)
        copy_ready_[copy][device.value].push_back(
            append(device, {OpCode::kLoad, id, ExitCondition::kNone, after, state, layers}));
    }
  }

  // Weights leave when they have come and all messages that read them have been sent.
  void offload(CallId id, bool optimizer) {
    const RoleId role = call(id).role;
    const int32_t copy = home_copy(role), state = state_index({role, optimizer});
    for (const DeviceId device : program_.copies[copy].layout.mesh.devices) {
      auto after = after_model(device, false);
      if (!optimizer) take(&copy_ready_[copy][device.value], &after);
      if (!optimizer) take(&copy_sends_[copy][device.value], &after);
      offloaded_[std::pair(state, device)] =
          append(device, {OpCode::kOffload, id, ExitCondition::kNone, std::move(after), state});
    }
  }

  static void take(std::vector<InstructionId>* from, std::vector<InstructionId>* to) {
    to->insert(to->end(), from->begin(), from->end());
    from->clear();
  }

  void bring_state(CallId id) {
    if (!uses_model(call(id))) return;
    const RolePlan role = role_plan(plan_, call(id).role);
    if (role.weights == Residency::kHost && loaded_.insert(call(id).role).second)
      load(id, false, role.prefetch);
    if (role.optimizer == Residency::kHost && call(id).kind == CallKind::kTrainStep)
      load(id, true, role.prefetch);
  }

  // A copy in another layout than the home's is filled before its first use since the weights
  // changed.
  void bring_weights(CallId id) {
    const int32_t index = placement(id).copy;
    if (index < 0 || program_.copies[index].home || live_[index]) return;
    live_[index] = true;
    const WeightCopy& copy = program_.copies[index];
    if (!is_trained(program_.graph, copy.role)) return;
    const WeightCopy& home = program_.copies[home_copy(copy.role)];
    const RoleModel& model = model_of(problem_, copy.role);
    ReallocationOptions options;
    // Where the tensors are not known, adapters count as a share of the weights.
    const bool share = model.trainable.lora && !model.spec;
    options.bytes_per_parameter = precision_bytes(model.precision) *
                                  (share ? trainable_fraction(model.size, model.trainable) : 1);
    auto messages = plan_reallocation(changed_kinds(problem_, copy.role), model.size.layers,
                                      home.layout, copy.layout, problem_.cluster, options);
    for (Message& message : messages) message.owner = index;
    emit(id, std::move(messages), [&](DeviceId sender) { return weights_ready(id, sender); });
  }

  // What a sender of weights waits for: their way back from the host and training earlier in the
  // step.
  std::vector<InstructionId> weights_ready(CallId id, DeviceId sender) const {
    std::vector<InstructionId> after = copy_ready_[home_copy(call(id).role)][sender.value];
    for (int32_t i = 0; i < id.value; ++i)
      if (call(CallId{i}).role == call(id).role && call(CallId{i}).kind == CallKind::kTrainStep &&
          last_[i][sender.value] >= 0)
        after.push_back(InstructionId{last_[i][sender.value]});
    return after;
  }

  template <typename Ready>
  void emit(CallId id, std::vector<Message> messages, const Ready& ready) {
    // Receives by (device, slot, depth, lane), for relays.
    std::map<std::tuple<DeviceId, int32_t, int32_t, int32_t>, std::vector<InstructionId>> received;
    for (Message& message : messages) {
      const auto index = static_cast<int32_t>(program_.messages.size());
      const bool fields = message.kind == MessageKind::kFields;
      auto after =
          message.depth == 0
              ? ready(message.from)
              : received[{message.from, message.slot - 1, message.depth - 1, message.lane}];
      const InstructionId sent =
          append(message.from, {OpCode::kSend, id, ExitCondition::kNone, std::move(after), index});
      if (!fields)
        copy_sends_[message.depth == 0 ? home_copy(call(id).role) : message.owner]
                   [message.from.value]
                       .push_back(sent);
      // Room for weights is there when what ran before has ended; fields are small.
      const InstructionId at =
          append(message.to,
                 {OpCode::kReceive, id, ExitCondition::kNone,
                  fields ? std::vector<InstructionId>{} : after_model(message.to, false), index});
      received[{message.to, message.slot, message.depth, message.lane}].push_back(at);
      auto& arrivals = fields ? arrivals_[message.owner] : copy_ready_[message.owner];
      arrivals[message.to.value].push_back(at);
      program_.messages.push_back(std::move(message));
    }
  }

  void run(CallId id) {
    std::vector<Instruction> body = lower(call(id), id);
    const CallPlacement& where = placement(id);
    const bool other_copy = where.copy >= 0 && !program_.copies[where.copy].home;
    for (Instruction& instruction : body)
      if (other_copy &&
          (instruction.code == OpCode::kCall || instruction.code == OpCode::kGenerateStep))
        instruction.detail = where.copy;
    for (size_t i = 0; i < where.mesh.devices.size(); ++i) {
      std::vector<Instruction> mine = body;
      if (call(id).kind == CallKind::kTrainStep && dense_copies(where.strategy) > 1)
        add_reduction(where, grid_position(where.strategy, i), &mine);
      append_body(id, where.mesh.devices[i], std::move(mine));
    }
    if (call(id).kind == CallKind::kTrainStep) forget_copies(call(id).role);
  }

  void add_reduction(const CallPlacement& where, GridPosition at, std::vector<Instruction>* body) {
    RankGroup group;
    for (at.dp_rank = 0; at.dp_rank < where.strategy.dp; ++at.dp_rank)
      for (at.cp_rank = 0; at.cp_rank < where.strategy.cp; ++at.cp_rank)
        group.members.push_back(where.mesh.devices[mesh_index(where.strategy, at)]);
    auto found = std::find(program_.groups.begin(), program_.groups.end(), group);
    const auto index = static_cast<int32_t>(found - program_.groups.begin());
    if (found == program_.groups.end()) program_.groups.push_back(std::move(group));
    const CallId id = body->front().call;
    const auto insert_after = [&](OpCode before, OpCode code) {
      const auto spot = std::find_if(body->begin(), body->end(),
                                     [&](const Instruction& i) { return i.code == before; });
      body->insert(spot + 1, {code, id, ExitCondition::kNone, {}, index});
    };
    insert_after(OpCode::kSchedule, OpCode::kReduce);
    if (where.strategy.zero_stage == 1 || where.strategy.zero_stage == 2)
      insert_after(OpCode::kOptimizerStep, OpCode::kGather);
  }

  bool reads_from(CallId reader, CallId producer) const {
    const std::vector<std::string>& reads = call(reader).reads;
    const std::vector<Field>& writes = call(producer).writes;
    return std::any_of(writes.begin(), writes.end(), [&](const Field& field) {
      return std::find(reads.begin(), reads.end(), field.name) != reads.end();
    });
  }

  void append_body(CallId id, DeviceId device, std::vector<Instruction> body) {
    const size_t rank = device.value;
    std::vector<InstructionId>& after = body.front().after;
    for (const CallId before : waits_[id.value]) {
      if (last_[before.value][rank] >= 0) after.push_back(InstructionId{last_[before.value][rank]});
      if (!reads_from(id, before)) continue;  // ordered by weights alone
      const auto& received = arrivals_[before.value][rank];
      after.insert(after.end(), received.begin(), received.end());
    }
    if (placement(id).copy >= 0)
      for (const InstructionId ready : copy_ready_[placement(id).copy][rank])
        (comes_within(id, device, ready) ? body.front().within : after).push_back(ready);
    int32_t at = -1;
    for (size_t i = 0; i < body.size(); ++i) {
      if (i > 0) body[i].after.push_back(InstructionId{at});
      at = append(device, std::move(body[i])).value;
    }
    last_[id.value][rank] = at;
    if (!uses_model(call(id))) return;
    used_before_[rank] = used_[rank];
    used_[rank] = at;
  }

  // Whether passes of the call begin before this load of its own has ended: its first layers come
  // first. Calls that are fused, and generations, wait for all.
  bool comes_within(CallId id, DeviceId device, InstructionId ready) const {
    const Instruction& load = program_.ranks[device.value].instructions[ready.value];
    const bool passes = call(id).kind == CallKind::kInfer || call(id).kind == CallKind::kTrainStep;
    if (load.code != OpCode::kLoad || load.call != id || !passes || run_here(id).size() != 1 ||
        !role_plan(plan_, call(id).role).prefetch)
      return false;
    if (program_.states[load.detail].optimizer) return true;
    const Instruction& before = program_.ranks[device.value].instructions[ready.value - 1];
    return before.code == OpCode::kLoad && before.call == id && before.detail == load.detail;
  }

  void forget_copies(const RoleId& role) {
    for (size_t i = 0; i < live_.size(); ++i) {
      if (program_.copies[i].role != role || program_.copies[i].home) continue;
      live_[i] = false;
      for (auto& ready : copy_ready_[i]) ready.clear();
    }
  }

  MoveItem field_item(CallId id, size_t index) const {
    const Field& field = call(id).writes[index];
    MoveItem item{static_cast<int32_t>(index), field_bytes(problem_.workload, field), {}, {}};
    item.owners = field_holders(program_, id, field);
    for (size_t i = 0; i < problem_.graph.calls.size(); ++i) {
      const auto readers = field_readers(program_, CallId{static_cast<int32_t>(i)}, field, id);
      item.receivers.insert(item.receivers.end(), readers.begin(), readers.end());
    }
    return item;
  }

  // Results go at once to all ranks that will read them, whatever calls those are. How large they
  // are comes first, in messages of its own: both sides of a message know its size.
  void send_fields(CallId id) {
    for (const bool counts : {true, false}) send_fields(id, counts);
  }

  void send_fields(CallId id, bool counts) {
    const std::vector<Field>& writes = call(id).writes;
    std::vector<MoveItem> items;
    for (size_t i = 0; i < writes.size(); ++i)
      if ((writes[i].type == FieldType::kCount) == counts) items.push_back(field_item(id, i));
    std::vector<Message> messages = plan_exchange(items, problem_.cluster);
    for (Message& message : messages) message.owner = id.value;
    emit(id, std::move(messages), [&](DeviceId sender) {
      const int32_t last = last_[id.value][sender.value];
      return std::vector<InstructionId>{InstructionId{last}};
    });
  }

  // Whether a later call reads this copy before the weights change.
  bool needed_later(CallId id, int32_t copy) const {
    for (auto next = next_call(id); next; next = next_call(*next)) {
      if (placement(*next).copy == copy) return true;
      if (call(*next).kind == CallKind::kTrainStep) return false;
    }
    return false;
  }

  void release(CallId id, int32_t index) {
    for (const DeviceId device : placement(id).mesh.devices) {
      auto after = after_model(device, false);
      take(&copy_sends_[index][device.value], &after);
      append(device, {OpCode::kRelease, id, ExitCondition::kNone, std::move(after), index});
    }
    live_[index] = false;
    for (auto& ready : copy_ready_[index]) ready.clear();
  }

  void put_away(CallId id) {
    if (!uses_model(call(id))) return;
    const int32_t index = placement(id).copy;
    if (!stays_resident(program_.copies[index], problem_) && !needed_later(id, index))
      release(id, index);
    const RolePlan role = role_plan(plan_, call(id).role);
    if (role.weights == Residency::kHost && last_use(id, role)) {
      offload(id, false);
      loaded_.erase(call(id).role);
    }
    if (role.optimizer == Residency::kHost && call(id).kind == CallKind::kTrainStep)
      offload(id, true);
  }

  const ExecutionPlan& plan_;
  const PlanningProblem& problem_;
  const std::vector<int32_t>& steps_;
  Program program_;
  std::vector<std::vector<CallId>> waits_;
  std::vector<std::vector<int32_t>> last_;                           // [call][rank]
  std::vector<std::vector<std::vector<InstructionId>>> arrivals_;    // [producer][rank]: receives
  std::vector<std::vector<std::vector<InstructionId>>> copy_ready_;  // [copy][rank]
  std::vector<std::vector<std::vector<InstructionId>>> copy_sends_;  // [copy][rank]: that read it
  std::vector<bool> live_;                                           // copies filled now
  std::set<RoleId> loaded_;  // roles whose weights are back from the host now
  std::map<std::pair<int32_t, DeviceId>, InstructionId> offloaded_;  // the last of a state
  std::vector<int32_t> used_, used_before_;  // [rank]: ends of the last two calls with a model
};

}  // namespace

Result<Program> compile(const ExecutionPlan& plan, const PlanningProblem& problem,
                        const std::vector<int32_t>& steps) {
  BRAID_CHECK(steps.empty() || steps.size() == problem.graph.calls.size(), "a step for every call");
  BRAID_TRY(verify(problem.graph));
  BRAID_TRY(validate(plan, problem));
  PlanCompiler compiler(plan, problem, steps);
  if (plan.fusion.train_schedules) {
    std::vector<CallId> trains;
    for (size_t i = 0; i < problem.graph.calls.size(); ++i)
      if (problem.graph.calls[i].kind == CallKind::kTrainStep)
        trains.push_back(CallId{static_cast<int32_t>(i)});
    for (size_t i = 0; i + 1 < trains.size(); i += 2)
      BRAID_TRY(compiler.fuse({trains[i], trains[i + 1]}));
  }
  Program program = compiler.compile();
  BRAID_TRY(verify(program));
  return program;
}

}  // namespace braid
