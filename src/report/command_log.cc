#include "report/command_log.h"

#include "base/log.h"
#include "base/text.h"
#include "report/log_tracker_script.h"

namespace braid::inline report {
namespace {

constexpr double kFindSeconds = 60;
constexpr double kTrackerSeconds = 60;  // it talks to a server, at the end for what is left

// A tracker's command is a whole script.
std::string shown_command(const CommandLogOptions& options) {
  return options.key == "log.command" ? cat(" (", join(options.command, " "), ")") : "";
}

}  // namespace

Result<CommandLogOptions> tracker_log(const std::string& tracker, const std::string& project,
                                      const std::string& run_folder) {
  const std::string find =
      cat("import importlib.util as u, sys; sys.exit(u.find_spec('", tracker, "') is None)");
  BRAID_ASSIGN(const auto finder, ChildProcess::start({{"python3", "-c", find}}));
  BRAID_ASSIGN(const std::string ending, finder->wait(deadline_in(kFindSeconds)));
  if (ending != "exited with status 0")
    return not_found(cat("log.", tracker, ": the Python package ", tracker,
                         " is not installed for python3; run: pip install ", tracker));
  CommandLogOptions out;
  const size_t slash = run_folder.rfind('/');
  const std::string run = slash == std::string::npos ? run_folder : run_folder.substr(slash + 1);
  out.command = {"python3", "-c",      std::string(kLogTrackerScript), tracker, project,
                 run,       run_folder};
  out.key = cat("log.", tracker);
  out.timeout_s = kTrackerSeconds;
  return out;
}

Result<CommandLog> CommandLog::start(const CommandLogOptions& options) {
  CommandLog log(options);
  BRAID_ASSIGN(log.child_, ChildProcess::start({options.command}).at(options.key));
  return log;
}

Status CommandLog::write(const Json& row) {
  if (!child_) return ok_status();
  const Status sent = child_->write_line(row.dump(), deadline_in(options_.timeout_s));
  pass_on_errors();
  return sent.ok() ? sent : failed(sent);
}

Status CommandLog::finish() {
  if (!child_) return ok_status();
  child_->close_input();
  auto ending = child_->wait(deadline_in(options_.timeout_s));
  pass_on_errors();
  if (!ending.ok())
    return failed({Code::kDeadline,
                   cat("has not ended ", options_.timeout_s, " s after the last row; killed")});
  if (*ending != "exited with status 0") return failed({Code::kUnavailable, *ending});
  child_.reset();
  return ok_status();
}

Status CommandLog::failed(const Status& cause) {
  child_.reset();
  const Status status =
      cause.at(cat(options_.key, shown_command(options_), ": the rows from here on are lost"));
  if (options_.stop_on_error) return status;
  log_warning(status.message());
  return ok_status();
}

void CommandLog::pass_on_errors() {
  const std::string errors = child_->take_errors();
  if (!errors.empty()) log_info(cat(options_.key, ": ", trim(errors)));
}

}  // namespace braid::inline report
