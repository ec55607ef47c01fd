// One field of a formatted text.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/compare.h"
#include "jinja/format.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

constexpr int64_t kMostDigits = 1000;  // of a precision

// A number without its sign, in its parts.
struct Number {
  bool negative = false;
  std::string prefix;  // 0x
  std::string whole;
  std::string rest;  // .5e+10
};

std::string digits_of(uint64_t value, unsigned base, bool capital) {
  const char* digits = capital ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do out.push_back(digits[value % base]);
  while ((value /= base) != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

Number integer_parts(int64_t value, const FieldFormat& format) {
  Number out;
  out.negative = value < 0;
  const uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const char type = format.type;
  const unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
  out.whole = digits_of(size, base, type == 'X');
  if (format.alternate && base != 10) out.prefix = std::string("0") + type;
  return out;
}

std::string printf_double(double value, char type, int64_t precision, bool alternate) {
  const std::string pattern = std::string("%") + (alternate ? "#" : "") + ".*" + type;
  const int size = std::snprintf(nullptr, 0, pattern.c_str(), static_cast<int>(precision), value);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), pattern.c_str(), static_cast<int>(precision), value);
  out.pop_back();
  return out;
}

Number float_parts(double value, const FieldFormat& format) {
  Number out;
  out.negative = std::signbit(value) && !std::isnan(value);
  const double size = std::fabs(value);
  std::string text;
  if (format.type == 0 && format.precision < 0) {
    text = float_text(size);
  } else {
    const bool percent = format.type == '%';
    const char type = percent ? 'f' : format.type == 0 || format.type == 'n' ? 'g' : format.type;
    text = printf_double(percent ? size * 100 : size, type,
                         format.precision < 0 ? 6 : format.precision, format.alternate);
    if (format.type == 0 && std::isfinite(value) && text.find_first_of(".e") == std::string::npos)
      text += ".0";
    if (percent) text += '%';
  }
  const size_t split = std::min(text.find_first_not_of("0123456789"), text.size());
  out.whole = text.substr(0, split);
  out.rest = text.substr(split);
  return out;
}

void insert_groups(const FieldFormat& format, std::string* whole) {
  if (format.group == 0) return;
  const bool decimal =
      format.type != 'x' && format.type != 'X' && format.type != 'b' && format.type != 'o';
  const size_t size = decimal ? 3 : 4;
  for (size_t at = whole->size(); at > size;) whole->insert(at -= size, 1, format.group);
}

std::string pad(const std::string& sign, const std::string& body, const FieldFormat& format,
                char default_align) {
  const auto length = static_cast<int64_t>(count_code_points(sign) + count_code_points(body));
  const int64_t missing = std::max<int64_t>(0, format.width - length);
  const char align = format.align != 0 ? format.align : format.zeros ? '=' : default_align;
  std::string fill;
  const std::string unit = format.zeros && format.align == 0 ? "0" : format.fill;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before, behind;
  for (int64_t i = 0; i < left; ++i) before += unit;
  for (int64_t i = left; i < missing; ++i) behind += unit;
  if (align == '=') return sign + before + body + behind;
  return before + sign + body + behind;
}

std::string sign_of(bool negative, char style) {
  if (negative) return "-";
  return style == '-' ? "" : std::string(1, style);
}

Status check_size(const FieldFormat& format, Budget& budget) {
  if (format.precision > kMostDigits && format.type != 's' && format.type != 0)
    return invalid_input(cat("a precision of more than ", kMostDigits, " digits"));
  return budget.spend_text(static_cast<uint64_t>(format.width) * format.fill.size());
}

bool is_one_of(char type, const char* types) {
  return type != 0 && std::string_view(types).find(type) != std::string_view::npos;
}

Result<std::string> format_text_field(const Value& value, const FieldFormat& format,
                                      Budget& budget) {
  if (format.type != 0 && format.type != 's')
    return invalid_input(cat("unknown format code '", format.type, "' for object of type '",
                             value.type_name(), "'"));
  BRAID_ASSIGN(std::string text, to_text(value, budget));
  if (format.precision >= 0) text.resize(byte_offset(text, static_cast<size_t>(format.precision)));
  return pad("", text, format, '<');
}

}  // namespace

Result<std::string> format_field(const Value& value, const FieldFormat& format, Budget& budget) {
  BRAID_TRY(check_size(format, budget));
  const bool as_float =
      is_one_of(format.type, "eEfFgG%") || (value.is_float() && format.type != 's');
  if (!value.is_number() || format.type == 's' || (value.is_bool() && format.type == 0))
    return format_text_field(value, format, budget);
  if (value.is_float() && is_one_of(format.type, "bcdoxX"))
    return invalid_input(cat("unknown format code '", format.type, "' for object of type 'float'"));
  if (format.type == 'c') {
    const int64_t point = value.integer();
    if (point < 0 || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
      return invalid_input(cat("%c: ", point, " is no character"));
    return pad("", to_utf8(std::u32string(1, static_cast<char32_t>(point))), format, '<');
  }
  if (!as_float && format.precision >= 0)
    return invalid_input("a precision is not allowed in the format of an integer");
  Number number =
      as_float ? float_parts(value.number(), format) : integer_parts(value.integer(), format);
  insert_groups(format, &number.whole);
  return pad(sign_of(number.negative, format.sign) + number.prefix, number.whole + number.rest,
             format, '>');
}

}  // namespace braid::jinja
