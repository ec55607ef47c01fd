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
#include "program/op.h"
#include "program/partition.h"

namespace braid::inline passes {

// What passes hold between a forward and its backward, as they run: micro-batches (of each run of
// layers one), and bytes, where these are measured.
struct HeldByPasses {
  int64_t micro_batches = 0, bytes = 0;            // now
  int64_t most_micro_batches = 0, most_bytes = 0;  // after any op
  int64_t most_of_one = 0;                         // bytes while it was one micro-batch

  // An op has ended that left so many bytes behind, or freed them.
  void note(const Op& op, int64_t kept);
};

class PassNeeds {
 public:
  // A forward or backward over so many tokens held at most `most` bytes beside what was held before
  // it, and left `kept` of them behind.
  void note(const Op& op, int64_t tokens, int64_t most, int64_t kept);

  // The most that the ops of a mini-batch will hold beside what is held before them: in proportion
  // to tokens, as what was measured last over about as many. 0: nothing was measured.
  int64_t declared(const Expansion& ops, int32_t minibatch,
                   const std::function<int64_t(int32_t micro_batch)>& tokens) const;

  struct Measured {
    int64_t tokens = 0, most = 0, kept = 0;
  };
  // Of about as many tokens as were seen last; null: nothing was.
  const Measured* find(const Op& op) const;

 private:
  using Key = std::pair<OpKind, int32_t>;  // and body

  std::map<Key, Measured> measured_;
};

using NeedsOfCalls = std::map<CallId, PassNeeds>;

// Tokens of a micro-batch of the rank that the ops are of.
int64_t micro_batch_tokens(const Partition& partition, const Expansion& ops, int32_t minibatch,
                           int32_t micro_batch);

// What the ops of a list hold by what was measured, one after another.
class DeclaredPasses {
 public:
  // REQUIRES: what is referred to outlives this.
  DeclaredPasses(const PassNeeds& needs, const Expansion& ops,
                 std::function<int64_t(int32_t micro_batch)> tokens)
      : needs_(needs), ops_(ops), tokens_(std::move(tokens)) {}

  // The op runs: the most bytes that it and what is held take meanwhile.
  int64_t run(const Op& op);
  // Bytes that are held after the last op.
  int64_t held() const { return held_; }

 private:
  const PassNeeds& needs_;
  const Expansion& ops_;
  const std::function<int64_t(int32_t)> tokens_;
  int64_t held_ = 0;
  std::map<std::pair<int32_t, int32_t>, int64_t> kept_;  // by micro-batch and body
};

// Whether so many bytes are free on all ranks of the group (null: on this one), which decide it
// together; true where nobody knows what is free.
Result<bool> finds_bytes(int64_t declared, at::Device device, Communicator* group);

// Whether a mini-batch finds the memory that its ops declare, on all ranks of the group (null: this
// one alone), which decide it together; true where nobody knows what is free or needed.
Result<bool> finds_memory(const PassNeeds& needs, const Partition& partition, const Expansion& ops,
                          int32_t minibatch, at::Device device, Communicator* group);

}  // namespace braid::inline passes
