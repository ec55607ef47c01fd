#include "foreign/shell/tree.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/text.h"

namespace braid::inline foreign {
namespace {

using Kind = ShellNode::Kind;

constexpr int kDeepestNesting = 100;

bool is_name(std::string_view word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) == 0 &&
         std::all_of(word.begin(), word.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// "NAME=", "NAME+=" or "NAME[index]=", after which "(" begins an array.
bool begins_array(std::string_view word) {
  if (word.empty() || word.back() != '=') return false;
  word.remove_suffix(1);
  if (!word.empty() && word.back() == '+') word.remove_suffix(1);
  return is_name(word.substr(0, word.find('[')));
}

bool is_operator(char c) { return std::string_view(" \t\r\n;&|<>()").find(c) != std::string::npos; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<ShellTree> whole() {
    ShellTree tree = list({});
    while (problem_.empty() && skip_blanks(true) < text_.size()) {
      refuse("an end without a begin");
    }
    if (!problem_.empty()) return invalid_input(problem_);
    return tree;
  }

 private:
  using Ends = std::set<std::string>;

  void refuse(const std::string& what) {
    if (problem_.empty()) problem_ = cat("line ", line_at(at_), ": ", what);
    at_ = text_.size();
  }

  int line_at(size_t at) {
    const size_t end = std::min(at, text_.size());
    if (end < counted_) counted_ = 0, lines_ = 1;
    lines_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_),
                                          text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    counted_ = end;
    return lines_;
  }

  bool at(std::string_view what) const {
    return at_ < text_.size() && text_.substr(at_, what.size()) == what;
  }

  // Blanks, comments, continued lines; with `lines`, ends of lines too.
  size_t skip_blanks(bool lines = false) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\r')
        ++at_;
      else if (at("\\\n"))
        at_ += 2;
      else if (at("\\\r\n"))
        at_ += 3;
      else if (c == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (c == '\n' && lines)
        newline();
      else
        break;
    }
    return at_;
  }

  // Past an end of line; the documents that the line announced follow it.
  void newline() {
    ++at_;
    for (const auto& [node, index] : documents_) {
      ShellRedirection& document = node->redirections[index];
      document.target = read_document(document);
    }
    documents_.clear();
  }

  std::string read_document(ShellRedirection& document) {
    std::string mark, body;
    const bool tabs = document.op == "<<-";
    for (const char c : document.target) {
      if (c == '\'' || c == '"' || c == '\\')
        document.literal = true;
      else
        mark += c;
    }
    document.op = "<<";
    while (at_ < text_.size()) {
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string_view line = text_.substr(at_, end - at_);
      at_ = std::min(end + 1, text_.size());
      while (tabs && !line.empty() && line[0] == '\t') line.remove_prefix(1);
      if (line == mark || line == cat(mark, "\r")) break;
      body += cat(line, "\n");
    }
    return body;
  }

  std::string peek_word() {
    skip_blanks();
    at_ = std::min(at_, text_.size());
    return std::string(text_.substr(at_, end_of_shell_word(text_, at_) - at_));
  }

  std::string take_word() {
    const std::string word = peek_word();
    at_ += word.size();
    if (begins_array(word) && at_ < text_.size() && text_[at_] == '(') {
      const size_t end = end_of_brackets(text_, at_);
      const std::string array(text_.substr(at_, end - at_));
      at_ = end;
      return word + array;
    }
    return word;
  }

  bool take(const std::string& word) {
    skip_blanks(true);
    if (peek_word() != word) return false;
    at_ += word.size();
    return true;
  }

  void expect(const std::string& word, const char* what) {
    if (!take(word)) refuse(cat(what, " has no '", word, "'"));
  }

  bool ends_list(const Ends& ends) {
    skip_blanks(true);
    if (at_ >= text_.size() || text_[at_] == ')' || at(";;") || at(";&")) return true;
    return ends.count(peek_word()) > 0;
  }

  std::shared_ptr<ShellNode> make(Kind kind) {
    auto node = std::make_shared<ShellNode>();
    node->kind = kind;
    node->line = line_at(at_);
    return node;
  }

