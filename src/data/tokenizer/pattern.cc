#include "data/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "base/contains.h"
#include "base/text.h"

namespace braid::inline data {
namespace {

// What \w means in Oniguruma, as members of a character class.
constexpr char kWordMembers[] =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}\\x{24B6}-\\x{24E9}"
    "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";

const std::vector<std::string>& general_categories() {
  static const std::vector<std::string> names = {
      "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd",
      "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",
      "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cn"};
  return names;
}

// The scripts that the stand-ins of new code points keep (tools/make_unicode_tables.py).
const std::vector<std::string>& script_names() {
  static const std::vector<std::string> names = {"Armenian", "Bengali", "Greek",    "Han",
                                                 "Hangul",   "Hebrew",  "Hiragana", "Katakana",
                                                 "Latin",    "Thai"};
  return names;
}

// PCRE2 10.40 and later take a bare script name for the script extensions.
std::string script_property(const std::string& name) {
#if PCRE2_MAJOR == 10 && PCRE2_MINOR < 40
  return name;
#else
  return "sc:" + name;
#endif
}

bool is_alphanumeric(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

class PatternTranslator {
 public:
  explicit PatternTranslator(const std::string& pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (!done()) BRAID_TRY(step());
    if (!groups_.empty()) return unsupported("an open group");
    return std::move(out_);
  }

 private:
  static constexpr size_t kNothing = std::string::npos;

  bool done() const { return at_ >= pattern_.size(); }
  char peek(size_t distance = 0) const {
    return at_ + distance < pattern_.size() ? pattern_[at_ + distance] : '\0';
  }
  bool follows(std::string_view text) const {
    return pattern_.compare(at_, text.size(), text) == 0;
  }

  Status unsupported(const std::string& what) const {
    return invalid_input(cat("regular expression ", pattern_, ": ", what, " is not supported"));
  }

  // Writes something that a quantifier may follow.
  void put_atom(const std::string& text) {
    atom_ = out_.size();
    quantified_ = false;
    out_ += text;
  }

  Status step() {
    switch (peek()) {
      case '\\':
        return escape();
      case '[':
        return character_class();
      case '(':
        return open_group();
      case ')':
        return close_group();
      case '*':
      case '+':
      case '?':
        return quantifier(std::string(1, peek()), 1);
      case '{':
        return interval();
      case '|':
        out_ += pattern_[at_++];
        atom_ = kNothing;
        return ok_status();
      default:
        put_atom(std::string(1, peek()));
        return copy_character();
    }
  }

  // The first byte is written; the rest of a UTF-8 character belongs to the same atom.
  Status copy_character() {
    if (ignores_case_ && (static_cast<unsigned char>(peek()) & 0x80) != 0)
      return unsupported("a character outside of ASCII where case is ignored");
    ++at_;
    while (!done() && (static_cast<unsigned char>(peek()) & 0xC0) == 0x80) out_ += pattern_[at_++];
    return ok_status();
  }

  // Only *, + and ? are possessive when + follows; for {n,m} it is a quantifier of its own.
  Status quantifier(const std::string& text, size_t length) {
    if (atom_ == kNothing) return unsupported("a quantifier without anything before it");
    if (quantified_) {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    out_ += text;
    at_ += length;
    quantified_ = true;
    const bool simple = text.size() == 1;
    if (peek() == '?' && (simple || text.find(',') != std::string::npos))
      out_ += pattern_[at_++];
    else if (peek() == '+' && simple)
      out_ += pattern_[at_++];
    return ok_status();
  }

  // {n}, {n,}, {,m} or {n,m}; anything else is text.
  Status interval() {
    size_t end = at_ + 1;
    while (end < pattern_.size() &&
           (std::isdigit(static_cast<unsigned char>(pattern_[end])) || pattern_[end] == ','))
      ++end;
    const std::string inside = pattern_.substr(at_ + 1, end - at_ - 1);
    const bool is_interval = end < pattern_.size() && pattern_[end] == '}' && !inside.empty() &&
                             inside != "," && std::count(inside.begin(), inside.end(), ',') <= 1;
    if (is_interval)
      return quantifier(cat("{", inside[0] == ',' ? "0" : "", inside, "}"), end + 1 - at_);
    put_atom("\\{");
    ++at_;
    return ok_status();
  }

  Status open_group() {
    static const std::vector<std::string_view> kinds = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const size_t begin = out_.size();
    size_t length = 1;
    for (const std::string_view kind : kinds)
      if (follows(kind)) length = kind.size();
    atom_ = kNothing;
    if (length == 1 && peek(1) == '?') return options();
    out_.append(pattern_, at_, length);
    at_ += length;
    groups_.push_back(begin);
    return ok_status();
  }

  // (?i:…), or (?i) for the whole pattern; elsewhere Ruby's (?i) reaches over | and Perl's does
  // not. Ruby's m is Perl's s.
  Status options() {
    const size_t end = pattern_.find_first_of(":)", at_);
    std::string letters = end == kNothing ? "" : pattern_.substr(at_ + 2, end - at_ - 2);
    if (letters.empty() || letters.find_first_not_of("im-") != kNothing)
      return unsupported(cat("the group ", pattern_.substr(at_, 4)));
    const bool opens = pattern_[end] == ':';
    if (!opens && at_ != 0) return unsupported(cat("(?", letters, ") inside a pattern"));
    ignores_case_ |= letters.find('i') < letters.find('-');
    std::replace(letters.begin(), letters.end(), 'm', 's');
    if (opens) groups_.push_back(out_.size());
    out_ += cat("(?", letters, opens ? ":" : ")");
    at_ = end + 1;
    return ok_status();
  }

  Status close_group() {
    if (groups_.empty()) return unsupported("a ) without (");
    atom_ = groups_.back();
    quantified_ = false;
    groups_.pop_back();
    out_ += ')';
    ++at_;
    return ok_status();
  }

  // \x41, \x{41} or \u0041; a byte above 7F would be part of a UTF-8 sequence.
  Result<std::string> code_point() {
    const bool braced = peek(1) == 'x' && peek(2) == '{';
    const size_t begin = at_ + (braced ? 3 : 2);
    const size_t limit = braced ? 8 : peek(1) == 'x' ? 2 : 4;
    size_t end = begin;
    while (end < pattern_.size() && end - begin < limit &&
           std::isxdigit(static_cast<unsigned char>(pattern_[end])))
      ++end;
    const std::string digits = pattern_.substr(begin, end - begin);
    const bool complete = braced ? !digits.empty() && end < pattern_.size() && pattern_[end] == '}'
                                 : digits.size() == limit;
    const bool is_byte = !braced && limit == 2 && !digits.empty() && digits[0] > '7';
    if (!complete || is_byte) return unsupported(pattern_.substr(at_, end - at_));
    at_ = end + (braced ? 1 : 0);
    return cat("\\x{", digits, "}");
  }

  // \p{Name}, \p{^Name} or \P{Name}.
  Result<std::string> property() {
    const size_t end = pattern_.find('}', at_);
    if (peek(2) != '{' || end == kNothing) return unsupported("\\p without {name}");
    const bool caret = peek(3) == '^';
    const size_t begin = at_ + (caret ? 4 : 3);
    const std::string name = pattern_.substr(begin, end - begin);
    const bool is_script = contains(script_names(), name);
    if (!is_script && !contains(general_categories(), name))
      return unsupported(cat("the property ", name));
    const bool negated = (peek(1) == 'P') != caret;
    at_ = end + 1;
    return cat(negated ? "\\P{" : "\\p{", is_script ? script_property(name) : name, "}");
  }

  // What an escape means inside and outside of a class. Inside, text is a list of members.
  Result<std::string> shared_escape(bool in_class) {
    const char letter = peek(1);
    if (letter == 'x' || letter == 'u') return code_point();
    if (letter == 'p' || letter == 'P') return property();
    at_ += 2;
    if (letter == 'w' && in_class) return std::string(kWordMembers);
    if (letter == 'w') return cat("[", kWordMembers, "]");
    if (letter == 'W' && !in_class) return cat("[^", kWordMembers, "]");
    if (letter == 'h') return std::string(in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]");
    if (letter == 'v') return std::string("\\x0B");
    const bool same = letter != '\0' && (std::string_view("dDsSnrtfae").find(letter) != kNothing ||
                                         !is_alphanumeric(letter));
    if (!same) {
      at_ -= 2;
      return unsupported(cat("\\", std::string(1, letter), in_class ? " inside a class" : ""));
    }
    return cat("\\", std::string(1, letter));
  }

  Status escape() {
    const char letter = peek(1);
    if (letter == 'b' || letter == 'B') {
      const std::string inside = cat("[", kWordMembers, "]");
      put_atom(
          letter == 'b'
              ? cat("(?:(?<=", inside, ")(?!", inside, ")|(?<!", inside, ")(?=", inside, "))")
              : cat("(?:(?<=", inside, ")(?=", inside, ")|(?<!", inside, ")(?!", inside, "))"));
      at_ += 2;
      return ok_status();
    }
    if (letter != '\0' && std::string_view("AzZR123456789").find(letter) != kNothing) {
      put_atom(pattern_.substr(at_, 2));
      at_ += 2;
      return ok_status();
    }
    BRAID_ASSIGN(const std::string text, shared_escape(false));
    put_atom(text);
    return copy_rest_of_character();
  }

  // An escaped character may have more than one byte.
  Status copy_rest_of_character() {
    while (!done() && (static_cast<unsigned char>(peek()) & 0xC0) == 0x80) out_ += pattern_[at_++];
    return ok_status();
  }

  Status character_class() {
    put_atom("[");
    ++at_;
    if (peek() == '^') out_ += pattern_[at_++];
    if (peek() == ']') return unsupported("an empty class");
    while (!done() && peek() != ']') BRAID_TRY(class_member());
    if (done()) return unsupported("an open class");
    out_ += pattern_[at_++];
    return ok_status();
  }

  Status class_member() {
    if (follows("&&")) return unsupported("the class operator &&");
    if (peek() == '[') return unsupported("a class inside a class");
    if (peek() == '\\') {
      BRAID_ASSIGN(const std::string text, shared_escape(true));
      out_ += text;
      return copy_rest_of_character();
    }
    out_ += pattern_[at_++];
    return ok_status();
  }

  const std::string& pattern_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = kNothing;      // where in out_ the last atom begins
  bool quantified_ = false;     // a quantifier follows it already
  bool ignores_case_ = false;   // anywhere: some letters have several characters in other case
  std::vector<size_t> groups_;  // where in out_ the open groups begin
};

}  // namespace

Result<std::string> translate_pattern(const std::string& pattern) {
  return PatternTranslator(pattern).run();
}

}  // namespace braid::inline data
