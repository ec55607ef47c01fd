#include "sim/traffic.h"

#include <set>
#include <vector>

#include "program/expand.h"
#include "program/partition.h"
#include "sim/work_cuts.h"

namespace braid::inline sim {
namespace {

// The samples of a call, and how many of their tokens the head of a language model takes.
struct CallSamples {
  std::vector<PartitionSample> samples;
  double head_share = 1;
};

CallSamples samples_of(const PlanningProblem& problem, const SampleLengths& lengths,
                       const Call& call) {
  CallSamples out{partition_input(problem, lengths, call), 1};
  double all = 0, responses = 0;
  for (const PartitionSample& sample : out.samples) {
    all += static_cast<double>(sample.prompt + sample.response);
    responses += static_cast<double>(sample.response);
  }
  if (all > 0) out.head_share = responses / all;
  return out;
}

// A replica's whole generation as one round.
RoundWork whole_generation(const std::vector<PartitionSample>& samples, const SampleRows& rows) {
  RoundWork out;
  std::set<int64_t> prompts;
  for (const int32_t row : rows) {
    const PartitionSample& sample = samples[row];
    if (prompts.insert(sample.group.value).second) out.prefill_tokens += sample.prompt;
    out.decoding += sample.response;
  }
  return out;
}

double sent_by_op(const Expansion& ops, const Op& op, double tokens, double head_share) {
  if (op.kind == OpKind::kSend) return op.bytes;
  if (op.kind == OpKind::kReceive) return 0;
  const bool inside =
      op.kind == OpKind::kForward || op.kind == OpKind::kBackward || op.kind == OpKind::kSample;
  if (!inside) {
    const auto members = op.group < 0 ? 1 : ops.groups[op.group].members.size();
    return sent_in_collective(op.kind, op.bytes, static_cast<int64_t>(members));
  }
  double out = 0;
  for (const InsideOp& each : inside_of(ops, op)) {
    const double here = each.of_head ? head_share * tokens : tokens;
    const auto members = static_cast<int64_t>(ops.groups[each.group].members.size());
    out += each.times * sent_in_collective(each.kind, bytes_of(each, here), members);
  }
  return out;
}

}  // namespace

double sent_in_collective(OpKind kind, double bytes, int64_t members) {
  const double others = static_cast<double>(members - 1) / static_cast<double>(members);
  switch (kind) {
    case OpKind::kAllReduce:
    case OpKind::kNorm:
    case OpKind::kAgree:
      return 2 * others * bytes;
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
    case OpKind::kBroadcast:
      return others * bytes;
    default:
      return 0;
  }
}

double bytes_inside_calls(const Program& program, const PlanningProblem& problem,
                          const SampleLengths& lengths) {
  double out = 0;
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    const CallId id{static_cast<int32_t>(i)};
    const Call& call = program.graph.calls[i];
    if (!uses_model(call)) continue;
    const CallPlacement& where = program.calls[i];
    const bool generates = call.kind == CallKind::kGenerate;
    const CallSamples of = samples_of(problem, lengths, call);
    const Partition partition =
        generates
            ? Partition{{},
                        partition_requests(static_cast<int64_t>(of.samples.size()), where.strategy)}
            : partition_samples(of.samples, where.strategy, partition_options(problem, call));
    const double epochs =
        call.kind == CallKind::kTrainStep ? static_cast<double>(problem.workload.epochs) : 1;
    const CallFrame frame = alone(call_frame(program, id));
    for (const DeviceId rank : where.mesh.devices) {
      const int dp = position_in(where, rank).dp_rank;
      const RoundWork round =
          generates ? whole_generation(of.samples, partition.owned[dp]) : RoundWork();
      const Expansion ops = generates ? expand(frame, rank, round) : expand(frame, rank, partition);
      for (const Op& op : ops.ops) {
        double tokens = static_cast<double>(round.prefill_tokens + round.decoding);
        if (op.kind == OpKind::kSample) tokens = static_cast<double>(round.decoding);
        if (!generates && op.minibatch >= 0 && op.micro_batch >= 0)
          tokens =
              static_cast<double>(partition.minibatches[op.minibatch].tokens[dp][op.micro_batch]);
        out += epochs * sent_by_op(ops, op, tokens, of.head_share);
      }
    }
  }
  return out;
}

}  // namespace braid::inline sim
