#include "data/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/tokenizer/bert_unicode.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/unicode.h"

namespace braid::inline data {
namespace {

// The pattern of GPT-2 (Radford et al. 2019, encoder.py).
constexpr char kGpt2Pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// Numbers of Unicode 17, which the reference knows here and PCRE2 does not.
constexpr char kNumericPattern[] = "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]";

constexpr char kRustWordMembers[] =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}"
    "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";

constexpr char32_t kFirstUnprintableStandIn = 0x100;

bool is_printable_byte(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// A match that follows no other match joins the piece before it (in the order of the visit).
void merge_matches(const std::vector<TextSpan>& spans, bool backwards,
                   std::vector<TextSpan>* cuts) {
  bool previous_match = false;
  for (size_t i = 0; i < spans.size(); ++i) {
    const TextSpan& span = spans[backwards ? spans.size() - 1 - i : i];
    if (span.is_match && !previous_match && !cuts->empty()) {
      cuts->back().begin = std::min(cuts->back().begin, span.begin);
      cuts->back().end = std::max(cuts->back().end, span.end);
    } else {
      cuts->push_back(span);
    }
    previous_match = span.is_match;
  }
  if (backwards) std::reverse(cuts->begin(), cuts->end());
}

void merge_contiguous(const std::vector<TextSpan>& spans, std::vector<TextSpan>* cuts) {
  for (const TextSpan& span : spans) {
    if (!cuts->empty() && cuts->back().is_match == span.is_match)
      cuts->back().end = span.end;
    else
      cuts->push_back(span);
  }
}

void cut(const std::vector<TextSpan>& spans, SplitBehavior behavior, std::vector<TextSpan>* cuts) {
  cuts->clear();
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const TextSpan& span : spans)
        if (!span.is_match) cuts->push_back(span);
      return;
    case SplitBehavior::kIsolated:
      *cuts = spans;
      return;
    case SplitBehavior::kMergedWithPrevious:
      return merge_matches(spans, false, cuts);
    case SplitBehavior::kMergedWithNext:
      return merge_matches(spans, true, cuts);
    case SplitBehavior::kContiguous:
      return merge_contiguous(spans, cuts);
  }
}

// Cuts every piece that is no token where find(text, &spans) finds delimiters.
template <typename Find>
Status cut_pieces(Pieces* pieces, SplitBehavior behavior, Find find) {
  std::vector<Piece> items;
  items.reserve(pieces->text.size() / 4 + 4);
  std::vector<TextSpan> spans, cuts;
  for (const Piece& piece : pieces->items) {
    if (piece.is_token()) {
      items.push_back(piece);
      continue;
    }
    BRAID_TRY(find(pieces->view(piece), &spans));
    cut(spans, behavior, &cuts);
    for (const TextSpan& span : cuts)
      if (span.end > span.begin)
        items.push_back({piece.begin + span.begin, piece.begin + span.end, -1,
                         piece.at_start && span.begin == 0});
  }
  pieces->items = std::move(items);
  return ok_status();
}

Status split_pieces(const SplitStep& step, Pieces* pieces) {
  return cut_pieces(pieces, step.behavior,
                    [&](std::string_view text, std::vector<TextSpan>* spans) {
                      BRAID_TRY(step.pattern.find_all(text, spans));
                      if (step.invert)
                        for (TextSpan& span : *spans) span.is_match = !span.is_match;
                      return ok_status();
                    });
}

// Every delimiter is a match of its own.
Status find_characters(std::string_view text, bool (*is_delimiter)(char32_t),
                       std::vector<TextSpan>* spans) {
  spans->clear();
  size_t gap = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    if (!is_delimiter(next_code_point(text, &position))) continue;
    if (start > gap) spans->push_back({gap, start, false});
    spans->push_back({start, position, true});
    gap = position;
  }
  if (text.size() > gap) spans->push_back({gap, text.size(), false});
  return ok_status();
}

// Rewrites the text of every piece that is no token by append(piece, &text).
template <typename Append>
void rewrite_pieces(Pieces* pieces, Append append) {
  std::string text;
  text.reserve(pieces->text.size() + pieces->text.size() / 4);
  for (Piece& piece : pieces->items) {
    const size_t begin = text.size();
    if (!piece.is_token()) append(piece, &text);
    piece.begin = begin;
    piece.end = text.size();
  }
  pieces->text = std::move(text);
}

