// The page of `braid report`: one HTML file that needs nothing else, with the data of one run or of
// several beside each other. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "report/run_record.h"

namespace braid::inline report {

struct RunPageOptions {
  int64_t refresh_s = 0;  // the page loads itself again so often; 0: never
};

// What the page draws, as JSON: a column for every metric of each run, [step].
Json run_page_data(const std::vector<RunRecord>& runs);

std::string run_page(const std::vector<RunRecord>& runs, const RunPageOptions& options);

}  // namespace braid
