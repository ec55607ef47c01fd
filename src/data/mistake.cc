#include "data/mistake.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace braid::inline data {
namespace {

constexpr std::string_view kDigits = "0123456789", kLetters = "abcdefghijklmnopqrstuvwxyz";

bool percent(RandomStream& random, uint64_t chance) { return random.below(100) < chance; }

char any_of(std::string_view choices, RandomStream& random) {
  return choices[random.below(choices.size())];
}

bool is_digit(char c) { return kDigits.find(c) != std::string_view::npos; }

// The character one or two places before or after c, or the last one on that side.
char near(char c, RandomStream& random) {
  const std::string_view alphabet = is_digit(c) ? kDigits : kLetters;
  const auto distance = static_cast<int64_t>(1 + random.below(2));
  const int64_t place = c - alphabet[0] + (percent(random, 50) ? distance : -distance);
  return alphabet[std::clamp<int64_t>(place, 0, static_cast<int64_t>(alphabet.size()) - 1)];
}

// A place in text; every other time one of a repeated character, if there is any.
size_t hit_place(const std::string& text, RandomStream& random) {
  std::vector<size_t> repeated;
  for (size_t i = 0; i < text.size(); ++i)
    if (std::count(text.begin(), text.end(), text[i]) > 1) repeated.push_back(i);
  if (!repeated.empty() && percent(random, 50)) return repeated[random.below(repeated.size())];
  return random.below(text.size());
}

char other_character(const std::string& text, size_t place, RandomStream& random) {
  const uint64_t kind = random.below(100);
  if (kind < 40) return any_of(text, random);
  if (kind < 75) return near(text[place], random);
  return percent(random, 70) ? any_of(kLetters, random) : any_of(kDigits, random);
}

// Digits in order again, nine times of ten; a letter stays where it is.
void restore_order(std::string& text, RandomStream& random) {
  if (std::all_of(text.begin(), text.end(), is_digit) && percent(random, 90))
    std::sort(text.begin(), text.end());
}

void go_on(std::string& text, RandomStream& random) {
  const std::string_view alphabet = is_digit(text[0]) ? kDigits : kLetters;
  for (uint64_t left = 1 + random.below(5); left > 0; --left) text += any_of(alphabet, random);
}

void make_mistake(std::string& text, bool in_order, RandomStream& random) {
  const size_t place = hit_place(text, random);
  const auto at = text.begin() + static_cast<int64_t>(place);
  const uint64_t kind = random.below(100);
  if (kind < 30 && text.size() > 1) {
    if (kind < 15) {
      text.erase(at);
    } else {
      std::swap(text[place], text[place == 0 ? 1 : place - 1]);
    }
  } else if (kind < 40) {
    go_on(text, random);
  } else {
    const char other = other_character(text, place, random);
    if (kind < 55) {
      text.insert(at, other);
    } else {
      text[place] = other;
    }
    if (in_order) restore_order(text, random);
  }
}

}  // namespace

std::string wrong_answer(const std::string& answer, bool in_order, RandomStream& random) {
  std::string wrong = answer;
  while (wrong == answer) {
    wrong = answer;
    make_mistake(wrong, in_order, random);
    if (percent(random, 30)) make_mistake(wrong, in_order, random);
  }
  return wrong;
}

}  // namespace braid::inline data
