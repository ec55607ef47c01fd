#include "host/workers.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/text.h"

namespace braid::inline host {
namespace {

TEST(ForEachOnWorkers, EveryItemOnceAndTheFirstFailure) {
  std::vector<int> done(50);
  ASSERT_TRUE(for_each_on_workers(50, 4, [&](size_t, size_t item) {
                ++done[item];
                return ok_status();
              }).ok());
  EXPECT_EQ(done, std::vector<int>(50, 1));
  const Status failed = for_each_on_workers(5, 1, [](size_t, size_t item) {
    return item >= 2 ? invalid_input(cat("item ", item)) : ok_status();
  });
  EXPECT_EQ(failed.message(), "item 2");
}

}  // namespace
}  // namespace braid::inline host
