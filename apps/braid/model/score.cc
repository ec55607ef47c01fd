// braid score: log-probabilities of given tokens under a model, or the values of its scalar head.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>

#include "base/json.h"
#include "braid/engine_options.h"
#include "braid/model/load.h"
#include "data/chat/render.h"
#include "data/tokenizer/tokenizer.h"
#include "device/device_copy.h"
#include "host/file.h"
#include "host/hub_cache.h"
#include "nn/model.h"

namespace braid {
namespace {

constexpr size_t kBatchTokens = 2048;  // of one forward; results do not depend on it

struct Scores {
  std::vector<float> logprobs;  // of ids[1..]; empty for a scalar head
  std::vector<float> values;    // of every token; empty without a scalar head
};

using Sequences = std::vector<std::vector<int32_t>>;

// Reads lines {"ids"}, {"text"} or {"messages"}; the tokenizer is loaded when a line asks for it.
class ScoreInput {
 public:
  ScoreInput(const ScoreOptions& options, const ModelSpec& spec) : options_(options), spec_(spec) {}

  Result<std::vector<int32_t>> read(const std::string& line, const std::string& where) {
    BRAID_ASSIGN(const OrderedJson parsed, parse_ordered_json(line, where));
    BRAID_ASSIGN(std::vector<int32_t> ids, ids_of(parsed).at(where));
    if (ids.empty()) return invalid_input(cat(where, ": no tokens to score"));
    if (has_last_position(spec_) && static_cast<int64_t>(ids.size()) > spec_.max_positions)
      return invalid_input(cat(where, ": ", ids.size(), " tokens; the model has positions for ",
                               spec_.max_positions));
    return ids;
  }

 private:
  Result<std::vector<int32_t>> ids_of(const OrderedJson& line) {
    if (!line.is_object()) return invalid_input("must be a JSON object");
    if (line.contains("ids") + line.contains("text") + line.contains("messages") != 1)
      return invalid_input("needs either 'ids' or 'text' or 'messages'");
    if (line.contains("ids")) return checked_ids(Json(line.at("ids")));
    if (!tokenizer_) {
      BRAID_ASSIGN(Tokenizer loaded, load_tokenizer(options_.model));
      tokenizer_ = std::move(loaded);
    }
    std::vector<int32_t> ids;
    if (line.contains("text")) {
      BRAID_ASSIGN(const std::string text, json_field<std::string>(line, "text"));
      BRAID_ASSIGN(ids, tokenizer_->encode(text, true));
    } else {
      BRAID_ASSIGN(const Conversation conversation, read_conversation(line, "messages"));
      BRAID_ASSIGN(const ChatIds chat, encode_chat(*tokenizer_, conversation, {}));
      ids = chat.ids;
    }
    return checked_ids(Json(ids));
  }

