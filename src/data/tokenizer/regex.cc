#include "data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/text.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/unicode.h"

namespace braid::inline data {
namespace {

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

}  // namespace

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
  // Oniguruma's ^ and $ stand for the borders of lines, which only \n ends.
  return build("(*LF)" + translated, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE);
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
  if (text.empty()) return ok_status();
  size_t previous_end = 0;                     // what out covers so far
  size_t last_match = std::string_view::npos;  // where the last match ended
  size_t position = 0;
  while (position <= subject.size()) {
    const int found = pcre2_match(code, bytes, subject.size(), position, PCRE2_NO_UTF_CHECK,
                                  scratch.data, scratch.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) return invalid_input(cat("pre-tokenizer pattern: ", pcre_message(found)));
    const size_t begin = bounds[0], end = bounds[1];
    if (begin == end && end == last_match) {  // an empty match right behind another does not count
      position +=
          position < subject.size() ? utf8_length(static_cast<uint8_t>(subject[position])) : 1;
      continue;
    }
    position = last_match = end;
    if (begin > previous_end) out->push_back({previous_end, begin, false});
    out->push_back({begin, end, true});
    previous_end = end;
  }
  if (previous_end < subject.size()) out->push_back({previous_end, subject.size(), false});
  return ok_status();
}

}  // namespace braid::inline data
