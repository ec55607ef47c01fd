// braid report: a page that shows what happened in a run, or in several beside each other.
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "braid/commands.h"
#include "braid/outputs.h"
#include "host/file.h"
#include "host/file_claim.h"
#include "report/run_page.h"

namespace braid {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string out;
  int64_t follow_s = 0;
};

// Nobody trains it any more: a run holds a claim of its folder. Where there is none to try, or no
// locks, it counts as training.
bool abandoned(const std::string& folder) {
  return claim_path(join_path(folder, kClaimFile), O_RDONLY).is_open();
}

size_t rows_of(const std::vector<RunRecord>& runs) {
  size_t out = 0;
  for (const RunRecord& run : runs) out += run.metrics.size();
  return out;
}

// Of runs that go on: whether those that are not complete write nothing any more.
bool all_ended(const ReportArguments& arguments, const std::vector<RunRecord>& runs) {
  for (size_t i = 0; i < runs.size(); ++i)
    if (!complete(runs[i]) && !abandoned(arguments.runs[i])) return false;
  return true;
}

bool all_complete(const std::vector<RunRecord>& runs) {
  return std::all_of(runs.begin(), runs.end(), [](const RunRecord& run) { return complete(run); });
}

// What stands out, then each warning of the run once.
void print_findings(const std::vector<RunRecord>& runs) {
  for (const RunRecord& run : runs) {
    const std::string name = runs.size() > 1 ? run.name + ": " : "";
    for (const Finding& finding : findings(run))
      std::printf("%s%s: %s\n", name.c_str(), finding.metric.c_str(), finding.text.c_str());
    for (const std::string& text : warning_texts(run))
      std::printf("%swarning: %s\n", name.c_str(), text.c_str());
  }
}

// Of runs that go on: waits for their first step. A folder that is none is an error at once.
Result<std::vector<RunRecord>> first_rows(const ReportArguments& arguments) {
  for (bool said = false;; said = true) {
    auto runs = read_runs(arguments.runs);
    const bool begins = arguments.follow_s > 0 && !runs.ok() &&
                        runs.status().code() == Code::kNotFound &&
                        std::all_of(arguments.runs.begin(), arguments.runs.end(), is_folder);
    if (!begins) return runs;
    if (!said) log_info("waiting for the first step (metrics.jsonl has no row)");
    std::this_thread::sleep_for(std::chrono::seconds(arguments.follow_s));
  }
}

Status write_report(const ReportArguments& arguments) {
  const std::string out =
      arguments.out.empty() ? join_path(arguments.runs.front(), kRunPageName) : arguments.out;
  // A missing run before a missing folder.
  BRAID_ASSIGN(std::vector<RunRecord> runs, first_rows(arguments));
  BRAID_TRY(check_outputs({{"--out", out}}));
  size_t rows = 0;
  for (int unchanged = 0;;) {
    unchanged = rows_of(runs) == rows ? unchanged + 1 : 0;
    rows = rows_of(runs);
    // A claim is tried where nothing comes, so that a run that begins finds its folder free.
    const bool ended = unchanged >= 2 && all_ended(arguments, runs);
    const bool last = arguments.follow_s == 0 || all_complete(runs) || ended;
    BRAID_TRY(write_file_atomic(out, run_page(runs, {.refresh_s = last ? 0 : arguments.follow_s})));
    if (ended && !all_complete(runs))
      log_warning(
          "no process trains this run any more, and it is not complete; the page shows what there "
          "is");
    if (last) break;
    std::this_thread::sleep_for(std::chrono::seconds(arguments.follow_s));
    BRAID_ASSIGN(runs, read_runs(arguments.runs));
  }
  print_findings(runs);
  std::printf("the report is in %s\n", out.c_str());
  return ok_status();
}

Action define_report(CLI::App& app) {
  auto arguments = std::make_shared<ReportArguments>();
  app.add_option("RUN", arguments->runs, "folders of runs (run.dir/run.name)")->required();
  app.add_option("--out", arguments->out, "the page; report.html in the first folder if absent");
  app.add_option("--follow", arguments->follow_s,
                 "of runs that go on: write the page again every so many seconds, and let it load "
                 "itself again, until their last step (or Ctrl-C)")
      ->check(CLI::Range(1, 3600));
  return [arguments] { return write_report(*arguments); };
}

}  // namespace

extern const Command kReportCommand{
    "report", "write a page that shows what happened in runs (docs/reading_a_run.md)",
    define_report};

}  // namespace braid
