#include "comm/store.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace braid::inline comm {
namespace {

TEST(Store, LooksAtManyKeysInFewRequests) {
  const auto served = Store::serve_local("keys");
  ASSERT_TRUE(served.ok());
  Store& store = **served;
  std::vector<std::string> keys;
  for (int i = 0; i < 32; ++i) {
    keys.push_back(cat("key/", i));
    ASSERT_TRUE(store.set(keys.back(), cat("value ", i)).ok());
  }
  const auto requests_of = [&](const std::vector<std::string>& looked, int64_t absent) {
    const int64_t before = store.requests();
    const auto found = store.look(looked);
    EXPECT_TRUE(found.ok());
    for (size_t i = 0; found.ok() && i < looked.size(); ++i)
      EXPECT_EQ((*found)[i], static_cast<int64_t>(i) == absent
                                 ? std::nullopt
                                 : std::optional(cat("value ", looked[i].substr(4))));
    return store.requests() - before;
  };
  EXPECT_EQ(requests_of(keys, -1), 2);
  EXPECT_EQ(requests_of({"key/7"}, -1), 2);
  EXPECT_EQ(requests_of({}, -1), 0);
  EXPECT_EQ(requests_of({"nobody"}, 0), 1);
  keys[5] = "nobody";
  EXPECT_EQ(requests_of(keys, 5), 1 + 32 + 1);
}

}  // namespace
}  // namespace braid::inline comm
