#include "jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "base/utf8.h"

namespace braid::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// A character whose case is several characters long (SpecialCasing.txt of Unicode; those that
// texts hold in practice).
struct LongCase {
  char32_t from;
  const char32_t* upper;
  const char32_t* title;
};
constexpr LongCase kLongCases[] = {
    {0xDF, U"SS", U"Ss"},
    {0x149, U"\u02BCN", U"\u02BCN"},
    {0x1F0, U"J\u030C", U"J\u030C"},
    {0x390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x3B0, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
    {0x587, U"\u0535\u0552", U"\u0535\u0582"},
    {0xFB00, U"FF", U"Ff"},
    {0xFB01, U"FI", U"Fi"},
    {0xFB02, U"FL", U"Fl"},
    {0xFB03, U"FFI", U"Ffi"},
    {0xFB04, U"FFL", U"Ffl"},
    {0xFB05, U"ST", U"St"},
    {0xFB06, U"ST", U"St"},
};

const LongCase* long_case(char32_t c) {
  for (const LongCase& entry : kLongCases)
    if (entry.from == c) return &entry;
  return nullptr;
}

void append_upper(char32_t c, std::u32string* out) {
  if (const LongCase* entry = long_case(c))
    *out += entry->upper;
  else
    out->push_back(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

void append_title(char32_t c, std::u32string* out) {
  if (const LongCase* entry = long_case(c))
    *out += entry->title;
  else
    out->push_back(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

// Capital sigma ends a word as ς.
bool is_final_sigma(std::u32string_view text, size_t at) {
  const auto ignorable = [](char32_t c) {
    const auto kind = category(c);
    return c == '\'' || c == 0x2019 || kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_CF;
  };
  size_t before = at, after = at + 1;
  while (before > 0 && ignorable(text[before - 1])) --before;
  while (after < text.size() && ignorable(text[after])) ++after;
  return before > 0 && is_cased(text[before - 1]) &&
         !(after < text.size() && is_cased(text[after]));
}

void append_lower(std::u32string_view text, size_t at, std::u32string* out) {
  const char32_t c = text[at];
  if (c == 0x130)
    *out += U"i\u0307";
  else if (c == 0x3A3)
    out->push_back(is_final_sigma(text, at) ? 0x3C2 : 0x3C3);
  else
    out->push_back(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 128; });
}

template <typename Keep>
std::string_view strip_where(std::string_view text, Side side, Keep is_blank) {
  size_t first = text.size(), last = text.size();
  bool seen = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (is_blank(next_code_point(text, &at))) continue;
    if (!seen) first = begin;
    seen = true;
    last = at;
  }
  if (!seen) return text.substr(0, 0);
  if (side == Side::kLeft) last = text.size();
  if (side == Side::kRight) first = 0;
  return text.substr(first, last - first);
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::u32string to_code_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) out.push_back(next_code_point(text, &at));
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(c, &out);
  return out;
}

size_t byte_offset(std::string_view text, size_t code_point) {
  size_t at = 0;
  for (; code_point > 0 && at < text.size(); --code_point) next_code_point(text, &at);
  return at;
}

bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468);
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  const auto kind = category(c);
  return kind != UTF8PROC_CATEGORY_CN && kind != UTF8PROC_CATEGORY_CC &&
         kind != UTF8PROC_CATEGORY_CF && kind != UTF8PROC_CATEGORY_CS &&
         kind != UTF8PROC_CATEGORY_CO && kind != UTF8PROC_CATEGORY_ZL &&
         kind != UTF8PROC_CATEGORY_ZP && kind != UTF8PROC_CATEGORY_ZS;
}

bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

std::string_view strip(std::string_view text, Side side) {
  return strip_where(text, side, is_space);
}

std::string_view strip(std::string_view text, Side side, std::string_view set) {
  const std::u32string members = to_code_points(set);
  return strip_where(text, side,
                     [&](char32_t c) { return members.find(c) != std::u32string::npos; });
}

std::string upper(std::string_view text) {
  std::u32string out;
  for (const char32_t c : to_code_points(text)) append_upper(c, &out);
  return to_utf8(out);
}

std::string lower(std::string_view text) {
  if (is_ascii(text)) {
    std::string out(text);
    for (char& c : out)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
    return out;
  }
  const std::u32string points = to_code_points(text);
  std::u32string out;
  for (size_t i = 0; i < points.size(); ++i) append_lower(points, i, &out);
  return to_utf8(out);
}

std::string capitalize(std::string_view text) {
  const std::u32string points = to_code_points(text);
  std::u32string out;
  for (size_t i = 0; i < points.size(); ++i)
    i == 0 ? append_title(points[0], &out) : append_lower(points, i, &out);
  return to_utf8(out);
}

std::string title(std::string_view text) {
  const std::u32string points = to_code_points(text);
  std::u32string out;
  bool inside = false;  // a word
  for (size_t i = 0; i < points.size(); ++i) {
    inside ? append_lower(points, i, &out) : append_title(points[i], &out);
    inside = is_cased(points[i]);
  }
  return to_utf8(out);
}

std::string swapcase(std::string_view text) {
  const std::u32string points = to_code_points(text);
  std::u32string out;
  for (size_t i = 0; i < points.size(); ++i) {
    if (is_upper(points[i]))
      append_lower(points, i, &out);
    else if (is_lower(points[i]))
      append_upper(points[i], &out);
    else
      out.push_back(points[i]);
  }
  return to_utf8(out);
}

std::string casefold(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  if (length < 0) return lower(text);
  std::string out(reinterpret_cast<const char*>(folded), static_cast<size_t>(length));
  std::free(folded);  // NOLINT: utf8proc allocates with malloc
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '\'')
      out += "&#39;";
    else if (c == '"')
      out += "&#34;";
    else
      out += c;
  }
  return out;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> out;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool blank = is_space(next_code_point(text, &at));
    if (!blank && !inside) out.emplace_back();
    if (!blank) out.back() += text.substr(begin, at - begin);
    inside = !blank;
  }
  return out;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(text, &at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    out.emplace_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

}  // namespace braid::jinja
