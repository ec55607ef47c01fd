#include "data/chat/template_ops.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/text.h"

namespace braid {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// One tag of the program, or the text between two.
struct Segment {
  char kind;  // 't'ext, 'v'alue {{ }}, 's'tatement {% %}
  std::string body;
};

struct Token {
  enum class Kind { kName, kString, kNumber, kOperator };
  Kind kind;
  std::string text;

  bool is(std::string_view other) const { return kind != Kind::kString && text == other; }
};
using Tokens = std::vector<Token>;

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Cuts a program into segments; white space is handled as with trim_blocks and lstrip_blocks.
class SegmentReader {
 public:
  explicit SegmentReader(std::string_view program) : program_(program) {
    if (!program_.empty() && program_.back() == '\n') program_.remove_suffix(1);
  }

  Result<std::vector<Segment>> run() {
    while (at_ < program_.size()) {
      const size_t open = find_tag();
      std::string text(program_.substr(at_, open - at_));
      at_ = open;
      if (open < program_.size()) strip_before_tag(&text);
      if (!text.empty()) out_.push_back({'t', std::move(text)});
      if (open < program_.size()) BRAID_TRY(read_tag());
    }
    return std::move(out_);
  }

 private:
  char peek(size_t distance) const {
    return at_ + distance < program_.size() ? program_[at_ + distance] : '\0';
  }

  size_t find_tag() const {
    for (size_t i = at_; i + 1 < program_.size(); ++i)
      if (program_[i] == '{' && std::string_view("{%#").find(program_[i + 1]) != std::string::npos)
        return i;
    return program_.size();
  }

  // at_ is at the tag that follows the text.
  void strip_before_tag(std::string* text) const {
    if (peek(2) == '-') {
      text->erase(text->find_last_not_of(kBlanks) + 1);
    } else if (peek(1) != '{' && peek(2) != '+') {
      const size_t line = text->rfind('\n') + 1;  // 0 when there is no newline
      const bool only_blanks = text->find_first_not_of(" \t\r", line) == std::string::npos;
      if ((line > 0 || line_starts_) && only_blanks) text->erase(line);
    }
  }

  Status read_tag() {
    const char kind = peek(1);
    const std::string close = kind == '{' ? "}}" : cat(std::string(1, kind), "}");
    const size_t begin = at_ + 2;
    const size_t end = find_close(begin, close, kind == '#');
    if (end == std::string::npos) return invalid_input(cat("a tag is not closed by ", close));
    std::string_view body = program_.substr(begin, end - begin);
    const bool strips_after = !body.empty() && body.back() == '-';
    const bool keeps_newline = kind == '{' || (!body.empty() && body.back() == '+');
    if (!body.empty() && (body.front() == '-' || body.front() == '+')) body.remove_prefix(1);
    if (!body.empty() && (strips_after || body.back() == '+')) body.remove_suffix(1);
    if (kind != '#') out_.push_back({kind == '{' ? 'v' : 's', std::string(body)});
    at_ = end + 2;
    skip_after_tag(strips_after, keeps_newline);
    return ok_status();
  }

  void skip_after_tag(bool strips_after, bool keeps_newline) {
    const size_t begin = at_;
    if (strips_after)
      at_ = std::min(program_.find_first_not_of(kBlanks, at_), program_.size());
    else if (!keeps_newline && peek(0) == '\n')
      ++at_;
    line_starts_ = at_ > begin && program_[at_ - 1] == '\n';
  }

  // The closing mark outside of strings.
  size_t find_close(size_t from, const std::string& close, bool is_comment) const {
    char quote = '\0';
    for (size_t i = from; i + 1 < program_.size(); ++i) {
      const char c = program_[i];
      if (quote != '\0') {
        if (c == '\\')
          ++i;
        else if (c == quote)
          quote = '\0';
      } else if (!is_comment && (c == '\'' || c == '"')) {
        quote = c;
      } else if (program_.compare(i, 2, close) == 0) {
        return i;
      }
    }
    return std::string::npos;
  }

