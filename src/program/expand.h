// expand(): the body of a call on a rank as ops, from its strategy and the partition, for whoever
// executes or prices them. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "batching/sampling_messages.h"
#include "plan/problem.h"
#include "program/op.h"
#include "program/partition.h"
#include "program/program.h"
#include "schedule/schedule.h"

namespace braid::inline program {

// What of a call its body depends on, beside the partition. Refers to its parts.
struct CallFrame {
  CallId call;
  CallKind kind = CallKind::kInfer;
  const CallPlacement* where = nullptr;
  const ModelShape* model = nullptr;
  // The pair of calls whose passes are fused, of which this is one, and which; null: the call runs
  // its passes in its own order.
  const FusedCalls* fused = nullptr;
  int of_pair = 0;
  bool reads_vocabulary = true;  // the call uses the head of a language model where it has one
  bool early = false;  // the early part of a call: its replicas do not wait for each other
};
// REQUIRES: the call uses a model; compile(plan, problem) made the program.
CallFrame call_frame(const Program& program, CallId call, SamplePart part = SamplePart::kAll);
// Whether a call uses the head of a language model: not where it asks for values alone.
bool reads_vocabulary(const Call& call);
// The same with the call's own order of passes.
CallFrame alone(CallFrame frame);
// The position of a rank in the call's grid; -1 as dp_rank where it takes no part.
GridPosition position_in(const CallPlacement& where, DeviceId rank);

// Whether an optimizer step sums gradients over ranks that hold the same parameters, of dense or of
// expert layers.
bool sums_copies(const Strategy& strategy);

// The ranks that end an inference call alike: where some of them compute together, one that lacked
// memory in its passes has given the others nothing of use, and all make them again, smaller. None
// where every rank has its own.
std::optional<GroupKind> ends_alike(const CallFrame& frame);

// The forwards and backwards of one data-parallel rank.
Schedule schedule_of(const Strategy& strategy, CallKind kind, int64_t micro_batches);

// All ops of an inference or training call on a rank of its mesh.
Expansion expand(const CallFrame& frame, DeviceId rank, const Partition& partition);
Expansion expand(const Program& program, CallId call, DeviceId rank, const Partition& partition,
                 SamplePart part = SamplePart::kAll);

// Ranks of a generation replica agree after so many rounds, counted from the begin of the call,
// that they have drawn the same tokens, whether free memory is known or not.
inline constexpr int64_t kRoundsBetweenAgreements = 64;
// How often they do in `rounds` rounds after the first `before`, in each of which so many sequences
// get a token. A rank that lacks memory says so with the tokens; where there is none they agree.
inline int64_t agreements_in(int64_t before, int64_t rounds, int64_t due) {
  if (due == 0) return rounds;
  return (before + rounds) / kRoundsBetweenAgreements - before / kRoundsBetweenAgreements;
}

// One scheduling round of a generation replica, as the engine's scheduler chose it.
struct RoundWork {
  int64_t prefill_tokens = 0;
  int64_t decoding = 0;  // sequences that compute one token
  bool agrees = false;   // an agreement follows: a hash of what each rank has drawn so far
  // Tokens of the batches that pass the stages one after another, so that these compute at one
  // time; empty: all in one.
  std::vector<int64_t> batches = {};
  int64_t due = -1;             // sequences that get a token; -1: those that decode
  SamplingNeeds sampling = {};  // of these
  friend bool operator==(const RoundWork&, const RoundWork&) = default;
};
// How the tokens of each sequence of a round, in the engine's order, are cut into batches that pass
// the stages of a pipeline one after another: the number of sequences of each. Batches have about
// as many tokens, and not fewer than a pass is worth (pricing/own_engine.h). Results do not depend
// on it.
std::vector<int64_t> cut_round(const std::vector<int64_t>& tokens, int stages);
// The ops of a round on a rank, and of the agreement after it, each in its run. The replica's ranks
// admit, preempt and finish alike, from equal tokens; its batches are micro-batches.
Expansion expand(const CallFrame& frame, DeviceId rank, const RoundWork& round);
Expansion expand(const Program& program, CallId call, DeviceId rank, const RoundWork& round);

// Whether routed experts are cut in another way than dense parameters.
inline bool own_expert_grid(const Strategy& s) { return s.ep > 1 || expert_tp(s) != s.tp; }

// The group of a kind that a rank of the call is in, alone if it shares with nobody.
OpGroup group_of(const CallFrame& frame, GroupKind kind, const GridPosition& at);
// Those groups of more than one rank that ops of the call use on the rank at this position, in an
// order that all ranks share: communicators are made in it.
std::vector<OpGroup> groups_at(const CallFrame& frame, const GridPosition& at);

// One line per op, for people.
std::string ops_text(const Expansion& expansion, const Partition* partition);

}  // namespace braid::inline program
