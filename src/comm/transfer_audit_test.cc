// What an audit finds between a list and the transfers of a piece of work.
#include "comm/transfer_audit.h"

#include <gtest/gtest.h>

namespace braid::inline comm {
namespace {

const TransferKind kMessage{Transfer::kSend, "everyone", 1, 5, 12};
const TransferKind kShorter{Transfer::kSend, "everyone", 1, 5, 8};

TEST(TransferAudit, EndsWhatSendsOtherThanItsList) {
  TransferAudit idle = TransferAudit::begin();
  EXPECT_FALSE(idle.on());
  idle.expect(kMessage);
  idle.settle("what nobody audits");
  check_transfers();
  TransferAudit audit = TransferAudit::begin();
  const auto send = [&] {
    const TransferAudit::Counting counting(audit);
    TransferWatch::note(kMessage);
  };
  audit.expect(TransferCounts{{kMessage, 2}});
  send(), send();
  audit.settle("two messages");
  TransferWatch::note(kMessage);
  audit.settle("a message beside it");
  send();
  EXPECT_DEATH(audit.settle("a message"),
               "a message sends other than its list says: 1 x send of "
               "12 B in group everyone with rank 1 on channel 5, "
               "listed 0");
  audit.expect(kShorter);
  EXPECT_DEATH(audit.settle("a message"), "0 x send of 8 B in .*, listed 1; 1 x send of 12 B");
}

// What an audit counts, also one that compares nothing, and what ranks say to each other.
TEST(StepAudit, EndsWhatSendsBesideAudits) {
  check_transfers();
  {
    StepAudit step;
    TransferAudit audit = TransferAudit::begin(), forgotten = TransferAudit::forgotten();
    audit.expect(kMessage);
    {
      const TransferAudit::Counting counting(audit);
      const RanksTalk within;
      TransferWatch::note(kMessage);
    }
    audit.settle("a message");
    const auto send = [](TransferAudit& of) {
      const TransferAudit::Counting counting(of);
      TransferWatch::note(kMessage);
    };
    send(forgotten);
    forgotten.settle("what nobody compares");
    {
      const RanksTalk talk;
      TransferWatch::note(kShorter);
    }
    step.settle("a step");
    TransferWatch::note(kShorter);
    EXPECT_DEATH(step.settle("a step"),
                 "a step sends what is in no list: 2 x send of 8 B .*, "
                 "listed 1");
  }
  StepAudit next;
  next.settle("another step");
}

}  // namespace
}  // namespace braid::inline comm
