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

RankReport report_of(int64_t rank) {
  RankReport out;
  out.metrics["policy/loss"].add(0.5 * static_cast<double>(rank), 3);
  out.seconds["generate"] = static_cast<double>(rank % 7);
  out.samples["generate"] = {8 * 200, 8};
  out.trained_tokens = rank;
  out.most_bytes = static_cast<double>(rank % 5);
  if (rank == 90) out.stop_signal = "SIGTERM";
  if (rank == 1) out.algo["kl_coef"] = 0.25;
  if (rank < kMostRecordedRanks) {
    out.peak_bytes[rank] = out.most_bytes;
    out.records[rank] = {{"left_out", rank}};
  }
  if (rank == 2) out.rewards["0"] = {{"length", 1.5}};
  return out;
}

// What ranks behind the recorded ones add makes no report longer.
TEST(RankReport, OfManyRanksIsNoLonger) {
  RankReport all = report_of(0);
  size_t recorded = 0;
  for (int64_t rank = 1; rank < 200; ++rank) {
    merge(*parse_report(report_text(report_of(rank))), &all);
    if (rank == 100) recorded = report_text(all).size();
  }
  EXPECT_LE(report_text(all).size(), recorded + 8);  // whole numbers are as long as they are large
  const RankReport read = *parse_report(report_text(all));
  EXPECT_EQ(read.metrics.at("policy/loss").sum, 0.5 * 3 * 199 * 200 / 2);
  EXPECT_EQ(read.metrics.at("policy/loss").max, 0.5 * 199);
  EXPECT_EQ(read.seconds.at("generate"), 6);
  EXPECT_EQ(read.samples.at("generate").computed, 8 * 200);
  EXPECT_EQ(SampleLedger::fault(read.samples), "");
  EXPECT_EQ(read.trained_tokens, 199 * 200 / 2);
  EXPECT_EQ(read.most_bytes, 4);
  EXPECT_EQ(read.stop_signal, "SIGTERM");
  EXPECT_EQ(read.algo.at("kl_coef"), 0.25);
  EXPECT_EQ(read.peak_bytes.size(), static_cast<size_t>(kMostRecordedRanks));
  EXPECT_EQ(read.records.at(63)["left_out"], 63);
  EXPECT_EQ(read.rewards.at("0")["length"], 1.5);
}

TEST(SampleLedger, AStepBeginsWithNothing) {
  SampleLedger ledger;
  ledger.expect("generate", 4);
  ledger.begin_step();
  EXPECT_TRUE(ledger.entries().empty());
}

}  // namespace
}  // namespace braid::inline session
