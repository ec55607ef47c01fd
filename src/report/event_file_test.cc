#include "report/event_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "host/file.h"
#include "host/process.h"

namespace braid::inline report {
namespace {

std::string hex(const std::string& bytes) {
  std::string out;
  char digits[3];
  for (const char byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<uint8_t>(byte)));
    out += digits;
  }
  return out;
}

// The check values of RFC 3720, appendix B.4.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(EventFile, BytesOfEvents) {
  EXPECT_EQ(hex(version_event(1.0)), "09000000000000f03f1a0d627261696e2e4576656e743a32");
  EXPECT_EQ(hex(restart_event(1.0, 300)), "09000000000000f03f10ac023a020801");
  // wall_time 1, step 2, summary {value {tag "a", simple_value 0.5}}; what is not finite is left
  // out.
  EXPECT_EQ(hex(scalars_event(1.0, 2, {{"a", 0.5}, {"b", NAN}})),
            "09000000000000f03f10022a0a0a080a0161150000003f");
}

TEST(EventFile, RecordsAreFramedAndChecked) {
  const std::string record = tfrecord("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(hex(record.substr(0, 8)), "0300000000000000");
  EXPECT_EQ(record.substr(12, 3), "abc");
  const auto masked = [](const std::string& bytes) {
    const uint32_t crc = crc32c(bytes);
    const uint32_t value = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
    return std::string(reinterpret_cast<const char*>(&value), 4);
  };
  EXPECT_EQ(record.substr(8, 4), masked(record.substr(0, 8)));
  EXPECT_EQ(record.substr(15), masked("abc"));
}

// Reads a folder with TensorBoard itself and prints "tag step value" lines.
constexpr const char* kReader = R"(
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
for tag in sorted(events.Tags()['scalars']):
    for event in events.Scalars(tag):
        print(tag, event.step, event.value)
)";

// TensorBoard's lines for a folder; empty where it is not installed.
std::string read_with_tensorboard(const std::string& folder) {
  const char* python = std::getenv("BRAID_PYTHON");
  auto child =
      ChildProcess::start({{python == nullptr ? "python3" : python, "-c", kReader, folder}});
  if (!child.ok()) return "";
  std::string out;
  while (true) {
    auto line = (*child)->read_line(deadline_in(60));
    if (!line.ok()) return out;
    out += *line + "\n";
  }
}

TEST(EventFile, TensorBoardReadsItAndForgetsRepeatedSteps) {
  const std::string folder = cat(testing::TempDir(), "/braid_events_", ::getpid());
  std::filesystem::remove_all(folder);
  auto first = EventFile::create(folder, 0);
  ASSERT_TRUE(first.ok()) << first.status().message();
  for (int step = 0; step < 4; ++step)
    ASSERT_TRUE(first->write(step, {{"reward/raw_mean", 0.5 * step}}).ok());
  // A resumed run in the same process and second: its own file, named so that it is read later.
  std::filesystem::rename(first->path(), join_path(folder, "events.out.tfevents.1.1"));
  auto second = EventFile::create(folder, 2);
  ASSERT_TRUE(second->write(2, {{"reward/raw_mean", 7}}).ok());
  const std::string text = read_with_tensorboard(folder);
  std::filesystem::remove_all(folder);
  if (text.empty()) GTEST_SKIP() << "tensorboard is not installed for python3";
  EXPECT_EQ(text, "reward/raw_mean 0 0.0\nreward/raw_mean 1 0.5\nreward/raw_mean 2 7.0\n");
}

}  // namespace
}  // namespace braid::inline report
