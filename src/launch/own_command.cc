#include "launch/own_command.h"

#include <cstdlib>
#include <fstream>

#include "comm/launcher.h"

namespace braid::inline launch {
namespace {

// The words of the command line, with a path of the program first that stays right whatever the
// folder.
Result<std::vector<std::string>> own_command() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  if (words.empty()) return io_error("/proc/self/cmdline: cannot read");
  words[0] = "/proc/self/exe";
  return words;
}

}  // namespace

Status run_as_ranks(int64_t ranks, const std::vector<std::string>& more) {
  LaunchOptions options;
  options.ranks = ranks;
  BRAID_ASSIGN(options.argv, own_command());
  options.argv.insert(options.argv.end(), more.begin(), more.end());
  BRAID_ASSIGN(const int code, launch_ranks(options));
  if (code != 0) std::exit(code);
  return ok_status();
}

}  // namespace braid::inline launch
