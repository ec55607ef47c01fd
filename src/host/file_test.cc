#include "host/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/text.h"
#include "host/file_claim.h"

namespace braid::inline host {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(make_folder(folder_).ok()); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_ = cat(testing::TempDir(), "/braid_file_test_", ::getpid());
};

TEST_F(FileTest, AtomicWriteReplacesAndLeavesNoTemporary) {
  const std::string path = join_path(folder_, "a.txt");
  ASSERT_TRUE(write_file_atomic(path, "one").ok());
  ASSERT_TRUE(write_file_atomic(path, "two").ok());
  EXPECT_EQ(*read_file(path), "two");
  EXPECT_EQ(*list_folder(folder_), std::vector<std::string>{"a.txt"});
}

// A writer that dies leaves its temporary; the next start removes it, and nothing else.
TEST_F(FileTest, TemporariesOfTheDeadAreRemoved) {
  const std::string dead = join_path(folder_, "config.yaml.tmp.123"), alive = cat(dead, "4");
  ASSERT_TRUE(write_file_atomic(dead, "half").ok());
  const FileHandle writing = create_claimed(alive);
  ASSERT_TRUE(writing.is_open());
  for (const char* other : {"a.tmp.x", ".tmp.5", "b.tmp.", "c.tmp"})
    ASSERT_TRUE(write_file_atomic(join_path(folder_, other), "").ok());
  ASSERT_TRUE(make_folder(join_path(folder_, "d.tmp.7")).ok());
  remove_unclaimed_files(folder_);
  EXPECT_EQ(*list_folder(folder_), (std::vector<std::string>{".tmp.5", "a.tmp.x", "b.tmp.", "c.tmp",
                                                             "config.yaml.tmp.1234", "d.tmp.7"}));
}

TEST_F(FileTest, MapShowsTheBytes) {
  const std::string path = join_path(folder_, "b.bin");
  ASSERT_TRUE(write_file_atomic(path, std::string("x\0y", 3)).ok());
  const auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(mapped->text(), std::string_view("x\0y", 3));
  ASSERT_TRUE(write_file_atomic(path, "").ok());
  EXPECT_EQ(MappedFile::open(path)->size_bytes(), 0u);
}

TEST_F(FileTest, PipesAndDevicesAreWrittenToAndStay) {
  const std::string pipe = join_path(folder_, "pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(write_file_atomic(pipe, "abc").ok());
  char got[8] = {};
  EXPECT_EQ(::read(reader, got, sizeof got), 3);
  EXPECT_STREQ(got, "abc");
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(write_file_atomic("/dev/null", "abc").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(FileTest, ErrorsNameThePath) {
  const Status missing = read_file(join_path(folder_, "none")).status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_NE(missing.message().find("none"), std::string::npos);
  EXPECT_EQ(read_file(folder_).status().code(), Code::kInvalidInput);
  const std::string file = join_path(folder_, "file");
  ASSERT_TRUE(write_file_atomic(file, "x").ok());
  EXPECT_EQ(read_file(join_path(file, "below")).status().code(), Code::kNotFound);
  EXPECT_EQ(read_file(std::string(5000, 'a')).status().code(), Code::kInvalidInput);
  EXPECT_FALSE(MappedFile::open(folder_).ok());
  const std::string nowhere = join_path(folder_, "no/such/x");
  EXPECT_EQ(write_file_atomic(nowhere, "y").message(),
            nowhere + ": cannot create: No such file or directory");
}

}  // namespace
}  // namespace braid::inline host
