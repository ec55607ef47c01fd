#include "data/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "data/tokenizer/bert_unicode.h"
#include "data/tokenizer/unicode.h"

namespace braid::inline data {
namespace {

constexpr int kStable = UTF8PROC_STABLE;

Status append_form(std::string_view text, int options, std::string* out) {
  if (text.empty()) return ok_status();
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 text.size(), &mapped, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owned(mapped, std::free);
  if (size < 0) return invalid_input(cat("Unicode normalization: ", utf8proc_errmsg(size)));
  out->append(reinterpret_cast<const char*>(mapped), size);
  return ok_status();
}

// Code points that the reference leaves alone are borders: nothing composes or reorders across
// them.
Result<std::string> unicode_form(std::string_view text, int options) {
  const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return std::string(text);
  std::string out;
  size_t done = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    if (!is_inert_in_normalization(next_code_point(text, &position))) continue;
    BRAID_TRY(append_form(text.substr(done, start - done), options, &out));
    out.append(text.substr(start, position - start));
    done = position;
  }
  BRAID_TRY(append_form(text.substr(done), options, &out));
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, &position);
    if (c == 0x130)
      out += "i\xCC\x87";  // the one letter whose lower case is two code points
    else
      append_utf8(to_lower(c), &out);
  }
  return out;
}

std::string_view strip(std::string_view text, const StripSpace& sides) {
  size_t first = text.size(), last = 0;  // around what is not white space
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    if (is_white_space(next_code_point(text, &position))) continue;
    first = std::min(first, start);
    last = position;
  }
  if (last == 0) return sides.left || sides.right ? std::string_view() : text;
  const size_t begin = sides.left ? first : 0;
  return text.substr(begin, (sides.right ? last : text.size()) - begin);
}

// The text without the characters that `drop` says.
template <typename Drop>
std::string without(std::string_view text, Drop drop) {
  std::string out;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    if (!drop(next_code_point(text, &position))) out += text.substr(start, position - start);
  }
  return out;
}

std::string clean_for_bert(std::string_view text, const CleanForBert& step) {
  std::string out;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const char32_t c = next_code_point(text, &position);
    if (step.clean_text && is_bert_control(c)) continue;
    const bool apart = step.separate_ideographs && is_bert_ideograph(c);
    const bool blank = step.clean_text && is_bert_blank(c);
    if (apart) out += ' ';
    out += blank ? " " : text.substr(start, position - start);
    if (apart) out += ' ';
  }
  return out;
}

// normalizers/unicode.rs of the reference.
bool nmt_drops(char32_t c) {
  return (c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
         c == 0x9F;
}

bool nmt_makes_blank(char32_t c) {
  return c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
         c == 0xFFFD;
}

std::string clean_for_nmt(std::string_view text) {
  std::string out;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const char32_t c = next_code_point(text, &position);
    if (nmt_drops(c)) continue;
    out += nmt_makes_blank(c) ? " " : text.substr(start, position - start);
  }
  return out;
}

struct ApplyNormalizerStep {
  std::string_view text;

  Result<std::string> operator()(const DropMarks&) const {
    return without(text, is_combining_mark);
  }
  Result<std::string> operator()(const CleanForBert& step) const {
    const std::string cleaned = clean_for_bert(text, step);
    if (!step.strip_accents) return cleaned;
    BRAID_ASSIGN(const std::string apart, unicode_form(cleaned, kStable | UTF8PROC_DECOMPOSE));
    return without(apart, is_bert_accent);
  }
  Result<std::string> operator()(const CleanForNmt&) const { return clean_for_nmt(text); }
  Result<std::string> operator()(const CharsMap& map) const { return map.apply(text); }

  Result<std::string> operator()(const PrependText& step) const {
    return text.empty() ? std::string() : step.text + std::string(text);
  }
  Result<std::string> operator()(const ReplacePattern& step) const {
    return replace_all(step.pattern, text, step.content);
  }
  Result<std::string> operator()(const UnicodeForm& step) const {
    return unicode_form(text, step.options);
  }
  Result<std::string> operator()(const LowercaseText&) const { return lowercase(text); }
  Result<std::string> operator()(const StripSpace& step) const {
    return std::string(strip(text, step));
  }
};

