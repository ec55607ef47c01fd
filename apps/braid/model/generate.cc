// braid generate: responses to one prompt, streamed, or to a file of prompts.
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "base/json.h"
#include "braid/engine_options.h"
#include "braid/model/load.h"
#include "data/chat/render.h"
#include "data/tokenizer/tokenizer.h"
#include "host/file.h"
#include "host/hub_cache.h"
#include "rollout/engine.h"
#include "rollout/stop_strings.h"

namespace braid {
namespace {

// What every step of the command uses.
struct Generator {
  std::unique_ptr<Model> model;
  std::optional<Tokenizer> tokenizer;  // empty: prompts are ids and the output has no text
  SamplingOptions sampling;
};

Result<std::vector<int64_t>> eos_of_generation_config(const std::string& folder) {
  const std::string path = join_path(folder, "generation_config.json");
  if (!path_exists(path)) return std::vector<int64_t>{};
  BRAID_ASSIGN(const std::string text, read_file(path));
  BRAID_ASSIGN(const Json config, parse_json(text, path));
  if (!config.is_object()) return invalid_input(cat(path, ": must be a JSON object"));
  const Json eos = config.value("eos_token_id", Json());
  if (eos.is_null()) return std::vector<int64_t>{};
  const Json list = eos.is_array() ? eos : Json::array({eos});
  for (const Json& id : list)
    if (!id.is_number_integer())
      return invalid_input(cat(path, ": eos_token_id ", eos.dump(), " is no token id"));
  return list.get<std::vector<int64_t>>();
}

SamplingOptions sampling_of(const GenerateOptions& options) {
  SamplingOptions out;
  out.temperature = options.temperature;
  out.top_k = options.top_k;
  out.top_p = options.top_p;
  out.min_p = options.min_p;
  out.repetition_penalty = options.repetition_penalty;
  out.max_new_tokens = options.max_new_tokens;
  out.ignore_eos = options.ignore_eos;
  out.seed = options.seed;
  return out;
}

EngineOptions engine_of(const GenerateOptions& options) {
  EngineOptions out;
  out.max_concurrent = options.max_concurrent;
  out.kv_budget_tokens = options.kv_budget_tokens;
  return out;
}

Result<Generator> open_generator(const GenerateOptions& options) {
  Generator generator;
  BRAID_ASSIGN(const LoadOptions load, load_options(options.dtype, options.device));
  BRAID_ASSIGN(generator.model, load_model(options.model, load));
  if (path_exists(join_path(options.model, "tokenizer.json"))) {
    BRAID_ASSIGN(generator.tokenizer, load_tokenizer(options.model));
  }
  generator.sampling = sampling_of(options);
  BRAID_ASSIGN(std::vector<int64_t> stops, eos_of_generation_config(options.model));
  const std::vector<int64_t>& eos = generator.model->spec().eos_ids;
  stops.insert(stops.end(), eos.begin(), eos.end());
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  for (const int64_t stop : stops)
    if (stop >= 0 &&
        stop < generator.model->spec().vocab)  // some configs name ids beyond a cut model
      generator.sampling.stop_tokens.push_back(static_cast<int32_t>(stop));
  if (!options.stop.empty() && !generator.tokenizer)
    return invalid_input(cat(options.model, ": --stop needs a tokenizer.json in the folder"));
  return generator;
}

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

// Where the text is cut: before the first stop string in it. Ids are kept.
size_t stop_position(const std::vector<std::string>& stops, const std::string& text) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  return first;
}

StopCheck stop_check(const Generator& generator, const GenerateOptions& options) {
  return generator.tokenizer ? stop_at_strings(*generator.tokenizer, options.stop) : nullptr;
}

Result<std::string> text_of(const Generator& generator, const GenerateOptions& options,
                            const Generated& sample) {
  BRAID_ASSIGN(std::string text, generator.tokenizer->decode(sample.response_ids, true));
  return text.substr(0, stop_position(options.stop, text));
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

// Writes the text of a growing response, holding back what may become a stop string.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : decoder_(tokenizer, true), stops_(stops) {
    for (const std::string& stop : stops) held_bytes_ = std::max(held_bytes_, stop.size());
  }

  Status push(int32_t id) {
    BRAID_ASSIGN(const std::string piece, decoder_.push(id));
    text_ += piece;
    write_until(
        std::min(stop_position(stops_, text_), text_.size() - std::min(text_.size(), held_bytes_)));
    return ok_status();
  }
  Status finish() {
    BRAID_ASSIGN(const std::string piece, decoder_.finish());
    text_ += piece;
    write_until(std::min(stop_position(stops_, text_), text_.size()));
    std::printf("\n");
    return ok_status();
  }

 private:
  void write_until(size_t end) {
    if (end <= written_) return;
    std::fwrite(text_.data() + written_, 1, end - written_, stdout);
    std::fflush(stdout);
    written_ = end;
  }

  IncrementalDecoder decoder_;
  const std::vector<std::string>& stops_;
  std::string text_;
  size_t written_ = 0, held_bytes_ = 0;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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
  const double start = seconds_now();
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
  print_statistics(engine.stats(), samples, tokens, seconds_now() - start);
  return ok_status();
}

Status stream_one(Engine& engine, const Generator& generator, const GenerateOptions& options) {
  TextStream stream(*generator.tokenizer, options.stop);
  const StopCheck stops = stop_check(generator, options);
  Status status;
  size_t shown = 0;
  const auto show = [&](const Generated& sample) {
    for (; shown < sample.response_ids.size() && status.ok(); ++shown)
      status = stream.push(sample.response_ids[shown]);
  };
  // Called after each token unless a stop token ended the sequence.
  engine.set_stop_check([&](const Generated& sample) {
    show(sample);
    return stops && stops(sample);
  });
  BRAID_TRY(drain(engine, [&](const Generated& sample) {
    show(sample);
    return status.ok() ? stream.finish() : status;
  }));
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
