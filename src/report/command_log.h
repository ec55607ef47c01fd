// log.command: each row of metrics as a JSON line on the standard input of a child process, such as
// a client of a tracking service. A child that dies or does not read is a message and a policy,
// never a wait without end. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "host/process.h"

namespace braid::inline report {

struct CommandLogOptions {
  std::vector<std::string> command;  // program and arguments
  double timeout_s = 10;             // for taking a row; for ending after the last one
  bool stop_on_error = false;        // else a failure is a warning and the log is closed
  std::string key = "log.command";   // for messages
};

// The program that passes rows on to a tracker, "wandb" or "mlflow", by its Python package;
// kNotFound where the package is not installed.
Result<CommandLogOptions> tracker_log(const std::string& tracker, const std::string& project,
                                      const std::string& run_folder);

class CommandLog {
 public:
  // Starts the program; one that cannot be started is an error under either policy.
  static Result<CommandLog> start(const CommandLogOptions& options);

  // Sends a row. kUnavailable or kDeadline under stop_on_error; otherwise always ok.
  Status write(const Json& row);

  // Ends the child's input and waits until it has finished, timeout_s at most, then kills it.
  Status finish();

 private:
  explicit CommandLog(const CommandLogOptions& options) : options_(options) {}
  Status failed(const Status& cause);
  void pass_on_errors();

  CommandLogOptions options_;
  std::unique_ptr<ChildProcess> child_;  // null once it has failed or finished
};

}  // namespace braid::inline report
