#include "inputs/reward_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/chat/render.h"
#include "runs/process_testing.h"
#include "session/testing.h"
#include "session/tokenizer_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role[0] }}={{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}a={% endif %}";

class RewardReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(quickstart_model(), folder_, std::filesystem::copy_options::recursive);
    give_own_tokenizer(folder_);
    policy_ = *load_tokenizer(quickstart_model());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void add_template() const {
    ASSERT_TRUE(write_file_atomic(join_path(folder_, "chat_template.jinja"), kTemplate).ok());
  }
  Result<std::optional<RewardReader>> load() const {
    RewardConfig reward;
    reward.type = "model";
    reward.name = "taste";
    reward.path = folder_;
    return RewardReader::load(reward, policy_, "2024-07-26");
  }
  RewardReader reader() const { return **load(); }
  Tokenizer own() const { return *load_tokenizer(folder_); }

  static RewardSample sample_of(const std::string& prompt, const std::string& response) {
    RewardSample sample;
    sample.sample_id = 5;
    sample.prompt = prompt;
    sample.response = response;
    sample.prompt_ids = {1, 4, 4};
    sample.response_ids = {4};
    return sample;
  }
  static std::vector<int32_t> all_ids(const RewardSample& sample) {
    std::vector<int32_t> ids = sample.prompt_ids;
    ids.insert(ids.end(), sample.response_ids.begin(), sample.response_ids.end());
    return ids;
  }

  std::string folder_ =
      cat(testing::TempDir(), "/braid_reader_",
          testing::UnitTest::GetInstance()->current_test_info()->name(), "_", ::getpid());
  std::optional<Tokenizer> policy_;
};

TEST_F(RewardReaderTest, OnlyATokenizerThatMeansOthersMakesAReader) {
  EXPECT_THAT(reader().difference(), HasSubstr("token 8 is '3' here and '7' there"));
  policy_ = own();
  EXPECT_FALSE(load()->has_value());
  policy_.reset();
  EXPECT_FALSE(load()->has_value());
}

// "=1" and "2" of prompt and response are one token "12" of the whole.
TEST_F(RewardReaderTest, TextsAreTokenizedAsAWhole) {
  const RewardSample read = *reader().read(sample_of("sort 731=1", "2 37"));
  EXPECT_EQ(all_ids(read), *own().encode("sort 731=12 37", true));
  EXPECT_EQ(read.prompt_ids, *own().encode("sort 731=", true));
  EXPECT_LT(all_ids(read).size(), policy_->encode("sort 731=12 37", true)->size());
}

TEST_F(RewardReaderTest, PromptsThatAreIdsAreReadAsText) {
  RewardSample sample = sample_of("", "37");
  sample.prompt_ids = *policy_->encode("ab=", true);
  EXPECT_EQ(all_ids(*reader().read(sample)), *own().encode("ab=37", true));
}

TEST_F(RewardReaderTest, ConversationsGoThroughTheModelsTemplate) {
  add_template();
  RewardSample sample = sample_of("what the policy saw", "12");
  sample.messages = Json::array({{{"role", "user"}, {"content", "sort 21"}}});
  EXPECT_EQ(all_ids(*reader().read(sample)), *own().encode("u=sort 21 a=12 ", false));
  EXPECT_EQ(reader().read(sample)->prompt_ids, *own().encode("u=sort 21 a=", false));
  sample.messages.push_back({{"role", "assistant"}, {"content", "1"}});
  sample.response = "2";
  EXPECT_EQ(all_ids(*reader().read(sample)), *own().encode("u=sort 21 a=12 ", false));
}

TEST_F(RewardReaderTest, WhatCannotBeReadIsNamed) {
  RewardSample sample = sample_of("x", "12");
  sample.messages = Json::array({{{"role", "user"}, {"content", "sort 21"}}});
  EXPECT_THAT(reader().read(sample).status().message(),
              testing::AllOf(HasSubstr("reward 'taste': sample 5: "), HasSubstr("chat template")));
  const std::string config = join_path(folder_, "config.json");
  Json json = *parse_json(*read_file(config), config);
  json["rope_scaling"] = {{"rope_type", "longrope"},
                          {"short_factor", std::vector<double>(16, 1.0)}};
  json["original_max_position_embeddings"] = 8;
  ASSERT_TRUE(write_file_atomic(config, json.dump()).ok());
  EXPECT_THAT(reader().read(sample_of("sort 123=", "12")).status().message(),
              HasSubstr("has 10 tokens in the model's tokenizer; the model has positions for 8"));
  json["vocab_size"] = 12;
  ASSERT_TRUE(write_file_atomic(config, json.dump()).ok());
  EXPECT_THAT(load().status().message(), HasSubstr("belongs to another model"));
}

}  // namespace
}  // namespace braid
