#include "jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/compare.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

void append_hex(char prefix, int digits, uint32_t value, std::string* out) {
  constexpr const char* kDigits = "0123456789abcdef";
  out->push_back('\\');
  out->push_back(prefix);
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out->push_back(kDigits[value >> shift & 15]);
}

void append_quoted(char32_t c, char quote, std::string* out) {
  if (c == static_cast<char32_t>(quote) || c == '\\') {
    out->push_back('\\');
    out->push_back(static_cast<char>(c));
  } else if (c == '\n') {
    *out += "\\n";
  } else if (c == '\r') {
    *out += "\\r";
  } else if (c == '\t') {
    *out += "\\t";
  } else if (is_printable(c)) {
    append_utf8(c, out);
  } else if (c < 0x100) {
    append_hex('x', 2, c, out);
  } else if (c < 0x10000) {
    append_hex('u', 4, c, out);
  } else {
    append_hex('U', 8, c, out);
  }
}

// Writes lists and dictionaries piece by piece, so that the budget ends what would never end.
class ReprWriter {
 public:
  explicit ReprWriter(Budget& budget) : budget_(budget) {}

  Status write(const Value& value) {
    BRAID_TRY(budget_.enter());
    BRAID_TRY(write_inner(value));
    budget_.leave();
    BRAID_TRY(budget_.grow(paid_, out_.size() - paid_));
    paid_ = out_.size();
    return ok_status();
  }
  std::string take() { return std::move(out_); }

 private:
  Status write_inner(const Value& value) {
    if (value.is_sequence() || value.is_dict()) return write_container(value);
    if (value.is_text()) {
      out_ += value.is_safe() ? cat("Markup(", jinja::quoted(value.text()), ")")
                              : jinja::quoted(value.text());
    } else if (value.is_undefined()) {
      out_ += "Undefined";
    } else if (value.is_object()) {
      BRAID_ASSIGN(const std::string text, value.object().repr(budget_));
      out_ += text;
    } else {
      BRAID_ASSIGN(const std::string text, to_text(value, budget_));
      out_ += text;
    }
    return ok_status();
  }

  // One that holds itself, by way of a namespace, is written as dots inside.
  Status write_container(const Value& value) {
    const void* identity = value.is_dict() ? static_cast<const void*>(&value.dict())
                                           : static_cast<const void*>(&value.sequence());
    if (!budget_.begin_writing(identity)) {
      out_ += value.is_dict() ? "{...}" : value.is_tuple() ? "(...)" : "[...]";
      return ok_status();
    }
    Status written = value.is_dict() ? write_dict(value.dict()) : write_sequence(value);
    budget_.end_writing();
    return written;
  }

  Status write_sequence(const Value& value) {
    out_ += value.is_tuple() ? '(' : '[';
    bool first = true;
    for (const Value& item : value.items()) {
      if (!std::exchange(first, false)) out_ += ", ";
      BRAID_TRY(write(item));
    }
    if (value.is_tuple()) out_ += value.items().size() == 1 ? ",)" : ")";
    if (!value.is_tuple()) out_ += ']';
    return ok_status();
  }

  Status write_dict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, item] : dict.items()) {
      if (!std::exchange(first, false)) out_ += ", ";
      BRAID_TRY(write(key));
      out_ += ": ";
      BRAID_TRY(write(item));
    }
    out_ += '}';
    return ok_status();
  }

  Budget& budget_;
  std::string out_;
  size_t paid_ = 0;
};

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);
  const size_t mark = text.find('e');
  const int exponent = std::atoi(text.c_str() + mark + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string out(buffer, fixed.ptr);
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

std::string quoted(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) append_quoted(next_code_point(text, &at), quote, &out);
  return out + quote;
}

Result<std::string> to_text(const Value& value, Budget& budget) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return std::string();
    case Value::Kind::kNone:
      return std::string("None");
    case Value::Kind::kBool:
      return std::string(value.truth() ? "True" : "False");
    case Value::Kind::kInt:
      return std::to_string(value.integer());
    case Value::Kind::kFloat:
      return float_text(value.number());
    case Value::Kind::kText:
      return value.text();
    default:
      return repr(value, budget);
  }
}

Result<std::string> repr(const Value& value, Budget& budget) {
  ReprWriter writer(budget);
  BRAID_TRY(writer.write(value));
  return writer.take();
}

}  // namespace braid::jinja
