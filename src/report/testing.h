// For tests of reports: a folder of their own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/text.h"

namespace braid::inline report {

// An empty folder of this process and name.
inline std::string fresh_folder(const char* name) {
  const std::string folder = cat(testing::TempDir(), "/braid_", name, "_", ::getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace braid::inline report
