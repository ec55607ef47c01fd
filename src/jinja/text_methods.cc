// The methods of Python's str. Each gets the text itself as the first argument.
#include <algorithm>
#include <functional>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/arguments.h"
#include "jinja/compare.h"
#include "jinja/methods.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

Result<Value> made(std::string text, Budget& budget) {
  BRAID_TRY(budget.spend_text(text.size()));
  return Value(std::move(text));
}

// A method without arguments.
template <std::string (*kFunction)(std::string_view)>
Result<Value> converted(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the method", arguments, {nullptr}, 1));
  return made(kFunction(bound.at(0).text()), budget);
}

// True for a text that is not empty and consists of such characters.
template <bool (*kTest)(char32_t)>
Result<Value> consists(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the method", arguments, {nullptr}, 1));
  BRAID_TRY(budget.spend_text(bound.at(0).text().size()));
  const std::u32string points = to_code_points(bound.at(0).text());
  return Value(!points.empty() && std::all_of(points.begin(), points.end(), kTest));
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

template <bool (*kWanted)(char32_t), bool (*kUnwanted)(char32_t)>
Result<Value> cased(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the method", arguments, {nullptr}, 1));
  BRAID_TRY(budget.spend_text(bound.at(0).text().size()));
  bool any = false;
  for (const char32_t c : to_code_points(bound.at(0).text())) {
    if (kUnwanted(c) || is_title(c)) return Value(false);
    any = any || kWanted(c);
  }
  return Value(any);
}

Result<Value> is_title_text(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("istitle", arguments, {nullptr}, 1));
  BRAID_TRY(budget.spend_text(bound.at(0).text().size()));
  bool any = false, inside = false;
  for (const char32_t c : to_code_points(bound.at(0).text())) {
    const bool capital = is_upper(c) || is_title(c), small = is_lower(c);
    if ((capital && inside) || (small && !inside)) return Value(false);
    any = any || capital || small;
    inside = capital || small;
  }
  return Value(any);
}

Result<Value> is_ascii_text(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("isascii", arguments, {nullptr}, 1));
  const std::string& text = bound.at(0).text();
  return Value(count_code_points(text) == text.size() &&
               std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; }));
}

Result<Value> is_printable_text(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("isprintable", arguments, {nullptr}, 1));
  BRAID_TRY(budget.spend_text(bound.at(0).text().size()));
  const std::u32string points = to_code_points(bound.at(0).text());
  return Value(std::all_of(points.begin(), points.end(), is_printable));
}

Result<Value> is_identifier(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("isidentifier", arguments, {nullptr}, 1));
  const std::u32string points = to_code_points(bound.at(0).text());
  return Value(!points.empty() && (points[0] == '_' || is_alpha(points[0])) &&
               std::all_of(points.begin(), points.end(), is_word));
}

template <Side kSide>
Result<Value> stripped(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("strip", arguments, {nullptr, nullptr}, 1));
  const std::string& text = bound.at(0).text();
  BRAID_TRY(budget.spend_text(text.size()));
  if (!bound.given(1)) return Value(strip(text, kSide));
  BRAID_ASSIGN(const std::string set, bound.text(1));
  return Value(strip(text, kSide, set));
}

// Parts of a text at blanks: at most `most` cuts (-1: any number), counted from the left or right.
std::vector<std::string> split_at_blanks(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string> out;
  const std::u32string points = to_code_points(text);
  if (from_right) {
    size_t end = points.size();
    while (true) {
      while (end > 0 && is_space(points[end - 1])) --end;
      if (end == 0) break;
      size_t begin = end;
      const bool rest = most >= 0 && static_cast<int64_t>(out.size()) == most;
      while (begin > 0 && (rest || !is_space(points[begin - 1]))) --begin;
      out.push_back(to_utf8(std::u32string_view(points).substr(begin, end - begin)));
      end = begin;
    }
    std::reverse(out.begin(), out.end());
    return out;
  }
  size_t begin = 0;
  while (true) {
    while (begin < points.size() && is_space(points[begin])) ++begin;
    if (begin == points.size()) break;
    size_t end = begin;
    const bool rest = most >= 0 && static_cast<int64_t>(out.size()) == most;
    while (end < points.size() && (rest || !is_space(points[end]))) ++end;
    out.push_back(to_utf8(std::u32string_view(points).substr(begin, end - begin)));
    begin = end;
  }
  return out;
}