  Result<std::vector<int32_t>> checked_ids(const Json& list) const {
    if (!list.is_array()) return invalid_input("key 'ids' must be an array of token ids");
    std::vector<int32_t> ids;
    for (const Json& id : list) {
      if (!id.is_number_integer() || id < 0 || id >= spec_.vocab)
        return invalid_input(
            cat("token id ", id.dump(), " is not in the model's vocabulary of ", spec_.vocab));
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }

  const ScoreOptions& options_;
  const ModelSpec& spec_;
  std::optional<Tokenizer> tokenizer_;
};

Result<Sequences> read_sequences(const ScoreOptions& options, const ModelSpec& spec) {
  BRAID_ASSIGN(const std::string content, read_file(options.input));
  ScoreInput reader(options, spec);
  const std::string name = options.input == "-" ? "standard input" : options.input;
  Sequences sequences;
  int64_t line_number = 0;
  for (const std::string& line : split(content, '\n')) {
    ++line_number;
    if (trim(line).empty()) continue;
    BRAID_ASSIGN(std::vector<int32_t> ids, reader.read(line, cat(name, ":", line_number)));
    sequences.push_back(std::move(ids));
  }
  return sequences;
}

std::vector<float> to_floats(const at::Tensor& tensor) {
  const at::Tensor flat = to_host(tensor).contiguous();
  const float* data = flat.const_data_ptr<float>();
  return {data, data + flat.numel()};
}

// The score of every token of the packed sequences but the last: the next one's log-probability.
std::vector<float> packed_logprobs(Model& model, const at::Tensor& hidden_TH,
                                   const TokenBatch& batch) {
  if (hidden_TH.size(0) < 2) return {};
  const int64_t rows = hidden_TH.size(0) - 1;
  const at::Tensor next = batch.tokens_T.narrow(0, 1, rows);
  return to_floats(head_logprobs(model, hidden_TH.narrow(0, 0, rows), next, 1).logprobs_N);
}

std::vector<Scores> score_batch(Model& model, const Sequences& sequences) {
  const at::NoGradGuard no_grad;
  const TokenBatch batch = pack_sequences(sequences, model.options().device);
  const at::Tensor hidden_TH = model.forward(batch, nullptr);
  const bool scalar = model.spec().scalar_head;
  const std::vector<float> all = scalar ? to_floats(scalar_outputs(model, hidden_TH))
                                        : packed_logprobs(model, hidden_TH, batch);
  std::vector<Scores> scores(sequences.size());
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int32_t begin = batch.attention.query_begin[s], end = batch.attention.query_begin[s + 1];
    // A sequence's last token predicts nothing, though the packed list has a number for it.
    std::vector<float>& target = scalar ? scores[s].values : scores[s].logprobs;
    target.assign(all.begin() + begin, all.begin() + (scalar ? end : end - 1));
  }
  return scores;
}

// A scalar head stands in the place of the language-model head: such a model has no
// log-probabilities, and the line says so with nulls.
OrderedJson json_line(const std::vector<int32_t>& ids, const Scores& scores, bool scalar) {
  OrderedJson line = {{"ids", ids}, {"logprobs", OrderedJson::array({nullptr})}};
  for (size_t i = 1; i < ids.size(); ++i)
    line["logprobs"].push_back(scalar ? OrderedJson() : OrderedJson(scores.logprobs[i - 1]));
  if (scalar) line["values"] = scores.values;
  return line;
}

std::string score_line(const std::vector<int32_t>& ids, const Scores& scores, bool scalar,
                       bool json) {
  if (json) return json_line(ids, scores, scalar).dump();
  if (scalar) return cat("tokens ", ids.size(), "  value ", scores.values.back());
  const double sum = std::accumulate(scores.logprobs.begin(), scores.logprobs.end(), 0.0);
  return cat("tokens ", ids.size(), "  log-probability ", sum);
}

Status run_score(const ScoreOptions& options) {
  BRAID_ASSIGN(const LoadOptions load, load_options(options.dtype, options.device));
  BRAID_ASSIGN(const std::unique_ptr<Model> model, load_model(options.model, load));
  BRAID_ASSIGN(const Sequences sequences, read_sequences(options, model->spec()));
  for (size_t begin = 0; begin < sequences.size();) {
    size_t end = begin, tokens = 0;
    while (end < sequences.size() && (end == begin || tokens < kBatchTokens))
      tokens += sequences[end++].size();
    const Sequences batch(sequences.begin() + static_cast<int64_t>(begin),
                          sequences.begin() + static_cast<int64_t>(end));
    const std::vector<Scores> scores = score_batch(*model, batch);
    for (size_t s = 0; s < batch.size(); ++s)
      std::printf("%s\n",
                  score_line(batch[s], scores[s], model->spec().scalar_head, options.json).c_str());
    begin = end;
  }
  return ok_status();
}

}  // namespace

extern const Command kScoreCommand =
    kScore.with([](ScoreOptions options, const std::vector<std::string>&) -> Status {
      BRAID_ASSIGN(options.model, locate_model(options.model));
      return run_score(options);
    });

}  // namespace braid
