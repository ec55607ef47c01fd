// What conversions of values have in common: forms of an answer, and look-ups of other values of
// the same configuration. Internal to foreign/keys. Pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "foreign/keys/key_values.h"

namespace braid::inline foreign_keys {
namespace key_advice {

using Kind = ForeignAdvice::Kind;
using Choices = std::map<std::string, std::string>;

inline ForeignAdvice value_of(const std::string& text) { return {Kind::kValue, text}; }
inline ForeignAdvice lines_of(const std::string& text) { return {Kind::kLines, text}; }
inline ForeignAdvice rule_of(const std::string& text) { return {Kind::kRule, text}; }
inline ForeignAdvice nothing_as(const std::string& why) { return {Kind::kNothing, why}; }

// The first number in the tree whose key has one of the names, wherever it stands; of counts the
// first that is a whole number from 1.
std::optional<double> number_of(const YamlNode& root, const std::vector<std::string>& names);
std::optional<int64_t> count_of(const YamlNode& root, const std::vector<std::string>& names);
std::optional<int64_t> parse_count(const std::string& text);

// The text of the first value whose dotted path ends with these names: "kl_ctrl.type".
std::optional<std::string> text_of(const YamlNode& root, const std::string& end);
// Whether the configuration switches such a key on or off; neither where it says nothing.
bool says_on(const YamlNode& root, const std::string& end);
bool says_off(const YamlNode& root, const std::string& end);

std::optional<int64_t> group_size(const YamlNode& root);
std::optional<int64_t> longest_response(const YamlNode& root);

// Optimizer steps that a rollout is followed by; 1 where nothing is said.
int64_t updates_of_rollout(const YamlNode& root);

bool is_true(const std::string& value);
bool is_false(const std::string& value);
bool is_null(const std::string& value);
bool is_off(const std::string& value);  // null, none, -1

ForeignAdvice choose(const Choices& choices, const std::string& value);

// Numbers of "[0.2, 0.28]", "0.2, 0.28" or "0.2 0.28"; empty where one is none.
std::vector<double> numbers_in(const std::string& value);

// "algorithm.name" of the configuration, or "".
std::string name_of_algorithm(const YamlNode& root);

}  // namespace key_advice
}  // namespace braid::inline foreign_keys
