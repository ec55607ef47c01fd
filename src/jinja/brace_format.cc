// Python's str.format.
#include <algorithm>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/access.h"
#include "jinja/arguments.h"
#include "jinja/compare.h"
#include "jinja/format.h"
#include "jinja/methods.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

bool is_align(char32_t c) { return c == '<' || c == '>' || c == '^' || c == '='; }

// Reads "[[fill]align][sign][#][0][width][group][.precision][type]".
Result<FieldFormat> parse_format(const std::string& text) {
  FieldFormat out;
  size_t at = 0, behind_first = 0;
  if (!text.empty()) next_code_point(text, &behind_first);
  if (behind_first < text.size() && is_align(static_cast<uint8_t>(text[behind_first]))) {
    out.fill = text.substr(0, behind_first);
    out.align = text[behind_first];
    at = behind_first + 1;
  } else if (!text.empty() && is_align(static_cast<uint8_t>(text[0]))) {
    out.align = text[at++];
  }
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto number = [&](int64_t* value) {
    for (*value = 0; peek() >= '0' && peek() <= '9' && *value < INT32_MAX; ++at)
      *value = *value * 10 + (text[at] - '0');
  };
  if (peek() == '+' || peek() == '-' || peek() == ' ') out.sign = text[at++];
  if (peek() == '#') out.alternate = ++at != 0;
  if (peek() == '0') out.zeros = ++at != 0;
  number(&out.width);
  if (peek() == ',' || peek() == '_') out.group = text[at++];
  if (peek() == '.') {
    ++at;
    number(&out.precision);
  }
  if (at < text.size()) out.type = text[at++];
  if (at < text.size()) return invalid_input(cat("invalid format specifier '", text, "'"));
  return out;
}

class BraceFormatter {
 public:
  // escapes: the text counts as escaped, so what is put into it gets escaped.
  BraceFormatter(const Arguments& arguments, const Value& mapping, bool escapes, Budget& budget)
      : arguments_(arguments), mapping_(mapping), escapes_(escapes), budget_(budget) {}

