#include "foreign/keys/value_helpers.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/text.h"

namespace braid::inline foreign_keys {
namespace key_advice {
namespace {

using Accept = std::function<bool(const std::string& path, const YamlNode& value)>;

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Depth first, in the order written.
const YamlNode* find_value(const YamlNode& node, const std::string& path, const Accept& accept) {
  for (const auto& [key, value] : node.map) {
    const std::string below = cat(path, ".", underscored(key));
    if (accept(below, value)) return &value;
    if (const YamlNode* found = find_value(value, below, accept)) return found;
  }
  return nullptr;
}

bool is_count(double number) {
  return number >= 1 && number <= 1e9 && number == std::floor(number);
}

std::optional<double> find_number(const YamlNode& root, const std::vector<std::string>& names,
                                  bool (*wanted)(double)) {
  double number = 0;
  const YamlNode* found = find_value(root, "", [&](const std::string& path, const YamlNode& value) {
    const std::string name = path.substr(path.rfind('.') + 1);
    return std::find(names.begin(), names.end(), name) != names.end() &&
           parse_double(value.scalar, &number) && wanted(number);
  });
  return found == nullptr ? std::nullopt : std::optional(number);
}

}  // namespace

std::optional<double> number_of(const YamlNode& root, const std::vector<std::string>& names) {
  return find_number(root, names, [](double) { return true; });
}

std::optional<int64_t> count_of(const YamlNode& root, const std::vector<std::string>& names) {
  const auto number = find_number(root, names, is_count);
  return number ? std::optional(static_cast<int64_t>(*number)) : std::nullopt;
}

std::optional<int64_t> parse_count(const std::string& text) {
  int64_t count = 0;
  if (!parse_int(text, &count) || count < 1 || count > 1'000'000'000) return std::nullopt;
  return count;
}

std::optional<std::string> text_of(const YamlNode& root, const std::string& end) {
  const std::string wanted = cat(".", end);
  const YamlNode* found = find_value(root, "", [&](const std::string& path, const YamlNode& value) {
    const bool is_text =
        value.kind == YamlNode::Kind::kScalar || value.kind == YamlNode::Kind::kList;
    return is_text && path.ends_with(wanted);
  });
  if (found == nullptr) return std::nullopt;
  if (found->kind == YamlNode::Kind::kScalar) return found->scalar;
  std::vector<std::string> items;
  for (const YamlNode& item : found->list) items.push_back(item.scalar);
  return cat("[", join(items, ", "), "]");
}

bool says_on(const YamlNode& root, const std::string& end) {
  return is_true(text_of(root, end).value_or(""));
}

bool says_off(const YamlNode& root, const std::string& end) {
  return is_false(text_of(root, end).value_or(""));
}

std::optional<int64_t> group_size(const YamlNode& root) {
  return count_of(root, {"num_generations", "n_samples_per_prompt", "samples_per_prompt", "n",
                         "num_generations_per_prompt", "group_size"});
}

std::optional<int64_t> longest_response(const YamlNode& root) {
  return count_of(root, {"max_response_length", "max_completion_length", "generate_max_len",
                         "max_new_tokens", "response_length"});
}

namespace {

// Of all those that say a batch and a part of it; 1 where they do not divide.
int64_t parts(std::optional<int64_t> whole, std::optional<int64_t> part) {
  return whole && part && *whole % *part == 0 ? *whole / *part : 1;
}

int64_t minibatches_of_rollout(const YamlNode& root) {
  if (const auto stated = count_of(root, {"minibatches", "num_mini_batches"})) return *stated;
  if (const auto each = count_of(root, {"ppo_mini_batch_size"}))  // verl: prompts
    return parts(count_of(root, {"train_batch_size", "prompts_per_step"}), each);
  const int64_t accumulated = count_of(root, {"gradient_accumulation_steps"}).value_or(1);
  if (const auto steps = count_of(root, {"steps_per_generation"})) return parts(steps, accumulated);
  if (const auto whole = count_of(root, {"generation_batch_size"}))
    return parts(whole, count_of(root, {"per_device_train_batch_size"}).value_or(8) * accumulated);
  auto prompts = count_of(root, {"rollout_batch_size"});  // OpenRLHF; the others are sequences
  if (const YamlNode* rollout = root.find("rollout"); !prompts && rollout != nullptr)
    prompts = count_of(*rollout, {"batch_size"});
  auto each = count_of(root, {"train_batch_size"});
  if (const YamlNode* train = root.find("train"); !each && train != nullptr)
    each = count_of(*train, {"batch_size"});
  if (!prompts) return 1;
  return parts(*prompts * group_size(root).value_or(1), each);
}

}  // namespace

int64_t updates_of_rollout(const YamlNode& root) {
  const auto epochs = count_of(
      root, {"epochs_per_rollout", "ppo_epochs", "num_ppo_epochs", "num_iterations", "max_epochs"});
  return minibatches_of_rollout(root) * epochs.value_or(1);
}

bool is_true(const std::string& value) { return value == "true" || value == "True"; }
bool is_false(const std::string& value) { return value == "false" || value == "False"; }
bool is_null(const std::string& value) {
  return value == "null" || value == "None" || value.empty();
}
bool is_off(const std::string& value) { return is_null(value) || value == "-1" || value == "none"; }

ForeignAdvice choose(const Choices& choices, const std::string& value) {
  const auto found = choices.find(value);
  return found == choices.end() ? ForeignAdvice() : value_of(found->second);
}

std::vector<double> numbers_in(const std::string& value) {
  std::string plain = value;
  for (char& letter : plain)
    if (std::string("[](),").find(letter) != std::string::npos) letter = ' ';
  std::vector<double> out;
  for (const std::string& word : split(plain, ' ')) {
    double number = 0;
    if (word.empty()) continue;
    if (!parse_double(word, &number)) return {};
    out.push_back(number);
  }
  return out;
}

std::string name_of_algorithm(const YamlNode& root) {
  const YamlNode* algorithm = root.find("algorithm");
  const YamlNode* node = algorithm == nullptr ? nullptr : algorithm->find("name");
  return node == nullptr ? "" : node->scalar;
}

}  // namespace key_advice
}  // namespace braid::inline foreign_keys
