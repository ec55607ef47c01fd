#include "braid/model/generator.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "braid/model/load.h"
#include "data/response_text.h"
#include "host/file.h"
#include "rollout/stop_strings.h"

namespace braid {
namespace {

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

}  // namespace

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

StopCheck stop_check(const Generator& generator, const GenerateOptions& options) {
  return generator.tokenizer ? stop_at_strings(*generator.tokenizer, options.stop) : nullptr;
}

Result<std::string> text_of(const Generator& generator, const GenerateOptions& options,
                            const Generated& sample) {
  return response_text(*generator.tokenizer, sample.response_ids, options.stop);
}

Result<Generated> stream_response(Engine& engine, const Generator& generator,
                                  const GenerateOptions& options) {
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
  Generated out;
  while (!engine.drained()) {
    BRAID_ASSIGN(std::vector<Generated> finished, engine.step());
    for (Generated& sample : finished) out = std::move(sample);
  }
  show(out);
  BRAID_TRY(status);
  BRAID_TRY(stream.finish());
  std::fflush(stdout);
  return out;
}

}  // namespace braid
