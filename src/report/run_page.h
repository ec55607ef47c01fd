// The page of `braid report`: one HTML file that needs nothing else, with the data of one run or of
// several beside each other. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "report/run_record.h"

namespace braid::inline report {

inline constexpr const char* kRunPageName = "report.html";  // in a run's folder

struct RunPageOptions {
  int64_t refresh_s = 0;  // the page loads itself again so often; 0: never
};

// What the page draws, as JSON: a column for every metric of each run, [step].
Json run_page_data(const std::vector<RunRecord>& runs);

// RUN/report.html of the run in a folder. Errors as read_run() and of writing.
Status write_run_page(const std::string& folder);

std::string run_page(const std::vector<RunRecord>& runs, const RunPageOptions& options);

}  // namespace braid::inline report
