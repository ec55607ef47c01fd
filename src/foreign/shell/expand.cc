#include "foreign/shell/expand.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "base/text.h"
#include "foreign/shell/arithmetic.h"
#include "foreign/shell/parameter.h"
#include "foreign/shell/tree.h"

namespace braid::inline foreign {
namespace {

constexpr int kDeepestExpansion = 24;      // expansions inside expansions
constexpr size_t kLongestValue = 1 << 16;  // of a word; what is longer is cut
constexpr size_t kMostFields = 20000;      // of a word

bool is_field_end(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_name_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

size_t name_part(std::string_view text) {
  if (!text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0) return 0;
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_name_part) -
                             text.begin());
}

std::string without_marked(std::string_view text, char mark) {
  std::string out;
  bool inside = false;
  for (const char c : text) {
    if (c == mark)
      inside = !inside;
    else if (!inside)
      out += c;
  }
  return out;
}

// "{a,b}" and "{1..4}" of a word as written, outside quotes; the word itself where it has none.
std::vector<std::string> braces_of(const std::string& word, int depth) {
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '\\') {
      ++i;
    } else if (word[i] == '\'' || word[i] == '"' || word[i] == '`') {
      i = end_of_quotes(word, i) - 1;
    } else if (word[i] == '$' && i + 1 < word.size() &&
               (word[i + 1] == '{' || word[i + 1] == '(')) {
      i = end_of_brackets(word, i + 1) - 1;
    } else if (word[i] == '{') {
      const size_t end = end_of_brackets(word, i);
      if (word[end - 1] != '}' || depth > 8) continue;
      const std::vector<std::string> parts =
          brace_parts(std::string_view(word).substr(i + 1, end - i - 2));
      if (parts.empty()) continue;
      std::vector<std::string> out;
      for (const std::string& part : parts)
        for (const std::string& rest :
             braces_of(word.substr(0, i) + part + word.substr(end), depth + 1))
          if (out.size() < kMostFields) out.push_back(rest);
      return out;
    }
  }
  return {word};
}

}  // namespace

std::string unknown_text(const std::string& source) {
  return cat(kUnknownMark, shown_text(source), kUnknownMark);
}

std::string shown_text(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != kUnknownMark && c != kUnsetMark) out += c;
  return out;
}

std::optional<std::string> known_text(std::string_view text) {
  if (text.find(kUnknownMark) != std::string_view::npos) return std::nullopt;
  return without_marked(text, kUnsetMark);
}

std::string* ShellArray::find(const std::string& index) {
  for (auto& [at, value] : items)
    if (at == index) return &value;
  return nullptr;
}

void ShellArray::set(const std::string& index, const std::string& value) {
  if (std::string* found = find(index)) {
    *found = value;
  } else if (items.size() < kMostFields) {
    items.emplace_back(index, value);
    int64_t added = 0, other = 0;
    for (size_t i = items.size() - 1; !by_name && i > 0 && parse_int(items[i].first, &added) &&
                                      parse_int(items[i - 1].first, &other) && added < other;
         --i)
      std::swap(items[i], items[i - 1]);
  }
}

// One word on its way through the expansions.
class ShellExpander::Word {
 public:
  enum class Mode { kFields, kText, kPattern };
  Word(ShellExpander* owner, Mode mode) : owner_(*owner), mode_(mode) {}

  void read(std::string_view text) {
    for (size_t i = 0; i < text.size() && word_.size() < kLongestValue;) i = step(text, i);
  }

  void read_document(std::string_view body) {
    quoted_ = true;
    for (size_t i = 0; i < body.size() && word_.size() < kLongestValue;)
      i = inside_quotes(body, i, "$`\\");
  }

  std::vector<std::string> fields() {
    finish();
    return std::move(fields_);
  }
  std::string text() const { return word_; }

 private:
  void put(char c, bool literal) {
    if (mode_ == Mode::kPattern && literal &&
        std::string_view("*?[]\\").find(c) != std::string_view::npos)
      word_ += '\\';
    word_ += c;
    inside_ = true;
  }

  // What an expansion gives: split where it is not quoted. A variable that nobody set is empty
  // there, and its name stands for it in a word that has more.
  void append(const std::string& value) {
    if (quoted_ || mode_ != Mode::kFields) {
      for (const char c : value) put(c, quoted_);
      if (quoted_) inside_ = true;
      return;
    }
    bool marked = false;
    for (const char c : value) {
      if (c == kUnknownMark || c == kUnsetMark) marked = !marked;
      if (is_field_end(c) && !marked) {
        finish();
        continue;
      }
      word_ += c;
      inside_ = true;
    }
  }

