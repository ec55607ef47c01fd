#include "data/task.h"

#include <algorithm>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"

namespace braid {
namespace {

constexpr uint64_t kTaskStream = 0x7a5c;
constexpr int64_t kTaskLines = 4096;
constexpr int64_t kMaxTaskLines = 1'000'000;

std::string digits_or_letters(RandomStream& random, int64_t length, char first, int64_t choices) {
  std::string out;
  for (int64_t i = 0; i < length; ++i) out += static_cast<char>(first + random.below(choices));
  return out;
}

// One small mistake: a character left out, repeated, put in, replaced, or swapped with its
// neighbour.
std::string with_mistake(std::string answer, RandomStream& random) {
  const char first = answer[0] >= 'a' ? 'a' : '0';
  const auto other = [&] {
    return static_cast<char>(first + random.below(first == 'a' ? 26 : 10));
  };
  const size_t place = random.below(answer.size());
  switch (answer.size() > 1 ? random.below(5) : 2 + random.below(2)) {
    case 0:
      answer.erase(place, 1);
      break;
    case 1:
      answer.insert(place, 1 + random.below(3), answer[place]);
      break;
    case 2:
      answer.insert(answer.begin() + static_cast<int64_t>(place), other());
      break;
    case 3:
      answer[place] = other();
      break;
    default:
      std::swap(answer[place], answer[place == 0 ? 1 : place - 1]);
  }
  return answer;
}

// A wrong answer near the right one: one mistake or two, as a policy makes them that has learnt a
// little; to sort_digits most of them are in order.
std::string corrupted(const std::string& task, const std::string& answer, RandomStream& random) {
  std::string wrong = answer;
  while (wrong == answer) {
    wrong = with_mistake(answer, random);
    if (random.below(2) == 1) wrong = with_mistake(wrong, random);
    if (task == "sort_digits" && random.below(4) != 0) std::sort(wrong.begin(), wrong.end());
  }
  return wrong;
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
    line["rejected"] = corrupted(name, line["label"], random);
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

}  // namespace braid
