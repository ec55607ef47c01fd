// braid generate: responses to one prompt, streamed, or to a file of prompts.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "base/json.h"
#include "braid/engine_options.h"
#include "braid/model/generator.h"
#include "data/chat/render.h"
#include "host/clock.h"
#include "host/file.h"
#include "host/hub_cache.h"

namespace braid {
namespace {

Result<std::vector<int32_t>> ids_of(const OrderedJson& ids) {
  if (!ids.is_array()) return invalid_input("key 'ids' must be an array of token ids");
  std::vector<int32_t> out;
  for (const OrderedJson& id : ids) {
    const bool fits = id.is_number_integer() && id >= 0 && id <= INT32_MAX;
    if (!fits) return invalid_input(cat("token id ", id.dump(), " is outside of the vocabulary"));
    out.push_back(id.get<int32_t>());
  }
  return out;
}

Result<std::vector<int32_t>> prompt_ids(const Generator& generator, const std::string& date,
                                        const OrderedJson& line) {
  const int kinds =
      static_cast<int>(line.count("ids") + line.count("prompt") + line.count("messages"));
  if (!line.is_object() || kinds != 1)
    return invalid_input("must be an object with one of 'prompt', 'messages' and 'ids'");
  if (line.contains("ids")) return ids_of(line["ids"]);
  if (!generator.tokenizer)
    return invalid_input("the model folder has no tokenizer.json; give the prompt as 'ids'");
  if (line.contains("messages")) {
    BRAID_ASSIGN(const Conversation conversation, read_conversation(line, "messages"));
    ChatOptions options;
    options.add_generation_prompt = true;
    options.date = date;
    BRAID_ASSIGN(ChatIds chat, encode_chat(*generator.tokenizer, conversation, options));
    return std::move(chat.ids);
  }
  BRAID_ASSIGN(const std::string text, json_field<std::string>(line, "prompt"));
  if (text.empty()) return invalid_input("the prompt is empty");
  return generator.tokenizer->encode(text, true);
}

struct PlacedRequest {
  std::string where;  // file and line, for messages
  Request request;
};

// Blank lines count in error messages but give no output; sample ids are indices of the others.
Result<std::vector<PlacedRequest>> read_requests(const Generator& generator,
                                                 const GenerateOptions& options) {
  std::vector<std::pair<std::string, OrderedJson>> lines;
  if (options.prompt) {
    lines.emplace_back("--prompt", OrderedJson{{"prompt", *options.prompt}});
  } else {
    BRAID_ASSIGN(const std::string content, read_file(options.prompts));
    const std::string name = options.prompts == "-" ? "standard input" : options.prompts;
    const std::vector<std::string> texts = split(content, '\n');
    for (size_t i = 0; i < texts.size(); ++i) {
      if (trim(texts[i]).empty()) continue;
      std::string where = cat(name, ":", i + 1);
      BRAID_ASSIGN(OrderedJson line, parse_ordered_json(texts[i], where));
      lines.emplace_back(std::move(where), std::move(line));
    }
  }
  if (lines.empty()) return invalid_input(cat(options.prompts, ": has no prompts"));
  std::vector<PlacedRequest> requests;
  for (const auto& [where, line] : lines) {
    Request request;
    request.sample = SampleId{static_cast<int64_t>(requests.size())};
    request.sampling = generator.sampling;
    BRAID_ASSIGN(request.prompt_ids, prompt_ids(generator, options.template_date, line).at(where));
    requests.push_back({where, std::move(request)});
  }
  return requests;
}

Status print_sample(const Generator& generator, const GenerateOptions& options,
                    const Generated& sample) {
  Json text;
  if (generator.tokenizer) {
    BRAID_ASSIGN(text, text_of(generator, options, sample));
  }
  if (!options.json) {
    std::printf("%s\n", text.is_null() ? Json(sample.response_ids).dump().c_str()
                                       : text.get_ref<const std::string&>().c_str());
    return ok_status();
  }
  const OrderedJson line = {{"ids", sample.response_ids},
                            {"text", text},
                            {"logprobs", sample.logprobs},
                            {"finish", sample.finish == Finish::kStop ? "stop" : "length"}};
  std::printf("%s\n", line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace).c_str());
  return ok_status();
}

// Prints finished samples as soon as all before them are printed.
class OrderedPrinter {
 public:
  OrderedPrinter(const Generator& generator, const GenerateOptions& options)
      : generator_(generator), options_(options) {}

