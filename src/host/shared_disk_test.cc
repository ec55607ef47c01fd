#include "host/shared_disk.h"

#include <gtest/gtest.h>

namespace braid::inline host {
namespace {

TEST(SharedDisk, IsToldByTheNumberOfItsFileSystem) {
  constexpr int64_t kNfs = 0x6969, kCifs = 0xFF534D42, kExt4 = 0xEF53, kMemory = 0x01021994;
  EXPECT_TRUE(is_network_file_system(kNfs));
  EXPECT_TRUE(is_network_file_system(kCifs));
  EXPECT_TRUE(is_network_file_system(static_cast<int32_t>(kCifs)));  // as some systems give it
  EXPECT_FALSE(is_network_file_system(kExt4));
  EXPECT_FALSE(is_network_file_system(kMemory));
}

TEST(SharedDisk, OfAFolder) {
  const auto kernel = is_on_network("/proc/self");
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  EXPECT_FALSE(*kernel);
  EXPECT_NE(is_on_network("/proc/nothing").status().message().find("/proc/nothing: which disk"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::inline host
