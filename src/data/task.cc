#include "data/task.h"

#include <algorithm>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/mistake.h"

namespace braid::inline data {
namespace {

constexpr uint64_t kTaskStream = 0x7a5c;
constexpr int64_t kTaskLines = 4096;
constexpr int64_t kMaxTaskLines = 1'000'000;

std::string digits_or_letters(RandomStream& random, int64_t length, char first, int64_t choices) {
  std::string out;
  for (int64_t i = 0; i < length; ++i) out += static_cast<char>(first + random.below(choices));
  return out;
}

Json task_line(const std::string& name, RandomStream& random) {
  const auto length = static_cast<int64_t>(3 + random.below(4));
  if (name == "reverse") {
    const std::string word = digits_or_letters(random, length, 'a', 26);
    return {{"prompt", "reverse " + word + "="},
            {"label", std::string(word.rbegin(), word.rend())}};
  }
  std::string digits = digits_or_letters(random, length, '0', 10);
  if (name == "sum_digits") {
    int total = 0;
    for (const char c : digits) total += c - '0';
    return {{"prompt", "sum " + digits + "="}, {"label", std::to_string(total)}};
  }
  const std::string prompt = "sort " + digits + "=";
  std::sort(digits.begin(), digits.end());
  return {{"prompt", prompt}, {"label", digits}};
}

}  // namespace

Result<std::string> task_text(const std::string& name, int64_t count, uint64_t seed) {
  const std::vector<std::string> names = {"sort_digits", "reverse", "sum_digits"};
  if (std::find(names.begin(), names.end(), name) == names.end())
    return invalid_input(cat("task:", name, ": unknown task", did_you_mean(name, names),
                             "; known: ", join(names, ", ")));
  RandomStream random(seed, kTaskStream);
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    Json line = task_line(name, random);
    line["chosen"] = line["label"];
    line["rejected"] = wrong_answer(line["label"], name == "sort_digits", random);
    out += line.dump() + "\n";
  }
  return out;
}

Result<std::string> task_source_text(const std::string& source, uint64_t seed) {
  const std::vector<std::string> parts = split(source, ':');
  int64_t count = kTaskLines;
  const bool counted = parts.size() == 3 && parse_int(parts[2], &count);
  if (parts.size() > 2 && (!counted || count < 1 || count > kMaxTaskLines))
    return invalid_input(cat(source, ": a number of lines from 1 to ", kMaxTaskLines,
                             " is wanted after the name of the task"));
  return task_text(parts[1], count, seed);
}

}  // namespace braid::inline data