  void finish() {
    const bool only_unset =
        !kept_ && inside_ && known_text(word_) == std::optional<std::string>("");
    if ((inside_ && !only_unset) || kept_)
      if (fields_.size() < kMostFields) fields_.push_back(word_);
    word_.clear();
    inside_ = kept_ = false;
  }

  size_t step(std::string_view text, size_t i) {
    const char c = text[i];
    if (c == '\'') return single_quotes(text, i);
    if (c == '"') return double_quotes(text, i);
    if (c == '`') return backquotes(text, i);
    if (c == '$') return dollar(text, i);
    if (c == '\\') {
      const char next = i + 1 < text.size() ? text[i + 1] : '\0';
      if (next == '\r' && i + 2 < text.size() && text[i + 2] == '\n') return i + 3;
      if (next != '\n' && next != '\0') put(next, true);
      return i + 2;
    }
    if (c == '~' && i == 0 && (text.size() == 1 || text[1] == '/')) {
      const auto home = owner_.variables_->values.find("HOME");
      if (home != owner_.variables_->values.end()) {
        for (const char h : home->second) put(h, true);
        return 1;
      }
    }
    put(c, false);
    return i + 1;
  }

  size_t single_quotes(std::string_view text, size_t i) {
    const size_t end = end_of_quotes(text, i);
    const bool closed = end > i + 1 && text[end - 1] == '\'';
    for (size_t k = i + 1; k < end - (closed ? 1 : 0); ++k) put(text[k], true);
    kept_ = inside_ = true;
    return end;
  }

  size_t double_quotes(std::string_view text, size_t i) {
    const size_t end = end_of_quotes(text, i);
    const bool closed = end > i + 1 && text[end - 1] == '"';
    const std::string_view body = text.substr(i + 1, end - i - 1 - (closed ? 1 : 0));
    const bool arguments = body == "$@" ||
                           (body.size() > 3 && body.substr(0, 2) == "${" &&
                            body.find("@]") != std::string_view::npos) ||
                           body.substr(0, 3) == "${@";
    if (!arguments) kept_ = inside_ = true;
    const bool before = quoted_;
    quoted_ = true;
    for (size_t k = 0; k < body.size();) k = inside_quotes(body, k, "$`\"\\");
    quoted_ = before;
    return end;
  }

  size_t inside_quotes(std::string_view body, size_t k, std::string_view escaped) {
    if (body[k] == '$') return dollar(body, k);
    if (body[k] == '`') return backquotes(body, k);
    if (body[k] == '\\' && k + 1 < body.size()) {
      if (body[k + 1] == '\n') return k + 2;
      if (escaped.find(body[k + 1]) != std::string_view::npos) return put(body[k + 1], true), k + 2;
    }
    put(body[k], true);
    return k + 1;
  }

  size_t backquotes(std::string_view text, size_t i) {
    const size_t end = end_of_quotes(text, i);
    std::string script;
    for (size_t k = i + 1; k + 1 < end; ++k) {
      if (text[k] == '\\' && k + 2 < end &&
          std::string_view("`\\$").find(text[k + 1]) != std::string_view::npos)
        ++k;
      script += text[k];
    }
    append(owner_.host_->output(script));
    return end;
  }

  size_t dollar(std::string_view text, size_t i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (next == '(') return parentheses(text, i);
    if (next == '{') {
      const size_t end = end_of_brackets(text, i + 1);
      const bool closed = text[end - 1] == '}';
      parameter(std::string(text.substr(i + 2, end - i - 2 - (closed ? 1 : 0))));
      return end;
    }
    if (next == '\'' && !quoted_) return ansi_quotes(text, i + 1);
    if (next == '"' && !quoted_) return i + 1;
    if (std::string_view("@*#?$!0123456789-").find(next) != std::string_view::npos && next != '\0')
      return parameter(std::string(1, next)), i + 2;
    const size_t length = name_part(text.substr(i + 1));
    if (length == 0) return put('$', true), i + 1;
    parameter(std::string(text.substr(i + 1, length)));
    return i + 1 + length;
  }

  size_t ansi_quotes(std::string_view text, size_t i) {
    const size_t end = end_of_quotes(text, i);
    for (size_t k = i + 1; k + 1 < end; ++k) {
      char c = text[k];
      if (c == '\\' && k + 2 < end) {
        c = text[++k];
        c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
      }
      put(c, true);
    }
    kept_ = inside_ = true;
    return end;
  }

