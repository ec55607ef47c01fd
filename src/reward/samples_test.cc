#include "reward/samples.h"

#include <gmock/gmock.h>

namespace braid::inline reward {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseSamples, KeepsEveryOtherFieldAndNumbersLines) {
  const auto samples = parse_samples(
      "{\"prompt\": \"p\", \"response\": \"r\", \"label\": 0, \"id\": 7}\n\n"
      "{\"prompt\": \"\", \"response\": \"\", \"response_ids\": [1, 2], \"truncated\": true}",
      "s.jsonl");
  ASSERT_TRUE(samples.ok()) << samples.status().message();
  ASSERT_EQ(samples->size(), 2u);
  EXPECT_EQ((*samples)[0].extra, Json({{"label", 0}, {"id", 7}}));
  EXPECT_EQ((*samples)[0].response, "r");
  EXPECT_EQ((*samples)[1].sample_id, 2);
  EXPECT_THAT((*samples)[1].response_ids, ElementsAre(1, 2));
  EXPECT_TRUE((*samples)[1].truncated);
}

TEST(ParseSamples, LabelKey) {
  const auto samples =
      parse_samples("{\"prompt\": \"p\", \"response\": \"r\", \"answer\": \"4\"}", "s", "answer");
  EXPECT_EQ((*samples)[0].extra, Json({{"label", "4"}, {"answer", "4"}}));
}

TEST(ParseSamples, ErrorsNameFileAndLine) {
  const auto message = [](const std::string& line) {
    const std::string good = "{\"prompt\": \"p\", \"response\": \"r\"}\n";
    return parse_samples(good + line, "s.jsonl").status().message();
  };
  EXPECT_THAT(message("{oops"), HasSubstr("s.jsonl:2"));
  EXPECT_THAT(message("[]"), HasSubstr("s.jsonl:2"));
  EXPECT_THAT(message("{\"prompt\": \"p\"}"),
              AllOf(HasSubstr("s.jsonl:2"), HasSubstr("'response'")));
  EXPECT_THAT(message("{\"response\": \"r\"}"),
              AllOf(HasSubstr("s.jsonl:2"), HasSubstr("'prompt'")));
  EXPECT_THAT(message("{\"prompt\": 1, \"response\": \"r\"}"), HasSubstr("s.jsonl:2"));
  EXPECT_THAT(parse_samples("\n", "s.jsonl").status().message(), HasSubstr("no samples"));
}

}  // namespace
}  // namespace braid::inline reward