std::vector<std::string> split_at(std::string_view text, const std::string& mark, int64_t most,
                                  bool from_right) {
  std::vector<std::string> out;
  const auto done = [&] { return most >= 0 && static_cast<int64_t>(out.size()) == most; };
  while (!done()) {
    const size_t at = from_right ? text.rfind(mark) : text.find(mark);
    if (at == std::string_view::npos) break;
    const std::string_view behind = text.substr(at + mark.size());
    out.emplace_back(from_right ? behind : text.substr(0, at));
    text = from_right ? text.substr(0, at) : behind;
  }
  out.emplace_back(text);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

Value list_of(std::vector<std::string> parts) {
  std::vector<Value> out;
  for (std::string& part : parts) out.emplace_back(std::move(part));
  return Value::list(std::move(out));
}

template <bool kFromRight>
Result<Value> split_text(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("split", arguments, {nullptr, "sep", "maxsplit"}, 1));
  const std::string& text = bound.at(0).text();
  BRAID_TRY(budget.spend(1 + text.size() / 4));
  BRAID_ASSIGN(const int64_t most, bound.integer(2, -1));
  if (!bound.given(1)) return list_of(split_at_blanks(text, most, kFromRight));
  BRAID_ASSIGN(const std::string mark, bound.text(1));
  if (mark.empty()) return invalid_input("split: empty separator");
  return list_of(split_at(text, mark, most, kFromRight));
}

Result<Value> split_text_lines(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("splitlines", arguments, {nullptr, "keepends"}, 1));
  BRAID_TRY(budget.spend(1 + bound.at(0).text().size() / 4));
  return list_of(split_lines(bound.at(0).text(), bound.truth(1, false)));
}

template <bool kFromRight>
Result<Value> partition(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("partition", arguments, {nullptr, nullptr}, 2));
  const std::string& text = bound.at(0).text();
  BRAID_TRY(budget.spend_text(text.size()));
  BRAID_ASSIGN(const std::string mark, bound.text(1));
  if (mark.empty()) return invalid_input("partition: empty separator");
  const size_t at = kFromRight ? text.rfind(mark) : text.find(mark);
  const Value none(""), whole(text);
  if (at == std::string::npos)
    return kFromRight ? Value::tuple({none, none, whole}) : Value::tuple({whole, none, none});
  return Value::tuple(
      {Value(text.substr(0, at)), Value(mark), Value(text.substr(at + mark.size()))});
}

// The part of a text that the arguments `start` and `end` of find, count and startswith name.
struct Window {
  std::string_view text;
  size_t begin = 0;   // in code points
  bool valid = true;  // false: it begins behind the text, where not even "" is found
};

Result<Window> window_of(const Bound& bound, size_t first) {
  const std::string& text = bound.at(0).text();
  const auto length = static_cast<int64_t>(count_code_points(text));
  int64_t begin = 0, end = length;
  if (bound.given(first)) {
    BRAID_ASSIGN(begin, bound.integer(first, 0));
  }
  if (bound.given(first + 1)) {
    BRAID_ASSIGN(end, bound.integer(first + 1, length));
  }
  if (begin < 0) begin = std::max<int64_t>(0, begin + length);
  if (end < 0) end = std::max<int64_t>(0, end + length);
  end = std::min(end, length);
  if (begin > end) return Window{std::string_view(), 0, false};
  const size_t from = byte_offset(text, static_cast<size_t>(begin));
  const size_t to = byte_offset(text, static_cast<size_t>(end));
  return Window{std::string_view(text).substr(from, to - from), static_cast<size_t>(begin), true};
}

enum class Missing { kMinusOne, kError };

template <bool kFromRight, Missing kMissing>
Result<Value> find_text(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("find", arguments, {nullptr, nullptr, nullptr, nullptr}, 2));
  BRAID_TRY(budget.spend_text(bound.at(0).text().size()));
  BRAID_ASSIGN(const std::string wanted, bound.text(1));
  BRAID_ASSIGN(const Window window, window_of(bound, 2));
  const size_t at = !window.valid ? std::string_view::npos
                    : kFromRight  ? window.text.rfind(wanted)
                                  : window.text.find(wanted);
  if (at != std::string_view::npos)
    return Value::of_size(window.begin + count_code_points(window.text.substr(0, at)));
  if (kMissing == Missing::kError) return invalid_input("index: substring not found");
  return Value(-1);
}

