// Filters that make texts.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/arguments.h"
#include "jinja/arithmetic.h"
#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/format.h"
#include "jinja/markup.h"
#include "jinja/methods.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

// The value of a filter as text, whatever it is; jinja2's soft_str.
Result<std::string> subject_text(const Bound& bound, Budget& budget) {
  return to_text(bound.at(0), budget);
}

enum class Mark { kKept, kLost };  // of a text that counts as escaped

template <std::string (*kFunction)(std::string_view), Mark kMark = Mark::kKept>
Result<Value> converted_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the filter", arguments, {"s"}, 1));
  BRAID_ASSIGN(const std::string text, subject_text(bound, budget));
  std::string out = kFunction(text);
  BRAID_TRY(budget.spend_text(out.size()));
  if (kMark == Mark::kLost) return Value(std::move(out));
  return marked_like(bound.at(0), Value(std::move(out)));
}

std::string identity(std::string_view text) { return std::string(text); }

Result<Value> safe_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("safe", arguments, {"value"}, 1));
  BRAID_ASSIGN(std::string text, subject_text(bound, budget));
  return Value::safe(std::move(text));
}

Result<Value> escape_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("escape", arguments, {nullptr}, 1));
  return escape(bound.at(0), budget);
}

// Escapes what is escaped already once more.
Result<Value> forceescape_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("forceescape", arguments, {"value"}, 1));
  BRAID_ASSIGN(const std::string text, subject_text(bound, budget));
  return escape(Value(text), budget);
}

// Words begin behind blanks, hyphens and opening brackets, unlike those of str.title.
std::string filter_title(std::string_view text) {
  const std::u32string points = to_code_points(text);
  const auto is_border = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  for (size_t i = 0; i < points.size();) {
    size_t end = i;
    while (end < points.size() && is_border(points[end]) == is_border(points[i])) ++end;
    const auto part = std::u32string_view(points).substr(i, end - i);
    out += upper(to_utf8(part.substr(0, 1))) + lower(to_utf8(part.substr(1)));
    i = end;
  }
  return out;
}

// Comments and tags go, and every run of blanks is one blank.
std::string without_tags(std::string_view text) {
  std::string out(text);
  for (size_t begin; (begin = out.find("<!--")) != std::string::npos;) {
    const size_t end = out.find("-->", begin);
    if (end == std::string::npos) break;
    out.erase(begin, end + 3 - begin);
  }
  for (size_t begin; (begin = out.find('<')) != std::string::npos;) {
    const size_t end = out.find('>', begin);
    if (end == std::string::npos) break;
    out.erase(begin, end + 1 - begin);
  }
  std::string joined;
  for (const std::string& word : split_words(out)) joined += (joined.empty() ? "" : " ") + word;
  for (const auto& [name, value] :
       {std::pair("&lt;", "<"), std::pair("&gt;", ">"), std::pair("&#39;", "'"),
        std::pair("&#34;", "\""), std::pair("&quot;", "\""), std::pair("&amp;", "&")})
    for (size_t at = 0; (at = joined.find(name, at)) != std::string::npos; ++at)
      joined.replace(at, std::string_view(name).size(), value);
  return joined;
}

Result<Value> trim_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("trim", arguments, {"value", "chars"}, 1));
  BRAID_ASSIGN(const std::string text, subject_text(bound, budget));
  BRAID_TRY(budget.spend_text(text.size()));
  if (!bound.given(1)) return marked_like(bound.at(0), Value(strip(text)));
  BRAID_ASSIGN(const std::string set, bound.text(1));
  return marked_like(bound.at(0), Value(strip(text, Side::kBoth, set)));
}

Result<Value> center_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("center", arguments, {"value", "width"}, 1));
  BRAID_ASSIGN(std::string text, subject_text(bound, budget));
  Arguments inner;
  inner.positional = {Value(std::move(text)), bound.or_else(1, Value(80))};
  BRAID_ASSIGN(Value out, find_text_method("center")->body(budget, inner));
  return marked_like(bound.at(0), std::move(out));
}

Result<Value> replace_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("replace", arguments, {"s", "old", "new", "count"}, 3));
  BRAID_ASSIGN(const std::string text, subject_text(bound, budget));
  BRAID_ASSIGN(const std::string old_text, to_text(bound.at(1), budget));
  BRAID_ASSIGN(const std::string new_text, to_text(bound.at(2), budget));
  int64_t most = -1;
  if (bound.given(3)) {
    BRAID_ASSIGN(most, bound.integer(3, -1));
  }
  return replaced(text, {old_text, new_text, most}, budget);
}

