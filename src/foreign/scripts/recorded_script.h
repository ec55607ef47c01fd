// Runs a shell script in a sandbox (host/sandbox.h) with stand-ins in place of programs, and
// records what it would have started. bash and small programs that print or handle files are copies
// in the sandbox; everything else is a stand-in that writes down its arguments and succeeds. The
// script sees a copy of the files of its project, an empty home and the variables that it is given;
// nothing that it does outlives it. Without a sandbox nothing is run. One thread at a time may use
// a value.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "host/sandbox.h"

namespace braid::inline foreign_scripts {

struct ScriptOptions {
  double deadline_s = 20;
  int64_t memory_bytes = int64_t{1} << 30;         // resident, of all that the script starts
  std::map<std::string, std::string> environment;  // variables that the script sees
  std::vector<std::string> arguments;              // its "$@"
  std::vector<std::string> stand_ins;  // programs that it may look for, beside all that it starts
  std::vector<std::string> wrappers;   // of these, those that start the shell that they are given
  int gpus = 8;                        // that questions about the machine are answered with
};

struct RecordedCommand {
  std::vector<std::string> words;
  bool piped = false;  // something reads what it would print
};

class RecordedScript {
 public:
  // Errors: a script that does not exist; kUnavailable where no sandbox can be had, in which case
  // nothing was run. A script that fails, or is ended at a limit, is not an error: what it started
  // before counts.
  static Result<RecordedScript> run(const std::string& path, const ScriptOptions& options);

  // Every program that a stand-in took the place of, with its arguments, in order.
  const std::vector<RecordedCommand>& commands() const { return commands_; }
  // Variables that the script used and nobody set; each had the text "$NAME".
  const std::vector<std::string>& unset_variables() const { return unset_; }
  // How it ended and the last line that it printed, for messages.
  const std::string& ending() const { return ending_; }
  // Why it was ended before its own end; "" = it was not.
  const std::string& stopped() const { return stopped_; }
  // Whether it asked how many GPUs there are, and whether a loop that only waits was left.
  bool asked_for_gpus() const { return asked_; }
  bool left_a_loop() const { return left_; }
  // Files of the project that it did not see: the project has too many, or too large ones.
  bool saw_all_files() const { return whole_; }

 private:
  RecordedScript() = default;
  Status prepare(const std::string& path, const ScriptOptions& options);
  void add_project(const std::string& script);
  Status start(const std::string& path, const ScriptOptions& options,
               const std::map<std::string, std::string>& environment);
  void supply_what_lacked(const std::map<std::string, std::string>& files,
                          const std::vector<std::string>& stand_ins);
  void collect(const std::map<std::string, std::string>& files);

  SandboxJob job_;
  std::string stand_in_, last_line_, ending_, stopped_;
  std::vector<RecordedCommand> commands_;
  std::vector<std::string> unset_;
  bool supplied_ = false, asked_ = false, left_ = false, whole_ = true;
};

// The folder that a script belongs to: the nearest around it with a project file or a .git; its own
// if none has.
std::string project_of_script(const std::string& script);

}  // namespace braid::inline foreign_scripts
