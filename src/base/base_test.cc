#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/text.h"
#include "base/yaml.h"

namespace braid::inline base {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_input(cat(value, " is odd"));
  return value / 2;
}
Result<int> quarter(int value) {
  BRAID_ASSIGN(const int first, half(value));
  return half(first);
}

TEST(Status, CarriesCodeMessageAndContext) {
  EXPECT_EQ(*quarter(8), 2);
  const auto failed = quarter(6).at("quarter");
  EXPECT_EQ(failed.status(), Status(Code::kInvalidInput, "quarter: 3 is odd"));
  EXPECT_EQ(exit_code(failed.status().code()), 2);
  EXPECT_EQ(exit_code(Code::kDeadline), 1);
}

// Known answers of the reference implementation (Random123, kat_vectors).
TEST(Rng, PhiloxMatchesPublishedVectors) {
  const std::array<uint32_t, 4> zero = philox({0, 0, 0, 0}, {0, 0});
  EXPECT_EQ(zero, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t all = 0xffffffff;
  const std::array<uint32_t, 4> ones = philox({all, all, all, all}, {all, all});
  EXPECT_EQ(ones, (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Rng, UnitIsUniformAndNormalIsStandard) {
  double sum = 0, normal_sum = 0, normal_square = 0;
  const int count = 20000;
  for (int i = 0; i < count; ++i) {
    const double unit = random_unit(1, 2, i);
    ASSERT_GE(unit, 0);
    ASSERT_LT(unit, 1);
    sum += unit;
    const double normal = random_normal(3, 4, i);
    normal_sum += normal;
    normal_square += normal * normal;
  }
  EXPECT_NEAR(sum / count, 0.5, 0.01);
  EXPECT_NEAR(normal_sum / count, 0, 0.03);
  EXPECT_NEAR(normal_square / count, 1, 0.05);
}

TEST(Rng, StreamBelowCoversItsRange) {
  RandomStream stream(7, 0);
  std::set<uint64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(stream.below(5));
  EXPECT_EQ(seen, (std::set<uint64_t>{0, 1, 2, 3, 4}));
}

TEST(Text, SuggestsOnlyNearNames) {
  EXPECT_EQ(did_you_mean("temprature", {"temperature", "top_p"}), " (did you mean 'temperature'?)");
  EXPECT_EQ(did_you_mean("zzz", {"temperature", "top_p"}), "");
  EXPECT_EQ(did_you_mean("H100-80G", {"a100-80g", "h100-80g"}), " (did you mean 'h100-80g'?)");
}

TEST(Text, LowersOnlyAsciiLetters) {
  EXPECT_EQ(lowered("Llama-2-7B_HF"), "llama-2-7b_hf");
  EXPECT_EQ(lowered("\xc3\x84[@Z"), "\xc3\x84[@z");
}

TEST(Text, StrictNumbers) {
  int64_t number = 0;
  EXPECT_TRUE(parse_int("-12", &number));
  EXPECT_EQ(number, -12);
  for (const char* bad : {"010", "1 ", "", "-", "1.0", "0x1", "99999999999999999999"})
    EXPECT_FALSE(parse_int(bad, &number)) << bad;
  double real = 0;
  EXPECT_TRUE(parse_double("1e-5", &real));
  EXPECT_FALSE(parse_double("1e-5x", &real));
  bool flag = false;
  EXPECT_TRUE(parse_bool("true", &flag));
  EXPECT_FALSE(parse_bool("yes", &flag));
}

TEST(Json, RejectsDuplicateKeysAndBadSyntax) {
  EXPECT_TRUE(parse_json(R"({"a": {"b": 1}, "b": 2})", "x").ok());
  EXPECT_EQ(parse_json(R"({"a": 1, "a": 2})", "f.json").status().message(),
            "f.json: key 'a' occurs twice; remove one");
  EXPECT_FALSE(parse_json("{", "f.json").ok());
  EXPECT_EQ(json_field<int>(*parse_json(R"({"a": 1})", "x"), "b").status().message(),
            "missing key 'b'");
}

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

// Reading, copying and ending a value are recursive.
TEST(Json, NestingHasALimit) {
  for (const size_t levels : {201u, 100'000u})
    for (const char* open : {"[", "{\"a\":", "[{\"a\":"}) {
      const auto parsed = parse_ordered_json(repeated(open, levels), "f.jsonl:3");
      EXPECT_EQ(parsed.status().message(), "f.jsonl:3: nested deeper than 200 levels");
    }
  const std::string most = repeated("[", 200) + repeated("]", 200);
  EXPECT_EQ(parse_json(most, "f.json")->dump(), most);
  EXPECT_TRUE(parse_json("[" + repeated("[{}],", 500) + "1]", "f.json").ok());  // side by side
}

TEST(Yaml, NestingHasALimit) {
  for (const size_t levels : {101u, 100'000u})
    for (const char* open : {"[", "{a: ", "- "}) {
      const auto parsed = parse_yaml(repeated(open, levels), "f.yaml");
      EXPECT_EQ(parsed.status().message(),
                "f.yaml:1: not valid YAML: nested deeper than 100 levels")
          << open << levels;
    }
  EXPECT_TRUE(parse_yaml(repeated("[", 100) + repeated("]", 100), "f.yaml").ok());
  YamlNode root = *parse_yaml("a: 1", "f.yaml");
  const Status deep = set_yaml_path(root, repeated("a.", 100'000) + "a", "1", "command line");
  EXPECT_EQ(deep.message(), "command line: a key of 100001 parts; no key has more than 100");
}

TEST(Yaml, OneDocumentPerFile) {
  EXPECT_EQ(parse_yaml("---\na: 1\n", "f.yaml")->map.size(), 1u);
  EXPECT_EQ(parse_yaml("", "f.yaml")->origin, "f.yaml:1");
  EXPECT_EQ(parse_yaml("a: 1\n---\nb: 2\n", "f.yaml").status().message(),
            "f.yaml: holds several documents (---), of which only the first would be read; "
            "keep one");
}

TEST(Yaml, WhatIsNoPlainKeyIsRefused) {
  for (const char* text : {"{: 1}", "{a{b: 1}", "? \n: 1", "*x : 1", "a: *x\nb: 1", "{[1]: 2}"}) {
    const auto parsed = parse_yaml(text, "f.yaml");
    EXPECT_EQ(parsed.status().code(), Code::kInvalidInput) << text;
  }
}

}  // namespace
}  // namespace braid::inline base