  std::string_view program_;
  size_t at_ = 0;
  bool line_starts_ = true;
  std::vector<Segment> out_;
};

Result<std::string> read_string(std::string_view text, size_t* at) {
  const char quote = text[(*at)++];
  std::string out;
  for (; *at < text.size() && text[*at] != quote; ++*at) {
    if (text[*at] != '\\') {
      out += text[*at];
      continue;
    }
    if (++*at == text.size()) break;
    const std::string_view letters = "nrt\\'\"", meanings = "\n\r\t\\'\"";
    const size_t known = letters.find(text[*at]);
    if (known == std::string::npos) return invalid_input("an unknown escape in a text");
    out += meanings[known];
  }
  if (*at >= text.size()) return invalid_input("a text is not closed");
  ++*at;
  return out;
}

Result<Tokens> read_tokens(std::string_view text) {
  Tokens out;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const size_t begin = at;
    if (kBlanks.find(c) != std::string::npos) {
      ++at;
    } else if (c == '\'' || c == '"') {
      BRAID_ASSIGN(std::string value, read_string(text, &at));
      out.push_back({Token::Kind::kString, std::move(value)});
    } else if (is_name_part(c)) {
      while (at < text.size() && is_name_part(text[at])) ++at;
      const auto kind = is_name_start(c) ? Token::Kind::kName : Token::Kind::kNumber;
      out.push_back({kind, std::string(text.substr(begin, at - begin))});
    } else {
      at += at + 1 < text.size() && text[at + 1] == '=' ? 2 : 1;
      out.push_back({Token::Kind::kOperator, std::string(text.substr(begin, at - begin))});
    }
  }
  return out;
}

bool matches(const Tokens& tokens, size_t at, const std::vector<std::string_view>& pattern) {
  if (at + pattern.size() > tokens.size()) return false;
  for (size_t i = 0; i < pattern.size(); ++i)
    if (!tokens[at + i].is(pattern[i])) return false;
  return true;
}

bool is_identifier(const std::string& text) {
  return !text.empty() && is_name_start(text[0]) &&
         std::all_of(text.begin(), text.end(), is_name_part);
}

// a['b'] becomes a.b, a.strip() becomes a|trim, loop.index0 == 0 becomes loop.first.
Tokens unify_spelling(const Tokens& tokens) {
  Tokens out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool subscript = !out.empty() && i + 2 < tokens.size() && tokens[i].is("[") &&
                           tokens[i + 1].kind == Token::Kind::kString &&
                           is_identifier(tokens[i + 1].text) && tokens[i + 2].is("]");
    if (subscript) {
      out.push_back({Token::Kind::kOperator, "."});
      out.push_back({Token::Kind::kName, tokens[i + 1].text});
      i += 2;
    } else if (matches(tokens, i, {".", "strip", "(", ")"})) {
      out.push_back({Token::Kind::kOperator, "|"});
      out.push_back({Token::Kind::kName, "trim"});
      i += 3;
    } else if (matches(tokens, i, {"loop", ".", "index0", "==", "0"})) {
      for (const char* part : {"loop", ".", "first"}) out.push_back({Token::Kind::kName, part});
      i += 4;
    } else {
      out.push_back(tokens[i]);
    }
  }
  return out;
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string joined(const Tokens& tokens, size_t begin, size_t end) {
  std::string out;
  for (size_t i = begin; i < end; ++i) {
    if (!out.empty()) out += ' ';
    out += tokens[i].kind == Token::Kind::kString ? quoted(tokens[i].text) : tokens[i].text;
  }
  return out;
}

int depth_change(const Token& token) {
  if (token.is("(") || token.is("[") || token.is("{")) return 1;
  return token.is(")") || token.is("]") || token.is("}") ? -1 : 0;
}

// True when the parenthesis at begin closes at end - 1.
bool is_wrapped(const Tokens& tokens, size_t begin, size_t end) {
  if (end - begin < 2 || !tokens[begin].is("(")) return false;
  int depth = 0;
  for (size_t i = begin; i < end; ++i) {
    depth += depth_change(tokens[i]);
    if (depth == 0) return i + 1 == end;
  }
  return false;
}

bool is_word_operator(const Token& token) {
  static const std::vector<std::string> words = {"if", "else", "or", "and", "not", "in", "is"};
  return token.kind == Token::Kind::kName &&
         std::find(words.begin(), words.end(), token.text) != words.end();
}

// Writes the parts of a + b ~ c one by one; neighbouring texts become one.
void append_parts(const Tokens& tokens, size_t begin, size_t end, std::vector<TemplateOp>* ops) {
  if (is_wrapped(tokens, begin, end)) return append_parts(tokens, begin + 1, end - 1, ops);
  int depth = 0;
  size_t last_join = end;
  for (size_t i = begin; i < end; ++i) {
    depth += depth_change(tokens[i]);
    if (depth != 0) continue;
    if (is_word_operator(tokens[i])) {
      last_join = end;
      break;
    }
    if (tokens[i].is("+") || tokens[i].is("~")) last_join = i;
  }
  if (last_join != end) {
    append_parts(tokens, begin, last_join, ops);
    return append_parts(tokens, last_join + 1, end, ops);
  }
  if (end - begin == 1 && tokens[begin].kind == Token::Kind::kString) {
    if (!ops->empty() && ops->back().kind == TemplateOp::Kind::kText)
      ops->back().text += tokens[begin].text;
    else
      ops->push_back({TemplateOp::Kind::kText, tokens[begin].text});
    return;
  }
  ops->push_back({TemplateOp::Kind::kValue, joined(tokens, begin, end)});
}

