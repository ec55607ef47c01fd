#include "program/verify_meetings.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"

namespace braid::inline program {
namespace {

std::string place(const Expansion& e, size_t op) {
  if (op >= e.ops.size()) return cat("rank ", e.rank, ", end of its ops");
  return cat("rank ", e.rank, ", op ", op, " (", op_kind_name(e.ops[op].kind), ")");
}

// A message as one of its ends lists it, and where.
struct PassMessage {
  int32_t cut, minibatch, micro_batch;
  double bytes;
  size_t op = 0;
  bool same(const PassMessage& other) const {
    return std::tie(cut, minibatch, micro_batch, bytes) ==
           std::tie(other.cut, other.minibatch, other.micro_batch, other.bytes);
  }
};

std::vector<PassMessage> messages(const Expansion& e, DeviceId peer, Channel channel, OpKind kind) {
  std::vector<PassMessage> out;
  for (size_t i = 0; i < e.ops.size(); ++i) {
    const Op& op = e.ops[i];
    if (op.channel == channel && op.kind == kind && op.peer == peer)
      out.push_back({op.cut, op.minibatch, op.micro_batch, op.bytes, i});
  }
  return out;
}

Status verify_channel(const Expansion& own, const Expansion& peer, Channel channel, OpKind kind) {
  const OpKind other = kind == OpKind::kSend ? OpKind::kReceive : OpKind::kSend;
  const auto mine = messages(own, peer.rank, channel, kind);
  const auto theirs = messages(peer, own.rank, channel, other);
  for (size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i) {
    if (i < mine.size() && i < theirs.size() && mine[i].same(theirs[i])) continue;
    const std::string here = place(own, i < mine.size() ? mine[i].op : own.ops.size());
    const std::string there = place(peer, i < theirs.size() ? theirs[i].op : peer.ops.size());
    return invalid_input(cat(here, ": message ", i, " of its channel is not received as it is ",
                             "sent: the other end is ", there));
  }
  return ok_status();
}

// What a rank lists of one group.
struct Listed {
  OpKind kind;
  int32_t minibatch;
  double bytes;
  const std::vector<TensorSlice>* what;  // null: not the same on all members
  size_t op = 0;
  bool same(const Listed& other) const {
    const bool tensors =
        what == nullptr || other.what == nullptr ? what == other.what : *what == *other.what;
    return kind == other.kind && minibatch == other.minibatch && bytes == other.bytes && tensors;
  }
};

Listed listed(const Expansion& e, size_t at) {
  const Op& op = e.ops[at];
  const bool each_its_part = op.kind == OpKind::kAllGather || op.kind == OpKind::kReduceScatter ||
                             op.kind == OpKind::kSample;
  const bool sums = op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduceScatter;
  return {op.kind, op.minibatch, each_its_part ? 0 : op.bytes,
          sums && op.what >= 0 ? &e.tensors[op.what] : nullptr, at};
}

std::vector<Listed> listed_of(const Expansion& e, int32_t group) {
  std::vector<Listed> out;
  for (size_t i = 0; i < e.ops.size(); ++i) {
    const Op& op = e.ops[i];
    if (op.group == group) out.push_back(listed(e, i));
    if (op.kind != OpKind::kForward && op.kind != OpKind::kBackward) continue;
    const OpBody& body = e.bodies[op.body];
    for (const InsideOp& inside : op.kind == OpKind::kForward ? body.forward : body.backward)
      if (inside.group == group) out.push_back({inside.kind, op.minibatch, 0, nullptr, i});
  }
  return out;
}

int32_t find_group(const Expansion& e, const OpGroup& group) {
  for (size_t i = 0; i < e.groups.size(); ++i)
    if (e.groups[i].kind == group.kind && e.groups[i].members == group.members)
      return static_cast<int32_t>(i);
  return -1;
}

Status verify_group(const Expansion& own, size_t index, const OpsOfRank& ops) {
  const OpGroup& group = own.groups[index];
  const auto& members = group.members;
  const auto self = std::find(members.begin(), members.end(), own.rank);
  if (self == members.end())
    return invalid_input(
        cat("rank ", own.rank, ": is no member of its ", group_kind_name(group.kind), " group"));
  if (members.size() == 1) return ok_status();
  const Expansion& next = ops(self + 1 == members.end() ? members.front() : *(self + 1));
  const int32_t there = find_group(next, group);
  const std::vector<Listed> mine = listed_of(own, static_cast<int32_t>(index));
  const std::vector<Listed> theirs = there < 0 ? std::vector<Listed>{} : listed_of(next, there);
  for (size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i) {
    if (i < mine.size() && i < theirs.size() && mine[i].same(theirs[i])) continue;
    return invalid_input(cat(place(own, i < mine.size() ? mine[i].op : own.ops.size()),
                             ": does not list the same collectives of its ",
                             group_kind_name(group.kind), " group as rank ", next.rank));
  }
  return ok_status();
}

// The lists of a pipeline, executed one op after another.
class PipelineRun {
 public:
  PipelineRun(const std::vector<DeviceId>& ranks, const OpsOfRank& ops) : ranks_(ranks) {
    for (const DeviceId rank : ranks) lists_.push_back(&ops(rank));
    next_.assign(ranks.size(), 0);
    met_.resize(ranks.size());
  }

