// Runs a shell script with stand-ins in place of every program but a few that only read or print,
// and records what it would have started. The script runs under bash with an empty environment, in
// a scratch folder that shows the entries of the folder it belongs to, and ends at a deadline. This
// keeps a launch script from launching; it is no sandbox against one that means harm: a script may
// still name a program by its full path, or write where its redirections say. One thread at a time
// may use a value.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid {

struct ScriptOptions {
  double deadline_s = 20;
  std::map<std::string, std::string> environment;  // variables that the script sees
  std::vector<std::string> arguments;              // its "$@"
};

class RecordedScript {
 public:
  // Errors: a script that does not exist, a bash that does not start, a script that is not done in
  // time. A script that fails is not an error: what it started before counts.
  static Result<RecordedScript> run(const std::string& path, const ScriptOptions& options);
  RecordedScript(RecordedScript&&) = default;
  RecordedScript& operator=(RecordedScript&&) = delete;

  // Every program that a stand-in took the place of, with its arguments, in order.
  const std::vector<std::vector<std::string>>& commands() const { return commands_; }
  // Variables that the script used and nobody set; each had the text "$NAME".
  const std::vector<std::string>& unset_variables() const { return unset_; }
  // How it ended and the last line that it printed, for messages.
  const std::string& ending() const { return ending_; }
  // Where it ran. Gone with this value.
  const std::string& folder() const { return *folder_; }
  // The folder that the script belongs to: the nearest around it with a project file or a .git.
  const std::string& project() const { return project_; }

 private:
  RecordedScript() = default;
  Status prepare(const std::string& path);
  Result<std::string> start(const std::string& path, const ScriptOptions& options,
                            const std::map<std::string, std::string>& environment);
  Status collect();

  std::shared_ptr<const std::string> folder_;  // the deleter removes it
  std::string project_, ending_;
  std::vector<std::vector<std::string>> commands_;
  std::vector<std::string> unset_;
};

}  // namespace braid
