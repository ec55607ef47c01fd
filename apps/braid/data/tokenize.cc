// braid tokenize: text or conversations to token ids, and ids to text, line by line. Text gets the
// special tokens of the post-processor; decoding shows every special token unless --skip-special.
#include <cstdio>
#include <memory>

#include "base/json.h"
#include "braid/commands.h"
#include "data/chat/render.h"
#include "data/tokenizer/tokenizer.h"
#include "host/file.h"
#include "host/hub_cache.h"

namespace braid {
namespace {

struct TokenizeOptions {
  std::string model;
  std::string input;
  bool json = false;
  bool decode = false;
  bool skip_special = false;
  bool mask = false;
  std::string arguments;  // of the template, as JSON
  ChatOptions chat;
};

Result<OrderedJson> chat_line(const Tokenizer& tokenizer, const TokenizeOptions& options,
                              const OrderedJson& line) {
  BRAID_ASSIGN(const Conversation conversation, read_conversation(line, "messages"));
  BRAID_ASSIGN(const ChatIds chat,
               options.mask ? encode_chat_with_mask(tokenizer, conversation, options.chat,
                                                    LearnedTurns::kAssistant)
                            : encode_chat(tokenizer, conversation, options.chat));
  OrderedJson out = {{"text", chat.text}, {"ids", chat.ids}};
  if (options.mask) out["assistant"] = chat.learned;
  return out;
}

Result<OrderedJson> ids_line(const Tokenizer& tokenizer, const TokenizeOptions& options,
                             const OrderedJson& line) {
  if (line.contains("messages")) return chat_line(tokenizer, options, line);
  BRAID_ASSIGN(const std::string text, json_field<std::string>(line, "text"));
  BRAID_ASSIGN(const std::vector<int32_t> ids, tokenizer.encode(text, true));
  return OrderedJson{{"ids", ids}};
}

Result<std::string> encode_line(const Tokenizer& tokenizer, const TokenizeOptions& options,
                                const OrderedJson& line) {
  BRAID_ASSIGN(const OrderedJson encoded, ids_line(tokenizer, options, line));
  if (options.json) return encoded.dump();
  const auto ids = encoded.at("ids").get<std::vector<int32_t>>();
  std::string out;
  for (const int32_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out;
}

// Unlike a model with a padded vocabulary, a person who writes an id means a token.
Status check_id(const Tokenizer& tokenizer, const OrderedJson& id) {
  if (!id.is_number_integer()) return invalid_input(cat("token id ", id.dump(), " is no integer"));
  const int64_t value =
      id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX ? INT32_MAX : id.get<int64_t>();
  if (value < 0 || value >= tokenizer.vocab_size())
    return invalid_input(cat("token id ", id.dump(), " is outside the vocabulary of ",
                             tokenizer.vocab_size(), " tokens"));
  return ok_status();
}

Result<std::string> decode_line(const Tokenizer& tokenizer, const TokenizeOptions& options,
                                const OrderedJson& line) {
  BRAID_ASSIGN(const OrderedJson ids, json_field<OrderedJson>(line, "ids"));
  if (!ids.is_array()) return invalid_input("key 'ids' must be an array of token ids");
  for (const OrderedJson& id : ids) BRAID_TRY(check_id(tokenizer, id));
  BRAID_ASSIGN(std::string text,
               tokenizer.decode(ids.get<std::vector<int32_t>>(), options.skip_special));
  return options.json ? Json::object({{"text", text}}).dump() : text;
}

Result<std::string> convert_line(const Tokenizer& tokenizer, const TokenizeOptions& options,
                                 std::string_view line, const std::string& where) {
  BRAID_ASSIGN(const OrderedJson parsed, parse_ordered_json(line, where));
  if (!parsed.is_object()) return invalid_input(cat(where, ": must be a JSON object"));
  return (options.decode ? decode_line(tokenizer, options, parsed)
                         : encode_line(tokenizer, options, parsed))
      .at(where);
}

// Blank lines give no output.
Status run_tokenize(TokenizeOptions options) {
  if (!options.arguments.empty()) {
    BRAID_ASSIGN(options.chat.arguments, parse_ordered_json(options.arguments, "--template"));
    if (!options.chat.arguments.is_object())
      return invalid_input("--template: must be a JSON object of names and values");
  }
  BRAID_ASSIGN(const Tokenizer tokenizer, load_tokenizer(options.model));
  BRAID_ASSIGN(const std::string text, read_file(options.input));
  const std::string name = options.input == "-" ? "standard input" : options.input;
  int64_t line_number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++line_number;
    if (trim(line).empty()) continue;
    BRAID_ASSIGN(const std::string out,
                 convert_line(tokenizer, options, line, cat(name, ":", line_number)));
    std::fwrite(out.data(), 1, out.size(), stdout);  // the text may hold a NUL
    std::putchar('\n');
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return io_error("standard output could not be written");
  return ok_status();
}

Action define_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  app.add_option("MODEL", options->model, "folder with a tokenizer.json, or the file")->required();
  app.add_option("--input", options->input,
                 "JSON lines {\"text\": ...} or {\"messages\": [...], \"tools\": ..., "
                 "\"documents\": ...}; - is standard input")
      ->required();
  app.add_flag("--json", options->json, "write JSON lines instead of plain text");
  app.add_flag("--decode", options->decode, "read {\"ids\": [...]} and write the text");
  app.add_flag("--skip-special", options->skip_special, "leave special tokens out of the text")
      ->needs("--decode");
  ChatOptions& chat = options->chat;
  app.add_flag("--add-generation-prompt", chat.add_generation_prompt,
               "end messages with the beginning of the assistant's turn");
  app.add_flag("--continue-final-message", chat.continue_final_message,
               "end inside of the last message");
  app.add_option("--template", options->arguments,
                 "arguments of the chat template as JSON, such as '{\"enable_thinking\": false}'");
  app.add_option("--template-name", chat.template_name, "which of several chat templates");
  app.add_option("--template-date", chat.date, "YYYY-MM-DD that chat templates see as today");
  app.add_flag("--mask", options->mask, "with --json: which tokens the assistant says")
      ->needs("--json");
  return [options]() -> Status {
    BRAID_ASSIGN(options->model, locate_model(options->model));
    return run_tokenize(*options);
  };
}

}  // namespace

extern const Command kTokenizeCommand{
    "tokenize", "convert text to token ids and back (docs/tokenizer.md)", define_tokenize};

}  // namespace braid
