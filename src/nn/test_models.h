// Small models and folders that the tests of nn share.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/text.h"
#include "host/file.h"
#include "nn/model.h"
#include "test_paths.h"

namespace braid::inline nn {

// The folder of a golden model.
inline std::string golden_folder(const std::string& name) {
  return cat(BRAID_SOURCE_DIR, "/tests/data/models/", name);
}

// A two-layer model with grouped heads; `family` is a name of model_families().
inline ModelSpec small_spec(const std::string& family) {
  const auto text = read_file(join_path(golden_folder(family), "config.json"));
  EXPECT_TRUE(text.ok()) << text.status().message();
  return *parse_model_spec(*text, family);
}

inline std::unique_ptr<Model> small_model(const std::string& family,
                                          const ModelOptions& options = {}) {
  auto model = make_model(small_spec(family), options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

// A folder of this test's own, removed at its end.
class FolderTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(make_folder(folder_).ok()); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A copy of a golden model's folder to damage.
  std::string copy_golden(const std::string& name) {
    const std::string to = join_path(folder_, name);
    std::filesystem::copy(golden_folder(name), to, std::filesystem::copy_options::recursive);
    return to;
  }

  std::string folder_ =
      cat(testing::TempDir(), "/braid_nn_",
          testing::UnitTest::GetInstance()->current_test_info()->name(), "_", ::getpid());
};

}  // namespace braid::inline nn
