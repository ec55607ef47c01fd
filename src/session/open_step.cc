#include "session/open_step.h"

#include <cmath>
#include <limits>

#include "base/text.h"
#include "comm/rank_texts.h"

namespace braid::inline session {
namespace {

// JSON has no infinities: those, which sums of metrics may hold, become text.
Json exact(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : (value > 0 ? "inf" : "-inf");
}

Result<double> parse_exact(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  return invalid_input("a number is missing");
}

Json metrics_json(const Metrics& metrics) {
  Json out = Json::object();
  for (const auto& [name, m] : metrics)
    out[name] = {exact(m.sum), exact(m.count), exact(m.min), exact(m.max), exact(m.squares)};
  return out;
}

Result<Metrics> parse_metrics(const Json& json) {
  Metrics out;
  for (const auto& [name, values] : json.items()) {
    if (!values.is_array() || values.size() != 5)
      return invalid_input(cat(
          "metric '", name,
          "' is not five numbers: the checkpoint was made within a step, by another version; go "
          "on from one that was made between steps (checkpoint.resume=FOLDER)"));
    Metric& metric = out[name];
    double* const parts[] = {&metric.sum, &metric.count, &metric.min, &metric.max, &metric.squares};
    for (size_t i = 0; i < 5; ++i) {
      BRAID_ASSIGN(*parts[i], parse_exact(values[i]));
    }
  }
  return out;
}

}  // namespace

Result<Metrics> metrics_field(const Json& json, const std::string& key) {
  BRAID_ASSIGN(const Json metrics, json_field<Json>(json, key));
  return parse_metrics(metrics);
}

Result<Json> metrics_to_first(Metrics mine, FieldExchange& exchange) {
  const auto hear = [&](const std::string& text) -> Status {
    BRAID_ASSIGN(const Json json, parse_json(text, "metrics of a rank"));
    BRAID_ASSIGN(const Metrics part, parse_metrics(json));
    merge(mine, part);
    return ok_status();
  };
  BRAID_TRY(merge_to_first(exchange.everyone(), {[&] { return metrics_json(mine).dump(); }, hear},
                           "metrics"));
  return metrics_json(mine);
}

Json progress_json(const StepProgress& progress) {
  Json trainings = Json::object();
  for (const auto& [call, training] : progress.trainings)
    trainings[call] = {{"minibatch", training.minibatch},
                       {"stopped", training.stopped},
                       {"metrics", metrics_json(training.metrics)}};
  return {{"next", progress.next},
          {"metrics", metrics_json(progress.metrics)},
          {"seconds", progress.seconds},
          {"trained_tokens", progress.trained_tokens},
          {"trainings", std::move(trainings)}};
}

Result<StepProgress> parse_progress(const Json& json) {
  StepProgress out;
  BRAID_ASSIGN(out.next, json_field<size_t>(json, "next"));
  BRAID_ASSIGN(out.metrics, metrics_field(json, "metrics"));
  using Seconds = std::map<std::string, double>;
  BRAID_ASSIGN(out.seconds, json_field<Seconds>(json, "seconds"));
  BRAID_ASSIGN(out.trained_tokens, json_field<int64_t>(json, "trained_tokens"));
  BRAID_ASSIGN(const Json trainings, json_field<Json>(json, "trainings"));
  for (const auto& [call, training] : trainings.items()) {
    TrainingProgress& of_call = out.trainings[call];
    BRAID_ASSIGN(of_call.minibatch, json_field<size_t>(training, "minibatch"));
    BRAID_ASSIGN(of_call.stopped, json_field<bool>(training, "stopped"));
    BRAID_ASSIGN(of_call.metrics, metrics_field(training, "metrics"));
  }
  return out;
}

Result<Json> store_json(const SampleStore& store, NamedTensors& tensors) {
  Json out = {{"samples", Json::array()},
              {"tokens", Json::object()},
              {"rows", Json::object()},
              {"counts", store.said_counts()}};
  for (const size_t row : store.all_rows())
    out["samples"].push_back(sample_json(store.sample(row)));
  for (const std::string& field : store.token_fields()) {
    BRAID_ASSIGN(const TokenLists* lists, store.tokens(field));
    out["tokens"][field] = *lists;
  }
  for (const std::string& field : store.real_fields()) {
    const Rows rows = store.rows_with(field);
    BRAID_ASSIGN(at::Tensor values, store.reals(field, rows));
    out["rows"][field] = rows;
    tensors.emplace_back(field, std::move(values));
  }
  return out;
}

Status load_store(const Json& json, const NamedTensors& tensors, SampleStore& store) {
  BRAID_ASSIGN(const Json samples, json_field<Json>(json, "samples"));
  std::vector<StoredSample> parsed;
  for (const Json& sample : samples) {
    BRAID_ASSIGN(StoredSample one, parse_sample(sample));
    parsed.push_back(std::move(one));
  }
  store.begin(std::move(parsed));
  using TokenFields = std::map<std::string, TokenLists>;
  BRAID_ASSIGN(TokenFields tokens, json_field<TokenFields>(json, "tokens"));
  for (auto& [field, lists] : tokens)
    BRAID_TRY(store.put_tokens(field, store.all_rows(), std::move(lists)));
  using FieldRows = std::map<std::string, Rows>;
  BRAID_ASSIGN(const FieldRows rows, json_field<FieldRows>(json, "rows"));
  for (const auto& [field, values] : tensors) {
    if (rows.count(field) == 0) return invalid_input(cat("no rows of field '", field, "'"));
    BRAID_TRY(store.put_reals(field, rows.at(field), values));
  }
  using Counts = std::map<std::string, std::vector<int64_t>>;
  BRAID_ASSIGN(Counts counts, json_field_or<Counts>(json, "counts", {}));
  for (auto& [field, values] : counts) store.set_counts(field, std::move(values));
  return ok_status();
}

}  // namespace braid::inline session
