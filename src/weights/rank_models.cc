#include "weights/rank_models.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "comm/channels.h"
#include "host/machine.h"
#include "interpret/interpreter.h"
#include "nn/model_parts.h"
#include "program/local_parts.h"
#include "program/placement.h"
#include "weights/follow.h"
#include "weights/move_audit.h"
#include "weights/move_weights.h"
#include "weights/peer_reads.h"
#include "weights/roles.h"

namespace braid::inline weights {
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
    const int32_t home = find_home(program, spec.role);
    return home >= 0 &&
           !place_in_mesh(program.copies[home].layout, DeviceId{static_cast<int>(rank)});
  });
  return graph;
}

}  // namespace

Result<std::unique_ptr<RankModels>> RankModels::load(const Config& config, const Program& program,
                                                     World* world) {
  std::unique_ptr<RankModels> out(new RankModels(config, program, world));
  if (world != nullptr && world->world_size() > 1) {
    BRAID_ASSIGN(out->everyone_, world->everyone());
    out->reads_.emplace();
    BRAID_ASSIGN(out->reads_for_peers_, reads_for_peers(config, program.graph, world));
  }
  BRAID_ASSIGN(out->groups_, connect_calls(program, out->self(), world));
  BRAID_TRY(guarded([&] { return out->load_models(); }));
  if (out->reads_) BRAID_TRY(agree_on_reads(*world, config, program, *out->reads_));
  out->reads_.reset();
  if (out->saves_memory()) release_free_heap();  // what loading needed beside it
  out->find_states();
  return out;
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

ReadBlocks* RankModels::reads_of(CallId call) {
  return reads_ ? &(*reads_)[program_.calls[call.value].copy] : nullptr;
}

Status RankModels::set_reading(CallId call, ModelPart* part) {
  part->read = reads_of(call);
  if (!reads_for_peers_) return ok_status();
  const WeightCopy& copy = program_.copies[program_.calls[call.value].copy];
  BRAID_ASSIGN(part->readers, connect_readers(copy, *world_));
  return ok_status();
}

int32_t RankModels::home_of(const RoleId& role) const { return find_home(program_, role); }

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
      parts[call.role.value] = part_of(homes_[call.role.value] = id);
  }
  // In the graph's order on all ranks: connecting those that read together takes all of them.
  for (const RoleSpec& role : program_.graph.roles)
    if (const auto part = parts.find(role.role.value); part != parts.end())
      BRAID_TRY(set_reading(homes_.at(part->first), &part->second));
  BRAID_ASSIGN(roles_, load_roles(config_, roles_at_home(program_, rank()), parts));
  for (const auto& [copy, call] : others) {
    const RoleSpec* spec = find_role(program_.graph, program_.copies[copy].role);
    const bool changes_whole = changes(program_.graph, spec->role) && config_.lora.rank == 0;
    if (changes_whole) continue;  // a reallocation makes it
    ModelPart part = part_of(call);
    BRAID_TRY(set_reading(call, &part));
    BRAID_TRY(load_copy(copy, part));
  }
  return ok_status();
}

Status RankModels::load_copy(int32_t copy, const ModelPart& part) {
  const WeightCopy& wanted = program_.copies[copy];
  const RoleSpec* spec = find_role(program_.graph, wanted.role);
  const auto home = roles_.find(wanted.role.value);
  const bool lends =
      home != roles_.end() && lends_memory(program_, program_.copies[home_of(wanted.role)], wanted);
  const auto* const lender =
      lends ? dynamic_cast<const Decoder*>(home->second.model.get()) : nullptr;
  BRAID_ASSIGN(copies_[copy].instance,
               load_role_copy(as_moved(program_.graph, *spec), config_, part, lender)
                   .at(cat("role ", spec->role)));
  return ok_status();
}

Model& RankModels::model(CallId id) {
  const Call& call = program_.graph.calls[id.value];
  const int32_t copy = program_.calls.empty() ? -1 : program_.calls[id.value].copy;
  if (copy < 0 || program_.copies[copy].home) {
    await(id);
    return *roles_.at(call.role.value).model;
  }
  const auto found = copies_.find(copy);
  BRAID_CHECK(found != copies_.end(), cat("call ", call.name, " has no weights"));
  BRAID_CHECK(found->second.filled || !changes(program_.graph, call.role),
              cat("call ", call.name, " would read weights of before the last update"));
  return *found->second.instance.model;
}

