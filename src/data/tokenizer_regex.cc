#include "data/tokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/text.h"
#include "data/tokenizer_unicode.h"

namespace braid {
namespace {

// What \w means in Oniguruma and in Unicode's recommendation, as members of a character class.
constexpr char kWordMembers[] =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}\\x{24B6}-\\x{24E9}"
    "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";

// Long runs need more than the 32 KiB that the compiled matcher takes from the machine stack.
constexpr size_t kMatcherStackStartBytes = 64 << 10;
constexpr size_t kMatcherStackLimitBytes = 16 << 20;

struct MatchScratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack =
      pcre2_jit_stack_create(kMatcherStackStartBytes, kMatcherStackLimitBytes, nullptr);
  std::string shadow;

  MatchScratch() { pcre2_jit_stack_assign(context, nullptr, stack); }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
  ~MatchScratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

MatchScratch& match_scratch() {
  thread_local MatchScratch scratch;
  return scratch;
}

std::string pcre_message(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

Status unsupported(const std::string& pattern, const std::string& what) {
  return invalid_input(cat("regular expression ", pattern, ": ", what, " is not supported"));
}

// \p{Name} with a script name means the script itself; PCRE2 10.40 and later take it for the
// script extensions unless told otherwise.
std::string translate_property(const std::string& name) {
#if PCRE2_MAJOR == 10 && PCRE2_MINOR < 40
  return name;
#else
  const size_t start = !name.empty() && name[0] == '^' ? 1 : 0;
  const bool is_script = name.size() - start > 2 && name.substr(start) != "Any" &&
                         name.find(':') == std::string::npos && name.find('=') == std::string::npos;
  return is_script ? cat(name.substr(0, start), "sc:", name.substr(start)) : name;
#endif
}

class PatternTranslator {
 public:
  explicit PatternTranslator(const std::string& pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) BRAID_TRY(step());
    return out_;
  }

 private:
  bool follows(std::string_view text) const {
    return pattern_.compare(at_, text.size(), text) == 0;
  }

  Status step() {
    if (pattern_[at_] == '\\' && at_ + 1 < pattern_.size()) return escape();
    if (follows("&&") && class_depth_ > 0) return unsupported(pattern_, "the class operator &&");
    if (follows("}+")) return unsupported(pattern_, "a repeated {n,m} followed by +");
    if (class_depth_ > 0 && follows("[:")) return copy_posix_class();
    if (pattern_[at_] == '[' && class_depth_ > 0) return unsupported(pattern_, "a nested class");
    if (pattern_[at_] == '[') ++class_depth_;
    if (pattern_[at_] == ']' && class_depth_ > 0) --class_depth_;
    out_ += pattern_[at_++];
    return ok_status();
  }

  Status copy_posix_class() {
    const size_t end = pattern_.find(":]", at_);
    if (end == std::string::npos) return unsupported(pattern_, "an unclosed [: class");
    out_.append(pattern_, at_, end + 2 - at_);
    at_ = end + 2;
    return ok_status();
  }

  Status escape() {
    const char letter = pattern_[at_ + 1];
    const std::string shown = cat("\\", std::string(1, letter));
    if (std::string_view("hHbBRXKG").find(letter) != std::string_view::npos && letter != 'R')
      return unsupported(pattern_, shown);
    if (letter == 'W' && class_depth_ > 0) return unsupported(pattern_, "\\W inside a class");
    if ((letter == 'p' || letter == 'P') && at_ + 2 < pattern_.size() && pattern_[at_ + 2] == '{')
      return property(letter);
    if (letter == 'w')
      out_ += class_depth_ > 0 ? std::string(kWordMembers) : cat("[", kWordMembers, "]");
    else if (letter == 'W')
      out_ += cat("[^", kWordMembers, "]");
    else
      out_ += shown;
    at_ += 2;
    return ok_status();
  }

  Status property(char letter) {
    const size_t end = pattern_.find('}', at_);
    if (end == std::string::npos) return unsupported(pattern_, "an unclosed \\p{");
    const std::string name = pattern_.substr(at_ + 3, end - at_ - 3);
    out_ += cat("\\", std::string(1, letter), "{", translate_property(name), "}");
    at_ = end + 1;
    // The brace closes a property, so a + behind it repeats the property.
    if (at_ < pattern_.size() && pattern_[at_] == '+') out_ += pattern_[at_++];
    return ok_status();
  }

  const std::string& pattern_;
  size_t at_ = 0;
  int class_depth_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> translate_pattern(const std::string& pattern) {
  return PatternTranslator(pattern).run();
}

Result<Regex> Regex::build(const std::string& pattern, unsigned options) {
  int error = 0;
  size_t offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   options, &error, &offset, nullptr);
  if (code == nullptr)
    return invalid_input(
        cat("regular expression ", pattern, ": ", pcre_message(error), " at offset ", offset));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it matching is slower, not different
  Regex regex;
  regex.code_ = std::shared_ptr<void>(
      code, [](void* owned) { pcre2_code_free(static_cast<pcre2_code*>(owned)); });
  regex.is_literal_ = (options & PCRE2_LITERAL) != 0;
  return regex;
}

Result<Regex> Regex::compile(const std::string& pattern) {
  BRAID_ASSIGN(const std::string translated, translate_pattern(pattern));
  // Oniguruma's ^ and $ stand for the borders of lines.
  return build(translated, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE);
}

Result<Regex> Regex::literal(const std::string& text) {
  if (text.empty()) return invalid_input("a text to find must not be empty");
  return build(text, PCRE2_UTF | PCRE2_LITERAL);
}

Status Regex::find_all(std::string_view text, std::vector<TextSpan>* out) const {
  MatchScratch& scratch = match_scratch();
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::string_view subject = is_literal_ ? text : with_current_classes(text, &scratch.shadow);
  const auto* bytes = reinterpret_cast<PCRE2_SPTR>(subject.data());
  const size_t* bounds = pcre2_get_ovector_pointer(scratch.data);
  out->clear();
  size_t previous_end = 0;
  size_t position = 0;
  while (position < subject.size()) {
    const int found = pcre2_match(code, bytes, subject.size(), position, PCRE2_NO_UTF_CHECK,
                                  scratch.data, scratch.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) return invalid_input(cat("pre-tokenizer pattern: ", pcre_message(found)));
    const size_t begin = bounds[0], end = bounds[1];
    position = end;
    if (begin == end) {  // an empty match cuts nothing off
      if (end < subject.size()) position += utf8_length(static_cast<uint8_t>(subject[end]));
      continue;
    }
    if (begin > previous_end) out->push_back({previous_end, begin, false});
    out->push_back({begin, end, true});
    previous_end = end;
  }
  if (previous_end < subject.size()) out->push_back({previous_end, subject.size(), false});
  return ok_status();
}

}  // namespace braid
