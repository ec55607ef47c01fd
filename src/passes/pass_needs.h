// What the passes of a call take of memory, measured while they run, and what a list of ops will
// take by that. Values; one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/status.h"
#include "comm/communicator.h"
#include "program/deal.h"
#include "program/op.h"

namespace braid::inline passes {

class PassNeeds {
 public:
  // A forward or backward over so many tokens held at most `most` bytes beside what was held before
  // it, and left `kept` of them behind.
  void note(const Op& op, int64_t tokens, int64_t most, int64_t kept);

  // The most that the ops of a mini-batch will hold beside what is held before them: in proportion
  // to tokens, as what was measured last over about as many. 0: nothing was measured.
  int64_t declared(const Expansion& ops, int32_t minibatch,
                   const std::function<int64_t(int32_t micro_batch)>& tokens) const;

 private:
  struct Measured {
    int64_t tokens = 0, most = 0, kept = 0;
  };
  using Key = std::pair<OpKind, int32_t>;  // and body
  const Measured* find(const Op& op) const;

  std::map<Key, Measured> measured_;
};

using NeedsOfCalls = std::map<CallId, PassNeeds>;

// Tokens of a micro-batch of the rank that the ops are of.
int64_t micro_batch_tokens(const Deal& deal, const Expansion& ops, int32_t minibatch,
                           int32_t micro_batch);

// Whether a mini-batch finds the memory that its ops declare, on all ranks of the group (null: this
// one alone), which decide it together; true where nobody knows what is free or needed.
Result<bool> finds_memory(const PassNeeds& needs, const Deal& deal, const Expansion& ops,
                          int32_t minibatch, at::Device device, Communicator* group);

}  // namespace braid::inline passes
