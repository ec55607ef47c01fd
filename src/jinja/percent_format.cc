// Python's formatting with the operator %.
#include <cmath>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/format.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(const Value& text, const Value& arguments, Budget& budget)
      : text_(text.text()), escapes_(text.is_safe()), arguments_(arguments), budget_(budget) {}

  Result<Value> run() {
    while (at_ < text_.size()) {
      const size_t mark = std::min(text_.find('%', at_), text_.size());
      out_.append(text_, at_, mark - at_);
      at_ = mark + 1;
      if (mark < text_.size()) BRAID_TRY(field());
    }
    const bool left_over = arguments_.is_tuple() ? used_ < arguments_.items().size()
                                                 : used_ == 0 && !has_items(arguments_);
    if (left_over && !named_) return invalid_input("not all arguments converted during formatting");
    return escapes_ ? Value::safe(std::move(out_)) : Value(std::move(out_));
  }

 private:
  // Python takes whatever has items as if names asked for them, so none of it is left over.
  static bool has_items(const Value& value) {
    return value.is_dict() || value.is_sequence() || value.is_undefined() ||
           value.as<Range>() != nullptr;
  }

  Status field() {
    BRAID_TRY(read_name());
    FieldFormat format;
    read_flags(&format);
    BRAID_ASSIGN(format.width, read_number());
    if (format.width < 0) {
      format.align = '<';
      format.width = -format.width;
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      BRAID_ASSIGN(format.precision, read_number());
    }
    while (at_ < text_.size() && (text_[at_] == 'l' || text_[at_] == 'h' || text_[at_] == 'L'))
      ++at_;
    if (at_ >= text_.size()) return invalid_input("incomplete format");
    const char type = text_[at_++];
    if (type == '%') {
      out_ += '%';
      return ok_status();
    }
    BRAID_ASSIGN(const Value value, next_value());
    BRAID_ASSIGN(const std::string written, convert(value, type, format));
    BRAID_TRY(budget_.grow(out_.size(), written.size()));
    out_ += written;
    return ok_status();
  }

  Status read_name() {
    name_.reset();
    if (at_ >= text_.size() || text_[at_] != '(') return ok_status();
    int depth = 1;
    const size_t begin = ++at_;
    for (; at_ < text_.size() && depth > 0; ++at_)
      depth += text_[at_] == '(' ? 1 : text_[at_] == ')' ? -1 : 0;
    if (depth > 0) return invalid_input("incomplete format key");
    if (!arguments_.is_dict()) return invalid_input("format requires a mapping");
    name_ = text_.substr(begin, at_ - 1 - begin);
    named_ = true;
    return ok_status();
  }

  void read_flags(FieldFormat* format) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '-') {
        format->align = '<';
      } else if (c == '+' || (c == ' ' && format->sign != '+')) {
        format->sign = c;
      } else if (c == '#') {
        format->alternate = true;
      } else if (c == '0') {
        format->zeros = true;
      } else if (c != ' ') {
        return;
      }
    }
  }

  Result<int64_t> read_number() {
    if (at_ < text_.size() && text_[at_] == '*') {
      ++at_;
      BRAID_ASSIGN(const Value value, next_value());
      if (!value.is_integral()) return invalid_input("* wants int");
      if (std::abs(value.integer()) > INT32_MAX) return invalid_input("width too big");
      return value.integer();
    }
    int64_t number = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      number = number * 10 + (text_[at_] - '0');
      if (number > INT32_MAX) return invalid_input("width too big");
    }
    return number;
  }

  Result<Value> next_value() {
    if (name_) {
      const Value* found = arguments_.dict().find(*name_);
      if (found == nullptr) return invalid_input(cat("no value for the key '", *name_, "'"));
      return *found;
    }
    const size_t count = arguments_.is_tuple() ? arguments_.items().size() : 1;
    if (used_ >= count) return invalid_input("not enough arguments for format string");
    const size_t index = used_++;
    return arguments_.is_tuple() ? arguments_.items()[index] : arguments_;
  }

  Result<std::string> convert(const Value& value, char type, FieldFormat format) {
    if (type == 's' || type == 'r' || type == 'a') {
      BRAID_ASSIGN(std::string text, type == 's' ? to_text(value, budget_) : repr(value, budget_));
      if (escapes_ && !(type == 's' && value.is_safe())) text = escaped(text);
      format.type = 's';
      format.zeros = false;
      format.align = format.align == 0 ? '>' : format.align;
      return format_field(Value(std::move(text)), format, budget_);
    }
    if (escapes_) return convert_wrapped(value, type, format);
    return convert_plain(value, type, format);
  }

  // Markup wraps its arguments: a wrapper has a text and converts to int and float, nothing else.
  Result<std::string> convert_wrapped(const Value& value, char type, const FieldFormat& format) {
    const bool whole = type == 'd' || type == 'i' || type == 'u';
    if (!whole && std::string_view("eEfFgG").find(type) == std::string_view::npos)
      return invalid_input(cat("%", type, " cannot be used in a text that counts as escaped"));
    if (value.is_number()) return convert_plain(value, type, format);
    if (!value.is_text()) return convert_plain(Value::undefined("no number"), type, format);
    Arguments arguments;
    arguments.positional = {value, Value()};
    BRAID_ASSIGN(const Value number,
                 find_number_filter(whole ? "int" : "float")(budget_, arguments));
    return convert_plain(number, type, format);
  }

  Result<std::string> convert_plain(const Value& value, char type, FieldFormat format) {
    if (type == 'c' && value.is_text()) {
      if (count_code_points(value.text()) != 1) return invalid_input("%c requires int or char");
      format.align = format.align == 0 ? '>' : format.align;
      return format_field(value, format, budget_);
    }
    BRAID_TRY(check_defined(value));
    if (std::string_view("diuoxXcbeEfFgG").find(type) == std::string_view::npos || type == 'b')
      return invalid_input(cat("unsupported format character '", type, "'"));
    if (!value.is_number())
      return invalid_input(
          cat("%", type, " format: a real number is required, not ", value.type_name()));
    if (format.align == '<') format.zeros = false;
    return convert_number(value, type, format);
  }

  Result<std::string> convert_number(const Value& value, char type, FieldFormat format) {
    format.type = type == 'i' || type == 'u' ? 'd' : type;
    const bool decimal = format.type == 'd';
    if (std::string_view("eEfFgG").find(type) != std::string_view::npos)
      return format_field(Value(value.number()), format, budget_);
    if (value.is_float() && !decimal)
      return invalid_input(cat("%", type, " format: an integer is required, not float"));
    if (value.is_float() && std::fabs(value.number()) >= 9.2e18)
      return invalid_input("%d: the number does not fit into 64 bits");
    const int64_t number =
        value.is_float() ? static_cast<int64_t>(value.number()) : value.integer();
    if (type == 'c') format.align = format.align == 0 ? '>' : format.align;
    const int64_t digits = std::exchange(format.precision, -1);
    if (digits < 0) return format_field(Value(number), format, budget_);
    return with_digits(number, digits, format);
  }

  // "%.3d" writes at least three digits.
  Result<std::string> with_digits(int64_t number, int64_t digits, FieldFormat format) {
    FieldFormat inner;
    inner.type = format.type;
    inner.alternate = format.alternate;
    BRAID_ASSIGN(std::string text, format_field(Value(number), inner, budget_));
    const size_t signs = text[0] == '-' ? 1 : 0;
    const size_t prefix = signs + (format.alternate && format.type != 'd' ? 2 : 0);
    const auto length = static_cast<int64_t>(text.size() - prefix);
    BRAID_TRY(budget_.spend_text(static_cast<uint64_t>(digits)));
    if (length < digits) text.insert(prefix, static_cast<size_t>(digits - length), '0');
    if (signs == 0 && format.sign != '-') text.insert(0, 1, format.sign);
    format.type = 's';
    format.align = format.align == 0 ? '>' : format.align;
    return format_field(Value(std::move(text)), format, budget_);
  }

  const std::string& text_;
  const bool escapes_;  // the text counts as escaped
  const Value& arguments_;
  Budget& budget_;
  std::string out_;
  size_t at_ = 0;
  size_t used_ = 0;
  std::optional<std::string> name_;
  bool named_ = false;
};

}  // namespace

Result<Value> percent_format(const Value& text, const Value& arguments, Budget& budget) {
  return PercentFormatter(text, arguments, budget).run();
}

}  // namespace braid::jinja