  Status run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < lists_.size(); ++stage)
        for (; next_[stage] < lists_[stage]->ops.size() && passes(stage); ++next_[stage])
          moved = true;
    }
    for (size_t stage = 0; stage < lists_.size(); ++stage)
      if (next_[stage] < lists_[stage]->ops.size())
        return invalid_input(cat(place(*lists_[stage], next_[stage]), ": waits forever"));
    return ok_status();
  }

 private:
  // Whether the next op of a stage ends, given how far the others are.
  bool passes(size_t stage) {
    const Expansion& e = *lists_[stage];
    const Op& op = e.ops[next_[stage]];
    if (op.kind == OpKind::kSend) ++sent_[{e.rank, op.peer, op.channel}];
    if (op.kind == OpKind::kReceive)
      return --sent_[{op.peer, e.rank, op.channel}] >= 0 ||
             (++sent_[{op.peer, e.rank, op.channel}], false);
    return op.group < 0 || meets(stage, e.groups[op.group]);
  }

  // A stage has come to a collective; it ends when the others of the group have come to it too.
  bool meets(size_t stage, const OpGroup& group) {
    if (arrived_[stage] != next_[stage] + 1) {
      arrived_[stage] = next_[stage] + 1;
      ++met_[stage][group.kind];
    }
    for (size_t other = 0; other < ranks_.size(); ++other) {
      const auto& members = group.members;
      if (met_[other][group.kind] < met_[stage][group.kind] &&
          std::find(members.begin(), members.end(), ranks_[other]) != members.end())
        return false;
    }
    return true;
  }

  const std::vector<DeviceId>& ranks_;
  std::vector<const Expansion*> lists_;  // [stage]
  std::vector<size_t> next_;             // [stage]
  std::map<size_t, size_t> arrived_;     // by stage: 1 + the collective that it has come to
  std::vector<std::map<GroupKind, int64_t>> met_;  // [stage]: collectives that it has come to
  std::map<std::tuple<DeviceId, DeviceId, Channel>, int64_t> sent_;  // and not received
};

}  // namespace

Status verify_messages(const Expansion& own, const std::vector<DeviceId>& others,
                       const OpsOfRank& ops) {
  std::vector<DeviceId> peers = others;
  for (size_t i = 0; i < own.ops.size(); ++i) {
    const Op& op = own.ops[i];
    if (op.channel == Channel::kNone) continue;
    if (op.peer == own.rank || std::find(others.begin(), others.end(), op.peer) == others.end())
      return invalid_input(
          cat(place(own, i), ": rank ", op.peer, " is no other stage of its pipeline"));
  }
  for (const DeviceId peer : others) {
    if (peer == own.rank) continue;
    for (const Channel channel : {Channel::kActivations, Channel::kGradients})
      for (const OpKind kind : {OpKind::kReceive, OpKind::kSend})
        BRAID_TRY(verify_channel(own, ops(peer), channel, kind));
  }
  return ok_status();
}

Status verify_groups(const Expansion& own, const OpsOfRank& ops) {
  for (size_t i = 0; i < own.groups.size(); ++i) BRAID_TRY(verify_group(own, i, ops));
  return ok_status();
}

Status verify_no_circle(const std::vector<DeviceId>& ranks, const OpsOfRank& ops) {
  return PipelineRun(ranks, ops).run();
}

}  // namespace braid::inline program
