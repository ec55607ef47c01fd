#include "rollout/stop_strings.h"
#include "test_paths.h"

#include <gtest/gtest.h>

namespace braid::inline rollout {
namespace {

Generated sample_of(int64_t id, std::vector<int32_t> response) {
  Generated sample;
  sample.sample = SampleId{id};
  sample.response_ids = std::move(response);
  return sample;
}

class StopStringsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = load_tokenizer(BRAID_SOURCE_DIR "/examples/quickstart/model");
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    tokenizer_.emplace(std::move(loaded).value());
    ids_ = tokenizer_->encode("3142718", false).value();
    ASSERT_GE(ids_.size(), 4u);
  }

  // The number of tokens after which the check ends the sequence; 0 = it never does.
  size_t end_of(const StopCheck& check, int64_t sample) const {
    for (size_t count = 1; count <= ids_.size(); ++count)
      if (check(sample_of(sample, {ids_.begin(), ids_.begin() + static_cast<int64_t>(count)})))
        return count;
    return 0;
  }

  std::optional<Tokenizer> tokenizer_;
  std::vector<int32_t> ids_;
};

TEST_F(StopStringsTest, EndsWithTheFirstTokenThatCompletesAString) {
  for (const std::string stop : {"3", "42", "271", "718", "3142718"}) {
    size_t expected = 0;
    for (size_t count = 1; count <= ids_.size() && expected == 0; ++count) {
      const std::vector<int32_t> first(ids_.begin(), ids_.begin() + static_cast<int64_t>(count));
      if (tokenizer_->decode(first, true).value().find(stop) != std::string::npos) expected = count;
    }
    EXPECT_GT(expected, 0u);
    EXPECT_EQ(end_of(stop_at_strings(*tokenizer_, {"never", stop}), 1), expected) << stop;
  }
}

TEST_F(StopStringsTest, SequencesAreTextsOfTheirOwn) {
  const StopCheck check = stop_at_strings(*tokenizer_, {"31"});
  EXPECT_FALSE(check(sample_of(1, {ids_[0]})));
  EXPECT_FALSE(check(sample_of(2, {ids_[1]})));
  EXPECT_TRUE(check(sample_of(1, {ids_[0], ids_[1]})));
}

// The engine asks only from min_new_tokens on, and of imported sequences in the middle.
TEST_F(StopStringsTest, SeesTokensThatCameBeforeTheFirstQuestion) {
  const StopCheck check = stop_at_strings(*tokenizer_, {"14"});
  EXPECT_TRUE(check(sample_of(1, ids_)));
}

TEST_F(StopStringsTest, WithoutStringsThereIsNoCheck) {
  EXPECT_FALSE(stop_at_strings(*tokenizer_, {}));
  EXPECT_EQ(end_of(stop_at_strings(*tokenizer_, {"999"}), 1), 0u);
}

}  // namespace
}  // namespace braid::inline rollout
