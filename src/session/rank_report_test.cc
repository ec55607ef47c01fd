#include "samples/sample_ledger.h"

#include <gtest/gtest.h>

#include "session/rank_report.h"

namespace braid::inline session {
namespace {

// What a rank of two says that computed so many of eight samples.
SampleLedger::Entries rank_of_two(int64_t samples) {
  SampleLedger ledger;
  ledger.begin_step();
  ledger.expect("update_actor", 4);  // two mini-batches
  ledger.expect("update_actor", 4);
  ledger.computed("update_actor", samples);
  RankReport report;
  report.samples = ledger.entries();
  return parse_report(report_text(report))->samples;
}

TEST(SampleLedger, RanksTogetherComputeEachSampleOnce) {
  for (const auto& [first, second, fault] :
       {std::tuple(4, 4, ""), std::tuple(8, 0, ""),
        std::tuple(4, 3,
                   "call update_actor computed 7 samples, not 8: ranks left some out, or "
                   "computed some twice"),
        std::tuple(8, 4,
                   "call update_actor computed 12 samples, not 8: ranks left some out, or "
                   "computed some twice")}) {
    SampleLedger::Entries all;
    SampleLedger::merge(rank_of_two(first), &all);
    SampleLedger::merge(rank_of_two(second), &all);
    EXPECT_EQ(SampleLedger::fault(all), fault);
  }
}

TEST(SampleLedger, AStepBeginsWithNothing) {
  SampleLedger ledger;
  ledger.expect("generate", 4);
  ledger.begin_step();
  EXPECT_TRUE(ledger.entries().empty());
}

}  // namespace
}  // namespace braid::inline session
