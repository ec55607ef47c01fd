// What the ranks of a job tell each other at the end of a step and of the reward call, as text:
// every rank then has the same numbers. Plain values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "base/json.h"
#include "samples/sample_ledger.h"
#include "scoring/scoring.h"

namespace braid::inline session {

// One rank's part of a step.
struct RankReport {
  Metrics metrics;
  std::map<std::string, double> seconds;  // by call that it took part in
  SampleLedger::Entries samples;
  int64_t trained_tokens = 0;
  double peak_bytes = 0;                   // of its tensors in the step
  std::map<std::string, int64_t> repeats;  // by call: what was repeated for lack of memory
  std::string stop_signal;                 // "" = nobody asked this rank to stop
  Json record;  // of a step that is recorded, as StepTimeline::take() says it; else null
};
std::string report_text(const RankReport& report);
Result<RankReport> parse_report(const std::string& text);

// What a rank found about its rows, and both ways between that and all rows of a step. Numbers keep
// their bits; NaN stays NaN.
std::string scored_text(const ScoredSamples& scored, const Rows& rows);
// REQUIRES: the texts, "" where a rank scored nothing, cover every row below `size` once.
Result<ScoredSamples> merge_scored(const std::vector<std::string>& texts, size_t size);

// A value of each of some rows, and what such a text says added to others. Numbers keep their bits.
std::string values_text(const std::map<size_t, double>& by_row);
Status add_values(const std::string& text, std::map<size_t, double>* by_row);

}  // namespace braid::inline session
