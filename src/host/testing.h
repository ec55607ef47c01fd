// For tests of commands as a person runs them. Only tests include this.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/testing.h"
#include "base/text.h"
#include "host/file.h"
#include "host/process.h"
#include "test_paths.h"

namespace braid::inline host {

// Runs the built program in the source folder with shell-quoted arguments.
inline CommandOutcome run_braid(const std::string& arguments) {
  return run_shell(cat("cd ", BRAID_SOURCE_DIR, " && ", BRAID_BINARY, " ", arguments, " 2>&1"));
}

// How a program ended, the lines of its output and what it wrote to the error stream.
struct Finished {
  std::string end;
  std::vector<std::string> lines;
  std::string errors;
};

// Runs a program to its end without a shell. The limit is for a machine that is busy otherwise.
inline Finished run_program(const std::vector<std::string>& argv) {
  Finished result;
  auto process = ChildProcess::start({argv});
  EXPECT_TRUE(process.ok()) << process.status().message();
  if (!process.ok()) return result;
  const Deadline deadline = deadline_in(300);
  for (auto line = (*process)->read_line(deadline); line.ok();
       line = (*process)->read_line(deadline))
    result.lines.push_back(*line);
  const auto end = (*process)->wait(deadline);
  EXPECT_TRUE(end.ok()) << end.status().message();
  if (end.ok()) result.end = *end;
  result.errors = (*process)->take_errors();
  return result;
}

// Skips where the program is not built; gives each test a folder of its own.
class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!path_exists(BRAID_BINARY)) GTEST_SKIP() << BRAID_BINARY << " is not built";
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = join_path(::testing::TempDir(), cat("braid-", info->name(), "-", ::getpid()));
    ASSERT_TRUE(make_folder(folder_).ok());
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = join_path(folder_, name);
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    return path;
  }

  std::string folder_;
};

// The rows of a file that the program wrote.
inline std::vector<Json> read_rows(const std::string& path) {
  std::vector<Json> out;
  const auto text = read_file(path);
  EXPECT_TRUE(text.ok()) << text.status().message();
  for (const std::string& line : split(text.ok() ? *text : "", '\n'))
    if (!line.empty()) out.push_back(parse_json(line, path).value());
  return out;
}

// "braid: error: ..." lines of an output.
inline int error_lines(const std::string& output) {
  int count = 0;
  for (size_t at = 0; (at = output.find("braid: error: ", at)) != std::string::npos; ++at) ++count;
  return count;
}

}  // namespace braid::inline host
