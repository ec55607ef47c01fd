#include "data/tokenizer/decoder.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/unicode.h"

namespace braid::inline data {
namespace {

using Kind = DecoderStep::Kind;

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of a token in GPT-2's printable characters; a token with any other character is its own
// UTF-8 text.
std::string token_bytes(std::string_view token) {
  std::string bytes;
  for (size_t position = 0; position < token.size();) {
    const int byte = byte_of_character(next_code_point(token, &position));
    if (byte < 0) return std::string(token);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// Moves the decided part of *bytes to the result: characters, and U+FFFD for each maximal broken
// part. An unfinished character at the end stays unless at_end.
std::string take_text(std::string* bytes, bool at_end) {
  std::string text;
  size_t position = 0;
  while (position < bytes->size()) {
    const std::string_view rest = std::string_view(*bytes).substr(position);
    bool complete = false, truncated = false;
    const size_t length = utf8_step(rest, &complete, &truncated);
    if (truncated && !at_end) break;
    text += complete ? rest.substr(0, length) : kReplacementCharacter;
    position += length;
  }
  bytes->erase(0, position);
  return text;
}

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
  if (!std::isxdigit(static_cast<uint8_t>(token[3])) ||
      !std::isxdigit(static_cast<uint8_t>(token[4])))
    return std::nullopt;
  return static_cast<char>(std::stoi(std::string(token.substr(3, 2)), nullptr, 16));
}

bool is_single_character(std::string_view text) {
  return !text.empty() && text.size() == static_cast<size_t>(utf8_length(text[0]));
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

Status parse_replace(const Json& json, DecoderStep* step) {
  step->kind = Kind::kReplace;
  BRAID_ASSIGN(const Json pattern, json_field<Json>(json, "pattern"));
  BRAID_ASSIGN(Regex regex, parse_pattern(pattern));
  step->pattern.push_back(std::move(regex));
  BRAID_ASSIGN(step->content, json_field<std::string>(json, "content"));
  const bool local =
      pattern.contains("String") && is_single_character(pattern["String"].get<std::string>());
  step->needs_all = step->fused_input && !local;
  return ok_status();
}

Status parse_strip(const Json& json, DecoderStep* step) {
  step->kind = Kind::kStrip;
  BRAID_ASSIGN(step->content, json_field<std::string>(json, "content"));
  BRAID_ASSIGN(step->strip_start, json_field_or<size_t>(json, "start", 0));
  BRAID_ASSIGN(step->strip_end, json_field_or<size_t>(json, "stop", 0));
  if (!is_single_character(step->content))
    return invalid_input("Strip: 'content' must be one character");
  return ok_status();
}

Status parse_metaspace(const Json& json, DecoderStep* step) {
  step->kind = Kind::kMetaspace;
  BRAID_ASSIGN(step->content, json_field<std::string>(json, "replacement"));
  BRAID_ASSIGN(const bool add_prefix_space, json_field_or<bool>(json, "add_prefix_space", true));
  BRAID_ASSIGN(const std::string scheme,
               json_field_or<std::string>(json, "prepend_scheme", "always"));
  step->drop_first = add_prefix_space && scheme != "never";
  if (!is_single_character(step->content))
    return invalid_input("Metaspace: 'replacement' must be one character");
  return ok_status();
}

Status parse_word_piece(const Json& json, DecoderStep* step) {
  step->kind = Kind::kWordPiece;
  BRAID_ASSIGN(step->content, json_field_or<std::string>(json, "prefix", "##"));
  BRAID_ASSIGN(step->tidy, json_field_or<bool>(json, "cleanup", true));
  step->needs_all = step->fused_input;
  return ok_status();
}

std::string with_replacements(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// The reference's clean-up of English, one replacement after another (decoders/wordpiece.rs).
std::string tidied(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kReplacements[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kReplacements) text = with_replacements(std::move(text), from, to);
  return text;
}

// Fills everything of a step but fused_input, which is set already.
Status parse_step(const Json& json, const std::string& type, DecoderStep* step) {
  if (type == "Replace") return parse_replace(json, step);
  if (type == "Strip") return parse_strip(json, step);
  if (type == "Metaspace") return parse_metaspace(json, step);
  if (type == "WordPiece") return parse_word_piece(json, step);
  if (type == "Fuse") {
    step->kind = Kind::kFuse;
  } else if (type == "ByteLevel") {
    step->kind = Kind::kByteLevel;
    step->needs_all = step->fused_input;
  } else if (type == "ByteFallback") {
    step->kind = Kind::kByteFallback;
    step->needs_all = step->fused_input;
  } else {
    return invalid_input(
        cat("type '", type,
            "' is not supported (Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, "
            "Metaspace and WordPiece are)"));
  }
  return ok_status();
}

Status collect_steps(const Json& json, bool* fused, TokenDecoder* decoder) {
  BRAID_ASSIGN(const std::string type, json_field<std::string>(json, "type"));
  if (type == "Sequence") {
    BRAID_ASSIGN(const Json members, json_field<Json>(json, "decoders"));
    for (const Json& member : members) BRAID_TRY(collect_steps(member, fused, decoder));
    return ok_status();
  }
  DecoderStep step;
  step.fused_input = *fused;
  BRAID_TRY(parse_step(json, type, &step));
  *fused = *fused || step.kind == Kind::kFuse || step.kind == Kind::kByteLevel;
  decoder->steps.push_back(std::move(step));
  return ok_status();
}

}  // namespace

Result<TokenDecoder> parse_decoder(const Json& json) {
  TokenDecoder decoder;
  if (json.is_null()) {
    DecoderStep step;
    step.kind = Kind::kJoinWithSpaces;
    decoder.steps.push_back(step);
    return decoder;
  }
  bool fused = false;
  BRAID_TRY(collect_steps(json, &fused, &decoder).at("decoder"));
  return decoder;
}

DecodeStream::DecodeStream(const TokenDecoder& decoder)
    : decoder_(decoder), states_(decoder.steps.size()) {}

Result<std::string> DecodeStream::push(std::string_view token) {
  out_.clear();
  BRAID_TRY(feed(0, token));
  return out_;
}

Result<std::string> DecodeStream::finish() {
  out_.clear();
  for (size_t step = 0; step < states_.size(); ++step) BRAID_TRY(flush(step));
  return out_;
}

Status DecodeStream::feed(size_t step, std::string_view token) {
  if (step == states_.size()) {
    out_ += token;
    return ok_status();
  }
  if (!decoder_.steps[step].needs_all) return apply(step, token);
  states_[step].pending += token;
  return ok_status();
}

Status DecodeStream::apply(size_t step, std::string_view token) {
  const DecoderStep& config = decoder_.steps[step];
  switch (config.kind) {
    case Kind::kJoinWithSpaces:
      if (states_[step].count++ > 0) BRAID_TRY(feed(step + 1, " "));
      return feed(step + 1, token);
    case Kind::kByteLevel:
      return decode_bytes(step, token);
    case Kind::kByteFallback:
      return decode_fallback(step, token);
    case Kind::kFuse:
      return feed(step + 1, token);
    case Kind::kReplace: {
      BRAID_ASSIGN(const std::string text, replace_all(config.pattern[0], token, config.content));
      return feed(step + 1, text);
    }
    case Kind::kStrip:
      return config.fused_input ? strip_part(step, token) : strip_token(step, token);
    case Kind::kMetaspace:
      return replace_marks(step, token);
    case Kind::kWordPiece:
      return join_pieces(step, token);
  }
  return ok_status();
}

Status DecodeStream::flush(size_t step) {
  State& state = states_[step];
  const DecoderStep& config = decoder_.steps[step];
  if (config.needs_all) {
    const std::string all = std::move(state.pending);
    state.pending.clear();
    BRAID_TRY(apply(step, all));
  }
  if (config.kind == Kind::kByteLevel) return feed(step + 1, take_text(&state.pending, true));
  if (config.kind == Kind::kByteFallback) return end_byte_run(step);
  return ok_status();  // what kStrip holds back at the end is what it strips
}

Status DecodeStream::decode_bytes(size_t step, std::string_view token) {
  std::string& pending = states_[step].pending;
  pending += token_bytes(token);
  return feed(step + 1, take_text(&pending, false));
}

Status DecodeStream::decode_fallback(size_t step, std::string_view token) {
  if (const auto byte = fallback_byte(token)) {
    states_[step].pending += *byte;
    return ok_status();
  }
  BRAID_TRY(end_byte_run(step));
  return feed(step + 1, token);
}

// A run of byte tokens is one text, or U+FFFD for each byte when any of it is broken: nothing of it
// is certain before its end.
Status DecodeStream::end_byte_run(size_t step) {
  const std::string run = std::move(states_[step].pending);
  states_[step].pending.clear();
  if (run.empty()) return ok_status();
  if (find_invalid_utf8(run) == std::string_view::npos) return feed(step + 1, run);
  for (size_t i = 0; i < run.size(); ++i) BRAID_TRY(feed(step + 1, kReplacementCharacter));
  return ok_status();
}

Status DecodeStream::strip_token(size_t step, std::string_view token) {
  const DecoderStep& config = decoder_.steps[step];
  for (size_t i = 0; i < config.strip_start && starts_with(token, config.content); ++i)
    token.remove_prefix(config.content.size());
  for (size_t i = 0; i < config.strip_end && ends_with(token, config.content); ++i)
    token.remove_suffix(config.content.size());
  return feed(step + 1, token);
}

Status DecodeStream::strip_part(size_t step, std::string_view part) {
  const DecoderStep& config = decoder_.steps[step];
  State& state = states_[step];
  while (state.open && state.count < config.strip_start && starts_with(part, config.content)) {
    part.remove_prefix(config.content.size());
    ++state.count;
  }
  if (part.empty()) return ok_status();
  state.open = false;
  if (config.strip_end == 0) return feed(step + 1, part);
  std::string text = std::move(state.pending) + std::string(part);
  size_t kept = text.size();
  for (size_t i = 0; i < config.strip_end; ++i)
    if (ends_with(std::string_view(text).substr(0, kept), config.content))
      kept -= config.content.size();
  state.pending = text.substr(kept);
  return feed(step + 1, std::string_view(text).substr(0, kept));
}

Status DecodeStream::join_pieces(size_t step, std::string_view token) {
  const DecoderStep& config = decoder_.steps[step];
  std::string text(token);
  if (states_[step].count++ > 0)
    text = starts_with(token, config.content) ? text.substr(config.content.size()) : " " + text;
  return feed(step + 1, config.tidy ? tidied(std::move(text)) : text);
}

Status DecodeStream::replace_marks(size_t step, std::string_view token) {
  const DecoderStep& config = decoder_.steps[step];
  const bool is_first = config.fused_input || states_[step].count++ == 0;
  std::string text;
  for (size_t position = 0; position < token.size();) {
    const std::string_view rest = token.substr(position);
    if (starts_with(rest, config.content)) {
      if (!is_first || !config.drop_first) text += ' ';
      position += config.content.size();
    } else {
      text += rest[0];
      ++position;
    }
  }
  return feed(step + 1, text);
}

}  // namespace braid::inline data