Result<Value> format_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(std::string plain, to_text(arguments.positional[0], budget));
  const Value text = marked_like(arguments.positional[0], Value(std::move(plain)));
  std::vector<Value> values(arguments.positional.begin() + 1, arguments.positional.end());
  if (arguments.named.empty()) return percent_format(text, Value::tuple(std::move(values)), budget);
  if (!values.empty()) return invalid_input("positional and named arguments at the same time");
  const auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : arguments.named) dict->set(Value(name), value);
  return percent_format(text, Value(std::shared_ptr<const Dict>(dict)), budget);
}

Result<Value> indent_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("indent", arguments, {"s", "width", "first", "blank"}, 1));
  BRAID_ASSIGN(const std::string text, bound.text(0));
  std::string space;
  if (bound.has(1) && bound.at(1).is_text()) {
    space = bound.at(1).text();  // not escaped, even where it is put into a text that is
  } else {
    BRAID_ASSIGN(const int64_t width, bound.integer(1, 4));
    BRAID_TRY(budget.spend_text(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
    space.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  std::string out = bound.truth(2, false) ? space : "";
  const std::vector<std::string> lines = split_lines(text + "\n", false);
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool indents = i > 0 && (bound.truth(3, false) || !lines[i].empty());
    BRAID_TRY(budget.grow(out.size(), lines[i].size() + space.size() + 1));
    out += (i > 0 ? "\n" : "") + (indents ? space : "") + lines[i];
  }
  return marked_like(bound.at(0), Value(std::move(out)));
}

Result<Value> truncate_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("truncate", arguments,
                                              {"s", "length", "killwords", "end", "leeway"}, 1));
  BRAID_ASSIGN(const int64_t length, bound.integer(1, 255));
  std::string end = "...";
  if (bound.has(3)) {
    BRAID_ASSIGN(end, bound.text(3));
  }
  int64_t leeway = 5;
  if (bound.given(4)) {
    BRAID_ASSIGN(leeway, bound.integer(4, 5));
  }
  const auto end_length = static_cast<int64_t>(count_code_points(end));
  if (length < end_length) return invalid_input(cat("expected length >= ", end_length));
  if (leeway < 0) return invalid_input("expected leeway >= 0");
  const auto full = static_cast<int64_t>(length_of(bound.at(0)).value_or(SIZE_MAX / 2));
  if (full <= length || full - length <= leeway) return bound.at(0);
  BRAID_ASSIGN(const std::string text, bound.text(0));
  BRAID_TRY(budget.spend_text(text.size()));
  std::string out = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  const size_t blank = out.rfind(' ');
  if (!bound.truth(2, false) && blank != std::string::npos) out.resize(blank);
  return apply(Operator::kAdd, marked_like(bound.at(0), Value(std::move(out))),
               bound.or_else(3, Value(end)), budget);
}

Result<Value> wordcount_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("wordcount", arguments, {"s"}, 1));
  BRAID_ASSIGN(const std::string text, subject_text(bound, budget));
  BRAID_TRY(budget.spend_text(text.size()));
  int64_t count = 0;
  bool inside = false;
  for (const char32_t c : to_code_points(text)) {
    count += !inside && is_word(c) ? 1 : 0;
    inside = is_word(c);
  }
  return Value(count);
}

std::string url_quoted(std::string_view text, bool in_query) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  const std::string_view safe = in_query ? "_.-~" : "_.-~/";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const bool is_letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_letter || safe.find(c) != std::string_view::npos)
      out += c;
    else if (in_query && c == ' ')
      out += '+';
    else
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

Result<Value> urlencode_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("urlencode", arguments, {"value"}, 1));
  const Value& value = bound.at(0);
  if (value.is_text() || !is_iterable(value)) {
    BRAID_ASSIGN(const std::string text, to_text(value, budget));
    BRAID_TRY(budget.spend_text(3 * text.size()));
    return Value(url_quoted(text, false));
  }
  std::vector<Value> pairs;
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict().items()) pairs.push_back(Value::tuple({key, item}));
  } else {
    BRAID_ASSIGN(pairs, iterate(value, budget));
  }
  std::string out;
  for (const Value& pair : pairs) {
    BRAID_ASSIGN(const std::vector<Value> parts, iterate(pair, budget));
    if (parts.size() != 2) return invalid_input("the items must be pairs");
    BRAID_ASSIGN(const std::string key, to_text(parts[0], budget));
    BRAID_ASSIGN(const std::string text, to_text(parts[1], budget));
    BRAID_TRY(budget.grow(out.size(), 3 * (key.size() + text.size()) + 2));
    out += (out.empty() ? "" : "&") + url_quoted(key, true) + "=" + url_quoted(text, true);
  }
  return Value(std::move(out));
}