bool wants_prefix(const MetaspaceStep& step, const Piece& piece, std::string_view spaced) {
  if (spaced.substr(0, step.replacement.size()) == step.replacement) return false;
  return step.prepend == MetaspaceStep::Prepend::kAlways ||
         (step.prepend == MetaspaceStep::Prepend::kFirst && piece.at_start);
}

struct ApplyPreTokenizerStep {
  Pieces* pieces;

  Status operator()(const SplitStep& step) const { return split_pieces(step, pieces); }

  Status operator()(const CharacterStep& step) const {
    return cut_pieces(pieces, step.behavior,
                      [&](std::string_view text, std::vector<TextSpan>* spans) {
                        return find_characters(text, step.is_delimiter, spans);
                      });
  }

  Status operator()(const PrefixSpaceStep&) const {
    rewrite_pieces(pieces, [this](const Piece& piece, std::string* text) {
      const std::string_view view = pieces->view(piece);
      if (view.substr(0, 1) != " ") *text += ' ';
      *text += view;
    });
    return ok_status();
  }

  Status operator()(const ByteMapStep&) const {
    const auto& characters = byte_level_characters();
    rewrite_pieces(pieces, [this, &characters](const Piece& piece, std::string* text) {
      for (const char byte : pieces->view(piece)) *text += characters[static_cast<uint8_t>(byte)];
    });
    return ok_status();
  }

  Status operator()(const MetaspaceStep& step) const {
    rewrite_pieces(pieces, [this, &step](const Piece& piece, std::string* text) {
      std::string spaced;
      for (const char c : pieces->view(piece)) c == ' ' ? spaced += step.replacement : spaced += c;
      if (wants_prefix(step, piece, spaced)) *text += step.replacement;
      *text += spaced;
    });
    if (!step.delimiter) return ok_status();
    return split_pieces({*step.delimiter, SplitBehavior::kMergedWithNext, false}, pieces);
  }
};

Result<SplitBehavior> parse_behavior(const std::string& name) {
  static const std::vector<std::pair<std::string, SplitBehavior>> behaviors = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& behavior : behaviors)
    if (behavior.first == name) return behavior.second;
  return invalid_input(cat("split behavior '", name, "' is not supported"));
}

Status add_split(const Json& json, std::vector<PreTokenizerStep>* steps) {
  BRAID_ASSIGN(const Json pattern, json_field<Json>(json, "pattern"));
  BRAID_ASSIGN(Regex regex, parse_pattern(pattern));
  BRAID_ASSIGN(const std::string name, json_field<std::string>(json, "behavior"));
  BRAID_ASSIGN(const SplitBehavior behavior, parse_behavior(name));
  BRAID_ASSIGN(const bool invert, json_field_or<bool>(json, "invert", false));
  steps->push_back(SplitStep{std::move(regex), behavior, invert});
  return ok_status();
}

Status add_regex_split(const std::string& pattern, SplitBehavior behavior,
                       std::vector<PreTokenizerStep>* steps) {
  BRAID_ASSIGN(Regex regex, Regex::compile(pattern));
  steps->push_back(SplitStep{std::move(regex), behavior, false});
  return ok_status();
}

Status add_byte_level(const Json& json, std::vector<PreTokenizerStep>* steps) {
  BRAID_ASSIGN(const bool add_prefix_space, json_field_or<bool>(json, "add_prefix_space", true));
  BRAID_ASSIGN(const bool use_regex, json_field_or<bool>(json, "use_regex", true));
  if (add_prefix_space) steps->push_back(PrefixSpaceStep{});
  if (use_regex) BRAID_TRY(add_regex_split(kGpt2Pattern, SplitBehavior::kIsolated, steps));
  steps->push_back(ByteMapStep{});
  return ok_status();
}

Result<MetaspaceStep::Prepend> parse_prepend(const Json& json) {
  BRAID_ASSIGN(const bool add_prefix_space, json_field_or<bool>(json, "add_prefix_space", true));
  if (!add_prefix_space) return MetaspaceStep::Prepend::kNever;
  BRAID_ASSIGN(const std::string scheme,
               json_field_or<std::string>(json, "prepend_scheme", "always"));
  if (scheme == "always") return MetaspaceStep::Prepend::kAlways;
  if (scheme == "first") return MetaspaceStep::Prepend::kFirst;
  if (scheme == "never") return MetaspaceStep::Prepend::kNever;
  return invalid_input(cat("prepend_scheme '", scheme, "' is none of always, first, never"));
}

