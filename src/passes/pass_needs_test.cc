#include "passes/pass_needs.h"

#include <gtest/gtest.h>

namespace braid::inline passes {
namespace {

Op pass_of(OpKind kind, int32_t minibatch, int32_t micro_batch) {
  Op op;
  op.kind = kind;
  op.body = 0;
  op.minibatch = minibatch;
  op.micro_batch = micro_batch;
  return op;
}

Expansion ops_of(const std::vector<Op>& ops) {
  Expansion out;
  out.bodies.resize(1);
  out.bodies[0].trains = true;
  out.ops = ops;
  return out;
}

constexpr OpKind kF = OpKind::kForward, kB = OpKind::kBackward;
int64_t hundred(int32_t) { return 100; }

TEST(PassNeeds, DeclaresWhatIsHeldTogether) {
  PassNeeds needs;
  const Expansion one_by_one =
      ops_of({pass_of(kF, 0, 0), pass_of(kB, 0, 0), pass_of(kF, 0, 1), pass_of(kB, 0, 1)});
  const Expansion together =
      ops_of({pass_of(kF, 0, 0), pass_of(kF, 0, 1), pass_of(kB, 0, 0), pass_of(kB, 0, 1)});
  EXPECT_EQ(needs.declared(one_by_one, 0, hundred), 0);  // nobody knows yet
  needs.note(pass_of(kF, 0, 0), 50, 600, 500);
  needs.note(pass_of(kB, 0, 0), 50, 200, -500);
  EXPECT_EQ(needs.declared(one_by_one, 0, hundred), 1000 + 400);
  EXPECT_EQ(needs.declared(together, 0, hundred), 2000 + 400);
  EXPECT_EQ(needs.declared(together, 1, hundred), 0);  // a mini-batch without ops
}

TEST(PassNeeds, FewTokensSayNothingAboutMany) {
  PassNeeds needs;
  const Expansion ops = ops_of({pass_of(kF, 0, 0)});
  needs.note(pass_of(kF, 0, 0), 100, 1000, 1000);
  needs.note(pass_of(kF, 0, 0), 10, 900, 900);
  EXPECT_EQ(needs.declared(ops, 0, hundred), 1000);
  needs.note(pass_of(kF, 0, 0), 80, 400, 400);
  EXPECT_EQ(needs.declared(ops, 0, hundred), 500);
}

TEST(PassNeeds, ScoringKeepsNothing) {
  PassNeeds needs;
  Expansion ops = ops_of({pass_of(kF, 0, 0), pass_of(kF, 0, 1)});
  ops.bodies[0].trains = false;
  needs.note(pass_of(kF, 0, 0), 100, 1000, 10);
  EXPECT_EQ(needs.declared(ops, 0, hundred), 1000);
}

}  // namespace
}  // namespace braid::inline passes
