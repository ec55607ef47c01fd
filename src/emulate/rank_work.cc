#include "emulate/rank_work.h"

#include <algorithm>

#include "base/text.h"

namespace braid::inline emulate {
namespace {

// Those of all calls, each once.
std::vector<Communicator*> in_order(const std::map<int32_t, CallGroups>& calls) {
  std::vector<Communicator*> out;
  const auto add = [&](Communicator* group) {
    const bool known = std::find(out.begin(), out.end(), group) != out.end();
    if (group != nullptr && !known) out.push_back(group);
  };
  for (const auto& [call, groups] : calls) {
    for (const auto& [kind, group] : groups.by_kind) add(group);
    add(groups.weights);
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
  work->copied_after = replica.copied_after;  // up to there each round is for itself
  int64_t rounds = 0;
  prices.run_rounds(
      work->id, replica, [&](const BatchRound& round, double seconds, double agreement_s) {
        const int64_t agreements = agreements_in(rounds, round.rounds, round.due);
        RoundWork of_round{round.prefill_tokens, round.decoding, agreements > 0};
        of_round.due = round.due;
        rounds += round.rounds;
        of_round.batches = even_batches(of_round, frame.where->strategy.pp);
        work->rounds.push_back(
            {expand(frame, rank, of_round), seconds, agreement_s, round.rounds, agreements});
      });
}

// A call as a whole, or the parts in which it runs.
void add_call(const Program& program, const StepPrices& prices, CallId id, RankWork* out) {
  for (const SamplePart part : parts_of_call(program, id)) {
    EmulatedCall& work = out->calls[{id, part}];
    work.id = id, work.part = part;
    work.generates = program.graph.calls[id.value].kind == CallKind::kGenerate;
    if (work.generates) {
      add_rounds(program, prices, out->rank, &work);
    } else {
      work.ops = expand(program, id, out->rank, prices.partition(id, part), part);
    }
  }
}

}  // namespace

std::vector<InsideCall> calls_inside(const CallGroups& groups, const Expansion& ops, const Op& op) {
  std::vector<InsideCall> out;
  if (op.kind != OpKind::kForward && op.kind != OpKind::kBackward) return out;
  for (const InsideOp& inside : inside_of(ops, op)) {
    Communicator* const group =
        groups.of(ops.groups[inside.group].kind, inside.kind == OpKind::kAllGather);
    const bool known = std::any_of(out.begin(), out.end(),
                                   [&](const InsideCall& each) { return each.group == group; });
    if (group != nullptr && !known) out.push_back({group, inside.kind});
  }
  return out;
}

Result<RankWork> make_rank_work(const Program& program, const StepPrices& prices, World& world,
                                const std::function<void(Expansion*)>& change) {
  RankWork out;
  out.rank = DeviceId{static_cast<int32_t>(world.global_rank())};
  BRAID_ASSIGN(const auto groups, connect_calls(program, out.rank, &world));
  out.connected = in_order(groups);
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    const CallId id{static_cast<int32_t>(i)};
    if (!uses_model(program.graph.calls[i])) continue;
    if (position_in(program.calls[i], out.rank).dp_rank < 0) continue;
    add_call(program, prices, id, &out);
  }
  for (auto& [key, work] : out.calls) {
    if (change && !work.generates) change(&work.ops);
    if (!work.generates)
      work.seconds = prices.op_seconds(work.ops, prices.partition(work.id, work.part), work.part);
    work.groups = groups.at(work.id.value);
    work.ends.assign(work.ops.ops.size(), 0);
  }
  return out;
}

}  // namespace braid::inline emulate
