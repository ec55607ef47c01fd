#include "report/warning_log.h"

#include <mutex>
#include <vector>

#include "base/json.h"
#include "base/log_observer.h"
#include "host/file.h"
#include "report/json_rows.h"

namespace braid::inline report {
namespace {

constexpr size_t kMostWarnings = 200;

std::string line_of(int64_t step, const std::string& text) {
  return Json({{"step", step}, {"text", text}})
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

// One of the process, which threads tell of warnings.
struct Kept {
  std::mutex mutex;
  std::vector<std::string> early;  // before there was a folder
  std::string path;
  int64_t step = 0;
  size_t count = 0;
};

Kept& kept() {
  static Kept instance;
  return instance;
}

// REQUIRES: the lock, and a path.
Status write_warning(Kept& to, const std::string& text) {
  if (to.count >= kMostWarnings) return ok_status();
  const bool last = ++to.count == kMostWarnings;
  return append_file(to.path,
                     line_of(to.step, last ? "further warnings are on the console alone" : text));
}

// A warning that finds no room on the disk is on the console all the same.
void keep(LogLevel level, const std::string& message) {
  if (level < LogLevel::kWarning) return;
  const std::lock_guard lock(kept().mutex);
  if (!kept().path.empty())
    (void)write_warning(kept(), message);
  else if (kept().early.size() < kMostWarnings)
    kept().early.push_back(message);
}

void forget() {
  const std::lock_guard lock(kept().mutex);
  kept().early.clear();
  kept().path.clear();
  kept().step = 0;
  kept().count = 0;
}

}  // namespace

WarningLog::WarningLog() {
  forget();
  set_log_observer(keep);
}

WarningLog::~WarningLog() { set_log_observer(nullptr); }

Status WarningLog::open(const std::string& folder, int64_t step) {
  const std::string path = join_path(folder, kWarningsFile);
  BRAID_TRY(drop_rows_from(path, step).status());
  const std::lock_guard lock(kept().mutex);
  kept().path = path;
  kept().step = step;
  for (const std::string& text : kept().early) BRAID_TRY(write_warning(kept(), text));
  kept().early.clear();
  return ok_status();
}

void WarningLog::begin_step(int64_t step) {
  const std::lock_guard lock(kept().mutex);
  kept().step = step;
}

}  // namespace braid::inline report
