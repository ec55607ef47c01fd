#include "runtime/rank_models.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "host/machine.h"
#include "interpret/interpreter.h"
#include "nn/model_parts.h"
#include "reshard/local_parts.h"
#include "runtime/move_weights.h"
#include "runtime/roles.h"
#include "runtime/tensor_messages.h"

namespace braid {
namespace {

KeptActivations kept_under(Recompute recompute) {
  if (recompute == Recompute::kFull) return KeptActivations::kInputs;
  return recompute == Recompute::kSelective ? KeptActivations::kWithoutAttention
                                            : KeptActivations::kAll;
}

// The graph with the roles whose home copy is on this rank.
Graph roles_at_home(const Program& program, int64_t rank) {
  Graph graph = program.graph;
  if (program.calls.empty()) return graph;
  std::erase_if(graph.roles, [&](const RoleSpec& spec) {
    for (const WeightCopy& copy : program.copies)
      if (copy.home && copy.role == spec.role)
        return !place_in_mesh(copy.layout, DeviceId{static_cast<int>(rank)}).has_value();
    return false;
  });
  return graph;
}

}  // namespace

Result<std::unique_ptr<RankModels>> RankModels::load(const Config& config, const Program& program,
                                                     World* world) {
  std::unique_ptr<RankModels> out(new RankModels(config, program, world));
  if (world != nullptr && world->world_size() > 1) {
    BRAID_ASSIGN(out->everyone_, world->everyone());
  }
  out->find_messages();
  BRAID_TRY(out->connect());
  BRAID_TRY(guarded([&] { return out->load_models(); }));
  if (out->saves_memory()) release_free_heap();  // what loading needed beside it
  out->find_states();
  return out;
}

// In the graph's order on every rank: connecting a group takes all of its members.
Status RankModels::connect() {
  for (size_t i = 0; i < program_.calls.size(); ++i) {
    const CallId id{static_cast<int32_t>(i)};
    const Call& call = program_.graph.calls[i];
    if (!uses_model(call)) continue;
    const GridPosition at = position_in(program_.calls[i], self());
    if (at.dp_rank < 0) continue;
    BRAID_ASSIGN(groups_[id.value], connect_groups(call_frame(program_, id), at, world_));
  }
  return ok_status();
}

ModelPart RankModels::part_of(CallId id) const {
  const CallFrame frame = call_frame(program_, id);
  const Strategy& strategy = frame.where->strategy;
  ModelPart part;
  part.tensor = groups(id).tensor;
  part.several = groups(id).call != nullptr;
  part.data = groups(id).data;
  if (part.data != nullptr) part.zero_stage = strategy.zero_stage;
  part.weights = groups(id).weights;
  part.alone = part.weights != nullptr || rests(program_.graph.calls[id.value].role);
  part.kept = kept_under(strategy.recompute);
  if (strategy.pp == 1) return part;
  const GridPosition at = position_in(*frame.where, self());
  for (int chunk = 0; chunk < strategy.interleave; ++chunk) {
    const Interval layers =
        part_layers(strategy, frame.model->layers, chunk * strategy.pp + at.stage);
    part.ranges.push_back({layers.begin, layers.end});
  }
  return part;
}

int32_t RankModels::home_of(const RoleId& role) const {
  for (size_t i = 0; i < program_.copies.size(); ++i)
    if (program_.copies[i].home && program_.copies[i].role == role) return static_cast<int32_t>(i);
  return -1;
}

Status RankModels::load_models() {
  std::map<std::string, ModelPart> parts;
  std::map<int32_t, CallId> others;  // copies that are not home, with a call that uses them
  for (const auto& [index, groups] : groups_) {
    const CallId id{index};
    const Call& call = program_.graph.calls[index];
    const int32_t copy = program_.calls[index].copy;
    if (!program_.copies[copy].home)
      others[copy] = id;
    else if (parts.count(call.role.value) == 0 || call.kind == CallKind::kTrainStep)
      parts[call.role.value] = part_of(id);
  }
  BRAID_ASSIGN(roles_, load_roles(config_, roles_at_home(program_, rank()), parts));
  for (const auto& [copy, call] : others) {
    const RoleSpec* spec = find_role(program_.graph, program_.copies[copy].role);
    if (spec->trained && config_.lora.rank == 0) continue;  // bring() makes it
    BRAID_TRY(load_copy(copy, call));
  }
  return ok_status();
}

Status RankModels::load_copy(int32_t copy, CallId call) {
  const RoleSpec* spec = find_role(program_.graph, program_.copies[copy].role);
  BRAID_ASSIGN(copies_[copy].instance,
               load_role_copy(*spec, config_, part_of(call)).at(cat("role ", spec->role)));
  return ok_status();
}

Model& RankModels::model(CallId id) {
  const Call& call = program_.graph.calls[id.value];
  const int32_t copy = program_.calls.empty() ? -1 : program_.calls[id.value].copy;
  if (copy < 0 || program_.copies[copy].home) {
    await(id);
    return *roles_.at(call.role.value).model;
  }
  BRAID_CHECK(!find_role(program_.graph, call.role)->trained || is_current(copy),
              cat("call ", call.name, " would read weights of before the last update"));
  return *copies_.at(copy).instance.model;
}

// The messages of parameters that the lists hold, in the program's order.
void RankModels::find_messages() {
  std::map<int32_t, std::set<int32_t>> by_call;
  for (const RankProgram& list : program_.ranks)
    for (const Instruction& instruction : list.instructions)
      if (instruction.code == OpCode::kSend)
        by_call[instruction.call.value].insert(instruction.detail);
  for (const auto& [call, indices] : by_call)
    for (const int32_t index : indices) messages_[call].push_back(program_.messages[index]);
}

bool RankModels::is_current(int32_t copy) const {
  const auto found = copies_.find(copy);
  const auto version = versions_.find(program_.copies[copy].role.value);
  return found != copies_.end() &&
         found->second.version == (version == versions_.end() ? 0 : version->second);
}

// What moves of a role: with adapters these alone, since every copy has loaded what is below them.
const TensorMap& RankModels::map_of(const RoleId& role, const ModelSpec& architecture) {
  const auto known = maps_.find(role.value);
  if (known != maps_.end()) return known->second;
  const int64_t rank = config_.lora.rank;
  return maps_
      .emplace(role.value, rank > 0 ? adapter_map(architecture, rank, config_.lora.targets)
                                    : tensor_map(architecture))
      .first->second;
}

// What a move needs is there or loaded here; none where the copy is current.
Status RankModels::begin_move(CallId id) {
  if (program_.calls.empty() || program_.calls[id.value].copy < 0) return ok_status();
  const int32_t index = program_.calls[id.value].copy;
  const WeightCopy& to = program_.copies[index];
  const RoleSpec* spec = find_role(program_.graph, to.role);
  if (to.home || !spec->trained) return ok_status();
  const std::vector<Message>& messages = messages_[id.value];
  const WeightCopy& from = program_.copies[home_of(to.role)];
  const bool sends = place_in_mesh(from.layout, self()).has_value();
  const bool takes = place_in_mesh(to.layout, self()).has_value();
  // Slices are gathered by all of their holders, which know of each other's copies.
  const int64_t version = versions_[to.role.value];
  const bool filled =
      std::exchange(filled_.try_emplace(index, -1).first->second, version) == version;
  const bool has_it = from.layout.sharded ? filled : !takes || is_current(index);
  if (messages.empty() && has_it) return ok_status();
  if (!sends && !takes) return ok_status();
  if (takes && copies_.count(index) == 0) BRAID_TRY(load_copy(index, id));
  for (const auto& [state, resting] : states_)  // earlier than in the list: messages go first
    if (program_.states[state] == RoleState{to.role, false}) load(state);
  OpenMove open{id, to.role, takes ? &copies_.at(index) : nullptr, version, nullptr};
  ModelInstance* source = sends ? &roles_.at(to.role.value) : nullptr;
  const ModelInstance& known = source != nullptr ? *source : open.target->instance;
  WeightMove move{from, to, messages, map_of(to.role, known.model->spec())};
  move.source = source;
  move.target = takes ? &open.target->instance : nullptr;
  move.everyone = everyone_;
  if (takes) move.holders = groups(id).weights;
  open.move = std::make_unique<StartedMove>(move, self());
  moves_.push_back(std::move(open));
  return moves_.back().move->start().at(cat("weights of ", to.role));
}

Status RankModels::begin_bringing(CallId id) {
  for (const OpenMove& open : moves_)
    if (open.call == id || (open.move && !open.move->posted())) return ok_status();
  return begin_move(id);
}

Status RankModels::finish(OpenMove& open) {
  if (!open.move) return ok_status();
  BRAID_TRY(open.move->finish().at(cat("weights of ", open.role)));
  open.move.reset();
  if (open.target == nullptr) return ok_status();
  open.target->instance.model->weights_changed();
  open.target->version = open.version;
  return ok_status();
}

// A rank that waits here for its peers waits for what they do before this call alone.
Status RankModels::bring(CallId id) {
  const auto of_call = [&](const OpenMove& open) { return open.call == id; };
  if (std::none_of(moves_.begin(), moves_.end(), of_call)) BRAID_TRY(begin_move(id));
  for (OpenMove& open : moves_)
    if (of_call(open) && (open.target != nullptr || (open.move && !open.move->posted())))
      BRAID_TRY(finish(open));
  return ok_status();
}

Status RankModels::finish_moves(const RoleId& role) {
  for (OpenMove& open : moves_)
    if (open.role == role) BRAID_TRY(finish(open));
  return ok_status();
}

Status RankModels::end_moves() {
  for (OpenMove& open : moves_) BRAID_TRY(finish(open));
  moves_.clear();
  return ok_status();
}

void RankModels::forget(CallId call) {
  const int32_t copy = program_.calls.empty() ? -1 : program_.calls[call.value].copy;
  const auto releases = [&](const RankProgram& list) {
    return std::any_of(list.instructions.begin(), list.instructions.end(),
                       [&](const Instruction& each) {
                         return each.code == OpCode::kRelease && each.detail == copy;
                       });
  };
  if (copy < 0 || std::none_of(program_.ranks.begin(), program_.ranks.end(), releases)) return;
  copies_.erase(copy);
  filled_.erase(copy);
}

void RankModels::find_states() {
  for (size_t i = 0; i < program_.states.size(); ++i) {
    const RoleState& state = program_.states[i];
    const auto found = roles_.find(state.role.value);
    if (found == roles_.end()) continue;
    if (!copy_thread_) copy_thread_ = std::make_unique<CopyThread>();
    const ModelInstance& role = found->second;
    auto* const decoder = dynamic_cast<Decoder*>(role.model.get());
    std::vector<std::pair<int64_t, at::Tensor>> tensors;
    if (state.optimizer)
      for (const at::Tensor& tensor : role.optimizer->tensors()) tensors.emplace_back(0, tensor);
    else if (role.shards)
      tensors = role.shards->slices();
    else
      for (const auto& [name, parameter] : role.model->parameters())
        tensors.emplace_back(decoder == nullptr ? 0 : decoder->unit_of(name), parameter);
    Resting& resting =
        states_.emplace(static_cast<int32_t>(i), Resting{HostState(tensors, copy_thread_.get())})
            .first->second;
    if (state.optimizer || decoder == nullptr) continue;
    resting.decoder = decoder;
    decoder->set_unit_begin([&resting](int64_t unit) { resting.memory.wait(unit); });
  }
}

std::vector<std::pair<std::string, const ModelInstance*>> RankModels::instances() const {
  std::vector<std::pair<std::string, const ModelInstance*>> out;
  for (const auto& [name, role] : roles_) out.emplace_back(name, &role);
  for (const auto& [copy, held] : copies_)
    out.emplace_back(cat(program_.copies[copy].role, " in another layout"), &held.instance);
  return out;
}

void RankModels::begin_load(int32_t state, const Interval& layers) {
  const auto found = states_.find(state);
  if (found == states_.end() || found->second.memory.here()) return;
  Resting& resting = found->second;
  resting.changed = false;
  if (layers.size() <= 0 || resting.decoder == nullptr) return resting.memory.begin_load();
  const auto [first, last] = resting.decoder->units_of_layers(layers.begin, layers.end);
  resting.memory.begin_load(first, last);
}

void RankModels::load(int32_t state) {
  begin_load(state, {});
  if (const auto found = states_.find(state); found != states_.end()) found->second.memory.wait();
}

void RankModels::offload(int32_t state) {
  const auto found = states_.find(state);
  if (found == states_.end()) return;
  const RoleState& of = program_.states[state];
  if (const Status sent = finish_moves(of.role); !sent.ok()) throw CommunicationFailure(sent);
  if (!of.optimizer) roles_.at(of.role.value).model->rest();  // what was derived from the weights
  found->second.memory.offload(found->second.changed);
}

void RankModels::rest() {
  for (const auto& [state, resting] : states_) offload(state);
}

void RankModels::bring_states() {
  for (const auto& [state, resting] : states_) load(state);
}

void RankModels::note_update(const RoleId& role) {
  for (auto& [state, resting] : states_)
    if (program_.states[state].role == role) {
      BRAID_CHECK(resting.memory.here(),
                  cat("state of ", role, " changes while it is on the host"));
      resting.memory.wait();
      resting.changed = true;
    }
}

bool RankModels::rests(const RoleId& role) const {
  return std::any_of(program_.states.begin(), program_.states.end(),
                     [&](const RoleState& state) { return state.role == role; });
}

bool RankModels::saves_memory() const {
  return !states_.empty() || std::any_of(roles_.begin(), roles_.end(), [](const auto& role) {
    return role.second.shards != nullptr;
  });
}

// Whether the program lets the first pass of a call wait for layers.
bool RankModels::passes_wait(CallId call) const {
  for (const Instruction& i : program_.ranks[rank()].instructions)
    if (i.call == call && (i.code == OpCode::kCall || i.code == OpCode::kRegionBegin))
      return !i.within.empty();
  return false;
}

void RankModels::await(CallId call) {
  const RoleId& role = program_.graph.calls[call.value].role;
  for (auto& [state, resting] : states_) {
    if (program_.states[state] != RoleState({role, false})) continue;
    BRAID_CHECK(resting.memory.here(),
                cat("weights of ", role, " are used while they are on the host"));
    if (resting.decoder == nullptr || !passes_wait(call)) resting.memory.wait();
  }
}

RankModels::Everything::Everything(RankModels& models) : models_(models) {
  for (const auto& [state, resting] : models_.states_)
    if (!resting.memory.here()) away_.push_back(state);
  models_.bring_states();
}

RankModels::Everything::~Everything() {
  for (const int32_t state : away_) models_.offload(state);
}

// The ranks that give a role's tensors: one of each stage, of the first replica.
std::vector<int64_t> RankModels::holders(const std::string& role) const {
  const ParamLayout& layout = program_.copies[home_of(RoleId{role})].layout;
  const Strategy grid = layout_grid(layout);
  std::vector<int64_t> out;
  for (int stage = 0; stage < layout.pp; ++stage)
    out.push_back(layout.mesh.devices[mesh_index(grid, {0, 0, stage, 0})].value);
  return out;
}

bool RankModels::whole_on_first(const std::string& role) const {
  if (program_.calls.empty()) return true;
  for (size_t i = 0; i < program_.calls.size(); ++i)
    if (const Call& call = program_.graph.calls[i];
        call.kind == CallKind::kTrainStep && call.role.value == role &&
        program_.calls[i].strategy.zero_stage > 0 && program_.calls[i].strategy.dp > 1)
      return false;
  const ParamLayout& layout = program_.copies[home_of(RoleId{role})].layout;
  return layout.tp == 1 && layout.pp == 1 && place_in_mesh(layout, DeviceId{0}).has_value();
}

Result<RoleTensors> RankModels::gather(const std::string& role) {
  const ParamLayout& layout = program_.copies[home_of(RoleId{role})].layout;
  const auto place = place_in_mesh(layout, self());
  RoleTensors mine;
  if (place) {
    const ModelInstance& instance = roles_.at(role);
    const bool first = grid_position(layout_grid(layout), *place).dp_rank == 0;
    BRAID_ASSIGN(const RoleTensors own, role_tensors(instance, first));  // replicas share them
    if (first) {
      BRAID_ASSIGN(mine, whole_tensors(*instance.model, own));
    }
  }
  RoleTensors all;
  for (const int64_t from : holders(role)) {
    RoleTensors part;
    if (from == rank()) part = mine;
    if (from != 0) {
      BRAID_ASSIGN(part, pass_to_first(part, from, *everyone_));
    }
    append_new(part, &all);
  }
  return rank() == 0 ? all : RoleTensors();
}

}  // namespace braid