Status RankModels::follow(CallId id, double keep) {
  const std::vector<RoleId> used = used_roles(program_.graph, program_.graph.calls[id.value]);
  const RoleId &source = used[0], &target = used[1];
  const int32_t copy = program_.calls.empty() ? -1 : program_.calls[id.value].copy;
  const bool home = copy < 0 || program_.copies[copy].home;
  BRAID_CHECK(home || copies_.at(copy).filled,
              cat(target, " would follow weights of before the last update"));
  for (auto& [state, resting] : states_)
    if (program_.states[state] == RoleState{source, false} && home) resting.memory.wait();
  note_update(target);
  ModelInstance& followed = home ? roles_.at(source.value) : copies_.at(copy).instance;
  const auto listed = [&] {
    const CallId user = home ? homes_.at(source.value) : user_of(program_, copy);
    return listed_of_following(program_, {user, groups(user), followed}, self());
  };
  BRAID_TRY(audited(
      cat("following of ", target), [&] { return followed.shards ? listed() : TransferCounts(); },
      [&] {
        return follow_weights(roles_.at(target.value), followed, keep)
            .at(cat("weights of ", target));
      }));
  note_training(target);
  return ok_status();
}

// What moves of a role: with adapters these alone, since every copy has loaded what is below them.
const TensorMap& RankModels::map_of(const RoleId& role, const ModelSpec& architecture) {
  const auto known = maps_.find(role.value);
  if (known != maps_.end()) return known->second;
  return maps_.emplace(role.value, changed_tensors(architecture, config_)).first->second;
}

// The messages of a copy and what the rank has of it. REQUIRES: the rank is a member.
Status RankModels::begin_move(int32_t entry) {
  const Reallocation& reallocation = program_.reallocations[entry];
  const WeightCopy& to = program_.copies[reallocation.copy];
  const WeightCopy& from = program_.copies[home_of(to.role)];
  const bool gives = place_in_mesh(from.layout, self()).has_value();
  const bool takes = place_in_mesh(to.layout, self()).has_value();
  const CallId user = user_of(program_, reallocation.copy);
  if (takes && copies_.count(reallocation.copy) == 0) {
    ModelPart part = part_of(user);
    part.read = reads_of(user);  // no peers: they come here at places of their own
    BRAID_TRY(load_copy(reallocation.copy, part));
  }
  for (const auto& [state, resting] : states_)
    if (program_.states[state] == RoleState{to.role, false}) load(state);
  const bool first = compared_.insert(entry).second;  // on all members alike
  OpenMove open{entry,   to.role, takes ? &copies_.at(reallocation.copy) : nullptr,
                nullptr, first,   TransferAudit::begin()};
  ModelInstance* source = gives ? &roles_.at(to.role.value) : nullptr;
  const ModelInstance& known = source != nullptr ? *source : open.target->instance;
  WeightMove move{from, to, reallocation.messages, map_of(to.role, known.model->spec())};
  move.channel = kFirstWeightChannel + entry;
  move.compare = first;
  move.source = source;
  move.target = takes ? &open.target->instance : nullptr;
  move.everyone = everyone_;
  if (takes) move.holders = groups(user).weights;
  open.move = std::make_unique<StartedMove>(move, self());
  moves_.push_back(std::move(open));
  OpenMove& begun = moves_.back();
  expect_listed(begun);
  const TransferAudit::Counting counting(begun.audit);
  return begun.move->start().at(cat("weights of ", to.role));
}

void RankModels::expect_listed(OpenMove& open) const {
  if (!open.audit.on()) return;
  std::optional<SideOfMove> source, target;
  if (const auto home = homes_.find(open.role.value); home != homes_.end())
    source.emplace(SideOfMove{home->second, groups(home->second), roles_.at(open.role.value)});
  const CallId user = user_of(program_, program_.reallocations[open.entry].copy);
  if (open.target != nullptr) target.emplace(SideOfMove{user, groups(user), open.target->instance});
  open.audit.expect(
      listed_of_reallocation(program_, open.entry, self(), kFirstWeightChannel + open.entry,
                             source ? &*source : nullptr, target ? &*target : nullptr));
  if (open.compares)
    open.audit.expect(
        digests_of_reallocation(program_, open.entry, self(), kFirstWeightChannel + open.entry));
}

RankModels::OpenMove* RankModels::open_move(int32_t entry) {
  for (OpenMove& open : moves_)
    if (open.entry == entry) return &open;
  return nullptr;
}

Status RankModels::begin_reallocation(int32_t entry) {
  return open_move(entry) == nullptr ? begin_move(entry) : ok_status();
}