Result<Value> xmlattr_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("xmlattr", arguments, {"d", "autospace"}, 1));
  if (!bound.at(0).is_dict()) return invalid_input("the value must be a dictionary");
  std::string out;
  for (const auto& [key, value] : bound.at(0).dict().items()) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_text() || key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      return invalid_input("invalid character in attribute name");
    BRAID_ASSIGN(const Value name, escape(key, budget));
    BRAID_ASSIGN(const Value text, escape(value, budget));
    BRAID_TRY(budget.grow(out.size(), text.text().size() + name.text().size() + 4));
    out += (out.empty() ? "" : " ") + name.text() + "=\"" + text.text() + "\"";
  }
  return Value(!out.empty() && bound.truth(1, true) ? " " + out : out);
}

Result<JsonStyle> json_style(const Bound& bound, Budget& budget) {
  JsonStyle style;
  style.ensure_ascii = bound.truth(1, false);
  style.sort_keys = bound.truth(4, false);
  if (bound.given(2)) {
    style.item_separator = ",";
    if (bound.at(2).is_text()) {
      style.indent = bound.at(2).text();
    } else {
      BRAID_ASSIGN(const int64_t width, bound.integer(2, 0));
      const auto size = static_cast<uint64_t>(std::max<int64_t>(width, 0));
      BRAID_TRY(budget.spend_text(size));
      style.indent = std::string(size, ' ');
    }
    constexpr size_t kMostIndent = 1000;
    if (style.indent->size() > kMostIndent)
      return invalid_input(cat("an indent of more than ", kMostIndent, " bytes"));
  }
  if (bound.given(3)) {
    BRAID_ASSIGN(const std::vector<Value> pair, iterate(bound.at(3), budget));
    if (pair.size() != 2 || !pair[0].is_text() || !pair[1].is_text())
      return invalid_input("separators must be two texts");
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  return style;
}

Result<Value> tojson_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("tojson", arguments,
                           {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1));
  BRAID_ASSIGN(const JsonStyle style, json_style(bound, budget));
  BRAID_ASSIGN(std::string text, to_json(bound.at(0), style, budget));
  return Value(std::move(text));
}

Result<Value> filesize_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("filesizeformat", arguments, {"value", "binary"}, 1));
  Arguments inner;
  inner.positional = {bound.at(0), Value()};
  BRAID_ASSIGN(const Value number, find_number_filter("float")(budget, inner));
  if (number.is_none() || (std::isinf(number.number()) && number.number() < 0))
    return invalid_input("the value must be a finite number of bytes");
  const double bytes = number.number();
  const bool binary = bound.truth(1, false);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value("1 Byte");
  if (bytes < base) return Value(cat(static_cast<int64_t>(bytes), " Bytes"));
  const std::string_view letters = binary ? "KMGTPEZY" : "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  for (; i + 1 < letters.size() && bytes >= unit * base; ++i) unit *= base;
  FieldFormat one_digit;
  one_digit.type = 'f';
  one_digit.precision = 1;
  BRAID_ASSIGN(const std::string text, format_field(Value(bytes / unit), one_digit, budget));
  return Value(cat(text, " ", letters[i], binary ? "iB" : "B"));
}

struct TextFilter {
  const char* name;
  Builtin body;
};
constexpr TextFilter kTextFilters[] = {
    {"capitalize", converted_filter<capitalize>},
    {"center", center_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"filesizeformat", filesize_filter},
    {"forceescape", forceescape_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"lower", converted_filter<lower>},
    {"pprint", pprint_filter},
    {"replace", replace_filter},
    {"safe", safe_filter},
    {"string", converted_filter<identity>},
    {"striptags", converted_filter<without_tags, Mark::kLost>},
    {"title", converted_filter<filter_title, Mark::kLost>},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"upper", converted_filter<upper>},
    {"urlencode", urlencode_filter},
    {"urlize", urlize_filter},
    {"wordcount", wordcount_filter},
    {"wordwrap", wordwrap_filter},
    {"xmlattr", xmlattr_filter},
};

}  // namespace

Builtin find_text_filter(const std::string& name) {
  for (const TextFilter& entry : kTextFilters)
    if (name == entry.name) return entry.body;
  return nullptr;
}

}  // namespace braid::jinja
