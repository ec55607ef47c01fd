#include "host/file_fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "base/text.h"
#include "host/file.h"
#include "host/sha256.h"

namespace braid::inline host {
namespace {

std::string file_path(const char* name) {
  return join_path(testing::TempDir(), cat("fingerprint-", ::getpid(), "-", name));
}

// A file with holes: of this size, zeros but for some bytes at `at`.
std::string sparse_file(const char* name, int64_t bytes, int64_t at) {
  const std::string path = file_path(name);
  std::ofstream(path, std::ios::binary).close();
  std::filesystem::resize_file(path, static_cast<uintmax_t>(bytes));
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(at);
  file << std::string(128 << 10, 'x');
  return path;
}

TEST(FileFingerprint, OfASmallFileIsItsHash) {
  const std::string path = file_path("small");
  ASSERT_TRUE(write_file_atomic(path, "abc").ok());
  EXPECT_EQ(*file_fingerprint(path), cat("3 bytes with SHA-256 ", sha256_hex("abc").substr(0, 16)));
  ASSERT_TRUE(write_file_atomic(path, "").ok());
  EXPECT_EQ(*file_fingerprint(path), cat("0 bytes with SHA-256 ", sha256_hex("").substr(0, 16)));
  std::filesystem::remove(path);
}

TEST(FileFingerprint, OfALargeFileSeesBeginMiddleAndEnd) {
  constexpr int64_t kBytes = kWholeFileBytes + 12345, kRun = 128 << 10;
  std::set<std::string> found;
  for (const int64_t at : {int64_t{0}, kBytes / 2, kBytes - kRun}) {
    const std::string path = sparse_file("large", kBytes, at);
    found.insert(*file_fingerprint(path));
    EXPECT_EQ(*file_fingerprint(path), *file_fingerprint(path));
    std::filesystem::remove(path);
  }
  EXPECT_EQ(found.size(), 3u);
}

// A norm that lies between two of the pieces.
TEST(FileFingerprint, OfALargeSafetensorsFileSeesSmallTensors) {
  const auto written = [](char value) {
    const int64_t data = kWholeFileBytes + 12345, at = data / 1024 * 500 + (48 << 10);
    const std::string header = cat(
        "{\"big\":{\"dtype\":\"U8\",\"shape\":[", at, "],\"data_offsets\":[0,", at,
        "]},\"norm\":{\"dtype\":\"U8\",\"shape\":[64],\"data_offsets\":[", at, ",", at + 64, "]}}");
    const std::string path = file_path("weights.safetensors");
    std::ofstream file(path, std::ios::binary);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header;
    file.seekp(static_cast<int64_t>(sizeof length + length) + at);
    file << std::string(64, value);
    file.close();
    std::filesystem::resize_file(path, static_cast<uintmax_t>(sizeof length + length + data));
    const std::string out = *file_fingerprint(path);
    // By its pieces alone the file is the same: another name hides the tensors.
    const std::string hidden = file_path("weights.bin");
    std::filesystem::rename(path, hidden);
    const std::string pieces = *file_fingerprint(hidden);
    std::filesystem::remove(hidden);
    return std::pair(out, pieces);
  };
  const auto one = written('a'), same = written('a'), other = written('b');
  EXPECT_EQ(one, same);
  EXPECT_EQ(one.second, other.second);
  EXPECT_NE(one.first, other.first);
}

// Bytes that this process has read so far, from whatever.
int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string key;
  int64_t value = 0;
  while (io >> key >> value)
    if (key == "rchar:") return value;
  return -1;
}

// Tensors of 1 MB, of 4 KB and of 40 MB.
TEST(FileFingerprint, OfWeightsSeesEveryTensorAndReadsLittle) {
  const int64_t sizes[] = {1 << 20, 4 << 10, 40 << 20};
  const int64_t data = sizes[0] + sizes[1] + sizes[2];
  std::string header = "{";
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    header += cat(header.size() > 1 ? "," : "", "\"", begin, "\":{\"dtype\":\"U8\",\"shape\":[",
                  size, "],\"data_offsets\":[", begin, ",", begin + size, "]}");
    begin += size;
  }
  header += "}";
  const std::string path = file_path("sliced.safetensors");
  const auto with = [&](int64_t at, char value) {
    std::ofstream file(path, std::ios::binary);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header;
    file.seekp(static_cast<int64_t>(sizeof length + length) + at);
    file << value;
    file.close();
    std::filesystem::resize_file(path, sizeof length + length + static_cast<uint64_t>(data));
    return *weights_file_fingerprint(path);
  };
  const std::string zeros = with(0, '\0');
  EXPECT_THAT(zeros, testing::HasSubstr(cat(8 + header.size() + data, " bytes with SHA-256 ")));
  const int64_t third = sizes[0] + sizes[1];
  for (const int64_t at : {int64_t{0}, sizes[0] - 1, sizes[0] + 2000, third, data - 1,
                           third + (sizes[2] - 4096) / 3 + 17})
    EXPECT_NE(with(at, 'x'), zeros) << at;
  EXPECT_EQ(with(third + 5000, 'x'), zeros) << "between the pieces";
  const int64_t before = bytes_read();
  EXPECT_EQ(with(0, '\0'), zeros);
  EXPECT_LT(bytes_read() - before, 64 << 10);
  std::filesystem::remove(path);
}

TEST(FileFingerprint, ErrorsNameThePath) {
  EXPECT_THAT(file_fingerprint("/no/such").status().message(), testing::HasSubstr("/no/such"));
}

}  // namespace
}  // namespace braid::inline host