  // Commands up to one of the words, a closing bracket or the end of the text.
  ShellTree list(const Ends& ends) {
    auto out = make(Kind::kSequence);
    if (++depth_ > kDeepestNesting) refuse("commands are nested too deeply");
    while (problem_.empty() && !ends_list(ends)) {
      if (text_[at_] == ';' || text_[at_] == '&') {
        ++at_;
        continue;
      }
      const size_t before = at_;
      out->children.push_back(and_or());
      if (at_ == before) refuse(cat("unexpected '", text_[at_], "'"));
    }
    --depth_;
    return out;
  }

  ShellTree and_or() {
    auto out = make(Kind::kAndOr);
    const size_t begin = at_;
    out->children.push_back(pipeline());
    while (problem_.empty()) {
      skip_blanks();
      if (!at("&&") && !at("||")) break;
      out->words.emplace_back(text_.substr(at_, 2));
      at_ += 2;
      skip_blanks(true);
      out->children.push_back(pipeline());
    }
    if (out->children.size() == 1 && !at("&")) return out->children[0];
    if (at("&") && !at("&&")) {  // in the background: what it assigns is lost
      auto background = make(Kind::kSubshell);
      background->text = std::string(text_.substr(begin, at_ - begin));
      background->children.push_back(out);
      ++at_;
      return background;
    }
    out->text = std::string(trim(text_.substr(begin, at_ - begin)));
    return out;
  }

  ShellTree pipeline() {
    auto out = make(Kind::kPipeline);
    skip_blanks();
    const size_t begin = at_;
    for (std::string word = peek_word(); word == "!" || word == "time"; word = peek_word()) {
      if (word == "!") out->negated = !out->negated;
      at_ += word.size();
    }
    out->children.push_back(command());
    while (problem_.empty()) {
      skip_blanks();
      if (!at("|") || at("||")) break;
      at_ += at("|&") ? 2 : 1;
      skip_blanks(true);
      out->children.push_back(command());
    }
    if (out->children.size() == 1 && !out->negated) return out->children[0];
    out->text = std::string(trim(text_.substr(begin, std::min(at_, text_.size()) - begin)));
    return out;
  }

  ShellTree command() {
    skip_blanks();
    const size_t begin = at_;
    std::shared_ptr<ShellNode> out = compound();
    if (out == nullptr) return simple();
    for (skip_blanks(); problem_.empty() && redirection(out.get()); skip_blanks()) {
    }
    out->text = std::string(text_.substr(begin, std::min(at_, text_.size()) - begin));
    return out;
  }

  // Null where a simple command follows.
  std::shared_ptr<ShellNode> compound() {
    if (at("((")) return arithmetic();
    if (at("(")) return subshell();
    const std::string word = peek_word();
    if (word == "{") return group();
    if (word == "if") return if_command();
    if (word == "while" || word == "until") return while_command(word);
    if (word == "for" || word == "select") return for_command(word);
    if (word == "case") return case_command();
    if (word == "[[") return test_command();
    if (word == "function") return at_ += word.size(), function(take_word());
    const size_t after = text_.find_first_not_of(" \t", at_ + word.size());
    if (!word.empty() && after != std::string_view::npos && text_[after] == '(' &&
        text_.substr(after).find_first_not_of(" \t", 1) != std::string_view::npos &&
        text_[text_.find_first_not_of(" \t", after + 1)] == ')' && !begins_array(word))
      return at_ += word.size(), function(word);
    return nullptr;
  }

  std::shared_ptr<ShellNode> function(const std::string& name) {
    auto out = make(Kind::kFunction);
    out->words.push_back(name);
    skip_blanks();
    if (at("(")) at_ = std::min(text_.find(')', at_), text_.size() - 1) + 1;
    skip_blanks(true);
    out->children.push_back(command());
    return out;
  }

  std::shared_ptr<ShellNode> arithmetic() {
    auto out = make(Kind::kArithmetic);
    const size_t end = end_of_brackets(text_, at_);
    const std::string_view body = text_.substr(at_ + 2, end > at_ + 4 ? end - at_ - 4 : 0);
    out->words.emplace_back(body);
    at_ = end;
    return out;
  }

  std::shared_ptr<ShellNode> subshell() {
    auto out = make(Kind::kSubshell);
    ++at_;
    out->children.push_back(list({}));
    if (!at(")")) refuse("'(' has no ')'");
    ++at_;
    return out;
  }

