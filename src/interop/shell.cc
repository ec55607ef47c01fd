#include "interop/shell.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "base/text.h"
#include "interop/arithmetic.h"
#include "interop/text.h"

namespace braid::foreign {
namespace {

constexpr int kDeepestExpansion = 16;      // expansions inside expansions
constexpr size_t kLongestValue = 1 << 16;  // of a variable; longer ones stay unknown

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

struct Variables {
  std::map<std::string, std::string> values;
  std::map<std::string, std::vector<std::string>> arrays;
};

size_t name_length(std::string_view text) {
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_name_char) -
                             text.begin());
}

class Reader {
 public:
  Reader(std::string_view text, Variables* variables, int depth)
      : text_(text), variables_(variables), depth_(depth) {}

  Result<std::vector<std::string>> words() {
    while (at_ < text_.size()) step();
    finish();
    if (!problem_.empty()) return invalid_input(problem_);
    return std::move(words_);
  }

  // The whole text as one value: blanks and operators are ordinary characters.
  std::string value() {
    inline_ = true;
    while (at_ < text_.size()) step();
    return word_;
  }

 private:
  char peek(size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void step() {
    const char c = text_[at_];
    if (c == '\'') return single_quotes();
    if (c == '"') return double_quotes();
    if (c == '\\') return escape();
    if (c == '$') return expand(false);
    if (c == '`') return backquotes();
    if (!inline_ && separates(c)) return;
    word_ += c;
    inside_ = true;
    ++at_;
  }

  // Handles a character that ends words; false for ordinary ones.
  bool separates(char c) {
    if (is_blank(c)) {
      finish();
      if (c == '\n') at_command_ = true;
      return ++at_, true;
    }
    if (c == ';' || c == '&' || c == '|') {
      finish();
      if (words_.empty() || words_.back() != ";") words_.push_back(";");
      at_command_ = true;
      return ++at_, true;
    }
    if (c == '#' && !inside_) return at_ = std::min(text_.find('\n', at_), text_.size()), true;
    if (c == '>' || c == '<') return redirection(), true;
    if (c == '(' && assignment_name()) return array(), true;
    return false;
  }

  void single_quotes() {
    const size_t end = std::min(text_.find('\'', at_ + 1), text_.size());
    word_ += text_.substr(at_ + 1, end - at_ - 1);
    inside_ = true;
    at_ = end + 1;
  }

  void double_quotes() {
    ++at_;
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '$')
        expand(true);
      else if (text_[at_] == '`')
        backquotes();
      else if (text_[at_] == '\\' && peek(1) != '\0' &&
               std::string("$`\"\\\n").find(peek(1)) != std::string::npos)
        escape();
      else
        word_ += text_[at_++];
    }
    const bool arguments = text_.substr(begin, at_ - begin) == "$@";
    if (!arguments) inside_ = true;
    ++at_;
  }

  void escape() {
    const char next = peek(1);
    if (next != '\n' && next != '\r' && next != '\0') word_ += next, inside_ = true;
    at_ += next == '\r' && peek(2) == '\n' ? 3 : 2;
  }

  void backquotes() {
    const size_t end = std::min(text_.find('`', at_ + 1), text_.size());
    command(std::string(text_.substr(at_ + 1, end - at_ - 1)));
    at_ = end + 1;
  }

  // "2>&1", "> log": nothing that a trainer sees.
  void redirection() {
    const bool number =
        std::all_of(word_.begin(), word_.end(), [](unsigned char c) { return std::isdigit(c); });
    if (number) word_.clear(), inside_ = false;
    finish();
    while (at_ < text_.size() && std::string("<>&|").find(text_[at_]) != std::string::npos) ++at_;
    while (peek(0) == ' ') ++at_;
    while (at_ < text_.size() && !is_blank(text_[at_]) && text_[at_] != ';') ++at_;
  }

  // The name in "NAME=" or "NAME+=" that the present word is so far.
  std::optional<std::string> assignment_name() const {
    const size_t length = name_length(word_);
    const std::string rest = word_.substr(length);
    if (length == 0 || (rest != "=" && rest != "+=")) return std::nullopt;
    return word_.substr(0, length);
  }

  // NAME=(words)
  void array() {
    const std::string name = *assignment_name();
    const size_t end = end_of_group(text_, at_, '(', ')');
    const size_t close = end == std::string_view::npos ? text_.size() : end - 1;
    Reader inside(text_.substr(at_ + 1, close - at_ - 1), variables_, depth_ + 1);
    auto words = depth_ < kDeepestExpansion
                     ? inside.words()
                     : Result<std::vector<std::string>>(std::vector<std::string>());
    std::vector<std::string>& target = variables_->arrays[name];
    if (word_.find('+') == std::string::npos) target.clear();
    if (words.ok() && target.size() < kLongestValue)
      target.insert(target.end(), words->begin(), words->end());
    word_.clear();
    inside_ = false;
    at_ = std::min(close + 1, text_.size());
  }

  // A word that an expansion ends assigns nothing, whatever it looks like.
  void finish(bool expanded = false) {
    if (inside_) {
      const size_t length = name_length(word_);
      const bool assigns = !expanded && length > 0 && word_.size() > length && word_[length] == '=';
      if (assigns && word_.size() < kLongestValue)
        variables_->values[word_.substr(0, length)] = word_.substr(length + 1);
      if (!assigns && word_ != "export") at_command_ = false;
      words_.push_back(word_);
    }
    word_.clear();
    inside_ = false;
  }

  // Text that a variable or an array gives: outside quotes it is split at blanks.
  void append(const std::string& value, bool quoted) {
    const bool whole = quoted || inline_ ||
                       (name_length(word_) > 0 && word_.size() > name_length(word_) &&
                        word_[name_length(word_)] == '=');
    for (const char c : value) {
      if (!whole && is_blank(c)) {
        finish(true);
        continue;
      }
      word_ += c;
      inside_ = true;
    }
  }

  void keep(size_t length) {
    word_ += text_.substr(at_, length);
    inside_ = true;
    at_ += length;
  }

  // What only a running shell knows.
  void command(const std::string& text) {
    if (!inside_ && !inline_ && !at_command_)
      refuse(cat("'$(", text, ")' is not run here; write what it prints in its place"));
    word_ += cat("$(", text, ")");
    inside_ = true;
  }

  void refuse(const std::string& what) {
    if (!problem_.empty()) return;
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    problem_ = cat("line ", line, ": ", what);
  }

  void expand(bool quoted) {
    const char next = peek(1);
    if (next == '(') return parentheses(quoted);
    if (next == '{') return braces(quoted);
    if (next == '@' || next == '*') {
      at_ += 2;
      return;
    }
    const size_t length = name_length(text_.substr(at_ + 1));
    const auto found = variables_->values.find(std::string(text_.substr(at_ + 1, length)));
    if (found == variables_->values.end()) return keep(1 + length);
    at_ += 1 + length;
    append(found->second, quoted);
  }

  void parentheses(bool quoted) {
    const size_t end = end_of_group(text_, at_ + 1, '(', ')');
    if (end == std::string_view::npos) return keep(1);
    const std::string_view body = text_.substr(at_ + 2, end - at_ - 3);
    const bool arithmetic = body.size() > 1 && body.front() == '(' && body.back() == ')';
    if (!arithmetic) {
      command(std::string(body));
      at_ = end;
      return;
    }
    const auto value = shell_arithmetic(expanded(body.substr(1, body.size() - 2)),
                                        [&](const std::string& name) { return variable(name); });
    if (!value) return keep(end - at_);
    append(cat(*value), quoted);
    at_ = end;
  }

  void braces(bool quoted) {
    const size_t end = end_of_group(text_, at_ + 1, '{', '}');
    if (end == std::string_view::npos) return keep(1);
    const std::string_view body = text_.substr(at_ + 2, end - at_ - 3);
    const std::string name(body.substr(0, name_length(body)));
    std::string rest(body.substr(name.size()));
    if (name.empty() && rest[0] == '@') {
      at_ = end;
    } else if (rest == "[@]" || rest == "[*]") {
      elements(name, quoted, end - at_);
      at_ = end;
    } else if (const auto value = value_or_default(name, rest)) {
      append(*value, quoted);
      at_ = end;
    } else {
      keep(end - at_);
    }
  }

  // The value of "${NAME}", "${NAME:-default}", "${NAME-default}" and the same with "=".
  std::optional<std::string> value_or_default(const std::string& name, std::string rest) {
    const auto found = variable(name);
    if (rest.empty()) return found;
    const bool empty_counts = rest[0] == ':';
    if (empty_counts) rest.erase(0, 1);
    if (rest.empty() || (rest[0] != '-' && rest[0] != '=')) return std::nullopt;
    if (found && !(empty_counts && found->empty())) return found;
    return expanded(rest.substr(1));
  }

  void elements(const std::string& name, bool quoted, size_t length) {
    const auto found = variables_->arrays.find(name);
    if (found == variables_->arrays.end())
      return refuse(cat("the array '", text_.substr(at_, length),
                        "' is not assigned here; write its words in its place"));
    for (size_t i = 0; i < found->second.size(); ++i) {
      if (i > 0) finish();
      append(found->second[i], true);
      if (quoted) inside_ = true;
    }
  }

  std::optional<std::string> variable(const std::string& name) const {
    const auto found = variables_->values.find(name);
    if (found == variables_->values.end()) return std::nullopt;
    return found->second;
  }

  std::string expanded(std::string_view text) {
    if (depth_ >= kDeepestExpansion) return std::string(text);
    return Reader(text, variables_, depth_ + 1).value();
  }

  std::string_view text_;
  Variables* variables_;
  int depth_;
  size_t at_ = 0;
  bool inline_ = false;     // see value()
  bool at_command_ = true;  // the next word names a command or assigns
  std::string word_;        // the present word so far
  bool inside_ = false;     // there is one, even if it is empty
  std::vector<std::string> words_;
  std::string problem_;
};

}  // namespace

Result<std::vector<std::string>> shell_words(std::string_view text) {
  Variables variables;
  return Reader(text, &variables, 0).words();
}

}  // namespace braid::foreign
