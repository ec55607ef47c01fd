// The warnings of a run, kept in its folder for its report. There is one at a time in a process;
// messages may come from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace braid::inline report {

inline constexpr const char* kWarningsFile = "warnings.jsonl";  // rows {"step", "text"}

class WarningLog {
 public:
  // Keeps what is warned of from here on (base/log.h).
  WarningLog();
  ~WarningLog();
  WarningLog(const WarningLog&) = delete;
  WarningLog& operator=(const WarningLog&) = delete;

  // From here on they are written to the folder, first those that came before. Rows from `step` on,
  // which a resumed run repeats, are dropped. A file has at most 200 of them.
  Status open(const std::string& folder, int64_t step);
  // What comes belongs to this step.
  void begin_step(int64_t step);
};

}  // namespace braid::inline report
