#include "search/key_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid::planner {
namespace {

const std::vector<TunableKey> kTunable = {
    {"a", {"1", "2", "4"}}, {"b", {"1", "2", "4"}}, {"c", {"1", "2", "4"}}};

// Step time 8 / (a b c); the product may not exceed `memory`; c = 4 is illegal.
PriceKeys product_price(double memory) {
  return [=](const ForeignKeys& keys) -> Result<Verdict> {
    double product = 1;
    for (const auto& [key, value] : keys) product *= std::stod(value);
    if (keys.at("c") == "4") return invalid_input("c 4");
    Verdict verdict;
    verdict.step_s = 8 / product;
    verdict.peak_bytes = product;
    verdict.fits = product <= memory;
    return verdict;
  };
}

BestChanges search(const ForeignKeys& keys, double memory) {
  const PriceKeys price = product_price(memory);
  return best_changes(keys, *price(keys), kTunable, price);
}

TEST(KeyChanges, OneTwoAndAnyNumberOfKeys) {
  const BestChanges found = search({{"a", "1"}, {"b", "1"}, {"c", "1"}}, 1000);
  ASSERT_EQ(found.by_count.size(), 3u);
  EXPECT_DOUBLE_EQ(found.by_count[0].verdict.step_s, 2);
  EXPECT_EQ(found.by_count[0].changed.size(), 1u);
  EXPECT_DOUBLE_EQ(found.by_count[1].verdict.step_s, 0.5);
  EXPECT_EQ(found.by_count[1].changed, (ForeignKeys{{"a", "4"}, {"b", "4"}}));
  EXPECT_DOUBLE_EQ(found.by_count[2].verdict.step_s, 0.25);
  EXPECT_EQ(found.by_count[2].changed, (ForeignKeys{{"a", "4"}, {"b", "4"}, {"c", "2"}}));
  EXPECT_GT(found.priced, 9);
}

TEST(KeyChanges, NothingWhereTheConfigurationIsTheBest) {
  EXPECT_TRUE(search({{"a", "4"}, {"b", "4"}, {"c", "2"}}, 1000).by_count.empty());
}

TEST(KeyChanges, ChangesFitMemory) {
  for (const KeyChange& change : search({{"a", "1"}, {"b", "1"}, {"c", "1"}}, 4).by_count) {
    EXPECT_TRUE(change.verdict.fits);
    EXPECT_DOUBLE_EQ(change.verdict.step_s, 2);
  }
}

TEST(KeyChanges, AConfigurationThatDoesNotFitIsFirstMadeToFit) {
  const BestChanges found = search({{"a", "4"}, {"b", "4"}, {"c", "2"}}, 8);
  ASSERT_FALSE(found.by_count.empty());
  EXPECT_TRUE(found.by_count.front().verdict.fits);
  EXPECT_DOUBLE_EQ(found.by_count.front().verdict.step_s, 1);
}

}  // namespace
}  // namespace braid::planner
