// For tests of commands as a person runs them, and the tier of tests. Only tests include this.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace braid::inline base {

// Whether the large suites run whole (BRAID_TEST_FULL=1); else they take a sample.
inline bool full_tier() { return std::getenv("BRAID_TEST_FULL") != nullptr; }

struct CommandOutcome {
  int exit_code = -1;  // -1: ended by a signal
  std::string output;  // what the command sends to its standard output
};

// Runs a command of the shell to its end; "2>&1" in it adds standard error.
inline CommandOutcome run_shell(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer;
  while (const size_t size = fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), size);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

}  // namespace braid::inline base
