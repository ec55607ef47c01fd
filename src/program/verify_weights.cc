#include "program/verify_weights.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "program/local_parts.h"
#include "program/placement.h"
#include "program/streamed_update.h"

namespace braid::inline program {
namespace {

Interval common(const Interval& a, const Interval& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

int64_t size_of(const MessagePart& part) { return part.layers.size() * part.units.size(); }

// Elements of a part that others of its kind have too. REQUIRES: those do not overlap.
int64_t covered(const MessagePart& part, const std::vector<MessagePart>& others) {
  int64_t sum = 0;
  for (const MessagePart& other : others) {
    const Interval run = common(part.layers, other.layers);
    const Interval units = common(part.units, other.units);
    if (run.size() > 0 && units.size() > 0) sum += run.size() * units.size();
  }
  return sum;
}

// One entry of the table: what each rank of the copy has while its messages come in order; or what
// one rank has, that sends and receives its own.
class ReallocationRun {
 public:
  ReallocationRun(const Reallocation& entry, const WeightCopy& from, const WeightCopy& to,
                  const ModelShape& model, std::optional<DeviceId> only)
      : entry_(entry), from_(from), to_(to), model_(model), only_(only) {}

  Status run() {
    for (size_t i = 1; i < entry_.members.size(); ++i)
      if (!(entry_.members[i - 1] < entry_.members[i]))
        return invalid_input(
            cat("rank ", entry_.members[i], " is out of the order of its members"));
    for (const DeviceId device : to_.layout.mesh.devices) {
      if (!is_member(device)) return invalid_input(cat("rank ", device, " is no member"));
      if (!looks_at(device)) continue;
      add(kept_parts(model_.changed, model_.layers, from_.layout, to_.layout, device),
          &has_[device]);
    }
    for (size_t i = 0; i < entry_.messages.size(); ++i)
      if (const Status status = pass(entry_.messages[i]); !status.ok())
        return status.at(cat("message ", i));
    for (auto& [device, parts] : has_) BRAID_TRY(is_whole(device, parts));
    return ok_status();
  }

 private:
  using PartsOfKind = std::map<int32_t, std::vector<MessagePart>>;

  static void add(const std::vector<MessagePart>& parts, PartsOfKind* to) {
    for (const MessagePart& part : parts) (*to)[part.item].push_back(part);
  }

  bool is_member(DeviceId device) const {
    return std::binary_search(entry_.members.begin(), entry_.members.end(), device);
  }

  PartsOfKind& home_parts(DeviceId device) {
    const auto [found, added] = at_home_.try_emplace(device);
    const auto place = place_in_mesh(from_.layout, device);
    if (added && place)
      add(held_parts(model_.changed, model_.layers, from_.layout, *place), &found->second);
    return found->second;
  }

  bool looks_at(DeviceId device) const { return !only_ || *only_ == device; }

  Status pass(const Message& message) {
    for (const DeviceId device : {message.from, message.to})
      if (!is_member(device)) return invalid_input(cat("rank ", device, " is no member"));
    if (looks_at(message.from)) BRAID_TRY(send(message));
    return looks_at(message.to) ? receive(message) : ok_status();
  }

  Status send(const Message& message) {
    PartsOfKind& source = message.depth > 0 ? has_[message.from] : home_parts(message.from);
    for (const MessagePart& part : message.parts)
      if (covered(part, source[part.item]) != size_of(part))
        return invalid_input(cat("rank ", message.from, " has not all that it sends"));
    return ok_status();
  }

  Status receive(const Message& message) {
    const auto target = has_.find(message.to);
    if (target == has_.end())
      return invalid_input(cat("rank ", message.to, " has no part of the copy"));
    for (const MessagePart& part : message.parts) {
      if (covered(part, target->second[part.item]) > 0)
        return invalid_input(cat("rank ", message.to, " has already got what it receives"));
      target->second[part.item].push_back(part);
    }
    return ok_status();
  }

  Status is_whole(DeviceId device, PartsOfKind& parts) const {
    const size_t place = *place_in_mesh(to_.layout, device);
    int64_t lacks = 0;
    for (const MessagePart& part : held_parts(model_.changed, model_.layers, to_.layout, place))
      lacks += size_of(part) - covered(part, parts[part.item]);
    return lacks == 0 ? ok_status()
                      : invalid_input(cat("rank ", device, " lacks ", lacks, " elements"));
  }

  const Reallocation& entry_;
  const WeightCopy& from_;
  const WeightCopy& to_;
  const ModelShape& model_;
  const std::optional<DeviceId> only_;
  std::map<DeviceId, PartsOfKind> has_;      // of the copy
  std::map<DeviceId, PartsOfKind> at_home_;  // of the home copy
};

// Walks one list with the copies that are filled.
class CopyWalk {
 public:
  CopyWalk(const Program& program, size_t rank)
      : program_(program),
        self_(DeviceId{static_cast<int32_t>(rank)}),
        list_(program.ranks[rank].instructions) {}

  Status run() {
    const int32_t synced = program_.synced_copy;
    const bool has = synced >= 0 && place_in_mesh(program_.copies[synced].layout, self_);
    if (has) filled_[synced] = kBefore;
    for (size_t i = 0; i < list_.size(); ++i)
      if (const Status status = step(static_cast<int32_t>(i), list_[i]); !status.ok())
        return status.at(cat("instruction ", i, " (", op_kind_name(list_[i].kind), ")"));
    if (has && filled_.count(synced) == 0)
      return invalid_input(cat("leaves copy ", synced, " of ", program_.copies[synced].role,
                               " without the weights that the next step begins with"));
    return ok_status();
  }

 private:
  static constexpr int32_t kBefore = -1;  // by the step before

  static bool waits_for(const Instruction& i, int32_t before) {
    return before == kBefore ||
           std::find(i.after.begin(), i.after.end(), InstructionId{before}) != i.after.end();
  }

  Status step(int32_t at, const Instruction& i) {
    if (i.kind == OpKind::kReallocate) {
      const int32_t copy = program_.reallocations[i.detail].copy;
      const RoleId& role = program_.copies[copy].role;
      const int32_t home = find_home(program_, role);
      if (place_in_mesh(program_.copies[home].layout, self_)) reads_[role].push_back(at);
      if (place_in_mesh(program_.copies[copy].layout, self_)) filled_[copy] = at;
    }
    if (i.kind == OpKind::kRelease) filled_.erase(i.detail);
    if (i.kind == OpKind::kOffload && !program_.states[i.detail].optimizer)
      return leaves(i, program_.states[i.detail].role);
    return i.kind == OpKind::kCall || i.kind == OpKind::kRegionBegin ? start_call(i) : ok_status();
  }

  Status start_call(const Instruction& i) {
    const Call& call = program_.graph.calls[i.call.value];
    const int32_t copy = program_.calls[i.call.value].copy;
    if (copy < 0) return ok_status();
    const RoleId& role = program_.copies[copy].role;
    if (!program_.copies[copy].home && changes(program_.graph, role)) {
      const auto filled = filled_.find(copy);
      if (filled == filled_.end())
        return invalid_input(cat("uses copy ", copy, " of ", role,
                                 ", which nothing has filled since its weights changed"));
      if (!waits_for(i, filled->second))
        return invalid_input(
            cat("does not wait for instruction ", filled->second, ", which fills its weights"));
    }
    if (ends_before_update(program_, i.call, i.part)) return ok_status();
    for (const RoleId& used : used_roles(program_.graph, call))
      if (changes(call, used)) return change(i, used);
    return ok_status();
  }

  // Weights go to the host, or change.
  Status leaves(const Instruction& i, const RoleId& role) {
    for (const int32_t read : reads_[role])
      if (!waits_for(i, read))
        return invalid_input(cat("does not wait for instruction ", read,
                                 ", which may still read the weights of ", role));
    reads_[role].clear();
    return ok_status();
  }

  Status change(const Instruction& i, const RoleId& role) {
    BRAID_TRY(leaves(i, role));
    std::erase_if(filled_,
                  [&](const auto& filled) { return program_.copies[filled.first].role == role; });
    return ok_status();
  }

  const Program& program_;
  const DeviceId self_;
  const std::vector<Instruction>& list_;
  std::map<int32_t, int32_t> filled_;             // by copy: the instruction that did it
  std::map<RoleId, std::vector<int32_t>> reads_;  // of home copies, that may not have ended
};

}  // namespace

Status verify_reallocation_table(const Program& program, std::optional<DeviceId> only) {
  for (size_t i = 0; i < program.reallocations.size(); ++i) {
    const Reallocation& entry = program.reallocations[i];
    const std::string where = cat("reallocation ", i);
    const auto copies = static_cast<int32_t>(program.copies.size());
    if (entry.copy < 0 || entry.copy >= copies || program.copies[entry.copy].home)
      return invalid_input(cat(where, ": fills no copy in another layout"));
    const WeightCopy& copy = program.copies[entry.copy];
    const int32_t home = find_home(program, copy.role);
    const ModelShape* model = find_shape(program, copy.role);
    if (home < 0 || model == nullptr)
      return invalid_input(cat(where, ": role ", copy.role, " has no home copy or no model"));
    BRAID_TRY(ReallocationRun(entry, program.copies[home], copy, *model, only).run().at(where));
  }
  return ok_status();
}

Status verify_copies(const Program& program, size_t rank) {
  return CopyWalk(program, rank).run().at(cat("program of rank ", rank));
}

}  // namespace braid::inline program