// Turns segments into operations, renaming the variables that the program introduces.
class Canonicalizer {
 public:
  Result<std::vector<TemplateOp>> run(const std::vector<Segment>& segments) {
    for (const Segment& segment : segments) {
      if (segment.kind == 't') {
        append_parts({{Token::Kind::kString, segment.body}}, 0, 1, &ops_);
        continue;
      }
      BRAID_ASSIGN(Tokens tokens, read_tokens(segment.body));
      tokens = unify_spelling(tokens);
      if (tokens.empty()) return invalid_input("an empty tag");
      if (segment.kind == 's') introduce(tokens);
      rename(&tokens);
      if (segment.kind == 'v')
        append_parts(tokens, 0, tokens.size(), &ops_);
      else
        append_statement(tokens);
    }
    drop_prompt_default();
    return std::move(ops_);
  }

 private:
  void introduce(const Tokens& tokens) {
    if (tokens.size() < 4) return;
    const std::string& name = tokens[1].text;
    if (tokens[0].is("for") && tokens[2].is("in")) names_[name] = "m";
    if (tokens[0].is("set") && tokens[2].is("=") && name != "add_generation_prompt")
      names_.emplace(name, cat("v", ++set_count_));
  }

  void rename(Tokens* tokens) const {
    for (size_t i = 0; i < tokens->size(); ++i) {
      Token& token = (*tokens)[i];
      if (token.kind != Token::Kind::kName || (i > 0 && (*tokens)[i - 1].is("."))) continue;
      const auto found = names_.find(token.text);
      if (found != names_.end()) token.text = found->second;
    }
  }

  void append_statement(const Tokens& tokens) {
    if (tokens[0].is("generation") || tokens[0].is("endgeneration")) return;  // marks, no text
    const bool is_set = tokens[0].is("set") && tokens.size() > 3;
    const bool is_test = (tokens[0].is("if") || tokens[0].is("elif")) && tokens.size() > 1;
    if (is_set) {
      ops_.push_back({TemplateOp::Kind::kStatement, joined(tokens, 0, 3)});
      append_parts(tokens, 3, tokens.size(), &ops_);
      ops_.push_back({TemplateOp::Kind::kStatement, "endset"});
      return;
    }
    size_t begin = 1, end = tokens.size();
    for (; is_test && is_wrapped(tokens, begin, end); --end) ++begin;
    const std::string rest = joined(tokens, begin, end);
    ops_.push_back({TemplateOp::Kind::kStatement,
                    rest.empty() ? tokens[0].text : cat(tokens[0].text, " ", rest)});
  }

  // transformers always defines add_generation_prompt.
  void drop_prompt_default() {
    const auto statement = [](const char* text) {
      return TemplateOp{TemplateOp::Kind::kStatement, text};
    };
    const TemplateOp value{TemplateOp::Kind::kValue, "false"};
    for (const char* test :
         {"if not add_generation_prompt is defined", "if add_generation_prompt is not defined"}) {
      const std::vector<TemplateOp> block = {statement(test),
                                             statement("set add_generation_prompt ="), value,
                                             statement("endset"), statement("endif")};
      const auto found = std::search(ops_.begin(), ops_.end(), block.begin(), block.end());
      if (found == ops_.end()) continue;
      const auto behind = ops_.erase(found, found + static_cast<ptrdiff_t>(block.size()));
      if (behind != ops_.begin() && behind != ops_.end()) join_texts(behind - ops_.begin());
    }
  }

  // Joins the operation at index with the one before it when both are texts.
  void join_texts(ptrdiff_t index) {
    TemplateOp& left = ops_[index - 1];
    if (left.kind != TemplateOp::Kind::kText || ops_[index].kind != TemplateOp::Kind::kText) return;
    left.text += ops_[index].text;
    ops_.erase(ops_.begin() + index);
  }

  std::map<std::string, std::string> names_;
  int set_count_ = 0;
  std::vector<TemplateOp> ops_;
};

}  // namespace

Result<std::vector<TemplateOp>> canonical_template(std::string_view jinja) {
  BRAID_ASSIGN(const std::vector<Segment> segments, SegmentReader(jinja).run());
  return Canonicalizer().run(segments);
}

}  // namespace braid
