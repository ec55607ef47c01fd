// Starts the ranks of a job on this machine: the same program again, once per rank, told by the
// environment which rank it is (membership.h). This process serves their store, so that the end of
// any rank, by whatever signal, is told to the others. The ranks die with this process. One thread
// calls it, and must not end before it returns.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace braid::inline comm {

struct LaunchOptions {
  int64_t ranks = 1;
  std::vector<std::string> argv;  // of each rank; argv[0] is the path of the program
  std::vector<std::pair<std::string, std::string>> environment = {};  // added for each rank
  double look_s = 0.05;  // between two looks at what has ended
  double grace_s = 15;   // from the first failure until what is left is killed
};

// Runs the ranks to their end and gives the exit code: 0, or that of the rank that failed first (1
// where a signal ended it). Standard output of rank 0 passes through, lines of the others and all
// errors come on standard error, with "[rank N] " in front of those of ranks above 0; of lines that
// begin with "braid: error: " only the first is passed on. SIGTERM, SIGINT and SIGHUP are passed to
// the ranks.
Result<int> launch_ranks(const LaunchOptions& options);

}  // namespace braid::inline comm
