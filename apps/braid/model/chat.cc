// braid chat: a conversation with a model, a line of the standard input for each turn.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "base/text.h"
#include "braid/engine_options.h"
#include "braid/model/generator.h"
#include "data/chat/render.h"
#include "host/hub_cache.h"

namespace braid {
namespace {

constexpr const char* kHelp =
    "a line is what you say; /reset begins a new conversation, /exit or the end of the input ends";

class Chat {
 public:
  Chat(const Generator& generator, const ChatArguments& arguments)
      : generator_(generator), arguments_(arguments) {
    reset();
  }

  void reset() {
    messages_ = OrderedJson::array();
    if (!arguments_.system.empty()) add("system", arguments_.system);
  }

  // One turn of either side. The seed of each response is its own.
  Status say(const std::string& text) {
    add("user", text);
    ChatOptions options;
    options.add_generation_prompt = true;
    options.date = arguments_.generate.template_date;
    BRAID_ASSIGN(ChatIds chat, encode_chat(*generator_.tokenizer,
                                           {messages_, OrderedJson(), OrderedJson()}, options));
    BRAID_ASSIGN(const std::unique_ptr<Engine> engine,
                 Engine::create(*generator_.model, engine_of(arguments_.generate)));
    Request request;
    request.sample = SampleId{turn_++};
    request.sampling = generator_.sampling;
    request.prompt_ids = std::move(chat.ids);
    BRAID_TRY(fit(request));
    BRAID_TRY(engine->submit(std::move(request)).at(cat("turn ", turn_)));
    BRAID_ASSIGN(const Generated answer, stream_response(*engine, generator_, arguments_.generate));
    BRAID_ASSIGN(const std::string said, text_of(generator_, arguments_.generate, answer));
    add("assistant", said);
    return ok_status();
  }

 private:
  // An answer ends where the model's positions do.
  Status fit(Request& request) const {
    const int64_t positions = generator_.model->spec().max_positions;
    const int64_t left = positions - static_cast<int64_t>(request.prompt_ids.size());
    if (positions <= 0 || left >= request.sampling.max_new_tokens) return ok_status();
    if (left < 1)
      return invalid_input(cat("turn ", turn_, ": the conversation has ", request.prompt_ids.size(),
                               " tokens, and the model ", positions,
                               " positions; begin a new one (/reset)"));
    request.sampling.max_new_tokens = left;
    return ok_status();
  }
  void add(const char* role, const std::string& text) {
    messages_.push_back({{"role", role}, {"content", text}});
  }

  const Generator& generator_;
  const ChatArguments& arguments_;
  OrderedJson messages_;
  int64_t turn_ = 0;
};

Status check_chat_model(const Generator& generator, const std::string& folder) {
  if (!generator.tokenizer)
    return invalid_input(cat(folder, ": has no tokenizer.json, so there is no text to chat in"));
  OrderedJson messages = OrderedJson::array();
  messages.push_back({{"role", "user"}, {"content", "hi"}});
  ChatOptions options;
  options.add_generation_prompt = true;
  const auto rendered =
      render_chat(*generator.tokenizer, {messages, OrderedJson(), OrderedJson()}, options);
  return rendered.status().at(
      cat(folder, ": no chat; 'braid generate MODEL --prompt TEXT' goes on with a plain text"));
}

Status run_chat(const ChatArguments& arguments) {
  const GenerateOptions& options = arguments.generate;
  if (options.threads > 0) at::set_num_threads(options.threads);
  if (std::count(options.stop.begin(), options.stop.end(), "") > 0)
    return invalid_input("--stop: the text is empty");
  BRAID_ASSIGN(const Generator generator, open_generator(options));
  BRAID_TRY(check_chat_model(generator, options.model));
  Chat chat(generator, arguments);
  const bool person = ::isatty(STDIN_FILENO) != 0;
  if (person) std::fprintf(stderr, "%s\n", kHelp);
  std::string line;
  while (true) {
    if (person) std::fprintf(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    line = trim(line);
    if (line.empty()) continue;
    if (line == "/exit" || line == "/quit") break;
    if (line == "/help") {
      std::fprintf(stderr, "%s\n", kHelp);
      continue;
    }
    if (line == "/reset") {
      chat.reset();
      continue;
    }
    BRAID_TRY(chat.say(line));
  }
  return ok_status();
}

}  // namespace

extern const Command kChatCommand =
    kChat.with([](ChatArguments arguments, const std::vector<std::string>&) -> Status {
      BRAID_ASSIGN(arguments.generate.model, locate_model(arguments.generate.model));
      arguments.generate.max_concurrent = 1;
      return run_chat(arguments);
    });

}  // namespace braid
