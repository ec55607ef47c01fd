#include "emulate/rank_work.h"

#include <algorithm>

#include "base/text.h"

namespace braid::inline emulate {
namespace {

std::string group_name(const OpGroup& group) {
  std::string name = group_kind_name(group.kind);
  for (const DeviceId member : group.members) name += cat("-", member.value);
  return name;
}

Result<Communicator*> connect(const OpGroup& group, World& world) {
  std::vector<int64_t> members;
  for (const DeviceId device : group.members) members.push_back(device.value);
  return world.group(group_name(group), std::move(members));
}

bool has(const OpGroup& group, DeviceId rank) {
  return std::find(group.members.begin(), group.members.end(), rank) != group.members.end();
}

Result<std::vector<Communicator*>> connect_all(const Program& program, World& world) {
  std::vector<Communicator*> out;
  const DeviceId rank{static_cast<int32_t>(world.global_rank())};
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    if (!uses_model(program.graph.calls[i])) continue;
    for (const OpGroup& group : call_groups(call_frame(program, CallId{static_cast<int32_t>(i)})))
      if (has(group, rank)) {
        BRAID_ASSIGN(Communicator * connected, connect(group, world));
        const bool known = std::find(out.begin(), out.end(), connected) != out.end();
        if (!known && connected->size() > 1) out.push_back(connected);
      }
  }
  return out;
}

// A group of its own, since what it is for runs beside calls; null where the rank is alone or no
// member.
Result<Communicator*> connect_members(std::string name, const std::vector<DeviceId>& members,
                                      World& world, RankWork* work) {
  const bool here = std::find(members.begin(), members.end(), work->rank) != members.end();
  if (!here || members.size() < 2) return nullptr;
  std::vector<int64_t> ranks;
  for (const DeviceId member : members) {
    name += cat("-", member.value);
    ranks.push_back(member.value);
  }
  BRAID_ASSIGN(Communicator * group, world.group(name, std::move(ranks)));
  const auto& known = work->connected;
  if (std::find(known.begin(), known.end(), group) == known.end()) work->connected.push_back(group);
  return group;
}

Status connect_exchanges(const Program& program, World& world, RankWork* work) {
  for (const Exchange& entry : program.exchanges) {
    BRAID_ASSIGN(Communicator * group, connect_members("exchange", entry.members, world, work));
    work->exchanges.push_back(group);
  }
  std::vector<DeviceId> handing;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    for (const Instruction& each : program.ranks[rank].instructions)
      if (each.kind == OpKind::kHandOver) handing.push_back(DeviceId{static_cast<int32_t>(rank)});
  BRAID_ASSIGN(work->handing, connect_members("hand-over", handing, world, work));
  return ok_status();
}

// Connected already: a look-up.
Result<std::vector<Communicator*>> communicators(const std::vector<OpGroup>& groups, World& world) {
  std::vector<Communicator*> out;
  for (const OpGroup& group : groups) {
    out.push_back(nullptr);
    if (group.members.size() > 1) {
      BRAID_ASSIGN(out.back(), connect(group, world));
    }
  }
  return out;
}

// As of sequences of one token each, which most of a round's are.
std::vector<int64_t> even_batches(const RoundWork& round, int stages) {
  return cut_round(std::vector<int64_t>(round.prefill_tokens + round.decoding, 1), stages);
}

void add_rounds(const Program& program, const StepPrices& prices, DeviceId rank,
                EmulatedCall* work) {
  const CallFrame frame = call_frame(program, work->id);
  const int dp_rank = position_in(*frame.where, rank).dp_rank;
  const ReplicaRequests replica = prices.replica_requests(work->id, dp_rank, work->part);
  int64_t rounds = 0;
  prices.run_rounds(
      work->id, replica.requests, replica.budget_tokens,
      [&](const BatchRound& round, double seconds, double agreement_s) {
        RoundWork of_round{round.prefill_tokens, round.decoding,
                           agreements_in(rounds, round.rounds, round.due) > 0};
        of_round.due = round.due;
        rounds += round.rounds;
        of_round.batches = even_batches(of_round, frame.where->strategy.pp);
        work->rounds.push_back({expand(frame, rank, of_round), seconds, agreement_s});
      },
      replica.most_rounds);
}

// A call as a whole, or the parts in which it runs.
void add_call(const Program& program, const StepPrices& prices, CallId id, RankWork* out) {
  const std::vector<SamplePart> parts =
      runs_in_parts(program, id) ? std::vector<SamplePart>{SamplePart::kEarly, SamplePart::kLate}
                                 : std::vector<SamplePart>{SamplePart::kAll};
  for (const SamplePart part : parts) {
    EmulatedCall& work = out->calls[{id, part}];
    work.id = id, work.part = part;
    work.generates = program.graph.calls[id.value].kind == CallKind::kGenerate;
    if (work.generates) {
      add_rounds(program, prices, out->rank, &work);
    } else {
      work.ops = expand(program, id, out->rank, prices.deal(id, part), part);
    }
  }
}

}  // namespace

Result<RankWork> make_rank_work(const Program& program, const StepPrices& prices, World& world,
                                const std::function<void(Expansion*)>& change) {
  RankWork out;
  BRAID_ASSIGN(out.connected, connect_all(program, world));
  out.rank = DeviceId{static_cast<int32_t>(world.global_rank())};
  BRAID_TRY(connect_exchanges(program, world, &out));
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    const CallId id{static_cast<int32_t>(i)};
    if (!uses_model(program.graph.calls[i])) continue;
    if (position_in(program.calls[i], out.rank).dp_rank < 0) continue;
    add_call(program, prices, id, &out);
  }
  for (auto& [key, work] : out.calls) {
    if (change && !work.generates) change(&work.ops);
    if (!work.generates)
      work.seconds = prices.op_seconds(work.ops, prices.deal(work.id, work.part));
    if (!work.generates || !work.rounds.empty()) {
      const Expansion& any = work.generates ? work.rounds[0].ops : work.ops;
      BRAID_ASSIGN(work.groups, communicators(any.groups, world));
    }
    work.ends = std::make_unique<EndTimes>(work.ops.ops.size());
  }
  return out;
}

}  // namespace braid::inline emulate