Result<Value> count_text(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("count", arguments, {nullptr, nullptr, nullptr, nullptr}, 2));
  BRAID_TRY(budget.spend_text(bound.at(0).text().size()));
  BRAID_ASSIGN(const std::string wanted, bound.text(1));
  BRAID_ASSIGN(const Window window, window_of(bound, 2));
  if (!window.valid) return Value(0);
  if (wanted.empty()) return Value::of_size(count_code_points(window.text) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = window.text.find(wanted, at)) != std::string_view::npos;
       at += wanted.size())
    ++count;
  return Value(count);
}

// startswith and endswith take one text or a tuple of them.
template <bool kAtEnd>
Result<Value> begins(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("startswith", arguments, {nullptr, nullptr, nullptr, nullptr}, 2));
  BRAID_ASSIGN(const Window window, window_of(bound, 2));
  const auto fits = [&](const std::string& mark) {
    const size_t size = window.text.size();
    return window.valid && mark.size() <= size &&
           window.text.compare(kAtEnd ? size - mark.size() : 0, mark.size(), mark) == 0;
  };
  BRAID_TRY(budget.spend(1));
  if (!bound.at(1).is_tuple()) {
    BRAID_ASSIGN(const std::string mark, bound.text(1));
    return Value(fits(mark));
  }
  for (const Value& mark : bound.at(1).items()) {
    if (!mark.is_text()) return invalid_input("startswith wants texts in its tuple");
    if (fits(mark.text())) return Value(true);
  }
  return Value(false);
}

template <bool kAtEnd>
Result<Value> without(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("removeprefix", arguments, {nullptr, nullptr}, 2));
  const std::string& text = bound.at(0).text();
  BRAID_ASSIGN(const std::string mark, bound.text(1));
  BRAID_TRY(budget.spend_text(text.size()));
  if (mark.size() > text.size()) return bound.at(0);
  const size_t rest = text.size() - mark.size();
  if (text.compare(kAtEnd ? rest : 0, mark.size(), mark) != 0) return bound.at(0);
  return Value(text.substr(kAtEnd ? 0 : mark.size(), rest));
}

Result<Value> replace_text(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("replace", arguments, {nullptr, nullptr, nullptr, nullptr}, 3));
  BRAID_ASSIGN(const std::string old_text, bound.text(1));
  BRAID_ASSIGN(const std::string new_text, bound.text(2));
  BRAID_ASSIGN(const int64_t most, bound.integer(3, -1));
  return replaced(bound.at(0).text(), {old_text, new_text, most}, budget);
}

Result<Value> join_texts(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("join", arguments, {nullptr, nullptr}, 2));
  BRAID_TRY(check_defined(bound.at(1).is_undefined() ? Value() : bound.at(1)));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(bound.at(1), budget));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_text())
      return invalid_input(cat("join: item ", i, " is no text but of type ", items[i].type_name()));
    BRAID_TRY(budget.grow(out.size(), bound.at(0).text().size() + items[i].text().size()));
    if (i > 0) out += bound.at(0).text();
    out += items[i].text();
  }
  return Value(std::move(out));
}

enum class Align { kLeft, kRight, kCenter };

template <Align kAlign>
Result<Value> padded(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("ljust", arguments, {nullptr, nullptr, nullptr}, 2));
  const std::string& text = bound.at(0).text();
  BRAID_ASSIGN(const int64_t width, bound.integer(1, 0));
  std::string fill = " ";
  if (bound.has(2)) {
    BRAID_ASSIGN(fill, bound.text(2));
  }
  if (count_code_points(fill) != 1)
    return invalid_input("the fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(count_code_points(text));
  if (width <= length) return bound.at(0);
  const int64_t missing = width - length;
  BRAID_TRY(budget.spend_text(static_cast<uint64_t>(missing) + text.size()));
  int64_t left = kAlign == Align::kLeft ? 0 : missing;
  if (kAlign == Align::kCenter) left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return Value(std::move(out));
}

