#include "program/minibatch_parts.h"

namespace braid::inline program {

MinibatchPart part_of_minibatch(const Expansion& ops, const Op& op) {
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter:
      return among_copies(ops.groups[op.group].kind) ? MinibatchPart::kReductions
                                                     : MinibatchPart::kPasses;
    case OpKind::kNorm:
    case OpKind::kAgree:
      return MinibatchPart::kAgreement;
    case OpKind::kUpdate:
    case OpKind::kAllGather:
      return MinibatchPart::kUpdate;
    default:
      return MinibatchPart::kPasses;
  }
}

}  // namespace braid::inline program
