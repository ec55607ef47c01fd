#include "host/staged_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline host {
namespace {

class StagedFolderTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void make(const std::string& name) const {
    ASSERT_TRUE(make_folder(join_path(folder_, name)).ok());
  }
  std::string folder_ = cat(testing::TempDir(), "/braid_staged_", ::getpid());
  std::string path_ = join_path(folder_, "actor");
};

TEST_F(StagedFolderTest, AppearsInWholeAndReplacesAnEarlierOne) {
  for (const char* text : {"one", "two"}) {
    auto staged = StagedFolder::create(path_);
    ASSERT_TRUE(staged.ok()) << staged.status().message();
    ASSERT_TRUE(write_file_atomic(join_path(staged->staging(), "weights"), text).ok());
    EXPECT_EQ(path_exists(path_), std::string(text) == "two");
    ASSERT_TRUE(staged->publish().ok());
    EXPECT_EQ(*read_file(join_path(path_, "weights")), text);
  }
  EXPECT_EQ(*list_folder(folder_), std::vector<std::string>{"actor"});
}

TEST_F(StagedFolderTest, IsReplacedWhereNamesCannotBeExchanged) {
  const std::string made = join_path(folder_, "made");
  for (const char* text : {"one", "two"}) {
    make("made");
    ASSERT_TRUE(write_file_atomic(join_path(made, "weights"), text).ok());
    const Status status = put_in_place_by_renames(made, path_);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(*read_file(join_path(path_, "weights")), text);
  }
  EXPECT_EQ(*read_file(join_path(made, "weights")), "one");  // the earlier one, to be removed
  EXPECT_THAT(*list_folder(folder_), testing::UnorderedElementsAre("actor", "made"));
  // What cannot be put there leaves what was there.
  EXPECT_THAT(put_in_place_by_renames(join_path(folder_, "none"), path_).message(),
              testing::HasSubstr("cannot be put in place"));
  EXPECT_EQ(*read_file(join_path(path_, "weights")), "two");
}

TEST_F(StagedFolderTest, WhatIsNotPublishedGoes) {
  ASSERT_TRUE(StagedFolder::create(path_).ok());
  EXPECT_TRUE(list_folder(folder_)->empty());
}

// The folder of a process that is alive is locked, whatever its number says.
TEST_F(StagedFolderTest, LeftoversOfTheDeadGoAndThoseOfTheLivingStay) {
  make("actor.tmp-1/deep");
  make("actor.tmp-2");
  make("critic.tmp-1");
  make(cat("actor.tmp-", ::getpid()));
  const FileHandle living(::open(join_path(folder_, "actor.tmp-2").c_str(), O_RDONLY));
  ASSERT_EQ(::flock(living.get(), LOCK_EX), 0);
  const auto first = StagedFolder::create(path_), second = StagedFolder::create(path_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->staging(), second->staging());
  const std::string own = cat("actor.tmp-", ::getpid());
  EXPECT_THAT(*list_folder(folder_),
              testing::UnorderedElementsAre("actor.tmp-2", own, own + "-1", "critic.tmp-1"));
}

}  // namespace
}  // namespace braid::inline host
