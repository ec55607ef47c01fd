// Python's json.dumps.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/compare.h"
#include "jinja/print.h"

namespace braid::jinja {
namespace {

void append_unicode_escape(char32_t c, std::string* out) {
  constexpr const char* kDigits = "0123456789abcdef";
  if (c >= 0x10000) {
    append_unicode_escape(0xD800 + ((c - 0x10000) >> 10), out);
    c = 0xDC00 + ((c - 0x10000) & 0x3FF);
  }
  *out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out->push_back(kDigits[c >> shift & 15]);
}

void append_json_character(char32_t c, bool ensure_ascii, std::string* out) {
  switch (c) {
    case '"':
      *out += "\\\"";
      return;
    case '\\':
      *out += "\\\\";
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    case '\b':
      *out += "\\b";
      return;
    case '\f':
      *out += "\\f";
      return;
    default:
      break;
  }
  if (c < 0x20 || (ensure_ascii && c > 0x7E))
    append_unicode_escape(c, out);
  else
    append_utf8(c, out);
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_text(value);
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  Status write(const Value& value) {
    BRAID_TRY(budget_.enter());
    if (value.is_dict()) {
      BRAID_TRY(write_dict(value.dict()));
    } else if (value.is_sequence()) {
      BRAID_TRY(write_list(value.items()));
    } else {
      BRAID_ASSIGN(const std::string text, scalar(value));
      out_ += text;
    }
    budget_.leave();
    BRAID_TRY(budget_.grow(paid_, out_.size() - paid_));
    paid_ = out_.size();
    return ok_status();
  }
  std::string take() { return std::move(out_); }

 private:
  std::string text_of(const std::string& text) const {
    std::string out = "\"";
    for (size_t at = 0; at < text.size();)
      append_json_character(next_code_point(text, &at), style_.ensure_ascii, &out);
    return out + "\"";
  }

  Result<std::string> scalar(const Value& value) const {
    if (value.is_text()) return text_of(value.text());
    if (value.is_none()) return std::string("null");
    if (value.is_bool()) return std::string(value.truth() ? "true" : "false");
    if (value.is_int()) return std::to_string(value.integer());
    if (value.is_float()) return json_float(value.number());
    const std::string reason = value.is_undefined() ? cat(" (", value.why(), ")") : "";
    return invalid_input(
        cat("object of type ", value.type_name(), " is not JSON serializable", reason));
  }

  Result<std::string> key_of(const Value& key) const {
    if (key.is_text()) return text_of(key.text());
    if (!key.is_number() && !key.is_none())
      return invalid_input(cat("a key of a JSON object cannot be a ", key.type_name()));
    BRAID_ASSIGN(const std::string text, scalar(key));
    return cat('"', text, '"');
  }

  // Behind an opening bracket, between items and before the closing bracket.
  void new_line() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  Status write_list(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return ok_status();
    }
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      BRAID_TRY(write(items[i]));
    }
    --level_;
    new_line();
    out_ += ']';
    return ok_status();
  }

  Status write_dict(const Dict& dict) {
    if (dict.size() == 0) {
      out_ += "{}";
      return ok_status();
    }
    BRAID_ASSIGN(const std::vector<const Dict::Item*> items, ordered(dict));
    out_ += '{';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      BRAID_ASSIGN(const std::string key, key_of(items[i]->first));
      out_ += key + style_.key_separator;
      BRAID_TRY(write(items[i]->second));
    }
    --level_;
    new_line();
    out_ += '}';
    return ok_status();
  }

  Result<std::vector<const Dict::Item*>> ordered(const Dict& dict) const {
    std::vector<const Dict::Item*> items;
    for (const Dict::Item& item : dict.items()) items.push_back(&item);
    if (!style_.sort_keys) return items;
    Status failure;
    std::stable_sort(items.begin(), items.end(), [&](const auto* a, const auto* b) {
      const Result<bool> before = less(a->first, b->first, budget_);
      if (!before.ok() && failure.ok()) failure = before.status();
      return before.ok() && *before;
    });
    BRAID_TRY(failure);
    return items;
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
  size_t paid_ = 0;
  int level_ = 0;
};

}  // namespace

Result<std::string> to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  BRAID_TRY(writer.write(value));
  return writer.take();
}

}  // namespace braid::jinja
