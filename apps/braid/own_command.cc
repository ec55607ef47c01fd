#include "own_command.h"

#include <fstream>

namespace braid {

Result<std::vector<std::string>> own_command() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  if (words.empty()) return io_error("/proc/self/cmdline: cannot read");
  words[0] = "/proc/self/exe";
  return words;
}

}  // namespace braid
