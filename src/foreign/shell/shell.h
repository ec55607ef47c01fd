// What a launch script would start, by reading it: conditions, loops, functions and expansions are
// evaluated here, and nothing is run. What only a running shell knows is assumed and said. Internal
// to foreign/ and the commands that read scripts. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline foreign {

// As the sandbox of foreign/scripts/recorded_script.h sets a script up.
struct ShellOptions {
  std::string name = "script";  // "$0"
  std::string folder = "/";     // where it starts: the folder of its project
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;
  // Files of the script's project by absolute path, and whether one is a folder; empty = none is
  // there.
  std::function<std::optional<std::string>(const std::string& path)> read;
  std::function<bool(const std::string& path)> is_folder;
  int gpus = 8;  // that questions about the machine are answered with
};

struct ShellReading {
  std::vector<std::vector<std::string>> commands;  // programs with their arguments, in order
  // Variables that nobody set: "$NAME" in words; "NAME[@]" of an array, which gives no words.
  std::vector<std::string> unset;
  std::vector<std::string> assumptions;  // what was not known and how it was taken
  bool asked_for_gpus = false;
  std::string ending;  // why it ended before its last line; "" = it did not
};

// Errors: a text that is no shell script, with its line.
Result<ShellReading> read_shell(std::string_view text, const ShellOptions& options = {});

// The words of a script's commands, ";" between two; what is not known stays as written. Errors as
// above, and an array that is not assigned.
Result<std::vector<std::string>> shell_words(std::string_view text);

// Programs that launch scripts look for; among them, those that start the shell they are given.
const std::vector<std::string>& stand_in_programs();
const std::vector<std::string>& wrapper_programs();

// Variables that a job of Slurm has, by the "#SBATCH" lines of its script; empty without such
// lines.
std::map<std::string, std::string> slurm_variables(std::string_view script);

}  // namespace braid::inline foreign
