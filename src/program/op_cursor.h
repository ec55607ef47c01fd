// Where a rank is in the ops of a call's body (program/op.h): each instruction of the call executes
// the ops that name it, in their order, and none is passed over. For whoever executes them, on real
// devices and on emulated ones. Not thread-safe.
#pragma once

#include <array>

#include "base/text.h"
#include "program/fused.h"

namespace braid::inline program {

class OpCursor {
 public:
  OpCursor() = default;
  // Before the first op of a mini-batch. REQUIRES: the ops outlive this.
  explicit OpCursor(const std::vector<Op>& ops, int32_t minibatch = 0) : ops_(&ops) {
    while (!done() && ops[next_].minibatch < minibatch) ++next_;
  }

  bool done() const { return ops_ == nullptr || next_ == ops_->size(); }
  // The mini-batch of the next op; at the end the number of all.
  int32_t minibatch() const {
    if (!done()) return (*ops_)[next_].minibatch;
    return ops_ == nullptr || ops_->empty() ? 0 : ops_->back().minibatch + 1;
  }

  // Calls `run` with the index of each op of the open mini-batch that an instruction of this kind
  // executes; the first failure ends it before the next op. REQUIRES: the ops of the instructions
  // before it are executed, those of the mini-batch before where it begins one.
  template <typename Run>
  Status run(OpKind kind, const Run& run) {
    const int32_t here = minibatch();
    const auto runs = [&] {
      return !done() && (*ops_)[next_].minibatch == here && (*ops_)[next_].run == kind;
    };
    const bool begins = next_ == 0 || done() || (*ops_)[next_ - 1].minibatch != here;
    BRAID_CHECK(kind != OpKind::kPasses || begins || runs(),
                cat("op ", next_, ", ", op_kind_name((*ops_)[next_].kind), ", was left out"));
    return run_while([&](const Op& op) { return op.run == kind; }, run);
  }
  // The same of an instruction of passes in pieces, where another call's come between: what the
  // mini-batch begins with, the ops of a pass that comes next, then all that is left.
  template <typename Run>
  Status begin_passes(const Run& run) {
    return run_while([](const Op& op) { return op.kind == OpKind::kZero; }, run);
  }
  template <typename Run>
  Status run_pass(const ScheduleOp& pass, const Run& run) {
    return run_while([&](const Op& op) { return is_of_pass(op, pass); }, run);
  }
  template <typename Run>
  Status end_passes(const Run& run) {
    return run_while([](const Op& op) { return op.run == OpKind::kPasses; }, run);
  }

 private:
  // The ops of the open mini-batch that come next, as long as they are wanted.
  template <typename Wanted, typename Run>
  Status run_while(const Wanted& wanted, const Run& run) {
    const int32_t here = minibatch();
    for (; !done() && (*ops_)[next_].minibatch == here && wanted((*ops_)[next_]); ++next_)
      BRAID_TRY(run(static_cast<int32_t>(next_)));
    return ok_status();
  }

  const std::vector<Op>* ops_ = nullptr;
  size_t next_ = 0;
};

// Executes the passes of two fused calls on a rank in their common order. Each of `both` runs them
// in pieces, as OpCursor has them: begin_passes(), run_pass(pass), end_passes().
template <typename Passes>
Status run_fused_passes(const Program& program, const FusedCalls& fused, DeviceId rank,
                        const std::array<Passes*, 2>& both) {
  for (Passes* const each : both) BRAID_TRY(each->begin_passes());
  for (const FusedPass& pass : fused_passes(program, fused, rank)) {
    const Call& call = program.graph.calls[fused.calls[pass.call].value];
    BRAID_TRY(both[pass.call]->run_pass(pass.op).at(cat("call ", call.name)));
  }
  for (Passes* const each : both) BRAID_TRY(each->end_passes());
  return ok_status();
}

}  // namespace braid::inline program
