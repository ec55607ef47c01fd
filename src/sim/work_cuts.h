// Which data-parallel rank works on which sequences of a call, and which of them share a
// micro-batch. A mini-batch is the same set of sequences however it is dealt out: ranks get as many
// of them each, and about as many tokens, unless the strategy says in_order. Deterministic.
#pragma once

#include <map>
#include <vector>

#include "plan/execution_plan.h"
#include "program/deal.h"
#include "sim/call_cost.h"
#include "sim/simulate.h"

namespace braid {

// Part `part` of `parts` of what one data-parallel rank works on.
struct WorkShare {
  int dp_rank = 0;
  int64_t part = 0, parts = 1;
};

// Sequences of one rank in `count` micro-batches of about equal numbers.
std::vector<std::vector<int64_t>> cut_by_number(const std::vector<int64_t>& tokens, int64_t count,
                                                bool in_order);
// Micro-batches in order up to a token budget; a longer sequence is one of its own.
std::vector<std::vector<int64_t>> cut_by_tokens(const std::vector<int64_t>& tokens, int64_t budget);

// Shares of the ranks and their micro-batches; keeps what was asked for. Not thread-safe.
class WorkCuts {
 public:
  // The micro-batches of a share of a call over `samples` sequences: by the token budget of the
  // strategy or its number, whole groups where stages interleave. REQUIRES: the same lengths in
  // every call, models that stay where they are.
  const std::vector<MicroBatch>& micro_batches(const CallCost& cost, const SampleLengths& lengths,
                                               int64_t samples, const WorkShare& share);
  // Tokens of each sequence of such a share.
  const std::vector<int64_t>& share(const SampleLengths& lengths, const Strategy& strategy,
                                    int64_t samples, const WorkShare& share);

 private:
  struct Key {
    int dp = 1;
    int64_t samples = 0, parts = 1;
    bool in_order = false;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  // Whatever else a strategy says cuts the share in the same way.
  struct BatchKey {
    Key share;
    int64_t part = 0;
    int dp_rank = 0, cp = 1;
    int64_t micro_tokens = 0, micro_batches = 1;
    int whole_groups = 1;  // their number is a multiple of this
    const RoleModel* model = nullptr;
    friend auto operator<=>(const BatchKey&, const BatchKey&) = default;
  };
  std::map<Key, std::vector<std::vector<int64_t>>> shares_;  // [part * dp + rank]
  std::map<BatchKey, std::vector<MicroBatch>> batches_;
  size_t kept_ = 0;  // micro-batches
};

}  // namespace braid