  Status add(Generated sample) {
    pending_.emplace(sample.sample.value, std::move(sample));
    for (auto it = pending_.begin(); it != pending_.end() && it->first == next_; ++next_) {
      BRAID_TRY(print_sample(generator_, options_, it->second));
      it = pending_.erase(it);
    }
    return ok_status();
  }

 private:
  const Generator& generator_;
  const GenerateOptions& options_;
  std::map<int64_t, Generated> pending_;
  int64_t next_ = 0;
};

void print_statistics(const EngineStats& stats, int64_t samples, int64_t tokens, double seconds) {
  std::fprintf(stderr, "%s\n",
               cat(samples, " samples, ", tokens, " new tokens in ", format_seconds(seconds), ": ",
                   static_cast<int64_t>(static_cast<double>(tokens) / std::max(seconds, 1e-9)),
                   " tokens/s; ", stats.steps, " steps, ", stats.prefill_tokens,
                   " prompt tokens computed, ", stats.shared_prompt_tokens, " shared, at most ",
                   stats.peak_concurrent, " sequences and ", stats.peak_pages * kPageTokens,
                   " cache tokens at once, ", stats.preemptions, " preemptions")
                   .c_str());
}

// Runs the engine to the end; every finished sample goes to `done`.
Status drain(Engine& engine, const std::function<Status(Generated)>& done) {
  const double start = now_s();
  int64_t samples = 0, tokens = 0;
  while (!engine.drained()) {
    BRAID_ASSIGN(std::vector<Generated> finished, engine.step());
    for (Generated& sample : finished) {
      ++samples;
      tokens += static_cast<int64_t>(sample.response_ids.size());
      BRAID_TRY(done(std::move(sample)));
    }
    std::fflush(stdout);
  }
  print_statistics(engine.stats(), samples, tokens, now_s() - start);
  return ok_status();
}

Status stream_one(Engine& engine, const Generator& generator, const GenerateOptions& options) {
  const double start = now_s();
  BRAID_ASSIGN(const Generated sample, stream_response(engine, generator, options));
  print_statistics(engine.stats(), 1, static_cast<int64_t>(sample.response_ids.size()),
                   now_s() - start);
  return ok_status();
}

Status run_generate(const GenerateOptions& options) {
  if (options.prompt.has_value() == !options.prompts.empty())
    return invalid_input("give one of --prompt TEXT and --prompts FILE.jsonl");
  if (options.threads > 0) at::set_num_threads(options.threads);
  if (std::count(options.stop.begin(), options.stop.end(), "") > 0)
    return invalid_input("--stop: the text is empty");
  BRAID_ASSIGN(const Generator generator, open_generator(options));
  BRAID_ASSIGN(const std::vector<PlacedRequest> requests, read_requests(generator, options));
  BRAID_ASSIGN(const std::unique_ptr<Engine> engine,
               Engine::create(*generator.model, engine_of(options)));
  for (const PlacedRequest& placed : requests)
    BRAID_TRY(engine->submit(placed.request).at(placed.where));
  if (options.prompt && !options.json) return stream_one(*engine, generator, options);
  engine->set_stop_check(stop_check(generator, options));
  OrderedPrinter printer(generator, options);
  return drain(*engine, [&](Generated sample) { return printer.add(std::move(sample)); });
}

}  // namespace

extern const Command kGenerateCommand =
    kGenerate.with([](GenerateOptions options, const std::vector<std::string>&) -> Status {
      BRAID_ASSIGN(options.model, locate_model(options.model));
      return run_generate(options);
    });

}  // namespace braid