  size_t parentheses(std::string_view text, size_t i) {
    const size_t end = end_of_brackets(text, i + 1);
    const bool closed = text[end - 1] == ')';
    const std::string body(text.substr(i + 2, end - i - 2 - (closed ? 1 : 0)));
    if (body.size() > 1 && body.front() == '(' && body.back() == ')') {
      const auto value = owner_.arithmetic(body.substr(1, body.size() - 2));
      append(value ? cat(*value) : unknown_text(std::string(text.substr(i, end - i))));
    } else {
      append(owner_.host_->output(body));
    }
    return end;
  }

  void list(const std::vector<std::string>& values, bool joined) {
    for (size_t k = 0; k < values.size(); ++k) {
      if (k > 0 && (joined || mode_ != Mode::kFields))
        append(" ");
      else if (k > 0)
        finish();
      append(values[k]);
      if (quoted_) kept_ = inside_ = true;
    }
  }

  void parameter(const std::string& body) {
    if (owner_.depth_ >= kDeepestExpansion) return append(unknown_text(cat("${", body, "}")));
    ++owner_.depth_;
    const ParameterValue value = expand_parameter(body, owner_.variables_, &owner_, *owner_.host_);
    --owner_.depth_;
    if (value.is_list) return list(value.values, value.joined && quoted_);
    append(value.values.empty() ? "" : value.values[0]);
  }

  ShellExpander& owner_;
  Mode mode_;
  std::string word_;
  std::vector<std::string> fields_;
  bool inside_ = false;  // there is a word, even if it is empty
  bool kept_ = false;    // quotes make it one
  bool quoted_ = false;
};

std::vector<std::string> ShellExpander::fields(const std::string& word) {
  std::vector<std::string> out;
  for (const std::string& part : braces_of(word, 0)) {
    Word reader(this, Word::Mode::kFields);
    reader.read(part);
    for (std::string& field : reader.fields()) out.push_back(std::move(field));
  }
  return out;
}

std::string ShellExpander::text(const std::string& word) {
  Word reader(this, Word::Mode::kText);
  reader.read(word);
  return reader.text();
}

std::string ShellExpander::pattern(const std::string& word) {
  Word reader(this, Word::Mode::kPattern);
  reader.read(word);
  return reader.text();
}

std::string ShellExpander::document(const std::string& body) {
  Word reader(this, Word::Mode::kText);
  reader.read_document(body);
  return reader.text();
}

std::optional<int64_t> ShellExpander::arithmetic(const std::string& expression) {
  if (depth_ >= kDeepestExpansion) return std::nullopt;
  ++depth_;
  const auto expanded = known_text(document(expression));
  --depth_;
  if (!expanded) return std::nullopt;
  const auto look_up = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables_->values.find(name);
    if (found == variables_->values.end()) return host_->unset(name), "0";
    const auto known = known_text(found->second);
    return known && known->empty() ? "0" : known;
  };
  return shell_arithmetic(*expanded, look_up,
                          [&](const std::string& name, int64_t value) { set(name, cat(value)); });
}

void ShellExpander::set(const std::string& name, const std::string& value) {
  variables_->values[name] = value.substr(0, kLongestValue);
}

bool ShellExpander::assign(const std::string& word) {
  const size_t length = name_part(word);
  if (length == 0 || length == word.size()) return false;
  const std::string name = word.substr(0, length);
  size_t at = length;
  std::string index;
  if (word[at] == '[') {
    const size_t close = word.find(']', at);
    if (close == std::string::npos) return false;
    index = word.substr(at + 1, close - at - 1);
    at = close + 1;
  }
  const bool adds = word.compare(at, 2, "+=") == 0;
  if (!adds && word.compare(at, 1, "=") != 0) return false;
  const std::string value = word.substr(at + (adds ? 2 : 1));
  if (index.empty() && !value.empty() && value[0] == '(') {
    const bool closed = value.back() == ')';
    set_array(name, value.substr(1, value.size() - 1 - (closed ? 1 : 0)), adds, variables_, this);
  } else if (!index.empty()) {
    ShellArray& array = variables_->arrays[name];
    const auto number = array.by_name ? std::nullopt : arithmetic(index);
    const std::string place = number ? cat(*number) : text(index);
    const std::string* old = adds ? array.find(place) : nullptr;
    array.set(place, cat(old ? *old : "", text(value)));
  } else {
    const std::string old = adds ? variables_->values[name] : "";
    set(name, cat(old, text(value)));
  }
  return true;
}

}  // namespace braid::inline foreign