Status add_metaspace(const Json& json, std::vector<PreTokenizerStep>* steps) {
  BRAID_ASSIGN(const std::string replacement, json_field<std::string>(json, "replacement"));
  BRAID_ASSIGN(const MetaspaceStep::Prepend prepend, parse_prepend(json));
  BRAID_ASSIGN(const bool split, json_field_or<bool>(json, "split", true));
  MetaspaceStep step{replacement, prepend, std::nullopt};
  if (split) {
    BRAID_ASSIGN(step.delimiter, Regex::literal(replacement));
  }
  steps->push_back(std::move(step));
  return ok_status();
}

Status add_digits(const Json& json, std::vector<PreTokenizerStep>* steps) {
  BRAID_ASSIGN(const bool individual, json_field_or<bool>(json, "individual_digits", false));
  return add_regex_split(kNumericPattern,
                         individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, steps);
}

Status add_punctuation(const Json& json, std::vector<PreTokenizerStep>* steps) {
  BRAID_ASSIGN(const std::string name, json_field_or<std::string>(json, "behavior", "Isolated"));
  BRAID_ASSIGN(const SplitBehavior behavior, parse_behavior(name));
  steps->push_back(CharacterStep{is_bert_punctuation, behavior});
  return ok_status();
}

Status collect_steps(const Json& json, std::vector<PreTokenizerStep>* steps);

Status add_sequence(const Json& json, std::vector<PreTokenizerStep>* steps) {
  BRAID_ASSIGN(const Json members, json_field<Json>(json, "pretokenizers"));
  for (const Json& member : members) BRAID_TRY(collect_steps(member, steps));
  return ok_status();
}

Status collect_steps(const Json& json, std::vector<PreTokenizerStep>* steps) {
  BRAID_ASSIGN(const std::string type, json_field<std::string>(json, "type"));
  if (type == "Sequence") return add_sequence(json, steps);
  if (type == "Split") return add_split(json, steps);
  if (type == "ByteLevel") return add_byte_level(json, steps);
  if (type == "Metaspace") return add_metaspace(json, steps);
  if (type == "Digits") return add_digits(json, steps);
  if (type == "Punctuation") return add_punctuation(json, steps);
  if (type == "BertPreTokenizer") {
    steps->push_back(CharacterStep{is_white_space, SplitBehavior::kRemoved});
    steps->push_back(CharacterStep{is_bert_punctuation, SplitBehavior::kIsolated});
    return ok_status();
  }
  if (type == "WhitespaceSplit") return add_regex_split("\\s", SplitBehavior::kRemoved, steps);
  if (type == "Whitespace") {
    BRAID_TRY(add_regex_split(cat("[", kRustWordMembers, "]+|[^\\s", kRustWordMembers, "]+"),
                              SplitBehavior::kRemoved, steps));
    std::get<SplitStep>(steps->back()).invert = true;
    return ok_status();
  }
  return invalid_input(
      cat("type '", type,
          "' is not supported (Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, "
          "Whitespace, WhitespaceSplit and BertPreTokenizer are)"));
}

}  // namespace

const std::array<std::string, 256>& byte_level_characters() {
  static const auto characters = [] {
    std::array<std::string, 256> table;
    char32_t next = kFirstUnprintableStandIn;
    for (int byte = 0; byte < 256; ++byte)
      append_utf8(is_printable_byte(byte) ? static_cast<char32_t>(byte) : next++, &table[byte]);
    return table;
  }();
  return characters;
}

int byte_of_character(char32_t code_point) {
  static const auto bytes = [] {
    std::array<int, 512> table;
    table.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      size_t position = 0;
      table[next_code_point(byte_level_characters()[byte], &position)] = byte;
    }
    return table;
  }();
  return code_point < bytes.size() ? bytes[code_point] : -1;
}

Result<PreTokenizer> PreTokenizer::parse(const Json& json) {
  PreTokenizer pre_tokenizer;
  if (json.is_null()) return pre_tokenizer;
  BRAID_TRY(collect_steps(json, &pre_tokenizer.steps_).at("pre_tokenizer"));
  return pre_tokenizer;
}

Status PreTokenizer::apply(Pieces* pieces) const {
  for (const PreTokenizerStep& step : steps_)
    BRAID_TRY(std::visit(ApplyPreTokenizerStep{pieces}, step));
  return ok_status();
}

}  // namespace braid::inline data