Status RankModels::finish(OpenMove& open) {
  if (!open.move) return ok_status();
  {
    const TransferAudit::Counting counting(open.audit);
    BRAID_TRY(open.move->finish().at(cat("weights of ", open.role)));
  }
  open.audit.count(open.move->begun_beside());
  open.move.reset();
  open.audit.settle(cat("a reallocation of ", open.role));
  if (open.target == nullptr) return ok_status();
  open.target->instance.model->weights_changed();
  open.target->filled = true;
  return ok_status();
}

// What goes on beside computation is waited for where it is used. Slices are gathered by ranks that
// have all come to this place.
Status RankModels::reallocate(int32_t entry) {
  BRAID_TRY(begin_reallocation(entry));
  OpenMove& open = *open_move(entry);
  return open.move && !open.move->goes_on() ? finish(open) : ok_status();
}

Status RankModels::reallocated(int32_t entry) {
  OpenMove* const open = open_move(entry);
  return open == nullptr ? ok_status() : finish(*open);
}

Status RankModels::end_moves() {
  for (OpenMove& open : moves_) BRAID_TRY(finish(open));
  moves_.clear();
  return ok_status();
}

// The first entry that fills it: all of a copy's bring the same.
Status RankModels::fill_copy_of(CallId call) {
  const int32_t copy = program_.calls.empty() ? -1 : program_.calls[call.value].copy;
  if (is_synced(copy)) return ok_status();
  for (size_t i = 0; i < program_.reallocations.size(); ++i) {
    const Reallocation& each = program_.reallocations[i];
    if (each.copy != copy) continue;
    if (std::binary_search(each.members.begin(), each.members.end(), self()))
      BRAID_TRY(begin_move(static_cast<int32_t>(i)));
    return end_moves();
  }
  return ok_status();
}

bool RankModels::is_synced(int32_t copy) const {
  return synced_ && copy >= 0 && copy == program_.synced_copy;
}

Status RankModels::begin_step() {
  if (program_.synced_copy < 0) return ok_status();
  // Weights that rest on the host come for that, and go again: lists bring them where they are
  // used.
  const RoleState home{program_.copies[program_.synced_copy].role, false};
  std::vector<int32_t> away;
  for (const auto& [state, resting] : states_)
    if (program_.states[state] == home && !resting.memory.here()) away.push_back(state);
  BRAID_TRY(fill_copy_of(user_of(program_, program_.synced_copy)));
  for (const int32_t state : away) offload(state);
  synced_ = false;
  return ok_status();
}

void RankModels::note_training(const RoleId& role) {
  for (auto& [copy, held] : copies_)
    if (program_.copies[copy].role == role) held.filled = false;
}

void RankModels::forget(CallId call) {
  const int32_t copy = program_.calls.empty() ? -1 : program_.calls[call.value].copy;
  const auto releases = [&](const RankProgram& list) {
    return std::any_of(list.instructions.begin(), list.instructions.end(),
                       [&](const Instruction& each) {
                         return each.kind == OpKind::kRelease && each.detail == copy;
                       });
  };
  if (copy < 0 || is_synced(copy) ||
      std::none_of(program_.ranks.begin(), program_.ranks.end(), releases))
    return;
  copies_.erase(copy);
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
    if (i.call == call && (i.kind == OpKind::kCall || i.kind == OpKind::kRegionBegin))
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

bool RankModels::whole_on_first(const std::string& role) const {
  if (program_.calls.empty()) return true;
  for (size_t i = 0; i < program_.calls.size(); ++i)
    if (const Call& call = program_.graph.calls[i];
        call.kind == CallKind::kTrainStep && call.role.value == role &&
        program_.calls[i].strategy.zero_stage > 0 && program_.calls[i].strategy.dp > 1)
      return false;
  const ParamLayout& layout = program_.copies[home_of(RoleId{role})].layout;
  if (layout.sharded) return false;
  return layout.tp == 1 && layout.pp == 1 && place_in_mesh(layout, DeviceId{0}).has_value();
}

RoleSlices RankModels::own_slices(const std::string& role) const {
  Replica replica;
  if (const auto home = homes_.find(role); home != homes_.end()) {
    const Strategy& strategy = program_.calls[home->second.value].strategy;
    const int copy = copy_rank(strategy, position_in(program_.calls[home->second.value], self()));
    const int copies = dense_copies(strategy);
    const int shards = strategy.zero_stage > 0 ? zero_ranks(strategy) : copies;
    replica = {copy % shards, shards, copy / shards, copies / shards};
  }
  return braid::own_slices(roles_.at(role), replica);
}

bool RankModels::leads(const std::string& role) const {
  const int32_t home = home_of(RoleId{role});
  return home < 0 || place_in_mesh(program_.copies[home].layout, self()) == size_t{0};
}

}  // namespace braid::inline weights