  std::shared_ptr<ShellNode> group() {
    auto out = make(Kind::kSequence);
    ++at_;
    out->children.push_back(list({"}"}));
    expect("}", "'{'");
    return out;
  }

  std::shared_ptr<ShellNode> if_command() {
    auto out = make(Kind::kIf);
    at_ += 2;
    while (problem_.empty()) {
      out->children.push_back(list({"then"}));
      expect("then", "'if'");
      out->children.push_back(list({"elif", "else", "fi"}));
      if (take("elif")) continue;
      if (take("else")) out->children.push_back(list({"fi"}));
      expect("fi", "'if'");
      break;
    }
    return out;
  }

  ShellTree body(const char* what) {
    while (problem_.empty() && (skip_blanks(true), at(";"))) ++at_;
    expect("do", what);
    ShellTree out = list({"done"});
    expect("done", what);
    return out;
  }

  std::shared_ptr<ShellNode> while_command(const std::string& word) {
    auto out = make(Kind::kWhile);
    out->until = word == "until";
    at_ += word.size();
    out->children.push_back(list({"do"}));
    out->children.push_back(body("'while'"));
    return out;
  }

  std::shared_ptr<ShellNode> for_command(const std::string& word) {
    auto out = make(Kind::kFor);
    at_ += word.size();
    skip_blanks();
    if (at("((")) {
      const ShellNode head = *arithmetic();
      out->kind = Kind::kArithmeticFor;
      for (const std::string& part : split(head.words[0], ';')) out->words.push_back(part);
      if (out->words.size() != 3) refuse("'for ((' needs three parts");
    } else {
      out->words.push_back(take_word());
      skip_blanks(true);
      out->over_arguments = !take("in");
      while (!out->over_arguments && (skip_blanks(), at_ < text_.size()) &&
             !is_operator(text_[at_]))
        out->words.push_back(take_word());
    }
    out->children.push_back(body("'for'"));
    return out;
  }

  std::shared_ptr<ShellNode> case_command() {
    auto out = make(Kind::kCase);
    at_ += 4;
    out->words.push_back(take_word());
    expect("in", "'case'");
    while (problem_.empty() && !take("esac")) {
      if (at_ >= text_.size()) refuse("'case' has no 'esac'");
      if (at("(")) ++at_;
      std::vector<std::string> patterns;
      for (skip_blanks(); problem_.empty() && at_ < text_.size() && !at(")"); skip_blanks()) {
        if (at("|") || at("\n"))
          ++at_;
        else if (is_operator(text_[at_]))
          refuse("a pattern of 'case' has no ')'");
        else
          patterns.push_back(take_word());
      }
      ++at_;
      out->patterns.push_back(std::move(patterns));
      out->children.push_back(list({"esac"}));
      if (at(";;") || at(";&")) at_ += at(";;&") ? 3 : 2;
    }
    return out;
  }

  std::shared_ptr<ShellNode> test_command() {
    auto out = make(Kind::kTest);
    at_ += 2;
    while (problem_.empty()) {
      skip_blanks(true);
      if (at_ >= text_.size()) refuse("'[[' has no ']]'");
      const std::string word = peek_word();
      if (word == "]]") return at_ += 2, out;
      const bool pattern = !out->words.empty() && out->words.back() == "=~";
      if (at("&&") || at("||")) {
        out->words.emplace_back(text_.substr(at_, 2));
        at_ += 2;
      } else if (pattern) {  // a regular expression may hold brackets and bars
        const size_t end = std::min(text_.find_first_of(" \t\n", at_), text_.size());
        out->words.emplace_back(text_.substr(at_, end - at_));
        at_ = end;
      } else if (at_ < text_.size() && is_operator(text_[at_])) {
        out->words.emplace_back(1, text_[at_++]);
      } else {
        out->words.push_back(take_word());
      }
    }
    return out;
  }

