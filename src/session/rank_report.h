// What the ranks of a job tell the first one at the end of a step: sums, extremes and what only one
// of them knows, merged on the way (comm/rank_texts.h). Beside what the first kMostRecordedRanks
// tell of themselves nothing in it grows with the ranks. Plain values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "base/json.h"
#include "samples/sample_ledger.h"

namespace braid::inline session {

inline constexpr int64_t kMostRecordedRanks = 64;  // the first of a job

// Of one rank's step, or of the steps of several.
struct RankReport {
  Metrics metrics;
  std::map<std::string, double> seconds;  // by call: of the rank that took longest
  SampleLedger::Entries samples;
  int64_t trained_tokens = 0;
  double most_bytes = 0;                   // of the tensors of any rank
  std::map<std::string, int64_t> repeats;  // by call: the most of what was repeated for memory
  std::string stop_signal;                 // "" = nobody asked a rank to stop
  AlgoState algo;                          // what has changed of the algorithm's state
  // Of the first ranks of a job, by rank: the most bytes of its tensors, and what it did and held,
  // as StepTimeline::take() says it, in a step that is recorded.
  std::map<int64_t, double> peak_bytes;
  std::map<int64_t, Json> records;
  // StoredSample::rewards of samples that are shown, by row: of those that a rank asked about.
  std::map<std::string, Json> rewards;
};
std::string report_text(const RankReport& report);
Result<RankReport> parse_report(const std::string& text);

// Adds the report of ranks that come behind those of the other one.
void merge(RankReport&& from, RankReport* into);

}  // namespace braid::inline session