const std::vector<std::pair<std::string, int>>& unicode_forms() {
  static const std::vector<std::pair<std::string, int>> forms = {
      {"NFC", kStable | UTF8PROC_COMPOSE},
      {"NFD", kStable | UTF8PROC_DECOMPOSE},
      {"NFKC", kStable | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
      {"NFKD", kStable | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  return forms;
}

Result<NormalizerStep> parse_replace(const Json& json) {
  BRAID_ASSIGN(const Json pattern, json_field<Json>(json, "pattern"));
  BRAID_ASSIGN(Regex regex, parse_pattern(pattern));
  BRAID_ASSIGN(std::string content, json_field<std::string>(json, "content"));
  return NormalizerStep(ReplacePattern{std::move(regex), std::move(content)});
}

Result<NormalizerStep> parse_charsmap(const Json& json) {
  BRAID_ASSIGN(const std::string text,
               json_field_or<std::string>(json, "precompiled_charsmap", ""));
  BRAID_ASSIGN(CharsMap map, CharsMap::parse(text));
  return NormalizerStep(std::move(map));
}

// Lower case is a step of its own behind the others.
Status add_bert_steps(const Json& json, std::vector<NormalizerStep>* steps) {
  CleanForBert step{};
  BRAID_ASSIGN(step.clean_text, json_field_or<bool>(json, "clean_text", true));
  BRAID_ASSIGN(step.separate_ideographs, json_field_or<bool>(json, "handle_chinese_chars", true));
  BRAID_ASSIGN(const bool lowercase, json_field_or<bool>(json, "lowercase", true));
  BRAID_ASSIGN(step.strip_accents, json_field_or<bool>(json, "strip_accents", lowercase));
  steps->push_back(step);
  if (lowercase) steps->push_back(LowercaseText{});
  return ok_status();
}

Result<NormalizerStep> parse_step(const Json& json, const std::string& type) {
  for (const auto& form : unicode_forms())
    if (type == form.first) return NormalizerStep(UnicodeForm{form.second});
  if (type == "Lowercase") return NormalizerStep(LowercaseText{});
  if (type == "StripAccents") return NormalizerStep(DropMarks{});
  if (type == "Nmt") return NormalizerStep(CleanForNmt{});
  if (type == "Precompiled") return parse_charsmap(json);
  if (type == "Replace") return parse_replace(json);
  if (type == "Prepend") {
    BRAID_ASSIGN(std::string text, json_field<std::string>(json, "prepend"));
    return NormalizerStep(PrependText{std::move(text)});
  }
  if (type == "Strip") {
    BRAID_ASSIGN(const bool left, json_field_or<bool>(json, "strip_left", true));
    BRAID_ASSIGN(const bool right, json_field_or<bool>(json, "strip_right", true));
    return NormalizerStep(StripSpace{left, right});
  }
  return invalid_input(
      cat("type '", type,
          "' is not supported (Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip, "
          "StripAccents, Nmt, Precompiled and BertNormalizer are)"));
}

Status collect_steps(const Json& json, std::vector<NormalizerStep>* steps) {
  BRAID_ASSIGN(const std::string type, json_field<std::string>(json, "type"));
  if (type == "Sequence") {
    BRAID_ASSIGN(const Json members, json_field<Json>(json, "normalizers"));
    for (const Json& member : members) BRAID_TRY(collect_steps(member, steps));
    return ok_status();
  }
  if (type == "BertNormalizer") return add_bert_steps(json, steps);
  BRAID_ASSIGN(NormalizerStep step, parse_step(json, type));
  steps->push_back(std::move(step));
  return ok_status();
}

}  // namespace

Result<Regex> parse_pattern(const Json& json) {
  if (json.is_object() && json.contains("String")) {
    BRAID_ASSIGN(const std::string text, json_field<std::string>(json, "String"));
    return Regex::literal(text);
  }
  if (json.is_object() && json.contains("Regex")) {
    BRAID_ASSIGN(const std::string pattern, json_field<std::string>(json, "Regex"));
    return Regex::compile(pattern);
  }
  return invalid_input("a pattern must be {\"String\": text} or {\"Regex\": pattern}");
}

Result<std::string> replace_all(const Regex& pattern, std::string_view text,
                                std::string_view content) {
  std::vector<TextSpan> spans;
  BRAID_TRY(pattern.find_all(text, &spans));
  std::string out;
  out.reserve(text.size());
  for (const TextSpan& span : spans)
    out += span.is_match ? content : text.substr(span.begin, span.end - span.begin);
  return out;
}

Result<Normalizer> Normalizer::parse(const Json& json) {
  Normalizer normalizer;
  if (json.is_null()) return normalizer;
  BRAID_TRY(collect_steps(json, &normalizer.steps_).at("normalizer"));
  return normalizer;
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string current(text);
  for (const NormalizerStep& step : steps_) {
    BRAID_ASSIGN(current, std::visit(ApplyNormalizerStep{current}, step));
  }
  return current;
}

}  // namespace braid::inline data