  // One redirection, with the number before it; false where none stands here.
  bool redirection(ShellNode* node) {
    size_t begin = at_;
    while (begin < text_.size() && std::isdigit(static_cast<unsigned char>(text_[begin]))) ++begin;
    if (at("&>")) begin = at_ + 1;
    if (begin >= text_.size() || (text_[begin] != '<' && text_[begin] != '>')) return false;
    if (text_.substr(begin + 1, 1) == "(") return false;  // a process in place of a file
    int64_t number = -1;
    if (!parse_int(std::string(text_.substr(at_, begin - at_)), &number)) number = -1;
    size_t end = begin;
    while (end < text_.size() && std::string_view("<>&|-").find(text_[end]) != std::string::npos &&
           !(text_[end] == '-' && text_.substr(begin, end - begin) != "<<"))
      ++end;
    ShellRedirection out{std::string(text_.substr(begin, end - begin)), "", false,
                         static_cast<int>(number)};
    at_ = end;
    skip_blanks();
    const size_t word_end = end_of_shell_word(text_, at_);
    out.target = std::string(text_.substr(at_, word_end - at_));
    at_ = word_end;
    node->redirections.push_back(out);
    if (out.op == "<<" || out.op == "<<-")
      documents_.emplace_back(node, node->redirections.size() - 1);
    return true;
  }

  ShellTree simple() {
    auto out = make(Kind::kSimple);
    const size_t begin = at_;
    while (problem_.empty()) {
      skip_blanks();
      if (at_ >= text_.size() || redirection(out.get())) {
        if (at_ >= text_.size()) break;
        continue;
      }
      const bool process = (at("<(") || at(">("));
      if (is_operator(text_[at_]) && !process) break;
      out->words.push_back(take_word());
    }
    out->text = std::string(trim(text_.substr(begin, std::min(at_, text_.size()) - begin)));
    return out;
  }

  std::string_view text_;
  size_t at_ = 0, counted_ = 0;
  int lines_ = 1, depth_ = 0;
  std::string problem_;
  std::vector<std::pair<ShellNode*, size_t>> documents_;  // announced, not read yet
};

}  // namespace

size_t end_of_quotes(std::string_view text, size_t at) {
  const char quote = text[at];
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\' && quote != '\'')
      ++i;
    else if (quote == '"' && text[i] == '$' && i + 1 < text.size() &&
             (text[i + 1] == '(' || text[i + 1] == '{'))
      i = end_of_brackets(text, i + 1) - 1;
    else if (text[i] == quote)
      return i + 1;
  }
  return text.size();
}

// Not by recursion: a text may open any number of brackets.
size_t end_of_brackets(std::string_view text, size_t at) {
  std::string open;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    const bool quotes = open.ends_with('"');
    if (c == '\\') {
      ++i;
    } else if (quotes && c == '"') {
      open.pop_back();
    } else if (c == '$' && i + 1 < text.size() && (text[i + 1] == '(' || text[i + 1] == '{')) {
      open += text[++i];
    } else if (quotes) {
      continue;
    } else if (c == '\'' || c == '`') {
      i = std::min(text.find(c, i + 1), text.size() - 1);
    } else if (c == '"') {
      open += c;
    } else if (c == '#' && i > at && open.ends_with('(') &&
               std::isspace(static_cast<unsigned char>(text[i - 1])) != 0) {
      i = std::min(text.find('\n', i), text.size() - 1);
    } else if (c == '(' || (c == '{' && (i == at || open.ends_with('{')))) {
      open += c;
    } else if ((c == ')' && open.ends_with('(')) || (c == '}' && open.ends_with('{'))) {
      open.pop_back();
      if (open.empty()) return i + 1;
    }
  }
  return text.size();
}

size_t end_of_shell_word(std::string_view text, size_t at) {
  const size_t begin = at;
  while (at < text.size()) {
    const char c = text[at];
    const char next = at + 1 < text.size() ? text[at + 1] : '\0';
    if (c == '\\')
      at = std::min(at + 2, text.size());
    else if (c == '\'' || c == '"' || c == '`')
      at = end_of_quotes(text, at);
    else if ((c == '$' && (next == '(' || next == '{')))
      at = end_of_brackets(text, at + 1);
    else if (c == '$' && next == '\'')
      at = end_of_quotes(text, at + 1);
    else if (at == begin && (c == '<' || c == '>') && next == '(')
      at = end_of_brackets(text, at + 1);
    else if (is_operator(c))
      break;
    else
      ++at;
  }
  return at;
}

Result<ShellTree> parse_shell(std::string_view text) { return Parser(text).whole(); }

}  // namespace braid::inline foreign
