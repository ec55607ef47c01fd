// Texts as Python sees them: sequences of code points, not of bytes. All functions are pure and
// thread-safe; texts are well-formed UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace braid::jinja {

size_t count_code_points(std::string_view text);
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view text);
// Byte offset of a code point; text.size() behind the last one.
size_t byte_offset(std::string_view text, size_t code_point);

// Python's str.isspace for one code point.
bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);
// \w of Python's regular expressions.
bool is_word(char32_t c);

// Where the text without blanks (or without characters of `set`) at its ends begins and ends.
enum class Side { kLeft = 1, kRight = 2, kBoth = 3 };
std::string_view strip(std::string_view text, Side side = Side::kBoth);
std::string_view strip(std::string_view text, Side side, std::string_view set);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);
std::string swapcase(std::string_view text);
std::string casefold(std::string_view text);

// The text with & < > ' and " as entities of HTML.
std::string escaped(std::string_view text);

// The parts between blanks.
std::vector<std::string> split_words(std::string_view text);

// Python's str.splitlines.
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

}  // namespace braid::jinja