  Result<std::string> run(const std::string& text, int depth) {
    if (depth > 2) return invalid_input("fields of a format are nested too deeply");
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const char c = text[at];
      const bool doubled = at + 1 < text.size() && text[at + 1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        at += 2;
      } else if (c == '}') {
        return invalid_input("single '}' encountered in format string");
      } else if (c == '{') {
        BRAID_ASSIGN(const std::string field, read_field(text, &at));
        BRAID_ASSIGN(const std::string written, write_field(field, depth));
        BRAID_TRY(budget_.grow(out.size(), written.size()));
        out += written;
      } else {
        out += c;
        ++at;
      }
    }
    return out;
  }

 private:
  // The text between the braces that begin at *at, which moves behind them.
  static Result<std::string> read_field(const std::string& text, size_t* at) {
    const size_t begin = ++*at;
    int depth = 1;
    for (; *at < text.size(); ++*at) {
      depth += text[*at] == '{' ? 1 : text[*at] == '}' ? -1 : 0;
      if (depth == 0) return text.substr(begin, (*at)++ - begin);
    }
    return invalid_input("expected '}' before end of string");
  }

  Result<std::string> write_field(const std::string& field, int depth) {
    const size_t end = std::min(field.find_first_of("!:"), field.size());
    BRAID_ASSIGN(Value value, look_up(field.substr(0, end)));
    size_t at = end;
    if (at < field.size() && field[at] == '!') {
      if (at + 1 >= field.size() || (at + 2 < field.size() && field[at + 2] != ':'))
        return invalid_input("expected ':' after conversion specifier");
      BRAID_ASSIGN(value, convert(value, field[at + 1]));
      at += 2;
    }
    std::string format = at < field.size() ? field.substr(at + 1) : "";
    BRAID_ASSIGN(format, run(format, depth + 1));
    BRAID_ASSIGN(std::string text, write_value(value, format));
    return escapes_ && !value.is_safe() ? escaped(text) : text;
  }

  Result<std::string> write_value(const Value& value, const std::string& format) {
    if (format.empty()) return to_text(value, budget_);
    if (escapes_ && value.is_safe())
      return invalid_input("a text that counts as escaped takes no format specification");
    if (value.is_none() || value.is_sequence() || value.is_dict() || value.is_object() ||
        value.is_undefined())
      return invalid_input(
          cat("unsupported format string passed to ", value.type_name(), ".__format__"));
    BRAID_ASSIGN(const FieldFormat parsed, parse_format(format));
    return format_field(value, parsed, budget_);
  }

  Result<Value> convert(const Value& value, char how) {
    if (how != 's' && how != 'r' && how != 'a')
      return invalid_input(cat("unknown conversion specifier '", how, "'"));
    BRAID_ASSIGN(std::string text, how == 's' ? to_text(value, budget_) : repr(value, budget_));
    return Value(std::move(text));
  }

  // "0", "name", "", each with ".attribute" and "[item]" behind it.
  Result<Value> look_up(const std::string& path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    BRAID_ASSIGN(Value value, first_value(path.substr(0, end)));
    for (size_t at = end; at < path.size();) {
      const bool is_item = path[at] == '[';
      const size_t stop = is_item ? path.find(']', at) : path.find_first_of(".[", at + 1);
      if (is_item && stop == std::string::npos)
        return invalid_input("missing ']' in format string");
      const std::string name =
          path.substr(at + 1, stop == std::string::npos ? stop : stop - at - 1);
      if (name.empty()) return invalid_input("empty attribute in format string");
      int64_t index = 0;
      BRAID_ASSIGN(value, !is_item                  ? get_attribute(value, name)
                          : parse_int(name, &index) ? get_item(value, Value(index))
                                                    : get_item(value, Value(name)));
      at = stop == std::string::npos ? path.size() : stop + (is_item ? 1 : 0);
    }
    return value;
  }

  Result<Value> first_value(const std::string& name) {
    int64_t index = 0;
    const bool numbered = parse_int(name, &index);
    if (name.empty() || numbered) {
      if (numbered ? next_ > 0 : next_ < 0)
        return invalid_input("cannot mix numbered and unnumbered fields in a format");
      if (name.empty()) index = next_++;
      if (numbered) next_ = -1;
      const auto& values = arguments_.positional;
      if (index < 0 || index >= static_cast<int64_t>(values.size()) - 1)
        return invalid_input(cat("no argument ", index, " for the format string"));
      return values[static_cast<size_t>(index) + 1];
    }
    if (mapping_.is_dict()) {
      const Value* found = mapping_.dict().find(name);
      if (found != nullptr) return *found;
    }
    for (const auto& [key, value] : arguments_.named)
      if (key == name) return value;
    return invalid_input(cat("no argument '", name, "' for the format string"));
  }

  const Arguments& arguments_;
  const Value& mapping_;
  const bool escapes_;
  Budget& budget_;
  int64_t next_ = 0;  // of the fields without a name; -1 once one had a number
};

}  // namespace

Result<Value> format_method(Budget& budget, Arguments& arguments) {
  const Value self = arguments.positional[0];
  BRAID_ASSIGN(std::string out,
               BraceFormatter(arguments, Value(), self.is_safe(), budget).run(self.text(), 1));
  return Value(std::move(out));
}

Result<Value> format_map_method(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("format_map", arguments, {nullptr, nullptr}, 2));
  if (!bound.at(1).is_dict()) return invalid_input("format_map wants a dictionary");
  const Arguments none;
  BRAID_ASSIGN(
      std::string out,
      BraceFormatter(none, bound.at(1), bound.at(0).is_safe(), budget).run(bound.at(0).text(), 1));
  return Value(std::move(out));
}

}  // namespace braid::jinja
