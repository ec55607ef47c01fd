// What the ranks of a job tell each other at the end of a step, as text: every rank then has the
// same numbers. Plain values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "base/json.h"
#include "samples/sample_ledger.h"

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
  // StoredSample::rewards of samples that are shown, by row: of those that this rank asked about.
  std::map<std::string, Json> rewards;
};
std::string report_text(const RankReport& report);
Result<RankReport> parse_report(const std::string& text);

}  // namespace braid::inline session
