#include "report/command_log.h"

#include "base/log.h"
#include "base/text.h"

namespace braid {

Result<CommandLog> CommandLog::start(const CommandLogOptions& options) {
  CommandLog log(options);
  BRAID_ASSIGN(log.child_, ChildProcess::start({options.command}).at("log.command"));
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
  const Status status = cause.at(
      cat("log.command (", join(options_.command, " "), "): the rows from here on are lost"));
  if (options_.stop_on_error) return status;
  log_warning(status.message());
  return ok_status();
}

void CommandLog::pass_on_errors() {
  const std::string errors = child_->take_errors();
  if (!errors.empty()) log_info(cat("log.command: ", trim(errors)));
}

}  // namespace braid