Result<Value> zero_filled(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("zfill", arguments, {nullptr, nullptr}, 2));
  std::string text = bound.at(0).text();
  BRAID_ASSIGN(const int64_t width, bound.integer(1, 0));
  const auto length = static_cast<int64_t>(count_code_points(text));
  if (width <= length) return bound.at(0);
  BRAID_TRY(budget.spend_text(static_cast<uint64_t>(width)));
  const bool has_sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  text.insert(has_sign ? 1 : 0, static_cast<size_t>(width - length), '0');
  return Value(std::move(text));
}

Result<Value> expand_tabs(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("expandtabs", arguments, {nullptr, "tabsize"}, 1));
  BRAID_ASSIGN(const int64_t size, bound.integer(1, 8));
  std::string out;
  int64_t column = 0;
  const std::string& text = bound.at(0).text();
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, &at);
    if (c == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      BRAID_TRY(budget.grow(out.size(), static_cast<uint64_t>(blanks)));
      out.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
      continue;
    }
    append_utf8(c, &out);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return made(std::move(out), budget);
}

constexpr MethodEntry kTextMethods[] = {
    {"capitalize", converted<capitalize>},
    {"casefold", converted<casefold>},
    {"center", padded<Align::kCenter>},
    {"count", count_text},
    {"endswith", begins<true>},
    {"expandtabs", expand_tabs},
    {"find", find_text<false, Missing::kMinusOne>},
    {"format", format_method},
    {"format_map", format_map_method},
    {"index", find_text<false, Missing::kError>},
    {"isalnum", consists<is_alnum>},
    {"isalpha", consists<is_alpha>},
    {"isascii", is_ascii_text},
    {"isdecimal", consists<is_decimal>},
    {"isdigit", consists<is_digit>},
    {"isidentifier", is_identifier},
    {"islower", cased<is_lower, is_upper>},
    {"isnumeric", consists<is_numeric>},
    {"isprintable", is_printable_text},
    {"isspace", consists<is_space>},
    {"istitle", is_title_text},
    {"isupper", cased<is_upper, is_lower>},
    {"join", join_texts},
    {"ljust", padded<Align::kLeft>},
    {"lower", converted<lower>},
    {"lstrip", stripped<Side::kLeft>},
    {"partition", partition<false>},
    {"removeprefix", without<false>},
    {"removesuffix", without<true>},
    {"replace", replace_text},
    {"rfind", find_text<true, Missing::kMinusOne>},
    {"rindex", find_text<true, Missing::kError>},
    {"rjust", padded<Align::kRight>},
    {"rpartition", partition<true>},
    {"rsplit", split_text<true>},
    {"rstrip", stripped<Side::kRight>},
    {"split", split_text<false>},
    {"splitlines", split_text_lines},
    {"startswith", begins<false>},
    {"strip", stripped<Side::kBoth>},
    {"swapcase", converted<swapcase>},
    {"title", converted<title>},
    {"upper", converted<upper>},
    {"zfill", zero_filled},
};

}  // namespace

const MethodEntry* find_text_method(const std::string& name) {
  for (const MethodEntry& entry : kTextMethods)
    if (name == entry.name) return &entry;
  return nullptr;
}

Result<Value> replaced(const std::string& text, const Replacement& what, Budget& budget) {
  std::string out;
  int64_t left = what.most < 0 ? INT64_MAX : what.most;
  size_t at = 0;
  while (left-- > 0) {
    size_t found = what.old_text.empty() ? at : text.find(what.old_text, at);
    if (found == std::string::npos || found > text.size()) break;
    BRAID_TRY(budget.grow(out.size(), found - at + what.new_text.size()));
    out.append(text, at, found - at);
    out += what.new_text;
    at = found + what.old_text.size();
    if (!what.old_text.empty()) continue;
    if (at == text.size()) return made(std::move(out), budget);
    size_t next = at;
    next_code_point(text, &next);
    out.append(text, at, next - at);
    at = next;
  }
  out.append(text, at, std::string::npos);
  return made(std::move(out), budget);
}

}  // namespace braid::jinja
