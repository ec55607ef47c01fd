#include "advise/key_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace braid::inline advise {
namespace {

std::vector<KeyMove> moves() {
  std::vector<KeyMove> out;
  for (const char* key : {"a", "b", "c"})
    for (const char* value : {"1", "2", "4"}) out.push_back({{key, value}});
  return out;
}

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
  return best_changes(keys, *price(keys), moves(), price);
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

// Step time by table; what the table does not have is illegal.
PriceKeys table_price(std::map<std::string, double> table) {
  return [table = std::move(table)](const ForeignKeys& keys) -> Result<Verdict> {
    std::string row;
    for (const auto& [key, value] : keys) row += value;
    const auto found = table.find(row);
    if (found == table.end()) return invalid_input("illegal");
    Verdict verdict;
    verdict.step_s = found->second;
    verdict.fits = true;
    return verdict;
  };
}

TEST(KeyChanges, TheBestSingleChangeIsNotTheOnlyStart) {
  // Changing c is the best single change and leads nowhere; b is worse and leads to 2.
  const PriceKeys price =
      table_price({{"111", 8}, {"112", 6}, {"121", 7}, {"221", 5.9}, {"241", 3}, {"441", 2}});
  const ForeignKeys keys = {{"a", "1"}, {"b", "1"}, {"c", "1"}};
  const BestChanges found = best_changes(keys, *price(keys), moves(), price);
  ASSERT_FALSE(found.by_count.empty());
  EXPECT_DOUBLE_EQ(found.by_count.front().verdict.step_s, 6);
  EXPECT_DOUBLE_EQ(found.by_count.back().verdict.step_s, 2);
}

TEST(KeyChanges, KeysThatAreLegalOnlyTogetherChangeTogether) {
  const PriceKeys price = table_price({{"111", 8}, {"221", 4}});
  const ForeignKeys keys = {{"a", "1"}, {"b", "1"}, {"c", "1"}};
  std::vector<KeyMove> together = moves();
  EXPECT_TRUE(best_changes(keys, *price(keys), together, price).by_count.empty());
  together.push_back({{"a", "2"}, {"b", "2"}});
  const BestChanges found = best_changes(keys, *price(keys), together, price);
  ASSERT_EQ(found.by_count.size(), 1u);
  EXPECT_EQ(found.by_count[0].changed, (ForeignKeys{{"a", "2"}, {"b", "2"}}));
}

TEST(KeyChanges, KeysThatGainNothingAreTakenBack) {
  const auto product = product_price(1000);
  const PriceKeys price = [&](const ForeignKeys& keys) -> Result<Verdict> {
    ForeignKeys without = keys;
    without["c"] = "1";  // c changes nothing
    return product(without);
  };
  const ForeignKeys keys = {{"a", "1"}, {"b", "1"}, {"c", "1"}};
  const BestChanges found =
      best_changes(keys, *price(keys), {{{"a", "2"}, {"c", "2"}}, {{"b", "2"}}}, price);
  EXPECT_EQ(found.by_count.back().changed, (ForeignKeys{{"a", "2"}, {"b", "2"}}));
}

TEST(KeyChanges, TheNumberOfPricesIsLimited) {
  const PriceKeys price = product_price(1000);
  const ForeignKeys keys = {{"a", "1"}, {"b", "1"}, {"c", "1"}};
  ChangeLimits limits;
  limits.most_priced = 4;
  EXPECT_EQ(best_changes(keys, *price(keys), moves(), price, limits).priced, 4);
}

}  // namespace
}  // namespace braid::inline advise
